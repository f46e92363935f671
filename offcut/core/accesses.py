"""What statements store and read of which arrays, as their text says it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain

from offcut.core.expr import Expr, Load, all_loads, loads, variables
from offcut.core.program import Alloc, For, Stmt, Store, blocks
from offcut.core.program import walk as statements
from offcut.core.traversal import expressions


def stored_arrays(body: tuple[Stmt, ...]) -> set[str]:
    """Return the arrays that `body` stores."""
    return {stmt.buffer for stmt in statements(body) if isinstance(stmt, Store)}


def read_arrays(exprs: Iterable[Expr]) -> set[str]:
    """Return the arrays that expressions read."""
    return {load.buffer for load in _loads(exprs)}


def element_accesses(stmt: Stmt) -> Iterator[tuple[str, tuple[Expr, ...]]]:
    """Yield the elements that a statement itself stores and reads, not those inside it: an array and an index each."""
    if isinstance(stmt, Store):
        yield stmt.buffer, stmt.index
    for load in _loads(expressions(stmt)):
        yield load.buffer, load.index


def statement_arrays(stmt: Stmt) -> set[str]:
    """Return the arrays that a statement itself stores or reads."""
    read = read_arrays(expressions(stmt))
    return read | {stmt.buffer} if isinstance(stmt, Store) else read


def accessed_arrays(body: tuple[Stmt, ...]) -> set[str]:
    """Return the arrays that `body` stores or reads."""
    return set().union(*map(statement_arrays, statements(body)))


def last_stored(stmt: Stmt) -> str:
    """Return the array that `stmt` stores last; "" if it stores none."""
    return next((s.buffer for s in [*statements((stmt,))][::-1] if isinstance(s, Store)), "")


def indices(body: tuple[Stmt, ...], buffer: str) -> list[tuple[Expr, ...]]:
    """Return the elements of an array that `body` stores and reads."""
    return [
        at for stmt in statements(body) for name, at in element_accesses(stmt) if name == buffer
    ]


def windowed_arrays(body: tuple[Stmt, ...]) -> set[str]:
    """Return the arrays that `body` touches in windows of its own alone."""
    return {
        stmt.buffer for stmt in statements(body) if isinstance(stmt, Alloc)
    } - unwindowed_arrays(body)


def unwindowed_arrays(
    body: tuple[Stmt, ...], outer_windows: frozenset[str] = frozenset()
) -> set[str]:
    """Return the arrays that `body` touches outside of a window of theirs; those `outer_windows` are in one."""
    arrays: set[str] = set()
    for stmt in body:
        inside = outer_windows | {stmt.buffer} if isinstance(stmt, Alloc) else outer_windows
        arrays |= statement_arrays(stmt) - outer_windows
        for block in blocks(stmt):
            arrays |= unwindowed_arrays(block, inside)
    return arrays


def only_reduces(loop: For) -> bool:
    """Return whether a loop does nothing but reduce into elements that do not move with it.

    Each statement has a buffer of its own, which no statement of the loop reads: so what the loop
    carries is the order of these reductions and nothing else.
    """
    stores = [stmt for stmt in loop.body if isinstance(stmt, Store)]
    written = {store.buffer for store in stores}
    read = {
        load.buffer
        for store in stores
        for part in (store.value, *store.index)
        for load, _ in loads(part)
    }
    return (
        0 < len(stores) == len(loop.body) == len(written)
        and not written & read
        and all(store.reduce in ("sum", "max", "min") for store in stores)
        and not any(loop.iter in variables(part) for store in stores for part in store.index)
    )


def _loads(exprs: Iterable[Expr]) -> Iterator[Load]:
    return chain.from_iterable(map(all_loads, exprs))
