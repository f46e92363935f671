"""The calls of an external function by which it is compared with its declaration, the smallest first.

Tiles go wrong at their edges: the last columns of a vector, the rows beyond the last block, sums that are shorter than what is unrolled.
So each height is tried, each width and each length of a sum up to a few vectors, those beside powers of two behind them, all pairs of
small heights and widths, and the corners of the bounds. Values, distances of rows and places in memory take turns.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from itertools import product
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from offcut.core.dtypes import FLOATS, ITEM_BYTES, numpy_dtype
from offcut.core.interpret.values import cast_values


class Values(Enum):
    """The kind of values of the operands of a call."""

    WHOLE = "whole"  # small integers, none of them 0: every order of the sum gives the same bits
    WIDE = "wide"  # floats with all their digits, of several magnitudes; integers of all bits
    BEYOND = "beyond"  # small integers, and one infinity or NaN


class Place(Enum):
    """Where an operand lies in the memory around it."""

    APART = "apart"  # among elements that nothing may read or write
    END = "end"  # its last element is the last of a page, and the next may not be touched
    START = "start"  # its first element is the first of a page


@dataclass(frozen=True, slots=True)
class Call:
    """One call: a tile of m × n elements, sums of k terms.

    add      whether C is added to
    steps    elements from row to row of A, B and C
    places   of A, B and C
    seed     which values of their kind
    """

    m: int
    n: int
    k: int
    add: bool
    steps: tuple[int, int, int]
    values: Values
    places: tuple[Place, Place, Place]
    seed: int

    def __str__(self) -> str:
        a, b, c = self.steps
        sizes = f"m = {self.m}, n = {self.n}, k = {self.k}, accumulate = {int(self.add)}"
        return f"{sizes}, lda = {a}, ldb = {b}, ldc = {c}"


ALL_UP_TO = 64
"""Columns that are tried one by one; each height is."""
ALL_TERMS_UP_TO = 33
PAIRS_UP_TO = (8, 17)
"""Heights and widths that are tried with each other."""
FURTHER = (65, 96, 100, 127, 128, 129, 255, 256, 257, 511, 512, 513, 1000, 1023, 1024, 1025)
"""Columns and terms beyond those that are tried one by one."""
LONGEST, LONG_TERMS = 4097, 300
"""Terms of the longest sum, and of those from which on it is one of few columns."""
LARGE_TILE = 32768
"""Elements of a tile that is tried with sums of one length alone."""
TILE_WORK = 8192
"""Multiply–adds of a call that tries a height, at most."""
_GAPS = (0, 1, 5, 16)
"""Elements between rows."""
_REPEATED = 13
"""In so many calls the rows of A are one, or overlap, once, and those of B once."""


def calls_of(rows: int, columns: int, floats: bool) -> tuple[Call, ...]:
    """Return the calls for tiles of up to `rows` × `columns`, by the sum of their sizes.

    floats   whether the result has infinities and NaN
    """
    sizes = sorted(set(_sizes(rows, columns)), key=lambda one: (sum(one), one))
    calls = list[Call]()
    kinds = (Values.WHOLE, Values.WIDE, *([Values.BEYOND] if floats else []))
    for number, (m, n, k) in enumerate(sizes):
        small = m + n + k <= 4
        for add in (False, True):
            turn = len(calls)
            every = product(kinds, Place) if small else [(kinds[turn % len(kinds)], None)]
            for values, place in every:
                where = place or tuple(Place)[(number + turn // len(kinds)) % len(Place)]
                steps = _steps(n, k, len(calls))
                calls.append(Call(m, n, k, add, steps, values, (where,) * 3, len(calls)))
    return tuple(calls)


def _sizes(rows: int, columns: int) -> Iterator[tuple[int, int, int]]:
    for m in range(1, rows + 1):
        for n, k in ((1, 1), (17, 4), (33, 9)):
            n, k = min(n, columns), min(k, max(TILE_WORK // (m * min(n, columns)), 1))
            yield m, n, k
    for n in _sampled_extents(columns, ALL_UP_TO):
        yield 1, n, 2
        yield min(rows, 6), n, 5
    for k in (0, *_sampled_extents(LONGEST, ALL_TERMS_UP_TO)):
        yield 1, 1, k
        yield min(rows, 5), min(columns, 17 if k <= LONG_TERMS else 3), k
    low, narrow = (min(*both) for both in zip((rows, columns), PAIRS_UP_TO, strict=True))
    for m, n in product(range(1, low + 1), range(1, narrow + 1)):
        yield m, n, 3
    for m, n in product(_inside(rows), _inside(columns)):
        for k in (0, 1, 2) if m * n <= LARGE_TILE else (2,):
            yield m, n, k
    yield rows, min(columns, 3), 65
    yield min(rows, 3), columns, 33


def _inside(most: int) -> set[int]:
    """The least and the greatest value of an axis, an odd one next to the greatest, and one in the middle."""
    return {1, most, max(most - 1 - most % 2, 1), most // 2 | 1} - {0} if most > 2 else {1, most}


def _sampled_extents(most: int, all_up_to: int) -> list[int]:
    """Values of an axis: all that are small, some further ones, and the greatest."""
    return sorted({*range(1, min(most, all_up_to) + 1), *(n for n in FURTHER if n <= most), most})


def _steps(n: int, k: int, number: int) -> tuple[int, int, int]:
    """The distances of rows: those of A and B may be one row, or overlap, those of C never."""
    gap = _GAPS[number % len(_GAPS)]
    a, b = k + gap, n + _GAPS[(number + 1) % len(_GAPS)]
    turns, turn = divmod(number, _REPEATED)
    if turn == 0:
        a = turns // 2 % 2
    elif turn == 6:
        b = turns // 2 % 2
    return a, b, n + _GAPS[(number + 2) % len(_GAPS)]


Array: TypeAlias = NDArray[Any]

POISON, GUARD = 0xFF, 0xAB
"""Bytes around what is read, which are NaN as floats, and around what is written."""
INTEGER_POISON = 0x5B
"""Bytes around integers that are read."""
DIGITS: Mapping[str, int] = {"float64": 53, "float32": 24, "float16": 11, "bfloat16": 8}
"""Binary digits of a float: integers of so many are exact."""
SMALL = 3
"""The greatest of small integers."""
MAGNITUDES: Mapping[str, int] = {"float64": 20, "float32": 20, "float16": 2, "bfloat16": 20}
"""Powers of two by which rows of A and columns of B differ, at most."""
_PAD_ROWS, _PAD = 2, 37
"""Rows, and elements, before and behind an operand that lies apart."""
_POOL = (1 << 14) + 27


class Region:
    """Memory between two pages that may not be touched."""

    def __init__(self, count: int) -> None:
        page = mmap.PAGESIZE
        used = -(-max(count, 1) // page) * page
        whole = np.frombuffer(mmap.mmap(-1, used + 2 * page), np.uint8)
        self.bytes = whole[page : page + used]
        protect = ctypes.CDLL(None, use_errno=True).mprotect
        protect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
        for wall in (whole.ctypes.data, whole.ctypes.data + page + used):
            if protect(wall, page, 0):
                raise OSError(ctypes.get_errno(), "mprotect")


def needed_bytes(rows: int, columns: int, step: int, itemsize: int) -> int:
    """Return the bytes of an operand with all that may lie around it."""
    return (_span(rows, columns, step) + 2 * _pad(step, columns)) * itemsize


def _span(rows: int, columns: int, step: int) -> int:
    return (rows - 1) * step + columns if rows and columns else 0


def _pad(step: int, columns: int) -> int:
    return _PAD_ROWS * max(step, columns) + _PAD


@dataclass(frozen=True, slots=True)
class Operand:
    """A matrix in a region.

    matrix    a view of its elements, rows `step` elements apart
    around    the bytes that are looked at, from the element `first` on, counted from the matrix's first
    """

    matrix: Array
    step: int
    around: Array
    first: int

    @property
    def address(self) -> int:
        """Where its first element is, or would be."""
        return int(self.around.ctypes.data) - self.first * self.matrix.itemsize

    def first_changed_element(self, before: Array) -> tuple[int, int] | None:
        """Return row and column of the first element whose bytes are not those of `before`; None if there is none."""
        if self.around.tobytes() == before.tobytes():
            return None
        at = int(np.flatnonzero(self.around != before)[0]) // self.matrix.itemsize + self.first
        row, column = divmod(at, max(self.step, 1))
        return row, column


def place(
    region: Region,
    rows: int,
    columns: int,
    step: int,
    dtype: np.dtype[Any],
    where: Place,
    fill: int,
) -> Operand:
    """Lay a matrix into a region, all bytes around it `fill`."""
    size, span = dtype.itemsize, _span(rows, columns, step)
    pad = _pad(step, columns) if where is Place.APART else 0
    behind = len(region.bytes) // size - span - pad
    start = 0 if where is Place.START else behind
    first = min(start, _pad(step, columns))
    last = min(_pad(step, columns), len(region.bytes) // size - start - span)
    around = region.bytes[(start - first) * size : (start + span + last) * size]
    around[:] = fill
    elements = around[first * size : (first + span) * size].view(dtype)
    shape, strides = (rows, columns), (step * size, size)
    matrix = (
        np.lib.stride_tricks.as_strided(elements, shape, strides)
        if span
        else np.empty(shape, dtype)
    )
    return Operand(matrix, step, around, -first)


class Drawn:
    """Values of operands: pools of random ones, from which each call takes other parts.

    types   element types of A, B and C
    """

    def __init__(self, types: tuple[str, str, str]) -> None:
        self.types = types
        self._pools = dict[tuple[str, bool], Array]()

    def matrix(self, operand: int, kind: Values, rows: int, columns: int, seed: int) -> Array:
        """Return values of A, B or C, operand 0, 1 or 2."""
        key = self.types[operand], kind is Values.WIDE
        if key not in self._pools:
            self._pools[key] = _random(*key)
        start = (seed * 7919 + operand * 104729) % _POOL
        places = np.arange(start, start + rows * columns)
        return self._pools[key].take(places, mode="wrap").reshape(rows, columns)


def _random(dtype: str, wide: bool) -> Array:
    generator, own = np.random.default_rng(0), numpy_dtype(dtype)
    if dtype in FLOATS and wide:
        mantissas = generator.uniform(0.5, 1.0, _POOL) * generator.choice([-1.0, 1.0], _POOL)
        return np.asarray(mantissas, own)
    if own.kind in "iu" and wide:
        info = np.iinfo(own)
        every = generator.integers(info.min, info.max, _POOL, own, endpoint=True)
        ends = generator.choice(np.array([info.min, info.max], own), _POOL)
        return np.where(generator.random(_POOL) < 0.5, every, ends)
    if own.kind == "b":
        return generator.random(_POOL) < 0.5
    signs = 1 if own.kind == "u" else generator.choice([-1, 1], _POOL)
    return (generator.integers(1, SMALL, _POOL, endpoint=True) * signs).astype(own)


@dataclass(frozen=True, slots=True)
class Expected:
    """What a call must leave in C: `value`, each element as far off as `allowed`, and not further."""

    value: Array
    allowed: Array

    def first_wrong(self, result: Array) -> tuple[int, int] | None:
        """Return the first element of C that is too far off; None if there is none."""
        widened = result if result.dtype.kind in "biu" else result.astype("f8")
        wrong = widened != self.value
        if wrong.any() and self.value.dtype.kind == "f":
            wrong &= ~(np.isnan(widened) & np.isnan(self.value))
            wrong &= ~(np.abs(widened - self.value) <= self.allowed)
        if not wrong.any():
            return None
        row, column = np.argwhere(wrong)[0]
        return int(row), int(column)


def fill(call: Call, pools: Drawn, a: Operand, b: Operand, c: Operand) -> Expected:
    """Write the values of a call into its operands, and return what it must make of them.

    The result is computed in float64, or in integers that wrap around. Of small integers, whose sums a float of C's type holds,
    nothing is allowed; of others ``(k + 2) * epsilon * (|A| |B| + |C|)``, which bounds every order of the sum.
    """
    dtype = pools.types[2]
    own = numpy_dtype(dtype)
    for number, one in enumerate((a, b, c)):
        rows, columns = one.matrix.shape
        one.matrix[...] = pools.matrix(number, call.values, rows, columns, call.seed)
    exact = dtype not in FLOATS or _shape_floats(call, pools, a, b)
    a_values, b_values = (cast_values(np.array(one.matrix), own) for one in (a, b))
    start = np.array(c.matrix) if call.add else np.zeros_like(c.matrix)
    if dtype not in FLOATS:
        wide = np.uint64 if own.kind == "u" else np.int64
        whole = a_values.astype(wide) @ b_values.astype(wide) + start.astype(wide)
        return Expected(whole.astype(own), np.zeros(1))
    if not call.add:
        c.matrix[...] = np.nan
    a_values, b_values, start = (one.astype("f8") for one in (a_values, b_values, start))
    value = np.einsum("ik,kj->ij", a_values, b_values) + start
    if exact:
        return Expected(value, np.zeros(1))
    most = np.einsum("ik,kj->ij", np.abs(a_values), np.abs(b_values)) + np.abs(start)
    return Expected(value, (call.k + 2) * 2.0 ** (1 - DIGITS[dtype]) * most)


def _shape_floats(call: Call, pools: Drawn, a: Operand, b: Operand) -> bool:
    """Scale rows and columns of wide values; leave so many terms of small integers that sums are exact, and put one infinity or NaN among them.

    Return whether the sums are exact.
    """
    dtype = pools.types[2]
    if call.values is Values.WIDE:
        for axis, one in enumerate((a, b)):
            own = pools.types[axis]
            if own in FLOATS and call.steps[axis] >= one.matrix.shape[1]:
                most = min(MAGNITUDES[own], MAGNITUDES[dtype])
                powers = (np.arange(one.matrix.shape[axis]) * 7 + call.seed) % (2 * most + 1) - most
                scale = np.exp2(powers).astype(one.matrix.dtype)
                one.matrix[...] *= scale.reshape((-1, 1) if axis == 0 else (1, -1))
        return False
    most = (1 << DIGITS[dtype]) // SMALL**2 - 1
    if call.k > most:
        if call.steps[0] < call.k:
            return False
        is_zero = np.ones(call.k, bool)
        is_zero[np.linspace(0, call.k - 1, most).round().astype(int)] = False
        a.matrix[:, is_zero] = 0
    elif call.values is Values.BEYOND and call.k:
        axis = call.seed % 2
        if pools.types[axis] in FLOATS:
            rows, columns = (a, b)[axis].matrix.shape
            at = (call.seed % rows, call.k - 1) if axis == 0 else (call.k - 1, call.seed % columns)
            (a, b)[axis].matrix[at] = (np.nan, np.inf, -np.inf)[call.seed // 2 % 3]
    return True


def item_bytes(types: tuple[str, str, str]) -> tuple[int, int, int]:
    """Return the bytes of an element of A, B and C."""
    a, b, c = (ITEM_BYTES[one] for one in types)
    return a, b, c
