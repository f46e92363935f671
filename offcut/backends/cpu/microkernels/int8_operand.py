"""Row-block microkernels whose B stays int8 beside an A of float32: a quarter of the bytes where reading B is what takes time.

They are the row blocks of `fma` in float32, over panels of bytes: a step loads as many bytes as a vector has lanes, and converts them to
float32, which is exact. Products and their order are those of `fma` with B converted beforehand, so the bits are too.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import replace
from functools import partial

from offcut.backends.cpu.machine.isa import Host, Isa
from offcut.backends.cpu.microkernels import fma
from offcut.backends.cpu.microkernels.family import Family, Shapes, Variant
from offcut.backends.cpu.microkernels.llvm_blocks import RowBlock, declarations
from offcut.core.layout import panels
from offcut.describe.microkernel import Microkernel

LINE = 64  # bytes of a line of the caches
SHORT = 1 << 14
"""Bytes of the panels of a tile that are not yet enough to ask for within a panel: a line takes as long from memory as some thousand bytes."""


def families(host: Host) -> Iterator[Family]:
    """Return the one there is, on every host."""
    isa = host.isa
    yield Family(microkernel(isa), partial(symbol, isa), partial(tiles, isa), fma.widths(isa))


def microkernel(isa: Isa) -> Microkernel:
    """Return the row-block microkernel for an A of float32 and a B of int8, as data.

    ``C[i, j] = sum over p of A[i, p] * float32(B[p, j])``. Cost facts: those of `fma`, and what it takes to widen each vector of B
    twice, to integers and to floats, for each term.
    """

    def cycles(rows: int, vectors: int) -> tuple[float, float]:
        widened = 2 * vectors * isa.machine.tiles.widen_cycles
        return fma.step_cycles(isa, rows, vectors) + widened, fma.startup_cycles(isa, rows, vectors)

    layout, dtypes = panels(isa.lanes("float32")), ("float32", "int8", "float32")
    name, shapes = f"fma_int8_{isa.name}", fma.widths(isa)
    kernel = fma.declare_row_block(isa, name, dtypes, cycles, layout, shapes)
    return replace(kernel, repeats=frozenset({"p"}))


def symbol(isa: Isa, variant: Variant, rows: int, vectors: int) -> str:
    """Return the name of the function for a tile of `rows` × `vectors`."""
    return f"oc_fma_int8_{isa.name}_{variant.suffix}_{rows}x{vectors}"


def tiles(isa: Isa, variant: Variant, shapes: Shapes) -> str:
    """Return the LLVM IR of the functions of these (rows, vectors), of `family.TILES`.

    a, c     float32
    b        panels one vector of float32 wide: bytes ``[depth][lanes]``; its step is not read
    """
    functions = ["\n".join(_Bytes(isa, variant, *shape).lines()) for shape in shapes]
    return "\n\n".join([*functions, "\n".join(sorted(declarations(isa, "float32")))])


class _Bytes(RowBlock):
    def __init__(self, isa: Isa, variant: Variant, rows: int, vectors: int) -> None:
        name = symbol(isa, variant, rows, vectors)
        super().__init__(name, isa, "float32", variant, rows, vectors)
        self.b_item = 1

    def opening(self) -> Generator[str, None, tuple[str, str]]:
        """Prefetch B ahead of its use: in short panels where the next tile reads."""
        tiles = self.isa.machine.tiles
        yield f"  %tile_bytes = mul i64 %b_panel, {self.vectors}"
        yield f"  %short = icmp ult i64 %tile_bytes, {SHORT}"
        yield f"  %distance = select i1 %short, i64 %tile_bytes, i64 {tiles.prefetch_bytes}"
        return (yield from super().opening())

    def prefetch(self, address: str) -> Iterator[str]:
        """Ask for a line of what is read later."""
        ahead = self.temp()
        yield f"  {ahead} = getelementptr i8, ptr {address}, i64 %distance"
        yield f"  call void @llvm.prefetch.p0(ptr {ahead}, i32 0, i32 3, i32 1)"

    def b_values(self, label: str, step: int, b_now: str) -> Generator[str, None, list[str]]:
        """Return the bytes of one step, widened."""
        bytes_, words, values = f"<{self.lanes} x i8>", f"<{self.lanes} x i32>", []
        for p in range(self.vectors):
            address, value, wide, real = (self.temp() for _ in range(4))
            yield from self.panel_address(address, b_now, p, step * self.lanes)
            yield f"  {value} = load {bytes_}, ptr {address}, align 1"
            if step * self.lanes % LINE == 0:
                yield from self.prefetch(address)
            yield f"  {wide} = sext {bytes_} {value} to {words}"
            yield f"  {real} = sitofp {words} {wide} to {self.v}"
            values.append(real)
        return values
