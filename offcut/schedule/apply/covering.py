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
from functools import partial

from offcut.core import index as ix
from offcut.core import program as tile
from offcut.core.expr import Load, variables
from offcut.core.memo import memo
from offcut.core.names import suggestion
from offcut.core.program import Store, Tile, TileAxis
from offcut.core.text.printer import format_expr
from offcut.describe.computation import Stage
from offcut.describe.intrinsic import find_instruction
from offcut.describe.microkernel import Microkernel
from offcut.errors import PartitionError
from offcut.partition import Match, Question, Refusal, all_matches, cover
from offcut.schedule.apply.axes import Target
from offcut.schedule.apply.reading import loads_of
from offcut.schedule.apply.staged_form import (
    Covered,
    Nest,
    Nests,
    Part,
    VectorTile,
    depends_on,
    in_loops,
)
from offcut.schedule.decisions import VECTORS, Bind, Cover, Primitive, SplitPair, primitive_of
from offcut.schedule.diagnostics import DecidedError, decision_error, split_advice
from offcut.schedule.nests import KERNEL_AXES

# (because, *help) -> the refusal
Refuse = Callable[..., PartitionError]


def tensorize(target: Target, step: Cover) -> Nests:
    """Return the schedule in which an instruction runs the loops from `axis` inwards, a tile at a time."""
    check_not_at_points(target, step)
    if target.nest.group:
        return cover_group(target, step)
    if step.microkernel == VECTORS:
        return run_by_vectors(target, step)
    axis = target.axis("tensorize", step.axis)
    at = f"axis {target.buffer}.{axis}"
    name, intrinsics = step.microkernel, target.nests.intrinsics
    own = {kernel.name: kernel for kernel in target.nests.microkernels}
    if name in own and all(kernel.name != name for kernel in intrinsics):
        refuse, part, roots = check_tile(target, axis, own[name])
        point_parts = [p for one in target.nests.at_points(target.nest) for p in one.parts]
        loops = dict.fromkeys((*roots, *(leaf for one in point_parts for leaf in one.loops)))
        _check_named(step, own[name], (part, *point_parts), list(loops), refuse)
        request = tile.Cover(name, step.axes, step.operands)
        return build_tensorize(target, Covered(axis, own[name], (), step, request))
    intrinsic = find_intrinsic(name, intrinsics, at, tuple(own))
    extents = check_tensorize(target, axis, intrinsic)
    return build_tensorize(target, Covered(axis, intrinsic, extents, step))


def check_not_at_points(target: Target, step: Cover) -> None:
    """Check that no stage around runs a stage at each point of a tile: the cover of that one runs both.

    Raises PartitionError, with it.
    """
    nest = target.nest
    if nest.at is not None and target.nests.is_at_points(nest):
        raise PartitionError(
            "tensorize",
            f"cannot run {target.buffer} by {step.microkernel}",
            at=f"stage {target.buffer}",
            because=f"it is computed at each point of the tile of {nest.at[0]}, and what covers that runs both",
            help=(f"at {target.buffer} in a loop around the tile",),
        )


def run_by_vectors(target: Target, step: Cover) -> Nests:
    """Return the schedule in which the loops from an axis inwards are one tile, with those that no order names.

    The tile has no order of its instances: that they need none is proved when the schedule is lowered.
    """
    nest, at = target.nest, f"stage {target.buffer}"
    axis = target.axis("tensorize", step.axis) if step.axis else None
    first = nest.covered or nest.vectors
    if first is not None:
        refused = f"cannot run {target.buffer} by {VECTORS}"
        raise DecidedError("tensorize", refused, at=at, first=first.decision)
    ordered = {loop for order in nest.orders for loop in order.loops}
    pairs = [one for one in nest.relations if isinstance(one, SplitPair)]
    outer = {one.outer for one in pairs} | {one.inner for one in pairs if one.level.room}
    inside = {
        loop
        for part in nest.parts
        for loop in part.loops[part.loops.index(axis) if axis in part.loops else len(part.loops) :]
    }
    inside |= {loop for part in nest.parts for loop in part.loops if loop not in ordered | outer}
    below = {nest.root_below(loop) for loop in inside}
    roots = {root.name: root for root in nest.roots if root.name in below}
    stored = {name for p in nest.parts for s in p.stores for i in s.index for name in variables(i)}
    for loop in sorted(inside):
        root = nest.root_below(loop)
        because = ""
        if root is None:
            because = f"{loop} is not the innermost part of a loop: its values are not consecutive"
        elif nest.mark(loop).unit is not None:
            because = f"{loop} is run by {nest.mark(loop).unit}"
        elif stages := _attached_off_points(target.nests, nest, loop):
            because = f"{stages[0].name} is computed inside of {loop}"
        elif root in stored and (others := depends_on(roots[root]) & {*roots} - {root}):
            because = f"the bounds of {loop} depend on {min(others)}, another loop of its tile"
        if because:
            raise PartitionError(
                "tensorize",
                f"cannot run {target.buffer} by {VECTORS}",
                at=at,
                because=because,
                help=(f"an order that names the loops around the tile, {loop} among them",),
            )
    parts = tuple(
        replace(part, loops=tuple(sorted(part.loops, key=inside.__contains__)))
        for part in nest.parts
    )
    new_nest = replace(nest, parts=parts, vectors=VectorTile(frozenset(inside), step))
    return target.nests.with_nest(new_nest)


