"""The product of 16×16 by 16×8 that a warp computes together, declared: of fragments in registers, and of tiles in shared memory.

Each of the 32 lanes holds 8 elements of A, 4 of B and 4 of C (`layouts`).
"""

from __future__ import annotations

from offcut.backends.gpu.layouts import MMA_A, MMA_B, MMA_C
from offcut.backends.gpu.units import REGISTERS as _REGISTERS
from offcut.backends.gpu.units import SHARED
from offcut.core.sizes import dim
from offcut.describe.functions import reduce_axis
from offcut.describe.functions import sum as sum_over
from offcut.describe.intrinsic import declare
from offcut.describe.microkernel import Microkernel, Place, TileShape, multiples
from offcut.describe.tensor import compute, placeholder
from offcut.describe.value import cast

ROWS, COLUMNS, DEPTH = 16, 8, 16
_CYCLES = 8.0  # of one issue on a tensor core of compute capability 8.0: 256 multiply–adds each


REGISTERS = (_REGISTERS,)
_FRAGMENTS = (("A", MMA_A), ("B", MMA_B), ("C", MMA_C))


def microkernel(dtype: str) -> Microkernel:
    """``C[i, j] = sum over p of float32(A[i, p]) * float32(B[p, j])``, of bfloat16 or float16."""
    a = placeholder((ROWS, DEPTH), dtype, name="A")
    b = placeholder((DEPTH, COLUMNS), dtype, name="B")
    k = reduce_axis(DEPTH, name="p")
    product = compute(
        (ROWS, COLUMNS),
        lambda i, j: sum_over(cast(a[i, k], "float32") * cast(b[k, j], "float32"), axis=k),
        name="C",
    )
    return Microkernel(
        name=f"mma_m16n8k16_{dtype}",
        computes=product,
        tiles=(TileShape((ROWS, COLUMNS), _CYCLES / DEPTH, 0.0),),
        repeats=frozenset({"p"}),
        operands={name: Place(REGISTERS, layout, "fragment") for name, layout in _FRAGMENTS},
        accumulate="adds",
        reset=f"zero_m{ROWS}n{COLUMNS}",
        unit="warp",
        ascending=False,
    )


MAX_TILE = (64, 256, 64)
"""The most rows, columns and terms of a tile in shared memory that one warp multiplies."""


def from_shared(dtype: str) -> Microkernel:
    """``C[i, j] += float32(A[i, p]) * float32(B[p, j])`` of a tile of any extents: A and B in shared memory, C in registers.

    Fragments are loaded 16 terms at a time (``ldmatrix``), and multiplied. Past the end of a tile operands are zero, and the
    result is not stored.
    """
    rows, columns, depth = (
        dim(name, min=1, max=size) for name, size in zip("mnd", MAX_TILE, strict=True)
    )
    a = placeholder((rows, depth), dtype, name="A")
    b = placeholder((depth, columns), dtype, name="B")
    k = reduce_axis(depth, name="p")
    product = compute(
        (rows, columns),
        lambda i, j: sum_over(cast(a[i, k], "float32") * cast(b[k, j], "float32"), axis=k),
        name="C",
    )
    axes = frozenset({"i", "j", "p"})
    return Microkernel(
        name=f"mma_m16n8k16_shared_{dtype}",
        computes=product,
        tiles=(TileShape((ROWS, COLUMNS), _CYCLES / DEPTH, 0.0),),
        bounds={"i": multiples(ROWS), "j": multiples(COLUMNS), "p": multiples(DEPTH)},
        predicates=axes,
        repeats=axes,
        operands={"A": Place((SHARED,)), "B": Place((SHARED,)), "C": Place(REGISTERS)},
        accumulate="adds",
        reset="zero_accumulators",
        unit="warp",
        ascending=False,
    )


MMA = tuple(declare(microkernel(dtype)) for dtype in ("bfloat16", "float16"))
"""The declarations of the instructions of a warp, so that programs may name them."""
