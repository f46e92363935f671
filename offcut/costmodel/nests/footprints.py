"""What statements touch of their arrays while axes run over a range, in numbers: bytes that come along, room that they take.

An element is at ``sum of c_a * a + constant`` along each axis of its array, so that over L_a iterations of each axis a

    length = min(extent, 1 + span + sum of |c_a| * (L_a - 1))

of it are touched. Lines, runs and crowded sets are those of `offcut.costmodel.closed.touched`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from math import prod

import numpy as np

from offcut.core import index as ix
from offcut.core.dtypes import ITEM_BYTES
from offcut.core.expr import Expr, Load, Var, reads_memory, variables, walk
from offcut.core.program import Buffer, Kind
from offcut.costmodel.closed.touched import Level
from offcut.costmodel.nests.calls import Array, Calls
from offcut.describe.computation import Computation, Stage

Lengths = Mapping[str, Array]
"""By axis, the iterations that are looked at: by what is looked at, and by call."""

Moves = tuple[tuple[str, int], ...]
"""(iterator, how far an index moves with it)."""

Anywhere = frozenset[str]
"""Iterators with which an index moves that is not affine, or read from memory: to another place each time."""

_OWNED = (Kind.INPUT, Kind.OUTPUT, Kind.INOUT, Kind.CONSTANT)


@dataclass(frozen=True, slots=True)
class Access:
    """All that a nest does to an array at indices that move alike.

    array   its name
    item    bytes of an element
    moves   by axis of the array
    first   by axis of the array, the least and the greatest constant of its index
    shape   extents of the array
    packed  whether what is touched lies side by side: panels
    """

    array: str
    item: int
    moves: tuple[Moves | Anywhere, ...]
    first: tuple[tuple[int, int], ...]
    shape: tuple[Array, ...]
    packed: bool
    read: bool
    written: bool

    @property
    def names(self) -> frozenset[str]:
        """The iterators that it moves with."""
        return frozenset(
            name
            for moves in self.moves
            for name in (moves if isinstance(moves, frozenset) else dict(moves))
        )

    def joined(self, other: Access) -> Access:
        """Both, at indices that move alike."""
        pairs = zip(self.first, other.first, strict=True)
        first = tuple((min(a, c), max(b, d)) for (a, b), (c, d) in pairs)
        read, written = self.read or other.read, self.written or other.written
        return replace(self, first=first, read=read, written=written)

    def lengths(self, lengths: Lengths) -> tuple[Array, ...]:
        """Of what is touched, by axis of the array."""
        found = []
        for moves, (low, high), extent in zip(self.moves, self.first, self.shape, strict=True):
            if isinstance(moves, frozenset):
                count = prod((lengths[name] for name in moves), start=np.ones_like(extent))
                found.append(np.minimum(extent, count))
                continue
            steps = sum((factor * (lengths[name] - 1) for name, factor in moves), start=0.0)
            found.append(np.minimum(extent, 1 + high - low + steps))
        return tuple(found)


class Levels:
    """Levels of memory that are filled, nearest first, along the first of three axes."""

    def __init__(self, levels: Sequence[Level]) -> None:
        def column(numbers: Iterable[float]) -> Array:
            return np.array(list(numbers), float)[:, None, None]

        self.bytes = column(one.bytes for one in levels)
        self.line = column(one.line for one in levels)
        sets = (one.bytes // (one.line * one.ways) if one.ways else 0 for one in levels)
        self.sets = column(max(1, count) for count in sets)
        self.cached = self.line > 1
        self.whole_sets = self.sets.astype(np.int64)

    def touched(self, access: Access, lengths: Lengths) -> tuple[Array, Array]:
        """Bytes that come into each level along with an access, and the room that they take there.

        lengths  by what is looked at, and by call

        Both are by level, by what is looked at, and by call.
        """
        parts = access.lengths(lengths)
        item = access.item
        if access.packed or not parts:
            size = reduce(np.multiply, parts, np.full(1, float(item)))
            size = np.broadcast_to(size, (len(self.line), *_shape(lengths)))
            return size, size
        run, runs, apart, whole = np.ones(1), np.ones(1), np.ones(1), np.ones(1, bool)
        for length, extent in zip(reversed(parts), reversed(access.shape), strict=True):
            run, apart = np.where(whole, run * length, run), np.where(whole, apart * extent, apart)
            runs = np.where(whole, runs, runs * length)
            whole = whole & (length == extent)
        side, step = run * item, apart * item
        aligned = self.cached & (step % self.line == 0) & (runs > 1)
        lines = self.line * np.ceil(side / self.line)
        ragged = side + np.where(self.cached, self.line - item, 0.0)
        shape = (len(self.line), *_shape(lengths))
        size = np.broadcast_to(runs * np.where(aligned, lines, ragged), shape)
        if not aligned.any():
            return size, size
        starts = self.sets / np.gcd(
            self.whole_sets, np.maximum(step // self.line, 1).astype(np.int64)
        )
        reached = np.minimum(self.sets, starts * np.maximum(lines / self.line, 1))
        return size, size * np.where(aligned, np.maximum(1.0, self.sets / reached), 1.0)


def _shape(lengths: Lengths) -> tuple[int, ...]:
    return next(iter(lengths.values())).shape


def accesses(
    computation: Computation, stages: Iterable[Stage], around: Sequence[str], calls: Calls
) -> tuple[Access, ...]:
    """Of the statements of a nest; what lives in windows of loops around it lies where it always does.

    around   axes of those loops
    """
    found: dict[tuple[str, tuple[Moves | Anywhere, ...]], Access] = {}
    named = {size.name for size in computation.sizes}
    for stage in stages:
        point = tuple(Var(axis.name) for axis in stage.axes)
        touched: list[tuple[str, tuple[Expr, ...], bool]] = [(stage.buffer, point, True)]
        loads = (node for node in walk(stage.value) if isinstance(node, Load))
        touched += [(node.buffer, node.index, False) for node in loads]
        for name, index, written in touched:
            buffer = computation.buffer(name)
            if buffer.kind is Kind.PRIVATE:
                continue
            fixed = frozenset(() if buffer.kind in _OWNED else around)
            one = _access(buffer, index, fixed, named, calls, written)
            key = name, one.moves
            found[key] = found[key].joined(one) if key in found else one
    return tuple(found.values())


def _access(
    buffer: Buffer,
    index: Sequence[Expr],
    fixed: frozenset[str],
    named: set[str],
    calls: Calls,
    written: bool,
) -> Access:
    moves: list[Moves | Anywhere] = []
    first, shape = [], []
    for part, extent in zip(index, buffer.shape, strict=True):
        form, names = ix.to_linear(part), variables(part) - named - fixed
        affine = all(isinstance(atom, Var) or not variables(atom) & names for atom, _ in form.terms)
        if reads_memory(part) or not affine:
            moves.append(frozenset(names))
        else:
            steps = {a.name: abs(f) for a, f in form.terms if isinstance(a, Var)}
            moves.append(tuple((name, by) for name, by in steps.items() if name in names))
        within = not names and bool(variables(part) & fixed)
        first.append((form.const, form.const))
        shape.append(calls.constant(1) if within else calls.of(extent))
    item, packed = ITEM_BYTES[buffer.dtype], buffer.layout is not None
    lies = tuple(moves), tuple(first), tuple(shape), packed
    return Access(buffer.name, item, *lies, not written, written)
