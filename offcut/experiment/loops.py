"""Loops that do one thing as fast as the processor can, as LLVM IR: what a limit is measured with.

Their form is that of `offcut.backends.cpu.machine.throughput_loops`.
"""

from __future__ import annotations

from dataclasses import dataclass

from offcut.backends.cpu.machine.isa import Host
from offcut.backends.cpu.machine.throughput_loops import (
    NUM_CHAINS,
    counted_loop,
    instruction_loop,
    multiply_add,
    store_accumulators,
)
from offcut.backends.cpu.microkernels.bf16_dots import CHAIN

STREAM_VECTORS = 8
"""Vectors that one iteration of a reading loop takes."""

CLOCK_STEPS = 64
"""Additions in one iteration of the loop that tells the clock, an even number."""


@dataclass(frozen=True, slots=True)
class Loop:
    """A loop and what one iteration of it does.

    name     what tables call it
    text     LLVM IR of the function `loop`
    work     operations (a multiplication and an addition are two), or bytes read
    """

    name: str
    text: str
    work: int


def arithmetic_loops(kind: str, host: Host, tiles: bool) -> tuple[Loop, ...]:
    """The loops that could be the fastest for a kind of elements on this host.

    kind    ``float32``, ``bfloat16``, ``int8`` (uint8 alike), …; what has no arithmetic of its own
            is computed in float32, or in pairs of int16
    tiles   whether the tile instructions may be used
    """
    there = host.features
    wide = "avx512bw" in there
    loops: list[Loop] = []
    if kind in ("int8", "uint8"):
        if tiles and "amx-int8" in there:
            loops.append(_tile_loop("amx tdpbssd", "tdpbssd", 2 * 16 * 16 * 64))
        if "avx512vnni" in there:
            loops.append(_chained("vpdpbusd zmm", 16, _dot("512", 16), 128))
        elif "avxvnni" in there:
            loops.append(_chained("vpdpbusd ymm", 8, _dot("256", 8), 64))
        if not loops and "avx2" in there:
            loops.append(_pairs(32 if wide else 16, "512" if wide else ""))
    elif kind == "bfloat16" and tiles and "amx-bf16" in there:
        loops.append(_tile_loop("amx tdpbf16ps", "tdpbf16ps", 2 * 16 * 16 * 32))
    elif kind == "bfloat16" and "avx512bf16" in there:  # some have it at half the rate of float32
        loops.append(Loop("vdpbf16ps zmm", CHAIN, NUM_CHAINS * 64))
        loops.append(_multiply_add("float32", host))
    return tuple(loops) or (_multiply_add("float64" if kind == "float64" else "float32", host),)


def reading_loop(host: Host, blocks: int) -> Loop:
    """The loop that reads `blocks` blocks of vectors one after the other, over and over."""
    lanes = host.isa.register_bytes // 4
    vector, step = f"<{lanes} x i32>", host.isa.register_bytes
    lines = []
    for k in range(STREAM_VECTORS):
        lines += [
            f"%at{k} = getelementptr i8, ptr %here, i64 {k * step}",
            f"%read{k} = load {vector}, ptr %at{k}, align {step}",
            f"%new{k} = or {vector} %old{k}, %read{k}",
        ]
    phis = [
        f"%old{k} = phi {vector} [ zeroinitializer, %entry ], [ %new{k}, %again ]"
        for k in range(STREAM_VECTORS)
    ]
    phis.append("%at = phi i64 [ 0, %entry ], [ %next, %again ]")
    lines[:0] = ["%here = getelementptr i8, ptr %data, i64 %at"]
    lines += [
        f"%further = add i64 %at, {STREAM_VECTORS * step}",
        f"%round = icmp eq i64 %further, {blocks * STREAM_VECTORS * step}",
        "%next = select i1 %round, i64 0, i64 %further",
    ]
    text = counted_loop(phis, lines, store_accumulators(vector, STREAM_VECTORS))
    return Loop("read", text, STREAM_VECTORS * step)


