"""Counts over loops and conditions, as sums in closed form or added up, by piece; and what is known of a statement."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import partial

from offcut.core import index as ix
from offcut.core.expr import Expr, reads_memory, substitute, variables
from offcut.core.program import For, Kind, Let, Program, Stmt, Store, TileAxis
from offcut.core.program import walk as statements
from offcut.core.scan import Range, ScanContext
from offcut.core.traversal import used_names
from offcut.costmodel.closed.counts import (
    ZERO,
    Counts,
    Exactness,
    Piece,
    PricedOption,
    least_exact,
    sum_counts,
)
from offcut.costmodel.closed.summation import trips
from offcut.costmodel.closed.sums import SumMethod, Sums, SumTables, byte_methods, middle_of
from offcut.costmodel.closed.traffic import Held, Touched, Traffic
from offcut.costmodel.resources import Level
from offcut.costmodel.simplification import select, simplify_index
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
    option  of a `choose`
    around  the loop around the tile
    written  arrays that are written in the innermost loop, or the tile
    depth  of the ring of windows around: as many copies are in flight
    """

    known: ScanContext
    piece: int | None = None
    loop: For | None = None
    lane: str | None = None
    run: int | None = None
    across: tuple[str, Expr, Expr] | None = None
    option: tuple[int, int] | None = None
    around: For | None = None
    written: frozenset[str] = frozenset()
    depth: int = 1


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

    levels  of memory that are filled
    piece_methods  to count pieces, with their fallbacks; those that are not named: by `methods`
    options  that are counted, by the number of a `choose`
    assumed_trips  of a loop whose bounds are read from memory
    sums  that the counts of each piece are made of, and bytes
    """

    assumed_trips: int

    def __init__(
        self,
        program: Program,
        levels: tuple[Level, ...],
        fixed: Mapping[str, Expr],
        piece_methods: Mapping[int, Sequence[SumMethod]],
        options: Mapping[int, int],
        bytes_of: BytesOf,
    ) -> None:
        self.program, self.fixed = program, fixed
        self.piece_methods, self.options = piece_methods, options
        self.known = ScanContext.of(size for size in program.sizes if size.name not in fixed)
        self.held = {
            one.name: Held(
                one, tuple(simplify_index(substitute(extent, fixed)) for extent in one.shape)
            )
            for one in program.buffers
            if one.kind is not Kind.PRIVATE
        }
        self.pieces: list[Piece] = []
        self.choices: list[tuple[PricedOption, ...]] = []
        self.values: dict[str, Expr] = {}
        lets = {one.name for one in statements(program.body) if isinstance(one, Let)}
        self.names = Names(used_names(program) - lets)
        self.apart: dict[str, dict[tuple[frozenset[str], ...], str]] = {}
        self.tables = SumTables()
        self.is_open = bool(self.known.ranges)
        self.sums = {BYTES: Sums(piece_methods.get(BYTES, byte_methods(is_open=self.is_open)))}
        levels = () if bytes_of is BytesOf.NOTHING else levels
        by_array = bytes_of is not BytesOf.PIECES
        arguments = self.held, levels, self.known, self.sums[BYTES]
        self.traffic = Traffic(*arguments, by_array=by_array)
        self.exactness = Exactness.EXACT

    @abstractmethod
    def block(self, body: Sequence[Stmt], scope: Scope) -> Tally:
        """Return the counts of statements, one after the other."""

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
        trips = self.assumed_trips
        return ix.const(trips) if reads_memory(start) else ix.add(start, trips)

    def loop(self, name: str, lo: Expr, hi: Expr, body: Tally, known: ScanContext) -> Tally:
        """Of all iterations of a loop."""
        own = {piece: one for piece, one in body.staged.items() if name in one.moves}
        each = sum_counts((body.counts, {piece: one.counts for piece, one in own.items()}))
        counts = {piece: self.over(name, lo, hi, one, known, piece) for piece, one in each.items()}
        some = ix.minimum(trips(lo, hi, known), 1)
        staged = {
            piece: replace(one, counts=one.counts.map(lambda count: ix.mul(some, count)))
            for piece, one in body.staged.items()
            if piece not in own
        }
        return Tally(self.traffic.loop(name, lo, hi, body.touched, known), counts, staged)

    def over(
        self, name: str, lo: Expr, hi: Expr, each: Counts, known: ScanContext, piece: int
    ) -> Counts:
        """Of a piece, in all iterations of a loop."""
        sums = self.sums[piece]
        return each.map(lambda term: ZERO if term == ZERO else sums.over(name, lo, hi, term, known))

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
            return one.combine(two, partial(of, condition))

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
