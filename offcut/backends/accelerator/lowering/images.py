"""Arrays of a call as words in main memory, and words of results as arrays.

Axes in lanes are cut into blocks of a word, the last of which is filled with zeros. Where an operand of the
vector unit does not move along a lane, all lanes hold its element.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from offcut.backends.accelerator.lowering.words import Lanes

Array = np.ndarray[Any, Any]


def packed(array: Array, lanes: Lanes, dtype: str, spread: bool) -> Array:
    """``(words, lanes…)``: the words of an array, one after the other.

    spread  whether lanes along which it does not move all hold its element; else the first does
    """
    rank = array.ndim
    counts = [lanes.lanes_of(axis) for axis in range(rank)]
    blocks = lanes.extents(array.shape)
    whole = np.zeros([b * n for b, n in zip(blocks, counts, strict=True)], dtype)
    whole[tuple(slice(extent) for extent in array.shape)] = array
    whole = whole.reshape([e for pair in zip(blocks, counts, strict=True) for e in pair])
    inside = [2 * axis + 1 for axis in lanes.axes if axis is not None]
    alone = [2 * axis + 1 for axis in range(rank) if 2 * axis + 1 not in inside]
    whole = whole.transpose([*(2 * axis for axis in lanes.order), *alone, *inside])
    words = prod(blocks)
    shape = [1 if axis is None else n for axis, n in zip(lanes.axes, lanes.counts, strict=True)]
    whole = whole.reshape(words, *shape)
    if spread:
        return np.ascontiguousarray(np.broadcast_to(whole, (words, *lanes.counts)))
    made = np.zeros((words, *lanes.counts), dtype)
    made[(slice(None), *(slice(n) for n in shape))] = whole
    return made


def unpacked(words: Array, lanes: Lanes, shape: Sequence[int]) -> Array:
    """The array whose words these are."""
    rank = len(shape)
    blocks = lanes.extents(shape)
    counts = [lanes.lanes_of(axis) for axis in range(rank)]
    for at, axis in enumerate(lanes.axes):
        if axis is None:
            words = words.take([0], axis=at + 1)
    inside = [axis for axis in lanes.axes if axis is not None]
    found = words.reshape([*(blocks[axis] for axis in lanes.order), *(counts[a] for a in inside)])
    block_of = {axis: position for position, axis in enumerate(lanes.order)}
    lane_of = {axis: rank + position for position, axis in enumerate(inside)}
    pairs = ((block_of[axis], lane_of.get(axis)) for axis in range(rank))
    turned = [position for pair in pairs for position in pair if position is not None]
    found = found.transpose(turned)
    whole = found.reshape([b * n for b, n in zip(blocks, counts, strict=True)])
    return whole[tuple(slice(extent) for extent in shape)]
