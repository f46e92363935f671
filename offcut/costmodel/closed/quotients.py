"""Quotients in counts: remainders as what they leave, and divisors that are none where nothing is divided."""

from __future__ import annotations

from offcut.core import index as ix
from offcut.core.expr import Binary, Const, Expr, rewrite


def by_quotients(expr: Expr) -> Expr:
    """An expression with remainders as what quotients leave: ``6*(n//6) + n%6`` is n then."""

    def change(node: Expr) -> Expr | None:
        match node:
            case Binary("%", a, Const(_, "index") as by):
                return ix.sub(a, ix.mul(by, ix.floordiv(a, by)))
            case _:
                return None

    return rewrite(expr, change)


def with_divisor(node: Expr) -> Expr | None:
    """A quotient that has a value where nothing is divided: a bounded value is named where its loops do not run, too."""
    match node:
        case Binary("//" | "%" as op, a, by) if not isinstance(by, Const):
            return Binary(op, a, ix.maximum(by, 1))
        case _:
            return None
