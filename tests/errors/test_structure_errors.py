"""Every refusal of an operator that moves, ranks, resizes or adds up elements, word for word."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from conftest import rejection

import offcut as oc
from offcut import ops

n, m, b, h = oc.dim("n", max=64), oc.dim("m", max=64), oc.dim("b", max=64), oc.dim("h", max=64)


def given(name: str, *shape: Any, dtype: str = "float32") -> Any:
    return oc.placeholder(shape, dtype, name)


A, L = given("A", n, 24), given("L", n, 24, dtype="int8")
X, F = given("X", b, 6, h, h), given("F", 6, 4, 3, 3)
IDS, ROW = given("I", m, dtype="int32"), given("R", 40)

Q, K = given("Q", b, 6, n, 8), given("K", b, 4, m, 8)

REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "padding for another rank": (
        lambda: ops.pad(A, (1, 2, 3), 0),
        "pad: cannot take before=(1, 2, 3)\n"
        "  because  before is an int, or one for each of the 2 axes",
    ),
    "padding that is no int": (
        lambda: ops.pad(A, 1.5, 0),
        "pad: cannot take before=1.5\n  because  before is an int, or one for each of the 2 axes",
    ),
    "an unknown padding": (
        lambda: ops.pad(A, 1, 1, mode="wrap"),
        "pad: cannot take mode='wrap'\n  because  modes are constant, edge, reflect",
    ),
    "a fraction around integers": (
        lambda: ops.pad(L, 1, 1, 0.5),
        "pad: cannot take value=0.5\n  because  value is a number that int8 holds",
    ),
    "another type around integers": (
        lambda: ops.pad(L, 1, 1, given("V", dtype="int32")),
        "pad: cannot take value of int32\n  at       V: int32[]\n  because  value is of int8",
    ),
    "more left out than there is": (
        lambda: ops.pad(A, 0, (0, -25)),
        "pad: cannot leave out 25 elements\n"
        "  at       axis 1 of A: float32[n, 24]\n"
        "  because  it has 24",
    ),
    "counts below zero": (
        lambda: ops.repeat(A, -1),
        "repeat: cannot take counts=-1\n"
        "  because  counts is an int of at least 0, or one for each of the 2 axes",
    ),
    "symbolic ranges without end": (
        lambda: ops.repeat(given("S", n, m), 20),
        "repeat: cannot take counts=20\n"
        "  at       S: float32[n, m]\n"
        "  because  400 ranges of symbolic extents are more than 256\n"
        "  help     a tensor of one more axis: compute((c, n), lambda t, i: X[i])",
    ),
    "classes that are no integers": (
        lambda: ops.one_hot(A, 3),
        "one_hot: cannot take indices of float32\n"
        "  at       A: float32[n, 24]\n"
        "  because  indices is of int64, int32, int16, int8, uint32, uint16, uint8",
    ),
    "groups that leave a rest": (
        lambda: ops.groupnorm(X, 4),
        "groupnorm: cannot take groups=4\n"
        "  at       X: float32[b, 6, h, h]\n"
        "  because  it is not an int above 0 that divides the 6 channels",
    ),
    "groups of a symbolic extent": (
        lambda: ops.groupnorm(given("S", b, n), 4),
        "groupnorm: cannot take groups=4\n"
        "  at       S: float32[b, n]\n"
        "  because  it is not an int above 0 that divides the n channels",
    ),
    "samples as channels": (
        lambda: ops.instancenorm(X, axis=0),
        "instancenorm: cannot take axis=0\n"
        "  at       X: float32[b, 6, h, h]\n"
        "  because  samples are axis 0",
    ),
    "parts of nothing": (
        lambda: ops.adaptive_avg_pool2d(X, 0),
        "adaptive_avg_pool2d: cannot take size=0\n  because  size is an int of at least 1, or one for each of the 2 axes",
    ),
    "a bias of another length after a product": (
        lambda: ops.matmul(A, given("W", 24, 40), bias=given("B", 41)),
        "matmul: cannot take bias of shape (41,)\n"
        "  at       B: float32[41]\n"
        "  because  bias has the shape (40,)",
    ),
    "elements by fractions": (
        lambda: ops.take(A, ROW),
        "take: cannot take indices of float32\n"
        "  at       R: float32[40]\n"
        "  because  indices is of int64, int32, int16, int8, uint32, uint16, uint8",
    ),
    "indices of another rank": (
        lambda: ops.take_along_axis(A, IDS, 0),
        "take_along_axis: cannot take indices with 1 axis\n"
        "  at       I: int32[m]\n"
        "  because  indices has 2 axes",
    ),
    "indices of another extent": (
        lambda: ops.take_along_axis(A, given("J", m, 5, dtype="int32"), 1),
        "take_along_axis: cannot pair A with J\n"
        "  at       A: float32[n, 24] and J: int32[m, 5]\n"
        "  because  axis 0 is n in one and m in the other\n"
        "  help     one size for both: a size is known by its name and facts",
    ),
    "the greatest along no axis": (
        lambda: ops.argmax(given("S")),
        "argmax: cannot take x with 0 axes\n"
        "  at       S: float32[]\n"
        "  because  x has at least 1 axes",
    ),
    "fewer than none": (
        lambda: ops.topk(A, -1),
        "topk: cannot take k=-1\n  because  k is an int of at least 0",
    ),
    "more than there ever are": (
        lambda: ops.topk(oc.placeholder((4,), name="four"), 6),
        "topk: cannot take k=6\n"
        "  at       axis 0 of four: float32[4]\n"
        "  because  it has 4 elements at every size\n"
        "  help     k=4",
    ),
    "groups of a transposed convolution": (
        lambda: ops.conv_transpose2d(X, F, groups=4),
        "conv_transpose2d: cannot take groups=4\n"
        "  at       X: float32[b, 6, h, h] and F: float32[6, 4, 3, 3]\n"
        "  because  4 does not divide the 6 input channels",
    ),
    "channels of a transposed convolution": (
        lambda: ops.conv_transpose2d(X, given("F", 5, 4, 3, 3)),
        "conv_transpose2d: cannot pair X with F\n"
        "  at       X: float32[b, 6, h, h] and F: float32[5, 4, 3, 3]\n"
        "  because  x has 6 channels, and w 5",
    ),
    "no groups": (
        lambda: ops.conv_transpose2d(X, F, groups=0),
        "conv_transpose2d: cannot take groups=0\n  because  groups is an int of at least 1",
    ),
    "neither size nor scale": (
        lambda: ops.interpolate(X),
        "interpolate: cannot tell the size of the result\n"
        "  because  either size or scale is given\n"
        "  help     scale=2\n"
        "  help     size=(64, 48)",
    ),
    "sizes of another rank": (
        lambda: ops.interpolate(X, (1, 2, 3)),
        "interpolate: cannot take size=(1, 2, 3)\n  because  there are 2 spatial axes",
    ),
    "a scale that is no fraction": (
        lambda: ops.interpolate(X, scale=0.123456789),
        "interpolate: cannot take scale=0.123456789\n"
        "  because  a scale is a fraction above 0 with a denominator of at most 4096\n"
        "  help     size=(…), an expression in sizes",
    ),
    "an unknown way between": (
        lambda: ops.interpolate(X, scale=2, mode="area"),
        "interpolate: cannot take mode='area'\n  because  modes are nearest, linear, cubic",
    ),
    "integers between": (
        lambda: ops.interpolate(given("S", b, 3, n, dtype="int8"), scale=2, mode="linear"),
        "interpolate: cannot take x of int8\n"
        "  at       S: int8[b, 3, n]\n"
        "  because  x is of float64, float32, float16, bfloat16",
    ),
    "an image without rows": (
        lambda: ops.fold(given("S", b, 3, 2, 2, n, n), n),
        "fold: cannot take size=n\n  because  there are one to three spatial axes\n  help     size=(h, w)",
    ),
    "sums along no axis": (
        lambda: ops.cumsum(A, 2),
        "cumsum: cannot take axis=2\n"
        "  at       A: float32[n, 24]\n"
        "  because  the axes of A are -2…1",
    ),
    "places of sums": (
        lambda: ops.accumulated(A, reduction="add", places=True),
        "accumulated: cannot take reduction='add'\n  because  reductions are max, min with places",
    ),
    "running means": (
        lambda: ops.accumulated(A, reduction="mean"),
        "accumulated: cannot take reduction='mean'\n  because  reductions are add, mul, max, min, logaddexp",
    ),
    "a layout of another rank": (
        lambda: ops.interpolate(X, 2, layout="NWC"),
        "interpolate: cannot take layout='NWC'\n  because  layouts are NCHW, NHWC",
    ),
    "heads that are no multiple": (
        lambda: ops.attention(Q, K, K),
        "attention: cannot pair Q with K\n"
        "  at       Q: float32[b, 6, n, 8] and K: float32[b, 4, m, 8]\n"
        "  because  the 6 heads of one are not a multiple of the 4 of the other\n"
        "  help     ints, or one size for both: a size is known by its name and facts",
    ),
    "a window of nothing": (
        lambda: ops.attention(Q, Q, Q, window=0),
        "attention: cannot take window=0\n  because  window is an int of at least 1",
    ),
    "a past that is no size": (
        lambda: ops.attention(Q, Q, Q, past=0.5),
        "attention: cannot take the size 0.5\n"
        "  because  a size is an int or an expression in sizes made by dim\n"
        '  help     n = dim("n"); (n, 768)',
    ),
    "an unknown way to put several": (
        lambda: ops.scatter_elements(
            A, given("J", m, 24, dtype="int32"), given("U", m, 24), reduction="mean"
        ),
        "scatter_elements: cannot take reduction='mean'\n  because  reductions are add, mul, max, min, or None",
    ),
    "updates of another shape": (
        lambda: ops.scatter_elements(A, given("J", m, 24, dtype="int32"), given("U", n, 24)),
        "scatter_elements: cannot take updates of shape (n, 24)\n"
        "  at       U: float32[n, 24]\n"
        "  because  updates has the shape (m, 24)",
    ),
    "places of more axes than there are": (
        lambda: ops.scatter_nd(A, given("J", m, 3, dtype="int32"), given("U", m)),
        "scatter_nd: cannot take indices of 3 columns\n"
        "  at       J: int32[m, 3]\n"
        "  because  they are an int from 1 to the 2 axes of A",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_does_not_fit_is_refused_word_for_word(case: str) -> None:
    describe, text = REFUSED[case]
    with rejection(f"DescribeError: {text}"):
        describe()


@pytest.mark.parametrize(
    "describe",
    [
        lambda: ops.pad(L, (0, -1), 2, 1.0, "reflect"),
        lambda: ops.pad(A, 0, (0, -24)),
        lambda: ops.repeat(given("S", n, m), 16),
        lambda: ops.iota(2 * n + 1, "uint8"),
        lambda: ops.one_hot(IDS, 2 * n + 1),
        lambda: ops.groupnorm(X, 3),
        lambda: ops.instancenorm(given("S", b, h, n), axis=-1),
        lambda: ops.take(ROW, given("J", dtype="uint8")),
        lambda: ops.take_along_axis(A, given("J", 1, m, dtype="int8"), 1),
        lambda: ops.topk(A, 0),
        lambda: ops.conv_transpose2d(X, F, stride=3, groups=2),
        lambda: ops.interpolate(given("S", b, n, 6), 2 * n + 1, layout="NWC"),
        lambda: ops.interpolate(X, scale=1 / 3),
    ],
)
def test_what_is_next_to_a_refusal_is_accepted(describe: Callable[[], Any]) -> None:
    made = describe()
    assert all(one.shape is not None for one in (made if isinstance(made, tuple) else (made,)))


def test_names_tell_options_apart() -> None:
    made = [
        *(ops.pad(A, *widths) for widths in [(1, 0), (0, 1), (1, 0, 2.0), (1, 0, 0.0, "edge")]),
        *(ops.one_hot(IDS, depth) for depth in (n, 2 * n, 2 * n + 1)),
        *(
            ops.interpolate(X, **given)
            for given in ({"size": 2}, {"scale": 2}, {"scale": (1.5, 2)})
        ),
        *(ops.argmax(A, *options) for options in [(), (0,), (0, True)]),
        ops.iota(n),
        ops.iota(n, "int8"),
    ]
    assert len({tensor.name for tensor in made}) == len(made)
