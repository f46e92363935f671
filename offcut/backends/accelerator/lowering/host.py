"""Arrays that the host fills before a stream runs: elements of others, at sums of loops, constants around.

All elements at once, by arrays of indices; where a condition fails nothing is read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from offcut.backends.accelerator.lowering.python import Values
from offcut.core.expr import Binary, Compare, Const, Expr, Load, Logic, Select, Var
from offcut.core.program import For, Program, Stmt, Store

Array = np.ndarray[Any, Any]


def is_host(program: Program, stmt: Stmt) -> bool:
    """Whether a statement fills an array in main memory from others there."""
    from offcut.core.accesses import touched

    scoped = {buffer.name for buffer in program.buffers if buffer.scope is not None}
    while isinstance(stmt, For) and len(stmt.body) == 1:
        stmt = stmt.body[0]
    return isinstance(stmt, Store) and not touched((stmt,)) & scoped and stmt.reduce is None


def filled(stmt: Stmt, arrays: Mapping[str, Array], shape: tuple[int, ...], sizes: Values) -> Array:
    """The array that a nest of copies fills."""
    loops: list[tuple[str, Expr, Expr]] = []
    while isinstance(stmt, For):
        loops.append((stmt.iter, stmt.lo, stmt.hi))
        stmt = stmt.body[0]
    assert isinstance(stmt, Store)
    rank = len(loops)
    known: dict[str, Any] = dict(sizes)
    for at, (name, lo, hi) in enumerate(loops):
        counted = np.arange(int(_value(lo, known)), int(_value(hi, known)))
        known[name] = counted.reshape([-1 if axis == at else 1 for axis in range(rank)])
    counts = [known[name].size for name, _, _ in loops]
    found = _elements(stmt.value, known, arrays)
    made = np.zeros(shape, getattr(found, "dtype", np.int8))
    place = tuple(np.broadcast_to(_value(part, known), counts) for part in stmt.index)
    made[place] = np.broadcast_to(found, counts)
    return made


def _elements(value: Expr, known: Mapping[str, Any], arrays: Mapping[str, Array]) -> Any:
    match value:
        case Const(number, _):
            return number
        case Load(buffer, index, _):
            array = arrays[buffer]
            if not array.size:
                return np.zeros((), array.dtype)
            return array[tuple(_value(part, known) for part in index)]
        case Select(condition, Load(buffer, index, _), other):
            array, holds = arrays[buffer], _value(condition, known)
            if not array.size:
                return np.asarray(_elements(other, known, arrays)).astype(array.dtype)
            inside = tuple(
                np.clip(_value(part, known), 0, extent - 1)
                for part, extent in zip(index, array.shape, strict=True)
            )
            fill = np.asarray(_elements(other, known, arrays)).astype(array.dtype)
            return np.where(holds, array[inside], fill)
    raise AssertionError(f"no copy: {value}")


def _value(expr: Expr, known: Mapping[str, Any]) -> Any:
    """An index or a condition over arrays of coordinates."""
    match expr:
        case Const(value, _):
            return int(value)
        case Var(name):
            return known[name]
        case Binary(op, a, b):
            return _BINARY[op](_value(a, known), _value(b, known))
        case Compare(op, a, b):
            return _COMPARE[op](_value(a, known), _value(b, known))
        case Logic("not", (one,)):
            return ~np.asarray(_value(one, known))
        case Logic(op, args):
            join = np.logical_and if op == "and" else np.logical_or
            return join.reduce(np.broadcast_arrays(*(_value(arg, known) for arg in args)))
    raise AssertionError(f"no index: {expr}")


_BINARY = {
    "+": np.add,
    "-": np.subtract,
    "*": np.multiply,
    "//": np.floor_divide,
    "%": np.mod,
    "min": np.minimum,
    "max": np.maximum,
}
_COMPARE = {
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
    "==": np.equal,
    "!=": np.not_equal,
}
