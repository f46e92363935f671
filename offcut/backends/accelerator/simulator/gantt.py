"""A Gantt chart of a run: a row for each unit, coloured by what it does, and pale where it waits."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from offcut.backends.accelerator.isa import Load, Unit
from offcut.backends.accelerator.simulator.timing import Event
from offcut.partition.show.figure_io import check_drawable, new_figure, write

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from offcut.backends.accelerator.simulator.run_result import SimulationResult

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
