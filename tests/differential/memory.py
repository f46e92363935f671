"""Arrays between pages that nobody may touch, and what they hold."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

import numpy as np
import numpy.typing as npt

from .meaning import FLOATS, dtype_of

Array = npt.NDArray[Any]
SPECIAL = (np.nan, np.inf, -np.inf, -0.0, 0.0)
SCALES = (
    1.0,
    1.0,
    1.0,
    3e-5,
    1e-6,
    200.0,
    4e4,
)  # of values down to denormals of float16, up to its end
# Halfway between two 16-bit floats, and a little beyond: rounded to float32 first, each is a tie.
TIES = tuple(
    sign * (1 + odd * half + beyond * 2.0**-40)
    for sign in (1, -1)
    for half in (2.0**-8, 2.0**-11)
    for odd in (1, 3)
    for beyond in (-1, 0, 1)
)

_libc = ctypes.CDLL(None)
_libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


def guarded(shape: Sequence[int], dtype: str, at_end: bool) -> Array:
    """An array with a page that faults right before it, or right after it."""
    kind = dtype_of(dtype)
    count = int(np.prod(shape, dtype=int)) * kind.itemsize
    used = -(-max(count, 1) // mmap.PAGESIZE) * mmap.PAGESIZE
    whole = np.frombuffer(mmap.mmap(-1, used + 2 * mmap.PAGESIZE), np.uint8)
    for page in (0, mmap.PAGESIZE + used):
        failed = _libc.mprotect(whole.ctypes.data + page, mmap.PAGESIZE, 0)
        assert not failed
    start = mmap.PAGESIZE + (used - count if at_end else 0)
    return whole[start : start + count].view(kind).reshape(tuple(shape))


def poison(array: Array) -> Array:
    """`array`, holding what no result is."""
    kind = array.dtype
    array[...] = np.iinfo(kind).min if kind.kind in "iu" else np.nan
    return array


def filled(shape: Sequence[int], dtype: str, data: str, rng: Random) -> Array:
    """Small whole numbers, or what `data` says.

    data   ``specials``: NaN, infinity and -0.0 among them; ``smooth``: fractions, ``rough``: such
           whose every operation is compared bit by bit; ``full``: integers of the whole range of
           their type; ``indices``: 0 … 3, ``rising``: the same in order; ``one``: a single NaN

    Sums of products of all but the fractions are exact in every type that sums are made in.
    """
    count = int(np.prod(shape, dtype=int))
    values: list[float]
    if data in ("indices", "rising"):
        values = [rng.randrange(0, 4) for _ in range(count)]
        values = sorted(values) if data == "rising" else values
    elif data == "full" and dtype not in FLOATS:
        info = np.iinfo(dtype)
        edges = (int(info.min), int(info.max), 0, 1)
        whole = [
            rng.choice(edges) if rng.random() < 0.2 else rng.randint(int(info.min), int(info.max))
            for _ in range(count)
        ]
        return np.array(whole, dtype_of(dtype)).reshape(tuple(shape))
    elif dtype not in FLOATS:
        values = [rng.randrange(0 if dtype == "uint8" else -9, 10) for _ in range(count)]
    elif data == "smooth":
        values = [rng.uniform(-2, 2) for _ in range(count)]
    elif data == "rough":
        values = [rng.uniform(-2, 2) * rng.choice(SCALES) for _ in range(count)]
        for _ in range(count // 4):
            values[rng.randrange(count)] = rng.choice(TIES)
    else:
        values = [
            rng.choice((-3.0, -2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0, 4.0)) for _ in range(count)
        ]
        if data == "one" and count:
            values[rng.randrange(count)] = np.nan
        if data == "specials":
            for _ in range(min(count, max(1, count // 9))):
                values[rng.randrange(count)] = rng.choice(SPECIAL)
    return np.array(values, "float64").astype(dtype_of(dtype)).reshape(tuple(shape))


def laid_out(values: Array, dtype: str, layout: str, at_end: bool) -> Array:
    """`values` between guard pages: ``rows``, ``turned``, ``spread`` with gaps, ``backwards``, or
    ``crooked``: at addresses that its type is not aligned to.
    """
    if layout == "turned":
        base = guarded(values.shape[::-1], dtype, at_end)
        view = base.T
    elif layout == "spread" and values.ndim:
        *outer, last = values.shape
        base = guarded((*outer, max(0, 2 * last - 1) if not outer else 2 * last), dtype, at_end)
        view = base[..., ::2]
    elif layout == "backwards" and values.ndim:
        view = guarded(values.shape, dtype, at_end)[::-1]
    elif layout == "crooked" and values.size:
        item = values.itemsize
        base = guarded((*values.shape, item + 1), "uint8", at_end)
        view = np.ndarray(values.shape, values.dtype, base, offset=1, strides=base.strides[:-1])
    else:
        view = guarded(values.shape, dtype, at_end)
    view[...] = values
    return view


def same(found: Array, wanted: Array, known: npt.NDArray[np.bool_], how: Mapping[str, Any]) -> bool:
    """Whether `found` is `wanted` where that is known.

    how   ``tolerance``: 0, or how far apart the greatest may be, relatively; ``zeros``: whether -0.0
          and 0.0 differ
    """
    if found.shape != wanted.shape or found.dtype != wanted.dtype:
        return False
    if found.dtype.kind in "iu":
        return bool(np.all((found == wanted) | ~known))
    a, b = found.astype("float64"), wanted.astype("float64")
    with np.errstate(all="ignore"):
        equal = (a == b) | (np.isnan(a) & np.isnan(b))
        if how["zeros"]:
            equal &= np.isnan(a) | (np.signbit(a) == np.signbit(b))
        if how["tolerance"]:
            finite = np.isfinite(a) & np.isfinite(b)
            scale = max([1.0, *np.abs(b[finite & known])])
            equal |= finite & (np.abs(a - b) <= how["tolerance"] * scale)
    return bool(np.all(equal | ~known))
