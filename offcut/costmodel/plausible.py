"""Check the numbers and features of a machine description: ranges that no machine leaves, and what must hold between fields.

A number in another unit (MHz for hertz, GB/s for bytes per cycle) is what these find; a number that is
merely wrong is the author's.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

from offcut.core.nearest import meant
from offcut.costmodel.device import Device
from offcut.costmodel.machine import Machine
from offcut.costmodel.workable import Fault

_RANGES: dict[str, tuple[float, float, str]] = {
    "hertz": (1e7, 1e10, "cycles per second"),
    "count": (1, 1 << 16, "cores"),
    "issue": (0, 64, "operations per cycle"),
    "loads": (0, 64, "vectors per cycle"),
    "stores": (0, 64, "vectors per cycle"),
    "bytes": (1, 1 << 40, "bytes"),
    "code_bytes": (1 << 10, 1 << 30, "bytes"),
    "ways": (1, 1 << 10, "ways"),
    "line": (1, 1 << 16, "bytes"),
    "bytes_per_cycle": (0, 1 << 14, "bytes per cycle"),
    "rows": (1, 1 << 16, "rows"),
    "columns": (1, 1 << 16, "columns"),
    "terms": (1, 1 << 16, "terms"),
    "multiply_adds": (0, 1 << 20, "multiply-adds per cycle"),
    "nanometres": (1, 10_000, "nanometres"),
    "call_seconds": (0, 1e-3, "seconds"),
    "way_seconds": (0, 1e-4, "seconds"),
}
"""Least and most of a field, and its unit, by the name of the field."""

_BY_ENDING: dict[str, tuple[float, float, str]] = {
    "_cycles": (0, 1e7, "cycles"),
    "_seconds": (0, 3600, "seconds"),
    "_share": (0, 1, "of the whole"),
}
_SHARES = ("overlap_loss", "gain")
_IN_PICOJOULES = ("Picojoules", "Sram", "Energy")
_PICOJOULES = (0, 1e6, "picojoules")

_RATE_NOISE = 4.0
"""How much faster a farther level may be measured than a nearer one, on a machine with other work."""
_PEAK_NOISE = 8.0
"""How much faster a microkernel may be measured than the fastest unit, likewise."""
_UNITS = ((1e9, "GHz"), (1e6, "MHz"), (1e3, "kHz"))


def implausible(device: Device) -> Iterator[Fault]:
    """Yield each field that no machine has so: where, why, and what would be accepted."""
    yield from _out_of_range(device, ())
    if isinstance(device, Machine):
        yield from _levels(device)
        yield from _rates(device)
        yield from _features(device)


def _out_of_range(value: Any, at: tuple[str, ...]) -> Iterator[Fault]:
    if isinstance(value, tuple):
        for position, one in enumerate(value):
            yield from _out_of_range(one, (*at, str(position)))
        return
    if not is_dataclass(value):
        return
    kind = type(value).__name__
    for field in fields(value):
        number, here = getattr(value, field.name), (*at, field.name)
        bounds = _range_of(kind, field.name)
        if bounds is None or isinstance(number, bool) or not isinstance(number, int | float):
            yield from _out_of_range(number, here)
            continue
        least, most, unit = bounds
        if not least <= number <= most:
            limits = f"{least:g} to {most:g}" if least else f"at most {most:g}"
            yield (
                here,
                f"{number:g} {unit}: machines have {limits}",
                *_other_units(field.name, number),
            )


def _range_of(kind: str, name: str) -> tuple[float, float, str] | None:
    if name in _SHARES:
        return 0, 1, "of the whole"
    if kind in _IN_PICOJOULES and name not in ("bytes", "nanometres"):
        return _PICOJOULES
    if name in _RANGES:
        return _RANGES[name]
    return next((one for ending, one in _BY_ENDING.items() if name.endswith(ending)), None)


def _other_units(name: str, number: float) -> Iterator[str]:
    """Yield the value that was meant, if a frequency is given in another unit."""
    if name == "hertz":
        least, most, _ = _RANGES["hertz"]
        for factor, unit in _UNITS:
            if least * 10 <= number * factor <= most:
                yield f"hertz = {number * factor:.4g}, if {number:g} is in {unit}"


def _levels(machine: Machine) -> Iterator[Fault]:
    """A farther level is larger (or shares about as much), slower, and no faster to stream from."""
    for position, (near, far) in enumerate(pairwise(machine.memory), start=1):
        at = ("memory", str(position))
        if far.bytes <= near.bytes and (position == 1 or 2 * far.bytes < near.bytes):
            yield (
                (*at, "bytes"),
                f"{far.name} holds {far.bytes:,} bytes, and {near.name}, which is nearer, {near.bytes:,}",
            )
    for position, level in enumerate(machine.memory):
        if level.ways is not None and level.ways * level.line > level.bytes:
            yield (
                ("memory", str(position), "ways"),
                f"{level.ways} ways of lines of {level.line} bytes are more than its {level.bytes:,} bytes",
            )
    where: list[tuple[str, ...]] = [
        *(("memory", str(position)) for position in range(len(machine.memory))),
        ("dram",),
    ]
    for place, (closer, farther) in zip(where[1:], pairwise(machine.levels), strict=True):
        if farther.latency_cycles < closer.latency_cycles:
            yield (
                (*place, "latency_cycles"),
                f"{farther.name} answers in {farther.latency_cycles:g} cycles, and {closer.name}, which is nearer, in {closer.latency_cycles:g}",
            )
        if farther.bytes_per_cycle > _RATE_NOISE * closer.bytes_per_cycle:
            yield (
                (*place, "bytes_per_cycle"),
                f"{farther.name} streams {farther.bytes_per_cycle:g} bytes per cycle, and {closer.name}, which is nearer, {closer.bytes_per_cycle:g}",
            )


def _rates(machine: Machine) -> Iterator[Fault]:
    peak = max((unit.multiply_adds for unit in machine.unit), default=0.0)
    for position, one in enumerate(machine.microkernel):
        if one.multiply_adds > _PEAK_NOISE * peak:
            yield (
                ("microkernel", str(position), "multiply_adds"),
                f"{one.name} does {one.multiply_adds:g} multiply-adds per cycle, and the fastest unit {peak:g}",
            )


def _features(machine: Machine) -> Iterator[Fault]:
    names = linux_features(machine.architecture)
    if names is None:
        return
    references = [
        ("features", str(position), name) for position, name in enumerate(machine.features)
    ]
    for number, unit in enumerate(machine.unit):
        references += [
            (f"unit.{number}.needs", str(position), name)
            for position, name in enumerate(unit.needs)
        ]
    for where, position, name in references:
        if name not in names:
            yield (
                (*where.split("."), position),
                f"Linux names no feature {name!r} of {machine.architecture}{meant(name, tuple(names))}",
                "names as /proc/cpuinfo lists them",
            )


@cache
def linux_features(architecture: str) -> frozenset[str] | None:
    """Return what Linux calls the features of an architecture, or None for one that `features.toml` does not list."""
    text = Path(__file__).with_name("features.toml").read_text(encoding="utf-8")
    text_of_names = tomllib.loads(text).get(architecture)
    return None if text_of_names is None else frozenset(text_of_names.split())
