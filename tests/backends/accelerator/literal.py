"""A literal reading of the instruction set: one element after the other, on bytes, with Python's integers.

Nothing of the simulator is used. Each instruction leaves the bytes that it read and wrote on the chip, and the words of
results that it stored, which the end of a stream reads, so that an order of instructions can be judged from them alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from offcut.backends.accelerator.isa import (
    Alu,
    AluOp,
    Finish,
    Gemm,
    Instruction,
    Load,
    MemorySpace,
    MicroOp,
    Store,
    Stream,
)
from offcut.backends.accelerator.spec import AcceleratorSpec

Byte = tuple[str, int]


@dataclass
class Touched:
    """Bytes by memory; a micro-op is one."""

    reads: set[Byte] = field(default_factory=set)
    writes: set[Byte] = field(default_factory=set)


class Literal:
    def __init__(
        self, spec: AcceleratorSpec, dram: Mapping[MemorySpace, NDArray[np.generic]]
    ) -> None:
        self.spec, self.dram = spec, dram
        self.bytes: dict[Byte, int] = {}
        self.ops: dict[int, MicroOp] = {}
        self.touched: list[Touched] = []

    def run(self, stream: Stream) -> None:
        for instruction in stream.instructions:
            self.touched.append(Touched())
            self.one(instruction, stream)

    def one(self, instruction: Instruction, stream: Stream) -> None:
        if isinstance(instruction, Load):
            self.load(instruction, stream)
        elif isinstance(instruction, Store):
            for row in range(instruction.y):
                for column in range(instruction.x):
                    word = instruction.sram + row * instruction.x + column
                    target = instruction.dram + row * instruction.stride + column
                    self.touched[-1].writes.add(("results", target))
                    for r in range(self.spec.rows):
                        for c in range(self.spec.columns):
                            value = self.get(
                                MemorySpace.ACCUMULATORS, word, r * self.spec.columns + c
                            )
                            low = value % 256
                            self.dram[MemorySpace.OUTPUTS][target, r, c] = (
                                low - 256 if low > 127 else low
                            )
        elif isinstance(instruction, Gemm | Alu):
            for i in range(instruction.outer.extent):
                for j in range(instruction.inner.extent):
                    for at in range(instruction.begin, instruction.end):
                        self.touched[-1].reads.add(("micro-ops", at))
                        op = self.ops.get(at, MicroOp(0))
                        o, n = instruction.outer, instruction.inner
                        dst = op.dst + i * o.dst + j * n.dst
                        src = op.src + i * o.src + j * n.src
                        wgt = op.wgt + i * o.wgt + j * n.wgt
                        if isinstance(instruction, Gemm):
                            self.multiply(instruction.reset, dst, src, wgt)
                        else:
                            self.vector(instruction, dst, src)
        else:
            assert isinstance(instruction, Finish)
            results = {one for before in self.touched for one in before.writes}
            self.touched[-1].reads |= {one for one in results if one[0] == "results"}

    def load(self, load: Load, stream: Stream) -> None:
        top, bottom, left, right = load.pad
        across = left + load.x + right
        for row in range(top + load.y + bottom):
            for column in range(across):
                word = load.sram + row * across + column
                y, x = row - top, column - left
                inside = 0 <= y < load.y and 0 <= x < load.x
                source = load.dram + y * load.stride + x
                if load.place is MemorySpace.MICRO_OPS:
                    self.touched[-1].writes.add(("micro-ops", word))
                    self.ops[word] = stream.micro_ops[source] if inside else MicroOp(0)
                    continue
                shape = self.spec.words[load.place].shape
                for a in range(shape[0]):
                    for b in range(shape[1]):
                        value = int(self.dram[load.place][source, a, b]) if inside else 0
                        self.put(load.place, word, a * shape[1] + b, value)

    def multiply(self, reset: bool, dst: int, src: int, wgt: int) -> None:
        """A step reads its words before it writes one."""
        spec, totals = self.spec, []
        for r in range(spec.rows):
            for c in range(spec.columns):
                total = (
                    0 if reset else self.get(MemorySpace.ACCUMULATORS, dst, r * spec.columns + c)
                )
                for t in range(0 if reset else spec.terms):
                    left = self.get(MemorySpace.INPUTS, src, r * spec.terms + t)
                    total += left * self.get(MemorySpace.WEIGHTS, wgt, c * spec.terms + t)
                totals.append(total)
        for at, total in enumerate(totals):
            self.put(MemorySpace.ACCUMULATORS, dst, at, total)

    def vector(self, alu: Alu, dst: int, src: int) -> None:
        for at in range(self.spec.rows * self.spec.columns):
            left = self.get(MemorySpace.ACCUMULATORS, dst, at)
            right = alu.immediate
            if right is None:
                right = self.get(MemorySpace.ACCUMULATORS, src, at)
            if alu.op is AluOp.MIN:
                value = min(left, right)
            elif alu.op is AluOp.MAX:
                value = max(left, right)
            elif alu.op is AluOp.ADD:
                value = left + right
            elif alu.op is AluOp.MUL:
                value = left * right
            elif right < -32:
                value = 0
            else:
                value = left >> min(right, 40) if right >= 0 else left << -right
            self.put(MemorySpace.ACCUMULATORS, dst, at, value)

    def get(self, place: MemorySpace, word: int, element: int) -> int:
        value = 0
        for number, byte in enumerate(self.places(place, word, element)):
            self.touched[-1].reads.add(byte)
            value += self.bytes.get(byte, 0) << 8 * number
        return self.signed(place, value)

    def put(self, place: MemorySpace, word: int, element: int, value: int) -> None:
        for number, byte in enumerate(self.places(place, word, element)):
            self.touched[-1].writes.add(byte)
            self.bytes[byte] = value >> 8 * number & 255

    def places(self, place: MemorySpace, word: int, element: int) -> list[Byte]:
        words = self.spec.words[place]
        assert 0 <= word < words.depth
        size = 4 if place is MemorySpace.ACCUMULATORS else 1
        first = word * words.bytes + element * size
        return [(words.memory, first + number) for number in range(size)]

    def signed(self, place: MemorySpace, value: int) -> int:
        bits = 32 if place is MemorySpace.ACCUMULATORS else 8
        return value - (1 << bits) if value >> bits - 1 else value
