"""The resources of a machine that programs take cycles of: one record for processors and for machines of queues.

A resource does `rate` units of work in a cycle, after `startup` cycles for each piece of work::

    cycles = startup * pieces + work / rate

`Hardware` is what counts ask of a machine: its description, the microkernels that tiles may name, its vectors and its levels of memory.

Units that are `ordered` run the program's pieces one after the other, each beside the other units: the queues of an
accelerator. The units of a processor's core look far ahead: they do their work in any order, side by side.

The roofline of one core says what its units compute at most, by how often a byte that is read is used::

    attainable(i) = min(peak of the unit, i * bandwidth of the level)   operations per second
    ridge         = peak of the unit / bandwidth of the level           operations per byte

with an intensity i in operations per byte that comes from the level; a multiply–add is two. Below its ridge, a
level binds; from there on, the unit.

Source: Williams, Waterman & Patterson, "Roofline", CACM 2009; here with a line for each level of memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from offcut.core.dtypes import ITEM_BYTES
from offcut.core.memo import lazy_property
from offcut.costmodel.arrays import Array
from offcut.costmodel.device import QUEUES, Accelerator, Device, Unit
from offcut.costmodel.machine import Machine
from offcut.describe.microkernel import Microkernel
from offcut.errors import InternalError

BUS = "bus"
"""What all units of a machine of queues reach main memory by."""
BUS_WAITS = 0.02
"""Of the shorter of the busiest unit and the bus, the share for which units wait for each other at the bus: where both are taken
throughout, the simulator says up to .05."""
ISSUE = "issue"
"""The front end of a core."""
COMPUTE = "compute"
"""What computes: the units of a core, or the queue of the matrix unit and the vector unit."""


@dataclass(frozen=True, slots=True)
class Resource:
    """What takes cycles.

    work     what its rate counts: ``bytes``, ``instructions``, ``cycles`` where microkernels and operations say their own
    rate     of work in a cycle
    startup  cycles before each piece of work: an instruction of a queue, a row that the bus moves
    ordered  whether it runs the program's pieces one after the other
    depth    instructions that wait for it at most
    bytes    capacity of a memory that keeps what passes; None: of anything else
    """

    name: str
    work: str
    rate: float
    startup: float = 0.0
    ordered: bool = False
    depth: int = 0
    bytes: int | None = None

    def cycles(self, pieces: Array, work: Array) -> Array:
        """Return the cycles of some work in so many pieces."""
        return self.startup * pieces + work / self.rate


@dataclass(frozen=True)
class MachineResources:
    """All of one engine, or of one core.

    every     by name: units first, then memories from the nearest on
    fetch_cycles  between two instructions that units are given in the order of the program
    unhidden  of the shorter of computing and moving, from far memories or over the bus, the share that is not hidden
    units     what multiplies, by the types of elements
    """

    every: Mapping[str, Resource]
    hertz: float
    fetch_cycles: float
    unhidden: float
    units: tuple[Unit, ...]

    def __getitem__(self, name: str) -> Resource:
        return self.every[name]

    @lazy_property
    def units_in_order(self) -> tuple[Resource, ...]:
        """Return the units that run the program's pieces one after the other, in the order of the data."""
        return tuple(one for one in self.every.values() if one.ordered)

    @property
    def memories(self) -> tuple[Resource, ...]:
        """What moves bytes, the nearest first."""
        return tuple(one for one in self.every.values() if one.work == "bytes")

    def rate_of(self, dtype: str) -> float:
        """Return the multiply-adds in a cycle of the fastest unit that multiplies elements of a type; 0 if there is none."""
        return max((unit.multiply_adds for unit in self.units if dtype in unit.of), default=0.0)

    def unit_of(self, multiply_adds: float) -> float:
        """Return the rate of the slowest unit that does so many multiply-adds in a cycle; these if none does."""
        fast = (unit.multiply_adds for unit in self.units if unit.multiply_adds >= multiply_adds)
        return min(fast, default=multiply_adds)


