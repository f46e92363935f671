"""Row-block microkernels whose B stays bfloat16: half the bytes where reading B is what takes time.

They are the row blocks of `fma` in float32, over panels in which two terms of a column lie side by
side. A bfloat16 is the upper half of a float32: a step loads 32 bits of each column for two terms,
shifts the first up, and masks the second, one instruction a vector. Products and their order are
those of `fma` with B converted beforehand, so the bits are too.

Where the depth is no multiple of the unrolled loop, the steps left over load the pair again, and
shift by what the parity of the term says.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from functools import partial

from offcut.backends.cpu.machine.isa import Host, Isa
from offcut.backends.cpu.microkernels import fma
from offcut.backends.cpu.microkernels.family import Family, Shapes, Variant
from offcut.backends.cpu.microkernels.llvm_blocks import RowBlock, declarations
from offcut.core.layout import panels
from offcut.describe.microkernel import Microkernel

TERMS = 2  # of a column side by side
_UPPER = -65536  # the bits of a float32 that a bfloat16 has


def families(host: Host) -> Iterator[Family]:
    """The one there is, on every host."""
    isa = host.isa
    yield Family(microkernel(isa), partial(symbol, isa), partial(tiles, isa), fma.widths(isa))


def microkernel(isa: Isa) -> Microkernel:
    """The row-block microkernel for an A of float32 and a B of bfloat16, as data.

    ``C[i, j] = sum over p of A[i, p] * float32(B[p, j])``. Cost facts: those of `fma`, and what
    it takes to widen each vector of B, for each term, in the units that multiply.
    """

    def cycles(rows: int, vectors: int) -> tuple[float, float]:
        widened = vectors * isa.machine.tiles.widen_cycles
        return fma.step_cycles(isa, rows, vectors) + widened, fma.startup_cycles(isa, rows, vectors)

    layout = panels(isa.lanes("float32"), TERMS, TERMS)
    dtypes = "float32", "bfloat16", "float32"
    return fma.declare_row_block(
        isa, f"fma_bfloat16_{isa.name}", dtypes, cycles, layout, fma.widths(isa)
    )


def symbol(isa: Isa, variant: Variant, rows: int, vectors: int) -> str:
    """The name of the function for a tile of `rows` × `vectors`."""
    return f"oc_fma_bfloat16_{isa.name}_{variant.suffix}_{rows}x{vectors}"


def tiles(isa: Isa, variant: Variant, shapes: Shapes) -> str:
    """LLVM IR of the functions of these (rows, vectors), of `family.TILES`.

    a, c     float32
    b        panels one vector of float32 wide: elements ``[ceil(depth / 2)][lanes][2]``; its step is
             not read
    """
    functions = ["\n".join(_Halves(isa, variant, *shape).lines()) for shape in shapes]
    return "\n\n".join([*functions, "\n".join(sorted(declarations(isa, "float32")))])


class _Halves(RowBlock):
    def __init__(self, isa: Isa, variant: Variant, rows: int, vectors: int) -> None:
        name = symbol(isa, variant, rows, vectors)
        super().__init__(name, isa, "float32", variant, rows, vectors)
        self.b_item = self.item // TERMS
        self.words = f"<{self.lanes} x i32>"
        self.pairs: list[str] = []

    def b_values(self, label: str, step: int, b_now: str) -> Generator[str, None, list[str]]:
        """One term of B, widened: the loop takes pairs, what is left over one of a pair."""
        if label == "rest":
            return (yield from self.left_over())
        if step % TERMS == 0:
            self.pairs = []
            for p in range(self.vectors):
                offset = step * self.lanes * self.b_item
                self.pairs.append((yield from self.pair(b_now, p, offset)))
        found = []
        for pair in self.pairs:
            found.append((yield from (self.upper(pair) if step % TERMS else self.lower(pair))))
        return found

    def left_over(self) -> Generator[str, None, list[str]]:
        pair, at, base, odd, shift, one, splat = (self.temp() for _ in range(7))
        yield f"  {pair} = lshr i64 %rest_k, 1"
        yield f"  {at} = mul i64 {pair}, {self.lanes * self.item}"
        yield f"  {base} = getelementptr i8, ptr %mid_b, i64 {at}"
        yield f"  {odd} = trunc i64 %rest_k to i1"
        yield f"  {shift} = select i1 {odd}, i32 0, i32 16"
        yield f"  {one} = insertelement {self.words} poison, i32 {shift}, i32 0"
        yield (
            f"  {splat} = shufflevector {self.words} {one}, {self.words} poison, "
            f"<{self.lanes} x i32> zeroinitializer"
        )
        found = []
        for p in range(self.vectors):
            value, up = (yield from self.pair(base, p, 0)), self.temp()
            yield f"  {up} = shl {self.words} {value}, {splat}"
            found.append((yield from self.upper(up)))
        return found

    def pair(self, base: str, p: int, offset: int) -> Generator[str, None, str]:
        """Two terms of the columns of panel `p`, 32 bits each; those further on are asked for."""
        address, value = self.temp(), self.temp()
        yield from self.panel_address(address, base, p, offset)
        yield f"  {value} = load {self.words}, ptr {address}, align {self.b_item}"
        yield from self.prefetch(address)
        return value

    def lower(self, pair: str) -> Generator[str, None, str]:
        up, value = self.temp(), self.temp()
        yield f"  {up} = shl {self.words} {pair}, {self.all('16')}"
        yield f"  {value} = bitcast {self.words} {up} to {self.v}"
        return value

    def upper(self, pair: str) -> Generator[str, None, str]:
        high, value = self.temp(), self.temp()
        yield f"  {high} = and {self.words} {pair}, {self.all(str(_UPPER))}"
        yield f"  {value} = bitcast {self.words} {high} to {self.v}"
        return value

    def all(self, value: str) -> str:
        """A vector of words that are all alike."""
        return "<" + ", ".join([f"i32 {value}"] * self.lanes) + ">"
