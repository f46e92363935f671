"""What a run of a stream tells: cycles, who waited for whom, bytes, energy, races."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, assert_never

from offcut.backends.accelerator.isa import (
    Alu,
    Finish,
    Gemm,
    Instruction,
    Load,
    MemorySpace,
    Store,
    Unit,
)
from offcut.backends.accelerator.simulator.timing import Event, moved_bytes, step_count
from offcut.backends.accelerator.spec import AcceleratorSpec
from offcut.partition.show.figures import check_drawable, new_figure, write

if TYPE_CHECKING:
    from matplotlib.figure import Figure


import html
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from offcut.backends.accelerator.isa.listing import summary
from offcut.backends.accelerator.simulator.race_detection import Conflict
from offcut.backends.accelerator.simulator.timing import Stall
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


# Okabe & Ito's colours, which all readers can tell apart.
_COLOURS = {
    "micro-ops": "#999999",
    "inputs": "#56b4e9",
    "weights": "#0072b2",
    "accumulators": "#cc79a7",
    "gemm": "#009e73",
    "alu": "#e69f00",
    "store": "#d55e00",
    "finish": "#000000",
}


def gantt(run: SimulationResult, path: str | Path | None) -> Figure:
    """Draw a run, and write it where there is a path.

    Raises TargetError without matplotlib, CallError where the picture cannot be written.
    """
    check_drawable("a run")

    figure = new_figure(12, 2.6)
    axes: Any = figure.add_subplot()
    rows = {unit: -number for number, unit in enumerate(Unit)}
    for unit in Unit:
        waits = [
            (event.start - waited, waited)
            for event in run.events
            if event.unit is unit and (waited := sum(cycles for _, cycles in event.waits))
        ]
        axes.broken_barh(waits, (rows[unit] - 0.12, 0.24), facecolor="#e6e6e6")
    for kind, colour in _COLOURS.items():
        bars = [event for event in run.events if _kind(run, event) == kind]
        for unit in {event.unit for event in bars}:
            spans = [(one.start, one.end - one.start) for one in bars if one.unit is unit]
            axes.broken_barh(spans, (rows[unit] - 0.36, 0.72), facecolor=colour)
        if bars:
            axes.plot([], [], color=colour, linewidth=6, label=kind)
    axes.set_yticks(list(rows.values()), [unit.value for unit in rows])
    axes.set_xlim(0, max(run.cycles, 1))
    axes.set_xlabel(f"cycles; matrix unit used to {run.utilisation:.0%}")
    if run.events:
        axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
    axes.spines[["top", "right", "left"]].set_visible(False)
    write(figure, path, 'run.plot("run.png")')
    return figure


def _kind(run: SimulationResult, event: Event) -> str:
    instruction = run.instructions[event.position]
    if isinstance(instruction, Load):
        return instruction.place.value
    return type(instruction).__name__.lower()


_PICO = 1e-12


@dataclass(frozen=True, slots=True)
class OpCounts:
    """Counts of a stream.

    multiply_adds      of the matrix unit, of whole words: zeros that fill a word count
    vector_operations  of elements, of the vector unit
    bus_bytes          by place, both ways
    chip_bytes         that memories on the chip give and take, by place
    """

    multiply_adds: int
    vector_operations: int
    bus_bytes: Mapping[MemorySpace, int]
    chip_bytes: Mapping[MemorySpace, int]


def count_operations(instructions: Iterable[Instruction], spec: AcceleratorSpec) -> OpCounts:
    """The counts of a stream."""
    size = {place: words.bytes for place, words in spec.words.items()}
    accumulator = size[MemorySpace.ACCUMULATORS]
    products = operations = 0
    bus, chip = Counter[MemorySpace](), Counter[MemorySpace]()
    for one in instructions:
        match one:
            case Load(place=place, y=y, x=x):
                bus[place] += moved_bytes(place, y, x, spec)
                chip[place] += one.words * size[place]
            case Store(y=y, x=x):
                bus[MemorySpace.OUTPUTS] += moved_bytes(MemorySpace.OUTPUTS, y, x, spec)
                chip[MemorySpace.ACCUMULATORS] += one.words * accumulator
            case Gemm(reset=reset):
                steps = step_count(one)
                chip[MemorySpace.MICRO_OPS] += steps * size[MemorySpace.MICRO_OPS]
                chip[MemorySpace.ACCUMULATORS] += steps * accumulator * (1 if reset else 2)
                if not reset:
                    products += steps
                    chip[MemorySpace.INPUTS] += steps * size[MemorySpace.INPUTS]
                    chip[MemorySpace.WEIGHTS] += steps * size[MemorySpace.WEIGHTS]
            case Alu(immediate=immediate):
                steps = step_count(one)
                operations += steps
                chip[MemorySpace.MICRO_OPS] += steps * size[MemorySpace.MICRO_OPS]
                chip[MemorySpace.ACCUMULATORS] += (
                    steps * accumulator * (3 if immediate is None else 2)
                )
            case Finish():
                pass
            case _:
                assert_never(one)
    word = spec.rows * spec.columns
    return OpCounts(products * word * spec.terms, operations * word, dict(bus), dict(chip))


def energy(done: OpCounts, spec: AcceleratorSpec) -> dict[str, float]:
    """Joules by what takes them; empty where the machine has no table.

    A vector operation is taken as an addition of int32, whichever it is.
    """
    table = spec.energy
    if table is None:
        return {}
    found = {
        "multiply-adds": done.multiply_adds * (table.multiply_add("int8") or 0.0),
        "vector operations": done.vector_operations * table.add.int32,
    }
    for place, count in done.chip_bytes.items():
        memory = spec.words[place].memory
        each = table.on_chip(spec.memories[memory])
        found[memory] = found.get(memory, 0.0) + count * each
    found["main memory"] = sum(done.bus_bytes.values()) * table.dram
    return {name: joules * _PICO for name, joules in found.items()}
