"""Reductions, and normalization over channels, images and the last axes.

Normalization over channels, images and the last axes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from offcut.core.dtypes import HALVES
from offcut.core.expr import Expr
from offcut.graph.sizes.extent_values import arithmetic, extent, product
from offcut.plugins.onnx.importer.context import Context
from offcut.plugins.onnx.importer.nonnegative_extents import refuse_negative, require_minimum_sizes
from offcut.plugins.onnx.importer.operands import (
    Call,
    Operand,
    Results,
    UnsupportedNode,
    format_values,
    known_array,
)
from offcut.plugins.onnx.rules.elementwise import Operator, number, scalar
from offcut.plugins.onnx.rules.shapes import attribute_or_input, axes_of
from offcut.plugins.operators.lines import accumulate, log_sum_exp, norm_of_last_axes, top_elements

MOST = 64
"""Elements of a product: each is a node."""


def _axes(g: Context, call: Call, x: Operand) -> list[int] | None:
    """Return the axes that are reduced; None: the operand is given as it is."""
    call.overlook("noop_with_empty_axes", "keepdims")
    axes = attribute_or_input(g, call, 1, "axes")
    if axes:
        return axes_of(g, x, axes)
    return None if call.get("noop_with_empty_axes", 0) else list(range(g.rank(x)))


def _reduction(
    name: str,
    before: Callable[[Context, Operand], Operand] | None = None,
    after: Callable[[Context, Operand], Operand] | None = None,
) -> Operator:
    """Return an operator of `offcut.ops` over axes, between what is done to elements and to results."""

    def rule(g: Context, call: Call) -> Results:
        x = call[0]
        dtype, axes = g.dtype(x), _axes(g, call, x)
        inner = x if before is None else before(g, x)
        if axes is not None:
            inner = emit_reduction(g, name, inner, axes, bool(call.get("keepdims", 1)))
        result = inner if after is None else after(g, inner)
        return g.cast(result, dtype)

    return rule


def emit_reduction(
    g: Context, name: str, x: Operand, axes: Sequence[int], keepdims: bool
) -> Operand:
    """Return a reduction over axes; over none, the operand."""
    if not axes:
        return x
    dtype = g.dtype(x)
    if dtype == "bool":
        x = g.cast(x, "uint8")
    if name == "mean" and not g.is_float(x):
        raise UnsupportedNode(
            f"the mean of {dtype} is not of this type", "a Cast to float32 before it"
        )
    result: Operand = g.op(name, x, axis=tuple(axes), keepdims=keepdims)
    return g.cast(result, dtype)


def _log_sum_exp(g: Context, call: Call) -> Results:
    x = call[0]
    axes = _axes(g, call, x)
    if axes is None:
        return x
    if not g.is_float(x):
        raise UnsupportedNode(f"exp of {g.dtype(x)}", "floats")
    result: Operand = log_sum_exp(g, x, axes, bool(call.get("keepdims", 1)))
    return result


def _product(g: Context, call: Call) -> Results:
    """Return the product of a few: part by part."""
    x = call[0]
    axes = _axes(g, call, x)
    if axes is None:
        return x
    shape = list(g.shape(x))
    for axis in axes:
        count = g.whole(shape[axis], "the extent whose product is taken")
        if count > MOST:
            raise UnsupportedNode(f"a product of {count} elements", f"{MOST} at most")
        one = g.full([*shape[:axis], 1, *shape[axis + 1 :]], 1, g.dtype(x))
        total = g.slice(x, axis, 0, 1) if count else one
        for place in range(1, count):
            total = g.binary("multiply", total, g.slice(x, axis, place, place + 1))
        x, shape[axis] = total, 1
    if call.get("keepdims", 1):
        return x
    return g.reshape(x, [one for axis, one in enumerate(shape) if axis not in axes])


def _place(g: Context, call: Call, *, name: str) -> Results:
    """Where the greatest or the least is."""
    x = call[0]
    axis = g.axis(x, call.get("axis", 0))
    keepdims, whole = bool(call.get("keepdims", 1)), g.shape(x)[axis]
    if not call.get("select_last_index", 0):
        return g.of_some(g.op(name, x, axis=axis, keepdims=keepdims), [whole])
    place = g.of_some(g.op(name, g.op("flip", x, (axis,)), axis=axis, keepdims=keepdims), [whole])
    return g.binary("subtract", known_array(extent(whole, -1)), place)


def _softmax(g: Context, call: Call, *, name: str) -> Results:
    """Along an axis; before the operator set 13, over all axes from it on."""
    x = call[0]
    if call.version >= 13:
        return g.op(name, x, axis=g.axis(x, call.get("axis", -1)))
    shape, axis = g.shape(x), g.axis(x, call.get("axis", 1))
    flat = g.reshape(x, (product(shape[:axis]), product(shape[axis:])))
    return g.reshape(g.op(name, flat), shape)


def _hardmax(g: Context, call: Call) -> Results:
    x = call[0]
    axis = g.axis(x, call.get("axis", -1 if call.version >= 13 else 1))
    if call.version < 13 and axis != g.rank(x) - 1:
        raise UnsupportedNode(
            "over several axes, as before the operator set 13", "the operator set 13"
        )
    first: Operand = g.op("argmax", x, axis=axis, keepdims=True)
    places: Operand = g.op("iota", g.shape(x)[axis], "int64")
    places = g.reshape(places, [-1 if n == axis else 1 for n in range(g.rank(x))])
    return g.cast(g.binary("equal", places, first), g.dtype(x))


def _running(g: Context, call: Call, *, reduction: str, nothing: int) -> Results:
    """What is accumulated up to each element, or from each on; without itself where that is asked.

    nothing  what stands before the first
    """
    x = call[0]
    axis = g.axis(x, int(g.number(call[1], "axis")))
    back = call.get("reverse", 0)
    x = g.op("flip", x, (axis,)) if back else x
    result: Operand = accumulate(g, x, axis, reduction)
    if call.get("exclusive", 0):
        shape = g.shape(x)
        ends = [1 if n == axis else one for n, one in enumerate(shape)]
        first = g.full(ends, nothing, g.dtype(result))
        result = g.slice(g.op("concat", (first, result), axis=axis), axis, 0, shape[axis])
    return g.op("flip", result, (axis,)) if back else result


def _top(g: Context, call: Call) -> Results:
    x = call[0]
    k = call.get("k") if call.version < 10 else g.elements(call[1], "k")[0]
    axis, largest = g.axis(x, call.get("axis", -1)), bool(call.get("largest", 1))
    call.overlook("sorted")  # that they are sorted is asked for, or nothing
    whole = g.shape(x)[axis]
    if isinstance(k, Expr):
        refuse_negative(
            g, arithmetic("-", whole, k), f"beyond the first {format_values(k)} there is"
        )
        return top_elements(g, x, k, axis, largest)
    if not isinstance(whole, Expr) and k > whole:
        raise UnsupportedNode(f"the first {k} of {format_values(whole)}")
    rest = extent(whole, -int(k))
    require_minimum_sizes(g, rest)
    refuse_negative(g, rest, f"beyond the first {k} there is")
    return top_elements(g, x, int(k), axis, largest)


REDUCTIONS: Mapping[str, Operator] = {
    "ArgMax": partial(_place, name="argmax"),
    "ArgMin": partial(_place, name="argmin"),
    "CumProd": partial(_running, reduction="mul", nothing=1),
    "CumSum": partial(_running, reduction="add", nothing=0),
    "Hardmax": _hardmax,
    "LogSoftmax": partial(_softmax, name="log_softmax"),
    "ReduceL1": _reduction("sum", lambda g, x: g.op("absolute", x)),
    "ReduceL2": _reduction(
        "sum",
        lambda g, x: g.op("square", g.in_float32(x) if g.is_float(x) else g.cast(x, "float32")),
        lambda g, x: g.op("sqrt", x),
    ),
    "ReduceLogSum": _reduction("sum", Context.in_float32, lambda g, x: g.op("log", x)),
    "ReduceLogSumExp": _log_sum_exp,
    "ReduceMax": _reduction("max"),
    "ReduceMean": _reduction("mean"),
    "ReduceMin": _reduction("min"),
    "ReduceProd": _product,
    "ReduceSum": _reduction("sum"),
    "ReduceSumSquare": _reduction("sum", lambda g, x: g.binary("multiply", x, x)),
    "Softmax": partial(_softmax, name="softmax"),
    "TopK": _top,
}


def _batch(g: Context, call: Call) -> Results:
    if call.get("training_mode", 0) or call.outputs > 1:
        raise UnsupportedNode("statistics of the batch: training", "training_mode=0, one output")
    x, gain, bias, mean, variance = (call[place] for place in range(5))
    if call.version < 9 and not call.get("spatial", 1):
        raise UnsupportedNode("spatial=0", "spatial=1")
    call.overlook("momentum", "spatial")
    epsilon = call.get("epsilon", 1e-5)
    dtype = "float32" if g.dtype(x) in HALVES else g.dtype(x)
    mean, variance, gain, bias = (g.cast(one, dtype) for one in (mean, variance, gain, bias))
    return g.op("batchnorm", x, mean, variance, gain=gain, bias=bias, epsilon=epsilon)


def _layer(g: Context, call: Call, *, name: str) -> Results:
    """Over the last axis, or over several as one."""
    if call.outputs > 1:
        raise UnsupportedNode("mean and deviation as outputs", "one output")
    if call.get("stash_type", 1) != 1:
        raise UnsupportedNode(f"stash_type={call.get('stash_type')}", "stash_type=1")
    x = call[0]
    whole = g.shape(x)[g.axis(x, call.get("axis", -1)) :]
    labels = ("gain", "bias") if name == "layernorm" else ("gain",)
    parameters = {label: call.input(place) for place, label in enumerate(labels, 1)}
    for label, one in parameters.items():
        if one is not None and g.shape(one) != whole:
            raise UnsupportedNode(f"a {label} of another shape than what is normalized")
    epsilon = call.get("epsilon", 1e-5)
    result: Operand = norm_of_last_axes(g, name, x, len(whole), parameters, epsilon)
    return result


def _instance(g: Context, call: Call) -> Results:
    gain, bias = call[1], call[2]
    epsilon = call.get("epsilon", 1e-5)
    return g.op("instancenorm", call[0], gain=gain, bias=bias, epsilon=epsilon)


def _group(g: Context, call: Call) -> Results:
    x, gain, bias = call[0], call[1], call[2]
    groups, channels = call.get("num_groups"), g.shape(x)[1]
    if call.version < 21:
        raise UnsupportedNode(
            "a gain for each group, as before the operator set 21", "a gain for each channel"
        )
    call.overlook("stash_type")  # 16 bits are calculated in float32
    if g.shape(gain) != (channels,):
        raise UnsupportedNode("a gain of another extent than the channels")
    return g.op("groupnorm", x, groups, gain=gain, bias=bias, epsilon=call.get("epsilon", 1e-5))


def _to_length(g: Context, call: Call) -> Results:
    """``x / (sum of |x|**p) ** (1/p)``; 0 where that is 0."""
    dtype, x, p = g.dtype(call[0]), g.in_float32(call[0]), call.get("p", 2)
    axis = g.axis(x, call.get("axis", -1))
    raised = g.op("square", x) if p == 2 else g.op("absolute", x)
    total = emit_reduction(g, "sum", raised, [axis], True)
    length: Operand = g.op("sqrt", total) if p == 2 else total
    nothing = g.binary("equal", length, number(g, length, 0.0))
    return g.cast(g.binary("divide", x, g.op("where", nothing, 1.0, length)), dtype)


def _mean_variance(g: Context, call: Call) -> Results:
    """``(x - mean) / (deviation + 1e-9)``."""
    x, axes = g.in_float32(call[0]), [g.axis(call[0], one) for one in call.get("axes") or [0, 2, 3]]
    apart = g.binary("subtract", x, emit_reduction(g, "mean", x, axes, True))
    variance = emit_reduction(g, "mean", g.op("square", apart), axes, True)
    whole = g.binary("divide", apart, scalar(g, "add", g.op("sqrt", variance), 1e-9))
    return g.cast(whole, g.dtype(call[0]))


NORMALIZATION: Mapping[str, Operator] = {
    "BatchNormalization": _batch,
    "GroupNormalization": _group,
    "InstanceNormalization": _instance,
    "LayerNormalization": partial(_layer, name="layernorm"),
    "LpNormalization": _to_length,
    "MeanVarianceNormalization": _mean_variance,
    "RMSNormalization": partial(_layer, name="rmsnorm"),
}
