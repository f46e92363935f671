"""Operators in one program: names that do not collide, and networks of several."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from compiled import Array, floats, same_bits
from operators import Operator, wide
from scipy import special

import offcut as oc
from offcut import ops
from offcut.core.tensor import tensors_of

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


HEADS, WIDTH, INNER = 2, 12, 20
SHAPES = {
    **{f"W{c}": (WIDTH, WIDTH) for c in "qkvo"},
    "Wup": (WIDTH, INNER),
    "Wdown": (INNER, WIDTH),
    **dict.fromkeys(("Bq", "Bk", "Bv", "Bo", "Bdown", "G1", "C1", "G2", "C2"), (WIDTH,)),
    "Bup": (INNER,),
}


def layer(x: Any, mask: Any, p: dict[str, Any]) -> Any:
    """One layer of a sentence encoder, post-norm as BERT's are."""

    def heads(c: str) -> Any:
        made = ops.dense(x, p[f"W{c}"], p[f"B{c}"])
        return ops.transpose(ops.split_axis(made, -1, WIDTH // HEADS), (0, 2, 1, 3))

    seen = ops.attention(heads("q"), heads("k"), heads("v"), mask)
    joined = ops.merge_axes(ops.transpose(seen, (0, 2, 1, 3)), 2)
    x = ops.layernorm(ops.dense(joined, p["Wo"], p["Bo"], residual=x), p["G1"], p["C1"])
    up = ops.dense(x, p["Wup"], p["Bup"], "gelu")
    return ops.layernorm(ops.dense(up, p["Wdown"], p["Bdown"], residual=x), p["G2"], p["C2"])


def layer_in_numpy(x: Array, mask: Array, p: dict[str, Array]) -> Array:
    def norm(y: Array, gain: Array, bias: Array) -> Array:
        apart = y - y.mean(-1, keepdims=True)
        return np.asarray(apart / np.sqrt((apart**2).mean(-1, keepdims=True) + 1e-5) * gain + bias)

    def heads(c: str) -> Array:
        made = x @ p[f"W{c}"] + p[f"B{c}"]
        split = made.reshape(*made.shape[:2], HEADS, WIDTH // HEADS)
        return np.asarray(split.transpose(0, 2, 1, 3))

    scores = np.einsum("bhid,bhjd->bhij", heads("q"), heads("k")) / math.sqrt(WIDTH // HEADS)
    weights = special.softmax(scores + mask, axis=-1)
    seen = np.einsum("bhij,bhjd->bihd", weights, heads("v")).reshape(x.shape)
    x = norm(seen @ p["Wo"] + p["Bo"] + x, p["G1"], p["C1"])
    up = x @ p["Wup"] + p["Bup"]
    up = 0.5 * up * (1 + special.erf(up * math.sqrt(0.5)))
    return norm(up @ p["Wdown"] + p["Bdown"] + x, p["G2"], p["C2"])


def test_a_layer_of_an_encoder_is_one_program_for_every_batch_and_length() -> None:
    x, mask = oc.placeholder((b, n, WIDTH), name="X"), oc.placeholder((b, 1, 1, n), name="M")
    given = {name: oc.placeholder(shape, name=name) for name, shape in SHAPES.items()}
    weights = {name: floats(name, *shape) / 3 for name, shape in SHAPES.items()}
    op = Operator(layer(x, mask, given), [x, mask, *given.values()])
    exact_weights = {name: value.astype("float64") for name, value in weights.items()}
    for batch, length in [(0, 5), (1, 1), (2, 17), (3, 53)]:
        a, hidden = floats("a", batch, length, WIDTH), np.zeros((batch, 1, 1, length), "float32")
        hidden[..., (length + 1) // 2 :] = -1e9
        found = op.check(
            [a, hidden, *weights.values()],
            layer_in_numpy(*wide(a, hidden), exact_weights),
            interpreted=length == 1,
        )
        if batch > 1:
            alone = op.kernel(a[1:2], hidden[1:2], *weights.values())
            assert same_bits(found[1:2], np.asarray(alone))
