"""A schedule at several vectors of sizes, in numbers: what features are functions of."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from offcut.core.expr import Expr, variables
from offcut.core.interpret.values import evaluate_all
from offcut.costmodel.closed.predicted import Predicted
from offcut.costmodel.machine import Machine
from offcut.describe.microkernel import Microkernel
from offcut.schedule import Nest, Schedule, Step, Together, Way

Values: TypeAlias = NDArray[Any]
"""A number for each vector of sizes."""


@dataclass(frozen=True, slots=True)
class Ran:
    """A piece, at each vector of sizes; all are 0 where a call does not run it.

    stage, role, microkernel  as `Piece` has them
    tile          extents, by axis; not those that move from tile to tile
    runs          of its tile, or of its statements
    instances     of its statements
    flop          operations on elements
    instructions  that are issued
    resources     cycles that each takes by itself: ``compute``, ``issue``, and memories by name
    bytes         from each memory
    """

    stage: str
    role: str
    microkernel: str | None
    tile: Mapping[str, Values]
    runs: Values
    instances: Values
    flop: Values
    instructions: Values
    resources: Mapping[str, Values]
    bytes: Mapping[str, Values]

    @property
    def cycles(self) -> Values:
        """As many as the resource that takes longest."""
        found: Values = np.max(np.stack(list(self.resources.values())), axis=0)
        return found


@dataclass(frozen=True)
class Case:
    """A schedule of a program on a machine, at each vector of sizes.

    machine       that it is predicted for
    microkernels  that its tiles may name
    sizes         of the calls, by the program's names
    pieces        what it runs
    threads       of a call, at most
    """

    schedule: Schedule
    machine: Machine
    microkernels: Mapping[str, Microkernel]
    sizes: Mapping[str, Values]
    pieces: tuple[Ran, ...]
    threads: int = 1
    count: int = field(default=1)

    @property
    def flop(self) -> Values:
        """Operations on elements."""
        return self.total(lambda piece: piece.flop)

    @property
    def seconds(self) -> Values:
        """By the closed form, on one core."""
        return self.total(lambda piece: piece.cycles) / self.machine.hertz

    def total(self, of: Any) -> Values:
        """The sum over the pieces of what a function gives of each."""
        return sum((of(piece) for piece in self.pieces), np.zeros(self.count))

    def mean(self, of: Any) -> Values:
        """The mean of what a function gives of each piece, by its share of the cycles."""
        weights = self.total(lambda piece: piece.cycles)
        total = self.total(lambda piece: piece.cycles * of(piece))
        return np.divide(total, weights, out=np.zeros(self.count), where=weights > 0)

    @property
    def ways(self) -> tuple[Way, ...]:
        """All that its nests may run in."""
        return tuple(way for nest, _ in nests(self.schedule.steps) for way in nest.ways)


def ran(
    pieces: Iterable[Predicted],
    sizes: Mapping[str, Values],
    count: int,
    taken: Mapping[tuple[int, int], Values],
) -> tuple[Ran, ...]:
    """Pieces in closed form, at each vector of sizes.

    sizes  whatever is named in the pieces, a value for each of the `count` vectors
    taken  of the ways that compete, by `Piece.way`: whether a call takes it
    """

    def at(expr: Expr) -> Values:
        return np.asarray(evaluate_all(expr, sizes, count), float)

    def made(one: Predicted) -> Ran:
        piece, counts = one.piece, one.counts
        here = np.asarray(taken[piece.way], float) if piece.way in taken else np.ones(count)
        known = (pair for pair in piece.tile if variables(pair[1]) <= sizes.keys())
        return Ran(
            *(piece.stage, piece.role, piece.microkernel),
            tile={name: at(extent) for name, extent in known},
            runs=here * at(counts.runs),
            instances=here * at(counts.instances),
            flop=here * at(counts.flop),
            instructions=here * at(counts.instructions) / 1000,
            resources={name: here * at(value) for name, value in one.resources.items()},
            bytes={name: here * at(value) for name, value in one.bytes.items()},
        )

    return tuple(made(one) for one in pieces)


def nests(steps: Iterable[Step | Nest | Together], around: int = 0) -> Iterator[tuple[Nest, int]]:
    """The nests of decisions, each with the number of the loops that it shares with others."""
    for step in steps:
        if isinstance(step, Nest):
            yield step, around
        elif isinstance(step, Together):
            yield from nests(step.parts, around + len(step.axes))
