"""Whether a machine of queues can work at all: memories for all operands, words that fit, fields that fit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from offcut.costmodel.accelerator import ALU_OPERATIONS, OPERANDS, QUEUES, Accelerator
from offcut.costmodel.device import Unit
from offcut.costmodel.fields import INSTRUCTION_BITS, index_bits, instructions, micro_op
from offcut.costmodel.words import depth, held, matrix_unit, word_bytes

Fault = tuple[tuple[str, ...], str, *tuple[str, ...]]
"""The field of a description that is wrong, what is wrong with it, and what would be accepted."""

_UNSTATED = "it is not stated, and a machine of queues has it"


def faults(machine: Accelerator) -> Iterator[Fault]:
    """What keeps a machine from working; nothing for one that has no queues."""
    stated = {"control": machine.control, "queue": machine.queue, "alu": machine.alu}
    if not any(stated.values()):
        return
    yield from (((name,), _UNSTATED) for name, value in stated.items() if not value)
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
    seen: dict[str, str] = {}
    for position, memory in enumerate(machine.memory):
        at = ("memory", str(position), "holds")
        for number, operand in enumerate(memory.holds):
            if operand not in OPERANDS:
                yield (*at, str(number)), f"operands are {', '.join(OPERANDS)}, got {operand!r}"
            elif operand in seen:
                yield (*at, str(number)), f"{operand} are held by {seen[operand]}"
            seen.setdefault(operand, memory.name)
        if "micro-ops" in memory.holds and len(memory.holds) > 1:
            yield at, "micro-ops are held alone"
        if "outputs" in memory.holds and {"inputs", "weights"} & {*memory.holds}:
            yield (
                at,
                "outputs are accumulators as they are stored: they are held alone, or with these",
            )
    for operand in OPERANDS:
        if operand not in seen:
            yield ("memory",), f"no memory holds {operand}"


def _words(machine: Accelerator, unit: Unit) -> Iterator[Fault]:
    for position, memory in enumerate(machine.memory):
        for operand in memory.holds:
            if operand in OPERANDS and depth(machine, unit, operand) < 1:
                word = word_bytes(machine, unit, operand)
                yield (
                    ("memory", str(position), "bytes"),
                    f"a word of {operand} has {word} bytes, by {unit.name}, and the memory {memory.bytes}",
                )
    depths = {operand: max(depth(machine, unit, operand), 1) for operand in OPERANDS}
    needed = sum(bits for _, bits in micro_op(depths))
    ops = held(machine, "micro-ops")
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
    named = (f"{depth:,} of {operand} ({index_bits(depth)})" for operand, depth in depths.items())
    return f"fewer words, by fewer bytes of memories: there are, with the bits that name one, {', '.join(named)}"
