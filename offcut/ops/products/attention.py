"""Attention: every query's mean of the values, weighted by how well it matches the keys."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import reduce
from operator import and_
from typing import Any

import numpy as np

from offcut.core.dtypes import DTYPES, FLOATS, INTEGERS, ITEM_BYTES, numpy_dtype
from offcut.core.program import MAX_SIZE
from offcut.core.sizes import size_expr
from offcut.describe.functions import exp, index, maximum, minimum, reduce_axis, where
from offcut.describe.functions import max as max_over
from offcut.describe.functions import sum as sum_over
from offcut.describe.tensor import Tensor, compute
from offcut.describe.value import Value, cast
from offcut.errors import DescribeError
from offcut.ops.checks import (
    axis_letters,
    check_extent,
    check_tensor,
    element,
    finite,
    flag,
    integer,
    is_one,
    of_operands,
    pair_error,
    result_name,
    same_extent,
    unequal_error,
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
    past: Any = 0,
    window: int | None = None,
    lengths: Tensor | None = None,
    *,
    name: str | None = None,
) -> Tensor:
    """``softmax(scale * q @ k.T + mask) @ v``, of shape (…, s, e).

    q        (…, s, d) of floats; leading axes such as (batch, heads), any number
    k        (…, t, d), of the leading axes and type of `q`; t may differ from s. The last leading axis
             may be shorter, an int that divides that of `q`: neighbouring heads of queries share
             one of keys
    v        (…, t, e), of the leading axes and type of `k`
    mask     broadcast over (…, s, t): axes are paired from the last on, a missing one or the literal
             1 is shared. Floats are added to the scores, with -inf where a query must not attend;
             of integers or bool, a query attends where the mask is not 0
    scale    a finite number; None: ``1 / sqrt(d)``, which wants d to be an int
    causal   whether query i attends to keys ``j <= i + past`` alone
    past     keys before the one of query 0: an int or an expression in sizes, ``t - s`` where queries
             are the last of the keys
    window   an int of at least 1: query i attends to keys ``j > i + past - window`` alone, and where
             it is not causal to ``j < i + past + window``; None: to all
    lengths  integers, of the first leading axes of `k`, as (batch,): queries attend to keys ``j < lengths[…]``
             alone. One below 0 is as 0, one beyond t as t; None: to all

    The stages are scores, their greatest by row, exp of the difference, the sum by row, the product
    with `v`, and last the division of that product, not of the weights, by the sum. Scores and sums
    are in float32 for 16-bit types; the exponentials are rounded to the type of `v` before they are
    summed and multiplied, so that the weights that are used add up to 1.

    A query that attends to no key (t = 0, or all its scores -inf) gives zeros: its sum is 0, that of
    any other is at least 1, and the product is divided by no less than 1. NaN stays NaN.

    What `k` and `v` hold at a key reaches no query that does not attend to it: `causal`, `window` and
    `lengths` leave out its terms; under `mask`, where its weight is 0 and 0 times a NaN or an infinity is NaN, an
    element that is NaN is summed once more, over the keys that its query attends to.

    Raises DescribeError where ranks, extents or element types do not fit, or `scale` is needed.
    """
    total, extents = _check(q, k, v), (*q.shape[:-1], k.shape[-2])
    if mask is not None:
        _check_mask(mask, extents)
    if lengths is not None:
        _check_lengths(lengths, k)
    causal, checked_scale = flag("attention", "causal", causal), None
    if scale is not None:
        checked_scale = finite("attention", "scale", scale, "scale=0.125")
    factor = 1 / math.sqrt(_depth(q)) if checked_scale is None else checked_scale
    past, width = size_expr(past, "attention"), None
    if window is not None:
        width = integer("attention", "window", window, 1)
    options = (
        *(("", mask, None), ("scale", checked_scale, None), ("causal", causal, False)),
        *(("past", past, 0), ("window", width, None), ("", lengths, None)),
    )
    name = result_name("attention", name, [q, k, v], *options)
    shared, queries = _sharing(q, k), q
    if shared > 1:
        queries = _side_by_side(q, k, shared, f"{name}_queries")

    def is_visible(at: tuple[Value, ...]) -> Value:
        """Return the element of the mask at a place of the scores."""
        assert mask is not None
        *leading, i, j = at
        if shared > 1:
            leading, i = [*leading[:-1], leading[-1] * shared + i % shared], i // shared
        own = (*leading, i, j)[len(at) - len(mask.shape) :]
        return mask[
            tuple(0 if is_one(n) else axis for n, axis in zip(mask.shape, own, strict=True))
        ]

    def near(at: tuple[Value, ...]) -> list[Value]:
        """Return which keys a query attends to, by its place and theirs."""
        *leading, i, j = at
        own, conditions = i // shared if shared > 1 else i, list[Value]()
        if lengths is not None:
            conditions.append(j < _length(lengths[tuple(leading[: len(lengths.shape)])]))
        if width is not None:
            conditions.append(j > own + past - width)
        if causal:
            conditions.append(j <= own + past)
        elif width is not None:
            conditions.append(j < own + past + width)
        return conditions

    mix, share, resum = _weighted_values(
        queries, k, v, factor, None if mask is None else is_visible, near, total, name
    )

    def result(*at: Value) -> Value:
        own = at
        if shared > 1:
            *leading, h, i, e = at
            own = (*leading, h // shared, i * shared + h % shared, e)
        value = mix[own] if resum is None else where(mix[own] != mix[own], resum[own], mix[own])
        return cast(value * share[own[:-1]], q.dtype)

    output = compute((*q.shape[:-1], v.shape[-1]), result, name, axis_letters(len(q.shape)))
    return of_operands(output, q, k, v, mask, lengths)


def _side_by_side(q: Tensor, k: Tensor, shared: int, name: str) -> Tensor:
    """The queries of heads that share keys as rows of one head, ``i * shared + head``: keys are read once for all."""
    rows = (*k.shape[:-2], q.shape[-2] * shared, q.shape[-1])

    def row(*at: Value) -> Value:
        *leading, h, r, d = at
        return q[(*leading, h * shared + r % shared, r // shared, d)]

    return compute(rows, row, name, axis_letters(len(rows)))


def _weighted_values(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    factor: float,
    is_visible: Callable[[tuple[Value, ...]], Value] | None,
    near: Callable[[tuple[Value, ...]], list[Value]],
    total: str,
    name: str,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return values by weights that are not divided by their sum, what divides them, by row, and where the first are NaN their sums over
    the keys that the mask leaves; without a mask there are none.

    factor      of the products of queries and keys
    is_visible  the element of the mask at a place, of which scores are calculated once; None: none is masked,
                and each that reads a product multiplies it
    near        conditions on a place, without which its key is not read: there is no such term
    """
    extents = (*q.shape[:-1], k.shape[-2])
    letters, rows = axis_letters(len(extents)), extents[:-1]
    d, t = reduce_axis(q.shape[-1], "d"), reduce_axis(k.shape[-2], "t")

    def product(*at: Value) -> Value:
        *leading, i, j = at
        return sum_over(element(q, (*leading, i, d)) * element(k, (*leading, j, d)), axis=d)

    products = compute(extents, product, f"{name}_product", letters)

    def score(*at: Value) -> Value:
        value = products[at] * factor
        return value if is_visible is None else _masked_score(value, is_visible(at), total)

    scored = compute(extents, score, f"{name}_scores", letters) if is_visible is not None else None

    def score_of(*at: Value) -> Value:
        return score(*at) if scored is None else scored[at]

    def term(value: Value, at: tuple[Value, ...], otherwise: float, *more: Value) -> Value:
        """Return what is reduced at a place: what changes nothing, where its key is not read."""
        conditions = [*near(at), *more]
        return where(reduce(and_, conditions), value, otherwise) if conditions else value

    greatest = compute(
        rows,
        lambda *at: max_over(term(score_of(*at, t), (*at, t), -math.inf), axis=t),
        f"{name}_max",
        letters[:-1],
    )

    lowest = -float(np.finfo(numpy_dtype(total)).max)  # of a row of -inf alone the weights are 0

    def weight(*at: Value) -> Value:
        row = maximum(greatest[at[:-1]], lowest)
        return cast(exp(score_of(*at) - row), v.dtype)

    weights = compute(extents, weight, f"{name}_exp", letters)
    sums = compute(
        rows,
        lambda *at: sum_over(term(element(weights, (*at, t)), (*at, t), -0.0), axis=t),
        f"{name}_sum",
        letters[:-1],
    )

    def mixed(at: tuple[Value, ...], *more: Value) -> Value:
        *leading, i, j = at
        value = element(weights, (*leading, i, t)) * element(v, (*leading, t, j))
        return sum_over(term(value, (*leading, i, t), -0.0, *more), axis=t)

    extents = (*rows, v.shape[-1])
    mix = compute(extents, lambda *at: mixed(at), f"{name}_mix", letters)

    resum = None
    if is_visible is not None:
        e = reduce_axis(v.shape[-1], "e")
        top = compute(
            rows, lambda *at: max_over(mix[(*at, e)], axis=e), f"{name}_top", letters[:-1]
        )

        def summed_again(*at: Value) -> Value:
            row = top[at[:-1]]
            return mixed(at, row != row, _attends(is_visible((*at[:-1], t))))

        resum = compute(extents, summed_again, f"{name}_resum", letters)
    share = compute(rows, lambda *at: 1.0 / maximum(sums[at], 1.0), f"{name}_share", letters[:-1])
    return mix, share, resum