def cover_group(target: Target, step: Cover) -> Nests:
    """Return the schedule in which the tiles of a group run as vectors, or by the microkernel that is laid over its sum by these axes.

    Which tiles the microkernel runs is judged when the schedule is lowered.
    """
    nests = run_by_vectors(target, step)
    if step.microkernel == VECTORS:
        return nests
    nest, kernels = nests.nest(target.name), nests.microkernels
    kernel = next((one for one in kernels if one.name == step.microkernel), None)
    if kernel is None:
        names = ", ".join(one.name for one in kernels)
        raise decision_error(f"cannot cover tiles by {step.microkernel}", f"there are {names}")
    along = {name: nest.root_below(loop) for name, loop in step.axes}
    rows, columns, depth = map(along.get, KERNEL_AXES)
    return nests.with_nest(
        nest.with_match(match_by_axes(nest.group[0], kernel, rows, columns, depth))
    )


@memo(1 << 10)
def match_by_axes(
    stage: Stage, kernel: Microkernel, rows: str | None, columns: str | None, depth: str | None
) -> Match:
    """Return the microkernel laid over a stage along these of its axes.

    Raises PartitionError where it does not compute the stage so.
    """
    for found in all_matches(stage, (kernel,)):
        if (found.rows, found.columns, found.depth or None) == (rows, columns, depth):
            return found
    raise decision_error(
        f"cannot cover {stage.label} by {kernel.name}",
        f"along these axes it does not compute {format_expr(stage.body)}",
    )


def find_intrinsic(
    name: str, intrinsics: Sequence[Microkernel], at: str, own: Sequence[str] = ()
) -> Microkernel:
    """Return the instruction of that name: one of `intrinsics`, the last of them, or one that was declared.

    own  the names of the microkernels of the target

    Raises PartitionError where there is none.
    """
    intrinsic = next(
        (kernel for kernel in reversed(intrinsics) if kernel.name == name), find_instruction(name)
    )
    if intrinsic is None:
        raise undeclared_error(name, at, own)
    return intrinsic


def undeclared_error(what: object, at: str, own: Sequence[str] = ()) -> PartitionError:
    """Return the refusal of what is no instruction."""
    return PartitionError(
        "tensorize",
        f"cannot run {what!r}",
        at=at,
        because=(
            "it is neither a microkernel of the target nor a declared instruction"
            if own
            else "it is not a declared instruction"
        )
        + suggestion(str(what), own),
        help=("decl_tensor_intrin(computation, lowering)",),
    )


def check_tensorize(
    target: Target, axis: str, intrinsic: Microkernel
) -> tuple[tuple[str, int], ...]:
    """Theorem: an injection of the declared axes into the loops from `axis` inwards maps the declared
    expression to the one of the loops, and declared indices to the indices that move.

    Returns the declared extent of each root of the tile.
    """
    nest, definition = target.nest, intrinsic.definition
    refuse, part, roots = check_tile(target, axis, intrinsic)
    declared = [*definition.axes, *definition.reduce_axes]
    if len(declared) != len(roots):
        raise refuse(
            f"it has {len(roots)} loops, {', '.join(roots)}, and {intrinsic.name} computes "
            f"{', '.join(a.name for a in declared)}"
        )
    match = _match(target, axis, intrinsic, part, tuple(roots.values()), refuse)
    extents = {a.name: int(a.extent) for a in declared}
    by_root = {root: extents[name] for name, root in match.axes if root is not None}
    for leaf, root in roots.items():
        _check_extent(nest, target.stage, leaf, root, by_root[root], refuse)
    return tuple(by_root.items())


