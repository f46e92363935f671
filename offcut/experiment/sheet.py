"""A machine description as tables and as a picture of its roofline."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields
from pathlib import Path

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table

from offcut.backends.cpu.machine import isa
from offcut.backends.cpu.machine.isa import in_llvm
from offcut.backends.cpu.microkernels.available import families
from offcut.costmodel import Accelerator, Device, Machine, Memory, Unit, roofline
from offcut.costmodel.device import Alu, Control
from offcut.experiment.outputs import plot_lines

_NONE = "–"

MISS = 1.5
"""The ratio of a predicted rate to the measured one, or its inverse, from which `sheet` names the row."""


def sheet(device: Device) -> Group:
    """Return the tables of a machine: its units, its memories with what they bind, its microkernels, and where
    every number is from.
    """
    units = units_of(device)
    parts: list[RenderableType] = [_head(device), _units(device, units), _memories(device, units)]
    if isinstance(device, Machine) and device.microkernel:
        parts.append(_microkernels(device))
    if isinstance(device, Accelerator) and device.control and device.alu:
        parts.append(_queues(device, device.control, device.alu))
    if device.energy is not None:
        parts.append(
            f"pJ are an estimate: published for {device.energy.nanometres} nm, whatever this machine is made in"
        )
    return Group(*parts, _sources(device))


def units_of(device: Device) -> tuple[Unit, ...]:
    """Return the units that a machine has; of this one, those whose features are not hidden."""
    if not isinstance(device, Machine):
        return device.unit
    host = _host(device)
    return tuple(
        unit for unit in device.unit if {in_llvm(one) for one in unit.needs} <= host.features
    )


def draw(device: Device, path: Path) -> None:
    """Write the roofline of one core as a PNG.

    Raises TargetError when matplotlib is not installed.
    """
    units = units_of(device)
    roof = roofline(device, units)
    ridges = [ridge for _, bandwidth in roof.bandwidths for ridge in roof.ridges(bandwidth)]
    first, last = min(ridges) / 4, max(ridges) * 4
    lines = {}
    for name, bandwidth in roof.bandwidths:
        ends = sorted({first, max(roof.ridges(bandwidth)), last})
        points = [(at, roof.attainable(bandwidth, at) / 1e9) for at in ends]
        lines[f"{name}, {bandwidth / 1e9:.3g} GB/s"] = points
    peaks = {f"{unit.name}, {peak / 1e9:.4g}": peak / 1e9 for unit, peak in roof.peaks}
    lines |= {name: [(first, peak), (last, peak)] for name, peak in peaks.items()}
    plot_lines(
        path,
        lines,
        title=f"{device.name}: {_core(device)} at {device.hertz / 1e9:g} GHz",
        x_label="operations per byte from the level",
        y_label="1e9 operations per second (higher is better)",
        footer=f"{device.title}; described, not measured here",
        dashed=tuple(peaks),
        logarithmic=True,
    )


def _head(device: Device) -> str:
    many = f"{device.cores} of these" if device.cores > 1 else "one of these"
    ports = ""
    if isinstance(device, Machine):
        core = device.core
        ports = (
            f"; in a cycle {core.issue:g} operations start, of vectors {core.multiply_adds:g} multiply–adds, "
            f"{core.loads:g} loads, {core.stores:g} stores"
        )
    title = f"{device.name}: {device.title} ({device.architecture})"
    return escape(f"{title}\n{_core(device)} at {device.hertz / 1e9:g} GHz, {many}{ports}")


def _core(device: Device) -> str:
    return "one core" if isinstance(device, Machine) else "one engine"


def _units(device: Device, units: Sequence[Unit]) -> Table:
    grid = _table("unit", "of", "operation", "multiply–adds/cycle", "latency, cycles")
    for title in ("1e9 op/s", f"of all {device.cores}", "pJ per multiply–add"):
        grid.add_column(title, justify="right")
    for unit, peak in roofline(device, units).peaks:
        picojoules = [device.energy.multiply_add(one) if device.energy else None for one in unit.of]
        grid.add_row(
            *(escape(unit.name), ", ".join(unit.of), f"{unit.rows}×{unit.columns}×{unit.terms}"),
            *(f"{unit.multiply_adds:g}", f"{unit.latency_cycles:g}"),
            *(f"{peak / 1e9:.4g}", f"{device.cores * peak / 1e9:.4g}"),
            next((f"{one:.3g}" for one in picojoules if one is not None), _NONE),
        )
    return grid


def _memories(device: Device, units: Sequence[Unit]) -> Table:
    grid = _table("memory", "bytes", "ways", "line", "B/cycle", "GB/s", "latency, cycles", "ns")
    grid.add_column("pJ/byte", justify="right")
    for unit in units:
        grid.add_column(f"op/byte, {escape(unit.name)}", justify="right")
    roof = roofline(device, units)
    for level, (_, bandwidth) in zip(device.levels, roof.bandwidths, strict=True):
        size, ways, picojoules = "any", _NONE, device.energy.dram if device.energy else None
        if isinstance(level, Memory):
            size, ways = f"{level.bytes:,}", str(level.ways or _NONE)
            picojoules = device.energy.on_chip(level.bytes) if device.energy else None
        holds = level.holds if isinstance(level, Memory) and level.holds != (level.name,) else ()
        grid.add_row(
            escape(f"{level.name} of {', '.join(holds)}" if holds else level.name),
            *(size, ways, str(level.line)),
            *(f"{level.bytes_per_cycle:g}", f"{bandwidth / 1e9:.3g}"),
            *(f"{level.latency_cycles:g}", f"{level.latency_cycles / device.hertz * 1e9:.3g}"),
            _NONE if picojoules is None else f"{picojoules:g}",
            *(f"{ridge:.3g}" for ridge in roof.ridges(bandwidth)),
        )
    grid.caption = "op/byte: from how many operations on a byte on the memory no longer binds"
    return grid


def _microkernels(machine: Machine) -> Table:
    rows = _table("microkernel", "tile", "predicted, multiply–adds/cycle", "measured", "ratio")
    misses = []
    known = {family.microkernel.name: family.microkernel for family in families(_host(machine))}
    for one in machine.microkernel:
        predicted, ratio, kernel = _NONE, None, known.get(one.name)
        if kernel is not None and kernel.columns_for(one.rows) >= one.columns:
            tile = kernel.tile(one.rows, one.columns)
            rate = one.rows * one.columns / tile.cycles
            predicted, ratio = f"{rate:.3g}", rate / one.multiply_adds
        tile_name = f"{one.rows}×{one.columns}"
        if ratio is not None and not 1 / MISS <= ratio <= MISS:
            times = max(ratio, 1 / ratio)
            misses.append(
                f"{one.name} {tile_name}, {times:.2g} × too {'fast' if ratio > 1 else 'slow'}"
            )
        ratio_text = _NONE if ratio is None else f"{ratio:.2f}"
        rows.add_row(escape(one.name), tile_name, predicted, f"{one.multiply_adds:.3g}", ratio_text)
    if misses:
        rows.caption = escape(
            f"predicted and measured differ by more than {MISS:g} × in {len(misses)} of "
            f"{len(machine.microkernel)} rows:\n" + "\n".join(misses)
        )
    return rows


def _queues(machine: Accelerator, control: Control, alu: Alu) -> Table:
    grid = _table("queue", "loads", "instructions", "cycles of one, beside its words")
    for queue in machine.queue:
        loads = ", ".join(queue.loads) or _NONE
        grid.add_row(queue.name, loads, str(queue.depth), f"{queue.instruction_cycles:g}")
    order = "queues wait for earlier instructions that touch the same words"
    if control.tokens:
        order = f"instructions wait for tokens, of which {control.token_depth} lie between two queues at most"
    grid.caption = (
        f"{order}; one is fetched every {control.fetch_cycles:g} cycles\n"
        f"{', '.join(alu.operations)} of accumulators: {alu.immediate_cycles:g} cycles a word, "
        f"{alu.operand_cycles:g} with a second word"
    )
    return grid


def _host(machine: Machine) -> isa.Host:
    """Return a machine as code is made for it; this one, less what is hidden of it."""
    here = isa.host()
    return here if machine == here.machine else isa.host_for_machine(machine)


def _sources(device: Device) -> Table:
    grid = Table(box=None, show_header=False, padding=(0, 1), title="where the numbers are from")
    grid.title_justify = "left"
    for name, source in _source_lines(device):
        grid.add_row(escape(name), escape(source))
    return grid


def _source_lines(device: Device) -> Iterator[tuple[str, str]]:
    for field in fields(device):
        value = getattr(device, field.name)
        for one in value if isinstance(value, tuple) else (value,):
            if hasattr(one, "source"):
                yield getattr(one, "name", field.name), one.source


def _table(*columns: str) -> Table:
    grid = Table(box=None, padding=(0, 1), caption_justify="left")
    for position, title in enumerate(columns):
        grid.add_column(title, justify="right" if position else "left")
    return grid
