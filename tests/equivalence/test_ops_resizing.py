"""Images stretched and shrunk, against the formulas in float64."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from compiled import Array, floats
from conftest import slow
from operators import Operator, integers

import offcut as oc
from offcut import ops
from tests.agree import agree

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
