"""Compute the interval of an index expression from the ranges of its names, within int64."""

from __future__ import annotations

from collections.abc import Mapping

from offcut.core.dtypes import ITEM_BYTES
from offcut.core.expr import Cast, Expr, Select, Var, children, dtype_of
from offcut.core.intervals import Interval, interval
from offcut.core.text.printer import format_expr
from offcut.errors import PartitionError

INDEX_LIMIT = 2**62  # of every intermediate value: the generated code computes in int64


def fitting(expr: Expr, ranges: Mapping[str, Interval], at: str) -> Interval:
    """Return the bounds of an index expression over the ranges of its names; reject one that may exceed int64."""

    def known(node: Expr) -> Interval:
        match node:
            case Var(name):
                return ranges[name]
            case Cast(a, _):
                high = INDEX_LIMIT // 2 if ITEM_BYTES.get(dtype_of(a), 8) == 8 else 2**32
            case _:
                below = [interval(child, known, within) for child in children(node)]
                high = max((abs(end) for ends in below for end in ends), default=0)
        return -high, high

    def within(node: Expr, bounds: Interval) -> Interval:
        if isinstance(node, Select):
            interval(node.condition, known, within)
        low, high = bounds
        if max(abs(low), abs(high)) > INDEX_LIMIT:
            raise PartitionError(
                "represent",
                f"cannot compute {format_expr(node)} in int64",
                at=at,
                because=f"it reaches {high if high > INDEX_LIMIT else low}, past 2**62",
                help=("give the sizes a smaller max", "use smaller factors"),
            )
        return bounds

    return interval(expr, known, within)
