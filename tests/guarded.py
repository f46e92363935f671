"""Sums of products for a microkernel's function alone: operands between pages that may not be touched."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from compiled import Array

from offcut.backends.cpu.machine import isa, jit
from offcut.backends.host import arrays as host
from tests.facade import Block, numpy_dtype

HOST = isa.host()
LANES = 16

libc = ctypes.CDLL(None)
libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


POISON = 0xA5


class Walled:
    """`count` bytes between two pages that may not be touched, at one of these; what is left of the pages between is `POISON`."""

    def __init__(self, count: int, at_end: bool = True) -> None:
        page = mmap.PAGESIZE
        used = -(-max(count, 1) // page) * page
        whole = np.frombuffer(mmap.mmap(-1, used + 2 * page), np.uint8)
        for wall in (0, page + used):
            no_access = libc.mprotect(whole.ctypes.data + wall, page, 0)
            assert no_access == 0
        self.inner: Array = whole[page : page + used]
        self.inner[:] = POISON
        self.start = used - count if at_end else 0
        self.bytes: Array = self.inner[self.start : self.start + count]
        self.address = self.inner.ctypes.data + self.start
        self.views: list[Array] = []

    def array(
        self,
        shape: tuple[int, ...],
        dtype: str | np.dtype[np.generic],
        strides: tuple[int, ...],
        first: int = 0,
    ) -> Array:
        """Return an array in these bytes.

        strides  in bytes; first: where element (0, …, 0) is
        """
        made: Array = np.ndarray(shape, numpy_dtype(str(dtype)), self.bytes, first, strides)
        self.views.append(made)
        return made

    def check(self) -> None:
        """Check that no byte was written but those of the elements of its arrays."""
        copy = self.inner.copy()
        for view in self.views:
            if view.size:
                first = view.ctypes.data - self.inner.ctypes.data
                items: Array = np.lib.stride_tricks.as_strided(
                    copy[first:], (*view.shape, view.itemsize), (*view.strides, 1)
                )
                items[...] = POISON
        assert np.all(copy == POISON)


def walled(values: Array, at_end: bool = True) -> Array:
    """A copy that ends where a page begins that may not be touched, or begins where one ends."""
    made: Array = Walled(values.nbytes, at_end).bytes.view(values.dtype).reshape(values.shape)
    made[...] = values
    return made


def guarded_rows(values: Array, gap: int, poison: int) -> tuple[Walled, int, Array]:
    """A copy whose rows lie `gap` bytes of `poison` apart; its step in bytes, and a view of it."""
    rows, columns = values.shape
    step = columns * values.itemsize + gap
    memory = Walled(max(rows * step - gap, 0))
    memory.bytes[:] = poison
    view: Array = np.ndarray(
        values.shape, values.dtype, memory.bytes.data, strides=(step, values.itemsize)
    )
    view[...] = values
    return memory, step, view


def panels(b: Array, side: int, multiple: int, lanes: int = LANES) -> tuple[Walled, int]:
    """B in panels of `lanes` columns, `side` rows next to each other; bytes from panel to panel."""
    depth, columns = b.shape
    count, sets = -(-columns // lanes), -(-depth // multiple) * multiple // side
    padded = np.zeros((sets * side, count * lanes), b.dtype)
    padded[:depth, :columns] = b
    packed = padded.reshape(sets, side, count, lanes).transpose(2, 0, 3, 1)
    memory = Walled(packed.size * b.itemsize)
    memory.bytes[:] = np.frombuffer(packed.tobytes(), np.uint8)
    return memory, sets * side * lanes * b.itemsize


@dataclass(frozen=True)
class Case:
    """Operands of one sum of products, and what it is."""

    a: Array
    b: Array
    c: Array
    accumulate: bool

    def check(self, found: Array) -> None:
        if self.a.dtype != numpy_dtype("bfloat16"):
            exact = self.a.astype("int32") @ self.b.astype("int32")
            np.testing.assert_array_equal(found, exact + self.c if self.accumulate else exact)
            return
        a, b = self.a.astype("float64"), self.b.astype("float64")
        start = self.c.astype("float64") if self.accumulate else np.zeros(self.c.shape)
        scale = np.abs(a) @ np.abs(b) + np.abs(start)
        bound = (self.a.shape[1] + 2) * np.finfo("float32").eps * scale
        assert np.all(np.abs(found - (a @ b + start)) <= bound)


def case(kind: str, rows: int, depth: int, columns: int, accumulate: bool, seed: int = 0) -> Case:
    """Random operands; bytes of their whole range, and sums that wrap around."""
    random = np.random.default_rng((rows, depth, columns, accumulate, seed))
    if kind == "bfloat16":
        a, b, c = (
            random.standard_normal(shape)
            for shape in ((rows, depth), (depth, columns), (rows, columns))
        )
        return Case(
            a.astype(numpy_dtype(kind)),
            b.astype(numpy_dtype(kind)),
            c.astype("float32"),
            accumulate,
        )
    low, high = (0, 256) if kind == "uint8" else (-128, 128)
    extreme = random.random() < 0.5
    a = (
        random.choice([low, high - 1], (rows, depth))
        if extreme
        else random.integers(low, high, (rows, depth))
    )
    b = (
        random.choice([-128, 127], (depth, columns))
        if extreme
        else random.integers(-128, 128, (depth, columns))
    )
    c = random.integers(-(2**31), 2**31, (rows, columns))
    return Case(a.astype(kind), b.astype("int8"), c.astype("int32"), accumulate)


def covered(rows: int, row_bytes: int, step: int) -> Array:
    """The bytes of rows, `step` bytes apart."""
    return (np.arange(rows)[:, None] * step + np.arange(row_bytes)).ravel()


def callable_of(text: str, symbol: str, parameters: str) -> Callable[..., None]:
    """A function of a module, called from Python; it keeps its code alive."""
    loaded = jit.load([jit.object_code(text, HOST, passes=False)], HOST)
    kinds = [ctypes.c_void_p if p == "ptr" else ctypes.c_int64 for p in parameters.split(", ")]
    function = ctypes.CFUNCTYPE(None, *kinds)(loaded.address(symbol))
    function.loaded = loaded
    return function


def run_tile(function: Callable[..., None], what: Case, side: int, lanes: int = LANES) -> Array:
    """The result of one call of a function of `family.TILES`; what is around the operands is not touched.

    side   rows of B that lie next to each other
    lanes  columns of a panel of B
    """
    (rows, depth), columns = what.a.shape, what.b.shape[1]
    a, a_row, _ = guarded_rows(what.a, 5 * what.a.itemsize, 0xFF)
    b, b_panel = panels(what.b, side, side, lanes)
    c, c_row, result = guarded_rows(what.c, 12, 0xAB)
    last = (columns - 1) % lanes + 1
    function(
        a.address,
        a_row,
        1,
        b.address,
        b_panel,
        0,
        c.address,
        c_row,
        depth,
        last,
        what.accumulate,
        b.address,
        0,
    )
    assert np.all(np.delete(c.bytes, covered(rows, columns * 4, c_row)) == 0xAB)
    return result


LAYOUTS = ("rows", "transposed", "sliced", "expanded", "reversed")
"""How an array may lie in memory."""


def lying(
    layout: str, shape: tuple[int, ...], dtype: str, at_end: bool = True
) -> tuple[Walled, Array]:
    """Return an array of that layout between walls: by rows; its axes in reverse order; every other element of each axis; without a
    stride along its first axis; from its last element to its first.
    """
    order = range(len(shape))
    return in_order(
        (*(reversed(order) if layout == "transposed" else order),), shape, dtype, at_end, layout
    )


def in_order(
    order: tuple[int, ...],
    shape: tuple[int, ...],
    dtype: str,
    at_end: bool = True,
    layout: str = "rows",
) -> tuple[Walled, Array]:
    """Return an array whose axes lie in that order, outermost first, between walls.

    layout  as `lying` takes it
    """
    item = numpy_dtype(dtype).itemsize
    step, each, strides = item, 2 if layout == "sliced" else 1, [0] * len(shape)
    for axis in reversed(order):
        strides[axis] = step * each
        step *= shape[axis] * each
    if layout == "expanded" and shape:
        strides[0] = 0
    empty = 0 in shape
    last = 0 if empty else sum((e - 1) * s for e, s in zip(shape, strides, strict=True))
    memory = Walled(0 if empty else last + item, at_end)
    if layout == "reversed":
        return memory, memory.array(shape, dtype, tuple(-s for s in strides), last)
    return memory, memory.array(shape, dtype, tuple(strides))


class Memory:
    """Arrays between walls, in turn at the end and at the beginning of their pages."""

    def __init__(self) -> None:
        self.walled: list[Walled] = []

    def lying(self, layout: str, shape: tuple[int, ...], dtype: str) -> Array:
        """Return an array of that layout."""
        memory, made = lying(layout, shape, dtype, len(self.walled) % 2 == 0)
        self.walled.append(memory)
        return made

    def in_order(
        self, order: tuple[int, ...], shape: tuple[int, ...], dtype: str, layout: str = "rows"
    ) -> Array:
        """Return an array whose axes lie in that order, outermost first."""
        memory, made = in_order(order, shape, dtype, len(self.walled) % 2 == 0, layout)
        self.walled.append(memory)
        return made

    def check(self) -> None:
        """Check that no byte beside the elements of the arrays was written."""
        for one in self.walled:
            one.check()

    def allocated(
        self, kind: str, shape: tuple[int, ...], strides: tuple[int, ...] | None, dtype: str
    ) -> tuple[Any, int]:
        """Return a result of a model as `host.allocated` does."""
        rows = host.c_strides(shape)
        steps = rows if strides is None else strides
        item = numpy_dtype(dtype).itemsize
        memory = Walled(prod(shape) * item, len(self.walled) % 2 == 0)
        self.walled.append(memory)
        made: Any = memory.array(shape, dtype, tuple(step * item for step in steps))
        address = made.ctypes.data
        if kind == "torch":
            import torch

            whole = made.view(np.uint16) if dtype == "bfloat16" else made
            made = torch.from_numpy(whole)
            made = made.view(torch.bfloat16) if dtype == "bfloat16" else made
        return made, address

    def arena(self, count: int) -> Block:
        """Return memory for an arena as `Blocks.take` does: of so many bytes, and few beyond."""
        memory = Walled(-(-count // 64) * 64)
        memory.bytes[:] = 0xFF
        memory.views.append(memory.bytes)
        self.walled.append(memory)
        return Block(memory.bytes.ctypes.data, count, memory.bytes)
