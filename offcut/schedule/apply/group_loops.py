"""One group of stages in the tiles of a microkernel: the loops that a way of running it asks for.

The group is a nest of one part, what runs at one point of it; its way is decisions like any other. From
the outside in: loops that run plainly, cache groups of columns, loops inside these, segments of each cut
axis in turn, then a `Tile` whose body initialises, reduces, and runs the stages that follow at the same
point. The axes of a stage are parallel, so their order is free; a reduction stays inside its tile and
runs in ascending order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import reduce
from itertools import zip_longest

from offcut.core import index as ix
from offcut.core.expr import Const, Expr, Var
from offcut.core.memo import lazy_property
from offcut.core.program import Buffer, Cover, For, Form, Stmt, Store, Tile
from offcut.describe.computation import Computation, Names, Stage, StageAxis
from offcut.describe.source import instance, plain_loops
from offcut.partition import (
    AxisCut,
    LoopCut,
    Match,
    check_axis,
    segments,
)
from offcut.partition.cutting import Carried, Cutting
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
from offcut.schedule.decisions import VECTORS, Primitive, Split, SplitPair
from offcut.schedule.decisions import Cover as CoverDecision
from offcut.schedule.nest_decisions import loop_steps, shared_name
from offcut.schedule.nests import Nest as NestOfWays
from offcut.schedule.nests import Together, Way

# (a nest, a place in the loops that it shares with others) -> its statements there
Ways = Callable[[Nest, At], tuple[Stmt, ...]]

# What is around everything that is asked of a split.
Blame = Callable[[AxisCut], AbstractContextManager[None]]


def group_nests(computation: Computation, parts: Sequence[NestOfWays | Together]) -> Nests:
    """Return the groups of stages in the loops that they share: of these the last group has the loops, and others are computed in one of them.

    parts  the nests of the groups, in order, those that share loops together
    """
    groups = {group[0].buffer: group for group in computation.groups}
    nests, blocks = list[Nest](), list[Split]()

    def visit(part: NestOfWays | Together, depth: int, at: tuple[str, str] | None) -> None:
        """Note a nest, whose group has the loops of its first `depth` axes, or those that share loops."""
        if not isinstance(part, Together):
            group, axes = groups[part.stage], groups[part.stage][0].axes
            inside = plain_loops(axes[depth:], instance(group))
            nests.append(replace(_nest(part.stage, axes[:depth], inside), at=at))
            return
        *others, last = part.parts
        stage, axis = _stage_with_loops(last), part.axes[-1]
        loop = shared_name(axis, part.block)
        if part.block is not None:
            blocks.append(Split(stage, axis, (part.block,), (loop, f"{axis}_in")))
        for other in others:
            visit(other, depth + len(part.axes), (stage, loop))
        visit(last, depth + len(part.axes), at)

    for part in parts:
        visit(part, 0, None)
    return reduce(apply_decision, blocks, staged_form(computation, *nests))


def staged_form(computation: Computation, *nests: Nest) -> Nests:
    """Return nests with the declarations of `computation`."""
    return Nests(
        computation.name, computation.sizes, computation.assumptions, computation.buffers, nests
    )


def min_nest_block_bytes(computation: Computation, together: Together) -> int:
    """Return the bytes that a block of iterations takes at the least sizes: all that lives in it, or the longest of the lines it adds up.

    together  nests in loops of which iterations run in blocks
    """
    assert together.block is not None
    nests, depth = group_nests(computation, (together,)), len(together.axes)
    place = _stage_with_loops(together), shared_name(together.axes[-1], together.block)
    return min_block_bytes(nests, place, depth, together.block.tile)


def _stage_with_loops(part: NestOfWays | Together) -> str:
    """Return the stage whose nest has the loops that others share."""
    return _stage_with_loops(part.parts[-1]) if isinstance(part, Together) else part.stage


def _nest(stage: str, axes: Sequence[StageAxis], inside: tuple[Stmt, ...]) -> Nest:
    """Return the nest of a group in loops over `axes`."""
    roots = tuple(Root(axis.name, axis.name, ix.const(0), axis.extent) for axis in axes)
    part = Part(tuple(axis.name for axis in axes), inside)
    return Nest(stage, roots, (part,), plain_loops(axes, inside), is_group=True)


class SharedLoops(NestLoops):
    """The loops of a group that others share, by their own names.

    ways  makes the statements of the group inside of them
    """

    keeps_names = True

    def __init__(self, ways: Ways, lowering: Lowering, nest: Nest) -> None:
        super().__init__(lowering.nests, nest, lowering.names, inside=lowering.computed_inside)
        self.ways = ways

    def is_tile(self, first: str, parts: Sequence[Open]) -> bool:
        """Return False: tiles are inside of all of these loops."""
        return False

    def leaf(self, part: Part, at: At) -> tuple[Stmt, ...]:
        """Return the ways of the group."""
        return self.ways(self.nest, at)


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


@dataclass(frozen=True)
class StagedWay:
    """A way after the decisions about its loops.

    nests  its group as a nest in the loops that it does not share
    terms  the loops over the terms of its sum
    """

    nests: Nests
    terms: Nests

    def cut_of(self, loop: For) -> LoopCut | None:
        """Return how a loop over terms is cut; None: it is not."""
        split = self.terms.nests[0].taken_apart(loop.iter)
        return (
            LoopCut((split.factor,), strategy_of(split)) if isinstance(split, SplitPair) else None
        )


def staged_way(computation: Computation, way: ResolvedWay, blame: Blame) -> StagedWay:
    """Return a way after the decisions about its loops.

    blame  around a split

    Raises PartitionError for a decision that does not apply.
    """
    lead, *_ = way.group
    own = [axis for axis in lead.axes if axis.name not in way.around]
    term = Store(lead.buffer, tuple(Var(axis.name) for axis in lead.axes), lead.term, lead.reducer)
    nest = staged_form(computation, _nest(lead.buffer, own, instance(way.group)))
    terms = staged_form(computation, _nest(lead.buffer, lead.reduce_axes, (term,)))
    sums = {axis.name for axis in lead.reduce_axes}
    for cut, step in _steps(way):
        with nullcontext() if cut is None else blame(cut):
            if cut is not None and cut.axis in sums:
                terms = apply_decision(terms, step)
            else:
                nest = apply_decision(nest, step)
    (loops,) = nest.nests
    axis = next((pair.axis for pair in loops.relations if isinstance(pair, SplitPair)), None)
    first = "" if axis is None else loops.leaves(axis)[-1]
    return StagedWay(apply_decision(nest, CoverDecision(lead.buffer, first, VECTORS)), terms)


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

    def segments(self, split: SplitPair, parts: Sequence[Open], at: At) -> tuple[Stmt, ...]:
        """Return the outer loop of a split, once for each segment of its strategy."""
        extent, strategy = self.extent(split.axis, at), strategy_of(split)
        with self.cutting.blame(self.nest.origins(split.axis)[0]):
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
        tiles, before = self.cutting.made, len(self.cutting.made)
        (tile,) = self.tiles([(tuple(in_order), part)], at)
        assert isinstance(tile, Tile)
        tile = replace(tile, cover=self.cover(tile, at))
        piece = self.piece(tile, at)
        tiles[before:] = [
            replace(piece, leaf=one.leaf, segments=(*piece.segments, *one.segments))
            for one in tiles[before:]
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

    blame  around what is asked of a split
    facts  what is known there

    Raises PartitionError where an axis cannot be cut so.
    """
    staged = staged_way(computation, way, blame)
    summed = {axis.name: stage.reducer for stage in way.group for axis in stage.reduce_axes}
    cutting = Cutting(
        staged.cut_of,
        Carried(frozenset(summed), {name: op for name, op in summed.items() if op is not None}),
        names,
        blame=lambda axis: blame(next(cut for cut in way.way.splits if cut.axis == axis)),
    )
    return WayLoops(staged.nests, way, cutting).emit(At(facts, {})), cutting


def _steps(way: ResolvedWay) -> Iterator[tuple[AxisCut | None, Primitive]]:
    """Yield the decisions about the loops of a group, splits with what they are of; an axis that is one cache group is in none."""
    lead, cuts = way.group[0], way.way.splits
    extents = {axis.name: ix.literal_value(axis.extent) for axis in lead.axes}
    splits = []
    for cut in cuts:
        extent = extents.get(cut.axis)
        one_group = cut.group is not None and extent is not None and extent <= cut.group
        splits.append(replace(cut, group=None) if one_group else cut)
    sums = frozenset(axis.name for axis in lead.reduce_axes)
    steps = loop_steps(lead.buffer, splits, way.outer, way.way.inner, sums, {}, tuple(extents))
    return zip_longest(cuts, steps)
