"""What a stream computes and moves, and what energy that takes by the machine's table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import assert_never

from offcut.backends.accelerator.isa import Alu, Finish, Gemm, Instruction, Load, MemorySpace, Store
from offcut.backends.accelerator.simulator.cycles import moved_bytes, step_count
from offcut.backends.accelerator.spec import AcceleratorSpec

_PICO = 1e-12


@dataclass(frozen=True, slots=True)
class OpCounts:
    """Counts of a stream.

    multiply_adds      of the matrix unit, of whole words: zeros that fill a word count
    vector_operations  of elements, of the vector unit
    bus_bytes          by place, both ways
    chip_bytes         that memories on the chip give and take, by place
    """

    multiply_adds: int
    vector_operations: int
    bus_bytes: Mapping[MemorySpace, int]
    chip_bytes: Mapping[MemorySpace, int]


def count_operations(instructions: Iterable[Instruction], spec: AcceleratorSpec) -> OpCounts:
    """The counts of a stream."""
    size = {place: words.bytes for place, words in spec.words.items()}
    accumulator = size[MemorySpace.ACCUMULATORS]
    products = operations = 0
    bus, chip = Counter[MemorySpace](), Counter[MemorySpace]()
    for one in instructions:
        match one:
            case Load(place=place, y=y, x=x):
                bus[place] += moved_bytes(place, y, x, spec)
                chip[place] += one.words * size[place]
            case Store(y=y, x=x):
                bus[MemorySpace.OUTPUTS] += moved_bytes(MemorySpace.OUTPUTS, y, x, spec)
                chip[MemorySpace.ACCUMULATORS] += one.words * accumulator
            case Gemm(reset=reset):
                steps = step_count(one)
                chip[MemorySpace.MICRO_OPS] += steps * size[MemorySpace.MICRO_OPS]
                chip[MemorySpace.ACCUMULATORS] += steps * accumulator * (1 if reset else 2)
                if not reset:
                    products += steps
                    chip[MemorySpace.INPUTS] += steps * size[MemorySpace.INPUTS]
                    chip[MemorySpace.WEIGHTS] += steps * size[MemorySpace.WEIGHTS]
            case Alu(immediate=immediate):
                steps = step_count(one)
                operations += steps
                chip[MemorySpace.MICRO_OPS] += steps * size[MemorySpace.MICRO_OPS]
                chip[MemorySpace.ACCUMULATORS] += (
                    steps * accumulator * (3 if immediate is None else 2)
                )
            case Finish():
                pass
            case _:
                assert_never(one)
    word = spec.rows * spec.columns
    return OpCounts(products * word * spec.terms, operations * word, dict(bus), dict(chip))


def energy(done: OpCounts, spec: AcceleratorSpec) -> dict[str, float]:
    """Joules by what takes them; empty where the machine has no table.

    A vector operation is taken as an addition of int32, whichever it is.
    """
    table = spec.energy
    if table is None:
        return {}
    joules = {
        "multiply-adds": done.multiply_adds * (table.multiply_add("int8") or 0.0),
        "vector operations": done.vector_operations * table.add.int32,
    }
    for place, count in done.chip_bytes.items():
        memory = spec.words[place].memory
        each = table.on_chip(spec.memories[memory])
        joules[memory] = joules.get(memory, 0.0) + count * each
    joules["main memory"] = sum(done.bus_bytes.values()) * table.dram
    return {name: joules * _PICO for name, joules in joules.items()}
