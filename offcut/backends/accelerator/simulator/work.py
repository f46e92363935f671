"""What a stream computes and moves, and what energy that takes by the machine's table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import assert_never

from offcut.backends.accelerator.isa import Alu, Finish, Gemm, Instruction, Load, Place, Store
from offcut.backends.accelerator.simulator.cycles import moved_bytes, step_count
from offcut.backends.accelerator.spec import Spec

_PICO = 1e-12


@dataclass(frozen=True, slots=True)
class Work:
    """Counts of a stream.

    multiply_adds      of the matrix unit, of whole words: zeros that fill a word count
    vector_operations  of elements, of the vector unit
    bus_bytes          by place, both ways
    chip_bytes         that memories on the chip give and take, by place
    """

    multiply_adds: int
    vector_operations: int
    bus_bytes: Mapping[Place, int]
    chip_bytes: Mapping[Place, int]


def work(instructions: Iterable[Instruction], spec: Spec) -> Work:
    """The counts of a stream."""
    size = {place: words.bytes for place, words in spec.words.items()}
    accumulator = size[Place.ACCUMULATORS]
    products = operations = 0
    bus, chip = Counter[Place](), Counter[Place]()
    for one in instructions:
        match one:
            case Load(place=place, y=y, x=x):
                bus[place] += moved_bytes(place, y, x, spec)
                chip[place] += one.words * size[place]
            case Store(y=y, x=x):
                bus[Place.OUTPUTS] += moved_bytes(Place.OUTPUTS, y, x, spec)
                chip[Place.ACCUMULATORS] += one.words * accumulator
            case Gemm(reset=reset):
                steps = step_count(one)
                chip[Place.MICRO_OPS] += steps * size[Place.MICRO_OPS]
                chip[Place.ACCUMULATORS] += steps * accumulator * (1 if reset else 2)
                if not reset:
                    products += steps
                    chip[Place.INPUTS] += steps * size[Place.INPUTS]
                    chip[Place.WEIGHTS] += steps * size[Place.WEIGHTS]
            case Alu(immediate=immediate):
                steps = step_count(one)
                operations += steps
                chip[Place.MICRO_OPS] += steps * size[Place.MICRO_OPS]
                chip[Place.ACCUMULATORS] += steps * accumulator * (3 if immediate is None else 2)
            case Finish():
                pass
            case _:
                assert_never(one)
    word = spec.rows * spec.columns
    return Work(products * word * spec.terms, operations * word, dict(bus), dict(chip))


def energy(done: Work, spec: Spec) -> dict[str, float]:
    """Joules by what takes them; empty where the machine has no table.

    A vector operation is taken as an addition of int32, whichever it is.
    """
    table = spec.energy
    if table is None:
        return {}
    found = {
        "multiply-adds": done.multiply_adds * (table.multiply_add("int8") or 0.0),
        "vector operations": done.vector_operations * table.add.int32,
    }
    for place, count in done.chip_bytes.items():
        memory = spec.words[place].memory
        each = table.on_chip(spec.memories[memory])
        found[memory] = found.get(memory, 0.0) + count * each
    found["main memory"] = sum(done.bus_bytes.values()) * table.dram
    return {name: joules * _PICO for name, joules in found.items()}
