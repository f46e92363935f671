"""A vector of which one lane is stored writes that element alone: nothing behind the array."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import offcut as oc
from offcut import ops
from tests.facade import numpy_dtype

Array = np.ndarray[Any, Any]
GUARD = 64


def inside_guards(shape: tuple[int, ...], dtype: np.dtype[Any]) -> tuple[Array, Array]:
    """Return bytes, all of them 0xA5, and the array that lies in their middle."""
    size = int(np.prod(shape)) * dtype.itemsize
    around = np.full(size + 2 * GUARD, 0xA5, np.uint8)
    return around, around[GUARD : GUARD + size].view(dtype).reshape(shape)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "int8", "int32"])
@pytest.mark.parametrize("rows", [1, 3, 17])
def test_nothing_behind_a_result_is_written(dtype: str, rows: int) -> None:
    x = oc.placeholder((rows, oc.dim("n", min=0, max=99)), dtype, name="x")
    kernel = oc.compile(ops.transpose(x, (1, 0)), inputs=[x])
    for n in (0, 1, 15, 16, 17, 48, 53):
        array = np.arange(rows * n).reshape(rows, n).astype(numpy_dtype(dtype))
        around, result = inside_guards((n, rows), array.dtype)
        kernel(array, out=result)
        np.testing.assert_array_equal(result, array.T)
        assert (around[:GUARD] == 0xA5).all()
        assert (around[-GUARD:] == 0xA5).all()


@pytest.mark.parametrize("columns", [1, 9, 17, 33])
@pytest.mark.parametrize(("wide", "narrow"), [("int32", "int8"), ("float32", "bfloat16")])
def test_nothing_behind_what_is_converted_is_written(wide: str, narrow: str, columns: int) -> None:
    n = oc.dim("n", min=0, max=99)
    x = oc.placeholder((n, columns), wide, name="x")
    y = oc.compute((n, columns), lambda i, j: (x[i, j] + 1).astype(narrow), name="y")
    kernel = oc.compile(y, inputs=[x], strategy={"j": "mask"})
    for rows in (0, 1, 5, 17):
        array = (np.arange(rows * columns).reshape(rows, columns) % 99).astype(wide)
        around, result = inside_guards((rows, columns), np.dtype(numpy_dtype(narrow)))
        kernel(array, out=result)
        np.testing.assert_array_equal(result.astype(wide), array + 1)
        assert (around[:GUARD] == 0xA5).all()
        assert (around[-GUARD:] == 0xA5).all()
