"""What one instance of a statement counts on a processor, and what lanes of its vectors do.

What a statement computes with elements: operations, one for each operator and function of values, and their energy.

A product that is added is two, a comparison that keeps the larger value one, a conversion none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import ceil

from offcut.core import index as ix
from offcut.core.analysis import only_reduces
from offcut.core.conditions import conjunction
from offcut.core.dtypes import ITEM_BYTES
from offcut.core.expr import (
    Binary,
    Expr,
    Load,
    Select,
    Unary,
    Var,
    children,
    dtype_of,
    substitute,
    walk,
)
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
from offcut.costmodel.closed.sums import SumMethod
from offcut.costmodel.closed.traffic import Held
from offcut.costmodel.device import Energy, Picojoules
from offcut.costmodel.resources import Hardware
from offcut.costmodel.simplification import simplify_index
from offcut.costmodel.statement_costs import Inside, StatementPrices

_ALIKE = {
    **dict.fromkeys(("int8", "uint8", "bool"), "int8"),
    **dict.fromkeys(("int16", "uint16", "int32", "uint32", "int64", "uint64", "index"), "int32"),
    **dict.fromkeys(("float16", "bfloat16"), "float16"),
    **dict.fromkeys(("float32", "float64"), "float32"),
}
"""By element type, the one of a table of energies that stands for it: no table has numbers of 16 or 64 bits but float16."""


def operations(store: Store) -> int:
    """Operations of one instance; of a choice between values, those of the longest."""
    return len(_of(_term(store))) + (store.reduce is not None)


def is_even(store: Store) -> bool:
    """Whether every instance does as many operations: both sides of each choice between values do."""
    choices = (node for node in walk(store.value) if isinstance(node, Select))
    return all(len(_of(one.then)) == len(_of(one.other)) for one in choices)


def instructions(store: Store) -> int:
    """What one instance, or a vector of them, issues: each of its operations once, a load for each element that is
    read, the store.
    """
    computed = sum(
        isinstance(node, Load)
        or (isinstance(node, Binary | Unary) and dtype_of(node) not in ("index", "bool"))
        for node in set(walk(store.value))
    )
    return computed + 1 + (store.reduce is not None)


def picojoules(store: Store, program: Program, energy: Energy) -> float:
    """Energy of the operations of one instance; of a function, that of a multiplication."""
    total = sum(
        _energy(
            energy.add if op in ("+", "-", "min", "max", "neg", "abs") else energy.multiply, dtype
        )
        for op, dtype in _of(_term(store))
    )
    if store.reduce is not None:
        total += _energy(energy.add, program.buffer(store.buffer).dtype)
    return total


def _term(store: Store) -> Expr:
    """What a store takes; of a sum that takes something away, that: a subtraction is one operation."""
    match store:
        case Store(value=Unary("neg", part), reduce="sum"):
            return part
        case _:
            return store.value


def _energy(table: Picojoules, dtype: str) -> float:
    picojoules: float = getattr(table, _ALIKE[dtype])
    return picojoules


def _of(expr: Expr) -> list[tuple[str, str]]:
    """The operators in an expression, and the types that they are of."""
    if isinstance(expr, Load) or dtype_of(expr) in ("index", "bool"):
        return []
    if isinstance(expr, Select):
        return max(_of(expr.then), _of(expr.other), key=len)
    inside = [one for part in children(expr) for one in _of(part)]
    match expr:
        case Binary(op, _, _) | Unary(op, _):
            return [*inside, (op, dtype_of(expr))]
        case _:
            return inside


class StatementCounts(ProgramCounts):
    """Counts of statements on a processor, whose instances may run on lanes of vectors."""

    def __init__(
        self,
        program: Program,
        hardware: Hardware,
        fixed: Mapping[str, Expr],
        piece_methods: Mapping[int, Sequence[SumMethod]],
        options: Mapping[int, int],
        bytes_of: BytesOf,
    ) -> None:
        super().__init__(program, hardware.levels, fixed, piece_methods, options, bytes_of)
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
