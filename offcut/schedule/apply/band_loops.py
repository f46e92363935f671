"""The loops of a band around its tiles: a nest of one part, whose loops inside of all tile loops are one tile.

Bounds may depend on loops further out. Where they depend on a loop of the same band (a triangle), the
tiles that lie wholly inside are separated from those that the bounds cross::

    for i in 0:n                   for i_tile in 0:n//4
      for j in 0:i + 1               for j_tile in 0:i_tile                     full tiles
        S                    ->        tile i in 4*i_tile +: 4, j in 4*j_tile +: 4
                                         S
                                     for i in 4*i_tile:4*i_tile + 4             along the border
                                       for j in 4*i_tile:i + 1
                                         S

Where all loops of a tile are parallel these form a `Tile`, else loops that keep their order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from offcut.core import index as ix
from offcut.core.conditions import conjunction
from offcut.core.expr import Compare, Const, Expr, Logic, Var, variables
from offcut.core.intervals import Ends
from offcut.core.program import For, Form, If, Role, Stmt, Tile, TileAxis
from offcut.core.text.printer import format_expr
from offcut.partition import CUT, GUARD, LoopCut, Segment, check_axis, segments
from offcut.partition.cutting import Cutting, EmittedTile
from offcut.partition.legality import (
    check_crossed,
    check_exact,
    check_few,
    check_keeps_reduction,
    check_repeats,
    check_takes,
    not_together,
)
from offcut.partition.strategies.segment_loops import (
    EmitTile,
    TilePlace,
    crossing_segment,
    full_segment,
    inner_segment,
    possible_segments,
    segment_loops,
    whole_segment,
)
from offcut.partition.strategies.segment_placement import leading_form
from offcut.polyhedral import Facts
from offcut.schedule.apply.nest_loops import NestLoops, strategy_of
from offcut.schedule.apply.offsets import At, Open
from offcut.schedule.apply.staged_form import Nest, Nests, Part, Root
from offcut.schedule.apply.tiles import heights_of, neutral_outside
from offcut.schedule.decisions import Split, SplitPair, split_of

# (statements, what is known there) -> the statements with the loops in them cut
CutBlock = Callable[[Sequence[Stmt], Facts], tuple[Stmt, ...]]


@dataclass(frozen=True)
class Range:
    """A loop of the band inside a tile.

    rect   (start, height) where it does not depend on the others; else None, and `lo`, `hi` clip
    where  the condition of the instances that are kept
    """

    lo: Expr
    hi: Expr
    rect: tuple[Expr, Expr] | None
    where: Expr | None = None
    segment: Segment | None = None


def _split_of_cut(loop: For, cut: LoopCut) -> Split:
    """Return the decision that cuts a loop of a band; what it calls loops is no name of any other."""
    split = split_of(loop.iter, cut)
    names = (f"{loop.iter}.{number}" for number in range(len(split.names)))
    return replace(split, names=tuple(names))


class BandLoops(NestLoops):
    """The loops of a band around its tiles. Loops that are not cut, and those inside of tiles, are a tile's.

    band    the loops as they are in the source, around `body`
    cuts    how each of them is cut; what is outermost in one lies around what is further in in another
    tile    by the loop of the band that it is of, each loop of the tile
    block   cuts the loops in `body`
    """

    keeps_names = True

    def __init__(
        self,
        nests: Nests,
        band: Sequence[For],
        cuts: Sequence[LoopCut | None],
        body: tuple[Stmt, ...],
        cutting: Cutting,
        block: CutBlock,
    ) -> None:
        pairs = zip(band, cuts, strict=True)
        self.splits = {
            loop.iter: _split_of_cut(loop, cut) for loop, cut in pairs if cut is not None
        }
        outer_loops = [split.names[:-1] for split in self.splits.values()]
        depth = max(map(len, outer_loops))
        order = [
            names[level - depth]
            for level in range(depth)
            for names in outer_loops
            if depth - level <= len(names)
        ]
        self.tile = {
            loop.iter: self.splits[loop.iter].names[-1] if loop.iter in self.splits else loop.iter
            for loop in band
        }
        roots = tuple(Root(loop.iter, loop.iter, loop.lo, loop.hi) for loop in band)
        part = Part((*order, *self.tile.values()), body)
        relations = tuple(pair for split in self.splits.values() for pair in split.pairs)
        super().__init__(nests, Nest("", roots, (part,), body, relations), cutting.names)
        self.band, self.cutting, self.cut_block = {loop.iter: loop for loop in band}, cutting, block

    def is_tile(self, first: str, parts: Sequence[Open]) -> bool:
        """Return whether the loops from `first` inwards are one tile."""
        return first in self.tile.values()

    def with_root_bounds(self, axis: str, at: At) -> At:
        """Return `at`, with the bounds of the root of `axis`; in terms of other loops of the tile, if it depends on these."""
        (root,) = self.nest.origins(axis)
        if root in at.window or not self.roots_in_bounds(root) - set(at.offsets):
            return super().with_root_bounds(axis, at)
        loop = self.band[root]
        return at.replace(window={**at.window, root: (loop.lo, loop.hi)}, early=at.early | {root})

    def counter(self, split: SplitPair) -> str:
        """Return what the loop over the tiles of `split` is called."""
        return f"{self.nest.origins(split.axis)[0]}_tile"

    def split_loop(self, split: SplitPair, parts: Sequence[Open], at: At) -> tuple[Stmt, ...]:
        """Return the outer loop of a split; of one whose bounds depend on another loop of the tile, full tiles, and what bounds cross."""
        (root,) = self.nest.origins(split.axis)
        if root in at.early:
            return self.crossed_loop(split, root, parts, at)
        return self.segments(split, parts, at)

    def segments(self, split: SplitPair, parts: Sequence[Open], at: At) -> tuple[Stmt, ...]:
        """Return the outer loop of a split, once for each segment of its strategy; its bounds are the same for all other loops."""
        (root,) = self.nest.origins(split.axis)
        lo, extent, tile = self.base(split.axis, at), self.extent(split.axis, at), split.factor
        hi = self.root_bound(root, 1, at) if root == split.axis else ix.add(lo, extent)
        if at.facts.holds(ix.compare("<=", extent, tile - 1)):
            bounds = f"{format_expr(lo)}:{format_expr(hi)}"
            short = f"{root} in {bounds} is shorter than a tile of {tile}"
            self.cutting.notes[f"{short}, so it is one tile"] = None
            one = {**at.segments, root: whole_segment(lo, hi, tile)}
            place = TilePlace(ix.const(0), extent)
            return self.one_tile(split, place, place, parts, at.replace(segments=one))
        with self.cutting.blame(root):
            self.check(split, self.band[root], extent, at)
            sequential = root in self.cutting.carried.sequential
            strategy = strategy_of(split)
            claims = check_axis(strategy, tile, sequential, ix.literal_value(extent))
            self.cutting.theorems |= dict.fromkeys(claims)
        body: tuple[Stmt, ...] = ()
        for segment in possible_segments(segments(strategy, extent, tile), at.facts):
            body += self.segment(split, segment, extent, parts, at)
        if body and not at.facts.holds(Compare(">=", extent, ix.const(0))):
            return (If(Compare("<", lo, hi), body),)
        return body

    def check(self, split: SplitPair, loop: For, extent: Expr, at: At) -> None:
        """Refuse a strategy that this loop cannot take."""
        carried, tile, strategy = self.cutting.carried, split.factor, strategy_of(split)
        reduction, name = carried.reductions.get(loop.iter), f"loop {loop.iter}"
        check_takes(name, strategy, tile)
        if split.inner in self.tile.values():
            check_keeps_reduction(name, strategy, tile, reduction)
        if tile > 1 and strategy.repeats(tile):
            check_repeats(loop, strategy)
        if loop.iter in carried.sequential and reduction is None and strategy.pads(tile):
            raise not_together(loop, strategy)
        if strategy.divides:
            check_exact(name, tile, extent, at.facts)

    def facts_in(self, segment: Segment, at: At) -> Facts:
        """Return the facts around a segment, not its condition, which could fold those further in: isl compares loops faster if
        each states its own.
        """
        return at.facts

    def segment_tiles(
        self,
        split: SplitPair,
        segment: Segment,
        parts: Sequence[Open],
        emit_tile: EmitTile,
        always_loop: bool,
    ) -> tuple[Stmt, ...]:
        """Return the loop over the tiles of a segment; of instances that keep their order one loop, not a tile each."""
        (root,) = self.nest.origins(split.axis)
        single = segment.heights == (1, 1) and segment.count is not None
        bare = not segment.predicate and segment.when is None and not segment.lets
        innermost = all(self.is_tile(loops[0], parts) for loops, _ in parts)
        if root in self.cutting.carried.sequential and single and bare and innermost:
            lo, hi = segment.owned
            return emit_tile(TilePlace(lo, ix.sub(hi, lo)))
        return super().segment_tiles(split, segment, parts, emit_tile, always_loop)

    def crossed_loop(
        self, split: SplitPair, root: str, parts: Sequence[Open], at: At
    ) -> tuple[Stmt, ...]:
        """Return the outer loop of a split of `root`, whose bounds depend on another loop of the tile: full tiles, and what bounds cross."""
        tile, facts, (lo, hi) = split.factor, at.facts, at.window[root]
        last = split.inner in self.tile.values()
        by_row = check_crossed(self.band[root], strategy_of(split), tile, last)
        (lo_min, lo_max), upper = (self.ends_of(bound, at, self.open_tile) for bound in (lo, hi))
        free = by_row != GUARD
        full = inner_segment((lo_min, lo_max), upper, tile, facts)
        end = ix.add(lo_max, full.owned[1]) if free else lo_min

        def clipped(start: Expr, stop: Expr) -> tuple[Stmt, ...]:
            window = {**at.window, root: (start, stop)}
            crossing = {**at.segments, root: crossing_segment(tile)}
            here = at.replace(window=window, segments=crossing)
            return self.inside_loop(split.outer, ix.const(0), parts, here)

        body: tuple[Stmt, ...] = ()
        if free:
            if not facts.holds(Compare(">=", lo_min, lo_max)):
                body += clipped(lo, facts.extreme("min", hi, lo_max))
            if full.count != ix.const(0):
                window = {**at.window, root: (lo_max, end)}
                around = {name: one for name, one in at.segments.items() if name != root}
                inner = at.replace(window=window, early=at.early - {root}, segments=around)
                body += self.segment(split, full, full.owned[1], parts, inner, always_loop=True)
        if by_row == CUT:
            # A row goes on after the full tiles at `end`, or at `lo` if it starts later.
            later = end if lo == lo_max else facts.extreme("max", lo, end)
            return (*body, *clipped(lo if lo_min == lo_max == end else later, hi))
        count = ix.ceildiv(facts.extreme("max", ix.sub(upper[1], end), ix.const(0)), tile)
        if count == ix.const(0):
            return body
        form = Form.MASK if free else Form.GUARD
        with_crossing = {**at.segments, root: replace(crossing_segment(tile), form=form)}

        def masked(place: TilePlace) -> tuple[Stmt, ...]:
            start = ix.sub(ix.add(end, place.start), lo)
            inner = at.replace(facts=place.inside(facts), segments=with_crossing)
            shifted = replace(place, start=start, height=ix.const(tile))
            return self.one_tile(split, shifted, place, parts, inner)

        tiles = full_segment(tile, count, ix.mul(tile, count), Role.TAIL)
        name = self.counter(split)
        return (*body, *segment_loops(tiles, name, self.names, masked, always_loop=True))

    def open_tile(self, root: str, at: At) -> Ends:
        """Return the least and the greatest value of a root in the tile that is open, in the names of roots further out."""
        one = self.range(root, at)
        return one.lo, ix.sub(one.hi, 1)

    def range(self, root: str, at: At) -> Range:
        """Return the range of a root in the tile that lies here."""
        segment, leaf, loop = at.segments.get(root), self.tile[root], self.band[root]
        if segment is None:
            free = not self.tile.keys() & (variables(loop.lo) | variables(loop.hi))
            return Range(loop.lo, loop.hi, (loop.lo, ix.sub(loop.hi, loop.lo)) if free else None)
        lo, hi = self.root_bound(root, 0, at), self.root_bound(root, 1, at)
        while leaf not in at.starts:  # loops further in are not open yet, or bounds cross its tile
            if leaf == root:
                return Range(lo, hi, None, None, segment)
            leaf = self.split_of(leaf).axis
        split = self.split_of(leaf)
        start, height = self.base(leaf, at), at.extents[leaf]
        end = ix.add(start, height)
        where: Expr | None = None
        if root in at.early:
            where = Logic("and", (Compare("<=", lo, Var(root)), Compare("<", Var(root), hi)))
        elif split.axis in at.limits:
            stop = ix.add(self.base(split.axis, at), at.limits[split.axis])
            where = ix.compare("<", Var(root), stop)
            end = at.facts.extreme("min", end, stop)
        return Range(start, end, (start, height), where, segment)

    def split_of(self, leaf: str) -> SplitPair:
        """Return the split inside of whose tiles `leaf` is a loop."""
        split = self.nest.made_by(leaf)
        assert isinstance(split, SplitPair)
        return split

    def emit_tiles(self, parts: Sequence[Open], at: At) -> tuple[Stmt, ...]:
        """Return the instances of the tile that lies here: parallel loops as a `Tile`, others in their order."""
        cutting, sequential = self.cutting, self.cutting.carried.sequential
        cutting.tiles += 1
        check_few(tuple(self.tile), cutting.tiles)
        ranges = {root: self.range(root, at) for root in self.tile}
        inner = at.facts
        for root, one in ranges.items():
            inner = inner.loop(root, one.lo, one.hi)
        segments = ((root, ranges[root].segment) for root in self.splits)
        cuts = tuple((root, segment) for root, segment in segments if segment is not None)
        roles = {segment.role for _, segment in cuts}
        role = Role.TAIL if Role.TAIL in roles else Role.BODY if roles else Role.WHOLE
        before = len(cutting.made)
        (part,) = self.nest.parts
        body = self.cut_block(part.body, inner)
        lanes: list[str] = []  # the innermost run of parallel loops
        if all(one.rect is not None for one in ranges.values()):
            for root in reversed(ranges):
                if root not in sequential:
                    lanes.insert(0, root)
                elif lanes:
                    break
        name: str | None = None
        for root in reversed(ranges):
            if root not in lanes:
                body = self.serial_loop(root, ranges[root], body, role)
            elif root == lanes[0]:
                tiled = self.lane_tile({lane: ranges[lane] for lane in lanes}, body, role)
                body, name = (tiled,), tiled.microkernel
        leaf = body[0] if len(body) == 1 else If(Const(1, "bool"), body)
        inside = cutting.made[before:]
        cutting.made[before:] = [
            EmittedTile(one.leaf, (*cuts, *one.segments), one.microkernel or name) for one in inside
        ] or [EmittedTile(leaf, cuts, name)]
        return (leaf,)

    def lane_tile(self, ranges: Mapping[str, Range], body: tuple[Stmt, ...], role: Role) -> Tile:
        """Return a tile over these loops of the band, all of them parallel."""
        axes, conditions = [], list[Expr]()
        heights: dict[str, tuple[int, int]] = {}
        forms: set[Form] = set()
        for root, one in ranges.items():
            assert one.rect is not None
            axes.append(TileAxis(root, *one.rect))
            if one.where is not None:
                conditions.append(one.where)
            heights[root] = one.segment.heights if one.segment else heights_of(one.rect[1])
            if one.segment:
                forms.add(one.segment.form)
        where = conjunction(conditions) if conditions else None
        guarded = Form.GUARD in forms  # loops with the conditions inside, which no microkernel is
        tile = Tile(tuple(axes), body, where, leading_form(forms), role)
        return tile if guarded else replace(tile, cover=self.cutting.cover(tile, heights))

    def serial_loop(
        self, root: str, mine: Range, body: tuple[Stmt, ...], role: Role
    ) -> tuple[Stmt, ...]:
        """Return the instances of a loop one after the other."""
        lo, hi = mine.lo, mine.hi
        if mine.where is not None:
            form = mine.segment.form if mine.segment else Form.FULL
            end = None if mine.rect is None else ix.add(*mine.rect)
            if form in (Form.PAD, Form.GUARD):
                assert end is not None
                hi = end
            if form is Form.PAD:
                body = tuple(neutral_outside(stmt, mine.where) for stmt in body)
            elif hi == end:
                body = (If(mine.where, body),)
        own = role if mine.segment is not None else Role.WHOLE
        return (For(root, lo, hi, body, own, self.band[root].unit),)
