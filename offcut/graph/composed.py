"""Operators that hosts have as one, composed of ours: what depends on sizes there, and is no argument of an operator here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from offcut.core.expr import Binary, Const, Expr
from offcut.core.program import Size
from offcut.graph.graph import Ref
from offcut.graph.sizes import extents, numbers
from offcut.graph.sizes.numbers import Extent

Make: TypeAlias = Callable[..., Ref]
"""``make(op, *arguments, **options)``: the result of an operator."""

Several: TypeAlias = Callable[..., Any]
"""The same of an operator of several results."""

SHORT = 64
"""Elements along an axis, of which each is compared with all; in longer ones, runs of them are merged."""


def of_size(make: Make, size: Expr, dtype: str, sizes: Sequence[Size]) -> Ref:
    """Return an index expression as an array without axes; what is above 0 less what is below, where bounds of sizes do not tell."""
    low, high = extents.span(size, sizes)
    if low >= 0:
        return counted(make, size, dtype)
    below = extents.normal(Binary("-", Const(0, "index"), size))
    if high <= 0:
        return make("negative", counted(make, below, dtype))
    above, under = (extents.normal(Binary("max", one, Const(0, "index"))) for one in (size, below))
    return make("subtract", counted(make, above, dtype), counted(make, under, dtype))


def counted(make: Make, extent: Extent, dtype: str) -> Ref:
    """Return an extent as an array without axes: the last of 0, 1, …, extent."""
    every = make("iota", numbers.extent(extent, 1), dtype)
    last = make("slice", every, 0, numbers.plain(extent), numbers.extent(extent, 1))
    return make("reshape", last, ())


def required(make: Make, x: Ref, dtype: str, condition: Ref) -> Ref:
    """Return `x`, where a condition holds of each element: a call in which it does not is refused, as one whose index leaves an array.

    dtype  of `x`; numbers
    """
    beyond = make("cast", make("logical_not", condition), "int32")
    alone = make("iota", 1, dtype)  # an array of one element, which 0 is inside of
    return make("where", condition, x, make("take", alone, beyond, axis=0, from_end=False))


def restated(make: Make, x: Any, own: Sequence[Extent], shape: Sequence[Extent]) -> Any:
    """Return `x` with extents that are the same in each call that is taken, though they are not seen to be: a call in which they are not is refused.

    ``x[2*(e - w) : 2*e - w]`` is all of e elements where w is e, and else begins before the first or ends after the last.

    own  the shape of `x`
    """
    for axis, (extent, wanted) in enumerate(zip(own, shape, strict=True)):
        apart = numbers.extent(extent, numbers.arithmetic("*", -1, wanted))
        if apart != 0:
            start = numbers.arithmetic("*", 2, apart)
            x = make("slice", x, axis, start, numbers.extent(start, wanted))
    return x


def tiled(make: Make, x: Ref, shape: Sequence[Extent], counts: Sequence[Extent]) -> Ref:
    """All of `x`, as often as sizes say along each axis: new axes that are merged with the next.

    shape   of `x`
    counts  one for each axis
    """
    merged = [numbers.product((count, own)) for own, count in zip(shape, counts, strict=True)]
    if all(own == 1 or count == 1 for own, count in zip(shape, counts, strict=True)):
        return make("broadcast_to", x, tuple(merged))
    apart = make("reshape", x, tuple(one for own in shape for one in (1, own)))
    pairs = zip(counts, shape, strict=True)
    spread = make("broadcast_to", apart, tuple(one for pair in pairs for one in pair))
    return make("reshape", spread, tuple(merged))


def surrounded(
    make: Make, x: Any, extent: Extent, axis: int, before: Extent, after: Extent, mode: str
) -> Ref:
    """Return `x` with elements put before and after it along an axis: "reflect", its mirror image; "edge", the nearest.

    extent         of the axis
    before, after  how many; below 0, as many are left out

    Elements are taken by their places, so that a call is refused in which there are too few to mirror.
    """
    places = make("iota", numbers.extent(extent, before, after), "int64")
    if before != 0:
        start = before if isinstance(before, int) else counted(make, before, "int64")
        places = make("subtract", places, start)
    last = make("subtract", counted(make, extent, "int64"), 1)
    if mode == "edge":
        places = make("minimum", make("maximum", places, 0), last)
    else:
        over = make("subtract", last, make("absolute", places))
        places = make("subtract", last, make("absolute", over))
    return make("take", x, places, axis=axis, from_end=False)


def least_around(before: Extent, after: Extent) -> int:
    """Return how many elements an axis has at least that others are put around: one, and those that are known to be left out."""
    return 1 + sum(-one for one in (before, after) if isinstance(one, int) and one < 0)


def accumulated(
    make: Several,
    x: Any,
    shape: Sequence[Extent],
    axis: int,
    reduction: str,
    places: bool = False,
) -> Any:
    """What is joined up to each element along an axis, and the places of extremes where they are asked for: `offcut.ops.accumulated`.

    shape   of `x`
    """
    parts = (shape[:axis], [shape[axis]], shape[axis + 1 :])
    lines = make("reshape", x, tuple(numbers.product(part) for part in parts if part))
    sums = make("accumulated", lines, axis=min(axis, 1), reduction=reduction, places=places)
    own = tuple(map(numbers.plain, shape))
    if places:
        return tuple(make("reshape", one, own) for one in sums)
    return make("reshape", sums, own)


def in_order(make: Several, x: Any, extent: Extent, axis: int, descending: bool) -> Any:
    """Return the elements along an axis in ascending order, and their places.

    extent  of the axis
    """
    op = "sort" if _is_short(extent) else "merged"
    return make(op, x, axis=axis, descending=descending)


def first_in_order(
    make: Several,
    cut: Callable[..., Any],
    x: Any,
    extent: Extent,
    k: Extent,
    axis: int,
    largest: bool,
) -> tuple[Any, ...]:
    """Return the `k` greatest elements along an axis in descending order, or the least in ascending order, and their places.

    cut     ``cut(value, axis, start, stop)``: a part of an axis
    extent  of the axis, which is no less than `k`
    """
    few = isinstance(k, int) and k <= SHORT
    if few and (_is_short(extent) or k == 0):
        return tuple(make("topk", x, k, axis=axis, largest=largest))
    if few:
        last = make("kth", x, k, axis=axis, largest=largest)
        return tuple(make("leading", x, *last, k, axis=axis, largest=largest))
    every = in_order(make, x, extent, axis, largest)
    return tuple(cut(one, axis, 0, k) for one in every)


MOST_ROWS = 4
"""Of a determinant: 24 products of 4 elements, and five times as many with each row more."""


def determinant(make: Make, cut: Callable[..., Ref], x: Ref, shape: Sequence[Extent]) -> Ref:
    """Of matrices along the last two axes, along the first row.

    cut    ``cut(value, axis, start, stop)``: a part of an axis
    shape  of `x`, whose last two extents are one number, at most `MOST_ROWS`
    """
    rank, order = len(shape), shape[-1]
    assert isinstance(order, int)
    outer = tuple(map(numbers.plain, shape[:-2]))
    rows = [cut(x, rank - 2, n, n + 1) for n in range(order)]
    elements = [
        [make("reshape", cut(row, rank - 1, n, n + 1), outer) for n in range(order)] for row in rows
    ]

    def below(row: int, columns: tuple[int, ...]) -> Ref:
        """Of the rows from `row` on, in some columns."""
        if len(columns) == 1:
            return elements[row][columns[0]]
        total: Ref | None = None
        for n, column in enumerate(columns):
            rest = below(row + 1, columns[:n] + columns[n + 1 :])
            term = make("multiply", elements[row][column], rest)
            total = term if total is None else make("subtract" if n % 2 else "add", total, term)
        assert total is not None
        return total

    return below(0, tuple(range(order)))


def _is_short(extent: Extent) -> bool:
    number = numbers.plain(extent)
    return isinstance(number, int) and number <= SHORT
