"""Counts of a program and a machine -> what each piece costs, as expressions over the sizes that are left open.

A stage takes as long as the resource that takes longest for all of its pieces (`offcut.costmodel.clock`):

    cycles = max(busy, moving) + loss * min(busy, moving from behind the second memory)
    busy   = max(compute, issue);    moving = max(bytes from a memory / what that gives per cycle)

and a program the sum of its stages. Bytes are those of a call after one of the same sizes (`Traffic.at_a_call`). Energy is that
of the operations and of the bytes from each memory, by one published table: an estimate.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

from offcut.core.expr import Binary, Expr, real
from offcut.core.program import Program
from offcut.costmodel.closed.counting import counted
from offcut.costmodel.closed.counts import THOUSANDTHS, ZERO, Counts, HowExact, Piece, Way
from offcut.costmodel.device import Device
from offcut.costmodel.machine import Machine
from offcut.costmodel.resources import COMPUTE, ISSUE, Hardware, resources_of
from offcut.costmodel.shortened import shortened


@dataclass(frozen=True, slots=True)
class Predicted:
    """What a piece costs.

    resources  cycles that each takes by itself, float64 expressions: ``compute``, ``issue``, and memories by name
    bytes      from each memory
    joules     of its operations and its bytes; 0 where the machine's description has no energies
    """

    piece: Piece
    counts: Counts
    resources: Mapping[str, Expr]
    bytes: Mapping[str, Expr]
    joules: Expr


@dataclass(frozen=True, slots=True)
class Prediction:
    """What a program costs.

    choices  the ways of each `choose`
    kept     bytes that stay in each cache
    values   what names stand for that are no sizes, each in terms of those before
    exactness  of all these
    call     cycles of the call itself and of its choices, whatever the sizes; 0 where the machine's description has none
    loss     of the shorter of computing and moving, the share that is not hidden
    """

    pieces: tuple[Predicted, ...]
    choices: tuple[tuple[Way, ...], ...]
    kept: Mapping[str, Expr]
    values: Mapping[str, Expr]
    exactness: HowExact
    call: float = 0.0
    loss: float = 0.0


Stage = tuple[tuple[int, int] | None, str]
"""The way that a piece is in, and what it stores."""


def by_stage(pieces: Sequence[Predicted]) -> dict[Stage, dict[str, Expr]]:
    """Cycles of each resource, by stage: those of its pieces together."""
    found: dict[Stage, dict[str, Expr]] = {}
    for one in pieces:
        total = found.setdefault((one.piece.way, one.piece.stage), {})
        for name, cycles in one.resources.items():
            total[name] = shortened(Binary("+", total[name], cycles)) if name in total else cycles
    return found


def predicted(
    program: Program,
    hardware: Hardware,
    sizes: Mapping[str, int],
    options: Mapping[int, int] | None = None,
) -> Prediction:
    """What `program` costs at these sizes, and over those that are not given.

    options  by the number of a `choose`, the option that runs; of others the cheapest
    """
    made = counted(program, hardware, sizes, options)
    pieces = tuple(
        _of(piece, counts, [moved.get(number, ZERO) for moved in made.moved], hardware.machine)
        for number, (piece, counts) in enumerate(zip(made.pieces, made.counts, strict=True))
    )
    names = (memory.name for memory in hardware.machine.memory)
    kept = dict(zip(names, made.kept[1:], strict=True))
    exactness = HowExact.estimates(made.exactness)
    machine = hardware.machine
    call = machine.call.of([len(ways) for ways in made.choices]) * machine.hertz
    loss = machine.traffic.overlap_loss
    return Prediction(pieces, made.choices, kept, made.values, exactness, call, loss)


def _of(piece: Piece, counts: Counts, moved: Sequence[Expr], machine: Machine) -> Predicted:
    of = resources_of(machine)
    taken = dict(zip((memory.name for memory in of.memories), moved, strict=True))
    resources = {
        COMPUTE: scaled(counts.cycles, 1 / THOUSANDTHS / of[COMPUTE].rate),
        ISSUE: scaled(counts.instructions, 1 / THOUSANDTHS / of[ISSUE].rate),
        **{name: scaled(size, 1 / of[name].rate) for name, size in taken.items()},
    }
    return Predicted(piece, counts, resources, taken, joules(counts.picojoules, taken, machine))


def joules(picojoules: Expr, bytes_by_memory: Mapping[str, Expr], machine: Device) -> Expr:
    """Return the estimated energy of operations and of the bytes from each memory; 0 where the machine's description has none.

    picojoules  thousandths, of the operations
    """
    energy = machine.energy
    if energy is None:
        return real(0.0)
    rates = {one.name: energy.on_chip(one.bytes) for one in machine.memory}
    rates[machine.dram.name] = energy.dram
    parts = (scaled(size, rates[name] * 1e-12) for name, size in bytes_by_memory.items())
    operations = scaled(picojoules, 1e-12 / THOUSANDTHS)
    return shortened(reduce(lambda a, b: Binary("+", a, b), parts, operations))


def scaled(count: Expr, by: float) -> Expr:
    """Return a count times a number, as float64."""
    return shortened(Binary("*", real(count), real(by)))
