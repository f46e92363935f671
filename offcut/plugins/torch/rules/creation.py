"""Arrays of nothing but numbers: counts, constants, triangles."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from offcut.core import index as ix
from offcut.graph import Ref
from offcut.graph.sizes.extents import normal
from offcut.graph.sizes.numbers import plain
from offcut.plugins.torch.rule_table import register_rule
from offcut.plugins.torch.rules.functions import operand
from offcut.plugins.torch.translation import Translation
from offcut.plugins.torch.unsupported import Unsupported


@register_rule("full", "full_like", "new_full", "scalar_tensor")
def full(t: Translation, *arguments: Any, **_: Any) -> Any:
    return fill(t, arguments[-1])


@register_rule("ones", "ones_like", "new_ones", value=1)
@register_rule("zeros", "zeros_like", "new_zeros", value=0)
@register_rule("empty.memory_format", "empty_permuted", "new_empty", value=0)
def constant_array(t: Translation, *_: Any, value: int, **__: Any) -> Any:
    """What is said to be empty may hold anything, so that it may be 0."""
    return fill(t, value)


@register_rule("arange", "arange.start", "arange.start_step")
def arange(t: Translation, *bounds: Any, **_: Any) -> Any:
    start = _as_result_type(t, bounds[0]) if len(bounds) > 1 else 0
    step = _as_result_type(t, bounds[2]) if len(bounds) > 2 else 1
    result = t.node("iota", plain(t.extents[0]), t.result)
    if step != 1:
        result = t.node("multiply", result, operand(t, step, t.result))
    if start == 0 and not isinstance(step, float):
        t.steps[result.name] = normal(ix.index(step))
    return result if start == 0 else t.node("add", result, operand(t, start, t.result))


def _as_result_type(t: Translation, value: Any) -> Any:
    """A start or a step in the type of the result."""
    if "float" in t.result or not isinstance(value, float):
        return value
    if not value.is_integer():
        raise Unsupported(f"it counts integers by {value}")
    return int(value)


@register_rule("tril_indices", places=np.tril_indices)
@register_rule("triu_indices", places=np.triu_indices)
def triangle_places(
    t: Translation,
    rows: Any,
    columns: Any,
    offset: int = 0,
    *,
    places: Callable[..., Any],
    **_: Any,
) -> Any:
    """The rows and the columns of the elements of a triangle."""
    if not (isinstance(rows, int) and isinstance(columns, int)):
        raise Unsupported("how many places it has is not an expression in sizes")
    array = np.stack(places(rows, offset, columns)).astype(t.result)
    return t.builder.constant(t.builder.fresh("places"), array)


def fill(t: Translation, value: Any) -> Any:
    """The shape of the result, of one number."""
    number = t.cast(value, t.result) if isinstance(value, Ref) else t.scalar(value, t.result)
    return t.node("broadcast_to", number, t.extents) if t.extents else number
