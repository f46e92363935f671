"""Extents that must be 1, or must not be: a rank does not depend on a size."""

from __future__ import annotations

from typing import TYPE_CHECKING

from offcut.core.expr import Binary, Const, Expr, variables
from offcut.graph import extents
from offcut.plugins.onnx.importer.nonnegative_extents import (
    first,
    in_file,
    larger,
    sizes_said,
    value_at,
    within,
    witness,
)
from offcut.plugins.onnx.importer.operands import Element, UnsupportedNode
from offcut.plugins.onnx.importer.size_facts import INT_MAX, FactsRequired

if TYPE_CHECKING:
    from offcut.plugins.onnx.importer.context import Context


def require_one(g: Context, value: Element, axis: int) -> None:
    """See to it that an extent is 1 at every size that is allowed; where one size that nobody bounded says it, that is bounded.

    Raises Wanted for that size; Refused, with the smallest sizes at which the extent is another, for others.
    """
    if value == 1 or (isinstance(value, Expr) and g.bounds(value) == (1, 1)):
        return
    if not isinstance(value, Expr):
        raise UnsupportedNode(f"axis {axis} has the extent {value}, which is not 1")
    help = "from_onnx(…, sizes={…}): bounds in which it is 1"
    if len(names := variables(value)) == 1:
        (name,) = names
        ends = range_where(g, value, 1, name)
        if ends is not None and name in g.free:
            if ends[0] == ends[1]:
                raise FactsRequired(said={name: g.origins[name][1] * ends[0]})
            raise FactsRequired(lows={name: ends[0]}, highs={name: ends[1]})
        help = within(g, name, *ends) if ends is not None else ""
    sizes = witness(g, value, lambda one: one != 1)
    at = "" if sizes is None else f" at {sizes_said(g, sizes)}"
    raise UnsupportedNode(
        f"axis {axis} has the extent {in_file(g, value)}, which is not 1{at}", help
    )


def range_where(g: Context, value: Expr, number: int, name: str) -> tuple[int, int] | None:
    """Return the values of a size, the least and the greatest, between which an extent is seen to be a number; None where there are none."""
    size = g.builder.sizes[name]

    def reaches(least: int, low: int) -> int:
        """Return the first value of the size from `low` on at which the extent is that large, or the one beyond all."""
        return first(low, min(size.max, INT_MAX) + 1, lambda n: value_at(value, {name: n}) >= least)

    low = reaches(number, size.min)
    high = reaches(number + 1, low) - 1
    if low > high:
        return None
    return (low, high) if g.bounds(value, {name: (low, high)}) == (number, number) else None


def is_one(g: Context, value: Element, axis: int) -> bool:
    """Whether an extent is 1.

    Raises Refused where it is at some sizes, and not at others.
    """
    if not isinstance(value, Expr):
        return value == 1
    low, high = g.bounds(value)
    if low == high == 1:
        return True
    if not low <= 1 <= high or extents.divisor(value, tuple(g.builder.sizes.values())) > 1:
        return False
    sizes = witness(g, value, lambda one: one == 1)
    at = "" if sizes is None else f": it is at {sizes_said(g, sizes)}"
    because = f"how many axes it gives depends on whether the extent {in_file(g, value)} of axis {axis} is 1{at}"
    above = larger(g, Binary("-", value, Const(2, "index")))
    raise UnsupportedNode(because, ", or ".join(filter(None, (above, "Squeeze with axes"))))
