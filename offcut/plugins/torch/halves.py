"""Floats of 16 bits: what torch calculates of them in float32, and rounds once."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np

from offcut.core.dtypes import HALVES, numpy_dtype
from offcut.graph import Ref

if TYPE_CHECKING:
    from offcut.plugins.torch.translation import Translation

F = TypeVar("F", bound=Callable[..., Any])


def rounded_once(rule: F) -> F:
    """A rule of several operators of ours, none of which rounds to 16 bits, or leaves their range, before the last."""

    @wraps(rule)
    def once(t: Translation, *given: Any, **options: Any) -> Any:
        kind = t.result
        if kind not in HALVES:
            return rule(t, *given, **options)
        t.calculated = "float32"
        try:
            found = rule(t, *(_wide(t, one) for one in given), **options)
        finally:
            t.calculated = None
        return (
            tuple(t.cast(one, kind) for one in found)
            if isinstance(found, tuple)
            else t.cast(found, kind)
        )

    return cast("F", once)


def wide(kind: str) -> str | None:
    """The element type of sums that are rounded later; None: that of the operands does."""
    return "float32" if kind in HALVES else None


def is_rounded(value: object, kind: str) -> bool:
    """Whether an element type of 16 bits holds no float that is this number."""
    if kind not in HALVES or isinstance(value, bool) or not isinstance(value, int | float):
        return False
    with np.errstate(over="ignore"):
        return float(numpy_dtype(kind).type(float(value))) != value


def _wide(t: Translation, one: Any) -> Any:
    return t.cast(one, "float32") if isinstance(one, Ref) and t.dtype(one) in HALVES else one
