"""What a tile of a microkernel takes in one call of its functions, as an index expression in thousandths of cycles; of more rows
than it has in turn.
"""

from __future__ import annotations

from collections.abc import Callable
from math import ceil

from offcut.core import index as ix
from offcut.core.expr import Expr
from offcut.costmodel.closed.counts import Counts
from offcut.costmodel.closed.summation import chosen
from offcut.costmodel.machine import Machine
from offcut.costmodel.tile_cycles import tile_cycles
from offcut.describe.microkernel import Microkernel

THOUSANDTHS = 1000


def cycles(
    kernel: Microkernel,
    rows: Expr,
    columns: Expr,
    depth: Expr,
    most: int | None = None,
    times: float = 1.0,
) -> Expr:
    """Thousandths of cycles of a tile.

    most  columns that one call of a function takes; None: as many as its widest tile of these rows has
    times  how much longer it takes than with operands as it likes them
    """
    scale = THOUSANDTHS * times
    taken = tile_cycles(kernel)
    tallest, width = taken.tallest, ix.literal_value(columns)
    if most is not None:
        width = most if width is None else min(width, most)

    def of_height(height: int) -> Expr:
        widest, term, start = taken.of(height, width)
        once = ix.add(ix.mul(round(term * scale), depth), round(start * scale))
        return ix.mul(ix.ceildiv(columns, widest if most is None else min(widest, most)), once)

    known = ix.literal_value(rows)
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


def copy_counts(vectors: Expr, machine: Machine) -> Counts:
    """Of so many vectors that are copied from one place to another."""
    loops = machine.loops
    each = round((2 * loops.vector_cycles + loops.lane_iterate_cycles) * THOUSANDTHS)
    return Counts(instructions=ix.mul(2 * THOUSANDTHS, vectors), cycles=ix.mul(each, vectors))


def staging_counts(rows: Expr, height: Expr, vectors: Expr, machine: Machine) -> Counts:
    """Of rows of so many vectors that are copied, and of zeros up to a height: each vector is stored once, each of a row loaded."""
    stored, loaded = ix.mul(height, vectors), ix.mul(rows, vectors)
    each = round(machine.loops.vector_cycles * THOUSANDTHS)
    step = round(machine.loops.lane_iterate_cycles * THOUSANDTHS)
    return Counts(
        instructions=ix.mul(THOUSANDTHS, ix.add(stored, loaded)),
        cycles=ix.add(ix.mul(each + step, stored), ix.mul(each, loaded)),
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
