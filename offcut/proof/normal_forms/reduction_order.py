"""The terms of sums in the order in which another program adds them.

Where the terms of an update may be added in any order, the loops over them may change places, if
neither's bounds depend on the other. So a sum over channels and a window of an image can be compared
with one over the window and the channels, side by side.
"""

from __future__ import annotations

from dataclasses import replace

from offcut.core.dtypes import INTEGERS
from offcut.core.expr import loads, variables
from offcut.core.program import For, Program, Stmt, Store
from offcut.core.traversal import bound_names, map_blocks, walk_with_parents

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
        return tuple(turned(stmt) for stmt in body)

    def turned(stmt: Stmt) -> Stmt:
        chain: list[For] = []
        inner = stmt
        while isinstance(inner, For) and len(inner.body) == 1:
            chain.append(inner)
            inner = inner.body[0]
        if not isinstance(inner, Store) or inner.reduce is None or not may_turn(chain, inner):
            return map_blocks(stmt, change)
        index_names = set[str]().union(*map(variables, inner.index))
        return _nested(
            _sorted(chain, index_names, orders.get((inner.buffer, inner.reduce), [])), inner
        )

    def may_turn(chain: list[For], store: Store) -> bool:
        """Whether each term is what it is whatever has been added."""
        asked = [store.value, *store.index, *(end for loop in chain for end in (loop.lo, loop.hi))]
        reads = {load.buffer for expr in asked for load, _ in loads(expr)}
        exact = source.buffer(store.buffer).dtype in INTEGERS or store.reduce != "sum"
        return (reassociate or exact) and store.buffer not in reads

    return replace(source, body=change(source.body))


def _sorted(chain: list[For], index_names: set[str], order: list[str]) -> list[For]:
    """`chain` with the loops over terms, which are innermost, in `order` where they do not depend."""
    first = next((p for p, loop in enumerate(chain) if loop.iter not in index_names), len(chain))
    outer, terms = chain[:first], chain[first:]
    names = {loop.iter for loop in terms}
    bounds = {name for loop in terms for end in (loop.lo, loop.hi) for name in variables(end)}
    if names & (index_names | bounds) or not names <= set(order):
        return chain
    return [*outer, *sorted(terms, key=lambda loop: order.index(loop.iter))]


def _nested(chain: list[For], body: Stmt) -> Stmt:
    for loop in reversed(chain):
        body = replace(loop, body=(body,))
    return body
