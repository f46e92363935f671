"""Cutting the loops of any program: strip-mining, tiling of a band, and what lies in a tile.

A *band* is a chain of loops each of which holds nothing but the next. The loops that are cut in a
band become tile loops, in their order, around the instances of one tile; where all loops of the
tile are parallel these form a `Tile`, else loops that keep their order. A loop that is cut alone
keeps the order of everything. A band of several moves tile loops outward past the instances of a
tile: whether the dependences allow that is proved on the emitted program, which is refused with
the pair of instances otherwise.

Bounds may depend on loops further out. Where they depend on a loop of the same band (a triangle),
the tiles that lie wholly inside are separated from those that the bounds cross::

    for i in 0:n                   for i_tile in 0:n//4
      for j in 0:i + 1               for j_tile in 0:i_tile                     full tiles
        S                    ->        tile i in 4*i_tile +: 4, j in 4*j_tile +: 4
                                         S
                                     for i in 4*i_tile:4*i_tile + 4             along the border
                                       for j in 4*i_tile:i + 1
                                         S
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from offcut.core import index as ix
from offcut.core.computation import Names
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
    real,
    variables,
)
from offcut.core.microkernel import Microkernel
from offcut.core.printer import format_expr
from offcut.core.program import (
    Alloc,
    Choose,
    Execution,
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
from offcut.errors import PartitionError
from offcut.partition.alike import reads_memory
from offcut.partition.extremes import extreme_over
from offcut.partition.legality import (
    check_crossed,
    check_exact,
    check_few,
    check_keeps_reduction,
    check_repeats,
    check_takes,
    not_together,
)
from offcut.partition.match import cover, matches
from offcut.partition.placing import Segment
from offcut.partition.segments import loops
from offcut.partition.strategies import CUT, GUARD, LADDER, Strategy, runs, segments
from offcut.polyhedral import Facts

# What is proved of a loop that is cut: the strategy, the tile, whether its order counts, a literal extent.
AxisClaim = tuple[Strategy, int, bool, int | None]

# Predicted seconds of runs of equal tiles, (how many, their height), of at most `tile` instances.
Price = Callable[[Sequence[tuple[Expr, Expr]], int], Expr]


def tiles_alike(runs: Sequence[tuple[Expr, Expr]], tile: int) -> Expr:
    """A price where nothing is known of the hardware: a tile costs its height, and 4 to start."""
    total: Expr = Const(0.0, "float64")
    for count, height in runs:
        one = real(ix.add(height, 4))
        total = Binary("+", total, Binary("*", real(count), one))
    return Binary("*", total, Const(1e-9, "float64"))


@dataclass(frozen=True, slots=True)
class LoopCut:
    """How a loop is cut: the largest tile by level, outermost first, and the innermost one's tail."""

    tiles: tuple[int, ...]
    strategy: Strategy


@dataclass(frozen=True, slots=True)
class Made:
    """What one tile of the program is, by the loops that were cut around it.

    leaf         the statement that runs the instances of one tile
    segments     (loop, its segment); the segment's quantities count from the start of the loop
    microkernel  the name of the one that covers it
    """

    leaf: Stmt
    segments: tuple[tuple[str, Segment], ...]
    microkernel: str | None


@dataclass(frozen=True)
class Carried:
    """What the loops of one nest carry, by their names.

    sequential  loops that carry any dependence
    reductions  those of them that carry nothing but updates of a declared reduction: (op)
    """

    sequential: frozenset[str]
    reductions: Mapping[str, str]


