"""Element-wise computations after a sum are one kernel, right at edge sizes and equal bit for bit."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import pytest
from compiled import BLOCK, STRATEGIES, Array, agreed, build, floats, poisoned, same_bits
from conftest import edge_sizes, slow
from operators import Operator, wide
from scipy import special

import offcut as oc
from offcut import Tensor, ops
from tests.agree import agree, computed
from tests.facade import numpy_dtype

ROWS = edge_sizes(BLOCK)
COLUMNS = [0, 1, 16, 17, 53]
DEPTH = 19

m, n = oc.dim("m", max=4096), oc.dim("n", max=4096)
k = oc.reduce_axis(DEPTH, "k")
A, W = oc.placeholder((m, DEPTH), name="A"), oc.placeholder((DEPTH, n), name="W")
B, S = oc.placeholder((n,), name="B"), oc.placeholder((m,), name="S")
R, T = oc.placeholder((m, n), name="R"), oc.placeholder((n, m), name="T")
H = oc.compute((m, n), lambda i, j: oc.sum(A[i, k] * W[k, j], axis=k), name="H")


def after(fn: Callable[[Any, Any], Any], name: str = "Y") -> Tensor:
    return oc.compute((m, n), fn, name=name)


@dataclass(frozen=True)
class Epilogue:
    """A described epilogue, what it reads beside A and W, and the same in numpy, of h = A W."""

    output: Tensor
    reads: tuple[Tensor, ...]
    reference: Callable[..., Array]


def gelu(x: Any) -> Any:
    return 0.5 * x * (1.0 + oc.erf(x * math.sqrt(0.5)))


GELU = after(lambda i, j: gelu(H[i, j] + B[j]), name="G")
SCALED = after(lambda i, j: H[i, j] * S[i] + B[j], name="G")
EPILOGUES = {
    "bias": Epilogue(after(lambda i, j: H[i, j] + B[j]), (B,), lambda h, b: h + b),
    "relu of bias": Epilogue(
        after(lambda i, j: oc.maximum(H[i, j] + B[j], 0.0)),
        (B,),
        lambda h, b: np.maximum(h + b, 0),
    ),
    "gelu and residual": Epilogue(
        after(lambda i, j: GELU[i, j] + R[i, j]),
        (B, R),
        lambda h, b, r: 0.5 * (h + b) * (1 + special.erf((h + b) * math.sqrt(0.5))) + r,
    ),
    "row scale, tanh, clip": Epilogue(
        after(lambda i, j: oc.minimum(oc.maximum(oc.tanh(SCALED[i, j]), -0.5), 0.75)),
        (S, B),
        lambda h, s, b: np.clip(np.tanh(h * s[:, None] + b), -0.5, 0.75),
    ),
    "exp, sqrt, abs, division": Epilogue(
        after(lambda i, j: oc.sqrt(oc.absolute(H[i, j])) / (1.0 + oc.exp(-H[i, j]))),
        (),
        lambda h: np.sqrt(np.abs(h)) / (1 + np.exp(-h)),
    ),
    "a transposed residual": Epilogue(
        after(lambda i, j: H[i, j] - T[j, i]), (T,), lambda h, t: h - t.T
    ),
    "where by coordinates and by value": Epilogue(
        after(
            lambda i, j: oc.where((i < j) & (H[i, j] > 0.0), H[i, j], oc.cast(i, "float32") - 2.0)
        ),
        (),
        lambda h: np.where(
            (np.arange(h.shape[0])[:, None] < np.arange(h.shape[1])) & (h > 0),
            h,
            np.arange(h.shape[0])[:, None] - 2.0,
        ),
    ),
    "a neighbour where there is one": Epilogue(
        after(lambda i, j: H[i, j] + oc.where(j >= 1, R[i, j - 1], B[j])),
        (R, B),
        lambda h, r, b: h + np.concatenate([b[None, :1] + 0 * h[:, :1], r[:, :-1]], axis=1),
    ),
}


def arrays_of(which: Epilogue, rows: int, columns: int) -> list[Array]:
    sizes = {"m": rows, "n": columns}
    tensors = (A, W, *which.reads)
    return [floats(t.name, *(sizes.get(str(s), DEPTH) for s in t.shape)) for t in tensors]


def reference(which: Epilogue, arrays: list[Array]) -> Array:
    wide = [array.astype("float64") for array in arrays]
    return which.reference(wide[0] @ wide[1], *wide[2:])


@pytest.mark.every(5)
@pytest.mark.parametrize(
    ("name", "strategies"),
    [
        ("bias", ("ladder", "shift")),
        slow("relu of bias", ("guard", "pad")),
        ("gelu and residual", STRATEGIES[1:]),
        slow("row scale, tanh, clip", ("ladder", "shift", "mask")),
        ("exp, sqrt, abs, division", ("cut", "balance")),
        ("a transposed residual", ("shift", "ladder")),
        ("where by coordinates and by value", ("pad", "shift", "guard")),
        ("a neighbour where there is one", ("shift", "mask", "cut")),
    ],
)
def test_an_epilogue_is_right_at_every_edge_size(name: str, strategies: tuple[str, ...]) -> None:
    which = EPILOGUES[name]
    inputs = [A, W, *which.reads]
    kernels = {s: build(which.output, inputs=inputs, strategy=s) for s in strategies}
    for rows, columns in product(ROWS, COLUMNS):
        arrays = arrays_of(which, rows, columns)
        found = agreed({s: poisoned(f, (rows, columns), *arrays) for s, f in kernels.items()})
        agree(found, computed(lambda *arrays: reference(which, arrays), *arrays))


@pytest.mark.every(2)
@pytest.mark.parametrize(
    ("name", "columns"),
    [
        ("gelu and residual", 17),
        ("relu of bias", 64),
        slow("gelu and residual", 64),
        slow("relu of bias", 17),
    ],
)
def test_a_packed_constant_and_its_bias_change_no_bit(name: str, columns: int) -> None:
    which = EPILOGUES[name]
    inputs = [A, W, *which.reads]
    _, w, b, *_ = arrays_of(which, 1, columns)
    constants = {"W": w, "B": b}
    kernels = {
        s: build(which.output, inputs=inputs, constants=constants, strategy=s)
        for s in ("auto", "shift", "pad")
    }
    plain = build(which.output, inputs=inputs, strategy="ladder")
    for rows in ROWS:
        arrays = arrays_of(which, rows, columns)
        given = [arrays[0], *arrays[3:]]
        found = agreed({s: poisoned(f, (rows, columns), *given) for s, f in kernels.items()})
        assert same_bits(found, plain(*arrays))


@pytest.mark.every(3)
@pytest.mark.parametrize("dtype", ["float16", slow("bfloat16"), "float64", slow("int32"), "int8"])
def test_a_cast_is_part_of_the_kernel(dtype: str) -> None:
    scaled = after(lambda i, j: 10.0 * H[i, j], name="G")
    Y = after(lambda i, j: oc.cast(scaled[i, j], dtype))
    kernels = {s: build(Y, inputs=[A, W], strategy=s) for s in ("shift", "pad")}
    plain = build(scaled, inputs=[A, W], strategy="cut")
    for rows, columns in product((1, 13, 29), (1, 17)):
        a, w = floats("A", rows, DEPTH) / 8, floats("W", DEPTH, columns)
        found = agreed({s: poisoned(f, (rows, columns), a, w) for s, f in kernels.items()})
        assert same_bits(found, plain(a, w).astype(numpy_dtype(dtype)))


def test_a_reduction_inside_an_expression_is_a_sum_and_its_epilogue() -> None:
    Y = after(lambda i, j: oc.maximum(oc.sum(A[i, k] * W[k, j], axis=k) * 2.0 + B[j], 0.0))
    kernel = build(Y, inputs=[A, W, B], strategy="ladder")
    for rows, columns in product((0, 1, 15), (1, 17)):
        a, w, b = floats("A", rows, DEPTH), floats("W", DEPTH, columns), floats("B", columns)
        found = poisoned(kernel, (rows, columns), a, w, b)
        agree(found, computed(lambda a, w, b: np.maximum((a @ w) * 2 + b, 0), a, w, b))


def test_nan_in_one_row_stays_in_it() -> None:
    which = EPILOGUES["gelu and residual"]
    kernels = {
        s: build(which.output, inputs=[A, W, B, R], strategy=s) for s in ("shift", "pad", "mask")
    }
    for rows in (1, 13, 15, 29):
        arrays = arrays_of(which, rows, 53)
        arrays[0][rows - 1, 3] = np.nan
        found = agreed({s: f(*arrays) for s, f in kernels.items()})
        assert np.isnan(found[rows - 1]).all()
        assert not np.isnan(found[: rows - 1]).any()


# Loops around the terms of a sum that a microkernel runs as well: windows of one to three axes.


b = oc.dim("b", max=512)


def convolution(axes: int, channels: int, stride: int) -> Operator:
    """Windows of 3 along each axis, of images with channels last, of any size."""
    sizes = tuple(oc.dim(f"n{axis}", min=3, max=512) for axis in range(axes))
    x = oc.placeholder((b, *sizes, channels), name="X")
    v = oc.placeholder((3,) * axes + (channels, 21), name="V")
    layout = {1: "NWC", 2: "NHWC", 3: "NDHWC"}[axes]
    made = {1: ops.conv1d, 2: ops.conv2d, 3: ops.conv3d}[axes]
    return Operator(made(x, v, stride=stride, layout=layout), [x, v])


def exact(x: Array, v: Array, stride: int) -> Array:
    """In float64, term by term."""
    axes = x.ndim - 2
    counts = [(n - 3) // stride + 1 for n in x.shape[1:-1]]
    total = np.zeros((x.shape[0], *counts, v.shape[-1]))
    for at in np.ndindex(*(3,) * axes):
        cut = tuple(
            slice(r, r + (n - 1) * stride + 1, stride) for r, n in zip(at, counts, strict=True)
        )
        total += x[(slice(None), *cut)] @ v[at]
    return total


@pytest.mark.every(4)
@pytest.mark.parametrize(
    ("axes", "stride", "channels"), [(1, 1, 3), (2, 1, 17), (2, 2, 1), (3, 1, 4)]
)
def test_a_window_is_summed_term_by_term(axes: int, stride: int, channels: int) -> None:
    op = convolution(axes, channels, stride)
    called = re.findall(r"oc_fma_float32_\w+_\d+x\d+", op.kernel.source("llvm"))
    assert {name.split("_")[-2][-1] for name in called} == {str(min(axes, 2))}
    for batch, size in ((0, 3), (1, 3), (2, 4), (1, 17), (2, 33 if axes < 3 else 18)):
        shape = (batch, *(size + 2 * axis for axis in range(axes)), channels)
        x, v = floats("x", *shape), floats("v", *(3,) * axes, channels, 21) / 8
        op.check([x, v], exact(*wide(x, v), stride))


def test_the_longest_axis_runs_innermost() -> None:
    h, w = (oc.dim(name, min=1, max=512) for name in "hw")
    x, v = oc.placeholder((b, 64, h, w), name="X"), oc.placeholder((48, 64, 1, 1), name="V")
    constants = {"V": floats("v", 48, 64, 1, 1)}
    kernel = oc.compile(ops.conv2d(x, v), inputs=[x, v], constants=constants)
    covers = [line for line in str(kernel.schedule).splitlines() if "p=" in line]
    assert {line.rpartition("p=")[2] for line in covers} == {"c)"}
