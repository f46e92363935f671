"""Values of an expression in an array of their own, which a stage reads in place of the expression.

``where(0 <= y + r - 1 < h, X[y + r - 1], 0)`` has one value for each value of ``y + r``: an array of an axis z holds
``where(0 <= z - 1 < h, X[z - 1], 0)``, and is read at ``y + r``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from offcut.core import index as ix
from offcut.core.conditions import conjuncts
from offcut.core.expr import (
    Cast,
    Compare,
    Const,
    Expr,
    Load,
    Logic,
    Lookup,
    Select,
    Var,
    children,
    dtype_of,
    rewrite,
    substitute,
    variables,
)
from offcut.core.intervals import Ends, ends
from offcut.core.memo import lazy_property, memo
from offcut.core.text.printer import format_expr
from offcut.errors import PartitionError


@dataclass(frozen=True)
class StagedValue:
    """An array of the values of an expression.

    name   of the array
    axes   of the array, in order
    point  what stands for each of them in a stage that reads it
    value  over the axes, and the sizes
    """

    name: str
    axes: tuple[str, ...]
    point: tuple[Expr, ...]
    value: Expr

    @property
    def load(self) -> Load:
        """Return what is read in place of the expression."""
        return Load(self.name, self.point, dtype_of(self.value))

    @property
    def expression(self) -> Expr:
        """Return the expression as a stage that reads the array would compute it."""
        return substitute(self.value, dict(zip(self.axes, self.point, strict=True)))

    @property
    def converted_array(self) -> str | None:
        """Return the array whose elements it converts, each in its place; None if it does anything else."""
        match self.value:
            case Cast(Load(array, index)) if index == tuple(map(Var, self.axes)):
                return array
            case _:
                return None

    @lazy_property
    def normal_form(self) -> object:
        """Return the `normal_form` of the expression, computed once."""
        return normal_form(self.expression)

    def rename(self, name: str, axes: Sequence[str]) -> StagedValue:
        """Return the value with `name` as the name of its array, and `axes` as the names of its axes."""
        by_name: dict[str, Expr] = {old: Var(new) for old, new in zip(self.axes, axes, strict=True)}
        return replace(self, name=name, axes=tuple(axes), value=substitute(self.value, by_name))

    def read_in(self, expr: Expr) -> Expr:
        """Return `expr` with the array read in place of the expression; one that is converted last, where padding is converted too."""
        dtype, load = dtype_of(self.value), self.load

        def rule(node: Expr) -> Expr | None:
            last = converted_last(node)
            if isinstance(last, Cast) and dtype_of(last.a) == dtype and self.is_equal(last.a):
                return Cast(load, last.dtype)
            return load if dtype_of(node) == dtype and self.is_equal(node) else None

        return rewrite(expr, rule)

    def is_equal(self, expr: Expr) -> bool:
        """Return whether a stage that reads the array computes `expr` there, by its form."""
        return normal_form(expr) == self.normal_form

    def shape(self, reader: str, ranges: Mapping[str, Ends]) -> tuple[Expr, ...]:
        """Return how many values each axis has, from 0.

        reader  the stage that reads the array
        ranges  the least and the greatest value of its loops

        Raises PartitionError for an axis of no sum of loops that begins at 0 or above.
        """
        shape = list[Expr]()
        for axis, part in zip(self.axes, self.point, strict=True):
            extremes = ends(part, ranges)
            late = extremes is not None and bool(set(ranges) & variables(extremes[1]))
            if extremes is None or late or (ix.literal_value(extremes[0]) or 0) < 0:
                raise PartitionError(
                    "stage_value",
                    f"cannot stage {format_expr(self.value)} along {axis} = {format_expr(part)}",
                    at=f"stage {reader}",
                    because="that is not a sum of loops that begins at 0 or above, and ends at one place at each size",
                    help=(f"loops of {reader}: {', '.join(ranges)}",),
                )
            shape.append(ix.add(extremes[1], 1))
        return tuple(shape)


def converted_last(factor: Expr) -> Expr:
    """Return ``where(c, float(x), 0)`` as ``float(where(c, x, 0))``."""
    match factor:
        case Select(condition, Cast(a, dtype), Const(0)):
            return Cast(Select(condition, a, Const(0, dtype_of(a))), dtype)
        case _:
            return factor


@memo(1 << 14)
def normal_form(expr: Expr) -> object:
    """Return a key that is equal for expressions which differ only in the order of sums of indices."""
    match expr:
        case Compare(op, a, b) if dtype_of(a) == "index":
            difference = ix.to_linear(ix.sub(a, b))
            if op in (">", ">="):
                difference, op = ix.to_linear(ix.sub(b, a)), {">": "<", ">=": "<="}[op]
            if op == "<=":
                difference, op = ix.to_linear(ix.sub(difference.expr(), 1)), "<"
            return op, difference.const, frozenset((repr(atom), k) for atom, k in difference.terms)
        case Load(buffer, index, _):
            return buffer, tuple(map(normal_form, index))
        case Logic("and"):
            return "and", frozenset(map(normal_form, conjuncts(expr)))
        case Lookup(values, index):
            return values, normal_form(index)
    if dtype_of(expr) == "index":
        form = ix.to_linear(expr)
        return form.const, frozenset((repr(atom), k) for atom, k in form.terms)
    inner = children(expr)
    if not inner:
        return repr(expr)
    own = type(expr).__name__, getattr(expr, "op", getattr(expr, "dtype", ""))
    return own, tuple(map(normal_form, inner))
