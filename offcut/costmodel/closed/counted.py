"""A loop program -> its pieces, and of each, exactly: how often it runs, what it computes, and what it moves.

A piece is what runs as one: a tile of a microkernel, a tile of plain loops, or a nest of statements that store one array. What is counted
are index expressions over the sizes, literals where the sizes are. A loop whose bounds are read from memory runs as often as the machine's
policy assumes, and a condition that is read from memory holds; and where sums have no closed form, so do all conditions around a piece: what
is counted then is a bound, and says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import Enum
from math import ceil

from offcut.core import index as ix
from offcut.core.accesses import only_reduces
from offcut.core.conditions import conjunction
from offcut.core.dtypes import ITEM_BYTES
from offcut.core.expr import (
    Binary,
    Compare,
    Const,
    Expr,
    Load,
    Var,
    children,
    reads_memory,
    rewrite,
    substitute,
    variables,
)
from offcut.core.interpret.values import evaluate
from offcut.core.program import (
    LANE,
    Alloc,
    Choose,
    For,
    Form,
    If,
    Kind,
    Let,
    Program,
    Role,
    Stmt,
    Store,
    Sync,
    Tile,
    TileAxis,
    map_body,
    substitute_coordinates,
)
from offcut.core.program import walk as statements
from offcut.core.scan import Range, ScanContext
from offcut.core.tile_limits import begun, limits, unlimited
from offcut.core.traversal import rewrite_body, used_names
from offcut.costmodel.closed.added import Tables
from offcut.costmodel.closed.counts import ZERO, Counted, Counts, Piece, Way, added, values_of
from offcut.costmodel.closed.covered import (
    THOUSANDTHS,
    copy_counts,
    cycles,
    operations_issued,
    staging_counts,
)
from offcut.costmodel.closed.exactness import Exactness, worst
from offcut.costmodel.closed.hardware import Hardware
from offcut.costmodel.closed.operations import instructions, is_even, operations, picojoules
from offcut.costmodel.closed.summation import (
    by_quotients,
    chosen,
    decided,
    folded,
    middle_of,
    trips,
    with_divisor,
)
from offcut.costmodel.closed.sums import Summing, Sums, of_bytes, of_counts
from offcut.costmodel.closed.touched import Box, box
from offcut.costmodel.closed.traffic import Held, Touched, Traffic
from offcut.costmodel.statements import Inside, StatementPrices
from offcut.describe.computation import Names
from offcut.describe.microkernel import Microkernel
from offcut.partition import Match, matches
from offcut.polyhedral.units.private import begins_with_store
from offcut.schedule import beside


class BytesOf(Enum):
    """What the bytes are told of that are counted."""

    PIECES = "pieces"  # in a call after one of the same sizes
    ARRAYS = "arrays"  # in a call that finds nothing in a cache
    NOTHING = "nothing"  # none are counted


_OPEN = "#open"
"""In the extent of a tile along its lanes: the text does not say it, whatever is known here, and the code has a loop along it. It is 0."""

_BYTES = -1  # no number of a piece
_APART = "#"  # no user can name an array so


def counted(
    program: Program,
    hardware: Hardware,
    sizes: Mapping[str, int],
    options: Mapping[int, int] | None = None,
    bytes_of: BytesOf = BytesOf.PIECES,
) -> Counted:
    """`program`, counted at these sizes, and over those that are not given.

    options  by the number of a `choose`, the option that is counted; of others the cheapest, or all where sizes are open
    bytes_of  what bytes are told of

    Sums that have no closed form are added up where all sizes are given. Where some are not, or that is too much work, the
    piece is counted as if all conditions around it held, which is a bound.
    """
    fixed = {name: ix.const(size) for name, size in sizes.items()}
    text = rewrite_body(program.body, _with_open)
    body = map_body(substitute_coordinates(text, fixed), by_quotients)
    ways: dict[int, Sequence[Summing]] = {}
    while True:
        counter = _Counter(program, hardware, fixed, ways, options or {}, bytes_of)
        found = counter.counted(body)
        instead = {piece: sums.ways[1:] for piece, sums in counter.sums.items() if sums.failed}
        if not instead:
            return found
        ways |= instead


def footprints(program: Program, hardware: Hardware) -> dict[str, tuple[Expr, ...]]:
    """The room that each array of a program takes in each level, nearest first, over the sizes."""
    counter = _Counter(program, hardware, {}, {}, {}, BytesOf.ARRAYS)
    boxes = counter.block(program.body, _Scope(counter.known)).touched.boxes
    each = [counter.traffic.taken(boxes, level) for level in hardware.levels]
    return {name: tuple(room[name] for room in each) for name in boxes}


@dataclass(frozen=True, slots=True)
class _Staged:
    """A copy of rows that a padded tile reads: it is made again only where it is of other rows than the last one.

    moves   the iterators of the loops around that move the rows
    counts  of one copy
    """

    moves: frozenset[str]
    counts: Counts


@dataclass(frozen=True, slots=True)
class _Seen:
    """What is known of a statement: what one run of it touches, and counts by piece.

    staged  by piece, what of it runs once for all iterations of the loops around that do not move it
    """

    touched: Touched
    counts: Mapping[int, Counts]
    staged: Mapping[int, _Staged] = field(default_factory=dict)

    @property
    def whole(self) -> Mapping[int, Counts]:
        """The counts by piece, those of staged rows among them."""
        return added((self.counts, {piece: one.counts for piece, one in self.staged.items()}))


@dataclass(frozen=True, slots=True)
class _Scope:
    """Where a statement stands.

    piece  that it is a part of, None outside of tiles
    loop   the innermost one around it
    lane   the iterator that runs along lanes, None where instances run one by one
    run    how many of its iterations are side by side, None where no text says so
    across  it, its first and its last iteration, where all of them run at once
    way    of a `choose`
    around  the loop around the tile
    written  arrays that are written in the innermost loop, or the tile
    """

    known: ScanContext
    piece: int | None = None
    loop: For | None = None
    lane: str | None = None
    run: int | None = None
    across: tuple[str, Expr, Expr] | None = None
    way: tuple[int, int] | None = None
    around: For | None = None
    written: frozenset[str] = frozenset()


class _Counter:
    """One walk over a program.

    ways  to count pieces; those that are not named: by adding up, where all sizes are known, else in closed form
    options  that are counted, by the number of a `choose`
    sums  that the counts of each piece are made of, and bytes
    """

    def __init__(
        self,
        program: Program,
        hardware: Hardware,
        fixed: Mapping[str, Expr],
        ways: Mapping[int, Sequence[Summing]],
        options: Mapping[int, int],
        bytes_of: BytesOf,
    ) -> None:
        self.program, self.hardware, self.ways, self.options = program, hardware, ways, options
        self.fixed = fixed
        self.known = ScanContext.of(size for size in program.sizes if size.name not in fixed)
        self.held = {
            one.name: Held(one, tuple(folded(substitute(extent, fixed)) for extent in one.shape))
            for one in program.buffers
            if one.kind is not Kind.PRIVATE
        }
        self.pieces: list[Piece] = []
        self.choices: list[tuple[Way, ...]] = []
        self.values: dict[str, Expr] = {}
        lets = {one.name for one in statements(program.body) if isinstance(one, Let)}
        self.names = Names(used_names(program) - lets)
        self.apart: dict[str, dict[tuple[frozenset[str], ...], str]] = {}
        self.tables = Tables()
        self.is_open = bool(self.known.ranges)
        self.sums = {_BYTES: Sums(ways.get(_BYTES, of_bytes(is_open=self.is_open)))}
        levels = () if bytes_of is BytesOf.NOTHING else hardware.levels
        by_array = bytes_of is not BytesOf.PIECES
        given = self.held, levels, self.known, self.sums[_BYTES]
        self.traffic = Traffic(*given, by_array=by_array)
        self.exactness = Exactness.EXACT

    def counted(self, body: tuple[Stmt, ...]) -> Counted:
        seen = self.block(body, _Scope(self.known))
        moved = self.traffic.at_a_call(seen.touched)
        every = range(len(self.pieces))
        whole = seen.whole
        counts = tuple(whole.get(one, Counts()).mapped(self.sums[one].at_last) for one in every)
        return Counted(
            tuple(self.pieces),
            counts,
            moved,
            seen.touched.kept or tuple(ZERO for _ in self.traffic.levels),
            tuple(self.choices),
            self.values,
            worst(self.exactness, *(self.sums[one].way.exactness for one in every)),
        )

    def block(self, body: Sequence[Stmt], scope: _Scope) -> _Seen:
        parts: list[_Seen] = []
        before: set[str] = set()
        for stmt in body:
            piece = self.piece(stmt, scope) if scope.piece is None else scope.piece
            seen = self.statement(stmt, replace(scope, piece=piece))
            if scope.piece is None and scope.loop is not None and seen.counts:
                number = next(iter(seen.counts))
                if before and self.pieces[number].stage not in before:
                    waits = self.hardware.machine.loops.wait_cycles
                    seen = self.begun(seen, waits, replace(scope, piece=number))
                before |= {self.pieces[one].stage for one in seen.counts}
            parts.append(seen)
        touched = self.traffic.block([part.touched for part in parts])
        staged = {piece: one for part in parts for piece, one in part.staged.items()}
        return _Seen(touched, added(part.counts for part in parts), staged)

    def piece(self, stmt: Stmt, scope: _Scope) -> int | None:
        """The piece of a statement outside of tiles: a tile, or a nest that holds none."""
        stored = [one.buffer for one in statements((stmt,)) if isinstance(one, Store)]
        stage = stored[-1] if stored else ""
        match stmt:
            case Tile(axes, _, role=role):
                tile = tuple((axis.iter, _extent(axis)) for axis in axes)
                made = Piece(stage, role.value, tile, stmt.microkernel, scope.way)
            case Store() | For() if not _parted(stmt):
                made = Piece(stage, Role.WHOLE.value, (), None, scope.way)
            case _:
                return None
        number = len(self.pieces)
        self.pieces.append(made)
        self.sums[number] = Sums(
            self.ways.get(number, of_counts(is_open=self.is_open)), self.tables
        )
        return number

    def statement(self, stmt: Stmt, scope: _Scope) -> _Seen:
        match stmt:
            case Store():
                return self.store(stmt, scope)
            case For(name, lo, hi):
                lo, hi = self.bound(lo), self.bound(hi, lo)
                lanes = stmt.unit == LANE and only_reduces(stmt)
                lane, run = (name, None) if lanes else (scope.lane, scope.run)
                inside = replace(
                    scope,
                    known=_within(scope.known, name, lo, hi),
                    loop=stmt,
                    lane=lane,
                    run=run,
                    written=_written(stmt.body),
                )
                with self.around(name, lo, hi):
                    body = self.block(stmt.body, inside)
                seen = self.loop(name, lo, hi, body, scope.known)
                loops = self.hardware.machine.loops
                begin = loops.begin_cycles + loops.reduce_cycles
                return self.begun(seen, begin, scope) if lanes else seen
            case Tile(microkernel=str(name)) if name in self.hardware.microkernels:
                return self.covered(stmt, self.hardware.microkernels[name], scope)
            case Tile():
                return self.tile(stmt, stmt.axes, scope)
            case If(condition, then, other):
                match decided(condition):
                    case Const(holds):
                        return self.block(then if holds else other, scope)
                    case open_:
                        return self.where(open_, self.block(then, scope), self.block(other, scope))
            case Let():
                return self.bounded(stmt, scope)
            case Sync():
                return _Seen(self.traffic.nothing, {})
            case Alloc(buffer, axes, body):
                return self.window(buffer, axes, self.opened(buffer, axes, body, scope))
            case Choose():
                return self.choose(stmt, scope)

    def tile(self, tile: Tile, axes: Sequence[TileAxis], scope: _Scope) -> _Seen:
        """The instances of a tile of plain loops along `axes`, whose lanes run along the last one: those that no condition
        switches off.
        """
        if not axes:
            seen = self.block(tile.body, scope)
            return self.asked(seen, unlimited(tile)) if tile.axes else seen
        axis, *rest = axes
        extent = _extent(axis)
        start, end = folded(axis.start), folded(ix.add(axis.start, extent))
        known = _within(scope.known, axis.iter, start, end)
        with self.around(axis.iter, start, end):
            run = None if _OPEN in variables(axis.extent) else ix.literal_value(extent)
            stop = end
            for limit in limits(tile, axis.iter):
                stop = ix.minimum(stop, folded(limit))
            reach = stop
            for other in _ends_of(axis.iter, unlimited(tile)):
                reach = ix.minimum(reach, folded(other))
            across = None if rest or run is None else (axis.iter, start, ix.sub(reach, 1))
            inside = replace(
                scope,
                known=known,
                lane=axis.iter,
                run=run,
                across=across,
                around=scope.loop,
                written=_written(tile.body),
            )
            seen = self.tile(tile, rest, inside)
        loops, guarded = self.hardware.machine.loops, tile.form is Form.GUARD
        if across is None:
            each = seen.counts
            seen = self.loop(axis.iter, start, stop, seen, scope.known)
            sizes = {one.name for one in self.program.sizes} | set(self.values)
            if not rest and variables(ix.sub(stop, start)) <= sizes:
                store = next(one for one in statements(tile.body) if isinstance(one, Store))
                width = self.hardware.lanes_of(self.program.buffer(store.buffer).dtype)
                counts = {
                    piece: self.vectors(
                        axis.iter, start, stop, width, seen.counts[piece], one, scope.known, piece
                    )
                    for piece, one in each.items()
                }
                seen = replace(seen, counts={**seen.counts, **counts})
        else:
            each = {
                piece: self.lanes(axis.iter, start, end, stop, one, scope.known, piece, guarded)
                for piece, one in seen.counts.items()
            }
            seen = _Seen(self.traffic.at_once(seen.touched, *across), each)
        if rest:
            return self.begun(seen, loops.bind_cycles * (run or 0), scope) if guarded else seen
        return self.begun(seen, loops.begin_cycles if run is None else loops.tile_cycles, scope)

    def asked(self, seen: _Seen, conditions: Sequence[Expr]) -> _Seen:
        """With the operations of the lanes alone at which conditions hold; the others take the time of their vectors."""
        if not conditions:
            return seen
        some = self.where(conjunction(conditions), seen, _Seen(self.traffic.nothing, {}))
        counts = {
            piece: replace(some.counts[piece], cycles=one.cycles, instructions=one.instructions)
            for piece, one in seen.counts.items()
        }
        return replace(seen, counts=counts)

    def begun(self, seen: _Seen, cycles: float, scope: _Scope) -> _Seen:
        """With what it takes to begin a loop of lanes, and to end it."""
        assert scope.piece is not None
        once = Counts(cycles=ix.const(round(cycles * THOUSANDTHS)))
        return replace(seen, counts=added((seen.counts, {scope.piece: once})))

    @contextmanager
    def around(self, name: str, lo: Expr, hi: Expr) -> Iterator[None]:
        """Inside of a loop."""
        self.traffic.middle[name] = middle_of(lo, hi)
        yield
        del self.traffic.middle[name]

    def bounded(self, let: Let, scope: _Scope) -> _Seen:
        """Inside a bounded value: its value, where that is a literal or moves with a loop; each of two that it may have;
        else a name for it.
        """
        # It is evaluated where it is not asked, too.
        value = rewrite(folded(let.value), with_divisor)
        range_ = ix.const(let.lo), ix.const(let.hi - 1)
        open_ = {one.name for one in self.program.sizes} | set(self.values)
        if isinstance(value, Const) or not variables(value) <= open_:
            return self.block(substitute_coordinates(let.body, {let.name: value}), scope)
        if let.hi - let.lo == 2:
            ways = (
                self.block(substitute_coordinates(let.body, {let.name: ix.const(one)}), scope)
                for one in range(let.lo, let.hi)
            )
            return self.where(Compare("<=", value, ix.const(let.lo)), *ways)
        name = next((known for known, other in self.values.items() if other == value), "")
        if not name:
            name = self.names.fresh(let.name)
            self.values[name] = value
        known = scope.known.within(Range(name, (range_[0],), (range_[1],)))
        return self.block(
            substitute_coordinates(let.body, {let.name: Var(name)}), replace(scope, known=known)
        )

    def opened(
        self, buffer: str, axes: Sequence[tuple[Expr, Expr]], body: Sequence[Stmt], scope: _Scope
    ) -> _Seen:
        """What is inside a window, whose array is as large as it."""
        if buffer in self.held:
            self.held[buffer] = Held(self.held[buffer].buffer, tuple(extent for _, extent in axes))
        return self.block(body, scope)

    def window(self, buffer: str, axes: Sequence[tuple[Expr, Expr]], seen: _Seen) -> _Seen:
        """Outside of it, the window lies where it always does, as large as half-way through the loops around."""
        shape = tuple(extent for _, extent in axes)
        for name, middle in reversed(self.traffic.middle.items()):
            shape = tuple(folded(substitute(extent, {name: middle})) for extent in shape)
        own = [name for name in self.held if name.partition(_APART)[0] == buffer]
        self.held.update({name: Held(self.held[name].buffer, shape) for name in own})
        starts = [start for start, _ in axes]
        boxes = {
            name: one.within(starts) if name.partition(_APART)[0] == buffer else one
            for name, one in seen.touched.boxes.items()
        }
        return replace(seen, touched=replace(seen.touched, boxes=boxes))

    def choose(self, stmt: Choose, scope: _Scope) -> _Seen:
        """Of literal costs the option that is taken, else all of them, each a way of its own."""
        costs = [option.cost for option in stmt.options]
        known = [self.seconds(cost) for cost in costs]
        self.choices.append(tuple(Way(o.label, o.cost) for o in stmt.options))
        number = len(self.choices) - 1
        taken = [one for one in known if one is not None]
        if number in self.options or len(taken) == len(known):
            best = self.options.get(number, 0)
            if number not in self.options:
                best = known.index(min(taken))
            return self.block(stmt.options[best].body, replace(scope, way=(number, best)))
        parts = [
            self.block(option.body, replace(scope, way=(number, at)))
            for at, option in enumerate(stmt.options)
        ]
        touched = parts[0].touched
        for part in parts[1:]:
            both = self.traffic.block([touched, part.touched])
            moved = tuple(
                {**a, **b} for a, b in zip(touched.moved, part.touched.moved, strict=True)
            )
            touched = replace(both, moved=moved)
        staged = {piece: one for part in parts for piece, one in part.staged.items()}
        return _Seen(touched, added(part.counts for part in parts), staged)

    def seconds(self, cost: Expr) -> float | None:
        """A cost that no size decides any more."""
        return None if variables(cost) or reads_memory(cost) else float(evaluate(cost, {}))

    def loop(self, name: str, lo: Expr, hi: Expr, body: _Seen, known: ScanContext) -> _Seen:
        """Of all iterations of a loop."""
        own = {piece: one for piece, one in body.staged.items() if name in one.moves}
        each = added((body.counts, {piece: one.counts for piece, one in own.items()}))
        counts = {piece: self.over(name, lo, hi, one, known, piece) for piece, one in each.items()}
        some = ix.minimum(trips(lo, hi, known), 1)
        staged = {
            piece: replace(one, counts=one.counts.mapped(lambda count: ix.mul(some, count)))
            for piece, one in body.staged.items()
            if piece not in own
        }
        return _Seen(self.traffic.loop(name, lo, hi, body.touched, known), counts, staged)

    def over(
        self, name: str, lo: Expr, hi: Expr, each: Counts, known: ScanContext, piece: int
    ) -> Counts:
        """Of a piece, in all iterations of a loop."""
        return each.mapped(lambda term: self.sums[piece].over(name, lo, hi, term, known))

    def lanes(
        self,
        name: str,
        lo: Expr,
        hi: Expr,
        stop: Expr,
        each: Counts,
        known: ScanContext,
        piece: int,
        guarded: bool = False,
    ) -> Counts:
        """Of all lanes of a tile up to `stop`: those past it compute nothing, and issue and take time as far as their vector
        has lanes before it, or all of them where each vector asks which are to run.
        """
        every = self.over(name, lo, stop, each, known, piece)
        if stop == hi:
            return every
        if guarded:
            all_ = self.over(name, lo, hi, each, known, piece)
            return replace(every, instructions=all_.instructions, cycles=all_.cycles)
        return self.vectors(
            name, lo, stop, self.hardware.lanes, every, each, known, piece, ix.sub(hi, lo)
        )

    def vectors(
        self,
        name: str,
        lo: Expr,
        stop: Expr,
        width: int,
        every: Counts,
        each: Counts,
        known: ScanContext,
        piece: int,
        most: Expr | None = None,
    ) -> Counts:
        """The counts `every` of lanes up to `stop`, issued and timed by whole vectors; of at most `most` lanes."""
        count = ix.mul(width, ix.ceildiv(ix.maximum(ix.sub(stop, lo), 0), width))
        # From 0 on: how many there are says more than where they end.
        moved = {name: ix.add(lo, Var(name))}
        from_0 = each.mapped(lambda value: substitute(value, moved))
        run = count if most is None else ix.minimum(most, count)
        some = self.over(name, ZERO, run, from_0, known, piece)
        return replace(every, instructions=some.instructions, cycles=some.cycles)

    def where(self, condition: Expr, then: _Seen, other: _Seen) -> _Seen:
        if reads_memory(condition):
            self.exactness = worst(self.exactness, Exactness.BOUND)
            touched = self.traffic.block([then.touched, other.touched])
            counts = added((then.counts, other.counts))
            return _Seen(touched, counts, {**then.staged, **other.staged})
        on_sizes = variables(condition) <= {*self.values, *(one.name for one in self.program.sizes)}

        def either(piece: int, one: Counts, two: Counts) -> Counts:
            of = chosen if on_sizes else self.sums[piece].where
            pairs = zip(values_of(one), values_of(two), strict=True)
            return Counts(*(of(condition, a, b) for a, b in pairs))

        pieces = dict.fromkeys((*then.counts, *other.counts))
        sides = then.counts, other.counts
        counts = {
            piece: either(piece, *(side.get(piece, Counts()) for side in sides)) for piece in pieces
        }
        staged = {
            piece: replace(one, counts=either(piece, one.counts, Counts()))
            for piece, one in then.staged.items()
        }
        staged |= {
            piece: replace(one, counts=either(piece, Counts(), one.counts))
            for piece, one in other.staged.items()
        }
        touched = self.traffic.where(condition, then.touched, other.touched)
        return _Seen(touched, counts, staged)

    def bound(self, end: Expr, start: Expr | None = None) -> Expr:
        """A bound of a loop; of one that is read from memory, what the policy assumes."""
        if not reads_memory(end):
            return folded(end)
        self.exactness = Exactness.ESTIMATE
        if start is None:
            return ix.const(0)
        trips = self.hardware.machine.policy.trips
        return ix.const(trips) if reads_memory(start) else ix.add(start, trips)

    def store(self, stmt: Store, scope: _Scope) -> _Seen:
        """One instance of a statement."""
        assert scope.piece is not None
        dtype = self.program.buffer(stmt.buffer).dtype
        width = self.hardware.lanes_of(dtype) if scope.lane else 1
        run = scope.run or 0
        filled = run / ceil(run / width) if run > 0 else width
        prices = StatementPrices(self.hardware.machine, width)
        inner = "" if scope.loop is None or scope.loop is scope.around else scope.loop.iter
        first = 0
        if scope.across is not None:
            first = ix.to_linear(scope.across[1]).const
        elif scope.loop is not None and scope.loop.iter == scope.lane:
            first = ix.to_linear(scope.loop.lo).const
        work = prices.each(stmt, Inside(scope.lane, inner, scope.written, first), scope.loop)
        if isinstance(stmt.value, Load) and self.program.buffer(stmt.buffer).layout is not None:
            rate = self.hardware.machine.traffic.pack_bytes_per_cycle
            work = max(work, 2 * ITEM_BYTES[dtype] * width / rate)
        if not is_even(stmt):
            self.exactness = worst(self.exactness, Exactness.BOUND)
        flop, energy = operations(stmt), self.hardware.machine.energy
        joules = 0.0 if energy is None else picojoules(stmt, self.program, energy)
        issued = instructions(stmt) / filled
        counts = Counts(
            ix.const(1),
            ix.const(1),
            ix.const(flop),
            ix.const(round(issued * THOUSANDTHS)),
            ix.const(round(work / filled * THOUSANDTHS)),
            ix.const(round(joules * THOUSANDTHS)),
        )
        boxes = self.boxes(stmt)
        if scope.across is not None:
            name, *ends = scope.across
            boxes = {array: one.over({name: (ends[0], ends[1])}) for array, one in boxes.items()}
        return _Seen(self.traffic.access(boxes, scope.piece), {scope.piece: counts})

    def covered(self, tile: Tile, kernel: Microkernel, scope: _Scope) -> _Seen:
        """One run of a tile of a microkernel, which touches each element once: rows that are masked do not run, rows that
        are padded do.
        """
        assert scope.piece is not None
        tile = begun(tile)
        inside = replace(scope, lane=None, run=None, across=None)
        lengths = {axis.iter: self.length(tile, axis, scope.known) for axis in tile.axes}
        rows, columns, found = _along(tile, kernel)
        padded = tile.form is Form.PAD and any(limits(tile, rows))
        full = {}
        if padded:
            full[rows] = next(_extent(axis) for axis in tile.axes if axis.iter == rows)
        sums, others = _sums_of(tile)
        done = self.instances(tile, sums, {**lengths, **full}, inside)
        after = self.instances(tile, others, lengths, inside)
        counts = done[0].plus(after[0])
        boxes = self.traffic.block([done[1], after[1]]).boxes
        for axis in reversed(tile.axes):
            last = ix.sub(ix.add(axis.start, lengths[axis.iter]), 1)
            boxes = {name: one.over({axis.iter: (axis.start, last)}) for name, one in boxes.items()}
        depth: Expr = ix.const(1)
        again: Expr = ix.const(1)
        turns = 0 if tile.form is Form.PAD else kernel.turns
        extents = [ix.sub(s.hi, s.lo) for s in statements(tile.body) if isinstance(s, For)]
        for place, extent in enumerate(reversed(extents)):
            turned = place <= turns and ix.literal_value(again) == 1
            if turned and (place == 0 or ix.literal_value(extent)):
                depth = ix.mul(depth, extent)
            else:
                again = ix.mul(again, extent)
        for name in lengths.keys() - {rows, columns}:
            again = ix.mul(again, lengths[name])
        height = {**lengths, **full}.get(rows, ix.const(1))
        width = lengths.get(columns, ix.const(1))
        widest = self.widest(tile, kernel, rows, width)
        near, far = (1.0, 1.0) if found is None else self.laid(found)
        taken = cycles(kernel, height, width, depth, widest, near)
        if near != far and found is not None:
            fits = ix.compare(
                "<=", self.operand_bytes(tile, found), self.hardware.machine.nearest.bytes
            )
            taken = chosen(fits, taken, cycles(kernel, height, width, depth, widest, far))
        taken = ix.mul(taken, again)
        issued = taken  # of another unit: one in a cycle, at most
        if self.hardware.on_core(kernel):
            lanes = self.hardware.lanes
            once = operations_issued(kernel, height, width, depth, lanes)
            issued = ix.mul(THOUSANDTHS, ix.mul(once, again))
        counts = replace(counts, runs=ix.const(1), cycles=taken, instructions=issued)
        if any(any(limits(tile, name)) for name in (rows, columns)):
            some = ix.compare(">", ix.mul(lengths.get(rows, ix.const(1)), width), 0)
            counts = counts.mapped(lambda count: chosen(some, count, ZERO))
        staged: dict[int, _Staged] = {}
        if tile.form is Form.PAD and found is not None:
            counts = counts.plus(self.copied(tile, lengths, columns))
            if padded:
                one = self.staged(tile, found, lengths[rows], height, depth)
                repeated = ix.literal_value(again) != 1
                kind = self.program.buffer(found.by_rows.buffer).kind
                if repeated or kind not in (Kind.INPUT, Kind.CONSTANT):
                    counts = counts.plus(one.counts.mapped(lambda count: ix.mul(again, count)))
                else:
                    staged[scope.piece] = one
        return _Seen(self.traffic.access(boxes, scope.piece), {scope.piece: counts}, staged)

    def operand_bytes(self, tile: Tile, found: Match) -> Expr:
        """Bytes of the columns' operand that one sum reads."""
        load, inner = found.by_columns, {found.columns or ""}
        inner |= {stmt.iter for stmt in statements(tile.body) if isinstance(stmt, For)}
        size: Expr = ix.const(ITEM_BYTES[load.dtype])
        for part, extent in zip(load.index, self.program.buffer(load.buffer).shape, strict=True):
            size = ix.mul(size, extent) if variables(part) & inner else size
        return folded(substitute(size, self.fixed))

    def laid(self, found: Match) -> tuple[float, float]:
        """How much longer a microkernel takes on operands that lie otherwise than it likes: in the nearest caches, and beyond them."""
        traffic, load = self.hardware.machine.traffic, found.by_columns
        times = 1.0 if beside(found.by_rows, found.depth) else traffic.strided
        buffer = self.program.buffer(load.buffer)
        if not found.microkernel.packed or buffer.layout is not None or not buffer.shape:
            return times, times
        row = ix.literal_value(folded(substitute(buffer.shape[-1], self.fixed)))
        narrow = row is not None and row * ITEM_BYTES[buffer.dtype] <= traffic.narrow_bytes
        if narrow:
            return times, times
        return times * traffic.unpacked_near, times * traffic.unpacked_far

    def instances(
        self, tile: Tile, body: Sequence[Stmt], lengths: Mapping[str, Expr], scope: _Scope
    ) -> tuple[Counts, Touched]:
        """Of statements of a tile: all instances along its axes, and what one of them touches."""
        assert scope.piece is not None
        seen = self.block(body, scope)
        counts = seen.counts.get(scope.piece, Counts())
        for axis in reversed(tile.axes):
            end = ix.add(axis.start, lengths[axis.iter])
            counts = self.over(axis.iter, axis.start, end, counts, scope.known, scope.piece)
        return counts, seen.touched

    def length(self, tile: Tile, axis: TileAxis, known: ScanContext) -> Expr:
        """How many instances along an axis of a tile are in the domain."""
        length, limited = _extent(axis), False
        for limit in limits(tile, axis.iter):
            length, limited = _least(length, _left(folded(limit), folded(axis.start)), known), True
        if limited and not known.at_least_zero(length):
            return ix.maximum(length, 0)
        return length

    def widest(self, tile: Tile, kernel: Microkernel, rows: str, width: Expr) -> int | None:
        """The columns that one call of a function takes, where that is less than its height allows: one vector where the
        text does not say how many there are, else as many as tiles of all heights have that the rows may have; None: any.
        """
        if kernel.lowering is not None or kernel.any_columns:
            return None
        if ix.literal_value(width) is None:
            return kernel.panel
        if not any(limits(tile, rows)) or tile.form is Form.PAD:
            return None
        known = next(ix.literal_value(_extent(axis)) for axis in tile.axes if axis.iter == rows)
        most = min(known or kernel.max_rows, kernel.max_rows)
        return min(kernel.columns_for(height) for height in range(1, most + 1))

    def copied(self, tile: Tile, lengths: Mapping[str, Expr], columns: str) -> Counts:
        """Of the copies of a padded tile's result between its array and the scratch that it is computed in."""
        store = next(s for s in statements(tile.body) if isinstance(s, Store))
        if store.buffer not in self.held:
            return Counts()
        dtype = self.program.buffer(store.buffer).dtype
        vectors = ix.ceildiv(lengths.get(columns, ix.const(1)), self.hardware.lanes_of(dtype))
        for name in lengths.keys() - {columns}:
            vectors = ix.mul(vectors, lengths[name])
        times = 1 if begins_with_store(store.buffer, tile.body) else 2
        return copy_counts(ix.mul(times, vectors), self.hardware.machine)

    def staged(self, tile: Tile, found: Match, active: Expr, height: Expr, depth: Expr) -> _Staged:
        """The copy of the rows that a padded tile reads, with zeros past the last one."""
        load = found.by_rows
        inner = {s.iter for s in statements(tile.body) if isinstance(s, For)}
        axes = {axis.iter: axis for axis in tile.axes}
        moves = set[str]().union(*map(variables, load.index))
        for name in moves & axes.keys():
            moves |= variables(axes[name].start)
        lanes = self.hardware.register_bytes // ITEM_BYTES[load.dtype]
        each = ix.ceildiv(depth, lanes)
        counts = staging_counts(active, height, each, self.hardware.machine)
        return _Staged(frozenset(moves - inner - axes.keys()), counts)

    def named(self, buffer: str, one: Box) -> str:
        """What an array is called at places that move as these do: rows and columns of one array are apart."""
        known = self.apart.setdefault(buffer, {})
        if one.moves not in known:
            known[one.moves] = f"{buffer}{_APART}{len(known)}" if known else buffer
        name = known[one.moves]
        self.held[name] = self.held[buffer]
        return name

    def boxes(self, stmt: Store) -> dict[str, Box]:
        """What one instance touches: the element it stores, and those it reads."""
        found: dict[str, Box] = {}

        def add(buffer: str, one: Box) -> None:
            if buffer in self.held:
                name = self.named(buffer, one)
                found[name] = found[name].joined(one, self.known) if name in found else one

        add(stmt.buffer, box(stmt.index, written=True))
        if stmt.reduce is not None:
            add(stmt.buffer, box(stmt.index, written=False))
        for node in _parts(stmt.value):
            if isinstance(node, Load):
                add(node.buffer, box(node.index, written=False))
        return found


