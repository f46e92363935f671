from math import erf

import numpy as np
import pytest
from compiled import floats

from offcut.experiment.demo.dense import Dense, NumpyEngine, Shape, compile_dense, shape_of
from offcut.experiment.demo.weights import Array, Linear


def linear(k: int, m: int) -> Linear:
    return Linear(floats("weight", k, m), floats("bias", m))


def expected(x: Array, layer: Linear, gelu: bool) -> Array:
    y = x.astype(np.float64) @ layer.weight.astype(np.float64) + layer.bias
    return y * (1 + np.vectorize(erf)(y / np.sqrt(2))) / 2 if gelu else y


@pytest.mark.parametrize("gelu", [False, True])
@pytest.mark.parametrize("by", ["numpy", "auto", "cut"])
def test_a_layer_is_the_formula(by: str, gelu: bool) -> None:
    layer = linear(24, 40)
    dense: Dense
    dense = NumpyEngine().dense(layer, gelu) if by == "numpy" else compile_dense(layer, gelu, by)

    for rows in (1, 2, 13, 14, 15, 512):
        x = floats("x", rows, 24)
        out = np.full((rows, 40), np.nan, np.float32)

        assert dense(x, out) is out
        np.testing.assert_allclose(out, expected(x, layer, gelu), rtol=1e-5, atol=1e-5)


def test_a_shape_counts_the_flop_of_the_product() -> None:
    shape = shape_of(linear(12, 20), gelu=True)

    assert shape == Shape(12, 20, gelu=True)
    assert shape.flop(3) == 2 * 3 * 12 * 20
    assert str(shape) == "12 → 20, gelu"
