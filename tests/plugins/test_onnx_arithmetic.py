"""Every element-wise rule of the ONNX door on all pairs of 8 bits, and on the ends of every other type, against ONNX's reference
evaluator, and against onnxruntime where that is installed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any
from zlib import crc32

import ml_dtypes
import numpy as np
import pytest

pytest.importorskip("onnx", reason="the extra onnx is not installed")

import onnx
from conftest import slow
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import offcut as oc
from offcut.plugins.onnx.import_model import import_proto
from offcut.plugins.onnx.rules.elementwise import ELEMENTWISE, OF_ROWS
from tests.facade import FLOATS, INTEGERS, interpret_graph, numpy_dtype

SIGNED = tuple(dtype for dtype in INTEGERS if not dtype.startswith("u"))
UNSIGNED = tuple(dtype for dtype in INTEGERS if dtype.startswith("u"))
NUMBERS = (*INTEGERS, *FLOATS)
WIDE = ("float16", "float32", "float64")
COMPARED = ("Equal", "Greater", "GreaterOrEqual", "IsInf", "IsNaN", "Less", "LessOrEqual")


@dataclass(frozen=True)
class Rule:
    """An operator.

    operands    how many
    attributes  some settings
    within      0, or relative to a result: how far it may be from the reference
    """

    operands: int
    dtypes: tuple[str, ...]
    attributes: tuple[Mapping[str, Any], ...] = ({},)
    opset: int = 18
    within: float = 0.0


def _rules() -> Iterator[tuple[str, Rule]]:
    def each(names: str, rule: Rule) -> Iterator[tuple[str, Rule]]:
        yield from ((name, rule) for name in names.split())

    yield from each("Abs Identity Sign", Rule(1, NUMBERS))
    yield from each("Neg Relu", Rule(1, (*SIGNED, *FLOATS)))
    yield from each("Add Sub Mul Div Where", Rule(2, NUMBERS))
    yield from each("Max Min", Rule(2, (*INTEGERS, *WIDE)))
    yield "Mod", Rule(2, NUMBERS, ({}, {"fmod": 1}))
    yield "Pow", Rule(2, ("int32", "int64", *FLOATS), within=4)
    yield from each("And Or Xor", Rule(2, ("bool",)))
    yield "Not", Rule(1, ("bool",))
    yield from each("BitwiseAnd BitwiseOr BitwiseXor", Rule(2, INTEGERS))
    yield "BitwiseNot", Rule(1, INTEGERS)
    yield "BitShift", Rule(2, UNSIGNED, ({"direction": "LEFT"}, {"direction": "RIGHT"}))
    yield from each("Ceil Floor Round Sqrt Reciprocal", Rule(1, FLOATS))
    yield from each("Exp Log Sin Cos Tanh Sigmoid", Rule(1, FLOATS, within=4))
    yield from each("Softplus Softsign", Rule(1, WIDE, within=4))
    yield "Erf", Rule(1, ("float16", "float32"), within=4)
    yield "Equal", Rule(2, (*NUMBERS, "bool"))
    yield from each("Greater GreaterOrEqual Less LessOrEqual", Rule(2, NUMBERS))
    yield "IsNaN", Rule(1, FLOATS, opset=20)
    ways = ({}, {"detect_negative": 0}, {"detect_positive": 0}, {"detect_negative": 0, "detect_positive": 0})  # fmt: skip
    yield "IsInf", Rule(1, FLOATS, ways, 20)
    yield "LeakyRelu", Rule(1, FLOATS, ({}, {"alpha": -1.0}, {"alpha": 0.0}), within=1)
    yield "Elu", Rule(1, WIDE, ({}, {"alpha": 2.0}), within=4)
    yield "Celu", Rule(1, ("float32",), ({}, {"alpha": 2.0}), within=4)
    yield "Selu", Rule(1, WIDE, within=4)
    yield "HardSigmoid", Rule(1, WIDE, within=4)
    yield "HardSwish", Rule(1, ("float16", "float32"), within=4)
    yield "ThresholdedRelu", Rule(1, WIDE, ({}, {"alpha": -1.0}))
    ways = ({}, {"bias": 1.0, "lambd": 1.5}, {"bias": 0.5, "lambd": -1.5})
    yield "Shrink", Rule(1, ("int8", "uint8", "int32", *WIDE), ways, within=1)
    ways = ({}, {"approximate": "tanh"})
    yield "Gelu", Rule(1, ("float32",), ways, 20, within=1024)
    yield "Swish", Rule(1, ("float32",), ({}, {"alpha": 2.0}), 24, within=64)
    yield "PRelu", Rule(2, (*FLOATS, "int32", "int64", "uint32", "uint64"))
    yield "Mean", Rule(2, ("float32", "float64"), within=1)
    yield "Sum", Rule(2, WIDE)
    yield "Clip", Rule(1, NUMBERS)


RULES = dict(_rules())
APART = frozenset(("BitCast", "Cast", "CastLike", "Dropout"))
"""Tested below, or by the node tests alone."""
BODIES = frozenset(("HardSigmoid", "Softsign", "ThresholdedRelu"))
"""Taken by the bodies that ONNX defines them as."""


def test_every_rule_is_in_the_table() -> None:
    of_rows = {name for name in OF_ROWS if onnx.defs.has(name)}
    assert set(RULES) | APART == set(ELEMENTWISE) | of_rows | BODIES


@cache
def values(dtype: str) -> Any:
    """All of 8 bits; of other types the ends, and what is near 0."""
    kind = numpy_dtype(dtype)
    if dtype == "bool":
        return np.array([False, True])
    if dtype in INTEGERS:
        ends = np.iinfo(kind)
        if kind.itemsize == 1:
            return np.arange(ends.min, ends.max + 1).astype(kind)
        near = (0, 1, 2, 3, 7, 8, 31, 32, 63, 64, 100, -1, -2, -3, -7, -8)
        every = {ends.min, ends.min + 1, ends.max - 1, ends.max, *near}
        return np.array(sorted(one for one in every if ends.min <= one <= ends.max), kind)
    ends = ml_dtypes.finfo(kind)
    positive = (0.0, 0.3, 0.5, 1, 1.5, 2, 2.5, 3, 100, float(ends.tiny), float(ends.smallest_subnormal), float(ends.max), np.inf)  # fmt: skip
    return np.array([*positive, *(-one for one in positive), np.nan], np.float64).astype(kind)


def model_of(
    op: str, dtype: str, attributes: Mapping[str, Any], known: Mapping[str, Any], to: str = ""
) -> Any:
    """A model of one operator.

    known  operands that are constants
    to     the type of the result; that of operands where it is not said
    """
    rule = RULES.get(op, Rule(1, NUMBERS))
    info = helper.make_tensor_value_info
    code = helper.np_dtype_to_tensor_dtype(numpy_dtype(dtype))
    names = ["x", "z"][: rule.operands] if op != "Clip" else ["x", "low", "high"]
    nodes = []
    if op == "Where":
        nodes.append(helper.make_node("Less", names, ["c"]))
    nodes.append(
        helper.make_node(op, ["c", *names] if op == "Where" else names, ["y"], **attributes)
    )
    result = to or ("bool" if op in COMPARED else dtype)
    graph = helper.make_graph(
        nodes,
        "g",
        [info(name, code, ["n"]) for name in names if name not in known],
        [info("y", helper.np_dtype_to_tensor_dtype(numpy_dtype(result)), ["n"])],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in known.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", rule.opset)], ir_version=9)  # fmt: skip


def feeds(op: str, dtype: str) -> dict[str, Any]:
    """All pairs, or all values, but divisors that are 0 and exponents of integers below 0."""
    own = values(dtype)
    if RULES[op].operands == 1:
        return {"x": own}
    x, z = (one.ravel() for one in np.meshgrid(own, own, indexing="ij"))
    taken = allowed(op, dtype, z)
    if op == "PRelu" and dtype in FLOATS:  # the reference gives 0*inf at 0
        taken &= (x != 0) | np.isfinite(z.astype(np.float64))
    return {"x": x[taken], "z": z[taken]}


def allowed(op: str, dtype: str, z: Any) -> Any:
    """Second operands that a result is defined for."""
    if dtype in INTEGERS and op in ("Div", "Mod"):
        return z != 0
    return z >= 0 if dtype in INTEGERS and op == "Pow" else np.ones(len(z), bool)


def check(proto: Any, feed: Mapping[str, Any], within: float, kernels: bool = False) -> None:
    with np.errstate(all="ignore"):
        (wanted,) = ReferenceEvaluator(proto).run(None, dict(feed))
        if kernels:
            found = oc.from_onnx(proto, threads=1)(feed)["y"]
        else:
            model = import_proto(proto, {}, {})
            found = model.results_by_name(interpret_graph(model.bound, model.arrays_by_name(feed)))[
                "y"
            ]
        compare(found, wanted, within, feed)


@np.errstate(all="ignore")
def compare(found: Any, wanted: Any, within: float, feed: Mapping[str, Any]) -> None:
    """Equal, or `within` units in the last place of the wanted, or of the least normal number."""
    assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
    wrong = found != wanted
    if found.dtype.kind not in "biu":
        kind = ml_dtypes.finfo(found.dtype)
        one, other = found.astype(np.float64), wanted.astype(np.float64)
        unit = within * np.maximum(float(kind.eps) * np.abs(other), float(kind.tiny))
        wrong &= ~(np.isnan(one) & np.isnan(other)) & ~(np.abs(one - other) <= unit)
    at = np.flatnonzero(wrong)[:5]
    told = [(*(array[n] for array in feed.values()), found[n], wanted[n]) for n in at]
    assert not told, f"operands, ours, the reference's: {told}"


GRID = [(op, dtype) for op, rule in RULES.items() for dtype in rule.dtypes]
FAST = ("Div-int8", "Mod-int8", "Mod-int64", "Pow-float32", "Shrink-uint8", "Max-float32", "BitShift-uint8", "Sign-float16", "Round-float64")  # fmt: skip


def chosen() -> list[Any]:
    return [one if "-".join(one) in FAST else slow(*one) for one in GRID]


@pytest.mark.parametrize(("op", "dtype"), chosen())
def test_a_rule_gives_what_the_reference_gives(op: str, dtype: str) -> None:
    for attributes in RULES[op].attributes:
        for known in limits(op, dtype):
            proto = model_of(op, dtype, attributes, known)
            check(proto, feeds(op, dtype), RULES[op].within)


def limits(op: str, dtype: str) -> list[dict[str, Any]]:
    """Constants of an operator: of Clip both limits, in order and not."""
    if op != "Clip":
        return [{}]
    own = values(dtype)[: None if dtype in INTEGERS else -1]  # runtimes differ where a limit is NaN
    return [{"low": own[low], "high": own[high]} for low, high in ((1, -2), (0, -1), (2, 1))]


@pytest.mark.slow
@pytest.mark.parametrize(("op", "dtype"), GRID)
def test_a_kernel_gives_what_the_reference_gives(op: str, dtype: str) -> None:
    for attributes in RULES[op].attributes:
        for known in limits(op, dtype)[:1]:
            proto = model_of(op, dtype, attributes, known)
            check(proto, feeds(op, dtype), RULES[op].within, kernels=True)


@pytest.mark.parametrize(
    ("op", "dtype"),
    [slow(*one) for one in GRID if RULES[one[0]].operands == 2],
)
def test_a_constant_is_an_operand_as_others(op: str, dtype: str) -> None:
    own = values(dtype)
    drawn = own if len(own) < 20 else own[[crc32(b"%d" % n) % len(own) for n in range(12)]]
    for attributes in RULES[op].attributes:
        for one in drawn:
            left = own[allowed(op, dtype, own)]
            if dtype in FLOATS and op in ("PRelu", "Mean", "Pow"):
                continue
            check(model_of(op, dtype, attributes, {"x": one}), {"z": left}, RULES[op].within)
            if allowed(op, dtype, own[own == one]).all():
                check(model_of(op, dtype, attributes, {"z": one}), {"x": own}, RULES[op].within)


@pytest.mark.parametrize("dtype", ["float32", slow("float64"), slow("float16")])
def test_a_power_of_a_half_is_no_root_of_minus_infinity(dtype: str) -> None:
    x = np.array([-np.inf, -1, -0.0, 4, np.nan], dtype)
    proto = model_of("Pow", dtype, {}, {"z": np.array(0.5, dtype)})
    found = oc.from_onnx(proto, threads=1)(x)["y"]
    np.testing.assert_array_equal(found, np.array([np.inf, np.nan, 0, 2, np.nan], dtype))
    assert not np.signbit(found[2])


@pytest.mark.parametrize("to", [*[slow(one) for one in NUMBERS if one != "int8"], "int8", "bool"])
def test_casts_of_what_a_type_holds_are_those_of_numpy(to: str) -> None:
    for dtype in (*NUMBERS, "bool"):
        x = values(dtype)
        if dtype in FLOATS and to in INTEGERS:  # of others ONNX says nothing
            ends, wide = np.iinfo(to), x.astype(np.float64)
            x = x[(wide > ends.min - 1.0) & (np.abs(wide) < ends.max)]
        attributes = {"to": helper.np_dtype_to_tensor_dtype(numpy_dtype(to))}
        check(model_of("Cast", dtype, attributes, {}, to), {"x": x}, 0)


def by_runtime(runtime: Any, proto: Any, feed: Mapping[str, Any]) -> Any:
    """What onnxruntime gives; None for a type that it has no kernel for."""
    try:
        return runtime.InferenceSession(proto.SerializeToString()).run(None, feed)[0]
    except Exception as error:
        if re.search(
            "Could not find an implementation|INVALID_GRAPH|fmod attribute must be true", str(error)
        ):
            return None
        raise


@pytest.mark.slow
@pytest.mark.parametrize(("op", "dtype"), [one for one in GRID if one[1] != "bfloat16"])
def test_onnxruntime_gives_the_same(op: str, dtype: str) -> None:
    runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    runtime.set_default_logger_severity(4)
    if (op in ("Pow", "Shrink") and dtype in INTEGERS) or (op, dtype) == ("Shrink", "float64"):
        pytest.skip("onnxruntime calculates it in narrower floats")
    if (op, dtype) in (("Sigmoid", "float64"), ("Softplus", "float64")):
        pytest.skip("onnxruntime has a table of sigmoid that ends")
    feed = feeds(op, dtype)
    if op in ("Div", "Mod") and dtype in SIGNED:  # onnxruntime divides by a trap
        least = (feed["x"] == np.iinfo(dtype).min) & (feed["z"] == -1)
        feed = {name: one[~least] for name, one in feed.items()}
    if op == "Sign" and dtype == "float16":  # onnxruntime's of NaN is 0
        feed = {"x": feed["x"][~np.isnan(feed["x"])]}
    for attributes in RULES[op].attributes:
        for known in limits(op, dtype):
            proto = model_of(op, dtype, attributes, known)
            wanted = by_runtime(runtime, proto, feed)
            if wanted is None:
                continue
            model = import_proto(proto, {}, {})
            found = model.results_by_name(interpret_graph(model.bound, model.arrays_by_name(feed)))[
                "y"
            ]
            within = max(RULES[op].within, 256 if RULES[op].within else 0)
            compare(found, wanted, within, feed)


@pytest.mark.parametrize("node", [slow("Div"), "Mod", slow("Mod <fmod = 1>")])
@pytest.mark.parametrize("dtype", [slow("int8"), "int64", slow("uint32")])
def test_an_integer_that_is_divided_by_0_refuses_the_call(node: str, dtype: str) -> None:
    head = '<ir_version: 9, opset_import: ["" : 18]> '
    text = f"g ({dtype}[n] x, {dtype}[n] z) => ({dtype}[n] y) {{ y = {node} (x, z) }}"
    model = oc.from_onnx(onnx.parser.parse_model(head + text), threads=1)
    x, z = np.array([7, 5, 9], dtype), np.array([2, 1, 3], dtype)
    wanted = x // z if node == "Div" else x % z
    np.testing.assert_array_equal(model({"x": x, "z": z})["y"], wanted)
    with pytest.raises(oc.CallError, match="cannot run on these arrays"):
        model({"x": x, "z": np.array([2, 0, 3], dtype)})
    text = f"g ({dtype}[n] x) => ({dtype}[n] y) <{dtype}[2] z = {{3, 0}}> {{ y = {node} (x, z) }}"
    with pytest.raises(oc.DescribeError) as refused:
        oc.from_onnx(onnx.parser.parse_model(head + text))
    assert refused.value.because.endswith(" y: an integer is divided by 0")
