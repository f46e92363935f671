"""Products of matrices, alone or in batches."""

from __future__ import annotations

from typing import Any

from offcut.describe.functions import index, minimum, reduce_axis, where
from offcut.describe.functions import sum as sum_over
from offcut.describe.tensor import Tensor, compute
from offcut.describe.value import Value, cast
from offcut.ops.checks import (
    SAME_SIZE,
    axis_letters,
    beside,
    check_extent,
    check_result,
    check_shape,
    check_tensor,
    element,
    flag,
    is_one,
    of_operands,
    pair_error,
    same_extent,
    wider,
)
from offcut.ops.naming import result_name
from offcut.ops.products.epilogue import epilogue


def matmul(
    a: Tensor,
    b: Tensor,
    transpose_a: bool = False,
    transpose_b: bool = False,
    dtype: str | None = None,
    *,
    bias: Tensor | None = None,
    activation: str | None = None,
    residual: Tensor | None = None,
    name: str | None = None,
) -> Tensor:
    """``activation(sum over k of a[…, i, k] * b[…, k, j] + bias[j]) + residual[…, i, j]``.

    a            (…, m, k), or (…, k, m) with `transpose_a`
    b            (…, k, n), or (…, n, k) with `transpose_b`; of the type of `a`, or int8 where `a` is uint8 or float32
    dtype        of the result; None: that of `a`, int32 for int8 and uint8
    bias         (n,)
    activation   as in `dense`
    residual     of the result's shape, added after the activation

    Leading axes are paired from the last on, as numpy does; one that is missing or the literal 1 is
    shared by all of the other's. Sums are accumulated in float32 for bfloat16 and float16, in int32
    for int8 and uint8, else in the type of `a`.

    Raises DescribeError where ranks, extents or element types do not fit, or there is no such
    activation.
    """
    transpose_a = flag("matmul", "transpose_a", transpose_a)
    transpose_b = flag("matmul", "transpose_b", transpose_b)
    check_tensor("matmul", "a", a, least=2)
    check_tensor("matmul", "b", b, least=2, dtypes=beside(a.dtype))
    inner_a, inner_b = (-2 if transpose_a else -1), (-1 if transpose_b else -2)
    check_extent("matmul", (a, len(a.shape) + inner_a), (b, len(b.shape) + inner_b))
    total = wider(a.dtype)
    result = check_result("matmul", dtype, total if total == "int32" else a.dtype)
    rows, columns = a.shape[-1 if transpose_a else -2], b.shape[-2 if transpose_b else -1]
    shape = (*broadcast("matmul", a, b, a.shape[:-2], b.shape[:-2]), rows, columns)
    k, letters = reduce_axis(a.shape[inner_a], "k"), axis_letters(len(shape))
    end = epilogue("matmul", shape, total, result, bias, -1, activation, residual)
    options = (
        ("ta", transpose_a, False),
        ("tb", transpose_b, False),
        *end.options,
        ("", dtype, None),
    )
    name = result_name("matmul", name, [a, b], *options)

    def term(*at: Value) -> Value:
        *leading, i, j = at
        left = (*leading_index(a.shape[:-2], leading), *((k, i) if transpose_a else (i, k)))
        right = (*leading_index(b.shape[:-2], leading), *((j, k) if transpose_b else (k, j)))
        return sum_over(element(a, left) * element(b, right, total), axis=k)

    return end.after(compute(shape, term, end.name_of_total(name), letters), name)


def broadcast(
    op: str, a: Tensor, b: Tensor, first: tuple[Any, ...], second: tuple[Any, ...]
) -> tuple[Any, ...]:
    """The extents that two lists of leading axes have together, paired from the last on.

    Raises DescribeError where two differ and neither is the literal 1.
    """
    rank = max(len(first), len(second))
    padded = [(1,) * (rank - len(shape)) + shape for shape in (first, second)]
    extents = []
    for x, y in zip(*padded, strict=True):
        if not (is_one(x) or is_one(y) or same_extent(x, y)):
            because = f"leading axes of {x} and {y} are neither equal nor 1"
            raise pair_error(op, a, b, because, SAME_SIZE, equal=[(x, y)])
        extents.append(y if is_one(x) else x)
    return tuple(extents)


def leading_index(shape: tuple[Any, ...], at: list[Value] | tuple[Value, ...]) -> tuple[Any, ...]:
    """Where an operand of leading axes `shape` is read at the result's leading axes `at`."""
    own = at[len(at) - len(shape) :]
    return tuple(0 if is_one(extent) else axis for extent, axis in zip(shape, own, strict=True))


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
    check_tensor(op, "w", w, 3, dtypes=(x.dtype,))
    check_tensor(op, "ends", ends, 1, dtypes=("int32", "int64"))
    rows, inner = x.shape
    groups, columns = w.shape[0], w.shape[2]
    check_shape(op, "w", w, (groups, inner, columns))
    check_shape(op, "ends", ends, (groups,))
    name, total = result_name(op, name, [x, w, ends]), wider(x.dtype)
    g, k = reduce_axis(groups, "g"), reduce_axis(inner, "k")

    def before(i: Value) -> Value:
        over = where(ends[g] <= cast(i, ends.dtype), cast(1, "int32"), 0)
        return sum_over(over, axis=g)

    own = compute((rows,), before, f"{name}_groups", ("i",))

    def product(i: Value, j: Value) -> Value:
        at = index(minimum(own[i], cast(groups - 1, "int32"))), k, j
        return sum_over(element(x, (i, k), total) * element(w, at, total), axis=k)

    sums = compute((rows, columns), product, f"{name}_sum", ("i", "j"))

    def element_or_zero(i: Value, j: Value) -> Value:
        value = where(own[i] < cast(groups, "int32"), sums[i, j], cast(0, total))
        return cast(value, x.dtype)

    return of_operands(compute((rows, columns), element_or_zero, name, ("i", "j")), x, w, ends)
