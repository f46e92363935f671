"""Sums over windows of neighbours, as they are read from expressions.

``sum over c, r of d(i + r, c) * w[r, c, o]`` with a constant w, whatever d computes of the sum of i and r, conditions of a padding among
them: along one axis, or two.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from offcut.core import index as ix
from offcut.core.expr import (
    Binary,
    Compare,
    Expr,
    Load,
    Reduce,
    Var,
    loads,
    rewrite,
    substitute,
    variables,
)
from offcut.describe.tensor import Compute, Tensor
from offcut.describe.value import Axis

AXES = 2
"""At most: what is added up beside products grows with each, by a factor."""


@dataclass(frozen=True)
class Window:
    """``total[lead, y…, o…] = sum over r…, c… of data(lead, y + r…, c…) * weights[r…, c…, o…]``.

    total, definition    the sum, as it was described
    data                 what is multiplied, with the name of y for the sum of y and r
    weights, at          the constant, and the index at which it is read
    lead, along, lanes   axes of the result: of data alone, those that move a window, and those of the weights alone
    taps, depth          axes of the sum: one for each of `along`, and the others
    """

    total: Tensor
    definition: Compute
    data: Expr
    weights: Tensor
    at: tuple[Expr, ...]
    lead: tuple[Axis, ...]
    along: tuple[Axis, ...]
    lanes: tuple[Axis, ...]
    taps: tuple[Axis, ...]
    depth: tuple[Axis, ...]


def window_of(total: Tensor, fixed: Collection[str], taps: int) -> Window | None:
    """A sum over windows of so many taps along each axis, with constants; None for any other tensor.

    fixed  names of tensors that are known
    """
    definition = total.definition
    assert definition is not None
    match definition.body:
        case Reduce("sum", Binary("*", a, b)):
            pass
        case _:
            return None
    for weights, data in ((a, b), (b, a)):
        if isinstance(weights, Load) and weights.buffer in fixed:
            return _by_axes(total, definition, weights, data, taps)
    return None


def _by_axes(
    total: Tensor, definition: Compute, weights: Load, data: Expr, count: int
) -> Window | None:
    """The window, its axes told apart by what data and weights read of them; None where one is of neither kind."""
    named = {axis.name: axis for axis in (*definition.axes, *definition.reduce_axes)}
    own = [part.name for part in weights.index if isinstance(part, Var) and part.name in named]
    if len(set(own)) < len(weights.index) or weights.buffer in {
        load.buffer for load, _ in loads(data)
    }:
        return None
    along, taps = list[Axis](), list[Axis]()
    for tap in definition.reduce_axes:
        if tap.extent != count or len(taps) == AXES:
            continue
        for axis in definition.axes:
            apart = None if axis in along else _of_sum(data, axis.name, tap.name)
            if apart is not None:
                along.append(axis)
                taps.append(tap)
                data = apart
                break
    read = variables(data)
    lanes = tuple(axis for axis in definition.axes if axis.name not in read)
    lead = tuple(axis for axis in definition.axes if axis.name in read and axis not in along)
    depth = tuple(axis for axis in definition.reduce_axes if axis not in taps)
    if not (along and lanes and depth) or {*own} != {a.name for a in (*taps, *depth, *lanes)}:
        return None
    if not all(axis.extent.is_Integer for axis in (*depth, *lanes)):
        return None
    if any(axis.name not in read for axis in depth):
        return None
    (of,) = (one for one in definition.reads if one.name == weights.buffer)
    return Window(
        total, definition, data, of, weights.index, lead, tuple(along), lanes, tuple(taps), depth
    )


def _of_sum(data: Expr, axis: str, tap: str) -> Expr | None:
    """The data with the name of an axis for the sum of the axis and a tap; None where they are not read so."""
    if not {axis, tap} <= variables(data):
        return None
    placed_data = placed(data, {axis: ix.sub(Var(axis), Var(tap))})
    return None if tap in variables(placed_data) else placed_data


def placed(data: Expr, values: Mapping[str, Expr]) -> Expr:
    """An expression with others for names, indices and conditions in canonical form."""

    def rule(expr: Expr) -> Expr | None:
        match expr:
            case Load():
                return replace(expr, index=tuple(map(ix.simplify, expr.index)))
            case Compare():
                return Compare(expr.op, ix.simplify(expr.a), ix.simplify(expr.b))
            case _:
                return None

    return rewrite(substitute(data, values), rule)
