"""What the processor can do at most, measured beside what is compared with it.

    limit = max(operations / peak, bytes / bandwidth)   seconds

The peak is that of the fastest instruction for the kind of elements, from registers. The bandwidth is
that of reading: of the first cache that holds all operands and the result, or of memory, so a cell
whose operands are a little more than a cache may beat its limit.
"""

from __future__ import annotations

import ctypes
import statistics
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial

import numpy as np
from numpy.typing import NDArray

from offcut.backends.cpu.machine import isa, jit
from offcut.backends.cpu.machine.instruction_rates import (
    NUM_CHAINS,
    counted_loop,
    instruction_loop,
    multiply_add,
    store_accumulators,
)
from offcut.backends.cpu.machine.isa import Host
from offcut.backends.cpu.microkernels.bf16_dots import CHAIN
from offcut.backends.llvm.loader import JitModule
from offcut.experiment.machine import Machine, describe
from offcut.experiment.timing import Clock

Array = NDArray[np.uint8]
SAMPLES = 7
SECONDS = 2e-3
"""The least that one sample of a loop lasts."""

LONG = 2**23
"""Operations or bytes of one call, at least: the call itself is then nothing beside them."""


@dataclass(frozen=True, slots=True)
class Rate:
    """Operations or bytes per second, of all threads together, and the instruction or level."""

    name: str
    per_second: float


@dataclass(frozen=True, slots=True)
class Bound:
    """The least seconds of a call, and what bounds it."""

    seconds: float
    by: str


@dataclass(frozen=True, slots=True)
class Meter:
    """A loop that is ready to run, on one thread for each call.

    calls  one call of the loop each, on memory of its own
    work   operations or bytes of all calls together
    """

    name: str
    calls: tuple[Callable[[], object], ...]
    work: int

    def rate(self) -> Rate:
        """Return the rate of the machine now: the median of a few samples."""
        if len(self.calls) == 1:
            seconds = _seconds(partial(_repeat_call, self.calls[0]), time.process_time)
        else:
            with ThreadPoolExecutor(len(self.calls)) as pool:

                def together(repeat: int) -> None:
                    list(pool.map(partial(_repeat_call, repeat=repeat), self.calls))

                seconds = _seconds(together, time.perf_counter)
        return Rate(self.name, self.work / seconds)


@dataclass(frozen=True, slots=True)
class Level:
    """A level of memory: how many bytes it holds (0: any number), and the meter of its bandwidth."""

    holds: int
    meter: Meter


@dataclass(slots=True)
class Limits:
    """The limits of this machine for `threads` threads together, measured whenever they are asked.

    A host whose features are hidden from offcut has the limits of what is left.
    """

    threads: int = 1
    _peaks: dict[str, Meter] = field(default_factory=dict)
    _levels: list[Level] = field(default_factory=list)
    _others: Iterator[Level] | None = None
    _seen: dict[str, float] = field(default_factory=dict)

    def now(self, operations: int, moved: int, kind: str) -> Bound:
        """Return the limit of a call that does `operations` and touches `moved` bytes.

        kind  of elements, such as ``float32``, ``bfloat16``, ``int8``
        """
        level = self._level_of(moved)
        read = self._measure(level.meter)
        by_reading = Bound(moved / read.per_second, read.name)
        if not operations:
            return by_reading
        if kind not in self._peaks:
            self._peaks[kind] = _fastest(kind, self.threads)
        peak = self._measure(self._peaks[kind])
        return max(
            Bound(operations / peak.per_second, peak.name), by_reading, key=lambda b: b.seconds
        )

    def _level_of(self, moved: int) -> Level:
        """Return the first level that holds `moved` bytes; its array, and those of smaller ones, are made when they are needed."""
        if self._others is None:
            self._others = levels(isa.host(), describe(), self.threads)
        number = 0
        while True:
            if number == len(self._levels):
                self._levels.append(next(self._others))
            level = self._levels[number]
            if moved <= level.holds or not level.holds:
                return level
            number += 1

    def _measure(self, meter: Meter) -> Rate:
        rate = meter.rate()
        self._seen[meter.name] = max(rate.per_second, self._seen.get(meter.name, 0.0))
        return rate

    def __str__(self) -> str:
        """Return the greatest rates so far."""
        reads = {level.meter.name for level in self._levels}
        return ", ".join(
            f"{name} {rate / 1e9:.0f} {'GB/s' if name in reads else 'GFLOP/s'}"
            for name, rate in self._seen.items()
        )


