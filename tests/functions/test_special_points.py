"""Every row of the table, and what plugins compose of them, at zeros of either sign, infinities, NaN and 1: the bits of numpy, or of the host."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from conftest import slow
from operators import within

import offcut as oc
from offcut import ops
from offcut.core.dtypes import numpy_dtype
from offcut.core.function_table import FUNCTIONS

POINTS = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0]
TYPES = ["float32", *map(slow, ("float64", "float16", "bfloat16"))]
N = oc.dim("n")
COMPOSED: dict[str, Callable[..., Any]] = {
    "acos": np.arccos,
    "acosh": np.arccosh,
    "asin": np.arcsin,
    "asinh": np.arcsinh,
    "atan": np.arctan,
    "atanh": np.arctanh,
    "cosh": np.cosh,
    "sinh": np.sinh,
    "tan": np.tan,
}
"""Functions of one element that plugins compose of rows, with numpy's."""


def equal(found: Any, exact: Any, ulps: float, what: object) -> None:
    """NaN where that is exact, and zeros and infinities with their signs; other numbers within some units in the last place."""
    within(ulps, found, exact)
    special = (exact == 0) | np.isinf(exact)
    signs = np.signbit(found.astype(np.float64)), np.signbit(exact)
    np.testing.assert_array_equal(signs[0][special], signs[1][special], str(what))
    np.testing.assert_array_equal(found.astype(np.float64)[special], exact[special], str(what))


def ulps(name: str, dtype: str) -> float:
    return {"float32": FUNCTIONS[name].ulp, "float64": 2.0}.get(dtype, 0.51)


@pytest.mark.parametrize("dtype", TYPES)
def test_the_larger_of_minus_zero_and_a_literal_zero_is_minus_zero(dtype: str) -> None:
    X = oc.placeholder((N,), dtype, "X")
    tensors = [ops.relu(X), ops.relu6(X), ops.clip(X, low=0.0), ops.clip(X, high=0.0)]
    kernel = oc.compile(tensors, inputs=[X])
    x = np.array(POINTS * 5).astype(numpy_dtype(dtype))
    wide = x.astype(np.float64)
    positive, negative = np.where(wide < 0, 0.0, wide), np.where(wide > 0, 0.0, wide)
    exact = positive, np.where(positive > 6, 6.0, positive), positive, negative
    for outputs in (kernel(x), kernel.loops.run({"X": x})):
        for number, (one, right) in enumerate(zip(outputs, exact, strict=True)):
            equal(np.asarray(one), right, 0, number)


OF_TORCH = ("relu", "relu6", "hardtanh", "leaky_relu", "softplus")
IN_FLOAT64_BY_TORCH = ("acos", "acosh", "asin", "asinh", "atan", "atanh", "lgamma")


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is an extra")
@pytest.mark.parametrize("dtype", TYPES)
def test_torch_s_functions_give_its_special_values(dtype: str) -> None:
    import torch

    names = [r.aten for r in FUNCTIONS.values() if r.aten and r.arity == 1]
    names += [*COMPOSED, "lgamma", "expm1", "exp2", "log2", "log10", "rsqrt", "sign", "trunc"]
    names = [name for name in names if dtype != "float64" or name not in IN_FLOAT64_BY_TORCH]
    functions = [getattr(torch, name) for name in names]
    functions += [getattr(torch.nn.functional, name) for name in OF_TORCH]

    class Every(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return tuple(function(x) for function in functions)

    x = torch.tensor(POINTS * 3, dtype=getattr(torch, dtype))
    model = oc.from_torch(Every(), (x,))
    assert not model.program.left
    for name, one, own in zip([*names, *OF_TORCH], model(x), Every()(x), strict=True):
        found, exact = (each.double().numpy() for each in (one, own))
        equal(found.astype(numpy_dtype(dtype)), exact, 4, name)


@pytest.mark.skipif(importlib.util.find_spec("onnx") is None, reason="onnx is an extra")
@pytest.mark.parametrize("dtype", ["float32", slow("float16")])
def test_onnx_s_functions_give_numpy_s_special_values(dtype: str) -> None:
    from onnx import TensorProto, helper

    rows = {r.onnx: r.evaluate for r in FUNCTIONS.values() if r.public and r.onnx}
    exact: dict[str, Callable[..., Any]] = {
        **{name.capitalize(): function for name, function in COMPOSED.items()},
        **rows,
        "Relu": lambda x: np.where(x < 0, 0.0, x),
    }
    exact.pop("Log1p", None)
    kind = {"float32": TensorProto.FLOAT, "float16": TensorProto.FLOAT16}[dtype]

    def info(name: str) -> Any:
        return helper.make_tensor_value_info(name, kind, ["n"])

    nodes = [helper.make_node(op, ["x"], [op.lower()]) for op in exact]
    graph = helper.make_graph(nodes, "g", [info("x")], [info(op.lower()) for op in exact])
    model = oc.from_onnx(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)]))
    x = np.array(POINTS * 3).astype(dtype)
    found = model(x)
    with np.errstate(all="ignore"):
        for op, function in exact.items():
            right = np.asarray(function(x.astype(np.float64)))
            equal(found[op.lower()], right, 2, op)
