"""Extents of a graph's values: index expressions in one form, so that equal ones are equal; products of sizes are allowed.

    sum of (number * atom * atom * …)        an atom: a size, a quotient, a remainder, a minimum or a maximum

The factors of a term and the terms are sorted. What an axis is rounded up or down by is written with as few terms as can be:
``n + (-n) % 4`` is ``4*((n + 3)//4)``, ``n - 2*(n//2)`` is ``n % 2``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from math import gcd, inf
from typing import TypeAlias

from offcut.core import index as ix
from offcut.core.expr import Binary, Const, Expr, Var, children, rebuild, substitute
from offcut.core.intervals import Interval, interval, interval_op
from offcut.core.program import Size
from offcut.core.text.printer import format_expr
from offcut.graph.sizes.floor_bounds import of_floors

Terms: TypeAlias = Mapping[tuple[Expr, ...], int]
"""A number by the factors beside it."""


def normal(expr: Expr | int) -> Expr:
    """Return an extent in the form of all extents."""
    return ix.const(expr) if isinstance(expr, int) else _normal(expr)


@lru_cache(maxsize=1 << 14)
def _normal(expr: Expr) -> Expr:
    shorter = _terms_text(_fewest(_terms(expr)))
    return (
        shorter if shorter == expr else _normal(shorter)
    )  # what is written with fewer terms may have a shorter form


def product(extents: Iterable[Expr]) -> Expr:
    """Of extents; 1 of none."""
    total: Expr = ix.const(1)
    for extent in extents:
        total = Binary("*", total, extent)
    return normal(total)


def places(extent: Expr | int, reach: int, stride: int) -> Expr:
    """Return how many places a window has along an axis.

    extent  of the axis, with its padding
    reach   elements from the first that a window reads to the last
    """
    last = Binary("//", Binary("+", normal(extent), ix.const(-reach)), ix.const(stride))
    return normal(Binary("+", last, ix.const(1)))


def quotient(extent: Expr, by: Expr) -> Expr | None:
    """Return the extent that gives `extent` times `by`; None where none is seen."""
    dividend, divisor = dict(_terms(extent)), _terms(by)
    if not divisor or (len(divisor) > 1 and not dividend):
        return None
    factors = _factors_in_order(divisor)[0]
    parts: dict[tuple[Expr, ...], int] = {}
    while dividend:  # a division of polynomials: the first term goes each time
        own = _factors_in_order(dividend)[0]
        rest = Counter(own)
        rest.subtract(factors)
        count, over = divmod(dividend[own], divisor[factors])
        if over or any(times < 0 for times in rest.values()):
            return None
        part = tuple(sorted(rest.elements(), key=_text_of))
        _join(parts, {part: count})
        _join(dividend, _beside(divisor, part), -count)
    return _terms_text(parts)


def equate_terms(difference: Expr) -> tuple[Expr, Expr] | None:
    """What ``difference == 0`` says of two: ``c*a*e - c*a*f`` that e is f, where a is not 0; None of more terms, or of products."""
    terms = _terms(difference)
    if len(terms) != 2:
        return None
    (one, count), (other, less) = ((Counter(own), by) for own, by in terms.items())
    shared = one & other
    left, right = (tuple((own - shared).elements()) for own in (one, other))
    if not left:
        left, right, count, less = right, left, less, count
    value, over = divmod(-less, count)
    if over or len(left) != 1 or len(right) > (value == 1):
        return None
    return left[0], _terms_text({right: value})


def at(extent: Expr, values: Mapping[str, Expr]) -> Expr:
    """Return an extent where sizes have other values."""
    return normal(substitute(extent, dict(values)))


def bounds(extent: Expr, sizes: Sequence[Size]) -> tuple[int, int]:
    """Return the least and the greatest value that an extent is seen to have; both 0 at least."""
    low, high = span(extent, sizes)
    return max(low, 0), max(high, 0)


def span(expr: Expr, sizes: Sequence[Size]) -> Interval:
    """Return the least and the greatest value that an expression over sizes is seen to have, below 0 too."""
    known = {size.name: (size.min, size.max) for size in sizes}
    low, high = interval(expr, lambda size: known[size.name] if isinstance(size, Var) else None)
    closer = of_floors(expr, known)
    return (low, high) if closer is None else (max(low, closer[0]), min(high, closer[1]))


def divisor(extent: Expr, sizes: Sequence[Size]) -> int:
    """Return a number that is seen to divide the extent."""
    known = {size.name: size.multiple_of for size in sizes}
    total = 0
    for factors, count in _terms(extent).items():
        term = count
        for factor in factors:
            term *= known.get(factor.name, 1) if isinstance(factor, Var) else 1
        total = gcd(total, term)
    return max(total, 1)


@lru_cache(maxsize=1 << 14)
def _text_of(expr: Expr) -> str:
    return format_expr(expr)


@lru_cache(maxsize=1 << 14)
def _terms(expr: Expr) -> Terms:
    """Nobody writes to what it gives."""
    match expr:
        case Const(value, _):
            return {(): int(value)} if value else {}
        case Binary("+" | "-" as op, a, b):
            total = dict(_terms(a))
            _join(total, _terms(b), 1 if op == "+" else -1)
            return total
        case Binary("*", a, b):
            total = {}
            for left, x in _terms(a).items():
                for right, y in _terms(b).items():
                    key = tuple(sorted((*left, *right), key=_text_of))
                    total[key] = total.get(key, 0) + x * y
            return {factors: count for factors, count in total.items() if count}
        case Var():
            return {(expr,): 1}
        case _:
            atom = _once(ix.simplify(rebuild(expr, tuple(normal(part) for part in children(expr)))))
            again = isinstance(atom, Const | Var) or (
                isinstance(atom, Binary) and atom.op in ("+", "-", "*")
            )
            return _terms(atom) if again else {(atom,): 1}


def _once(atom: Expr) -> Expr:
    """``(a + 2)//4`` for ``(a//2 + 1)//2``, ``a % 2`` for ``a % 4 % 2``, 0 for ``a % 4 // 4``,
    ``(a + 1)//2`` for ``(2*a + 3)//4``, ``-((a + 3)//4)`` for ``(-a)//4``; the one of two that an extreme is at all sizes.
    """
    match atom:
        case Binary("//", Binary("//", a, Const(inner, _)), Const(outer, _)):
            return _once(Binary("//", a, ix.const(int(inner) * int(outer))))
        case Binary(
            "//", Binary("+", Binary("//", a, Const(inner, _)), Const(more, _)), Const(outer, _)
        ):
            whole = Binary("+", a, ix.const(int(more) * int(inner)))
            return _once(Binary("//", normal(whole), ix.const(int(inner) * int(outer))))
        case Binary("//", Binary("%", _, Const(inner, _)), Const(outer, _)) if inner <= outer:
            return ix.const(0)
        case Binary("//" | "%" as op, a, Const(by, _)) if (
            int(by) > 0 and _common_divisor(a, int(by)) > 1
        ):
            factor = _common_divisor(a, int(by))
            parts, rest = _parts(a, factor)
            part = normal(Binary(op, parts, ix.const(int(by) // factor)))
            if op == "//":
                return part
            return normal(Binary("+", Binary("*", ix.const(factor), part), ix.const(rest)))
        case Binary("//", a, Const(by, _)) if int(by) > 0 and _is_negated(a):
            up = Binary("+", Binary("*", ix.const(-1), a), ix.const(int(by) - 1))
            return Binary("*", ix.const(-1), normal(Binary("//", up, ix.const(int(by)))))
        case Binary("%", a, Const(by, _)) if int(by) > 0:
            return _remainder(a, int(by))
        case Binary("min" | "max" as op, a, b):
            low, high = _ends(normal(Binary("-", a, b)))
            if low >= 0 or high <= 0:
                return a if (low >= 0) == (op == "max") else b
            return Binary(op, *sorted((a, b), key=_text_of))
        case _:
            return atom


def _common_divisor(expr: Expr, by: int) -> int:
    """What divides `by` and the numbers of all terms but a lone one."""
    counts = [count for factors, count in _terms(expr).items() if factors]
    return gcd(by, *counts) if counts else 1


def _parts(expr: Expr, factor: int) -> tuple[Expr, int]:
    """``expr == factor * parts + left``, with a number that is left, less than the factor."""
    terms = dict(_terms(expr))
    whole, remainder = divmod(terms.pop((), 0), factor)
    parts = {factors: count // factor for factors, count in terms.items()}
    if whole:
        parts[()] = whole
    return _terms_text(parts), remainder


def _is_negated(expr: Expr) -> bool:
    """Return whether the first term is below 0."""
    terms = _terms(expr)
    return bool(terms) and terms[_factors_in_order(terms)[0]] < 0


def _remainder(expr: Expr, by: int) -> Expr:
    """``expr % by`` without remainders inside that change nothing, its factors as near to 0 as can be."""
    inner: dict[tuple[Expr, ...], int] = {}
    for factors, count in _terms(expr).items():
        match factors:
            case (Binary("%", a, Const(own, _)),) if int(own) % by == 0:
                _join(inner, _terms(a), count)
            case _:
                _join(inner, {factors: count})
    near = {
        factors: count % by - (by if 2 * (count % by) > by else 0)
        for factors, count in inner.items()
    }
    return ix.simplify(Binary("%", _terms_text(near), ix.const(by)))


def _join(total: dict[tuple[Expr, ...], int], terms: Terms, times: int = 1) -> None:
    """``total += times * terms``."""
    for factors, count in terms.items():
        total[factors] = total.get(factors, 0) + times * count
        if not total[factors]:
            del total[factors]


def _fewest(terms: Terms) -> Terms:
    """Return the same with ``e % k`` as ``e - k*(e//k)``, or the other way round, where that has fewer terms; one term is the fewest."""
    for rewritten in _rewritten(terms) if len(terms) > 1 else ():
        if len(rewritten) < len(terms):
            return _fewest(rewritten)
    return terms


def _rewritten(terms: Terms) -> Iterator[Terms]:
    for factors, count in terms.items():
        for place, atom in enumerate(factors):
            for alternative in _instead(atom, count):
                rest = (*factors[:place], *factors[place + 1 :])
                yield _with(terms, {factors: -count}, _beside(alternative, rest))
        extreme = _extreme_of_sums(terms, factors, count)
        if extreme is not None:
            yield extreme
        yield from _without_equal_extremes(terms, factors, count)


def _extreme_of_sums(terms: Terms, factors: tuple[Expr, ...], count: int) -> Terms | None:
    """``e + max(a, b)`` as ``max(e + a, e + b)``, where both of its sides have one term at most; so with ``-max`` and ``min``."""
    match factors:
        case (Binary("min" | "max" as op, a, b),) if count in (1, -1) and len(terms) > 1:
            rest = _with(terms, {factors: -count})
            sides: list[Expr] = []
            for side in (a, b):
                one = _one_term(frozenset(_with(rest, _times(_terms(side), count)).items()))
                if one is None:
                    return None
                sides.append(one)
            new_op = op if count == 1 else {"min": "max", "max": "min"}[op]
            return _terms(Binary(new_op, *sides))
        case _:
            return None


@lru_cache(maxsize=1 << 14)
def _one_term(terms: frozenset[tuple[tuple[Expr, ...], int]]) -> Expr | None:
    """Return a sum as one term or 0; None for what has more. Kept, since a sum of extremes comes to the same sides in any order."""
    counts = dict(terms)
    fewest = _fewest({factors: counts[factors] for factors in _factors_in_order(counts)})
    return _terms_text(fewest) if len(fewest) <= 1 else None


def _without_equal_extremes(terms: Terms, factors: tuple[Expr, ...], count: int) -> Iterator[Terms]:
    """``max(a + e, b + e) - max(a, b)`` as e; so with ``min``."""
    match factors:
        case (Binary("min" | "max" as op, a, b),) if count > 0:
            pass
        case _:
            return
    for other, times in terms.items():
        match other:
            case (Binary(less, c, d),) if less == op and times == -count:
                more = _terms(Binary("-", a, c))
                if more == _terms(Binary("-", b, d)):
                    yield _with(terms, {factors: -count, other: count}, _times(more, count))
            case _:
                pass


def _instead(atom: Expr, count: int) -> Iterator[Terms]:
    """``count * atom`` written otherwise."""
    match atom:
        case Binary("%", a, Const(by, _)):
            # -a leaves the same rest of 2 as a
            for own in (a, normal(Binary("*", ix.const(-1), a))) if by == 2 else (a,):
                floor = Binary("*", ix.const(-int(by)), Binary("//", own, ix.const(int(by))))
                yield _times(_terms(Binary("+", own, floor)), count)
        case Binary("//", a, Const(by, _)):
            if by == 2:  # what is rounded up is left of what is rounded down
                rest = Binary("//", Binary("+", a, ix.const(1)), ix.const(2))
                yield _times(_terms(Binary("-", a, rest)), count)
            for part in range(1, int(by)):
                inner, remainder = divmod(int(by), part)
                if not remainder and count % inner == 0:  # a//by is (a//part)//inner
                    own = normal(Binary("//", a, ix.const(part)))
                    rest = Binary("%", own, ix.const(inner))
                    yield _times(_terms(Binary("-", own, rest)), count // inner)
                    # rounded up: of what is inner - 1 less
                    up = normal(Binary("-", own, ix.const(inner - 1)))
                    lack = Binary("%", Binary("*", ix.const(-1), up), ix.const(inner))
                    yield _times(_terms(Binary("+", up, lack)), count // inner)


def _times(terms: Terms, number: int) -> Terms:
    return {factors: number * count for factors, count in terms.items()}


def _beside(terms: Terms, rest: tuple[Expr, ...]) -> Terms:
    """Terms with more factors."""
    products: dict[tuple[Expr, ...], int] = {}
    for factors, count in terms.items():
        _join(products, {tuple(sorted((*factors, *rest), key=_text_of)): count})
    return products


def _with(terms: Terms, *more: Terms) -> Terms:
    total = dict(terms)
    for one in more:
        _join(total, one)
    return total


def _factors_in_order(terms: Terms) -> list[tuple[Expr, ...]]:
    """Return the factors of terms, as they are written: those of more factors first."""
    return sorted(terms, key=lambda own: (-len(own), [*map(_text_of, own)]))


def _terms_text(terms: Terms) -> Expr:
    parts: list[Expr] = []
    for factors in _factors_in_order(terms):
        term: Expr | None = None
        for factor in factors:
            term = factor if term is None else Binary("*", term, factor)
        count = ix.const(terms[factors])
        if term is None:
            parts.append(count)
        else:
            parts.append(term if terms[factors] == 1 else Binary("*", count, term))
    total: Expr = ix.const(0)
    for place, part in enumerate(parts):
        total = part if place == 0 else Binary("+", total, part)
    return total


MOST_EXTREMES = 4
"""So many minima and maxima are taken apart to find the ends of an expression."""


Ends: TypeAlias = tuple[float, float]
"""The least and the greatest value, infinite where none is seen."""


@lru_cache(maxsize=1 << 12)
def _ends(expr: Expr) -> Ends:
    """Return the least and the greatest value that an expression is seen to have at any sizes from 0 on."""
    return _ends_of(_terms(expr), MOST_EXTREMES)


def _ends_of(terms: Terms, budget: int) -> Ends:
    for factors, count in terms.items():
        match factors:
            case (Binary("min" | "max" as op, a, b),):
                if not budget:
                    return -inf, inf
                rest = _with(terms, {factors: -count})
                cases = [
                    _ends_of(_fewest(_with(rest, _times(_terms(side), count))), budget - 1)
                    for side in (a, b)
                ]
                lesser = (op == "min") == (count > 0)
                lows, highs = zip(*cases, strict=True)
                return (min(lows), min(highs)) if lesser else (max(lows), max(highs))
            case _:
                pass
    total: Ends = 0, 0
    for factors, count in terms.items():
        term: Ends = count, count
        for factor in factors:
            ends = _ends_of_one(factor)
            if ends[0] < 0:
                return -inf, inf
            term = interval_op("*", term, ends)
        total = interval_op("+", total, term)
    return total


def _ends_of_one(factor: Expr) -> Ends:
    match factor:
        case Binary("%" | "//" as op, a, Const(by, _)):
            return interval_op(op, _ends(a), (int(by), int(by)))
        case Binary("min" | "max" as op, a, b):
            return interval_op(op, _ends(a), _ends(b))
        case _:
            return 0, inf