def _fastest(kind: str, threads: int) -> Meter:
    """Return the fastest instruction for a kind of elements, on zeros: no operand slows it down."""
    host = isa.host()
    tiles = "amx-tile" in host.features and tiles_permitted()
    meters = [
        meter(
            loop.name, loop, host, [_aligned_pages(64) for _ in range(threads)], LONG // loop.work
        )
        for loop in arithmetic_loops(kind, host, tiles)
    ]
    return max(meters, key=lambda one: one.rate().per_second)


def tiles_permitted() -> bool:
    """Return whether the system lets this process use tile registers."""
    from offcut.backends.cpu.microkernels.amx import is_amx_permitted

    return is_amx_permitted()


def levels(host: isa.Host, machine: Machine, threads: int) -> Iterator[Level]:
    """Yield the caches of a core and the memory behind them: half of each cache, so that something else fits beside; four times the largest for memory."""
    caches = (("L1", machine.l1), ("L2", machine.l2), ("L3", machine.l3))
    known = [(name, size) for name, size in caches if size]
    for name, size in known:
        shared = threads if name == "L3" else 1
        yield Level(size * threads // shared, _reading(host, name, size // 2 // shared, threads))
    largest = max((size for _, size in known), default=2**25)
    yield Level(0, _reading(host, "DRAM", 4 * largest // threads, threads))


def _reading(host: isa.Host, name: str, size: int, threads: int) -> Meter:
    """Return the meter of a loop that reads `size` bytes for each thread."""
    block = STREAM_VECTORS * host.isa.register_bytes
    blocks = max(1, size // block)
    buffers = [_aligned_pages(blocks * block) for _ in range(threads)]
    return meter(name, reading_loop(host, blocks), host, buffers, max(LONG // block, blocks))


def meter(
    name: str, loop: Loop, host: isa.Host, buffers: list[Array] | None = None, count: int = 0
) -> Meter:
    """Return a loop that is ready to run: `count` iterations a call, one thread for each buffer.

    buffers  None: one thread, which reads a line of zeros
    count    0: as many as a long call takes
    """
    buffers, count = buffers or [_aligned_pages(64)], count or max(1, LONG // loop.work)
    loaded = jit.load([jit.object_code(loop.text, host, passes=False)], host)
    prototype = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p)
    function = prototype(loaded.address("loop"))
    calls = tuple(
        _Call(function, buffer, count, _aligned_pages(64 * NUM_CHAINS), loaded)
        for buffer in buffers
    )
    return Meter(name, calls, len(calls) * count * loop.work)


class _Call:
    """A call of generated code, with all that it needs to stay alive."""

    def __init__(
        self,
        function: Callable[[int, int, int], object],
        data: Array,
        count: int,
        accumulators: Array,
        loaded: JitModule,
    ) -> None:
        self._held = data, accumulators, loaded
        self._call = partial(function, data.ctypes.data, count, accumulators.ctypes.data)

    def __call__(self) -> None:
        self._call()


def _repeat_call(call: Callable[[], object], repeat: int) -> None:
    for _ in range(repeat):
        call()


def _seconds(run: Callable[[int], None], clock: Clock) -> float:
    """Return the seconds of one repetition: the median of samples that last long enough."""
    repeat, elapsed = 1, 0.0
    while elapsed < SECONDS:
        start = clock()
        run(repeat)
        elapsed = clock() - start
        repeat *= 1 if elapsed >= SECONDS else 2
    samples = []
    for _ in range(SAMPLES):
        start = clock()
        run(repeat)
        samples.append((clock() - start) / repeat)
    return statistics.median(samples)


def _aligned_pages(size: int) -> Array:
    """Return zeros that start with a cache line, every page touched."""
    buffer = np.ones(size + 64, np.uint8)
    start = -buffer.ctypes.data % 64
    aligned = buffer[start : start + size]
    aligned[:] = 0
    return aligned


# Loops that do one thing as fast as the processor can, as LLVM IR: what a limit is measured with.
#
# Their form is that of `offcut.backends.cpu.machine.instruction_rates`.

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
    """Return the loops that could be the fastest for a kind of elements on this host.

    kind    ``float32``, ``bfloat16``, ``int8`` (uint8 alike), …; what has no arithmetic of its own
            is computed in float32, or in pairs of int16
    tiles   whether the tile instructions may be used
    """
    features = host.features
    wide = "avx512bw" in features
    loops: list[Loop] = []
    if kind in ("int8", "uint8"):
        if tiles and "amx-int8" in features:
            loops.append(_tile_loop("amx tdpbssd", "tdpbssd", 2 * 16 * 16 * 64))
        if "avx512vnni" in features:
            loops.append(_chained_instructions("vpdpbusd zmm", 16, _dot("512", 16), 128))
        elif "avxvnni" in features:
            loops.append(_chained_instructions("vpdpbusd ymm", 8, _dot("256", 8), 64))
        if not loops and "avx2" in features:
            loops.append(_pairs(32 if wide else 16, "512" if wide else ""))
    elif kind == "bfloat16" and tiles and "amx-bf16" in features:
        loops.append(_tile_loop("amx tdpbf16ps", "tdpbf16ps", 2 * 16 * 16 * 32))
    elif (
        kind == "bfloat16" and "avx512bf16" in features
    ):  # some have it at half the rate of float32
        loops.append(Loop("vdpbf16ps zmm", CHAIN, NUM_CHAINS * 64))
        loops.append(_multiply_add("float32", host))
    return tuple(loops) or (_multiply_add("float64" if kind == "float64" else "float32", host),)


def reading_loop(host: Host, blocks: int) -> Loop:
    """Return the loop that reads `blocks` blocks of vectors one after the other, over and over."""
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
    """Return a chain of additions, each of which needs the one before: a cycle each on any processor."""
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
    """Return sums of four products of bytes: declaration and step."""
    bits, parts = f"<{lanes} x i32>", f"<{4 * lanes} x i8>"
    function = f"@llvm.x86.avx512.vpdpbusd.{width}"
    step = f"%new{{k}} = call {bits} {function}({bits} %old{{k}}, {parts} %bytes, {parts} %bytes)"
    return f"declare {bits} {function}({bits}, {parts}, {parts})", step


def _pairs(lanes: int, width: str) -> Loop:
    """Return sums of two products of int16, where bytes have no instruction of their own."""
    function = f"@llvm.x86.avx512.pmaddw.d.{width}" if width else "@llvm.x86.avx2.pmadd.wd"
    words, sums = f"<{lanes} x i16>", f"<{lanes // 2} x i32>"
    step = (
        f"%words{{k}} = bitcast {sums} %old{{k}} to {words}\n"
        f"%new{{k}} = call {sums} {function}({words} %words{{k}}, {words} %pairs)"
    )
    declared = f"declare {sums} {function}({words}, {words})"
    name = f"vpmaddwd {'zmm' if width else 'ymm'}"
    return _chained_instructions(name, lanes // 2, (declared, step), 2 * lanes)


def _chained_instructions(name: str, lanes: int, instruction: tuple[str, str], each: int) -> Loop:
    """Return instructions on words of int32, or on their bytes or pairs of int16."""
    vector = f"<{lanes} x i32>"
    operands = [
        f"%bytes = bitcast {vector} %b to <{4 * lanes} x i8>",
        f"%pairs = bitcast {vector} %b to <{2 * lanes} x i16>",
    ]
    return Loop(name, instruction_loop(vector, *instruction, operands), NUM_CHAINS * each)


def _tile_loop(name: str, instruction: str, each: int) -> Loop:
    """Return products of four pairs of full tiles in registers, eight times around."""
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
