"""The calls of an external function by which it is compared with its declaration, the smallest first.

Tiles go wrong at their edges: the last columns of a vector, the rows beyond the last block, sums that are shorter than what is unrolled.
So each height is tried, each width and each length of a sum up to a few vectors, those beside powers of two behind them, all pairs of
small heights and widths, and the corners of the bounds. Values, distances of rows and places in memory take turns.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from itertools import product


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
    for n in _listed(columns, ALL_UP_TO):
        yield 1, n, 2
        yield min(rows, 6), n, 5
    for k in (0, *_listed(LONGEST, ALL_TERMS_UP_TO)):
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


def _listed(most: int, all_up_to: int) -> list[int]:
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
