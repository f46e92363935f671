"""Strips that lie edge to edge along an axis, of one height or of two, for every extent at once, by algebra.

A quotient ``q = a // c`` and its rest r make of ``a`` the sum ``c*q + r``, so that a ladder's tiles,

    0 … 96*q    96*q … 96*q + 64*q'    96*q + 64*q' … e        with  e = 96*q + 64*q' + r'

end where the next begin by an identity of polynomials, and none ends before it begins: no coefficient
of its length is negative, once a rest that is taken off is written as what it lacks of c - 1. What isl would decide over three nested divisions is read off.

Tiles of two heights that share out an axis, for every extent at once, by algebra.

``balance`` has heights v + 1 and v with ``v = n // T`` for ``T = ceil(n/t)``: products of sizes,
which isl does not decide, and v has up to t values to take in turn. With r and u for

    n = v*T + r      T = r + u      v, r >= 0    u >= 1

everything is a polynomial without negative coefficients: ``(v + 1)*r`` rows in higher tiles, then
``v*u`` in lower ones, which is n. So strips lie edge to edge wherever they all exist, which is an
identity of polynomials; what is left for isl is where they do not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from offcut.core import index as ix
from offcut.core.conditions import negate
from offcut.core.expr import Binary, Compare, Const, Expr, Var, rewrite, substitute, variables
from offcut.core.polynomial import Polynomial, constant, polynomial, variable
from offcut.core.program import Size
from offcut.polyhedral import INDEX_LIMIT
from offcut.proof.by_axis.strips import Strip, X


def are_contiguous(
    extent: Expr, strips: Sequence[Strip], quotients: Quotients, sizes: Sequence[Size]
) -> bool:
    """Whether the strips are ``0 <= x < extent``, in ascending order, each coordinate in one of them.

    quotients  whose names `extent` and `strips` are in
    sizes      that these are over

    False: it is not known so.
    """
    sums = _Sums(quotients, sizes)
    end = constant(0)
    for strip in strips:
        if strip.loops or strip.values or strip.repeats:
            return False
        next_end = sums.end_from(end, strip)
        if next_end is None:
            return False
        end = next_end
    return end == sums.of(extent)


class _Sums:
    """Expressions as polynomials without the sizes that quotients and rests make up."""

    def __init__(self, quotients: Quotients, sizes: Sequence[Size]) -> None:
        self.least = {size.name: size.min for size in (*sizes, *quotients.sizes)}
        self.most: dict[str, int] = {}
        self.parts: dict[str, Polynomial] = {}
        for (a, divisor), (q, r) in quotients.known.items():
            self.most[r.name] = divisor - 1
            if isinstance(a, Var):
                value = constant(divisor) * variable(q.name) + variable(r.name)
                self.parts.setdefault(a.name, value)

    def of(self, expr: Expr) -> Polynomial | None:
        """An expression over what is left of the sizes; None where it is no sum of products."""
        sum_ = polynomial(expr)
        while sum_ is not None and any(n in self.parts for names, _ in sum_.terms for n in names):
            sum_ = sum_.at(self.parts)
        return sum_

    def end_from(self, start: Polynomial, strip: Strip) -> Polynomial | None:
        """The end of a strip that is exactly what lies from `start` to there; None: it is not known to be that."""
        ends, conditions = [self.of(strip.upper)], list[Compare]()
        for condition in strip.holds:
            match condition:
                case Compare("<", a, b) if a == X:
                    ends.append(self.of(b))
                case Compare():
                    conditions.append(condition)
                case _:
                    return None
        known = [end for end in ends if end is not None]
        if self.of(strip.lower) != start or len(known) < len(ends):
            return None
        for end in known:
            length = end - start
            least = all(self.is_never_negative(other - end) for other in known)
            if least and self.is_never_negative(length):
                return end if all(self.holds(one, length) for one in conditions) else None
        return None

    def holds(self, condition: Compare, length: Polynomial) -> bool:
        """Whether a condition is true wherever `length` is at least 1."""
        a, b = self.of(condition.a), self.of(condition.b)
        if a is None or b is None:
            return False
        one = constant(1)
        match condition.op:
            case "<":
                return self.is_never_negative(b - a - length)
            case "<=":
                return self.is_never_negative(b - a - length + one)
            case ">":
                return self.is_never_negative(a - b - length)
            case ">=":
                return self.is_never_negative(a - b - length + one)
            case _:
                return False

    def is_never_negative(self, value: Polynomial) -> bool:
        """Whether a value is at least 0 at all sizes, as its coefficients show: a rest r that is taken off is written ``c - 1 - r'``."""
        down: Mapping[str, Polynomial] = {
            names[0]: constant(self.most[names[0]]) - variable(names[0])
            for names, factor in value.terms
            if factor < 0 and len(names) == 1 and names[0] in self.most
        }
        least = {**self.least, **dict.fromkeys(down, 0)}
        known = value.at(down).least(least)
        return known is not None and known >= 0


