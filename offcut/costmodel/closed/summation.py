"""Sums over the iterations of a loop, in closed form: an index expression that names the iterator -> one that does not.

A ``min`` or a comparison whose sides move alike is one that does not move, ``min(i + a, i + b) = i + min(a, b)``.
A term that is a polynomial in the iterator is summed by powers, ``sum of i**k over 0 <= i < x`` being

    x,   x(x-1)/2,   x(x-1)(2x-1)/6,   (x(x-1)/2)^2          for k = 0, 1, 2, 3

and a term that changes where the iterator passes a value (a condition, a ``min``) as two sums, one on each
side; one that changes with the remainder of the iterator, as a sum for each remainder. All are exact. What
is none of these is written out where the iterations are few, and has no closed form otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import product
from math import gcd, lcm

from offcut.core import index as ix
from offcut.core.expr import (
    Binary,
    Compare,
    Const,
    Expr,
    Select,
    Var,
    children,
    dtype_of,
    rebuild,
    rewrite,
    variables,
    walk,
)
from offcut.core.interpret.values import evaluate
from offcut.core.scan import Range, ScanContext
from offcut.costmodel.simplification import select, simplify_index
from offcut.polyhedral import coefficient
from offcut.proof.normal_forms.condition_hoisting import bound

WRITTEN_OUT = 64
"""Iterations, at most, that a sum without a closed form has a term for each of: as many as the widest register has bytes, so
that loops inside of a tile are exact.
"""

LONGEST_PERIOD = 16
"""Values of an iterator, at most, by which a sum is taken apart."""

SPLITS = 8
"""How often a sum is split in two. Each split may double the cases, so there are at most 2**8."""

LONGEST = 600
"""Parts of a term that is summed; a longer one has no closed form. Those of a softmax have 24: what is as long as 25 of them
would be a formula that nobody reads, and that takes longer than the plan.
"""


class NoClosedForm(Exception):
    """A sum is none that is written in closed form here."""


def trips(lo: Expr, hi: Expr, known: ScanContext) -> Expr:
    """``max(hi - lo, 0)``."""
    count = ix.sub(hi, lo)
    match hi:
        case Binary("min", a, b):  # how far it is from `lo` says more than where it ends
            each = ix.sub(a, lo), ix.sub(b, lo)
            if any(ix.literal_value(part) is not None for part in each):
                count = ix.minimum(*each)
    return count if _is_at_least(count, ix.const(0), known) else ix.maximum(count, 0)


def sum_over(
    name: str,
    lo: Expr,
    hi: Expr,
    term: Expr,
    known: ScanContext,
    splits: int = SPLITS,
    longest: int = LONGEST,
) -> Expr:
    """The sum of `term` over ``lo <= name < hi``.

    known    what is known of the sizes, and of the iterators around
    splits   how often a loop may be split in two where a part changes
    longest  parts of a term, at most, that a closed form is looked for

    Raises NoClosedForm where it has none.
    """
    term = simplify_index(_without_alike(simplify_index(term), name))
    count = trips(lo, hi, known)
    if name not in variables(term):
        return ix.mul(count, term)
    match term:
        case Binary("*", a, b) if name not in variables(a) or name not in variables(b):
            factor, moves = (b, a) if name in variables(a) else (a, b)
            return ix.mul(factor, sum_over(name, lo, hi, moves, known, splits, longest))
    if not splits or is_longer(term, longest):
        raise NoClosedForm
    if _is_at_least(ix.const(1), count, known):  # one iteration, or none
        inside = known.within(Range(name, (lo,), (lo,)))
        return ix.mul(count, _without_decided(simplify_index(value_at(term, name, lo)), inside))
    form = ix.to_linear(term)
    if len(form.terms) > 1:  # each by itself: where one changes is nothing to the others
        each = [sum_over(name, lo, hi, atom, known, splits, longest) for atom, _ in form.terms]
        pairs = zip(form.terms, each, strict=True)
        return ix.add(ix.mul(count, form.const), *(ix.mul(by, one) for (_, by), one in pairs))
    match term:
        case Select(condition, then, other) if name not in variables(condition):
            ways = [sum_over(name, lo, hi, side, known, splits, longest) for side in (then, other)]
            return select(condition, *ways)
    end = ix.add(lo, count)

    def over(lo: Expr, hi: Expr, part: Expr) -> Expr:
        return sum_over(name, lo, hi, part, known, splits - 1, longest)

    broken = next(_breaks(term, name), None)
    if broken is not None:
        at, part, below, above = broken
        middle = _clamp(at, lo, end, known)
        first = over(lo, middle, _with(term, part, below))
        return ix.add(first, over(middle, end, _with(term, part, above)))
    powers = _powers(term, name)
    if powers is not None:
        return _of_powers(*powers, lo, end)
    some = ix.literal_value(count)
    if some is not None and some <= WRITTEN_OUT:
        terms = (simplify_index(value_at(term, name, ix.add(lo, step))) for step in range(some))
        return ix.add(*terms)
    for quotient in _quotients(term, name):
        try:
            return _of_quotients(term, name, quotient, lo, end, over)
        except NoClosedForm:
            continue
    period = _period(term, name)
    if 1 < period <= LONGEST_PERIOD:
        return ix.add(*_by_rests(name, lo, count, term, period, over))
    raise NoClosedForm


def _clamp(at: Expr, lo: Expr, end: Expr, known: ScanContext) -> Expr:
    """Return ``min(max(at, lo), end)``, where ``lo <= end``, without the sides that are known not to count."""
    if _is_at_least(lo, at, known):
        return lo
    if _is_at_least(at, end, known):
        return end
    least = at if _is_at_least(at, lo, known) else ix.maximum(at, lo)
    return least if _is_at_least(end, at, known) else ix.minimum(least, end)


MOST_CASES = 64
"""Cases in which a comparison looks at each operand of ``min`` and ``max``: with nested ones they are twice as many with each."""


@lru_cache(maxsize=1 << 15)
def _is_at_least(a: Expr, b: Expr, known: ScanContext) -> bool:
    """Return whether ``a >= b`` is known, by the operands of each ``min`` and ``max``; False may also mean that it is not, or that there are
    more than `MOST_CASES`.
    """
    return _is_nonnegative(ix.sub(a, b), known, iter(range(MOST_CASES)))


def _is_nonnegative(difference: Expr, known: ScanContext, cases: Iterator[int]) -> bool:
    """Return whether ``difference >= 0`` is known.

    cases  that may still be looked at: each takes one
    """
    if next(cases, None) is None:
        return False
    for atom, factor in ix.to_linear(difference).terms:
        match atom:
            case Binary("min" | "max" as op, a, b):
                rest = ix.sub(difference, ix.mul(factor, atom))
                each = (
                    _is_nonnegative(ix.add(rest, ix.mul(factor, one)), known, cases)
                    for one in (a, b)
                )
                return any(each) if (op == "max") == (factor > 0) else all(each)
            case Binary("//", whole, Const(by)) if factor > 0:
                rest = ix.sub(difference, ix.mul(factor, atom))
                for least in _least_quotients(whole, int(by), factor, difference, known):
                    if _is_nonnegative(ix.add(rest, least), known, cases):
                        return True
    return known.at_least_zero(difference)


def _least_quotients(
    whole: Expr, by: int, factor: int, difference: Expr, known: ScanContext
) -> Iterator[Expr]:
    """Yield what ``factor * (whole // by)`` is at least: the quotient of less that is subtracted beside it, or what is divided."""
    if factor % by == 0:
        yield ix.mul(factor // by, ix.sub(whole, by - 1))
    for other, taken in ix.to_linear(difference).terms:
        match other:
            case Binary("//", less, Const(divisor)) if taken < 0 and divisor == by:
                if known.at_least_zero(ix.sub(whole, less)):
                    yield ix.mul(factor, other)


def _without_decided(expr: Expr, known: ScanContext) -> Expr:
    """Return an expression without each ``min`` and ``max`` of which it is known which side it is."""

    def decided(node: Expr) -> Expr | None:
        match node:
            case Binary("min" | "max" as op, a, b):
                if _is_at_least(a, b, known):
                    return a if op == "max" else b
                return (b if op == "max" else a) if _is_at_least(b, a, known) else None
            case _:
                return None

    return rewrite(expr, decided)


def _of_powers(factors: Sequence[Expr], divisor: int, lo: Expr, end: Expr) -> Expr:
    """The sum over ``lo <= i < end`` of ``(factors[0] + factors[1]*i + …) / divisor``."""
    used = [k for k, factor in enumerate(factors) if factor != ix.const(0)]
    common = lcm(*(_DIVISORS[k] for k in used))
    parts = (
        ix.mul(
            ix.mul(factors[k], common // _DIVISORS[k]),
            ix.sub(_power_sum(k, end), _power_sum(k, lo)),
        )
        for k in used
    )
    return ix.floordiv(ix.add(*parts), common * divisor)


def _quotients(term: Expr, name: str) -> Iterator[tuple[Expr, int, Expr]]:
    """Yield the quotients ``(name + c) // d`` in a term: as they stand, d and c."""
    for part in _unconditional_parts(term):
        match part:
            case Binary("//", a, Const(by)) if name in variables(a):
                factor = coefficient(a, name) or 0
                if factor > 0 and by % factor == 0:
                    rest = ix.sub(a, ix.mul(factor, Var(name)))
                    yield part, int(by) // factor, ix.floordiv(rest, factor)


def _of_quotients(
    term: Expr,
    name: str,
    quotient: tuple[Expr, int, Expr],
    lo: Expr,
    end: Expr,
    over: Callable[[Expr, Expr, Expr], Expr],
) -> Expr:
    """The sum over ``lo <= i < end`` of a term in which ``(i + c) // d`` stands: with ``i + c = d*k + r`` that is k, and the sum is one
    over k of those over ``0 <= r < d``, and one over what is left of r at the end.
    """
    part, by, shift = quotient
    turn = Var(f"{name}//{by}")

    def inside(turn: Expr, number: Expr) -> Expr:
        start = ix.sub(ix.mul(by, turn), shift)
        value = value_at(_with(term, part, turn), name, ix.add(start, Var(name)))
        return over(ix.const(0), number, value)

    powers = _powers(simplify_index(inside(turn, ix.const(by))), turn.name)
    if powers is None or len(powers[0]) > _DEGREE + 1:
        raise NoClosedForm

    def up_to(value: Expr) -> Expr:
        shifted = ix.add(value, shift)
        turns = ix.floordiv(shifted, by)
        rest = ix.sub(shifted, ix.mul(by, turns))
        return ix.add(_of_powers(*powers, ix.const(0), turns), inside(turns, rest))

    return ix.sub(up_to(end), up_to(lo))


def _by_rests(
    name: str,
    lo: Expr,
    count: Expr,
    term: Expr,
    period: int,
    over: Callable[[Expr, Expr, Expr], Expr],
) -> Iterator[Expr]:
    """The sums over every `period`-th iteration, from each of the first ones on: what is left of `name` by the period is a number in each."""
    for step in range(period):
        start = ix.add(ix.add(lo, step), ix.mul(period, Var(name)))
        turns = ix.floordiv(ix.sub(ix.add(count, period - 1), step), period)
        yield over(ix.const(0), turns, ix.simplify(value_at(term, name, start)))


@lru_cache(maxsize=1 << 15)
def value_at(expr: Expr, name: str, value: Expr) -> Expr:
    """An expression at a value of a name; what stands in it several times is taken once."""
    if name not in variables(expr):
        return expr
    if isinstance(expr, Var):
        return value
    return rebuild(expr, tuple(value_at(child, name, value) for child in children(expr)))


def _period(term: Expr, name: str) -> int:
    """After how many values of `name` all quotients in a term have moved by whole numbers; 1 where it has none, 0 where
    some do not.
    """
    period = 1
    for part in walk(term):
        match part:
            case Binary("//", a, Const(by)) if name in variables(a):
                factor = coefficient(a, name)
                if factor is None or by <= 0:
                    return 0
                period = lcm(period, int(by) // gcd(int(by), factor))
            case Binary("//" | "%", _, _) if name in variables(part):
                return 0
            case _:
                pass
    return period


def is_longer(expr: Expr, most: int) -> bool:
    """Whether an expression has more parts than that."""
    return any(number >= most for number, _ in enumerate(_unconditional_parts(expr)))


@lru_cache(maxsize=1 << 15)
def _without_alike(expr: Expr, name: str) -> Expr:
    """An expression in which what moves alike with a name on both sides of a ``min``, a ``max`` or a comparison stands on neither."""
    if name not in variables(expr):
        return expr
    result = rebuild(expr, tuple(_without_alike(child, name) for child in children(expr)))
    match result:
        case Binary("min" | "max" as op, a, b) if alike := _alike(a, b, name):
            one = ix.minimum if op == "min" else ix.maximum
            return ix.add(alike, one(ix.sub(a, alike), ix.sub(b, alike)))
        case Compare(op, a, b) if dtype_of(a) == "index" and (alike := _alike(a, b, name)):
            return ix.compare(op, ix.sub(a, alike), ix.sub(b, alike))
        case _:
            return result


def _alike(a: Expr, b: Expr, name: str) -> Expr | None:
    """What moves with a name in two expressions whose difference does not; None where that moves, or nothing does."""
    if name not in variables(a) or name in variables(ix.sub(a, b)):
        return None
    moves = [
        ix.mul(factor, atom) for atom, factor in ix.to_linear(b).terms if name in variables(atom)
    ]
    return ix.add(*moves)


def _breaks(term: Expr, name: str) -> Iterator[tuple[Expr, Expr, Expr, Expr]]:
    """Where a part of `term` changes: the first value past it, the part, and what it is below and from there on."""
    for part in _unconditional_parts(term):
        match part:
            case Select(condition, then, other) if name in variables(condition):
                place = _break_of(condition, name)
                if place is not None:
                    at, rises = place
                    yield (at, part, *((other, then) if rises else (then, other)))
            case Binary("min" | "max" as op, a, b) if name in variables(part):
                place = _break_of(Compare(">=", a, b), name)  # from where on a is the larger
                if place is not None:
                    at, rises = place
                    larger, smaller = (a, b) if op == "max" else (b, a)
                    yield (at, part, *((smaller, larger) if rises else (larger, smaller)))
            case _:
                pass


def _break_of(condition: Expr, name: str) -> tuple[Expr, bool] | None:
    """The first value of `name` from which on a comparison holds (True), or no longer does (False); None where there is none such."""
    if not (isinstance(condition, Compare) and condition.op in ("<", "<=", ">", ">=")):
        return None
    if dtype_of(condition.a) != "index":
        return None
    larger, smaller = condition.a, condition.b
    if condition.op in ("<", "<="):
        larger, smaller = smaller, larger
    margin = ix.sub(ix.sub(larger, smaller), 1 if condition.op in ("<", ">") else 0)
    limit = bound(Compare(">=", _without_quotient(margin, name), ix.const(0)), name)
    return None if limit is None else (limit.b, limit.op == ">=")


def _without_quotient(margin: Expr, name: str) -> Expr:
    """Return what is at least 0 where `margin` is: where only a quotient moves with `name` in it, what it divides beside a multiple
    of what it divides by.
    """
    for atom, factor in ix.to_linear(margin).terms:
        rest = ix.sub(margin, ix.mul(factor, atom))
        match atom:
            case Binary("//", a, Const(by)) if name in variables(a) and name not in variables(rest):
                if factor > 0:
                    return ix.sub(a, ix.mul(int(by), ix.ceildiv(ix.mul(-1, rest), factor)))
                most = ix.add(ix.floordiv(rest, -factor), 1)
                return ix.sub(ix.sub(ix.mul(int(by), most), 1), a)
    return margin


def _unconditional_parts(expr: Expr) -> Iterator[Expr]:
    """Parts that may change, those inside of conditions excepted."""
    yield expr
    inside = children(expr)[1:] if isinstance(expr, Select) else children(expr)
    for child in inside:
        yield from _unconditional_parts(child)


def _with(term: Expr, part: Expr, value: Expr) -> Expr:
    if term == part:
        return value
    inside = children(term)
    return rebuild(term, tuple(_with(one, part, value) for one in inside)) if inside else term


_DIVISORS = (1, 2, 6, 4)
_DEGREE = len(_DIVISORS) - 1


def _powers(term: Expr, name: str) -> tuple[tuple[Expr, ...], int] | None:
    """Factors of the powers of `name` in `term`, the constant first, and what divides them all; None where it
    is no polynomial that is summed here.
    """
    if name not in variables(term):
        return (term,), 1
    match term:
        case Var():
            return (ix.const(0), ix.const(1)), 1
        case Binary("+" | "-" as op, a, b):
            x, y = _powers(a, name), _powers(b, name)
            return None if x is None or y is None else _add(x, y, 1 if op == "+" else -1)
        case Binary("*", a, b):
            x, y = _powers(a, name), _powers(b, name)
            if x is None or y is None or len(x[0]) + len(y[0]) - 2 > _DEGREE:
                return None
            total: list[Expr] = [ix.const(0)] * (len(x[0]) + len(y[0]) - 1)
            for k, p in enumerate(x[0]):
                for m, q in enumerate(y[0]):
                    total[k + m] = ix.add(total[k + m], ix.mul(p, q))
            return tuple(total), x[1] * y[1]
        case Binary("//", a, Const(by)) if _divides(int(by), a):
            x = _powers(a, name)
            return None if x is None else (x[0], x[1] * int(by))
        case _:
            return None


def _add(
    x: tuple[tuple[Expr, ...], int], y: tuple[tuple[Expr, ...], int], sign: int
) -> tuple[tuple[Expr, ...], int]:
    common = lcm(x[1], y[1])
    longest = max(len(x[0]), len(y[0]))

    def scaled(one: tuple[tuple[Expr, ...], int], by: int) -> list[Expr]:
        zeros = (ix.const(0),) * (longest - len(one[0]))
        return [ix.mul(by * common // one[1], factor) for factor in (*one[0], *zeros)]

    pairs = zip(scaled(x, 1), scaled(y, sign), strict=True)
    return tuple(ix.add(p, q) for p, q in pairs), common


@lru_cache(maxsize=1 << 12)
def _divides(divisor: int, expr: Expr) -> bool:
    """Whether a polynomial is a multiple of a number at all integers: it is where it is one at as many values in a
    row of each name as its degree, and one more.
    """
    names = sorted(variables(expr))
    if len(names) > 3 or not _is_polynomial(expr):
        return False
    points = product(range(2 * _DEGREE + 1), repeat=len(names))
    values = (evaluate(expr, dict(zip(names, point, strict=True))) for point in points)
    return all(int(value) % divisor == 0 for value in values)


def _is_polynomial(expr: Expr) -> bool:
    match expr:
        case Const() | Var():
            return True
        case Binary("+" | "-" | "*", a, b):
            return _is_polynomial(a) and _is_polynomial(b)
        case Binary("//", a, Const(by)):
            return _divides(int(by), a)
        case _:
            return False


def _power_sum(k: int, x: Expr) -> Expr:
    """The sum of ``i**k`` over ``0 <= i < x``, times ``_DIVISORS[k]``."""
    pair = ix.mul(x, ix.sub(x, 1))
    match k:
        case 0:
            return x
        case 1:
            return pair
        case 2:
            return ix.mul(pair, ix.sub(ix.mul(2, x), 1))
        case _:
            return ix.mul(pair, pair)
