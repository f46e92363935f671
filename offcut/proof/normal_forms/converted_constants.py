"""Constants that are converted when they are bound, read as the conversions that they stand for."""

from __future__ import annotations

from dataclasses import replace

from offcut.core.expr import Cast, Expr, Load, rewrite
from offcut.core.program import Kind, Program
from offcut.core.traversal import map_body


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
