"""Elements at affine indices as one strided view: what makes the interpreter fast.

Indices are arrays, one axis for each axis of the lanes. Where every index is an arithmetic
progression along each of these axes, the elements are a view of the memory, without a copy.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[Any]


def strided(
    memory: Array, parts: Sequence[Array], shape: tuple[int, ...], own: int
) -> Array | None:
    """``memory[parts]`` as a view, broadcastable to `shape`; None where it is none.

    parts   integer arrays that broadcast to `shape`, each within its axis of `memory`
    shape   of the lanes
    own     how many trailing axes of `memory` are the trailing axes of the lanes
    """
    rank = len(shape)
    counts, steps = [1] * rank, [0] * rank
    for part, step in zip(parts, memory.strides, strict=False):
        progression = _progression(part, rank)
        if progression is None:
            return None
        for axis, delta in progression:
            counts[axis] = shape[axis]
            steps[axis] += delta * step
    for k in range(own):
        axis = rank - own + k
        counts[axis] = memory.shape[len(parts) + k]
        steps[axis] += memory.strides[len(parts) + k]
    begin: tuple[Any, ...] = (*(slice(int(part.flat[0]), None) for part in parts), ...)
    first = memory[begin]
    return np.lib.stride_tricks.as_strided(first, tuple(counts), tuple(steps))


def _progression(part: Array, rank: int) -> list[tuple[int, int]] | None:
    """[(axis, difference)] of an array that is one along each of its axes."""
    base = int(part.flat[0])
    if part.size == 1:
        return []
    lead = rank - part.ndim
    deltas = []
    expected: Any = base
    for axis, count in enumerate(part.shape):
        if count > 1:
            where = [0] * part.ndim
            where[axis] = 1
            delta = int(part[tuple(where)]) - base
            deltas.append((lead + axis, delta))
            line = np.arange(0, delta * count, delta) if delta else np.zeros(count, np.int64)
            expected = expected + line.reshape(-1, *(1,) * (part.ndim - axis - 1))
    return deltas if bool((part == expected).all()) else None


def distinct(view: Array, shape: tuple[int, ...]) -> bool:
    """Whether every lane of `shape` has an element of its own in `view`."""
    if math.prod(view.shape) != math.prod(shape):
        return False
    reach = view.itemsize
    for step, count in sorted((abs(s), n) for s, n in zip(view.strides, view.shape, strict=True)):
        if count > 1:
            if step < reach:
                return False
            reach = step * (count - 1) + reach
    return True
