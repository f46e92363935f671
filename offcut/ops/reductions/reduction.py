"""Sums, means and extremes over axes of a tensor."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import reduce
from operator import mul
from typing import Any, TypeAlias

from offcut.core.dtypes import FLOATS
from offcut.describe import functions
from offcut.describe.functions import reduce_axis
from offcut.describe.tensor import Tensor, compute
from offcut.describe.value import Value, cast
from offcut.ops.checks import (
    axis_letters,
    axis_numbers,
    check_tensor,
    element,
    flag,
    result_name,
    wider,
)

Axes: TypeAlias = int | Sequence[int] | None


def sum(x: Tensor, axis: Axes = None, keepdims: bool = False, *, name: str | None = None) -> Tensor:
    """The sum of `x` over `axis`; 0 over no element.

    axis       one axis, several, or None for all; negative ones count from the last
    keepdims   whether a reduced axis stays, of extent 1

    bfloat16 and float16 are accumulated in float32 and rounded once; integers of 8 and 16 bits and bool give int32.

    Raises DescribeError where there is no such axis, or one is named twice.
    """
    sum_dtype = _sum_of(x.dtype) if _is_integer(x) else None
    return _reduce("sum", x, axis, keepdims, name, functions.sum, result=sum_dtype)


def mean(
    x: Tensor, axis: Axes = None, keepdims: bool = False, *, name: str | None = None
) -> Tensor:
    """The sum of `x` over `axis` divided by the number of elements; NaN over none.

    axis, keepdims   as in `sum`

    bfloat16 and float16 are calculated in float32 and rounded once; integers give float32.

    Raises DescribeError where there is no such axis, or one is named twice.
    """
    if not _is_integer(x):
        return _reduce("mean", x, axis, keepdims, name, functions.sum, count=True)
    return _reduce("mean", x, axis, keepdims, name, functions.sum, result="float32", count=True)


def max(x: Tensor, axis: Axes = None, keepdims: bool = False, *, name: str | None = None) -> Tensor:
    """The greatest of `x` over `axis`; the least value of the type over no element. Of bool: whether any holds.

    axis, keepdims   as in `sum`

    Raises DescribeError where there is no such axis, or one is named twice.
    """
    return _reduce("max", x, axis, keepdims, name, functions.max, total=_dtype(x))


def min(x: Tensor, axis: Axes = None, keepdims: bool = False, *, name: str | None = None) -> Tensor:
    """The least of `x` over `axis`; the greatest value of the type over no element. Of bool: whether all hold.

    axis, keepdims   as in `sum`

    Raises DescribeError where there is no such axis, or one is named twice.
    """
    return _reduce("min", x, axis, keepdims, name, functions.min, total=_dtype(x))


def count_of(extents: Sequence[Any], dtype: str) -> Value:
    """The product of `extents` as a value of the float type `dtype`."""
    known = math.prod(int(extent) for extent in extents if extent.is_Integer)
    parts = [cast(extent, dtype) for extent in extents if not extent.is_Integer]
    if known != 1 or not parts:
        parts.append(cast(float(known), dtype))
    return reduce(mul, parts)


def _is_integer(x: Any) -> bool:
    return isinstance(x, Tensor) and x.dtype not in FLOATS


def _sum_of(dtype: str) -> str:
    """The type that sums of `dtype` are accumulated in."""
    return "int32" if dtype == "bool" else wider(dtype)


def _dtype(x: Any) -> str | None:
    """The type that extremes of `x` are found in."""
    if not isinstance(x, Tensor):
        return None
    return "uint8" if x.dtype == "bool" else x.dtype


def _reduce(
    op: str,
    x: Tensor,
    axis: Axes,
    keepdims: bool,
    name: str | None,
    over: Callable[..., Value],
    *,
    total: str | None = None,
    result: str | None = None,
    count: bool = False,
) -> Tensor:
    check_tensor(op, "x", x)
    numbers, keepdims = axis_numbers(op, x, axis), flag(op, "keepdims", keepdims)
    total = _sum_of(x.dtype) if total is None else total
    result = x.dtype if result is None else result
    reduced = {n: reduce_axis(x.shape[n], f"r{n}") for n in numbers}
    kept_axes = [n for n in range(len(x.shape)) if keepdims or n not in reduced]
    shape = tuple(1 if n in reduced else x.shape[n] for n in kept_axes)
    options = (("axis", None if axis is None else numbers, None), ("kept", keepdims, False))
    name = result_name(op, name, [x], *options)
    letters = axis_letters(len(shape))
    number = count_of([x.shape[n] for n in numbers], "float64" if total == "float64" else "float32")

    def term(*at: Value) -> Value:
        own = dict(zip(kept_axes, at, strict=True)) | reduced
        value = element(x, [own[n] for n in range(len(x.shape))], total)
        return over(value, axis=tuple(reduced.values())) if reduced else value

    if result == total and not count:
        return compute(shape, term, name, letters)
    sums = compute(shape, term, f"{name}_sum", letters)

    def end(*at: Value) -> Value:
        if not count:
            return cast(sums[at], result)
        return cast(cast(sums[at], number.dtype) / number, result)

    return compute(shape, end, name, letters)
