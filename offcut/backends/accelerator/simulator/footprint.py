"""Which words of which places an instruction reads and writes on the chip."""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_never

import numpy as np

from offcut.backends.accelerator.isa import Alu, Finish, Gemm, Instruction, Load, MemorySpace, Store
from offcut.backends.accelerator.simulator.micro_op_steps import Steps, Words


@dataclass(frozen=True, slots=True)
class Touched:
    """Words of a place: a range, or one by one, each once."""

    place: MemorySpace
    words: slice | Words
    write: bool


def footprint(
    instruction: Instruction, steps: Steps | None, depths: dict[MemorySpace, int]
) -> tuple[Touched, ...]:
    """What an instruction touches; reads come before writes.

    steps   those of a product or a vector operation; None for the others
    depths  words by place
    """
    match instruction:
        case Load(place=place, sram=sram):
            return (Touched(place, slice(sram, sram + instruction.words), True),)
        case Store(sram=sram):
            return (
                Touched(MemorySpace.ACCUMULATORS, slice(sram, sram + instruction.words), False),
            )
        case Finish():
            return ()
        case Gemm() | Alu():
            assert steps is not None
            if not steps.dst.size:
                return ()
        case _:
            assert_never(instruction)
    ops = Touched(MemorySpace.MICRO_OPS, slice(instruction.begin, instruction.end), False)
    dst = _once(steps.dst, depths[MemorySpace.ACCUMULATORS])
    reads: tuple[Touched, ...]
    match instruction:
        case Gemm(reset=True):
            reads = ()
        case Gemm():
            src = _once(steps.src, depths[MemorySpace.INPUTS])
            wgt = _once(steps.wgt, depths[MemorySpace.WEIGHTS])
            reads = (
                Touched(MemorySpace.INPUTS, src, False),
                Touched(MemorySpace.WEIGHTS, wgt, False),
                Touched(MemorySpace.ACCUMULATORS, dst, False),
            )
        case Alu(immediate=None):
            both = np.concatenate((dst, steps.src.ravel()))
            reads = (
                Touched(
                    MemorySpace.ACCUMULATORS, _once(both, depths[MemorySpace.ACCUMULATORS]), False
                ),
            )
        case Alu():
            reads = (Touched(MemorySpace.ACCUMULATORS, dst, False),)
    return (ops, *reads, Touched(MemorySpace.ACCUMULATORS, dst, True))


def _once(words: Words, depth: int) -> Words:
    """Each word once, in ascending order."""
    seen = np.zeros(depth, bool)
    seen[words.ravel()] = True
    return np.flatnonzero(seen)
