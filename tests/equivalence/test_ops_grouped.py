"""Products of groups of rows against numpy in float64."""

from __future__ import annotations

import numpy as np
import pytest
from compiled import floats
from operators import Operator

import offcut as oc
from offcut import ops
from tests.facade import numpy_dtype

s = oc.dim("s", max=4096)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_each_row_is_multiplied_by_the_matrix_of_its_group(dtype: str) -> None:
    x, w = oc.placeholder((s, 20), dtype, "X"), oc.placeholder((4, 20, 33), dtype, "W")
    ends = oc.placeholder((4,), "int32", "E")
    op = Operator(ops.grouped_matmul(x, w, ends), [x, w, ends])
    b = floats("w", 4, 20, 33).astype(numpy_dtype(dtype))
    for rows, last in ([0, 0, 0, 0], 0), ([0, 1, 1, 1], 1), ([2, 2, 9, 17], 17), ([0, 5, 6, 7], 13):
        a = floats("x", last, 20).astype(numpy_dtype(dtype))
        exact = np.zeros((last, 33))
        for group, (begin, end) in enumerate(zip([0, *rows[:-1]], rows, strict=True)):
            exact[begin:end] = a[begin:end].astype("f8") @ b[group].astype("f8")
        op.check([a, b, np.array(rows, "int32")], exact, interpreted=last == 1)
