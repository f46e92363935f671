"""Sums of products for a microkernel's function alone: operands between pages that may not be touched."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from compiled import Array

from offcut.backends.cpu.machine import isa, jit
from offcut.core.dtypes import numpy_dtype

HOST = isa.host()
LANES = 16

libc = ctypes.CDLL(None)
libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


class Guarded:
    """`count` bytes that end where a page begins that may not be touched."""

    def __init__(self, count: int) -> None:
        used = -(-max(count, 1) // mmap.PAGESIZE) * mmap.PAGESIZE
        whole = np.frombuffer(mmap.mmap(-1, used + mmap.PAGESIZE), np.uint8)
        self.bytes = whole[used - count : used]
        self.address = whole.ctypes.data + used - count
        no_access = libc.mprotect(whole.ctypes.data + used, mmap.PAGESIZE, 0)
        assert no_access == 0


def before_a_wall(values: Array) -> Array:
    """A copy that ends where a page begins that may not be touched."""
    made: Array = Guarded(values.nbytes).bytes.view(values.dtype).reshape(values.shape)
    made[...] = values
    return made


def behind_a_wall(values: Array) -> Array:
    """A copy that begins where a page ends that may not be touched."""
    used = -(-max(values.nbytes, 1) // mmap.PAGESIZE) * mmap.PAGESIZE
    whole = np.frombuffer(mmap.mmap(-1, mmap.PAGESIZE + used), np.uint8)
    no_access = libc.mprotect(whole.ctypes.data, mmap.PAGESIZE, 0)
    assert no_access == 0
    part = whole[mmap.PAGESIZE :][: values.nbytes]
    made: Array = part.view(values.dtype).reshape(values.shape)
    made[...] = values
    return made


def guarded_rows(values: Array, gap: int, poison: int) -> tuple[Guarded, int, Array]:
    """A copy whose rows lie `gap` bytes of `poison` apart; its step in bytes, and a view of it."""
    rows, columns = values.shape
    step = columns * values.itemsize + gap
    memory = Guarded(max(rows * step - gap, 0))
    memory.bytes[:] = poison
    view: Array = np.ndarray(
        values.shape, values.dtype, memory.bytes.data, strides=(step, values.itemsize)
    )
    view[...] = values
    return memory, step, view


def panels(b: Array, side: int, multiple: int) -> tuple[Guarded, int]:
    """B in panels of 16 columns, `side` rows next to each other; bytes from panel to panel."""
    depth, columns = b.shape
    count, sets = -(-columns // LANES), -(-depth // multiple) * multiple // side
    padded = np.zeros((sets * side, count * LANES), b.dtype)
    padded[:depth, :columns] = b
    packed = padded.reshape(sets, side, count, LANES).transpose(2, 0, 3, 1)
    memory = Guarded(packed.size * b.itemsize)
    memory.bytes[:] = np.frombuffer(packed.tobytes(), np.uint8)
    return memory, sets * side * LANES * b.itemsize


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


def run_tile(function: Callable[..., None], what: Case, side: int) -> Array:
    """The result of one call of a function of `family.TILES`; what is around the operands is not touched.

    side   rows of B that lie next to each other
    """
    (rows, depth), columns = what.a.shape, what.b.shape[1]
    a, a_row, _ = guarded_rows(what.a, 5 * what.a.itemsize, 0xFF)
    b, b_panel = panels(what.b, side, side)
    c, c_row, result = guarded_rows(what.c, 12, 0xAB)
    last = (columns - 1) % LANES + 1
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
