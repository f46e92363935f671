"""Predicted cycles of statements and expressions that no microkernel covers, for one instance or for a vector of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

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
    variables,
    walk,
)
from offcut.core.program import For, Store
from offcut.costmodel.machine import Machine
from offcut.polyhedral import coefficient


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
        adds = any(
            isinstance(stmt, Store)
            and stmt.reduce is not None
            and not any(loop.iter in variables(part) for part in stmt.index)
            for stmt in loop.body
        )
        if not adds:
            return 0.0
        return 1.0 if side_by_side else self.machine.core.latency_cycles

    def store(self, store: Store, lane: str | None, inner: str) -> float:
        """Of a store, in the loop `inner`, "" for none."""
        value = self.value(store.value, lane)
        held = store.reduce is not None and not any(inner in variables(p) for p in store.index)
        if held and inner:
            return value + self.machine.loops.access_cycles
        times = 2.0 if store.reduce is not None else 1.0
        return value + times * self.access(store.index, lane, self.machine.loops.scatter_cycles)

    def access(self, index: Sequence[Expr], lane: str | None, apart: float) -> float:
        """Of a read or a write; `apart` of each lane where they lie apart."""
        loops = self.machine.loops
        if lane is None:
            return loops.access_cycles
        steps = [coefficient(part, lane) for part in index]
        if all(step == 0 for step in steps):
            return loops.access_cycles
        if steps[-1] == 1 and not any(steps[:-1]):
            return loops.vector_cycles
        return apart * self.width

    def operation(self, op: str, lane: str | None) -> float:
        """Of an operator or a function."""
        cycles = (self.machine.scalar if lane is None else self.machine.vector).of(op)
        if cycles is not None:
            return cycles
        return (self.machine.scalar.of(op) or 0.0) * self.width

    def branch(self, condition: Expr, lane: str | None) -> float:
        """Of asking a condition."""
        return self.value(condition, lane) + self.machine.loops.bind_cycles

    def value(self, expr: Expr, lane: str | None) -> float:
        """Of an expression."""
        if dtype_of(expr) == "index" and (lane is None or lane not in variables(expr)):
            return self.machine.loops.index_cycles * sum(isinstance(n, Binary) for n in walk(expr))
        match expr:
            case Const() | Var():
                return 0.0
            case Load(_, index, _):
                return self.access(index, lane, self.machine.loops.gather_cycles)
            case Binary(op, a, b):
                return self.value(a, lane) + self.value(b, lane) + self.operation(op, lane)
            case Unary(op, a):
                return self.value(a, lane) + self.operation(op, lane)
            case Select(condition, then, other):
                return self.several((condition, then, other), lane)
            case Logic(_, args):
                return sum(self.value(arg, lane) for arg in args) + self.operation("and", lane)
            case Cast(a, _):
                return self.several((a,), lane)
            case _:
                return self.several(children(expr), lane)

    def several(self, parts: Sequence[Expr], lane: str | None) -> float:
        """Of a selection or a conversion of these parts."""
        return self.machine.loops.select_cycles + sum(self.value(part, lane) for part in parts)
