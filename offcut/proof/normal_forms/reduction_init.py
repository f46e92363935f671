"""A program -> the same with each sum in one form: its start stored first, its terms added to that.

A sum may be made by itself and added to its start, or start from it; with its terms in any order that is
the same sum::

    P[i] = -0.0                                 D[i] = S[i]
    for k in 0:n                                for k in 0:n
      P[i] += A[i, k]               ->            D[i] += A[i, k]
    D[i] = S[i] + P[i]

And an array that a program updates is an input, copied to the result before all else, that it updates.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from offcut.core import index as ix
from offcut.core.analysis import indices, read_arrays
from offcut.core.dtypes import FLOATS, INTEGERS, is_identity
from offcut.core.expr import Binary, Const, Expr, Load, Var, loads, rewrite, variables
from offcut.core.program import For, Kind, Program, Stmt, Store, walk
from offcut.core.traversal import (
    bound_names,
    expressions,
    inside_loops,
    map_blocks,
    map_expressions,
    walk_with_parents,
)


def normalize_reductions(
    source: Program, emitted: Program, reassociate: bool
) -> tuple[Program, Program]:
    """Return two programs whose numbers, updates and sums are in one form.

    reassociate  whether the terms of a sum may be added in any order
    """
    source, emitted = with_floats(source), with_floats(emitted)
    source = promote_updates(source, emitted)
    if reassociate:
        emitted = normalize_init(emitted, {buffer.name for buffer in source.buffers})
    return source, emitted


def normalize_init(program: Program, live_buffers: Collection[str]) -> Program:
    """Return `program` with its sums starting from what they are added to, where a local array held them.

    live_buffers   arrays that stay
    """
    for buffer in program.buffers:
        if buffer.kind not in (Kind.PRIVATE, Kind.LOCAL) or buffer.name in live_buffers:
            continue
        body = _start_at_addition(program.body, buffer.name)
        if not indices(body, buffer.name):
            buffers = tuple(other for other in program.buffers if other != buffer)
            program = replace(program, buffers=buffers, body=body)
    return program


def _start_at_addition(body: tuple[Stmt, ...], name: str) -> tuple[Stmt, ...]:
    """Return `body` with the sums that it makes in the array of that name where they are added."""
    statements: list[Stmt] = []
    position = 0
    while position < len(body):
        here = _sum(body[position : position + 3], name)
        statements += here or [
            map_blocks(body[position], lambda inner: _start_at_addition(inner, name))
        ]
        position += 3 if here else 1
    return tuple(statements)


def _sum(body: tuple[Stmt, ...], name: str) -> list[Stmt]:
    """Return a start, the terms and what is added to, as a sum that starts from that; nothing where it is none."""
    match body:
        case (Store(first, at, Const(number, dtype), None), terms, Store(_, index, value, None)):
            pass
        case _:
            return []
    last = body[2]
    assert isinstance(last, Store)
    if first != name or not is_identity("sum", number, dtype) or not isinstance(value, Binary):
        return []
    whole = Load(name, at, dtype)
    if value.op != "+" or whole not in (value.a, value.b):
        return []
    start = value.a if value.b == whole else value.b
    inside = [stmt for stmt in walk((terms,)) if isinstance(stmt, Store)]
    reads = read_arrays(expr for stmt in walk((terms,)) for expr in expressions(stmt))
    mine = all((s.buffer, s.index, s.reduce) == (name, at, "sum") for s in inside)
    if not mine or last.buffer in reads | {name} or name in reads | read_arrays((start, *index)):
        return []

    def added(stmt: Stmt) -> Stmt:
        if isinstance(stmt, Store):
            return replace(stmt, buffer=last.buffer, index=index)
        return map_blocks(stmt, lambda inner: tuple(map(added, inner)))

    return [replace(last, value=start), added(terms)]


def with_floats(program: Program) -> Program:
    """Return `program` with each number of a float type as a float, and shapes in one form."""

    def rule(node: Expr) -> Expr | None:
        if not isinstance(node, Const) or node.dtype not in FLOATS or isinstance(node.value, float):
            return None
        return Const(float(node.value), node.dtype)

    body = tuple(map_expressions(stmt, lambda expr: rewrite(expr, rule)) for stmt in program.body)
    shapes = (tuple(map(ix.simplify, buffer.shape)) for buffer in program.buffers)
    pairs = zip(program.buffers, shapes, strict=True)
    return replace(program, buffers=tuple(replace(b, shape=s) for b, s in pairs), body=body)


def promote_updates(source: Program, emitted: Program) -> Program:
    """Return `source` with what it updates as an input and a result, where `emitted` has these."""
    for mine, theirs in zip(source.results, emitted.results, strict=False):
        names = {b.name: b for b in emitted.buffers}
        before = names.get(mine.name)
        if mine.kind is not Kind.INOUT or theirs.name == mine.name:
            continue
        if before is None or before.kind is not Kind.INPUT or theirs.kind is not Kind.OUTPUT:
            continue
        source = _copy_before_update(source, mine.name, theirs.name)
    return source


def _copy_before_update(program: Program, name: str, result: str) -> Program:
    """Return `program` with the array that it updates copied to `result` before all else."""

    def rule(node: Expr) -> Expr | None:
        if not isinstance(node, Load) or node.buffer != name:
            return None
        return replace(node, buffer=result)

    def rewrite_statement(stmt: Stmt) -> Stmt:
        if isinstance(stmt, Store) and stmt.buffer == name:
            return replace(stmt, buffer=result)
        return map_blocks(stmt, lambda inner: tuple(map(rewrite_statement, inner)))

    whole = program.buffer(name)
    point = tuple(Var(f"{name}_axis{k}") for k in range(len(whole.shape)))
    copy: Stmt = Store(result, point, Load(name, point, whole.dtype))
    for axis, extent in zip(reversed(point), reversed(whole.shape), strict=True):
        copy = For(axis.name, ix.const(0), extent, (copy,))
    body = tuple(
        rewrite_statement(map_expressions(stmt, lambda expr: rewrite(expr, rule)))
        for stmt in program.body
    )
    buffers = [replace(b, kind=Kind.INPUT) if b == whole else b for b in program.buffers]
    buffers.append(replace(whole, name=result, kind=Kind.OUTPUT))
    return replace(program, buffers=tuple(buffers), body=(copy, *body))


# The terms of sums in the order in which another program adds them.
#
# Where the terms of an update may be added in any order, the loops over them may change places, if
# neither's bounds depend on the other. So a sum over channels and a window of an image can be compared
# with one over the window and the channels, side by side.

Orders = dict[tuple[str, str], list[str]]  # (buffer, reducer) -> iterators, outermost first


def reorder_terms_like(emitted: Program, source: Program, reassociate: bool) -> Program:
    """`source`, its sums in the order of loops that `emitted` has where they may be.

    reassociate   whether float sums may; those of integers, greatest and least elements always may
    """
    orders: Orders = {}
    for stmt, path in walk_with_parents(emitted):
        if isinstance(stmt, Store) and stmt.reduce is not None:
            names = [name for outer, _ in path for name in bound_names(outer)]
            orders.setdefault((stmt.buffer, stmt.reduce), names)

    def change(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        return tuple(reorder(stmt) for stmt in body)

    def reorder(stmt: Stmt) -> Stmt:
        chain: list[For] = []
        inner = stmt
        while isinstance(inner, For) and len(inner.body) == 1:
            chain.append(inner)
            inner = inner.body[0]
        if not isinstance(inner, Store) or inner.reduce is None or not may_turn(chain, inner):
            return map_blocks(stmt, change)
        held = set[str]().union(*map(variables, inner.index))
        order = orders.get((inner.buffer, inner.reduce), [])
        return inside_loops(_terms_in_order(chain, held, order), (inner,))[0]

    def may_turn(chain: list[For], store: Store) -> bool:
        """Whether each term is what it is whatever has been added."""
        asked = [store.value, *store.index, *(end for loop in chain for end in (loop.lo, loop.hi))]
        reads = {load.buffer for expr in asked for load, _ in loads(expr)}
        exact = source.buffer(store.buffer).dtype in INTEGERS or store.reduce != "sum"
        return (reassociate or exact) and store.buffer not in reads

    return replace(source, body=change(source.body))


def _terms_in_order(chain: list[For], held: set[str], order: list[str]) -> list[For]:
    """`chain` with the loops over terms, which are innermost, in `order` where they do not depend."""
    first = next((p for p, loop in enumerate(chain) if loop.iter not in held), len(chain))
    outer, terms = chain[:first], chain[first:]
    names = {loop.iter for loop in terms}
    bounds = {name for loop in terms for end in (loop.lo, loop.hi) for name in variables(end)}
    if names & (held | bounds) or not names <= set(order):
        return chain
    return [*outer, *sorted(terms, key=lambda loop: order.index(loop.iter))]
