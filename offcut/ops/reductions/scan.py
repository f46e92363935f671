"""Sums, products and extremes of all elements up to each.

A sum for each element by itself is a triangle of additions, and one after the other each waits for the last. An axis is
rather cut into blocks of 64, in which sums of 1, 2, 4, … elements are doubled: step t adds the sum that ends t elements
before. The sums of the blocks are added up to each block by the same in turn, a few rounds for any extent. That is six
additions an element, side by side. What holds of additions holds of products and extremes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from typing import Any

from offcut.core.dtypes import NUMBERS, reduction_start
from offcut.describe.functions import maximum, minimum, where
from offcut.describe.tensor import Tensor, compute
from offcut.describe.value import Value, cast
from offcut.ops.checks import axis_letters, axis_number, check_tensor, result_name, wider

BLOCK = 64  # elements, a power of 2


def cumsum(x: Tensor, axis: int, *, name: str | None = None) -> Tensor:
    """``result[…, i, …] = sum over k <= i of x[…, k, …]`` along `axis`.

    x      of any element type, with at least one axis
    axis   negative ones count from the last

    bfloat16 and float16 are accumulated in float32 and rounded once; integers of 8 and 16 bits and bool give int32. The
    order of the additions depends on i alone.

    Raises DescribeError where there is no such axis.
    """
    return _wide("cumsum", x, axis, _Join(lambda a, b: a + b, 0), name)


def cumprod(x: Tensor, axis: int, *, name: str | None = None) -> Tensor:
    """``result[…, i, …] = product over k <= i of x[…, k, …]`` along `axis`.

    x, axis   as in `cumsum`, and so are element types and the order

    Raises DescribeError where there is no such axis.
    """
    return _wide("cumprod", x, axis, _Join(lambda a, b: a * b, 1), name)


def cummax(x: Tensor, axis: int, *, name: str | None = None) -> Tensor:
    """``result[…, i, …] = max over k <= i of x[…, k, …]`` along `axis`; NaN behind a NaN.

    x      of numbers, with at least one axis
    axis   negative ones count from the last

    Raises DescribeError where there is no such axis.
    """
    return _extremes("cummax", x, axis, "max", name)


def cummin(x: Tensor, axis: int, *, name: str | None = None) -> Tensor:
    """``result[…, i, …] = min over k <= i of x[…, k, …]`` along `axis`; NaN behind a NaN.

    x, axis   as in `cummax`

    Raises DescribeError where there is no such axis.
    """
    return _extremes("cummin", x, axis, "min", name)


@dataclass(frozen=True, slots=True)
class _Join:
    """An associative operation of two elements.

    nothing   what changes no element
    """

    of: Callable[[Value, Value], Value]
    nothing: int | float


def _wide(op: str, x: Tensor, axis: int, join: _Join, name: str | None) -> Tensor:
    """Accumulated in a type that is wide enough, and rounded once."""
    check_tensor(op, "x", x, least=1)
    position = axis_number(op, x, axis)
    total = "int32" if x.dtype == "bool" else wider(x.dtype)
    name, letters = result_name(op, name, [x], ("axis", position, None)), axis_letters(len(x.shape))
    wide = x
    if x.dtype != total:
        wide = compute(x.shape, lambda *at: cast(x[at], total), f"{name}_wide", letters)
    result = x.dtype if total == "float32" else total
    last = name if result == total else f"{name}_sum"
    scanned = _scan(wide, position, _most(x.shape[position]), join, last, name)
    if result == total:
        return scanned
    return compute(x.shape, lambda *at: cast(scanned[at], result), name, letters)


def _extremes(op: str, x: Tensor, axis: int, end: str, name: str | None) -> Tensor:
    check_tensor(op, "x", x, least=1, dtypes=NUMBERS)
    position = axis_number(op, x, axis)
    name = result_name(op, name, [x], ("axis", position, None))
    join = _Join(maximum if end == "max" else minimum, reduction_start(end, x.dtype))
    return _scan(x, position, _most(x.shape[position]), join, name, name)


def _most(extent: Any) -> int:
    """What an extent that is affine in its sizes is at most."""
    sizes = sorted(extent.free_symbols, key=str)
    ends = product(*((size.min, size.max) for size in sizes))
    return max(int(extent.subs(dict(zip(sizes, end, strict=True)))) for end in ends)


def _scan(x: Tensor, axis: int, most: int, join: _Join, name: str, inner: str) -> Tensor:
    """What is joined up to each element.

    most    elements along the axis
    inner   what tensors inside are called: ``{inner}_…``
    """
    extent, letters = x.shape[axis], axis_letters(len(x.shape))
    nothing = cast(join.nothing, x.dtype)
    count = (extent + BLOCK - 1) // BLOCK
    split = (*x.shape[:axis], count, BLOCK, *x.shape[axis + 1 :])

    def element(*at: Value) -> Value:
        place = at[axis] * BLOCK + at[axis + 1]
        return where(place < extent, x[(*at[:axis], place, *at[axis + 2 :])], nothing)

    doubled_sums, step = compute(split, element, f"{inner}_1", axis_letters(len(split))), 1
    while step < min(BLOCK, most):
        doubled_sums = _joined_of_twice(doubled_sums, axis + 1, step, join, f"{inner}_{2 * step}")
        step *= 2

    def within(at: tuple[Value, ...]) -> Value:
        return doubled_sums[(*at[:axis], at[axis] // BLOCK, at[axis] % BLOCK, *at[axis + 1 :])]

    if most <= BLOCK:
        return compute(x.shape, lambda *at: within(at), name, letters)
    blocks = compute(
        (*x.shape[:axis], count, *x.shape[axis + 1 :]),
        lambda *at: doubled_sums[(*at[: axis + 1], BLOCK - 1, *at[axis + 1 :])],
        f"{inner}_blocks",
        letters,
    )
    fewer = -(-most // BLOCK)
    before = _scan(blocks, axis, fewer, join, f"{inner}_blocks_sum", f"{inner}_blocks")

    def element_of_scan(*at: Value) -> Value:
        block = (*at[:axis], at[axis] // BLOCK - 1, *at[axis + 1 :])
        return where(at[axis] < BLOCK, within(at), join.of(before[block], within(at)))

    return compute(x.shape, element_of_scan, name, letters)


def _joined_of_twice(tensor: Tensor, axis: int, step: int, join: _Join, name: str) -> Tensor:
    """What is joined of up to twice as many elements: each with what ends `step` before."""

    def doubled(*at: Value) -> Value:
        earlier = tensor[(*at[:axis], at[axis] - step, *at[axis + 1 :])]
        return where(at[axis] < step, tensor[at], join.of(tensor[at], earlier))

    return compute(tensor.shape, doubled, name, axis_letters(len(tensor.shape)))
