"""Where the arrays of timed calls lie: at the same places in every process.

A kernel that writes what lies some bytes further in its page (`host.scratch`) than what it reads next takes up to 1.6 times as long, and
the allocator decides. Here each array begins at a multiple of such a page, plus a part of one of its own, as far from all others as so
many can be: times that differ from one process to the next by a tenth and more differ by a few hundredths.

Source: AMD, Software Optimization Guide for AMD64 Processors (25112), section 5.5, "false dependencies": bits 11 to 2 of addresses; Intel 64
and IA-32 Architectures Optimization Reference Manual, "4-KByte aliasing"; measured on Zen 4.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

import numpy as np

from offcut.backends.host.scratch import PAGE
from offcut.core.dtypes import numpy_dtype
from offcut.describe.request import Array
from offcut.tuning.measuring.operands import Operands

_ALIGNED = 64
"""Bytes that each begins at a multiple of, so that vectors of all arrays lie alike."""


def placed(called: Operands) -> tuple[Operands, tuple[Array, ...]]:
    """The operands of a call where they always lie, and arrays for its results."""
    wanted = [*((one.shape, one.dtype) for one in called.given)]
    wanted += [(shape, numpy_dtype(dtype)) for shape, dtype in called.results]
    step = max(PAGE >> (len(wanted) - 1).bit_length(), _ALIGNED)
    arrays = [_at(number * step % PAGE, *one) for number, one in enumerate(wanted)]
    count = len(called.given)
    for array, given in zip(arrays[:count], called.given, strict=True):
        array[...] = given
    return replace(called, given=tuple(arrays[:count])), tuple(arrays[count:])


def _at(place: int, shape: tuple[int, ...], dtype: np.dtype[np.generic]) -> Array:
    """An array that begins so many bytes into a page."""
    size = prod(shape) * dtype.itemsize
    held = np.empty(size + 2 * PAGE, np.uint8)
    first = -held.ctypes.data % PAGE + place
    return held[first : first + size].view(dtype).reshape(shape)