def _masked_score(value: Value, element: Value, total: str) -> Value:
    """Return a score under the element of the mask."""
    score = value + cast(element, total) if element.dtype in FLOATS else value
    return where(_attends(element), score, -math.inf)


def _attends(element: Value) -> Value:
    """Return whether a query attends to a key, by the element of the mask."""
    return element != -math.inf if element.dtype in FLOATS else cast(element, "bool")


def _check(q: Tensor, k: Tensor, v: Tensor) -> str:
    """The type of the scores."""
    op = "attention"
    check_tensor(op, "q", q, least=2, dtypes=FLOATS)
    rank = len(q.shape)
    for label, tensor in (("k", k), ("v", v)):
        check_tensor(op, label, tensor, rank, dtypes=(q.dtype,))
        for axis in range(rank - 2 - (label == "k")):
            check_extent(op, (k if label == "v" else q, axis), (tensor, axis))
    check_extent(op, (q, rank - 1), (k, rank - 1))
    check_extent(op, (k, rank - 2), (v, rank - 2))
    return wider(q.dtype)


def _check_mask(mask: Any, extents: tuple[Any, ...]) -> None:
    check_tensor("attention", "mask", mask, dtypes=MASKS)
    pairs = [
        pair for pair in zip(mask.shape[::-1], extents[::-1], strict=False) if not is_one(pair[0])
    ]
    if len(mask.shape) > len(extents) or not all(same_extent(*pair) for pair in pairs):
        raise unequal_error(
            "attention",
            "cannot spread the mask over the scores",
            *pairs,
            at=repr(mask),
            because=f"the scores have the shape ({', '.join(map(str, extents))})",
            help=("axes of the mask are those of the scores, or the literal 1",),
        )


