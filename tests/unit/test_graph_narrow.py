"""Convolutions in groups of few channels: lanes run along the channels of all groups, and a batch norm goes into their weights."""

from __future__ import annotations

import numpy as np
import pytest

from offcut import Kernel
from tests.compiled import floats
from tests.facade import Bound, Builder, Model, compile_graph, interpret_graph
from tests.graphs import arrays
from tests.operators import near


def grouped(channels: int, each: int, stride: int = 1) -> Bound:
    """A convolution in groups behind another one, which stores its result channels last."""
    made = Builder("grouped")
    n, h, w = (made.size(name, low, 64) for name, low in (("n", 0), ("h", 1), ("w", 1)))
    x = made.input("x", "float32", (n, channels, h, w))
    for number, (groups, step) in enumerate(((1, 1), (channels // each, stride))):
        shape = (channels, channels // groups, 3, 3)
        weights = made.constant(f"w{number}", floats(f"w{number}", *shape) / shape[1])
        x = made.node("conv2d", x, weights, padding=1, groups=groups, stride=step)
        parts = [
            made.constant(f"{part}{number}", abs(floats(f"{part}{number}", channels)) + 0.5)
            for part in "mvgb"
        ]
        x = made.node("relu", made.node("batchnorm", x, *parts))
    made.output(x)
    return made.bound


def second(model: Model) -> Kernel:
    """The kernel of the second convolution."""
    return [step.kernel for step in model.steps if "conv2d" in step.nodes][1]


@pytest.mark.every(2)
@pytest.mark.parametrize(("channels", "each", "stride"), [(32, 4, 1), (24, 8, 2)])
def test_groups_of_few_channels_run_side_by_side(channels: int, each: int, stride: int) -> None:
    bound = grouped(channels, each, stride)
    model = compile_graph(bound, threads=1)
    kernel = second(model)
    assert f"{each}*(a3//{each}) + r" in str(kernel.loops)
    assert not any(name.endswith("groups") for name in (b.name for b in kernel.loops.buffers))
    assert [name.rpartition("_")[2] for name in kernel.constants] == ["scaled", "shift"]
    assert "gather" not in kernel.source("llvm")
    (name,) = bound.graph.outputs
    for n, h, w in ((0, 5, 5), (1, 1, 1), (2, 3, 1), (3, 7, 8), (1, 9, 18)):
        given = arrays(bound, n + h, n=n, h=h, w=w)
        near(model(given)[name], interpret_graph(bound, given)[name])


@pytest.mark.slow
def test_groups_that_fill_vectors_stay_products() -> None:
    assert "@cover(" in str(second(compile_graph(grouped(64, 16), threads=1)).loops)


def test_other_images_change_nothing() -> None:
    bound = grouped(24, 8, 2)
    model = compile_graph(bound, threads=1)
    (name,) = bound.graph.outputs
    given = arrays(bound, 5, n=3, h=9, w=7)
    every = model(given)[name]
    for image in range(3):
        alone = model({"x": given["x"][image : image + 1]})[name]
        np.testing.assert_array_equal(alone[0], every[image])
