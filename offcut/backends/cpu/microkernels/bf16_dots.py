"""Microkernels for sums of products of bfloat16: row blocks whose steps take two terms at once.

They are the row blocks of `fma`, over words of two elements: an accumulator holds float32, a step
loads vectors of B, broadcasts two neighbouring elements of A for each row, and adds both products to
each element. B is packed, two rows side by side; where the depth is odd, A's last element is loaded
by itself, and what stands beside it is zero in both.

``vdpbf16ps`` adds the second product of a pair to the accumulator, then the first, each by one
rounding to nearest even: the order of an element's terms depends on the depth alone, but is not
ascending. Whatever the control register says, denormals that it reads count as zero, and those
that it would give are zero.

Processors differ in how often they issue it, from as often as a multiply–add, which makes twice the
terms, to a fourth, which makes half of them. So what it costs is measured, once for a processor.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import replace
from functools import cache, partial
from math import log2

from offcut.backends.cpu.machine import instruction_rates
from offcut.backends.cpu.machine.instruction_rates import NUM_CHAINS, instruction_loop
from offcut.backends.cpu.machine.isa import AVX512_FEATURES, Host, Isa
from offcut.backends.cpu.microkernels import avx512_blocks, fma
from offcut.backends.cpu.microkernels.avx512_blocks import Arithmetic, Block
from offcut.backends.cpu.microkernels.dot_block import PANELS, DotBlock
from offcut.backends.cpu.microkernels.family import Family, Shapes, Variant
from offcut.backends.cpu.microkernels.llvm_blocks import declarations
from offcut.core.panels import panels
from offcut.describe.microkernel import Microkernel

FEATURES = AVX512_FEATURES | {"avx512bf16"}
"""What the host must have, in LLVM's names."""

TERMS = 2  # of an element in a step; rows of a panel of B that lie side by side
DOT = "@llvm.x86.avx512bf16.dpbf16ps.512"
_PAIRS, _SUMS = "<32 x bfloat>", "<16 x float>"
_LATENCY = 6.0  # cycles of a step, however small the tile
CHAIN = instruction_loop(
    _SUMS,
    f"declare {_SUMS} {DOT}({_SUMS}, {_PAIRS}, {_PAIRS})",
    f"%new{{k}} = call {_SUMS} {DOT}({_SUMS} %old{{k}}, {_PAIRS} %pairs, {_PAIRS} %pairs)",
    [f"%pairs = bitcast {_SUMS} %b to {_PAIRS}"],
)
"""A loop of the instruction, on registers."""
PAIRS = Arithmetic("vdpbf16ps", "vbroadcastss", "vmovups", word=4, terms=TERMS)
"""A step in assembly."""


def families(host: Host) -> Iterator[Family]:
    """Yield the family if the host has the instruction, and, for a described machine, if its description states the rate."""
    isa = host.isa
    if host.features >= FEATURES and (host.here or stated_rate(host) is not None):
        yield Family(
            microkernel(isa, issue(replace(host, external=(), threads=1))),
            partial(symbol, isa),
            partial(assemble if avx512_blocks.are_for(host) else tiles, isa),
            fma.widths(isa),
        )


def microkernel(isa: Isa, issue: float = 1.0) -> Microkernel:
    """The row-block microkernel of bfloat16, as data.

    ``C[i, j] = sum over p of float32(A[i, p]) * float32(B[p, j])``. Cost facts: those of `fma` for a
    step of two terms.

    issue   the time of this instruction over that of a multiply–add of a vector
    """

    def cycles(rows: int, vectors: int) -> tuple[float, float]:
        step = _step_cycles(isa, rows, vectors, issue)
        return step / TERMS, fma.startup_cycles(isa, rows, vectors)

    layout = panels(isa.lanes("float32"), TERMS, TERMS)
    dtypes = "bfloat16", "bfloat16", "float32"
    name = f"dot_bfloat16_{isa.name}"
    return fma.declare_row_block(
        isa,
        name,
        dtypes,
        cycles,
        layout,
        fma.widths(isa),
        FEATURES,
        ascending=False,
        beside=True,
    )


