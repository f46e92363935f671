"""What one run of a statement counts, and counts over loops, lanes and conditions, as sums in closed form or added up."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import Enum
from math import ceil

from offcut.core import index as ix
from offcut.core.conditions import conjunction
from offcut.core.dtypes import ITEM_BYTES
from offcut.core.expr import Expr, Load, Var, children, reads_memory, substitute, variables
from offcut.core.program import For, Kind, Let, Program, Stmt, Store, TileAxis
from offcut.core.program import walk as statements
from offcut.core.scan import Range, ScanContext
from offcut.core.traversal import used_names
from offcut.costmodel.closed.counts import (
    THOUSANDTHS,
    ZERO,
    Counts,
    Exactness,
    Piece,
    Way,
    least_exact,
    sum_counts,
    values_of,
)
from offcut.costmodel.closed.footprints import Box, box
from offcut.costmodel.closed.operations import instructions, is_even, operations, picojoules
from offcut.costmodel.closed.summation import middle_of, trips
from offcut.costmodel.closed.sums import SumMethod, Sums, SumTables, byte_methods
from offcut.costmodel.closed.traffic import Held, Touched, Traffic
from offcut.costmodel.resources import Hardware
from offcut.costmodel.simplification import select, simplify_index
from offcut.costmodel.statement_costs import Inside, StatementPrices
from offcut.describe.computation import Names

BYTES = -1  # no number of a piece
APART = "#"  # no user can name an array so
OPEN = "#open"
"""In the extent of a tile along its lanes: the text does not say it, whatever is known here, and the code has a loop along it. It is 0."""


class BytesOf(Enum):
    """What the bytes are told of that are counted."""

    PIECES = "pieces"  # in a call after one of the same sizes
    ARRAYS = "arrays"  # in a call that finds nothing in a cache
    NOTHING = "nothing"  # none are counted


@dataclass(frozen=True, slots=True)
class StagedRows:
    """A copy of rows that a padded tile reads: it is made again only where it is of other rows than the last one.

    moves   the iterators of the loops around that move the rows
    counts  of one copy
    """

    moves: frozenset[str]
    counts: Counts


@dataclass(frozen=True, slots=True)
class Tally:
    """What is known of a statement: what one run of it touches, and counts by piece.

    staged  by piece, what of it runs once for all iterations of the loops around that do not move it
    """

    touched: Touched
    counts: Mapping[int, Counts]
    staged: Mapping[int, StagedRows] = field(default_factory=dict)

    @property
    def whole(self) -> Mapping[int, Counts]:
        """The counts by piece, those of staged rows among them."""
        return sum_counts((self.counts, {piece: one.counts for piece, one in self.staged.items()}))


@dataclass(frozen=True, slots=True)
class Scope:
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


def extent_of(axis: TileAxis) -> Expr:
    """How many instances a tile has along an axis."""
    return simplify_index(substitute(axis.extent, {OPEN: ZERO}))


def stored_in(body: Sequence[Stmt]) -> frozenset[str]:
    """Return the arrays that statements write."""
    return frozenset(one.buffer for one in statements(tuple(body)) if isinstance(one, Store))


def inside_loop(known: ScanContext, name: str, lo: Expr, hi: Expr) -> ScanContext:
    """Return what is known inside a loop."""
    return known.within(Range(name, (lo,), (ix.sub(hi, 1),)))


class LoopCounts(ABC):
    """Counts over loops and conditions: the sums of one walk over a program.

    ways  to count pieces; those that are not named: by adding up, where all sizes are known, else in closed form
    options  that are counted, by the number of a `choose`
    sums  that the counts of each piece are made of, and bytes
    """

    def __init__(
        self,
        program: Program,
        hardware: Hardware,
        fixed: Mapping[str, Expr],
        ways: Mapping[int, Sequence[SumMethod]],
        options: Mapping[int, int],
        bytes_of: BytesOf,
    ) -> None:
        self.program, self.hardware, self.ways, self.options = program, hardware, ways, options
        self.fixed = fixed
        self.known = ScanContext.of(size for size in program.sizes if size.name not in fixed)
        self.held = {
            one.name: Held(
                one, tuple(simplify_index(substitute(extent, fixed)) for extent in one.shape)
            )
            for one in program.buffers
            if one.kind is not Kind.PRIVATE
        }
        self.pieces: list[Piece] = []
        self.choices: list[tuple[Way, ...]] = []
        self.values: dict[str, Expr] = {}
        lets = {one.name for one in statements(program.body) if isinstance(one, Let)}
        self.names = Names(used_names(program) - lets)
        self.apart: dict[str, dict[tuple[frozenset[str], ...], str]] = {}
        self.tables = SumTables()
        self.is_open = bool(self.known.ranges)
        self.sums = {BYTES: Sums(ways.get(BYTES, byte_methods(is_open=self.is_open)))}
        levels = () if bytes_of is BytesOf.NOTHING else hardware.levels
        by_array = bytes_of is not BytesOf.PIECES
        arguments = self.held, levels, self.known, self.sums[BYTES]
        self.traffic = Traffic(*arguments, by_array=by_array)
        self.exactness = Exactness.EXACT

    @abstractmethod
    def block(self, body: Sequence[Stmt], scope: Scope) -> Tally:
        """Return the counts of statements, one after the other."""

    def with_conditions(self, tally: Tally, conditions: Sequence[Expr]) -> Tally:
        """With the operations of the lanes alone at which conditions hold; the others take the time of their vectors."""
        if not conditions:
            return tally
        some = self.where(conjunction(conditions), tally, Tally(self.traffic.nothing, {}))
        counts = {
            piece: replace(some.counts[piece], cycles=one.cycles, instructions=one.instructions)
            for piece, one in tally.counts.items()
        }
        return replace(tally, counts=counts)

    def begun(self, tally: Tally, cycles: float, scope: Scope) -> Tally:
        """With what it takes to begin a loop of lanes, and to end it."""
        assert scope.piece is not None
        once = Counts(cycles=ix.const(round(cycles * THOUSANDTHS)))
        return replace(tally, counts=sum_counts((tally.counts, {scope.piece: once})))

    @contextmanager
    def around(self, name: str, lo: Expr, hi: Expr) -> Iterator[None]:
        """Inside of a loop."""
        self.traffic.middle[name] = middle_of(lo, hi)
        yield
        del self.traffic.middle[name]

    def bound(self, end: Expr, start: Expr | None = None) -> Expr:
        """A bound of a loop; of one that is read from memory, what the policy assumes."""
        if not reads_memory(end):
            return simplify_index(end)
        self.exactness = Exactness.ESTIMATE
        if start is None:
            return ix.const(0)
        trips = self.hardware.machine.policy.trips
        return ix.const(trips) if reads_memory(start) else ix.add(start, trips)

    def loop(self, name: str, lo: Expr, hi: Expr, body: Tally, known: ScanContext) -> Tally:
        """Of all iterations of a loop."""
        own = {piece: one for piece, one in body.staged.items() if name in one.moves}
        each = sum_counts((body.counts, {piece: one.counts for piece, one in own.items()}))
        counts = {piece: self.over(name, lo, hi, one, known, piece) for piece, one in each.items()}
        some = ix.minimum(trips(lo, hi, known), 1)
        staged = {
            piece: replace(one, counts=one.counts.mapped(lambda count: ix.mul(some, count)))
            for piece, one in body.staged.items()
            if piece not in own
        }
        return Tally(self.traffic.loop(name, lo, hi, body.touched, known), counts, staged)

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
        shift = {name: ix.add(lo, Var(name))}
        from_0 = each.mapped(lambda value: substitute(value, shift))
        run = count if most is None else ix.minimum(most, count)
        some = self.over(name, ZERO, run, from_0, known, piece)
        return replace(every, instructions=some.instructions, cycles=some.cycles)

    def where(self, condition: Expr, then: Tally, other: Tally) -> Tally:
        """Return the counts of two sides of a condition; of one that is read from memory both."""
        if reads_memory(condition):
            self.exactness = least_exact(self.exactness, Exactness.BOUND)
            touched = self.traffic.block([then.touched, other.touched])
            counts = sum_counts((then.counts, other.counts))
            return Tally(touched, counts, {**then.staged, **other.staged})
        on_sizes = variables(condition) <= {*self.values, *(one.name for one in self.program.sizes)}

        def either(piece: int, one: Counts, two: Counts) -> Counts:
            of = select if on_sizes else self.sums[piece].where
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
        return Tally(touched, counts, staged)

    def store(self, stmt: Store, scope: Scope) -> Tally:
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
            self.exactness = least_exact(self.exactness, Exactness.BOUND)
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
        return Tally(self.traffic.access(boxes, scope.piece), {scope.piece: counts})

    def named(self, buffer: str, one: Box) -> str:
        """What an array is called at places that move as these do: rows and columns of one array are apart."""
        known = self.apart.setdefault(buffer, {})
        if one.moves not in known:
            known[one.moves] = f"{buffer}{APART}{len(known)}" if known else buffer
        name = known[one.moves]
        self.held[name] = self.held[buffer]
        return name

    def boxes(self, stmt: Store) -> dict[str, Box]:
        """What one instance touches: the element it stores, and those it reads."""
        boxes_by_buffer: dict[str, Box] = {}

        def add(buffer: str, one: Box) -> None:
            if buffer in self.held:
                name = self.named(buffer, one)
                boxes_by_buffer[name] = (
                    boxes_by_buffer[name].joined(one, self.known)
                    if name in boxes_by_buffer
                    else one
                )

        add(stmt.buffer, box(stmt.index, written=True))
        if stmt.reduce is not None:
            add(stmt.buffer, box(stmt.index, written=False))
        for node in _parts(stmt.value):
            if isinstance(node, Load):
                add(node.buffer, box(node.index, written=False))
        return boxes_by_buffer


def _parts(expr: Expr) -> list[Expr]:
    return [expr, *(part for child in children(expr) for part in _parts(child))]
