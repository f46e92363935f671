"""Small integers that stand for floats, as `torch.export` of a quantized module (pt2e) has them."""

from __future__ import annotations

from typing import Any

import torch

from offcut.core.dtypes import finite_range
from offcut.graph import Ref
from offcut.graph.sizes.extent_values import plain
from offcut.plugins.torch.dtypes import NAMES
from offcut.plugins.torch.rule_table import Unsupported, takes_of_others
from offcut.plugins.torch.translation import Translation

BYTES = ("int8", "uint8")


@takes_of_others(
    "quantized_decomposed::quantize_per_tensor",
    "quantized_decomposed::quantize_per_tensor.tensor",
    "quantized_decomposed::quantize_per_tensor.tensor2",
)
def quantize_per_tensor(
    t: Translation, x: Ref, scale: Any, zero: Any, low: Any, high: Any, dtype: Any
) -> Any:
    return quantize_per_channel(t, x, scale, zero, 0, low, high, dtype)


@takes_of_others("quantized_decomposed::quantize_per_channel")
def quantize_per_channel(
    t: Translation, x: Ref, scales: Any, zeros: Any, axis: int, low: Any, high: Any, dtype: Any
) -> Any:
    """``clip(round(x / scale) + zero, low, high)``."""
    kind = NAMES.get(dtype, str(dtype))
    if kind not in BYTES:
        raise Unsupported(f"it gives {kind}, not bytes")
    if not isinstance(low, int) or not isinstance(high, int):
        raise Unsupported("the ends of its range are not numbers")
    scale, zero = _parameter(t, scales, "float32"), _parameter(t, zeros, "int32")
    whole = t.node(
        "quantize", t.cast(x, "float32"), scale, zero, dtype=kind, **_axis_option(t, x, axis)
    )
    least, most = finite_range(kind)
    return whole if (low, high) == (least, most) else t.node("clip", whole, low=low, high=high)


@takes_of_others(
    "quantized_decomposed::dequantize_per_tensor",
    "quantized_decomposed::dequantize_per_tensor.tensor",
    "quantized_decomposed::dequantize_per_tensor.tensor2",
)
def dequantize_per_tensor(
    t: Translation,
    x: Ref,
    scale: Any,
    zero: Any,
    low: Any,
    high: Any,
    dtype: Any,
    *,
    out_dtype: Any = None,
) -> Any:
    return dequantize_per_channel(t, x, scale, zero, 0, low, high, dtype, out_dtype=out_dtype)


@takes_of_others("quantized_decomposed::dequantize_per_channel")
def dequantize_per_channel(
    t: Translation,
    x: Ref,
    scales: Any,
    zeros: Any,
    axis: int,
    _low: Any,
    _high: Any,
    _dtype: Any,
    *,
    out_dtype: Any = None,
) -> Any:
    """``(x - zero) * scale``."""
    if t.dtype(x) not in (*BYTES, "int32"):
        raise Unsupported(f"it is of {t.dtype(x)}, not of bytes")
    scale = _parameter(t, scales, "float32")
    zero = 0 if zeros is None else _parameter(t, zeros, "int32")
    return t.as_result(t.node("dequantize", x, scale, zero, **_axis_option(t, x, axis)))


@takes_of_others("quantized_decomposed::choose_qparams.tensor")
def choose_qparams(t: Translation, x: Ref, low: int, high: int, epsilon: float, dtype: Any) -> Any:
    """Return the scale and the zero point of a whole tensor, each of shape (1,), from its least and its greatest element."""
    least, most = _ends(t, x)
    spread = t.node("divide", t.node("subtract", most, least), float(high - low))
    scale = t.node("maximum", spread, epsilon)
    places = t.node("round", t.node("divide", least, scale))
    zero = t.node("clip", t.node("subtract", float(low), places), low=float(low), high=float(high))
    return _of_one(t, scale, zero)


@takes_of_others("quantized_decomposed::choose_qparams_symmetric.tensor")
def choose_qparams_symmetric(
    t: Translation, x: Ref, low: int, high: int, epsilon: float, dtype: Any
) -> Any:
    """Return the scale and the zero point, each of shape (1,), of a range that is symmetric about 0: the zero point is 0, in uint8 128."""
    least, most = _ends(t, x)
    far = t.node("divide", t.node("maximum", t.node("negative", least), most), (high - low) / 2)
    zero = t.scalar(128.0 if dtype is torch.uint8 else 0.0, "float32")
    return _of_one(t, t.node("maximum", far, epsilon), zero)


def _ends(t: Translation, x: Ref) -> tuple[Ref, Ref]:
    """Return the least and the greatest of all elements and 0, in float32."""
    wide = t.cast(x, "float32")
    return t.node("minimum", t.node("min", wide), 0.0), t.node("maximum", t.node("max", wide), 0.0)


def _of_one(t: Translation, scale: Ref, zero: Ref) -> tuple[Ref, Ref]:
    """Return a scale and a zero point as torch gives them: of shape (1,), of float64 and int64."""
    scale, zero = t.reshape(scale, (1,)), t.reshape(zero, (1,))
    return t.cast(scale, "float64"), t.cast(zero, "int64")


def _parameter(t: Translation, parameter: Any, dtype: str) -> Any:
    """Return a scale or a zero point as `oc.ops.quantize` takes it: a number, or a value of shape () or (channels,)."""
    if not isinstance(parameter, Ref):
        return parameter
    wide = t.cast(parameter, dtype)
    return t.reshape(wide, ()) if _is_one(t, parameter) else wide


def _is_one(t: Translation, parameter: Ref) -> bool:
    return all(extent == 1 for extent in map(plain, t.shape(parameter)))


def _axis_option(t: Translation, x: Ref, axis: int) -> dict[str, int]:
    return {"axis": t.axis(x, axis)} if t.rank(x) else {}
