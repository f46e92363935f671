"""The loops of one nest: decisions about them go in, full tiles and tails around what a tile holds come out.

The outer loop of a split decides what the inner one covers: a segment of full tiles, then the tail
as its strategy wants it (`partition.segments`). Where that cannot be, because the inner loop is
further out, both loops are complete and an instance past the end is left out by a condition.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from offcut.core import index as ix
from offcut.core.conditions import conjunction
from offcut.core.expr import Expr, Var, substitute, variables
from offcut.core.program import COUNTED_UNITS, Alloc, Choose, For, Form, If, Option, Role, Stmt
from offcut.core.traversal import map_body
from offcut.describe.computation import Names
from offcut.errors import PartitionError
from offcut.partition import CUT, GUARD, LADDER, PAD, Segment, Strategy, runs, segments
from offcut.partition.strategies.segment_loops import (
    EmitTile,
    TilePlace,
    full_segment,
    height_cases,
    inner_segment,
    possible_segments,
    segment_loops,
    to_outer_axis,
)
from offcut.partition.strategies.tiled_axis import EXTENT
from offcut.polyhedral import Facts
from offcut.schedule.apply.bounds import capacity_condition, window_of_block
from offcut.schedule.apply.offsets import At, Offsets, Open
from offcut.schedule.apply.placing import sum_terms
from offcut.schedule.apply.staged_form import Nest, Nests
from offcut.schedule.decisions import Fuse, Level, SplitPair

MAX_UNITS = 32
"""The most counted units (`COUNTED_UNITS`) that a block may have."""


@dataclass(frozen=True, slots=True)
class LoopBody:
    """What is inside of a loop.

    parts    the statements of each nest that is computed there, in order, those of the nest whose loop it is last
    windows  that are open around all of them, the innermost first, without what is in them
    """

    parts: tuple[tuple[Stmt, ...], ...]
    windows: tuple[Alloc, ...] = ()

    @property
    def statements(self) -> tuple[Stmt, ...]:
        """Return it as the statements of one iteration."""
        return in_windows(self.windows, tuple(stmt for part in self.parts for stmt in part))


# (a nest, one of its loops, what the nest computes in it, the place) -> what is inside of the loop: that, and what else is computed there
Inside = Callable[[Nest, str | None, tuple[Stmt, ...], At], LoopBody]


def in_windows(windows: Sequence[Alloc], body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    """Return `body` inside of windows, the first of which is the innermost."""
    for window in windows:
        body = (replace(window, body=body),)
    return body


class NestLoops(Offsets):
    """The loops of `nest`, which is one of `nests`; what is inside of them is a subclass's matter.

    staged  whether windows or tiles of a target lie in the loops: then tiles of symbolic heights are made for any start and height
    inside  what is inside of one of its loops, where stages are computed in some; None: in none
    """

    keeps_names = False
    """Whether each loop is called as its axis is, since no other nest around has a loop of that name."""

    def __init__(
        self,
        nests: Nests,
        nest: Nest,
        names: Names,
        staged: bool = False,
        inside: Inside | None = None,
    ) -> None:
        super().__init__(nest)
        self.nests, self.names, self.staged, self.inside = nests, names, staged, inside

    def is_tile(self, first: str, parts: Sequence[Open]) -> bool:
        """Return whether the loops from `first` inwards are one tile."""
        raise NotImplementedError

    def emit_tiles(self, parts: Sequence[Open], at: At) -> tuple[Stmt, ...]:
        """Return the statements of `parts`, whose loops are one tile."""
        raise NotImplementedError

    def computed_inside(self, axis: str, body: tuple[Stmt, ...], at: At) -> LoopBody:
        """Return what is inside of the loop over `axis`: `body`, and what else is computed there."""
        return LoopBody((body,)) if self.inside is None else self.inside(self.nest, axis, body, at)

    def note_copy(self, body: tuple[Stmt, ...], copy: tuple[Stmt, ...]) -> None:
        """Note that `copy` stands for `body`, statement by statement."""

    def emit(self, at: At) -> tuple[Stmt, ...]:
        """Return the loops of the nest, at a place around it; a root of one value there has no loop, but what is computed in it is."""
        known = at
        for root, (lo, hi) in at.window.items():
            if ix.sub(hi, lo) == ix.const(1) and self.has_plain_loop(root):
                known, _ = self.with_offset(root, ix.const(0), known)
        parts = [
            (tuple(name for name in part.loops if self.is_open(name, known)), part)
            for part in self.nest.parts
        ]
        return self.block(parts, known)

    def is_open(self, name: str, at: At) -> bool:
        """Return whether a loop is still to come at a place: it has more than one value there, or others are computed in it."""
        if name not in at.offsets:
            return True
        attached = () if self.inside is None else self.nests.attached_nests(self.nest.name, name)
        return any(not self.nests.is_at_points(one) for one in attached)

    def has_plain_loop(self, root: str) -> bool:
        """Return whether a root has a loop of its own, which is not split, and runs outside of tiles."""
        return self.nest.taken_apart(root) is None

    def block(self, parts: Sequence[Open], at: At) -> tuple[Stmt, ...]:
        """Return `parts` in order, neighbours in one loop where they begin with the same."""
        body: tuple[Stmt, ...] = ()
        for first, group in groupby(parts, key=lambda part: part[0][:1]):
            inside = list(group)
            if not first:
                for _, part in inside:
                    body += self.leaf(part, at)
            elif self.is_tile(first[0], inside):
                body += self.emit_tiles(inside, at)
            else:
                body += self.loop(first[0], [(loops[1:], part) for loops, part in inside], at)
        return body

    def loop(self, axis: str, parts: Sequence[Open], at: At) -> tuple[Stmt, ...]:
        """Return the loop over `axis` around `parts`; several where its tail is treated apart."""
        if axis in at.offsets:
            return self.computed_inside(axis, self.block(parts, at), at).statements
        origin, at = self.nest.made_by(axis), self.with_root_bounds(axis, at)
        if isinstance(origin, SplitPair) and axis == origin.outer:
            if origin.level.room is not None:
                return self.block_loop(origin, origin.level.room, parts, at)
            if origin.level.by is not None:
                return self.by_height(origin, origin.level.by, parts, at)
            if self.covers(origin, parts):
                return self.split_loop(origin, parts, at)
        if self.nest.root(axis) is not None:
            return self.plain(
                axis, self.root_bound(axis, 0, at), self.root_bound(axis, 1, at), parts, at
            )
        return self.plain(axis, ix.const(0), self.extent(axis, at), parts, at)

    def covers(self, split: SplitPair, parts: Sequence[Open]) -> bool:
        """Return whether all loops of the inner axis are still to come, so that a segment bounds them."""
        inner = set(self.nest.leaves(split.inner))
        fused = any(isinstance(self.nest.made_by(leaf), Fuse) for leaf in inner)
        return not fused and all(inner <= set(loops) for loops, _ in parts)

    def plain(
        self, axis: str, lo: Expr, hi: Expr, parts: Sequence[Open], at: At
    ) -> tuple[Stmt, ...]:
        """``for axis in lo:hi``; the offset of a root is counted from `lo`."""
        name = axis if self.keeps_names else self.names.fresh(axis)
        offset = ix.sub(Var(name), lo)
        inner = at.replace(facts=at.facts.loop(name, lo, hi))
        body = self.inside_loop(axis, offset, parts, inner)
        if not self.keeps_names:
            self.names.release(name)
        unit = self.nest.mark(axis).unit
        return (For(name, lo, hi, body, unit=unit),) if body else ()

    def inside_loop(
        self, axis: str, offset: Expr, parts: Sequence[Open], at: At
    ) -> tuple[Stmt, ...]:
        """What is inside the loop over `axis`, whose offset is now known."""
        known, guards = self.with_offset(axis, offset, at)
        for guard in guards:
            known = known.replace(facts=known.facts.where(guard))
        body = self.computed_inside(axis, self.block(parts, known), known).statements
        return (If(conjunction(guards), body),) if guards and body else body

    def block_loop(
        self, split: SplitPair, room: int, parts: Sequence[Open], at: At
    ) -> tuple[Stmt, ...]:
        """Return the loop over blocks of iterations, all of which each nest that is computed there runs before the next nest does::

            for i_block in 0:(n + 3)//4
              for i in 4*i_block:min(4*i_block + 4, n)     by nest

        Where what lives in a block does not fit in `room` bytes, iterations run one by one; where that depends on the sizes, a
        condition stands around both.
        """
        root, many = split.axis, split.factor
        if any(loops[0] != split.inner for loops, _ in parts):
            raise PartitionError(
                "split",
                f"cannot run {root} in blocks of {many}",
                at=f"axis {self.nest.name}.{root}",
                because=f"{split.inner} is not directly inside {split.outer}",
                help=(f"an order with {split.outer} {split.inner} side by side",),
            )
        lo, hi = self.root_bound(root, 0, at), self.root_bound(root, 1, at)
        name = root if self.keeps_names else self.names.fresh(root)
        number = self.names.fresh(split.outer)
        inner = at.replace(facts=at.facts.loop(name, lo, hi))
        known, guards = self.with_offset(root, ix.sub(Var(name), lo), inner)
        own = self.block([(loops[1:], part) for loops, part in parts], known)
        if guards:
            own = (If(conjunction(guards), own),)
        inside = self.computed_inside(split.outer, own, known)
        unit = self.nest.mark(split.outer).unit
        one_by_one = (For(name, lo, hi, inside.statements, unit=unit),)
        start = ix.add(lo, ix.mul(many, Var(number)))
        stop = ix.minimum(ix.add(start, many), hi)
        windows = [window_of_block(one, name, start, many) for one in inside.windows]
        by_nest = tuple(For(name, start, stop, part) for part in inside.parts)
        count = ix.ceildiv(ix.sub(hi, lo), many)
        blocks = (For(number, ix.const(0), count, in_windows(windows, by_nest), unit=unit),)
        sums = tuple(sum_terms(self.nests, (self.nest.name, split.outer)))
        fits = capacity_condition(self.nests, windows, sums, many, room)
        self.names.release(number)
        if not self.keeps_names:
            self.names.release(name)
        if isinstance(fits, bool):
            return blocks if fits else one_by_one
        return (If(fits, blocks, one_by_one),)

    def by_height(
        self, split: SplitPair, by: str, parts: Sequence[Open], at: At
    ) -> tuple[Stmt, ...]:
        """Return the outer loop of a split for each height of the tile that the loop `by` lies inside."""
        origin = self.nest.origins(by)[0]
        if by not in at.extents or origin not in at.segments or not self.covers(split, parts):
            (root, *_) = self.nest.origins(split.axis)
            raise PartitionError(
                "split",
                f"cannot split {root} by the height of {by}",
                at=f"axis {self.nest.name}.{root}",
                because=f"{split.outer} is not inside of the tiles of {by}, or not around {split.inner}",
                help=(
                    f"an order with {split.outer} inside of the loop over these, around {split.inner}",
                ),
            )

        def case(tile: int, sizes: tuple[int, ...], limited: Segment) -> tuple[Stmt, ...]:
            own = replace(split, level=Level(tile, split.tail, sizes))
            known = at.replace(segments={**at.segments, origin: limited})
            return self.split_loop(own, parts, known)

        return height_cases(split.level.classes, at.segments[origin], at.extents[by], case)

    def split_loop(self, split: SplitPair, parts: Sequence[Open], at: At) -> tuple[Stmt, ...]:
        """Return the outer loop of a split. Where the bounds of what is split differ inside of a tile around, as in a triangle, tiles
        that lie in all rows are apart from those that some bounds cross, in which each instance is asked, as it is in all by `guard`.

        Tiles around whose starts are products of sizes, and tiles of symbolic heights, are in no sets: then all instances are asked.
        """
        root, tile = split.axis, split.factor
        if root not in at.early:
            return self.segments(split, parts, at)
        strategy = self.strategy(split)
        lower, upper = (self.ends_of_bound(root, end, at, self.open_tile) for end in (0, 1))
        one_code = not strategy.among and all(
            not segment.lets for segment in segments(strategy, EXTENT, tile)
        )
        if not one_code or not all(ix.is_affine(one) for one in (*lower, *upper)):
            return self.segments(split, parts, at)
        (start, first), (_, stop) = lower, upper
        if strategy == GUARD:
            rows = at.replace(window={**at.window, root: (start, stop)})
            return self.segments(split, parts, rows)
        segment = inner_segment(lower, upper, tile, at.facts)
        full = segment.owned[1]
        between = (start, first), (first, ix.add(first, full)), (ix.add(first, full), stop)
        before, inside, after = (at.replace(window={**at.window, root: one}) for one in between)
        body: tuple[Stmt, ...] = ()
        if not at.facts.holds(ix.compare(">=", start, first)):
            body += self.segments(split, parts, before)
        if segment.count != ix.const(0):
            whole = inside.replace(early=at.early - {root})
            body += self.segment(split, segment, full, parts, whole, always_loop=True)
        if not at.facts.holds(ix.compare("<=", stop, ix.add(first, full))):
            body += self.segments(split, parts, after)
        return body

    def segments(self, split: SplitPair, parts: Sequence[Open], at: At) -> tuple[Stmt, ...]:
        """Return the outer loop of a split, once for its full tiles and once for each kind of tail; neither where its end lies before its start."""
        extent = self.extent(split.axis, at)
        over_sizes = variables(extent) <= {size.name for size in self.nests.sizes}
        if over_sizes or split.axis in at.early:
            extent = at.facts.extreme("max", extent, ix.const(0))
        if self.divides(split, extent, at):
            count = ix.floordiv(extent, split.factor)
            even = full_segment(split.factor, count, extent, Role.WHOLE)
            return self.segment(split, even, extent, parts, at, always_loop=True)
        strategy = self.strategy(split)
        if not strategy.among:
            return self.tail_segments(split, strategy, extent, parts, at)
        options = (
            Option(
                one.name,
                self.nests.tile_cost(runs(one, extent, split.factor), split.factor),
                self.tail_segments(split, one, extent, parts, at),
            )
            for one in strategy.among
        )
        return (Choose(tuple(options)),)

    def tail_segments(
        self, split: SplitPair, strategy: Strategy, extent: Expr, parts: Sequence[Open], at: At
    ) -> tuple[Stmt, ...]:
        """Return the segments that `strategy` gives."""
        body: tuple[Stmt, ...] = ()
        for segment in possible_segments(segments(strategy, extent, split.factor), at.facts):
            body += self.segment(split, segment, extent, parts, at)
        return body

    def divides(self, split: SplitPair, extent: Expr, at: At) -> bool:
        """Return whether every tile of a loop of `extent` iterations is full."""
        rest = ix.mod(extent, split.factor)
        is_promised = split.tail is not None and split.tail.divides
        return is_promised or self.always(ix.compare("==", rest, 0), at)

    def strategy(self, split: SplitPair) -> Strategy:
        """Return how the tail of `split` runs; cutting it off by default, padding it for an intrinsic.

        Loops have every height, so what is left is a ladder of one step.
        """
        tail, heights = split.tail, split.level.heights
        if tail is None and not heights and split.inner in self.nest.covered_loops:
            return PAD
        strategy = LADDER if tail is None or tail == CUT else tail
        return strategy.with_heights(heights)

    def counter(self, split: SplitPair) -> str:
        """Return what the loop over the tiles of `split` is called."""
        return split.outer

    def segment(
        self,
        split: SplitPair,
        segment: Segment,
        extent: Expr,
        parts: Sequence[Open],
        at: At,
        always_loop: bool = False,
    ) -> tuple[Stmt, ...]:
        """Return the tiles of one segment of a loop of `extent` iterations."""
        unit = self.nest.mark(split.outer).unit
        facts = self.facts_in(segment, at)
        origins, by_root, limits = self.nest.origins(split.axis), at.segments, at.limits
        if len(origins) == 1:
            around = by_root.get(origins[0])
            whole = segment if around is None else to_outer_axis(around, segment, extent)
            by_root = {**by_root, origins[0]: whole}
        if segment.predicate:
            limits = {**limits, split.axis: segment.owned[1]}
        last = self.staged and segment.owned[1] == extent
        lone = segment.count is None and segment.form is Form.FULL and not segment.lets

        def tile(place: TilePlace) -> tuple[Stmt, ...]:
            if last and lone:  # the last tile ends where the loop does
                place = replace(place, height=ix.sub(extent, place.start))
            here = at.replace(facts=place.inside(facts), segments=by_root, limits=limits)
            if self.staged and not segment.predicate:
                sets = not segment.lets and ix.is_affine(place.start) and ix.is_affine(place.height)
                if not sets:
                    return self.opaque(split, segment, place, parts, here)
            return self.one_tile(split, place, place, parts, here)

        if unit in COUNTED_UNITS:
            always_loop, count = True, segment.count or ix.const(1)
            segment = replace(segment, count=_max_trip_count(count, facts))
        return self.segment_tiles(split, segment, parts, tile, always_loop)

    def facts_in(self, segment: Segment, at: At) -> Facts:
        """Return the facts where a segment exists."""
        return at.facts if segment.when is None else at.facts.where(segment.when)

    def segment_tiles(
        self,
        split: SplitPair,
        segment: Segment,
        parts: Sequence[Open],
        emit_tile: EmitTile,
        always_loop: bool,
    ) -> tuple[Stmt, ...]:
        """Return the loop over the tiles of a segment, around what `emit_tile` returns for one of them."""
        name, unit = self.counter(split), self.nest.mark(split.outer).unit
        return segment_loops(segment, name, self.names, emit_tile, unit, always_loop)

    def one_tile(
        self,
        split: SplitPair,
        place: TilePlace,
        real: TilePlace,
        parts: Sequence[Open],
        at: At,
    ) -> tuple[Stmt, ...]:
        """Return what is inside the loop over tiles.

        place, real  of the tile; as it is called there, and as it is
        """
        value = real.counter or ix.floordiv(real.start, split.factor)
        inner = at.replace(
            starts={**at.starts, split.inner: place.start},
            extents={**at.extents, split.inner: place.height},
        )
        return self.inside_loop(split.outer, value, parts, inner)

    def opaque(
        self,
        split: SplitPair,
        segment: Segment,
        place: TilePlace,
        parts: Sequence[Open],
        at: At,
    ) -> tuple[Stmt, ...]:
        """Return what is inside a tile of symbolic height, made for any start and height that lie in the loop that is split.

        That tiles lie there is the theorem of their strategy; products of sizes are in no set.
        """
        extent = self.extent(split.axis, at)
        s, h = (Var(self.names.fresh(f"{split.inner}_{what}")) for what in ("start", "height"))
        least, most = segment.heights
        facts = at.facts.loop(s.name, ix.const(0), ix.add(extent, 1))
        facts = facts.loop(h.name, ix.const(least), ix.const(most + 1))
        facts = facts.where(ix.compare("<=", ix.add(s, h), extent))
        opaque_place = replace(place, start=s, height=h)
        body = self.one_tile(split, opaque_place, place, parts, at.replace(facts=facts))
        for variable in (s, h):
            self.names.release(variable.name)
        values = {s.name: place.start, h.name: place.height}
        emitted = map_body(body, lambda expr: ix.simplify(substitute(expr, values)))
        self.note_copy(body, emitted)
        return emitted


def strategy_of(split: SplitPair) -> Strategy:
    """Return how the tail of `split` runs, as the decision says it. In tiles of one iteration, every strategy of ours is the loop itself."""
    assert split.tail is not None
    strategy = split.tail.with_heights(split.level.heights)
    return CUT if split.factor == 1 and strategy.user_defined is None else strategy


def _max_trip_count(count: Expr, facts: Facts) -> Expr:
    """Return the greatest trip count of a loop over counted units, as a literal; `count` if facts do not bound it by `MAX_UNITS`.

    Each block has the same number of units, so the loop over them has a constant trip count, and the last may have no tile.
    """
    if ix.literal_value(count) is not None or not facts.holds(ix.compare("<=", count, MAX_UNITS)):
        return count
    low, high = 0, MAX_UNITS
    while high - low > 1:
        middle = (low + high) // 2
        if facts.holds(ix.compare("<=", count, middle)):
            high = middle
        else:
            low = middle
    return ix.const(high)
