"""Recurrent layers over sequences of any length, against the formulas in float64 and against torch."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from compiled import Array, floats
from conftest import rejection
from recurrences import cell, sigmoid

import offcut as oc
from offcut import ops
from offcut.ir import Tile, walk
from tests.agree import agree, computed

WIDTH = 20
b, steps = oc.dim("b", max=64), oc.dim("t", max=512)


def operands(layer: str, dtype: str = "float32") -> dict[str, Any]:
    parts = {"lstm": 4, "gru": 3}[layer]
    shapes: dict[str, tuple[Any, ...]] = {
        "x": (steps, b, parts * WIDTH),
        "r": (parts * WIDTH, WIDTH),
        "h": (b, WIDTH),
        **({"c": (b, WIDTH)} if layer == "lstm" else {"bias": (WIDTH,)}),
    }
    return {label: oc.placeholder(shape, dtype, label) for label, shape in shapes.items()}


def values(layer: str, length: int, batch: int, dtype: str = "float32") -> dict[str, Array]:
    sizes = {steps: length, b: batch}
    return {
        label: floats(label, *(int(sizes.get(n, n)) for n in tensor.shape), dtype=dtype)
        / (4 if label == "r" else 1)
        for label, tensor in operands(layer, dtype).items()
    }


def lstm(given: dict[str, Array], order: str, reverse: bool) -> list[Array]:
    x, r, h, c = (given[label].astype("f8") for label in ("x", "r", "h", "c"))
    y = np.zeros((*x.shape[:2], WIDTH))
    for t in range(len(x))[:: -1 if reverse else 1]:
        g = dict(zip(order, np.split(x[t] + h @ r.T, 4, axis=1), strict=True))
        c = sigmoid(g["f"]) * c + sigmoid(g["i"]) * np.tanh(g["g"])
        y[t] = h = sigmoid(g["o"]) * np.tanh(c)
    return [y, h, c]


def gru(given: dict[str, Array], order: str, reverse: bool) -> list[Array]:
    x, r, h, bias = (given[label].astype("f8") for label in ("x", "r", "h", "bias"))
    y = np.zeros((*x.shape[:2], WIDTH))
    for t in range(len(x))[:: -1 if reverse else 1]:
        g = dict(zip(order, np.split(x[t], 3, axis=1), strict=True))
        q = dict(zip(order, np.split(h @ r.T, 3, axis=1), strict=True))
        n = np.tanh(g["n"] + sigmoid(g["r"] + q["r"]) * (q["n"] + bias))
        z = sigmoid(g["z"] + q["z"])
        y[t] = h = (1 - z) * n + z * h
    return [y, h]


LAYERS: dict[str, Any] = {"lstm": (ops.lstm, lstm, "iofg"), "gru": (ops.gru, gru, "zrn")}


@pytest.mark.every(4)
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("layer", LAYERS)
def test_a_layer_is_right_at_any_length_and_batch(layer: str, reverse: bool) -> None:
    describe, exact, order = LAYERS[layer]
    program = describe(**operands(layer), gates=order, reverse=reverse)
    r = values(layer, 1, 1)["r"]
    kernel = oc.compile(program, constants={"r": r})
    for length, batch in [(0, 3), (1, 1), (5, 0), (7, 13), (3, 15), (2, 47)]:
        given = values(layer, length, batch)
        found = kernel(*(given[one.name] for one in kernel.signature.inputs))
        wanted = computed(partial(exact, order=order, reverse=reverse), given)
        for one, other in zip(found, wanted, strict=True):
            agree(one, other)


@pytest.mark.every(2)
@pytest.mark.parametrize("layer", LAYERS)
def test_products_of_the_state_run_by_microkernels_and_as_interpreted(layer: str) -> None:
    describe, exact, _ = LAYERS[layer]
    program = describe(**operands(layer, "float64"))
    given = values(layer, 2, 1, "float64")
    kernel = oc.compile(program, constants={"r": given["r"]})
    tiles = [stmt for stmt in walk(kernel.loops.body) if isinstance(stmt, Tile)]
    assert any(tile.microkernel is not None for tile in tiles)
    order = {"lstm": "ifgo", "gru": "rzn"}[layer]
    wanted = computed(partial(exact, order=order, reverse=False), given)
    for found in (program.run(given), kernel(*(given[a.name] for a in kernel.signature.inputs))):
        for one, other in zip(found, wanted, strict=True):
            agree(one, other)


def test_a_layer_is_the_one_of_torch() -> None:
    torch = pytest.importorskip("torch", reason="an extra")
    torch.manual_seed(0)
    for layer, made in (("lstm", torch.nn.LSTM(9, WIDTH)), ("gru", torch.nn.GRU(9, WIDTH))):
        x = torch.randn(6, 3, 9)
        w, r, one, other = (p.detach() for p in made.parameters())
        biases = one + other
        given = {"r": r, "h": torch.zeros(3, WIDTH)}
        if layer == "gru":
            biases[2 * WIDTH :] -= other[2 * WIDTH :]
            given["bias"] = other[2 * WIDTH :]
        else:
            given["c"] = torch.zeros(3, WIDTH)
        given["x"] = x @ w.T + biases
        kernel = oc.compile(LAYERS[layer][0](**operands(layer)), constants={"r": r.numpy()})
        y, *_ = kernel(*(given[a.name].contiguous().numpy() for a in kernel.signature.inputs))
        agree(y, made.double()(x.double())[0].detach().numpy(), terms=16)


def test_what_does_not_fit_is_refused() -> None:
    given = operands("lstm")
    with rejection(
        "DescribeError: lstm: cannot take gates='ifg'\n"
        "  because  gates are the letters of 'ifgo' in the order of the weights"
    ):
        ops.lstm(**given, gates="ifg")
    with rejection(
        "DescribeError: gru: cannot take x of shape (t, b, 80)\n"
        "  at       x: float32[t, b, 80]\n"
        "  because  x has the shape (t, b, 60)"
    ):
        ops.gru(given["x"], given["r"], given["h"], given["c"])
    with rejection(
        "DescribeError: lstm: cannot tell its operands apart\n"
        "  because  they are called x, r, x\n"
        "  help     a name of its own for each"
    ):
        ops.lstm(given["x"], given["r"], oc.placeholder((b, WIDTH), name="x"))
    with rejection(
        "DescribeError: lstm: cannot take lengths of float32\n"
        "  at       n: float32[b]\n"
        "  because  lengths is of int32, int64"
    ):
        ops.lstm(**given, lengths=oc.placeholder((b,), name="n"))
    with rejection(
        "DescribeError: rnn: cannot take a state of b\n"
        "  at       r: float32[80, b]\n"
        "  because  its extent is an int, at least 1"
    ):
        ops.rnn(given["x"], oc.placeholder((80, b), name="r"))
    with rejection(
        "DescribeError: lstm: cannot take r = s\n"
        "  because  it is computed, and a program reads placeholders\n"
        '  help     placeholder(…, name="s")'
    ):
        ops.lstm(**{**given, "r": ops.relu(given["r"], name="s")})
    with rejection(
        "DescribeError: lstm: cannot take activations=('sigmoid', 'tanh')\n"
        "  because  it has 3, each of sigmoid, tanh, relu"
    ):
        ops.lstm(**given, activations=("sigmoid", "tanh"))
    with rejection(
        "DescribeError: lstm: cannot take clip=0\n  because  it is a number greater than 0"
    ):
        ops.lstm(**given, clip=0)
    gated = operands("gru")
    after = oc.placeholder((WIDTH, WIDTH), name="after")
    two = oc.placeholder((2 * WIDTH, WIDTH), name="r")
    with rejection(
        "DescribeError: gru: cannot take after= with gates='nrz'\n"
        "  because  what is reset before the product has no bias, and its part of x is the last"
    ):
        ops.gru(gated["x"], two, gated["h"], gates="nrz", after=after)


OPTIONS: dict[str, tuple[str, dict[str, tuple[Any, ...]], dict[str, Any]]] = {
    "lstm of zeros, whose rows have lengths": ("lstm", {"lengths": (b,)}, {}),
    "lstm backwards, whose rows have lengths": (
        *("lstm", {"h": (b, WIDTH), "c": (b, WIDTH), "lengths": (b,)}),
        {"reverse": True},
    ),
    "lstm with peepholes": ("lstm", {"peepholes": (3 * WIDTH,)}, {}),
    "lstm with a projection": (
        *("lstm", {"r": (4 * WIDTH, 12), "h": (b, 12), "projection": (12, WIDTH)}),
        {},
    ),
    "lstm of other functions, cut": (
        *("lstm", {"c": (b, WIDTH)}),
        {"activations": ("relu", "sigmoid", "relu"), "clip": 0.5},
    ),
    "gru that resets before the product": (
        *("gru", {"r": (2 * WIDTH, WIDTH), "after": (WIDTH, WIDTH), "lengths": (b,)}),
        {"reverse": True},
    ),
    "rnn": ("rnn", {"h": (b, WIDTH)}, {}),
    "rnn of zeros, whose rows have lengths": (
        *("rnn", {"lengths": (b,)}),
        {"activation": "relu", "clip": 2.0},
    ),
}


@pytest.mark.every(2)
@pytest.mark.parametrize("case", OPTIONS)
def test_a_layer_with_options_is_its_formula_row_by_row(case: str) -> None:
    layer, shapes, how = OPTIONS[case]
    parts = {"lstm": 4, "gru": 3, "rnn": 1}[layer] * WIDTH
    shapes = {"x": (steps, b, parts), "r": (parts, WIDTH), **shapes}

    def described(dtype: str) -> oc.Program:
        made = {
            name: oc.placeholder(shape, "int32" if name == "lengths" else dtype, name)
            for name, shape in shapes.items()
        }
        return getattr(ops, layer)(**made, **how)  # type: ignore[no-any-return]

    def drawn(length: int, batch: int, dtype: str) -> dict[str, Array]:
        sizes = {steps: length, b: batch}
        found = {
            name: floats(name, *(int(sizes.get(n, n)) for n in shape), dtype=dtype)
            for name, shape in shapes.items()
        }
        scaled = {name: one / (4 if name in ("r", "after") else 1) for name, one in found.items()}
        if "lengths" in scaled:
            scaled["lengths"] = (np.arange(batch) % (length + 1)).astype("i4")
        return scaled

    weights = [n for n in ("r", "after", "projection") if n in shapes]
    held = drawn(1, 1, "float32")
    kernel = oc.compile(described("float32"), constants={n: held[n] for n in weights})
    tiles = [stmt for stmt in walk(kernel.loops.body) if isinstance(stmt, Tile)]
    assert any(tile.microkernel is not None for tile in tiles)
    for length, batch in [(0, 3), (4, 15), (3, 1)]:
        given = drawn(length, batch, "float32")
        found = kernel(*(given[one.name] for one in kernel.signature.inputs))
        wanted = computed(lambda given: cell(layer, given, how), given)
        for one, other in zip(found, wanted, strict=True):
            agree(one, other)
    given = drawn(3, 3, "float64")
    wanted = computed(lambda given: cell(layer, given, how), given)
    for one, other in zip(described("float64").run(given), wanted, strict=True):
        agree(one, other)


def test_a_state_may_begin_as_another() -> None:
    given = operands("lstm")
    program = ops.lstm(given["x"], given["r"], given["h"], given["h"])
    assert [buffer.name for buffer in program.buffers[:4]] == ["x", "r", "h", "lstm"]
    held = values("lstm", 2, 3, "float32")
    found = program.run({name: held[name] for name in "xrh"})
    wanted = computed(lambda held: lstm({**held, "c": held["h"]}, "ifgo", False), held)
    for one, other in zip(found, wanted, strict=True):
        agree(one, other)


def test_operands_keep_their_names_and_sizes_give_way() -> None:
    r = oc.dim("r", max=8)
    x = oc.placeholder((r, 2, 4 * WIDTH), name="x")
    program = ops.lstm(x, oc.placeholder((4 * WIDTH, WIDTH), name="r"))
    assert [size.name for size in program.sizes] == ["r_"]
    assert program.buffers[1].name == "r"


def test_weights_of_bytes_need_what_they_stand_for() -> None:
    x, r = oc.placeholder((3, 2, 32), name="x"), oc.placeholder((32, 8), "int8", name="r")
    with rejection(
        "DescribeError: lstm: cannot take r of int8 with no scale\n"
        "  because  weights of int8 have a scale and sums, and others have none\n"
        "  help     lstm(x, r, scale=scale, sums=sums) of float32 x and int8 r"
    ):
        ops.lstm(x, r)
