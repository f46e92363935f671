"""The schema of a machine that is no processor: engines with memories of their own, and, where instructions
reach it through queues, which queues there are.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from offcut.costmodel.device import Device

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
