"""Normalisation and softmax."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from offcut.graph import Ref
from offcut.graph.sizes.extent_values import plain, product
from offcut.plugins.operators.lines import log_sum_exp, norm_of_last_axes
from offcut.plugins.torch.rule_table import Unsupported, register_rule
from offcut.plugins.torch.rules.reductions import moments
from offcut.plugins.torch.translation import Translation


@register_rule("native_layer_norm")
def native_layer_norm(
    t: Translation, x: Ref, shape: Sequence[Any], gain: Ref | None, bias: Ref | None, epsilon: float
) -> Any:
    result = layer_norm(t, x, shape, gain, bias, epsilon)
    own = t.as_result(x)
    axes = tuple(range(t.rank(x) - len(shape), t.rank(x)))
    variance, mean = moments(t, own, axes, 0, keepdims=True)
    return result, mean, _over_deviation(t, variance, epsilon)


def _over_deviation(t: Translation, variance: Ref, epsilon: float) -> Ref:
    result: Ref = t.node("rsqrt", t.node("add", variance, epsilon))
    return result


@register_rule("layer_norm")
def layer_norm(
    t: Translation,
    x: Ref,
    shape: Sequence[Any],
    gain: Ref | None = None,
    bias: Ref | None = None,
    epsilon: float = 1e-5,
    *_: Any,
) -> Any:
    parameters = {"gain": gain, "bias": bias}
    return norm_of_last_axes(t, "layernorm", x, len(shape), parameters, epsilon)


@register_rule("rms_norm")
def rms_norm(
    t: Translation,
    x: Ref,
    shape: Sequence[Any],
    gain: Ref | None = None,
    epsilon: float | None = None,
) -> Any:
    if epsilon is None:
        epsilon = 2.0**-52 if t.result == "float64" else 2.0**-23
    return norm_of_last_axes(t, "rmsnorm", x, len(shape), {"gain": gain}, epsilon)


@register_rule("_fused_rms_norm")
def fused_rms_norm(
    t: Translation, x: Ref, shape: Sequence[Any], gain: Ref | None, epsilon: float | None
) -> Any:
    return rms_norm(t, x, shape, gain, epsilon), None


@register_rule("_native_batch_norm_legit_no_training")
def batch_norm_inference(
    t: Translation,
    x: Ref,
    gain: Ref | None,
    bias: Ref | None,
    mean: Ref,
    variance: Ref,
    _: float,
    epsilon: float,
) -> Any:
    parameters = {"gain": gain, "bias": bias, "epsilon": epsilon}
    return t.node("batchnorm", x, mean, variance, **parameters), None, None


@register_rule("_native_batch_norm_legit_functional")
def batch_norm_training(
    t: Translation,
    x: Ref,
    gain: Ref | None,
    bias: Ref | None,
    mean: Ref,
    variance: Ref,
    training: bool,
    momentum: float,
    epsilon: float,
) -> Any:
    """Normalize by the statistics of the batch; the running ones move towards them."""
    if not training:
        normalized = batch_norm_inference(t, x, gain, bias, mean, variance, momentum, epsilon)[0]
        return normalized, None, None, mean, variance
    axes = (0, *range(2, t.rank(x)))
    spread, own = moments(t, x, axes, 0, keepdims=False)
    normalized = batch_norm_inference(t, x, gain, bias, own, spread, momentum, epsilon)[0]
    count = t.scalar(plain(product([t.shape(x)[axis] for axis in axes])), t.dtype(x))
    unbiased = t.node("multiply", spread, t.node("divide", count, t.node("subtract", count, 1)))

    def updated(running: Ref, towards: Ref) -> Ref:
        share = t.node("multiply", running, 1 - momentum)
        result: Ref = t.node("add", t.node("multiply", towards, momentum), share)
        return result

    statistics = updated(mean, own), updated(variance, unbiased)
    return normalized, own, _over_deviation(t, spread, epsilon), *statistics


@register_rule("native_group_norm")
def native_group_norm(
    t: Translation,
    x: Ref,
    gain: Ref | None,
    bias: Ref | None,
    n: Any,
    c: Any,
    pixels: Any,
    groups: int,
    epsilon: float,
) -> Any:
    result = group_norm(t, x, groups, gain, bias, epsilon)
    parts = t.reshape(t.as_result(x), (t.shape(x)[0], groups, -1))
    variance, mean = moments(t, parts, 2, 0, keepdims=False)
    return result, mean, _over_deviation(t, variance, epsilon)


@register_rule("group_norm")
def group_norm(
    t: Translation,
    x: Ref,
    groups: int,
    gain: Ref | None = None,
    bias: Ref | None = None,
    epsilon: float = 1e-5,
    *_: Any,
) -> Any:
    return t.node("groupnorm", x, groups, gain=gain, bias=bias, epsilon=epsilon)


@register_rule("_softmax", "softmax.int")
def softmax(t: Translation, x: Ref, axis: int, *_: Any) -> Any:
    return _normalize(t, "softmax", x, axis)


@register_rule("_log_softmax", "log_softmax.int")
def log_softmax(t: Translation, x: Ref, axis: int, *_: Any) -> Any:
    return _normalize(t, "log_softmax", x, axis)


@register_rule("logsumexp", rounds_each=True)
def logsumexp(t: Translation, x: Ref, axes: Sequence[int], keepdims: bool = False) -> Any:
    return log_sum_exp(t, x, [t.axis(x, axis) for axis in axes], keepdims)


def _normalize(t: Translation, op: str, x: Ref, axis: int) -> Any:
    if not t.rank(x):
        raise Unsupported("it is of a number")
    return t.node(op, t.as_result(x), axis=t.axis(x, axis))
