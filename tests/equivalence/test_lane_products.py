"""Convolutions channel by channel, channels last: lanes along channels, padding outside of the loops."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from compiled import floats
from operators import Operator, wide
from test_ops_images import Window, convolved, last

import offcut as oc
from offcut import ops
from offcut.ir import Select, Store, Tile, expressions, walk
from offcut.ir import walk as statements

CHANNELS = 37  # two registers of 16 lanes, and some lanes of a third
b, h, w = (oc.dim(name, max=512) for name in "bhw")


def by_channel(stride: int, size: int = 3, channels: int = CHANNELS) -> Operator:
    """``relu(x convolved with v, channel by channel, + bias)`` of images of any size."""
    x = oc.placeholder((b, h, w, channels), name="X")
    v = oc.placeholder((size, size, 1, channels), name="V")
    bias = oc.placeholder((channels,), name="bias")
    options = {"stride": stride, "padding": size // 2, "groups": channels, "layout": "NHWC"}
    return Operator(ops.conv2d(x, v, bias, activation="relu", **options), [x, v, bias])


@pytest.mark.every(4)
@pytest.mark.parametrize(("stride", "size"), [(1, 3), (2, 3), (1, 5)])
def test_lanes_run_along_channels_and_no_condition_stays(stride: int, size: int) -> None:
    op = by_channel(stride, size)
    text = op.kernel.loops
    tiles = [stmt for stmt in statements(text.body) if isinstance(stmt, Tile)]
    sums = [s for s in statements(text.body) if isinstance(s, Store) and s.reduce == "sum"]
    inside = [s for t in tiles for s in statements(t.body) if isinstance(s, Store) and s.reduce]
    assert len(sums) == len(inside) > 1
    assert not any(
        isinstance(node, Select)
        for stmt in statements(text.body)
        for expr in expressions(stmt)
        for node in walk(expr)
    )
    window = Window((size, size), (stride, stride), ((size // 2,) * 2,) * 2)
    for batch, (high, across) in product((0, 1, 2, 3), ((1, 1), (2, 5), (3, 3), (7, 8))):
        a, f, c = floats("a", batch, CHANNELS, high, across), *weights(size)
        exact = convolved(*wide(a, f), window, CHANNELS) + wide(c)[0][:, None, None]
        given = [last(a), np.ascontiguousarray(f.transpose(2, 3, 1, 0)), c]
        op.check(given, last(np.maximum(exact, 0)), interpreted=batch == 1 and high < 3)


def weights(size: int) -> tuple[np.ndarray, np.ndarray]:
    """A window for each channel, and a bias."""
    return floats("f", CHANNELS, 1, size, size), floats("c", CHANNELS)
