"""Measures a GPU: its clock, the rates of its memories, a launch; what the driver knows of it is asked of the driver."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Any

from rich.table import Table

from offcut.backends.gpu.driver import Device, open_device
from offcut.backends.gpu.launches import ArrayParameter, Launch, LaunchPlan, SizeParameter
from offcut.backends.gpu.nvrtc import cached_cubin
from offcut.costmodel import load, shipped_machines
from offcut.costmodel.device import Accelerator
from offcut.experiment.probe import Reading, readings_table

ROUNDS = 7
SPIN_CYCLES = 20_000_000
LAUNCHES = 500
FAR_BYTES = 1 << 31
"""Bytes that are read of main memory: many times those of any second cache."""
NEAR_SHARE, NEAR_ROUNDS = 0.4, 64
"""The share of the second cache that is read, and how often in one launch."""
THREADS, BLOCKS_EACH = 512, 4
_CELL = 16

TEXT = """\
extern "C" __global__ void __launch_bounds__(512) spin(long long *out, int cycles) {
  const long long begin = clock64();
  while (clock64() - begin < cycles) {}
  if (cycles < 0) out[0] = begin;
}

// cells of 16 bytes, `rounds` times, past the first cache
extern "C" __global__ void __launch_bounds__(512) read(const uint4 *from, int *out, int cells, int rounds) {
  unsigned sum = 0;
  for (int round = 0; round < rounds; ++round)
    for (int e = blockIdx.x * 512 + threadIdx.x; e < cells; e += gridDim.x * 512) {
      uint4 x;
      asm volatile("ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w) : "l"(from + e));
      sum += x.x ^ x.y ^ x.z ^ x.w;
    }
  if (sum == 0x5eed) out[0] = sum;  // or nothing would be read
}

extern "C" __global__ void __launch_bounds__(32) nothing() {}
"""
_OUT, _SIZES = ArrayParameter("out", 8), ("blocks", "cycles", "cells", "rounds")
_READ = ArrayParameter("from", _CELL), _OUT, SizeParameter("cells"), SizeParameter("rounds")
PLAN = {
    launch.kernel: LaunchPlan("probe", _SIZES, (), (launch,))
    for launch in (
        Launch("spin", ("blocks",), THREADS, 0, (_OUT, SizeParameter("cycles"))),
        Launch("read", ("blocks",), THREADS, 0, _READ),
        Launch("nothing", ("blocks",), 32, 0, ()),
    )
}
"""The kernels, each a plan of its own; ``blocks`` is the size of their grid."""


@dataclass(frozen=True)
class MeasuredDevice:
    """What was measured of a GPU, and what its driver says of it.

    near      the shipped description that it is nearest to
    clock     cycles a second
    memories  bytes a second of all multiprocessors, by name: L2, DRAM
    launch    seconds of a launch behind others
    facts     attributes, by the names of the driver
    """

    title: str
    near: Accelerator
    capability: tuple[int, int]
    clock: Reading
    memories: Mapping[str, Reading]
    launch: Reading
    facts: Mapping[str, int]


ATTRIBUTES = (
    "MULTIPROCESSOR_COUNT",
    "L2_CACHE_SIZE",
    "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN",
    "MAX_THREADS_PER_MULTIPROCESSOR",
    "MAX_BLOCKS_PER_MULTIPROCESSOR",
    "MAX_REGISTERS_PER_MULTIPROCESSOR",
)


@dataclass
class Probe:
    """Runs the kernels of the probe on a device."""

    device: Device
    multiprocessors: int
    out: int
    modules: dict[str, Any] = field(default_factory=dict)

    def seconds(
        self, kernel: str, addresses: Mapping[str, int], launches: int = 1, **sizes: int
    ) -> list[float]:
        """Return the seconds of one launch, a sample for each round, by events of the device."""
        device = self.device
        blocks = {"spin": self.multiprocessors, "nothing": 1}
        count = blocks.get(kernel, BLOCKS_EACH * self.multiprocessors)
        values = {"blocks": count, "cycles": 0, "cells": 0, "rounds": 0, **sizes}
        events = [device.call("cuEventCreate", 0, op="probe") for _ in range(2)]
        samples = []
        for number in range(ROUNDS + 1):
            device.call("cuEventRecord", events[0], 0, op="probe")
            for _ in range(launches):
                device.run(self.modules[kernel], PLAN[kernel], {"out": self.out, **addresses}, values, 0)  # fmt: skip
            device.call("cuEventRecord", events[1], 0, op="probe")
            device.call("cuEventSynchronize", events[1], op="probe")
            milliseconds = device.call("cuEventElapsedTime", *events, op="probe")
            if number:  # the first one warms it up
                samples.append(milliseconds / 1e3 / launches)
        for event in events:
            device.call("cuEventDestroy", event, op="probe")
        return samples


def measured_device() -> MeasuredDevice:
    """Measure the first GPU, in some seconds.

    Raises TargetError where there is no GPU, no driver or no compiler, CallError for a call of the driver that fails.
    """
    device = open_device("probe")
    facts = {name: device.attribute(name) for name in ATTRIBUTES}
    capability = device.capability
    threads = {name: plan.launches[0].threads for name, plan in PLAN.items()}
    code = cached_cubin("probe", TEXT, "sm_{}{}".format(*capability), threads)
    with device.current():
        out = device.allocate(8, 0, "probe")
        far = device.allocate(FAR_BYTES, 0, "probe")
        try:
            probe = Probe(device, facts["MULTIPROCESSOR_COUNT"], out)
            probe.modules = {name: device.load(code, plan) for name, plan in PLAN.items()}
            spins = probe.seconds("spin", {}, cycles=SPIN_CYCLES)
            near_cells = int(NEAR_SHARE * facts["L2_CACHE_SIZE"]) // _CELL
            near = probe.seconds("read", {"from": far}, cells=near_cells, rounds=NEAR_ROUNDS)
            all_cells = FAR_BYTES // _CELL
            reads = probe.seconds("read", {"from": far}, cells=all_cells, rounds=1)
            launches = probe.seconds("nothing", {}, LAUNCHES)
        finally:
            device.free(far, 0)
            device.free(out, 0)
    memories = {
        "L2": _rates(near_cells * _CELL * NEAR_ROUNDS, near),
        "DRAM": _rates(FAR_BYTES, reads),
    }
    count, rate = facts["MULTIPROCESSOR_COUNT"], memories["DRAM"].value
    return MeasuredDevice(device.title, nearest(capability, count, rate), capability, _rates(SPIN_CYCLES, spins), memories, Reading.of(launches), facts)  # fmt: skip


def nearest(capability: tuple[int, int], count: int, rate: float) -> Accelerator:
    """Return the shipped GPU whose compute capability, then whose number of multiprocessors, then the rate of whose main memory, in
    bytes a second, is nearest.
    """
    gpus = [
        one for one in map(load, shipped_machines()) if isinstance(one, Accelerator) and one.grid
    ]
    number = 10 * capability[0] + capability[1]

    def distance(one: Accelerator) -> tuple[int, int, float]:
        own_rate = one.dram.bytes_per_cycle * one.hertz * one.engine.count
        own_number = int(one.architecture.removeprefix("sm_"))
        return abs(own_number - number), abs(one.engine.count - count), abs(own_rate - rate)

    return min(gpus, key=distance)


def described_device(found: MeasuredDevice, name: str, day: date | None = None) -> str:
    """Return a file that ``oc.target("cuda", machine=…)`` reads: like the nearest description, with what was measured.

    day  that the file says; None: today
    """
    return "\n".join(_lines(found, name, (day or date.today()).isoformat())) + "\n"


def _lines(found: MeasuredDevice, name: str, day: str) -> Iterator[str]:
    by, near, facts = f"measured by offcut target probe --gpu on {day}", found.near, found.facts
    count, hertz = facts["MULTIPROCESSOR_COUNT"], found.clock.value
    rest = f"the rest: as {near.name}"
    yield f"name = {json.dumps(name)}"
    yield f"title = {json.dumps(found.title, ensure_ascii=False)}"
    yield 'architecture = "sm_{}{}"'.format(*found.capability)
    yield f"like = {json.dumps(near.name)}"
    yield from ("", "[engine]", f"count = {count}", f"hertz = {hertz:.4g}")
    yield _source(f"{by}: hertz{_sure(found.clock)}; count: the driver")
    yield from ("", "[grid]", f"warps = {facts['MAX_THREADS_PER_MULTIPROCESSOR'] // 32}")
    yield f"blocks = {facts['MAX_BLOCKS_PER_MULTIPROCESSOR']}"
    yield f"registers = {facts['MAX_REGISTERS_PER_MULTIPROCESSOR']}"
    yield f"launch_seconds = {found.launch.value:.3g}"
    yield _source(f"{by}: launch_seconds{_sure(found.launch)}; warps, blocks, registers: the driver; {rest}")  # fmt: skip
    for memory in near.memory:
        yield from ("", "[[memory]]", f"name = {json.dumps(memory.name)}")
        if memory.name == "shared":
            yield f"bytes = {facts['MAX_SHARED_MEMORY_PER_BLOCK_OPTIN']}"
            yield _source(f"bytes: the driver; {rest}")
        if memory.name in found.memories:
            reading = found.memories[memory.name]
            yield f"bytes = {facts['L2_CACHE_SIZE'] // count}"
            yield f"bytes_per_cycle = {reading.value / hertz / count:.4g}"
            yield _source(f"{by}: bytes_per_cycle{_sure(reading)}; bytes: the driver; {rest}")
    dram = found.memories["DRAM"]
    yield from ("", "[dram]", f"bytes_per_cycle = {dram.value / hertz / count:.4g}")
    yield _source(f"{by}: bytes_per_cycle{_sure(dram)}; {rest}")


def _rates(amount: float, seconds: Sequence[float]) -> Reading:
    return Reading.of([amount / one for one in seconds])


def _source(text: str) -> str:
    return f"source = {json.dumps(text, ensure_ascii=False)}"


def _sure(reading: Reading) -> str:
    return f" (spread {100 * reading.spread:.1f} %)"


def table(found: MeasuredDevice) -> Table:
    """Return a table of all readings with their spreads."""
    rows = [("clock", found.clock, 1e-9, "GHz")]
    rows += [(name, one, 1e-12, "TB/s") for name, one in found.memories.items()]
    return readings_table([*rows, ("launch", found.launch, 1e6, "µs")])
