"""Elements padded, reversed, repeated and counted, against numpy."""

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
from tests.facade import INTEGERS, numpy_dtype

LENGTHS = edge_sizes(16)
b, m, n = (oc.dim(name, max=4096) for name in "bmn")


def elements(dtype: str, *shape: int) -> Array:
    if dtype in INTEGERS:
        return integers("a", dtype, *shape)
    return floats("a", *shape, dtype=dtype)


@pytest.mark.parametrize(
    ("before", "after", "value"),
    [((1, 2), (0, 3), 0.0), ((0, 0), (0, 0), 1.0), ((2, -1), (-2, 1), -np.inf)],
)
def test_a_value_is_put_around_and_elements_left_out(before: Any, after: Any, value: float) -> None:
    least = 2 if -2 in after else 0
    x = oc.placeholder((oc.dim("m", min=least, max=4096), oc.dim("n", min=1, max=99)), name="X")
    op = Operator(ops.pad(x, before, after, value), [x])
    for rows, columns in [*product(LENGTHS, (1, 17)), *product((2, 17), LENGTHS)]:
        if rows < least or columns < 1:
            continue
        a = floats("a", rows, columns)
        widths = [(max(p, 0), max(q, 0)) for p, q in zip(before, after, strict=True)]
        cut = tuple(
            slice(max(-p, 0), size + w[0] + w[1] - max(-q, 0))
            for p, q, size, w in zip(before, after, a.shape, widths, strict=True)
        )
        exact = np.pad(a, widths, constant_values=value)[cut]
        op.check([a], exact, interpreted=(rows, columns) == (17, 1))


def test_a_value_of_the_call_is_put_around() -> None:
    x, value = oc.placeholder((n, 5), "uint8", name="X"), oc.placeholder((), "uint8", name="V")
    op = Operator(ops.pad(x, (1, 0), (2, 3), value), [x, value])
    for rows in (0, 1, 17):
        a, around = integers("a", "uint8", rows, 5), np.array(rows + 7, "uint8")
        exact = np.pad(a, ((1, 2), (0, 3)), constant_values=around)
        op.check([a, around], exact, interpreted=rows == 1)


@pytest.mark.parametrize("mode", ["edge", "reflect"])
def test_the_edge_is_repeated_or_mirrored(mode: str) -> None:
    high, across = oc.dim("h", min=4, max=512), oc.dim("w", min=3, max=512)
    x = oc.placeholder((b, high, across), name="X")
    before, after = (0, 3, 1), (0, 2, 2)
    op = Operator(ops.pad(x, before, after, mode=mode), [x])
    for rows, columns in [(4, 3), (16, 17), (53, 15)]:
        a = floats("a", 2, rows, columns)
        exact = np.pad(a, list(zip(before, after, strict=True)), mode=mode)  # type: ignore[call-overload]
        op.check([a], exact, interpreted=rows == 4)


def test_what_is_mirrored_has_to_be_there() -> None:
    x = oc.placeholder((n,), name="X")
    with pytest.raises(oc.PartitionError, match=r"n = 0"):
        oc.compile(ops.pad(x, 1, 1, mode="edge"), inputs=[x])


@pytest.mark.every(4)
@pytest.mark.parametrize("dtype", ["bfloat16", "float64", "int8", "int32"])
def test_elements_of_any_type_are_moved(dtype: str) -> None:
    x = oc.placeholder((m, n), dtype, "X")
    moved = {
        "pad": (ops.pad(x, 1, (0, 2), 3), lambda a: np.pad(a, ((1, 0), (1, 2)), constant_values=3)),
        "flip": (ops.flip(x), lambda a: a[::-1, ::-1]),
        "repeat": (ops.repeat(x, (2, 3)), lambda a: np.tile(a, (2, 3))),
    }
    for rows, columns in [(0, 5), (1, 1), (17, 15)]:
        a = elements(dtype, rows, columns)
        for result, exact in moved.values():
            Operator(result, [x]).check([a], exact(a), interpreted=rows == 1)


@pytest.mark.parametrize("axes", [None, 0, -1, (0, 2)])
def test_axes_are_reversed(axes: Any) -> None:
    x = oc.placeholder((b, m, n), name="X")
    op = Operator(ops.flip(x, axes), [x])
    for length in LENGTHS:
        a = floats("a", 2, 3, length)
        op.check([a], np.flip(a, axes), interpreted=length == 17)


@pytest.mark.every(4)
@pytest.mark.parametrize("counts", [(1, 1), (2, 1), (0, 3), (3, 4)])
def test_a_tensor_is_repeated_along_axes(counts: tuple[int, int]) -> None:
    for shape in [(m, n), (3, n), (m, 1)]:
        x = oc.placeholder(shape, name="X")
        op = Operator(ops.repeat(x, counts), [x])
        for length in LENGTHS:
            a = floats("a", 3, 1 if shape[1] == 1 else length)
            op.check([a], np.tile(a, counts), interpreted=length == 1)


@pytest.mark.parametrize("dtype", ["int64", "float32", "bfloat16"])
def test_places_are_counted(dtype: str) -> None:
    kernel = oc.compile(ops.iota(2 * n + 1, dtype), inputs=[])
    for length in LENGTHS:
        found = kernel(n=length)
        assert found.dtype == numpy_dtype(dtype)
        np.testing.assert_array_equal(found, np.arange(2 * length + 1).astype(numpy_dtype(dtype)))


@pytest.mark.every(3)
@pytest.mark.parametrize("dtype", INDEX_DTYPES)
def test_an_integer_is_one_of_several(dtype: str) -> None:
    ids = oc.placeholder((b, m), dtype, "I")
    op = Operator(ops.one_hot(ids, n, "int32" if dtype == "int8" else "float32"), [ids])
    for length, depth in [*product(LENGTHS, (0, 7)), (17, 300)]:
        a = integers("a", "uint8", 2, length).astype(dtype)
        a.flat[::5] = integers("b", dtype, a.flat[::5].size)
        exact = (a.astype("int64")[..., None] == np.arange(depth)).astype(
            "int32" if dtype == "int8" else "float32"
        )
        kernel = op.kernel
        np.testing.assert_array_equal(kernel(a, n=depth), exact)


MODES = {"constant": {}, "edge": {"mode": "edge"}}


@pytest.mark.parametrize("mode", MODES)
def test_padding_follows_a_computed_tensor(mode: str) -> None:
    length = oc.dim("n", min=1, max=512)
    x = oc.placeholder((length,), name="X")
    op = Operator(ops.pad(ops.flip(x), 2, 1, **MODES[mode]), [x])  # type: ignore[arg-type]
    for size in [s for s in LENGTHS if s]:
        a = floats("a", size)
        op.check([a], np.pad(a[::-1], (2, 1), mode=mode), interpreted=size == 1)  # type: ignore[call-overload]
