"""Where instructions of a GPU have their operands: fragments in registers of lanes, and rows in shared memory.

A register is counted by its elements: two of 16 bits share one. In fours, lanes hold neighbours along one axis.

Source: PTX ISA, "Matrix Fragments for mma.m16n8k16 with floating point type", "Register Fragments for
wgmma.mma_async.m64nNk16", "Swizzling Modes" of tensors.
"""

from __future__ import annotations

from dataclasses import replace

from offcut.core.layout import Digit, Layout, Swizzle
from offcut.core.text.layouts import layout_of

MMA_A = layout_of("digits(lane: 1//2%4 0%8, element: 1%2 0//8%2 1//8%2)")
"""Of A[i, p], 16 × 16: lane ``4 * (i % 8) + p % 8 // 2``, element ``p % 2 + 2 * (i // 8) + 4 * (p // 8)``.

``ldmatrix.x4`` loads it so, and ``stmatrix.x4`` stores it, from rows of 16 bytes: lane l holds the address of row l % 16,
of the left half for l < 16."""

MMA_B = layout_of("digits(lane: 0//2%4 1%8, element: 0%2 0//8%2)")
"""Of B[p, j], 16 × 8: lane ``4 * j + p % 8 // 2``, element ``p % 2 + 2 * (p // 8)``."""

MMA_C = layout_of("digits(lane: 1//2%4 0%8, element: 1%2 0//8%2)")
"""Of C[i, j], 16 × 8: lane ``4 * (i % 8) + j // 2``, element ``j % 2 + 2 * (i // 8)``."""

WGMMA_A = layout_of("digits(thread: 1//2%4 0%8 0//16%4, element: 1%2 0//8%2 1//8%2)")
"""Of A[i, p], 64 × 16, in registers of a warpgroup: 16 rows a warp, as `MMA_A`."""

WGMMA_D = layout_of("digits(thread: 1//2%4 0%8 0//16%4, register: 1%2 0//8%2 1//8)")
"""Of D[i, j], 64 × n with n from 8 to 256 by 8: thread ``32 * (i // 16) + 4 * (i % 8) + j % 8 // 2``,
register ``j % 2 + 2 * (i // 8 % 2) + 4 * (j // 8)``."""

SWIZZLES = {32: Swizzle(1, 4, 7), 64: Swizzle(2, 4, 7), 128: Swizzle(3, 4, 7)}
"""Of shared memory, by the bytes of a row: cells of 16 bytes change places, so that a column of 8 of them is read at once."""


def shared_rows(row_bytes: int, item_bytes: int) -> Layout:
    """Return boxes one after the other, each of rows of so many bytes, swizzled, as TMA writes and wgmma reads them.

    row_bytes   32, 64 or 128

    Rows are rounded up to 8, and a row to whole boxes.
    """
    across = row_bytes // item_bytes
    places = (
        ("box", (Digit(1, across, None, 1),)),
        ("row", (Digit(0, 1, None, 1),)),
        ("element", (Digit(1, 1, across, 1),)),
    )
    return replace(Layout(places, (8, across)), swizzle=SWIZZLES[row_bytes])


BOXES = replace(shared_rows(128, 2), multiple=(64, 64))
"""Of elements of 16 bits, in boxes of 64 columns, and of multiples of 64 rows, which an instruction takes at once."""
ATOM_BYTES = 1024
"""What windows of boxes begin at multiples of: 8 rows of 128 bytes, within which cells change places."""
