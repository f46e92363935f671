"""Elements around a tensor: a value, its edge, or its mirror image."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from numbers import Real
from operator import and_
from typing import Any, TypeAlias

from offcut.core.dtypes import FLOATS
from offcut.core.integers import whole
from offcut.core.sizes import size_expr
from offcut.describe.functions import where
from offcut.describe.tensor import Tensor, compute
from offcut.describe.value import Value, cast
from offcut.errors import DescribeError
from offcut.ops.checks import axis_letters, check_dtype, check_tensor, choice, of_operands, several
from offcut.ops.naming import result_name

MODES = ("constant", "edge", "reflect")

Pieces: TypeAlias = list[tuple[Any, Callable[[Value], Any]]]
"""Ranges of an axis, one after the other: where each ends (the last: None), and what it reads there."""


def pad(
    x: Tensor,
    before: Any,
    after: Any,
    value: float | Tensor = 0.0,
    mode: str = "constant",
    *,
    name: str | None = None,
) -> Tensor:
    """`x` with `before` and `after` more elements along each axis.

    x               of any shape and element type
    before, after   one int for each axis, or one for all; below 0, as many are left out. With mode "constant"
                    expressions in sizes, too
    value           of the new elements with mode "constant": a number that the element type holds, or a tensor of
                    that type and of shape ()
    mode            "constant"; "edge", the nearest element of `x`; "reflect", mirrored about it. Sizes
                    at which there is no such element (an axis of 0, or not longer than what is
                    mirrored) are refused when the program is compiled

    Raises DescribeError where an argument is no such thing, or more is left out than there is.
    """
    check_tensor("pad", "x", x)
    rank = len(x.shape)
    choice("pad", "mode", mode, MODES)
    symbolic = mode == "constant"
    starts, ends = (
        _amounts("pad", label, amounts, rank, symbolic)
        for label, amounts in (("before", before), ("after", after))
    )
    if isinstance(value, Tensor):
        check_dtype("pad", "value", value, (x.dtype,))
        other = check_tensor("pad", "value", value, 0)[()]
    else:
        other = _element("pad", value, x.dtype)
    shape = tuple(n + a + b for n, a, b in zip(x.shape, starts, ends, strict=True))
    for axis, extent in enumerate(shape):
        if extent.is_Integer and extent < 0:
            raise DescribeError(
                "pad",
                f"cannot leave out {-min(starts[axis], 0) - min(ends[axis], 0)} elements",
                at=f"axis {axis} of {x!r}",
                because=f"it has {x.shape[axis]}",
            )

    def surrounded(*at: Value) -> Value:
        if mode == "constant":
            return _inside(x, at, starts, ends, other)
        around = zip(x.shape, starts, ends, strict=True)
        return piecewise_element(x, at, [_around(n, start, end, mode) for n, start, end in around])

    options = (("", starts, None), ("", ends, None), ("value", value, 0.0), ("", mode, "constant"))
    result = compute(shape, surrounded, result_name("pad", name, [x], *options), axis_letters(rank))
    return of_operands(result, x, value) if symbolic and isinstance(value, Tensor) else result


def piecewise_element(x: Tensor, at: Sequence[Value], axes: Sequence[Pieces]) -> Value:
    """The element of `x` for the place `at`, where each axis reads by ranges."""

    def read(done: tuple[Any, ...]) -> Value:
        axis = len(done)
        if axis == len(axes):
            return x[done]
        *first, (_, last) = axes[axis]
        element = read((*done, last(at[axis])))
        for end, place in reversed(first):
            element = where(at[axis] < end, read((*done, place(at[axis]))), element)
        return element

    return read(())


def _inside(
    x: Tensor, at: Sequence[Value], starts: Sequence[Any], ends: Sequence[Any], other: Value
) -> Value:
    conditions, places = [], []
    for n, start, end, i in zip(x.shape, starts, ends, at, strict=True):
        conditions += [i >= start] if _may_add(start) else []
        conditions += [i < n + start] if _may_add(end) else []
        places.append(i - start)
    if not conditions:
        return x[tuple(places)]
    return where(reduce(and_, conditions), x[tuple(places)], other)


def _may_add(amount: Any) -> bool:
    """Whether an amount is above 0 at some size."""
    return not isinstance(amount, int) or amount > 0


def _around(extent: Any, start: int, end: int, mode: str) -> Pieces:
    pieces: Pieces = [(extent + start, lambda i: i - start)]
    if start > 0:
        pieces.insert(0, (start, (lambda i: 0) if mode == "edge" else (lambda i: start - i)))
    if end > 0:
        mirrored = 2 * (extent - 1) + start
        edge = extent - 1
        pieces.append((None, (lambda i: edge) if mode == "edge" else (lambda i: mirrored - i)))
    return pieces


def _amounts(op: str, label: str, value: Any, rank: int, symbolic: bool) -> tuple[Any, ...]:
    each = several(value)
    checked = [_amount(op, n, symbolic) for n in ((value,) * rank if each is None else each)]
    amounts = tuple(n for n in checked if n is not None)
    if not len(amounts) == len(checked) == rank:
        raise DescribeError(
            op,
            f"cannot take {label}={value!r}",
            because=f"{label} is an int, or one for each of the {rank} axes",
        )
    return amounts


def _amount(op: str, value: Any, symbolic: bool) -> Any:
    """An int, or an expression in sizes where these are taken; None for anything else."""
    integer = whole(value)
    if integer is None and symbolic and getattr(value, "free_symbols", None):
        return size_expr(value, op)
    return integer


def _element(op: str, value: Any, dtype: str) -> Value:
    """`value` as an element; raises DescribeError where it is no number, or a fraction of integers."""
    good = isinstance(value, Real) and (dtype in FLOATS or float(value).is_integer())
    if not good:
        raise DescribeError(
            op,
            f"cannot take value={value!r}",
            because=f"value is a number that {dtype} holds",
        )
    return cast(float(value) if dtype in FLOATS else int(value), dtype)
