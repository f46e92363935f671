"""Index arithmetic: integer expressions folded as they are built.

Canonical form: a sum of ``coefficient * atom`` in the order in which the atoms first appear, then
the constant; an atom is a variable, a floor division, a modulo, a min or a max. Two quasi-affine
expressions built here are equal as nodes when they are equal as such sums.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Set
from functools import lru_cache, reduce
from math import gcd
from typing import NamedTuple

from offcut.core.dtypes import FLOATS
from offcut.core.expr import (
    Binary,
    Compare,
    Const,
    Expr,
    Load,
    Var,
    children,
    dtype_of,
    rebuild,
    variables,
    walk,
)
from offcut.core.memo import memo


@lru_cache(maxsize=1 << 10, typed=True)
def const(value: int) -> Const:
    """Return an integer literal."""
    return Const(value, "index")


def index(value: Expr | int) -> Expr:
    """Return `value` as an index expression."""
    return const(value) if isinstance(value, int) else value


class Linear(NamedTuple):
    """``const + sum(coefficient * atom)``, no zero coefficient, each atom once."""

    terms: tuple[tuple[Expr, int], ...]
    const: int

    def plus(self, other: Linear, sign: int = 1) -> Linear:
        """Return ``self + sign * other``."""
        if not other.terms:
            return Linear(self.terms, self.const + sign * other.const)
        if not self.terms and sign == 1:
            return Linear(other.terms, self.const + other.const)
        terms = dict(self.terms)
        for atom, coef in other.terms:
            terms[atom] = terms.get(atom, 0) + sign * coef
        kept = tuple([term for term in terms.items() if term[1]])
        return Linear(kept, self.const + sign * other.const)

    def times(self, factor: int) -> Linear:
        """Return ``factor * self``."""
        if factor == 0:
            return Linear((), 0)
        terms = tuple([(atom, coef * factor) for atom, coef in self.terms])
        return Linear(terms, self.const * factor)

    def expr(self) -> Expr:
        """Return the sum as a node: positive terms first, so that it prints as a user would write it."""
        if self.terms and self.const > 0 and all(coef < 0 for _, coef in self.terms):
            result: Expr | None = const(self.const)
            rest = 0
        else:
            result, rest = None, self.const
        positive = [term for term in self.terms if term[1] > 0]
        for atom, coef in (*positive, *[term for term in self.terms if term[1] < 0]):
            term = atom if abs(coef) == 1 else Binary("*", const(abs(coef)), atom)
            if result is None:
                negative = Binary("*", const(coef), atom)
                result = term if coef > 0 else negative
            else:
                result = Binary("+" if coef > 0 else "-", result, term)
        if result is None:
            return const(rest)
        if rest:
            result = Binary("+" if rest > 0 else "-", result, const(abs(rest)))
        return result


@memo(1 << 14)
def to_linear(expr: Expr) -> Linear:
    """Return `expr` as a sum of atoms; a product of two atoms is an atom itself (not affine)."""
    match expr:
        case Const(value, "index"):
            return Linear((), int(value))
        case Binary("+", a, b):
            return to_linear(a).plus(to_linear(b))
        case Binary("-", a, b):
            return to_linear(a).plus(to_linear(b), -1)
        case Binary("*", a, b):
            return _product(to_linear(a), to_linear(b))
        case _:
            return Linear(((expr, 1),), 0)


def _form(value: Expr | int) -> Linear:
    """Return a value as a sum of atoms."""
    return Linear((), value) if isinstance(value, int) else to_linear(value)


def _product(a: Linear, b: Linear) -> Linear:
    if not a.terms:
        return b.times(a.const)
    if not b.terms:
        return a.times(b.const)
    return Linear(((Binary("*", a.expr(), b.expr()), 1),), 0)


def add(*parts: Expr | int) -> Expr:
    """Return the sum of `parts`."""
    return reduce(Linear.plus, map(_form, parts), Linear((), 0)).expr()


def sub(a: Expr | int, b: Expr | int) -> Expr:
    """``a - b``."""
    return _form(a).plus(_form(b), -1).expr()


def mul(a: Expr | int, b: Expr | int) -> Expr:
    """``a * b``."""
    return _product(_form(a), _form(b)).expr()


def product(factors: Iterable[Expr | int]) -> Expr:
    """Return the product of all factors; 1 of none."""
    one: Expr = const(1)
    return reduce(mul, factors, one)


def floordiv(a: Expr | int, b: Expr | int) -> Expr:
    """``floor(a / b)`` for positive `b`; multiples of a constant `b` leave the quotient."""
    a, b = index(a), index(b)
    if not isinstance(b, Const) or b.value <= 0:
        return Binary("//", a, b)
    divisor, form = int(b.value), to_linear(a)
    if divisor == 1:
        return form.expr()
    inside = tuple(term for term in form.terms if term[1] % divisor)
    outside = Linear(
        tuple((atom, coef // divisor) for atom, coef in form.terms if coef % divisor == 0),
        form.const // divisor,
    )
    if not inside:
        return outside.expr()
    rest = Linear(inside, form.const % divisor).expr()
    return outside.plus(Linear(((Binary("//", rest, b), 1),), 0)).expr()


def mod(a: Expr | int, b: Expr | int) -> Expr:
    """``a - b*floor(a / b)`` for positive `b`."""
    a, b = index(a), index(b)
    if not isinstance(b, Const) or b.value <= 0:
        return Binary("%", a, b)
    divisor, form = int(b.value), to_linear(a)
    inside = tuple((atom, coef) for atom, coef in form.terms if coef % divisor)
    if not inside:
        return const(form.const % divisor)
    return Binary("%", Linear(inside, form.const % divisor).expr(), b)


def ceildiv(a: Expr | int, b: int) -> Expr:
    """``ceil(a / b)`` for positive `b`."""
    return floordiv(add(a, b - 1), b)


def minimum(a: Expr | int, b: Expr | int) -> Expr:
    """Return the smaller of two."""
    return _extreme("min", index(a), index(b))


def maximum(a: Expr | int, b: Expr | int) -> Expr:
    """Return the larger of two."""
    return _extreme("max", index(a), index(b))


def parts_of_minimum(expr: Expr) -> Iterator[Expr]:
    """Return what an expression is the least of: a and b of ``min(a, b)``, and so on."""
    match expr:
        case Binary("min", a, b):
            yield from parts_of_minimum(a)
            yield from parts_of_minimum(b)
        case _:
            yield expr


def distance(start: Expr, end: Expr) -> Expr:
    """Return ``end - start``; of an end that is the least of several, the least of the distances."""
    return reduce(minimum, (sub(part, start) for part in parts_of_minimum(end)))


def literal_bound(expr: Expr) -> int | None:
    """Return a literal upper bound of an extent, from its minima and remainders; None if they give none."""
    form = to_linear(expr)
    if not form.terms:
        return form.const
    limits: list[int | None] = []
    for atom, factor in form.terms:
        if factor == 1 and isinstance(atom, Binary) and atom.op == "min":
            rest = sub(expr, atom)
            limits += [literal_bound(add(part, rest)) for part in parts_of_minimum(atom)]
        if isinstance(atom, Binary) and atom.op == "//" and index(-factor) == atom.b:
            remainder = to_linear(sub(add(expr, mul(-factor, atom)), atom.a))
            if not remainder.terms:  # a remainder, and a number
                limits.append(-factor - 1 + remainder.const)
    literals = [limit for limit in limits if limit is not None]
    return min(literals, default=None)


def _extreme(op: str, a: Expr, b: Expr) -> Expr:
    difference = to_linear(a).plus(to_linear(b), -1)
    if not difference.terms:
        return a if (difference.const <= 0) == (op == "min") else b
    return Binary(op, a, b)


@memo(1 << 14)
def simplify(expr: Expr) -> Expr:
    """Return an index expression rebuilt in the canonical form, its operands first.

    What it takes from elements, ``index(A[i] * 0.5)``, is arithmetic of their type, and stays.
    """
    if isinstance(expr, Load):
        return expr
    if dtype_of(expr) not in ("index", "bool"):
        return fold_indices(expr)
    parts = tuple(map(simplify, children(expr)))
    match expr:
        case Binary("+", _, _):
            return add(*parts)
        case Binary("-", _, _):
            return sub(*parts)
        case Binary("*", _, _):
            return mul(*parts)
        case Binary("//", _, _):
            return floordiv(*parts)
        case Binary("%", _, _):
            return mod(*parts)
        case Binary("min" | "max" as op, _, _):
            return _extreme(op, *parts)
        case _:
            return rebuild(expr, parts)


@memo(1 << 14)
def fold_indices(expr: Expr) -> Expr:
    """Return `expr`, of any type, with the index expressions inside it in the canonical form."""
    if dtype_of(expr) == "index":
        return simplify(expr)
    return rebuild(expr, tuple(map(fold_indices, children(expr))))


def compare(op: str, a: Expr | int, b: Expr | int) -> Expr:
    """``a op b``; a `Const` of type "bool" where both sides are indices that differ by a constant."""
    a, b = index(a), index(b)
    if dtype_of(a) != "index":
        return Compare(op, a, b)
    difference = to_linear(a).plus(to_linear(b), -1)
    if difference.terms:
        return Compare(op, a, b)
    d = difference.const
    holds = {"<": d < 0, "<=": d <= 0, ">": d > 0, ">=": d >= 0, "==": d == 0, "!=": d != 0}[op]
    return Const(int(holds), "bool")


def is_affine(expr: Expr, names: Set[str] | None = None) -> bool:
    """Return whether an index or a condition is quasi-affine in names: their factors and divisors are literals.

    names  None: all those that occur
    """
    every = variables(expr) if names is None else names
    for node in walk(expr):
        match node:
            case Binary("*", a, b):
                moving = [bool(variables(one) & every) for one in (a, b)]
                if all(moving) or (any(moving) and literal_value(b if moving[0] else a) is None):
                    return False
            case Binary("//" | "%", a, b) if (variables(a) | variables(b)) & every:
                if literal_value(b) is None:
                    return False
    return True


def known_divisor(expr: Expr) -> int:
    """Return a number that divides an index expression, from its form; 0 for 0."""
    form = to_linear(expr)

    def of(atom: Expr) -> int:
        match atom:
            case Binary("min" | "max", a, b):
                return gcd(known_divisor(a), known_divisor(b))
            case _:
                return 1

    return gcd(form.const, *(factor * of(atom) for atom, factor in form.terms))


def literal_value(expr: Expr) -> int | None:
    """Return the value of an integer or a condition that is constant, else None."""
    return int(expr.value) if isinstance(expr, Const) and expr.dtype not in FLOATS else None


def is_nonnegative(expr: Expr, signed: frozenset[str] = frozenset()) -> bool:
    """Return whether an index is 0 or more as it stands: sizes and iterators are, but for those that are `signed`."""
    form = to_linear(expr)
    return form.const >= 0 and all(
        factor > 0 and _is_atom(atom, signed) for atom, factor in form.terms
    )


def _is_atom(atom: Expr, signed: frozenset[str]) -> bool:
    match atom:
        case Var(name):
            return name not in signed
        case Binary("//" | "%", a, _):
            return is_nonnegative(a, signed)
        case Binary("min", a, b):
            return is_nonnegative(a, signed) and is_nonnegative(b, signed)
        case Binary("max", a, b):
            return is_nonnegative(a, signed) or is_nonnegative(b, signed)
    return False
