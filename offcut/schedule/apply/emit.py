"""A schedule as a loop program: nests go in; loops in the order asked for, windows and tiles come out.

The outer loop of a split decides what the inner one covers: a segment of full tiles, then the tail
as its strategy wants it (`partition.segments`). Where that cannot be, because the inner loop is
further out, both loops are complete and an instance past the end is left out by a condition.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby

from offcut.core import index as ix
from offcut.core.conditions import conjunction
from offcut.core.expr import Binary, Expr, Var, substitute, variables
from offcut.core.expr import walk as expressions_in
from offcut.core.program import (
    COUNTED_UNITS,
    Alloc,
    Choose,
    For,
    Form,
    If,
    Option,
    Program,
    Role,
    Stmt,
    Tile,
    map_body,
    walk,
)
from offcut.describe.computation import Names
from offcut.describe.microkernel import Microkernel
from offcut.errors import PartitionError
from offcut.partition import (
    CUT,
    GUARD,
    LADDER,
    PAD,
    EmittedTile,
    Segment,
    Strategy,
    runs,
    segments,
    with_covers,
)
from offcut.partition.strategies.segment_loops import (
    TilePlace,
    full_segment,
    height_cases,
    possible_segments,
    segment_loops,
    to_outer_axis,
)
from offcut.partition.strategies.tiled_axis import EXTENT
from offcut.polyhedral import Facts, Space
from offcut.schedule.apply.bounds import footprint
from offcut.schedule.apply.offsets import At
from offcut.schedule.apply.placing import is_beside
from offcut.schedule.apply.reading import loads_of
from offcut.schedule.apply.staged_form import Alternatives, Covered, Nest, Nests, point_of
from offcut.schedule.apply.tiles import Open, Tiles
from offcut.schedule.decisions import Fuse, Level, SplitPair

MAX_UNITS = 32
"""The most counted units (`COUNTED_UNITS`) that a block may have."""


def lower(nests: Nests) -> Program:
    """Return the program that runs `nests` as they are scheduled; nothing is proved here."""
    return lower_with_tiles(nests)[0]


def lower_with_tiles(nests: Nests) -> tuple[Program, list[EmittedTile]]:
    """Return the program that runs `nests` as they are scheduled, and its tiles, in the order of the text."""
    made: dict[int, EmittedTile] = {}
    names = Names([*(s.name for s in nests.sizes), *(b.name for b in nests.buffers)])
    buffers = {buffer.name: buffer for buffer in nests.buffers}
    body: tuple[Stmt, ...] = ()
    chosen = dict[str, Alternatives]()
    for one in nests.alternatives:
        chosen |= dict.fromkeys(one.stages, one)
        for _, _, option in one.options:
            buffers |= {buffer.name: buffer for buffer in option.buffers}
    emitted = list[Alternatives]()
    for nest in nests.nests:
        several = chosen.get(nest.name)
        if several is None and nest.at is None:
            body += _Lowering(nests, names, made).root(nest)
        elif several is not None and several not in emitted:
            emitted.append(several)
            options = []
            for label, cost, option in several.options:
                making, inside = _Lowering(option, names, made), tuple[Stmt, ...]()
                for own in several.own(nests, option):
                    inside += making.root(own)
                options.append(Option(label, cost, inside))
            body += (Choose(tuple(options)),)
    called = {stmt.microkernel for stmt in walk(body) if isinstance(stmt, Tile)}
    for nest in nests.nests:
        if nest.covered is not None and not called & nest.covered.names:
            raise _idle(nest, nest.covered)
    kernels: dict[str, list[Microkernel]] = {}
    for covered in (nest.covered for nest in nests.nests if nest.covered is not None):
        for name in covered.names if covered.wanted is None else ():
            kernels.setdefault(name, []).append(covered.intrinsic)
    program = replace(nests.program(body), buffers=tuple(buffers.values()))
    tiles = [made[id(stmt)] for stmt in walk(body) if id(stmt) in made]
    return with_covers(program, kernels.get) if kernels else program, tiles


def _idle(nest: Nest, covered: Covered) -> PartitionError:
    """Return the error that no tile of `nest` has the extents that its instruction declares."""
    splits = (nest.made_by(leaf) for leaf in covered.loops(nest))
    tails = dict.fromkeys(
        f"tail={one.tail}" for one in splits if isinstance(one, SplitPair) and one.tail is not None
    )
    return PartitionError(
        "tensorize",
        f"cannot run {nest.name} by {covered.intrinsic.name}",
        at=f"axis {nest.name}.{covered.axis}",
        because=f"no tile has exactly the extents that it declares, {', '.join(str(extent) for _, extent in covered.extents)}"
        f" ({', '.join(tails) or 'no loop is split'})",
        help=('tail="pad", "mask" or "cut" of these splits',),
    )


class _Lowering:
    def __init__(self, nests: Nests, names: Names, made: dict[int, EmittedTile]) -> None:
        self.nests, self.names, self.made = nests, names, made
        self.facts = Facts(Space(nests.sizes, nests.assumptions))

    def root(self, nest: Nest) -> tuple[Stmt, ...]:
        """Return the statements of a nest that is computed in no other."""
        return self.nest(nest, At(self.facts, {}))

    def nest(self, nest: Nest, at: At) -> tuple[Stmt, ...]:
        """Return the statements of `nest` at a place around it, its roots in the window there."""
        body = _Nest(self, nest).block([(part.loops, part) for part in nest.parts], at)
        return self.computed_inside(nest, None, body, at)

    def computed_inside(
        self, nest: Nest, axis: str | None, body: tuple[Stmt, ...], at: At
    ) -> tuple[Stmt, ...]:
        """Return `body`, the inside of a loop, with what is computed there around and before it."""
        for producer in reversed(self.nests.attached(nest.name, axis)):
            (buffer,) = producer.written
            shape, beside = self.nests.buffer(buffer).shape, is_beside(self.nests, producer)
            window = footprint(body, nest.written[0] if beside else buffer, shape, at.facts, beside)
            point = point_of(producer, buffer)
            assert point is not None
            reach = {
                name: (start, ix.add(start, extent))
                for name, (start, extent) in zip(point, window, strict=True)
            }
            inner = At(at.facts, reach, segments=self.moved(nest, producer, point, at))
            made = self.nest(producer, inner)
            where = producer.placed
            assert where is not None
            inside = (*made, *body)
            if beside:
                body = inside
                continue
            body = (Alloc(buffer, window, inside, where.memory, where.depth, where.inplace),)
        return body

    def moved(
        self, reader: Nest, producer: Nest, point: Sequence[str], at: At
    ) -> dict[str, Segment]:
        """Return the segments of a stage's roots: those of the loops that name its elements in what reads it."""
        (buffer,) = producer.written
        if is_beside(self.nests, producer):
            roots = zip(point, point_of(reader, reader.written[0]) or (), strict=True)
            return {root: at.segments[of] for root, of in roots if of in at.segments}
        inside = (reader, *(n for n in self.nests.nests if n.at and n.at[0] == reader.name))
        found: dict[str, Segment] = {}
        for load in (load for one in inside for load in loads_of(one.plain)):
            if load.buffer == buffer:
                for root, part in zip(point, load.index, strict=True):
                    if isinstance(part, Var) and part.name in at.segments:
                        found.setdefault(root, at.segments[part.name])
        return found