def _step_cycles(isa: Isa, rows: int, vectors: int, issue: float) -> float:
    return max(fma.step_cycles(isa, rows, vectors), rows * vectors * issue / 2.0, _LATENCY)


@cache
def issue(host: Host) -> float:
    """The time of the instruction over that of a multiply–add, to a power of two: 1, 2, 4; 1 where
    this machine cannot tell. Of a machine that is described it is what the description says, wherever it is planned for.
    """
    rate = None if host.here else stated_rate(host)
    if rate is not None:
        return host.machine.core.multiply_adds * host.isa.lanes("float32") * TERMS / rate
    measured = instruction_rates.cached_measurement(
        ("vdpbf16ps",), FEATURES, partial(_measure_rate, host)
    )
    return 1.0 if measured is None else measured[0]


def stated_rate(host: Host) -> float | None:
    """Return the multiply–adds per cycle of the instruction by the host's description; None if it states none."""
    units = (one for one in host.machine.unit if one.name == PAIRS.step)
    return next((one.multiply_adds for one in units if one.multiply_adds), None)


def _measure_rate(host: Host) -> list[float]:
    (cycles,) = instruction_rates.cycles(host, [instruction_rates.loop(host, CHAIN)])
    return [2.0 ** max(0, round(log2(cycles / (NUM_CHAINS * instruction_rates.COUNT / 2))))]


def symbol(isa: Isa, _: Variant, rows: int, vectors: int) -> str:
    """The name of the function for a tile of `rows` × `vectors`."""
    return f"oc_dot_bfloat16_{isa.name}_{rows}x{vectors}"


def tiles(isa: Isa, _: Variant, shapes: Shapes) -> str:
    """LLVM IR of the functions of these (rows, vectors), of `family.TILES`.

    a        bfloat16, one after the other along the depth; its step is not read
    b        panels of 16 columns: bfloat16 elements ``[ceil(depth / 2)][16][2]``, zeros past the depth
             and past the last column; its step is not read
    c        float32, one after the other along the columns
    depth    in elements, 0 …

    Nothing of A beyond ``[rows, depth]`` is read, nothing of C beyond ``[rows, columns]`` is touched.
    """
    functions = ["\n".join(_Dots(isa, *shape).lines()) for shape in shapes]
    declared = declarations(isa, "float32")
    declared.add(f"declare {_SUMS} {DOT}({_SUMS}, {_PAIRS}, {_PAIRS})")
    return "\n\n".join([*functions, "\n".join(sorted(declared))])


def assemble(isa: Isa, _: Variant, shapes: Shapes) -> str:
    """The same functions in assembly."""
    blocks = (Block(symbol(isa, PANELS, *shape), isa, PAIRS, PANELS, *shape) for shape in shapes)
    return "\n\n".join(block.text() for block in blocks)


class _Dots(DotBlock):
    """Pairs of elements pass as words of the accumulators' type until they are multiplied."""

    terms = TERMS

    def __init__(self, isa: Isa, rows: int, vectors: int) -> None:
        name = symbol(isa, PANELS, rows, vectors)
        super().__init__(name, isa, "float32", PANELS, rows, vectors, a_align=2)

    def last_terms(self, address: str) -> Generator[str, None, str]:
        half, word, value, one, splat = (self.temp() for _ in range(5))
        yield f"  {half} = load i16, ptr {address}, align 2"
        yield f"  {word} = zext i16 {half} to i32"
        yield f"  {value} = bitcast i32 {word} to {self.t}"
        yield f"  {one} = insertelement {self.v} poison, {self.t} {value}, i32 0"
        yield (
            f"  {splat} = shufflevector {self.v} {one}, {self.v} poison, "
            f"<{self.lanes} x i32> zeroinitializer"
        )
        return splat

    def a_operand(self, splat: str) -> Generator[str, None, str]:
        return (yield from self.b_operand(splat))

    def b_operand(self, value: str) -> Generator[str, None, str]:
        new = self.temp()
        yield f"  {new} = bitcast {self.v} {value} to {_PAIRS}"
        return new

    def multiply_add(self, new: str, a: str, b: str, c: str) -> Iterator[str]:
        yield f"  {new} = call {_SUMS} {DOT}({_SUMS} {c}, {_PAIRS} {a}, {_PAIRS} {b})"