def resources_of(machine: Device) -> MachineResources:
    """Return the resources of a machine, from its description.

    Raises InternalError for a machine that is neither a processor nor an accelerator.
    """
    match machine:
        case Machine(core=core, memory=memory, dram=dram, traffic=traffic):
            units = [
                Resource(COMPUTE, "cycles", 1.0),
                Resource(ISSUE, "instructions", core.issue),
                *(Resource(m.name, "bytes", m.bytes_per_cycle, bytes=m.bytes) for m in memory),
                Resource(dram.name, "bytes", dram.bytes_per_cycle),
            ]
            unhidden, fetch = traffic.overlap_loss, 0.0
        case Accelerator(queue=queues, dram=dram, control=control):
            in_order = sorted(queues, key=lambda one: QUEUES.index(one.name))
            units = [
                *(
                    Resource(one.name, "cycles", 1.0, one.instruction_cycles, True, one.depth)
                    for one in in_order
                ),
                Resource(BUS, "bytes", dram.bytes_per_cycle, dram.latency_cycles),
            ]
            unhidden = BUS_WAITS
            fetch = 0.0 if control is None else control.fetch_cycles
        case _:
            raise InternalError(f"{machine.name} is a machine of no known kind")
    every = {one.name: one for one in units}
    return MachineResources(every, machine.hertz, fetch, unhidden, machine.unit)


@dataclass(frozen=True, slots=True)
class Roofline:
    """Peaks and bandwidths of one core.

    peaks       of units, in operations per second
    bandwidths  of memories, from the core outwards, in bytes per second
    """

    peaks: tuple[tuple[Unit, float], ...]
    bandwidths: tuple[tuple[str, float], ...]

    def ridges(self, bandwidth: float) -> tuple[float, ...]:
        """Operations per byte from which on a memory of this bandwidth does not bind, by unit."""
        return tuple(peak / bandwidth for _, peak in self.peaks)

    def attainable(self, bandwidth: float, intensity: float) -> float:
        """Operations per second of the fastest unit, from a memory of this bandwidth."""
        return min(max(peak for _, peak in self.peaks), intensity * bandwidth)


def roofline(device: Device, units: Sequence[Unit]) -> Roofline:
    """The roofline of one core of a machine, of those of its units that are asked for."""
    rate = device.hertz
    return Roofline(
        tuple((unit, 2 * unit.multiply_adds * rate) for unit in units),
        tuple((level.name, level.bytes_per_cycle * rate) for level in device.levels),
    )


@dataclass(frozen=True, slots=True)
class Level:
    """A memory that is filled from the one behind it.

    bytes  capacity
    line   bytes that come at once; 1: as many as are asked for
    ways   places for a line; None: any
    """

    bytes: int
    line: int
    ways: int | None = None


@dataclass(frozen=True, slots=True)
class Hardware:
    """What computes.

    microkernels    that tiles may name
    register_bytes  of a vector
    levels          of memory that are filled, nearest first: the registers before all
    """

    machine: Machine
    microkernels: Mapping[str, Microkernel]
    register_bytes: int
    levels: tuple[Level, ...]

    @property
    def lanes(self) -> int:
        """Of a vector of float32, and of what is summed in it."""
        return self.lanes_of("float32")

    def lanes_of(self, dtype: str) -> int:
        """Of a vector: what is narrower than a float32 takes a lane of one, too, as code computes with it."""
        return max(1, self.register_bytes // max(ITEM_BYTES[dtype], ITEM_BYTES["float32"]))

    def on_core(self, kernel: Microkernel) -> bool:
        """Whether vector registers hold the accumulators of its tiles; else another unit does."""
        vectors = (tile.rows * -(-tile.columns // self.lanes) for tile in kernel.tiles)
        return max(vectors, default=0) * self.register_bytes <= self.levels[0].bytes
