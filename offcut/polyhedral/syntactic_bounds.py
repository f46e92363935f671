"""Decide comparisons of indices by their form and the loops around, without isl.

The smaller side is taken from the greater one; each iterator stands for the end of its loop at which that
is the least, innermost first, a quotient for what it does not exceed, and the sum that is left has to be
of parts that are never negative. What is not seen so is left to sets, which take a hundred times as long.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf

from offcut.core import index as ix
from offcut.core.expr import Binary, Compare, Const, Expr, Var, dtype_of, variables
from offcut.core.index import Linear
from offcut.core.intervals import interval

Ranges = dict[str, tuple[Expr, Expr]]
"""What iterates, with the first value and the one behind the last, where it runs at all; outermost first."""

_MOST = 24  # replacements on one way


def holds_syntactically(condition: Expr, ranges: Ranges, minima: Mapping[str, int]) -> bool:
    """Return whether ``a <= b`` or ``a < b`` is seen to hold wherever all of `ranges` run; False is no answer.

    minima  lower bounds of the other names
    """
    match condition:
        case Compare("<=", a, b) if dtype_of(a) == "index":
            difference = ix.to_linear(b).plus(ix.to_linear(a), -1)
        case Compare("<", a, b) if dtype_of(a) == "index":
            difference = ix.to_linear(b).plus(ix.to_linear(a), -1).plus(Linear((), -1))
        case _:
            return False
    return _is_no_less(difference, ranges, minima, _MOST)


def _is_no_less(form: Linear, ranges: Ranges, minima: Mapping[str, int], depth: int) -> bool:
    """Return whether a sum is never negative; `depth` replacements may be made."""
    if all(factor > 0 for _, factor in form.terms):
        lowest = sum(factor * _least(atom, ranges, minima) for atom, factor in form.terms)
        if form.const + lowest >= 0:
            return True
    smaller = _no_more(form, ranges) if depth else ()
    return any(_is_no_less(one, ranges, minima, depth - 1) for one in smaller)


def _no_more(form: Linear, ranges: Ranges) -> list[Linear]:
    """Return lower bounds of a sum, each with one atom less: the innermost iterator, unless another atom
    names it, else what the form of an atom bounds.
    """
    plain = {term[0].name: term for term in form.terms if isinstance(term[0], Var)}
    atom_names = [variables(atom) for atom, _ in form.terms if not isinstance(atom, Var)]
    for name in reversed(ranges):
        if name in plain and not any(name in names for names in atom_names):
            (atom, factor), (lo, hi) = plain[name], ranges[name]
            end = ix.to_linear(lo if factor > 0 else hi).times(factor)
            return [_with(form, atom, end if factor > 0 else end.plus(Linear((), -factor)))]
    for atom, factor in sorted(form.terms, key=lambda term: term[1] < 0):
        if ends := _no_more_than(atom, factor):
            return [_with(form, atom, ix.to_linear(end)) for end in ends]
    return []


def _with(form: Linear, atom: Expr, other: Linear) -> Linear:
    """Return a sum with another one in place of one of its atoms and its factor."""
    rest = tuple([term for term in form.terms if term[0] is not atom])
    return Linear(rest, form.const).plus(other)


def _no_more_than(atom: Expr, factor: int) -> list[Expr]:
    """Return lower bounds of ``factor * atom``; none if its form gives none."""
    match atom:
        case Binary("//", a, Const(value, _)) if factor < 0 < value and factor % int(value) == 0:
            return [ix.mul(factor // int(value), ix.sub(a, ix.mod(a, int(value))))]
        case Binary("%", _, Const(value, _)) if factor < 0 < value:
            return [ix.const(factor * (int(value) - 1))]
        case Binary("min", a, b) if factor < 0:
            return [ix.mul(factor, a), ix.mul(factor, b)]
        case Binary("max", a, b) if factor > 0:
            return [ix.mul(factor, a), ix.mul(factor, b)]
        case _:
            return []


def _least(expr: Expr, ranges: Ranges, minima: Mapping[str, int]) -> float:
    """Return a lower bound of an expression; minus infinity where its form shows none."""

    if isinstance(expr, Var) and expr.name not in ranges:
        return minima.get(expr.name, -inf)

    def known(part: Expr) -> tuple[float, float]:
        match part:
            case Var(name):
                lowest = (
                    _least(ranges[name][0], ranges, minima)
                    if name in ranges
                    else minima.get(name, -inf)
                )
                return lowest, inf
            case _:
                return -inf, inf

    return interval(expr, known)[0]
