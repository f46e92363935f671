"""Tasks as ONNX models, each with its symbolic sizes: what onnxruntime and OpenVINO are given.

Needs the package onnx.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from offcut.describe.request import Array
from offcut.studies.peers.matmul import as_matmul
from offcut.studies.peers.operators import (
    EPSILON,
    Attention,
    Convolution,
    Dequantized,
    LayerNorm,
    Problem,
    Softmax,
)

CONTRIBUTED = ("MatMulIntegerToFloat", "MultiHeadAttention")
"""onnxruntime's own operators."""

OPSET = 23

Node = tuple[str, list[str], list[str], dict[str, Any]]
"""Operator, inputs, outputs, attributes."""

Extents = Sequence[object]
"""Of an array: numbers, or names of sizes."""


@dataclass(frozen=True)
class Graph:
    """A model, and the arrays of one task for it.

    nodes      that compute Y, the only output
    inputs     arrays by name
    extents    of each input, and of Y
    constants  arrays in it, by name
    key_arrays  those of the task that constants were made of: tasks that share these, and all else but the arrays, share the model
    out        where Y goes
    view       the result with the task's axes, of `out` after it was written
    """

    name: str
    nodes: Sequence[Node]
    inputs: Mapping[str, Array]
    extents: Mapping[str, Extents]
    constants: Mapping[str, Any]
    key_arrays: tuple[Array, ...]
    out: Array
    view: Callable[[Array], Array] = lambda out: out

    @property
    def key(self) -> tuple[object, ...]:
        """Return a key that is equal for tasks that can share the model, as long as `key_arrays` are alive."""
        types = {name: array.dtype.name for name, array in self.inputs.items()}
        numbers = {name: x for name, x in self.constants.items() if np.ndim(x) == 0}
        texts = map(str, (self.nodes, self.extents, types, numbers))
        return (self.name, *texts, *map(id, self.key_arrays))

    @property
    def is_contributed(self) -> bool:
        """Return whether only onnxruntime knows its operators."""
        return any(operator in CONTRIBUTED for operator, *_ in self.nodes)

    def model(self) -> bytes:
        """Return the serialised model; bfloat16 is float32 in it, for who lowers it.

        A library that keeps bfloat16 at its borders converts inputs and result itself.
        """
        declared = {
            name: (_exchange_type(array), self.extents[name]) for name, array in self.inputs.items()
        }
        output = _exchange_type(self.out), self.extents["Y"]
        return serialize_model(self.nodes, declared, output, self.constants)

    def read(self, _: object = None) -> Array:
        """Return the result with the task's axes."""
        return self.view(self.out)


def _exchange_type(array: Array) -> np.dtype[Any]:
    """Return the element type of a model's tensor: float32 for bfloat16."""
    return np.dtype(np.float32) if array.dtype.name == "bfloat16" else array.dtype


def graphs(task: Any) -> tuple[Graph, ...]:
    """Return the models that compute `task`."""
    match task:
        case Problem():
            return _matmul(task)
        case Attention():
            return _attention(task)
        case Convolution(image, weights):
            attributes: dict[str, Any] = {"pads": [task.padding] * 4, "strides": [task.stride] * 2}
            x = ["b", image.shape[1], "y", "x"]
            y = ["b", weights.shape[0], "v", "u"]
            return (_single("Conv", task, {"X": image}, {"W": weights}, attributes, x, y),)
        case Softmax(x):
            return (_single("Softmax", task, {"X": x}, {}, {"axis": -1}, ["m", "n"], ["m", "n"]),)
        case LayerNorm(x, gain, bias):
            constants, extents = {"gain": gain, "bias": bias}, ["m", x.shape[1]]
            attributes = {"epsilon": EPSILON}
            name = "LayerNormalization"
            return (_single(name, task, {"X": x}, constants, attributes, extents, extents),)
        case Dequantized():
            return _dequantizing_graph(task)
    return ()


def _single(
    operator: str,
    task: Any,
    inputs: Mapping[str, Array],
    constants: Mapping[str, Array],
    attributes: Mapping[str, Any],
    x: Extents,
    y: Extents,
) -> Graph:
    """Return a model of one operator with one input, X, that is no constant."""
    node = (operator, [*inputs, *constants], ["Y"], dict(attributes))
    extents, key_arrays = {"X": x, "Y": y}, tuple(constants.values())
    return Graph(operator, [node], inputs, extents, constants, key_arrays, task.result())


def _matmul(task: Problem) -> tuple[Graph, ...]:
    """Return MatMul, or MatMulInteger; a second operand that lies transposed is transposed in the model."""
    product = as_matmul(task)
    if product is None or task.kind in ("float64", "float16"):
        return ()
    if task.epilogue and not (task.kind == "float32" and product.is_in_order):
        return ()
    if "bias" in task.epilogue and not product.has_row_bias:
        return ()
    operator = "MatMulInteger" if task.kind in ("int8", "uint8") else "MatMul"
    a, b, lead = product.a, product.b, ["b"] if product.batched else []
    is_turned = not product.constant_b and not b.flags.c_contiguous
    arrays = {"A": a, "B": b.swapaxes(-1, -2) if is_turned else b}
    lasting = {"B"} if product.constant_b else set[str]()
    if not all(x.flags.c_contiguous for name, x in arrays.items() if name not in lasting):
        return ()
    if not product.c.flags.c_contiguous:
        return ()
    inner, columns = b.shape[-2:] if product.constant_b else ("k", "n")
    extents: dict[str, Extents] = {"A": [*lead, "m", inner], "Y": [*lead, "m", columns]}
    extents["B"] = [*lead, columns, inner] if is_turned else [*lead, inner, columns]
    nodes: list[Node] = [(operator, ["A", "C" if is_turned else "B"], ["Y"], {})]
    if is_turned:
        order = [0, 2, 1] if product.batched else [1, 0]
        nodes.insert(0, ("Transpose", ["B"], ["C"], {"perm": order}))
    for step in task.epilogue:
        if step in task.arrays:
            array = task.arrays[step]
            arrays[step] = array if step == "bias" else array.reshape(product.c.shape)
            extents[step] = [columns] if step == "bias" else extents["Y"]
            lasting |= {step} & set(task.constant)
    constants = {
        name: np.ascontiguousarray(array, _exchange_type(array))
        for name, array in arrays.items()
        if name in lasting
    }
    return (
        Graph(
            operator,
            _with_epilogue(nodes, task.epilogue),
            {name: array for name, array in arrays.items() if name not in lasting},
            extents,
            constants,
            tuple(task.arrays[name] for name in task.constant),
            product.c,
            lambda _: product.out,
        ),
    )