class LoopCutter:
    """Cuts the loops of one nest.

    choice  how a loop is cut; None: it is not
    """

    def __init__(
        self,
        choice: Callable[[For], LoopCut | None],
        carried: Carried,
        microkernels: Sequence[Microkernel],
        price: Price,
        names: Names,
    ) -> None:
        self.choice, self.carried, self.kernels = choice, carried, microkernels
        self.price, self.names = price, names
        self.made: list[Made] = []
        self.tiles = 0
        self.axes: dict[AxisClaim, None] = {}
        self.notes: dict[str, None] = {}
        self.sequences: dict[tuple[str, Expr, Expr], Strategy] = {}

    def cut_of(self, loop: For) -> LoopCut | None:
        """How `loop` is cut, in the option that is being made; None: it is not."""
        cut = self.choice(loop)
        one = self.sequences.get((loop.iter, loop.lo, loop.hi))
        return cut if cut is None or one is None else replace(cut, strategy=one)

    @contextmanager
    def decided(self, mixed: Sequence[For], one: Strategy) -> Iterator[None]:
        """Take the loops in `mixed` in this sequence meanwhile."""
        kept = self.sequences
        self.sequences = kept | {(loop.iter, loop.lo, loop.hi): one for loop in mixed}
        try:
            yield
        finally:
            self.sequences = kept

    def block(self, body: Sequence[Stmt], at: Facts) -> tuple[Stmt, ...]:
        """`body` with the loops in it cut."""
        return tuple(made for stmt in body for made in self.statement(stmt, at))

    def statement(self, stmt: Stmt, at: Facts) -> tuple[Stmt, ...]:
        """`stmt` with the loops in it cut."""
        match stmt:
            case For():
                return self.nest(stmt, at)
            case If(condition, then, other):
                yes = self.block(then, at.where(condition))
                return (
                    If(condition, yes, self.block(other, at.where(Logic("not", (condition,))))),
                )
            case Let() | Alloc():
                return (replace(stmt, body=self.block(stmt.body, at)),)
            case Choose(options):
                return (Choose(tuple(replace(o, body=self.block(o.body, at)) for o in options)),)
            case Tile() | Store():
                return (stmt,)

    def nest(self, loop: For, at: Facts) -> tuple[Stmt, ...]:
        """`loop` and the loops that it alone holds: from the first that is cut on, a band."""
        chain = _chain(loop)
        cuts = [self.cut_of(one) for one in chain]
        chosen = [k for k, cut in enumerate(cuts) if cut is not None]
        if not chosen:
            inner = at
            for one in chain:
                inner = inner.loop(one.iter, one.lo, one.hi)
            return _wrapped(chain, self.block(chain[-1].body, inner))
        first = chosen[0]
        sums = [k for k in chosen if chain[k].iter in self.carried.reductions]
        # The terms of a sum keep their order: the second loop over them is cut inside of a tile.
        last = max(k for k in chosen if len(sums) < 2 or k < sums[1])
        for one in chain[:first]:
            at = at.loop(one.iter, one.lo, one.hi)
        if self.distributes(chain[first:]):
            parts = [_wrapped(chain[first:], (inner,))[0] for inner in chain[-1].body]
            made = tuple(stmt for part in parts for stmt in self.nest(_loop(part), at))
            return _wrapped(chain[:first], made)
        band = chain[first : last + 1]
        end = last + 1
        while end < len(chain) and self.joins(chain[end], band):
            band = (*band, chain[end])
            end += 1
        body = _wrapped(chain[end:], chain[-1].body) if end < len(chain) else chain[-1].body
        return _wrapped(chain[:first], _Band(self, band, body).emitted(at))

    def distributes(self, band: Sequence[For]) -> bool:
        """Whether parallel loops are repeated around each of several loops inside: the parts into
        which conditions have cut one. Nothing runs before what it needs: each iteration of a
        parallel loop needs only itself.
        """
        inside = band[-1].body
        loops_only = [stmt for stmt in inside if isinstance(stmt, For)]
        if len(inside) < 2 or len(loops_only) < len(inside):
            return False
        names = {one.iter for one in (*band, *loops_only)}
        return not names & self.carried.sequential

    def joins(self, loop: For, band: Sequence[For]) -> bool:
        """Whether a loop that is not cut lies in the tile with its whole extent."""
        outer = {one.iter for one in band}
        fixed = not outer & (variables(loop.lo) | variables(loop.hi))
        parallel = not {*outer, loop.iter} & self.carried.sequential
        return fixed and parallel and _is_plain(loop)

    def note(self, text: str) -> None:
        """Remember a decision."""
        self.notes[text] = None


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
class _Step:
    """One level of one loop of the band: how it is cut there."""

    loop: int
    tile: int
    strategy: Strategy
    last: bool


