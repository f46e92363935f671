"""Products of groups of rows, each with a matrix of its own."""

from __future__ import annotations

from offcut.describe.functions import index, minimum, reduce_axis, where
from offcut.describe.functions import sum as sum_over
from offcut.describe.tensor import Tensor, compute
from offcut.describe.value import Value, cast
from offcut.ops.given.naming import named
from offcut.ops.given.operands import (
    check_dtype,
    check_shape,
    check_tensor,
    element,
    of_operands,
    wider,
)


def grouped_matmul(x: Tensor, w: Tensor, ends: Tensor, *, name: str | None = None) -> Tensor:
    """``result[i, j] = sum over k of x[i, k] * w[g, k, j]``, where g is the group of row i; 0 behind the last group.

    x      (rows, k)
    w      (groups, k, n), of the type of `x`; at least one group, where there is a row
    ends   (groups,) of int32 or int64: behind the last row of each group, ascending

    Sums are accumulated in float32 for bfloat16 and float16, in int32 for int8 and uint8, and rounded once to the type of `x`.

    Raises DescribeError where ranks, extents or element types do not fit.
    """
    op = "grouped_matmul"
    check_tensor(op, "x", x, 2)
    check_tensor(op, "w", w, 3)
    check_tensor(op, "ends", ends, 1)
    check_dtype(op, "w", w, (x.dtype,))
    check_dtype(op, "ends", ends, ("int32", "int64"))
    rows, inner = x.shape
    groups, columns = w.shape[0], w.shape[2]
    check_shape(op, "w", w, (groups, inner, columns))
    check_shape(op, "ends", ends, (groups,))
    name, total = named(op, name, [x, w, ends]), wider(x.dtype)
    g, k = reduce_axis(groups, "g"), reduce_axis(inner, "k")

    def before(i: Value) -> Value:
        over = where(ends[g] <= cast(i, ends.dtype), cast(1, "int32"), 0)
        return sum_over(over, axis=g)

    own = compute((rows,), before, f"{name}_groups", ("i",))

    def product(i: Value, j: Value) -> Value:
        at = index(minimum(own[i], cast(groups - 1, "int32"))), k, j
        return sum_over(element(x, (i, k), total) * element(w, at, total), axis=k)

    sums = compute((rows, columns), product, f"{name}_sum", ("i", "j"))

    def kept(i: Value, j: Value) -> Value:
        value = where(own[i] < cast(groups, "int32"), sums[i, j], cast(0, total))
        return cast(value, x.dtype)

    return of_operands(compute((rows, columns), kept, name, ("i", "j")), x, w, ends)
