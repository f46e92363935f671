"""Elements that integers name: along one axis for all others, or at each place its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from offcut.core.dtypes import INDEX_DTYPES, UNSIGNED, index_dtype
from offcut.describe.functions import index, where
from offcut.describe.tensor import Tensor, compute
from offcut.describe.value import Value, cast
from offcut.errors import DescribeError
from offcut.ops.checks import (
    SAME_SIZE,
    axis_letters,
    axis_number,
    check_result,
    check_tensor,
    flag,
    is_one,
    pair_error,
    result_name,
    same_extent,
    several,
)
from offcut.ops.elementwise.broadcasting import broadcast_shape, element_of


def take(
    x: Tensor,
    indices: Tensor | Sequence[Tensor],
    axis: int = 0,
    from_end: bool = True,
    *,
    name: str | None = None,
) -> Tensor:
    """``result[a…, i…, b…] = x[a…, indices[i…], b…]``, where `axis` is the one after a….

    x          of any element type, with at least one axis of n elements
    indices    (i…) of integers: -n … n - 1, those below 0 count from the end; others are refused when
               the kernel is called. Several: for `axis` and those after it, of shapes that numpy broadcasts
    from_end   False: indices below 0 are refused as well

    Raises DescribeError where there is no such axis, or indices are no integers.
    """
    each = (indices,) if isinstance(indices, Tensor) else tuple(several(indices) or ())
    if not each:
        because = "indices are a tensor, or several"
        raise DescribeError("take", f"cannot take indices={indices!r}", because=because)
    position = _check("take", x, each[0], axis)
    for number, one in enumerate(each[1:], start=1):
        _check("take", x, one, position + number)
    rank, count = len(x.shape), len(each)
    common = broadcast_shape("take", each)
    options = (("axis", position, 0), ("within", not flag("take", "from_end", from_end), False))
    name = result_name("take", name, [x, *each], *options)
    end = position + len(common)
    shape = (*x.shape[:position], *common, *x.shape[position + count :])

    def element(*at: Value) -> Value:
        here = at[position:end]
        places = [
            index(_place(element_of(one, common, here, one.dtype), extent, from_end))
            for one, extent in zip(each, x.shape[position:], strict=False)
        ]
        return x[(*at[:position], *places, *at[end:])]

    return compute(shape, element, name, axis_letters(rank - count + len(common)))


def take_along_axis(
    x: Tensor, indices: Tensor, axis: int, from_end: bool = True, *, name: str | None = None
) -> Tensor:
    """``result[…, i, …] = x[…, indices[…, i, …], …]``, each place of the other axes with its own.

    x          of any element type, with at least one axis
    indices    integers as in `take`, of the rank of `x`; other axes are equal, or the literal 1 in one
               of both, which is shared
    from_end   as in `take`

    Raises DescribeError where there is no such axis, or ranks, extents or element types do not fit.
    """
    op = "take_along_axis"
    position = _check(op, x, indices, axis)
    rank = len(x.shape)
    check_tensor(op, "indices", indices, rank)
    shape = []
    for n, (own, other) in enumerate(zip(x.shape, indices.shape, strict=True)):
        if n != position and not (is_one(own) or is_one(other) or same_extent(own, other)):
            because = f"axis {n} is {own} in one and {other} in the other"
            raise pair_error(op, x, indices, because, SAME_SIZE, equal=[(own, other)])
        shape.append(own if n != position and is_one(other) else other)
    within = not flag(op, "from_end", from_end)
    name = result_name(op, name, [x, indices], ("axis", position, None), ("within", within, False))

    def element(*at: Value) -> Value:
        own, other = (
            [0 if is_one(extent) else i for extent, i in zip(tensor.shape, at, strict=True)]
            for tensor in (x, indices)
        )
        place = index(_place(indices[tuple(other)], x.shape[position], from_end))
        return x[(*own[:position], place, *own[position + 1 :])]

    return compute(shape, element, name, axis_letters(rank))


def _check(op: str, x: Tensor, indices: Tensor, axis: int) -> int:
    """`axis`, counted from the front."""
    check_tensor(op, "x", x, least=1)
    check_tensor(op, "indices", indices, dtypes=INDEX_DTYPES)
    return axis_number(op, x, axis)


def _place(number: Value, extent: object, from_end: bool) -> Value:
    return wrap_index(number, extent) if from_end else number


def wrap_index(number: Value, extent: object) -> Value:
    """`number`, from the end of an axis of `extent` where it is below 0; of int32 at least."""
    wide = cast(number, index_dtype(number.dtype))
    if number.dtype in UNSIGNED:
        return wide
    return where(wide < 0, wide + cast(extent, wide.dtype), wide)


def embedding(table: Tensor, ids: Tensor, *, name: str | None = None) -> Tensor:
    """``result[…, j] = table[ids[…], j]``, of the type of `table`.

    table   (v, d) of any element type
    ids     (…) of int64 or int32; a number below 0 or not below v is refused when the kernel is called

    Raises DescribeError where ranks or element types do not fit.
    """
    check_tensor("embedding", "table", table, 2)
    check_tensor("embedding", "ids", ids, dtypes=("int64", "int32"))

    def row(*at: Value) -> Value:
        return table[index(ids[at[:-1]]), at[-1]]

    letters = axis_letters(len(ids.shape) + 1)
    return compute(
        (*ids.shape, table.shape[1]), row, result_name("embedding", name, [table, ids]), letters
    )


def iota(extent: Any, dtype: str = "int64", *, name: str | None = None) -> Tensor:
    """``0, 1, …, extent - 1``, of shape (extent,).

    extent   an int or an expression in sizes
    dtype    of the result

    Raises DescribeError where `extent` is no size or `dtype` no element type.
    """
    result_dtype = check_result("iota", dtype, "int64")
    name = result_name("iota", name, [], ("", extent, None), ("", result_dtype, "int64"))
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
    check_tensor("one_hot", "indices", indices, dtypes=INDEX_DTYPES)
    result_dtype = check_result("one_hot", dtype, "float32")
    name = result_name("one_hot", name, [indices], ("", depth, None), ("", result_dtype, "float32"))
    compared = index_dtype(indices.dtype)

    def element(*at: Value) -> Value:
        here = cast(indices[at[:-1]], compared) == cast(at[-1], compared)
        return where(here, cast(1, result_dtype), cast(0, result_dtype))

    return compute((*indices.shape, depth), element, name, axis_letters(len(indices.shape) + 1))
