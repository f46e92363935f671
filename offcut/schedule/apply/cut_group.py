"""One group of stages in the tiles of a microkernel: the loops that a way of running it asks for.

The group is a nest of one part, what runs at one point of it; its way is decisions like any other. From
the outside in: loops that run plainly, cache groups of columns, loops inside these, segments of each cut
axis in turn, then a `Tile` whose body initialises, reduces, and runs the stages that follow at the same
point. The axes of a stage are parallel, so their order is free; a reduction stays inside its tile and
runs in ascending order.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from offcut.core import index as ix
from offcut.core.program import Cover, For, Stmt, Tile
from offcut.describe.computation import Computation, Names
from offcut.describe.source import instance, plain_loop
from offcut.partition import GroupCut, LoopCut, tiles_alike
from offcut.partition.cutting import Blame, Carried, Cutting
from offcut.partition.judge import match_cover
from offcut.polyhedral import Facts, space_of
from offcut.proof.normal_forms.narrowing import unconditional
from offcut.schedule.apply.band_loops import BandLoops
from offcut.schedule.apply.loop_cutter import LoopCutter
from offcut.schedule.apply.offsets import At
from offcut.schedule.apply.staged_form import Nests
from offcut.schedule.decisions import Primitive
from offcut.schedule.nests import loop_steps


def cut_group(
    computation: Computation, plan: GroupCut, names: Names, blame: Blame
) -> tuple[tuple[Stmt, ...], Cutting]:
    """Return the statements of one group, and what was made.

    blame  around what is asked of an axis, by its name

    Raises PartitionError where an axis cannot be cut so.
    """
    summed = {axis.name: stage.reducer for stage in plan.group for axis in stage.reduce_axes}
    reductions = {name: op for name, op in summed.items() if op is not None}
    chosen = {
        cut.axis: LoopCut((cut.tile,), cut.strategy.with_heights(cut.heights))
        for cut in plan.reduce_cuts
    }
    nests = Nests(
        computation.name, computation.sizes, computation.assumptions, computation.buffers, ()
    )
    match, program = plan.match, nests.program(())
    narrowed = any(stage.narrowed for stage in plan.group)

    def cover(tile: Tile, heights: Mapping[str, tuple[int, int]]) -> Cover | None:
        """Return the cover of a tile; of a narrowed stage, of what is inside of its conditions."""
        inside = unconditional(tile) if narrowed else tile
        assert isinstance(inside, Tile)
        return None if match is None else match_cover(inside, program, match, heights)

    cutting = Cutting(
        lambda loop: chosen.get(loop.iter),
        Carried(frozenset(summed), reductions),
        cover,
        tiles_alike,
        names,
        folds=False,
        blame=blame,
    )
    at, band = Facts(space_of(computation)), list[For]()
    for axis in plan.group[0].axes:
        if axis.name in plan.around:
            at = at.loop(axis.name, ix.const(0), axis.extent)
        else:
            band.append(plain_loop(axis, ()))
    inside, body = LoopCutter(nests, cutting).block, instance(plan.group)
    loops = BandLoops(nests, band, _steps(plan), body, cutting, inside)
    return loops.emit(At(at, {})), cutting


def _steps(plan: GroupCut) -> Iterator[Primitive]:
    """Return the decisions about the loops of a group; an axis that is one cache group is in none."""
    lead = plan.group[0]
    extents = {axis.name: ix.literal_value(axis.extent) for axis in lead.axes}
    cuts = []
    for cut in plan.cuts:
        extent = extents[cut.axis]
        one_group = cut.group is not None and extent is not None and extent <= cut.group
        cuts.append(replace(cut, group=None) if one_group else cut)
    return loop_steps(lead.buffer, cuts, plan.outer, plan.inner, frozenset(), {})
