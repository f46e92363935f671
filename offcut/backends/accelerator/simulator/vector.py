"""Operations of the vector unit: many steps at a time, where their order is kept.

A step reads and writes words of accumulators, and a later one may read what it wrote. Steps run at once, or iterations
of loops do with their steps one after the other, where none touches what another one writes; else step by step.
"""

from __future__ import annotations

import numpy as np

from offcut.backends.accelerator.isa import AluOp
from offcut.backends.accelerator.simulator.micro_op_steps import Array, Steps, Words


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
