"""Microkernels for sums of products of bytes: row blocks whose steps take four terms at once.

They are the row blocks of `fma`, over words of four bytes: an accumulator holds int32, a step loads
vectors of B, broadcasts four neighbouring elements of A for each row, and adds four products to each
element. B is packed, four rows side by side. The last elements of A, where the depth is no multiple
of four, are loaded under a mask. Sums wrap around as int32 does, so their order changes nothing.

The instruction multiplies unsigned by signed bytes. With an unsigned A that is A by B. With a signed
A, it multiplies ``B + 128``, which is B with the highest bit of each byte flipped, by A; as

    sum over k of (B[k, j] + 128) * A[i, k]  =  C[i, j] + 128 * sum over k of A[i, k],

each row starts from ``-128 * sum of A[i, :]``, which is summed 64 elements at once beforehand. So those of an unsigned A alone run loops
around the terms as well.

Processors without AVX-512 that have the instruction for 32 bytes (AVX-VNNI) run those of an unsigned A, whose last terms are loaded one by one.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import replace
from functools import partial

from offcut.backends.cpu.machine.isa import AVX512_FEATURES, Host, Isa
from offcut.backends.cpu.microkernels import fma
from offcut.backends.cpu.microkernels.dot_block import PANELS, DotBlock, odd_places
from offcut.backends.cpu.microkernels.family import Family, Shapes, Variant
from offcut.backends.cpu.microkernels.llvm_blocks import first_lanes
from offcut.core.panels import panels
from offcut.describe.microkernel import Microkernel

FEATURES = AVX512_FEATURES | {"avx512vnni"}
"""What the host must have, in LLVM's names."""
SHORT_FEATURES = frozenset({"avx2", "fma", "avxvnni"})
"""What a host of vectors of 32 bytes must have."""

TERMS = 4  # of an element in a step; rows of a panel of B that lie side by side
CHUNK = 64  # elements of A in a register
_FLIP = "<" + ", ".join(["i32 -2139062144"] * 16) + ">"  # 128 in each byte


def families(host: Host) -> Iterator[Family]:
    """Return those of an A of int8 and of uint8, where the host has the instruction."""
    isa = host.isa
    for dtype in operand_dtypes(host):
        yield Family(
            microkernel(isa, dtype),
            partial(symbol, isa, dtype),
            partial(tiles, isa, dtype),
            fma.widths(isa),
        )


def operand_dtypes(host: Host) -> tuple[str, ...]:
    """Return the types of A that the host has the instruction for."""
    if host.features >= FEATURES:
        return "int8", "uint8"
    return ("uint8",) if host.isa.name == "avx2" and host.features >= SHORT_FEATURES else ()


def microkernel(isa: Isa, dtype: str) -> Microkernel:
    """Return the row-block microkernel for an A of `dtype`, int8 or uint8, and a B of int8, as data.

    ``C[i, j] = sum over p of int32(A[i, p]) * int32(B[p, j])``. Cost facts: a step of four terms
    takes the cycles of a step of `fma`, and with a signed A those of one more row; each row of a
    tile with a signed A is summed besides.
    """
    signed = dtype == "int8"

    def cycles(rows: int, vectors: int) -> tuple[float, float]:
        sums = isa.machine.tiles.sum_cycles * rows * signed
        step = fma.step_cycles(isa, rows + signed, vectors)
        return step / TERMS, fma.startup_cycles(isa, rows, vectors) + sums

    layout = panels(isa.lanes("int32"), TERMS, TERMS)
    dtypes = dtype, "int8", "int32"
    name, shapes = f"vnni_{dtype}_{isa.name}", fma.widths(isa)
    features = FEATURES if isa.name == "avx512" else SHORT_FEATURES
    kernel = fma.declare_row_block(isa, name, dtypes, cycles, layout, shapes, features, beside=True)
    return kernel if signed else replace(kernel, repeats=frozenset({"p"}))


def symbol(isa: Isa, dtype: str, variant: Variant, rows: int, vectors: int) -> str:
    """Return the name of the function for a tile of `rows` × `vectors`."""
    return f"oc_vnni_{dtype}_{isa.name}_{variant.turns or ''}_{rows}x{vectors}"


def tiles(isa: Isa, dtype: str, variant: Variant, shapes: Shapes) -> str:
    """Return the LLVM IR of the functions of these (rows, vectors), of `family.TILES`.

    a        elements of `dtype`, one after the other along the depth; its step is not read
    b        panels of a vector of int32: int8 elements ``[ceil(depth / 4)][columns][4]``, zeros past the depth
             and past the last column; its step is not read
    c        int32, one after the other along the columns
    depth    in elements, 0 …

    Nothing of A beyond ``[rows, depth]`` is read, nothing of C beyond ``[rows, columns]`` is touched.
    """
    functions = ["\n".join(_Dots(isa, dtype, variant.turns, *shape).lines()) for shape in shapes]
    return "\n\n".join([*functions, "\n".join(sorted(_declarations(isa)))])


def _declarations(isa: Isa) -> set[str]:
    """Return the declarations of LLVM's intrinsics that the functions call."""
    lanes = isa.lanes("int32")
    words, bytes_ = f"<{lanes} x i32>", f"<{4 * lanes} x i8>"
    loads = [(words, f"v{lanes}i32", lanes)]
    if isa.name == "avx512":
        loads += [("<16 x i8>", "v16i8", 16), (bytes_, f"v{CHUNK}i8", CHUNK)]
    return {
        f"declare {words} @{_instruction(lanes)}({words}, {bytes_}, {bytes_})",
        f"declare i32 @llvm.vector.reduce.add.v{lanes}i32({words})",
        "declare i64 @llvm.umin.i64(i64, i64)",
        f"declare void @llvm.masked.store.v{lanes}i32.p0({words}, ptr, i32, <{lanes} x i1>)",
        "declare void @llvm.prefetch.p0(ptr, i32, i32, i32)",
        *(
            f"declare {v} @llvm.masked.load.{name}.p0(ptr, i32, <{count} x i1>, {v})"
            for v, name, count in loads
        ),
    }


