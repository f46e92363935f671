"""One group of stages in the tiles of a microkernel: the loops that a way of running it asks for.

The group is a nest of one part, what runs at one point of it; its way is decisions like any other. From
the outside in: loops that run plainly, cache groups of columns, loops inside these, segments of each cut
axis in turn, then a `Tile` whose body initialises, reduces, and runs the stages that follow at the same
point. The axes of a stage are parallel, so their order is free; a reduction stays inside its tile and
runs in ascending order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace

from offcut.core import index as ix
from offcut.core.expr import Const, Expr
from offcut.core.memo import lazy_property
from offcut.core.program import Buffer, Cover, Form, Stmt, Tile
from offcut.describe.computation import Computation, Names, Stage, StageAxis
from offcut.describe.source import instance, plain_loop
from offcut.partition import (
    AxisCut,
    LoopCut,
    Match,
    check_axis,
    segments,
    tiles_alike,
)
from offcut.partition.cutting import Blame, Carried, Cutting
from offcut.partition.judge import match_cover
from offcut.polyhedral import Facts
from offcut.proof.normal_forms.narrowing import unconditional
from offcut.schedule.apply.apply_decision import apply_decision
from offcut.schedule.apply.block_bytes import min_block_bytes
from offcut.schedule.apply.emit import Lowering
from offcut.schedule.apply.loop_cutter import LoopCutter
from offcut.schedule.apply.nest_loops import NestLoops, strategy_of
from offcut.schedule.apply.offsets import At, Open
from offcut.schedule.apply.staged_form import Nest, Nests, Part, Root
from offcut.schedule.apply.tiles import Tiles, heights_of
from offcut.schedule.decisions import VECTORS, Level, Primitive, Split, SplitPair
from offcut.schedule.decisions import Cover as CoverDecision
from offcut.schedule.nest_decisions import loop_steps
from offcut.schedule.nests import Nest as NestOfWays
from offcut.schedule.nests import Together, Way

# (a nest, a place in the loops that it shares with others) -> its statements there
Ways = Callable[[Nest, At], tuple[Stmt, ...]]


def group_nests(computation: Computation, parts: Sequence[NestOfWays | Together]) -> Nests:
    """Return the groups of stages in the loops that they share: of these the last group has the loops, and others are computed in one of them.

    parts  the nests of the groups, in order, those that share loops together
    """
    groups = {group[0].buffer: group for group in computation.groups}
    nests: list[Nest] = []

    def visit(
        part: NestOfWays | Together,
        around: int,
        loops: tuple[tuple[str, Level | None], ...],
        at: tuple[str, str] | None,
    ) -> None:
        if not isinstance(part, Together):
            nests.append(_group_nest(groups[part.stage], around, loops, at))
            return
        own = (*((axis, None) for axis in part.axes[:-1]), (part.axes[-1], part.block))
        *others, last = part.parts
        for other in others:
            place = _stage_with_loops(last), _loop_of(*own[-1])
            visit(other, around + len(loops) + len(own), (), place)
        visit(last, around, (*loops, *own), at)

    for part in parts:
        visit(part, 0, (), None)
    return Nests(
        computation.name,
        computation.sizes,
        computation.assumptions,
        computation.buffers,
        tuple(nests),
    )


def min_nest_block_bytes(computation: Computation, together: Together) -> int:
    """Return the bytes that a block of iterations takes at the least sizes: all that lives in it, or the longest of the lines it adds up.

    together  nests in loops of which iterations run in blocks
    """
    assert together.block is not None
    nests, depth = group_nests(computation, (together,)), len(together.axes)
    place = _stage_with_loops(together), _loop_of(together.axes[-1], together.block)
    return min_block_bytes(nests, place, depth, together.block.tile)


def _stage_with_loops(part: NestOfWays | Together) -> str:
    """Return the stage whose nest has the loops that others share."""
    return _stage_with_loops(part.parts[-1]) if isinstance(part, Together) else part.stage


def _loop_of(axis: str, block: Level | None) -> str:
    return axis if block is None else f"{axis}_block"


def _group_nest(
    group: tuple[Stage, ...],
    around: int,
    loops: Sequence[tuple[str, Level | None]],
    at: tuple[str, str] | None,
) -> Nest:
    """Return a group in the loops that it shares; what is inside of these is in one piece.

    around  how many of its first axes are loops of the nest in which it is computed
    loops   the axes behind these that are loops of its own, each with its blocks
    """
    axes = group[0].axes
    first, rest = axes[: around + len(loops)], axes[around + len(loops) :]
    relations = [
        SplitPair(axis, _loop_of(axis, block), f"{axis}_in", block)
        for axis, block in loops
        if block is not None
    ]
    split = {pair.axis: (pair.outer, pair.inner) for pair in relations}
    names = tuple(name for axis in first for name in split.get(axis.name, (axis.name,)))
    nest = _nest(group[0].buffer, first, names, _in_plain_loops(rest, instance(group)))
    return replace(nest, relations=tuple(relations), at=at)


def _nest(
    stage: str, axes: Sequence[StageAxis], loops: tuple[str, ...], inside: tuple[Stmt, ...]
) -> Nest:
    """Return the nest of a group whose loops over `axes` are called `loops`."""
    roots = tuple(Root(axis.name, axis.name, ix.const(0), axis.extent) for axis in axes)
    part = Part(loops, inside)
    return Nest(stage, roots, (part,), _in_plain_loops(axes, inside), is_group=True)


def _in_plain_loops(axes: Sequence[StageAxis], body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    for axis in reversed(axes):
        body = (plain_loop(axis, body),)
    return body


class SharedLoops(NestLoops):
    """The loops of a group that others share, by their own names; what is inside of them runs in the ways of the group."""

    keeps_names = True

    def __init__(self, lowering: GroupLowering, nest: Nest) -> None:
        super().__init__(lowering.nests, nest, lowering.names, inside=lowering.computed_inside)
        self.lowering = lowering

    def is_tile(self, first: str, parts: Sequence[Open]) -> bool:
        """Return False: tiles are inside of all of these loops."""
        return False

    def leaf(self, part: Part, at: At) -> tuple[Stmt, ...]:
        """Return the ways of the group."""
        return self.lowering.ways(self.nest, at)


class GroupLowering(Lowering):
    """Groups of stages on their way to loops.

    ways  what makes the statements of a group
    """

    def __init__(self, nests: Nests, names: Names, ways: Ways) -> None:
        super().__init__(nests, names)
        self.ways = ways

    def loops(self, nest: Nest) -> NestLoops:
        """Return what makes the loops that a group shares with others."""
        return SharedLoops(self, nest)


FREE = Const(0.0, "float64")
"""The cost of a way that competes with none."""


@dataclass(frozen=True)
class ResolvedWay:
    """A group of stages in one of its ways.

    way     the decisions about its loops
    around  axes that loops around its tiles run through: those of its nest, and those in which it packs
    match   the microkernel that is laid over its tiles
    cost    predicted seconds, by which ways compete at run time
    copy    the stage that packs an operand for it, as a group of its own
    array   what `group` computes, if it is such a copy
    """

    group: tuple[Stage, ...]
    way: Way
    around: tuple[str, ...] = ()
    match: Match | None = None
    cost: Expr = FREE
    copy: ResolvedWay | None = None
    array: Buffer | None = None

    @lazy_property
    def cuts(self) -> tuple[AxisCut, ...]:
        """Return the splits of its axes, outermost first."""
        sums = {axis.name for axis in self.group[0].reduce_axes}
        return tuple(cut for cut in self.way.splits if cut.axis not in sums)

    @lazy_property
    def outer(self) -> tuple[str, ...]:
        """Return its plain loops around tiles and their groups, outermost first."""
        return tuple(name for name in self.way.loops if name not in self.around)

    @property
    def own(self) -> tuple[StageAxis, ...]:
        """Return the axes of its loops in which it packs, outermost first."""
        axes = {axis.name: axis for axis in self.group[0].axes}
        return tuple(axes[name] for name in self.way.loops if name in self.around)


def staged_way(computation: Computation, way: ResolvedWay, blame: Blame) -> Nests:
    """Return the group of a way as a nest in the loops that it does not share, after the decisions about these.

    blame  around a split, by its axis

    Raises PartitionError for a decision that does not apply.
    """
    own = [axis for axis in way.group[0].axes if axis.name not in way.around]
    stage, body = way.group[0].buffer, instance(way.group)
    nest = _nest(stage, own, tuple(axis.name for axis in own), body)
    nests = Nests(
        computation.name, computation.sizes, computation.assumptions, computation.buffers, (nest,)
    )
    first = ""
    for step in _steps(way):
        with blame(step.axis) if isinstance(step, Split) else nullcontext():
            nests = apply_decision(nests, step)
        if isinstance(step, Split):
            first = first or step.names[-1]
    return apply_decision(nests, CoverDecision(stage, first, VECTORS))


class WayLoops(Tiles):
    """The loops of a group in one of its ways: tiles that the judge lays a microkernel over, around loops over the terms of sums.

    All tiles along an axis are cut alike, whatever is known at their place.

    cutting  of the loops over terms; it notes tiles and theorems
    """

    keeps_names = True

    def __init__(self, nests: Nests, way: ResolvedWay, cutting: Cutting) -> None:
        super().__init__(nests, nests.nest(way.group[0].buffer), cutting.names)
        self.match, self.cutting = way.match, cutting
        self.narrowed = any(stage.narrowed for stage in way.group)

    def segmented(self, split: SplitPair, parts: Sequence[Open], at: At) -> tuple[Stmt, ...]:
        """Return the outer loop of a split, once for each segment of its strategy."""
        extent, strategy = self.extent(split.axis, at), strategy_of(split)
        claims = check_axis(strategy, split.factor, False, ix.literal_value(extent))
        self.cutting.theorems |= dict.fromkeys(claims)
        body: tuple[Stmt, ...] = ()
        for segment in segments(strategy, extent, split.factor):
            body += self.segment(split, segment, extent, parts, at)
        return body

    def leaf(self, part: Part, at: At) -> tuple[Stmt, ...]:
        """Return the statements of one point, with the loops over the terms of sums cut."""
        return LoopCutter(self.nests, self.cutting).block(part.body, at.facts)

    def emit_tiles(self, parts: Sequence[Open], at: At) -> tuple[Stmt, ...]:
        """Return the tile of all points that are left, its axes in the order of the group's."""
        roots = [root.name for root in self.nest.roots]
        ((loops, part),) = parts
        in_order = sorted(loops, key=lambda leaf: roots.index(self.root_below(leaf) or ""))
        made, before = self.cutting.made, len(self.cutting.made)
        (tile,) = self.tiles([(tuple(in_order), part)], at)
        assert isinstance(tile, Tile)
        tile = replace(tile, cover=self.cover(tile, at))
        piece = self.piece(tile, at)
        made[before:] = [
            replace(piece, leaf=one.leaf, segments=(*piece.segments, *one.segments))
            for one in made[before:]
        ] or [piece]
        return (tile,)

    def cover(self, tile: Tile, at: At) -> Cover | None:
        """Return the cover of a tile; of a narrowed stage, of what is inside of its conditions."""
        if self.match is None or tile.form is Form.GUARD:
            return None
        heights = {
            axis.iter: at.segments[axis.iter].heights
            if axis.iter in at.segments
            else heights_of(axis.extent)
            for axis in tile.axes
        }
        inside = unconditional(tile) if self.narrowed else tile
        assert isinstance(inside, Tile)
        return match_cover(inside, self.nests.program(()), self.match, heights)


