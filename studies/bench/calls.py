"""Calls for `calls.toml`: a product of 1×16 by 16×16 as a user writes it, on numpy arrays and on tensors of torch, and models of several."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

import offcut as oc

Arrays = Mapping[str, Any]
Sizes = Mapping[str, int]
Call = Callable[[], Any]

WIDTH = 16


def _kernel(b: Any) -> oc.Kernel:
    """Return a dense layer on a constant, for any number of rows."""
    a = oc.placeholder((oc.dim("m", min=1, max=512), WIDTH), name="A")
    weight = oc.placeholder(b.shape, name="B")
    return oc.compile(oc.ops.matmul(a, weight), [a, weight], constants={"B": b}, threads=1)


def kernel(inputs: Arrays, sizes: Sizes) -> Call:
    """Return a kernel's call that makes its result."""
    return partial(_kernel(inputs["B"]), inputs["A"])


def matmul(inputs: Arrays, sizes: Sizes) -> Call:
    """Return numpy's, that makes its result."""
    return partial(np.matmul, inputs["A"], inputs["B"])


def kernel_on_tensors(inputs: Arrays, sizes: Sizes) -> Call:
    """Return a kernel's call on tensors of torch, that makes its result."""
    import torch

    return partial(_kernel(inputs["B"]), torch.from_numpy(inputs["A"]))


def kernel_on_tensors_out(inputs: Arrays, sizes: Sizes) -> Call:
    """Return a kernel's call on tensors of torch, into one that is kept."""
    import torch

    out = torch.zeros(sizes["m"], WIDTH)
    return partial(_kernel(inputs["B"]), torch.from_numpy(inputs["A"]), out=out)


def mm(inputs: Arrays, sizes: Sizes) -> Call:
    """Return torch's, that makes its result."""
    import torch

    torch.set_grad_enabled(False)
    return partial(torch.mm, *map(torch.from_numpy, (inputs["A"], inputs["B"])))


def mm_out(inputs: Arrays, sizes: Sizes) -> Call:
    """Return torch's, into a tensor that is kept."""
    import torch

    torch.set_grad_enabled(False)
    operands = map(torch.from_numpy, (inputs["A"], inputs["B"]))
    return partial(torch.mm, *operands, out=torch.zeros(sizes["m"], WIDTH))


def products(count: int) -> Any:
    """Return an ONNX model of so many products in a row, a kernel each."""
    import onnx

    kind, helper = onnx.TensorProto.FLOAT, onnx.helper
    x, y = (helper.make_tensor_value_info(name, kind, ["m", WIDTH]) for name in ("x", "y"))
    weight = np.random.default_rng(0).standard_normal((WIDTH, WIDTH), np.float32) / 8
    names = ["x", *(f"x{number}" for number in range(1, count)), "y"]
    nodes = [
        helper.make_node("MatMul", [names[number], "w"], [names[number + 1]])
        for number in range(count)
    ]
    graph = helper.make_graph(nodes, "g", [x], [y], [onnx.numpy_helper.from_array(weight, "w")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
