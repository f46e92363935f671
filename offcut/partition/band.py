"""A band of loops as tiles: levels of tile loops around the instances of one tile.

Where all loops of a tile are parallel these form a `Tile`, else loops that keep their order. Bounds
may depend on loops further out. Where they depend on a loop of the same band (a triangle), the tiles
that lie wholly inside are separated from those that the bounds cross::

    for i in 0:n                   for i_tile in 0:n//4
      for j in 0:i + 1               for j_tile in 0:i_tile                     full tiles
        S                    ->        tile i in 4*i_tile +: 4, j in 4*j_tile +: 4
                                         S
                                     for i in 4*i_tile:4*i_tile + 4             along the border
                                       for j in 4*i_tile:i + 1
                                         S
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from offcut.core import index as ix
from offcut.core.conditions import all_of
from offcut.core.dtypes import identity
from offcut.core.expr import (
    Binary,
    Compare,
    Const,
    Expr,
    Logic,
    Select,
    Var,
    dtype_of,
    variables,
)
from offcut.core.program import (
    Choose,
    For,
    Form,
    If,
    Let,
    Option,
    Role,
    Stmt,
    Store,
    Tile,
    TileAxis,
    walk,
)
from offcut.core.text.printer import format_expr
from offcut.errors import PartitionError
from offcut.partition.cutting import ByHeight, Cutting, LoopCut, Made
from offcut.partition.legality import (
    check_crossed,
    check_exact,
    check_few,
    check_keeps_reduction,
    check_repeats,
    check_takes,
    not_together,
)
from offcut.partition.strategies.axis_proof import check_axis
from offcut.partition.strategies.bound_range import extreme_over
from offcut.partition.strategies.catalog import CUT, GUARD, LADDER, Strategy, runs, segments
from offcut.partition.strategies.placing import Segment
from offcut.partition.strategies.segments import crossing, full, loops, of_all, of_heights, whole
from offcut.polyhedral import Facts
from offcut.proof.known_equal import reads_memory

# (statements, what is known there) -> the statements with the loops in them cut
Inside = Callable[[Sequence[Stmt], Facts], tuple[Stmt, ...]]


@dataclass(frozen=True)
class _Range:
    """A loop of the band inside a tile.

    rect   (start, height) where it does not depend on the others; else None, and `lo`, `hi` clip
    where  the condition of the instances that are kept
    """

    lo: Expr
    hi: Expr
    rect: tuple[Expr, Expr] | None
    where: Expr | None = None
    segment: Segment | None = None


@dataclass(frozen=True)
class Step:
    """One level of one loop of the band: how it is cut there.

    loop       its number in the band
    last       whether this is its innermost level
    by_height  instead of one tile, one for each height of the tile of the loop that was cut before
    """

    loop: int
    tile: int
    strategy: Strategy
    last: bool
    by_height: ByHeight = ()


class Band:
    """The loops of `band` around `body`, cut; `inside` cuts the loops in `body`."""

    def __init__(
        self, cutting: Cutting, band: Sequence[For], body: tuple[Stmt, ...], inside: Inside
    ) -> None:
        self.cutting, self.band, self.body, self.inside = cutting, band, body, inside
        self.carried, self.names = cutting.carried, cutting.names
        self.iters = [loop.iter for loop in band]

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
        steps: list[Step] = []
        for level in range(depth):
            for k, cut in enumerate(cuts):
                skipped = depth - len(cut.tiles) if cut is not None else 0
                if cut is None or level < skipped:
                    continue
                last = level == depth - 1
                strategy = cut.strategy if last else LADDER
                steps.append(Step(k, cut.tiles[level - skipped], strategy, last))
        return self.level(tuple(steps), {}, at)

    def level(
        self, steps: tuple[Step | For, ...], ranges: Mapping[int, _Range], at: Facts
    ) -> tuple[Stmt, ...]:
        """The loops of `steps`, outermost first, around one tile; some are loops of no tile."""
        if not steps:
            return self.tile(ranges, at)
        step, rest = steps[0], steps[1:]
        if isinstance(step, For):
            body = self.level(rest, ranges, at.loop(step.iter, step.lo, step.hi))
            return (replace(step, body=body),)
        if step.by_height:
            return self.by_height(step, rest, ranges, at)
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
            one = _Range(lo, hi, (lo, extent), None, whole(lo, hi, step.tile))
            return self.level(rest, _with(ranges, step.loop, one), at)
        return self.stripped(step, rest, ranges, at, (lo, hi, extent))

    def by_height(
        self,
        step: Step,
        rest: tuple[Step | For, ...],
        ranges: Mapping[int, _Range],
        at: Facts,
    ) -> tuple[Stmt, ...]:
        """A loop whose tiles depend on the height of the tile that was cut before: a case for each."""
        number = list(ranges)[-1]
        rows = ranges[number]
        assert rows.rect is not None
        assert rows.segment is not None
        low, high = rows.segment.heights
        body: tuple[Stmt, ...] = ()
        for (first, last), tile, sizes in reversed(step.by_height):
            if first > high or last < low:
                continue
            own = replace(step, tile=tile, strategy=step.strategy.stepped(sizes), by_height=())
            bounds = (max(first, low), min(last, high))
            limited = replace(rows, segment=of_heights(rows.segment, *bounds))
            inner = self.level((own, *rest), {**ranges, number: limited}, at)
            condition = ix.compare("<=", rows.rect[1], last)
            if isinstance(condition, Const):
                body = inner if condition.value else body
            else:
                body = (If(condition, inner, body),) if body else inner
        return body

    def stripped(
        self,
        step: Step,
        rest: tuple[Step | For, ...],
        ranges: Mapping[int, _Range],
        at: Facts,
        over: tuple[Expr, Expr, Expr],
    ) -> tuple[Stmt, ...]:
        """Tiles of a loop over (lo, hi, how many), which is the same for all other loops."""
        loop, (lo, hi, extent) = self.band[step.loop], over
        sequential = loop.iter in self.carried.sequential
        # In tiles of one iteration, every strategy of ours is the loop itself.
        strategy = CUT if step.tile == 1 and step.strategy.own is None else step.strategy
        with self.cutting.blame(loop.iter):
            self.check(loop, step, extent, at)
            claims = check_axis(strategy, step.tile, sequential, ix.literal(extent))
            self.cutting.theorems |= dict.fromkeys(claims)
        around = ranges[step.loop].segment if step.loop in ranges else None
        body: tuple[Stmt, ...] = ()
        for one in segments(strategy, extent, step.tile):
            when = one.when
            if when is not None and self.cutting.folds:
                when = _undecided(when, at)
            if when == Const(0, "bool"):
                continue
            segment = replace(one, when=when)
            part = segment if around is None else of_all(around, segment, extent)

            def inside(
                start: Expr, height: Expr, segment: Segment = segment, part: Segment = part
            ) -> tuple[Stmt, ...]:
                here = _counted(at, segment, start, height)
                start = ix.add(lo, start)
                hi_here, where = ix.add(start, height), None
                if segment.predicate and segment.guarded is None:
                    where = ix.compare("<", Var(loop.iter), hi)
                    hi_here = here.extreme("min", hi_here, hi)
                mine = _Range(start, hi_here, (start, height), where, part)
                return self.level(rest, _with(ranges, step.loop, mine), here)

            single = segment.heights == (1, 1) and segment.count is not None
            bare = segment.guarded is None and segment.when is None and not segment.lets
            if sequential and single and bare and not rest:
                # Instances that keep their order are one loop, not a tile each.
                own = (ix.add(lo, segment.owned[0]), ix.add(lo, segment.owned[1]))
                mine = _Range(*own, (own[0], ix.sub(own[1], own[0])), None, part)
                body += self.level(rest, _with(ranges, step.loop, mine), at)
                continue
            body += loops(segment, loop.iter, self.names, inside)
        if body and self.cutting.folds and not at.holds(Compare(">=", extent, ix.const(0))):
            return (If(Compare("<", lo, hi), body),)
        return body

    def check(self, loop: For, step: Step, extent: Expr, at: Facts) -> None:
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
        step: Step,
        rest: tuple[Step | For, ...],
        ranges: Mapping[int, _Range],
        at: Facts,
        lo: Expr,
        hi: Expr,
    ) -> tuple[Stmt, ...]:
        """A loop whose bounds depend on another of the band: full tiles, and what bounds cross."""
        loop = self.band[step.loop]
        box = {self.iters[k]: one for k, one in ranges.items()}
        bounds = [self.over(edge, box) for edge in (lo, hi)]
        (lo_min, lo_max), (hi_min, hi_max) = bounds
        tile = step.tile
        free = step.strategy != GUARD
        count = ix.floordiv(at.extreme("max", ix.sub(hi_min, lo_max), ix.const(0)), tile)
        end = ix.add(lo_max, ix.mul(tile, count)) if free else lo_min
        clipped = crossing(step.tile)
        body: tuple[Stmt, ...] = ()
        if free:
            if not at.holds(Compare(">=", lo_min, lo_max)):
                before = _Range(lo, at.extreme("min", hi, lo_max), None, None, clipped)
                body += self.level(rest, _with(ranges, step.loop, before), at)
            if count != ix.const(0):
                body += self.full_tiles(step, rest, ranges, at, lo_max, count)
        if step.strategy == CUT:
            start = lo if lo_min == lo_max == end else _later(at, lo, end, lo_max)
            after = _Range(start, hi, None, None, clipped)
            return (*body, *self.level(rest, _with(ranges, step.loop, after), at))
        left = ix.ceildiv(at.extreme("max", ix.sub(hi_max, end), ix.const(0)), tile)
        if left == ix.const(0):
            return body
        counter = self.names.fresh(f"{loop.iter}_tile")
        start = ix.add(end, ix.mul(tile, Var(counter)))
        inside = Logic(
            "and",
            (Compare("<=", lo, Var(loop.iter)), Compare("<", Var(loop.iter), hi)),
        )
        form = replace(clipped, form=Form.MASK if free else Form.FULL)
        masked = _Range(start, ix.add(start, tile), (start, ix.const(tile)), inside, form)
        here = at.loop(counter, ix.const(0), left)
        made = self.level(rest, _with(ranges, step.loop, masked), here)
        self.names.release(counter)
        return (*body, For(counter, ix.const(0), left, made, Role.TAIL))

    def full_tiles(
        self,
        step: Step,
        rest: tuple[Step | For, ...],
        ranges: Mapping[int, _Range],
        at: Facts,
        lo: Expr,
        count: Expr,
    ) -> tuple[Stmt, ...]:
        """`count` tiles from `lo` on, none of which a bound crosses."""
        tile = step.tile
        counter = self.names.fresh(f"{self.iters[step.loop]}_tile")
        start = ix.add(lo, ix.mul(tile, Var(counter)))
        segment = full(tile, lo, ix.add(lo, ix.mul(tile, count)))
        inner = _Range(start, ix.add(start, tile), (start, ix.const(tile)), None, segment)
        here = at.loop(counter, ix.const(0), count)
        made = self.level(rest, _with(ranges, step.loop, inner), here)
        self.names.release(counter)
        return (For(counter, ix.const(0), count, made, Role.BODY),)

    def over(self, edge: Expr, box: Mapping[str, _Range]) -> tuple[Expr, Expr]:
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
            least = extreme_over(least, name, first, last, True)
            greatest = extreme_over(greatest, name, first, last, False)
        return least, greatest

    def tile(self, ranges: Mapping[int, _Range], at: Facts) -> tuple[Stmt, ...]:
        """The instances of one tile: parallel loops as a `Tile`, others in their order."""
        self.cutting.tiles += 1
        check_few(self.iters, self.cutting.tiles)
        all_ranges = {
            k: ranges.get(k, _Range(loop.lo, loop.hi, self.rectangle(k)))
            for k, loop in enumerate(self.band)
        }
        inner = at
        for k, loop in enumerate(self.band):
            inner = inner.loop(loop.iter, all_ranges[k].lo, all_ranges[k].hi)
        parts = tuple((self.iters[k], one.segment) for k, one in ranges.items() if one.segment)
        roles = {segment.role for _, segment in parts}
        role = Role.TAIL if Role.TAIL in roles else Role.BODY if roles else Role.WHOLE
        before = len(self.cutting.made)
        body = self.inside(self.body, inner)
        sequential = self.carried.sequential
        lanes: list[int] = []
        for k in reversed(range(len(self.band))):
            together = all_ranges[k].rect is not None and self.iters[k] not in sequential
            if together and (not lanes or lanes[0] == k + 1):
                lanes.insert(0, k)
            elif lanes:
                break
        if any(all_ranges[k].rect is None for k in range(len(self.band))):
            lanes = []
        name: str | None = None
        for k in reversed(range(len(self.band))):
            if k in lanes:
                if k == lanes[0]:
                    tiled = self.lanes(lanes, all_ranges, body, role)
                    body, name = (tiled,), tiled.microkernel
            else:
                body = self.ordered(k, all_ranges[k], body, role)
        if not self.band:
            tiled = self.lanes((), {}, body, role)
            body, name = (tiled,), tiled.microkernel
        leaf = body[0] if len(body) == 1 else If(Const(1, "bool"), body)
        inside = self.cutting.made[before:]
        self.cutting.made[before:] = [
            Made(one.leaf, (*parts, *one.segments), one.microkernel or name) for one in inside
        ] or [Made(leaf, parts, name)]
        return (leaf,)

    def rectangle(self, k: int) -> tuple[Expr, Expr] | None:
        """(start, height) of a loop that is not cut; None where it depends on the band."""
        loop = self.band[k]
        if set(self.iters) & (variables(loop.lo) | variables(loop.hi)):
            return None
        return loop.lo, ix.sub(loop.hi, loop.lo)

    def lanes(
        self, lanes: Sequence[int], ranges: Mapping[int, _Range], body: tuple[Stmt, ...], role: Role
    ) -> Tile:
        """A tile over these loops of the band, all of them parallel."""
        axes, conditions = [], []
        heights: dict[str, tuple[int, int]] = {}
        forms: set[Form] = set()
        masked: set[str] = set()
        for k in lanes:
            rect, segment = ranges[k].rect, ranges[k].segment
            assert rect is not None
            axes.append(TileAxis(self.iters[k], *rect))
            if ranges[k].where is not None:
                conditions.append(ranges[k].where)
            heights[self.iters[k]] = segment.heights if segment else _heights(rect[1])
            if segment:
                forms.add(segment.form)
                if segment.form is Form.MASK:
                    masked.add(self.iters[k])
        form = next((f for f in (Form.SHIFT, Form.PAD, Form.MASK) if f in forms), Form.FULL)
        known = [c for c in conditions if c is not None]
        where = all_of(known) if known else None
        kernel = self.cutting.cover(body, heights, frozenset(masked))
        return Tile(tuple(axes), body, where, form, role, kernel)

    def ordered(self, k: int, mine: _Range, body: tuple[Stmt, ...], role: Role) -> tuple[Stmt, ...]:
        """The instances of a loop one after the other."""
        loop, lo, hi = self.band[k], mine.lo, mine.hi
        if mine.where is not None:
            form = mine.segment.form if mine.segment else Form.FULL
            if form is Form.PAD:
                assert mine.rect is not None
                hi = ix.add(*mine.rect)
                body = tuple(neutral_outside(stmt, mine.where) for stmt in body)
            elif hi == (ix.add(*mine.rect) if mine.rect else None):
                body = (If(mine.where, body),)
        own = role if mine.segment is not None else Role.WHOLE
        return (For(loop.iter, lo, hi, body, own, loop.execution, loop.bound),)


def _undecided(condition: Expr, at: Facts) -> Expr | None:
    """The part of a conjunction that does not follow from `at`; None where all of it does."""
    parts = condition.args if isinstance(condition, Logic) else (condition,)
    left: list[Expr] = []
    for part in parts:
        answer = at.decide(part) if isinstance(part, Compare) else None
        if answer is False:
            return Const(0, "bool")
        if answer is None:
            left.append(part)
    return all_of(left) if left else None


def _heights(height: Expr) -> tuple[int, int]:
    known = ix.literal(height)
    return (known, known) if known is not None else (0, 2**31)


def _counted(at: Facts, segment: Segment, start: Expr, height: Expr) -> Facts:
    """`at`, inside the loop over the tiles of `segment` and its bounded values."""
    new = sorted((variables(start) | variables(height)) - at.known)
    if len(new) == 1 and segment.guarded is not None:
        return at.loop(new[0], *segment.owned)
    if len(new) == 1 and segment.count is not None and not segment.lets:
        return at.loop(new[0], ix.const(0), segment.count)
    return at


def _with(ranges: Mapping[int, _Range], number: int, one: _Range) -> dict[int, _Range]:
    """`ranges` with that of a loop, the last that was cut."""
    return {**{k: v for k, v in ranges.items() if k != number}, number: one}


def _later(at: Facts, lo: Expr, end: Expr, lo_max: Expr) -> Expr:
    """Where a row goes on after the full tiles: at `end`, or at `lo` if it starts later."""
    return end if lo == lo_max else at.extreme("max", lo, end)


def neutral_outside(stmt: Stmt, inside: Expr) -> Stmt:
    """`stmt` with the terms of its updates masked: -0.0 leaves every float sum as it is, also -0.0."""
    match stmt:
        case Store(_, index, value, reduce) if reduce is not None and not any(
            map(reads_memory, index)
        ):
            dtype = dtype_of(value)
            nothing = Const(identity(reduce, dtype), dtype)
            return replace(stmt, value=Select(inside, value, nothing))
        case For():
            return replace(stmt, body=tuple(neutral_outside(s, inside) for s in stmt.body))
        case _:
            raise PartitionError(
                "partition",
                'cannot take tail="pad"',
                because="only the terms of a reduction can be masked to its neutral element",
                help=('tail="mask" runs no instance outside',),
            )
