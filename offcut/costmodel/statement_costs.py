"""Predicted cycles of statements and expressions that no microkernel covers, for one instance or for a vector of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from offcut.core import index as ix
from offcut.core.dtypes import FLOATS, ITEM_BYTES
from offcut.core.expr import (
    Binary,
    Cast,
    Const,
    Expr,
    Load,
    Logic,
    Select,
    Unary,
    Var,
    children,
    dtype_of,
    reads_memory,
    variables,
    walk,
)
from offcut.core.function_table import FUNCTIONS
from offcut.core.program import For, Store
from offcut.costmodel.machine import Machine, Operations
from offcut.polyhedral import BACK, NEXT, SAME, Spacing, row_spacing

FEW_APART = 4
"""Elements that lanes may lie apart in a row to be loaded as whole vectors, as many as that, and picked out: up to here a gather was
measured to take two to five times as long, on Zen 4; further apart nothing was measured.
"""


@dataclass(frozen=True, slots=True)
class Inside:
    """What an instance of a statement runs in.

    lane     the iterator that runs along lanes; None: instances run one by one
    inner    that of the loop right around it; "" for none
    written  arrays that are written in that loop, or in the tile
    first    by how many iterations the first lane is past a multiple of a vector
    """

    lane: str | None = None
    inner: str = ""
    written: frozenset[str] = frozenset()
    first: int = 0

    def moves(self, expr: Expr) -> bool:
        """Whether an expression is computed again for each vector, or in each iteration: else once, before the loop."""
        names = {self.lane or "", self.inner} - {""}
        if not names or variables(expr) & names:
            return True
        return any(isinstance(node, Load) and node.buffer in self.written for node in walk(expr))


@dataclass(frozen=True, slots=True)
class StatementPrices:
    """Predicted cycles of statements and expressions, for one instance or for a vector of them.

    width  lanes of a vector
    """

    machine: Machine
    width: int

    def chain(self, loop: For, side_by_side: bool = False) -> float:
        """Cycles from one iteration to the next where the loop adds up one element.

        side_by_side  whether as many are added up at once as an addition takes cycles
        """
        adds = [
            stmt
            for stmt in loop.body
            if isinstance(stmt, Store)
            and stmt.reduce is not None
            and not any(loop.iter in variables(part) for part in stmt.index)
        ]
        if not adds:
            return 0.0
        if side_by_side:
            return 1.0
        extreme = any(one.reduce != "sum" and dtype_of(one.value) in FLOATS for one in adds)
        return self.machine.loops.extreme_cycles if extreme else self.machine.core.latency_cycles

    def each(self, store: Store, at: Inside, loop: For | None) -> float:
        """Of a store with its share of a loop that runs it, and of waiting for the iteration before; None: of no loop."""
        work, loops = max(self.store(store, at), self.start_cost(store, at)), self.machine.loops
        if loop is None:
            return work
        step = loops.iterate_cycles if at.lane is None else loops.lane_iterate_cycles
        return step + max(work, self.chain(loop, side_by_side=at.lane is not None))

    def store(self, store: Store, at: Inside) -> float:
        """Of a store."""
        lane, inner = at.lane, at.inner
        value = self.value(store.value, at)
        if store.reduce is not None:
            value += 2 * self.widening_cost(store.value, lane) + self.rounding_cost(
                store.value, lane
            )
        in_register = store.reduce is not None and not any(
            inner in variables(p) for p in store.index
        )
        if in_register and inner:
            return value + self.machine.loops.access_cycles
        times = 2.0 if store.reduce is not None else 1.0
        return value + times * self.access(store.index, lane, self.machine.loops.scatter_cycles)

    def start_cost(self, store: Store, at: Inside) -> float:
        """To start the loads and the stores of a vector, whatever is computed meanwhile; 0 of single instances.

        What begins at no multiple of a vector lies in two lines as often as a line has no room for it, and starts twice then.
        """
        if at.lane is None:
            return 0.0
        core = self.machine.core
        read = {node for node in walk(store.value) if isinstance(node, Load) and at.moves(node)}
        loads = sum(self.lines(node.index, node.dtype, at) for node in read)
        in_register = at.inner and not any(at.inner in variables(part) for part in store.index)
        if store.reduce is not None and in_register:
            return loads / core.loads
        stored = self.lines(store.index, dtype_of(store.value), at)
        loads += stored if store.reduce is not None else 0.0
        return max(loads / core.loads, stored / core.stores)

    def lines(self, index: Sequence[Expr], dtype: str, at: Inside) -> float:
        """Of a vector that lies side by side, how many lines it lies in, in the mean; 0 of others, 1 of one element."""
        spacing = row_spacing(index, at.lane or "", self.width, self.width)
        if spacing == SAME:
            return 1.0
        if spacing not in (NEXT, BACK):
            return 0.0
        if (ix.to_linear(index[-1]).const + at.first) % self.width == 0:
            return 1.0
        return 1.0 + min(1.0, self.width * ITEM_BYTES[dtype] / self.machine.memory[0].line)

    def access(self, index: Sequence[Expr], lane: str | None, apart: float, few: int = 1) -> float:
        """Of a read or a write.

        apart  of each lane where they lie apart
        few    elements that they may lie apart in a row, to be picked out of whole vectors
        """
        loops = self.machine.loops
        if lane is None:
            return loops.access_cycles
        match row_spacing(index, lane, self.width, self.width):
            case Spacing(1, 0):
                return loops.access_cycles
            case Spacing(1, 1 | -1):
                return loops.vector_cycles
            case Spacing(1, step) if (
                1 < step <= few
            ):  # each vector is loaded, and joined to those before
                return (2 * step - 1) * loops.vector_cycles
            case Spacing(share, step) if few > 1 and step in (1, share):  # loaded, and spread
                return 2 * loops.vector_cycles
            case _:
                return apart * self.width

    def gather_cycles(self, index: Sequence[Expr], at: Inside) -> float:
        """Return the cycles per lane of a read whose elements lie apart.

        Elements at a stride are turned in squares of vectors, unless a loop runs inside of the lanes; others are looked up.
        """
        is_lookup = any((at.lane or "") in variables(part) and reads_memory(part) for part in index)
        loops = self.machine.loops
        return loops.lookup_cycles if is_lookup or at.inner else loops.gather_cycles

    def operation(self, op: str, lane: str | None) -> float:
        """Of an operator or a function."""
        cycles = self.table(lane).of(op)
        if cycles is not None:
            return cycles
        each = self.machine.scalar.of(op)
        if each is None:
            each = FUNCTIONS[op].cycles if op in FUNCTIONS else 0.0
        return each if lane is None else each * self.width

    def branch(self, condition: Expr, at: Inside) -> float:
        """Of asking a condition."""
        return self.value(condition, at) + self.machine.loops.bind_cycles

    def value(self, expr: Expr, at: Inside, known: set[Expr] | None = None) -> float:
        """Of an expression: what occurs in it several times is computed once.

        known  what is computed already; what this computes is added
        """
        lane, known = at.lane, set() if known is None else known
        if not at.moves(expr) or expr in known:
            return 0.0
        known.add(expr)
        if dtype_of(expr) == "index" and (lane is None or lane not in variables(expr)):
            return self.machine.loops.index_cycles * sum(isinstance(n, Binary) for n in walk(expr))
        match expr:
            case Const() | Var():
                return 0.0
            case Load(_, index, _):
                return self.access(index, lane, self.gather_cycles(index, at), FEW_APART)
            case Binary(op, a, b):
                inside = self.operand(a, at, known) + self.operand(b, at, known)
                return inside + self.operation(op, lane) + self.rounding_cost(expr, lane)
            case Unary(op, a):
                inside = self.operand(a, at, known)
                return inside + self.operation(op, lane) + self.rounding_cost(expr, lane)
            case Select(condition, then, other):
                parts = (condition, then, other)
                return self.machine.loops.select_cycles + sum(
                    self.value(part, at, known) for part in parts
                )
            case Logic(_, args):
                inside = sum(self.value(arg, at, known) for arg in args)
                return inside + self.operation("and", lane)
            case Cast(a, _):
                return self.operand(a, at, known) + self.conversion_cost(dtype_of(a), expr, lane)
            case _:
                inside = sum(self.operand(part, at, known) for part in children(expr))
                return self.machine.loops.select_cycles + inside

    def operand(self, expr: Expr, at: Inside, known: set[Expr]) -> float:
        """Of a value that is computed with."""
        if not at.moves(expr) or expr in known:
            return 0.0
        return self.value(expr, at, known) + self.widening_cost(expr, at.lane)

    def conversion_cost(self, old: str, new: Expr, lane: str | None) -> float:
        """Of a conversion; floats of 16 bits are widened to float32 before whatever is done with them."""
        into = dtype_of(new)
        if self.table(lane).rounding(into):
            return self.rounding_cost(new, lane)
        computed = "float32" if self.table(lane).widening(old) else old
        return 0.0 if computed == into else self.machine.loops.select_cycles

    def widening_cost(self, expr: Expr, lane: str | None) -> float:
        """Of a value of 16 bits as the float32 that is computed with; 0 of others and of literals."""
        return 0.0 if isinstance(expr, Const) else self.table(lane).widening(dtype_of(expr))

    def rounding_cost(self, expr: Expr, lane: str | None) -> float:
        """Of the float32 that was computed as a value of 16 bits; 0 of others."""
        return self.table(lane).rounding(dtype_of(expr))

    def table(self, lane: str | None) -> Operations:
        """What operations take, of one instance or of a vector of them."""
        return self.machine.scalar if lane is None else self.machine.vector