def cut_group(
    computation: Computation, way: ResolvedWay, names: Names, blame: Blame, facts: Facts
) -> tuple[tuple[Stmt, ...], Cutting]:
    """Return the statements of one group inside of the loops that it shares, and what was made.

    blame  around what is asked of an axis, by its name
    facts  what is known there

    Raises PartitionError where an axis cannot be cut so.
    """
    summed = {axis.name: stage.reducer for stage in way.group for axis in stage.reduce_axes}
    reductions = {name: op for name, op in summed.items() if op is not None}
    of_sums = {
        cut.axis: LoopCut((cut.tile,), cut.strategy.with_heights(cut.heights))
        for cut in way.way.splits
        if cut not in way.cuts
    }
    cutting = Cutting(
        lambda loop: of_sums.get(loop.iter),
        Carried(frozenset(summed), reductions),
        lambda tile, heights: None,
        tiles_alike,
        names,
        blame=blame,
    )
    loops = WayLoops(staged_way(computation, way, blame), way, cutting)
    return loops.emit(At(facts, {})), cutting


def _steps(plan: ResolvedWay) -> Iterator[Primitive]:
    """Return the decisions about the loops of a group; an axis that is one cache group is in none."""
    lead = plan.group[0]
    extents = {axis.name: ix.literal_value(axis.extent) for axis in lead.axes}
    cuts = []
    for cut in plan.cuts:
        extent = extents[cut.axis]
        one_group = cut.group is not None and extent is not None and extent <= cut.group
        cuts.append(replace(cut, group=None) if one_group else cut)
    inside: dict[str, str] = {}
    return loop_steps(
        lead.buffer, cuts, plan.outer, plan.way.inner, frozenset(), inside, tuple(extents)
    )
