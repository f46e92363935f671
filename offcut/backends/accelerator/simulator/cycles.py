"""How long an instruction takes, and for how much of it the bus is taken.

    own  = instruction_cycles(unit) + zeros · fill_cycles        of a load
         = instruction_cycles(unit) + steps · cycles of a step    of a product, of a vector operation
    bus  = rows · (row_cycles + ⌈bytes of a row / beat⌉ · beat / bus_bytes)

An instruction takes ``own + bus`` cycles, and the bus during the last `bus` of them.
"""

from __future__ import annotations

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
from offcut.backends.accelerator.spec import AcceleratorSpec


def cycles(instruction: Instruction, spec: AcceleratorSpec) -> tuple[float, float]:
    """Cycles of an instruction without the bus, and with it."""
    match instruction:
        case Load(place=place, y=y, x=x):
            zeros = instruction.words - y * x
            own = spec.instruction_cycles[spec.loads[place]] + zeros * spec.words[place].fill_cycles
            return own, moving_cycles(place, y, x, spec)
        case Store(y=y, x=x):
            return spec.instruction_cycles[Unit.STORE], moving_cycles(
                MemorySpace.OUTPUTS, y, x, spec
            )
        case Gemm():
            own = step_count(instruction) * spec.gemm_cycles
        case Alu(immediate=immediate):
            each = spec.operand_cycles if immediate is None else spec.immediate_cycles
            own = step_count(instruction) * each
        case Finish():
            own = 0.0
        case _:
            assert_never(instruction)
    return spec.instruction_cycles[Unit.COMPUTE] + own, 0.0


def step_count(instruction: Gemm | Alu) -> int:
    """Micro-ops that an instruction takes, loops included."""
    ops = max(instruction.end - instruction.begin, 0)
    return instruction.outer.extent * instruction.inner.extent * ops


def moved_bytes(place: MemorySpace, y: int, x: int, spec: AcceleratorSpec) -> int:
    """Bytes that `y` rows of `x` words take on the bus, which moves whole beats."""
    return y * -(-x * spec.words[place].bytes // spec.beat) * spec.beat


def moving_cycles(place: MemorySpace, y: int, x: int, spec: AcceleratorSpec) -> float:
    """Cycles for which rows of words take the bus."""
    if not y or not x:
        return 0.0
    return y * spec.row_cycles + moved_bytes(place, y, x, spec) / spec.bus_bytes
