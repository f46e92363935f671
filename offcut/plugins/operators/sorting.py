"""What depends on the order of elements along an axis: running sums and extremes, all in order, the first few."""

from __future__ import annotations

from typing import Any

from offcut.graph.sizes.numbers import Extent, plain, product
from offcut.ops.sorting.ranking import FEW
from offcut.plugins.operators.translator import Translator

MAX_COMPARED_ELEMENTS = 64
"""Elements along an axis, of which each is compared with all; in longer ones, runs of them are merged."""


def accumulate(t: Translator, x: Any, axis: int, reduction: str, places: bool = False) -> Any:
    """Return what is joined up to each element along an axis, and the places of extremes where they are asked for: `offcut.ops.accumulated`."""
    own = tuple(map(plain, t.shape(x)))
    parts = (own[:axis], own[axis : axis + 1], own[axis + 1 :])
    lines = t.reshape(x, tuple(product(part) for part in parts if part))
    sums = t.node("accumulated", lines, axis=min(axis, 1), reduction=reduction, places=places)
    return tuple(t.reshape(one, own) for one in sums) if places else t.reshape(sums, own)


def sort(t: Translator, x: Any, axis: int, descending: bool) -> Any:
    """Return the elements along an axis in ascending order, and their places."""
    return t.node(
        "sort" if _is_short(t, x, axis) else "merged", x, axis=axis, descending=descending
    )


def top_elements(t: Translator, x: Any, k: Extent, axis: int, largest: bool) -> tuple[Any, ...]:
    """Return the `k` greatest elements along an axis in descending order, or the least in ascending order, and their places.

    k  no more than the extent of the axis; up to `FEW` of the greatest are found one after the other, however long the axis is
    """
    few = isinstance(k, int) and k <= MAX_COMPARED_ELEMENTS
    one_by_one = largest and isinstance(k, int) and k <= FEW
    if few and (_is_short(t, x, axis) or one_by_one or k == 0):
        return tuple(t.node("topk", x, k, axis=axis, largest=largest))
    if few:
        last = t.node("kth", x, k, axis=axis, largest=largest)
        return tuple(t.node("leading", x, *last, k, axis=axis, largest=largest))
    return tuple(t.slice(one, axis, 0, k) for one in sort(t, x, axis, largest))


def _is_short(t: Translator, x: Any, axis: int) -> bool:
    extent = plain(t.shape(x)[axis])
    return isinstance(extent, int) and extent <= MAX_COMPARED_ELEMENTS
