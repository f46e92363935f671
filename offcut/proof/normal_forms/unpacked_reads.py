"""A cut program -> the same whose tiles without a microkernel read what packed copies are of.

    tile t in 0 +: n, j in 16*v +: 16                      tile t in 0 +: n, j in 16*v +: 16
      P[t, j] = B[t, j]                                      P[t, j] = B[t, j]
    for i in 14*u:14*u + 14                          ->    for i in 14*u:14*u + 14
      tile j in 0 +: 64                                      tile j in 0 +: 64
        for t in 14*u:i + 1                                    for t in 14*u:i + 1
          Y[i, j] += A[i, t] * P[t, j]                           Y[i, j] += A[i, t] * B[t, j]

Rows of a packed copy lie apart; those of what it is of, side by side.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from offcut.core.analysis import analysis
from offcut.core.expr import Cast, Expr, Load, Select, Var, rewrite, substitute
from offcut.core.program import Kind, Program, Stmt, Store, Tile
from offcut.core.traversal import map_body
from offcut.polyhedral import Facts
from offcut.proof.normal_forms.narrowing import TileRewriting, inside_tile


def read_unpacked(program: Program) -> Program:
    """Return `program` whose tiles without a microkernel read what packed copies are of; itself where it packs nothing."""
    copies = _packed_copies(program)
    return _Unpacked(program, copies).result() if copies else program


class _Unpacked(TileRewriting):
    """A program whose tiles without a microkernel read what packed copies are of.

    copies  what packs an operand, by the copy
    """

    def __init__(self, program: Program, copies: Mapping[str, Store]) -> None:
        super().__init__(program)
        self.copies = copies

    def tile(self, tile: Tile, at: Facts) -> tuple[Stmt, ...]:
        if tile.cover is not None:
            return (tile,)
        return (replace(tile, body=self.block(tile.body, inside_tile(tile, at))),)

    def statement(self, stmt: Stmt, at: Facts) -> tuple[Stmt, ...]:
        if not isinstance(stmt, Store):
            return super().statement(stmt, at)

        def rule(node: Expr) -> Expr | None:
            if not isinstance(node, Load) or node.buffer not in self.copies:
                return None
            copy = self.copies[node.buffer]
            places = zip(copy.index, node.index, strict=True)
            values = {part.name: place for part, place in places if isinstance(part, Var)}
            value = substitute(copy.value, values)
            if isinstance(value, Select):
                return value.then if at.holds(value.condition) else None
            return value

        return (replace(stmt, value=rewrite(stmt.value, rule)),)


def _packed_copies(program: Program) -> Mapping[str, Store]:
    """Return the statement that fills a local array with a layout of its own, of those that one statement fills with elements of
    another array, or with these where they are inside of it.
    """
    stores: dict[str, set[Store]] = {}
    for store in analysis(program).of(Store):
        stores.setdefault(store.buffer, set()).add(store)
    copies: dict[str, Store] = {}
    for name, (first, *more) in stores.items():
        buffer, names = program.buffer(name), {p.name for p in first.index if isinstance(p, Var)}
        if more or buffer.kind is not Kind.LOCAL or buffer.layout is None:
            continue
        source = first.value.then if isinstance(first.value, Select) else first.value
        plain = first.reduce is None and len(names) == len(first.index)
        if plain and isinstance(source, Load) and source.buffer not in stores:
            copies[name] = first
    return copies


def with_constants_of(source: Program, emitted: Program) -> Program:
    """Return `emitted` with constants of the types that `source` declares, converted where they are read."""
    declared = {one.name: one for one in source.buffers if one.kind is Kind.CONSTANT}
    other = {
        one.name: declared[one.name].dtype
        for one in emitted.buffers
        if one.kind is Kind.CONSTANT
        and one.name in declared
        and one.dtype != declared[one.name].dtype
    }
    if not other:
        return emitted

    def convert(node: Expr) -> Expr | None:
        if isinstance(node, Load) and node.buffer in other:
            return Cast(replace(node, dtype=other[node.buffer]), node.dtype)
        return None

    buffers = tuple(replace(b, dtype=other.get(b.name, b.dtype)) for b in emitted.buffers)
    body = map_body(emitted.body, lambda expr: rewrite(expr, convert))
    return replace(emitted, buffers=buffers, body=body)
