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
from offcut.backends.cpu.machine.throughput_loops import NUM_CHAINS
from offcut.backends.llvm.loader import JitModule
from offcut.experiment import loops
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
        """What the machine does now: the median of a few samples."""
        if len(self.calls) == 1:
            seconds = _seconds(partial(_repeated, self.calls[0]), time.process_time)
        else:
            with ThreadPoolExecutor(len(self.calls)) as pool:

                def together(repeat: int) -> None:
                    list(pool.map(partial(_repeated, repeat=repeat), self.calls))

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
        """The limit of a call that does `operations` and touches `moved` bytes.

        kind  of elements, such as ``float32``, ``bfloat16``, ``int8``
        """
        level = self._level_of(moved)
        read = self._measured(level.meter)
        by_reading = Bound(moved / read.per_second, read.name)
        if not operations:
            return by_reading
        if kind not in self._peaks:
            self._peaks[kind] = _fastest(kind, self.threads)
        peak = self._measured(self._peaks[kind])
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

    def _measured(self, meter: Meter) -> Rate:
        rate = meter.rate()
        self._seen[meter.name] = max(rate.per_second, self._seen.get(meter.name, 0.0))
        return rate

    def __str__(self) -> str:
        """The greatest rates so far."""
        reads = {level.meter.name for level in self._levels}
        return ", ".join(
            f"{name} {rate / 1e9:.0f} {'GB/s' if name in reads else 'GFLOP/s'}"
            for name, rate in self._seen.items()
        )


def _fastest(kind: str, threads: int) -> Meter:
    """The fastest instruction for a kind of elements, on zeros: no operand slows it down."""
    host = isa.host()
    tiles = "amx-tile" in host.features and tiles_permitted()
    meters = [
        meter(loop.name, loop, host, [_aligned(64) for _ in range(threads)], LONG // loop.work)
        for loop in loops.arithmetic_loops(kind, host, tiles)
    ]
    return max(meters, key=lambda one: one.rate().per_second)


def tiles_permitted() -> bool:
    """Whether the system lets this process use tile registers."""
    from offcut.backends.cpu.microkernels.amx import is_amx_permitted

    return is_amx_permitted()


def levels(host: isa.Host, machine: Machine, threads: int) -> Iterator[Level]:
    """The caches of a core and what lies behind them: half of each cache, so that something else fits beside; four times the largest for memory."""
    caches = (("L1", machine.l1), ("L2", machine.l2), ("L3", machine.l3))
    known = [(name, size) for name, size in caches if size]
    for name, size in known:
        shared = threads if name == "L3" else 1
        yield Level(size * threads // shared, _reading(host, name, size // 2 // shared, threads))
    largest = max((size for _, size in known), default=2**25)
    yield Level(0, _reading(host, "DRAM", 4 * largest // threads, threads))


def _reading(host: isa.Host, name: str, size: int, threads: int) -> Meter:
    """Reads `size` bytes for each thread."""
    block = loops.STREAM_VECTORS * host.isa.register_bytes
    blocks = max(1, size // block)
    buffers = [_aligned(blocks * block) for _ in range(threads)]
    return meter(name, loops.reading_loop(host, blocks), host, buffers, max(LONG // block, blocks))


def meter(
    name: str, loop: loops.Loop, host: isa.Host, buffers: list[Array] | None = None, count: int = 0
) -> Meter:
    """A loop, ready to run: `count` iterations a call, one thread for each buffer.

    buffers  None: one thread, which reads a line of zeros
    count    0: as many as a long call takes
    """
    buffers, count = buffers or [_aligned(64)], count or max(1, LONG // loop.work)
    loaded = jit.load([jit.object_code(loop.text, host, passes=False)], host)
    prototype = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p)
    function = prototype(loaded.address("loop"))
    calls = tuple(
        _Call(function, buffer, count, _aligned(64 * NUM_CHAINS), loaded) for buffer in buffers
    )
    return Meter(name, calls, len(calls) * count * loop.work)


class _Call:
    """A call of generated code, with all that it needs to stay alive."""

    def __init__(
        self,
        function: Callable[[int, int, int], object],
        data: Array,
        count: int,
        stored: Array,
        loaded: JitModule,
    ) -> None:
        self._held = data, stored, loaded
        self._call = partial(function, data.ctypes.data, count, stored.ctypes.data)

    def __call__(self) -> None:
        self._call()


def _repeated(call: Callable[[], object], repeat: int) -> None:
    for _ in range(repeat):
        call()


def _seconds(run: Callable[[int], None], clock: Clock) -> float:
    """Seconds of one repetition: the median of samples that last long enough."""
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


def _aligned(size: int) -> Array:
    """Zeros that start with a cache line, every page touched."""
    there = np.ones(size + 64, np.uint8)
    start = -there.ctypes.data % 64
    aligned = there[start : start + size]
    aligned[:] = 0
    return aligned