def _length(element: Value) -> Value:
    """Return an element of the lengths as an index; one of 64 bits between 0 and the largest extent, so that a loop may end there."""
    if ITEM_BYTES[element.dtype] > 4:
        element = maximum(minimum(element, MAX_SIZE), 0)
    return index(element)


def _check_lengths(lengths: Any, k: Tensor) -> None:
    """Refuse lengths of other axes than the first ones of the keys."""
    check_tensor("attention", "lengths", lengths, dtypes=INTEGERS)
    leading = k.shape[:-2]
    pairs = list(zip(leading, lengths.shape, strict=False))
    if len(lengths.shape) > len(leading) or not all(same_extent(*pair) for pair in pairs):
        raise unequal_error(
            "attention",
            "cannot read a length for each sequence of keys",
            *pairs,
            at=repr(lengths),
            because=f"the leading axes of k are ({', '.join(map(str, leading))})",
            help=("the first of these axes, in their order",),
        )


def _sharing(q: Tensor, k: Tensor) -> int:
    """How many heads of queries share one of keys."""
    if len(q.shape) == 2 or same_extent(q.shape[-3], k.shape[-3]):
        return 1
    own, other = q.shape[-3], k.shape[-3]
    if not (own.is_Integer and other.is_Integer and other > 0 and own % other == 0):
        because = f"the {own} heads of one are not a multiple of the {other} of the other"
        raise pair_error(
            "attention",
            q,
            k,
            because,
            "ints, or one size for both: a size is known by its name and facts",
            equal=[(own, other)],
        )
    return int(own) // int(other)


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
