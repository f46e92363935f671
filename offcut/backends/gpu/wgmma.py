"""The product of 64 rows that a warpgroup computes together, declared: A and B in shared memory by descriptors, C in registers.

Source: PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions", "Strides" and "Canonical layouts".
"""

from __future__ import annotations

from offcut.backends.gpu.layouts import BOXES, WGMMA_D
from offcut.backends.gpu.units import REGISTERS, SHARED
from offcut.core.sizes import dim
from offcut.describe.functions import reduce_axis
from offcut.describe.functions import sum as sum_over
from offcut.describe.intrinsic import declare
from offcut.describe.microkernel import Microkernel
from offcut.describe.tensor import compute, placeholder
from offcut.describe.tile_shapes import Place, TileShape, multiples
from offcut.describe.value import cast

ROWS, DEPTH, STEP, MAX_COLUMNS = 64, 16, 8, 256
"""Rows and terms of an instruction; its columns are multiples of `STEP`, up to `MAX_COLUMNS`."""
MAX_TERMS = 256
"""Terms of a stage of the ring, at most."""
RESET = "zero_accumulators_m64"
"""The cover of a tile that starts sums in registers of a warpgroup."""


def product(dtype: str, a_rows: str = "i", b_rows: str = "p") -> Microkernel:
    """``C[i, j] += float32(A[i, p]) * float32(B[p, j])`` of any number of 64 rows, in one group.

    a_rows, b_rows  the axes along which rows of a box lie one after the other: "i" or "p", "p" or "j"; the others lie side by
                    side

    Past the end of a tile, operands are zero along the terms, and sums are not stored along rows and columns.
    """
    rows, columns, terms = dim("m", min=1), dim("n", min=1, max=MAX_COLUMNS), dim("d", min=1)
    a = placeholder((rows, terms), dtype, name="A")
    b = placeholder((terms, columns), dtype, name="B")
    k = reduce_axis(terms, name="p")
    contiguous = ("k" if a_rows == "i" else "m") + ("n" if b_rows == "p" else "k")
    own = frozenset({"i", "j", "p"})
    return Microkernel(
        f"wgmma_m64nNk16_{contiguous}_{dtype}",
        compute(
            (rows, columns),
            lambda i, j: sum_over(cast(a[i, k], "float32") * cast(b[k, j], "float32"), axis=k),
            name="C",
        ),
        tuple(
            TileShape((ROWS, columns), columns / 2 / DEPTH, 0.0)
            for columns in range(STEP, MAX_COLUMNS + 1, STEP)
        ),
        bounds={"i": multiples(ROWS), "p": multiples(DEPTH)},
        predicates=own,
        repeats=frozenset({"i", "p"}),
        operands={
            "A": Place((SHARED,), BOXES if a_rows == "i" else BOXES.on(1, 0), "descriptor"),
            "B": Place((SHARED,), BOXES if b_rows == "p" else BOXES.on(1, 0), "descriptor"),
            "C": Place((REGISTERS,), WGMMA_D, "fragment"),
        },
        accumulate="adds",
        reset=RESET,
        unit="warpgroup",
        features=frozenset({"sm_90a"}),
        issue="async",
        wait="group",
        ascending=False,
    )


WGMMA = tuple(
    declare(product(dtype, a_rows, b_rows))
    for dtype in ("bfloat16", "float16")
    for a_rows in ("i", "p")
    for b_rows in ("p", "j")
)
"""The declarations for all ways in which operands lie, so that programs may name them."""
