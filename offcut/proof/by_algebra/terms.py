"""Elements in a normal form: polynomials of atoms, with exact coefficients.

A polynomial is a set of (monomial, coefficient), a monomial a set of (atom, exponent). An atom is a tuple: an element of an input, a
function of polynomials, a sum over bound coordinates. Coordinates stand in indices, each ``("lin", terms, constant)``, so that a
coordinate is replaced wherever it stands. Two atoms are equal where they are one value whatever the inputs.

Floats are real numbers here, integers are residues of their type: `modulus` 0 or a power of two.

Parts of reductions over coordinates: the ends that conditions give, groups of factors that share none, least and greatest values.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import permutations
from typing import Any, TypeAlias

from offcut.core import index as ix
from offcut.core.dtypes import FLOATS, INTEGERS, ITEM_BYTES, finite_range
from offcut.core.expr import Binary, Compare, Expr, Var, variables
from offcut.polyhedral import Facts

Atom: TypeAlias = tuple[Any, ...]
Monomial: TypeAlias = frozenset[tuple[Atom, Fraction]]
Polynomial: TypeAlias = frozenset[tuple[Monomial, Fraction]]

ONE: Monomial = frozenset()
ZERO: Polynomial = frozenset()
MAX_TERMS = 256
"""Monomials of a polynomial, at most."""
MAX_BOUND = 5
"""Coordinates of one sum whose names may change places, at most."""


class NotShown(Exception):
    """That two elements are equal is not shown by this proof.

    because   why not
    sizes     the smallest at which they may differ; None where that is not told
    """

    def __init__(self, because: str, sizes: Mapping[str, int] | None = None) -> None:
        super().__init__(because)
        self.because, self.sizes = because, sizes


def modulus_of(dtype: str) -> int:
    """Return the number at which integers of a type wrap around; 0 for other types."""
    return 1 << 8 * ITEM_BYTES[dtype] if dtype in INTEGERS else 0


def number(value: Fraction | int, modulus: int = 0) -> Polynomial:
    """Return a constant."""
    reduced = Fraction(value) if not modulus else Fraction(int(value) % modulus)
    return frozenset({(ONE, reduced)}) if reduced else ZERO


def atom(*parts: Any) -> Polynomial:
    """Return an atom as a polynomial."""
    return frozenset({(frozenset({(parts, Fraction(1))}), Fraction(1))})


def _collect(terms: Iterable[tuple[Monomial, Fraction]], modulus: int) -> Polynomial:
    total = dict[Monomial, Fraction]()
    for monomial, coefficient in terms:
        coefficient_sum = total.get(monomial, Fraction(0)) + coefficient
        total[monomial] = coefficient_sum % modulus if modulus else coefficient_sum
    if len(total) > MAX_TERMS:
        raise NotShown(f"an element has more than {MAX_TERMS} terms")
    return frozenset((monomial, c) for monomial, c in total.items() if c)


def add(*parts: Polynomial, modulus: int = 0) -> Polynomial:
    """Return a sum."""
    return _collect((term for part in parts for term in part), modulus)


def multiply(a: Polynomial, b: Polynomial, modulus: int = 0) -> Polynomial:
    """Return a product, all sums multiplied out."""
    if len(a) * len(b) > MAX_TERMS**2:
        raise NotShown(f"an element has more than {MAX_TERMS} terms")
    terms = ((_product(m, n), c * d) for m, c in a for n, d in b)
    return _collect(terms, modulus)


def scale(a: Polynomial, factor: Fraction | int, modulus: int = 0) -> Polynomial:
    """Return a polynomial times a number."""
    return multiply(a, number(factor, modulus), modulus)


def _product(a: Monomial, b: Monomial) -> Monomial:
    return _merge((*a, *b))


def power(a: Polynomial, exponent: int) -> Polynomial:
    """Return a power, at most the eighth."""
    result = number(1)
    for _ in range(exponent):
        result = multiply(result, a)
    return result


def inverse(a: Polynomial) -> Polynomial:
    """Return one over a polynomial: of one of several terms an atom, which `without_quotients` multiplies away."""
    if len(a) == 1:
        ((monomial, coefficient),) = a
        return frozenset({(frozenset((one, -e) for one, e in monomial), 1 / coefficient)})
    return frozenset({(frozenset({(("sum of", a), Fraction(-1))}), Fraction(1))})


def without_quotients(a: Polynomial) -> Polynomial:
    """Return a polynomial that is 0 where `a` is: times each sum that divides a part of it."""
    while True:
        divisors = (one for monomial, _ in a for one, e in monomial if one[0] == "sum of" and e < 0)
        divisor = next(divisors, None)
        if divisor is None:
            return a
        most = max(-dict(monomial).get(divisor, Fraction(0)) for monomial, _ in a)
        parts = []
        for monomial, coefficient in a:
            own = dict(monomial)
            exponent = most + own.pop(divisor, Fraction(0))
            rest = frozenset({(frozenset(own.items()), coefficient)})
            parts.append(multiply(rest, power(divisor[1], int(exponent))))
        a = add(*parts)


def exponential(a: Polynomial) -> Polynomial:
    """Return the exponential function as a product: of each monomial, to the power of its coefficient."""
    return frozenset({(frozenset((("exp", monomial), c) for monomial, c in a), Fraction(1))})


def logarithm(a: Polynomial) -> Polynomial:
    """Return the logarithm: of a product with exponential functions, these undone."""
    if len(a) == 1:
        ((monomial, coefficient),) = a
        parts = [(one, e) for one, e in monomial if one[0] == "exp"]
        others = frozenset((one, e) for one, e in monomial if one[0] != "exp")
        exponents = (frozenset({(one[1], e)}) for one, e in parts)
        if coefficient == 1 and not others:
            return add(*exponents)
        inner = frozenset({(others, coefficient)})
        if len(others) == 1 and coefficient == 1:
            ((one, exponent),) = others
            if exponent == -1:
                inverted = frozenset({(frozenset({(one, Fraction(1))}), Fraction(1))})
                return add(*exponents, scale(atom("fn", "log", inverted), -1))
        return add(*exponents, atom("fn", "log", inner))
    return atom("fn", "log", a)


# Indices


def linear(expr: Expr) -> Atom:
    """Return an index expression in a form that does not depend on how it is written."""
    form = ix.to_linear(expr)
    terms = dict[Any, int]()
    for one, coefficient in form.terms:
        key = _index_atom(one)
        terms[key] = terms.get(key, 0) + coefficient
    return "lin", frozenset((key, c) for key, c in terms.items() if c), form.const


def _index_atom(expr: Expr) -> Atom:
    match expr:
        case Var(name):
            return "var", name
        case Binary("*", a, b):
            return _index_product(linear(a), linear(b))
        case Binary("min" | "max" as op, a, b):
            return op, frozenset(map(linear, _alternatives(op, expr)))
        case Binary(op, a, b):
            return op, linear(a), linear(b)
        case _:
            raise NotShown("an index is not an expression of coordinates and sizes")


def _index_product(a: Atom, b: Atom) -> Atom:
    """Return the product of two indices, whichever is first; a square has its factor twice."""
    return "*", frozenset({(a, 1), (b, 2 if a == b else 1)})


def _alternatives(op: str, expr: Expr) -> Iterator[Expr]:
    if isinstance(expr, Binary) and expr.op == op:
        yield from _alternatives(op, expr.a)
        yield from _alternatives(op, expr.b)
    else:
        yield expr


def coordinates(node: Any) -> frozenset[str]:
    """Return the names of coordinates and sizes that stand in an atom, a polynomial or an index."""
    return frozenset(_coordinates(node))


def _coordinates(node: Any) -> Iterator[str]:
    if isinstance(node, tuple) and len(node) == 2 and node[0] == "var":
        yield node[1]
    elif isinstance(node, tuple | frozenset):
        for part in node:
            yield from _coordinates(part)


def replace_coordinates(node: Any, values: Mapping[str, Atom]) -> Any:
    """Return an atom, a polynomial or an index with other indices in place of coordinates.

    Terms that become equal are added, factors that become equal multiplied: ``A[k] + A[0]`` at ``k = 0`` is ``2*A[0]``. Coefficients
    are not reduced to residues here.
    """
    if isinstance(node, frozenset):
        parts = [replace_coordinates(part, values) for part in node]
        return _merge(parts) if parts and _is_term(parts[0]) else frozenset(parts)
    if not isinstance(node, tuple):
        return node
    if len(node) == 3 and node[0] == "lin":
        terms, constant = dict[Any, int](), node[2]
        for one, coefficient in node[1]:
            if one[0] == "var" and one[1] in values:
                _, inner, offset = values[one[1]]
                constant += coefficient * offset
                new = [(key, coefficient * c) for key, c in inner]
            else:
                new = [(replace_coordinates(one, values), coefficient)]
            for key, c in new:
                terms[key] = terms.get(key, 0) + c
        return "lin", frozenset((key, c) for key, c in terms.items() if c), constant
    if len(node) == 2 and node[0] == "*":
        return _index_product(*(replace_coordinates(factor, values) for factor, _ in node[1]))
    return tuple(replace_coordinates(part, values) for part in node)


def _is_term(node: Any) -> bool:
    """Whether a member of a set is a term of a polynomial or a factor of a monomial: both end in a number."""
    return isinstance(node, tuple) and len(node) == 2 and isinstance(node[1], Fraction)


def _merge(pairs: Iterable[tuple[Any, Fraction]]) -> frozenset[tuple[Any, Fraction]]:
    """Return pairs with the numbers of equal first members added, without those that are 0."""
    total = dict[Any, Fraction]()
    for first, amount in pairs:
        total[first] = total.get(first, Fraction(0)) + amount
    return frozenset((first, amount) for first, amount in total.items() if amount)


def coordinate(name: str) -> Atom:
    """Return a coordinate as an index."""
    return "lin", frozenset({(("var", name), 1)}), 0


def text(node: Any) -> str:
    """Return a text that is the same for equal nodes and for no others."""
    if isinstance(node, frozenset):
        return "{" + " ".join(sorted(map(text, node))) + "}"
    if isinstance(node, tuple):
        return "(" + " ".join(map(text, node)) + ")"
    return repr(node)


def reduction_atom(
    kind: str, extents: Mapping[str, Atom], conditions: frozenset[Any], body: Any
) -> Atom:
    """Return a reduction as an atom: over coordinates from 0 to their extents, where conditions hold, under names that its body decides."""
    names = list(extents)
    if len(names) > MAX_BOUND:
        raise NotShown(f"a reduction over {len(names)} axes")
    if coordinates(tuple(extents.values())) & extents.keys():
        raise NotShown("a reduction whose extent depends on another of its coordinates")
    level = 1 + max((_level(name) for name in coordinates(body) - extents.keys()), default=0)
    level = max(level, 1 + _inner_level(body))
    candidates = list[tuple[str, Atom]]()
    for order in permutations(names):
        own = {name: coordinate(f"#{level}.{place}") for place, name in enumerate(order)}
        one = (
            kind,
            tuple(extents[name] for name in order),
            replace_coordinates(conditions, own),
            replace_coordinates(body, own),
        )
        candidates.append((text(one), one))
    return min(candidates, key=lambda pair: pair[0])[1]


def bound_names(one: Atom) -> list[str]:
    """Return the names that a reduction binds: of the greatest level in it, in the order of its extents."""
    return [f"#{_inner_level(one)}.{place}" for place in range(len(one[1]))]


def _level(name: str) -> int:
    return int(name[1:].split(".")[0]) if name.startswith("#") else 0


def _inner_level(node: Any) -> int:
    return max(map(_level, coordinates(node)), default=0)


_FLIPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "==", "!=": "!="}


class Undecided(Exception):
    """A condition of indices that holds at some coordinates and not at others."""

    def __init__(self, condition: Expr) -> None:
        super().__init__(condition)
        self.condition = condition


_Group: TypeAlias = tuple[frozenset[str], list[tuple[Atom, Fraction]], list[Any]]


def _components(
    extents: Mapping[str, Atom],
    factors: Sequence[tuple[Atom, Fraction]],
    conditions: frozenset[Any],
) -> list[_Group]:
    """Split factors and conditions into groups that share no coordinate; those without one come first."""
    outside: _Group = (frozenset(), [], [])
    groups: list[_Group] = [(frozenset({name}), [], []) for name in extents]
    for one, is_factor in (*((f, True) for f in factors), *((c, False) for c in conditions)):
        names = coordinates(one) & extents.keys()
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
    every = frozenset[Polynomial]().union(*(_values_of_extreme(op, one) for one in parts))
    own = identity(op, dtype)
    every = every - {own} or frozenset({own})
    return next(iter(every)) if len(every) == 1 else atom(f"{op} of", every)


def _values_of_extreme(op: str, value: Polynomial) -> frozenset[Polynomial]:
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
    modulus = modulus_of(dtype)
    if op == "sum":
        return ZERO
    if dtype in FLOATS:
        return atom("const", "-inf" if op == "max" else "inf", dtype)
    return number(int(finite_range(dtype)[op == "min"]), modulus)


def _linear(sizes: Mapping[str, Expr]) -> dict[str, Atom]:
    return {name: linear(size) for name, size in sizes.items()}


def _number_of(index: Atom, modulus: int) -> Polynomial:
    """Return an index as a number, each of its coordinates an atom."""
    _, terms, constant = index
    every = (
        scale(atom("place", ("lin", frozenset({(one, 1)}), 0)), factor, modulus)
        for one, factor in terms
    )
    return add(*every, number(constant, modulus), modulus=modulus)


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
