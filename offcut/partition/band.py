"""A band of loops as tiles: loops and their cuts go in; levels of tile loops around one tile come out.

Bounds may depend on loops further out. Where they depend on a loop of the same band (a triangle), the
tiles that lie wholly inside are separated from those that the bounds cross::

    for i in 0:n                   for i_tile in 0:n//4
      for j in 0:i + 1               for j_tile in 0:i_tile                     full tiles
        S                    ->        tile i in 4*i_tile +: 4, j in 4*j_tile +: 4
                                         S
                                     for i in 4*i_tile:4*i_tile + 4             along the border
                                       for j in 4*i_tile:i + 1
                                         S
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from offcut.core import index as ix
from offcut.core.expr import Binary, Compare, Const, Expr, Logic, Var, reads_memory, variables
from offcut.core.intervals import Ends, ends
from offcut.core.program import Choose, For, Form, If, Let, Option, Role, Stmt, walk
from offcut.core.text.printer import format_expr
from offcut.errors import PartitionError
from offcut.partition.cutting import Cutting, LoopCut
from offcut.partition.legality import (
    check_crossed,
    check_exact,
    check_keeps_reduction,
    check_repeats,
    check_takes,
    not_together,
)
from offcut.partition.strategies.axis_proof import check_axis
from offcut.partition.strategies.catalog import CUT, GUARD, LADDER, Strategy, runs, segments
from offcut.partition.strategies.segment_loops import (
    TilePlace,
    crossing_segment,
    full_segment,
    inner_segment,
    possible_segments,
    segment_loops,
    to_outer_axis,
    whole_segment,
)
from offcut.partition.strategies.segment_placement import Segment
from offcut.partition.tile import Inside, OneTile, Range
from offcut.polyhedral import Facts


@dataclass(frozen=True)
class BandLevel:
    """One level of one loop of the band: how it is cut there.

    loop       its number in the band
    last       whether this is its innermost level
    """

    loop: int
    tile: int
    strategy: Strategy
    last: bool


class Band:
    """The loops of `band` around `body`, cut; `inside` cuts the loops in `body`."""

    def __init__(
        self, cutting: Cutting, band: Sequence[For], body: tuple[Stmt, ...], inside: Inside
    ) -> None:
        self.cutting, self.band, self.body = cutting, band, body
        self.carried, self.names = cutting.carried, cutting.names
        self.iters = [loop.iter for loop in band]
        self.innermost = OneTile(cutting, band, body, inside)

    def emitted(self, at: Facts) -> tuple[Stmt, ...]:
        """The loops, cut as the user chose; where their tails are `mix`, in every way that competes."""
        mixed = self.mixed()
        if not mixed:
            return self.with_cuts(at)
        for loop, cut in mixed:
            if set(self.iters) & (variables(loop.lo) | variables(loop.hi)):
                check_crossed(loop, cut.strategy, cut.tiles[-1], last=True)
        options = []
        for one in mixed[0][1].strategy.among:
            cost: Expr = Const(1.0, "float64")
            for loop, cut in mixed:
                extent = ix.maximum(ix.sub(loop.hi, loop.lo), 0)
                tile = cut.tiles[-1]
                check_takes(f"loop {loop.iter}", one, tile)
                price = self.cutting.price(runs(one, extent, tile), tile)
                cost = Binary("*", cost, price)
            with self.cutting.decided([loop for loop, _ in mixed], one):
                options.append(Option(one.name, cost, self.with_cuts(at)))
        return (Choose(tuple(options)),)

    def mixed(self) -> list[tuple[For, LoopCut]]:
        """The loops whose sequence is one choice, out here: those of the band, and those inside that
        run equally often in every tile.
        """
        inside = list(walk(self.body))
        bound = {*self.iters, *(s.iter for s in inside if isinstance(s, For))}
        bound |= {s.name for s in inside if isinstance(s, Let)}
        fixed = [
            stmt
            for stmt in inside
            if isinstance(stmt, For)
            and not bound & (variables(stmt.lo) | variables(stmt.hi))
            and not (reads_memory(stmt.lo) or reads_memory(stmt.hi))
        ]
        cuts = ((loop, self.cutting.cut_of(loop)) for loop in (*self.band, *fixed))
        return [(loop, cut) for loop, cut in cuts if cut and cut.strategy.among]

    def with_cuts(self, at: Facts) -> tuple[Stmt, ...]:
        """The loops, cut level by level."""
        cuts = [self.cutting.cut_of(loop) for loop in self.band]
        depth = max(len(cut.tiles) for cut in cuts if cut is not None)
        steps: list[BandLevel] = []
        for level in range(depth):
            for k, cut in enumerate(cuts):
                skipped = depth - len(cut.tiles) if cut is not None else 0
                if cut is None or level < skipped:
                    continue
                last = level == depth - 1
                strategy = cut.strategy if last else LADDER
                steps.append(BandLevel(k, cut.tiles[level - skipped], strategy, last))
        return self.level(tuple(steps), {}, at)

    def level(
        self, steps: tuple[BandLevel, ...], ranges: Mapping[int, Range], at: Facts
    ) -> tuple[Stmt, ...]:
        """The loops of `steps`, outermost first, around one tile."""
        if not steps:
            return self.innermost.emitted(ranges, at)
        step, rest = steps[0], steps[1:]
        loop = self.band[step.loop]
        lo, hi, extent = loop.lo, loop.hi, ix.sub(loop.hi, loop.lo)
        if step.loop in ranges:
            known = ranges[step.loop]
            lo, hi, extent = known.lo, known.hi, ix.sub(known.hi, known.lo)
            if known.rect is not None:
                lo, extent = known.rect
                hi = ix.add(lo, extent)
        outer = [k for k in range(step.loop) if self.iters[k] in variables(lo) | variables(hi)]
        if outer:
            own = check_crossed(loop, step.strategy, step.tile, step.last)
            return self.crossed(replace(step, strategy=own), rest, ranges, at, lo, hi)
        if self.cutting.folds and at.holds(ix.compare("<=", extent, step.tile - 1)):
            bounds = f"{format_expr(lo)}:{format_expr(hi)}"
            short = f"{loop.iter} in {bounds} is shorter than a tile of {step.tile}"
            self.cutting.notes[f"{short}, so it is one tile"] = None
            one = Range(lo, hi, (lo, extent), None, whole_segment(lo, hi, step.tile))
            return self.level(rest, _with(ranges, step.loop, one), at)
        return self.stripped(step, rest, ranges, at, (lo, hi, extent))

    def stripped(
        self,
        step: BandLevel,
        rest: tuple[BandLevel, ...],
        ranges: Mapping[int, Range],
        at: Facts,
        over: tuple[Expr, Expr, Expr],
    ) -> tuple[Stmt, ...]:
        """Tiles of a loop over (lo, hi, how many), which is the same for all other loops."""
        loop, (lo, hi, extent) = self.band[step.loop], over
        sequential = loop.iter in self.carried.sequential
        # In tiles of one iteration, every strategy of ours is the loop itself.
        strategy = CUT if step.tile == 1 and step.strategy.user_defined is None else step.strategy
        with self.cutting.blame(loop.iter):
            self.check(loop, step, extent, at)
            claims = check_axis(strategy, step.tile, sequential, ix.literal_value(extent))
            self.cutting.theorems |= dict.fromkeys(claims)
        around = ranges[step.loop].segment if step.loop in ranges else None
        body: tuple[Stmt, ...] = ()
        all_segments: Iterable[Segment] = segments(strategy, extent, step.tile)
        if self.cutting.folds:
            all_segments = possible_segments(all_segments, at)
        for segment in all_segments:
            part = segment if around is None else to_outer_axis(around, segment, extent)

            def inside(
                place: TilePlace, segment: Segment = segment, part: Segment = part
            ) -> tuple[Stmt, ...]:
                here, start = place.inside(at), ix.add(lo, place.start)
                hi_here, where = ix.add(start, place.height), None
                if segment.predicate:
                    where = ix.compare("<", Var(loop.iter), hi)
                    hi_here = here.extreme("min", hi_here, hi)
                mine = Range(start, hi_here, (start, place.height), where, part)
                return self.level(rest, _with(ranges, step.loop, mine), here)

            single = segment.heights == (1, 1) and segment.count is not None
            bare = not segment.predicate and segment.when is None and not segment.lets
            if sequential and single and bare and not rest:
                # Instances that keep their order are one loop, not a tile each.
                own = (ix.add(lo, segment.owned[0]), ix.add(lo, segment.owned[1]))
                mine = Range(*own, (own[0], ix.sub(own[1], own[0])), None, part)
                body += self.level(rest, _with(ranges, step.loop, mine), at)
                continue
            body += segment_loops(segment, f"{loop.iter}_tile", self.names, inside)
        asks = self.cutting.folds or step.loop not in ranges
        if body and asks and not at.holds(Compare(">=", extent, ix.const(0))):
            return (If(Compare("<", lo, hi), body),)
        return body

    def check(self, loop: For, step: BandLevel, extent: Expr, at: Facts) -> None:
        """Refuse a strategy that this loop cannot take."""
        reduction = self.carried.reductions.get(loop.iter)
        sequential = loop.iter in self.carried.sequential
        check_takes(f"loop {loop.iter}", step.strategy, step.tile)
        if step.last:
            check_keeps_reduction(f"loop {loop.iter}", step.strategy, step.tile, reduction)
        if step.tile > 1 and step.strategy.repeats(step.tile):
            check_repeats(loop, step.strategy)
        if sequential and reduction is None and step.strategy.pads(step.tile):
            raise not_together(loop, step.strategy)
        if step.strategy.divides:
            check_exact(f"loop {loop.iter}", step.tile, extent, at)

    def crossed(
        self,
        step: BandLevel,
        rest: tuple[BandLevel, ...],
        ranges: Mapping[int, Range],
        at: Facts,
        lo: Expr,
        hi: Expr,
    ) -> tuple[Stmt, ...]:
        """A loop whose bounds depend on another of the band: full tiles, and what bounds cross."""
        loop = self.band[step.loop]
        box = {self.iters[k]: one for k, one in ranges.items()}
        lower, upper = (self.over(edge, box) for edge in (lo, hi))
        (lo_min, lo_max), (_, hi_max) = lower, upper
        tile = step.tile
        free = step.strategy != GUARD
        full = inner_segment(lower, upper, tile, at)
        end = ix.add(lo_max, full.owned[1]) if free else lo_min
        clipped = crossing_segment(step.tile)
        body: tuple[Stmt, ...] = ()
        if free:
            if not at.holds(Compare(">=", lo_min, lo_max)):
                before = Range(lo, at.extreme("min", hi, lo_max), None, None, clipped)
                body += self.level(rest, _with(ranges, step.loop, before), at)
            if full.count != ix.const(0):
                body += self.full_tiles(step, rest, ranges, at, lo_max, full)
        if step.strategy == CUT:
            start = lo if lo_min == lo_max == end else _later(at, lo, end, lo_max)
            after = Range(start, hi, None, None, clipped)
            return (*body, *self.level(rest, _with(ranges, step.loop, after), at))
        left = ix.ceildiv(at.extreme("max", ix.sub(hi_max, end), ix.const(0)), tile)
        if left == ix.const(0):
            return body
        inside = Logic(
            "and",
            (Compare("<=", lo, Var(loop.iter)), Compare("<", Var(loop.iter), hi)),
        )
        form = replace(clipped, form=Form.MASK if free else Form.GUARD)

        def masked(place: TilePlace) -> tuple[Stmt, ...]:
            start = ix.add(end, place.start)
            mine = Range(start, ix.add(start, tile), (start, place.height), inside, form)
            return self.level(rest, _with(ranges, step.loop, mine), place.inside(at))

        tiles = full_segment(tile, left, ix.mul(tile, left), Role.TAIL)
        name = f"{loop.iter}_tile"
        return (*body, *segment_loops(tiles, name, self.names, masked, always_loop=True))

    def full_tiles(
        self,
        step: BandLevel,
        rest: tuple[BandLevel, ...],
        ranges: Mapping[int, Range],
        at: Facts,
        lo: Expr,
        segment: Segment,
    ) -> tuple[Stmt, ...]:
        """The tiles of `segment`, which begins at `lo`; no bound crosses them."""

        def inside(place: TilePlace) -> tuple[Stmt, ...]:
            start = ix.add(lo, place.start)
            end = ix.add(start, place.height)
            inner = Range(start, end, (start, place.height), None, segment)
            return self.level(rest, _with(ranges, step.loop, inner), place.inside(at))

        name = f"{self.iters[step.loop]}_tile"
        return segment_loops(segment, name, self.names, inside, always_loop=True)

    def over(self, edge: Expr, box: Mapping[str, Range]) -> tuple[Expr, Expr]:
        """The least and the greatest value of a bound over the loops of the tile around."""
        least = greatest = edge
        for name in reversed(self.iters):
            if name in box:
                first, last = box[name].lo, ix.sub(box[name].hi, 1)
            elif name in variables(edge):
                loop = self.band[self.iters.index(name)]
                first, last = loop.lo, ix.sub(loop.hi, 1)
            else:
                continue
            least = _over(least, name, (first, last))[0]
            greatest = _over(greatest, name, (first, last))[1]
        return least, greatest


def _over(bound: Expr, name: str, between: Ends) -> Ends:
    """The least and the greatest value of a bound while a loop around it runs."""
    found = ends(bound, {name: between})
    if found is None:
        atoms = (atom for atom, _ in ix.to_linear(bound).terms)
        open_ = next(atom for atom in atoms if ends(atom, {name: between}) is None)
        raise PartitionError(
            "partition",
            f"cannot tile over {name}",
            because=f"the bound {format_expr(open_)} is not quasi-affine in it",
            help=(f"cut {name} alone",),
        )
    return found


def _with(ranges: Mapping[int, Range], number: int, one: Range) -> dict[int, Range]:
    """`ranges` with that of a loop, the last that was cut."""
    return {**{k: v for k, v in ranges.items() if k != number}, number: one}


def _later(at: Facts, lo: Expr, end: Expr, lo_max: Expr) -> Expr:
    """Where a row goes on after the full tiles: at `end`, or at `lo` if it starts later."""
    return end if lo == lo_max else at.extreme("max", lo, end)