def check_tile(
    target: Target, axis: str, intrinsic: Microkernel
) -> tuple[Refuse, Part, dict[str, str]]:
    """Theorem: the loops from `axis` inwards are a box of neighbouring elements of one statement, or of one sum with its start.

    Returns how to refuse more, the part that computes terms, and the root of each of its loops.
    """
    nest = target.nest
    at = f"axis {target.buffer}.{axis}"
    refused = f"cannot run {target.buffer} from {axis} inwards by {intrinsic.name}"

    def refuse(because: str, *help_: str) -> PartitionError:
        return PartitionError("tensorize", refused, at=at, because=because, help=help_)

    if nest.covered is not None:
        raise DecidedError("tensorize", refused, at=at, first=nest.covered.decision)
    part = _computing(target, axis, refuse)
    loops = part.loops[part.loops.index(axis) :]
    roots: dict[str, str] = {}
    for leaf in loops:
        root = nest.root_below(leaf)
        if root is None:
            raise refuse(
                f"{leaf} is not the innermost part of a loop: its values are not consecutive",
                f"an order of the loops with the inner ones below {axis}",
            )
        if root in roots.values():
            raise refuse(f"two of its loops, {_leaf_of(roots, root)} and {leaf}, run {root}")
        if nest.mark(leaf).unit is not None:
            raise refuse(f"{leaf} is marked: an instruction runs it")
        roots[leaf] = root
    own = intrinsic in target.nests.microkernels
    attached = (
        partial(_attached_off_points, target.nests, nest)
        if own
        else partial(target.nests.attached_nests, nest.name)
    )
    inner_stage = next((one.name for leaf in loops for one in attached(leaf)), None)
    if inner_stage is not None:
        raise refuse(
            f"{inner_stage} is computed inside its loops {', '.join(loops)}",
            f"at {inner_stage} in a loop around {axis}",
        )
    return refuse, part, roots


def _attached_off_points(nests: Nests, reader: Nest, axis: str) -> tuple[Nest, ...]:
    """Return the nests that are computed in a loop of a tile of `reader`, and not at each of its points."""
    at_points = nests.at_points(reader)
    return tuple(one for one in nests.attached_nests(reader.name, axis) if one not in at_points)


def _check_named(
    step: Cover, kernel: Microkernel, parts: Sequence[Part], loops: Sequence[str], refuse: Refuse
) -> None:
    """Check that a cover names axes of the microkernel, loops of the tile, and arrays that it accesses."""
    definition = kernel.definition
    axes = [axis.name for axis in (*definition.axes, *definition.reduce_axes)]
    accessed = dict.fromkeys(
        name
        for part in parts
        for name in (*(s.buffer for s in part.stores), *map(_buffer, loads_of(part.body)))
    )
    for axis, loop in step.axes:
        if axis not in axes:
            raise refuse(f"{kernel.name} has no axis {axis}", f"its axes are {', '.join(axes)}")
        if loop not in loops:
            raise refuse(f"{loop} is not a loop of its tile", f"its loops are {', '.join(loops)}")
    for operand, buffer in step.operands:
        if buffer not in accessed:
            raise refuse(
                f"{operand}={buffer}, and the tile does not access {buffer}",
                f"it accesses {', '.join(accessed)}",
            )


def _buffer(load: Load) -> str:
    return load.buffer


def check_covers_stand(before: Nests, after: Nests, step: Primitive) -> None:
    """Theorem: the loops that an instruction runs are the same after `step`, and the instruction still computes what they do.

    Raises PartitionError, in the words of `step`, if not.
    """
    for nest in before.nests:
        if nest.covered is not None:
            _check_cover_stands(nest, nest.covered, after, step)
        if nest.vectors is not None:
            _check_vectors_stand(nest, nest.vectors, after, step)


def _check_vectors_stand(nest: Nest, vectors: VectorTile, after: Nests, step: Primitive) -> None:
    """Check that the loops of a tile that runs as vectors are still there, inside of all others, and nothing else is inside of them."""
    now = next((one for one in after.nests if one.name == nest.name), nest)
    because = ""
    inside = {
        loop
        for part in now.parts
        for at, loop in enumerate(part.loops)
        if vectors.loops & {*part.loops[: at + 1]}
    }
    stages = [one for loop in vectors.loops for one in _attached_off_points(after, now, loop)]
    units = [loop for loop in sorted(vectors.loops) if now.mark(loop).unit is not None]
    if inside != vectors.loops:
        because = f"its tile has the loops {', '.join(sorted(vectors.loops))}"
    elif stages:
        because = f"{stages[0].name} would be computed inside of its tile"
    elif units:
        because = f"{units[0]} is a loop of its tile"
    if because:
        raise PartitionError(
            primitive_of(step),
            f"cannot change the loops that {VECTORS} run",
            at=f"stage {nest.parts[-1].stores[-1].buffer}",
            because=because,
            help=() if isinstance(step, Bind) else ("this decision before the cover",),
        )


