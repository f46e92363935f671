"""Where nobody says an order, the inputs of an operator come in that of its own arguments."""

from __future__ import annotations

import pytest

import offcut as oc
from offcut import ops
from offcut.describe.request import inputs_of
from tests.operator_cases import CASES, Case, Input, over

N = oc.dim("n", min=1, max=64)
FLAT, COLUMN = Input(("n", 8)), Input((16,))
ROWS = Input(("n", 16))
WITH_OPTIONS = (
    Case(
        "dense",
        {"x": FLAT, "w": Input((8, 16)), "bias": COLUMN, "residual": ROWS},
        ("x", "w", "bias"),
        {"residual": "residual"},
    ),
    over(
        "attention", {**dict.fromkeys("qkv", Input((2, "n", 8))), "mask": Input(("n", "n"), "bool")}
    ),
    Case(
        "dense_quantized",
        {
            "x": Input(("n", 8), "uint8"),
            "w": Input((8, 16), "int8"),
            "x_scale": Input(()),
            **dict.fromkeys(("w_scale", "bias"), COLUMN),
            "residual": ROWS,
            "x_zero": Input((), "int32"),
            "w_zero": Input((16,), "int32"),
        },
        ("x", "w", "x_scale", "w_scale", "bias"),
        {name: name for name in ("residual", "x_zero", "w_zero")},
    ),
    *(
        over(op, {"x": Input(("n", 8), dtype), "scale": Input((8,)), "zero": Input((8,), "int32")})
        for op, dtype in (("quantize", "float32"), ("dequantize", "int8"))
    ),
)


@pytest.mark.parametrize(
    "case",
    [*(case for case in CASES if case.op in ops.__all__), *WITH_OPTIONS],
    ids=lambda case: case.op,
)
def test_inputs_come_in_the_order_of_the_arguments(case: Case) -> None:
    made, tensors = case.described()
    outputs = made if isinstance(made, tuple) else (made,)
    if all(isinstance(one, oc.Tensor) for one in outputs):
        assert [one.name for one in inputs_of(None, [*outputs], "compile")] == [*tensors]


def test_inputs_of_what_computes_an_operand_come_in_its_place() -> None:
    x, w = oc.placeholder((2, N, 8), name="x"), oc.placeholder((8, 8), name="w")
    k, v, mask = (
        oc.placeholder((2, N, n), name=name) for name, n in (("k", 8), ("v", 8), ("m", N))
    )
    made = ops.relu(ops.attention(ops.dense(x, w), k, v, mask))
    assert [one.name for one in inputs_of(None, [made], "compile")] == ["x", "w", "k", "v", "m"]
    program = oc.partition(made, tile={}).loops
    assert [b.name for b in program.buffers if b.kind.value == "input"] == ["x", "w", "k", "v", "m"]
