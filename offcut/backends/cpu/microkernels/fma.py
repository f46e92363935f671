"""Row-block microkernels for sums of products: `rows` × `vectors` accumulators in registers.

One function computes ``C[0:rows, 0:columns] (+)= sum over k of A[row, k] * B[k, column]``. Per step
of k it loads `vectors` registers of B, broadcasts one element of A for each row, and does
``rows * vectors`` multiply–adds. It may run up to two loops around k as well, as a convolution has over
its window: then the accumulators stay in registers from the first term to the last. Every element of C is one chain of multiply–adds in ascending k,
whatever the shape of the tile it falls into: that is why results are batch-invariant bit for bit.

The functions are LLVM IR (`llvm_blocks`), or assembly where there is some for the host (`avx512_blocks`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial

from offcut.backends.cpu.machine.isa import Host, Isa
from offcut.backends.cpu.microkernels import avx512_blocks
from offcut.backends.cpu.microkernels.avx512_blocks import FMA, Block
from offcut.backends.cpu.microkernels.family import Family, Shapes, Variant
from offcut.backends.cpu.microkernels.llvm_blocks import RowBlock, declarations
from offcut.core.layout import Layout
from offcut.core.panels import panels
from offcut.core.sizes import dim
from offcut.describe.functions import reduce_axis
from offcut.describe.functions import sum as sum_over
from offcut.describe.microkernel import Microkernel
from offcut.describe.tensor import compute, placeholder
from offcut.describe.tile_shapes import Place, TileShape
from offcut.describe.value import Value, cast


def widths(isa: Isa, in_place: bool = False) -> dict[int, tuple[int, ...]]:
    """Rows of a tile -> the widths there are, in vectors, widest first.

    in_place   whether B may be read where it lies, as rows, and not from panels alone
    """
    tiles = isa.machine.tiles
    first, *others = tiles.vectors_32 if isa.registers >= 32 else tiles.vectors_16
    widest = (first if in_place else min(first, tiles.row_panels), *others)
    return {rows: tuple(range(most, 0, -1)) for rows, most in enumerate(widest, start=1)}


def families(host: Host) -> Iterator[Family]:
    """Those of float32 and float64, which every host has."""
    isa = host.isa
    written = emit_assembly if avx512_blocks.are_for(host) else emit_llvm
    for dtype in ("float32", "float64"):
        yield Family(
            microkernel(isa, dtype),
            partial(symbol, isa, dtype),
            partial(written, isa, dtype),
            widths(isa, in_place=True),
            halves=written is emit_assembly,
        )


def microkernel(isa: Isa, dtype: str) -> Microkernel:
    """The row-block microkernel of an instruction set, declared as data.

    Cost facts: a step takes what its ``rows*vectors`` multiply–adds take, its ``rows + vectors``
    loads, or the latency of one, whichever is the longest.
    """

    def cycles(rows: int, vectors: int) -> tuple[float, float]:
        return step_cycles(isa, rows, vectors), startup_cycles(isa, rows, vectors)

    layout = panels(isa.lanes(dtype))
    name = f"fma_{dtype}_{isa.name}"
    shapes = widths(isa, in_place=True)
    return replace(
        declare_row_block(isa, name, (dtype,) * 3, cycles, layout, shapes), repeats=frozenset({"p"})
    )


def declare_row_block(
    isa: Isa,
    name: str,
    dtypes: tuple[str, str, str],
    cycles: Callable[[int, int], tuple[float, float]],
    layout: Layout,
    shapes: Mapping[int, tuple[int, ...]],
    features: frozenset[str] | None = None,
    ascending: bool = True,
    beside: bool = False,
    scaled: bool = False,
) -> Microkernel:
    """A row-block microkernel as data: ``C[i, j] = sum over p of A[i, p] * B[p, j]``.

    dtypes    of A, of B, and of what both are converted to, which C has
    cycles    predicted, by rows and vectors: of one term, and to start a tile and to end it
    layout    of B
    shapes    rows -> widths, as `widths` gives them
    features  that it needs; None: the instruction set's
    beside    whether the terms of a row of A lie next to each other
    scaled    whether B is multiplied by S[j], which has one value for all terms
    """
    a_dtype, b_dtype, into = dtypes
    lanes = isa.lanes(into)
    m = dim("m", min=1, max=max(shapes))
    n = dim("n", min=1, max=lanes * max(max(w) for w in shapes.values()))
    k = reduce_axis(dim("k"), name="p")
    a = placeholder((m, dim("k")), a_dtype, name="A")
    b = placeholder((dim("k"), n), b_dtype, name="B")
    s = placeholder((n,), into, name="S")

    def term(i: Value, j: Value) -> Value:
        x, y = a[i, k], b[k, j]
        x, y = (v if v.dtype == into else cast(v, into) for v in (x, y))
        return sum_over(x * (y * s[j] if scaled else y), axis=k)

    return Microkernel(
        name=name,
        computes=compute((m, n), term, name="C"),
        tiles=tuple(
            TileShape((rows, vectors * lanes), *cycles(rows, vectors))
            for rows, options in shapes.items()
            for vectors in options
        ),
        predicates=frozenset({"i", "j", "p"}),
        operands={
            "A": Place(beside="p" if beside else ""),
            "B": Place(layout=layout, beside="j"),
            "C": Place(beside="j"),
            **({"S": Place(beside="j")} if scaled else {}),
        },
        features=isa.features if features is None else features,
        ascending=ascending,
    )


def step_cycles(isa: Isa, rows: int, vectors: int) -> float:
    """Predicted cycles of one step of k, operands in the nearest cache."""
    core = isa.machine.core
    arithmetic = rows * vectors / (core.multiply_adds if isa.fma else core.multiply_adds / 2)
    return max(arithmetic, (rows + vectors) / core.loads, core.latency_cycles)


def startup_cycles(isa: Isa, rows: int, vectors: int) -> float:
    """Predicted cycles to start a tile and to end it."""
    tiles = isa.machine.tiles
    return tiles.startup_cycles + tiles.accumulator_cycles * rows * vectors


def symbol(isa: Isa, dtype: str, variant: Variant, rows: int, vectors: int) -> str:
    """The name of the function for a tile of `rows` × `vectors`."""
    return f"oc_fma_{dtype}_{isa.name}_{variant.suffix}_{rows}x{vectors}"


def emit_llvm(isa: Isa, dtype: str, variant: Variant, shapes: Shapes) -> str:
    """LLVM IR of the functions of these (rows, vectors); strides are in bytes, `last` in columns."""
    blocks = (
        RowBlock(symbol(isa, dtype, variant, *shape), isa, dtype, variant, *shape)
        for shape in shapes
    )
    functions = ["\n".join(block.lines()) for block in blocks]
    return "\n\n".join([*functions, "\n".join(sorted(declarations(isa, dtype)))])


def emit_assembly(isa: Isa, dtype: str, variant: Variant, shapes: Shapes) -> str:
    """The same functions in assembly."""
    blocks = (
        Block(symbol(isa, dtype, variant, *shape), isa, FMA[dtype], variant, *shape)
        for shape in shapes
    )
    return "\n\n".join(block.text() for block in blocks)
