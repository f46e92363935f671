"""Operators in one program: names that do not collide, and networks of several."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from compiled import floats
from operators import Operator, wide
from scipy import special

import offcut as oc
from offcut import Tensor, ops
from offcut.describe.tensor import tensors_of

b, m, n = (oc.dim(name, max=4096) for name in "bmn")
X = oc.placeholder((m, n), name="X")


def test_ops_is_a_name_of_the_package_and_all_of_it_is_documented() -> None:
    assert oc.ops is ops
    assert "ops" in dir(oc)
    for name in ops.__all__:
        assert getattr(ops, name).__doc__


def test_a_name_says_the_operator_its_operands_and_its_options() -> None:
    w = oc.placeholder((n, 8), name="W")
    assert ops.dense(X, w).name == "dense_X_W"
    assert ops.dense(X, w, activation="relu").name == "dense_X_W_relu"
    assert ops.softmax(X).name == "softmax_X"
    assert ops.softmax(X, 0).name == "softmax_X_axis_0"
    assert ops.sum(X, (0, 1), keepdims=True).name == "sum_X_axis_0x1_kept"
    assert ops.softmax(X, name="P").name == "P"
    assert ops.layernorm(X, epsilon=1e-3).name == "layernorm_X_epsilon_0_001"
    image = oc.placeholder((1, 6, 8, 8), name="I")
    assert ops.max_pool2d(image, 2).name == "max_pool2d_I_2"
    assert ops.max_pool2d(image, (2, 3), np.int64(2)).name == "max_pool2d_I_2x3_stride_2"
    assert ops.avg_pool2d(image, (2, 2), padding=((0, 1), (2, 2))).name == (
        "avg_pool2d_I_2_padding_0_1x2"
    )
    assert ops.subtract(X, 2).name == "subtract_X_y_2_0"
    assert ops.subtract(2, X).name == "subtract_X_x_2_0"
    assert ops.clip(X, high=6).name == "clip_X_high_6_0"
    assert ops.quantize(X, 0.1, -3).name == "quantize_X_0_1_zero_m3_int8"


def given(name: str, *shape: Any, dtype: str = "float32") -> Any:
    return oc.placeholder(shape, dtype, name)


A, W, S, Z = given("A", 24, 24), given("W", 24, 24), given("S"), given("Z", dtype="int32")
V, G, H = given("V", 24), given("G", 24), given("H", 24)
Q, M = given("Q", 2, n, 8), given("M", 2, n, n)
P, F = given("P", b, 8, 8, 8), given("F", 8, 8, 8, 8)
L, J = given("L", 24, 24, dtype="int8"), given("J", 24, 24, dtype="int8")
T = given("T", 24, 24, dtype="int32")

OPTIONS: dict[Callable[..., Tensor], tuple[tuple[Any, ...], list[dict[str, Any]]]] = {
    ops.attention: (
        (Q, Q, Q),
        [{}, {"mask": M}, {"scale": 1.0}, {"scale": 2.0}, {"causal": True}],
    ),
    ops.avg_pool2d: (
        (P,),
        [
            *({"window": 1}, {"window": 2}, {"window": 1, "stride": 2}, {"window": (1, 2)}),
            *({"window": 2, "stride": 2, "padding": 1}, {"window": 2, "padding": ((0, 1), (1, 0))}),
            *({"window": 2, "padding": ((0, 1), (0, 1))}, {"window": 2, "padding": (0, 1)}),
            *({"window": 2, "layout": "NHWC"}, {"window": 2, "count_include_pad": False}),
        ],
    ),
    ops.max_pool2d: (
        (P, 2),
        [
            {},
            {"stride": 1},
            {"padding": 1},
            {"padding": "same"},
            {"dilation": 2},
            {"layout": "NHWC"},
        ],
    ),
    ops.global_avg_pool: ((P,), [{}, {"layout": "NHWC"}, {"keepdims": True}]),
    ops.batchnorm: (
        (A, V, V),
        [{}, {"gain": G}, {"bias": G}, {"gain": G, "bias": H}, {"epsilon": 0.5}, {"axis": 0}],
    ),
    ops.layernorm: (
        (A,),
        [
            *({}, {"gain": G}, {"bias": G}, {"epsilon": 1e-3}, {"epsilon": 0}),
            *({"epsilon": 1e16}, {"epsilon": 1e-16}),
        ],
    ),
    ops.rmsnorm: ((A,), [{}, {"gain": G}, {"epsilon": 1e-3}, {"epsilon": 1e3}]),
    ops.conv2d: (
        (P, F),
        [
            *({}, {"bias": given("B", 8)}, {"stride": 2}, {"stride": (1, 2)}, {"padding": 2}),
            *({"padding": "same"}, {"dilation": (1, 1), "padding": (1, 2)}, {"layout": "NHWC"}),
            *({"activation": "relu"}, {"dtype": "float16"}, {"dtype": "bfloat16"}),
        ],
    ),
    ops.dense: (
        (V, W),
        [
            *({}, {"bias": G}, {"residual": G}, {"bias": G, "residual": H}, {"activation": "relu"}),
            *({"bias": H, "residual": G}, {"dtype": "float16"}, {"transpose_w": True}),
        ],
    ),
    ops.dense_quantized: (
        (L, J),
        [
            *({"x_scale": a, "w_scale": c} for a in (0.1, 1, 1e-5, S) for c in (0.1, 1, 1e-5, S)),
            *({"x_scale": S, "w_scale": S, "x_zero": 3}, {"x_scale": S, "w_scale": S, "w_zero": 3}),
            *({"x_scale": S, "w_scale": S, "x_zero": Z}, {"x_scale": S, "w_scale": S, "w_zero": Z}),
            {"x_scale": S, "w_scale": S, "activation": "relu"},
            {"x_scale": S, "w_scale": S, "dtype": "float16"},
            {"x_scale": S, "w_scale": S, "transpose_w": True},
        ],
    ),
    ops.dequantize: (
        (L,),
        [
            *({"scale": 0.1}, {"scale": 0.1, "zero": 5}, {"scale": 0.1, "zero": -5}, {"scale": V}),
            *({"scale": 0.1, "zero": Z}, {"scale": S, "zero": Z}, {"scale": -0.1}),
            *({"scale": V, "axis": 0}, {"scale": 0.1, "dtype": "float16"}),
        ],
    ),
    ops.quantize: (
        (A,),
        [
            *({"scale": 0.1}, {"scale": 0.1, "zero": 5}, {"scale": 0.1, "zero": Z}, {"scale": V}),
            *({"scale": V, "zero": Z}, {"scale": V, "axis": 0}, {"scale": 0.1, "dtype": "uint8"}),
        ],
    ),
    ops.requantize: (
        (T,),
        [{"shift": 3}, {"shift": 4}, {"shift": 3, "dtype": "uint8"}, {"shift": 3, "low": 0}],
    ),
    ops.matmul: (
        (A, W),
        [{}, {"transpose_a": True}, {"transpose_b": True}, {"dtype": "float16"}],
    ),
    ops.concat: (([A, W],), [{}, {"axis": 1}]),
    ops.mean: ((A,), [{}, {"axis": 0}, {"axis": (0, 1)}, {"axis": ()}, {"keepdims": True}]),
    ops.transpose: ((Q,), [{}, {"axes": (0, 2, 1)}, {"axes": (1, 0, 2)}]),
    ops.clip: ((A,), [{"low": 0}, {"high": 0}, {"low": 0, "high": 1}, {"low": -1, "high": 1}]),
    ops.leaky_relu: ((A,), [{}, {"slope": 0.2}]),
    ops.elu: ((A,), [{}, {"alpha": 0.5}]),
    ops.cast: ((A,), [{"dtype": "int8"}, {"dtype": "float64"}]),
    ops.power: ((A,), [{"y": y} for y in (-2, 0.5, 2)]),
    ops.sliding_windows: (
        (A,),
        [{"axis": 1, "size": c, "step": s} for c in (2, 3) for s in (1, 2)],
    ),
    ops.split_axis: ((A,), [{"axis": a, "inner": c} for a in (0, 1) for c in (2, 12)]),
}


@pytest.mark.parametrize("op", OPTIONS, ids=lambda op: str(op.__name__))
def test_calls_that_differ_in_an_option_have_two_names(op: Callable[..., Tensor]) -> None:
    operands, calls = OPTIONS[op]
    made = [op(*operands, **options) for options in calls]
    inner = [{t.name for t in tensors_of([result]) if t.definition is not None} for result in made]
    assert len(set().union(*inner)) == sum(map(len, inner)), [result.name for result in made]


def test_two_calls_of_different_options_are_one_program() -> None:
    op = Operator(ops.concat([ops.layernorm(X), ops.layernorm(X, epsilon=1e-3)]), [X])
    a = floats("a", 3, 17)
    (inner,) = wide(a)
    apart = inner - inner.mean(-1, keepdims=True)
    square = (apart**2).mean(-1, keepdims=True)
    op.check([a], np.concatenate([apart / np.sqrt(square + e) for e in (1e-5, 1e-3)]))


def test_inner_tensors_are_named_after_the_result() -> None:
    first, *inner, last = (t.name for t in tensors_of([ops.softmax(X, name="P")]))
    assert (first, last) == ("X", "P")
    assert inner
    assert all(name.startswith("P_") for name in inner)


def test_a_long_name_is_cut_and_stays_one_of_a_kind() -> None:
    names = []
    for last in (ops.tanh, ops.relu):
        x = X
        for _ in range(20):
            x = last(ops.softmax(x))
        names.append(x.name)
        assert len(x.name) <= 48
    assert names[0] != names[1]


def test_a_name_that_an_operand_has_is_not_given_again() -> None:
    x = oc.placeholder((m, n), name="softmax_X")
    assert (
        ops.softmax(oc.compute((m, n), lambda i, j: x[i, j] + 1.0, name="X")).name == "softmax_X_1"
    )


@pytest.mark.every(2)
@pytest.mark.parametrize("options", [{}, {"name": "P"}], ids=str)
def test_the_same_call_twice_wants_two_names(options: dict[str, Any]) -> None:
    first, second = ops.softmax(X, **options), ops.softmax(X, **options)
    with pytest.raises(oc.DescribeError, match=r"two tensors"):
        oc.compile(ops.concat([first, second]))
    oc.compile(ops.concat([first, ops.softmax(X, name="Q")]))


def test_an_operator_may_follow_itself() -> None:
    w = oc.placeholder((19, 19), name="W")
    x = oc.placeholder((m, 19), name="X")
    layer = ops.dense(ops.dense(ops.dense(x, w, activation="relu"), w, activation="relu"), w)
    op = Operator(layer, [x, w])
    for rows in (0, 1, 15, 47):
        a, v = floats("a", rows, 19), floats("v", 19, 19) / 4
        av, vv = wide(a, v)
        exact = np.maximum(np.maximum(av @ vv, 0) @ vv, 0) @ vv
        op.check([a, v], exact, interpreted=rows == 1)


def test_operators_and_plain_computations_are_one_program() -> None:
    y = oc.compute((m, n), lambda i, j: X[i, j] * 2.0 + 1.0, name="Y")
    joined = ops.concat([ops.softmax(y), ops.softmax(X), ops.relu(y)], 1)
    op = Operator(joined, [X])
    for shape in [(1, 1), (17, 15), (5, 53)]:
        a = floats("a", *shape)
        (inner,) = wide(a)
        twice = 2 * inner + 1
        parts = [special.softmax(twice, -1), special.softmax(inner, -1), np.maximum(twice, 0)]
        op.check([a], np.concatenate(parts, 1), interpreted=shape == (1, 1))
