"""Measures this machine: its clock, what its units and memories do in a cycle, and what microkernels do.

Everything is measured once in every round, rounds in an order of their own, and a rate is divided by the clock of
its round: clocks that change between rounds cancel. A result is the median over the rounds, beside how far
their quartiles lie apart.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from rich.markup import escape
from rich.table import Table

import offcut as oc
from offcut.backends.cpu.machine import instruction_rates, isa, jit
from offcut.backends.cpu.microkernels.available import families
from offcut.backends.cpu.microkernels.family import WIDE_PARAMETERS, Family, Variant
from offcut.core.dtypes import ITEM_BYTES
from offcut.costmodel import Machine, Unit
from offcut.describe.tile_shapes import TileShape
from offcut.experiment import limits
from offcut.experiment.limits import Meter, levels, meter, tiles_permitted
from offcut.experiment.machine import describe
from offcut.experiment.timing import in_rounds
from offcut.partition import BALANCE
from offcut.schedule import Nest, parts_of, with_parts

ROUNDS = 7
KINDS = ("float32", "float64", "bfloat16", "int8")
DEPTH = 1024
"""Terms that a microkernel is timed on: too many for the first cache, few enough for the second."""

TIMES = 64
"""Calls of a microkernel that are timed together: one is short beside its call from Python."""

_SLACK = 4096  # bytes past an operand, which a microkernel may ask for
_APART = 64  # bytes between rows, which would share the sets of a cache without them


@dataclass(frozen=True, slots=True)
class Reading:
    """A number that was measured: the median, and how far the quartiles lie apart, over the median."""

    value: float
    spread: float

    @staticmethod
    def of(samples: Sequence[float]) -> Reading:
        """Return the reading of samples above 0, two at least."""
        low, middle, high = statistics.quantiles(samples, n=4, method="inclusive")
        return Reading(middle, (high - low) / middle)


def readings_table(rows: Iterable[tuple[str, Reading, float, str]]) -> Table:
    """Return a table of readings: of each its name, what it is multiplied by, and the unit then."""
    grid = Table(box=None, padding=(0, 1))
    for title in ("measured", "median", "unit", "spread"):
        grid.add_column(title, justify="left" if title in ("measured", "unit") else "right")
    for name, reading, scale, unit in rows:
        value, spread = f"{reading.value * scale:.3g}", f"{100 * reading.spread:.1f} %"
        grid.add_row(escape(name), value, unit, spread)
    return grid


@dataclass(frozen=True, slots=True)
class Measured:
    """What was found of this machine.

    cpu       its name, as the system gives it
    host      how it is described without being measured
    near      the shipped description that it is nearest to
    clock     cycles per second
    units     multiply–adds per cycle, by the name of a unit of `near`
    memories  bytes per cycle, by the name of a level
    tiles     multiply–adds per cycle, by microkernel and tile
    calls     seconds of a call, and of each way that competes in it, by the field of a description
    core_share     share of the time in which this process had its core, as it measured
    """

    cpu: str
    host: isa.Host
    near: Machine
    clock: Reading
    units: Mapping[str, Reading]
    memories: Mapping[str, Reading]
    tiles: Mapping[tuple[str, int, int], Reading]
    core_share: float
    calls: Mapping[str, Reading] = field(default_factory=dict)

    def table(self) -> Table:
        """Return a table of all readings with their spreads."""
        return readings_table(self._rows())

    def _rows(self) -> Iterator[tuple[str, Reading, float, str]]:
        yield "clock", self.clock, 1e-9, "GHz"
        for name, reading in self.units.items():
            yield name, reading, 1.0, "multiply–adds/cycle"
        for name, reading in self.memories.items():
            yield name, reading, 1.0, "bytes/cycle"
        for (name, rows, columns), reading in self.tiles.items():
            yield f"{name} {rows}×{columns}", reading, 1.0, "multiply–adds/cycle"
        for name, reading in self.calls.items():
            yield name.replace("_seconds", ""), reading, 1e9, "ns"


def measured() -> Measured:
    """Return the readings of this machine, which take some seconds on one thread.

    Features that are hidden from offcut are not used. Raises TargetError where a hidden name is none.
    """
    host, description = isa.host(), describe()
    near = isa.nearest_machine(host.machine.architecture, host.features)
    wall, used = time.perf_counter(), time.process_time()
    clock = meter("clock", limits.clock_loop(), host)
    units, memories = _unit_meters(host, near.unit), _memory_meters(host)
    meters = {"": clock, **units, **memories}
    samples_by_name = in_rounds({name: partial(_rate, one) for name, one in meters.items()}, ROUNDS)
    clocks = samples_by_name.pop("")
    by_cycle = {
        name: Reading.of([rate / hertz for rate, hertz in zip(samples, clocks, strict=True)])
        for name, samples in samples_by_name.items()
    }
    tiles = _tiles(host)
    calls = {name: Reading.of(samples) for name, samples in call_samples(ROUNDS).items()}
    core_share = (time.process_time() - used) / (time.perf_counter() - wall)
    halves = {name: Reading(by_cycle[name].value / 2, by_cycle[name].spread) for name in units}
    levels_by_name = {name: by_cycle[name] for name in memories}
    readings = Reading.of(clocks), halves, levels_by_name, tiles
    return Measured(description.cpu, host, near, *readings, core_share, calls)


def _rate(one: Meter) -> float:
    return one.rate().per_second


def _unit_meters(host: isa.Host, units: Sequence[Unit]) -> dict[str, Meter]:
    """Return the loop of each unit that this machine has, by the unit's name, with which the loop's begins."""
    tiles = "amx-tile" in host.features and tiles_permitted()
    known = (loop for kind in KINDS for loop in limits.arithmetic_loops(kind, host, tiles))
    loops_by_name = {loop.name: loop for loop in known}
    meters: dict[str, Meter] = {}
    for unit in units:
        loop = next((x for name, x in loops_by_name.items() if name.startswith(unit.name)), None)
        if loop is not None:
            meters[unit.name] = meter(unit.name, loop, host)
    return meters


def _memory_meters(host: isa.Host) -> dict[str, Meter]:
    return {level.meter.name: level.meter for level in levels(host, describe(), 1)}


def _tiles(host: isa.Host) -> dict[tuple[str, int, int], Reading]:
    """Return the multiply-adds of each microkernel in a cycle at a few heights, in the widest tiles."""
    calls = {}
    for family in families(host):
        kernel = family.microkernel
        heights = sorted({1, (1 + kernel.max_rows) // 2, kernel.max_rows})
        shapes = [kernel.tile(rows, kernel.columns_for(rows)) for rows in heights]
        for shape in shapes:
            calls[kernel.name, shape.rows, shape.columns] = _call(family, shape, host)
    alone = {key: partial(_cycles, host, call) for key, call in calls.items()}
    rounds = in_rounds({repr(key): sampler for key, sampler in alone.items()}, ROUNDS)
    return {
        key: Reading.of([key[1] * key[2] * DEPTH / cycles for cycles in rounds[repr(key)]])
        for key in calls
    }


def _cycles(host: isa.Host, call: instruction_rates.Bound) -> float:
    """Return the cycles of a call whose operands nothing else has pushed out of the caches."""
    return max(instruction_rates.cycles(host, [call])[0], 1.0) / TIMES


def _call(family: Family, shape: TileShape, host: isa.Host) -> instruction_rates.Bound:
    """Return `TIMES` calls of a microkernel on zeros, operands packed as it takes them."""
    kernel = family.microkernel
    definition = kernel.computes.definition
    assert definition is not None
    items = {tensor.name: ITEM_BYTES[tensor.dtype] for tensor in definition.reads}
    a, b = (items[kernel.operand_along(axis)] for axis in (kernel.rows, kernel.columns))
    c = ITEM_BYTES[kernel.computes.dtype]
    panels = -(-shape.columns // kernel.panel)
    panel = DEPTH * kernel.panel * b
    row = DEPTH * a + _APART
    sizes = (shape.rows * row, panels * panel, shape.rows * panels * kernel.panel * c)
    left, right, result = (np.zeros(size + _SLACK, np.uint8) for size in sizes)
    rows = (result, panels * kernel.panel * c, DEPTH)
    variant = Variant(unit_depth=True, panels=True)
    variant = replace(variant, others=len(family.others))
    parameters = WIDE_PARAMETERS if family.wide else variant.parameters
    again = _again(family.symbol(variant, shape.rows, panels), parameters)
    text = f"{family.text(variant, [(shape.rows, panels)])}\n{again}"
    loaded = jit.load([jit.object_code(text, host, passes=False)], host)
    if family.wide:
        tall = (left, row, shape.rows, right, panel, *rows, shape.columns, 0)
        return instruction_rates.Bound(loaded, "again", parameters, tall)
    first = (left, row, a, right, panel, kernel.panel * b, *rows, kernel.panel, 0, right, 0)
    fixed: list[Any] = [*first, *(right for _ in family.others)]
    return instruction_rates.Bound(loaded, "again", parameters, fixed)


def _again(symbol: str, parameters: str) -> str:
    """Return the LLVM IR of the function `again`, which calls another one `TIMES` times."""
    declared = ", ".join(f"{kind} %p{at}" for at, kind in enumerate(parameters.split(", ")))
    return f"""define void @again({declared}) {{
entry:
br label %next
next:
%left = phi i64 [ {TIMES}, %entry ], [ %less, %next ]
call void @{symbol}({declared})
%less = sub i64 %left, 1
%more = icmp ne i64 %less, 0
br i1 %more, label %next, label %end
end:
ret void
}}"""


# Measures what a call of a kernel takes beside its loops: the call itself, and each way that competes in it.
#
# Both are of calls without rows, in which no loop runs an iteration.

CALLS = 2000
"""Calls that are timed together: one is as short as what a clock can tell."""


def call_samples(rounds: int) -> dict[str, list[float]]:
    """Return samples of ``call_seconds`` and ``way_seconds`` of a machine's description, one for each round."""
    kernels = {"one way": _product(1), "two ways": _product(2)}
    rows = np.zeros((0, _DEPTH), np.float32)
    samplers: dict[str, Callable[[], float]] = {
        name: lambda kernel=kernel: _seconds(kernel, rows)  # type: ignore[misc]
        for name, kernel in kernels.items()
    }
    samplers["nothing"] = lambda: _seconds(_nothing, rows)
    samples = in_rounds(samplers, rounds)
    loop = statistics.median(samples["nothing"])
    pairs = zip(samples["one way"], samples["two ways"], strict=True)
    floor = 1e-9  # what no call and no choice is faster than
    return {
        "call_seconds": [max(one - loop, floor) for one in samples["one way"]],
        "way_seconds": [max((two - one) / 2, floor) for one, two in pairs],
    }


