"""Two statements and the facts where they stand -> whether they store the same, or one of them nothing that counts."""

from __future__ import annotations

from collections.abc import Sequence

from offcut.core import index as ix
from offcut.core.analysis import Analysis
from offcut.core.conditions import negate
from offcut.core.dtypes import FLOATS
from offcut.core.expr import (
    Binary,
    Cast,
    Compare,
    Const,
    Expr,
    Logic,
    Select,
    Unary,
    children,
    dtype_of,
    is_same_node,
    reads_memory,
    rewrite,
)
from offcut.core.program import For, If, Stmt, Store
from offcut.polyhedral import Facts

_SMALL = 127  # numbers up to this one are exact in every type


def same_store(source: Store, emitted: Store, at: Facts) -> bool:
    """Whether two stores do the same wherever `at` holds."""
    if (source.buffer, source.reduce) != (emitted.buffer, emitted.reduce):
        return False
    pairs = zip(source.index, emitted.index, strict=True)
    return all(are_equal_at(a, b, at) for a, b in pairs) and are_equal_at(
        source.value, emitted.value, at
    )


def are_equal_at(a: Expr, b: Expr, at: Facts) -> bool:
    """Whether two expressions have one value wherever `at` holds."""
    if a == b:
        return True
    a, b = simplify_at(a, at), simplify_at(b, at)
    (minus, one), (negative, other) = _sign_and_rest(a), _sign_and_rest(b)
    if (one, other) != (a, b):
        return minus == negative and are_equal_at(one, other, at)
    for one, other, swap in ((a, b, False), (b, a, True)):
        cases = _cases(one)
        if cases and all(at.expresses(condition) for condition, _ in cases):
            return all(
                at.where(condition).empty
                or (
                    are_equal_at(other, value, at.where(condition))
                    if swap
                    else are_equal_at(value, other, at.where(condition))
                )
                for condition, value in cases
            )
    if dtype_of(a) == "index" and dtype_of(b) == "index":
        return at.holds(Compare("==", a, b)) or _extremes(a, at) == _extremes(b, at)
    pairs = zip(children(a), children(b), strict=False)
    return is_same_node(a, b) and all(are_equal_at(x, y, at) for x, y in pairs)


def simplify_at(expr: Expr, at: Facts) -> Expr:
    """`expr`, a condition or a choice by one, without the comparisons that `at` decides.

    So is what is converted; a small number is converted at once, for it is the same in every type.
    """
    match expr:
        case Compare() if at.expresses(expr):
            answer = at.decide(expr)
            return expr if answer is None else Const(int(answer), "bool")
        case Compare(op, a, b) if dtype_of(a) == "index":
            known = Compare(op, _extremes(a, at), _extremes(b, at))
            return simplify_at(known, at) if at.expresses(known) else expr
        case Logic("not", (arg,)):
            inner = simplify_at(arg, at)
            if isinstance(inner, Const):
                return Const(int(not inner.value), "bool")
            return Logic("not", (inner,))
        case Logic(op, args):
            open_parts: dict[Expr, None] = {}
            for arg in args:
                one = simplify_at(arg, at)
                if not isinstance(one, Const):
                    open_parts[one] = None
                elif bool(one.value) == (op == "or"):
                    return one
            if not open_parts:
                return Const(int(op == "and"), "bool")
            return next(iter(open_parts)) if len(open_parts) == 1 else Logic(op, tuple(open_parts))
        case Select(condition, then, other):
            verdict = simplify_at(condition, at)
            if isinstance(verdict, Const):
                return simplify_at(then if verdict.value else other, at)
            if at.expresses(verdict) and at.holds(negate(verdict)):
                return simplify_at(other, at)
            return Select(verdict, then, other)
        case Cast(arg, dtype):
            arg = simplify_at(arg, at)
            if isinstance(arg, Const) and dtype == "bool":
                return Const(int(arg.value != 0), dtype)
            if isinstance(arg, Const) and 0 <= arg.value <= _SMALL and arg.value % 1 == 0:
                return Const(float(arg.value) if dtype in FLOATS else int(arg.value), dtype)
            return Cast(arg, dtype)
        case _:
            return expr


def _sign_and_rest(expr: Expr) -> tuple[bool, Expr]:
    """(whether it is negated, the rest) of a product: the sign of a factor is the sign of the product."""
    match expr:
        case Unary("neg", a):
            minus, rest = _sign_and_rest(a)
            return not minus, rest
        case Binary("*", a, b) if dtype_of(a) != "index":
            (minus, one), (negative, other) = _sign_and_rest(a), _sign_and_rest(b)
            return minus != negative, Binary("*", one, other)
        case _:
            return False, expr


def has_no_effect(body: Sequence[Stmt], at: Facts, program: Analysis) -> bool:
    """Whether `body` changes nothing wherever `at` holds."""
    if at.empty:
        return True
    for stmt in body:
        match stmt:
            case Store():
                if stmt.reduce is None or not adds_nothing(stmt, stmt.value, at, program):
                    return False
            case For():
                if not has_no_effect(stmt.body, at.loop(stmt.iter, stmt.lo, stmt.hi), program):
                    return False
            case If(condition, then, other):
                if not at.expresses(condition):
                    return all(has_no_effect(each, at, program) for each in (then, other))
                no = at.where(negate(condition))
                if not (
                    has_no_effect(then, at.where(condition), program)
                    and has_no_effect(other, no, program)
                ):
                    return False
            case _:
                return False
    return True


def adds_nothing(store: Store, value: Expr, at: Facts, program: Analysis) -> bool:
    """Whether updating with `value` changes nothing: an identity, or 0.0 in a sum that begins as 0."""
    if at.empty:
        return True
    match value:
        case Select(condition, then, other) if at.expresses(condition):
            return adds_nothing(store, then, at.where(condition), program) and adds_nothing(
                store, other, at.where(negate(condition)), program
            )
        case _:
            return program.adds_nothing(store, value)


def _cases(expr: Expr) -> list[tuple[Expr, Expr]]:
    """(condition, value) of a choice by indices; none for anything else."""
    match expr:
        case Select(condition, then, other) if not reads_memory(condition):
            return [(condition, then), (negate(condition), other)]
        case Binary("min", a, b) if dtype_of(a) == "index":
            return [(Compare("<=", a, b), a), (Compare(">", a, b), b)]
        case Binary("max", a, b) if dtype_of(a) == "index":
            return [(Compare(">=", a, b), a), (Compare("<", a, b), b)]
        case _:
            return []


def _extremes(expr: Expr, at: Facts) -> Expr:
    """An index expression in the canonical form, with each ``min`` and ``max`` that `at` decides as
    what it is: so expressions that are no sets are compared.
    """

    def known(node: Expr) -> Expr | None:
        match node:
            case Binary("min" | "max" as op, a, b):
                return at.extreme(op, a, b)
            case _:
                return None

    return ix.simplify(rewrite(expr, known))
