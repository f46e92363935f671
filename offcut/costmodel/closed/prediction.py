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
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from offcut.core import index as ix
from offcut.core.expr import Binary, Expr, real
from offcut.core.memo import lazy_property
from offcut.core.program import Program
from offcut.costmodel.arrays import Array, Calls, Formulas
from offcut.costmodel.clock import stage_arrays
from offcut.costmodel.closed.counting import count_program
from offcut.costmodel.closed.counts import (
    THOUSANDTHS,
    ZERO,
    Counts,
    HowExact,
    OptionNumber,
    Piece,
    PricedOption,
)
from offcut.costmodel.device import Device
from offcut.costmodel.machine import Machine
from offcut.costmodel.resources import COMPUTE, ISSUE, Hardware, resources_of
from offcut.costmodel.simplification import simplify_cost


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

    choices  the options of each `choose`
    kept     bytes that stay in each cache
    values   what names stand for that are no sizes, each in terms of those before
    exactness  of all these
    call     cycles of the call itself and of its choices, whatever the sizes; 0 where the machine's description has none
    loss     of the shorter of computing and moving, the share that is not hidden
    """

    pieces: tuple[Predicted, ...]
    choices: tuple[tuple[PricedOption, ...], ...]
    kept: Mapping[str, Expr]
    values: Mapping[str, Expr]
    exactness: HowExact
    call: float = 0.0
    loss: float = 0.0


Stage: TypeAlias = tuple[OptionNumber, str]
"""The option that a piece is in, and what it stores."""


def by_stage(pieces: Sequence[Predicted]) -> dict[Stage, dict[str, Expr]]:
    """Cycles of each resource, by stage: those of its pieces together."""
    totals: dict[Stage, dict[str, Expr]] = {}
    for one in pieces:
        total = totals.setdefault((one.piece.option, one.piece.stage), {})
        for name, cycles in one.resources.items():
            total[name] = (
                simplify_cost(Binary("+", total[name], cycles)) if name in total else cycles
            )
    return totals


def runs_by_stage(pieces: Sequence[Predicted]) -> dict[Stage, Expr]:
    """Return how often the pieces of each stage run together: a stage of which none runs takes no cycles."""
    runs: dict[Stage, Expr] = {}
    for one in pieces:
        stage = one.piece.option, one.piece.stage
        runs[stage] = ix.add(runs.get(stage, ZERO), one.counts.runs)
    return runs


@dataclass(frozen=True)
class SampledPrediction:
    """A prediction at several calls: arrays, an entry for each of them.

    calls  their sizes, by the program's names
    """

    prediction: Prediction
    calls: Calls

    def at(self, expr: Expr) -> Array:
        """Return the values of an expression over the sizes and over what the prediction names."""
        return self._all([expr])[0]

    def _all(self, exprs: Sequence[Expr]) -> list[Array]:
        """Return the values of several expressions, what they have in common computed once."""
        return [np.broadcast_to(one, self.calls.count) for one in Formulas(exprs)(self._values)]

    def is_cheapest(self, option: OptionNumber) -> npt.NDArray[np.bool_]:
        """Return at which calls that option of a choice is the cheapest, the first if equal; all calls, of no option."""
        if option is None:
            return np.ones(self.calls.count, bool)
        number, at = option
        is_cheapest: npt.NDArray[np.bool_] = self._cheapest[number] == at
        return is_cheapest

    @property
    def resources(self) -> tuple[str, ...]:
        """Return the resources that a piece may take cycles of."""
        names = (name for one in self.prediction.pieces for name in one.resources)
        return tuple(dict.fromkeys(names))

    @lazy_property
    def cycles(self) -> Array:
        """Return the cycles of a call."""
        total: Array = np.sum(list(self.binding.values()), axis=0)
        return np.broadcast_to(total, self.calls.count)

    @lazy_property
    def binding(self) -> dict[str, Array]:
        """Return the cycles of a call that each resource is what binds for, those of the call itself among them."""
        names, every = self.resources, np.arange(self.calls.count)
        by_resource = np.zeros((len(names), self.calls.count))
        for (option, _), each in self.stages.items():
            cycles = self.stage_cycles(each)
            by_resource[np.argmax(each, axis=0), every] += np.where(
                self.is_cheapest(option), cycles, 0.0
            )
        call = self.prediction.call
        own = {"call": self.calls.constant(call)} if call else {}
        return {**dict(zip(names, by_resource, strict=True)), **own}

    def stage_cycles(self, resources: Array) -> Array:
        """Return the cycles of a stage, of those that each resource takes."""
        cycles: Array = stage_arrays(resources, self.prediction.loss)
        return cycles

    @lazy_property
    def by_resource(self) -> dict[str, Array]:
        """Return the cycles of a call that each resource takes by itself."""
        parts = [
            np.where(self.is_cheapest(option), one, 0.0) for (option, _), one in self.stages.items()
        ]
        return dict(zip(self.resources, np.sum(parts, axis=0), strict=True))

    @lazy_property
    def by_piece(self) -> list[Array]:
        """Return the cycles that each piece would take by itself; 0 where its option is not taken."""
        return [
            np.where(self.is_cheapest(one.piece.option), own.max(axis=0), 0.0)
            for one, own in zip(self.prediction.pieces, self._pieces, strict=True)
        ]

    @property
    def bound_by(self) -> tuple[str, ...]:
        """Return the resource that binds for most of the cycles, of each call."""
        names, most = list(self.binding), np.argmax(list(self.binding.values()), axis=0)
        return tuple(names[k] for k in most)

    @lazy_property
    def _pieces(self) -> list[Array]:
        """Return the cycles that each resource takes of each piece: ``(resources, calls)``."""
        none, pieces, names = real(0.0), self.prediction.pieces, self.resources
        every = self._all([one.resources.get(name, none) for one in pieces for name in names])
        return list(np.reshape(every, (len(pieces), len(names), self.calls.count)))

    @lazy_property
    def stages(self) -> dict[Stage, Array]:
        """Return the cycles that each resource takes of the pieces of each stage together: ``(resources, calls)``."""
        stages: dict[Stage, Array] = {}
        for one, own in zip(self.prediction.pieces, self._pieces, strict=True):
            stage = one.piece.option, one.piece.stage
            stages[stage] = stages[stage] + own if stage in stages else own
        runs = runs_by_stage(self.prediction.pieces).values()
        has_work = (count > 0 for count in self._all([*runs]))
        return {
            stage: np.where(some, own, 0.0)
            for (stage, own), some in zip(stages.items(), has_work, strict=True)
        }

    @lazy_property
    def _cheapest(self) -> list[npt.NDArray[np.intp]]:
        return [
            np.argmin([self.at(option.cost) for option in options], axis=0)
            for options in self.prediction.choices
        ]

    @lazy_property
    def _values(self) -> dict[str, Array]:
        """Return what sizes, and names that the prediction has beside them, are at each call."""
        known = {name: np.asarray(at, np.float64) for name, at in self.calls.values.items()}
        for name, value in self.prediction.values.items():
            (known[name],) = Formulas([value])(known)
        return known


def predict(
    program: Program,
    hardware: Hardware,
    sizes: Mapping[str, int],
    options: Mapping[int, int] | None = None,
) -> Prediction:
    """What `program` costs at these sizes, and over those that are not given.

    options  by the number of a `choose`, the option that runs; of others the cheapest
    """
    program_counts = count_program(program, hardware, sizes, options)
    pieces = tuple(
        _of(
            piece,
            counts,
            [volumes.get(number, ZERO) for volumes in program_counts.moved],
            hardware.machine,
        )
        for number, (piece, counts) in enumerate(
            zip(program_counts.pieces, program_counts.counts, strict=True)
        )
    )
    names = (memory.name for memory in hardware.machine.memory)
    bytes_kept = dict(zip(names, program_counts.kept[1:], strict=True))
    exactness = HowExact.estimates(program_counts.exactness)
    machine = hardware.machine
    call = machine.call.of([len(options) for options in program_counts.choices]) * machine.hertz
    loss = machine.traffic.overlap_loss
    return Prediction(
        pieces,
        program_counts.choices,
        bytes_kept,
        program_counts.values,
        exactness,
        call,
        loss,
    )


def _of(piece: Piece, counts: Counts, volumes: Sequence[Expr], machine: Machine) -> Predicted:
    of = resources_of(machine)
    bytes_by_memory = dict(zip((memory.name for memory in of.memories), volumes, strict=True))
    resources = {
        COMPUTE: scale_cost(counts.cycles, 1 / THOUSANDTHS / of[COMPUTE].rate),
        ISSUE: scale_cost(counts.instructions, 1 / THOUSANDTHS / of[ISSUE].rate),
        **{name: scale_cost(size, 1 / of[name].rate) for name, size in bytes_by_memory.items()},
    }
    return Predicted(
        piece,
        counts,
        resources,
        bytes_by_memory,
        joules(counts.picojoules, bytes_by_memory, machine),
    )


def joules(picojoules: Expr, bytes_by_memory: Mapping[str, Expr], machine: Device) -> Expr:
    """Return the estimated energy of operations and of the bytes from each memory; 0 where the machine's description has none.

    picojoules  thousandths, of the operations
    """
    energy = machine.energy
    if energy is None:
        return real(0.0)
    rates = {one.name: energy.on_chip(one.bytes) for one in machine.memory}
    rates[machine.dram.name] = energy.dram
    parts = (scale_cost(size, rates[name] * 1e-12) for name, size in bytes_by_memory.items())
    operations = scale_cost(picojoules, 1e-12 / THOUSANDTHS)
    return simplify_cost(reduce(lambda a, b: Binary("+", a, b), parts, operations))


def scale_cost(count: Expr, by: float) -> Expr:
    """Return a count times a number, as float64."""
    return simplify_cost(Binary("*", real(count), real(by)))
