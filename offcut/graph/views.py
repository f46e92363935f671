"""Operators that compute nothing: another shape of the same elements.

A reshape may merge symbolic axes, ``(b, n, e) -> (b*n, e)``, which no index of a loop program says; it is free where the
elements lie side by side.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from inspect import signature
from typing import Any, TypeAlias

import numpy as np

from offcut.core import index as ix
from offcut.core.expr import Binary, Expr
from offcut.core.program import Size
from offcut.core.text.printer import format_expr
from offcut.describe.request import Array
from offcut.describe.tensor import Tensor, compute
from offcut.errors import CallError, DescribeError
from offcut.graph.graph import Value
from offcut.graph.sizes import extents
from offcut.ops.checks import axis_letters

Shape: TypeAlias = tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class View:
    """An operator of one operand.

    shape     of the result, from the operand and the other arguments
    apply     the same on an array; extents are numbers there
    describe  the same as a tensor, for a copy; None where no index of a loop program says it
    """

    name: str
    shape: Callable[..., Shape]
    apply: Callable[..., Array]
    describe: Callable[..., Tensor] | None = None

    def arguments(self, *arguments: Any, **options: Any) -> dict[str, Any]:
        """The arguments after the operand, by name."""
        bound = signature(self.shape).bind(*arguments, **options)
        bound.apply_defaults()
        return dict([*bound.arguments.items()][1:])


def reshape_shape(x: Value, shape: tuple[Expr | int, ...]) -> Shape:
    """The shape that is asked for; one -1 stands for what is left.

    Raises DescribeError where the numbers of elements are not seen to be equal.
    """
    total = extents.product(x.shape)
    if not _is_shape(shape):
        raise _refusal(x, "reshape", f"shape={shape!r}")
    extents_or_none = [
        None if isinstance(one, int) and one == -1 else extents.normal(one) for one in shape
    ]
    known = extents.product(one for one in extents_or_none if one is not None)
    quotient = extents.quotient(total, known) if extents_or_none.count(None) == 1 else None
    if extents_or_none.count(None) > 1 or (None in extents_or_none and quotient is None):
        raise _unequal(x, shape, "what -1 stands for is not seen")
    if None not in extents_or_none and known != total:
        raise _unequal(x, shape, "it is not seen to have as many elements", (total, known))
    rest = ix.const(1) if quotient is None else quotient
    return tuple(rest if one is None else one for one in extents_or_none)


def broadcast_shape(x: Value, shape: tuple[Expr | int, ...]) -> Shape:
    """The shape that is asked for, in which extents of 1 are repeated.

    Raises DescribeError where another extent differs.
    """
    if not _is_shape(shape):
        raise _refusal(x, "broadcast_to", f"shape={shape!r}")
    target = tuple(map(extents.normal, shape))
    own = (*[ix.const(1)] * (len(target) - len(x.shape)), *x.shape)
    pairs = [(a, b) for a, b in zip(own, target, strict=False) if a not in (ix.const(1), b)]
    if len(own) != len(target) or pairs:
        raise _unequal(x, shape, "an extent is neither 1 nor equal", *pairs)
    return target


def slice_shape(x: Value, axis: int, start: Expr | int, stop: Expr | int, step: int = 1) -> Shape:
    """The shape of ``start:stop:step`` of an axis, both within it, or equal; where only a call knows that, it is refused there.

    Raises DescribeError for a step below 1, where there is no such axis, or where start and stop are seen to be outside.
    """
    whole = isinstance(axis, int) and isinstance(step, int)
    if not whole or not all(isinstance(one, int | Expr) for one in (start, stop)):
        raise _refusal(x, "slice", f"axis={axis!r}, start={start!r}, stop={stop!r}, step={step!r}")
    if not -len(x.shape) <= axis < len(x.shape) or step < 1:
        raise _refusal(x, "slice", f"axis={axis}, step={step}")
    first, last, extent = (
        ix.literal_value(extents.normal(e)) for e in (start, stop, x.shape[axis])
    )
    nothing = first == last is not None  # of which the place does not matter, as in numpy
    if not _ascending([0, first, last] if nothing else [0, first, last, extent]):
        extent_text = format_expr(extents.normal(x.shape[axis]))
        raise _refusal(x, "slice", f"{start}:{stop} is not within 0:{extent_text}")
    shape = list(x.shape)
    span: Expr = Binary("-", ix.index(stop), ix.index(start))
    if step > 1:
        span = Binary("//", Binary("+", span, ix.const(step - 1)), ix.const(step))
    shape[axis] = extents.normal(span)
    return tuple(shape)


def _unequal(
    x: Value, shape: tuple[Any, ...], because: str, *equal: tuple[Expr, Expr]
) -> DescribeError:
    text = ", ".join(format_expr(extents.normal(one)) for one in shape)
    error = DescribeError(
        "graph",
        f"cannot take {x.name} as [{text}]",
        at=f"{x.name}: {x.dtype}[{', '.join(map(format_expr, x.shape))}]",
        because=because,
    )
    error.equal = equal
    return error


def _refusal(x: Value, view: str, because: str) -> DescribeError:
    at = f"{x.name}: {x.dtype}[{', '.join(map(format_expr, x.shape))}]"
    return DescribeError("graph", f"cannot take this {view} of {x.name}", at=at, because=because)


def _is_shape(shape: object) -> bool:
    return isinstance(shape, tuple) and all(isinstance(one, int | Expr) for one in shape)


def _ascending(ends: Sequence[int | None]) -> bool:
    """Whether those that are known ascend."""
    known = [end for end in ends if end is not None]
    return known == sorted(known)


def is_within(start: int, stop: int, extent: int) -> bool:
    """Whether ``start:stop`` are elements of an axis; where it is nothing, its place does not matter, as in numpy."""
    return 0 <= start <= stop and (stop <= extent or start == stop)


def is_seen_within(start: Expr, stop: Expr, extent: Expr, sizes: Sequence[Size]) -> bool:
    """Return whether ``start:stop`` are seen to be elements of an axis at all sizes of a graph; else each call is asked."""
    ends = start, Binary("-", stop, start), Binary("-", extent, stop)
    return all(extents.span(extents.normal(end), sizes)[0] >= 0 for end in ends)


def _slice(x: Array, axis: int, start: int, stop: int, step: int = 1) -> Array:
    if not is_within(start, stop, x.shape[axis]):
        raise CallError(
            "graph",
            f"cannot take {start}:{stop} of axis {axis}",
            because=f"it has {x.shape[axis]} elements",
        )
    at = [slice(None)] * x.ndim
    at[axis] = slice(start, stop, step)
    return x[tuple(at)]


def _slice_described(
    x: Tensor, axis: int, start: Any, stop: Any, step: int = 1, *, name: str
) -> Tensor:
    at = axis % len(x.shape)
    shape = (*x.shape[:at], (stop - start + step - 1) // step, *x.shape[at + 1 :])

    def element(*own: Any) -> Any:
        return x[(*own[:at], own[at] * step + start, *own[at + 1 :])]

    return compute(shape, element, name, axis_letters(len(shape)))


def _broadcast_described(x: Tensor, shape: tuple[Any, ...], *, name: str) -> Tensor:
    def element(*own: Any) -> Any:
        last = own[len(shape) - len(x.shape) :]
        return x[tuple(0 if e == 1 else i for e, i in zip(x.shape, last, strict=True))]

    return compute(shape, element, name, axis_letters(len(shape)))


VIEWS: Mapping[str, View] = {
    view.name: view
    for view in (
        View("reshape", reshape_shape, lambda x, shape: x.reshape(shape)),
        View(
            "broadcast_to",
            broadcast_shape,
            lambda x, shape: np.broadcast_to(x, shape),
            _broadcast_described,
        ),
        View("slice", slice_shape, _slice, _slice_described),
    )
}
