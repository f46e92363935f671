"""Loops run by an instruction: checked by computation, access and extent, never by name.

The loops from `axis` inwards must compute what the instruction is declared to compute::

    declared  block[i, j] = sum over r of w[r, i] * x[r, j]        i, j, r < 8
    loops     CL[y, x] += AL[k, y] * BL[k, x]                      i -> y, j -> x, r -> k

so the expressions agree node by node, and the operands are indexed alike: the indices that move
along a loop of the tile are, in their order, the declared ones. An index that does not move says
only where the operand lies.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import permutations

from offcut.core import index as ix
from offcut.core.expr import (
    Binary,
    Cast,
    Compare,
    Expr,
    Load,
    Logic,
    Lookup,
    Reduce,
    Select,
    Unary,
    Var,
    children,
    dtype_of,
    rebuild,
    substitute,
    variables,
)
from offcut.core.program import Store
from offcut.core.text.printer import format_expr
from offcut.describe.intrinsic import declared
from offcut.describe.microkernel import Microkernel
from offcut.describe.tensor import Compute
from offcut.errors import PartitionError
from offcut.schedule.by_hand.axes import Target
from offcut.schedule.by_hand.nests import Covered, Nest, Nests, Part
from offcut.schedule.decisions import Bind, Primitive, Run, Schedule, Split, Tensorize

# (because, *help) -> the refusal
Refuse = Callable[..., PartitionError]


def tensorize(target: Target, step: Tensorize) -> Nests:
    """The loops from `axis` inwards run by an instruction, a tile at a time."""
    axis = target.axis("tensorize", step.axis)
    at = f"axis {target.buffer}.{axis}"
    intrinsic = intrinsic_named(step.intrinsic, target.nests.intrinsics, at)
    return build_tensorize(target, axis, intrinsic, check_tensorize(target, axis, intrinsic))


def intrinsic_named(name: str, given: Sequence[Microkernel], at: str) -> Microkernel:
    """The instruction of that name: one of `given`, the last of them, or one that was declared.

    Raises PartitionError where there is none.
    """
    found = next((kernel for kernel in reversed(given) if kernel.name == name), declared(name))
    if found is None:
        raise undeclared(name, at)
    return found


def undeclared(what: object, at: str) -> PartitionError:
    """The refusal of what is no instruction."""
    return PartitionError(
        "tensorize",
        f"cannot run {what!r}",
        at=at,
        because="it is no declared instruction",
        help=("decl_tensor_intrin(computation, lowering)",),
    )


def check_tensorize(
    target: Target, axis: str, intrinsic: Microkernel
) -> tuple[tuple[str, int], ...]:
    """Theorem: an injection of the declared axes into the loops from `axis` inwards maps the declared
    expression to the one of the loops, and declared indices to the indices that move.

    Returns the declared extent of each root of the tile.
    """
    nest, definition = target.nest, intrinsic.computes.definition
    assert definition is not None
    at = f"axis {target.buffer}.{axis}"
    refused = f"cannot run {target.buffer} from {axis} inwards by {intrinsic.name}"

    def refuse(because: str, *help_: str) -> PartitionError:
        return PartitionError("tensorize", refused, at=at, because=because, help=help_)

    if nest.covered is not None:
        raise refuse(
            f"{nest.covered.intrinsic.name} runs its loops from {nest.covered.axis} inwards already"
        )
    part, store = _computing(target, axis, refuse)
    loops = part.loops[part.loops.index(axis) :]
    roots: dict[str, str] = {}
    for leaf in loops:
        root = _root_below(nest, leaf)
        if root is None:
            raise refuse(
                f"{leaf} is not the innermost part of a loop: its values are not consecutive",
                f'reorder puts the inner loops below "{axis}"',
            )
        if root in roots.values():
            raise refuse(f"two of its loops, {_leaf_of(roots, root)} and {leaf}, run {root}")
        if nest.mark(leaf).unit is not None:
            raise refuse(f"{leaf} is marked: an instruction runs it")
        roots[leaf] = root
    declared = [*definition.axes, *definition.reduce_axes]
    if len(declared) != len(loops):
        raise refuse(
            f"it has {len(loops)} loops, {', '.join(loops)}, and {intrinsic.name} computes "
            f"{', '.join(a.name for a in declared)}"
        )
    body = definition.body
    reducer = body.op if isinstance(body, Reduce) else None
    if reducer != store.reduce:
        raise refuse(f"it is {_kind(store.reduce)}, and {intrinsic.name} computes {_kind(reducer)}")
    _check_order(nest, target, part, axis, intrinsic, refuse)
    mapping = _mapping(definition, store, tuple(roots.values()))
    if mapping is None:
        raise refuse(_difference(intrinsic, store))
    extents = {a.name: int(a.extent) for a in declared}
    found = {root: extents[name] for name, root in mapping.items()}
    for leaf, root in roots.items():
        _check_extent(nest, leaf, root, found[root], refuse)
    return tuple(found.items())


def check_covers_stand(before: Nests, after: Nests, step: Primitive) -> None:
    """Theorem: the loops that an instruction runs are the same after `step`, and the instruction still computes what they do.

    Raises PartitionError, in the words of `step`, if not.
    """
    for nest in before.nests:
        if nest.covered is not None:
            _check_cover_stands(nest, nest.covered, after, step)


def _check_cover_stands(nest: Nest, covered: Covered, after: Nests, step: Primitive) -> None:
    buffer = nest.parts[-1].stores[-1].buffer
    loops = covered.loops(nest)
    op = str(Schedule("", (step,))).splitlines()[1].split()[0]

    def refused(because: str) -> PartitionError:
        return PartitionError(
            op,
            f"cannot change the loops that {covered.intrinsic.name} runs",
            at=f"stage {buffer}",
            because=because,
            help=() if isinstance(step, Run | Bind) else (f"{op} before tensorize",),
        )

    now = next((one for one in after.nests if one.name == nest.name), None)
    inside = () if now is None or now.covered != covered else covered.loops(now)
    if now is None or inside != loops:
        raise refused(
            f"tensorize gave it {', '.join(loops)}, and the loops from {covered.axis} inwards would be "
            f"{', '.join(inside) or 'gone'}"
        )
    attached = next((n.name for leaf in loops for n in after.attached(now.name, leaf)), None)
    if attached is not None:
        raise refused(f"{attached} would be computed inside its loops {', '.join(loops)}")
    uncovered = after.with_nest(replace(now, covered=None))
    try:
        check_tensorize(Target(uncovered, now.name, buffer), covered.axis, covered.intrinsic)
    except PartitionError as error:
        raise refused(error.because) from None


def build_tensorize(
    target: Target, axis: str, intrinsic: Microkernel, extents: tuple[tuple[str, int], ...]
) -> Nests:
    """The schedule with the loops covered."""
    covered = Covered(axis, intrinsic, extents)
    return target.nests.with_nest(replace(target.nest, covered=covered))


def _computing(target: Target, axis: str, refuse: Refuse) -> tuple[Part, Store]:
    """The part that computes terms: the update of a reduction, or the only store."""
    mine = [part for part in target.nest.parts if axis in part.loops]
    for part in mine:
        if len(part.body) != 1 or not isinstance(part.body[0], Store):
            raise refuse("the loops run more than one store, or one under a condition")
    last = mine[-1]
    store = last.body[0]
    assert isinstance(store, Store)
    starts = len(mine) == 2 and mine[0].stores[0].reduce is None and store.reduce is not None
    if len(mine) != 1 and not starts:
        raise refuse("the loops run several statements, and no start of one reduction")
    return last, store


def _check_order(
    nest: Nest, target: Target, part: Part, axis: str, intrinsic: Microkernel, refuse: Refuse
) -> None:
    """A reduction that goes on outside the tile needs a reset and an update of its own."""
    store = part.stores[0]
    if store.reduce is None or intrinsic.update is not None:
        return
    stored = {name for index in store.index for name in variables(index)}
    outside = part.loops[: part.loops.index(axis)]
    running = [leaf for leaf in outside if not set(nest.origins(leaf)) & stored]
    separate = [p for p in nest.parts if axis in p.loops and p is not part]
    if running or not separate:
        raise refuse(
            f"{', '.join(running) or target.buffer} adds to what was started outside the tile, and "
            f"{intrinsic.name} has one instruction for the whole reduction",
            "a lowering that returns three: body, reset, update",
        )


def _root_below(nest: Nest, leaf: str) -> str | None:
    match nest.made_by(leaf):
        case None:
            return leaf
        case Split(_, parent, _, inner) if inner == leaf:
            return _root_below(nest, parent)
        case _:
            return None


def _leaf_of(roots: Mapping[str, str], root: str) -> str:
    return next(leaf for leaf, one in roots.items() if one == root)


def _kind(reducer: str | None) -> str:
    return "no reduction" if reducer is None else f"a reduction by {reducer}"


def _check_extent(nest: Nest, leaf: str, root: str, declared: int, refuse: Refuse) -> None:
    """The loop covers exactly the declared extent, but for the tail, or is given it by a window."""
    made = nest.made_by(leaf)
    if isinstance(made, Split):
        if made.factor != declared:
            raise refuse(
                f"{leaf} has {made.factor} iterations, and the declared extent is {declared}",
                f'split("{made.axis}", {declared})',
            )
        return
    loop = nest.root(root)
    assert loop is not None
    whole = ix.literal(ix.sub(loop.hi, loop.lo))
    if nest.at is None and whole != declared:
        shown = format_expr(ix.sub(loop.hi, loop.lo))
        raise refuse(
            f"{leaf} has {shown} iterations, and the declared extent is {declared}",
            f'split("{leaf}", {declared})',
        )


def _mapping(definition: Compute, store: Store, roots: tuple[str, ...]) -> dict[str, str] | None:
    """Declared axis to root, where the declared computation becomes that of the store."""
    names = [a.name for a in (*definition.axes, *definition.reduce_axes)]
    body = definition.body
    value = body.value if isinstance(body, Reduce) else body
    target = tuple(Var(a.name) for a in definition.axes)
    for order in permutations(roots):
        mapping = dict(zip(names, order, strict=True))
        if _moves_alike(target, store.index, mapping) and _same(value, store.value, mapping):
            return mapping
    return None


def _moves_alike(
    declared: tuple[Expr, ...], index: tuple[Expr, ...], mapping: Mapping[str, str]
) -> bool:
    """Whether the indices that move along the tile are, in their order, the declared ones."""
    moving = set(mapping.values())
    renamed: dict[str, Expr] = {name: Var(root) for name, root in mapping.items()}
    mine = [part for part in index if variables(part) & moving]
    theirs = [substitute(part, renamed) for part in declared]
    theirs = [part for part in theirs if variables(part)]
    return len(mine) == len(theirs) and all(
        not variables(ix.sub(a, b)) & moving for a, b in zip(mine, theirs, strict=True)
    )


def _same(declared: Expr, value: Expr, mapping: Mapping[str, str]) -> bool:
    """Whether two expressions agree node by node; sums and products commute."""
    match declared, value:
        case Load(), Load():
            return declared.dtype == value.dtype and _moves_alike(
                declared.index, value.index, mapping
            )
        case Binary(op, a, b), Binary(other, x, y) if op == other:
            if _same(a, x, mapping) and _same(b, y, mapping):
                return True
            return op in ("+", "*") and _same(a, y, mapping) and _same(b, x, mapping)
        case (
            (Unary(), Unary())
            | (Cast(), Cast())
            | (Select(), Select())
            | (Compare(), Compare())
            | (Logic(), Logic())
            | (Lookup(), Lookup())
        ):
            mine, theirs = children(declared), children(value)
            if len(mine) != len(theirs) or rebuild(declared, theirs) != value:
                return False
            return all(_same(a, b, mapping) for a, b in zip(mine, theirs, strict=True))
        case Var(), _:
            return mapping.get(declared.name) == (value.name if isinstance(value, Var) else None)
        case _:
            return declared == value


def _difference(intrinsic: Microkernel, store: Store) -> str:
    definition = intrinsic.computes.definition
    assert definition is not None
    types = dtype_of(definition.body), dtype_of(store.value)
    if types[0] != types[1]:
        return f"its elements are {types[1]}, and those of {intrinsic.name} {types[0]}"
    mine = definition.body
    value = mine.value if isinstance(mine, Reduce) else mine
    out = ", ".join(a.name for a in definition.axes)
    return (
        f"it computes {store.buffer}[{', '.join(map(format_expr, store.index))}] from "
        f"{format_expr(store.value)}, and {intrinsic.name} computes "
        f"{intrinsic.computes.name}[{out}] from {format_expr(value)}"
    )
