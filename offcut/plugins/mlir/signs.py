"""Whether an index is seen to be never negative, from its terms alone."""

from __future__ import annotations

from collections.abc import Container

from offcut.core import index as ix
from offcut.ir import Binary, Const, Expr, Var


def is_natural(expr: Expr, known: Container[str]) -> bool:
    """Whether ``expr >= 0`` is seen; False may also mean that it is not.

    known  coordinates and sizes that are never negative
    """
    form = ix.to_linear(expr)
    return form.const >= 0 and all(
        factor > 0 and _is_natural_atom(atom, known) for atom, factor in form.terms
    )


def _is_natural_atom(atom: Expr, known: Container[str]) -> bool:
    match atom:
        case Var(name):
            return name in known
        case Binary("//" | "min" | "max" | "*", a, b):
            return is_natural(a, known) and is_natural(b, known)
        case Binary("%", _, Const()):
            return True
        case _:
            return False
