"""Row-block microkernels whose B is narrower than its float32 A: fewer bytes where reading B is what takes time.

They are the row blocks of `fma` in float32. A step loads words that hold a term, or two neighbouring terms, of each column of a panel, and
widens them to float32, which is exact. Products and their order are those of `fma` with B converted beforehand, so the bits are too.

bfloat16   two terms to a word of 32 bits: a bfloat16 is the upper half of a float32, so the first is upper_term up, and the second masked
int8       a byte for each term, converted to an integer and to a float
int8, of constants whose elements have 4 bits
           two terms to a byte, the first in its lower half: the upper half is upper_term down with its sign; the lower one is looked up in a
           register of the sixteen values, or upper_term up and down again

Where the depth is no multiple of the unrolled loop, the steps left over load the pair again, and shift by what the parity of the
term says. The second term of the last pair of an odd depth is zero.

Integers may have a scale for each column, which does not move along the terms, but along the loops around them: those of a block have
one. Terms of a block are added up first, and their sum is multiplied once: ``C[i, j] += S[j] * sum over p of A[i, p] * B[p, j]``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

from offcut.backends.cpu.machine.isa import Host, Isa
from offcut.backends.cpu.microkernels import fma
from offcut.backends.cpu.microkernels.family import Family, Shapes, Variant
from offcut.backends.cpu.microkernels.llvm_blocks import RowBlock, declarations
from offcut.core.panels import panels
from offcut.describe.microkernel import Microkernel

LINE = 64  # bytes of a line of the caches
SHORT = 1 << 14
"""Bytes of the panels of a tile that are not yet enough to ask for within a panel: a line takes as long from memory as some thousand bytes."""
TURNS = 2  # by which scales are asked for ahead of their use
_UPPER = -65536  # the bits of a float32 that a bfloat16 has
_LOOKUP = "llvm.x86.avx512.permvar.sf.512"
"""LLVM's name of ``vpermps``: lane by lane, the element of a vector whose number is in the last four bits."""


@dataclass(frozen=True, slots=True)
class Operand:
    """A B operand that is narrower than float32.

    name   part of the names of its microkernel and functions
    dtype  element type
    terms  number of terms of a column in a word
    bits   bits of an element in memory; None: whole bytes
    scaled  whether its columns have scales
    """

    name: str
    dtype: str
    terms: int
    bits: int | None = None
    scaled: bool = False


BFLOAT16 = Operand("bfloat16", "bfloat16", 2)
INT8 = Operand("int8", "int8", 1)
INT4 = Operand("int4", "int8", 2, 4)
SCALED_INT8 = Operand("scaled_int8", "int8", 1, scaled=True)
SCALED_INT4 = Operand("scaled_int4", "int8", 2, 4, scaled=True)


def families(host: Host) -> Iterator[Family]:
    """Yield a family for each narrow operand, on every host."""
    isa = host.isa
    for operand in _BLOCKS:
        symbols, text = partial(symbol, isa, operand), partial(tiles, isa, operand)
        yield Family(microkernel(isa, operand), symbols, text, fma.widths(isa))


def microkernel(isa: Isa, operand: Operand) -> Microkernel:
    """Return the row-block microkernel for an A of float32 and a narrow B, as data.

    ``C[i, j] = sum over p of A[i, p] * float32(B[p, j])``; each B times S[j], where it is scaled. Cost facts: those of `fma`, and what it takes to widen each vector of B for
    each term, in the units that multiply: a bfloat16 once, an integer twice; where two share a byte and none is looked up,
    shifting takes as much again every second time. The sum of a block takes an access of C more.
    """
    widenings = 1 if operand == BFLOAT16 else 3 if operand.bits and not _looks_up(isa) else 2

    def cycles(rows: int, vectors: int) -> tuple[float, float]:
        widened = widenings * vectors * isa.machine.tiles.widen_cycles
        return fma.step_cycles(isa, rows, vectors) + widened, fma.startup_cycles(isa, rows, vectors)

    layout = replace(panels(isa.lanes("float32"), operand.terms, operand.terms), bits=operand.bits)
    name, dtypes = f"fma_{operand.name}_{isa.name}", ("float32", operand.dtype, "float32")
    kernel = fma.declare_row_block(
        isa,
        name,
        dtypes,
        cycles,
        layout,
        fma.widths(isa),
        ascending=not operand.scaled,
        scaled=operand.scaled,
    )
    return kernel if operand == BFLOAT16 else replace(kernel, repeats=frozenset({"p"}))


