"""Places between the elements of images, against a loop over numpy."""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import numpy as np
import pytest

import offcut as oc
from tests.agree import agree, of_peer

CASES = [*product(("linear", "nearest"), ("zeros", "border", "reflection"), (False, True))]
N, C, H, W, A, B = (oc.dim(name, min=0 if name in "ncij" else 1, max=99) for name in "nchwij")


def place(at: float, extent: int, padding: str, corners: bool) -> float:
    found = (at + 1) * (extent - 1) / 2 if corners else ((at + 1) * extent - 1) / 2
    low, high = (0.0, extent - 1.0) if corners else (-0.5, extent - 0.5)
    if padding == "reflection":
        if low == high:
            return 0.0
        while not low <= found <= high:
            found = 2 * low - found if found < low else 2 * high - found
    return found if padding == "zeros" else min(max(found, 0.0), extent - 1.0)


def element(image: Any, y: float, x: float, mode: str) -> float:
    """Of an image with zeros around it."""

    def read(row: int, column: int) -> float:
        inside = 0 <= row < image.shape[0] and 0 <= column < image.shape[1]
        return float(image[row, column]) if inside else 0.0

    if mode == "nearest":
        return read(round(y), round(x))
    top, left = math.floor(y), math.floor(x)
    return sum(
        read(top + a, left + b) * (1 - abs(y - top - a)) * (1 - abs(x - left - b))
        for a in range(2)
        for b in range(2)
    )


@pytest.mark.every(3)
@pytest.mark.parametrize(("mode", "padding", "corners"), CASES)
def test_an_image_is_read_at_places_between_its_elements(
    mode: str, padding: str, corners: bool
) -> None:
    X, G = (
        oc.placeholder(shape, "float64", name=n)
        for n, shape in (("X", (N, C, H, W)), ("G", (N, A, B, 2)))
    )
    made = oc.ops.grid_sample(X, G, mode, padding, align_corners=corners)
    kernel = oc.compile(made, inputs=[X, G])
    for n, c, h, w, i, j in (
        (2, 3, 4, 5, 3, 17),
        (1, 1, 1, 3, 2, 1),
        (1, 2, 2, 1, 1, 65),
        (0, 1, 2, 2, 1, 1),
    ):
        draw = np.random.default_rng(h)
        x, g = draw.standard_normal((n, c, h, w)), draw.standard_normal((n, i, j, 2)) * 1.7
        exact = np.empty((n, c, i, j))
        for a, b, p, q in np.ndindex(exact.shape):
            across, down = g[a, p, q]
            ends = place(down, h, padding, corners), place(across, w, padding, corners)
            exact[a, b, p, q] = element(x[a, b], *ends, mode)
        agree(kernel(x, g), of_peer(exact))


def test_what_lies_outside_adds_nothing_and_no_number_is_outside() -> None:
    X, G = (
        oc.placeholder(shape, "float32", name=n)
        for n, shape in (("X", (N, C, H, W)), ("G", (N, A, B, 2)))
    )
    kernel = oc.compile(oc.ops.grid_sample(X, G), inputs=[X, G])
    grid = np.array([[-9, 0], [1e30, 0], [math.nan, 0], [0, -math.inf]], np.float32)
    made = kernel(np.full((1, 1, 3, 3), math.inf, np.float32), grid[None, None])
    np.testing.assert_array_equal(made, np.zeros((1, 1, 1, 4), np.float32))


def test_a_grid_that_does_not_fit_is_refused() -> None:
    X = oc.placeholder((N, C, H, W), "float32", name="X")
    for other, because in (((N, A, B, 3), "a grid is"), ((H, A, B, 2), "a grid is")):
        with pytest.raises(oc.DescribeError, match=because):
            oc.ops.grid_sample(X, oc.placeholder(other, "float32", name="G"))
    G = oc.placeholder((N, A, B, 2), "float32", name="G")
    with pytest.raises(oc.DescribeError, match="modes are linear, nearest"):
        oc.ops.grid_sample(X, G, "cubic")
    with pytest.raises(oc.DescribeError, match="paddings are zeros, border, reflection"):
        oc.ops.grid_sample(X, G, padding="edge")
