"""ONNX's recurrent layers, of any length, against numpy row by row."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx", reason="the extra onnx is not installed")

from recurrences import cell

import offcut as oc
from tests.agree import agree, of_peer
from tests.plugins.test_onnx import drawn, each, parsed

WIDTH, WIDE = 6, 4
ORDERS = {"LSTM": ("iofg", "ifgo"), "GRU": ("zrn", "rzn"), "RNN": ("h", "h")}
"""Of the gates, by ONNX and by `cell`."""


def rows(kind: str, array: Any) -> Any:
    """The gates of an array in the order of `cell`."""
    here, there = ORDERS[kind]
    parts = dict(zip(here, np.split(array, len(here)), strict=True))
    return np.concatenate([parts[gate] for gate in there])


def layer(
    kind: str, feed: dict[str, Any], held: dict[str, Any], n: int, how: dict[str, Any]
) -> Any:
    """One direction of a layer: what `cell` gives."""
    count = len(ORDERS[kind][0])
    w, r = (rows(kind, held[name][n]) for name in "wr")
    given = {"lengths": feed["lens"]} if "lens" in feed else {}
    biases = np.zeros(2 * count * WIDTH) if "b" not in held else held["b"][n]
    mine, other = (rows(kind, half) for half in np.split(biases.astype("f8"), 2))
    given["r"] = r
    if kind == "GRU" and not how.get("linear", 0):
        given |= {"r": r[: 2 * WIDTH], "after": r[2 * WIDTH :]}
    elif kind == "GRU":
        given["bias"], other = other[2 * WIDTH :], np.append(other[: 2 * WIDTH], np.zeros(WIDTH))
    given["x"] = feed["x"].astype("f8") @ w.T.astype("f8") + mine + other
    given |= {name: feed[f"{name}0"][n] for name in "hc" if f"{name}0" in feed}
    if "p" in held:
        given["peepholes"] = held["p"][n]
    return cell(kind.lower(), given, how)


CASES: dict[str, tuple[str, str, str, dict[str, Any]]] = {
    "LSTM, two directions, all inputs": (
        *("LSTM", 'direction = "bidirectional"', "x, w, r, b, lens, h0, c0, p", {}),
    ),
    "GRU backwards, reset before the product": (
        *("GRU", 'direction = "reverse"', "x, w, r, b, lens", {}),
    ),
    "GRU, two directions, reset after the product": (
        "GRU",
        'linear_before_reset = 1, direction = "bidirectional"',
        "x, w, r, b, , h0",
        {"linear": 1},
    ),
    "RNN of relu, cut, without bias": (
        *("RNN", 'activations = ["Relu"], clip = 0.5', "x, w, r"),
        {"activation": "relu", "clip": 0.5},
    ),
}


@pytest.mark.every(4)
@pytest.mark.parametrize("case", CASES)
def test_a_layer_is_taken_at_any_length(case: str) -> None:
    kind, attributes, inputs, how = CASES[case]
    two, gates = "bidirectional" in attributes, len(ORDERS[kind][0]) * WIDTH
    d = 2 if two else 1
    shapes: dict[str, tuple[int, ...]] = {"w": (d, gates, WIDE), "r": (d, gates, WIDTH)}
    shapes |= {"b": (d, 2 * gates), "p": (d, 3 * WIDTH)}
    taken = inputs.replace(" ", "").split(",")
    held = {
        name: drawn(n, *shape) / 3
        for n, (name, shape) in enumerate(shapes.items())
        if name in taken
    }
    declared = {"x": f"float[t, n, {WIDE}]", "lens": "int32[n]", "h0": f"float[{d}, n, {WIDTH}]"}
    declared["c0"] = declared["h0"]
    heads = ", ".join(f"{kind} {name}" for name, kind in declared.items() if name in taken)
    results = ("y", "h", "c") if kind == "LSTM" else ("y", "h")
    types = ", ".join(f"float[{'s, ' * (name == 'y')}{d}, n, {WIDTH}] {name}" for name in results)
    node = f"{', '.join(results)} = {kind} <hidden_size = {WIDTH}, {attributes}> ({inputs})"
    model = oc.from_onnx(parsed(f"g ({heads}) => ({types}) {{ {node} }}", **held), threads=1)
    for t, n in ((4, 3), (1, 1)):
        feed = {"x": drawn(9, t, n, WIDE)}
        if "lens" in taken:
            feed["lens"] = np.arange(n, dtype="i4") + t - n + 1
        feed |= {name: drawn(8, d, n, WIDTH) for name in ("h0", "c0") if name in taken}
        backwards = [False, True] if two else ["reverse" in attributes]
        runs = [
            layer(kind, feed, held, place, {**how, "reverse": back})
            for place, back in enumerate(backwards)
        ]
        found = model(feed)
        every, *last = zip(*runs, strict=True)
        wanted = [np.stack(every, axis=1), *map(np.stack, last)]
        for name, exact in zip(results, wanted, strict=True):
            agree(found[name], of_peer(exact))


def test_states_that_are_zeros_are_none() -> None:
    text = """g (float[t, n, 4] x) => (float[s, 1, n, 6] y)
    { all = Shape (x)  n = Gather (all, one)  to = Concat <axis = 0> (one, n, six)
      h = Expand (zero, to)  y = LSTM <hidden_size = 6> (x, w, r, , , h, h) }"""
    weights = {"w": drawn(1, 1, 24, 4), "r": drawn(2, 1, 24, 6), "zero": np.float32(0)}
    proto = parsed(text, one=np.array([1]), six=np.array([6]), **weights)
    model = each(proto, [{"x": drawn(0, t, n, 4)} for t, n in ((3, 2), (1, 1))])
    (node,) = (node for node in model.graph.nodes if node.op == "lstm")
    assert {"h", "c"}.isdisjoint(name for name, _ in node.options)


def test_what_no_layer_of_ours_does_is_refused() -> None:
    head = "g (float[t, n, 4] x) => (float[s, 1, n, 6] y) { y = "
    weights = {"w": drawn(1, 1, 24, 4), "r": drawn(2, 1, 24, 6)}
    for attributes, because in (
        ("input_forget = 1", "input_forget=1"),
        ('activations = ["Elu", "Tanh", "Tanh"]', "the activation Elu"),
        (
            'activations = ["Tanh", "Tanh", "Tanh"], activation_alpha = [0.5]',
            "activations with parameters",
        ),
    ):
        node = f"LSTM <hidden_size = 6, {attributes}> (x, w, r) }}"
        with pytest.raises(oc.DescribeError, match=because):
            oc.from_onnx(parsed(head + node, **weights))
