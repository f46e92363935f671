"""Check a machine description: what no machine leaves, what must hold between fields, the words of its memories.

A number in another unit (MHz for hertz, GB/s for bytes per cycle) is what ranges find; a number that is
merely wrong is the author's.

The words in the memories of a machine of queues, how many there are, and the fields of instructions that name them.

The product of its matrix unit gives the words: one of inputs is ``rows × terms`` int8, one of weights
``columns × terms`` int8, one of accumulators ``rows × columns`` int32, one of outputs as many int8. A
micro-op is what its memory moves at a time.

An instruction has 128 bits, in two parts: fields follow one another from the lowest bit on, and the second
part begins at bit 64, or before it where it would not end by bit 128. An address has as many bits as it needs
to name any word of the operand; what does not depend on the machine is as VTA has it.

Source: the VTA repository's hw_spec.h; with its depths the fields lie where they lie there, and the type of a
memory has 3 bits, as in its hardware in Chisel.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

from offcut.core.dtypes import DTYPES
from offcut.core.names import suggestion
from offcut.costmodel.device import (
    ALU_OPERATIONS,
    OPERANDS,
    QUEUES,
    Accelerator,
    Device,
    Memory,
    Unit,
)
from offcut.costmodel.machine import Machine


def matrix_unit(machine: Accelerator) -> Unit | None:
    """What multiplies int8: the first such unit."""
    return next((unit for unit in machine.unit if "int8" in unit.of), None)


def operand_memory(machine: Accelerator, operand: str) -> Memory | None:
    """The memory that an operand is kept in."""
    return next((memory for memory in machine.memory if operand in memory.holds), None)


def word_bytes(machine: Accelerator, unit: Unit, operand: str) -> int:
    """Bytes of a word of an operand; of outputs, as they are stored."""
    memory = operand_memory(machine, operand)
    return {
        "micro-ops": memory.line if memory else 0,
        "inputs": unit.rows * unit.terms,
        "weights": unit.columns * unit.terms,
        "accumulators": 4 * unit.rows * unit.columns,
        "outputs": unit.rows * unit.columns,
    }[operand]


def word_capacity(machine: Accelerator, unit: Unit, operand: str) -> int:
    """Words of an operand that its memory has room for; outputs that are kept with accumulators are
    their words.
    """
    memory = operand_memory(machine, operand)
    if memory is None:
        return 0
    same = operand == "outputs" and "accumulators" in memory.holds
    return memory.bytes // word_bytes(machine, unit, "accumulators" if same else operand)


INSTRUCTION_BITS = 128

Fields = tuple[tuple[str, int], ...]

_HEAD: Fields = (
    ("opcode", 3),
    ("pop_prev", 1),
    ("pop_next", 1),
    ("push_prev", 1),
    ("push_next", 1),
)
_SRAM_BITS = 16  # at least
_LOOP_BITS = 14
_PADS = ("pad_top", "pad_bottom", "pad_left", "pad_right")


def index_bits(depth: int) -> int:
    """Bits that name any of so many words."""
    return max((depth - 1).bit_length(), 1)


def micro_op(depths: Mapping[str, int]) -> Fields:
    """The fields of a micro-op, from its lowest bit on. A vector operation's source is an accumulator."""
    source = max(depths["inputs"], depths["accumulators"])
    return (
        ("dst", index_bits(depths["accumulators"])),
        ("src", index_bits(source)),
        ("wgt", index_bits(depths["weights"])),
    )


def instructions(depths: Mapping[str, int]) -> dict[str, tuple[Fields, Fields]]:
    """The two parts of each format: of loads and stores, of products, of vector operations, of an end."""
    dst, inputs, wgt = (index_bits(depths[one]) for one in ("accumulators", "inputs", "weights"))
    ops = index_bits(depths["micro-ops"])
    sram = max(_SRAM_BITS, *(index_bits(depth) for depth in depths.values()))
    loops: Fields = (
        *_HEAD,
        ("reset", 1),
        ("begin", ops),
        ("end", ops + 1),
        ("outer", _LOOP_BITS),
        ("inner", _LOOP_BITS),
    )
    return {
        "memory": (
            (*_HEAD, ("place", 3), ("sram", sram), ("dram", 32)),
            (("y", 16), ("x", 16), ("stride", 16), *((pad, 4) for pad in _PADS)),
        ),
        "gemm": (loops, _factors(dst=dst, src=inputs, wgt=wgt)),
        "alu": (
            loops,
            (*_factors(dst=dst, src=dst), ("op", 3), ("use_immediate", 1), ("immediate", 16)),
        ),
        "finish": (_HEAD, ()),
    }


