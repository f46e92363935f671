"""Microkernels for sums of products of bytes on processors without a dot product of bytes: pairs of products in 16 bits.

They are row blocks whose steps take four terms at once, over the same panels as those of `vnni`. A step takes the even and the odd bytes of each
word of four apart, widens them to 16 bits, and adds two sums of two products (``vpmaddwd``) to each element.

Sums are exact but for the wrapping of int32. A widened byte is in -128…255, so a product is in -32640…32512 and the sum of two in -65280…65024;
``vpmaddwd`` forms products and sums in 32 bits, which overflow for four factors of -2**15 alone. ``vpmaddubsw`` takes bytes as they are, but keeps
the sum of two products in 16 bits: 2 * 255 * 127 = 64770 saturates at 32767.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import replace
from functools import partial

from offcut.backends.cpu.machine.isa import Host, Isa
from offcut.backends.cpu.microkernels import fma, vnni
from offcut.backends.cpu.microkernels.dot_block import PANELS, DotBlock, odd_places
from offcut.backends.cpu.microkernels.family import Family, Shapes, Variant
from offcut.core.panels import panels
from offcut.describe.microkernel import Microkernel

INSTRUCTION = {"avx2": "llvm.x86.avx2.pmadd.wd", "avx512": "llvm.x86.avx512.pmaddw.d.512"}
"""By instruction set, LLVM's name of ``vpmaddwd``."""
SPARE = {"avx2": 4, "avx512": 5}
"""Registers for halves of a word of A, products, and a mask, which 32-byte instructions read from memory."""
TERMS = vnni.TERMS


def families(host: Host) -> Iterator[Family]:
    """Yield the families for an A of int8 and of uint8 that the host has no dot product of four bytes for."""
    isa, vnni_dtypes = host.isa, vnni.operand_dtypes(host)
    for dtype in ("int8", "uint8") if isa.name in INSTRUCTION else ():
        if dtype not in vnni_dtypes:
            yield Family(
                microkernel(isa, dtype),
                partial(symbol, isa, dtype),
                partial(tiles, isa, dtype),
                widths(isa),
            )


def widths(isa: Isa) -> dict[int, tuple[int, ...]]:
    """Return the widths of a tile by its rows, in vectors, widest first.

    Two vectors at least, and at most what registers hold beside both halves of each vector of B.
    """
    room = isa.registers - SPARE[isa.name]
    return {
        rows: tuple(width for width in options if (rows + 2) * width <= room)
        for rows, options in fma.widths(isa).items()
        if (rows + 2) * 2 <= room
    }


def microkernel(isa: Isa, dtype: str) -> Microkernel:
    """Return the row-block microkernel for an A of `dtype`, int8 or uint8, and a B of int8, as data.

    ``C[i, j] = sum over p of int32(A[i, p]) * int32(B[p, j])``. Cost facts: a step of four terms takes two products and two sums for each
    vector of C, where one of `fma` takes one instruction, and two instructions to take each word of A and of B apart.
    """
    widen = isa.machine.tiles.widen_cycles

    def cycles(rows: int, vectors: int) -> tuple[float, float]:
        step = 4 * fma.step_cycles(isa, rows, vectors) + 2 * widen * (rows + vectors)
        return step / TERMS, fma.startup_cycles(isa, rows, vectors)

    layout = panels(isa.lanes("int32"), TERMS, TERMS)
    dtypes = dtype, "int8", "int32"
    name, shapes = f"madd_{dtype}_{isa.name}", widths(isa)
    kernel = fma.declare_row_block(isa, name, dtypes, cycles, layout, shapes, beside=True)
    return replace(kernel, repeats=frozenset({"p"}))


def symbol(isa: Isa, dtype: str, variant: Variant, rows: int, vectors: int) -> str:
    """Return the name of the function for a tile of `rows` × `vectors`."""
    return f"oc_madd_{dtype}_{isa.name}_{variant.turns or ''}_{rows}x{vectors}"


def tiles(isa: Isa, dtype: str, variant: Variant, shapes: Shapes) -> str:
    """Return the LLVM IR of the functions of these (rows, vectors), of `family.TILES`; operands lie as those of `vnni.tiles`, in panels one
    vector of int32 wide.
    """
    functions = ["\n".join(_Pairs(isa, dtype, variant.turns, *shape).lines()) for shape in shapes]
    words, pairs = (f"<{count} x {kind}>" for count, kind in _types(isa))
    lanes = isa.lanes("int32")
    declared = (
        f"declare {words} @{INSTRUCTION[isa.name]}({pairs}, {pairs})",
        f"declare {words} @llvm.masked.load.v{lanes}i32.p0(ptr, i32, <{lanes} x i1>, {words})",
        f"declare void @llvm.masked.store.v{lanes}i32.p0({words}, ptr, i32, <{lanes} x i1>)",
        "declare void @llvm.prefetch.p0(ptr, i32, i32, i32)",
        "declare i64 @llvm.umin.i64(i64, i64)",
    )
    return "\n\n".join([*functions, "\n".join(declared)])


def _types(isa: Isa) -> tuple[tuple[int, str], tuple[int, str]]:
    """Return lanes and type of a vector of int32, and of one of int16."""
    return (isa.lanes("int32"), "i32"), (isa.lanes("int16"), "i16")


class _Pairs(DotBlock):
    """A tile of `rows` × `vectors` whose steps add two sums of two products of 16 bits."""

    terms = TERMS

    def __init__(self, isa: Isa, a_dtype: str, turns: int, rows: int, vectors: int) -> None:
        variant = replace(PANELS, turns=turns)
        name = symbol(isa, a_dtype, variant, rows, vectors)
        super().__init__(name, isa, "int32", variant, rows, vectors, a_align=1)
        self.signed = a_dtype == "int8"
        _, (count, kind) = _types(isa)
        self.pairs = f"<{count} x {kind}>"
        self.eight = "<" + ", ".join([f"{kind} 8"] * count) + ">"

    def before_last(self) -> Iterator[str]:
        return odd_places()

    def last_terms(self, address: str) -> Generator[str, None, str]:
        return (yield from self.last_bytes(address))

    def a_operand(self, splat: str) -> Generator[str, None, str]:
        return (yield from self.widen_bytes(splat, self.signed))

    def b_operand(self, value: str) -> Generator[str, None, str]:
        return (yield from self.widen_bytes(value, signed=True))

    def widen_bytes(self, words: str, signed: bool) -> Generator[str, None, str]:
        """Widen the even and the odd bytes of words; return the stem of both names."""
        new, right = self.temp(), "ashr" if signed else "lshr"
        yield f"  {new}_both = bitcast {self.v} {words} to {self.pairs}"
        yield f"  {new}_up = shl {self.pairs} {new}_both, {self.eight}"
        yield f"  {new}_even = {right} {self.pairs} {new}_up, {self.eight}"
        yield f"  {new}_odd = {right} {self.pairs} {new}_both, {self.eight}"
        return new

    def multiply_add(self, new: str, a: str, b: str, c: str) -> Iterator[str]:
        sums = []
        for half in ("even", "odd"):
            sums.append(self.temp())
            yield (
                f"  {sums[-1]} = call {self.v} @{INSTRUCTION[self.isa.name]}("
                f"{self.pairs} {a}_{half}, {self.pairs} {b}_{half})"
            )
        both = self.temp()
        yield f"  {both} = add {self.v} {sums[0]}, {sums[1]}"
        yield f"  {new} = add {self.v} {c}, {both}"
