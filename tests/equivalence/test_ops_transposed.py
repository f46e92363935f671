"""Transposed convolutions by phases, against loops over the window in numpy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from compiled import Array, floats
from conftest import slow
from operators import Operator, integers, wide

import offcut as oc
from offcut import ops

SIZES = [(1, 1), (1, 7), (8, 1), (7, 8), (9, 24), (29, 5)]
b = oc.dim("b", max=64)
h, w, z = (oc.dim(name, min=1, max=512) for name in "hwz")


def spread(
    x: Array,
    v: Array,
    stride: tuple[int, ...],
    padding: Sequence[tuple[int, int]],
    more: tuple[int, ...] = (0, 0),
    dilation: tuple[int, ...] = (1, 1),
    groups: int = 1,
) -> Array:
    """The sums in the type of the arrays, (n, c, …) and (c, o/groups, …)."""
    n, c, *size = x.shape
    outer, window = v.shape[1], v.shape[2:]
    full = [
        (e - 1) * s + (k - 1) * d + 1 + m
        for e, s, k, d, m in zip(size, stride, window, dilation, more, strict=True)
    ]
    made = np.zeros((n, groups, outer, *full), x.dtype)
    inner = x.reshape(n, groups, c // groups, *size)
    weights = v.reshape(groups, c // groups, *v.shape[1:])
    for taps in np.ndindex(*window):
        at = tuple(
            slice(tap * d, tap * d + (e - 1) * s + 1, s)
            for tap, d, e, s in zip(taps, dilation, size, stride, strict=True)
        )
        made[(..., *at)] += np.einsum("ngc...,gco->ngo...", inner, weights[(..., *taps)])
    cut = tuple(slice(p, e - q) for (p, q), e in zip(padding, full, strict=True))
    return made.reshape(n, groups * outer, *full)[(..., *cut)]


CASES: dict[str, dict[str, Any]] = {
    "overlapping": {"window": (3, 3), "stride": 2, "padding": 1, "output_padding": 1},
    "even": {"window": (4, 4), "stride": 2, "padding": 1},
    "side by side": {"window": (2, 2), "stride": 2},
    "apart": {"window": (1, 2), "stride": (2, 3), "output_padding": (1, 2)},
    "one by one": {"window": (3, 3), "padding": ((1, 0), (0, 2)), "dilation": (2, 1)},
    "with holes": {"window": (3, 2), "stride": (3, 2), "padding": 1, "dilation": (2, 3)},
    "far": {"window": (7, 5), "stride": (3, 2), "padding": (3, 1)},
}


@pytest.mark.every(12)
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("case", CASES)
def test_every_element_is_spread_over_its_window(case: str, layout: str) -> None:
    given = dict(CASES[case])
    window, first = given.pop("window"), layout == "NCHW"
    x = oc.placeholder((b, 3, h, w) if first else (b, h, w, 3), name="X")
    v = oc.placeholder((3, 5, *window) if first else (*window, 3, 5), name="V")
    op = Operator(ops.conv_transpose2d(x, v, layout=layout, **given), [x, v])

    def both(label: str, default: int) -> Any:
        found = given.get(label, default)
        return (found, found) if isinstance(found, int) else found

    padding = both("padding", 0)
    if isinstance(padding[0], int):
        padding = tuple((p, p) for p in padding)
    for size in SIZES:
        a, f = floats("a", 2, 3, *size), floats("f", 3, 5, *window)
        exact = spread(
            *wide(a, f),
            both("stride", 1),
            padding,
            both("output_padding", 0),
            both("dilation", 1),
        )
        arrays = [a, f]
        if not first:
            arrays = [np.moveaxis(a, 1, -1).copy(), f.transpose(2, 3, 0, 1).copy()]
            exact = np.moveaxis(exact, 1, -1)
        op.check(arrays, exact, interpreted=size == (8, 1))


@pytest.mark.every(2)
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_groups_spread_into_their_own_channels_and_ends_follow(layout: str) -> None:
    first = layout == "NCHW"
    x = oc.placeholder((b, 4, h, w) if first else (b, h, w, 4), name="X")
    v = oc.placeholder((4, 3, 3, 3) if first else (3, 3, 4, 3), name="V")
    bias = oc.placeholder((6,), name="B")
    residual = oc.placeholder((b, 6, 2 * h, 2 * w) if first else (b, 2 * h, 2 * w, 6), name="R")
    result = ops.conv_transpose2d(
        x, v, bias, 2, 1, 1, groups=2, layout=layout, activation="relu", residual=residual
    )
    op = Operator(result, [x, v, bias, residual])
    for size in SIZES:
        a, f, c = floats("a", 2, 4, *size), floats("f", 4, 3, 3, 3), floats("c", 6)
        r = floats("r", 2, 6, 2 * size[0], 2 * size[1])
        sums = spread(*wide(a, f), (2, 2), ((1, 1), (1, 1)), (1, 1), groups=2)
        exact = np.maximum(sums + c[:, None, None], 0) + r
        arrays = [a, f, c, r]
        if not first:
            arrays = [np.moveaxis(a, 1, -1), f.transpose(2, 3, 0, 1), c, np.moveaxis(r, 1, -1)]
            exact = np.moveaxis(exact, 1, -1)
        op.check([np.ascontiguousarray(one) for one in arrays], exact, interpreted=size == (8, 1))


def test_integers_of_any_width_are_spread() -> None:
    for dtype in ("uint16", "int64", "uint64"):
        x, v = oc.placeholder((b, 2, h, w), dtype, "X"), oc.placeholder((2, 3, 2, 2), dtype, "V")
        op = Operator(ops.conv_transpose2d(x, v, stride=2), [x, v])
        a, f = (
            integers(name, "int8", *shape) % 9
            for name, shape in (("a", (2, 2, 3, 4)), ("f", (2, 3, 2, 2)))
        )
        exact = spread(a.astype("i8"), f.astype("i8"), (2, 2), ((0, 0), (0, 0)))
        op.check([a.astype(dtype), f.astype(dtype)], exact)


@pytest.mark.every(4)
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("size", [3, 4])
def test_phases_are_products_by_microkernels(size: int, layout: str) -> None:
    first = layout == "NCHW"
    x = oc.placeholder((b, 64, h, w) if first else (b, h, w, 64), name="X")
    v = oc.placeholder((64, 32, size, size) if first else (size, size, 64, 32), name="V")
    weights = floats("v", *map(int, v.shape))
    y = ops.conv_transpose2d(x, v, stride=2, padding=1, layout=layout, name="Y")
    plan = oc.compile(y, inputs=[x, v], constants={"V": weights}).plan(b=2, h=28, w=28)
    assert "no sum runs by a microkernel" not in str(plan)


@pytest.mark.parametrize("layout", ["NCDHW", slow("NDHWC")])
def test_every_element_of_a_volume_is_spread_over_its_window(layout: str) -> None:
    first, window = layout == "NCDHW", (2, 3, 2)
    x = oc.placeholder((b, 4, z, h, w) if first else (b, z, h, w, 4), name="X")
    v = oc.placeholder((4, 3, *window) if first else (*window, 4, 3), name="V")
    bias = oc.placeholder((6,), name="B")
    stride, padding, more, dilation = (1, 2, 3), ((0, 1), (1, 1), (0, 0)), (0, 1, 2), (2, 1, 1)
    result = ops.conv_transpose3d(
        x, v, bias, stride, padding, more, dilation, 2, layout, activation="relu"
    )
    op = Operator(result, [x, v, bias])
    for size in [(1, 1, 1), (3, 7, 2), (2, 4, 9)]:
        a, f, c = floats("a", 2, 4, *size), floats("f", 4, 3, *window), floats("c", 6)
        sums = spread(*wide(a, f), stride, padding, more, dilation, groups=2)
        exact = np.maximum(sums + c[:, None, None, None], 0)
        if not first:
            a, f = np.moveaxis(a, 1, -1).copy(), f.transpose(2, 3, 4, 0, 1).copy()
            exact = np.moveaxis(exact, 1, -1)
        op.check([a, f, c], exact, interpreted=size == (1, 1, 1))
