"""Comparisons of indices: statements go in, each comparison in them comes out with what is around it.

`fold_comparisons` takes an expression, and gives it without the comparisons whose answers are known there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from offcut.core import index as ix
from offcut.core.expr import (
    Binary,
    Compare,
    Const,
    Expr,
    Load,
    Logic,
    Select,
    children,
    dtype_of,
    rebuild,
    walk,
)
from offcut.core.program import Alloc, Choose, For, If, Let, Stmt, Store, Tile
from offcut.core.traversal import expressions
from offcut.polyhedral import Facts


@dataclass(frozen=True, slots=True)
class LoopComparison:
    """A comparison inside a loop.

    loops       the loops between: (name, lo, hi), outermost first
    conditions  under which it is asked
    in_bound    whether it is in a bound of a loop, and so asked once for all iterations of that
    tie_is_free whether either answer will do where both sides are equal: it says which side ``min(a, b)`` or ``max(a, b)`` is
    """

    atom: Compare
    loops: tuple[tuple[str, Expr, Expr], ...] = ()
    conditions: tuple[Expr, ...] = ()
    in_bound: bool = False
    tie_is_free: bool = False


_NOWHERE = LoopComparison(Compare("==", ix.const(0), ix.const(0)))


def is_index(atom: Compare) -> bool:
    """Whether a comparison is of indices that no memory says."""
    no_loads = not any(isinstance(node, Load) for node in walk(atom))
    return no_loads and dtype_of(atom.a) == "index"


def facts_inside(comparison: LoopComparison, inner: Facts) -> Facts:
    """What is known where a comparison is asked, inside of a loop."""
    for name, lo, hi in comparison.loops:
        inner = inner.loop(name, lo, hi)
    for condition in comparison.conditions:
        inner = inner.where(condition)
    return inner


def comparisons(body: Sequence[Stmt], at: LoopComparison = _NOWHERE) -> Iterator[LoopComparison]:
    """Every comparison in `body`, with ``min(a, b)`` as ``a <= b``; `at` says what lies around.

    What masks a tile is part of the tile, and stays.
    """
    for stmt in body:
        masked = isinstance(stmt, Tile) and stmt.where is not None
        here = replace(at, in_bound=isinstance(stmt, For))
        for expr in expressions(stmt)[: -1 if masked else None]:
            yield from _comparisons_in(expr, here)
        match stmt:
            case For(name, lo, hi, inner):
                yield from comparisons(inner, replace(at, loops=(*at.loops, (name, lo, hi))))
            case Tile(axes, inner):
                bounds = ((a.iter, a.start, ix.add(a.start, a.extent)) for a in axes)
                yield from comparisons(inner, replace(at, loops=(*at.loops, *bounds)))
            case If(condition, then, other):
                yield from comparisons(then, _under(at, condition))
                yield from comparisons(other, _under(at, Logic("not", (condition,))))
            case Let() | Alloc():
                yield from comparisons(stmt.body, at)
            case Choose(options):
                for option in options:
                    yield from comparisons(option.body, at)
            case Store():
                pass


def _under(at: LoopComparison, condition: Expr) -> LoopComparison:
    return replace(at, conditions=(*at.conditions, condition))


def _comparisons_in(expr: Expr, at: LoopComparison) -> Iterator[LoopComparison]:
    """The comparisons in an expression, each where it is asked."""
    match expr:
        case Select(condition, then, other):
            yield from _comparisons_in(condition, at)
            yield from _comparisons_in(then, _under(at, condition))
            yield from _comparisons_in(other, _under(at, Logic("not", (condition,))))
        case Logic("and" | "or" as op, args):
            for arg in args:
                yield from _comparisons_in(arg, at)
                at = _under(at, arg if op == "and" else Logic("not", (arg,)))
        case Binary("min" | "max", a, b) if dtype_of(a) == "index":
            yield replace(at, atom=Compare("<=", a, b), tie_is_free=True)
            yield from _comparisons_in(a, at)
            yield from _comparisons_in(b, at)
        case _:
            if isinstance(expr, Compare):
                yield replace(at, atom=expr)
            for child in children(expr):
                yield from _comparisons_in(child, at)


def fold_comparisons(expr: Expr, at: Facts) -> Expr:
    """`expr` with its comparisons of indices replaced by their values where `at` decides them."""
    match expr:
        case Compare():
            if is_index(expr):
                answer = at.decide(expr)
                if answer is not None:
                    return Const(int(answer), "bool")
            return _rebuilt(expr, at)
        case Logic("not", (arg,)):
            inner = fold_comparisons(arg, at)
            if isinstance(inner, Const):
                return Const(int(not inner.value), "bool")
            return Logic("not", (inner,))
        case Logic(op, args):
            return _joined_condition(op, args, at)
        case Select(condition, then, other):
            verdict = fold_comparisons(condition, at)
            if isinstance(verdict, Const):
                return fold_comparisons(then if verdict.value else other, at)
            yes = fold_comparisons(then, at.where(verdict))
            no = fold_comparisons(other, at.where(Logic("not", (verdict,))))
            return Select(verdict, yes, no)
        case Binary("min" | "max" as op, a, b) if dtype_of(a) == "index":
            return at.extreme(op, fold_comparisons(a, at), fold_comparisons(b, at))
        case _:
            return _rebuilt(expr, at)


def _rebuilt(expr: Expr, at: Facts) -> Expr:
    rebuilt_expr = rebuild(expr, tuple(fold_comparisons(child, at) for child in children(expr)))
    return rebuilt_expr if rebuilt_expr is expr else ix.fold_indices(rebuilt_expr)


def _joined_condition(op: str, args: Sequence[Expr], at: Facts) -> Expr:
    """A conjunction or disjunction without what is decided."""
    stops, whole, known = op == "or", Logic(op, tuple(args)), at
    open_parts: list[Expr] = []
    for arg in args:
        one = fold_comparisons(arg, at)
        if isinstance(one, Const):
            if bool(one.value) == stops:
                return Const(int(stops), "bool")
            continue
        open_parts.append(one)
        at = at.where(Logic("not", (one,)) if stops else one)
    if not open_parts:
        return Const(int(not stops), "bool")
    if stops and not known.expresses(whole):
        return whole  # what sets cannot say is compared as it stands
    return open_parts[0] if len(open_parts) == 1 else Logic(op, tuple(open_parts))
