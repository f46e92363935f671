"""Tasks as ONNX models, each with its symbolic sizes: what onnxruntime and OpenVINO are given.

Needs the package onnx.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from offcut.experiment.contraction import ELEMENTS, Array, Problem
from offcut.experiment.operators import (
    EPSILON,
    Attention,
    Convolution,
    Dequantized,
    LayerNorm,
    Softmax,
)
from offcut.experiment.peers.matmul import as_matmul

CONTRIBUTED = ("MatMulIntegerToFloat", "MultiHeadAttention")
"""onnxruntime's own operators."""

OPSET = 23


Node = tuple[str, list[str], list[str], dict[str, Any]]
"""Operator, inputs, outputs, attributes."""


@dataclass(frozen=True, slots=True)
class Graph:
    """A model, and the arrays of one task for it.

    key      equal for tasks that can share the model, together with `keeps`
    keeps    the constants in it
    model    makes the serialised model
    inputs   arrays by name
    out      where the only output, Y, goes
    read     the result with the task's axes, after `out` was written
    contrib  whether only onnxruntime knows its operators
    """

    name: str
    key: tuple[object, ...]
    keeps: tuple[Array, ...]
    model: Callable[[], bytes]
    inputs: Mapping[str, Array]
    out: Array
    read: Callable[[], Array] = field(repr=False)
    contrib: bool = False


def graphs(task: Any) -> tuple[Graph, ...]:
    """The models that compute `task`; a bfloat16 task is a float32 model, for who lowers it.

    A library that keeps bfloat16 at its borders converts Q, K, V and the result itself.
    """
    node: tuple[str, list[str], dict[str, Any]]
    match task:
        case Problem():
            return _matmul(task)
        case Attention():
            return _attention(task)
        case Convolution(image, weights):
            out = task.result()
            pads = [task.padding] * 4
            node = ("Conv", ["X", "W"], {"pads": pads, "strides": [task.stride] * 2})
            dims = ["b", image.shape[1], "y", "x"], ["b", weights.shape[0], "v", "u"]
            key = ("Conv", *weights.shape, task.stride, task.padding)
            return (_simple("Conv", key, node, {"W": weights}, {"X": image}, dims, out),)
        case Softmax(x):
            node = ("Softmax", ["X"], {"axis": -1})
            dims = (["m", "n"], ["m", "n"])
            return (_simple("Softmax", ("Softmax",), node, {}, {"X": x}, dims, task.result()),)
        case LayerNorm(x, gain, bias):
            node = ("LayerNormalization", ["X", "gain", "bias"], {"epsilon": EPSILON})
            dims = (["m", x.shape[1]], ["m", x.shape[1]])
            constants = {"gain": gain, "bias": bias}
            key = ("LayerNormalization", x.shape[1])
            return (
                _simple("LayerNormalization", key, node, constants, {"X": x}, dims, task.result()),
            )
        case Dequantized():
            return _dequantized(task)
    return ()


def _simple(
    name: str,
    key: tuple[object, ...],
    node: tuple[str, list[str], dict[str, Any]],
    constants: Mapping[str, Array],
    inputs: Mapping[str, Array],
    dims: tuple[Sequence[object], Sequence[object]],
    out: Array,
) -> Graph:
    """A model of one operator with one input that is no constant."""
    operator, operands, attributes = node

    def model() -> bytes:
        return serialised(
            [(operator, operands, ["Y"], attributes)],
            {label: (array.dtype, dims[0]) for label, array in inputs.items()},
            (out.dtype, dims[1]),
            constants,
        )

    return Graph(name, key, tuple(constants.values()), model, inputs, out, lambda: out)


def _matmul(task: Problem) -> tuple[Graph, ...]:
    """MatMul, or MatMulInteger; a second operand that lies transposed is transposed in the model."""
    product = as_matmul(task)
    if product is None or task.kind in ("float64", "float16"):
        return ()
    if task.epilogue and not (task.kind == "float32" and product.is_in_order):
        return ()
    if "bias" in task.epilogue and not product.has_row_bias:
        return ()
    integer = task.kind in ("int8", "uint8")
    operator = "MatMulInteger" if integer else "MatMul"
    a, b, lead = product.a, product.b, ["b"] if product.batched else []
    if not a.flags.c_contiguous or not product.c.flags.c_contiguous:
        return ()
    turned = not b.flags.c_contiguous
    inputs = {"A": a} if product.constant_b else {"A": a, "B": b.swapaxes(-1, -2) if turned else b}
    if any(not array.flags.c_contiguous for array in inputs.values()):
        return ()
    inner = a.shape[-1] if product.constant_b else "k"
    columns = b.shape[-1] if product.constant_b else "n"
    right = [columns, inner] if turned and not product.constant_b else [inner, columns]
    weight = np.ascontiguousarray(b) if product.constant_b else b
    nodes: list[Node] = [(operator, ["A", "B"], ["Y"], {})]
    if turned and not product.constant_b:
        order = [0, 2, 1] if product.batched else [1, 0]
        nodes = [
            ("Transpose", ["B"], ["C"], {"perm": order}),
            (operator, ["A", "C"], ["Y"], {}),
        ]
    first, other, _, _ = ELEMENTS[task.kind]
    types = {"A": _exchanged(first), "B": _exchanged(other)}
    shapes: dict[str, list[object]] = {"A": [*lead, "m", inner], "B": [*lead, *right]}
    constants = {"B": weight.astype(types["B"])} if product.constant_b else {}
    for step in task.epilogue:
        if step in task.arrays:
            array = task.arrays[step]
            types[step], shapes[step] = array.dtype, [*lead, "m", columns]
            if step == "bias":
                shapes[step] = [columns]
            if step in task.constant:
                constants[step] = array
            else:
                inputs[step] = array if step == "bias" else array.reshape(product.c.shape)
    nodes = _with_epilogue(nodes, task.epilogue)

    def model() -> bytes:
        return serialised(
            nodes,
            {label: (types[label], shapes[label]) for label in inputs},
            (np.dtype(np.int32 if integer else np.float32), [*lead, "m", columns]),
            constants,
        )

    keeps = tuple(task.arrays[name] for name in task.constant)
    key = (operator, str(task.contraction), task.kind, turned, inner, columns, task.epilogue)
    return (Graph(operator, key, keeps, model, inputs, product.c, lambda: product.out),)


