"""What one instance of a statement counts on a processor, and what lanes of its vectors do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import ceil

from offcut.core import index as ix
from offcut.core.accesses import only_reduces
from offcut.core.conditions import conjunction
from offcut.core.dtypes import ITEM_BYTES
from offcut.core.expr import Expr, Load, Var, substitute, walk
from offcut.core.program import LANE, Alloc, For, Program, Stmt, Store
from offcut.core.scan import ScanContext
from offcut.costmodel.closed.count_loops import APART, BytesOf, Scope, Tally
from offcut.costmodel.closed.count_programs import ProgramCounts
from offcut.costmodel.closed.counts import (
    THOUSANDTHS,
    ZERO,
    Counts,
    Exactness,
    least_exact,
    sum_counts,
)
from offcut.costmodel.closed.footprints import Box, box
from offcut.costmodel.closed.operations import instructions, is_even, operations, picojoules
from offcut.costmodel.closed.sums import SumMethod
from offcut.costmodel.closed.traffic import Held
from offcut.costmodel.resources import Hardware
from offcut.costmodel.simplification import simplify_index
from offcut.costmodel.statement_costs import Inside, StatementPrices


class StatementCounts(ProgramCounts):
    """Counts of statements on a processor, whose instances may run on lanes of vectors."""

    def __init__(
        self,
        program: Program,
        hardware: Hardware,
        fixed: Mapping[str, Expr],
        ways: Mapping[int, Sequence[SumMethod]],
        options: Mapping[int, int],
        bytes_of: BytesOf,
    ) -> None:
        super().__init__(program, hardware.levels, fixed, ways, options, bytes_of)
        self.hardware = hardware
        self.assumed_trips = hardware.machine.policy.trips

    def behind_stages(self, tally: Tally, piece: int, scope: Scope) -> Tally:
        """Return the counts of a stage that waits for those before it in the loop around."""
        waits = self.hardware.machine.loops.wait_cycles
        return self.with_loop_overhead(tally, waits, replace(scope, piece=piece))

    def for_loop(self, stmt: For, scope: Scope) -> Tally:
        """Return the counts of all iterations of a loop; along lanes, with what they take to begin and to add up."""
        if stmt.unit != LANE or not only_reduces(stmt):
            return super().for_loop(stmt, scope)
        loops = self.hardware.machine.loops
        tally = super().for_loop(stmt, replace(scope, lane=stmt.iter, run=None))
        return self.with_loop_overhead(tally, loops.begin_cycles + loops.reduce_cycles, scope)

    def alloc(self, stmt: Alloc, scope: Scope) -> Tally:
        """Return the counts inside of a window, which lies in one place for all iterations around it."""
        inside = self.count_window(stmt.buffer, stmt.axes, stmt.body, scope)
        return self.window(stmt.buffer, stmt.axes, inside)

    def count_window(
        self, buffer: str, axes: Sequence[tuple[Expr, Expr]], body: Sequence[Stmt], scope: Scope
    ) -> Tally:
        """What is inside a window, whose array is as large as it."""
        if buffer in self.held:
            self.held[buffer] = Held(self.held[buffer].buffer, tuple(extent for _, extent in axes))
        return self.block(body, scope)

    def window(self, buffer: str, axes: Sequence[tuple[Expr, Expr]], tally: Tally) -> Tally:
        """Outside of it, the window lies where it always does, as large as half-way through the loops around."""
        shape = tuple(extent for _, extent in axes)
        for name, middle in reversed(self.traffic.middle.items()):
            shape = tuple(simplify_index(substitute(extent, {name: middle})) for extent in shape)
        own = [name for name in self.held if name.partition(APART)[0] == buffer]
        self.held.update({name: Held(self.held[name].buffer, shape) for name in own})
        starts = [start for start, _ in axes]
        boxes = {
            name: one.within(starts) if name.partition(APART)[0] == buffer else one
            for name, one in tally.touched.boxes.items()
        }
        return replace(tally, touched=replace(tally.touched, boxes=boxes))

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

    def with_loop_overhead(self, tally: Tally, cycles: float, scope: Scope) -> Tally:
        """With what it takes to begin a loop of lanes, and to end it."""
        assert scope.piece is not None
        once = Counts(cycles=ix.const(round(cycles * THOUSANDTHS)))
        return replace(tally, counts=sum_counts((tally.counts, {scope.piece: once})))

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
        from_0 = each.map(lambda value: substitute(value, shift))
        run = count if most is None else ix.minimum(most, count)
        some = self.over(name, ZERO, run, from_0, known, piece)
        return replace(every, instructions=some.instructions, cycles=some.cycles)

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

    def array_name(self, buffer: str, one: Box) -> str:
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
                name = self.array_name(buffer, one)
                boxes_by_buffer[name] = (
                    boxes_by_buffer[name].join(one, self.known) if name in boxes_by_buffer else one
                )

        add(stmt.buffer, box(stmt.index, written=True))
        if stmt.reduce is not None:
            add(stmt.buffer, box(stmt.index, written=False))
        for node in walk(stmt.value):
            if isinstance(node, Load):
                add(node.buffer, box(node.index, written=False))
        return boxes_by_buffer
