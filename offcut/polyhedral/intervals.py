"""An index expression and the ranges of its names in, its least and its greatest value out."""

from __future__ import annotations

from collections.abc import Mapping

from offcut.core.dtypes import ITEM_BYTES
from offcut.core.expr import Binary, Cast, Const, Expr, Var, children, dtype_of
from offcut.core.intervals import combined
from offcut.core.text.printer import format_expr
from offcut.errors import PartitionError

INDEX_LIMIT = 2**62  # of every intermediate value: the generated code computes in int64


def interval(expr: Expr, ranges: Mapping[str, tuple[int, int]], at: str) -> tuple[int, int]:
    """Bounds of an index expression over the ranges of its names; refused where int64 may not hold it."""
    match expr:
        case Const(value, _):
            low = high = int(value)
        case Var(name):
            low, high = ranges[name]
        case Cast(a, _):
            high = INDEX_LIMIT // 2 if ITEM_BYTES.get(dtype_of(a), 8) == 8 else 2**32
            low = -high
        case Binary(op, a, b):
            low, high = combined(op, interval(a, ranges, at), interval(b, ranges, at))
        case _:
            below = [interval(child, ranges, at) for child in children(expr)]
            high = max((max(abs(low), abs(high)) for low, high in below), default=0)
            low = -high
    if max(abs(low), abs(high)) > INDEX_LIMIT:
        raise PartitionError(
            "represent",
            f"cannot compute {format_expr(expr)} in int64",
            at=at,
            because=f"it reaches {high if high > INDEX_LIMIT else low}, past 2**62",
            help=("give the sizes a smaller max", "use smaller factors"),
        )
    return low, high
