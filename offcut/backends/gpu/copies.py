"""Copies between the memories of a GPU, declared.

Source: PTX ISA, "ldmatrix", "cp.async" and "cp.async.bulk.tensor".
"""

from __future__ import annotations

from offcut.backends.executor.steps import MAIN as MAIN_MEMORY
from offcut.backends.gpu import mma
from offcut.backends.gpu.layouts import BOXES, MMA_A
from offcut.backends.gpu.units import SHARED as SHARED_MEMORY
from offcut.backends.gpu.wgmma import WGMMA
from offcut.core.dtypes import ITEM_BYTES
from offcut.core.sizes import dim
from offcut.describe.intrinsic import declare
from offcut.describe.microkernel import Microkernel
from offcut.describe.tensor import compute, placeholder
from offcut.describe.tile_shapes import Place, TileShape

MAIN, SHARED = (MAIN_MEMORY,), (SHARED_MEMORY,)
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
    source = Place(MAIN, beside="p", by="descriptor")
    box = (MAX_BOX, BOXES.multiple[-1])
    return copy("tma_load_2d", box, dtype, source, Place(SHARED, BOXES), "load", "token", True)


def copies(dtype: str) -> tuple[Microkernel, ...]:
    """Return the copies of a type of 16 bits: from shared memory to fragments of a warp, and in bulk both ways."""
    shared, fragment = Place(SHARED, beside="p"), Place(mma.REGISTERS, MMA_A, "fragment")
    target = Place(MAIN, beside="p", by="descriptor")
    box = (MAX_BOX, BOXES.multiple[-1])
    return (
        copy("ldmatrix_x4", (mma.ROWS, mma.DEPTH), dtype, shared, fragment, "warp"),
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
        operands={"A": Place(MAIN, beside=beside), "C": Place(SHARED, beside=beside)},
        unit="load",
        issue="async" if background else "sync",
        wait="token" if background else None,
    )


UNITS = (*WGMMA, *(declare(one) for dtype in ("bfloat16", "float16") for one in copies(dtype)))
"""The declarations of a GPU of compute capability 9.0 beside `mma.MMA`, so that programs may name them."""
