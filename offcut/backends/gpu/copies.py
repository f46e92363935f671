"""Products of a warpgroup and copies between the memories of a GPU, declared.

Source: PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions", "ldmatrix", "cp.async" and
"cp.async.bulk.tensor".
"""

from __future__ import annotations

from offcut.backends.gpu import mma
from offcut.backends.gpu.layouts import MMA_A
from offcut.backends.gpu.units import MAIN as MAIN_MEMORY
from offcut.backends.gpu.units import SHARED as SHARED_MEMORY
from offcut.core.dtypes import ITEM_BYTES
from offcut.core.sizes import dim
from offcut.describe.functions import reduce_axis
from offcut.describe.functions import sum as sum_over
from offcut.describe.intrinsic import declare
from offcut.describe.microkernel import Microkernel, Place, TileShape, multiples
from offcut.describe.tensor import compute, placeholder
from offcut.describe.value import cast

MAIN, SHARED = (MAIN_MEMORY,), (SHARED_MEMORY,)
WGMMA_ROWS, WGMMA_DEPTH, WGMMA_COLUMNS = 64, 16, 256
CELL_BYTES = 16
"""Bytes that ``cp.async`` copies at once, at a multiple of them."""
_MAX_BOX = 256  # elements of a box of a bulk copy, along an axis


def warpgroup_product(dtype: str) -> Microkernel:
    """``C[i, j] += float32(A[i, p]) * float32(B[p, j])`` of 64 rows, A and B in shared memory by descriptors."""
    n, depth = dim("n", min=8, max=WGMMA_COLUMNS, multiple_of=8), dim("d", multiple_of=WGMMA_DEPTH)
    a = placeholder((WGMMA_ROWS, depth), dtype, name="A")
    b = placeholder((depth, n), dtype, name="B")
    k = reduce_axis(depth, name="p")
    return Microkernel(
        f"wgmma_m64nNk16_{dtype}",
        compute(
            (WGMMA_ROWS, n),
            lambda i, j: sum_over(cast(a[i, k], "float32") * cast(b[k, j], "float32"), axis=k),
            name="C",
        ),
        tuple(
            TileShape((WGMMA_ROWS, columns), columns / 2 / WGMMA_DEPTH, 0.0)
            for columns in range(8, WGMMA_COLUMNS + 1, 8)
        ),
        bounds={"p": multiples(WGMMA_DEPTH)},
        repeats=frozenset({"p"}),
        operands={
            "A": Place((*SHARED, *mma.REGISTERS), by="descriptor"),
            "B": Place(SHARED, by="descriptor"),
            "C": Place(mma.REGISTERS, by="fragment"),
        },
        accumulate="both",
        unit="warpgroup",
        features=frozenset({"sm_90a"}),
        issue="async",
        wait="group",
        ascending=False,
    )


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

    box  whether smaller rectangles are copied as well, and elements outside of an array are left out
    """
    rows, columns = dim("i", min=1, max=shape[0]), dim("p", min=1, max=shape[1])
    a = placeholder((rows, columns) if box else shape, dtype, name="A")
    return Microkernel(
        f"{name}_{dtype}",
        compute(a.shape, lambda i, p: a[i, p], name="C", axes=("i", "p")),
        (TileShape(shape, 1.0, 0.0),),
        predicates=frozenset({"i", "p"} if box else ()),
        repeats=frozenset({"i"} if not box else ()),
        operands={"A": source, "C": target},
        unit=unit,
        issue="sync" if wait is None else "async",
        wait=wait,
    )


def copies(dtype: str) -> tuple[Microkernel, ...]:
    """Return the copies of a type of 16 bits: from shared memory to fragments of a warp, and in bulk both ways."""
    shared, main = Place(SHARED, beside="p"), Place(MAIN, beside="p")
    fragment = Place(mma.REGISTERS, MMA_A, "fragment")
    bulk = (_MAX_BOX, 64)  # of 128 bytes a row
    return (
        copy("ldmatrix_x4", (mma.ROWS, mma.DEPTH), dtype, shared, fragment, "warp"),
        copy("tma_load_2d", bulk, dtype, main, shared, "load", "token", box=True),
        copy("tma_store_2d", bulk, dtype, shared, main, "store", "group", box=True),
    )


def rows(dtype: str, background: bool) -> Microkernel:
    """``C[i, p] = A[i, p]`` of any rectangle, by the lanes of the load unit: from main to shared memory.

    background  True: cells of 16 bytes move while the unit goes on (``cp.async``), and rows begin at multiples of a cell;
                False: elements move through registers
    """
    cell = CELL_BYTES // ITEM_BYTES[dtype] if background else 1
    beside = "p" if background else ""
    a = placeholder((dim("i", min=1, max=_MAX_BOX), dim("p", min=1, max=_MAX_BOX)), dtype, name="A")
    both = frozenset({"i", "p"})
    return Microkernel(
        f"{'cp_async' if background else 'copy'}_rows_{dtype}",
        compute(a.shape, lambda i, p: a[i, p], name="C", axes=("i", "p")),
        (TileShape((1, cell), 1.0, 0.0),),
        predicates=both,
        repeats=both,
        operands={"A": Place(MAIN, beside=beside), "C": Place(SHARED, beside=beside)},
        unit="load",
        issue="async" if background else "sync",
        wait="token" if background else None,
    )


UNITS = tuple(
    declare(kernel)
    for dtype in ("bfloat16", "float16")
    for kernel in (warpgroup_product(dtype), *copies(dtype))
)
"""The declarations of a GPU of compute capability 9.0 beside `mma.MMA`, so that programs may name them."""
