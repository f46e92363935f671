"""Softmax and layer norm of rows of every length: offcut against every peer, and the bandwidth.

    python bench/rows.py            # all of it: three minutes
    python bench/rows.py --quick    # a few lengths: under a minute

float32. Rates count each element read once and written once, 8 bytes; the limit is the bandwidth of
reading, so exp is no part of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np

from offcut.experiment.bench import Group, main
from offcut.experiment.contraction import Array
from offcut.experiment.operators import LayerNorm, Softmax
from offcut.experiment.table import Asked

ASKED = Asked(mean=2.0)
LENGTHS = (1, 2, 3, 5, 8, 13, 16, 17, 31, 43, 62, 64, 100, 127, 128, 200, 255, 333, 512, 777)
LONG = (1024, 2047, 2048)
QUICK_LENGTHS = (5, 62, 128, 512)
SOFTMAX_ROWS = 512
ROWS = (1, 2, 5, 8, 17, 43, 64, 100, 128, 512)
QUICK_ROWS = (1, 17, 128)
WIDTHS = (384, 768, 1000)


def softmax(length: int) -> Softmax:
    """Standard normal rows."""
    rng = np.random.default_rng(length)
    return Softmax(rng.standard_normal((SOFTMAX_ROWS, length), dtype=np.float32))


def layer_norm_group(columns: int, rows: Sequence[int]) -> Group:
    """One width, several numbers of rows; gain and bias are drawn once."""
    rng = np.random.default_rng(columns)
    gain, bias = rng.standard_normal((2, columns), dtype=np.float32)

    def task(m: int) -> LayerNorm:
        x: Array = rng.standard_normal((m, columns), dtype=np.float32)
        return LayerNorm(x, gain, bias)

    return Group(f"layer norm of {columns}", {f"{m} rows": partial(task, m) for m in rows})


def groups(quick: bool) -> Iterator[Group]:
    """Softmax, then a group for each width of layer norm."""
    lengths = QUICK_LENGTHS if quick else (*LENGTHS, *LONG)
    rows, widths = (QUICK_ROWS, WIDTHS[1:2]) if quick else (ROWS, WIDTHS)
    yield Group(f"softmax, {SOFTMAX_ROWS} rows", {f"of {n}": partial(softmax, n) for n in lengths})
    for width in widths:
        yield layer_norm_group(width, rows)


if __name__ == "__main__":
    main(__doc__ or "", groups, ASKED)
