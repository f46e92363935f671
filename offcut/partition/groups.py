"""One group of stages in the tiles of a microkernel: the loops that a way of running it asks for.

From the outside in: loops that run plainly, cache groups of columns, loops inside these, segments of
each cut axis in turn, then a `Tile` whose body initialises, reduces, and runs the stages that follow
at the same point. The axes of a stage are parallel, so their order is free; a reduction stays inside
its tile and runs in ascending order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from offcut.core import index as ix
from offcut.core.program import For, Program, Stmt
from offcut.describe.computation import Computation, Names, Stage
from offcut.describe.source import instance, plain_loop
from offcut.partition.band import BandLevel
from offcut.partition.cutting import AxisCut, Blame, Carried, Cutting, LoopCut, tiles_alike
from offcut.partition.judge import Match, match_cover
from offcut.partition.loops import LoopCutter
from offcut.partition.strategies.catalog import LADDER
from offcut.polyhedral import Facts, space_of


@dataclass(frozen=True, slots=True)
class GroupCut:
    """How one group of stages is cut.

    cuts, reduce_cuts  of its axes, in loop order, and of those of its first stage's sum
    outer              axes that get a plain loop each, outermost first; the other axes that are not
                       cut lie inside the tile with their whole extent
    match              the microkernel that is laid over it
    around             axes that loops around the nest run through
    inner              axes that get a plain loop inside the cache groups, so that a group stays near
    """

    group: tuple[Stage, ...]
    cuts: tuple[AxisCut, ...] = ()
    reduce_cuts: tuple[AxisCut, ...] = ()
    outer: tuple[str, ...] = ()
    match: Match | None = None
    around: tuple[str, ...] = ()
    inner: tuple[str, ...] = ()


def cut_group(
    computation: Computation, plan: GroupCut, names: Names, blame: Blame
) -> tuple[tuple[Stmt, ...], Cutting]:
    """The statements of one group, and what was made.

    blame  around what is asked of an axis, by its name

    Raises PartitionError where an axis cannot be cut so.
    """
    axes = {axis.name: plain_loop(axis, ()) for axis in plan.group[0].axes}
    summed = {axis.name: stage.reducer for stage in plan.group for axis in stage.reduce_axes}
    reductions = {name: op for name, op in summed.items() if op is not None}
    chosen = {
        cut.axis: LoopCut((cut.tile,), cut.strategy.with_heights(cut.heights))
        for cut in plan.reduce_cuts
    }
    match, program = (
        plan.match,
        Program(
            computation.name, computation.sizes, computation.assumptions, computation.buffers, ()
        ),
    )
    cutting = Cutting(
        lambda loop: chosen.get(loop.iter),
        Carried(frozenset(summed), reductions),
        lambda tile, heights: None if match is None else match_cover(tile, program, match, heights),
        tiles_alike,
        names,
        folds=False,
        blame=blame,
    )
    at = Facts(space_of(computation))
    for name in (*plan.around, *plan.outer):
        at = at.loop(name, axes[name].lo, axes[name].hi)
    plain = (*plan.around, *plan.outer, *plan.inner)
    band = [loop for name, loop in axes.items() if name not in plain]
    steps = _steps(plan, band, [axes[name] for name in plan.inner])
    body = LoopCutter(cutting).tiled(band, instance(plan.group), list(steps), at)
    for name in reversed(plan.outer):
        body = (For(name, axes[name].lo, axes[name].hi, body),)
    return body, cutting


def _steps(plan: GroupCut, band: Sequence[For], inner: Sequence[For]) -> Iterator[BandLevel | For]:
    """What is around a tile, outermost first: the one cache group, loops inside it, the cuts."""
    numbers = {loop.iter: number for number, loop in enumerate(band)}
    for cut in plan.cuts:
        size = ix.literal_value(band[numbers[cut.axis]].hi)
        if cut.group is not None and (size is None or size > cut.group):
            yield BandLevel(numbers[cut.axis], cut.group, LADDER, False)
            break
    yield from inner
    for cut in plan.cuts:
        strategy = cut.strategy.with_heights(cut.heights)
        yield BandLevel(numbers[cut.axis], cut.tile, strategy, True, cut.by_height)
