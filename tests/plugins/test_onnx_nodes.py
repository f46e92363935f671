"""Every operator of ONNX: its own node tests as the table of docs/plugins/onnx-nodes.md says, at ends of sizes, in any layout; element-wise
rules on all pairs of 8 bits and the ends of other types; indices around the ends of an axis.
"""

from __future__ import annotations

import logging
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
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
from offcut.backends.host import arrays as host
from offcut.errors import InternalError, OffcutError
from offcut.plugins.onnx.import_model import Imported, import_proto
from offcut.plugins.onnx.importer.size_facts import INT_MAX
from offcut.plugins.onnx.rules.elementwise import ELEMENTWISE, OF_ROWS
from tests.facade import (
    DTYPES,
    FLOATS,
    INTEGERS,
    MemoryBlocks,
    compile_graph,
    interpret_graph,
    numpy_dtype,
)
from tests.guarded import Memory
from tests.plugins import onnx_nodes
from tests.plugins.onnx_nodes import (
    FAILED,
    PAGE,
    PASSED,
    REFUSED,
    cases,
    difference,
    outcome,
    plain,
    symbolic,
)
from tests.plugins.test_onnx import parsed


@cache
def operators() -> dict[str, str]:
    return onnx_nodes.operators()


@cache
def rows() -> dict[str, tuple[int, int, frozenset[str]]]:
    """By operator: how many are passed, of how many, and the names of those that are refused."""
    found = {}
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        row = re.fullmatch(r"\| (.+?) \| (\d+) \| (\d+) \| (.*) \|", line)
        if row:
            refused = {
                f"test_{name}"
                for part in row[4].split("<br>")
                if part
                for name in part.split(":")[0].split(", ")
            }
            found[row[1]] = int(row[2]), int(row[3]), frozenset(refused)
    return found


def chosen(step: int, offset: int = 0) -> list[Any]:
    """One of `step` cases, drawn by their names."""
    return [case for case in cases() if crc32(case.name.encode()) % step == offset]


def test_every_test_of_the_wheel_is_in_the_table() -> None:
    counts: dict[str, list[str]] = {}
    for case in cases():
        counts.setdefault(operators()[case.name], []).append(case.name)
    assert {name: of for name, (_, of, _) in rows().items()} == {
        name: len(names) for name, names in counts.items()
    }
    for name, (passed, of, refused) in rows().items():
        assert passed + len(refused) == of
        assert refused <= set(counts[name])
    assert "**failed**" not in PAGE.read_text(encoding="utf-8")


def wrong(case: Any, kernels: bool) -> str:
    """How a case differs from what the table says; nothing where it does not."""
    said = REFUSED if case.name in rows()[operators()[case.name]][2] else PASSED
    found = outcome(case, kernels)
    return "" if found.status == said else f"{case.name}: {found.status} {found.reason}"


def test_a_sample_is_passed_and_refused_as_the_table_says() -> None:
    assert not [text for case in chosen(25) if (text := wrong(case, kernels=False))]


@pytest.mark.slow
def test_all_are_passed_and_refused_as_the_table_says() -> None:
    results = {case.name: (operators()[case.name], outcome(case)) for case in cases()}
    assert onnx_nodes.table(results) == PAGE.read_text(encoding="utf-8")


@pytest.mark.parametrize("part", [None, *map(slow, range(20))])
def test_kernels_give_what_the_tests_expect(part: int | None) -> None:
    some = chosen(160, 1) if part is None else chosen(20, part)
    assert not [text for case in some if (text := wrong(case, kernels=True))]