def clock_loop() -> Loop:
    """A chain of additions, each of which needs the one before: a cycle each on any processor."""
    steps = [
        f"%a{k} = {'xor' if k % 2 else 'add'} i64 %{f'a{k - 1}' if k else 'old0'}, %b"
        for k in range(CLOCK_STEPS - 1)
    ]
    steps.append(f"%new0 = xor i64 %a{CLOCK_STEPS - 2}, %b")
    phis = ["%old0 = phi i64 [ 0, %entry ], [ %new0, %again ]"]
    text = counted_loop(
        phis, steps, store_accumulators("i64", 1), ["%b = load i64, ptr %data, align 8"]
    )
    return Loop("clock", text, CLOCK_STEPS)


def _multiply_add(dtype: str, host: Host) -> Loop:
    lanes, isa = host.isa.lanes(dtype), host.isa
    name = f"{'fma' if isa.fma else 'mul, add'} {dtype} {isa.name}"
    return Loop(name, multiply_add(dtype, isa), NUM_CHAINS * 2 * lanes)


def _dot(width: str, lanes: int) -> tuple[str, str]:
    """Sums of four products of bytes: declaration and step."""
    bits, parts = f"<{lanes} x i32>", f"<{4 * lanes} x i8>"
    function = f"@llvm.x86.avx512.vpdpbusd.{width}"
    step = f"%new{{k}} = call {bits} {function}({bits} %old{{k}}, {parts} %bytes, {parts} %bytes)"
    return f"declare {bits} {function}({bits}, {parts}, {parts})", step


def _pairs(lanes: int, width: str) -> Loop:
    """Sums of two products of int16, where bytes have no instruction of their own."""
    function = f"@llvm.x86.avx512.pmaddw.d.{width}" if width else "@llvm.x86.avx2.pmadd.wd"
    words, sums = f"<{lanes} x i16>", f"<{lanes // 2} x i32>"
    step = (
        f"%words{{k}} = bitcast {sums} %old{{k}} to {words}\n"
        f"%new{{k}} = call {sums} {function}({words} %words{{k}}, {words} %pairs)"
    )
    declared = f"declare {sums} {function}({words}, {words})"
    name = f"vpmaddwd {'zmm' if width else 'ymm'}"
    return _chained(name, lanes // 2, (declared, step), 2 * lanes)


def _chained(name: str, lanes: int, instruction: tuple[str, str], each: int) -> Loop:
    """Instructions on words of int32, or on their bytes or pairs of int16."""
    vector = f"<{lanes} x i32>"
    operands = [
        f"%bytes = bitcast {vector} %b to <{4 * lanes} x i8>",
        f"%pairs = bitcast {vector} %b to <{2 * lanes} x i16>",
    ]
    return Loop(name, instruction_loop(vector, *instruction, operands), NUM_CHAINS * each)


def _tile_loop(name: str, instruction: str, each: int) -> Loop:
    """Products of four pairs of full tiles in registers, eight times around."""
    call = "call void @llvm.x86."
    pairs = [(0, 4, 6), (1, 5, 6), (2, 4, 7), (3, 5, 7)] * 8
    config = "<{ i8 1, [15 x i8] zeroinitializer, [8 x i16] [" + ", ".join(["i16 64"] * 8)
    config += '], [16 x i8] zeroinitializer, [8 x i8] c"' + "\\10" * 8
    config += '", [8 x i8] zeroinitializer }>'
    kind = "<{ i8, [15 x i8], [8 x i16], [16 x i8], [8 x i8], [8 x i8] }>"
    declared = [
        f"@config = private constant {kind} {config}, align 64",
        "declare void @llvm.x86.ldtilecfg(ptr)",
        "declare void @llvm.x86.tilezero(i8 immarg)",
        "declare void @llvm.x86.tilerelease()",
        f"declare void @llvm.x86.{instruction}(i8 immarg, i8 immarg, i8 immarg)",
    ]
    before = [f"{call}ldtilecfg(ptr @config)", *(f"{call}tilezero(i8 {t})" for t in range(8))]
    lines = [f"{call}{instruction}(i8 {c}, i8 {a}, i8 {b})" for c, a, b in pairs]
    text = counted_loop([], lines, [f"{call}tilerelease()"], before)
    return Loop(name, "\n".join((*declared, text)), len(pairs) * each)
