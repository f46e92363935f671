"""What a tile of a microkernel takes, operands at hand: whoever predicts it reads it here.

A tile of h rows and n columns that sums d terms, in r calls of its functions, takes::

    tile(h, n, d, r) = ceil(n / width(h)) * (c(h, n) * d + u(h, n) * r)

with c the cycles of a term and u those to start and to end the narrowest tile that holds the columns, as the microkernel
declares them. Loops around the depth of a sum run inside of the functions (`Match.turned`), or call them in each
iteration.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

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


@lru_cache(64)
def tile_cycles(kernel: Microkernel) -> TileCycles:
    """Those of a microkernel."""
    tallest = kernel.max_rows
    widest = np.array([0, *(kernel.columns_for(height) for height in range(1, tallest + 1))])
    term, start = (np.zeros((tallest + 1, int(widest.max()) + 1)) for _ in range(2))
    for height in range(1, tallest + 1):
        for width in range(1, int(widest[height]) + 1):
            shape = kernel.tile(height, width)
            term[height, width], start[height, width] = shape.cycles, shape.startup
    return TileCycles(widest, term, start)
