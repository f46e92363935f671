"""The quotient of integers that is rounded towards 0, as torch and ONNX have it."""

from __future__ import annotations

from typing import Any

from offcut.core.dtypes import UNSIGNED
from offcut.plugins.operators.translator import Translator


def truncated_quotient(t: Translator, a: Any, b: Any) -> Any:
    """Return ``a / b`` of integers, rounded towards 0: one more than rounded down, where that is below 0 and something is left."""
    floored = t.node("floor_divide", a, b)
    if t.dtype(a) in UNSIGNED:
        return floored
    is_rounded = t.node("not_equal", t.node("multiply", floored, b), a)
    is_below = t.node("logical_and", t.node("less", floored, 0), is_rounded)
    return t.node("where", is_below, t.node("add", floored, 1), floored)
