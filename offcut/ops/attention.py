"""Attention: every query's mean of the values, weighted by how well it matches the keys."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from offcut.core.dtypes import DTYPES, FLOATS, numpy_dtype
from offcut.describe.functions import exp, maximum, reduce_axis, where
from offcut.describe.functions import max as max_over
from offcut.describe.functions import sum as sum_over
from offcut.describe.tensor import Tensor, compute
from offcut.describe.value import Value, cast
from offcut.errors import DescribeError
from offcut.ops.arguments import flag, number
from offcut.ops.naming import named
from offcut.ops.operands import (
    axis_letters,
    check_dtype,
    check_extent,
    check_floats,
    check_tensor,
    element,
    is_one,
    same_extent,
    wider,
)

MASKS = DTYPES


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None = None,
    scale: float | None = None,
    causal: bool = False,
    *,
    name: str | None = None,
) -> Tensor:
    """``softmax(scale * q @ k.T + mask) @ v``, of shape (…, s, e).

    q        (…, s, d) of floats; leading axes such as (batch, heads), any number
    k        (…, t, d), of the leading axes and type of `q`; t may differ from s
    v        (…, t, e), likewise
    mask     broadcast over (…, s, t): axes are paired from the last on, a missing one or the literal
             1 is shared. Floats are added to the scores, with -inf where a query must not attend;
             of integers or bool, a query attends where the mask is not 0
    scale    a finite number; None: ``1 / sqrt(d)``, which wants d to be an int
    causal   whether query i attends to keys ``j <= i`` alone, counted from the first of each

    The stages are scores, their greatest by row, exp of the difference, the sum by row, the product
    with `v`, and last the division of that product, not of the weights, by the sum. Scores and sums
    are in float32 for 16-bit types; the exponentials are rounded to the type of `v` before they are
    summed and multiplied, so that the weights that are used add up to 1.

    A query that attends to no key (t = 0, or all its scores -inf) gives zeros: its sum is 0, that of
    any other is at least 1, and the product is divided by no less than 1. NaN stays NaN.

    Raises DescribeError where ranks, extents or element types do not fit, or `scale` is needed.
    """
    total, extents = _check(q, k, v), (*q.shape[:-1], k.shape[-2])
    rank = len(extents)
    if mask is not None:
        _check_mask(mask, extents)
    causal, chosen = flag("attention", "causal", causal), None if scale is None else _scale(scale)
    factor = 1 / math.sqrt(_depth(q)) if chosen is None else chosen
    options = (("", mask, None), ("scale", chosen, None), ("causal", causal, False))
    name = named("attention", name, [q, k, v], *options)
    letters = axis_letters(rank)
    d, t = reduce_axis(q.shape[-1], "d"), reduce_axis(k.shape[-2], "t")

    def product(*at: Value) -> Value:
        *leading, i, j = at
        return sum_over(element(q, (*leading, i, d)) * element(k, (*leading, j, d)), axis=d)

    products = compute(extents, product, f"{name}_product", letters)

    def score(*at: Value) -> Value:
        value, (i, j) = products[at] * factor, at[-2:]
        if mask is not None:
            value = _masked(value, mask, at, total)
        return where(j <= i, value, -math.inf) if causal else value

    scores = compute(extents, score, f"{name}_scores", letters)
    rows = extents[:-1]
    greatest = compute(
        rows, lambda *at: max_over(scores[(*at, t)], axis=t), f"{name}_max", letters[:-1]
    )

    lowest = -float(np.finfo(numpy_dtype(total)).max)  # of a row of -inf alone the weights are 0

    def weight(*at: Value) -> Value:
        row = maximum(greatest[at[:-1]], lowest)
        return cast(exp(scores[at] - row), v.dtype)

    weights = compute(extents, weight, f"{name}_exp", letters)
    sums = compute(
        rows,
        lambda *at: sum_over(element(weights, (*at, t)), axis=t),
        f"{name}_sum",
        letters[:-1],
    )
    shape = (*rows, v.shape[-1])

    def mixed(*at: Value) -> Value:
        *leading, i, j = at
        return sum_over(element(weights, (*leading, i, t)) * element(v, (*leading, t, j)), axis=t)

    mix = compute(shape, mixed, f"{name}_mix", letters)

    share = compute(rows, lambda *at: 1.0 / maximum(sums[at], 1.0), f"{name}_share", letters[:-1])
    return compute(shape, lambda *at: cast(mix[at] * share[at[:-1]], q.dtype), name, letters)


def _masked(value: Value, mask: Tensor, at: tuple[Value, ...], total: str) -> Value:
    own = at[len(at) - len(mask.shape) :]
    index = tuple(0 if is_one(n) else axis for n, axis in zip(mask.shape, own, strict=True))
    if mask.dtype in FLOATS:
        return value + cast(mask[index], total)
    return where(cast(mask[index], "bool"), value, -math.inf)


def _check(q: Tensor, k: Tensor, v: Tensor) -> str:
    """The type of the scores."""
    op = "attention"
    check_tensor(op, "q", q, least=2)
    check_floats(op, "q", q)
    rank = len(q.shape)
    for label, tensor in (("k", k), ("v", v)):
        check_tensor(op, label, tensor, rank)
        check_dtype(op, label, tensor, (q.dtype,))
        for axis in range(rank - 2):
            check_extent(op, (q, axis), (tensor, axis))
    check_extent(op, (q, rank - 1), (k, rank - 1))
    check_extent(op, (k, rank - 2), (v, rank - 2))
    return wider(q.dtype)


def _check_mask(mask: Any, extents: tuple[Any, ...]) -> None:
    check_tensor("attention", "mask", mask)
    check_dtype("attention", "mask", mask, MASKS)
    found = mask.shape
    fits = len(found) <= len(extents) and all(
        is_one(one) or same_extent(one, other)
        for one, other in zip(found[::-1], extents[::-1], strict=False)
    )
    if not fits:
        raise DescribeError(
            "attention",
            "cannot spread the mask over the scores",
            at=repr(mask),
            because=f"the scores have the shape ({', '.join(map(str, extents))})",
            help=("axes of the mask are those of the scores, or the literal 1",),
        )


def _scale(scale: Any) -> float:
    found = number(scale)
    if found is None:
        raise DescribeError(
            "attention",
            f"cannot take scale={scale!r}",
            because="scale is a finite number",
            help=("scale=0.125",),
        )
    return found


def _depth(q: Tensor) -> int:
    depth = q.shape[-1]
    if not (depth.is_Integer and depth > 0):
        raise DescribeError(
            "attention",
            "cannot choose the scale",
            at=repr(q),
            because=f"1/sqrt(d) wants an int above 0, and d is {depth}",
            help=("scale=0.125",),
        )
    return int(depth)
