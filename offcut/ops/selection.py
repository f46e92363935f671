"""Elements that integers name: along one axis for all others, or at each place its own."""

from __future__ import annotations

from offcut.core.dtypes import INTEGERS
from offcut.describe.functions import index, where
from offcut.describe.tensor import Tensor, compute
from offcut.describe.value import Value, cast
from offcut.errors import DescribeError
from offcut.ops.naming import named
from offcut.ops.operands import (
    axis_letters,
    axis_number,
    check_dtype,
    check_tensor,
    is_one,
    same_extent,
)


def take(x: Tensor, indices: Tensor, axis: int = 0, *, name: str | None = None) -> Tensor:
    """``result[a…, i…, b…] = x[a…, indices[i…], b…]``, where `axis` is the one after a….

    x         of any element type, with at least one axis of n elements
    indices   (i…) of integers: -n … n - 1, those below 0 count from the end; others are refused when
              the kernel is called

    Raises DescribeError where there is no such axis, or indices are no integers.
    """
    position = _check("take", x, indices, axis)
    rank, count = len(x.shape), len(indices.shape)
    name = named("take", name, [x, indices], ("axis", position, 0))
    shape = (*x.shape[:position], *indices.shape, *x.shape[position + 1 :])

    def taken(*at: Value) -> Value:
        here = indices[at[position : position + count]]
        place = index(wrapped(here, x.shape[position]))
        return x[(*at[:position], place, *at[position + count :])]

    return compute(shape, taken, name, axis_letters(rank + count - 1))


def take_along_axis(x: Tensor, indices: Tensor, axis: int, *, name: str | None = None) -> Tensor:
    """``result[…, i, …] = x[…, indices[…, i, …], …]``, each place of the other axes with its own.

    x         of any element type, with at least one axis
    indices   integers as in `take`, of the rank of `x`; other axes are equal, or the literal 1 in one
              of both, which is shared

    Raises DescribeError where there is no such axis, or ranks, extents or element types do not fit.
    """
    op = "take_along_axis"
    position = _check(op, x, indices, axis)
    rank = len(x.shape)
    check_tensor(op, "indices", indices, rank)
    shape = []
    for n, (own, other) in enumerate(zip(x.shape, indices.shape, strict=True)):
        if n != position and not (is_one(own) or is_one(other) or same_extent(own, other)):
            raise DescribeError(
                op,
                f"cannot pair {x.name} with {indices.name}",
                at=f"{x!r} and {indices!r}",
                because=f"axis {n} is {own} in one and {other} in the other",
                help=("one size for both: a size is known by its name and facts",),
            )
        shape.append(own if n != position and is_one(other) else other)
    name = named(op, name, [x, indices], ("axis", position, None))

    def taken(*at: Value) -> Value:
        own, other = (
            [0 if is_one(extent) else i for extent, i in zip(tensor.shape, at, strict=True)]
            for tensor in (x, indices)
        )
        place = index(wrapped(indices[tuple(other)], x.shape[position]))
        return x[(*own[:position], place, *own[position + 1 :])]

    return compute(shape, taken, name, axis_letters(rank))


def _check(op: str, x: Tensor, indices: Tensor, axis: int) -> int:
    """`axis`, counted from the front."""
    check_tensor(op, "x", x, least=1)
    check_tensor(op, "indices", indices)
    check_dtype(op, "indices", indices, INTEGERS)
    return axis_number(op, x, axis)


def wrapped(number: Value, extent: object) -> Value:
    """`number`, from the end of an axis of `extent` where it is below 0; of int32 at least."""
    wide = number if number.dtype == "int64" else cast(number, "int32")
    if number.dtype == "uint8":
        return wide
    return where(wide < 0, wide + cast(extent, wide.dtype), wide)