def _looks_up(isa: Isa) -> bool:
    """Return whether one instruction looks up 4-bit values in a vector register of sixteen floats."""
    return isa.lanes("float32") == 16 and "avx512f" in isa.features


def symbol(isa: Isa, operand: Operand, variant: Variant, rows: int, vectors: int) -> str:
    """Return the name of the function for a tile of `rows` × `vectors`."""
    return f"oc_fma_{operand.name}_{isa.name}_{variant.suffix}_{rows}x{vectors}"


def tiles(isa: Isa, operand: Operand, variant: Variant, shapes: Shapes) -> str:
    """Return the LLVM IR of the functions of these (rows, vectors), of `family.TILES`.

    a, c     float32
    b        panels one vector of float32 wide: words ``[ceil(depth / terms)][lanes]``; its step is not read. Of int8 also rows in place
    s        float32, of scaled columns: the first one's
    """
    block = _BLOCKS[operand]
    blocks = (
        block(symbol(isa, operand, variant, *shape), isa, "float32", variant, *shape)
        for shape in shapes
    )
    functions = ["\n".join(one.lines()) for one in blocks]
    declared = declarations(isa, "float32")
    lanes = isa.lanes("float32")
    declared.add(
        f"declare <{lanes} x i8> @llvm.masked.load.v{lanes}i8.p0(ptr, i32, <{lanes} x i1>, <{lanes} x i8>)"
    )
    if operand.bits and _looks_up(isa):
        declared.add(f"declare <16 x float> @{_LOOKUP}(<16 x float>, <16 x i32>)")
    return "\n\n".join([*functions, "\n".join(sorted(declared))])


class _WidenedBlock(RowBlock, ABC):
    """A tile over panels of words.

    terms   of a column that share a word
    bytes   of a word in memory
    shifts  that bring the first and the second of two terms to the upper end of 32 bits
    """

    terms: ClassVar[int] = 1
    bytes: ClassVar[int] = 1
    shifts: ClassVar[tuple[int, int]] = (0, 0)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.b_bytes = self.lanes * self.bytes // self.terms
        self.words = f"<{self.lanes} x i32>"
        self.words_by_panel: list[str] = []

    def b_values(self, label: str, step: int, b_now: str) -> Generator[str, None, list[str]]:
        """Return one widened term of B for each panel: the unrolled loop loads whole words, the remainder one term of a word."""
        if label == "rest" and self.terms > 1:
            return (yield from self.remaining_term())
        term, values = self.second if step % self.terms else self.first, []
        offset = step * self.b_bytes if self.variant.panels else 0
        if self.terms > 1 and step % self.terms == 0:
            self.words_by_panel = []
            for p in range(self.vectors):
                self.words_by_panel.append((yield from self.load_words(b_now, p, offset)))
        for p in range(self.vectors):
            alone = self.terms == 1
            word = (
                (yield from self.load_words(b_now, p, offset)) if alone else self.words_by_panel[p]
            )
            values.append((yield from term(word)))
        return values

    def remaining_term(self) -> Generator[str, None, list[str]]:
        """Return the first or the second term of a word, by the parity of the step."""
        pair, at, base, odd, shift, one, splat = (self.temp() for _ in range(7))
        even, uneven = self.shifts
        yield f"  {pair} = lshr i64 %rest_k, 1"
        yield f"  {at} = mul i64 {pair}, {self.lanes * self.bytes}"
        yield f"  {base} = getelementptr i8, ptr %mid_b, i64 {at}"
        yield f"  {odd} = trunc i64 %rest_k to i1"
        yield f"  {shift} = select i1 {odd}, i32 {uneven}, i32 {even}"
        yield f"  {one} = insertelement {self.words} poison, i32 {shift}, i32 0"
        yield (
            f"  {splat} = shufflevector {self.words} {one}, {self.words} poison, "
            f"<{self.lanes} x i32> zeroinitializer"
        )
        values = []
        for p in range(self.vectors):
            word, up = (yield from self.load_words(base, p, 0)), self.temp()
            yield f"  {up} = shl {self.words} {word}, {splat}"
            values.append((yield from self.upper_term(up)))
        return values

    @abstractmethod
    def load_words(self, base: str, p: int, offset: int) -> Generator[str, None, str]:
        """Return the words of panel `p` at an offset in bytes; prefetch later ones."""

    @abstractmethod
    def first(self, word: str) -> Generator[str, None, str]:
        """Return the first term of words."""

    def second(self, word: str) -> Generator[str, None, str]:
        """Return the second of two terms of words."""
        return (yield from self.upper_term(word))

    def upper_term(self, word: str) -> Generator[str, None, str]:
        """Return the term at the upper end of words."""
        return (yield from self.first(word))


