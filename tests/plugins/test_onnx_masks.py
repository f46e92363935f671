"""Attention of files under masks that places give, with heads that share keys: its loops end where the mask does."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx", reason="the extra onnx is not installed")

import onnx
import onnx.reference
from onnx import numpy_helper

from offcut.graph.passes import run_passes
from offcut.plugins.onnx.import_model import import_proto
from tests.agree import agree

HEAD = '<ir_version: 10, opset_import: ["" : 23]> g (float[b, 4, s, 8] q, float[b, 2, s, 8] k, float[b, 2, s, 8] v) => (float[b, 4, s, 8] y)'
COUNTED = """
n = Shape <start = 2, end = 3> (q)
at = Squeeze (n)
column = Range (zero, at, one)
row = Unsqueeze (column, last)
seen = LessOrEqual (column, row)
"""
MASKS = {
    "Range and LessOrEqual": f"{COUNTED} y = Attention (q, k, v, seen)",
    "Where and minus infinity": f"{COUNTED} mask = Where (seen, nothing, least) y = Attention (q, k, v, mask)",
    "Trilu": """
        n = Shape <start = 2, end = 3> (q)
        shape = Concat <axis = 0> (n, n)
        full = Expand (one, shape)
        low = Trilu <upper = 0> (full)
        seen = Cast <to = 9> (low)
        y = Attention (q, k, v, seen)""",
    "a triangle in the file": """
        n = Shape <start = 2, end = 3> (q)
        ends = Concat <axis = 0> (n, n)
        seen = Slice (triangle, starts, ends)
        y = Attention (q, k, v, seen)""",
}
CONSTANTS = {
    "zero": np.int64(0),
    "one": np.int64(1),
    "last": np.array([1]),
    "nothing": np.float32(0),
    "least": np.float32(-np.inf),
    "starts": np.array([0, 0]),
    "triangle": np.tril(np.ones((300, 300), bool)),
}


def file(text: str) -> Any:
    """A model whose constants are those that it names."""
    made = onnx.parser.parse_model(f"{HEAD} {{ {text} }}")
    read = {name for node in made.graph.node for name in node.input}
    made.graph.initializer.extend(
        numpy_helper.from_array(np.asarray(array), name)
        for name, array in CONSTANTS.items()
        if name in read
    )
    return made


@pytest.mark.parametrize("which", MASKS)
def test_a_causal_mask_of_a_file_is_an_option(which: str) -> None:
    model = import_proto(file(MASKS[which]), {"s": (0, 300)}, {})
    nodes = run_passes(model.bound).graph.nodes
    (node,) = (node for node in nodes if node.op == "attention")
    assert dict(node.options) == {"causal": True, "past": 0}
    assert len(nodes) == 1


LENGTHS = (
    '<ir_version: 10, opset_import: ["" : 24]> g (float[b, 4, n, 8] q, float[b, 2, t, 8] k, float[b, 2, t, 8] v, int64[b] ends)'
    " => (float[b, 4, n, 8] y) { y = Attention <is_causal = CAUSAL> (q, k, v, , , , ends) }"
)


def test_keys_past_the_number_that_are_no_padding_are_not_read() -> None:
    import offcut as oc

    model = oc.from_onnx(onnx.parser.parse_model(LENGTHS.replace("CAUSAL", "0")))
    rng = np.random.default_rng(0)
    q, k, v = (
        rng.standard_normal((4, heads, n, 8)).astype(np.float32)
        for heads, n in ((4, 5), (2, 33), (2, 33))
    )
    ends = np.array([1, 16, 33, 0])
    bad = k.copy()
    for batch, end in enumerate(ends):
        bad[batch, :, end:] = np.nan
    (found,) = model({"q": q, "k": bad, "v": v, "ends": ends}).values()
    keys, values = (np.repeat(one.astype("f8"), 2, 1) for one in (k, v))
    visible = np.arange(33) < ends[:, None, None, None]
    scores = np.where(visible, q.astype("f8") @ np.swapaxes(keys, 2, 3) / math.sqrt(8), -np.inf)
    weights = np.exp(scores - np.maximum(scores.max(-1, keepdims=True), -1e300))
    weights /= np.maximum(weights.sum(-1, keepdims=True), 1e-300)
    exact, terms = weights @ values, weights @ np.abs(values)
    agree(found, exact, terms=terms + 1e-6, units=64, sums="float32")


def test_causal_attention_from_a_place_of_each_sequence_is_the_function_of_the_standard() -> None:
    import offcut as oc

    file = onnx.parser.parse_model(LENGTHS.replace("CAUSAL", "1"))
    rng = np.random.default_rng(0)
    shapes = {"q": (3, 4, 5, 8), "k": (3, 2, 9, 8), "v": (3, 2, 9, 8)}
    feed = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    feed["ends"] = np.array([9, 5, 7])
    (found,) = oc.from_onnx(file)(feed).values()
    (exact,) = onnx.reference.ReferenceEvaluator(file).run(None, feed)
    agree(found, exact.astype("f8"), terms=np.abs(feed["v"]).max(), units=64, sums="float32")
