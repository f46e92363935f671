"""Axes that are read in two parts, ``j // d`` and ``j % d``: where lanes lie in one block of d, they are a vector as any other."""

from __future__ import annotations

import numpy as np
import pytest

import offcut as oc

SHAPES = [(12, 64), (3, 16), (5, 48), (4, 24), (7, 33), (2, 8), (6, 32)]


def heads(count: int, width: int) -> oc.Kernel:
    X = oc.placeholder((count, oc.dim("n", min=0), width), name="X")
    merged = oc.compute(
        (X.shape[1], count * width), lambda i, j: X[j // width, i, j % width] * 2.0, name="C"
    )
    return oc.compile(merged, inputs=[X])


@pytest.mark.every(3)
@pytest.mark.parametrize(("count", "width"), SHAPES)
def test_parts_of_an_axis_are_read_where_they_lie(count: int, width: int) -> None:
    kernel = heads(count, width)
    for rows in (0, 1, 2, 17):
        x = np.random.default_rng(rows).standard_normal((count, rows, width), dtype=np.float32)
        wanted = (2 * x).transpose(1, 0, 2).reshape(rows, count * width)
        np.testing.assert_array_equal(kernel(x), wanted)


@pytest.mark.every(6)
@pytest.mark.parametrize(("count", "width"), SHAPES)
def test_remainders_of_what_is_moved_are_those_of_each_lane(count: int, width: int) -> None:
    n = oc.dim("n", min=0)
    Y = oc.placeholder((n, count * width + 5), name="Y")
    C = oc.compute((n, count * width), lambda i, j: Y[i, j // width * width + j % width + 5])
    D = oc.compute((n, count * width), lambda i, j: Y[i, (j + 16) % width])
    E = oc.compute((n, count * width), lambda i, j: Y[i, (j + 3) // 16])
    j = np.arange(count * width)
    y = np.random.default_rng(0).standard_normal((3, count * width + 5), dtype=np.float32)
    np.testing.assert_array_equal(oc.compile(C, inputs=[Y])(y), y[:, 5:])
    np.testing.assert_array_equal(oc.compile(D, inputs=[Y])(y), y[:, (j + 16) % width])
    np.testing.assert_array_equal(oc.compile(E, inputs=[Y])(y), y[:, (j + 3) // 16])


def test_a_part_is_written_where_it_lies() -> None:
    text = """program split
size n in 0:500
input X: float32[n, 192]
output Y: float32[3, n, 64]
for i in 0:n
  for j in 0:192
    Y[j//64, i, j % 64] = X[i, j]
"""
    kernel = oc.compile(oc.parse(text))
    for rows in (0, 1, 5):
        x = np.random.default_rng(rows).standard_normal((rows, 192), dtype=np.float32)
        np.testing.assert_array_equal(kernel(x), x.reshape(rows, 3, 64).transpose(1, 0, 2))


def test_blocks_are_no_gathers() -> None:
    assert "gather" not in heads(12, 64).source("llvm")


def repeated(share: int, moved: int = 0) -> tuple[oc.Kernel, int]:
    X = oc.placeholder((oc.dim("n", min=0), 64), name="X")
    width = 96 if share < 5 else 80
    C = oc.compute((X.shape[0], width), lambda i, j: X[i, (j + moved) // share] + 1.0, name="C")
    return oc.compile(C, inputs=[X]), width


@pytest.mark.parametrize(
    ("share", "moved"), [(2, 0), (4, 0), (16, 0), (2, 6), (2, 3), (3, 0), (32, 0)]
)
def test_elements_that_lanes_share_are_read_where_they_lie(share: int, moved: int) -> None:
    kernel, width = repeated(share, moved)
    for rows in (0, 1, 5):
        x = np.arange(rows * 64, dtype=np.float32).reshape(rows, 64)
        wanted = x[:, (np.arange(width) + moved) // share] + 1
        np.testing.assert_array_equal(kernel(x), wanted)


def test_what_lanes_share_is_spread_and_not_gathered() -> None:
    assert "gather" not in repeated(2)[0].source("llvm")
    assert "gather" in repeated(3)[0].source("llvm")


def test_shared_elements_past_the_last_lane_are_not_read() -> None:
    X = oc.placeholder((oc.dim("m", min=1),), name="X")
    n = X.shape[0]
    kernel = oc.compile(oc.compute((n * 2,), lambda j: X[j // 2] * 2.0, name="C"), inputs=[X])
    for m in (1, 7, 8, 9, 33):
        page = np.full(m + 1, np.nan, dtype=np.float32)
        page[:m] = np.arange(m)
        np.testing.assert_array_equal(kernel(page[:m]), np.repeat(2 * page[:m], 2))
