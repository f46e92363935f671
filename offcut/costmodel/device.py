"""The schema of what every machine has: levels of memory, main memory, arithmetic units, energy; and of a machine that is no processor:
engines with memories of their own, and, where instructions reach it through queues, which queues there are.

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


OPERANDS = ("micro-ops", "inputs", "weights", "accumulators", "outputs")
"""What memories of a machine of queues are for; outputs are what its stores read."""

QUEUES = ("load", "compute", "store")
"""Its queues of instructions, in the order of the data."""

ALU_OPERATIONS = ("min", "max", "add", "shr", "mul")
"""What its vector unit may do with a word."""


@dataclass(frozen=True, slots=True)
class Engine:
    """What an accelerator computes with: a multiprocessor, a matrix unit with its buffers.

    count  how many there are
    hertz  cycles per second
    """

    count: int
    hertz: float
    source: str


@dataclass(frozen=True, slots=True)
class Control:
    """How instructions reach queues, and what keeps their order.

    tokens        whether instructions say themselves for whom they wait; else a queue waits for all earlier
                  instructions that touch the same words
    token_depth   tokens that lie between two queues at most; who has one more waits
    fetch_cycles  between two instructions that are fetched
    """

    tokens: bool
    token_depth: int
    fetch_cycles: float = field(metadata={"zero": True})
    source: str


@dataclass(frozen=True, slots=True)
class Queue:
    """A queue of instructions and what runs them, one after the other.

    name                of `QUEUES`
    loads               the operands that it brings from main memory
    depth               instructions that wait in it at most
    instruction_cycles  of each, beside what its words take
    """

    name: str
    loads: tuple[str, ...]
    depth: int
    instruction_cycles: float = field(metadata={"zero": True})
    source: str


@dataclass(frozen=True, slots=True)
class Alu:
    """What computes on words of accumulators, all elements of one at a time.

    operations        of `ALU_OPERATIONS`
    immediate_cycles  of a word, with an operand that the instruction has
    operand_cycles    of a word, with an operand that is another word
    """

    operations: tuple[str, ...]
    immediate_cycles: float
    operand_cycles: float
    source: str


@dataclass(frozen=True, slots=True)
class Grid:
    """What runs blocks of warps: a multiprocessor, of which `Engine.count` share the work of a launch.

    warps           that are resident on one, at most
    blocks          likewise
    registers       of 32 bits, that all warps of one share
    barrier_cycles  for which warps of a block wait where they meet
    launch_seconds  of a launch, from the host
    """

    warps: int
    blocks: int
    registers: int
    barrier_cycles: float
    launch_seconds: float
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Accelerator(Device):
    """A machine that is no processor: it has engines, and no core that runs loops.

    control, queue, alu  of one that runs instructions from queues, and of no other
    grid                 of one that runs grids of blocks, and of no other
    """

    engine: Engine
    control: Control | None = None
    queue: tuple[Queue, ...] = ()
    alu: Alu | None = None
    grid: Grid | None = None

    @property
    def hertz(self) -> float:
        """Cycles per second."""
        return self.engine.hertz

    @property
    def cores(self) -> int:
        """How many engines there are."""
        return self.engine.count
