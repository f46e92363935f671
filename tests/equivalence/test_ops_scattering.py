"""Elements put where integers say, against loops in numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from compiled import Array, floats
from operators import Operator, integers

import offcut as oc
from offcut import ops
from offcut.errors import CallError
from tests.facade import numpy_dtype

b, m, n = (oc.dim(name, max=512) for name in "bmn")
SIZES = [(1, 0), (1, 1), (15, 3), (17, 17), (16, 53)]
COMBINED: dict[str | None, Any] = {
    None: lambda old, new: new,
    "add": lambda old, new: old + new,
    "mul": lambda old, new: old * new,
    "max": max,
    "min": min,
}


def numbers(count: int, dtype: str, *shape: int) -> Array:
    """Numbers from -count to count - 1."""
    return (integers("i", "int32", *shape) % (2 * count) - count).astype(dtype)


@pytest.mark.every(3)
@pytest.mark.parametrize("reduction", COMBINED, ids=str)
@pytest.mark.parametrize("axis", [0, -1])
def test_updates_go_to_their_places_along_an_axis(axis: int, reduction: str | None) -> None:
    x = oc.placeholder((n, 4) if axis == 0 else (4, n), name="X")
    shape = (m, 3) if axis == 0 else (3, m)
    ids, updates = oc.placeholder(shape, "int64", "I"), oc.placeholder(shape, name="U")
    op = Operator(ops.scatter_elements(x, ids, updates, axis, reduction), [x, ids, updates])
    for length, count in SIZES:
        a = floats("a", *((length, 4) if axis == 0 else (4, length)))
        own = (count, 3) if axis == 0 else (3, count)
        i, u = numbers(length, "int64", *own), floats("u", *own)
        exact = a.astype("f8")
        for at in np.ndindex(*own):
            to = (i[at], at[1]) if axis == 0 else (at[0], i[at])
            exact[to] = COMBINED[reduction](exact[to], np.float64(u[at]))
        op.check([a, i, u], exact, interpreted=(length, count) == (15, 3))


@pytest.mark.every(8)
@pytest.mark.parametrize("reduction", COMBINED, ids=str)
@pytest.mark.parametrize("columns", [1, 2])
def test_rows_go_to_places_of_several_axes(columns: int, reduction: str | None) -> None:
    x = oc.placeholder((n, 5, b), name="X")
    ids = oc.placeholder((m, columns), "int32", "I")
    updates = oc.placeholder((m, *x.shape[columns:]), name="U")
    op = Operator(ops.scatter_nd(x, ids, updates, reduction), [x, ids, updates])
    for length, count in SIZES:
        a = floats("a", length, 5, 3)
        i = np.stack([numbers(c, "int32", count) for c in (length, 5)[:columns]], axis=1)
        u = floats("u", count, *a.shape[columns:])
        exact = a.astype("f8")
        for k in range(count):
            for rest in np.ndindex(*u.shape[1:]):
                to = (*i[k], *rest)
                exact[to] = COMBINED[reduction](exact[to], np.float64(u[(k, *rest)]))
        op.check([a, i, u], exact, interpreted=(length, count) == (15, 3))


@pytest.mark.parametrize(
    ("dtype", "index"),
    [*(("bfloat16", "uint8"), ("float64", "uint32"), ("int8", "uint16"), ("uint64", "int16"))],
)
def test_elements_of_any_type_are_put(dtype: str, index: str) -> None:
    x, ids = oc.placeholder((n,), dtype, "X"), oc.placeholder((m,), index, "I")
    updates = oc.placeholder((m,), dtype, "U")
    op = Operator(ops.scatter_elements(x, ids, updates), [x, ids, updates])
    a, u = (integers(s, "int8", c).astype(numpy_dtype(dtype)) for s, c in (("a", 17), ("u", 5)))
    exact = a.copy()
    exact[[3, 0, 16, 3]] = u[[0, 1, 2, 4]]
    op.check([a, np.array([3, 0, 16, 200, 3], index), u], exact, interpreted=True)


@pytest.mark.every(2)
@pytest.mark.parametrize(
    ("reduction", "dtype", "exact"),
    [
        ("add", "float16", [2049.0 + 1.0, 0.0, 2.0]),  # 2049 is no float16: the sum is rounded once
        ("add", "int8", [-128, 0, 2]),
        ("add", "bool", [True, False, True]),
        ("min", "bool", [False, False, True]),
    ],
)
def test_what_is_reduced_is_rounded_once(
    reduction: str, dtype: str, exact: list[float | bool]
) -> None:
    x, ids = oc.placeholder((n,), dtype, "X"), oc.placeholder((m,), "int32", "I")
    updates = oc.placeholder((m,), dtype, "U")
    kernel = oc.compile(ops.scatter_elements(x, ids, updates, 0, reduction))
    first = {"float16": 2048, "int8": 126}.get(dtype, 1)
    a = np.array([first, 0, 2]).astype(dtype)
    u = np.array([1, 1]).astype(dtype)
    if reduction == "min":
        u[1] = False
    found = kernel(a, np.zeros(2, "int32"), u)
    np.testing.assert_array_equal(found, np.array(exact).astype(dtype))


def test_an_operand_that_is_computed_is_refused() -> None:
    x, ids = oc.placeholder((n,), name="X"), oc.placeholder((m,), "int32", "I")
    updates = oc.placeholder((m,), name="U")
    with pytest.raises(oc.DescribeError, match="computed, and a program reads placeholders"):
        ops.scatter_elements(ops.relu(x), ids, updates)


@pytest.mark.parametrize("rows", [False, True], ids=["elements", "rows"])
@pytest.mark.parametrize("from_end", [True, False])
@pytest.mark.parametrize("drop", [True, False])
def test_an_index_outside_is_dropped_or_refused(rows: bool, from_end: bool, drop: bool) -> None:
    x, ids = oc.placeholder((n, 3), name="X"), oc.placeholder((m, 1), "int64", "I")
    updates = oc.placeholder((m, 3 if rows else 1), name="U")
    put = ops.scatter_nd if rows else ops.scatter_elements
    kernel = oc.compile(put(x, ids, updates, from_end=from_end, drop=drop))
    a, u = np.zeros((4, 3), "f4"), np.ones((1, 3 if rows else 1), "f4")
    for index in (-(2**63), -8, -5, -4, -1, 0, 3, 4, 2**63 - 1):
        inside = (-4 if from_end else 0) <= index < 4
        if not inside and not drop:
            with pytest.raises(CallError, match="leads outside of an array"):
                kernel(a, np.array([[index]]), u)
            continue
        wanted = a.copy()
        if inside:
            wanted[index, : u.shape[1]] = 1
        np.testing.assert_array_equal(kernel(a, np.array([[index]]), u), wanted)
