"""Elements that lie a few apart in a row: whole vectors are loaded for them, nothing past the last, and nothing where lanes are off."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from compiled import Array
from guarded import before_a_wall, behind_a_wall

import offcut as oc
from tests.facade import numpy_dtype

TYPES = ["float32", "float64", "bfloat16", "float16", "int8", "int32", "int64", "bool"]
SIZES = [0, 1, 3, 15, 16, 17, 31, 32, 33, 63, 64, 65, 130]

APART = """program apart
size n in 1:5000
input A: float32[{step}*n - {spare}]
output B: float32[n]
output D: float32[n]
for i in 0:n
  B[i] = A[{step}*i + {start}]
for i in 0:n
  D[i] = where(B[i] > 0.0, A[{step}*i + {start}], -1.0)
"""


@pytest.mark.every(8)
@pytest.mark.parametrize(
    ("dtype", "step"), [*((dtype, 3) for dtype in TYPES), *(("float32", n) for n in (2, 4, 5))]
)
def test_every_few_elements_of_a_row_are_read(dtype: str, step: int) -> None:
    n, m = oc.dim("n", min=0), oc.dim("m", min=0)
    X = oc.placeholder((n, step * m), dtype, name="X")
    for start in (0, step - 1):
        taken = oc.compute((n, m), lambda i, j, start=start: X[i, step * j + start], name="Y")
        kernel = oc.compile(taken, inputs=[X])
        for count in SIZES:
            x = np.arange(3 * step * count).reshape(3, step * count).astype(numpy_dtype(dtype))
            np.testing.assert_array_equal(kernel(x), x[:, start::step])


@pytest.mark.parametrize("wall", [before_a_wall, behind_a_wall])
@pytest.mark.parametrize(("step", "start"), [(2, 0), (2, 1), (3, 0), (4, 2)])
def test_reads_a_few_apart_stay_inside(
    step: int, start: int, wall: Callable[[Array], Array]
) -> None:
    spare = step - 1 - start  # elements behind the last that is read
    kernel = oc.compile(oc.parse(APART.format(step=step, start=start, spare=spare)))
    for count in SIZES[1:]:
        a = wall(np.random.default_rng(count).standard_normal(step * count - spare, np.float32))
        b, d = kernel(a)
        wanted = a[start::step][:count]
        np.testing.assert_array_equal(b, wanted)
        np.testing.assert_array_equal(d, np.where(wanted > 0, wanted, np.float32(-1)))


def test_a_few_apart_are_picked_out_of_vectors() -> None:
    n = oc.dim("n", min=0)
    X = oc.placeholder((n, 200), name="X")
    halved = oc.compile(oc.compute((n, 100), lambda i, j: X[i, 2 * j], name="Y"), inputs=[X])
    text = halved.source("llvm")
    assert "gather" not in text
    assert "shufflevector" in text
