"""The description of a machine that was measured, as TOML: what it is like, and what differs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import date
from pathlib import Path

from offcut.backends.cpu.machine.isa import in_llvm
from offcut.costmodel import Machine, load, shipped_machines
from offcut.errors import BusyError, TargetError
from offcut.experiment.probe import Measured, Reading

LOADED = 0.9
"""The least share of its core that a process has on a machine that can be measured."""

APART = 0.1
"""How far the quartiles of the rounds may lie apart, over their median, where a number is sure."""


def machine_text(measured: Measured, name: str, day: date | None = None) -> str:
    """Return a file that `oc.target(machine=…)` reads: like the nearest description, with what was measured.

    day  that the file says; None: today
    """
    return "\n".join(_lines(measured, name, day or date.today())) + "\n"


def check_path(path: Path) -> None:
    """Refuse a file whose name is not one that is read back."""
    if path.suffix != ".toml":
        because, help = (
            "a machine is read from a file whose name ends in .toml",
            path.stem or "mine",
        )
        raise TargetError(
            "probe", f"cannot write {path}", because=because, help=(f"--out {help}.toml",)
        )


def write_machine(text: str, path: Path) -> None:
    """Write a description to a file.

    Raises TargetError where it cannot be written.
    """
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        because = error.strerror or type(error).__name__
        help = ("--out of a folder that is there", "without --out it is printed")
        raise TargetError("probe", f"cannot write {path}", because=because, help=help) from None


def check_idle(measured: Measured) -> None:
    """Check that this process had its core while it measured.

    Raises BusyError if it had it less than `LOADED` of the time.
    """
    if measured.core_share < LOADED:
        share = f"this process had its core {100 * measured.core_share:.0f} % of the time"
        because = f"it is too loaded to be measured: {share}"
        help = "offcut target probe, when nothing else runs"
        loaded = "--loaded takes these numbers, and the description says so"
        what = "cannot describe this machine"
        raise BusyError("probe", what, because=because, help=(help, loaded))


def complaints(measured: Measured) -> tuple[str, ...]:
    """Return what makes numbers of the measurement unsure, a line each; empty if they are sure."""
    problems = []
    readings = {"the clock": measured.clock, **measured.units, **measured.memories}
    readings |= {f"{kernel} {rows}×{n}": it for (kernel, rows, n), it in measured.tiles.items()}
    if "call_seconds" in measured.calls:
        readings["a call"] = measured.calls["call_seconds"]
    apart = {name: it.spread for name, it in readings.items() if it.spread > APART}
    if apart:
        worst = max(apart, key=lambda name: apart[name])
        problems.append(
            f"{len(apart)} of {len(readings)} numbers are unsure: the quartiles of their rounds lie more than "
            f"{100 * APART:.0f} % apart, those of {worst} {100 * apart[worst]:.0f} %"
        )
    return tuple(problems)


def _lines(measured: Measured, name: str, day: date) -> Iterator[str]:
    near, own = measured.near, measured.host.machine
    by = f"measured by offcut target probe on {day.isoformat()}"
    if measured.core_share < LOADED:
        by += (
            f" under load (this process had its core {100 * measured.core_share:.0f} % of the time)"
        )
    yield f"name = {_text(name)}"
    yield f"title = {_text(measured.cpu)}"
    yield f"architecture = {_text(own.architecture)}"
    yield f"like = {_text(near.name)}"
    yield f"features = {_texts(_features(measured))}"
    for level, here in zip(near.memory, own.memory, strict=True):
        yield from ("", "[[memory]]", f"name = {_text(level.name)}")
        yield f"bytes = {here.bytes}"
        yield f"ways = {here.ways}"
        yield f"line = {here.line}"
        yield from _rate("bytes_per_cycle", measured.memories.get(level.name), near, by)
    yield from ("", "[dram]")
    yield from _rate("bytes_per_cycle", measured.memories.get("DRAM"), near, by)
    yield from ("", "[core]", f"count = {own.core.count}")
    yield f"hertz = {measured.clock.value:.4g}"
    product = measured.units.get("fma float32")
    spreads = f"clock{_sure(measured.clock)}"
    if product is not None:
        yield f"multiply_adds = {product.value / measured.host.isa.lanes('float32'):.4g}"
        spreads += f", multiply_adds{_sure(product)}"
    yield f"source = {_text(f'{by}: {spreads}; count: the system; the rest: as {near.name}')}"
    for unit in near.unit:
        if {in_llvm(one) for one in unit.needs} <= measured.host.features:
            yield from ("", "[[unit]]", f"name = {_text(unit.name)}")
            yield from _rate("multiply_adds", measured.units.get(unit.name), near, by)
    if measured.calls:
        yield from ("", "[call]")
        yield from (f"{field} = {reading.value:.3g}" for field, reading in measured.calls.items())
        spreads = ", ".join(f"{field}{_sure(reading)}" for field, reading in measured.calls.items())
        yield f"source = {_text(f'{by}: {spreads}')}"
    for (kernel, rows, columns), reading in measured.tiles.items():
        yield from ("", "[[microkernel]]", f"name = {_text(kernel)}")
        yield f"rows = {rows}"
        yield f"columns = {columns}"
        yield f"multiply_adds = {reading.value:.4g}"
        yield f"source = {_text(by + _sure(reading))}"


def _rate(field: str, reading: Reading | None, near: Machine, by: str) -> Iterator[str]:
    """Yield a rate that was measured, and the source of its table; nothing where it was not."""
    if reading is not None:
        yield f"{field} = {reading.value:.4g}"
        yield f"source = {_text(f'{by}: {field}{_sure(reading)}; the rest: the system, or as {near.name}')}"


def _sure(reading: Reading) -> str:
    return f" (spread {100 * reading.spread:.1f} %)"


def _features(measured: Measured) -> list[str]:
    """Return the features that any description of the architecture names, where this machine has them."""
    machines = [
        machine for machine in map(load, shipped_machines()) if isinstance(machine, Machine)
    ]
    alike = [one for one in machines if one.architecture == measured.host.machine.architecture]
    known = {name for machine in alike for name in machine.features}
    return sorted(name for name in known if in_llvm(name) in measured.host.features)


def _texts(names: list[str]) -> str:
    return f"[{', '.join(map(_text, names))}]"


def _text(value: str) -> str:
    """Return a text as TOML has it, whose escapes are those of JSON."""
    return json.dumps(value, ensure_ascii=False)
