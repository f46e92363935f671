"""The product of 16×16 by 16×8 that a warp computes together, declared: of fragments in registers, and of tiles in shared memory.

Each of the 32 lanes holds 8 elements of A, 4 of B and 4 of C (`layouts`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from offcut.backends.gpu.layouts import MMA_A, MMA_B, MMA_C
from offcut.backends.gpu.units import REGISTERS as _REGISTERS
from offcut.backends.gpu.units import SHARED
from offcut.core.sizes import dim
from offcut.describe.functions import reduce_axis
from offcut.describe.functions import sum as sum_over
from offcut.describe.intrinsic import declare
from offcut.describe.microkernel import Microkernel
from offcut.describe.tensor import compute, placeholder
from offcut.describe.tile_shapes import Place, TileShape, multiples
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
    depth: int = DEPTH
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
            tiles=(TileShape((ROWS, COLUMNS), self.cycles / self.depth, 0.0),),
            bounds={"i": multiples(ROWS), "j": multiples(COLUMNS), "p": multiples(self.depth)},
            predicates=axes,
            repeats=axes,
            operands={"A": Place((SHARED,)), "B": Place((SHARED,)), "C": Place(REGISTERS)},
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
            depth=2 * DEPTH,
            primitive="multiply_tile_of_bytes",
        )
        for a, b in _BYTES
    ),
    *(
        Product(f"fma_shared_{one}", one, one, one, 1, "multiply_tile_on_lanes", 4.0)
        for one in _LANES
    ),
    Product("mma_m16n8k8_shared_tf32", *3 * ("float32",), DEPTH // 2, "multiply_tile_of_tf32"),
)
"""Products of tiles in shared memory: a policy takes the first that computes a stage. Lanes multiply what has no instruction of its own,
term by term. Of float32 ``tf32`` multiplies on tensor cores, rounded to 10 bits behind the point: where a schedule names it, and not otherwise.
"""
BY_NAME: Mapping[str, Product] = {one.name: one for one in PRODUCTS}


MMA = tuple(declare(microkernel(dtype)) for dtype in _HALVES)
"""The declarations of the instructions of a warp, so that programs may name them."""
