"""One group of stages in the tiles of a microkernel: the loops that a variant of running it asks for.

The group is a nest of one part, what runs at one point of it; its variant is decisions like any other. From
the outside in: loops that run plainly, cache groups of columns, loops inside these, segments of each cut
axis in turn, then a `Tile` whose body initialises, reduces, and runs the stages that follow at the same
point. The axes of a stage are parallel, so their order is free; a reduction stays inside its tile and
runs in ascending order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import zip_longest

from offcut.core import index as ix
from offcut.core.expr import Const, Expr
from offcut.core.memo import lazy_property
from offcut.core.program import Cover, For, Form, Stmt, Tile
from offcut.describe.computation import Computation, Stage, StageAxis, instance, plain_loops
from offcut.partition import (
    AxisCut,
    LoopCut,
    Match,
    check_axis,
    segments,
)
from offcut.partition.cutting import Carried, Cutting
from offcut.partition.judge import match_cover
from offcut.proof.normal_forms.narrowing import unconditional
from offcut.schedule.apply.apply_decision import apply_decision
from offcut.schedule.apply.bounds import min_block_bytes
from offcut.schedule.apply.covering import match_by_axes
from offcut.schedule.apply.emit import Lowering
from offcut.schedule.apply.loop_cutter import LoopCutter
from offcut.schedule.apply.nest_loops import strategy_of
from offcut.schedule.apply.offsets import At, Open
from offcut.schedule.apply.staged_form import Nest, Nests, Part, Root
from offcut.schedule.apply.tiles import Tiles, heights_of
from offcut.schedule.decisions import Cover as CoverDecision
from offcut.schedule.decisions import Split, SplitPair
from offcut.schedule.nest_decisions import cover_step, loop_steps, shared_name
from offcut.schedule.nests import LoopVariant, Together
from offcut.schedule.nests import Nest as NestOfVariants

# By the name of an axis, what is around everything that is asked of it; by None, of all.
Blame = Callable[[str | None], AbstractContextManager[None]]


def group_nests(computation: Computation, parts: Sequence[NestOfVariants | Together]) -> Nests:
    """Return the groups of stages in the loops that they share: of these the last group has the loops, and others are computed in one of them.

    parts  the nests of the groups, in order, those that share loops together
    """
    groups = {group[0].buffer: group for group in computation.groups}
    nests, blocks = list[Nest](), list[Split]()

    def visit(part: NestOfVariants | Together, depth: int, at: tuple[str, str] | None) -> None:
        """Note a nest, whose group has the loops of its first `depth` axes, or those that share loops."""
        if not isinstance(part, Together):
            group, axes = groups[part.stage], groups[part.stage][0].axes
            inside = plain_loops(axes[depth:], instance(group))
            nests.append(replace(_nest(group, axes[:depth], inside), at=at))
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


def _stage_with_loops(part: NestOfVariants | Together) -> str:
    """Return the stage whose nest has the loops that others share."""
    return _stage_with_loops(part.parts[-1]) if isinstance(part, Together) else part.stage


def _nest(group: Sequence[Stage], axes: Sequence[StageAxis], inside: tuple[Stmt, ...]) -> Nest:
    """Return the nest of a group in loops over `axes`."""
    over = (*axes, *group[0].reduce_axes)
    roots = tuple(Root(axis.name, axis.name, ix.const(0), axis.extent) for axis in over)
    part, plain = Part(tuple(axis.name for axis in axes), inside), plain_loops(axes, inside)
    return Nest(group[0].buffer, roots, (part,), plain, group=tuple(group))


FREE = Const(0.0, "float64")
"""The cost of a variant that competes with none."""


@dataclass(frozen=True)
class ResolvedVariant:
    """A group of stages in one of its variants.

    decisions  about its loops
    around     axes that loops around its tiles run through: those of its nest, and those in which it packs
    cost       predicted seconds, by which variants compete at run time
    copy       the stage that packs an operand for it, as a group of its own
    nests      the copy, and the group in the loops that it does not share, after the decisions about them
    """

    group: tuple[Stage, ...]
    decisions: LoopVariant
    around: tuple[str, ...] = ()
    cost: Expr = FREE
    copy: ResolvedVariant | None = None
    nests: tuple[Nest, ...] = field(default=(), compare=False, repr=False)

    @property
    def match(self) -> Match | None:
        """Return the microkernel that is laid over its tiles."""
        return self.nests[-1].match if self.nests else None

    @lazy_property
    def cuts(self) -> tuple[AxisCut, ...]:
        """Return the splits of its axes, outermost first."""
        sums = {axis.name for axis in self.group[0].reduce_axes}
        return tuple(cut for cut in self.decisions.splits if cut.axis not in sums)

    @lazy_property
    def outer(self) -> tuple[str, ...]:
        """Return its plain loops around tiles and their groups, outermost first."""
        return tuple(name for name in self.decisions.loops if name not in self.around)


def nest_in_variant(
    declarations: Nests,
    group: Sequence[Stage],
    variant: LoopVariant,
    shared: Sequence[str],
    blame: Callable[[AxisCut], AbstractContextManager[None]],
) -> tuple[Nests, CoverDecision]:
    """Return the nest of a group after the decisions of one of its variants about its loops, and what covers it.

    An axis that is one cache group is in none.

    declarations  arrays, sizes and microkernels
    shared  the axes of loops around it, which are no loops of its own
    blame   around a split

    Raises PartitionError for a decision that does not apply.
    """
    lead, inside = group[0], dict[str, str]()
    own = [axis for axis in lead.axes if axis.name not in shared]
    nests = replace(declarations, nests=(_nest(group, own, instance(group)),))
    extents = {axis.name: ix.literal_value(axis.extent) for axis in lead.axes}
    splits = []
    for cut in variant.splits:
        extent = extents.get(cut.axis)
        one_group = cut.group is not None and extent is not None and extent <= cut.group
        splits.append(replace(cut, group=None) if one_group else cut)
    sums = frozenset(axis.name for axis in lead.reduce_axes)
    outer = [name for name in variant.loops if name not in shared]
    steps = loop_steps(lead.buffer, splits, outer, variant.inner, sums, inside, tuple(extents))
    for named, step in zip_longest(variant.splits, steps):
        with nullcontext() if named is None else blame(named):
            nests = apply_decision(nests, step)
    return nests, cover_step(lead.buffer, variant, sums, inside)


def axis_cuts(nest: Nest) -> Iterator[AxisCut]:
    """Yield how the axes of a nest of a group are split, each in tiles, or in groups of tiles."""
    for root in nest.roots:
        pair = nest.taken_apart(root.name)
        if isinstance(pair, SplitPair):
            tiles = nest.taken_apart(pair.inner)
            group = pair.factor if isinstance(tiles, SplitPair) else None
            level = tiles.level if isinstance(tiles, SplitPair) else pair.level
            assert level.tail is not None
            yield AxisCut(root.name, level.tail, level.tile, level.heights, level.classes, group)


def with_copy(nest: Nest, copy: Nest, at: str, group: Sequence[Stage]) -> tuple[Nest, Nest]:
    """Return the nest of a copy, and that of the group that reads it.

    at     the loop in each iteration of which the copy is made; "": it is made before the loops
    group  the stages that read it
    """
    part, match = replace(nest.parts[0], body=instance(group)), nest.match
    reader = replace(nest, parts=(part,), group=tuple(group))
    if match is not None:
        along = match.rows, match.columns, match.depth or None
        reader = reader.with_match(match_by_axes(group[0], match.microkernel, *along))
    return replace(copy, at=(nest.name, at or None)), reader


class GroupLoops(Tiles):
    """The loops of a group: those that it shares with others, around its alternatives; of one of these, tiles that the judge lays a
    microkernel over, around loops over the terms of sums.

    All tiles along an axis are cut alike, whatever is known at their place.

    blame  around everything that is asked of one of its axes; of None, of all of them
    """

    keeps_names = True

    def __init__(self, lowering: Lowering, nest: Nest, blame: Blame) -> None:
        super().__init__(lowering.nests, nest, lowering.names, inside=lowering.computed_inside)
        self.lowering, self.blame = lowering, blame
        sums = {axis.name: stage.reducer for stage in nest.group for axis in stage.reduce_axes}
        carried = Carried(
            frozenset(sums), {name: op for name, op in sums.items() if op is not None}
        )
        self.cutting = Cutting(self.cut_of, carried, lowering.names, blame=blame)
        self.narrowed = any(stage.narrowed for stage in nest.group)

    def cut_of(self, loop: For) -> LoopCut | None:
        """Return how a loop over terms is cut; None: it is not."""
        pair = self.nest.taken_apart(loop.iter)
        return LoopCut((pair.factor,), strategy_of(pair)) if isinstance(pair, SplitPair) else None

    def emit(self, at: At) -> tuple[Stmt, ...]:
        """Return the loops of the group, at a place around it."""
        with self.blame(None):
            return super().emit(at)

    def segments(self, split: SplitPair, parts: Sequence[Open], at: At) -> tuple[Stmt, ...]:
        """Return the outer loop of a split, once for each segment of its strategy."""
        extent, strategy = self.extent(split.axis, at), strategy_of(split)
        with self.blame(self.nest.origins(split.axis)[0]):
            claims = check_axis(strategy, split.factor, False, ix.literal_value(extent))
        self.cutting.theorems |= dict.fromkeys(claims)
        body: tuple[Stmt, ...] = ()
        for segment in segments(strategy, extent, split.factor):
            body += self.segment(split, segment, extent, parts, at)
        return body

    def leaf(self, part: Part, at: At) -> tuple[Stmt, ...]:
        """Return the alternatives of the group; in one of them, the statements of one point, with the loops over the terms of sums cut."""
        if self.nest.vectors is None:
            return self.lowering.choose(self.lowering.alternatives[self.nest.name], at.facts)
        return LoopCutter(self.nests, self.cutting).block(part.body, at.facts)

    def emit_tiles(self, parts: Sequence[Open], at: At) -> tuple[Stmt, ...]:
        """Return the tile of all points that are left, its axes in the order of the group's."""
        roots = [root.name for root in self.nest.roots]
        ((loops, part),) = parts
        in_order = sorted(loops, key=lambda leaf: roots.index(self.nest.root_below(leaf) or ""))
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
        match = self.nest.match
        if match is None or tile.form is Form.GUARD:
            return None
        heights = {
            axis.iter: at.segments[axis.iter].heights
            if axis.iter in at.segments
            else heights_of(axis.extent)
            for axis in tile.axes
        }
        inside = unconditional(tile) if self.narrowed else tile
        assert isinstance(inside, Tile)
        return match_cover(inside, self.nests.program(()), match, heights)
