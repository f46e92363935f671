"""Functions of one element."""

from __future__ import annotations

import math
from typing import Any

from offcut.graph import Ref
from offcut.plugins.torch.left import Left
from offcut.plugins.torch.table import same, takes, takes_prim
from offcut.plugins.torch.translation import Translation

SAME = {
    "relu": "relu",
    "relu6": "relu6",
    "silu": "silu",
    "sigmoid": "sigmoid",
    "tanh": "tanh",
    "exp": "exp",
    "log": "log",
    "log1p": "log1p",
    "sqrt": "sqrt",
    "rsqrt": "rsqrt",
    "reciprocal": "reciprocal",
    "erf": "erf",
    "sin": "sin",
    "cos": "cos",
    "floor": "floor",
    "ceil": "ceil",
    "round": "round",
    "sign": "sign",
    "neg": "negative",
    "abs": "absolute",
    "square": "square",
    "hardswish": "hardswish",
    "hardsigmoid": "hardsigmoid",
}
"""Ours by torch's name, where they mean the same."""

for _theirs, _ours in SAME.items():
    takes(_theirs)(same(_ours))


@takes("gelu")
def gelu(t: Translation, x: Ref, *, approximate: str = "none") -> Any:
    return t.node("gelu_tanh" if approximate == "tanh" else "gelu", x)


@takes("elu")
def elu(
    t: Translation, x: Ref, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0
) -> Any:
    if scale != 1 or input_scale != 1:
        raise Left("it is scaled")
    return t.node("elu", x, alpha=float(alpha))


@takes("leaky_relu")
def leaky_relu(t: Translation, x: Ref, slope: float = 0.01) -> Any:
    return t.node("leaky_relu", x, slope=float(slope))


@takes("softplus")
def softplus(t: Translation, x: Ref, beta: float = 1.0, threshold: float = 20.0) -> Any:
    if beta != 1 or threshold < 20:
        raise Left(f"beta is {beta}, threshold {threshold}")
    return t.node("softplus", x)


@takes("mish")
def mish(t: Translation, x: Ref) -> Any:
    return t.node("multiply", x, t.node("tanh", t.node("softplus", x)))


@takes("hardtanh")
def hardtanh(t: Translation, x: Ref, low: float = -1.0, high: float = 1.0) -> Any:
    return t.node("clip", x, low=low, high=high)


@takes("clamp")
def clamp(t: Translation, x: Ref, low: Any = None, high: Any = None) -> Any:
    return t.node("clip", t.as_result(x), low=low, high=high)


@takes("clamp_min")
def clamp_min(t: Translation, x: Ref, low: Any) -> Any:
    return t.node("clip", t.as_result(x), low=low)


@takes("clamp_max")
def clamp_max(t: Translation, x: Ref, high: Any) -> Any:
    return t.node("clip", t.as_result(x), high=high)


@takes("clamp.Tensor")
def clamp_tensor(t: Translation, x: Ref, low: Ref | None = None, high: Ref | None = None) -> Any:
    found = t.as_result(x)
    if low is not None:
        found = t.node("maximum", found, t.as_result(low))
    return found if high is None else t.node("minimum", found, t.as_result(high))


@takes("log2")
def log2(t: Translation, x: Ref) -> Any:
    return t.node("multiply", t.node("log", t.as_result(x)), 1 / math.log(2))


@takes("logical_not", "bitwise_not")
def logical_not(t: Translation, x: Ref) -> Any:
    if t.result != "bool":
        raise Left("it inverts bits")
    return t.node("logical_not", truth(t, x))


@takes("isnan")
def isnan(t: Translation, x: Ref) -> Any:
    return t.node("not_equal", x, x)


@takes("isinf")
def isinf(t: Translation, x: Ref) -> Any:
    return t.node("equal", t.node("absolute", x), math.inf)


@takes("_to_copy", "to.dtype", "to.device", "to.dtype_layout", "clone", "contiguous", "type_as")
def converted(t: Translation, x: Ref, *_: Any, **__: Any) -> Any:
    """The same elements, in the type of the result; whether memory is shared is seen to where it is given out."""
    return truth(t, x) if t.result == "bool" else t.cast(x, t.result)


@takes_prim("convert_element_type")
def converted_by_prim(t: Translation, x: Ref, dtype: Any) -> Any:
    return converted(t, x)


@takes(
    *("alias", "detach", "lift_fresh_copy", "lift_fresh", "_assert_tensor_metadata", "positive"),
)
def itself(t: Translation, x: Ref) -> Any:
    return x


@takes("dropout", "feature_dropout", "native_dropout")
def dropout(t: Translation, x: Ref, rate: float, train: bool | None) -> Any:
    if train and rate:
        raise Left("it is random")
    return (x, None) if isinstance(t.fake, tuple | list) else x


def truth(t: Translation, x: Ref) -> Ref:
    """Whether each element is not 0."""
    found: Ref = x if t.dtype(x) == "bool" else t.node("not_equal", x, 0)
    return found
