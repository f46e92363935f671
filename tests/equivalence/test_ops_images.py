"""Convolutions and pooling against loops over the window in numpy, with random parameters; channel by channel with lanes along channels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np
import pytest
from compiled import Array, floats
from conftest import slow
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from operators import Operator, integers, wide

import offcut as oc
from offcut import ops
from offcut.ir import Select, Store, Tile, expressions, walk

b, h, w = (oc.dim(name, max=512) for name in "bhw")
SIZES = [(1, 1), (1, 7), (8, 1), (7, 8), (9, 24), (29, 5)]


@dataclass(frozen=True)
class Window:
    """Parameters of a convolution or of pooling with `size` elements along its axes."""

    size: tuple[int, ...] = (3, 3)
    stride: tuple[int, ...] = (1, 1)
    padding: Any = ((0, 0), (0, 0))
    dilation: tuple[int, ...] = (1, 1)

    def pads(self, shape: Sequence[int]) -> list[tuple[int, int]]:
        """Padding before and after, by axis."""
        if self.padding != "same":
            return [tuple(pair) for pair in self.padding]
        found = []
        for n, k, s, d in zip(shape, self.size, self.stride, self.dilation, strict=True):
            whole = max((-(-n // s) - 1) * s + (k - 1) * d + 1 - n, 0)
            found.append((whole // 2, whole - whole // 2))
        return found

    def views(self, x: Array, outside: float) -> Array:
        """``x[n, c, i*s + r*d - p, …]`` as an array (n, c, i, …, r, …)."""
        padded = np.pad(x, [(0, 0), (0, 0), *self.pads(x.shape[2:])], constant_values=outside)
        reach = [(k - 1) * d + 1 for k, d in zip(self.size, self.dilation, strict=True)]
        axes = tuple(range(2, x.ndim))
        every = np.lib.stride_tricks.sliding_window_view(padded, reach, axes)  # type: ignore[call-overload]
        steps = (slice(None, None, step) for step in (*self.stride, *self.dilation))
        return np.asarray(every[(slice(None), slice(None), *steps)])

    def fits(self, shape: Sequence[int]) -> bool:
        """Whether the window has a place."""
        return all(
            n + sum(pads) >= (k - 1) * d + 1
            for n, pads, k, d in zip(shape, self.pads(shape), self.size, self.dilation, strict=True)
        )

    @property
    def smallest(self) -> int:
        """An extent from which on there is a place."""
        if self.padding == "same":
            return 1
        needed = [
            (k - 1) * d + 1 - sum(pads)
            for k, d, pads in zip(self.size, self.dilation, self.padding, strict=True)
        ]
        return max(0, *needed)


def convolved(x: Array, v: Array, window: Window, groups: int) -> Array:
    """The convolution in the type of the arrays, (n, c, …) and (o, c, …)."""
    views = window.views(x, 0)
    n, c, *rest = views.shape
    grouped = views.reshape(n, groups, c // groups, *rest)
    weights = v.reshape(groups, v.shape[0] // groups, *v.shape[1:])
    at, taps = "ijk"[: x.ndim - 2], "rqs"[: x.ndim - 2]
    made = np.einsum(f"ngc{at}{taps},goc{taps}->ngo{at}", grouped, weights)
    return np.asarray(made.reshape(n, v.shape[0], *made.shape[3:]))


def last(array: Array) -> Array:
    return np.ascontiguousarray(np.moveaxis(array, 1, -1))


def check_convolution(
    window: Window,
    layout: str,
    channels: int = 3,
    filters: int = 4,
    groups: int = 1,
    dtype: str = "float32",
    interpreted: bool = False,
) -> None:
    least = window.smallest
    high, wide_ = oc.dim("h", min=least, max=512), oc.dim("w", min=least, max=512)
    first = layout == "NCHW"
    x = oc.placeholder(
        (b, channels, high, wide_) if first else (b, high, wide_, channels), dtype, "X"
    )
    shape = (filters, channels // groups, *window.size)
    v = oc.placeholder(shape if first else (*shape[2:], shape[1], shape[0]), dtype, "V")
    bias = oc.placeholder((filters,), "int32" if dtype == "int8" else "float32", "B")
    output = ops.conv2d(
        x, v, bias, window.stride, window.padding, window.dilation, groups, layout, "relu"
    )
    op = Operator(output, [x, v, bias])
    for size in [s for s in SIZES if min(s) >= least and window.fits(s)]:
        for batch in (0, 2) if size == (7, 8) else (2,):
            if dtype == "int8":
                a, f = integers("a", dtype, batch, channels, *size), integers("f", dtype, *shape)
                c = integers("c", "int8", filters).astype("int32")
                inner = [t.astype("int64") for t in (a, f, c)]
            else:
                a, f = (
                    floats("a", batch, channels, *size, dtype=dtype),
                    floats("f", *shape, dtype=dtype),
                )
                c = floats("c", filters)
                inner = wide(a, f, c)
            sums = convolved(inner[0], inner[1], window, groups) + inner[2][:, None, None]
            exact = np.maximum(sums, 0)
            if not first:
                a, f, exact = last(a), np.ascontiguousarray(f.transpose(2, 3, 1, 0)), last(exact)
            if dtype == "int8":
                exact = exact.astype("int32")
            op.check([a, f, c], exact, interpreted=interpreted and size == (1, 7))


SAME = Window(padding="same")
PADDED = Window(padding=((1, 1), (1, 1)))


@pytest.mark.every(10)
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize(
    "window",
    [
        PADDED,
        SAME,
        slow(replace(SAME, stride=(2, 3))),
        replace(SAME, size=(1, 2), stride=(3, 4)),
        slow(Window(size=(1, 1))),
        slow(Window(size=(1, 1), stride=(2, 2))),
        Window(size=(2, 5), padding=((0, 1), (3, 2)), stride=(1, 2), dilation=(2, 1)),
    ],
    ids=str,
)
def test_a_convolution_is_right_at_any_size(window: Window, layout: str) -> None:
    check_convolution(window, layout, interpreted=True)


@pytest.mark.every(6)
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize(("channels", "filters", "groups"), [(4, 6, 2), (5, 5, 5), (3, 6, 3)])
def test_groups_see_their_own_channels(
    channels: int, filters: int, groups: int, layout: str
) -> None:
    check_convolution(PADDED, layout, channels, filters, groups, interpreted=True)


@pytest.mark.every(5)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "int8"])
def test_a_convolution_of_small_types_is_accumulated_in_wider_ones(dtype: str) -> None:
    check_convolution(PADDED, "NHWC", 19, 17, dtype=dtype)


pads = st.tuples(st.integers(0, 2), st.integers(0, 2))
small = st.tuples(st.integers(1, 3), st.integers(1, 3))
drawn = st.builds(
    Window,
    size=small,
    stride=small,
    padding=st.one_of(st.just("same"), st.tuples(pads, pads)),
    dilation=st.tuples(st.integers(1, 2), st.integers(1, 2)),
).filter(
    lambda one: (
        one.padding != "same"
        or all(
            (k - 1) * d + 1 >= s or (k - 1) * d + 1 <= 2
            for k, s, d in zip(one.size, one.stride, one.dilation, strict=True)
        )
    )
)


@pytest.mark.slow
@settings(
    max_examples=5,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
@given(
    window=drawn,
    layout=st.sampled_from(["NCHW", "NHWC"]),
    groups=st.sampled_from([1, 2, 3]),
    by_group=st.integers(1, 3),
    filters=st.integers(1, 3),
)
def test_a_convolution_of_random_parameters_is_right(
    window: Window, layout: str, groups: int, by_group: int, filters: int
) -> None:
    check_convolution(window, layout, groups * by_group, groups * filters, groups)


@pytest.mark.every(2)
@pytest.mark.parametrize("layout", ["NCW", "NWC"])
def test_a_convolution_of_one_axis(layout: str) -> None:
    first = layout == "NCW"
    x = oc.placeholder((b, 3, w) if first else (b, w, 3), name="X")
    v = oc.placeholder((5, 3, 4) if first else (4, 3, 5), name="V")
    op = Operator(ops.conv1d(x, v, stride=2, padding=3, layout=layout), [x, v])
    for size in (0, 1, 17, 53):
        a, f = floats("a", 2, 3, size), floats("f", 5, 3, 4)
        exact = convolved(*wide(a, f), Window((4,), (2,), ((3, 3),), (1,)), 1)
        given_ = [a, f] if first else [last(a), np.ascontiguousarray(f.transpose(2, 1, 0))]
        op.check(given_, exact if first else last(exact), interpreted=size == 1)


@pytest.mark.every(2)
@pytest.mark.parametrize("layout", ["NCDHW", "NDHWC"])
def test_a_convolution_of_three_axes(layout: str) -> None:
    first = layout == "NCDHW"
    z, high, across = (oc.dim(name, min=1, max=512) for name in "zhw")
    x = oc.placeholder((b, 4, z, high, across) if first else (b, z, high, across, 4), name="X")
    v = oc.placeholder((6, 2, 3, 2, 3) if first else (3, 2, 3, 2, 6), name="V")
    bias = oc.placeholder((6,), name="B")
    window = Window((3, 2, 3), (1, 2, 2), ((1, 1), (1, 0), (2, 1)), (1, 1, 2))
    result = ops.conv3d(
        x, v, bias, window.stride, window.padding, window.dilation, 2, layout, "relu"
    )
    op = Operator(result, [x, v, bias])
    for size in [(1, 1, 2), (3, 7, 8), (5, 4, 17)]:
        a, f, c = floats("a", 2, 4, *size), floats("f", 6, 2, 3, 2, 3), floats("c", 6)
        exact = np.maximum(convolved(*wide(a, f), window, 2) + c[:, None, None, None], 0)
        if not first:
            a, f, exact = last(a), f.transpose(2, 3, 4, 1, 0).copy(), last(exact)
        op.check([a, f, c], exact, interpreted=size == (1, 1, 2))


@pytest.mark.slow
def test_a_residual_is_added_after_the_activation() -> None:
    x, v = oc.placeholder((b, 3, h, w), name="X"), oc.placeholder((4, 3, 3, 3), name="V")
    residual = oc.placeholder((b, 4, h, w), name="R")
    op = Operator(
        ops.conv2d(x, v, padding=1, activation="tanh", residual=residual), [x, v, residual]
    )
    a, f, r = floats("a", 2, 3, 9, 5), floats("f", 4, 3, 3, 3), floats("r", 2, 4, 9, 5)
    av, fv, rv = wide(a, f, r)
    op.check([a, f, r], np.tanh(convolved(av, fv, PADDED, 1)) + rv)


POOLS = [
    Window((2, 2), (2, 2)),
    Window((3, 3), (2, 2), ((1, 1), (1, 1))),
    Window((2, 3), (1, 2), ((0, 1), (1, 0))),
    replace(SAME, stride=(2, 2)),
]


@pytest.mark.every(5)
@pytest.mark.parametrize("layout", ["NCHW", slow("NHWC")])
@pytest.mark.parametrize("window", POOLS, ids=str)
def test_pooling_is_right_at_any_size(window: Window, layout: str) -> None:
    least, first = window.smallest, layout == "NCHW"
    high, across = oc.dim("h", min=least, max=512), oc.dim("w", min=least, max=512)
    x = oc.placeholder((b, 3, high, across) if first else (b, high, across, 3), name="X")
    options: dict[str, Any] = {"stride": window.stride, "padding": window.padding, "layout": layout}
    kinds = {
        "max": Operator(ops.max_pool2d(x, window.size, **options), [x]),
        "mean": Operator(ops.avg_pool2d(x, window.size, **options), [x]),
        "inside": Operator(ops.avg_pool2d(x, window.size, count_include_pad=False, **options), [x]),
    }
    for size in [s for s in SIZES if min(s) >= least]:
        a = floats("a", 2, 3, *size)
        inner = a.astype("float64")
        exact = {
            "max": window.views(inner, -np.inf).max((-1, -2)),
            "mean": window.views(inner, 0).mean((-1, -2)),
            "inside": window.views(inner, 0).sum((-1, -2))
            / window.views(np.ones_like(inner), 0).sum((-1, -2)),
        }
        for kind, op in kinds.items():
            result = exact[kind] if first else last(exact[kind])
            op.check([a if first else last(a)], result, interpreted=size == (8, 1))


@pytest.mark.every(2)
@pytest.mark.parametrize("dtype", ["int8", "bfloat16"])
def test_the_greatest_of_a_window_may_be_of_any_type(dtype: str) -> None:
    x = oc.placeholder((b, 3, h, w), dtype, "X")
    op = Operator(ops.max_pool2d(x, 3, 2, 1), [x])
    a = (
        integers("a", dtype, 2, 3, 9, 24)
        if dtype == "int8"
        else floats("a", 2, 3, 9, 24, dtype=dtype)
    )
    window = Window((3, 3), (2, 2), ((1, 1), (1, 1)))
    outside = -128 if dtype == "int8" else -np.inf
    wanted = window.views(a.astype("float64"), outside).max((-1, -2))
    op.check([a], wanted.astype("int8") if dtype == "int8" else wanted)


@pytest.mark.every(2)
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_the_place_of_the_greatest_is_the_first_of_equal_ones_and_the_last_of_nan(
    layout: str,
) -> None:
    first, window = layout == "NCHW", Window((3, 2), (2, 2), ((1, 1), (0, 1)), (1, 2))
    high, across = oc.dim("h", min=2, max=512), oc.dim("w", min=2, max=512)
    x = oc.placeholder((b, 3, high, across) if first else (b, high, across, 3), name="X")
    around = {"stride": (2, 2), "padding": ((1, 1), (0, 1)), "dilation": (1, 2), "layout": layout}
    both = ops.max_pool2d_with_places(x, (3, 2), **around)
    op, kernel = Operator(both[1], [x]), oc.compile(both, inputs=[x])
    for size in [(2, 2), (2, 5), (9, 8), (16, 33)]:
        a = floats("a", 2, 3, *size).round()
        a[0, 0, :2, 1], a[1, 2, 1, :] = np.nan, np.nan
        inside = np.arange(size[0] * size[1], dtype="int64").reshape(1, 1, *size)
        values = window.views(np.where(np.isnan(a), 1000 + inside, a), -np.inf).reshape(-1, 6)
        places = window.views(np.broadcast_to(inside, a.shape), -1)
        chosen = values.argmax(1)[:, None]
        wanted = np.take_along_axis(places.reshape(-1, 6), chosen, 1).reshape(places.shape[:-2])
        given = a if first else last(a)
        op.check([given], wanted if first else last(wanted), interpreted=size[0] == 2)
        greatest = window.views(a, -np.inf).max((-1, -2))
        for found, exact in zip(kernel(given), (greatest, wanted), strict=True):
            np.testing.assert_array_equal(found, exact if first else last(exact))


@pytest.mark.parametrize(("layout", "kept"), list(product(["NCHW", "NHWC"], [False, True])))
def test_global_pooling_is_the_mean_of_an_image(layout: str, kept: bool) -> None:
    first = layout == "NCHW"
    x = oc.placeholder((b, 3, h, w) if first else (b, h, w, 3), name="X")
    op = Operator(ops.global_avg_pool(x, layout, kept), [x])
    for size in SIZES:
        a = floats("a", 2, 3, *size) if first else floats("a", 2, *size, 3)
        axes = (2, 3) if first else (1, 2)
        op.check([a], np.asarray(a.astype("float64").mean(axes, keepdims=kept)))


@pytest.mark.every(2)
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_groups_are_products_by_microkernels(layout: str) -> None:
    first = layout == "NCHW"
    x = oc.placeholder((b, 32, h, w) if first else (b, h, w, 32), name="X")
    shape = (32, 8, 3, 3) if first else (3, 3, 8, 32)
    v = oc.placeholder(shape, name="V")
    y = ops.conv2d(x, v, padding=1, groups=4, layout=layout, name="Y")
    kernel = oc.compile(y, inputs=[x, v], constants={"V": floats("v", *shape)})
    assert "no sum runs by a microkernel" not in str(kernel.plan(b=1, h=28, w=28))


@pytest.mark.every(3)
@pytest.mark.parametrize("shape", [(2, 3, 7), (2, 3, 5, 6), (1, 2, 4, 3, 5)])
@pytest.mark.parametrize(
    ("window", "options"),
    [(2, {}), (3, {"padding": 1}), (2, {"stride": 2, "dilation": 2, "padding": 2})],
)
def test_windows_apart_hold_what_lies_at_their_places(
    shape: tuple[int, ...], window: int, options: dict[str, int]
) -> None:
    axes = len(shape) - 2
    sizes = [oc.dim(letter, min=0 if letter in "nc" else 3, max=64) for letter in "nchwd"]
    X = oc.placeholder(tuple(sizes[: len(shape)]), "float32", name="X")
    kernel = oc.compile(oc.ops.unfold(X, window, **options), inputs=[X])
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    stride, by, edge = (
        options.get(name, other) for name, other in (("stride", 1), ("dilation", 1), ("padding", 0))
    )
    meant = Window((window,) * axes, (stride,) * axes, ((edge, edge),) * axes, (by,) * axes)
    order = (0, 1, *range(2 + axes, 2 + 2 * axes), *range(2, 2 + axes))
    np.testing.assert_array_equal(kernel(x), meant.views(x, 0).transpose(order))


CHANNELS = 37  # two registers of 16 lanes, and some lanes of a third


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
    tiles = [stmt for stmt in walk(text.body) if isinstance(stmt, Tile)]
    sums = [s for s in walk(text.body) if isinstance(s, Store) and s.reduce == "sum"]
    inside = [s for t in tiles for s in walk(t.body) if isinstance(s, Store) and s.reduce]
    assert len(sums) == len(inside) > 1
    assert not any(
        isinstance(node, Select)
        for stmt in walk(text.body)
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
