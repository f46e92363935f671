"""Arrays of a call as words in main memory, and words of results as arrays.

Axes in lanes are cut into blocks of a word, the last of which is filled with zeros. Where an operand of the
vector unit does not move along a lane, all lanes hold its element.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from offcut.backends.accelerator.lowering.word_layout import LaneLayout, layout_of

Array = np.ndarray[Any, Any]


def to_words(array: Array, lanes: LaneLayout, dtype: str, spread: bool) -> Array:
    """``(words, lanes…)``: the words of an array, one after the other.

    spread  whether lanes along which it does not move all hold its element; else the first does
    """
    free = [count for axis, count in zip(lanes.axes, lanes.counts, strict=True) if axis is None]
    array = array.astype(dtype, copy=False).reshape(*array.shape, *(1 for _ in free))
    if spread:
        array = np.broadcast_to(array, (*array.shape[: array.ndim - len(free)], *free))
    return layout_of(lanes).laid(array).reshape(-1, *lanes.counts)


def from_words(words: Array, lanes: LaneLayout, shape: Sequence[int]) -> Array:
    """The array whose words these are."""
    layout, whole = layout_of(lanes), (*shape, *(1 for axis in lanes.axes if axis is None))
    return layout.taken(words.reshape(layout.extents(whole)), whole).reshape(shape)
