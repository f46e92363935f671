"""Constants as the generated code reads them: packed into panels, or row-major; copies, but of what offcut owns.

They are the one copy: where somebody asks for the array that one was made of, it is unpacked.
"""

from __future__ import annotations

import mmap
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any
from weakref import WeakValueDictionary, ref

import numpy as np

from offcut.backends.cpu.lowering.call_layout import PANEL_SLACK
from offcut.backends.cpu.panel_packing import WORDS, pack_function
from offcut.core.dtypes import numpy_dtype
from offcut.core.layout import Layout
from offcut.core.panels import as_panels
from offcut.describe.recalled import Recalled
from offcut.describe.request import (
    Array,
    give_back,
    is_owned,
    root_of,
    take_ownership,
    to_owned_constant,
)

_LINE = 64  # bytes of a cache line
_HUGE = 2 << 20  # bytes of a large page: packed weights are read in streams


@dataclass(frozen=True)
class PackedBuffer:
    """Memory that holds a constant, as long as this object lives.

    memory  its bytes, from `address` on
    owner   keeps them
    """

    address: int
    memory: Array
    owner: Any


class _Shared:
    """A copy that several may hold, and the array that owns the memory that it was made of."""

    def __init__(self, packed: PackedBuffer, source: ref[Array]) -> None:
        self.made, self.source = packed, source


_shared: WeakValueDictionary[Hashable, _Shared] = WeakValueDictionary()
"""By what was packed, where its memory lies, and how it was laid out."""

Reading = tuple[str, Layout | None, str]
"""The name of a constant, how code reads it, and the element type."""


class PackedConstants(Recalled):
    """Constants as code reads them; as a mapping, the arrays that they were made of, by name.

    An array is held itself where the code reads it as another type, or not at all.
    """

    def __init__(self, constants: Mapping[str, Array], layouts: Iterable[Reading]) -> None:
        self._packed: dict[Reading, PackedBuffer] = {}
        again = dict[str, partial[Array]]()
        for layout in layouts:
            name, lies, dtype = layout
            array = constants[name]
            packed = self._packed[layout] = _packed(array, lies, dtype)
            if array.dtype == numpy_dtype(dtype):
                again[name] = partial(unpack, packed, lies, dtype, array.shape)
        own_arrays = {
            name: to_owned_constant(array) for name, array in constants.items() if name not in again
        }
        super().__init__(own_arrays, again)

    @classmethod
    def of(cls, constants: Mapping[str, Array], layouts: Iterable[Reading]) -> PackedConstants:
        """Themselves where they are such already."""
        if isinstance(constants, PackedConstants) and constants._packed.keys() == {*layouts}:
            return constants
        return cls(constants, layouts)

    def as_read(self, layout: Reading) -> PackedBuffer:
        """Return a constant as code reads it."""
        return self._packed[layout]


def _packed(array: Array, layout: Layout | None, dtype: str) -> PackedBuffer:
    """Return `pack`, done once for the same elements of one memory, by whatever view, as long as somebody holds what it gave."""
    root, address = root_of(array), array.__array_interface__["data"][0]
    key = address, array.shape, array.strides, array.dtype, layout, dtype
    shared = _shared.get(key)
    if shared is None or shared.source() is not root:
        shared = _shared[key] = _Shared(pack(array, layout, dtype), ref(root))
    give_back(array)
    return PackedBuffer(shared.made.address, shared.made.memory, shared)


def pack(array: Array, layout: Layout | None, dtype: str) -> PackedBuffer:
    """Return `array` as `dtype`, where its layout says; what is past the extents is 0."""
    array = array.astype(numpy_dtype(dtype), copy=False)
    if layout is not None:
        array, layout = layout.share_bytes(array), layout.of_bytes()
    if layout is None:
        if is_owned(array) and array.flags.c_contiguous and array.ctypes.data % _LINE == 0:
            memory = array.reshape(-1).view(np.uint8)
            return PackedBuffer(array.ctypes.data, memory, memory)
        target = _allocate(max(array.nbytes, 1))
        target[: array.nbytes].view(array.dtype).reshape(array.shape)[...] = array
        return PackedBuffer(target.ctypes.data, target, target)
    array = array.view(f"u{array.itemsize}")  # numpy copies its own types fast
    panels = as_panels(layout)
    layout = layout if panels is None else panels.layout  # the same places, by other coordinates
    extents = layout.extents(array.shape, array.itemsize)
    size = prod(extents) * array.itemsize
    target = _allocate(size + PANEL_SLACK)
    view = target[:size].view(array.dtype).reshape(extents)
    if panels is None:
        view[...] = layout.laid(array)
    else:
        side = panels.beside
        view = view.reshape(*extents[:-1], -1, panels.width, side)
        source = np.moveaxis(array, (panels.rows, panels.columns), (-2, -1))
        _fill_rest(view, source, _fill_words(view, source))
    return PackedBuffer(target.ctypes.data, target, target)


def unpack(packed: PackedBuffer, layout: Layout | None, dtype: str, shape: Sequence[int]) -> Array:
    """Return the array of that shape that `pack` was given, bit for bit, where it was of that type; nobody may write to it."""
    kind = numpy_dtype(dtype)
    if layout is not None and (axis := layout.shared_axis) is not None:
        byte_extents = [-(-e // layout.per_byte) if at == axis else e for at, e in enumerate(shape)]
        array = layout.split_bytes(
            unpack(packed, layout.of_bytes(), dtype, byte_extents), shape[axis], kind
        )
        return take_ownership(np.ascontiguousarray(array))
    if layout is None:
        payload = packed.memory[: prod(shape) * kind.itemsize]
        return take_ownership(payload.view(kind).reshape(shape))
    extents = layout.extents(shape, kind.itemsize)
    view = packed.memory[: prod(extents) * kind.itemsize].view(f"u{kind.itemsize}")
    array = layout.taken(view.reshape(extents), shape)
    return take_ownership(np.ascontiguousarray(array).view(kind))


def _fill_words(panels: np.ndarray[Any, Any], source: np.ndarray[Any, Any]) -> int:
    """Fill panels ``(…, panels, sets, width, side)`` by what is ``(…, rows, columns)``, as far as words of `side` elements
    lie in the source as they do in the panels: by compiled code.

    Returns how many sets are filled: all that are whole, or none.
    """
    *outer, _, _, width, side = panels.shape
    depth, columns = source.shape[-2:]
    down, across = source.strides[-2:]
    word = side * panels.itemsize
    turned = down == panels.itemsize
    if word not in WORDS or not (turned or (side == 1 and across == word)):
        return 0
    sets: int = depth // side
    fill = pack_function(word, turned=turned)
    for at in np.ndindex(*outer):
        fill(
            panels[at].ctypes.data,
            source[at].ctypes.data,
            columns=columns,
            rows=sets,
            width=width,
            pitch_bytes=across if turned else down,
            panel_bytes=panels[at].strides[0],
        )
    return sets


def _fill_rest(panels: np.ndarray[Any, Any], source: np.ndarray[Any, Any], first_set: int) -> None:
    """Fill panels ``(…, panels, sets, width, side)`` by what is ``(…, rows, columns)``, from a set on."""
    width, side = panels.shape[-2:]
    depth, columns = source.shape[-2:]
    if first_set * side >= depth:
        return
    for first in range(0, columns, width):
        panel = panels[..., first // width, first_set:, :, :]
        part = source[..., first_set * side :, first : first + width]
        for row in range(side):
            rows = part[..., row::side, :]
            panel[..., : rows.shape[-2], : rows.shape[-1], row] = rows


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
