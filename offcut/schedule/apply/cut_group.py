"""One group of stages in the tiles of a microkernel: the loops that a way of running it asks for.

The group is a nest of one part, what runs at one point of it; its way is decisions like any other. From
the outside in: loops that run plainly, cache groups of columns, loops inside these, segments of each cut
axis in turn, then a `Tile` whose body initialises, reduces, and runs the stages that follow at the same
point. The axes of a stage are parallel, so their order is free; a reduction stays inside its tile and
runs in ascending order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from offcut.core import index as ix
from offcut.core.expr import Expr, Var
from offcut.core.program import For, Program, Stmt
from offcut.describe.computation import Computation, Names
from offcut.describe.source import instance, plain_loop
from offcut.partition import GroupCut, LoopCut, tiles_alike
from offcut.partition.cutting import Blame, Carried, Cutting
from offcut.partition.judge import match_cover
from offcut.polyhedral import Facts, space_of
from offcut.schedule.apply.band_loops import BandLoops
from offcut.schedule.apply.loop_cutter import LoopCutter
from offcut.schedule.apply.offsets import At, Open
from offcut.schedule.apply.staged_form import Nest, Nests, Part, Root
from offcut.schedule.decisions import Order, Split
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
    for axis in plan.group[0].axes:
        if axis.name in plan.around:
            at = at.loop(axis.name, ix.const(0), axis.extent)
    return _GroupLoops(computation, plan, cutting).emitted(at), cutting


def _scheduled_nest(plan: GroupCut) -> tuple[Nest, tuple[str, ...]]:
    """Return the nest of a group after the decisions of its way, and the loops of its tile: of each axis that no plain loop runs."""
    lead = plan.group[0]
    roots = tuple(
        Root(axis.name, axis.label, ix.const(0), axis.extent)
        for axis in lead.axes
        if axis.name not in plan.around
    )
    extents = {root.name: ix.literal_value(root.hi) for root in roots}
    cuts = []
    for cut in plan.cuts:
        extent = extents[cut.axis]
        one_group = cut.group is not None and extent is not None and extent <= cut.group
        cuts.append(replace(cut, group=None) if one_group else cut)
    inside: dict[str, str] = {}
    steps = [*loop_steps(lead.buffer, cuts, plan.outer, plan.inner, frozenset(), inside)]
    relations = tuple(pair for step in steps if isinstance(step, Split) for pair in step.pairs)
    order = next((step.loops for step in steps if isinstance(step, Order)), ())
    plain = {*plan.outer, *plan.inner}
    tile = tuple(inside.get(root.name, root.name) for root in roots if root.name not in plain)
    body = instance(plan.group)
    part = Part((*(name for name in order if name not in tile), *tile), body)
    return Nest(lead.buffer, roots, (part,), body, relations), tile


class _GroupLoops(BandLoops):
    """The loops of a group around its tiles, some of which run plainly. All tiles along an axis are cut alike, whatever is known where they are."""

    def __init__(self, computation: Computation, plan: GroupCut, cutting: Cutting) -> None:
        nest, tile = _scheduled_nest(plan)
        sizes, buffers = computation.sizes, computation.buffers
        nests = Nests(computation.name, sizes, computation.assumptions, buffers, (nest,))
        plain = {*plan.around, *plan.outer, *plan.inner}
        band = [plain_loop(a, ()) for a in plan.group[0].axes if a.name not in plain]
        super().__init__(nests, nest, tile, band, cutting, LoopCutter(nests, cutting).block)

    def plain(
        self, axis: str, lo: Expr, hi: Expr, parts: Sequence[Open], at: At
    ) -> tuple[Stmt, ...]:
        """``for axis in lo:hi``, by its own name: no other nest is inside."""
        inner = at.updated(facts=at.facts.loop(axis, lo, hi))
        return (For(axis, lo, hi, self.opened(axis, ix.sub(Var(axis), lo), parts, inner)),)
