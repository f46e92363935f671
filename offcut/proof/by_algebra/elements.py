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
from typing import Any

from offcut.core import index as ix
from offcut.core.conditions import negate
from offcut.core.dtypes import FLOATS, INTEGERS
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
from offcut.proof.by_algebra.terms import (
    _FLIPPED,
    NotShown,
    Polynomial,
    Undecided,
    _check_there,
    _components,
    _linear,
    _number_of,
    _values_of_extreme,
    end_of,
    extreme,
    identity,
)

MAX_STEPS = 200_000
"""Nodes of expressions that are looked at for one pair of computations, at most."""
MAX_POWER = 8


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
        """Check whether an array is computed element by element."""
        return buffer in self.stages and self.stages[buffer].reducer is None

    def written_out(self, expr: Expr) -> Expr:
        """Return the expression that an element is computed from, where its stage reduces nothing; else the element as it is."""
        while isinstance(expr, Load) and self.is_written_out(expr.buffer):
            stage = self.stages[expr.buffer]
            values = {axis.name: one for axis, one in zip(stage.axes, expr.index, strict=True)}
            expr = substitute(stage.value, values)
        return expr

    def value(self, expr: Expr, at: Facts) -> Polynomial:
        """Return an expression of elements as a polynomial.

        Raises Undecided where it depends on a condition of indices, NotShown where it is not followed or too long.
        """
        self.steps += 1
        if self.steps > MAX_STEPS:
            raise NotShown("its elements are too long an expression")
        dtype = dtype_of(expr)
        modulus = tm.modulus_of(dtype)
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
                decision = self.condition(condition, at)
                if isinstance(decision, bool):
                    return self.value(then if decision else other, at)
                one, two = self.value(then, at), self.value(other, at)
                return one if one == two else tm.atom("where", decision, one, two)
            case Compare() | Logic():
                decision = self.condition(expr, at)
                return (
                    tm.atom("const", str(int(decision)), "bool")
                    if isinstance(decision, bool)
                    else tm.atom("holds", decision)
                )
            case Cast(a, _):
                return self.cast(a, dtype, at)
            case _:
                raise NotShown(f"{type(expr).__name__} is not followed")

    def cast(self, a: Expr, dtype: str, at: Facts) -> Polynomial:
        """Return a converted value: floats stay what they are, whatever their digits."""
        own = dtype_of(a)
        if own == "index" and dtype != "bool" and not reads_memory(a):
            modulus = tm.modulus_of(dtype)
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
                decision = self.condition(inner, at)
                return not decision if isinstance(decision, bool) else ("not", decision)
            case Logic(op, args):
                open_parts = set[Any]()
                for one in args:
                    decision = self.condition(one, at)
                    if decision is (op == "or"):
                        return decision
                    if not isinstance(decision, bool):
                        open_parts.add(decision)
                if not open_parts:
                    return op == "and"
                return (
                    next(iter(open_parts)) if len(open_parts) == 1 else (op, frozenset(open_parts))
                )
            case Load(buffer) if self.is_written_out(buffer):
                return self.condition(self.written_out(expr), at)
            case Compare(op, a, b):
                first, second = _as_index(self.written_out(a)), _as_index(self.written_out(b))
                if first is not None and second is not None:
                    compared = Compare(op, self.index(first, at), self.index(second, at))
                    verdict = at.decide(compared)
                    if verdict is None and at.expresses(compared):
                        raise Undecided(compared)
                    if verdict is None:
                        return ("compared", op, tm.linear(compared.a), tm.linear(compared.b))
                    return verdict
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
                extreme_index = at.extreme(op, one, two)
                order = Compare("<=", one, two)
                is_open = isinstance(extreme_index, Binary) and extreme_index.op == op
                if is_open and self.cuts_extremes and at.expresses(order):
                    raise Undecided(order)
                return extreme_index
            case Binary("//" | "%" as op, a, b):
                one, two = self.index(a, at), self.index(b, at)
                parts = _quotient_and_remainder(one, two, at)
                if parts is not None:
                    return parts[op == "%"]
                return (ix.floordiv if op == "//" else ix.mod)(one, two)
            case Binary(op, a, b):
                return ix.simplify(Binary(op, self.index(a, at), self.index(b, at)))
            case Select(condition, then, other):
                decision = self.condition(condition, at)
                if not isinstance(decision, bool):
                    raise NotShown("an index depends on elements")
                return self.index(then if decision else other, at)
            case _:
                return ix.simplify(expr)

    def furthest(self, op: str, values: Sequence[Expr], at: Facts) -> Expr:
        """Return the least or the greatest of index expressions, a literal one where it is one of several."""
        no_less = ">=" if op == "max" else "<="
        for one in sorted(values, key=lambda value: ix.literal_value(value) is None):
            if all(at.holds(Compare(no_less, one, other)) for other in values if other != one):
                return one
        if not self.cuts_extremes:
            return reduce(ix.maximum if op == "max" else ix.minimum, dict.fromkeys(values))
        for one, other in combinations(dict.fromkeys(values), 2):
            order = Compare("<=", one, other)
            if at.decide(order) is None and at.expresses(order):
                raise Undecided(order)
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
        except Undecided as undecided:
            if not variables(undecided.condition) & extents.keys():
                raise
            both = [
                self.where(op, body, extents, (*conditions, one), at, known.where(one))
                for one in _cases(undecided.condition)
            ]
            if op == "sum":
                modulus = tm.modulus_of(dtype)
                return tm.add(*both, modulus=modulus)
            return extreme(op, both, dtype)
        return self.normalized_reduction(op, inner, extents, conditions, at, dtype)

    def normalized_reduction(
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
        other_conditions = list[Expr]()
        for condition in conditions:
            end = end_of(condition, extents.keys())
            if end is None:
                other_conditions.append(condition)
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
        body = tm.replace_coordinates(inner, shift)
        inner_conditions = frozenset(
            ("compared", one.op, tm.replace_coordinates(tm.linear(ix.sub(one.a, one.b)), shift))
            for one in other_conditions
            if isinstance(one, Compare)
        )
        if len(inner_conditions) < len(set(other_conditions)):
            raise NotShown("a reduction is cut by a condition that is not followed")
        if op != "sum":
            several = _values_of_extreme(op, body)
            if len(several) > 1:
                each = [
                    self.normalized_reduction(op, one, extents, conditions, at, dtype)
                    for one in _values_of_extreme(op, inner)
                ]
                return extreme(op, each, dtype)
            if tm.coordinates(body) & sizes.keys() or inner_conditions:
                return tm.atom(*tm.reduction_atom(op, _linear(sizes), inner_conditions, body))
            for size in sizes.values():
                _check_there(size, at)
            constant: Polynomial = body
            return constant
        modulus = tm.modulus_of(dtype)
        parts = (self.sum_of_monomial(m, c, sizes, inner_conditions, modulus, at) for m, c in body)
        return tm.add(*parts, modulus=modulus)

    def sum_of_monomial(
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
                conditions |= tm.replace_coordinates(one[2], renamed)
                factors += tm.replace_coordinates(one[3], renamed)
            else:
                factors.append((one, exponent))
        result = tm.number(coefficient, modulus)
        parts = _components(extents, factors, conditions)
        for names, some, holding in parts:
            if not names:
                result = tm.multiply(result, frozenset({(frozenset(some), Fraction(1))}), modulus)
            elif not some and not holding:
                for name in names:
                    if name not in sizes:
                        raise NotShown("a sum in a sum has terms that are equal")
                    _check_there(sizes[name], at)
                    result = tm.multiply(result, _number_of(extents[name], modulus), modulus)
            else:
                mine = {name: extents[name] for name in names}
                sum_atom = tm.reduction_atom("sum", mine, frozenset(holding), frozenset(some))
                result = tm.multiply(result, tm.atom(*sum_atom), modulus)
        return result


def _in_sizes(stage: Stage, sizes: Mapping[str, Expr]) -> Stage:
    """Return a stage with expressions in place of sizes that stand for them."""
    axes, reduced = (
        tuple(replace(one, extent=substitute(one.extent, sizes)) for one in some)
        for some in (stage.axes, stage.reduce_axes)
    )
    return replace(stage, axes=axes, reduce_axes=reduced, body=substitute(stage.body, sizes))


def _cases(condition: Expr) -> tuple[Expr, Expr]:
    return condition, negate(condition)


def _as_index(expr: Expr) -> Expr | None:
    """Return an index expression, also one that was converted to int64, or an int64 literal; None for all else."""
    match expr:
        case Cast(a, "int64") if dtype_of(a) == "index":
            return a
        case Const(value, "int64"):
            return ix.const(int(value))
        case _:
            return expr if dtype_of(expr) == "index" and not reads_memory(expr) else None


def _quotient_and_remainder(a: Expr, b: Expr, at: Facts) -> tuple[Expr, Expr] | None:
    """Return quotient and remainder of ``a // b``, where `a` is a multiple of `b` and a rest in 0…b - 1; None where that is not seen."""
    form, by = ix.to_linear(a), ix.literal_value(b)
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
    remainder = ix.simplify(ix.add(*rest, form.const))
    is_within = at.holds(Compare(">=", remainder, ix.const(0))) and at.holds(
        Compare("<", remainder, b)
    )
    return (ix.simplify(ix.add(*whole, 0)), remainder) if is_within else None
