"""The least and the greatest value of a bound while a loop around it runs."""

from __future__ import annotations

from offcut.core import index as ix
from offcut.core.expr import Binary, Const, Expr, Var, variables
from offcut.core.text.printer import format_expr
from offcut.errors import PartitionError


def extreme_over(expr: Expr, name: str, first: Expr, last: Expr, least: bool) -> Expr:
    """The least or the greatest value of `expr` for ``first <= name <= last``."""
    if name not in variables(expr):
        return expr
    form = ix.linear(expr)
    total: Expr = ix.const(form.const)
    for atom, factor in form.terms:
        total = ix.add(
            total, ix.mul(factor, _atom_over(atom, name, first, last, least == (factor > 0)))
        )
    return total


def _atom_over(atom: Expr, name: str, first: Expr, last: Expr, least: bool) -> Expr:
    if name not in variables(atom):
        return atom
    match atom:
        case Var():
            return first if least else last
        case Binary("min" | "max" as op, a, b):
            x, y = (extreme_over(side, name, first, last, least) for side in (a, b))
            return ix.minimum(x, y) if op == "min" else ix.maximum(x, y)
        case Binary("//", a, b):
            return ix.floordiv(extreme_over(a, name, first, last, least), b)
        case Binary("%", _, Const(value, _)):
            return ix.const(0 if least else int(value) - 1)
        case _:
            raise PartitionError(
                "partition",
                f"cannot tile over {name}",
                because=f"the bound {format_expr(atom)} is not quasi-affine in it",
                help=(f"cut {name} alone",),
            )
