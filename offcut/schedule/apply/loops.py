"""Decisions about the loops of a stage: split, fuse, order, bind.

Each is three functions: what is called takes a decision, ``check_…`` states the theorem, and ``build_…``
makes the new schedule. What only the whole program shows, that no dependence is turned
round, is proved when the schedule is lowered.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from offcut.core import index as ix
from offcut.core.expr import Compare, Expr, variables
from offcut.core.integers import whole
from offcut.core.program import MAX_SIZE
from offcut.core.text.printer import format_expr, format_stmt
from offcut.errors import PartitionError
from offcut.partition import LADDER, Strategy, check_axis, check_exact
from offcut.polyhedral import Facts, Space
from offcut.schedule.apply.axes import Target, check_new
from offcut.schedule.apply.staged_form import Mark, Nest, Nests, Part, depends_on, literal_extent
from offcut.schedule.checks import gap_in_ranges
from offcut.schedule.decisions import UNIT_PRIMITIVES, Bind, Fuse, Order, Split, SplitPair
from offcut.schedule.diagnostics import Advice, DecidedError, split_advice


def split(target: Target, step: Split) -> Nests:
    """Return the schedule with a loop for each level of tiles, and one inside the tiles, where `axis` was."""
    if step.axis not in target.nest.terms:
        step = replace(step, axis=target.axis("split", step.axis))
    at = f"axis {target.buffer}.{step.axis}"
    check_new("split", at, target.nest.names(), *step.names)
    check_holds_no_stage(target, "split", step.axis)
    for pair in step.pairs:
        checked_factor(target, pair.axis, pair.factor)
        if pair.level.room is not None:
            check_blocks(target, step)
        if pair.level.by is not None:
            check_heights_around(target, pair)
        for tile, tail in _tails(target, pair):
            check_split(target, pair.axis, tile, tail)
        target = replace(target, nests=build_split(target, pair))
    return target.nests


def check_holds_no_stage(target: Target, op: str, axis: str) -> None:
    """Check that no other stage is computed in a loop that is replaced: it would be computed nowhere.

    Raises PartitionError, with the stage.
    """
    name = target.nest.name
    inner = [one.name for one in target.nests.nests if one.at == (name, axis) and one.name != name]
    if inner:
        raise PartitionError(
            op,
            f"cannot {op} {axis}",
            at=f"axis {target.buffer}.{axis}",
            because=f"{inner[0]} is computed in this loop, which the {op} replaces",
            help=(f"the {op} before the line that says where {inner[0]} is computed",),
        )


def _tails(target: Target, pair: SplitPair) -> Iterator[tuple[int, Strategy]]:
    """Yield each tile of a split with the strategy that the decision says for its tail, the sizes of its tiles among it.

    Raises PartitionError if these sizes are for another strategy than a ladder.
    """
    level, tail = pair.level, pair.tail
    sizes = [(tile, heights) for _, tile, heights in level.classes]
    for tile, heights in sizes or [(level.tile, level.heights or ())]:
        for size in heights:
            checked_factor(target, pair.axis, size)
        if heights and tail not in (None, LADDER):
            raise PartitionError(
                "split",
                f"cannot split {pair.axis} by {tail} in tiles of {' '.join(map(str, heights))}",
                at=f"axis {target.buffer}.{pair.axis}",
                because="sizes below a tile are for ladder",
                help=(f"ladder of {' '.join(map(str, heights))}",),
            )
        if heights or tail is not None:
            yield tile, (tail or LADDER).with_heights(heights)


def check_blocks(target: Target, step: Split) -> None:
    """Theorem: blocks of a loop are ranges of its iterations, in order, and nothing is around these but the loop over blocks."""
    if len(step.levels) > 1 or target.nest.root(step.axis) is None:
        raise PartitionError(
            "split",
            f"cannot run {step.axis} in blocks",
            at=f"axis {target.buffer}.{step.axis}",
            because="blocks are of a whole loop, in one level, and this one is split",
            help=(
                f"split {target.stage}.{step.axis} 8 if fits 16384 as {step.names[0]} {step.names[-1]}",
            ),
        )


def check_heights_around(target: Target, pair: SplitPair) -> None:
    """Theorem: each height of the tiles that the loop `by` lies inside is in one range, so each of them has tiles of this split."""
    level, nest = pair.level, target.nest
    by = target.axis("split", level.by)
    outer = nest.made_by(by)
    because = f"{by} is not a loop inside of tiles"
    if isinstance(outer, SplitPair) and outer.inner == by:
        gap = gap_in_ranges(level.classes, outer.axis, outer.factor)
        if gap is None:
            return
        because = gap
    raise PartitionError(
        "split",
        f"cannot split {pair.axis} by the height of {by}",
        at=f"axis {target.buffer}.{pair.axis}",
        because=because,
        help=(
            "a loop inside of the tiles of a split before, and a range for each height of these",
        ),
    )


def checked_factor(target: Target, axis: str, factor: object) -> int:
    """Return a number of iterations, as a Python int; refused where it is none."""
    number = whole(factor)
    if number is None or not 1 <= number <= MAX_SIZE:
        raise PartitionError(
            "split",
            f"cannot split by {factor!r}",
            at=f"axis {target.buffer}.{axis}",
            because="a factor is an int from 1 to 2**31 - 1: isl decides no symbolic tile size",
            help=(split_advice(target.stage, axis, 8),),
        )
    return number


def check_split(target: Target, axis: str, factor: int, tail: Strategy) -> None:
    """Theorem: the tiles cover the axis and are disjoint, at its extent if that is one number, else at any; of ``exact``, where the
    factor divides the extent, which it does at every allowed size; and no term of a sum is met twice.

    That the order is kept, and for `shift` that another instance may be repeated, is proved when the schedule is lowered; so is all of a
    group, of which search applies many decisions that nobody lowers.
    """
    size = None if target.nest.root(axis) is None else literal_extent(target.nest, axis)
    for one in tail.among or (tail,):
        if not target.nest.group:
            check_axis(one, factor, ordered=False, size=size)
        if one.user_defined is None and one.repeats(factor):
            check_terms(target, axis, factor, one)
    if tail.divides:
        check_divides(target, axis, factor)


def check_divides(target: Target, axis: str, factor: int) -> None:
    """Theorem: the factor divides the extent at every allowed size."""
    extent = _extent(target.nest, axis)
    if extent is None:
        raise PartitionError(
            "split",
            'cannot take tail="exact"',
            at=f"axis {target.buffer}.{axis}",
            because=f"the extent of {axis} is not one number at all sizes",
            help=('tail="cut"',),
        )
    try:
        check_exact(f"axis {target.buffer}.{axis}", factor, extent, _facts(target), _users(target))
    except PartitionError as refused:
        refused.op = "split"
        raise


def check_terms(target: Target, axis: str, factor: int, tail: Strategy) -> None:
    """Theorem: the last tile is moved back over terms of a sum where the factor does not divide an extent that is more, and adds
    them twice. What more than the extent decides is left to the proof when the schedule is lowered.
    """
    nest, extent = target.nest, _extent(target.nest, axis)
    over = {*nest.origins(axis)}
    sums = [
        store
        for part in nest.parts
        if axis in (*part.loops, *nest.terms)
        for store in part.stores
        if store.reduce == "sum" and not any(over & {*variables(one)} for one in store.index)
    ]
    if extent is None or not sums:
        return
    more = _facts(target).where(Compare(">", extent, ix.const(factor)))
    for root in nest.roots:
        more = more.where(Compare(">", root.hi, root.lo))
    example = more.example(Compare("!=", ix.mod(extent, factor), ix.const(0)))
    if example is None:
        return
    users = _users(target)
    at = ", ".join(
        f"{users.get(name, name)} = {value}"
        for name, value in example.items()
        if name in variables(extent)
    )
    raise PartitionError(
        "split",
        f'cannot take tail="{tail}" on a sum',
        at=f"axis {target.buffer}.{axis}",
        because=f"{f'with {at}, ' if at else ''}{factor} does not divide the extent {format_expr(extent)}, "
        f"and the last tile would run {format_stmt(sums[0])} again",
        help=("any tail but shift meets each term once",),
    )


def _extent(nest: Nest, axis: str) -> Expr | None:
    """Return how often the loop over an axis runs; None where that is not one expression in the sizes."""
    literal, root = literal_extent(nest, axis), nest.root(axis)
    if root is not None:
        return ix.sub(root.hi, root.lo)
    return None if literal is None else ix.const(literal)


def _facts(target: Target) -> Facts:
    return Facts(Space(target.nests.sizes, target.nests.assumptions))


def _users(target: Target) -> dict[str, str]:
    """Return the users' names of the sizes, by the program's."""
    users = {name: user for user, name in target.nests.size_names}
    return {size.name: users.get(size.name, size.name) for size in target.nests.sizes}


def build_split(target: Target, pair: SplitPair) -> Nests:
    """Return the schedule with two loops where `axis` was."""
    nest = target.nest
    loops = pair.outer, pair.inner
    new_nest = replace(
        nest,
        relations=(*nest.relations, pair),
        parts=tuple(_replace_loops(part, (pair.axis,), loops) for part in nest.parts),
        marks=_moved_marks(nest, pair.axis, pair.outer),
    )
    return target.nests.with_nest(new_nest)


def fuse(target: Target, step: Fuse) -> Nests:
    """Return the schedule with one loop over the pairs of two, the inner one fastest."""
    outer, inner = target.axes("fuse", step.outer, step.inner)
    check_new("fuse", f"stage {target.buffer}", target.nest.names(), step.fused)
    check_holds_no_stage(target, "fuse", outer)
    check_holds_no_stage(target, "fuse", inner)
    check_fuse(target, outer, inner)
    return build_fuse(target, replace(step, outer=outer, inner=inner))


def check_fuse(target: Target, outer: str, inner: str) -> None:
    """Theorem: ``outer`` is directly around ``inner`` and nothing is between them, so the pairs are
    run in the same order; and the inner extent is a number, so that ``//`` and ``%`` by it are
    quasi-affine.
    """
    nest = target.nest
    at, other = f"stage {target.buffer}", Fuse(target.stage, inner, outer, f"{inner}_{outer}")
    for part in nest.parts:
        if outer not in part.loops and inner not in part.loops:
            continue
        place = part.loops.index(outer) if outer in part.loops else -1
        if place < 0 or part.loops[place + 1 : place + 2] != (inner,):
            raise PartitionError(
                "fuse",
                f"cannot fuse {outer} and {inner}",
                at=at,
                because=f"{inner} is not directly inside {outer}: {' > '.join(part.loops)}",
                help=("an order brings two loops together", Advice.of(other))
                if part.loops[place - 1 : place] == (inner,)
                else ("an order brings two loops together",),
            )
    one = nest.root(inner)
    if one is not None and outer in depends_on(one):
        raise PartitionError(
            "fuse",
            f"cannot fuse {outer} and {inner}",
            at=at,
            because=f"the bounds of {inner} depend on {outer}",
        )
    if literal_extent(nest, inner) is None:
        raise PartitionError(
            "fuse",
            f"cannot fuse {outer} and {inner}",
            at=at,
            because=f"the extent of {inner} is symbolic, and isl knows no // and % by a size",
            help=(split_advice(target.stage, inner, 8, " first, and fuse with its inner loop"),),
        )


def build_fuse(target: Target, step: Fuse) -> Nests:
    """Return the schedule with one loop where there were two."""
    nest = target.nest
    pair = step.outer, step.inner
    new_nest = replace(
        nest,
        relations=(*nest.relations, step),
        parts=tuple(_replace_loops(part, pair, (step.fused,)) for part in nest.parts),
        marks=_moved_marks(nest, step.outer, step.fused),
    )
    return target.nests.with_nest(new_nest)


def reorder(target: Target, step: Order) -> Nests:
    """Return the schedule with the loops named in this order, at the places that they had; the others stay."""
    names = target.axes("reorder", *step.loops)
    check_reorder(target, names)
    return build_reorder(target, names, step)


def check_reorder(target: Target, names: tuple[str, ...]) -> None:
    """Theorem: it is a permutation. A loop whose bounds depend on one that is now inside it runs over
    the widest of them, and an instance that is none is left out by a condition.
    """
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise PartitionError(
            "reorder",
            f"cannot reorder {', '.join(names)}",
            at=f"stage {target.buffer}",
            because=f"{twice[0]} is listed twice",
            help=(f"loops of {target.buffer}: {', '.join(target.loops)}",),
        )
    for first in target.nest.orders:
        both = [name for name in first.loops if name in names]
        if both != sorted(both, key=names.index):
            raise DecidedError(
                "reorder",
                f"cannot reorder {', '.join(names)}",
                at=f"stage {target.buffer}",
                first=first,
                help=("one order of these loops",),
            )


def build_reorder(target: Target, names: tuple[str, ...], step: Order) -> Nests:
    """Return the schedule with loops permuted in every part that writes the buffer."""
    nest = target.nest

    def permuted(part: Part) -> Part:
        if not any(store.buffer == target.buffer for store in part.stores):
            return part
        mine = iter([name for name in names if name in part.loops])
        return replace(part, loops=tuple(next(mine) if n in names else n for n in part.loops))

    parts, orders = tuple(map(permuted, nest.parts)), (*nest.orders, step)
    return target.nests.with_nest(replace(nest, parts=parts, orders=orders))


def bind(target: Target, step: Bind) -> Nests:
    """Return the schedule in which a unit of the machine runs the loop over `axis`, such as ``thread`` or ``blockIdx.x``."""
    op = UNIT_PRIMITIVES.get(step.unit, "bind")
    name, unit = target.axis(op, step.axis), step.unit
    parts = unit.split(".") if isinstance(unit, str) else []
    if unit is not None and not (parts and all(part.isidentifier() for part in parts)):
        raise PartitionError(
            "bind",
            f"cannot bind {name} to {unit!r}",
            at=f"axis {target.buffer}.{name}",
            because="a hardware index is a name",
            help=tuple(
                Advice.of(Bind(target.stage, name, index))
                for index in ("blockIdx.x", "threadIdx.x")
            ),
        )
    first = target.nest.mark(name).decision
    if first is not None:
        raise DecidedError(
            op,
            f"cannot bind {name} to {unit or 'serial'}",
            at=f"axis {target.buffer}.{name}",
            first=first,
            help=("one line for a loop",),
        )
    return target.nests.with_nest(_with_mark(target.nest, Mark(name, unit, step)))


def _with_mark(nest: Nest, mark: Mark) -> Nest:
    return replace(nest, marks=(*(m for m in nest.marks if m.axis != mark.axis), mark))


def _moved_marks(nest: Nest, axis: str, to: str) -> tuple[Mark, ...]:
    """Return the marks, those of a loop that is gone on the loop that is outermost in its place."""
    return tuple(replace(m, axis=to) if m.axis == axis else m for m in nest.marks)


def _replace_loops(part: Part, old: tuple[str, ...], new: tuple[str, ...]) -> Part:
    if old[0] not in part.loops:
        return part
    place = part.loops.index(old[0])
    return replace(part, loops=(*part.loops[:place], *new, *part.loops[place + len(old) :]))