def _with_open(stmt: Stmt) -> Stmt | None:
    """A tile of plain loops whose text does not say how many lanes it has, so marked."""
    if not isinstance(stmt, Tile) or not stmt.axes or stmt.cover is not None:
        return None
    *axes, last = stmt.axes
    if ix.literal_value(last.extent) is not None:
        return None
    return replace(stmt, axes=(*axes, replace(last, extent=ix.add(last.extent, Var(_OPEN)))))


def _extent(axis: TileAxis) -> Expr:
    """How many instances a tile has along an axis."""
    return folded(substitute(axis.extent, {_OPEN: ZERO}))


def _ends_of(name: str, conditions: Sequence[Expr]) -> Iterator[Expr]:
    """The ends of an iterator that conditions say, past which lanes touch nothing."""
    for one in conditions:
        match one:
            case Compare("<", Var(iterator), end) if iterator == name and not reads_memory(end):
                yield end


def _along(tile: Tile, kernel: Microkernel) -> tuple[str, str, Match | None]:
    """The axes of a tile that are the rows and the columns of its microkernel, "" for none, and how it is laid over the sum."""
    names = [axis.iter for axis in tile.axes]
    for loop in statements(tile.body):
        match loop:
            case For(depth, body=(Store() as store,)) if store.reduce is not None:
                found = list(matches(kernel, store.value, store.reduce, tuple(names), (depth,)))
                found.sort(key=lambda one: one.columns != names[-1])
                if found:
                    return found[0].rows or "", found[0].columns or "", found[0]
    return "".join(names[-2:-1]), names[-1], None


