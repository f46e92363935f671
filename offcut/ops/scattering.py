"""Elements put where integers say, into a copy.

A tensor has one expression for each of its elements, so that each looks for what is put there: of m updates along an axis
of n elements that takes ``n * m`` comparisons a line, side by side. For a few updates, or short axes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from offcut.core.dtypes import INTEGERS, neutral
from offcut.describe.functions import index, maximum, minimum, reduce_axis, where
from offcut.describe.functions import max as max_over
from offcut.describe.functions import min as min_over
from offcut.describe.functions import sum as sum_over
from offcut.describe.tensor import Tensor, compute
from offcut.describe.value import Value, cast
from offcut.errors import DescribeError
from offcut.ops.arguments import is_one_of
from offcut.ops.naming import named
from offcut.ops.operands import (
    axis_letters,
    axis_number,
    check_dtype,
    check_shape,
    check_tensor,
    element,
    same_extent,
    wider,
)
from offcut.ops.selection import wrapped

REDUCTIONS = ("add", "max", "min")


def scatter_elements(
    x: Tensor,
    indices: Tensor,
    updates: Tensor,
    axis: int = 0,
    reduction: str | None = None,
    *,
    name: str | None = None,
) -> Tensor:
    """`x`, but ``result[…, indices[…, k, …], …] = updates[…, k, …]``, in ascending order of k.

    x           of any element type, with at least one axis of n elements along `axis`
    indices     integers of the rank of `x`, -n … n - 1, those below 0 counted from the end; one that is no
                place changes nothing. On other axes it has at most the extents of `x`
    updates     of the shape of `indices` and the type of `x`
    reduction   None: of several updates of one place the last stays; "add", "max" or "min": all of them
                and the element of `x`, summed as in `sum`

    It takes n comparisons an update. Raises DescribeError where there is no such axis, or ranks, shapes or
    element types do not fit.
    """
    op = "scatter_elements"
    check_tensor(op, "x", x, least=1)
    position, rank = axis_number(op, x, axis), len(x.shape)
    check_tensor(op, "indices", indices, rank)
    _check_updates(op, x, indices, updates, indices.shape, reduction)
    name = named(op, name, [x, indices, updates], ("axis", position, 0), ("", reduction, None))
    k = reduce_axis(indices.shape[position], "k")
    shape = (*indices.shape[:position], x.shape[position], *indices.shape[position + 1 :])

    def along(at: Sequence[Value], place: Value) -> tuple[Value, ...]:
        return (*at[:position], place, *at[position + 1 :])

    def here(*at: Value) -> Value:
        number = wrapped(indices[along(at, k)], x.shape[position])
        return number == cast(at[position], number.dtype)

    narrow = [n for n in range(rank) if n != position and not same_extent(shape[n], x.shape[n])]

    def within(value: Value, nothing: Any, at: Sequence[Value]) -> Value:
        for n in narrow:
            value = where(at[n] < shape[n], value, nothing)
        return value

    found = _Found(x.shape, here, k, reduction, name, within)
    found.reduced(updates, along)

    def result(*at: Value) -> Value:
        return found.after(x[at], lambda place: updates[along(at, place)], at)

    return compute(x.shape, result, name, axis_letters(rank))


def scatter_nd(
    x: Tensor,
    indices: Tensor,
    updates: Tensor,
    reduction: str | None = None,
    *,
    name: str | None = None,
) -> Tensor:
    """`x`, but ``result[indices[k, 0], …, indices[k, q - 1], …] = updates[k, …]``, in ascending order of k.

    x           of any element type, with at least q axes
    indices     (m, q) of integers, q an int of at least 1; as in `scatter_elements`
    updates     (m, …), of the axes of `x` from axis q on, and of its type
    reduction   as in `scatter_elements`

    It takes as many comparisons an update as the first q axes have places. Raises DescribeError where ranks,
    shapes or element types do not fit.
    """
    op = "scatter_nd"
    check_tensor(op, "x", x, least=1)
    check_tensor(op, "indices", indices, 2)
    columns, rank = indices.shape[1], len(x.shape)
    if not (columns.is_Integer and 1 <= columns <= rank):
        raise DescribeError(
            op,
            f"cannot take indices of {columns} columns",
            at=repr(indices),
            because=f"they are an int from 1 to the {rank} axes of {x.name}",
        )
    count = int(columns)
    _check_updates(op, x, indices, updates, (indices.shape[0], *x.shape[count:]), reduction)
    name = named(op, name, [x, indices, updates], ("", reduction, None))
    k = reduce_axis(indices.shape[0], "k")

    def here(*at: Value) -> Value:
        joined: Value | None = None
        for n in range(count):
            number = wrapped(indices[k, n], x.shape[n])
            equal = number == cast(at[n], number.dtype)
            joined = equal if joined is None else joined & equal
        assert joined is not None
        return joined

    def row(at: Sequence[Value], place: Value) -> tuple[Value, ...]:
        return (place, *at[count:])

    whole = reduction is not None
    places = x.shape if whole else x.shape[:count]
    found = _Found(places, here, k, reduction, name, lambda value, nothing, at: value)
    found.reduced(updates, row)

    def result(*at: Value) -> Value:
        own = at if whole else at[:count]
        return found.after(x[at], lambda place: updates[row(at, place)], own)

    return compute(x.shape, result, name, axis_letters(rank))


class _Found:
    """What is put at each place: the last update, or all of them reduced.

    shape    of the places that are asked
    here     whether update k is for a place
    within   a value where there are updates, and what is nothing, by place
    """

    def __init__(
        self,
        shape: Sequence[Any],
        here: Callable[..., Value],
        k: Value,
        reduction: str | None,
        name: str,
        within: Callable[[Value, Any, Sequence[Value]], Value],
    ) -> None:
        self.shape, self.here, self.k = tuple(shape), here, k
        self.reduction, self.name, self.within = reduction, name, within
        self.tensor: Tensor | None = None

    def reduced(self, updates: Tensor, at_update: Callable[..., tuple[Value, ...]]) -> None:
        """Make the tensor of the last update, or of the reduced ones, by place."""
        letters, end = axis_letters(len(self.shape)), self.reduction

        def term(*at: Value) -> Value:
            if end is None:
                last = where(self.here(*at), cast(self.k, "int32"), -1)
                return max_over(self.within(last, -1, at), axis=self.k)
            total = wider(updates.dtype) if end == "add" else updates.dtype
            value = element(updates, at_update(at, self.k), total)
            nothing = cast(0 if end == "add" else neutral(end, total), total)
            over = {"add": sum_over, "max": max_over, "min": min_over}[end]
            chosen = where(self.here(*at), value, nothing)
            return over(self.within(chosen, nothing, at), axis=self.k)

        self.tensor = compute(self.shape, term, f"{self.name}_found", letters)

    def after(self, own: Value, update: Callable[[Value], Value], at: Sequence[Value]) -> Value:
        """The element of the result for `own`, the one that was there."""
        assert self.tensor is not None
        found = self.tensor[tuple(at)]
        if self.reduction is None:
            return where(found >= 0, update(index(found)), own)
        if self.reduction == "add":
            return cast(cast(own, found.dtype) + found, own.dtype)
        return (maximum if self.reduction == "max" else minimum)(own, found)


def _check_updates(
    op: str,
    x: Tensor,
    indices: Tensor,
    updates: Tensor,
    shape: Sequence[Any],
    reduction: Any,
) -> None:
    check_dtype(op, "indices", indices, INTEGERS)
    check_tensor(op, "updates", updates, len(shape))
    check_shape(op, "updates", updates, shape)
    check_dtype(op, "updates", updates, (x.dtype,))
    if reduction is not None and not is_one_of(reduction, REDUCTIONS):
        raise DescribeError(
            op,
            f"cannot take reduction={reduction!r}",
            because=f"reductions are {', '.join(REDUCTIONS)}, or None",
        )