class _Band:
    def __init__(
        self,
        cutter: LoopCutter,
        band: Sequence[For],
        body: tuple[Stmt, ...],
    ) -> None:
        self.cutter, self.band, self.body = cutter, band, body
        self.names = cutter.names
        self.iters = [loop.iter for loop in band]

    def emitted(self, at: Facts) -> tuple[Stmt, ...]:
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
                price = self.cutter.price(runs(one, extent, tile), tile)
                cost = Binary("*", cost, price)
            with self.cutter.decided([loop for loop, _ in mixed], one):
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
        cuts = ((loop, self.cutter.cut_of(loop)) for loop in (*self.band, *fixed))
        return [(loop, cut) for loop, cut in cuts if cut and cut.strategy.among]

    def with_cuts(self, at: Facts) -> tuple[Stmt, ...]:
        cuts = [self.cutter.cut_of(loop) for loop in self.band]
        depth = max(len(cut.tiles) for cut in cuts if cut is not None)
        steps: list[_Step] = []
        for level in range(depth):
            for k, cut in enumerate(cuts):
                skipped = depth - len(cut.tiles) if cut is not None else 0
                if cut is None or level < skipped:
                    continue
                last = level == depth - 1
                strategy = cut.strategy if last else LADDER
                steps.append(_Step(k, cut.tiles[level - skipped], strategy, last))
        return self.level(tuple(steps), {}, at)

    def level(
        self, steps: tuple[_Step, ...], ranges: Mapping[int, _Range], at: Facts
    ) -> tuple[Stmt, ...]:
        """The tile loops of `steps`, outermost first, around one tile."""
        if not steps:
            return self.tile(ranges, at)
        step, rest = steps[0], steps[1:]
        loop = self.band[step.loop]
        lo, hi = loop.lo, loop.hi
        if step.loop in ranges:
            known = ranges[step.loop]
            lo, hi = (known.rect[0], ix.add(*known.rect)) if known.rect else (known.lo, known.hi)
        outer = [k for k in range(step.loop) if self.iters[k] in variables(lo) | variables(hi)]
        if outer:
            own = check_crossed(loop, step.strategy, step.tile, step.last)
            return self.crossed(replace(step, strategy=own), rest, ranges, at, lo, hi)
        if at.holds(ix.compare("<=", ix.sub(hi, lo), step.tile - 1)):
            self.cutter.note(
                f"{loop.iter} in {format_expr(lo)}:{format_expr(hi)} is shorter than a tile of "
                f"{step.tile}, so it is one tile"
            )
            whole = _whole(lo, hi, step.tile)
            one = _Range(lo, hi, (lo, ix.sub(hi, lo)), None, whole)
            return self.level(rest, {**ranges, step.loop: one}, at)
        return self.stripped(step, rest, ranges, at, lo, hi)

    def stripped(
        self,
        step: _Step,
        rest: tuple[_Step, ...],
        ranges: Mapping[int, _Range],
        at: Facts,
        lo: Expr,
        hi: Expr,
    ) -> tuple[Stmt, ...]:
        loop = self.band[step.loop]
        extent = ix.sub(hi, lo)
        self.check(loop, step, lo, hi, at)
        sequential = loop.iter in self.cutter.carried.sequential
        # In tiles of one iteration, every strategy of ours is the loop itself.
        strategy = CUT if step.tile == 1 and step.strategy.own is None else step.strategy
        self.cutter.axes[strategy, step.tile, sequential, ix.literal(extent)] = None
        body: tuple[Stmt, ...] = ()
        for one in segments(strategy, extent, step.tile):
            when = None if one.when is None else _undecided(one.when, at)
            if when == Const(0, "bool"):
                continue
            segment = replace(one, when=when)

            def inside(start: Expr, height: Expr, segment: Segment = segment) -> tuple[Stmt, ...]:
                here = _counted(at, segment, start, height)
                start = ix.add(lo, start)
                hi_here, where = ix.add(start, height), None
                if segment.predicate and segment.guarded is None:
                    where = ix.compare("<", Var(loop.iter), hi)
                    hi_here = here.extreme("min", hi_here, hi)
                mine = _Range(start, hi_here, (start, height), where, segment)
                return self.level(rest, {**ranges, step.loop: mine}, here)

            single = segment.heights == (1, 1) and segment.count is not None
            bare = segment.guarded is None and segment.when is None and not segment.lets
            if sequential and single and bare and not rest:
                # Instances that keep their order are one loop, not a tile each.
                own = (ix.add(lo, segment.owned[0]), ix.add(lo, segment.owned[1]))
                mine = _Range(*own, (own[0], ix.sub(own[1], own[0])), None, segment)
                body += self.level(rest, {**ranges, step.loop: mine}, at)
                continue
            body += loops(segment, loop.iter, self.names, inside)
        if body and not at.holds(Compare(">=", extent, ix.const(0))):
            return (If(Compare("<", lo, hi), body),)
        return body

    def check(self, loop: For, step: _Step, lo: Expr, hi: Expr, at: Facts) -> None:
        reduction = self.cutter.carried.reductions.get(loop.iter)
        sequential = loop.iter in self.cutter.carried.sequential
        check_takes(f"loop {loop.iter}", step.strategy, step.tile)
        if step.last:
            check_keeps_reduction(f"loop {loop.iter}", step.strategy, step.tile, reduction)
        if step.tile > 1 and step.strategy.repeats(step.tile):
            check_repeats(loop, step.strategy)
        if sequential and reduction is None and step.strategy.pads(step.tile):
            raise not_together(loop, step.strategy)
        if step.strategy.divides:
            check_exact(loop, step.tile, ix.sub(hi, lo), at)

    def crossed(
        self,
        step: _Step,
        rest: tuple[_Step, ...],
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
        clipped = _crossing(step.tile)
        body: tuple[Stmt, ...] = ()
        if free:
            if not at.holds(Compare(">=", lo_min, lo_max)):
                before = _Range(lo, at.extreme("min", hi, lo_max), None, None, clipped)
                body += self.level(rest, {**ranges, step.loop: before}, at)
            if count != ix.const(0):
                body += self.full_tiles(step, rest, ranges, at, lo_max, count)
        if step.strategy == CUT:
            start = lo if lo_min == lo_max == end else _later(at, lo, end, lo_max)
            after = _Range(start, hi, None, None, clipped)
            return (*body, *self.level(rest, {**ranges, step.loop: after}, at))
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
        made = self.level(rest, {**ranges, step.loop: masked}, here)
        self.names.release(counter)
        return (*body, For(counter, ix.const(0), left, made, Role.TAIL))

    def full_tiles(
        self,
        step: _Step,
        rest: tuple[_Step, ...],
        ranges: Mapping[int, _Range],
        at: Facts,
        lo: Expr,
        count: Expr,
    ) -> tuple[Stmt, ...]:
        """`count` tiles from `lo` on, none of which a bound crosses."""
        tile = step.tile
        counter = self.names.fresh(f"{self.iters[step.loop]}_tile")
        start = ix.add(lo, ix.mul(tile, Var(counter)))
        full = _full(tile, lo, ix.add(lo, ix.mul(tile, count)))
        inner = _Range(start, ix.add(start, tile), (start, ix.const(tile)), None, full)
        here = at.loop(counter, ix.const(0), count)
        made = self.level(rest, {**ranges, step.loop: inner}, here)
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
        self.cutter.tiles += 1
        check_few(self.iters, self.cutter.tiles)
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
        before = len(self.cutter.made)
        body = self.cutter.block(self.body, inner)
        sequential = self.cutter.carried.sequential
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
        leaf = body[0] if len(body) == 1 else If(Const(1, "bool"), body)
        inside = self.cutter.made[before:]
        self.cutter.made[before:] = [
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
        kernel = self.covered(body, heights, frozenset(masked))
        return Tile(tuple(axes), body, where, form, role, kernel)

    def covered(
        self, body: Sequence[Stmt], heights: Mapping[str, tuple[int, int]], masked: frozenset[str]
    ) -> str | None:
        """The microkernel that computes the sum in a tile, or all that is in it; one that holds it in
        the preferred way before one that takes it in pieces; None where there is none.
        """
        found = _updates(body, (), frozenset(heights))
        match body:
            case [Store(reduce=None) as only]:
                found.append((only, ()))
            case _:
                pass
        for one in found:
            for kernel in self.covers(*one, heights, masked):
                whole = kernel.at_once > 1  # then it computes all of the sum, or nothing of it
                if not whole or all(kernel in self.covers(*o, heights, masked) for o in found):
                    return kernel.name
        return None

    def covers(
        self,
        store: Store,
        inner: Sequence[For],
        heights: Mapping[str, tuple[int, int]],
        masked: frozenset[str],
    ) -> list[Microkernel]:
        """The microkernels that compute a statement of a tile, the preferred ones first."""
        terms = {loop.iter: ix.sub(loop.hi, loop.lo) for loop in inner}
        of = store.value, store.reduce, list(heights), list(terms)
        ways = [list(matches(kernel, *of)) for kernel in self.cutter.kernels]
        preferred = [found for way in ways for found in way[:1]]
        others = [found for way in ways for found in way[1:]]
        every = (*preferred, *others)
        return [found.microkernel for found in every if cover(found, heights, masked, terms)]

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


def _chain(loop: For) -> tuple[For, ...]:
    """`loop` and the loops inside it, each of which holds nothing but the next."""
    chain = [loop]
    while len(chain[-1].body) == 1 and isinstance(chain[-1].body[0], For):
        chain.append(chain[-1].body[0])
    return tuple(chain)


def _loop(stmt: Stmt) -> For:
    assert isinstance(stmt, For)
    return stmt


def _is_plain(loop: For) -> bool:
    return loop.execution is Execution.SERIAL and loop.bound is None


def _wrapped(chain: Sequence[For], body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    for loop in reversed(chain):
        body = (replace(loop, body=body),)
    return body


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


def _segment(
    role: Role, heights: tuple[int, int], owned: tuple[Expr, Expr], count: Expr | None
) -> Segment:
    return Segment(role, Form.FULL, owned[0], ix.const(heights[1]), heights, owned, count)


def _whole(lo: Expr, hi: Expr, tile: int) -> Segment:
    """All of a loop that is shorter than a tile."""
    return _segment(Role.TAIL, (0, tile - 1), (ix.const(0), ix.sub(hi, lo)), None)


def _full(tile: int, lo: Expr, end: Expr) -> Segment:
    """Full tiles from `lo` to `end`."""
    count = ix.floordiv(ix.sub(end, lo), tile)
    return _segment(Role.BODY, (tile, tile), (ix.const(0), ix.sub(end, lo)), count)


def _crossing(tile: int) -> Segment:
    """What the bounds cross; its ranges differ from row to row."""
    return _segment(Role.TAIL, (0, tile), (ix.const(0), ix.const(0)), None)


def _counted(at: Facts, segment: Segment, start: Expr, height: Expr) -> Facts:
    """`at`, inside the loop over the tiles of `segment` and its bounded values."""
    new = sorted((variables(start) | variables(height)) - at.known)
    if len(new) == 1 and segment.guarded is not None:
        return at.loop(new[0], *segment.owned)
    if len(new) == 1 and segment.count is not None and not segment.lets:
        return at.loop(new[0], ix.const(0), segment.count)
    return at


def _later(at: Facts, lo: Expr, end: Expr, lo_max: Expr) -> Expr:
    """Where a row goes on after the full tiles: at `end`, or at `lo` if it starts later."""
    return end if lo == lo_max else at.extreme("max", lo, end)


def _updates(
    body: Sequence[Stmt], loops_around: tuple[For, ...], axes: frozenset[str]
) -> list[tuple[Store, tuple[For, ...]]]:
    """Every reduction in `body` that is as long for all instances, with the loops around it."""
    found: list[tuple[Store, tuple[For, ...]]] = []
    for stmt in body:
        match stmt:
            case Store() if stmt.reduce is not None:
                found.append((stmt, loops_around))
            case For(_, lo, hi, inner) if not axes & (variables(lo) | variables(hi)):
                found += _updates(inner, (*loops_around, stmt), axes)
            case _:
                pass
    return found


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
