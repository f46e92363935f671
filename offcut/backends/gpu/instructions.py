"""The instructions of a GPU, declared: copies, products of warps and of warpgroups, and where their operands lie.

The product of 16×16 by 16×8 that a warp computes together, declared: of fragments in registers, and of tiles in shared memory.

Each of the 32 lanes holds 8 elements of A, 4 of B and 4 of C (`layouts`).

Where instructions of a GPU have their operands: fragments in registers of lanes, and rows in shared memory.

A register is counted by its elements: two of 16 bits share one. In fours, lanes hold neighbours along one axis.

Source: PTX ISA, "Matrix Fragments for mma.m16n8k16 with floating point type", "Register Fragments for
wgmma.mma_async.m64nNk16", "Swizzling Modes" of tensors.

The product of 64 rows that a warpgroup computes together, declared: A and B in shared memory by descriptors, C in registers.

Source: PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions", "Strides" and "Canonical layouts".

Copies between the memories of a GPU, declared.

Source: PTX ISA, "ldmatrix", "cp.async" and "cp.async.bulk.tensor".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from offcut.backends.executor.steps import MAIN as MAIN_MEMORY
from offcut.backends.gpu.units import REGISTERS, SHARED
from offcut.backends.gpu.units import REGISTERS as _REGISTERS
from offcut.backends.gpu.units import SHARED as SHARED_MEMORY
from offcut.core.dtypes import ITEM_BYTES
from offcut.core.layout import Digit, Layout, Swizzle
from offcut.core.sizes import dim
from offcut.core.text.layouts import layout_of
from offcut.describe.functions import reduce_axis
from offcut.describe.functions import sum as sum_over
from offcut.describe.intrinsic import declare
from offcut.describe.microkernel import Microkernel
from offcut.describe.tensor import compute, placeholder
from offcut.describe.tile_shapes import Place, TileShape, multiples
from offcut.describe.value import cast

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


MMA_ROWS, COLUMNS, MMA_DEPTH = 16, 8, 16
_CYCLES = 8.0  # of one issue on a tensor core of compute capability 8.0: 256 multiply–adds each


FRAGMENTS = (_REGISTERS,)
_FRAGMENTS = (("A", MMA_A), ("B", MMA_B), ("C", MMA_C))


def microkernel(dtype: str) -> Microkernel:
    """``C[i, j] = sum over p of float32(A[i, p]) * float32(B[p, j])``, of bfloat16 or float16."""
    a = placeholder((MMA_ROWS, MMA_DEPTH), dtype, name="A")
    b = placeholder((MMA_DEPTH, COLUMNS), dtype, name="B")
    k = reduce_axis(MMA_DEPTH, name="p")
    product = compute(
        (MMA_ROWS, COLUMNS),
        lambda i, j: sum_over(cast(a[i, k], "float32") * cast(b[k, j], "float32"), axis=k),
        name="C",
    )
    return Microkernel(
        name=f"mma_m16n8k16_{dtype}",
        computes=product,
        tiles=(TileShape((MMA_ROWS, COLUMNS), _CYCLES / MMA_DEPTH, 0.0),),
        repeats=frozenset({"p"}),
        operands={name: Place(FRAGMENTS, layout, "fragment") for name, layout in _FRAGMENTS},
        accumulate="adds",
        reset=f"zero_m{MMA_ROWS}n{COLUMNS}",
        unit="warp",
        ascending=False,
    )


MAX_TILE = (64, 256, 64)
"""The most rows, columns and terms of a tile in shared memory that one warp multiplies."""


@dataclass(frozen=True)
class Product:
    """A product of tiles in shared memory that a warp computes, fragment by fragment.

    name       of its microkernel
    a, b, sum  the types of its operands and of its result
    depth      terms of one issue
    primitive  the function that the text of kernels calls
    cycles     of one issue for 16 rows by 8 columns
    """

    name: str
    a: str
    b: str
    sum: str
    depth: int = MMA_DEPTH
    primitive: str = "multiply_tile"
    cycles: float = _CYCLES

    @property
    def kernel(self) -> Microkernel:
        """Return ``C[i, j] += sum(A[i, p]) * sum(B[p, j])`` of a tile of any extents: A and B in shared memory, C in registers.

        Fragments are loaded `depth` terms at a time, and multiplied. Past the end of a tile operands are zero, and the result is not
        stored.
        """
        rows, columns, depth = (
            dim(name, min=1, max=size) for name, size in zip("mnd", MAX_TILE, strict=True)
        )
        a = placeholder((rows, depth), self.a, name="A")
        b = placeholder((depth, columns), self.b, name="B")
        k = reduce_axis(depth, name="p")
        product = compute(
            (rows, columns),
            lambda i, j: sum_over(cast(a[i, k], self.sum) * cast(b[k, j], self.sum), axis=k),
            name="C",
        )
        axes = frozenset({"i", "j", "p"})
        return Microkernel(
            name=self.name,
            computes=product,
            tiles=(TileShape((MMA_ROWS, COLUMNS), self.cycles / self.depth, 0.0),),
            bounds={"i": multiples(MMA_ROWS), "j": multiples(COLUMNS), "p": multiples(self.depth)},
            predicates=axes,
            repeats=axes,
            operands={"A": Place((SHARED,)), "B": Place((SHARED,)), "C": Place(FRAGMENTS)},
            accumulate="adds",
            reset="zero_accumulators",
            unit="warp",
            ascending=self.depth == 1,
        )


_HALVES = ("bfloat16", "float16")
_BYTES = (("int8", "int8"), ("uint8", "int8"), ("uint8", "uint8"))
_LANES = ("float32", "float64", "int32")
PRODUCTS = (
    *(Product(f"mma_m16n8k16_shared_{one}", one, one, "float32") for one in _HALVES),
    *(
        Product(
            f"mma_m16n8k32_shared_{a if a == b else f'{a}_{b}'}",
            *(a, b, "int32"),
            depth=2 * MMA_DEPTH,
            primitive="multiply_tile_of_bytes",
        )
        for a, b in _BYTES
    ),
    *(
        Product(f"fma_shared_{one}", one, one, one, 1, "multiply_tile_on_lanes", 4.0)
        for one in _LANES
    ),
    Product("mma_m16n8k8_shared_tf32", *3 * ("float32",), MMA_DEPTH // 2, "multiply_tile_of_tf32"),
)
"""Products of tiles in shared memory: a policy takes the first that computes a stage. Lanes multiply what has no instruction of its own,
term by term. Of float32 ``tf32`` multiplies on tensor cores, rounded to 10 bits behind the point: where a schedule names it, and not otherwise.
"""
BY_NAME: Mapping[str, Product] = {one.name: one for one in PRODUCTS}


MMA = tuple(declare(microkernel(dtype)) for dtype in _HALVES)
"""The declarations of the instructions of a warp, so that programs may name them."""


WGMMA_ROWS, WGMMA_DEPTH, STEP, MAX_COLUMNS = 64, 16, 8, 256
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
            TileShape((WGMMA_ROWS, columns), columns / 2 / WGMMA_DEPTH, 0.0)
            for columns in range(STEP, MAX_COLUMNS + 1, STEP)
        ),
        bounds={"i": multiples(WGMMA_ROWS), "p": multiples(WGMMA_DEPTH)},
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


MAIN_BLOCK, SHARED_BLOCK = (MAIN_MEMORY,), (SHARED_MEMORY,)
CELL_BYTES = 16
"""Bytes that ``cp.async`` copies at once, at a multiple of them."""
MAX_BOX = 256
"""Rows of a box of a bulk copy, at most."""


def copy(
    name: str,
    shape: tuple[int, int],
    dtype: str,
    source: Place,
    target: Place,
    unit: str,
    wait: str | None = None,
    box: bool = False,
) -> Microkernel:
    """``C[i, p] = A[i, p]`` from one memory to another.

    box  whether one issue copies boxes side by side and smaller rectangles as well, and leaves out what is outside of an
         array: past its end, a load fills the rest of a box with zeros, and a store writes nothing
    """
    rows, columns = dim("i", min=1, max=shape[0]), dim("p", min=1, max=shape[1])
    a = placeholder((rows, columns) if box else shape, dtype, name="A")
    return Microkernel(
        f"{name}_{dtype}",
        compute(a.shape, lambda i, p: a[i, p], name="C", axes=("i", "p")),
        (TileShape(shape, 1.0, 0.0),),
        predicates=frozenset({"i", "p"} if box else ()),
        repeats=frozenset({"i", "p"} if box else {"i"}),
        operands={"A": source, "C": target},
        unit=unit,
        features=frozenset({"sm_90a"} if box else ()),
        issue="sync" if wait is None else "async",
        wait=wait,
    )


def boxes(dtype: str) -> Microkernel:
    """``C[i, p] = A[i, p]`` of boxes of an array, by its tensor map, into a window in boxes (``cp.async.bulk.tensor``)."""
    source = Place(MAIN_BLOCK, beside="p", by="descriptor")
    box = (MAX_BOX, BOXES.multiple[-1])
    return copy(
        "tma_load_2d", box, dtype, source, Place(SHARED_BLOCK, BOXES), "load", "token", True
    )


def copies(dtype: str) -> tuple[Microkernel, ...]:
    """Return the copies of a type of 16 bits: from shared memory to fragments of a warp, and in bulk both ways."""
    shared, fragment = Place(SHARED_BLOCK, beside="p"), Place(FRAGMENTS, MMA_A, "fragment")
    target = Place(MAIN_BLOCK, beside="p", by="descriptor")
    box = (MAX_BOX, BOXES.multiple[-1])
    return (
        copy("ldmatrix_x4", (MMA_ROWS, MMA_DEPTH), dtype, shared, fragment, "warp"),
        boxes(dtype),
        copy("tma_store_2d", box, dtype, shared, target, "store", "group", True),
    )


def rows(dtype: str, background: bool) -> Microkernel:
    """``C[i, p] = A[i, p]`` of any rectangle, by the lanes of the load unit: from main to shared memory.

    background  True: cells of 16 bytes move while the unit goes on (``cp.async``), and rows begin at multiples of a cell;
                False: elements move through registers
    """
    cell = CELL_BYTES // ITEM_BYTES[dtype] if background else 1
    beside = "p" if background else ""
    a = placeholder((dim("i", min=1, max=MAX_BOX), dim("p", min=1, max=MAX_BOX)), dtype, name="A")
    both = frozenset({"i", "p"})
    return Microkernel(
        f"{'cp_async' if background else 'copy'}_rows_{dtype}",
        compute(a.shape, lambda i, p: a[i, p], name="C", axes=("i", "p")),
        (TileShape((1, cell), 1.0, 0.0),),
        predicates=both,
        repeats=both,
        operands={"A": Place(MAIN_BLOCK, beside=beside), "C": Place(SHARED_BLOCK, beside=beside)},
        unit="load",
        issue="async" if background else "sync",
        wait="token" if background else None,
    )


UNITS = (*WGMMA, *(declare(one) for dtype in ("bfloat16", "float16") for one in copies(dtype)))
"""The declarations of a GPU of compute capability 9.0 beside `mma.MMA`, so that programs may name them."""