@pytest.mark.parametrize("part", [None, *map(slow, range(40))])
def test_a_node_reads_and_writes_any_layout(
    part: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Inputs transposed, with gaps and in reverse, results in reverse order, all between pages that may not be touched."""
    memory, layout = Memory(), ("transposed", "sliced", "reversed")[(part or 0) % 3]

    def run(model: Imported, feed: dict[str, Any], kernels: bool) -> Iterable[dict[str, Any]]:
        given = model.arrays_by_name({name: feed[name] for name in model.inputs})
        for name, array in given.items():
            if isinstance(array, np.ndarray) and array.dtype.name in DTYPES:
                given[name] = memory.lying(layout, array.shape, array.dtype.name)
                given[name][...] = array
        graph = model.bound.graph
        ranks = {name: len(graph.values[name].shape) for name in graph.outputs}
        orders = {name: tuple(range(rank - 1, -1, -1)) for name, rank in ranks.items()}
        found = compile_graph(model.bound, threads=1, orders=orders)(given)
        memory.check()
        memory.walled.clear()
        assert all(found[n].transpose(order).flags.c_contiguous for n, order in orders.items())
        yield model.results_by_name(found)

    monkeypatch.setattr(host, "allocate", memory.allocated)
    monkeypatch.setattr(MemoryBlocks, "take", lambda _, count: memory.arena(count))
    monkeypatch.setattr(onnx_nodes, "run", run)
    some = chosen(40, part or 0)
    found = {case.name: outcome(case) for case in (some[:1] if part is None else some)}
    assert {name: one.reason for name, one in found.items() if one.status == FAILED} == {}


# Node tests with sizes for extents, where one size is 1, or 0: the values of ONNX's evaluator, or a refusal.


UNDEFINED = ("reduction_mean", "dynamicquantizelinear", "maxpool_with_argmax_2d_precomputed_pads")
"""What is in the names of tests whose results over nothing, or of zeros, ONNX leaves open, and the evaluator has otherwise than onnxruntime."""
AT_ENDS = ("test_softmax_axis_1", "test_gather_0", "test_slice_neg_steps", "test_concat_2d_axis_0")


def cut(model: Any, inputs: Sequence[Any], size: str, extent: int) -> dict[str, Any]:
    """Inputs of which each axis of a size is cut to an extent."""
    made = {}
    for one, array in zip(model.graph.input, map(plain, inputs), strict=False):
        for axis, dim in enumerate(one.type.tensor_type.shape.dim):
            if dim.dim_param == size and isinstance(array, np.ndarray):
                array = np.ascontiguousarray(array.take(range(extent), axis=axis))
        made[one.name] = array
    return made


def ours(case: Any, feed: Mapping[str, Any], size: str, extent: int) -> dict[str, Any] | None:
    """The results; None where the import, or the call, is refused."""
    small = onnx_nodes._small(replace(case, data_sets=[(list(feed.values()), [])]), True)
    for constants in ((), small):
        given = dict(feed)
        known = {name: given.pop(name) for name in constants}
        try:
            model = import_proto(case.model, {} if extent else {size: (0, INT_MAX)}, known)
            return next(iter(onnx_nodes.run(model, given, kernels=False)))
        except InternalError as fault:  # of the interpreter, where a kernel refuses the call
            if "is outside" not in str(fault):
                raise
        except OffcutError as refused:
            if "not known at import" not in (refused.because or ""):
                return None
    return None


def differs(case: Any, size: str, extent: int) -> str:
    """How a result differs from what the evaluator gives; nothing where it does not, or the evaluator takes no such arrays."""
    at = f"{case.name} at {size} = {extent}"
    try:
        feed = cut(case.model, case.data_sets[0][0], size, extent)
        if not all(isinstance(one, np.ndarray) for one in feed.values()):
            return ""
        wanted = ReferenceEvaluator(case.model).run(None, feed)
    except Exception:
        logging.debug("%s: the evaluator takes no such arrays", at)
        return ""
    try:
        found = ours(case, feed, size, extent)
    except Exception as broken:  # a bug, where the arrays fit each other
        return f"{at}: {broken!r}"
    names = [one.name for one in case.model.graph.output]
    told = [difference(found[n], one, case) for n, one in zip(names, wanted, strict=True)] if found else []  # fmt: skip
    return f"{at}: {told}" if any(told) else ""


@pytest.mark.parametrize("part", [None, *map(slow, range(60))])
@pytest.mark.parametrize("extent", [slow(1), 0])
def test_a_node_at_the_end_of_a_size_gives_what_the_evaluator_gives(
    extent: int, part: int | None
) -> None:
    """Functions in the place of operators are left out: they are those again."""
    some = [case for case in cases() if case.name in AT_ENDS] if part is None else chosen(60, part)
    told = []
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        for case in some:
            if "_expanded" in case.name or any(one in case.name for one in UNDEFINED):
                continue
            named = replace(case, model=symbolic(case.model))
            dims = (d for one in named.model.graph.input for d in one.type.tensor_type.shape.dim)
            for size in sorted({dim.dim_param for dim in dims if dim.dim_param}):
                told.append(differs(named, size, extent))
    assert not [one for one in told if one]


# Every element-wise rule on all pairs of 8 bits, and on the ends of every other type.


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
    nodes = [helper.make_node("Less", names, ["c"])] if op == "Where" else []
    read = ["c", *names] if op == "Where" else names
    nodes.append(helper.make_node(op, read, ["y"], **attributes))
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
        model = import_proto(proto, {}, {})
        found = model.results_by_name(interpret_graph(model.bound, model.arrays_by_name(feed)))
        compare(found["y"], wanted, within, feed)
        if kernels:
            compare(oc.from_onnx(proto, threads=1)(feed)["y"], wanted, within, feed)


@np.errstate(all="ignore")
def compare(found: Any, wanted: Any, within: float, feed: Mapping[str, Any]) -> None:
    """Equal, or `within` units in the last place of the wanted, or of the least normal number."""
    assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
    other = found != wanted
    if found.dtype.kind not in "biu":
        kind = ml_dtypes.finfo(found.dtype)
        one, exact = found.astype(np.float64), wanted.astype(np.float64)
        unit = within * np.maximum(float(kind.eps) * np.abs(exact), float(kind.tiny))
        other &= ~(np.isnan(one) & np.isnan(exact)) & ~(np.abs(one - exact) <= unit)
    at = np.flatnonzero(other)[:5]
    told = [(*(array[n] for array in feed.values()), found[n], wanted[n]) for n in at]
    assert not told, f"operands, ours, the reference's: {told}"


GRID = [(op, dtype) for op, rule in RULES.items() for dtype in rule.dtypes]
FAST = ("Div-int8", "Mod-int8", "Mod-int64", "Pow-float32", "Shrink-uint8", "Max-float32", "BitShift-uint8", "Sign-float16", "Round-float64")  # fmt: skip


def limits(op: str, dtype: str) -> list[dict[str, Any]]:
    """Constants of an operator: of Clip both limits, in order and not."""
    if op != "Clip":
        return [{}]
    own = values(dtype)[: None if dtype in INTEGERS else -1]  # runtimes differ where a limit is NaN
    return [{"low": own[low], "high": own[high]} for low, high in ((1, -2), (0, -1), (2, 1))]


@pytest.mark.parametrize("kernels", [False, slow(True)], ids=["interpreter", "kernels"])
@pytest.mark.parametrize(
    ("op", "dtype"), [one if "-".join(one) in FAST else slow(*one) for one in GRID]
)
def test_a_rule_gives_what_the_reference_gives(op: str, dtype: str, kernels: bool) -> None:
    for attributes in RULES[op].attributes:
        for known in limits(op, dtype)[: 1 if kernels else None]:
            proto = model_of(op, dtype, attributes, known)
            check(proto, feeds(op, dtype), RULES[op].within, kernels)


@pytest.mark.slow
@pytest.mark.parametrize(("op", "dtype"), [one for one in GRID if RULES[one[0]].operands == 2])
def test_a_constant_is_an_operand_as_others(op: str, dtype: str) -> None:
    if dtype in FLOATS and op in ("PRelu", "Mean", "Pow"):
        pytest.skip("the reference rounds otherwise")
    own = values(dtype)
    drawn = own if len(own) < 20 else own[[crc32(b"%d" % n) % len(own) for n in range(12)]]
    for attributes in RULES[op].attributes:
        for one in drawn:
            left = own[allowed(op, dtype, own)]
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


NO_KERNEL = "Could not find an implementation|INVALID_GRAPH|fmod attribute must be true"


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
    within = max(RULES[op].within, 256 if RULES[op].within else 0)
    for attributes in RULES[op].attributes:
        for known in limits(op, dtype):
            proto = model_of(op, dtype, attributes, known)
            try:
                (wanted,) = runtime.InferenceSession(proto.SerializeToString()).run(None, feed)
            except Exception as error:
                if re.search(NO_KERNEL, str(error)):
                    continue
                raise
            model = import_proto(proto, {}, {})
            found = model.results_by_name(interpret_graph(model.bound, model.arrays_by_name(feed)))
            compare(found["y"], wanted, within, feed)


# Operators that take indices: values at -2n, -n - 1, -n, -1, 0, n - 1 and n, or a refusal, as numpy has them.


N = 4
PLACES = (-2 * N, -N - 1, -N, -1, 0, N - 1, N)
X = np.arange(2 * N, dtype=np.float32).reshape(2, N) + 10


def put(place: int, value: float, add: bool = False) -> Any:
    """`X` with another element in its second row."""
    made = X.copy()
    made[1, place] = value + (made[1, place] if add else 0)
    return made


def hot(place: int) -> Any:
    """Rows that are 1 at place 0, and at a place if it is one."""
    made = np.zeros((2, N), np.float32)
    made[0, 0] = 1
    if -N <= place < N:
        made[1, place] = 1
    return made


def column(place: int, like: Any = np.int64) -> Any:
    return np.array([[0], [place]], like)


ENDS = np.array([0, 1], np.float32)
INDEXED: dict[str, tuple[str, Callable[[int], dict[str, Any]], Callable[[int], Any]]] = {
    "Gather": (
        "(float[n, m] x, int64[2] i) => (float[n, 2] y) { y = Gather <axis = 1> (x, i) }",
        lambda i: {"x": X, "i": np.array([0, i])}, lambda i: X[:, [0, i]],
    ),
    "Gather of one": (
        "(float[n, m] x, int64 i) => (float[n] y) { y = Gather <axis = 1> (x, i) }",
        lambda i: {"x": X, "i": np.array(i)}, lambda i: X[:, i],
    ),
    "GatherElements": (
        "(float[n, m] x, int32[n, 1] i) => (float[n, 1] y) { y = GatherElements <axis = 1> (x, i) }",
        lambda i: {"x": X, "i": column(i, np.int32)}, lambda i: np.array([[X[0, 0]], [X[1, i]]]),
    ),
    "GatherND": (
        "(float[n, m] x, int64[2, 2] i) => (float[2] y) { y = GatherND (x, i) }",
        lambda i: {"x": X, "i": np.array([[0, 0], [1, i]])}, lambda i: np.array([X[0, 0], X[1, i]]),
    ),
    "GatherND of a batch": (
        "(float[n, m] x, int64[n, 1] i) => (float[n] y) { y = GatherND <batch_dims = 1> (x, i) }",
        lambda i: {"x": X, "i": column(i)}, lambda i: np.array([X[0, 0], X[1, i]]),
    ),
    "ScatterElements": (
        "(float[n, m] x, int64[1, 1] i, float[1, 1] u) => (float[n, m] y)"
        " { z = Transpose <perm = [1, 0]> (x)  s = ScatterElements (z, i, u)  y = Transpose <perm = [1, 0]> (s) }",
        lambda i: {"x": X[::-1].copy(), "i": np.array([[i]]), "u": ENDS[1:, None]}, lambda i: put(i, 1)[::-1],
    ),
    "ScatterElements that adds": (
        '(float[n, m] x, int32[n, 1] i, float[n, 1] u) => (float[n, m] y) { y = ScatterElements <axis = 1, reduction = "add"> (x, i, u) }',
        lambda i: {"x": X, "i": column(i, np.int32), "u": ENDS[:, None]}, lambda i: put(i, 1, add=True),
    ),
    "ScatterND": (
        "(float[n, m] x, int64[1, 2] i, float[1] u) => (float[n, m] y) { y = ScatterND (x, i, u) }",
        lambda i: {"x": X, "i": np.array([[1, i]]), "u": np.ones(1, np.float32)}, lambda i: put(i, 1),
    ),
    "OneHot": (
        "(int64[2] i, float[2] v) => (float[2, 4] y) <int64 d = {4}> { y = OneHot (i, d, v) }",
        lambda i: {"i": np.array([0, i]), "v": ENDS}, hot,
    ),
    "OneHot of small integers": (
        "(int8[2] i, float[2] v) => (float[2, 300] y) <int64 d = {300}> { y = OneHot (i, d, v) }",
        lambda i: {"i": np.array([0, i], np.int8), "v": ENDS}, lambda i: np.eye(300, dtype=np.float32)[[0, i]],
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    "name", [n if n in ("Gather", "GatherElements", "ScatterND", "OneHot") else slow(n) for n in INDEXED]
)  # fmt: skip
@pytest.mark.parametrize("known", [False, slow(True)], ids=["", "known"])
def test_an_index_is_counted_from_the_end_once_and_checked_once(name: str, known: bool) -> None:
    text, feed, exact = INDEXED[name]
    proto = parsed(f"g {text}", 18)
    whole = None if known else oc.from_onnx(proto, threads=1)

    def result(given: dict[str, Any]) -> Any:
        if whole is not None:
            return whole(given)["y"]
        return oc.from_onnx(proto, constants={"i": given.pop("i")}, threads=1)(given)["y"]

    for place in PLACES:
        try:
            wanted = exact(place)
        except IndexError:
            # a known index says how large a size is
            with pytest.raises(oc.CallError, match=r"leads outside|is in"):
                result(feed(place))
            continue
        np.testing.assert_array_equal(result(feed(place)), wanted)


@pytest.mark.parametrize("step", [1, -1, slow(2), slow(-2)])
@pytest.mark.parametrize("low", [0, slow(1)], ids=["from 0", "from 1"])
def test_ends_of_slices_are_moved_to_the_axis(low: int, step: int) -> None:
    """As Python has them, but for a start below -n with a step below 0, which ONNX moves to place 0."""
    every = [(start, end) for start in PLACES for end in (-(2**63), *PLACES, 2**63 - 1)]
    some = every[:: 1 if step < -1 or step > 1 else 4]
    lines = " ".join(
        f"s{n} = Constant <value_ints = [{start}]> () e{n} = Constant <value_ints = [{end}]> () "
        f"y{n} = Slice (x, s{n}, e{n}, zero, step)"
        for n, (start, end) in enumerate(some)
    )
    outputs = ", ".join(f"float[k] y{n}" for n in range(len(some)))
    proto = parsed(f"g (float[m] x) => ({outputs}) {{ {lines} }}", 18, zero=[0], step=[step])
    model = oc.from_onnx(proto, sizes={"m": (low, 99)}, threads=1)
    for extent in (low, 2, N, 3 * N):
        x = np.arange(extent, dtype=np.float32)
        found = model(x)
        for n, (start, end) in enumerate(some):
            first = max(start, -extent) if step < 0 and start < 0 else start
            stop = None if step < 0 and end < -extent else end
            np.testing.assert_array_equal(found[f"y{n}"], x[first:stop:step], f"{start}:{end}")


def test_updates_that_are_cut_to_the_indices_are_scattered_where_there_are_as_many() -> None:
    """As torch exports ``x.scatter_add(0, index, source)``: no name of the file says that the source has as many rows."""
    proto = parsed("""g (float[n, 3] x, int64[m, 3] i, float[k, 3] source) => (float[n, 3] y)
        <int64[2] start = {0, 0}> {
            end = Shape (i)  rows = Slice (source, start, end)
            y = ScatterElements <reduction = "add"> (x, i, rows) }""", 18)  # fmt: skip
    model = oc.from_onnx(proto, threads=1)
    for n, m, k in ((4, 5, 6), (4, 5, 5), (1, 1, 1)):
        x, source = np.arange(3.0 * n).reshape(n, 3), np.arange(3.0 * k).reshape(k, 3) ** 2
        i = np.arange(3 * m).reshape(m, 3) % n
        expected = x.copy()
        np.add.at(expected, (i, np.arange(3)), source[:m])
        feed = {"x": x.astype("f4"), "i": i, "source": source.astype("f4")}
        np.testing.assert_array_equal(model(feed)["y"], expected.astype("f4"))
    with pytest.raises(oc.CallError, match="m = 5, k = 4"):
        model({"x": np.zeros((2, 3), "f4"), "i": np.zeros((5, 3), int), "source": np.zeros((4, 3), "f4")})  # fmt: skip
