"""Constants as the generated code reads them: packed into panels, or row-major; copies, but of what offcut owns."""

from __future__ import annotations

import mmap
from dataclasses import dataclass
from math import prod
from typing import Any
from weakref import WeakValueDictionary, ref

import numpy as np

from offcut.backends.cpu.lowering.layout import PANEL_SLACK
from offcut.core.dtypes import numpy_dtype
from offcut.core.program import Panels
from offcut.describe.request import is_owned

_LINE = 64  # bytes of a cache line
_HUGE = 2 << 20  # bytes of a large page: packed weights are read in streams
_WORDS = (1, 2, 4, 8)  # bytes
_TURNED = 1 << 15  # elements that are turned at a time: they stay in a core's cache


@dataclass(frozen=True)
class Packed:
    """Memory that holds a constant, as long as this object lives."""

    address: int
    owner: Any


class _Shared:
    """A copy that several may hold, and the array that it was made of."""

    def __init__(self, address: int, owner: Any, source: ref[np.ndarray[Any, Any]]) -> None:
        self.address, self.owner, self.source = address, owner, source


_shared: WeakValueDictionary[tuple[int, Panels | None, str], _Shared] = WeakValueDictionary()


def packed(array: np.ndarray[Any, Any], layout: Panels | None, dtype: str) -> Packed:
    """`pack`, done once for one array as long as somebody holds what it gave: a call and the C entry read the same copy."""
    key = id(array), layout, dtype
    found = _shared.get(key)
    if found is None or found.source() is not array:
        made = pack(array, layout, dtype)
        found = _shared[key] = _Shared(made.address, made.owner, ref(array))
    return Packed(found.address, found)


def pack(array: np.ndarray[Any, Any], layout: Panels | None, dtype: str) -> Packed:
    """`array` as `dtype`, in the order that `Panels` defines; what is past the extents is 0."""
    array = array.astype(numpy_dtype(dtype), copy=False)
    if layout is None:
        if is_owned(array) and array.flags.c_contiguous and array.ctypes.data % _LINE == 0:
            return Packed(array.ctypes.data, array.reshape(-1).view(np.uint8))
        target = _allocate(max(array.nbytes, 1))
        target[: array.nbytes].view(array.dtype).reshape(array.shape)[...] = array
        return Packed(target.ctypes.data, target)
    outer = [a for a in range(array.ndim) if a not in (layout.rows, layout.columns)]
    depth, columns = array.shape[layout.rows], array.shape[layout.columns]
    width, side = layout.width, layout.interleave
    sets = -(-depth // layout.multiple) * layout.multiple // side
    shape = (*(array.shape[a] for a in outer), -(-columns // width), sets, width, side)
    count = int(np.prod(shape, dtype=np.int64))
    target = _allocate(count * array.itemsize + PANEL_SLACK)
    bits = np.dtype(f"u{array.itemsize}")  # numpy copies its own types fast
    view = target[: count * array.itemsize].view(bits).reshape(shape)
    source = array.view(bits).transpose(*outer, layout.rows, layout.columns)
    turned = source.strides[-2] == array.itemsize < source.strides[-1]
    fill = _turn if turned and side * array.itemsize in _WORDS else _interleave
    for first in range(0, columns, width):
        fill(view[..., first // width, :, :, :], source[..., first : first + width])
    return Packed(target.ctypes.data, target)


def _interleave(panel: np.ndarray[Any, Any], part: np.ndarray[Any, Any]) -> None:
    """Fill a panel ``(…, sets, width, side)`` by the columns ``(…, depth, columns)``."""
    side = panel.shape[-1]
    for row in range(side):
        rows = part[..., row::side, :]
        panel[..., : rows.shape[-2], : rows.shape[-1], row] = rows


def _turn(panel: np.ndarray[Any, Any], part: np.ndarray[Any, Any]) -> None:
    """`_interleave` of columns that lie along memory: what stands side by side in the panel does so there.

    Columns may lie a multiple of a page apart, which a cache holds few of: a piece of each is copied to where
    they do not, and is turned from there, as words.
    """
    *outer, sets, width, side = panel.shape
    columns = part.shape[-1]
    word = np.dtype(f"u{side * panel.itemsize}")
    words = panel.view(word)[..., 0]
    held = max(_LINE, _TURNED // (width * side * max(prod(outer), 1)))
    beside = np.zeros((*outer, width, (held + _LINE // word.itemsize) * side), panel.dtype)
    for first in range(0, sets, held):
        rows = part[..., first * side : (first + held) * side, :]
        many = -(-rows.shape[-2] // side)
        beside[..., : many * side][..., rows.shape[-2] :] = 0
        beside[..., :columns, : rows.shape[-2]] = rows.swapaxes(-1, -2)
        words[..., first : first + many, :] = beside.view(word)[..., :many].swapaxes(-1, -2)


def _allocate(size: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Zeros at a cache line, in large pages where there are many and the system has them."""
    if size < _HUGE or not hasattr(mmap, "MADV_HUGEPAGE"):
        block = np.zeros(size + _LINE, np.uint8)
        start = -block.ctypes.data % _LINE
        return block[start : start + size]
    # shared pages, which are the default, would be small ones
    pages = mmap.mmap(-1, size + _HUGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    block = np.frombuffer(pages, np.uint8)
    start = -block.ctypes.data % _HUGE
    pages.madvise(mmap.MADV_HUGEPAGE, start, size // _HUGE * _HUGE)  # no more than is written to
    return block[start : start + size]
