"""The quantised network of the examples: every target gives the integers of plain numpy."""

import numpy as np
import pytest

from examples.images.__main__ import LEAST_FILLED
from examples.images.network import Weights, drawn, graph
from examples.images.reference import scores
from tests.facade import Model, compile_graph


@pytest.fixture(scope="module")
def weights() -> Weights:
    return drawn(image=36, widths=(16, 16, 32), classes=10)


@pytest.fixture(scope="module")
def model(weights: Weights) -> Model:
    return compile_graph(graph(weights), threads=1)


@pytest.mark.slow
@pytest.mark.parametrize("batch", [1, 3])
def test_a_quantised_network_gives_the_integers_of_numpy(
    weights: Weights, model: Model, batch: int
) -> None:
    images = np.random.default_rng(batch).integers(-128, 127, (batch, 36, 36, 3), "int8")
    found = model(images)
    np.testing.assert_array_equal(found, scores(weights, images))
    assert np.unique(found).size > 5  # it is no network of zeros


@pytest.mark.slow
def test_what_follows_a_convolution_joins_it(model: Model) -> None:
    assert [step.nodes for step in model.steps] == [
        ("conv2d", "requantize"),
        ("max_pool2d",),
        *[("conv2d", "requantize")] * 9,
        ("sum", "floor_divide", "cast"),
        ("dense",),
    ]
    assert all(one.dtype == "int8" for step in model.steps[:-1] for one in step.outputs)


@pytest.mark.slow
def test_its_convolutions_run_on_an_accelerator_and_the_split_is_printed() -> None:
    small = drawn(image=20, widths=(16, 16), classes=10)
    model = compile_graph(graph(small), threads=1, target=("vta", "cpu"), least_filled=LEAST_FILLED)
    assert [(*step.nodes[:1], step.target) for step in model.steps] == [
        ("conv2d", "cpu"),  # of 3 channels, where a word has 16
        ("max_pool2d", "vta"),
        *[("conv2d", "vta")] * 4,
        ("sum", "vta"),
        ("dense", "cpu"),
    ]
    assert str(model.plan()).splitlines()[-2:] == [
        "requantize: runs on cpu, since vta refuses it: 19% of what gemm_1x16x16 would compute is asked for, "
        "the rest pads its tiles",
        "dense: runs on cpu, since vta refuses it: it is of int32 in main memory, and a store cuts words to 8 bits",
    ]
    for batch in (1, 3):
        images = np.random.default_rng(batch).integers(-128, 127, (batch, 20, 20, 3), "int8")
        np.testing.assert_array_equal(model(images), scores(small, images))


@pytest.mark.slow
def test_the_whole_network_gives_the_integers_of_numpy_on_an_accelerator() -> None:
    whole = drawn()
    model = compile_graph(graph(whole), target=("vta", "cpu"), least_filled=LEAST_FILLED)
    images = np.random.default_rng(0).integers(-128, 127, (1, 224, 224, 3), "int8")
    np.testing.assert_array_equal(model(images), scores(whole, images))
    assert {step.target for step in model.steps if len(step.nodes) == 2} == {"vta", "cpu"}