def _instruction(lanes: int) -> str:
    """Return LLVM's name of the instruction on `lanes` words."""
    return f"llvm.x86.avx512.vpdpbusd.{32 * lanes}"


class _Dots(DotBlock):
    terms = TERMS

    def __init__(self, isa: Isa, a_dtype: str, turns: int, rows: int, vectors: int) -> None:
        variant = replace(PANELS, turns=turns)
        name = symbol(isa, a_dtype, variant, rows, vectors)
        super().__init__(name, isa, "int32", variant, rows, vectors, a_align=1)
        self.a_dtype, self.signed = a_dtype, a_dtype == "int8"
        self.bytes = f"<{4 * self.lanes} x i8>"

    def opening(self) -> Generator[str, None, tuple[str, str]]:
        values = yield from super().opening()
        if not self.signed:
            return values
        yield "  br label %sums"
        yield "sums:"
        yield "  %sums_k = phi i64 [ 0, %entry ], [ %sums_next, %sums ]"
        for r in range(self.rows):
            yield (
                f"  %sums_acc{r} = phi {self.v} [ zeroinitializer, %entry ], [ %sums_new{r}, %sums ]"
            )
        yield "  %sums_left = sub i64 %depth, %sums_k"
        yield f"  %sums_count = call i64 @llvm.umin.i64(i64 %sums_left, i64 {CHUNK})"
        yield from first_lanes("sums_mask", "%sums_count", CHUNK, "i8")
        for g in range(0, self.rows, 4):
            yield f"  %sums_moved{g} = getelementptr i8, ptr %a_start{g}, i64 %sums_k"
            yield f'  %sums_a{g} = call ptr asm "", "=r,0"(ptr %sums_moved{g})'
        flip = self.temp()
        yield f"  {flip} = bitcast {self.v} {_FLIP} to {self.bytes}"
        for r in range(self.rows):
            address = yield from self.row_address(f"%sums_a{r - r % 4}", r)
            value = self.temp()
            yield _masked_bytes(value, address, "%sums_mask", CHUNK)
            yield self.dot(f"%sums_new{r}", flip, value, f"%sums_acc{r}")
        yield f"  %sums_next = add nuw i64 %sums_k, {CHUNK}"
        yield "  %sums_more = icmp ult i64 %sums_next, %depth"
        yield "  br i1 %sums_more, label %sums, label %sums_done"
        yield "sums_done:"
        for r in range(self.rows):
            yield f"  %sum{r} = call i32 @llvm.vector.reduce.add.v16i32({self.v} %sums_new{r})"
        return "%sums_done", "%steps"

    def start_accumulators(self, before: str) -> Iterator[str]:
        if not self.signed:
            yield from super().start_accumulators(before)
            return
        for r, p in self.cells:
            yield (
                f"  %held{r}_{p} = phi {self.v} [ zeroinitializer, {before} ], "
                f"[ %old{r}_{p}, %resume ]"
            )
        for r in range(self.rows):
            splat = self.temp()
            yield from self.splat(splat, "i32", f"%sum{r}")
            for p in range(self.vectors):
                yield f"  %start{r}_{p} = sub {self.v} %held{r}_{p}, {splat}"

    def before_last(self) -> Iterator[str]:
        return first_lanes("odd_mask", "%odd", 16, "i8") if self.lanes == 16 else odd_places()

    def last_terms(self, address: str) -> Generator[str, None, str]:
        if self.lanes != 16:
            return (yield from self.last_bytes(address))
        value, words, splat = (self.temp() for _ in range(3))
        yield _masked_bytes(value, address, "%odd_mask", 16)
        yield f"  {words} = bitcast <16 x i8> {value} to <4 x i32>"
        yield (
            f"  {splat} = shufflevector <4 x i32> {words}, <4 x i32> poison, "
            "<16 x i32> zeroinitializer"
        )
        return splat

    def a_operand(self, splat: str) -> Generator[str, None, str]:
        new = self.temp()
        yield f"  {new} = bitcast {self.v} {splat} to {self.bytes}"
        return new

    def b_operand(self, value: str) -> Generator[str, None, str]:
        if self.signed:
            flipped = self.temp()
            yield f"  {flipped} = xor {self.v} {value}, {_FLIP}"
            value = flipped
        new = self.temp()
        yield f"  {new} = bitcast {self.v} {value} to {self.bytes}"
        return new

    def multiply_add(self, new: str, a: str, b: str, c: str) -> Iterator[str]:
        yield self.dot(new, b, a, c) if self.signed else self.dot(new, a, b, c)

    def dot(self, new: str, unsigned: str, signed: str, c: str) -> str:
        """Return the instruction that defines `new` as `c` plus four products of bytes in each word."""
        return (
            f"  {new} = call {self.v} @{_instruction(self.lanes)}({self.v} {c}, "
            f"{self.bytes} {unsigned}, {self.bytes} {signed})"
        )


def _masked_bytes(new: str, address: str, mask: str, lanes: int) -> str:
    return (
        f"  {new} = call <{lanes} x i8> @llvm.masked.load.v{lanes}i8.p0(ptr {address}, i32 1, "
        f"<{lanes} x i1> {mask}, <{lanes} x i8> zeroinitializer)"
    )
