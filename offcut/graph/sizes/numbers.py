"""Extents as hosts know them: a number where an extent is one, else an index expression in the form of all extents."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

from offcut.core import index as ix
from offcut.core.expr import Binary, Const, Expr
from offcut.core.program import Size
from offcut.graph.sizes import extents

Extent: TypeAlias = "Expr | int"


def plain(value: Extent) -> Extent:
    """Return an extent in the form of all extents, a number where it is one."""
    normal = extents.normal(value)
    return int(normal.value) if isinstance(normal, Const) else normal


def extent(*parts: Extent) -> Extent:
    """Return the sum of extents."""
    total: Expr = ix.const(0)
    for part in parts:
        total = Binary("+", total, ix.index(part))
    return plain(total)


def arithmetic(op: str, a: Extent, b: Extent) -> Extent:
    """Return ``a op b`` of extents: one of ``+ - * // % min max``."""
    return plain(Binary(op, ix.index(a), ix.index(b)))


def product(values: Iterable[Extent]) -> Extent:
    """Return the product of extents; 1 of none."""
    return plain(extents.product(map(ix.index, values)))


TYPICAL = 64
"""Of a size; one of a narrower range takes its nearest."""


def typical_sizes(sizes: Sequence[Size]) -> dict[str, int]:
    """A value for each size."""
    return {size.name: _typical(size) for size in sizes}


def _typical(size: Size) -> int:
    near = min(max(TYPICAL, size.min), size.max)
    return near - near % size.multiple_of
