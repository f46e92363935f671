"""Where nobody says an order, the inputs of an operator come in that of its own arguments."""

from __future__ import annotations

import inspect
from collections.abc import Callable

import pytest

import offcut as oc
from offcut import ops
from offcut.describe.request import inputs_of

N = oc.dim("n", min=1, max=64)
SHAPES: dict[Callable[..., oc.Tensor], dict[str, tuple[tuple[object, ...], str]]] = {
    ops.attention: {
        "q": ((2, N, 8), "float32"),
        "k": ((2, N, 8), "float32"),
        "v": ((2, N, 8), "float32"),
        "mask": ((N, N), "bool"),
    },
    ops.dense: {
        "x": ((N, 8), "float32"),
        "w": ((8, 16), "float32"),
        "bias": ((16,), "float32"),
        "residual": ((N, 16), "float32"),
    },
    ops.dense_quantized: {
        "x": ((N, 8), "uint8"),
        "w": ((8, 16), "int8"),
        "x_scale": ((), "float32"),
        "w_scale": ((16,), "float32"),
        "bias": ((16,), "float32"),
        "residual": ((N, 16), "float32"),
        "x_zero": ((), "int32"),
        "w_zero": ((16,), "int32"),
    },
    ops.dequantize: {"x": ((N, 8), "int8"), "scale": ((8,), "float32"), "zero": ((8,), "int32")},
    ops.quantize: {"x": ((N, 8), "float32"), "scale": ((8,), "float32"), "zero": ((8,), "int32")},
    ops.grouped_matmul: {
        "x": ((N, 8), "float32"),
        "w": ((3, 8, 4), "float32"),
        "ends": ((3,), "int64"),
    },
    ops.batchnorm: {
        "x": ((N, 8), "float32"),
        **dict.fromkeys(("mean", "variance", "gain", "bias"), ((8,), "float32")),
    },
    ops.where: {"condition": ((N,), "bool"), "x": ((N,), "float32"), "y": ((N,), "float32")},
    ops.embedding: {"table": ((50, 8), "float32"), "ids": ((N,), "int64")},
    ops.floor_divide: {"x": ((N,), "int32"), "y": ((N,), "int32")},
    ops.take_along_axis: {"x": ((N, 8), "float32"), "indices": ((N, 3), "int64")},
}


@pytest.mark.parametrize("op", SHAPES, ids=lambda op: op.__name__)
def test_inputs_come_in_the_order_of_the_arguments(op: Callable[..., oc.Tensor]) -> None:
    given = {name: oc.placeholder(*shape, name=name) for name, shape in SHAPES[op].items()}
    options = {"axis": 1} if "axis" in inspect.signature(op).parameters else {}
    made = op(**given, **options)
    assert [one.name for one in inputs_of(None, [made], "compile")] == list(given)


def test_inputs_of_what_computes_an_operand_come_in_its_place() -> None:
    x, w = oc.placeholder((2, N, 8), name="x"), oc.placeholder((8, 8), name="w")
    k, v, mask = (
        oc.placeholder((2, N, n), name=name) for name, n in (("k", 8), ("v", 8), ("m", N))
    )
    made = ops.relu(ops.attention(ops.dense(x, w), k, v, mask))
    assert [one.name for one in inputs_of(None, [made], "compile")] == ["x", "w", "k", "v", "m"]
    program = oc.partition(made, tile={}).loops
    assert [b.name for b in program.buffers if b.kind.value == "input"] == ["x", "w", "k", "v", "m"]