def _sums_of(tile: Tile) -> tuple[list[Stmt], list[Stmt]]:
    """The sums of a tile with the zeros that they start from, which its microkernel computes; the other statements."""

    def is_sum(stmt: Stmt) -> bool:
        zero = isinstance(stmt, Store) and isinstance(stmt.value, Const) and stmt.reduce is None
        return zero or isinstance(stmt, For)

    return [s for s in tile.body if is_sum(s)], [s for s in tile.body if not is_sum(s)]


def _left(limit: Expr, start: Expr) -> Expr:
    """``limit - start``, as a remainder where it is one."""
    match ix.sub(limit, start):
        case Binary("-", a, Binary("*", Const(by), Binary("//", b, Const(of)))) if (a, by) == (
            b,
            of,
        ):
            return ix.mod(a, int(of))
        case other:
            return other


def _least(a: Expr, b: Expr, known: ScanContext) -> Expr:
    """The lesser of two, as far as it is known which that is."""
    if known.at_least_zero(ix.sub(b, a)):
        return a
    return b if known.at_least_zero(ix.sub(a, b)) else ix.minimum(a, b)


def _parted(stmt: Stmt) -> bool:
    """Whether a nest holds pieces of its own."""
    return any(isinstance(one, Tile | Choose | Alloc) for one in statements((stmt,)))


def _written(body: Sequence[Stmt]) -> frozenset[str]:
    return frozenset(one.buffer for one in statements(tuple(body)) if isinstance(one, Store))


def _parts(expr: Expr) -> list[Expr]:
    return [expr, *(part for child in children(expr) for part in _parts(child))]


def _within(known: ScanContext, name: str, lo: Expr, hi: Expr) -> ScanContext:
    return known.within(Range(name, (lo,), (ix.sub(hi, 1),)))
