"""Arrays that the host fills before a stream runs: elements of others, at sums of loops, constants around.

All elements at once, by arrays of indices; where a condition fails nothing is read. What is no copy is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from offcut.backends.accelerator.lowering.python_codegen import Values
from offcut.backends.accelerator.spec import AcceleratorSpec
from offcut.core.accesses import accessed_arrays
from offcut.core.expr import (
    Binary,
    Compare,
    Const,
    Expr,
    Load,
    Logic,
    Select,
    Var,
    loads,
    reads_memory,
    variables,
)
from offcut.core.interpret.values import NUMPY
from offcut.core.program import For, Program, Stmt, Store
from offcut.core.text.printer import format_expr, format_stmt
from offcut.errors import TargetError

Array = np.ndarray[Any, Any]


def is_host(program: Program, stmt: Stmt) -> bool:
    """Whether a statement fills an array in main memory from others there."""
    scoped = {buffer.name for buffer in program.buffers if buffer.scope is not None}
    while isinstance(stmt, For) and len(stmt.body) == 1:
        stmt = stmt.body[0]
    return isinstance(stmt, Store) and not accessed_arrays((stmt,)) & scoped and stmt.reduce is None


def check_copy(program: Program, stmt: Stmt, spec: AcceleratorSpec) -> None:
    """Refuse a statement of the host that is no copy of whole boxes.

    Raises TargetError.
    """
    loops, store = _nest(stmt)
    names = {name for name, _, _ in loops}
    bounds = set().union(*(variables(lo) | variables(hi) for _, lo, hi in loops))
    because = _no_copy(store.value)
    if names & bounds:
        because = "its loops are bounded by one another, and the host fills boxes"
    elif not all(map(_is_index, store.index)):
        because = "it is stored where memory says"
    elif store.buffer in {load.buffer for load, _ in loads(store.value)}:
        because = f"it reads {store.buffer}, which it fills"
    if because is not None:
        raise TargetError(
            "compile",
            f"cannot run a statement for {spec.name} on the host",
            at=format_stmt(store),
            because=because,
            help=(
                "the host copies elements, or constants where a condition fails",
                f"{program.buffer(store.buffer).name} in a memory of the machine, which computes",
            ),
        )


def _no_copy(value: Expr) -> str | None:
    """Why a value is no copy; None where it is one."""
    match value:
        case Const():
            return None
        case Load(index=index) if all(map(_is_index, index)):
            return None
        case Select(condition, Load(index=index), Const()) if all(map(_is_index, index)):
            return None if _is_index(condition) else "its condition reads memory"
        case Load() | Select(_, Load(), Const()):
            return "it reads where memory says"
    return f"{format_expr(value)} is no element"


def _is_index(expr: Expr) -> bool:
    """Whether coordinates alone say what it is."""
    return not reads_memory(expr)


def _nest(stmt: Stmt) -> tuple[list[tuple[str, Expr, Expr]], Store]:
    """The loops around a statement, outermost first."""
    loops: list[tuple[str, Expr, Expr]] = []
    while isinstance(stmt, For):
        loops.append((stmt.iter, stmt.lo, stmt.hi))
        stmt = stmt.body[0]
    assert isinstance(stmt, Store)
    return loops, stmt


def run_host_copies(stmt: Stmt, arrays: Mapping[str, Array], into: Array, sizes: Values) -> Array:
    """`into`, where a nest of copies fills it; elsewhere what was there stays."""
    loops, store = _nest(stmt)
    rank = len(loops)
    known: dict[str, Any] = dict(sizes)
    for at, (name, lo, hi) in enumerate(loops):
        counted = np.arange(int(_value(lo, known)), int(_value(hi, known)))
        known[name] = counted.reshape([-1 if axis == at else 1 for axis in range(rank)])
    counts = [known[name].size for name, _, _ in loops]
    if 0 not in counts:
        place = tuple(np.broadcast_to(_value(part, known), counts) for part in store.index)
        into[place] = np.broadcast_to(_elements(store.value, known, arrays), counts)
    return into


def _elements(value: Expr, known: Mapping[str, Any], arrays: Mapping[str, Array]) -> Any:
    match value:
        case Const(number, _):
            return number
        case Load(buffer, index, _):
            return arrays[buffer][tuple(_value(part, known) for part in index)]
        case Select(condition, Load(buffer, index, _), Const(fill, _)):
            array, holds = arrays[buffer], _value(condition, known)
            if not array.size:
                return fill
            inside = tuple(
                np.clip(_value(part, known), 0, extent - 1)
                for part, extent in zip(index, array.shape, strict=True)
            )
            return np.where(holds, array[inside], np.array(fill, array.dtype))
    raise AssertionError(f"no copy: {value}")


def _value(expr: Expr, known: Mapping[str, Any]) -> Any:
    """An index or a condition over arrays of coordinates."""
    match expr:
        case Const(value, _):
            return int(value)
        case Var(name):
            return known[name]
        case Binary(op, a, b) | Compare(op, a, b):
            return NUMPY[op](_value(a, known), _value(b, known))
        case Logic("not", (one,)):
            return ~np.asarray(_value(one, known))
        case Logic(op, args):
            join = np.logical_and if op == "and" else np.logical_or
            return join.reduce(np.broadcast_arrays(*(_value(arg, known) for arg in args)))
    raise AssertionError(f"no index: {expr}")
