"""The memories on the chip, and what each instruction does to them: values only, in the order of the stream.

Sums are those of int32, modulo 2³². Memories begin with zeros.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, assert_never

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
    Store,
)
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


# Operations of the vector unit: many steps at a time, where their order is kept.
#
# A step reads and writes words of accumulators, and a later one may read what it wrote. Steps run at once, or iterations
# of loops do with their steps one after the other, where none touches what another one writes; else step by step.


def apply(op: AluOp, accumulators: Array, steps: Steps, immediate: int | None) -> None:
    """Run all steps of an instruction.

    accumulators  ``(words, rows, columns)``, int32
    """
    if not steps.dst.size:
        return
    dst = steps.dst
    src = dst if immediate is not None else steps.src
    for axes in ((0, 1, 2), (0, 1), (0,), (1,), ()):
        order = (*axes, *(axis for axis in (0, 1, 2) if axis not in axes))
        count = int(np.prod([dst.shape[axis] for axis in axes], dtype=np.int64))
        to, other = (one.transpose(order).reshape(count, -1) for one in (dst, src))
        if _apart(to, other, len(accumulators)):
            break
    for step in range(to.shape[1]):
        left = accumulators[to[:, step]]
        right = accumulators[other[:, step]] if immediate is None else np.full_like(left, immediate)
        accumulators[to[:, step]] = operation(op, left, right)


def _apart(dst: Words, src: Words, depth: int) -> bool:
    """Whether no row of steps touches a word that another row writes."""
    row = np.arange(len(dst))[:, None]
    owner = np.full(depth, -1)
    owner[dst] = row
    read = owner[src]
    return bool((owner[dst] == row).all() and ((read == row) | (read == -1)).all())


def operation(op: AluOp, left: Array, right: Array) -> Array:
    """``op(left, right)`` of int32, modulo 2³²; a shift is by ``floor(left / 2**right)`` for any int32."""
    match op:
        case AluOp.MIN:
            return np.minimum(left, right)
        case AluOp.MAX:
            return np.maximum(left, right)
        case AluOp.ADD:
            return left + right
        case AluOp.MUL:
            return left * right
        case AluOp.SHR:
            wide = left.astype(np.int64)
            down = wide >> np.clip(right, 0, 32)
            up = wide << np.clip(-right.astype(np.int64), 0, 32)
            return np.where(right < 0, up, down).astype(np.int32)


# Products of words, as few products of large matrices as there can be.
#
# A step adds ``inputs[src] · weights[wgt]ᵀ`` to ``accumulators[dst]``. The two loops around micro-ops mostly move
# along the rows of the result and leave the weights where they are; such a loop is a **row** loop, and all of its
# steps for one micro-op are one product. What moves the weights, or adds to the same word again, is unrolled into a
# longer list of micro-ops. Of that list, those that add to the same words are one product with all of their terms:
#
#     accumulators[rows + dst] += [inputs[rows + src₁] inputs[rows + src₂] …] · [weights[wgt₁] weights[wgt₂] …]ᵀ
#
# The order of the sum does not matter, since int32 wraps. A product of up to 1024 terms of int8 stays below 2²⁴ and
# so is exact in float32; a longer one is cut.

EXACT_TERMS = 2**24 // 2**14
"""Products of two int8, of at most 2¹⁴, that float32 adds up exactly."""


def multiply(accumulators: Array, inputs: Array, weights: Array, steps: Steps) -> None:
    """Add all products of an instruction.

    accumulators  ``(words, rows, columns)``, int32
    inputs        ``(words, rows, terms)``, int8
    weights       ``(words, columns, terms)``, int8
    """
    if not steps.dst.size:
        return
    dst, src, wgt = _by_rows(steps)
    together: defaultdict[int, list[int]] = defaultdict(list)
    for op, first in enumerate(dst[0].tolist()):
        together[first].append(op)
    terms = inputs.shape[2]
    most = max(EXACT_TERMS // terms, 1)
    exact = np.float32 if terms <= EXACT_TERMS else np.float64
    for ops in together.values():
        to = dst[:, ops[0]]
        for begin in range(0, len(ops), most):
            some = ops[begin : begin + most]
            rows = inputs[src[:, some]].astype(exact)  # row, op, row of the word, term
            left = rows.transpose(0, 2, 1, 3).reshape(-1, len(some) * terms)
            right = weights[wgt[0, some]].astype(exact).transpose(0, 2, 1)
            product: Array = np.matmul(left, right.reshape(len(some) * terms, -1))
            added = product.astype(np.int32).reshape(len(to), *accumulators.shape[1:])
            accumulators[to] += added


def _by_rows(steps: Steps) -> tuple[Words, Words, Words]:
    """The steps by row and micro-op: of one micro-op the rows add to different words, and share a weight.

    Those of all micro-ops that add to the same first word add to the same rows.
    """
    loops = tuple(axis for axis in (0, 1) if _moves_rows(steps.dst, steps.wgt, axis))
    for rows in (loops, loops[:1], loops[1:], ()):
        order = (*rows, *(axis for axis in (0, 1, 2) if axis not in rows))
        count = int(np.prod([steps.dst.shape[axis] for axis in rows], dtype=np.int64))
        dst, src, wgt = (
            one.transpose(order).reshape(count, -1) for one in (steps.dst, steps.src, steps.wgt)
        )
        first = np.sort(dst[:, 0])
        if (first[1:] != first[:-1]).all():  # else rows of two loops meet
            break
    return dst, src, wgt


def _moves_rows(dst: Words, wgt: Words, axis: int) -> bool:
    """Whether a loop moves the result, and never the weights."""
    if dst.shape[axis] == 1:
        return False
    first, second = (one.take(range(2), axis) for one in (dst, wgt))
    return bool((np.diff(first, axis=axis) != 0).all() and (np.diff(second, axis=axis) == 0).all())


Array = NDArray[Any]
Words = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Steps:
    """Words of each step of an instruction; shapes are ``(outer, inner, micro-ops)``."""

    dst: Words
    src: Words
    wgt: Words


def steps(instruction: Gemm | Alu, buffer: Words) -> Steps:
    """The steps of an instruction, with what the buffer of micro-ops holds.

    buffer  dst, src and wgt of each word, ``(words, 3)``
    """
    ops = buffer[instruction.begin : instruction.end]
    outer, inner = instruction.outer, instruction.inner
    i = np.arange(outer.extent, dtype=np.int64)[:, None, None]
    j = np.arange(inner.extent, dtype=np.int64)[None, :, None]
    return Steps(
        dst=ops[:, 0] + (i * outer.dst + j * inner.dst),
        src=ops[:, 1] + (i * outer.src + j * inner.src),
        wgt=ops[:, 2] + (i * outer.wgt + j * inner.wgt),
    )