LEAST = -INDEX_LIMIT  # of a size that may be negative


class Quotients:
    """Names for ``a // c`` and ``a % c``: sizes q and r with ``a == c*q + r`` and ``0 <= r < c``.

    Only where `a` is made of `sizes`.
    """

    def __init__(self, sizes: Iterable[Size]) -> None:
        self.known: dict[tuple[Expr, int], tuple[Var, Var]] = {}
        self.facts: list[Expr] = []
        self.sizes: list[Size] = []
        self.least = {size.name: size.min for size in sizes}

    def without_divisions(self, expr: Expr) -> Expr:
        """`expr` without divisions of sizes by literals."""
        return ix.fold_indices(rewrite(expr, self._quotient))

    def _quotient(self, node: Expr) -> Expr | None:
        match node:
            case Binary("//" | "%" as op, a, Const(value, _)) if value > 0:
                if not variables(a) <= set(self.least):
                    return None
                pair = self._pair(ix.simplify(a), int(value))
                return pair[0] if op == "//" else pair[1]
            case _:
                return None

    def _pair(self, a: Expr, divisor: int) -> tuple[Var, Var]:
        if (a, divisor) not in self.known:
            number = len(self.known)
            q, r = Var(f"q{number}"), Var(f"r{number}")
            self.known[a, divisor] = q, r
            form = ix.to_linear(a)
            positive = form.const >= 0 and all(
                factor > 0 and isinstance(atom, Var) and self.least[atom.name] >= 0
                for atom, factor in form.terms
            )
            least = 0 if positive else LEAST
            self.sizes += [Size(q.name, least), Size(r.name, 0, divisor - 1)]
            self.least |= {q.name: least, r.name: 0}
            self.facts.append(ix.compare("==", a, ix.add(ix.mul(divisor, q), r)))
        return self.known[a, divisor]


Refuted = Callable[[Sequence[Expr]], bool]  # whether no sizes satisfy all of these conditions


@dataclass(frozen=True, slots=True)
class Span:
    """``lower <= x < upper``, and nothing else, where all of `holds` are true: conditions on sizes
    and on the bounded value `value`, which lies in ``lo:hi`` wherever all of `given` hold.
    """

    lower: Polynomial
    upper: Polynomial
    holds: frozenset[Expr]
    name: str
    value: Expr
    lo: int
    hi: int
    given: frozenset[Expr]


def join_spans(
    lower: Expr, upper: Expr, loops: Sequence[tuple[str, Expr, Expr]], least: dict[str, int]
) -> tuple[Polynomial, Polynomial] | None:
    """A run of tiles ``s + c*t <= x < s + c*t + c`` as one interval, where ``c > 0`` is certain.

    least   a lower bound of each name
    """
    low, high = polynomial(lower), polynomial(upper)
    if low is None or high is None:
        return None
    for name, first, last in reversed(loops):
        parts, bounds = low.split(name), (polynomial(first), polynomial(last))
        if parts is None or bounds[0] is None or bounds[1] is None:
            return None
        start, step = parts
        if high - low != step or (step.least(least) or 0) < 1:
            return None
        low, high = start + step * bounds[0], start + step * bounds[1]
    return low, high


