"""Constants as the generated code reads them: packed into panels, or row-major; copies, but of what offcut owns.

They are the one copy: where somebody asks for the array that one was made of, it is unpacked.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from math import prod
from typing import Any
from weakref import WeakValueDictionary, ref

import numpy as np

from offcut.backends.cpu.lowering.call_layout import PANEL_SLACK
from offcut.backends.cpu.lowering.interleave import emit_transpose_step
from offcut.backends.cpu.machine import isa, jit
from offcut.backends.host import cache as objects
from offcut.backends.llvm import ir
from offcut.backends.llvm.ir import FunctionWriter
from offcut.backends.llvm.loader import JitModule
from offcut.core.dtypes import numpy_dtype
from offcut.core.layout import Layout
from offcut.core.panels import as_panels
from offcut.describe.request import (
    Array,
    Recalled,
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

    def __init__(self, made: PackedBuffer, source: ref[Array]) -> None:
        self.made, self.source = made, source


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
            packed = self._packed[layout] = _shared_pack(array, lies, dtype)
            if array.dtype == numpy_dtype(dtype):
                again[name] = partial(unpack, packed, lies, dtype, array.shape)
        held = {
            name: to_owned_constant(array) for name, array in constants.items() if name not in again
        }
        super().__init__(held, again)

    @classmethod
    def of(cls, constants: Mapping[str, Array], layouts: Iterable[Reading]) -> PackedConstants:
        """Themselves where they are such already."""
        if isinstance(constants, PackedConstants) and constants._packed.keys() == {*layouts}:
            return constants
        return cls(constants, layouts)

    def as_read(self, layout: Reading) -> PackedBuffer:
        """Return a constant as code reads it."""
        return self._packed[layout]


def _shared_pack(array: Array, layout: Layout | None, dtype: str) -> PackedBuffer:
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
        view[...] = layout.arrange(array)
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
    array = layout.restore(view.reshape(extents), shape)
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


# Panels of a constant, filled by compiled code.
#
#     void offcut_fill(void *panels, const void *source, int64_t columns, int64_t rows,
#                      int64_t width, int64_t pitch_bytes, int64_t panel_bytes);
#
#     panels  word ``(p, r, c)`` of them lies at byte ``p * panel_bytes + (r * width + c) * word``
#     source  its word of row r and column ``p * width + c``: words of a column lie side by side and columns `pitch_bytes`
#             apart, or words of a row do and rows are `pitch_bytes` apart
#
# A square of words is read along memory, turned in registers where columns lie along it, and written along panels.

WORDS = (1, 2, 4, 8)
"""Bytes of the words that can be filled."""
_SIDE = {1: 16, 2: 16, 4: 16, 8: 8}
"""Words along a square, by their bytes: such a line of them is a vector register, or a part of one."""
_SYMBOL = "offcut_fill"
_FILL = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, *[ctypes.c_int64] * 5)


class PackFunction:
    """The function, as long as this object lives."""

    def __init__(self, code: JitModule) -> None:
        self._code, self._function = code, _FILL(code.address(_SYMBOL))

    def __call__(
        self,
        panels: int,
        source: int,
        *,
        columns: int,
        rows: int,
        width: int,
        pitch_bytes: int,
        panel_bytes: int,
    ) -> None:
        """Fill the panels at one address from the words at another."""
        self._function(panels, source, columns, rows, width, pitch_bytes, panel_bytes)


@cache
def pack_function(word: int, *, turned: bool) -> PackFunction:
    """The function for words of one of `WORDS` bytes; `turned` where those of a column lie side by side."""
    host, text = isa.host(), filling_ir(word, turned=turned)
    name = objects.key("filling", text, repr(host))
    code = objects.get_or_build(name, lambda: jit.object_code(text, host, passes=True))
    return PackFunction(jit.load([code], host))


def filling_ir(word: int, *, turned: bool) -> str:
    """LLVM IR of the function."""
    f = FunctionWriter()
    last = ir.sub(f, "%columns", "1")
    count = ir.add(f, ir.floordiv(f, last, "%width"), "1")
    with f.loop("0", count) as panel:
        first = ir.mul(f, panel, "%width")
        columns = ir.minimum(f, ir.sub(f, "%columns", first), "%width")
        to = f.let(f"getelementptr i8, ptr %panels, i64 {ir.mul(f, panel, '%panel_bytes')}")
        step = "%pitch_bytes" if turned else str(word)
        of = f.let(f"getelementptr i8, ptr %source, i64 {ir.mul(f, first, step)}")
        _Panel(f, word, turned, to, of).fill("%rows", columns)
    f.do("ret void")
    names = ("columns", "rows", "width", "pitch_bytes", "panel_bytes")
    numbers = ", ".join(f"i64 %{name}" for name in names)
    head = f"define void @{_SYMBOL}(ptr noalias %panels, ptr noalias readonly %source, {numbers})"
    return f"{head} nounwind {{\n{f.text()}\n}}\n" + "\n".join(sorted(f.declares))


class _Panel:
    """One panel, being filled.

    to, of  where its words go, and where those of its first column come from
    """

    def __init__(self, f: FunctionWriter, word: int, turned: bool, to: str, of: str) -> None:
        self.f, self.word, self.turned, self.to, self.of = f, word, turned, to, of

    def fill(self, rows: str, columns: str) -> None:
        """Squares, then what is left on their right and below."""
        f, side = self.f, _SIDE[self.word]
        down = side if self.turned else 1
        whole = [
            ir.mul(f, ir.floordiv(f, count, str(unit), natural=True), str(unit))
            for count, unit in ((rows, down), (columns, side))
        ]
        with f.loop("0", whole[0], down) as row, f.loop("0", whole[1], side) as column:
            self.square(row, column, side if self.turned else 1)
        self.words(("0", rows), (whole[1], columns))
        self.words((whole[0], rows), ("0", whole[1]))

    def square(self, row: str, column: str, rows: int) -> None:
        """So many rows of as many columns as a vector has words."""
        f, side = self.f, _SIDE[self.word]
        kind = f"<{side} x i{8 * self.word}>"
        lanes = []
        for line in range(rows):
            at = (row, ir.add(f, column, str(line))) if self.turned else (row, column)
            lanes.append(f.let(f"load {kind}, ptr {self.source(*at)}, align 1"))
        step = side // 2 if self.turned else 0
        while step:
            lanes = emit_transpose_step(f, lanes, step, kind)
            step //= 2
        for line, vector in enumerate(lanes):
            place = self.target(ir.add(f, row, str(line)), column)
            f.do(f"store {kind} {vector}, ptr {place}, align 1")

    def words(self, rows: tuple[str, str], columns: tuple[str, str]) -> None:
        """Word by word, from a row and column to others."""
        f, kind = self.f, f"i{8 * self.word}"
        with f.loop(*rows) as row, f.loop(*columns) as column:
            value = f.let(f"load {kind}, ptr {self.source(row, column)}, align 1")
            f.do(f"store {kind} {value}, ptr {self.target(row, column)}, align 1")

    def source(self, row: str, column: str) -> str:
        """The address of a word that is read."""
        f = self.f
        far, near = (column, row) if self.turned else (row, column)
        apart, beside = ir.mul(f, far, "%pitch_bytes"), ir.mul(f, near, str(self.word))
        return f.let(f"getelementptr i8, ptr {self.of}, i64 {ir.add(f, apart, beside)}")

    def target(self, row: str, column: str) -> str:
        """The address of a word that is written."""
        f = self.f
        at = ir.add(f, ir.mul(f, row, "%width"), column)
        return f.let(f"getelementptr i8, ptr {self.to}, i64 {ir.mul(f, at, str(self.word))}")