def _check_cover_stands(nest: Nest, covered: Covered, after: Nests, step: Primitive) -> None:
    buffer = nest.parts[-1].stores[-1].buffer
    loops = covered.loops(nest)
    op = primitive_of(step)

    def refused(because: str) -> PartitionError:
        return PartitionError(
            op,
            f"cannot change the loops that {covered.intrinsic.name} runs",
            at=f"stage {buffer}",
            because=because,
            help=() if isinstance(step, Bind) else ("this decision before the cover",),
        )

    now = next((one for one in after.nests if one.name == nest.name), None)
    inside = () if now is None or now.covered != covered else covered.loops(now)
    if now is None or inside != loops:
        raise refused(
            f"it was given {', '.join(loops)}, and the loops from {covered.axis} inwards would be "
            f"{', '.join(inside) or 'gone'}"
        )
    attached = next(
        (n.name for leaf in loops for n in _attached_off_points(after, now, leaf)), None
    )
    if attached is not None:
        raise refused(f"{attached} would be computed inside its loops {', '.join(loops)}")
    uncovered = after.with_nest(replace(now, covered=None))
    try:
        check = check_tile if covered.wanted is not None else check_tensorize
        check(Target(uncovered, now.name, buffer), covered.axis, covered.intrinsic)
    except PartitionError as error:
        raise refused(error.because) from None


def build_tensorize(target: Target, covered: Covered) -> Nests:
    """Return the schedule with the loops covered."""
    return target.nests.with_nest(replace(target.nest, covered=covered))


def _computing(target: Target, axis: str, refuse: Refuse) -> Part:
    """Return the part that computes terms: the update of a reduction, or the only store."""
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
    return last


def _match(
    target: Target,
    axis: str,
    intrinsic: Microkernel,
    part: Part,
    roots: tuple[str, ...],
    refuse: Refuse,
) -> Match:
    """Return which root is which axis, as the judge of covers says of a tile of these roots.

    A reduction that goes on outside the tile is added to what is there.
    """
    nest, store = target.nest, part.stores[0]
    stored = {name for index in store.index for name in variables(index)}
    outside = part.loops[: part.loops.index(axis)]
    running = [leaf for leaf in outside if not set(nest.origins(leaf)) & stored]
    starts = [p.stores[0] for p in nest.parts if axis in p.loops and p is not part]
    own = {root.name: root for root in nest.roots}
    axes = [own[root] for root in roots if root in stored]
    update = in_loops([own[root] for root in roots if root not in stored], (store,))
    tile = Tile(
        tuple(TileAxis(axis.name, axis.lo, ix.sub(axis.hi, axis.lo)) for axis in axes),
        (*starts, *update) if starts and not running else update,
    )
    undecided = {Question.EXTENTS, Question.UNIT, Question.BOUNDS}
    coverage = cover(tile, target.nests.program((tile,)), intrinsic, undecided=undecided)
    if isinstance(coverage, Refusal):
        if coverage.question is Question.START:
            raise refuse(
                f"{', '.join(running) or target.buffer} adds to what was started outside the tile, and "
                f"{intrinsic.name} has one instruction for the whole reduction",
                "a lowering that returns three: body, reset, update",
            )
        raise refuse(f"{coverage.question.value}: {coverage}")
    return next(
        one.match for one in coverage.instances if one.start != "reset" or one.match.operands
    )


def _leaf_of(roots: Mapping[str, str], root: str) -> str:
    return next(leaf for leaf, one in roots.items() if one == root)


def _check_extent(
    nest: Nest, stage: str, leaf: str, root: str, declared: int, refuse: Refuse
) -> None:
    """The loop covers exactly the declared extent, but for the tail, or is given it by a window."""
    pair = nest.made_by(leaf)
    if isinstance(pair, SplitPair):
        if pair.factor != declared:
            raise refuse(
                f"{leaf} has {pair.factor} iterations, and the declared extent is {declared}",
                split_advice(stage, pair.axis, declared),
            )
        return
    loop = nest.root(root)
    assert loop is not None
    whole = ix.literal_value(ix.sub(loop.hi, loop.lo))
    if nest.at is None and whole != declared:
        count = format_expr(ix.sub(loop.hi, loop.lo))
        raise refuse(
            f"{leaf} has {count} iterations, and the declared extent is {declared}",
            split_advice(stage, leaf, declared),
        )