def _factors(**bits: int) -> Fields:
    return tuple(
        (f"{loop}_{operand}", width)
        for operand, width in bits.items()
        for loop in ("outer", "inner")
    )


Fault = tuple[tuple[str, ...], str, *tuple[str, ...]]
"""The field of a description that is wrong, what is wrong with it, and what would be accepted."""

PACKING = ("x86_64", "aarch64")
"""Architectures whose code packs operands for the second level of its caches, to stream from the third; another machine may have one scratchpad."""
UNSTATED = "it is not stated, and no like= states it"
_LONGEST = 2**31 - 1  # cycles that a waiting thread counts

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


def machine_faults(device: Device) -> Iterator[Fault]:
    """Yield each field of a description that is wrong: first what planning rests on, then what no machine has so."""
    if isinstance(device, Machine):
        yield from _caches(device)
        yield from _tiles(device)
    elif isinstance(device, Accelerator):
        yield from _queue_machine(device)
    yield from _element_types(device)
    yield from _out_of_range(device, ())
    if isinstance(device, Machine):
        yield from _levels(device)
        yield from _rates(device)
        yield from _features(device)


def _caches(machine: Machine) -> Iterator[Fault]:
    packs = machine.architecture in PACKING
    if packs and len(machine.memory) < 3:
        yield (
            ("memory",),
            f"packed operands stream from the third of its levels, and {len(machine.memory)} stand there: a list is stated whole",
        )
    for position, level in enumerate(machine.memory):
        at = ("memory", str(position))
        if packs and level.ways is None:
            yield (*at, "ways"), UNSTATED
        if level.line & (level.line - 1):
            yield (*at, "line"), f"it is a power of 2, got {level.line}"
        if any(level.name == nearer.name for nearer in machine.memory[:position]):
            yield (*at, "name"), f"another level is called {level.name}"


def _tiles(machine: Machine) -> Iterator[Fault]:
    tiles, unroll = machine.tiles, machine.tiles.unroll
    for count, widths in ((32, tiles.vectors_32), (16, tiles.vectors_16)):
        for rows, wide in enumerate(widths, start=1):
            if rows * wide + wide >= count:
                because = f"{rows} rows of {wide}, as many of B and one of A need more than {count} registers"
                yield ("tiles", f"vectors_{count}", str(rows - 1)), because
    if unroll < 4 or unroll & (unroll - 1):
        yield ("tiles", "unroll"), f"it is a power of 2, at least 4, got {unroll}"
    if max(machine.threads.spin_cycles, machine.threads.recent_cycles) > _LONGEST:
        yield ("threads",), f"spin_cycles, recent_cycles are at most {_LONGEST}"


def _element_types(device: Device) -> Iterator[Fault]:
    for position, unit in enumerate(device.unit):
        at = ("unit", str(position), "of")
        if not unit.of:
            yield at, "a unit multiplies elements of some type"
        for number, dtype in enumerate(unit.of):
            if dtype not in DTYPES:
                yield (*at, str(number)), f"element types are {', '.join(DTYPES)}, got {dtype!r}"
    capacities = [one.bytes for one in device.energy.sram] if device.energy else []
    if capacities != sorted(capacities):
        yield ("energy", "sram"), "the smallest memory comes first"


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
                f"Linux names no feature {name!r} of {machine.architecture}{suggestion(name, tuple(names))}",
                "names as /proc/cpuinfo lists them",
            )


@cache
def linux_features(architecture: str) -> frozenset[str] | None:
    """Return what Linux calls the features of an architecture, or None for one that `features.toml` does not list."""
    text = Path(__file__).with_name("features.toml").read_text(encoding="utf-8")
    text_of_names = tomllib.loads(text).get(architecture)
    return None if text_of_names is None else frozenset(text_of_names.split())


def _queue_machine(machine: Accelerator) -> Iterator[Fault]:
    """What keeps a machine of queues from working: memories for all operands, words that fit, fields that fit."""
    stated = {"control": machine.control, "queue": machine.queue, "alu": machine.alu}
    if not any(stated.values()):
        return
    unstated = "it is not stated, and a machine of queues has it"
    yield from (((name,), unstated) for name, value in stated.items() if not value)
    yield from _queues(machine)
    yield from _memories(machine)
    for position, name in enumerate(machine.alu.operations if machine.alu else ()):
        if name not in ALU_OPERATIONS:
            known = f"operations are {', '.join(ALU_OPERATIONS)}, got {name!r}"
            yield ("alu", "operations", str(position)), known
    unit = matrix_unit(machine)
    if unit is None:
        yield ("unit",), "no unit multiplies int8"
    else:
        yield from _words(machine, unit)


