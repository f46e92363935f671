"""Products of words, as few products of large matrices as there can be.

A step adds ``inputs[src] · weights[wgt]ᵀ`` to ``accumulators[dst]``. The two loops around micro-ops mostly move
along the rows of the result and leave the weights where they are; such a loop is a **row** loop, and all of its
steps for one micro-op are one product. What moves the weights, or adds to the same word again, is unrolled into a
longer list of micro-ops. Of that list, those that add to the same words are one product with all of their terms:

    accumulators[rows + dst] += [inputs[rows + src₁] inputs[rows + src₂] …] · [weights[wgt₁] weights[wgt₂] …]ᵀ

The order of the sum does not matter, since int32 wraps. A product of up to 1024 terms of int8 stays below 2²⁴ and
so is exact in float32; a longer one is cut.
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from offcut.backends.accelerator.simulator.micro_op_steps import Array, Steps, Words

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
