"""Padding of any amounts, those that depend on sizes too."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from offcut.graph.composed import least_around, surrounded
from offcut.graph.sizes.numbers import Extent, extent
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
            t.at_least(whole, (max(both) > 0) + max(both) * (mode == "reflect"))
        return t.node("pad", x, tuple(before), tuple(after), mode=mode)
    for axis, (low, high) in enumerate(amounts):
        if (low, high) != (0, 0):
            t.at_least(t.shape(x)[axis], least_around(low, high))
            x = surrounded(t.node, x, t.shape(x)[axis], axis, low, high, mode)
    return x


def wrap(t: Translator, x: Any, before: Sequence[int], after: Sequence[int]) -> Any:
    """Return `x` with the other end of each axis put before and after it, as many elements as these say, none below 0."""
    for axis, (low, high) in enumerate(zip(before, after, strict=True)):
        whole = t.shape(x)[axis]
        parts = [t.slice(x, axis, extent(whole, -low), whole)] if low else []
        parts += [x, *([t.slice(x, axis, 0, high)] if high else [])]
        x = t.node("concat", tuple(parts), axis=axis) if len(parts) > 1 else x
    return x
