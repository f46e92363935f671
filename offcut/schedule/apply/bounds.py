"""The box of elements that statements read: where a window starts, how far it reaches, and the bytes in a block.

Interval arithmetic on index expressions, symbolic in what is bound outside: with ``yi in 0:8``
inside, ``8*yo + yi`` lies in ``8*yo … 8*yo + 7``. A box is never too small; where an index is not
understood it is the whole axis.

Blocks of iterations, and the bytes of the buffers that live in a block.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import reduce

from offcut.core import index as ix
from offcut.core.conditions import conjunction
from offcut.core.dtypes import ITEM_BYTES
from offcut.core.expr import Expr, Load, substitute, variables, walk
from offcut.core.intervals import Ends, ends
from offcut.core.program import (
    COUNTED_UNITS,
    Alloc,
    Choose,
    For,
    If,
    Let,
    Size,
    Stmt,
    Store,
    Tile,
    TileAxis,
)
from offcut.core.text.printer import format_expr
from offcut.errors import PartitionError
from offcut.polyhedral import Facts
from offcut.schedule.apply.placing import Place, sum_terms, window_places
from offcut.schedule.apply.staged_form import Nests

Ranges = Mapping[str, Ends | None]


def footprint(
    body: tuple[Stmt, ...],
    buffer: str,
    shape: tuple[Expr, ...],
    facts: Facts,
    stored: bool = False,
) -> tuple[tuple[Expr, Expr], ...]:
    """(start, extent) by axis of the smallest box known to hold every read of `buffer` in `body`, or every store if `stored`.

    It lies within the shape: what a masked or padded instance would touch outside is not read.
    """
    box: list[Ends | None] = [None] * len(shape)
    for index, ranges in _accesses(body, buffer, {}, stored):
        for axis, part in enumerate(index):
            bounds = ends(part, ranges) or (ix.const(0), ix.sub(shape[axis], 1))
            known = box[axis]
            if known is not None:
                low = facts.extreme("min", known[0], bounds[0])
                bounds = low, facts.extreme("max", known[1], bounds[1])
            box[axis] = bounds
    window = []
    for reach, extent in zip(box, shape, strict=True):
        low, high = reach or (ix.const(0), ix.const(-1))
        # Where only the first window has elements, 0 is as right, but does not say how windows move on.
        start = low
        if not facts.holds(ix.compare("<=", 0, low)):
            start = facts.extreme("max", low, ix.const(0))
        end = least(_end_of(high), facts)
        lone = start == low and len([*ix.parts_of_minimum(end)]) == 1
        if not (lone and facts.holds(ix.compare("<=", end, extent))):
            end = facts.extreme("min", extent, end)
        window.append((start, ix.sub(end, start)))
    return tuple(window)


def _accesses(
    body: tuple[Stmt, ...], buffer: str, ranges: Ranges, stored: bool, counted: bool = False
) -> Iterator[tuple[tuple[Expr, ...], Ranges]]:
    """Yield the index of every read, or store, of `buffer`, with the ranges of the iterators that are bound inside `body`.

    counted  whether a loop around is bound to counted units, of which the last ones may have less to do, or nothing
    """
    for stmt in body:
        match stmt:
            case For(name, lo, hi, inner, unit=unit):
                now = _bound_range(ranges, name, lo, ix.sub(hi, 1))
                several = counted or unit in COUNTED_UNITS
                yield from _accesses(inner, buffer, now, stored, several)
            case Tile(axes, inner):
                now = ranges
                for axis in axes:
                    whole = ix.sub(ix.add(axis.start, axis.extent), 1)
                    last = _last_coordinate(axis) if counted else whole
                    now = _bound_range(now, axis.iter, axis.start, last)
                yield from _accesses(inner, buffer, now, stored, counted)
            case Let(name, lo, hi, _, inner):
                now = {**ranges, name: (ix.const(lo), ix.const(hi - 1))}
                yield from _accesses(inner, buffer, now, stored, counted)
            case If(_, then, other):
                yield from _accesses((*then, *other), buffer, ranges, stored, counted)
            case Alloc(_, _, inner):
                yield from _accesses(inner, buffer, ranges, stored, counted)
            case Choose(options):
                for option in options:
                    yield from _accesses(option.body, buffer, ranges, stored, counted)
            case Store(other, index, _) if stored:
                if other == buffer:
                    yield index, ranges
            case Store(_, _, value):
                for node in walk(value):
                    if isinstance(node, Load) and node.buffer == buffer:
                        yield node.index, ranges


def least(end: Expr, facts: Facts) -> Expr:
    """Return a minimum without the parts that are known to be at least as large as others of it."""
    parts: list[Expr] = []
    for part in ix.parts_of_minimum(end):
        if not any(facts.holds(ix.compare("<=", one, part)) for one in parts):
            parts = [one for one in parts if not facts.holds(ix.compare("<=", part, one))]
            parts.append(part)
    return reduce(ix.minimum, parts)


def _end_of(last: Expr) -> Expr:
    """Return the end of a range, one past its last coordinate `last`, which may be a minimum."""
    return reduce(ix.minimum, (ix.add(end, 1) for end in ix.parts_of_minimum(last)))


def _last_coordinate(axis: TileAxis) -> Expr:
    """Return the last coordinate of a tile along an axis; a minimum of ends, if the extent is a minimum."""
    lasts = (ix.sub(ix.add(axis.start, extent), 1) for extent in ix.parts_of_minimum(axis.extent))
    return reduce(ix.minimum, lasts)


def _bound_range(ranges: Ranges, name: str, first: Expr, last: Expr) -> Ranges:
    low, high = ends(first, ranges), ends(last, ranges)
    return {**ranges, name: low and high and (low[0], high[1])}


def window_of_block(window: Alloc, iterator: str, start: Expr, iterations: int) -> Alloc:
    """Return the window of a block: from the start of its first iteration's window to the end of its last iteration's.

    window      of one iteration
    start       the first iteration of the block
    iterations  of a full block; a partial last block has the window of a full one
    """

    def at(expr: Expr, iteration: Expr) -> Expr:
        return ix.simplify(substitute(expr, {iterator: iteration}))

    last = ix.add(start, iterations - 1)
    axes = []
    for begin, extent in window.axes:
        first = at(begin, start)
        axes.append((first, ix.simplify(ix.sub(at(ix.add(begin, extent), last), first))))
    return replace(window, axes=tuple(axes))


def block_bytes(
    windows: Iterable[tuple[str, Sequence[Expr]]],
    sums: Iterable[tuple[str, Expr]],
    iterations: int,
) -> tuple[Expr, ...]:
    """Return the bytes that a block needs: of all its buffers, and of each summed line that may need more.

    windows  (element type, extents) of the buffers that live in a block
    sums     (element type, terms) of the sums of an iteration
    """
    total: Expr = ix.const(0)
    for dtype, extents in windows:
        size: Expr = ix.const(ITEM_BYTES[dtype])
        for extent in extents:
            size = ix.mul(size, extent)
        total = ix.add(total, size)
    lines = [ix.mul(terms, iterations * ITEM_BYTES[dtype]) for dtype, terms in sums]
    longest = [size for size in lines if (ix.literal_value(ix.sub(total, size)) or -1) < 0]
    return tuple(dict.fromkeys((total, *longest)))


def evaluate_at(values: Sequence[Expr], sizes: Mapping[str, int]) -> list[int]:
    """Return the values of expressions over sizes at `sizes`."""
    values_by_name = {name: ix.const(size) for name, size in sizes.items()}
    numbers = [ix.literal_value(ix.fold_indices(substitute(one, values_by_name))) for one in values]
    assert None not in numbers
    return [number for number in numbers if number is not None]


def min_bytes(byte_counts: Sequence[Expr], sizes: Sequence[Size]) -> int:
    """Return the maximum of byte counts at the minimum sizes."""
    return max(evaluate_at(byte_counts, {size.name: size.min for size in sizes}))


def min_block_bytes(nests: Nests, place: Place, depth: int, iterations: int) -> int:
    """Return the bytes of a block of a loop that groups of stages share, at the minimum sizes.

    depth  number of leading buffer axes that are indexed by this loop and the loops around it
    """
    local_buffers = window_places(nests).get(place, ())
    windows = (
        (buffer.dtype, (ix.const(iterations), *buffer.shape[depth:]))
        for buffer in nests.buffers
        if buffer.name in local_buffers
    )
    return min_bytes(block_bytes(windows, sum_terms(nests, place), iterations), nests.sizes)


def capacity_condition(
    nests: Nests,
    windows: Sequence[Alloc],
    sums: Sequence[tuple[str, Expr]],
    iterations: int,
    room: int,
) -> Expr | bool:
    """Return the condition under which a block fits in `room` bytes; True at all sizes, False at none.

    Raises PartitionError if the bytes depend on more than symbolic sizes.
    """
    shapes = ((nests.buffer(w.buffer).dtype, [extent for _, extent in w.axes]) for w in windows)
    byte_counts = block_bytes(shapes, sums, iterations)
    names = {size.name for size in nests.sizes}
    for size in byte_counts:
        if not variables(size) <= names:
            raise PartitionError(
                "split",
                f"cannot tell whether blocks of {iterations} iterations fit in {room} bytes",
                because=f"a block takes {format_expr(size)} bytes, which sizes alone do not tell",
                help=("blocks of a loop in which windows are of one size",),
            )
    if min_bytes(byte_counts, nests.sizes) > room:
        return False
    greatest = evaluate_at(byte_counts, {size.name: size.max for size in nests.sizes})
    pairs = zip(byte_counts, greatest, strict=True)
    conditions = [ix.compare("<=", size, room) for size, most in pairs if most > room]
    return conjunction(conditions) if conditions else True
