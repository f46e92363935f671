"""What statements access: the expressions of a statement, and buffers accessed at one element only."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence, Set
from typing import assert_never

from offcut.core import index as ix
from offcut.core.expr import Expr, Load, dtype_of, loads, variables, walk
from offcut.core.program import Alloc, Choose, For, If, Let, Stmt, Store, Tile
from offcut.core.program import walk as statements


def own_expressions(stmt: Stmt) -> tuple[Expr, ...]:
    """The expressions of a statement itself, not of what is inside it."""
    match stmt:
        case For():
            return (stmt.lo, stmt.hi)
        case If():
            return (stmt.condition,)
        case Let():
            return (stmt.value,)
        case Store():
            return (stmt.value, *stmt.index)
        case Tile():
            ends = tuple(end for axis in stmt.axes for end in (axis.start, axis.extent))
            return ends if stmt.where is None else (*ends, stmt.where)
        case Alloc() | Choose():
            return ()
        case _:
            assert_never(stmt)


def is_one_element(buffer: str, body: Sequence[Stmt], inner: Set[str] = frozenset()) -> bool:
    """Whether `body` accesses a buffer at one index only, the same wherever `body` is.

    inner   names that are bound around `body`, and make a difference
    """
    found = _indices(buffer, body)
    names = inner | _names(body)
    return (
        found is not None
        and len(found) <= 1
        and not any(variables(part) & names for index in found for part in index)
    )


def streams(body: Sequence[Stmt], memory: Container[str]) -> Mapping[str, tuple[Expr, ...]]:
    """Where `body` accesses each buffer that it streams through: at the index of a store only.

    Empty where these are not most of its accesses: then it goes over elements again and again. An
    index that is read from an array counts as none: it may be read only where conditions allow.

    memory   the buffers that lie in memory
    """
    stores = [stmt for stmt in statements(tuple(body)) if isinstance(stmt, Store)]
    written = {tuple(map(ix.simplify, s.index)) for s in stores if s.buffer in memory}
    buffers = {store.buffer: None for store in stores}
    buffers |= {load.buffer: None for store in stores for load, _ in loads(store.value)}
    found: dict[str, tuple[Expr, ...]] = {}
    accesses = 0
    for buffer in buffers:
        if buffer not in memory:
            continue
        indices = _indices(buffer, body)
        if indices is None:
            return {}
        accesses += len(indices)
        if len(indices) == 1 and indices <= written:
            (index,) = indices
            if not any(isinstance(node, Load) for part in index for node in walk(part)):
                found[buffer] = index
    return found if 2 * len(found) > accesses else {}


def begins_with_store(buffer: str, body: Sequence[Stmt]) -> bool:
    """Whether the first access of a buffer is a direct statement of `body` that overwrites it."""
    for stmt in body:
        if isinstance(stmt, Store) and stmt.buffer == buffer and stmt.reduce is None:
            return not reads(stmt.value, buffer)
        touched = any(isinstance(s, Store) and s.buffer == buffer for s in statements((stmt,)))
        inside = (expr for s in statements((stmt,)) for expr in own_expressions(s))
        if touched or any(reads(expr, buffer) for expr in inside):
            return False
    return False


def loaded(expr: Expr, always: bool) -> set[str]:
    """The buffers that an expression reads; `always`: only those read whatever its conditions say."""
    return {load.buffer for load, path in loads(expr) if not (always and path)}


def _indices(buffer: str, body: Sequence[Stmt]) -> set[tuple[Expr, ...]] | None:
    """The indices at which `body` accesses a buffer; None where an index is read from it."""
    found: set[tuple[Expr, ...]] = set()
    for stmt in statements(tuple(body)):
        if isinstance(stmt, Store) and stmt.buffer == buffer:
            found.add(tuple(map(ix.simplify, stmt.index)))
        for node in (node for expr in own_expressions(stmt) for node in walk(expr)):
            if dtype_of(node) == "index" and reads(node, buffer):
                return None
            if isinstance(node, Load) and node.buffer == buffer:
                found.add(tuple(map(ix.simplify, node.index)))
    return found


def reads(expr: Expr, buffer: str) -> bool:
    """Whether an expression loads an element of a buffer."""
    return any(isinstance(node, Load) and node.buffer == buffer for node in walk(expr))


def _names(body: Sequence[Stmt]) -> set[str]:
    """What loops, tiles and bounded values inside `body` bind."""
    found: set[str] = set()
    for stmt in statements(tuple(body)):
        match stmt:
            case For(name) | Let(name):
                found.add(name)
            case Tile():
                found |= {axis.iter for axis in stmt.axes}
            case _:
                pass
    return found
