"""Values of sizes, and conditions of calls, composed of operators of ours."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from offcut.core.expr import Binary, Const, Expr
from offcut.core.program import Size
from offcut.graph.graph import Ref
from offcut.graph.sizes import extent_values, extents
from offcut.graph.sizes.extent_values import Extent

Make: TypeAlias = Callable[..., Ref]
"""``make(op, *arguments, **options)``: the result of an operator."""


def of_size(make: Make, size: Expr, dtype: str, sizes: Sequence[Size]) -> Ref:
    """Return an index expression as an array without axes; what is above 0 less what is below, where bounds of sizes do not tell."""
    low, high = extents.span(size, sizes)
    if low >= 0:
        return extent_tensor(make, size, dtype)
    below = extents.normal(Binary("-", Const(0, "index"), size))
    if high <= 0:
        return make("negative", extent_tensor(make, below, dtype))
    above, under = (extents.normal(Binary("max", one, Const(0, "index"))) for one in (size, below))
    return make("subtract", extent_tensor(make, above, dtype), extent_tensor(make, under, dtype))


def extent_tensor(make: Make, extent: Extent, dtype: str) -> Ref:
    """Return an extent as an array without axes: the last of 0, 1, …, extent."""
    every = make("iota", extent_values.extent(extent, 1), dtype)
    last = make("slice", every, 0, extent_values.plain(extent), extent_values.extent(extent, 1))
    return make("reshape", last, ())


def assert_condition(make: Make, x: Ref, dtype: str, condition: Ref) -> Ref:
    """Return `x`, where a condition holds of each element: a call in which it does not is refused, as one whose index leaves an array.

    dtype  of `x`; numbers
    """
    beyond = make("cast", make("logical_not", condition), "int32")
    alone = make("iota", 1, dtype)  # an array of one element, which 0 is inside of
    return make("where", condition, x, make("take", alone, beyond, axis=0, from_end=False))


def assert_shape(make: Make, x: Any, own: Sequence[Extent], shape: Sequence[Extent]) -> Any:
    """Return `x` with extents that are the same in each call that is taken, though they are not seen to be: a call in which they are not is refused.

    ``x[2*(e - w) : 2*e - w]`` is all of e elements where w is e, and else begins before the first or ends after the last.

    own  the shape of `x`
    """
    for axis, (extent, target) in enumerate(zip(own, shape, strict=True)):
        apart = extent_values.extent(extent, extent_values.arithmetic("*", -1, target))
        if apart != 0:
            start = extent_values.arithmetic("*", 2, apart)
            x = make("slice", x, axis, start, extent_values.extent(start, target))
    return x