_DEPTH = 32


def _product(ways: int) -> oc.Kernel:
    """Return a product of any rows, of which so many ways compete, one or two."""
    n = oc.dim("n", max=512)
    a, w = oc.placeholder((n, _DEPTH), name="A"), oc.placeholder((_DEPTH, 64), name="W")
    product, weights = oc.ops.matmul(a, w), {"W": np.zeros((_DEPTH, 64), np.float32)}
    kernel = oc.compile(product, inputs=[a, w], constants=weights, strategy="ladder")
    if ways == 1:
        return kernel
    (nest,) = parts_of(kernel.schedule)
    assert isinstance(nest, Nest)
    (way,) = nest.variants
    rows = way.cover.rows if way.cover is not None else ""
    splits = (replace(cut, strategy=BALANCE) if cut.axis == rows else cut for cut in way.splits)
    both = replace(nest, variants=(way, replace(way, label="balance", splits=tuple(splits))))
    schedule = with_parts(kernel.schedule, (both,))
    return oc.compile(product, inputs=[a, w], constants=weights, schedule=schedule)


def _nothing(rows: np.ndarray) -> None:
    """Return the cycles of a loop around calls without the calls."""


def _seconds(call: Callable[[np.ndarray], object], rows: np.ndarray) -> float:
    begin = time.thread_time()
    for _ in range(CALLS):
        call(rows)
    return (time.thread_time() - begin) / CALLS
