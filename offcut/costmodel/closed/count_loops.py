"""Counts over loops, lanes and conditions, as sums in closed form or added up."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

from offcut.core import index as ix
from offcut.core.conditions import conjunction
from offcut.core.expr import Expr, Var, reads_memory, substitute, variables
from offcut.core.program import Kind, Let, Program, Stmt
from offcut.core.program import walk as statements
from offcut.core.scan import ScanContext
from offcut.core.traversal import used_names
from offcut.costmodel.closed.added import Tables
from offcut.costmodel.closed.count_state import BYTES, BytesOf, Scope, Tally
from offcut.costmodel.closed.counts import ZERO, Counts, Piece, Way, added, values_of
from offcut.costmodel.closed.covered import THOUSANDTHS
from offcut.costmodel.closed.exactness import Exactness, worst
from offcut.costmodel.closed.hardware import Hardware
from offcut.costmodel.closed.summation import chosen, folded, middle_of, trips
from offcut.costmodel.closed.sums import Summing, Sums, of_bytes
from offcut.costmodel.closed.traffic import Held, Traffic
from offcut.describe.computation import Names


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
        self.sums = {BYTES: Sums(ways.get(BYTES, of_bytes(is_open=self.is_open)))}
        levels = () if bytes_of is BytesOf.NOTHING else hardware.levels
        by_array = bytes_of is not BytesOf.PIECES
        given = self.held, levels, self.known, self.sums[BYTES]
        self.traffic = Traffic(*given, by_array=by_array)
        self.exactness = Exactness.EXACT

    @abstractmethod
    def block(self, body: Sequence[Stmt], scope: Scope) -> Tally:
        """Return the counts of statements, one after the other."""

    def with_conditions(self, seen: Tally, conditions: Sequence[Expr]) -> Tally:
        """With the operations of the lanes alone at which conditions hold; the others take the time of their vectors."""
        if not conditions:
            return seen
        some = self.where(conjunction(conditions), seen, Tally(self.traffic.nothing, {}))
        counts = {
            piece: replace(some.counts[piece], cycles=one.cycles, instructions=one.instructions)
            for piece, one in seen.counts.items()
        }
        return replace(seen, counts=counts)

    def begun(self, seen: Tally, cycles: float, scope: Scope) -> Tally:
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

    def bound(self, end: Expr, start: Expr | None = None) -> Expr:
        """A bound of a loop; of one that is read from memory, what the policy assumes."""
        if not reads_memory(end):
            return folded(end)
        self.exactness = Exactness.ESTIMATE
        if start is None:
            return ix.const(0)
        trips = self.hardware.machine.policy.trips
        return ix.const(trips) if reads_memory(start) else ix.add(start, trips)

    def loop(self, name: str, lo: Expr, hi: Expr, body: Tally, known: ScanContext) -> Tally:
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
        moved = {name: ix.add(lo, Var(name))}
        from_0 = each.mapped(lambda value: substitute(value, moved))
        run = count if most is None else ix.minimum(most, count)
        some = self.over(name, ZERO, run, from_0, known, piece)
        return replace(every, instructions=some.instructions, cycles=some.cycles)

    def where(self, condition: Expr, then: Tally, other: Tally) -> Tally:
        """Return the counts of two sides of a condition; of one that is read from memory both."""
        if reads_memory(condition):
            self.exactness = worst(self.exactness, Exactness.BOUND)
            touched = self.traffic.block([then.touched, other.touched])
            counts = added((then.counts, other.counts))
            return Tally(touched, counts, {**then.staged, **other.staged})
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
        return Tally(touched, counts, staged)
