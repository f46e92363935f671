"""Products of matrices, alone or in batches."""

from __future__ import annotations

from typing import Any

from offcut.describe.functions import reduce_axis
from offcut.describe.functions import sum as sum_over
from offcut.describe.tensor import Tensor, compute
from offcut.describe.value import Value
from offcut.errors import DescribeError
from offcut.ops.given.arguments import flag
from offcut.ops.given.naming import named
from offcut.ops.given.operands import (
    axis_letters,
    beside,
    check_extent,
    check_result,
    check_tensor,
    element,
    is_one,
    same_extent,
    wider,
)
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
    name = named("matmul", name, [a, b], *options)

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
    joined = []
    for x, y in zip(*padded, strict=True):
        if not (is_one(x) or is_one(y) or same_extent(x, y)):
            raise DescribeError(
                op,
                f"cannot pair {a.name} with {b.name}",
                at=f"{a!r} and {b!r}",
                because=f"leading axes of {x} and {y} are neither equal nor 1",
                help=("one size for both: a size is known by its name and facts",),
            )
        joined.append(y if is_one(x) else x)
    return tuple(joined)


def leading_index(shape: tuple[Any, ...], at: list[Value] | tuple[Value, ...]) -> tuple[Any, ...]:
    """Where an operand of leading axes `shape` is read at the result's leading axes `at`."""
    own = at[len(at) - len(shape) :]
    return tuple(0 if is_one(extent) else axis for extent, axis in zip(shape, own, strict=True))
