"""Loops around the terms of a sum that a microkernel runs as well: windows of one to three axes."""

from __future__ import annotations

import re

import numpy as np
import pytest
from compiled import Array, floats
from operators import Operator, wide

import offcut as oc
from offcut import ops

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
