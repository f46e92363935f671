"""What statements access: the expressions of a statement, and buffers accessed at one element only."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence, Set

from offcut.core import index as ix
from offcut.core.accesses import indices, read_arrays
from offcut.core.expr import Expr, Load, children, dtype_of, loads, variables, walk
from offcut.core.program import STATUS, Program, Stmt, Store, Tile, blocks
from offcut.core.program import walk as statements
from offcut.core.traversal import all_bound_names, expressions
from offcut.polyhedral import coefficient


def is_one_element(buffer: str, body: Sequence[Stmt], inner: Set[str] = frozenset()) -> bool:
    """Whether `body` accesses a buffer at one index only, the same wherever `body` is.

    inner   names that are bound around `body`, and make a difference
    """
    found_indices = _indices(buffer, body)
    names = inner | all_bound_names(tuple(body))
    return (
        found_indices is not None
        and len(found_indices) <= 1
        and not any(variables(part) & names for index in found_indices for part in index)
    )


def streamed_buffers(
    body: Sequence[Stmt], memory: Container[str]
) -> Mapping[str, tuple[Expr, ...]]:
    """Where `body` accesses each buffer that it streams through: at the index of a store only.

    Empty where these are not most of its accesses: then it goes over elements again and again. An
    index that is read from an array counts as none: it may be read only where conditions allow.

    memory   the buffers that lie in memory
    """
    stores = [stmt for stmt in statements(tuple(body)) if isinstance(stmt, Store)]
    written = {tuple(map(ix.simplify, s.index)) for s in stores if s.buffer in memory}
    buffers = {store.buffer: None for store in stores}
    buffers |= {load.buffer: None for store in stores for load, _ in loads(store.value)}
    indices_by_buffer: dict[str, tuple[Expr, ...]] = {}
    accesses = 0
    for buffer in buffers:
        if buffer not in memory:
            continue
        accessed = _indices(buffer, body)
        if accessed is None:
            return {}
        accesses += len(accessed)
        if len(accessed) == 1 and accessed <= written:
            (index,) = accessed
            if not any(isinstance(node, Load) for part in index for node in walk(part)):
                indices_by_buffer[buffer] = index
    return indices_by_buffer if 2 * len(indices_by_buffer) > accesses else {}


def store_apart(program: Program, memory: Container[str], body: Sequence[Stmt], axis: str) -> bool:
    """Return whether no two lanes along `axis` write one element, as far as the indices show.

    memory   the buffers that lie in memory
    """
    return all(
        stmt.buffer not in memory
        or program.buffer(stmt.buffer).scope == STATUS
        or any(coefficient(part, axis) != 0 for part in stmt.index)
        for stmt in statements(tuple(body))
        if isinstance(stmt, Store)
    )


def panels_read_by(program: Program, microkernels: Container[str]) -> frozenset[str]:
    """Return the buffers with a layout of their own that tiles of these microkernels read, and nothing else does."""
    panels = {buffer.name for buffer in program.buffers if buffer.layout is not None}

    def others(body: Sequence[Stmt]) -> Iterator[str]:
        for stmt in body:
            if not (isinstance(stmt, Tile) and stmt.microkernel in microkernels):
                yield from read_arrays(expressions(stmt))
                for block in blocks(stmt):
                    yield from others(block)

    return frozenset(panels.difference(others(program.body))) if panels else frozenset()


def loaded_buffers(expr: Expr, always: bool) -> set[str]:
    """The buffers that an expression reads; `always`: only those read whatever its conditions say."""
    return {load.buffer for load, path in loads(expr) if not (always and path)}


def _indices(buffer: str, body: Sequence[Stmt]) -> set[tuple[Expr, ...]] | None:
    """The indices at which `body` accesses a buffer; None where an index is read from it."""
    exprs = (expr for stmt in statements(tuple(body)) for expr in expressions(stmt))
    if buffer in read_arrays(part for expr in exprs for part in _index_parts(expr)):
        return None
    return {tuple(map(ix.simplify, index)) for index in indices(tuple(body), buffer)}


def _index_parts(expr: Expr) -> Iterator[Expr]:
    """The largest parts of an expression that are indices."""
    pending = [expr]
    while pending:
        node = pending.pop()
        if dtype_of(node) == "index":
            yield node
        else:
            pending += children(node)
