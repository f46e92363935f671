"""Parts of reductions over coordinates: the ends that conditions give, groups of factors that share none, least and greatest values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any, TypeAlias

from offcut.core import index as ix
from offcut.core.dtypes import FLOATS, finite_range
from offcut.core.expr import Compare, Expr, Var, variables
from offcut.polyhedral import Facts
from offcut.proof.by_algebra import terms as tm
from offcut.proof.by_algebra.terms import NotShown, Polynomial

_FLIPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "==", "!=": "!="}


class Undecided(Exception):
    """A condition of indices that holds at some coordinates and not at others."""

    def __init__(self, condition: Expr) -> None:
        super().__init__(condition)
        self.condition = condition


_Group: TypeAlias = tuple[frozenset[str], list[tuple[tm.Atom, Fraction]], list[Any]]


def _components(
    extents: Mapping[str, tm.Atom],
    factors: Sequence[tuple[tm.Atom, Fraction]],
    conditions: frozenset[Any],
) -> list[_Group]:
    """Split factors and conditions into groups that share no coordinate; those without one come first."""
    outside: _Group = (frozenset(), [], [])
    groups: list[_Group] = [(frozenset({name}), [], []) for name in extents]
    for one, is_factor in (*((f, True) for f in factors), *((c, False) for c in conditions)):
        names = tm.coordinates(one) & extents.keys()
        linked = [group for group in groups if group[0] & names] or [outside]
        merged: _Group = (
            frozenset().union(*(group[0] for group in linked)),
            [f for group in linked for f in group[1]],
            [c for group in linked for c in group[2]],
        )
        (merged[1] if is_factor else merged[2]).append(one)
        if linked == [outside]:
            outside = merged
        else:
            groups = [*(group for group in groups if not group[0] & names), merged]
    if outside[2]:
        raise NotShown("a reduction is cut by a condition that is not followed")
    return [outside, *groups]


def extreme(op: str, parts: Sequence[Polynomial], dtype: str) -> Polynomial:
    """Return the least or the greatest of several values."""
    every = frozenset[Polynomial]().union(*(_alternatives(op, one) for one in parts))
    own = identity(op, dtype)
    every = every - {own} or frozenset({own})
    return next(iter(every)) if len(every) == 1 else tm.atom(f"{op} of", every)


def _alternatives(op: str, value: Polynomial) -> frozenset[Polynomial]:
    """Return the values of which a value is the least or the greatest; itself where it is no extreme."""
    if len(value) == 1:
        ((monomial, coefficient),) = value
        if len(monomial) == 1 and coefficient == 1:
            ((one, exponent),) = monomial
            if one[0] == f"{op} of" and exponent == 1:
                values: frozenset[Polynomial] = one[1]
                return values
    return frozenset({value})


def identity(op: str, dtype: str) -> Polynomial:
    """Return what a reduction of nothing is."""
    modulus = tm.modulus_of(dtype)
    if op == "sum":
        return tm.ZERO
    if dtype in FLOATS:
        return tm.atom("const", "-inf" if op == "max" else "inf", dtype)
    return tm.number(int(finite_range(dtype)[op == "min"]), modulus)


def _linear(sizes: Mapping[str, Expr]) -> dict[str, tm.Atom]:
    return {name: tm.linear(size) for name, size in sizes.items()}


def _number_of(index: tm.Atom, modulus: int) -> Polynomial:
    """Return an index as a number, each of its coordinates an atom."""
    _, terms, constant = index
    every = (
        tm.scale(tm.atom("place", ("lin", frozenset({(one, 1)}), 0)), factor, modulus)
        for one, factor in terms
    )
    return tm.add(*every, tm.number(constant, modulus), modulus=modulus)


def end_of(condition: Expr, names: Any) -> tuple[str, Expr | None, Expr | None] | None:
    """Return the coordinate that a condition bounds, the first value that it allows, and the first beyond; None for any other condition."""
    if not isinstance(condition, Compare) or condition.op == "!=":
        return None
    form = ix.to_linear(ix.sub(condition.a, condition.b))
    mine = [(one.name, c) for one, c in form.terms if isinstance(one, Var) and one.name in names]
    if len(mine) != 1 or abs(mine[0][1]) != 1:
        return None
    name, sign = mine[0]
    others = tuple(term for term in form.terms if term[0] != Var(name))
    rest = ix.Linear(others, form.const).expr()
    if variables(rest) & set(names):
        return None
    op = condition.op if sign == 1 else _FLIPPED[condition.op]
    value = ix.simplify(ix.mul(-sign, rest))  # name `op` value
    after = ix.simplify(ix.add(value, 1))
    match op:
        case "<":
            return name, None, value
        case "<=":
            return name, None, after
        case ">":
            return name, after, None
        case ">=":
            return name, value, None
        case _:
            return name, value, after


def _check_there(size: Expr, at: Facts) -> None:
    """Check that a reduction has a term, whatever the coordinates around it.

    Raises Undecided where it has one at some coordinates alone, NotShown where sets do not express that.
    """
    condition = Compare(">=", size, ix.const(1))
    if not at.holds(condition):
        if not at.expresses(condition):
            raise NotShown("whether a reduction has a term is not told")
        raise Undecided(condition)
