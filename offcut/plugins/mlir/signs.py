"""Decide from the terms of an index alone whether it is never negative."""

from __future__ import annotations

from collections.abc import Container

from offcut.core import index as ix
from offcut.ir import Binary, Const, Expr, Var


def is_natural(expr: Expr, natural_names: Container[str]) -> bool:
    """Return whether ``expr >= 0`` is shown; False means unknown.

    natural_names  coordinates and sizes that are never negative
    """
    form = ix.to_linear(expr)
    return form.const >= 0 and all(
        factor > 0 and _is_natural_atom(atom, natural_names) for atom, factor in form.terms
    )


def _is_natural_atom(atom: Expr, natural_names: Container[str]) -> bool:
    match atom:
        case Var(name):
            return name in natural_names
        case Binary("//" | "min" | "max" | "*", a, b):
            return is_natural(a, natural_names) and is_natural(b, natural_names)
        case Binary("%", _, Const()):
            return True
        case _:
            return False
