"""Elements of a computation as polynomials, where facts decide the conditions of indices.

What is computed in between is written out. A condition that depends on a reduction's own coordinates cuts the reduction in two; one
that depends on coordinates of the result is `Undecided`, for whoever asks to look at both cases.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import reduce
from itertools import combinations, count
from math import isfinite
from typing import Any, TypeAlias

from offcut.core import index as ix
from offcut.core.conditions import negated
from offcut.core.dtypes import FLOATS, INTEGERS, ITEM_BYTES, ends
from offcut.core.expr import (
    Binary,
    Cast,
    Compare,
    Const,
    Expr,
    Load,
    Logic,
    Select,
    Unary,
    Var,
    dtype_of,
    reads_memory,
    substitute,
    variables,
)
from offcut.describe.computation import Computation, Stage
from offcut.polyhedral import Facts
from offcut.proof.by_algebra import terms as tm
from offcut.proof.by_algebra.terms import NotShown, Polynomial

MAX_STEPS = 200_000
"""Nodes of expressions that are looked at for one pair of computations, at most."""
MAX_POWER = 8
_FLIPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "==", "!=": "!="}


class Undecided(Exception):
    """A condition of indices that holds at some coordinates and not at others."""

    def __init__(self, condition: Expr) -> None:
        super().__init__(condition)
        self.condition = condition


class Elements:
    """The elements of a computation's results, in terms of its inputs.

    sizes           sizes that stand for expressions of others
    cuts_extremes   whether the greater and the lesser of two indices are two cases; else they stay one expression where facts do not decide
    """

    def __init__(
        self, computation: Computation, sizes: Mapping[str, Expr], cuts_extremes: bool
    ) -> None:
        self.cuts_extremes = cuts_extremes
        every = [_in_sizes(stage, sizes) for group in computation.groups for stage in group]
        self.stages: dict[str, Stage] = {stage.buffer: stage for stage in every}
        self.fresh = count()
        self.steps = 0

    def of(self, result: str, point: Sequence[Expr], at: Facts) -> Polynomial:
        """Return the element of a result at a point.

        Raises Undecided where that depends on a condition, NotShown where it is not followed.
        """
        return self.load(Load(result, tuple(point), dtype_of(self.stages[result].body)), at)

    def load(self, expr: Load, at: Facts) -> Polynomial:
        """Return an element of an input, or of a stage written out."""
        stage = self.stages.get(expr.buffer)
        if stage is None:
            return tm.atom("load", expr.buffer, tuple(self.place(one, at) for one in expr.index))
        if stage.reducer is None:
            return self.value(self.written_out(expr), at)
        values = {axis.name: one for axis, one in zip(stage.axes, expr.index, strict=True)}
        axes = {axis.name: f"k@{next(self.fresh)}" for axis in stage.reduce_axes}
        own = values | {old: Var(new) for old, new in axes.items()}
        extents = {
            axes[one.name]: self.index(substitute(one.extent, values), at)
            for one in stage.reduce_axes
        }
        body = substitute(stage.value, own)
        return self.reduction(stage.reducer, body, extents, at)

    def is_written_out(self, buffer: str) -> bool:
        """Whether an array is computed element by element."""
        return buffer in self.stages and self.stages[buffer].reducer is None

    def written_out(self, expr: Expr) -> Expr:
        """Return what an element is computed from, where it is computed by itself; else the expression."""
        while isinstance(expr, Load) and self.is_written_out(expr.buffer):
            stage = self.stages[expr.buffer]
            values = {axis.name: one for axis, one in zip(stage.axes, expr.index, strict=True)}
            expr = substitute(stage.value, values)
        return expr

    def value(self, expr: Expr, at: Facts) -> Polynomial:
        """Return what an expression of elements is."""
        self.steps += 1
        if self.steps > MAX_STEPS:
            raise NotShown("its elements are too long an expression")
        dtype = dtype_of(expr)
        modulus = 1 << 8 * ITEM_BYTES[dtype] if dtype in INTEGERS else 0
        match expr:
            case Const(number, _):
                if dtype in (*FLOATS, *INTEGERS) and isfinite(number):
                    return tm.number(Fraction(number), modulus)
                return tm.atom("const", repr(number), dtype)
            case Load():
                return self.load(expr, at)
            case Unary("neg", a):
                return tm.scale(self.value(a, at), -1, modulus)
            case Unary("exp", a):
                return tm.exponential(self.value(a, at))
            case Unary("log", a):
                return tm.logarithm(self.value(a, at))
            case Unary("tanh", a):
                falling = tm.exponential(tm.scale(self.value(a, at), -2))
                low = tm.inverse(tm.add(tm.number(1), falling))
                return tm.multiply(tm.add(tm.number(1), tm.scale(falling, -1)), low)
            case Unary(op, a):
                return tm.atom("fn", op, dtype, self.value(a, at))
            case Binary("+", a, b):
                return tm.add(self.value(a, at), self.value(b, at), modulus=modulus)
            case Binary("-", a, b):
                less = tm.scale(self.value(b, at), -1, modulus)
                return tm.add(self.value(a, at), less, modulus=modulus)
            case Binary("*", a, b):
                return tm.multiply(self.value(a, at), self.value(b, at), modulus)
            case Binary("/", a, b) if dtype in FLOATS:
                divisor = self.value(b, at)
                if not divisor:
                    raise NotShown("it divides by 0")
                return tm.multiply(self.value(a, at), tm.inverse(divisor))
            case Binary("min" | "max" as op, a, b):
                return extreme(op, [self.value(a, at), self.value(b, at)], dtype)
            case Binary("pow", a, Const(exponent, _)) if dtype in FLOATS and exponent in range(
                1, MAX_POWER + 1
            ):
                return tm.power(self.value(a, at), int(exponent))
            case Binary(op, a, b):
                return tm.atom("fn", op, dtype, self.value(a, at), self.value(b, at))
            case Select(condition, then, other):
                asked = self.condition(condition, at)
                if isinstance(asked, bool):
                    return self.value(then if asked else other, at)
                one, two = self.value(then, at), self.value(other, at)
                return one if one == two else tm.atom("where", asked, one, two)
            case Compare() | Logic():
                asked = self.condition(expr, at)
                return (
                    tm.atom("const", str(int(asked)), "bool")
                    if isinstance(asked, bool)
                    else tm.atom("holds", asked)
                )
            case Cast(a, _):
                return self.cast(a, dtype, at)
            case _:
                raise NotShown(f"{type(expr).__name__} is not followed")

    def cast(self, a: Expr, dtype: str, at: Facts) -> Polynomial:
        """Return a converted value: floats stay what they are, whatever their digits."""
        own = dtype_of(a)
        if own == "index" and dtype != "bool" and not reads_memory(a):
            modulus = 1 << 8 * ITEM_BYTES[dtype] if dtype in INTEGERS else 0
            return _number_of(tm.linear(self.index(a, at)), modulus)
        if own == "index":
            return tm.atom("index", self.place(a, at), dtype)
        inner = self.value(a, at)
        if own == dtype or (own in FLOATS and dtype in FLOATS):
            return inner
        return tm.atom("cast", own, dtype, inner)

    # Conditions and indices

    def condition(self, expr: Expr, at: Facts) -> Any:
        """Return whether a condition holds, or an atom of one that elements decide."""
        match expr:
            case Const(value, _):
                return bool(value)
            case Logic("not", (inner,)):
                asked = self.condition(inner, at)
                return not asked if isinstance(asked, bool) else ("not", asked)
            case Logic(op, args):
                left = set[Any]()
                for one in args:
                    asked = self.condition(one, at)
                    if asked is (op == "or"):
                        return asked
                    if not isinstance(asked, bool):
                        left.add(asked)
                if not left:
                    return op == "and"
                return next(iter(left)) if len(left) == 1 else (op, frozenset(left))
            case Load(buffer) if self.is_written_out(buffer):
                return self.condition(self.written_out(expr), at)
            case Compare(op, a, b):
                first, second = _as_index(self.written_out(a)), _as_index(self.written_out(b))
                if first is not None and second is not None:
                    compared = Compare(op, self.index(first, at), self.index(second, at))
                    decided = at.decide(compared)
                    if decided is None and at.expresses(compared):
                        raise Undecided(compared)
                    if decided is None:
                        return ("compared", op, tm.linear(compared.a), tm.linear(compared.b))
                    return decided
                left_side, right_side = self.value(a, at), self.value(b, at)
                if op in (">", ">="):
                    op, left_side, right_side = _FLIPPED[op], right_side, left_side
                sides: Any = (left_side, right_side)
                if op in ("==", "!="):
                    sides = frozenset(sides)
                return ("compared", op, dtype_of(a), sides)
            case _:
                return ("true", self.value(expr, at))

    def place(self, expr: Expr, at: Facts) -> tm.Atom:
        """Return one index of an element, which an element may give."""
        if isinstance(expr, Cast) and reads_memory(expr):
            return ("at", self.value(expr.a, at))
        if dtype_of(expr) == "index":
            return tm.linear(self.index(expr, at))
        return ("at", self.value(expr, at))

    def index(self, expr: Expr, at: Facts) -> Expr:
        """Return an index expression with each extreme and quotient decided that facts decide."""
        match expr:
            case Binary("min" | "max" as op, a, b):
                one, two = self.index(a, at), self.index(b, at)
                made = at.extreme(op, one, two)
                asked = Compare("<=", one, two)
                is_open = isinstance(made, Binary) and made.op == op
                if is_open and self.cuts_extremes and at.expresses(asked):
                    raise Undecided(asked)
                return made
            case Binary("//" | "%" as op, a, b):
                one, two = self.index(a, at), self.index(b, at)
                parts = _divided(one, two, at)
                if parts is not None:
                    return parts[op == "%"]
                return (ix.floordiv if op == "//" else ix.mod)(one, two)
            case Binary(op, a, b):
                return ix.simplify(Binary(op, self.index(a, at), self.index(b, at)))
            case Select(condition, then, other):
                asked = self.condition(condition, at)
                if not isinstance(asked, bool):
                    raise NotShown("an index depends on elements")
                return self.index(then if asked else other, at)
            case _:
                return ix.simplify(expr)

    def furthest(self, op: str, values: Sequence[Expr], at: Facts) -> Expr:
        """Return the least or the greatest of index expressions, a literal one where it is one of several."""
        no_less = ">=" if op == "max" else "<="
        for one in sorted(values, key=lambda value: ix.literal(value) is None):
            if all(at.holds(Compare(no_less, one, other)) for other in values if other != one):
                return one
        if not self.cuts_extremes:
            return reduce(ix.maximum if op == "max" else ix.minimum, dict.fromkeys(values))
        for one, other in combinations(dict.fromkeys(values), 2):
            asked = Compare("<=", one, other)
            if at.decide(asked) is None and at.expresses(asked):
                raise Undecided(asked)
        raise NotShown("the ends of a reduction are not compared")

    # Reductions

    def reduction(self, op: str, body: Expr, extents: Mapping[str, Expr], at: Facts) -> Polynomial:
        """Return a reduction over coordinates, each from 0 to its extent."""
        known = at
        for name, extent in extents.items():
            known = known.loop(name, ix.const(0), extent)
        return self.where(op, body, extents, (), at, known)

    def where(
        self,
        op: str,
        body: Expr,
        extents: Mapping[str, Expr],
        conditions: tuple[Expr, ...],
        at: Facts,
        known: Facts,
    ) -> Polynomial:
        """Return the part of a reduction where conditions hold.

        at, known   what is known around it, and inside
        """
        dtype = dtype_of(body)
        if known.empty:
            return identity(op, dtype)
        try:
            inner = self.value(body, known)
        except Undecided as asked:
            if not variables(asked.condition) & extents.keys():
                raise
            both = [
                self.where(op, body, extents, (*conditions, one), at, known.where(one))
                for one in _cases(asked.condition)
            ]
            if op == "sum":
                modulus = 1 << 8 * ITEM_BYTES[dtype] if dtype in INTEGERS else 0
                return tm.add(*both, modulus=modulus)
            return extreme(op, both, dtype)
        return self.closed(op, inner, extents, conditions, at, dtype)

    def closed(
        self,
        op: str,
        inner: Polynomial,
        extents: Mapping[str, Expr],
        conditions: tuple[Expr, ...],
        at: Facts,
        dtype: str,
    ) -> Polynomial:
        """Return a reduction with its coordinates counted from 0."""
        if op == "sum" and not inner:
            return inner
        lows: dict[str, list[Expr]] = {name: [ix.const(0)] for name in extents}
        highs = {name: [extent] for name, extent in extents.items()}
        left = list[Expr]()
        for condition in conditions:
            end = end_of(condition, extents.keys())
            if end is None:
                left.append(condition)
                continue
            name, low, high = end
            lows[name] += [low] if low is not None else []
            highs[name] += [high] if high is not None else []
        shift, sizes = dict[str, tm.Atom](), dict[str, Expr]()
        for name in extents:
            first = self.furthest("max", lows[name], at)
            size = ix.simplify(ix.sub(self.furthest("min", highs[name], at), first))
            if at.holds(Compare("<=", size, ix.const(0))):
                return identity(op, dtype)
            if at.holds(Compare("<=", size, ix.const(1))):
                _check_there(size, at)
                shift[name] = tm.linear(first)
            else:
                shift[name] = tm.linear(ix.add(Var(name), first))
                sizes[name] = size
        body = tm.replaced(inner, shift)
        kept = frozenset(
            ("compared", one.op, tm.replaced(tm.linear(ix.sub(one.a, one.b)), shift))
            for one in left
            if isinstance(one, Compare)
        )
        if len(kept) < len(set(left)):
            raise NotShown("a reduction is cut by a condition that is not followed")
        if op != "sum":
            several = _alternatives(op, body)
            if len(several) > 1:
                each = [
                    self.closed(op, one, extents, conditions, at, dtype)
                    for one in _alternatives(op, inner)
                ]
                return extreme(op, each, dtype)
            if tm.coordinates(body) & sizes.keys() or kept:
                return tm.atom(*tm.bound(op, _linear(sizes), kept, body))
            for size in sizes.values():
                _check_there(size, at)
            constant: Polynomial = body
            return constant
        modulus = 1 << 8 * ITEM_BYTES[dtype] if dtype in INTEGERS else 0
        parts = (self.summed(m, c, sizes, kept, modulus, at) for m, c in body)
        return tm.add(*parts, modulus=modulus)

    def summed(
        self,
        monomial: tm.Monomial,
        coefficient: Fraction,
        sizes: Mapping[str, Expr],
        conditions: frozenset[Any],
        modulus: int,
        at: Facts,
    ) -> Polynomial:
        """Return the sum of a monomial: what does not depend on a coordinate stands outside; sums of sums are one."""
        extents = _linear(sizes)
        factors = list[tuple[tm.Atom, Fraction]]()
        for one, exponent in monomial:
            # A sum whose length depends on a coordinate, as in a triangle, stays a factor.
            if (
                one[0] == "sum"
                and exponent == 1
                and tm.coordinates(one) & extents.keys()
                and not tm.coordinates(one[1]) & extents.keys()
            ):
                new_names = [f"k@{next(self.fresh)}" for _ in one[1]]
                pairs = zip(tm.bound_names(one), new_names, strict=True)
                renamed = {old: tm.coordinate(new) for old, new in pairs}
                extents |= dict(zip(new_names, one[1], strict=True))
                conditions |= tm.replaced(one[2], renamed)
                factors += tm.replaced(one[3], renamed)
            else:
                factors.append((one, exponent))
        made = tm.number(coefficient, modulus)
        parts = _components(extents, factors, conditions)
        for names, some, holding in parts:
            if not names:
                made = tm.multiply(made, frozenset({(frozenset(some), Fraction(1))}), modulus)
            elif not some and not holding:
                for name in names:
                    if name not in sizes:
                        raise NotShown("a sum in a sum has terms that are equal")
                    _check_there(sizes[name], at)
                    made = tm.multiply(made, _number_of(extents[name], modulus), modulus)
            else:
                mine = {name: extents[name] for name in names}
                inside = tm.bound("sum", mine, frozenset(holding), frozenset(some))
                made = tm.multiply(made, tm.atom(*inside), modulus)
        return made


_Group: TypeAlias = tuple[frozenset[str], list[tuple[tm.Atom, Fraction]], list[Any]]


def _components(
    extents: Mapping[str, tm.Atom],
    factors: Sequence[tuple[tm.Atom, Fraction]],
    conditions: frozenset[Any],
) -> list[_Group]:
    """Factors and conditions in groups that share no coordinate; those of none first."""
    outside: _Group = (frozenset(), [], [])
    groups: list[_Group] = [(frozenset({name}), [], []) for name in extents]
    for one, is_factor in (*((f, True) for f in factors), *((c, False) for c in conditions)):
        names = tm.coordinates(one) & extents.keys()
        touched = [group for group in groups if group[0] & names] or [outside]
        joined: _Group = (
            frozenset().union(*(group[0] for group in touched)),
            [f for group in touched for f in group[1]],
            [c for group in touched for c in group[2]],
        )
        (joined[1] if is_factor else joined[2]).append(one)
        if touched == [outside]:
            outside = joined
        else:
            groups = [*(group for group in groups if not group[0] & names), joined]
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
    """The values of which a value is the least or the greatest."""
    if len(value) == 1:
        ((monomial, coefficient),) = value
        if len(monomial) == 1 and coefficient == 1:
            ((one, exponent),) = monomial
            if one[0] == f"{op} of" and exponent == 1:
                found: frozenset[Polynomial] = one[1]
                return found
    return frozenset({value})


def identity(op: str, dtype: str) -> Polynomial:
    """Return what a reduction of nothing is."""
    modulus = 1 << 8 * ITEM_BYTES[dtype] if dtype in INTEGERS else 0
    if op == "sum":
        return tm.ZERO
    if dtype in FLOATS:
        return tm.atom("const", "-inf" if op == "max" else "inf", dtype)
    return tm.number(int(ends(dtype)[op == "min"]), modulus)


def _linear(sizes: Mapping[str, Expr]) -> dict[str, tm.Atom]:
    return {name: tm.linear(size) for name, size in sizes.items()}


def _number_of(index: tm.Atom, modulus: int) -> Polynomial:
    """An index as a number."""
    _, terms, constant = index
    every = (
        tm.scale(tm.atom("place", ("lin", frozenset({(one, 1)}), 0)), factor, modulus)
        for one, factor in terms
    )
    return tm.add(*every, tm.number(constant, modulus), modulus=modulus)


def _in_sizes(stage: Stage, sizes: Mapping[str, Expr]) -> Stage:
    """A stage with expressions in place of sizes that stand for them."""
    axes, reduced = (
        tuple(replace(one, extent=substitute(one.extent, sizes)) for one in some)
        for some in (stage.axes, stage.reduce_axes)
    )
    return replace(stage, axes=axes, reduce_axes=reduced, body=substitute(stage.body, sizes))


def _cases(condition: Expr) -> tuple[Expr, Expr]:
    return condition, negated(condition)


def _as_index(expr: Expr) -> Expr | None:
    """An index expression, or an integer element that is one: a place that was converted, a literal."""
    match expr:
        case Cast(a, "int64") if dtype_of(a) == "index":
            return a
        case Const(value, "int64"):
            return ix.const(int(value))
        case _:
            return expr if dtype_of(expr) == "index" and not reads_memory(expr) else None


def _divided(a: Expr, b: Expr, at: Facts) -> tuple[Expr, Expr] | None:
    """Quotient and remainder of ``a // b``, where `a` is a multiple of `b` and a rest within it."""
    form, by = ix.linear(a), ix.literal(b)
    whole, rest = list[Expr | int](), list[Expr | int]()
    for one, coefficient in form.terms:
        if by is not None and coefficient % by == 0:
            whole.append(ix.mul(coefficient // by, one))
        elif isinstance(one, Binary) and one.op == "*" and b in (one.a, one.b):
            whole.append(ix.mul(coefficient, one.a if one.b == b else one.b))
        elif one == b:
            whole.append(coefficient)
        else:
            rest.append(ix.mul(coefficient, one))
    left = ix.simplify(ix.add(*rest, form.const))
    inside = at.holds(Compare(">=", left, ix.const(0))) and at.holds(Compare("<", left, b))
    return (ix.simplify(ix.add(*whole, 0)), left) if inside else None


def end_of(condition: Expr, names: Any) -> tuple[str, Expr | None, Expr | None] | None:
    """The coordinate that a condition bounds, the first value that it allows, and the first beyond; None where it is no such condition."""
    if not isinstance(condition, Compare) or condition.op == "!=":
        return None
    form = ix.linear(ix.sub(condition.a, condition.b))
    mine = [(one.name, c) for one, c in form.terms if isinstance(one, Var) and one.name in names]
    if len(mine) != 1 or abs(mine[0][1]) != 1:
        return None
    name, sign = mine[0]
    rest = replace(form, terms=tuple(t for t in form.terms if t[0] != Var(name))).expr()
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
    """Check that a reduction has a term, whatever the coordinates around it."""
    asked = Compare(">=", size, ix.const(1))
    if not at.holds(asked):
        if not at.expresses(asked):
            raise NotShown("whether a reduction has a term is not told")
        raise Undecided(asked)
