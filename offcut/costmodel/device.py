"""The schema of what every machine has: levels of memory, main memory, arithmetic units, energy.

Rates and latencies are in cycles of `Device.hertz`, and as one core sees them; an accelerator's core is one
of the engines that it has several of. `source` says where a table's numbers are from.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """A level of memory, as one core sees it.

    bytes            capacity
    ways             associativity; None: a scratchpad, or a cache whose maker does not say
    line             bytes that are moved at a time, at least
    bytes_per_cycle  what the core streams from it, in bytes per cycle
    latency_cycles   from a load's address to its result
    holds            the operands that it is for, side by side with others; empty: whatever there is
    """

    name: str
    bytes: int
    ways: int | None = None
    line: int
    bytes_per_cycle: float
    latency_cycles: float
    holds: tuple[str, ...] = ()
    source: str


@dataclass(frozen=True, slots=True)
class MainMemory:
    """What lies behind the last level, and holds everything; fields as those of `Memory`."""

    name: str
    line: int
    bytes_per_cycle: float
    latency_cycles: float = field(metadata={"zero": True})
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """What multiplies and adds elements of some types: all units of a core that are alike, together.

    of              element types that it multiplies
    rows, columns, terms  of the product that one operation is: ``rows * columns * terms`` multiply–adds
    multiply_adds   of elements, that start in a cycle
    latency_cycles  from an operation to one that needs its result
    needs           features, without which there is none
    """

    name: str
    of: tuple[str, ...]
    rows: int
    columns: int
    terms: int
    multiply_adds: float
    latency_cycles: float
    needs: tuple[str, ...] = ()
    source: str


@dataclass(frozen=True, slots=True)
class Picojoules:
    """Picojoules of one operation, by the type of its elements."""

    int8: float
    int32: float
    float16: float
    float32: float


@dataclass(frozen=True, slots=True)
class Sram:
    """A memory on the chip: its capacity in bytes, and picojoules per byte that is read or written."""

    bytes: int
    picojoules_per_byte: float


@dataclass(frozen=True, slots=True)
class Energy:
    """One published table of energies. What is computed from it is an estimate: a table is of its own
    process, which is rarely the machine's, and numbers of two tables are never added up.

    nanometres  the process that it is of
    add         picojoules of an addition
    multiply    picojoules of a multiplication
    sram        by capacity, the smallest first
    dram        picojoules per byte of main memory
    """

    nanometres: int
    add: Picojoules
    multiply: Picojoules
    sram: tuple[Sram, ...]
    dram: float
    source: str

    def multiply_add(self, dtype: str) -> float | None:
        """Picojoules of a product of elements, and of adding it to a sum of float32 or int32; None where
        the table has no such type.
        """
        wide = {"float32": "float32", "float16": "float32", "int8": "int32"}.get(dtype)
        if wide is None:
            return None
        return float(getattr(self.multiply, dtype) + getattr(self.add, wide))

    def on_chip(self, capacity: int) -> float:
        """Picojoules per byte of a memory: those of the smallest of the table that holds as much, or
        of its largest.
        """
        fitting = (one for one in self.sram if one.bytes >= capacity)
        return next(fitting, self.sram[-1]).picojoules_per_byte


@dataclass(frozen=True, slots=True, kw_only=True)
class Device(ABC):
    """What any kind of machine has.

    name          as `oc.target(machine=…)` takes it
    title         what it is, in words
    architecture  as LLVM names it: ``x86_64``, ``aarch64``; of an accelerator, as its maker does
    memory        from the core outwards, where levels do not lie side by side
    energy        None: nothing is known
    """

    name: str
    title: str
    architecture: str
    memory: tuple[Memory, ...]
    dram: MainMemory
    unit: tuple[Unit, ...]
    energy: Energy | None = None

    @property
    def levels(self) -> tuple[Memory | MainMemory, ...]:
        """All memories, main memory last."""
        return (*self.memory, self.dram)

    @property
    @abstractmethod
    def hertz(self) -> float:
        """Cycles per second."""

    @property
    @abstractmethod
    def cores(self) -> int:
        """How many there are of what `memory` and `unit` describe one."""
