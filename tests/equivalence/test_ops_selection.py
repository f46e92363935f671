"""Elements by number, and the numbers of the greatest and the least, against numpy."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from compiled import Array, floats
from conftest import edge_sizes
from operators import Operator, integers

import offcut as oc
from offcut import ops
from offcut.core.dtypes import INDEX_DTYPES
from tests.facade import UNSIGNED, numpy_dtype

LENGTHS = edge_sizes(16)
LAST = 2**31 - 1
b, m, n = (oc.dim(name, max=4096) for name in "bmn")


def numbers(count: int, dtype: str, *shape: int) -> Array:
    """Numbers from -count to count - 1; from 0 on where the type has no sign."""
    found = integers("i", "int32", *shape) % max(2 * count, 1) - count
    return (found % max(count, 1) if dtype in UNSIGNED else found).astype(dtype)


@pytest.mark.every(5)
@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("dtype", INDEX_DTYPES)
def test_elements_are_taken_along_an_axis(axis: int, dtype: str) -> None:
    x, ids = oc.placeholder((m, n, 3), name="X"), oc.placeholder((b, 2), dtype, "I")
    op = Operator(ops.take(x, ids, axis), [x, ids])
    for length in LENGTHS:
        a = floats("a", 7, 5, 3)
        i = numbers(a.shape[axis], dtype, length, 2)
        op.check([a, i], np.take(a, i.astype("int64"), axis), interpreted=length == 1)


@pytest.mark.parametrize("axis", [0, -1])
def test_each_place_takes_its_own_element(axis: int) -> None:
    x = oc.placeholder((b, 1, n) if axis else (n, 1, b), name="X")
    ids = oc.placeholder((b, 5, m) if axis else (m, 5, b), "int32", "I")
    op = Operator(ops.take_along_axis(x, ids, axis), [x, ids])
    for batch, length in [*product((0, 1, 3), (1, 17)), *((3, length) for length in LENGTHS)]:
        a = floats("a", *((batch, 1, 7) if axis else (7, 1, batch)))
        i = numbers(7, "int32", *((batch, 5, length) if axis else (length, 5, batch)))
        exact = np.take_along_axis(a, i.astype("int64"), axis)
        op.check([a, i], exact, interpreted=(batch, length) == (1, 17))


def tied(dtype: str, *shape: int) -> Array:
    """Elements of which many are equal, with NaN and infinities among floats."""
    found = integers("a", "int8", *shape) // 16
    if dtype.startswith(("int", "uint")):
        return found.astype(dtype)
    a = found.astype(numpy_dtype(dtype))
    a.flat[3::11], a.flat[5::23] = -np.inf, np.inf
    a.flat[7::29] = np.nan
    return a


FINDERS: dict[str, Any] = {"argmax": np.argmax, "argmin": np.argmin}


@pytest.mark.every(8)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64", "int8", "int32"])
@pytest.mark.parametrize("which", FINDERS)
def test_the_first_of_the_extremes_is_found(which: str, dtype: str) -> None:
    x = oc.placeholder((m, n), dtype, "X")
    for axis, kept in [(-1, False), (0, True)]:
        op = Operator(getattr(ops, which)(x, axis, kept), [x])
        for length, other in [*product(LENGTHS[1:], (1, 17)), (17, 0)]:
            a = tied(dtype, *((other, length) if axis else (length, other)))
            exact = FINDERS[which](a.astype("f8"), axis, keepdims=kept)
            op.check([a], exact, interpreted=(length, other) == (17, 1))
        nothing = op.kernel(tied(dtype, *((3, 0) if axis else (0, 3))))
        assert nothing.dtype == "int64"
        assert (nothing == LAST).all()


def whole(made: Any, x: Any) -> oc.Kernel:
    """The kernel of tensors of `x`, or of a program."""
    return oc.compile(made) if isinstance(made, oc.Program) else oc.compile(made, inputs=[x])


@pytest.mark.every(8)
@pytest.mark.parametrize(
    ("op", "axis", "largest", "count", "dtype"),
    [
        *(
            ("topk", *case, dtype)
            for case in [(-1, True, 5), (0, True, 3), (0, False, 5), (-1, True, 11)]
            for dtype in ("float32", "bfloat16", "int8")
        ),
    ],
)
def test_the_greatest_are_in_order_and_equal_ones_as_they_come(
    op: str, axis: int, largest: bool, count: int, dtype: str
) -> None:
    x = oc.placeholder((m, n), dtype, "X")
    kernel = whole(getattr(ops, op)(x, count, axis, largest), x)
    for length, other in [*product(LENGTHS, (1, 17)), (17, 0)]:
        a = tied(dtype, *((other, length) if axis else (length, other)))
        values, places = kernel(a)
        wide = a.astype("f8")
        key = (-wide if largest else wide, ~np.isnan(wide) if largest else np.isnan(wide))
        order = np.lexsort(key, axis)
        chosen = np.take(order, range(min(count, length)), axis)
        np.testing.assert_array_equal(np.take(places, range(min(count, length)), axis), chosen)
        np.testing.assert_array_equal(
            np.take(values, range(min(count, length)), axis).astype("f8"),
            np.take_along_axis(wide, chosen, axis),
        )
        assert (np.take(places, range(min(count, length), count), axis) == LAST).all()
        if (length, other) == (17, 1):
            for one, wanted in zip(kernel.loops.run({"X": a}), (values, places), strict=True):
                np.testing.assert_array_equal(one.astype("f8"), wanted.astype("f8"))


def in_order(a: Array, axis: int, largest: bool) -> Array:
    """The places of elements in a stable order, NaN being the greatest."""
    wide = a.astype("f8")
    key = (-wide if largest else wide, ~np.isnan(wide) if largest else np.isnan(wide))
    found: Array = np.lexsort(key, axis)
    return found


@pytest.mark.every(7)
@pytest.mark.parametrize(
    ("axis", "largest", "count", "dtype"),
    [
        (-1, True, 5, "float32"),
        (0, False, 11, "float32"),
        (-1, True, 70, "float64"),
        (-1, False, 1, "bfloat16"),
        (0, True, 3, "int8"),
        (-1, False, 5, "uint8"),
        (-1, True, 5, "int64"),
    ],
)
def test_the_kth_and_those_before_it_are_found(
    axis: int, largest: bool, count: int, dtype: str
) -> None:
    x = oc.placeholder((m, n), dtype, "X")
    alone = (m, 1) if axis else (1, n)
    last, place = oc.placeholder(alone, dtype, "L"), oc.placeholder(alone, "int64", "P")
    kth = oc.compile(ops.kth(x, count, axis, largest))
    leading = oc.compile(ops.leading(x, last, place, count, axis, largest))
    for length, other in [*product((*LENGTHS, 65, 200), (1, 5)), (17, 0)]:
        a = tied(dtype, *((other, length) if axis else (length, other)))
        if length < count:
            if other:
                with pytest.raises(oc.CallError, match="leads outside of an array"):
                    kth(a)
            continue
        order = np.take(in_order(a, axis, largest), range(count), axis)
        value, at = kth(a)
        np.testing.assert_array_equal(at, np.take(order, [count - 1], axis))
        np.testing.assert_array_equal(value, np.take_along_axis(a, at, axis))
        values, places = leading(a, value, at)
        np.testing.assert_array_equal(places, order)
        np.testing.assert_array_equal(values, np.take_along_axis(a, order, axis))
        if (length, other) == (17, 1):
            for kernel, given in ((kth, {"X": a}), (leading, {"X": a, "L": value, "P": at})):
                for one, wanted in zip(
                    kernel.loops.run(given), kernel(*given.values()), strict=True
                ):
                    np.testing.assert_array_equal(one.astype("f8"), wanted.astype("f8"))


FAR: dict[str, Any] = {
    "float32": [3e38, -3e38, 1e-45, -1e-45, 1e-38, 1e-30, 2e-30, -0.0, 0.0, np.inf, -np.inf, 7, 8],
    "float64": [1e308, -1e308, 5e-324, 1e-308, 1e-200, -1e-200, -0.0, 0.0, np.inf, -np.inf, 7, 8],
    "int64": [2**63 - 1, -(2**63), 0, -1, 1, 2**62, -(2**62), 7, 2**40, 2**40 + 1],
    "uint64": [2**64 - 1, 0, 1, 2**63, 2**63 + 1, 7, 2**40],
    "int32": [2**31 - 1, -(2**31), 0, -1, 1, 7],
}


@pytest.mark.slow
@pytest.mark.parametrize("largest", [False, True])
@pytest.mark.parametrize("dtype", FAR)
def test_values_far_apart_are_found(dtype: str, largest: bool) -> None:
    """Bounds that are halved end at every one, in the passes that there are."""
    x, a = oc.placeholder((1, n), dtype, "X"), np.array(FAR[dtype], dtype)
    kernel = oc.compile(ops.kth(x, (n + 1) // 2, -1, largest))
    order = np.argsort(a, kind="stable")
    ends = a[order[[-1, 0] if largest else [0, -1]]]
    if largest:
        order = len(a) - 1 - np.argsort(a[::-1], kind="stable")[::-1]
    for count, place in enumerate(
        order, 1
    ):  # with others before or behind it, each is in the middle
        before, behind = max(len(a) - 2 * count, 0), max(2 * count - len(a), 0)
        line = np.concatenate([np.repeat(ends[0], before), a, np.repeat(ends[1], behind)])
        value, _ = kernel(line[None])
        assert value[0, 0] == a[place], (count, before, behind)


@pytest.mark.parametrize("which", ["median", "nanmedian"])
def test_the_middle_is_the_lower_one_or_a_nan(which: str) -> None:
    x = oc.placeholder((m, n), name="X")
    kernel = oc.compile(ops.kth(x, which))
    for length in (*LENGTHS[1:], 64):
        a = tied("float32", 9, length)
        a[5:] = np.round(floats("a", 4, length) * 3)
        order, holes = in_order(a, -1, False), np.isnan(a).sum(-1)
        middle = np.maximum((length - holes + 1) // 2, 1) - 1
        if which == "median":
            middle = np.where(holes > 0, length - holes, (length + 1) // 2 - 1)
        places = np.take_along_axis(order, middle[:, None], -1)
        value, at = kernel(a)
        np.testing.assert_array_equal(at, places)
        np.testing.assert_array_equal(value, np.take_along_axis(a, places, -1))


@pytest.mark.every(8)
@pytest.mark.parametrize(
    ("op", "axis", "descending", "dtype"),
    [
        *(
            ("sort", *case, dtype)
            for case in [(-1, False), (0, False), (-1, True)]
            for dtype in ("float32", "bfloat16", "int8")
        ),
        ("merged", -1, False, "float32"),
        ("merged", -1, False, "float64"),
        ("merged", 0, True, "bfloat16"),
        ("merged", 0, False, "int8"),
    ],
)
def test_all_are_sorted_and_equal_ones_as_they_come(
    op: str, axis: int, descending: bool, dtype: str
) -> None:
    x = oc.placeholder((m, n), dtype, "X")
    kernel = whole(getattr(ops, op)(x, axis, descending), x)
    for length, other in [*product(LENGTHS, (1, 17)), (17, 0), *product((64, 65, 200), (2,))]:
        a = tied(dtype, *((other, length) if axis else (length, other)))
        wide = a.astype("f8")
        key = (-wide if descending else wide, ~np.isnan(wide) if descending else np.isnan(wide))
        order = np.lexsort(key, axis)
        values, places = kernel(a)
        np.testing.assert_array_equal(places, order)
        np.testing.assert_array_equal(values.astype("f8"), np.take_along_axis(wide, order, axis))
        if (length, other) == (17, 1):
            for one, wanted in zip(kernel.loops.run({"X": a}), (values, places), strict=True):
                np.testing.assert_array_equal(one.astype("f8"), wanted.astype("f8"))


def test_the_first_that_holds_is_found() -> None:
    x = oc.placeholder((m, n), "bool", "X")
    op = Operator(ops.argmax(x), [x])
    a = integers("a", "uint8", 7, 53) < 20
    op.check([a], np.argmax(a, -1), interpreted=True)


def test_an_index_that_is_not_read_everywhere_is_asked_where_it_is() -> None:
    x, ids = oc.placeholder((m, 4), name="X"), oc.placeholder((m, 3), "int32", "I")
    rows = oc.placeholder((n, 3), name="R")

    def chosen(i: Any, j: Any) -> Any:
        there = oc.where(ids[i, j] >= 0, rows[oc.index(ids[i, j]), j], x[i, j])
        return oc.where(j < 3, there, x[i, j])

    op = Operator(oc.compute((m, 4), chosen, name="Y"), [x, ids, rows])
    a, r, i = floats("a", 5, 4), floats("r", 7, 3), numbers(7, "int32", 5, 3)
    exact = a.copy()
    for at in zip(*np.nonzero(i >= 0), strict=True):
        exact[at] = r[i[at], at[1]]
    op.check([a, i, r], exact, interpreted=True)
    i[4, 2] = 7
    with pytest.raises(oc.CallError, match="leads outside of an array"):
        op.kernel(a, i, r)
