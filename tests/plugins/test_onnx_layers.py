"""ONNX's recurrent layers, of any length, against numpy row by row; attention under masks that places give, whose loops end where these do."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx", reason="the extra onnx is not installed")

import onnx
import onnx.reference
from recurrences import cell

import offcut as oc
from offcut.graph.passes import run_passes
from offcut.plugins.onnx.import_model import import_proto
from tests.agree import agree, of_peer
from tests.plugins.test_onnx import calls, drawn, each, parsed

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
    "LSTM, two directions, all inputs": ("LSTM", 'direction = "bidirectional"', "x, w, r, b, lens, h0, c0, p", {}),
    "GRU backwards, reset before the product": ("GRU", 'direction = "reverse"', "x, w, r, b, lens", {}),
    "GRU, two directions, reset after the product": (
        "GRU", 'linear_before_reset = 1, direction = "bidirectional"', "x, w, r, b, , h0", {"linear": 1},
    ),
    "RNN of relu, cut, without bias": (
        "RNN", 'activations = ["Relu"], clip = 0.5', "x, w, r", {"activation": "relu", "clip": 0.5},
    ),
}  # fmt: skip


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
    proto = parsed(text, one=[1], six=[6], **weights)
    model = each(proto, calls(proto, t=(3, 1), n=(2, 1)))
    (node,) = (node for node in model.graph.nodes if node.op == "lstm")
    assert {"h", "c"}.isdisjoint(name for name, _ in node.options)


HEADS = "g (float[b, 4, s, 8] q, float[b, 2, s, 8] k, float[b, 2, s, 8] v) => (float[b, 4, s, 8] y)"
LENGTH = "n = Shape <start = 2, end = 3> (q)"
COUNTED = f"""{LENGTH}  at = Squeeze (n)  column = Range (zero, at, one)  row = Unsqueeze (column, last)
    seen = LessOrEqual (column, row)"""
MASKS = {
    "Range and LessOrEqual": f"{COUNTED} y = Attention (q, k, v, seen)",
    "Where and minus infinity": f"{COUNTED} mask = Where (seen, nothing, least) y = Attention (q, k, v, mask)",
    "Trilu": f"""{LENGTH}  shape = Concat <axis = 0> (n, n)  full = Expand (one, shape)
        low = Trilu <upper = 0> (full)  seen = Cast <to = 9> (low)  y = Attention (q, k, v, seen)""",
    "a triangle in the file": f"""{LENGTH}  ends = Concat <axis = 0> (n, n)  seen = Slice (triangle, starts, ends)
        y = Attention (q, k, v, seen)""",
}
CONSTANTS = {
    "zero": np.int64(0),
    "one": np.int64(1),
    "last": [1],
    "starts": [0, 0],
    "nothing": np.float32(0),
    "least": np.float32(-np.inf),
    "triangle": np.tril(np.ones((300, 300), bool)),
}


@pytest.mark.parametrize("which", MASKS)
def test_a_causal_mask_of_a_file_is_an_option(which: str) -> None:
    words = MASKS[which].replace("(", " ").replace(")", " ").replace(",", " ").split()
    read = {name: array for name, array in CONSTANTS.items() if name in words}
    model = import_proto(parsed(f"{HEADS} {{ {MASKS[which]} }}", 23, **read), {"s": (0, 300)}, {})
    (node,) = run_passes(model.bound).graph.nodes
    assert (node.op, dict(node.options)) == ("attention", {"causal": True, "past": 0})


def lengths(causal: int) -> Any:
    return parsed(
        f"""g (float[b, 4, n, 8] q, float[b, 2, t, 8] k, float[b, 2, t, 8] v, int64[b] ends) => (float[b, 4, n, 8] y)
        {{ y = Attention <is_causal = {causal}> (q, k, v, , , , ends) }}""", 24
    )  # fmt: skip


def test_keys_past_the_number_that_are_no_padding_are_not_read() -> None:
    q, k, v = drawn(0, 4, 4, 5, 8), drawn(1, 4, 2, 33, 8), drawn(2, 4, 2, 33, 8)
    ends = np.array([1, 16, 33, 0])
    bad = k.copy()
    for batch, end in enumerate(ends):
        bad[batch, :, end:] = np.nan
    (found,) = oc.from_onnx(lengths(0))({"q": q, "k": bad, "v": v, "ends": ends}).values()
    keys, values = (np.repeat(one.astype("f8"), 2, 1) for one in (k, v))
    visible = np.arange(33) < ends[:, None, None, None]
    scores = np.where(visible, q.astype("f8") @ np.swapaxes(keys, 2, 3) / math.sqrt(8), -np.inf)
    weights = np.exp(scores - np.maximum(scores.max(-1, keepdims=True), -1e300))
    weights /= np.maximum(weights.sum(-1, keepdims=True), 1e-300)
    exact, terms = weights @ values, weights @ np.abs(values)
    agree(found, exact, terms=terms + 1e-6, units=64, sums="float32")


def test_causal_attention_from_a_place_of_each_sequence_is_the_function_of_the_standard() -> None:
    file = lengths(1)
    feed = {"q": drawn(0, 3, 4, 5, 8), "k": drawn(1, 3, 2, 9, 8), "v": drawn(2, 3, 2, 9, 8)}
    feed["ends"] = np.array([9, 5, 7])
    (found,) = oc.from_onnx(file)(feed).values()
    (exact,) = onnx.reference.ReferenceEvaluator(file).run(None, feed)
    agree(found, exact.astype("f8"), terms=np.abs(feed["v"]).max(), units=64, sums="float32")