def is_partition(
    extent: Expr, spans: Sequence[Span], least: dict[str, int], refuted: Refuted, ordered: bool
) -> bool:
    """Whether the spans are ``0 <= x < extent``, each coordinate in one of them; False: unknown.

    ordered   in ascending order, too
    """
    whole = polynomial(extent)
    first = spans[0]
    name, value = first.name, first.value
    if whole is None or any((s.name, s.value) != (name, value) for s in spans):
        return False
    substitution = _parts(name, value)
    if substitution is None:
        return False
    common = frozenset.intersection(*(_of_sizes(span, name) for span in spans))
    sure = next((span for span in spans if span.given <= common), None)
    if sure is None:
        return False
    bounds = least | {name: sure.lo, "#r": 0, "#u": 1}
    chain = _chain(spans, whole, substitution)
    if chain is None or (ordered and list(spans) != chain):
        return False
    literals = range(sure.lo, sure.hi)
    for interval in chain:
        length = (interval.upper - interval.lower).at(substitution).least(bounds)
        if length is None or length < 0:
            return False
        same = [s for s in spans if (s.lower, s.upper) == (interval.lower, interval.upper)]
        if not _alternate(same, name, [q for q in literals if interval.lo <= q < interval.hi]):
            return False
        for condition in _of_sizes(interval, name) - common:
            if not _is_empty_without(interval, condition, common, literals, refuted):
                return False
    return all(refuted([negate(c), ix.compare(">", extent, 0)]) for c in common)


def _parts(name: str, value: Expr) -> dict[str, Polynomial] | None:
    """n and T by v, r and u."""
    match value:
        case Binary("//", Var(n), Var(tiles)) if n != tiles:
            r, u = variable("#r"), variable("#u")
            return {n: variable(name) * (r + u) + r, tiles: r + u}
    return None


def _of_sizes(span: Span, name: str) -> frozenset[Expr]:
    return frozenset(c for c in span.holds if name not in variables(c)) | span.given


def _chain(
    spans: Sequence[Span], whole: Polynomial, substitution: dict[str, Polynomial]
) -> list[Span] | None:
    """One span of each interval, edge to edge from 0 to the extent."""
    spans_by_start = {span.lower.at(substitution): span for span in reversed(spans)}
    if len(spans_by_start) != len({(span.lower, span.upper) for span in spans}):
        return None
    end, chain = constant(0), []
    while end in spans_by_start:
        chain.append(spans_by_start.pop(end))
        end = chain[-1].upper.at(substitution)
    return chain if not spans_by_start and end == whole.at(substitution) else None


def _alternate(spans: Sequence[Span], name: str, literals: Iterable[int]) -> bool:
    """Whether exactly one of `spans`, which are one interval, exists for each value."""
    if any(_of_sizes(s, name) != _of_sizes(spans[0], name) for s in spans):
        return False
    if any((s.lo, s.hi, s.given) != (spans[0].lo, spans[0].hi, spans[0].given) for s in spans):
        return False
    for literal in literals:
        hold = 0
        for span in spans:
            about = [c for c in span.holds if name in variables(c)]
            verdicts = [_decided(condition, name, literal) for condition in about]
            if None in verdicts:
                return False
            hold += all(verdicts)
        if hold != 1:
            return False
    return True


def _decided(condition: Expr, name: str, literal: int) -> bool | None:
    fixed = ix.fold_indices(substitute(condition, {name: ix.const(literal)}))
    if isinstance(fixed, Compare):
        fixed = ix.compare(fixed.op, fixed.a, fixed.b)
    return bool(fixed.value) if isinstance(fixed, Const) else None


def _is_empty_without(
    span: Span,
    condition: Expr,
    common: frozenset[Expr],
    literals: Sequence[int],
    refuted: Refuted,
) -> bool:
    """Whether the span's interval is empty wherever `condition` fails."""
    assert isinstance(span.value, Binary)
    a, b = span.value.a, span.value.b
    failing = [*sorted(common, key=repr), negate(condition)]
    last = literals[-1]
    if refuted([*failing, ix.compare("<", a, ix.mul(last, b))]):
        literals = [last]
    for literal in literals:
        length = (span.upper - span.lower).at({span.name: constant(literal)}).expr()
        at = (ix.compare("<=", ix.mul(literal, b), a), ix.compare("<", a, ix.mul(literal + 1, b)))
        if not refuted([*failing, *at, ix.compare("!=", length, 0)]):
            return False
    return True
