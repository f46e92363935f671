"""The product of 16×16 by 16×8 that a warp computes together, declared; nothing lowers it yet.

Each of the 32 lanes holds 8 elements of A, 4 of B and 4 of C; two of 16 bits share a register, so a
register is counted here by its elements. In fours, lanes hold neighbouring columns of a row of A and
of C, and neighbouring rows of a column of B.

Source: PTX ISA, "Matrix Fragments for mma.m16n8k16 with floating point type".
"""

from __future__ import annotations

from offcut.core.layout import Digit, Layout
from offcut.describe.functions import reduce_axis
from offcut.describe.functions import sum as sum_over
from offcut.describe.intrinsic import declare
from offcut.describe.microkernel import Microkernel, Place, TileShape
from offcut.describe.tensor import compute, placeholder
from offcut.describe.value import cast

ROWS, COLUMNS, DEPTH, LANES = 16, 8, 16, 32
_CYCLES = 8.0  # of one issue on a tensor core of compute capability 8.0: 256 multiply–adds each


def _fragment(
    lane: tuple[Digit, ...], element: tuple[Digit, ...], shape: tuple[int, int]
) -> Layout:
    return Layout((("lane", lane), ("element", element)), shape)


A = _fragment(
    (Digit(0, 1, 8, 4), Digit(1, 2, 4, 1)),
    (Digit(1, 1, 2, 1), Digit(0, 8, 2, 2), Digit(1, 8, 2, 4)),
    (ROWS, DEPTH),
)
"""Of A[i, p]: lane ``4 * (i % 8) + p % 8 // 2``, element ``p % 2 + 2 * (i // 8) + 4 * (p // 8)``."""

B = _fragment(
    (Digit(0, 2, 4, 1), Digit(1, 1, 8, 4)),
    (Digit(0, 1, 2, 1), Digit(0, 8, 2, 2)),
    (DEPTH, COLUMNS),
)
"""Of B[p, j]: lane ``4 * j + p % 8 // 2``, element ``p % 2 + 2 * (p // 8)``."""

C = _fragment(
    (Digit(0, 1, 8, 4), Digit(1, 2, 4, 1)),
    (Digit(1, 1, 2, 1), Digit(0, 8, 2, 2)),
    (ROWS, COLUMNS),
)
"""Of C[i, j]: lane ``4 * (i % 8) + j // 2``, element ``j % 2 + 2 * (i // 8)``."""


REGISTERS = ("registers",)
_FRAGMENTS = (("A", A), ("B", B), ("C", C))


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


MMA = tuple(declare(microkernel(dtype)) for dtype in ("bfloat16", "float16"))
"""What a warp has, by which programs may name it."""
