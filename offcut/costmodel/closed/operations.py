"""What a statement computes with elements: operations, one for each operator and function of values, and their energy.

A product that is added is two, a comparison that keeps the larger value one, a conversion none.
"""

from __future__ import annotations

from offcut.core.expr import Binary, Expr, Load, Select, Unary, children, dtype_of, walk
from offcut.core.program import Program, Store
from offcut.costmodel.device import Energy, Picojoules

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
