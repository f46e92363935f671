"""Runs where `tests.functions.scratch` has added rows: what each host and each stage makes of them."""

from __future__ import annotations

import sys
from typing import Any

import mpmath
import numpy as np
import pytest

import offcut as oc
from offcut import ops
from offcut.core.dtypes import numpy_dtype
from offcut.core.function_table import FUNCTIONS

POINTS = [0.0, -0.0, 1e-7, -1e-3, 0.1, -0.5, 0.8660254, 1.0, -2.5, 3.75, 10.0, -100.5, 3e4]
N = oc.dim("n", min=0, max=4096)


def values(dtype: str, seed: int, count: int = 67) -> Any:
    rest = np.random.default_rng(seed).standard_normal(count - len(POINTS)) * 4
    return np.array([*POINTS, *rest]).astype(numpy_dtype(dtype))


def errors(name: str, found: Any, *arguments: Any) -> float:
    """The largest error, in units in the last place of the type of `found`."""
    most = 0.0
    with mpmath.workdps(60):
        for got, *given in zip(found, *arguments, strict=True):
            exact = FUNCTIONS[name].exact(*map(float, given))
            near = np.array(float(exact)).astype(found.dtype)
            if abs(float(near)) < float(np.finfo(np.float32).tiny):
                assert float(got) == float(near) or abs(float(got) - float(exact)) < 1e-45
                continue
            _, exponent = np.frexp(float(near))
            digits = {"float64": 53, "float32": 24, "float16": 11, "bfloat16": 8}[str(found.dtype)]
            least = -24 if str(found.dtype) == "float16" else -149
            unit = mpmath.mpf(2) ** max(int(exponent) - digits, least)
            most = max(most, float(abs(mpmath.mpf(float(got)) - exact) / unit))
    return most


def computed(dtypes: list[str]) -> None:
    """Described, compiled, interpreted, printed, read, priced, and asked for help."""
    for dtype in dtypes:
        X, Y = (oc.placeholder((N,), dtype, name=name) for name in "XY")
        x, y = values(dtype, 1), values(dtype, 2)[::-1].copy()
        for name, inputs, arrays in (("asinh", [X], [x]), ("hypot", [X, Y], [x, y])):
            described = oc.compute(
                (N,), lambda i, n=name, t=inputs: getattr(oc, n)(*(one[i] for one in t)), name="Z"
            )
            for tensor in (described, getattr(ops, name)(*inputs, name="Z")):
                kernel = oc.compile(tensor, inputs=inputs)
                bound = {"float64": 2, "float32": 1}.get(dtype, 0.51)
                assert errors(name, kernel(*arrays), *arrays) <= bound, (name, dtype)
            for size in (0, 1, 15, 16, 17):
                part = [one[:size] for one in arrays]
                np.testing.assert_array_equal(kernel(*part), kernel(*arrays)[:size])
            plain = oc.compile(described, inputs=inputs, target="interpret")
            assert errors(name, plain(*arrays), *arrays) <= bound + 0.5, (name, dtype)
            text = str(kernel.loops)
            assert f"{name}(" in text
            assert str(oc.parse(text)) == text
            assert oc.parse(text) == kernel.loops
            assert 30 <= FUNCTIONS[name].cycles <= 40
            assert (
                kernel.cost(n=4000).seconds
                > 3 * oc.compile(ops.absolute(X), inputs=[X]).cost(n=4000).seconds
            )
    assert "inverse hyperbolic sine" in (oc.asinh.__doc__ or "")
    assert "asinh" in dir(oc)
    assert "hypot" in ops.__all__
    taken = oc.compute((N,), lambda i: X[i] + X[i], name="hypot")
    assert "output hypot_:" in str(oc.compile(taken, inputs=[X]).loops)
    for call, words in (
        (lambda: oc.asinh(1.0), "cannot take asinh of 1.0"),
        (lambda: oc.hypot(X, 1.0), "X as an operand of hypot"),
        (lambda: oc.hypot(oc.cast(3, "int32"), 2), "cannot take hypot of int32"),
        (lambda: ops.asinh(oc.placeholder((N,), "int32", name="I")), "asinh"),
        (lambda: np.absolute(X[0]), "offcut.absolute"),
        (lambda: float(X[0]), "asinh, hypot, in place of those of math"),
    ):
        with pytest.raises(oc.DescribeError, match=words):
            call()


def in_torch() -> None:
    import torch

    class Both(torch.nn.Module):
        def forward(self, x: Any, y: Any) -> Any:
            return torch.asinh(x), torch.hypot(x, y)

    torch.manual_seed(1)
    for dtype, bound in ((torch.float32, 1), (torch.float64, 2)):
        x, y = torch.randn(5, 9, dtype=dtype), torch.randn(5, 9, dtype=dtype)
        with torch.no_grad():
            got = torch.compile(Both(), backend="offcut")(x, y)
        model = oc.from_torch(torch.export.export(Both(), (x, y)))
        for one, name, arguments in (
            *((got[0], "asinh", (x,)), (got[1], "hypot", (x, y))),
            (model(x, y)[0], "asinh", (x,)),
        ):
            flat = [torch.as_tensor(each).numpy().ravel() for each in (one, *arguments)]
            assert errors(name, *flat) <= bound
        assert "asinh" in str(model.plan())


def in_onnx() -> None:
    import onnx
    from onnx import TensorProto, helper

    for kind, dtype in ((TensorProto.FLOAT, "float32"), (TensorProto.DOUBLE, "float64")):
        graph = helper.make_graph(
            [helper.make_node("Asinh", ["x"], ["y"])],
            "graph",
            [helper.make_tensor_value_info("x", kind, ["n"])],
            [helper.make_tensor_value_info("y", kind, ["n"])],
        )
        file = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)])
        onnx.checker.check_model(file)
        model, x = oc.from_onnx(file), values(dtype, 3)
        assert errors("asinh", model(x)["y"], x) <= 2


def in_mlir() -> None:
    from xdsl.dialects import scf

    from offcut.plugins.mlir import OffcutPartition, import_nest
    from tests.plugins.mlir_programs import context, parsed

    module = parsed(
        """func.func @f(%n: index, %x: memref<?xf32>, %y: memref<?xf32>) {
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  scf.for %i = %zero to %n step %one {
    %a = memref.load %x[%i] : memref<?xf32>
    %b = math.asinh %a : f32
    %c = math.atan2 %b, %a : f32
    memref.store %c, %y[%i] : memref<?xf32>
  }
  func.return
}"""
    )
    loop = next(op for op in module.walk() if isinstance(op, scf.ForOp))
    assert "atan2(asinh(" in str(import_nest(loop).program)
    OffcutPartition(tile="i=4", tail="cut").apply(context(), module)
    module.verify()
    assert str(module).count("math.asinh") == str(module).count("math.atan2") > 1


def in_tvm() -> None:
    from tvm import tirx

    from offcut.plugins.tvm import export_tir, import_tir, relax_dispatch

    assert import_tir.CALLS["asinh"].name == "asinh"
    assert "relax.asinh" in relax_dispatch.RULES
    x = tirx.Var("x", "float32")
    assert "hypot" in str(export_tir._CALLS["hypot"](x, x))


if __name__ == "__main__":
    assert "asinh" in FUNCTIONS, "offcut is not the copy"
    what, *given = sys.argv[1:]
    {"torch": in_torch, "onnx": in_onnx, "mlir": in_mlir, "tvm": in_tvm}.get(
        what, lambda: computed([what, *given])
    )()
