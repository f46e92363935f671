"""Normalization over channels, images and the last axes."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from offcut.core.dtypes import HALVES
from offcut.plugins.onnx.importer.context import Context
from offcut.plugins.onnx.importer.operands import Call, Operand, Results, UnsupportedNode
from offcut.plugins.onnx.rules.elementwise import Operator, number, scalar
from offcut.plugins.onnx.rules.reductions import emit_reduction
from offcut.plugins.operators.norms import norm_of_last_axes


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
