"""Padding and repetition by any amounts, those that depend on sizes too."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from offcut.graph.call_conditions import extent_tensor
from offcut.graph.sizes.numbers import Extent, extent, product
from offcut.plugins.operators.translator import Translator


def pad(
    t: Translator, x: Any, before: Sequence[Extent], after: Sequence[Extent], mode: str, value: Any
) -> Any:
    """Return `x` with elements around it.

    before, after  how many along each axis; below 0, as many are left out
    mode           constant, edge or reflect; but for the first the axis has an element to repeat, or enough to mirror
    value          of the elements, where they are constant
    """
    amounts = tuple(zip(before, after, strict=True))
    if all(one == (0, 0) for one in amounts):
        return x
    if mode == "constant":
        return t.node("pad", x, tuple(before), tuple(after), value=value)
    numbers = [n for n in (*before, *after) if isinstance(n, int) and n >= 0]
    if len(numbers) == 2 * len(amounts):
        for whole, *both in zip(t.shape(x), numbers, numbers[len(amounts) :], strict=False):
            t.require_at_least(whole, (max(both) > 0) + max(both) * (mode == "reflect"))
        return t.node("pad", x, tuple(before), tuple(after), mode=mode)
    for axis, (low, high) in enumerate(amounts):
        if (low, high) != (0, 0):
            gone = (-one for one in (low, high) if isinstance(one, int) and one < 0)
            t.require_at_least(t.shape(x)[axis], 1 + sum(gone))
            x = _pad_axis(t, x, axis, low, high, mode)
    return x


def wrap(t: Translator, x: Any, before: Sequence[int], after: Sequence[int]) -> Any:
    """Return `x` with the other end of each axis put before and after it, as many elements as these say, none below 0."""
    for axis, (low, high) in enumerate(zip(before, after, strict=True)):
        whole = t.shape(x)[axis]
        parts = [t.slice(x, axis, extent(whole, -low), whole)] if low else []
        parts += [x, *([t.slice(x, axis, 0, high)] if high else [])]
        x = t.node("concat", tuple(parts), axis=axis) if len(parts) > 1 else x
    return x


def _pad_axis(t: Translator, x: Any, axis: int, before: Extent, after: Extent, mode: str) -> Any:
    """Return `x` with elements put before and after it along an axis.

    Elements are taken by their places, so that a call is refused in which there are too few to mirror.
    """
    whole = t.shape(x)[axis]
    places = t.node("iota", extent(whole, before, after), "int64")
    if before != 0:
        start = before if isinstance(before, int) else extent_tensor(t.node, before, "int64")
        places = t.node("subtract", places, start)
    last = t.node("subtract", extent_tensor(t.node, whole, "int64"), 1)
    if mode == "edge":
        places = t.node("minimum", t.node("maximum", places, 0), last)
    else:
        over = t.node("subtract", last, t.node("absolute", places))
        places = t.node("subtract", last, t.node("absolute", over))
    return t.node("take", x, places, axis=axis, from_end=False)


def tile(t: Translator, x: Any, counts: Sequence[Extent]) -> Any:
    """Return all of `x`, as often as sizes say along each axis: new axes that are merged with the next.

    counts  one for each axis
    """
    shape = t.shape(x)
    pairs = tuple(zip(counts, shape, strict=True))
    merged = tuple(map(product, pairs))
    if all(1 in pair for pair in pairs):
        return t.node("broadcast_to", x, merged)
    apart = t.reshape(x, tuple(one for own in shape for one in (1, own)))
    spread = t.node("broadcast_to", apart, tuple(one for pair in pairs for one in pair))
    return t.reshape(spread, merged)