def _with_epilogue(nodes: Sequence[Node], steps: Sequence[str]) -> list[Node]:
    """Return the nodes of a model whose result, Y, goes through the steps of an epilogue."""
    (operator, operands, _, attributes), *before = reversed(nodes)
    result = [*reversed(before), (operator, operands, ["Y" if not steps else "sum"], attributes)]
    value = "sum"
    for number, step in enumerate(steps):
        made = "Y" if number == len(steps) - 1 else f"Y{number}"
        if step in ("bias", "residual"):
            result.append(("Add", [value, step], [made], {}))
        elif step == "silu":
            result.append(("Sigmoid", [value], [f"S{number}"], {}))
            result.append(("Mul", [value, f"S{number}"], [made], {}))
        else:
            result.append((step.capitalize(), [value], [made], {}))
        value = made
    return result


def _attention(task: Attention) -> tuple[Graph, ...]:
    """Return the operator of opset 23, its parts, and onnxruntime's own one on (b, s, heads * d)."""
    batch, heads, s, d = task.q.shape
    inputs = {"Q": task.q, "K": task.k, "V": task.v}
    extents: Mapping[str, Extents] = {x: ["b", heads, "s", d] for x in (*inputs, "Y")}
    whole: Sequence[Node] = [("Attention", ["Q", "K", "V"], ["Y"], {})]
    parts: Sequence[Node] = [
        ("Transpose", ["K"], ["T"], {"perm": [0, 1, 3, 2]}),
        ("MatMul", ["Q", "T"], ["S"], {}),
        ("Mul", ["S", "scale"], ["R"], {}),
        ("Softmax", ["R"], ["P"], {"axis": -1}),
        ("MatMul", ["P", "V"], ["Y"], {}),
    ]
    scale = {"scale": np.float32(1 / math.sqrt(d))}
    models = (
        Graph("Attention", whole, inputs, extents, {}, (), task.result()),
        Graph("parts", parts, inputs, extents, scale, (), task.result()),
    )
    if task.kind != "float32":
        return models

    def with_heads_last(x: Array) -> Array:
        return np.ascontiguousarray(x.transpose(0, 2, 1, 3)).reshape(batch, s, -1)

    name = "MultiHeadAttention"
    own = Graph(
        name,
        [(name, ["Q", "K", "V"], ["Y"], {"num_heads": heads})],
        {label: with_heads_last(x) for label, x in inputs.items()},
        {x: ["b", "s", heads * d] for x in (*inputs, "Y")},
        {},
        (),
        np.full((batch, s, heads * d), np.nan, np.float32),
        lambda out: out.reshape(batch, s, heads, d).transpose(0, 2, 1, 3),
    )
    return (*models, own)


def _dequantizing_graph(task: Dequantized) -> tuple[Graph, ...]:
    """Return onnxruntime's own operator, and the parts that a library may fuse."""
    inner, columns = task.w.shape
    constants = {
        "W": task.w,
        "scale": np.float32(task.scale),
        "scales": task.scales,
        "zero": np.uint8(task.zero),
    }
    whole: list[Node] = [("MatMulIntegerToFloat", ["X", "W", "scale", "scales", "zero"], ["Y"], {})]
    parts: list[Node] = [
        ("DequantizeLinear", ["X", "scale", "zero"], ["A"], {}),
        ("DequantizeLinear", ["W", "scales"], ["B"], {"axis": 1}),
        ("MatMul", ["A", "B"], ["Y"], {}),
    ]
    extents = {"X": ["m", inner], "Y": ["m", columns]}
    key_arrays = (task.w, task.scales)
    return tuple(
        Graph(nodes[0][0], nodes, {"X": task.x}, extents, constants, key_arrays, task.result())
        for nodes in (whole, parts)
    )


def serialize_model(
    nodes: Sequence[Node],
    inputs: Mapping[str, tuple[np.dtype[Any], Extents]],
    output: tuple[np.dtype[Any], Extents],
    constants: Mapping[str, Any],
) -> bytes:
    """Return a model with one output, Y.

    inputs     element type and extents by name; an extent is a number or the name of a size
    """
    from onnx import helper, numpy_helper

    def declared(name: str, dtype: np.dtype[Any], dims: Extents) -> Any:
        return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(dtype), dims)

    graph = helper.make_graph(
        [
            helper.make_node(
                *(operator, given, made),
                domain="com.microsoft" if operator in CONTRIBUTED else "",
                **attributes,
            )
            for operator, given, made, attributes in nodes
        ],
        "task",
        [declared(name, *what) for name, what in inputs.items()],
        [declared("Y", *output)],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()],
    )
    opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    written: bytes = model.SerializeToString()
    return written
