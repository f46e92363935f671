"""A program whose results are stored where they end: not laid out otherwise first, and copied after.

A microkernel computes a product in the layout that suits its rows and columns, turned against the
result's. A copy then turns it back, element by element::

    for j in 0:n                                for j in 0:n
      for i in 0:m                                for i in 0:m
        T[j, i] = A[i] * B[j]          ->           Y[i, j] = A[i] * B[j]
    for i in 0:m
      for j in 0:n
        Y[i, j] = T[j, i]

Where nothing touches the result before the copy, nor the local array after it, and the copy is of all
of them, the local array is the result by another name, its axes in another order. And in which order
an array that the program has to itself has its axes makes no difference.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from offcut.core.analysis import accessed_arrays, analysis, stored_arrays
from offcut.core.expr import Expr, Load, Var, rewrite
from offcut.core.program import Alloc, Kind, Program, Stmt, Store
from offcut.core.program import walk as statements
from offcut.core.traversal import map_blocks, map_expressions
from offcut.describe.computation import Names
from offcut.proof.by_instances.pairing import SCRATCH
from offcut.proof.normal_forms.copies import find_whole_copy


def undo_relayout(program: Program, live_buffers: Collection[str] = ()) -> Program:
    """Return `program` with each result, and each array that stays, stored where it ends, in place of the local
    array it is a copy of.

    program   all that it accesses lies inside of its buffers
    live_buffers      arrays that stay, copied or not
    """
    staying = [b for b in program.buffers if b.kind is Kind.LOCAL and b.name in live_buffers]
    window_buffers = analysis(program).windows
    for result in (*program.results, *(one for one in staying if one.name not in window_buffers)):
        storing = [k for k, s in enumerate(program.body) if result.name in stored_arrays((s,))]
        if not storing:
            continue
        first, last = storing[0], storing[-1] + 1
        before, copy, after = (
            program.body[:first],
            program.body[first:last],
            program.body[last:],
        )
        if result.name in accessed_arrays(before):
            continue
        form = find_whole_copy(program, result, copy)
        if form is None or not isinstance(form.value, Load) or form.value.buffer in live_buffers:
            continue
        source = program.buffer(form.value.buffer)
        names = [part.name for part in form.index if isinstance(part, Var)]
        read = [part.name for part in form.value.index if isinstance(part, Var)]
        places = [read.index(name) for name in names if name in read]
        whole = len(places) == len(names) == len(form.index) == len(form.value.index) == len(read)
        if not whole or source.kind is not Kind.LOCAL or source.name in accessed_arrays(after):
            continue
        shape = tuple(source.shape[place] for place in places)
        windows = {stmt.buffer for stmt in statements(before) if isinstance(stmt, Alloc)}
        if (shape, source.dtype) != (result.shape, result.dtype) or source.name in windows:
            continue
        buffers = tuple(buffer for buffer in program.buffers if buffer != source)
        body = tuple(_rename_elements(stmt, source.name, result.name, places) for stmt in before)
        program = replace(program, buffers=buffers, body=(*body, *after))
    return program


def permute_storage_like(program: Program, source: Program) -> Program:
    """Return `program` with the axes of each array that it has to itself in the order that `source` has.

    The order is that of the names in the index of the first store in either.
    """
    for mine in program.buffers:
        theirs = next((b for b in source.buffers if b.name == mine.name), None)
        if theirs is None or mine.kind not in SCRATCH or theirs.kind not in SCRATCH:
            continue
        here, there = _first_index(program, mine.name), _first_index(source, mine.name)
        if here == there or set(here) != set(there) or len(here) != len(mine.shape):
            continue
        places = [here.index(name) for name in there]
        shape = tuple(mine.shape[place] for place in places)
        windows = analysis(program).windows
        if shape != theirs.shape or mine.name in windows:
            continue
        buffers = tuple(replace(b, shape=shape) if b == mine else b for b in program.buffers)
        body = tuple(_rename_elements(stmt, mine.name, mine.name, places) for stmt in program.body)
        program = replace(program, buffers=buffers, body=body)
    return program


def rename_conflicts(program: Program, source: Program) -> Program:
    """Return `program` with names of their own for its arrays that are of another shape in `source`."""
    theirs = {buffer.name: buffer for buffer in source.buffers}
    names = Names(sorted({*theirs, *(buffer.name for buffer in program.buffers)}))
    for mine in program.buffers:
        other = theirs.get(mine.name)
        if other is None or mine.kind not in SCRATCH or mine.shape == other.shape:
            continue
        fresh, places = names.fresh(mine.name), list(range(len(mine.shape)))
        buffers = tuple(replace(b, name=fresh) if b == mine else b for b in program.buffers)
        body = tuple(_rename_elements(stmt, mine.name, fresh, places) for stmt in program.body)
        program = replace(program, buffers=buffers, body=body)
    return program


def _first_index(program: Program, buffer: str) -> list[str]:
    """Return the names in the index of the first store of `buffer`; none where it is of anything else."""
    stores = (s for s in analysis(program).of(Store) if s.buffer == buffer)
    index = next((store.index for store in stores), ())
    names = [part.name for part in index if isinstance(part, Var)]
    return names if len(set(names)) == len(index) else []


def _rename_elements(stmt: Stmt, old: str, new: str, places: list[int]) -> Stmt:
    """Return `stmt` with each element of `old` as the one of `new` whose axis k is its axis ``places[k]``."""

    def rule(node: Expr) -> Expr | None:
        if not isinstance(node, Load) or node.buffer != old:
            return None
        return replace(node, buffer=new, index=tuple(node.index[place] for place in places))

    def stores(inner: Stmt) -> Stmt:
        if isinstance(inner, Alloc) and inner.buffer == old:
            inner = replace(inner, buffer=new, axes=tuple(inner.axes[p] for p in places))
        if isinstance(inner, Store) and inner.buffer == old:
            return replace(inner, buffer=new, index=tuple(inner.index[p] for p in places))
        return map_blocks(inner, lambda body: tuple(map(stores, body)))

    return stores(map_expressions(stmt, lambda expr: rewrite(expr, rule)))
