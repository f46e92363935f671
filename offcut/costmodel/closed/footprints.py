"""What accesses touch while loops around them run: boxes of elements, as index expressions, and their bytes.

Along each axis of an array a box goes from the least to the greatest value of the index, as the loops inside
take theirs: exact where an index is a sum with one multiple of each iterator and the elements between are touched as well, a hull
otherwise. An index that is read from memory may be anywhere along its axis.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import gcd

from offcut.core import index as ix
from offcut.core.dtypes import ITEM_BYTES
from offcut.core.expr import Expr, reads_memory, substitute, variables
from offcut.core.intervals import Ends, ends
from offcut.core.program import Buffer
from offcut.core.scan import ScanContext
from offcut.costmodel.resources import Level
from offcut.costmodel.simplification import simplify_index

Ranges = Mapping[str, Ends]  # of iterators inside, in terms of what is around


@dataclass(frozen=True, slots=True)
class Scattered:
    """Elements along an axis at places that are read from memory.

    count   of them, at most
    names   what the places depend on
    """

    count: Expr
    names: frozenset[str]

    def over(self, ranges: Ranges) -> Scattered:
        """Those that are touched while iterators take their values: others each time."""
        count = self.count
        for name, (first, last) in ranges.items():
            if name in self.names:
                count = ix.mul(count, ix.add(ix.sub(last, first), 1))
        return Scattered(count, self.names - set(ranges))

    def join(self, other: Ends | Scattered) -> Scattered:
        """With others along the axis."""
        if isinstance(other, Scattered):
            return Scattered(ix.maximum(self.count, other.count), self.names | other.names)
        return self


@dataclass(frozen=True, slots=True)
class Box:
    """Elements of an array, by axis: from the first to the last, or scattered.

    read, written  whether some of them are
    """

    axes: tuple[Ends | Scattered, ...]
    read: bool
    written: bool

    def join(self, other: Box, known: ScanContext) -> Box:
        """The least box around two."""
        pairs = zip(self.axes, other.axes, strict=True)
        axes = tuple(_joined_ends(a, b, known) for a, b in pairs)
        return Box(axes, self.read or other.read, self.written or other.written)

    def over(self, ranges: Ranges) -> Box:
        """All that the box touches while iterators take their values."""
        return replace(self, axes=tuple(_over(axis, ranges) for axis in self.axes))

    def at(self, values: Mapping[str, Expr]) -> Box:
        """The box where names have these values."""
        axes = (
            axis
            if isinstance(axis, Scattered)
            else (
                simplify_index(substitute(axis[0], values)),
                simplify_index(substitute(axis[1], values)),
            )
            for axis in self.axes
        )
        return replace(self, axes=tuple(axes))

    def within(self, starts: Sequence[Expr]) -> Box:
        """The box counted from the first element of a window."""
        axes = tuple(
            ends
            if isinstance(ends, Scattered)
            else (ix.sub(ends[0], start), ix.sub(ends[1], start))
            for ends, start in zip(self.axes, starts, strict=True)
        )
        return replace(self, axes=axes)

    @property
    def moves(self) -> tuple[frozenset[str], ...]:
        """What it depends on, by axis."""
        return tuple(
            ends.names
            if isinstance(ends, Scattered)
            else frozenset(name for end in ends for name in variables(end))
            for ends in self.axes
        )

    @property
    def names(self) -> frozenset[str]:
        """What it depends on."""
        return frozenset().union(*self.moves)


def box(index: Sequence[Expr], written: bool) -> Box:
    """The box of one element that is read, or written."""
    axes = (
        Scattered(ix.const(1), frozenset(variables(part)))
        if reads_memory(part)
        else (simplify_index(part), simplify_index(part))
        for part in index
    )
    return Box(tuple(axes), not written, written)


def elements(touched: Box, shape: Sequence[Expr]) -> Expr:
    """How many elements a box has, of an array of this shape."""
    return ix.product(_length(*one) for one in zip(touched.axes, shape, strict=True))


@lru_cache(maxsize=1 << 14)
def bytes_of(touched: Box, buffer: Buffer, shape: tuple[Expr, ...], level: Level) -> Expr:
    """Bytes that come along with a box into a level: whole lines.

    A run of elements side by side takes ``run + line - item`` bytes on the average, where it may begin anywhere in
    a line; where rows are whole lines it begins with one.

    shape  of what it lies in: the array, or its window
    """
    item = ITEM_BYTES[buffer.dtype]
    if buffer.layout is not None or not shape:
        per_byte = 1 if buffer.layout is None else buffer.layout.per_byte
        return ix.ceildiv(ix.mul(elements(touched, shape), item), per_byte)
    run, runs, step = _runs(touched, shape)
    size, apart = ix.mul(run, item), ix.literal_value(ix.mul(step, item))
    if apart is not None and apart % level.line == 0:
        whole = ix.mul(level.line, ix.ceildiv(size, level.line))
        size = (
            whole if ix.literal_value(size) is not None else ix.add(size, (level.line - item) // 2)
        )
    elif level.line > 1:
        size = ix.add(size, level.line - item)
    return ix.mul(runs, size)


@lru_cache(maxsize=1 << 14)
def crowding(touched: Box, buffer: Buffer, shape: tuple[Expr, ...], level: Level) -> int:
    """How many times a box takes its bytes' room in a level: runs that begin a multiple of lines apart
    reach only some of its sets.
    """
    if buffer.layout is not None or not shape or level.ways is None:
        return 1
    run, runs, step = _runs(touched, shape)
    item = ITEM_BYTES[buffer.dtype]
    side, apart = ix.literal_value(ix.mul(run, item)), ix.literal_value(ix.mul(step, item))
    if not side or not apart or apart % level.line or runs == ix.const(1):
        return 1
    sets = max(1, level.bytes // (level.line * level.ways))
    starts = sets // gcd(sets, apart // level.line)
    return max(1, sets // min(sets, starts * -(-side // level.line)))


def _runs(touched: Box, shape: Sequence[Expr]) -> tuple[Expr, Expr, Expr]:
    """Elements of a box side by side, how many such runs there are, and from how far apart they begin."""
    run: Expr = ix.const(1)
    runs: Expr = ix.const(1)
    apart: Expr = ix.const(1)
    whole = True  # whether the axes so far, from the last one on, are touched from end to end
    for axis, extent in zip(reversed(touched.axes), reversed(shape), strict=True):
        length = _length(axis, extent)
        if whole:
            run, apart = ix.mul(run, length), ix.mul(apart, extent)
            whole = length == extent
        else:
            runs = ix.mul(runs, length)
    return run, runs, apart


_ALL = Scattered(ix.const(1 << 62), frozenset())
"""More elements than any axis has."""


def _over(axis: Ends | Scattered, ranges: Ranges) -> Ends | Scattered:
    """An axis while iterators take their values; where its form does not say what it is then, all of it."""
    if isinstance(axis, Scattered):
        return axis.over(ranges)
    first, last = (ends(end, ranges, natural=lambda _: True) for end in axis)  # none is negative
    return (
        _ALL
        if first is None or last is None
        else (simplify_index(first[0]), simplify_index(last[1]))
    )


def _joined_ends(a: Ends | Scattered, b: Ends | Scattered, known: ScanContext) -> Ends | Scattered:
    if isinstance(a, Scattered):
        return a.join(b)
    if isinstance(b, Scattered):
        return b.join(a)
    return lesser(a[0], b[0], known), lesser(a[1], b[1], known, greater=True)


def _length(ends: Ends | Scattered, extent: Expr) -> Expr:
    if isinstance(ends, Scattered):
        return ix.minimum(ends.count, extent)
    length = ix.add(ix.sub(ends[1], ends[0]), 1)
    few, most = ix.literal_value(length), ix.literal_value(extent)
    return extent if few is not None and most is not None and few > most else length


def lesser(a: Expr, b: Expr, known: ScanContext, greater: bool = False) -> Expr:
    """Return the lesser of two, or the greater, as far as it is known which that is."""
    if known.at_least_zero(ix.sub(b, a)):
        return b if greater else a
    if known.at_least_zero(ix.sub(a, b)):
        return a if greater else b
    return ix.maximum(a, b) if greater else ix.minimum(a, b)
