"""Constants around a sum of products go into its constant operand; what a model computes stays what the interpreter says."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from offcut.ir import Kind
from tests.compiled import floats
from tests.facade import Bound, Builder, compile_graph, interpret_graph
from tests.graphs import arrays
from tests.operators import near

C = 19


def positive(name: str, *shape: int) -> np.ndarray:
    return np.abs(floats(name, *shape)) + np.float32(0.5)


def normed(groups: int, channels: int = 4, biased: bool = False) -> Bound:
    """A convolution, a batch norm and an activation, twice: the second one may be channel by channel.

    biased  whether convolutions have a bias of their own
    """
    made = Builder("normed")
    n, h, w = (made.size(name, low, 64) for name, low in (("n", 0), ("h", 1), ("w", 1)))
    x = made.input("x", "float32", (n, channels, h, w))
    for number, (inner, of) in enumerate(((channels, 1), (C // groups, groups))):
        weights = made.constant(f"w{number}", floats(f"w{number}", C, inner, 3, 3) / 4)
        bias = made.constant(f"c{number}", floats(f"c{number}", C)) if biased else None
        x = made.node("conv2d", x, weights, bias=bias, padding=1, groups=of)
        parts = [made.constant(f"{p}{number}", positive(f"{p}{number}", C)) for p in "mvgb"]
        x = made.node("relu", made.node("batchnorm", x, *parts))
    made.output(x)
    return made.bound


@pytest.mark.every(5)
@pytest.mark.parametrize(("groups", "biased"), [(1, False), (C, False), (C, True)])
def test_a_batch_norm_leaves_a_bias(groups: int, biased: bool) -> None:
    bound = normed(groups, biased=biased)
    model = compile_graph(bound, threads=1)
    for step in model.steps[-2:]:
        constants = [b.name for b in step.kernel.loops.buffers if b.kind is Kind.CONSTANT]
        assert [name.rpartition("_")[2] for name in constants] == ["scaled", "shift"]
    (name,) = bound.graph.outputs
    for n, h, w in ((0, 5, 5), (1, 1, 1), (2, 3, 1), (3, 7, 8), (1, 9, 18)):
        given = arrays(bound, n + h, n=n, h=h, w=w)
        near(model(given)[name], interpret_graph(bound, given)[name])


def test_kernels_of_one_code_have_constants_of_their_own() -> None:
    made = Builder("twice")
    x = made.input("x", "float32", (made.size("n", 0, 9), 8))
    for number in range(3):
        x = made.node("matmul", x, made.constant(f"w{number}", floats(f"w{number}", 8, 8)))
        x = made.node("multiply", x, made.constant(f"g{number}", floats(f"g{number}", 8)))
        x = made.node("relu", made.node("add", x, made.constant(f"b{number}", floats("b", 8))))
    made.output(x)
    model = compile_graph(made.bound, threads=1)
    assert {step.code for step in model.steps} == {0}
    given = arrays(made.bound, 3, n=7)
    near(model(given)[x.name], interpret_graph(made.bound, given)[x.name])


def scaled_by(other: Callable[[Builder], object]) -> Bound:
    made = Builder("apart")
    x = made.input("x", "float32", (made.size("n", 1, 9), 8))
    made.input("z", "float32", (8,))
    y = made.node("matmul", x, made.constant("w", floats("w", 8, 5)))
    made.output(made.node("relu", made.node("multiply", y, other(made))))
    return made.bound


@pytest.mark.parametrize(
    "other",
    [
        lambda made: made.input("g", "float32", (5,)),
        lambda made: made.input("g", "float32", (made.size("n", 1, 9), 1)),
    ],
)
def test_what_is_not_known_stays_outside(other: Callable[[Builder], object]) -> None:
    bound = scaled_by(other)
    model = compile_graph(bound, threads=1)
    assert all("scaled" not in str(step.kernel.loops) for step in model.steps)
    given = arrays(bound, 3, n=7)
    for name, array in model(given).items():
        near(array, interpret_graph(bound, given)[name])
