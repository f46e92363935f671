"""The simulator against a literal reading of the instruction set, on random streams and random memories."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from offcut.backends.accelerator.isa import (
    Alu,
    AluOp,
    Gemm,
    Load,
    Loop,
    MemorySpace,
    MicroOp,
    Store,
    Stream,
)
from offcut.backends.accelerator.simulator import simulate
from offcut.backends.accelerator.spec import AcceleratorSpec
from tests.backends.accelerator.literal import Literal
from tests.backends.accelerator.machines import shipped, small
from tests.backends.accelerator.streams import memory, stream


def unified() -> AcceleratorSpec:
    """A machine that keeps all operands in one memory, so that a sum may be an operand."""
    spec = small("gemmini")
    words = {
        place: replace(one, memory="all", depth=8) if place is not MemorySpace.MICRO_OPS else one
        for place, one in spec.words.items()
    }
    return replace(spec, words=words, memories={**spec.memories, "all": 8 * 24})


MACHINES = {
    "rows": small("vta"),
    "one row": small("vta", 1, 4, 2),
    "shared": small("gemmini"),
    "unified": unified(),
}


@pytest.mark.every(4)
@pytest.mark.parametrize("name", MACHINES)
@pytest.mark.parametrize("seed", range(30))
def test_values_are_those_of_a_literal_reading(name: str, seed: int) -> None:
    spec = replace(MACHINES[name], tokens=False)
    given = stream(spec, random.Random(seed), 12)
    ours, theirs = memory(spec, seed), memory(spec, seed)
    run = simulate(given, ours, spec)
    literal = Literal(spec, theirs)
    literal.run(given)
    for place, array in ours.items():
        np.testing.assert_array_equal(array, theirs[place], err_msg=place.value)
    assert run.cycles > 0


def test_long_sums_of_the_largest_products_are_exact_and_wrap() -> None:
    spec = replace(AcceleratorSpec.of(shipped("vta")), tokens=False)
    words = 300  # 300 · 16 · 2¹⁴ is above 2²⁴, and not by a multiple of what float32 has
    inputs, weights = (
        np.full((words, 1, 16), -128, np.int8),
        np.full((words, 16, 16), -128, np.int8),
    )
    inputs[-1, 0, 0] = 1
    start = np.full((1, 1, 16), 2**31 - 1, np.int32)
    dram = {
        MemorySpace.INPUTS: inputs,
        MemorySpace.WEIGHTS: weights,
        MemorySpace.ACCUMULATORS: start,
        MemorySpace.OUTPUTS: np.zeros((1, 1, 16), np.int8),
    }
    ops = tuple(MicroOp(0, k, k) for k in range(words))
    run = (
        Load(MemorySpace.MICRO_OPS, 0, 0, 1, words, words),
        *(
            Load(place, 0, 0, 1, words, words)
            for place in (MemorySpace.INPUTS, MemorySpace.WEIGHTS)
        ),
        Load(MemorySpace.ACCUMULATORS, 0, 0, 1, 1, 1),
        Gemm(0, words),
        Store(0, 0, 1, 1, 1),
    )
    total = 2**31 - 1 + (words * 16 - 1) * 2**14 - 128
    for shift in (0, 8, 16, 24):
        shifted = (*run[:-1], Alu(AluOp.SHR, 0, 1, immediate=shift), run[-1])
        simulate(Stream(shifted, ops), dram, spec)
        expected = (total - 2**32 >> shift) % 256
        assert (dram[MemorySpace.OUTPUTS].view(np.uint8) == expected).all()


def test_a_reduction_in_one_word_keeps_its_order() -> None:
    spec = replace(small("vta", 1, 2, 2), tokens=False)
    values = np.array([3, -5, 7, 11], np.int32).reshape(4, 1, 1).repeat(2, 2)
    dram = {
        MemorySpace.ACCUMULATORS: values,
        MemorySpace.OUTPUTS: np.zeros((1, 1, 2), np.int8),
    }
    chain = (
        Load(MemorySpace.MICRO_OPS, 0, 0, 1, 1, 1),
        Load(MemorySpace.ACCUMULATORS, 0, 0, 1, 4, 4),
        Alu(AluOp.ADD, 0, 1, inner=Loop(3, 1, 1)),  # acc[k + 1] += acc[k], k = 0, 1, 2
        Store(3, 0, 1, 1, 1),
    )
    simulate(Stream(chain, (MicroOp(1, 0),)), dram, spec)
    assert dram[MemorySpace.OUTPUTS].tolist() == [[[16, 16]]]
