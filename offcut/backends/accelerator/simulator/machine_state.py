"""The memories on the chip, and what each instruction does to them: values only, in the order of the stream.

Sums are those of int32, modulo 2³². Memories begin with zeros.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import assert_never

import numpy as np

from offcut.backends.accelerator.isa import Alu, Finish, Gemm, Instruction, Load, MemorySpace, Store
from offcut.backends.accelerator.simulator.gemm import multiply
from offcut.backends.accelerator.simulator.micro_op_steps import Array, Steps
from offcut.backends.accelerator.simulator.vector import apply
from offcut.backends.accelerator.spec import AcceleratorSpec


class MachineState:
    """A machine's memories, and arrays of main memory by place."""

    def __init__(self, spec: AcceleratorSpec, dram: Mapping[MemorySpace, Array]) -> None:
        self._dram = dram
        memories = {name: np.zeros(extent, np.uint8) for name, extent in spec.memories.items()}
        self._kept: dict[MemorySpace, Array] = {}
        for place in (MemorySpace.INPUTS, MemorySpace.WEIGHTS, MemorySpace.ACCUMULATORS):
            words = spec.words[place]
            used = memories[words.memory][: words.depth * words.bytes]
            self._kept[place] = used.view(words.dtype).reshape(words.depth, *words.shape)

    def run(self, instruction: Instruction, steps: Steps | None) -> None:
        """Do what an instruction does; loads of micro-ops do nothing here."""
        accumulators = self._kept[MemorySpace.ACCUMULATORS]
        match instruction:
            case Load(place=MemorySpace.MICRO_OPS) | Finish():
                pass
            case Load(place=place):
                self._load(instruction, self._kept[place], self._dram[place])
            case Store(sram, dram, y, x, stride):
                words = accumulators[sram : sram + y * x].astype(np.int8)
                self._dram[MemorySpace.OUTPUTS][rows(dram, y, x, stride)] = words.reshape(
                    y, x, *words.shape[1:]
                )
            case Gemm(reset=reset):
                assert steps is not None
                if reset:
                    accumulators[steps.dst.ravel()] = 0
                else:
                    self._multiply(steps)
            case Alu(op, immediate=immediate):
                assert steps is not None
                apply(op, accumulators, steps, immediate)
            case _:
                assert_never(instruction)

    def _multiply(self, steps: Steps) -> None:
        operands = [
            self._kept[one]
            for one in (MemorySpace.ACCUMULATORS, MemorySpace.INPUTS, MemorySpace.WEIGHTS)
        ]
        if not any(np.shares_memory(operands[0], one) for one in operands[1:]):
            multiply(operands[0], operands[1], operands[2], steps)
            return
        for at in np.ndindex(steps.dst.shape):  # a sum may be an operand of the next step
            one = tuple(slice(k, k + 1) for k in at)
            each = Steps(steps.dst[one], steps.src[one], steps.wgt[one])
            multiply(operands[0], operands[1], operands[2], each)

    def _load(self, load: Load, memory: Array, array: Array) -> None:
        top, bottom, left, right = load.pad
        into = memory[load.sram : load.sram + load.words]
        into = into.reshape(top + load.y + bottom, left + load.x + right, *memory.shape[1:])
        if any(load.pad):
            into[:] = 0
        if load.y and load.x:
            into[top : top + load.y, left : left + load.x] = array[
                rows(load.dram, load.y, load.x, load.stride)
            ]


def rows(dram: int, y: int, x: int, stride: int) -> Array:
    """The words of `y` rows of `x`, `stride` apart, ``(y, x)``."""
    return dram + stride * np.arange(y)[:, None] + np.arange(x)