class _Nest(Tiles):
    """One nest on its way to loops."""

    def __init__(self, lowering: _Lowering, nest: Nest) -> None:
        super().__init__(lowering.nests, nest, lowering.names)
        self.staged = any(
            one.at is not None or (one.covered is not None and one.covered.wanted is not None)
            for one in lowering.nests.nests
        )
        self.lowering = lowering

    def block(self, parts: Sequence[Open], at: At) -> tuple[Stmt, ...]:
        """Return `parts` in order, neighbours in one loop where they begin with the same."""
        body: tuple[Stmt, ...] = ()
        for first, group in groupby(parts, key=lambda part: part[0][:1]):
            inside = list(group)
            if not first:
                for _, part in inside:
                    body += self.leaf(part, at)
            elif not self.is_tile(first[0], inside):
                body += self.loop(first[0], [(loops[1:], part) for loops, part in inside], at)
            elif self.fits(inside, at):
                tiles = self.tiles(inside, at)
                for tile in tiles:
                    self.lowering.made[id(tile)] = self.piece(tile, at)
                body += tiles
            else:
                plain = replace(self.nest, covered=None)
                body += _Nest(self.lowering, plain).block(inside, at)
        return body

    def piece(self, tile: Stmt, at: At) -> EmittedTile:
        """Return what a tile is by the loops that are split around it."""
        assert isinstance(tile, Tile)
        roots = (root.name for root in self.nest.roots if root.name in at.segments)
        return EmittedTile(
            tile, tuple((root, at.segments[root]) for root in roots), tile.microkernel
        )

    def loop(self, axis: str, parts: Sequence[Open], at: At) -> tuple[Stmt, ...]:
        """Return the loop over `axis` around `parts`; several where its tail is treated apart."""
        made, at = self.nest.made_by(axis), self.fixed(axis, at)
        if isinstance(made, SplitPair) and axis == made.outer:
            if made.level.by is not None:
                return self.by_height(made, made.level.by, parts, at)
            if self.covers(made, parts):
                return self.split_loop(made, parts, at)
        if self.nest.root(axis) is not None:
            return self.plain(axis, self.bound(axis, 0, at), self.bound(axis, 1, at), parts, at)
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
        name = self.names.fresh(axis)
        offset = ix.sub(Var(name), lo)
        inner = replace(at, facts=at.facts.loop(name, lo, hi))
        body = self.opened(axis, offset, parts, inner)
        self.names.release(name)
        unit = self.nest.mark(axis).unit
        return (For(name, lo, hi, body, unit=unit),) if body else ()

    def opened(self, axis: str, offset: Expr, parts: Sequence[Open], at: At) -> tuple[Stmt, ...]:
        """What is inside the loop over `axis`, whose offset is now known."""
        known, guards = self.completed(axis, offset, at)
        facts = known.facts
        for guard in guards:
            facts = facts.where(guard)
        known = replace(known, facts=facts)
        body = self.block(parts, known)
        body = self.lowering.computed_inside(self.nest, axis, body, known)
        return (If(conjunction(guards), body),) if guards and body else body

    def by_height(
        self, split: SplitPair, by: str, parts: Sequence[Open], at: At
    ) -> tuple[Stmt, ...]:
        """Return the outer loop of a split for each height of the tile that the loop `by` lies inside."""
        origin = self.nest.origins(by)[0]
        if by not in at.extents or origin not in at.segments or not self.covers(split, parts):
            raise PartitionError(
                "split",
                f"cannot split {split.axis} by the height of {by}",
                at=f"axis {self.nest.name}.{split.axis}",
                because=f"{split.outer} is not inside of the tiles of {by}, or not around {split.inner}",
                help=(
                    f"an order with {split.outer} inside of the loop over these, around {split.inner}",
                ),
            )

        def case(tile: int, sizes: tuple[int, ...], limited: Segment) -> tuple[Stmt, ...]:
            own = replace(split, level=Level(tile, split.tail, sizes))
            known = replace(at, segments={**at.segments, origin: limited})
            return self.split_loop(own, parts, known)

        return height_cases(split.level.classes, at.segments[origin], at.extents[by], case)

    def split_loop(self, split: SplitPair, parts: Sequence[Open], at: At) -> tuple[Stmt, ...]:
        """Return the outer loop of a split. Where the bounds of what is split differ inside of a tile around, as in a triangle, tiles
        that lie in all rows are apart from those that some bounds cross, in which each instance is asked, as it is in all by `guard`.

        Tiles around whose starts are products of sizes, and tiles of symbolic heights, are in no sets: then all instances are asked.
        """
        root, tile = split.axis, split.factor
        if root not in at.early:
            return self.segmented(split, parts, at)
        strategy = self.strategy(split)
        bounds = [self.ends_of_bound(root, end, at, self.open_tile) for end in (0, 1)]
        one_code = not strategy.among and all(
            not segment.lets for segment in segments(strategy, EXTENT, tile)
        )
        if not one_code or not all(_is_affine(one) for ends in bounds for one in ends):
            return self.segmented(split, parts, at)
        (start, first), (last, stop) = bounds
        if strategy == GUARD:
            rows = replace(at, window={**at.window, root: (start, stop)})
            return self.segmented(split, parts, rows)
        count = ix.floordiv(at.facts.extreme("max", ix.sub(last, first), ix.const(0)), tile)
        full = ix.mul(tile, count)
        between = (start, first), (first, ix.add(first, full)), (ix.add(first, full), stop)
        before, inside, after = (replace(at, window={**at.window, root: one}) for one in between)
        body: tuple[Stmt, ...] = ()
        if not at.facts.holds(ix.compare(">=", start, first)):
            body += self.segmented(split, parts, before)
        if count != ix.const(0):
            segment = full_segment(tile, count, full)
            whole = replace(inside, early=at.early - {root})
            body += self.segment(split, segment, full, parts, whole, always_loop=True)
        if not at.facts.holds(ix.compare("<=", stop, ix.add(first, full))):
            body += self.segmented(split, parts, after)
        return body

    def segmented(self, split: SplitPair, parts: Sequence[Open], at: At) -> tuple[Stmt, ...]:
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
            return self.tailed(split, strategy, extent, parts, at)
        options = (
            Option(
                one.name,
                self.nests.tile_cost(runs(one, extent, split.factor), split.factor),
                self.tailed(split, one, extent, parts, at),
            )
            for one in strategy.among
        )
        return (Choose(tuple(options)),)

    def tailed(
        self, split: SplitPair, strategy: Strategy, extent: Expr, parts: Sequence[Open], at: At
    ) -> tuple[Stmt, ...]:
        """Return the segments that `strategy` gives."""
        body: tuple[Stmt, ...] = ()
        for segment in possible_segments(segments(strategy, extent, split.factor), at.facts):
            body += self.segment(split, segment, extent, parts, at)
        return body

    def divides(self, split: SplitPair, extent: Expr, at: At) -> bool:
        rest = ix.mod(extent, split.factor)
        asked = split.tail is not None and split.tail.divides
        return asked or self.always(ix.compare("==", rest, 0), at)

    def strategy(self, split: SplitPair) -> Strategy:
        """Return how the tail of `split` runs; cutting it off by default, padding it for an intrinsic.

        Loops have every height, so what is left is a ladder of one step.
        """
        tail, heights = split.tail, split.level.heights
        if tail is None and not heights and split.inner in self.tile_leaves():
            return PAD
        strategy = LADDER if tail is None or tail == CUT else tail
        return strategy.with_heights(heights)

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
        facts = at.facts if segment.when is None else at.facts.where(segment.when)
        inner = at
        origins = self.nest.origins(split.axis)
        if len(origins) == 1:
            around = at.segments.get(origins[0])
            whole = segment if around is None else to_outer_axis(around, segment, extent)
            inner = replace(inner, segments={**at.segments, origins[0]: whole})
        if segment.predicate:
            inner = replace(inner, limits={**at.limits, split.axis: segment.owned[1]})
        last = self.staged and segment.owned[1] == extent
        lone = segment.count is None and segment.form is Form.FULL and not segment.lets

        def tile(place: TilePlace) -> tuple[Stmt, ...]:
            if last and lone:  # the last tile ends where the loop does
                place = replace(place, height=ix.sub(extent, place.start))
            here = replace(inner, facts=place.inside(facts))
            sets = not segment.lets and _is_affine(place.start) and _is_affine(place.height)
            if self.staged and not segment.predicate and not sets:
                return self.opaque(split, segment, place, parts, here)
            return self.one_tile(split, place, place, parts, here)

        if unit in COUNTED_UNITS:
            always_loop, count = True, segment.count or ix.const(1)
            segment = replace(segment, count=_max_trip_count(count, facts))
        return segment_loops(segment, split.outer, self.names, tile, unit, always_loop)

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
        inner = replace(
            at,
            starts={**at.starts, split.inner: place.start},
            extents={**at.extents, split.inner: place.height},
        )
        return self.opened(split.outer, value, parts, inner)

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
        named = replace(place, start=s, height=h)
        body = self.one_tile(split, named, place, parts, replace(at, facts=facts))
        for made in (s, h):
            self.names.release(made.name)
        values = {s.name: place.start, h.name: place.height}
        emitted = map_body(body, lambda expr: ix.simplify(substitute(expr, values)))
        tiles = self.lowering.made
        for old, new in zip(walk(body), walk(emitted), strict=True):
            if id(old) in tiles:
                tiles[id(new)] = replace(tiles[id(old)], leaf=new)
        return emitted


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


def _is_affine(expr: Expr) -> bool:
    """Return whether an expression has no product and no quotient of two parts that sizes change: whether it is in sets."""
    return not any(
        isinstance(node, Binary)
        and node.op in ("*", "//", "%")
        and variables(node.b)
        and (node.op != "*" or variables(node.a))
        for node in expressions_in(expr)
    )
