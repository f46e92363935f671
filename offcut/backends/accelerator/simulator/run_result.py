"""What a run of a stream tells: cycles, who waited for whom, bytes, energy, races."""

from __future__ import annotations

import html
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from offcut.backends.accelerator.isa import Instruction, MemorySpace, Unit
from offcut.backends.accelerator.isa.listing import summary
from offcut.backends.accelerator.simulator.op_counts import OpCounts, count_operations, energy
from offcut.backends.accelerator.simulator.race_detection import Conflict
from offcut.backends.accelerator.simulator.timing import Event, Stall
from offcut.backends.accelerator.spec import AcceleratorSpec
from offcut.core.memo import lazy_property

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, slots=True)
class Race:
    """Two instructions of two units that touch a word, one of them writing it, in an order that nothing keeps.

    earlier, later  positions in the stream, whose order is what is meant
    word            the first of `place` at which they meet
    """

    earlier: int
    later: int
    units: tuple[Unit, Unit]
    conflict: Conflict
    place: MemorySpace
    word: int

    def __str__(self) -> str:
        before, after = (unit.value for unit in self.units)
        does = self.conflict.value.format(f"{self.earlier} ({before})")
        return f"{self.later} ({after}) {does}, {self.place.value}[{self.word}], and nothing orders them"


@dataclass(frozen=True)
class SimulationResult:
    """A stream as it ran.

    cycles     from the first instruction that is fetched to the end of the last
    events     in the order in which instructions were taken
    races      none: the units keep the order that the stream says. Found from tokens alone, not from times: that two
               instructions happen not to meet in this run does not hide one
    unwritten  instructions that read a word that none wrote: position, place, the first such word
    left       tokens that nobody took, by who pushed them for whom
    """

    spec: AcceleratorSpec
    instructions: tuple[Instruction, ...]
    cycles: float
    events: tuple[Event, ...]
    races: tuple[Race, ...]
    unwritten: tuple[tuple[int, MemorySpace, int], ...]
    left: Mapping[tuple[Unit, Unit], int]

    @property
    def seconds(self) -> float:
        """Cycles at the machine's clock."""
        return self.cycles / self.spec.hertz

    @lazy_property
    def work(self) -> OpCounts:
        """What was computed and moved, which times do not change."""
        return count_operations(self.instructions, self.spec)

    @property
    def utilisation(self) -> float:
        """Multiply-adds that were done over what the matrix unit could do in these cycles: 0 to 1."""
        spec = self.spec
        rate = spec.rows * spec.columns * spec.terms / spec.gemm_cycles
        return self.work.multiply_adds / (self.cycles * rate) if self.cycles else 0.0

    @property
    def busy(self) -> Mapping[Unit, float]:
        """Cycles for which each unit ran an instruction."""
        cycles_by_unit = dict.fromkeys(Unit, 0.0)
        for event in self.events:
            cycles_by_unit[event.unit] += event.end - event.start
        return cycles_by_unit

    @property
    def stalls(self) -> Mapping[Unit, Mapping[Stall, float]]:
        """Cycles for which each unit had an instruction to come and did nothing, by what it waited for."""
        stalls_by_unit: dict[Unit, dict[Stall, float]] = {unit: {} for unit in Unit}
        for event in self.events:
            for stall, waited in event.waits:
                of_unit = stalls_by_unit[event.unit]
                of_unit[stall] = of_unit.get(stall, 0.0) + waited
        return stalls_by_unit

    @property
    def bytes(self) -> Mapping[MemorySpace, int]:
        """Bytes that the bus moved, by place; whole beats."""
        return self.work.bus_bytes

    @property
    def energy(self) -> Mapping[str, float]:
        """Joules, by what takes them: an estimate by the machine's table; nothing where it has none."""
        return energy(self.work, self.spec)

    def chrome_trace(self) -> str:
        """Return the events as JSON that chrome://tracing and Perfetto read, in microseconds at the machine's clock; what was waited for is in
        cycles, too.
        """
        microseconds = 1e6 / self.spec.hertz
        threads: list[dict[str, Any]] = [
            {
                "name": "thread_name",
                "ph": "M",
                "pid": 0,
                "tid": number,
                "args": {"name": unit.value},
            }
            for number, unit in enumerate(Unit)
        ]
        tids = {unit: number for number, unit in enumerate(Unit)}
        shown: list[dict[str, Any]] = [
            {
                "name": summary(self.instructions[event.position]),
                "cat": type(self.instructions[event.position]).__name__.lower(),
                "ph": "X",
                "pid": 0,
                "tid": tids[event.unit],
                "ts": event.start * microseconds,
                "dur": (event.end - event.start) * microseconds,
                "args": {
                    "position": event.position,
                    "cycles": event.end - event.start,
                    **{f"cycles waited for {stall.value}": waited for stall, waited in event.waits},
                },
            }
            for event in self.events
        ]
        return json.dumps({"traceEvents": threads + shown, "displayTimeUnit": "ns"})

    def plot(self, path: str | Path | None = None) -> Figure:
        """A Gantt chart of the units, and of what each waited for.

        path  where it is written, as PNG, SVG or PDF

        Raises TargetError without matplotlib, CallError where it cannot be written.
        """
        from offcut.backends.accelerator.simulator.gantt import gantt

        return gantt(self, path)

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"

    def __str__(self) -> str:
        rows = [
            f"{self.cycles:,.0f} cycles, {1e6 * self.seconds:,.1f} µs at {self.spec.hertz / 1e6:,.0f} MHz"
        ]
        rows.append(f"matrix unit used to {self.utilisation:.1%}")
        for unit in Unit:
            waited = ", ".join(
                f"{stall.value} {cycles:,.0f}" for stall, cycles in self.stalls[unit].items()
            )
            rows.append(
                f"{unit.value:8} busy {self.busy[unit]:,.0f}; waited for {waited or 'nothing'}"
            )
        moved = ", ".join(f"{place.value} {count:,}" for place, count in self.bytes.items())
        rows.append(f"bytes    {moved or 'none'}")
        rows += [f"race     {race}" for race in self.races]
        return "\n".join(rows)


def concatenate(runs: Sequence[SimulationResult], spec: AcceleratorSpec) -> SimulationResult:
    """Runs one after the other."""
    cycles, first = 0.0, 0
    total = SimulationResult(spec, (), 0.0, (), (), (), {})
    for run in runs:
        events = tuple(
            replace(e, position=e.position + first, start=e.start + cycles, end=e.end + cycles)
            for e in run.events
        )
        races = tuple(
            replace(race, earlier=race.earlier + first, later=race.later + first)
            for race in run.races
        )
        unwritten = tuple((at + first, place, word) for at, place, word in run.unwritten)
        left = {
            pair: run.left.get(pair, 0) + total.left.get(pair, 0)
            for pair in (*run.left, *total.left)
        }
        total = SimulationResult(
            spec,
            (*total.instructions, *run.instructions),
            total.cycles + run.cycles,
            (*total.events, *events),
            (*total.races, *races),
            (*total.unwritten, *unwritten),
            left,
        )
        cycles, first = total.cycles, len(total.instructions)
    return total
