"""What a tile of a microkernel takes, operands at hand: whoever predicts it reads it here.

A tile of h rows and n columns that sums d terms, in r calls of its functions, takes::

    tile(h, n, d, r) = ceil(n / width(h)) * (c(h, n) * d + u(h, n) * r)

with c the cycles of a term and u those to start and to end the narrowest tile that holds the columns, as the microkernel
declares them. Loops around the depth of a sum run inside of the functions (`Match.turned`), or call them in each
iteration.

A loop cut into tiles of heights h runs ``sum of count * (c(h) + startup)`` cycles per column, with
c(h) the microkernel's cycles at that height. Without a microkernel of that height, a tile costs as
many cycles as the tallest one does for its share of rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from offcut.core import index as ix
from offcut.core.expr import Binary, Expr, Lookup, real
from offcut.costmodel.device import Device
from offcut.costmodel.machine import Machine
from offcut.describe.microkernel import Microkernel


@dataclass(frozen=True, slots=True)
class TileCycles:
    """Of all tiles of a microkernel, by their rows from 1 on.

    widest  columns of the widest tile
    term    by columns, too: cycles of a term, c
    start   likewise: cycles to start and to end, u
    """

    widest: npt.NDArray[np.int64]
    term: npt.NDArray[np.float64]
    start: npt.NDArray[np.float64]

    @property
    def tallest(self) -> int:
        """The most rows."""
        return len(self.widest) - 1

    def of(self, rows: int, columns: int | None = None) -> tuple[int, float, float]:
        """The columns of the tile that holds so many, a whole one where they are None or more; its c and u."""
        widest = int(self.widest[rows])
        taken = widest if columns is None else min(columns, widest)
        return widest, float(self.term[rows, taken]), float(self.start[rows, taken])

    def by_column(self, rows: int) -> tuple[float, float]:
        """c and u of the widest tile, over its columns."""
        widest, term, start = self.of(rows)
        return term / widest, start / widest

    @property
    def multiply_adds(self) -> float:
        """In a cycle, of the tile and in the terms that take the fewest for each."""
        columns = np.arange(self.term.shape[1])
        rows = np.arange(self.term.shape[0])[:, None]
        done = np.divide(
            rows * columns, self.term, out=np.zeros_like(self.term), where=self.term > 0
        )
        return float(done.max())


@lru_cache(64)
def tile_cycles(kernel: Microkernel) -> TileCycles:
    """Those of a microkernel."""
    tallest = kernel.max_rows
    widest = np.zeros(tallest + 1, np.int64)
    most = max(shape.columns for shape in kernel.tiles)
    term, start = (np.zeros((tallest + 1, most + 1)) for _ in range(2))
    # Of the tiles of a height each holds the columns that the narrower ones do not.
    for shape in sorted(kernel.tiles, key=lambda shape: (shape.rows, shape.columns)):
        own = slice(int(widest[shape.rows]) + 1, shape.columns + 1)
        term[shape.rows, own], start[shape.rows, own] = shape.cycles, shape.startup
        widest[shape.rows] = max(int(widest[shape.rows]), shape.columns)
    for rows in range(tallest - 1, 0, -1):  # rows that no tile has alone run in the next higher one
        if widest[rows] == 0:
            widest[rows], term[rows], start[rows] = (one[rows + 1] for one in (widest, term, start))
    return TileCycles(widest, term, start)


def tile_price(
    kernel: Microkernel, machine: Device
) -> Callable[[Sequence[tuple[Expr, Expr]], int], Expr]:
    """Predicted seconds per column of runs of equal tiles, ``(how many, their height)``.

    The heights are at most the second argument; a run of no tile costs nothing.
    """

    taken = tile_cycles(kernel)

    def price(runs: Sequence[tuple[Expr, Expr]], tile: int) -> Expr:
        tallest = min(tile, taken.tallest)
        table = (0.0, *(sum(taken.by_column(height)) for height in range(1, tallest + 1)))
        total: Expr = real(0.0)
        for count, height in runs:
            one: Expr = Lookup(table, ix.minimum(ix.maximum(height, 0), tallest))
            if tile > tallest:
                above = real(ix.maximum(ix.sub(height, tallest), 0))
                one = Binary("+", one, Binary("*", above, real(table[-1] / tallest)))
            total = Binary("+", total, Binary("*", real(count), one))
        return Binary("*", total, real(1.0 / machine.hertz))

    return price


def copies_worth(machine: Device, stores: int) -> int:
    """How many copies of each of `stores` statements conditions may cost.

    As many as keep all of them in the instruction cache, and compile within the time that a call
    has to win back: ``min(code_bytes / statement_bytes, budget_seconds / statement_seconds)`` in
    all, and at least 2 of each; no more for a machine whose description does not say what code costs.
    """
    if not isinstance(machine, Machine):
        return 2
    cached = machine.core.code_bytes / machine.compiling.statement_bytes
    timely = machine.compiling.budget_seconds / machine.compiling.statement_seconds
    return max(2, int(min(cached, timely)) // max(1, stores))
