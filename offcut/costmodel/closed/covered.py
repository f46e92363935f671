"""What a tile of a microkernel takes: cycles by its height, width and depth, as an index expression in thousandths.

With c(h) cycles per term and u(h) to start, of the tile of h rows that is as wide as is needed, a block of h rows by n
columns and d terms takes ``ceil(n / width(h)) * (c(h) d + u(h))``.
"""

from __future__ import annotations

from collections.abc import Callable
from math import ceil

from offcut.core import index as ix
from offcut.core.expr import Expr
from offcut.costmodel.closed.summation import chosen
from offcut.describe.microkernel import Microkernel

THOUSANDTHS = 1000


def cycles(kernel: Microkernel, rows: Expr, columns: Expr, depth: Expr) -> Expr:
    """Thousandths of cycles of a tile."""
    tallest = kernel.max_rows
    width = ix.literal(columns)

    def of_height(height: int) -> Expr:
        widest = kernel.columns_for(height)
        shape = kernel.tile(height, widest if width is None else min(width, widest))
        calls = ix.ceildiv(columns, shape.columns)
        term, start = round(shape.cycles * THOUSANDTHS), round(shape.startup * THOUSANDTHS)
        return ix.mul(calls, ix.add(ix.mul(term, depth), start))

    known = ix.literal(rows)
    if known is not None:
        whole, rest = divmod(known, tallest)
        left = of_height(rest) if rest else ix.const(0)
        return ix.add(ix.mul(whole, of_height(tallest)), left)
    return _by_height(rows, 1, tallest, of_height)


def operations_issued(
    kernel: Microkernel, rows: Expr, columns: Expr, depth: Expr, lanes: int
) -> Expr:
    """Instructions of a tile: of each term a load for each vector of columns, and a multiply–add for each of its rows."""
    vectors = ix.ceildiv(columns, lanes)
    return ix.mul(
        ix.mul(vectors, ix.add(rows, 1)),
        ix.floordiv(ix.add(depth, kernel.interleave - 1), kernel.interleave),
    )


def _by_height(rows: Expr, low: int, high: int, of: Callable[[int], Expr]) -> Expr:
    """A table by the height, which is in ``low … high``, by halves."""
    if low == high:
        return of(low)
    middle = ceil((low + high) / 2) - 1
    return chosen(
        ix.compare("<=", rows, middle),
        _by_height(rows, low, middle, of),
        _by_height(rows, middle + 1, high, of),
    )
