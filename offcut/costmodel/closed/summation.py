"""Sums over the iterations of a loop, in closed form: an index expression that names the iterator -> one that does not.

A term that is a polynomial in the iterator is summed by powers, ``sum of i**k over 0 <= i < x`` being

    x,   x(x-1)/2,   x(x-1)(2x-1)/6,   (x(x-1)/2)^2          for k = 0, 1, 2, 3

and a term that changes where the iterator passes a value (a condition, a ``min``) as two sums, one on each
side. Both are exact. What is neither is written out where the iterations are few, and taken at the
middle of the loop otherwise, which is said.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from offcut.core import index as ix
from offcut.core.expr import (
    Binary,
    Compare,
    Const,
    Expr,
    Logic,
    Select,
    Unary,
    Var,
    children,
    dtype_of,
    rebuild,
    substitute,
    variables,
)
from offcut.core.ranges import Known

WRITTEN_OUT = 64  # iterations, at most, that a sum without a closed form has a term for each of


@dataclass(frozen=True, slots=True)
class Sum:
    """A sum over a loop; `exact` where it is that, and not the middle term times the trips."""

    value: Expr
    exact: bool = True


def trips(lo: Expr, hi: Expr, known: Known) -> Expr:
    """``max(hi - lo, 0)``."""
    count = ix.sub(hi, lo)
    return count if known.at_least_zero(count) else ix.maximum(count, 0)


def summed(name: str, lo: Expr, hi: Expr, term: Expr, known: Known) -> Sum:
    """The sum of `term` over ``lo <= name < hi``.

    known   what is known of the sizes, and of the iterators around
    """
    term = folded(term)
    count = trips(lo, hi, known)
    if name not in variables(term):
        return Sum(ix.mul(count, term))
    broken = next(_breaks(term, name), None)
    if broken is not None:
        at, part, below, above = broken
        middle = ix.minimum(ix.maximum(at, lo), ix.add(lo, count))
        first = summed(name, lo, middle, _with(term, part, below), known)
        rest = summed(name, middle, ix.add(lo, count), _with(term, part, above), known)
        return Sum(ix.add(first.value, rest.value), first.exact and rest.exact)
    powers = _powers(term, name)
    if powers is not None:
        end = ix.add(lo, count)
        parts = (
            ix.mul(factor, ix.sub(_power_sum(k, end), _power_sum(k, lo)))
            for k, factor in enumerate(powers)
        )
        return Sum(ix.add(*parts))
    some = ix.literal(count)
    if some is not None and some <= WRITTEN_OUT:
        each = (folded(substitute(term, {name: ix.add(lo, step)})) for step in range(some))
        return Sum(ix.add(*each))
    middle = ix.floordiv(ix.add(lo, hi), 2)
    return Sum(ix.mul(count, folded(substitute(term, {name: middle}))), exact=False)


def folded(expr: Expr) -> Expr:
    """An index expression in the canonical form, without what its conditions decide."""
    return ix.simplify(decided(expr))


def chosen(condition: Expr, then: Expr, other: Expr) -> Expr:
    """`then` where a condition holds, else `other`: by comparisons one at a time."""
    condition = decided(condition)
    if then == other:
        return then
    match condition:
        case Const(value):
            return then if value else other
        case Logic("not", (part,)):
            return chosen(part, other, then)
        case Logic("and", (part, *rest)):
            return chosen(part, chosen(_joined("and", rest), then, other), other)
        case Logic("or", (part, *rest)):
            return chosen(part, then, chosen(_joined("or", rest), then, other))
        case Compare("!=", a, b):
            return chosen(Compare("==", a, b), other, then)
        case Compare("==", a, b) if dtype_of(a) == "index":
            reached = chosen(ix.compare("<=", a, b), then, other)
            return chosen(ix.compare(">=", a, b), reached, other)
        case _:
            return Select(condition, then, other)


def decided(expr: Expr) -> Expr:
    """An expression without the conditions that are decided where they stand."""
    parts = tuple(map(decided, children(expr)))
    match expr, parts:
        case Select(), (condition, then, other):
            return (
                chosen(condition, then, other)
                if dtype_of(then) == "index"
                else rebuild(expr, parts)
            )
        case Compare(op, a, _), (x, y) if dtype_of(a) == "index":
            return ix.compare(op, x, y)
        case Logic("not"), (Const(value),):
            return Const(int(not value), "bool")
        case Logic("and" | "or" as op, _), _:
            return _joined(op, parts)
        case _:
            return rebuild(expr, parts) if parts else expr


def _joined(op: str, parts: Sequence[Expr]) -> Expr:
    absorbing = int(op == "or")
    if any(isinstance(part, Const) and part.value == absorbing for part in parts):
        return Const(absorbing, "bool")
    kept = tuple(part for part in parts if not isinstance(part, Const))
    if not kept:
        return Const(1 - absorbing, "bool")
    return kept[0] if len(kept) == 1 else Logic(op, kept)


def _breaks(term: Expr, name: str) -> Iterator[tuple[Expr, Expr, Expr, Expr]]:
    """Where a part of `term` changes: the first value past it, the part, and what it is below and from there on."""
    for part in _walked(term):
        match part:
            case Select(condition, then, other) if name in variables(condition):
                found = _break_of(condition, name)
                if found is not None:
                    at, rises = found
                    yield (at, part, *((other, then) if rises else (then, other)))
            case Binary("min" | "max" as op, a, b) if name in variables(part):
                found = _break_of(Compare(">=", a, b), name)  # from where on a is the larger
                if found is not None:
                    at, rises = found
                    larger, smaller = (a, b) if op == "max" else (b, a)
                    yield (at, part, *((smaller, larger) if rises else (larger, smaller)))
            case _:
                pass


def _break_of(condition: Expr, name: str) -> tuple[Expr, bool] | None:
    """The first value of `name` from which on an affine comparison holds (True), or no longer does (False)."""
    if not (isinstance(condition, Compare) and dtype_of(condition.a) == "index"):
        return None
    margin = {
        "<": ix.sub(ix.sub(condition.b, condition.a), 1),
        "<=": ix.sub(condition.b, condition.a),
        ">": ix.sub(ix.sub(condition.a, condition.b), 1),
        ">=": ix.sub(condition.a, condition.b),
    }.get(condition.op)
    if margin is None:
        return None
    factor = dict(ix.linear(margin).terms).get(Var(name), 0)
    rest = ix.sub(margin, ix.mul(factor, Var(name)))  # factor * name + rest >= 0
    if not factor or name in variables(rest):
        return None
    if factor > 0:
        return ix.ceildiv(ix.mul(-1, rest), factor), True
    return ix.add(ix.floordiv(rest, -factor), 1), False


def _walked(expr: Expr) -> Iterator[Expr]:
    """Parts that may change, those inside of conditions excepted."""
    yield expr
    inside = children(expr)[1:] if isinstance(expr, Select) else children(expr)
    for child in inside:
        yield from _walked(child)


def _with(term: Expr, part: Expr, value: Expr) -> Expr:
    if term == part:
        return value
    inside = children(term)
    return rebuild(term, tuple(_with(one, part, value) for one in inside)) if inside else term


def _powers(term: Expr, name: str) -> tuple[Expr, ...] | None:
    """Factors of the powers of `name` in `term`, the constant first; None where it is no polynomial of degree 3."""
    if name not in variables(term):
        return (term,)
    match term:
        case Var():
            return ix.const(0), ix.const(1)
        case Binary("+" | "-" as op, a, b):
            x, y = _powers(a, name), _powers(b, name)
            if x is None or y is None:
                return None
            join = ix.add if op == "+" else ix.sub
            zero = ix.const(0)
            longest = max(len(x), len(y))
            x, y = (one + (zero,) * (longest - len(one)) for one in (x, y))
            return tuple(join(p, q) for p, q in zip(x, y, strict=True))
        case Binary("*", a, b):
            x, y = _powers(a, name), _powers(b, name)
            if x is None or y is None or len(x) + len(y) > 5:
                return None
            total: list[Expr] = [ix.const(0)] * (len(x) + len(y) - 1)
            for k, p in enumerate(x):
                for m, q in enumerate(y):
                    total[k + m] = ix.add(total[k + m], ix.mul(p, q))
            return tuple(total)
        case Unary("neg", a):
            x = _powers(a, name)
            return None if x is None else tuple(ix.mul(-1, p) for p in x)
        case _:
            return None


def _power_sum(k: int, x: Expr) -> Expr:
    """The sum of ``i**k`` over ``0 <= i < x``."""
    pair = ix.mul(x, ix.sub(x, 1))
    match k:
        case 0:
            return x
        case 1:
            return ix.floordiv(pair, 2)
        case 2:
            return ix.floordiv(ix.mul(pair, ix.sub(ix.mul(2, x), 1)), 6)
        case _:
            half = ix.floordiv(pair, 2)
            return ix.mul(half, half)
