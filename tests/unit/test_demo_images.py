"""The quantised network of the examples: every target gives the integers of plain numpy."""

import numpy as np
import pytest

from examples.images.network import Weights, drawn, graph
from examples.images.reference import scores
from offcut.graph import Model, compiled


@pytest.fixture(scope="module")
def weights() -> Weights:
    return drawn(image=36, widths=(16, 16, 32), classes=10)


@pytest.fixture(scope="module")
def model(weights: Weights) -> Model:
    return compiled(graph(weights), threads=1)


@pytest.mark.parametrize("batch", [1, 3])
def test_a_quantised_network_gives_the_integers_of_numpy(
    weights: Weights, model: Model, batch: int
) -> None:
    images = np.random.default_rng(batch).integers(-128, 127, (batch, 36, 36, 3), "int8")
    found = model(images)
    np.testing.assert_array_equal(found, scores(weights, images))
    assert np.unique(found).size > 5  # it is no network of zeros


def test_what_follows_a_convolution_joins_it(model: Model) -> None:
    assert [step.nodes for step in model.steps] == [
        ("conv2d", "requantize"),
        ("max_pool2d",),
        *[("conv2d", "requantize")] * 9,
        ("sum", "floor_divide", "cast"),
        ("dense",),
    ]
    assert all(one.dtype == "int8" for step in model.steps[:-1] for one in step.outputs)
