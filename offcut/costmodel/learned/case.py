"""A schedule at several vectors of sizes, as the closed form counts it: what features are functions of.

Nests that are priced in a search and the costs that `cost()` prints are counted alike: resources by the names that
`resources_of` gives, so that a correction that is learned of one holds for the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from offcut.core.memo import lazy_property
from offcut.costmodel.arrays import Array
from offcut.costmodel.clock import stage_arrays
from offcut.costmodel.closed.cost import Cost, PieceCost
from offcut.costmodel.device import Accelerator, Device
from offcut.costmodel.machine import Machine
from offcut.costmodel.nests import NestCost, Taken
from offcut.costmodel.resources import COMPUTE, ISSUE, MachineResources, Resource, resources_of
from offcut.schedule import Schedule

MAIN = "main"
"""What stands for memories without a capacity, whatever their names are."""


@dataclass(frozen=True)
class StageCounts:
    """What a stage of a call takes, at each vector of sizes: arrays ``(count,)``.

    resources     cycles of each resource, by its name
    bytes         from each memory, by its name; from those without a capacity: `MAIN`
    flop          operations that are executed
    runs          of tiles, and of statements outside of tiles
    instructions  that are issued; startups of units that run in order
    tails         cycles of computing in partial tiles
    """

    resources: Mapping[str, Array]
    bytes: Mapping[str, Array]
    flop: Array
    runs: Array
    instructions: Array
    tails: Array


@dataclass(frozen=True)
class Case:
    """A schedule on a machine, at each of `count` vectors of sizes: arrays ``(count,)``.

    machine   that it is predicted for
    sizes     of the calls, by the user's names
    stages    that a call runs, one after the other
    seconds   of a call, by the closed form
    call      cycles of the call itself
    loss      of the shorter of the two busiest resources, the share that is not hidden
    threads   of a call, at most
    schedule  None: a call is known by its cost alone
    """

    machine: Device
    sizes: Mapping[str, Array]
    stages: tuple[StageCounts, ...]
    seconds: Array
    call: Array
    loss: float
    threads: int = 1
    schedule: Schedule | None = None

    @property
    def count(self) -> int:
        """Return the number of vectors of sizes."""
        return len(self.seconds)

    @lazy_property
    def cycles(self) -> Array:
        """Return the cycles of a call on one core, by the closed form."""
        stages = (stage_arrays(tuple(one.resources.values()), self.loss) for one in self.stages)
        return self._sum([self.call, *stages])

    @lazy_property
    def flop(self) -> Array:
        """Return the operations that are executed."""
        return self._sum(one.flop for one in self.stages)

    @lazy_property
    def runs(self) -> Array:
        """Return the number of runs of tiles, and of statements outside of tiles."""
        return self._sum(one.runs for one in self.stages)

    @lazy_property
    def instructions(self) -> Array:
        """Return the instructions that are issued."""
        return self._sum(one.instructions for one in self.stages)

    @lazy_property
    def tails(self) -> Array:
        """Return the cycles of computing in partial tiles."""
        return self._sum(one.tails for one in self.stages)

    @lazy_property
    def bytes(self) -> dict[str, Array]:
        """Return the bytes from each memory by its name, memories of the machine first."""
        own, none = machine_resources(self.machine), np.zeros(self.count)
        names = [] if own is None else list(map(_counted_as, own.memories))
        names += (name for one in self.stages for name in one.bytes)
        return {
            name: self._sum(one.bytes.get(name, none) for one in self.stages)
            for name in dict.fromkeys(names)
        }

    @lazy_property
    def resources(self) -> dict[str, Array]:
        """Return the cycles of each resource by its name, ``(stages, count)``, resources of the machine first."""
        own, none = machine_resources(self.machine), np.zeros(self.count)
        names = [] if own is None else list(own.every)
        names += (name for one in self.stages for name in one.resources)
        return {
            name: np.array([one.resources.get(name, none) for one in self.stages]).reshape(
                len(self.stages), self.count
            )
            for name in dict.fromkeys(names)
        }

    def _sum(self, parts: Iterable[Array]) -> Array:
        return sum(parts, np.zeros(self.count))

    @staticmethod
    def of_costs(
        costs: Sequence[Cost],
        machine: Device,
        threads: int = 1,
        schedule: Schedule | None = None,
    ) -> Case:
        """Return a schedule as `cost()` prints it at each vector of sizes; at least one."""
        sizes = {name: np.array([one.sizes[name] for one in costs]) for name in costs[0].sizes}
        seconds = np.array([one.cycles / one.hertz for one in costs])
        call = np.array([one.call for one in costs])
        stages = _stages_of_costs(costs, _memory_names(costs, machine))
        return Case(machine, sizes, stages, seconds, call, costs[0].loss, threads, schedule)


def machine_resources(machine: Device) -> MachineResources | None:
    """Return the resources of a machine; None if its description does not list them."""
    return resources_of(machine) if isinstance(machine, Accelerator | Machine) else None


def _counted_as(memory: Resource) -> str:
    """Return the name that bytes from a memory are counted by."""
    return MAIN if memory.bytes is None else memory.name


def stages_of_nest(nest: Taken, own: MachineResources) -> tuple[StageCounts, ...]:
    """Return the stages of a nest, in the variant that each call takes: packed copies first.

    own  resources of the machine
    """
    least = np.argmin([variant.own for variant in nest.variants], axis=0)
    copies = max(len(variant.parts) for variant in nest.variants)
    return tuple(
        _stage_of_nest(
            [
                (least == number, variant.parts[place])
                for number, variant in enumerate(nest.variants)
                if len(variant.parts) >= -place
            ],
            own,
        )
        for place in range(-copies, 0)
    )


def _stage_of_nest(parts: Sequence[tuple[Array, NestCost]], own: MachineResources) -> StageCounts:
    """Return a stage of a nest: of each variant, at which calls it is taken, and what it costs."""

    def total(of: Callable[[NestCost], Array]) -> Array:
        return sum((np.where(is_taken, of(part), 0.0) for is_taken, part in parts), np.array(0.0))

    volumes = total(lambda part: part.bytes)
    memories = [(one, volumes[level]) for level, one in enumerate(own.memories)]
    issue = total(lambda part: part.issue)
    return StageCounts(
        resources={
            COMPUTE: total(lambda part: part.compute),
            ISSUE: issue,
            **{one.name: size / one.rate for one, size in memories},
        },
        bytes={_counted_as(one): size for one, size in memories},
        flop=total(lambda part: part.flop),
        runs=total(lambda part: part.runs),
        instructions=issue * own[ISSUE].rate,
        tails=total(lambda part: part.tails),
    )


def _memory_names(costs: Sequence[Cost], machine: Device) -> dict[str, str]:
    """Return the name that bytes are counted by, for each memory or moved operand in the costs of `cost()`."""
    own = machine_resources(machine)
    if own is None:
        own_names = {name for one in costs for name in one.occupancy}
    else:
        own_names = {one.name for one in own.memories if one.bytes is not None}
    names = dict.fromkeys(name for one in costs for name in one.memories)
    return {name: name if name in own_names else MAIN for name in names}


def _stages_of_costs(costs: Sequence[Cost], memories: Mapping[str, str]) -> tuple[StageCounts, ...]:
    """Return the stages of a call, whose pieces may differ from one vector of sizes to the next.

    memories  the name that bytes from each memory are counted by
    """
    names = dict.fromkeys(piece.stage for one in costs for piece in one.pieces)
    resources = dict.fromkeys(r for one in costs for piece in one.pieces for r in piece.resources)

    def stage(name: str) -> StageCounts:
        pieces = [[piece for piece in one.pieces if piece.stage == name] for one in costs]

        def total(of: Callable[[PieceCost], float]) -> Array:
            return np.array([float(sum(map(of, each))) for each in pieces])

        def cycles(resource: str) -> Array:
            return total(lambda piece: piece.resources.get(resource, 0.0))

        def volume(kind: str) -> Array:
            of_kind = [memory for memory, own in memories.items() if own == kind]
            return total(lambda piece: sum(piece.bytes.get(memory, 0) for memory in of_kind))

        return StageCounts(
            resources={resource: cycles(resource) for resource in resources},
            bytes={kind: volume(kind) for kind in dict.fromkeys(memories.values())},
            flop=total(lambda piece: piece.flop),
            runs=total(lambda piece: piece.runs),
            instructions=total(lambda piece: piece.instructions),
            tails=total(_tail_cycles),
        )

    return tuple(map(stage, names))


def _tail_cycles(piece: PieceCost) -> float:
    """Return the cycles of computing in a piece of partial tiles; 0 of any other."""
    return piece.resources.get(COMPUTE, piece.cycles) if piece.role == "tail" else 0.0
