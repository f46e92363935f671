"""Nodes on values that are known before any call: evaluated at import.

Numbers go through ONNX's own reference evaluator. Index expressions over sizes, what ``Shape`` gives and all that models
calculate from it, are arrays of objects, which numpy rearranges as it does numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial, reduce
from typing import Any

import numpy as np
from onnx import helper

from offcut.core.expr import Expr
from offcut.graph import extents
from offcut.graph.sizes.extent_values import arithmetic, extent, plain, product
from offcut.plugins.onnx.importer.context import Context
from offcut.plugins.onnx.importer.nonnegative_extents import require_minimum_sizes
from offcut.plugins.onnx.importer.operands import (
    Call,
    Element,
    KnownArray,
    UnsupportedNode,
    known_array,
    name_of,
)
from offcut.plugins.onnx.rules.sequences import SEQUENCES

DRAWN = frozenset(
    [
        "Bernoulli",
        "Multinomial",
        "RandomNormal",
        "RandomNormalLike",
        "RandomUniform",
        "RandomUniformLike",
    ]
)
"""Operators that give something else at every call."""

SIZE_DTYPES = ("int32", "int64", "float32", "float64")
"""Element types that an index expression is cast to as it is."""

SCALAR_INPUTS = {"CumSum": 1}
"""The input that is a number, which exporters write as a vector of one and onnxruntime takes."""


def evaluate_node(context: Context, call: Call) -> tuple[KnownArray, ...] | None:
    """What a node gives whose inputs are all known; None where only a call can tell.

    Raises Refused where the reference evaluator does not take it.
    """
    if call.op in SEQUENCES:
        return None
    operands = [one for one in call.inputs if one is not None]
    inputs = [one for one in operands if isinstance(one, KnownArray)]
    if len(inputs) < len(operands) or call.op in DRAWN or not (inputs or call.op == "Constant"):
        return None
    if call.op == "Constant" and isinstance(array := call.get("value"), np.ndarray):
        return (KnownArray(array, str(array.dtype)),)
    if not any(one.symbolic for one in inputs):
        results_of_reference = _by_reference(call)
        if results_of_reference is not None:
            return results_of_reference
    results = _structural_result(call) if call.op in STRUCTURAL else _by_rule(context, call)
    if results is None:
        call.read.clear()
    return results


def _by_rule(context: Context, call: Call) -> tuple[KnownArray, ...] | None:
    """What a node gives by a rule of ours; None where there is none, or it overlooks what is given.

    Raises Refused where numpy does not take it.
    """
    rule = SYMBOLIC.get(call.op)
    if rule is None:
        return None
    try:
        results = rule(context, call)
    except (
        ArithmeticError,
        IndexError,
        ValueError,
    ) as error:  # numpy's, of axes and shapes that do not fit
        raise UnsupportedNode(f"its inputs are known, and numpy says: {error}") from None
    if results is None or call.overlooked:
        return None
    return results if isinstance(results, tuple) else (results,)


def _by_reference(call: Call) -> tuple[KnownArray, ...] | None:
    """What the reference evaluator gives; None where it has not this version of an operator.

    Raises Refused where it does not take the values.
    """
    from onnx.reference import ReferenceEvaluator  # loads all operators that there are

    operands = [one for one in call.inputs if isinstance(one, KnownArray)]
    input_names = [
        name for name, one in zip(call.proto.input, call.inputs, strict=True) if one is not None
    ]
    arrays = [
        one.array.reshape(())
        if place == SCALAR_INPUTS.get(call.op) and one.array.size == 1
        else one.array
        for place, one in enumerate(operands)
    ]
    feeds = dict(zip(input_names, arrays, strict=True))
    names = list(dict.fromkeys(input_names))
    node = type(call.proto)()
    node.CopyFrom(call.proto)
    function = helper.make_function(
        "", "known", names, [name for name in node.output if name], [node],
        [helper.make_opsetid(node.domain, call.version)],
    )  # fmt: skip
    try:
        evaluator = ReferenceEvaluator(function)
    except (RuntimeError, ValueError):
        return None
    try:
        outputs = evaluator.run(None, feeds, attributes={})
    except Exception as error:  # it raises what numpy raises
        raise UnsupportedNode(
            f"its inputs are known, and the reference evaluator says: {error}"
        ) from None
    if not all(isinstance(one, np.ndarray | np.generic) for one in outputs):
        raise UnsupportedNode("it gives a sequence, a map or an optional", "tensors are taken")
    results = iter(map(np.asarray, outputs))
    return tuple(
        KnownArray(array, str(array.dtype))
        for array in (next(results) if name else np.zeros(0) for name in node.output)
    )


def _objects(operand: Any) -> Any:
    return operand.array.astype(object)


def _same_dtype(call: Call, array: Any) -> KnownArray:
    first = call[0]
    assert isinstance(first, KnownArray)
    return known_array(np.asarray(array, dtype=object), first.dtype)


STRUCTURAL = frozenset(
    [
        "Concat",
        "Expand",
        "Gather",
        "GatherElements",
        "GatherND",
        "Reshape",
        "Slice",
        "Squeeze",
        "Tile",
        "Transpose",
        "Unsqueeze",
    ]
)
"""Operators that move elements and look at none: those of the first input, of Concat those of each."""


def _structural_result(call: Call) -> tuple[KnownArray, ...] | None:
    """Return what an operator of `STRUCTURAL` gives: the reference evaluator moves numbers, in whose places the elements are put.

    Raises Refused where it does not take the shapes.
    """
    count = len(call.inputs) if call.op == "Concat" else 1
    operands = [one for one in call.inputs[:count] if isinstance(one, KnownArray)]
    if any(isinstance(one, KnownArray) and one.symbolic for one in call.inputs[count:]):
        return None
    ends = np.cumsum([0, *(one.array.size for one in operands)])
    numbers = (
        KnownArray(np.arange(start, start + one.array.size).reshape(one.array.shape), "int64")
        for start, one in zip(ends, operands, strict=False)
    )
    places = _by_reference(replace(call, inputs=(*numbers, *call.inputs[count:])))
    elements = np.array([element for one in operands for element in one.elements], dtype=object)
    if places is None:
        return None
    return tuple(known_array(elements[one.array], operands[0].dtype) for one in places)


def _integers(call: Call, place: int, name: str) -> list[int] | None:
    """Axes and the like, an input or an attribute."""
    operand = call.input(place)
    if isinstance(operand, KnownArray):
        return [int(one) for one in operand.elements]
    attribute: list[int] | None = call.get(name)
    return attribute


def _cast(context: Context, call: Call) -> KnownArray | None:
    dtype = name_of(call.get("to"))
    call.overlook("saturate", "round_mode")  # of types of 8 bits that are not ours
    first = call[0]
    assert isinstance(first, KnownArray)
    if dtype not in SIZE_DTYPES or first.dtype not in SIZE_DTYPES:
        return None
    if dtype.startswith("int"):  # sizes are whole already
        whole = np.frompyfunc(lambda one: one if isinstance(one, Expr) else math.trunc(one), 1, 1)
        return KnownArray(np.asarray(whole(first.array), dtype=object), dtype)
    return KnownArray(first.array, dtype)


def _element_wise(
    apply: Callable[[Context, Any, Any], Any],
) -> Callable[[Context, Call], KnownArray | None]:
    """Return a rule for integers, of two arrays or more that are broadcast; None where an element is not seen."""

    def rule(context: Context, call: Call) -> KnownArray | None:
        parts = call.present
        if any(not isinstance(one, KnownArray) or "int" not in one.dtype for one in parts):
            return None
        one = np.frompyfunc(lambda a, b: apply(context, a, b), 2, 1)
        elements = np.asarray(reduce(one, map(_objects, parts)), dtype=object)
        if any(element is None for element in elements.ravel()):
            return None
        are_bools = all(isinstance(element, bool) for element in elements.ravel())
        return known_array(elements, "bool") if are_bools else _same_dtype(call, elements)

    return rule


def _divide(context: Context, a: Element, b: Element) -> Element | None:
    """Return the quotient towards 0, which is the floor of it where neither is below 0: sizes are large enough for that."""
    if not isinstance(b, int) and context.bounds(b)[0] > 0:
        exact = extents.quotient(extents.normal(a), b)
        return None if exact is None else plain(exact)
    if not isinstance(b, int) or b <= 0:
        return None
    require_minimum_sizes(context, a)
    if context.bounds(a)[0] < 0:
        return None
    return arithmetic("//", a, b)


def _modulo(context: Context, call: Call) -> KnownArray | None:
    """Return the remainder of the floor; ``fmod`` says that it has the sign of the dividend, which is the same where that is not below 0."""
    signed = bool(call.get("fmod", 0))

    def remainder(context: Context, a: Element, b: Element) -> Element | None:
        if signed and context.bounds(a)[0] < 0:
            return None
        if isinstance(b, int):
            return arithmetic("%", a, b) if b > 0 else None
        return _remainder_by(context, a, b)

    return _element_wise(remainder)(context, call)


def _remainder_by(context: Context, a: Element, b: Element) -> Element | None:
    """Return the remainder by a size, which is large enough that it is the dividend, or that and the size where the dividend is below 0."""
    low, high = context.bounds(a)
    if low >= 0:
        require_minimum_sizes(context, extent(b, arithmetic("*", -1, a), -1))
        return a if context.bounds(extent(a, arithmetic("*", -1, b)))[1] < 0 else None
    around = extent(a, b)
    require_minimum_sizes(context, around)
    return around if high < 0 <= context.bounds(around)[0] else None


def _extreme(context: Context, a: Element, b: Element, *, op: str) -> Element:
    low, high = context.bounds(extent(a, arithmetic("*", -1, b)))
    if low >= 0 or high <= 0:
        return a if (low >= 0) == (op == "max") else b
    return arithmetic(op, a, b)


def _compare(
    holds: Callable[[int, int], bool | None],
) -> Callable[[Context, Element, Element], Any]:
    """Return a comparison by the least and the greatest difference."""

    def rule(context: Context, a: Element, b: Element) -> bool | None:
        if a is None or b is None:
            return None
        return holds(*context.bounds(extent(a, arithmetic("*", -1, b))))

    return rule


def _equal(low: int, high: int) -> bool | None:
    return True if low == high == 0 else False if low > 0 or high < 0 else None


def _below(low: int, high: int) -> bool | None:
    return True if high < 0 else False if low >= 0 else None


def _at_most(low: int, high: int) -> bool | None:
    return True if high <= 0 else False if low > 0 else None


def _where(context: Context, call: Call) -> KnownArray | None:
    condition = call[0]
    if not isinstance(condition, KnownArray) or condition.symbolic:
        return None
    parts = np.broadcast_arrays(condition.array, _objects(call[1]), _objects(call[2]))
    elements = [y if x else z for x, y, z in zip(*(one.ravel() for one in parts), strict=True)]
    array = np.empty(len(elements), dtype=object)
    array[:] = elements
    first = call[1]
    assert isinstance(first, KnownArray)
    return known_array(array.reshape(parts[0].shape), first.dtype)


def _reduction_rule(
    apply: Callable[[Sequence[Element]], Element],
) -> Callable[[Context, Call], KnownArray | None]:
    """Return a reduction of all elements of a vector."""

    def rule(context: Context, call: Call) -> KnownArray | None:
        first = call[0]
        if not isinstance(first, KnownArray) or first.array.ndim > 1 or "int" not in first.dtype:
            return None
        axes, none = _integers(call, 1, "axes"), call.get("noop_with_empty_axes", 0)
        if none and not axes:
            return first
        for axis in axes or []:
            context.axis(first, axis)
        keepdims = bool(call.get("keepdims", 1)) and first.array.ndim
        result = apply(first.elements)
        return known_array([result] if keepdims else result, first.dtype)

    return rule


def _whole(context: Context, call: Call) -> KnownArray | None:
    """Rounding what is an integer."""
    first = call[0]
    return first if isinstance(first, KnownArray) else None


def _negate(context: Context, call: Call) -> KnownArray | None:
    negate = np.frompyfunc(lambda a: arithmetic("*", -1, a), 1, 1)
    return _same_dtype(call, negate(_objects(call[0])))


def _absolute(context: Context, call: Call) -> KnownArray | None:
    first = call[0]
    assert isinstance(first, KnownArray)
    return first if all(context.bounds(one)[0] >= 0 for one in first.elements) else None


SYMBOLIC: dict[str, Callable[[Context, Call], KnownArray | tuple[KnownArray, ...] | None]] = {
    "Abs": _absolute,
    "Add": _element_wise(lambda context, a, b: arithmetic("+", a, b)),
    "Cast": _cast,
    "Ceil": _whole,
    "Div": _element_wise(_divide),
    "Equal": _element_wise(_compare(_equal)),
    "Floor": _whole,
    "Greater": _element_wise(lambda context, a, b: _compare(_below)(context, b, a)),
    "GreaterOrEqual": _element_wise(lambda context, a, b: _compare(_at_most)(context, b, a)),
    "Identity": _whole,
    "Less": _element_wise(_compare(_below)),
    "LessOrEqual": _element_wise(_compare(_at_most)),
    "Max": _element_wise(partial(_extreme, op="max")),
    "Min": _element_wise(partial(_extreme, op="min")),
    "Mod": _modulo,
    "Mul": _element_wise(lambda context, a, b: arithmetic("*", a, b)),
    "Neg": _negate,
    "ReduceProd": _reduction_rule(product),
    "ReduceSum": _reduction_rule(lambda found: extent(*found)),
    "Round": _whole,
    "Sub": _element_wise(lambda context, a, b: arithmetic("-", a, b)),
    "Sum": _element_wise(lambda context, a, b: arithmetic("+", a, b)),
    "Where": _where,
}
