"""Tensors of numbers that no array holds: places, and which one of several an integer names."""

from __future__ import annotations

from typing import Any

from offcut.core.dtypes import INDEX_DTYPES, index_dtype
from offcut.describe.functions import where
from offcut.describe.tensor import Tensor, compute
from offcut.describe.value import Value, cast
from offcut.ops.given.naming import named
from offcut.ops.given.operands import axis_letters, check_dtype, check_result, check_tensor


def iota(extent: Any, dtype: str = "int64", *, name: str | None = None) -> Tensor:
    """``0, 1, …, extent - 1``, of shape (extent,).

    extent   an int or an expression in sizes
    dtype    of the result

    Raises DescribeError where `extent` is no size or `dtype` no element type.
    """
    result_dtype = check_result("iota", dtype, "int64")
    name = named("iota", name, [], ("", extent, None), ("", result_dtype, "int64"))
    return compute((extent,), lambda i: cast(i, result_dtype), name)


def one_hot(
    indices: Tensor, depth: Any, dtype: str = "float32", *, name: str | None = None
) -> Tensor:
    """``result[…, j] = 1 where indices[…] is j, else 0``, of shape (…, depth).

    indices   (…) of integers; one that is below 0 or not below `depth` gives zeros
    depth     an int or an expression in sizes
    dtype     of the result

    Raises DescribeError where element types do not fit or `depth` is no size.
    """
    check_tensor("one_hot", "indices", indices)
    check_dtype("one_hot", "indices", indices, INDEX_DTYPES)
    result_dtype = check_result("one_hot", dtype, "float32")
    name = named("one_hot", name, [indices], ("", depth, None), ("", result_dtype, "float32"))
    compared = index_dtype(indices.dtype)

    def chosen(*at: Value) -> Value:
        here = cast(indices[at[:-1]], compared) == cast(at[-1], compared)
        return where(here, cast(1, result_dtype), cast(0, result_dtype))

    return compute((*indices.shape, depth), chosen, name, axis_letters(len(indices.shape) + 1))
