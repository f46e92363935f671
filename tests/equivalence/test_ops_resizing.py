"""Images stretched and shrunk, against the formulas in float64."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pytest
from compiled import Array, floats
from conftest import slow
from operators import Operator, integers

import offcut as oc
from offcut import ops
from tests.agree import agree, of_peer

b, h, w = (oc.dim(name, max=512) for name in "bhw")
high, across = oc.dim("high", max=512), oc.dim("across", max=512)
SIZES = [(1, 1), (1, 7), (8, 1), (7, 8), (9, 24), (29, 5)]


def places(length: int, count: int, scale: Fraction | None, corners: bool) -> Array:
    """Where each place lies among the elements."""
    i = np.arange(count, dtype="float64")
    if corners:
        return np.asarray(i * (length - 1) / max(count - 1, 1))
    ratio = count / max(length, 1) if scale is None else float(scale)
    return np.asarray(np.clip((i + 0.5) / ratio - 0.5, 0, max(length - 1, 0)))


def stretched(x: Array, axis: int, count: int, scale: Fraction | None, corners: bool) -> Array:
    length = x.shape[axis]
    at = places(length, count, scale, corners)
    first = at.astype(int)
    share = (at - first).reshape([-1 if n == axis else 1 for n in range(x.ndim)])
    second = np.minimum(first + 1, length - 1)
    return np.asarray(np.take(x, first, axis) * (1 - share) + np.take(x, second, axis) * share)


SCALES: list[Any] = [2, (1.5, 0.5), (0.25, 3)]


@pytest.mark.every(8)
@pytest.mark.parametrize("layout", [None, "NHWC"])
@pytest.mark.parametrize("scale", SCALES, ids=str)
def test_an_image_is_scaled(scale: Any, layout: str | None) -> None:
    x = oc.placeholder((b, 3, h, w) if layout is None else (b, h, w, 3), name="X")
    linear = {
        corners: Operator(ops.interpolate(x, None, scale, "linear", corners, layout), [x])
        for corners in (False, True)
    }
    nearest = Operator(ops.interpolate(x, scale=scale, layout=layout), [x])
    ratios = [Fraction(s) for s in (scale if isinstance(scale, tuple) else (scale, scale))]
    for size in SIZES:
        a = floats("a", 2, 3, *size)
        given = a if layout is None else np.ascontiguousarray(np.moveaxis(a, 1, -1))
        counts = [int(n * ratio) for n, ratio in zip(size, ratios, strict=True)]
        rows, columns = (
            (np.arange(count) / ratio).astype(float).astype(int)
            for count, ratio in zip(counts, ratios, strict=True)
        )
        found = a[:, :, rows][:, :, :, columns]
        nearest.check(
            [given], found if layout is None else np.moveaxis(found, 1, -1), size == (8, 1)
        )
        for corners, op in linear.items():
            exact = a.astype("f8")
            for axis, count, ratio in zip((2, 3), counts, ratios, strict=True):
                exact = stretched(exact, axis, count, ratio, corners)
            exact = exact if layout is None else np.moveaxis(exact, 1, -1)
            op.check([given], exact, interpreted=size == (8, 1))


@pytest.mark.every(2)
@pytest.mark.parametrize("given", [slow((9, 4)), slow((high, 4)), (high, across), (h, w)], ids=str)
def test_an_image_is_brought_to_a_size(given: Any) -> None:
    for shape in [(h, w), (5, 7)]:
        if given == (h, w) and shape == (5, 7):
            continue
        x = oc.placeholder((b, 3, *shape), name="X")
        for mode, corners in [("nearest", False), ("linear", False), ("linear", True)]:
            op = Operator(ops.interpolate(x, given, mode=mode, align_corners=corners), [x])
            for own in SIZES if shape == (h, w) else [shape]:
                for counts in [(9, 4), (1, 17), (15, 1)]:
                    wanted = [
                        int(part)
                        if isinstance(part, int)
                        else {high: counts[0], across: counts[1]}.get(part, n)
                        for part, n in zip(given, own, strict=True)
                    ]
                    a = floats("a", 2, 3, *own)
                    exact = a.astype("f8")
                    for axis, count in zip((2, 3), wanted, strict=True):
                        if mode == "linear":
                            exact = stretched(exact, axis, count, None, corners)
                        else:
                            n = a.shape[axis]
                            exact = np.take(exact, [i * n // count for i in range(count)], axis)
                    named = {
                        size.name: count
                        for size, count in ((high, counts[0]), (across, counts[1]))
                        if size in given
                    }
                    found = op.kernel(a, **named)
                    assert found.shape == exact.shape
                    agree(found, exact, terms=np.abs(a).max(initial=0), units=16)


def cubic(x: Array, axis: int, count: int, scale: Fraction | None, corners: bool) -> Array:
    """The four elements around each place, the ends going on outwards, by the kernel of Keys."""
    length, i = x.shape[axis], np.arange(count, dtype="float64")
    ratio = count / max(length, 1) if scale is None else float(scale)
    at = i * (length - 1) / max(count - 1, 1) if corners else (i + 0.5) / ratio - 0.5
    total = np.zeros(tuple(count if n == axis else e for n, e in enumerate(x.shape)))
    for step in (-1, 0, 1, 2):
        place = np.floor(at) + step
        d = np.abs(at - place)
        near, far = 1.25 * d**3 - 2.25 * d**2 + 1, -0.75 * (d**3 - 5 * d**2 + 8 * d - 4)
        weight = np.where(d <= 1, near, far).reshape(
            [-1 if n == axis else 1 for n in range(x.ndim)]
        )
        total += np.take(x, np.clip(place, 0, length - 1).astype(int), axis) * weight
    return total


@pytest.mark.parametrize(
    ("scale", "size", "corners"),
    [(2, None, False), slow((1.5, 0.25), None, True), slow(None, (high, across), False)],
)
def test_an_image_is_scaled_between_four_elements(scale: Any, size: Any, corners: bool) -> None:
    x = oc.placeholder((b, 3, h, w), name="X")
    op = Operator(ops.interpolate(x, size, scale, "cubic", corners), [x])
    for own in SIZES:
        a = floats("a", 2, 3, *own)
        ratios = scale if isinstance(scale, tuple) else (scale, scale)
        each = [None if size else Fraction(ratio) for ratio in ratios]
        counts = [9, 4] if size else [int(n * r) for n, r in zip(own, each, strict=True)]  # type: ignore[operator]
        exact = a.astype("f8")
        for axis, count, ratio in zip((2, 3), counts, each, strict=True):
            exact = cubic(exact, axis, count, ratio, corners)
        found = op.kernel(a, **({"high": 9, "across": 4} if size else {}))
        assert found.shape == exact.shape
        agree(found, exact, terms=np.abs(a).max(initial=0), units=16)


def test_any_type_is_moved_and_floats_are_rounded_once() -> None:
    x = oc.placeholder((b, 3, w), "int8", "X")
    a = integers("a", "int8", 2, 3, 7)
    Operator(ops.interpolate(x, scale=3), [x]).check([a], a.repeat(3, -1), interpreted=True)
    y = oc.placeholder((b, 3, w), "bfloat16", "Y")
    c = floats("a", 2, 3, 7, dtype="bfloat16")
    exact = stretched(c.astype("f8"), 2, 14, Fraction(2), False)
    Operator(ops.interpolate(y, scale=2, mode="linear"), [y]).check([c], exact, interpreted=True)


# Places between the elements of images, against a loop over numpy.


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
