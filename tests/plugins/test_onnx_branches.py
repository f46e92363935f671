"""`If` whose branches want other sizes: onnxruntime runs the one that is taken, whatever the other wants."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from conftest import rejection

pytest.importorskip("onnx", reason="the extra onnx is not installed")

import offcut as oc
from tests.plugins.test_onnx import agrees, drawn, parsed

RATES = """g (float[b, n] x, int64 rate) => (float[b, m] y) {
    c = Equal (rate, fast)
    y = If (c) <then_branch = high () => (float[b, m] p) { q = Constant <value_ints = [0, 2, 3]> ()  p = Reshape (x, q) },
                else_branch = low () => (float[b, m] p) { q = Constant <value_ints = [0, 2, 2]> ()  p = Reshape (x, q) }> }"""
PRODUCTS = """g (float[b, n] x, int64 rate) => (float[b, m] y) {
    c = Equal (rate, fast)
    y = If (c) <then_branch = high () => (float[b, m] p) { p = MatMul (x, wide) },
                else_branch = low () => (float[b, m] p) { p = MatMul (x, narrow) }> }"""


def rates() -> Any:
    return parsed(RATES, fast=np.array(16))


def test_of_branches_the_one_that_sizes_fit_is_taken_and_calls_of_the_other_are_refused() -> None:
    for n, rate, other in ((6, 16, 8), (4, 8, 16)):
        model = oc.from_onnx(rates(), sizes={"n": n}, threads=1)
        for b in (1, 3):
            x = drawn(b, b, n)
            agrees(rates(), model, {"x": x, "rate": np.array(rate)})
            with pytest.raises(oc.CallError, match="leads outside of an array"):
                model({"x": x, "rate": np.array(other)})


def test_a_rate_that_is_known_says_the_branch() -> None:
    model = oc.from_onnx(rates(), sizes={"n": 4}, constants={"rate": np.array(8)}, threads=1)
    assert model({"x": drawn(1, 2, 4)})["y"].shape == (2, 2, 2)


def test_branches_that_want_other_sizes_are_told_which_and_how_one_is_chosen() -> None:
    with rejection("""\
UnsupportedNodesError: from_onnx: cannot take one node of g
  because  If y: its branches want n = 6 and n = 4, and its condition is not known at import
  help     from_onnx(…, constants={"rate": array}) where a call never changes it"""):
        oc.from_onnx(rates())


def test_branches_that_want_other_numbers_of_one_size_are_refused() -> None:
    proto = parsed(PRODUCTS, fast=np.array(16), wide=drawn(1, 6, 3), narrow=drawn(2, 2, 3))
    with rejection("""\
UnsupportedNodesError: from_onnx: cannot take one node of g
  because  If y: its branches want n = 6 and n = 2, and its condition is not known at import
  help     from_onnx(…, constants={"rate": array}) where a call never changes it"""):
        oc.from_onnx(proto)
    model = oc.from_onnx(proto, sizes={"n": 2}, threads=1)
    agrees(proto, model, {"x": drawn(3, 5, 2), "rate": np.array(8)})