class _BFloat16(_WidenedBlock):
    terms, bytes, shifts = 2, 4, (16, 0)

    def load_words(self, base: str, p: int, offset: int) -> Generator[str, None, str]:
        address, value = self.temp(), self.temp()
        yield from self.panel_address(address, base, p, offset)
        yield f"  {value} = load {self.words}, ptr {address}, align {self.bytes // self.terms}"
        yield from self.prefetch(address)
        return value

    def first(self, word: str) -> Generator[str, None, str]:
        up, value = self.temp(), self.temp()
        yield f"  {up} = shl {self.words} {word}, {self.all(16)}"
        yield f"  {value} = bitcast {self.words} {up} to {self.v}"
        return value

    def upper_term(self, word: str) -> Generator[str, None, str]:
        high, value = self.temp(), self.temp()
        yield f"  {high} = and {self.words} {word}, {self.all(_UPPER)}"
        yield f"  {value} = bitcast {self.words} {high} to {self.v}"
        return value

    def all(self, value: int) -> str:
        """Return a vector constant with `value` in all words."""
        return f"splat (i32 {value})"


class _Int8(_WidenedBlock):
    def opening(self) -> Generator[str, None, tuple[str, str]]:
        yield f"  %tile_bytes = mul i64 %b_panel, {self.vectors}"
        yield from self.prefetch_distance()
        return (yield from super().opening())

    def prefetch_distance(self) -> Iterator[str]:
        """Define ``%distance``, in bytes, by which B is asked for ahead of its use: in short panels where the next tile reads."""
        tiles = self.isa.machine.tiles
        yield f"  %short = icmp ult i64 %tile_bytes, {SHORT}"
        yield f"  %distance = select i1 %short, i64 %tile_bytes, i64 {tiles.prefetch_bytes}"

    def prefetch(self, address: str) -> Iterator[str]:
        """Prefetch the line that is read ``%distance`` bytes later."""
        ahead = self.temp()
        yield f"  {ahead} = getelementptr i8, ptr {address}, i64 %distance"
        yield f"  call void @llvm.prefetch.p0(ptr {ahead}, i32 0, i32 3, i32 1)"

    def load_words(self, base: str, p: int, offset: int) -> Generator[str, None, str]:
        address, value, wide = self.temp(), self.temp(), self.temp()
        bytes_ = f"<{self.lanes} x i8>"
        if self.variant.panels:
            yield from self.panel_address(address, base, p, offset)
        else:
            yield f"  {address} = getelementptr i8, ptr {base}, i64 {p * self.lanes}"
        if self.variant.panels or p < self.vectors - 1:
            yield f"  {value} = load {bytes_}, ptr {address}, align 1"
        else:
            yield (
                f"  {value} = call {bytes_} @llvm.masked.load.v{self.lanes}i8.p0(ptr {address}, i32 1, "
                f"<{self.lanes} x i1> %mask, {bytes_} zeroinitializer)"
            )
        if self.variant.panels and offset % LINE == 0:
            yield from self.prefetch(address)
        yield f"  {wide} = sext {bytes_} {value} to {self.words}"
        return wide

    def first(self, word: str) -> Generator[str, None, str]:
        real = self.temp()
        yield f"  {real} = sitofp {self.words} {word} to {self.v}"
        return real


class _Int4(_Int8):
    terms, shifts = 2, (28, 24)

    def first(self, word: str) -> Generator[str, None, str]:
        if not _looks_up(self.isa):
            up = self.temp()
            yield f"  {up} = shl {self.words} {word}, splat (i32 28)"
            return (yield from self.upper_term(up))
        value, table = self.temp(), ", ".join(f"float {n - 16 * (n > 7)}.0" for n in range(16))
        yield f"  {value} = call {self.v} @{_LOOKUP}({self.v} <{table}>, {self.words} {word})"
        return value

    def second(self, word: str) -> Generator[str, None, str]:
        return (yield from self.to_float(word, 4))

    def upper_term(self, word: str) -> Generator[str, None, str]:
        return (yield from self.to_float(word, 28))

    def to_float(self, word: str, by: int) -> Generator[str, None, str]:
        """Return words, upper_term down with their sign, as floats."""
        down = self.temp()
        yield f"  {down} = ashr {self.words} {word}, splat (i32 {by})"
        return (yield from super().first(down))


