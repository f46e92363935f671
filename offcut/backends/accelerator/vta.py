"""What VTA's matrix and vector units do with one word of each of their buffers, declared; nothing
lowers it yet.

A word of inputs is a row of 16 bytes, one of weights a block of 16×16, one of accumulators a row of 16
int32. A larger operand is words one after the other, row by row of blocks; what its blocks lack is
zero. The weights' rows are the columns of the result.

Source: Moreau et al., "A Hardware–Software Blueprint for Flexible Deep Learning Specialization",
IEEE Micro 2019: its default shapes.
"""

from __future__ import annotations

from offcut.core.layout import Digit, Layout
from offcut.describe.functions import reduce_axis
from offcut.describe.functions import sum as sum_over
from offcut.describe.intrinsic import declare
from offcut.describe.microkernel import Microkernel, TileShape
from offcut.describe.tensor import compute, placeholder
from offcut.describe.value import cast

BLOCK = 16


def words(rows: int, across: int) -> Layout:
    """A matrix, ``across`` blocks wide, in blocks of `rows` × 16, one a word.

    word     ``across * (i // rows) + j // 16``
    element  ``16 * (i % rows) + j % 16``
    """
    word = (Digit(1, BLOCK, across, 1), Digit(0, rows, None, across))
    inside = (Digit(1, 1, BLOCK, 1), Digit(0, 1, rows, BLOCK))
    return Layout(
        (
            ("word", tuple(digit for digit in word if digit.extent != 1)),
            ("element", tuple(digit for digit in inside if digit.extent != 1)),
        ),
        (rows, across * BLOCK),
    )


def gemm() -> Microkernel:
    """``C[i, j] = sum over p of int32(A[i, p]) * int32(B[j, p])``, of one row, one a cycle."""
    a = placeholder((1, BLOCK), "int8", name="A")
    b = placeholder((BLOCK, BLOCK), "int8", name="B")
    k = reduce_axis(BLOCK, name="p")
    return Microkernel(
        name="vta_gemm",
        computes=compute(
            (1, BLOCK),
            lambda i, j: sum_over(cast(a[i, k], "int32") * cast(b[j, k], "int32"), axis=k),
            name="C",
        ),
        rows="i",
        columns="j",
        tiles=(TileShape(1, BLOCK, 1.0 / BLOCK, 0.0),),
        predicates=frozenset(),
        panel=BLOCK,
        layouts=(("A", words(1, 1)), ("B", words(BLOCK, 1)), ("C", words(1, 1))),
        unit="matrix unit",
    )


def shift(bits: int) -> Microkernel:
    """``C[i, j] = A[i, j] // 2**bits`` on a word of accumulators: a shift to the right of 1 … 31 bits."""
    a = placeholder((1, BLOCK), "int32", name="A")
    return Microkernel(
        name=f"vta_shift_{bits}",
        computes=compute((1, BLOCK), lambda i, j: a[i, j] // 2**bits, name="C"),
        rows="i",
        columns="j",
        tiles=(TileShape(1, BLOCK, 1.0, 0.0),),
        predicates=frozenset(),
        panel=BLOCK,
        layouts=(("A", words(1, 1)), ("C", words(1, 1))),
        unit="vector unit",
    )


VTA = (declare(gemm()), declare(shift(8)))
"""What it has, by which programs may name it; the shift by a byte stands for the others."""
