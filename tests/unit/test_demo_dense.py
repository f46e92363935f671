from math import erf

import numpy as np
import pytest

from offcut.experiment.demo.dense import NumpyEngine, Shape, Timed, compile_dense
from offcut.experiment.demo.weights import Array, Linear

draw = np.random.default_rng(0)


def linear(k: int, m: int) -> Linear:
    return Linear(
        draw.standard_normal((k, m), dtype=np.float32), draw.standard_normal(m, dtype=np.float32)
    )


def expected(x: Array, layer: Linear, gelu: bool) -> Array:
    y = x.astype(np.float64) @ layer.weight.astype(np.float64) + layer.bias
    return y * (1 + np.vectorize(erf)(y / np.sqrt(2))) / 2 if gelu else y


@pytest.mark.parametrize("gelu", [False, True])
@pytest.mark.parametrize("rows", [1, 2, 7, 512])
def test_numpys_layer_is_the_formula(rows: int, gelu: bool) -> None:
    layer = linear(12, 20)
    x = draw.standard_normal((rows, 12), dtype=np.float32)
    out = np.full((rows, 20), np.nan, np.float32)

    assert NumpyEngine().dense(layer, gelu)(x, out) is out
    np.testing.assert_allclose(out, expected(x, layer, gelu), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("gelu", [False, True])
def test_offcuts_layer_is_the_formula_with_its_own_constants_and_with_others(gelu: bool) -> None:
    first, second = linear(24, 40), linear(24, 40)
    kernel = compile_dense(Shape(24, 40, gelu), constants(first), "auto")

    for layer, bound in ((second, kernel.with_constants(constants(second))), (first, kernel)):
        for rows in (1, 2, 13, 14, 15, 512):
            x = draw.standard_normal((rows, 24), dtype=np.float32)
            out = np.full((rows, 40), np.nan, np.float32)

            assert bound(x, out=out) is out
            np.testing.assert_allclose(out, expected(x, layer, gelu), rtol=1e-5, atol=1e-5)


def constants(layer: Linear) -> dict[str, Array]:
    return {"W": layer.weight, "bias": layer.bias}


def test_timing_notes_every_call_in_order_and_changes_no_result() -> None:
    timed, layer = Timed(NumpyEngine()), linear(12, 20)
    plain, curved = timed.dense(layer, gelu=False), timed.dense(layer, gelu=True)
    out = np.empty((3, 20), np.float32)
    x = draw.standard_normal((3, 12), dtype=np.float32)

    plain(x, out)
    np.testing.assert_allclose(out, expected(x, layer, gelu=False), rtol=1e-5, atol=1e-5)
    curved(x[:2], out[:2])

    assert [(call.shape, call.rows) for call in timed.calls] == [
        (Shape(12, 20, gelu=False), 3),
        (Shape(12, 20, gelu=True), 2),
    ]
    assert all(call.ns >= 0 for call in timed.calls)
