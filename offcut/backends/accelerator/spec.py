"""The numbers of a machine of queues, as its instructions, its simulator and its price need them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import assert_never

from offcut.backends.accelerator.isa import (
    Alu,
    Finish,
    Gemm,
    Instruction,
    Load,
    MemorySpace,
    Store,
    Unit,
)
from offcut.costmodel import Accelerator, Device, Energy
from offcut.costmodel.machine_validation import (
    instructions,
    matrix_unit,
    operand_memory,
    word_bytes,
    word_capacity,
)
from offcut.costmodel.resources import BUS, MachineResources, resources_of
from offcut.errors import TargetError


@dataclass(frozen=True, slots=True)
class WordMemory:
    """The words of a place.

    memory  name of the memory that they are kept in; some places share one
    shape   elements of a word: rows and terms, columns and terms, rows and columns; of micro-ops their three fields
    dtype   of these elements
    bytes   of a word, as main memory has it
    depth   words that there is room for
    fill_cycles  of a word of zeros that a load writes
    """

    memory: str
    shape: tuple[int, ...]
    dtype: str
    bytes: int
    depth: int
    fill_cycles: float


@dataclass(frozen=True, slots=True)
class AcceleratorSpec:
    """A machine of queues in numbers; cycles are of `hertz`.

    rows, columns, terms   of the product that a micro-op is
    words              by place
    memories           bytes of each memory, by name
    gemm_cycles        of a micro-op of the matrix unit
    alu                operations that the vector unit has, by the names of `AluOp`
    immediate_cycles, operand_cycles  of a micro-op of the vector unit, with an immediate or a second word
    tokens             whether instructions say for whom they wait
    token_depth        tokens between two units, at most
    fetch_cycles       between two instructions that are fetched
    queue_depth        instructions that wait for a unit, at most
    instruction_cycles of a unit, beside what the words of an instruction take
    loads              the unit that brings the words of a place
    bus_bytes          per cycle; all units share one bus
    beat               bytes of the bus that move together
    row_cycles         of each row of a load or store, before its words
    resources          what the clock counts: these units, and the bus
    """

    name: str
    hertz: float
    rows: int
    columns: int
    terms: int
    words: Mapping[MemorySpace, WordMemory]
    memories: Mapping[str, int]
    gemm_cycles: float
    alu: frozenset[str]
    immediate_cycles: float
    operand_cycles: float
    tokens: bool
    token_depth: int
    fetch_cycles: float
    queue_depth: Mapping[Unit, int]
    instruction_cycles: Mapping[Unit, float]
    loads: Mapping[MemorySpace, Unit]
    bus_bytes: float
    beat: int
    row_cycles: float
    energy: Energy | None
    resources: MachineResources

    @classmethod
    def of(cls, machine: Device) -> AcceleratorSpec:
        """The numbers of a description.

        Raises TargetError for a machine that has no queues.
        """
        if not isinstance(machine, Device):
            raise TargetError(
                "target",
                f"cannot plan for {machine!r}",
                because=f"it is of type {type(machine).__name__}, not the description of a machine",
                help=('AcceleratorSpec.of(load("vta"))',),
            )
        unit = matrix_unit(machine) if isinstance(machine, Accelerator) else None
        if (
            not isinstance(machine, Accelerator)
            or not machine.control
            or not machine.alu
            or not unit
        ):
            raise TargetError(
                "target",
                f"cannot plan for machine={machine.name!r}",
                because=f"{machine.title} is not a machine of queues: its description has no [control]",
                help=('oc.target("vta")',),
            )
        queues = {Unit(queue.name): queue for queue in machine.queue}
        resources = resources_of(machine)
        return cls(
            name=machine.name,
            hertz=machine.hertz,
            rows=unit.rows,
            columns=unit.columns,
            terms=unit.terms,
            words={place: _words(machine, place) for place in MemorySpace},
            memories={memory.name: memory.bytes for memory in machine.memory},
            gemm_cycles=unit.rows * unit.columns * unit.terms / unit.multiply_adds,
            alu=frozenset(machine.alu.operations),
            immediate_cycles=machine.alu.immediate_cycles,
            operand_cycles=machine.alu.operand_cycles,
            tokens=machine.control.tokens,
            token_depth=machine.control.token_depth,
            fetch_cycles=machine.control.fetch_cycles,
            queue_depth={one: queue.depth for one, queue in queues.items()},
            instruction_cycles={one: resources[one.value].startup for one in queues},
            loads={MemorySpace(name): one for one, queue in queues.items() for name in queue.loads},
            bus_bytes=resources[BUS].rate,
            beat=machine.dram.line,
            row_cycles=resources[BUS].startup,
            energy=machine.energy,
            resources=resources,
        )

    @property
    def depths(self) -> dict[str, int]:
        """Return the words that there is room for, by place."""
        return {place.value: words.depth for place, words in self.words.items()}

    def field_bits(self, form: str) -> dict[str, int]:
        """Return the bits of each field of a format of instructions: memory, gemm, alu or finish."""
        return dict(field for part in instructions(self.depths)[form] for field in part)

    def is_immediate(self, value: int) -> bool:
        """Return whether an instruction holds a constant, in two's complement."""
        half = 1 << self.field_bits("alu")["immediate"] - 1
        return -half <= value < half

    def unit(self, instruction: Instruction) -> Unit:
        """Return the unit that runs an instruction."""
        match instruction:
            case Load(place=place):
                return self.loads[place]
            case Store():
                return Unit.STORE
            case Gemm() | Alu() | Finish():
                return Unit.COMPUTE
            case _:
                assert_never(instruction)


def _words(machine: Accelerator, place: MemorySpace) -> WordMemory:
    unit, memory = matrix_unit(machine), operand_memory(machine, place.value)
    assert unit is not None
    assert memory is not None
    shape, dtype = {
        MemorySpace.MICRO_OPS: ((3,), "int32"),
        MemorySpace.INPUTS: ((unit.rows, unit.terms), "int8"),
        MemorySpace.WEIGHTS: ((unit.columns, unit.terms), "int8"),
        MemorySpace.ACCUMULATORS: ((unit.rows, unit.columns), "int32"),
        MemorySpace.OUTPUTS: ((unit.rows, unit.columns), "int8"),
    }[place]
    bytes_of_word = word_bytes(machine, unit, place.value)
    return WordMemory(
        memory=memory.name,
        shape=shape,
        dtype=dtype,
        bytes=bytes_of_word,
        depth=word_capacity(machine, unit, place.value),
        fill_cycles=bytes_of_word / memory.bytes_per_cycle,
    )
