"""Which words of which places an instruction reads and writes on the chip."""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_never

import numpy as np

from offcut.backends.accelerator.isa import Alu, Finish, Gemm, Instruction, Load, Place, Store
from offcut.backends.accelerator.simulator.steps import Steps, Words


@dataclass(frozen=True, slots=True)
class Touched:
    """Words of a place: a range, or one by one, each once."""

    place: Place
    words: slice | Words
    write: bool


def footprint(
    instruction: Instruction, steps: Steps | None, depths: dict[Place, int]
) -> tuple[Touched, ...]:
    """What an instruction touches; reads come before writes.

    steps   those of a product or a vector operation; None for the others
    depths  words by place
    """
    match instruction:
        case Load(place=place, sram=sram):
            return (Touched(place, slice(sram, sram + instruction.words), True),)
        case Store(sram=sram):
            return (Touched(Place.ACCUMULATORS, slice(sram, sram + instruction.words), False),)
        case Finish():
            return ()
        case Gemm() | Alu():
            assert steps is not None
            if not steps.dst.size:
                return ()
        case _:
            assert_never(instruction)
    ops = Touched(Place.MICRO_OPS, slice(instruction.begin, instruction.end), False)
    dst = _once(steps.dst, depths[Place.ACCUMULATORS])
    reads: tuple[Touched, ...]
    match instruction:
        case Gemm(reset=True):
            reads = ()
        case Gemm():
            src = _once(steps.src, depths[Place.INPUTS])
            wgt = _once(steps.wgt, depths[Place.WEIGHTS])
            reads = (
                Touched(Place.INPUTS, src, False),
                Touched(Place.WEIGHTS, wgt, False),
                Touched(Place.ACCUMULATORS, dst, False),
            )
        case Alu(immediate=None):
            both = np.concatenate((dst, steps.src.ravel()))
            reads = (Touched(Place.ACCUMULATORS, _once(both, depths[Place.ACCUMULATORS]), False),)
        case Alu():
            reads = (Touched(Place.ACCUMULATORS, dst, False),)
    return (ops, *reads, Touched(Place.ACCUMULATORS, dst, True))


def _once(words: Words, depth: int) -> Words:
    """Each word once, in ascending order."""
    seen = np.zeros(depth, bool)
    seen[words.ravel()] = True
    return np.flatnonzero(seen)