def _queues(machine: Accelerator) -> Iterator[Fault]:
    names = [queue.name for queue in machine.queue]
    for position, name in enumerate(names):
        if name not in QUEUES or name in names[:position]:
            yield (
                ("queue", str(position), "name"),
                f"queues are {', '.join(QUEUES)}, one of each, got {name!r}",
            )
    for name in QUEUES:
        if name not in names:
            yield ("queue",), f"there is no queue {name!r}"
    loaded: dict[str, str] = {}
    for position, queue in enumerate(machine.queue):
        for number, operand in enumerate(queue.loads):
            at = ("queue", str(position), "loads", str(number))
            if operand not in OPERANDS[:-1]:
                yield (
                    at,
                    f"operands that are loaded are {', '.join(OPERANDS[:-1])}, got {operand!r}",
                )
            elif queue.name == "store":
                yield at, "what stores loads nothing"
            elif operand in loaded:
                yield at, f"{operand} are loaded by {loaded[operand]}"
            elif operand == "micro-ops" and queue.name != "compute" and _has_tokens(machine):
                yield at, f"with tokens compute loads micro-ops, and not {queue.name}"
            loaded.setdefault(operand, queue.name)
    for operand in OPERANDS[:-1]:
        if operand not in loaded:
            yield ("queue",), f"no queue loads {operand}"


def _has_tokens(machine: Accelerator) -> bool:
    return machine.control is not None and machine.control.tokens


def _memories(machine: Accelerator) -> Iterator[Fault]:
    memories: dict[str, str] = {}
    for position, memory in enumerate(machine.memory):
        at = ("memory", str(position), "holds")
        for number, operand in enumerate(memory.holds):
            if operand not in OPERANDS:
                yield (*at, str(number)), f"operands are {', '.join(OPERANDS)}, got {operand!r}"
            elif operand in memories:
                yield (*at, str(number)), f"{operand} are held by {memories[operand]}"
            memories.setdefault(operand, memory.name)
        if "micro-ops" in memory.holds and len(memory.holds) > 1:
            yield at, "micro-ops are held alone"
        if "outputs" in memory.holds and {"inputs", "weights"} & {*memory.holds}:
            yield (
                at,
                "outputs are accumulators as they are stored: they are held alone, or with these",
            )
    for operand in OPERANDS:
        if operand not in memories:
            yield ("memory",), f"no memory holds {operand}"


def _words(machine: Accelerator, unit: Unit) -> Iterator[Fault]:
    for position, memory in enumerate(machine.memory):
        for operand in memory.holds:
            if operand in OPERANDS and word_capacity(machine, unit, operand) < 1:
                word = word_bytes(machine, unit, operand)
                yield (
                    ("memory", str(position), "bytes"),
                    f"a word of {operand} has {word} bytes, by {unit.name}, and the memory {memory.bytes}",
                )
    depths = {operand: max(word_capacity(machine, unit, operand), 1) for operand in OPERANDS}
    needed = sum(bits for _, bits in micro_op(depths))
    ops = operand_memory(machine, "micro-ops")
    if ops is not None and needed > 8 * ops.line:
        yield (
            ("memory", str(machine.memory.index(ops)), "line"),
            f"a micro-op that names any word has {needed} bits, and {ops.line} bytes are moved at a time",
            f"line = {1 << (-(-needed // 8) - 1).bit_length()}",
            _fewer(depths),
        )
    for name, parts in instructions(depths).items():
        needed = sum(bits for part in parts for _, bits in part)
        if needed > INSTRUCTION_BITS:
            yield (
                ("memory",),
                f"with so many words an instruction {name} has {needed} bits, and there are {INSTRUCTION_BITS}",
                _fewer(depths),
            )


def _fewer(depths: Mapping[str, int]) -> str:
    """What makes fields shorter."""
    capacities = (
        f"{depth:,} of {operand} ({index_bits(depth)})" for operand, depth in depths.items()
    )
    return f"fewer words, by fewer bytes of memories: there are, with the bits that name one, {', '.join(capacities)}"
