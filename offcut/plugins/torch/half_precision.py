"""Floats of 16 bits: what torch calculates of them in float32, and rounds once.

An operator of torch that is several of ours rounds to 16 bits at its end alone, unless its rule says otherwise: where what one of
ours has rounded goes into the arithmetic of another, all of them are calculated in float32 instead.
"""

from __future__ import annotations

from collections.abc import Iterable, Set

import numpy as np

from offcut.core.dtypes import HALVES, numpy_dtype
from offcut.graph.graph import Node
from offcut.graph.views import VIEWS

WIDER = ("float32", "float64")

UNROUNDED = frozenset(
    {
        *VIEWS,
        *("absolute", "negative", "relu", "max", "min", "maximum", "minimum", "where", "merged"),
        *("max_pool2d", "max_pool2d_with_places", "adaptive_max_pool2d", "sort", "topk", "take"),
        *("kth", "leading"),
        *("concat", "flip", "pad", "repeat", "transpose", "embedding", "take_along_axis"),
    }
)
"""Operators that round nothing, and of rounded numbers give the rounded result."""


def rounds_again(nodes: Iterable[Node], numbers: Set[str] = frozenset()) -> bool:
    """Whether one of some nodes calculates with what another has rounded to 16 bits, or with a number that these do not hold.

    numbers  constants of 16 bits that stand for others

    Operands are converted as torch converts them, before anything is calculated: that is not counted.
    """
    rounded, wider = set(numbers), set[str]()
    for node in nodes:
        again = not rounded.isdisjoint(node.operands)
        kind, names = node.results[0].dtype, [value.name for value in node.results]
        if node.op == "cast":
            moves = kind in WIDER or (kind in HALVES and wider.isdisjoint(node.operands))
        else:
            moves = node.op in UNROUNDED
        if not moves and (again or any(is_rounded(one, kind) for one in node.arguments)):
            return True
        if again or (kind in HALVES and not moves):
            rounded.update(names)
        if kind in WIDER:
            wider.update(names)
    return False


def accumulation_dtype(kind: str) -> str | None:
    """The element type of sums that are rounded later; None: that of the operands does."""
    return "float32" if kind in HALVES else None


def is_rounded(value: object, kind: str) -> bool:
    """Whether an element type of 16 bits holds no float that is this number."""
    if kind not in HALVES or isinstance(value, bool) or not isinstance(value, int | float):
        return False
    with np.errstate(over="ignore"):
        return float(numpy_dtype(kind).type(float(value))) != value