def _with_epilogue(nodes: Sequence[Node], steps: Sequence[str]) -> list[Node]:
    """Return the nodes of a model whose result, Y, goes through the steps of an epilogue."""
    (operator, given, _, attributes), *before = reversed(nodes)
    result = [*reversed(before), (operator, given, ["Y" if not steps else "sum"], attributes)]
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


def _exchanged(dtype: str) -> np.dtype[Any]:
    """The element type of a model's tensor: float32 for bfloat16."""
    return np.dtype(np.float32 if dtype == "bfloat16" else dtype)


def _attention(task: Attention) -> tuple[Graph, ...]:
    """The operator of opset 23, its parts, and onnxruntime's own one on (b, s, heads * d)."""
    batch, heads, s, d = task.q.shape
    inputs = {"Q": task.q, "K": task.k, "V": task.v}
    single = np.dtype(np.float32)
    dims = ["b", heads, "s", d]
    scale = {"scale": np.float32(1 / math.sqrt(d))}
    parts: list[Node] = [
        ("Transpose", ["K"], ["T"], {"perm": [0, 1, 3, 2]}),
        ("MatMul", ["Q", "T"], ["S"], {}),
        ("Mul", ["S", "scale"], ["R"], {}),
        ("Softmax", ["R"], ["P"], {"axis": -1}),
        ("MatMul", ["P", "V"], ["Y"], {}),
    ]
    graphs = []
    for name, nodes, constants in (
        ("Attention", [("Attention", ["Q", "K", "V"], ["Y"], {})], {}),
        ("parts", parts, scale),
    ):
        out = task.result()

        def model(nodes: Any = nodes, constants: Any = constants) -> bytes:
            return serialised(
                nodes, dict.fromkeys(inputs, (single, dims)), (single, dims), constants
            )

        read = lambda out=out: out  # noqa: E731
        graphs.append(Graph(name, (name, heads, d), (), model, inputs, out, read))
    if task.kind == "float32":
        wide = ["b", "s", heads * d]
        together = np.full((batch, s, heads * d), np.nan, np.float32)
        node = ("MultiHeadAttention", ["Q", "K", "V"], ["Y"], {"num_heads": heads})
        graphs.append(
            Graph(
                "MultiHeadAttention",
                ("MultiHeadAttention", heads, d),
                (),
                lambda: serialised(
                    [node], dict.fromkeys(inputs, (single, wide)), (single, wide), {}
                ),
                {
                    label: np.ascontiguousarray(x.transpose(0, 2, 1, 3)).reshape(batch, s, -1)
                    for label, x in inputs.items()
                },
                together,
                lambda: together.reshape(batch, s, heads, d).transpose(0, 2, 1, 3),
                contrib=True,
            )
        )
    return tuple(graphs)


def _dequantized(task: Dequantized) -> tuple[Graph, ...]:
    """onnxruntime's own operator, and the parts that a library may fuse."""
    inner, columns = task.w.shape
    constants = {
        "W": task.w,
        "scale": np.float32(task.scale),
        "scales": task.scales,
        "zero": np.uint8(task.zero),
    }
    dims, wide = ["m", inner], ["m", columns]
    whole: list[Node] = [("MatMulIntegerToFloat", ["X", "W", "scale", "scales", "zero"], ["Y"], {})]
    parts: list[Node] = [
        ("DequantizeLinear", ["X", "scale", "zero"], ["A"], {}),
        ("DequantizeLinear", ["W", "scales"], ["B"], {"axis": 1}),
        ("MatMul", ["A", "B"], ["Y"], {}),
    ]
    graphs = []
    for name, nodes in (("MatMulIntegerToFloat", whole), ("DequantizeLinear", parts)):
        out = task.result()

        def model(nodes: Any = nodes) -> bytes:
            declared_inputs = {"X": (np.dtype(np.uint8), dims)}
            return serialised(nodes, declared_inputs, (np.dtype(np.float32), wide), constants)

        read = lambda out=out: out  # noqa: E731
        key = (name, inner, columns, task.zero, task.scale)
        keeps = (task.w, task.scales)
        contrib = name in CONTRIBUTED
        graphs.append(Graph(name, key, keeps, model, {"X": task.x}, out, read, contrib))
    return tuple(graphs)


def serialised(
    nodes: Sequence[Node],
    inputs: Mapping[str, tuple[np.dtype[Any], Sequence[object]]],
    output: tuple[np.dtype[Any], Sequence[object]],
    constants: Mapping[str, Any],
) -> bytes:
    """A model with one output, Y.

    inputs     element type and extents by name; an extent is a number or the name of a size
    """
    from onnx import helper, numpy_helper

    def declared(name: str, dtype: np.dtype[Any], dims: Sequence[object]) -> Any:
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