class _Scaled(_Int8):
    """A tile whose turns each start from zero, and end with adding their sums, scaled, to C in memory."""

    operands = "abs"

    def opening(self) -> Generator[str, None, tuple[str, str]]:
        _, depth = yield from super().opening()
        yield "  br i1 %fresh, label %clear, label %cleared"
        yield "clear:"
        for r in range(self.rows):
            row = yield from self.c_row(r)
            for p in range(self.vectors):
                yield from self.c_access(row, p, "zeroinitializer", "store")
        yield "  br label %cleared"
        yield "cleared:"
        return "%cleared", depth

    def prefetch_distance(self) -> Iterator[str]:
        if not self.variant.turns:
            yield from super().prefetch_distance()

    def turn(self) -> Iterator[str]:
        """Behind the head of the turns, define how far ahead B and the scales are asked for, in bytes: behind the last turn those of the next tile."""
        yield from super().turn()
        last = self.variant.turns - 1
        yield f"  %scales_ahead = mul i64 %s_turn_step{last}, {TURNS}"
        ends = (
            ("distance", "b", str(self.isa.machine.tiles.prefetch_bytes), "%tile_bytes"),
            ("scale_distance", "s", "%scales_ahead", str(self.vectors * self.lanes * self.item)),
        )
        for name, x, ahead, tile in ends:
            yield f"  %{name}_all = mul i64 %{x}_turn_step{last}, %count{last}"
            yield f"  %{name}_at = add i64 %{x}_at, {ahead}"
            yield f"  %{name}_inside = icmp slt i64 %{name}_at, %{name}_all"
            yield f"  %{name}_beyond = sub i64 {tile}, %{name}_all"
            yield f"  %{name}_next = select i1 %{name}_inside, i64 0, i64 %{name}_beyond"
            yield f"  %{name} = add i64 %{name}_next, {ahead}"

    def load_accumulators(self) -> Iterator[str]:
        return iter(())

    def start_accumulators(self, before: str) -> Iterator[str]:
        return self.zeros("start")

    def turn_accumulators(self, end: str, latch: str) -> Iterator[str]:
        return self.zeros("turn")

    def zeros(self, stem: str) -> Iterator[str]:
        """Define accumulators of that name as zero."""
        for r, p in self.cells:
            yield f"  %{stem}{r}_{p} = bitcast {self.v} zeroinitializer to {self.v}"

    def closing(self, end: str) -> Generator[str, None, str]:
        """Add the sums of a turn, times their scales, to C."""
        first = "%s_turn" if self.variant.turns else "%s"
        scales = []
        for p in range(self.vectors):
            address, scale, ahead = self.temp(), self.temp(), self.temp()
            yield f"  {address} = getelementptr i8, ptr {first}, i64 {p * self.lanes * self.item}"
            if p == self.vectors - 1:
                yield self.masked_load(scale, address)
            else:
                yield f"  {scale} = load {self.v}, ptr {address}, align {self.item}"
            if self.variant.turns:
                yield f"  {ahead} = getelementptr i8, ptr {address}, i64 %scale_distance"
                yield f"  call void @llvm.prefetch.p0(ptr {ahead}, i32 0, i32 3, i32 1)"
            scales.append(scale)
        for r in range(self.rows):
            row = yield from self.c_row(r)
            for p, scale in enumerate(scales):
                old, new = self.temp(), self.temp()
                yield from self.c_access(row, p, old, "load")
                yield from self.multiply_add(new, scale, f"%{end}{r}_{p}", old)
                yield from self.c_access(row, p, new, "store")
        return end

    def store_accumulators(self, end: str) -> Iterator[str]:
        return iter(())


class _ScaledInt4(_Scaled, _Int4):
    pass


_BLOCKS: Mapping[Operand, Callable[..., _WidenedBlock]] = {
    BFLOAT16: _BFloat16,
    INT4: _Int4,
    INT8: _Int8,
    SCALED_INT4: _ScaledInt4,
    SCALED_INT8: _Scaled,
}
