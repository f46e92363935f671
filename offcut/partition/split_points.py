"""Comparisons of indices inside of a loop, and the iterations where their answers change.

The bounds of the loops further in give the least and the greatest value of a comparison's two sides,
hence the iterations from which on it always holds and those up to which it never does.

Comparisons of indices: statements go in, each comparison in them comes out with what is around it.

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
    Var,
    children,
    dtype_of,
    reads_memory,
    rebuild,
    substitute,
    variables,
    walk,
)
from offcut.core.interpret.values import evaluate
from offcut.core.program import Alloc, Choose, For, If, Let, Size, Stmt, Store, Tile
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


BORDER = 16  # iterations: a part that is no longer than this may keep a condition for the next loop


def find_split_points(
    loop: For, comparisons: Sequence[LoopComparison], inner: Facts, sizes: Sequence[Size]
) -> list[Expr]:
    """Where the answers change along `loop`, in ascending order for large sizes.

    inner   what is known inside the loop
    """
    split_points: dict[Expr, None] = {}
    for one in comparisons:
        if loop.iter not in variables(one.atom):
            continue
        for form in _as_differences(one.atom, loop.iter):
            first_true, never = (
                _first(form, one.loops, loop.iter, least) for least in (True, False)
            )
            if first_true is None or never is None:
                continue
            further_in = first_true != never or one.in_bound
            if further_in and _left_to_inner(first_true, never, loop, inner):
                continue
            if one.tie_is_free and first_true == never:
                first_true = never = _of_tie(one, first_true, loop, inner, sizes)
            between = (
                (first_true, never) if _smaller(first_true, never, sizes) else (never, first_true)
            )
            if first_true == never or _is_bounded(*between, loop, inner):
                split_points |= dict.fromkeys(between)
    inside = [b for b in split_points if _cuts(b, loop, inner)]
    return sorted(inside, key=lambda at: evaluate(at, _sample(sizes, at)))


def _left_to_inner(first_true: Expr, never: Expr, loop: For, inner: Facts) -> bool:
    """Whether a loop of few iterations is better left whole: where its breaks depend on sizes,
    the loop inside that the condition depends on too can be cut instead, or asks for its bound once.
    """
    literal = ix.literal_value(first_true) is not None and ix.literal_value(never) is not None
    return not literal and is_short(loop, inner)


def is_short(loop: For, inner: Facts) -> bool:
    """Whether a loop is as few iterations as a border, at all sizes."""
    return inner.holds(ix.compare("<=", ix.sub(loop.hi, loop.lo), BORDER))


def _of_tie(
    one: LoopComparison, first_true: Expr, loop: For, inner: Facts, sizes: Sequence[Size]
) -> Expr:
    """Where to cut for a comparison that may have either answer where its sides are equal: of both ends of these iterations, that which
    leaves most of the loop on one side.

    first_true  the end of them at which the answer changes
    """
    strictly = replace(one.atom, op="<")
    forms = _as_differences(strictly, loop.iter)
    also = (
        next((_first(form, one.loops, loop.iter, least=True) for form in forms), None) or first_true
    )
    low, high = (
        (first_true, also) if inner.holds(Compare("<=", first_true, also)) else (also, first_true)
    )
    names = _sample(sizes, low, high, loop.lo, loop.hi)
    before, after = ix.sub(low, loop.lo), ix.sub(loop.hi, high)
    return low if evaluate(before, names) <= evaluate(after, names) else high


def _smaller(a: Expr, b: Expr, sizes: Sequence[Size]) -> bool:
    return evaluate(a, _sample(sizes, a, b)) <= evaluate(b, _sample(sizes, a, b))


def _is_bounded(low: Expr, high: Expr, loop: For, inner: Facts) -> bool:
    """Whether ``low:high``, where the answer varies, is bounded while the rest of the loop is not."""
    longer = inner.without(loop.iter).where(Compare(">", ix.sub(high, low), ix.const(BORDER)))
    if not longer.empty:
        return False
    before = Compare("<", Var(loop.iter), low)
    after = Compare(">=", Var(loop.iter), high)
    return not (inner.where(before).empty and inner.where(after).empty)


def _cuts(at: Expr, loop: For, inner: Facts) -> bool:
    """Whether iterations can lie on both sides of a break."""
    before, after = (Compare(op, Var(loop.iter), at) for op in ("<", ">="))
    return not inner.where(before).empty and not inner.where(after).empty


def _sample(sizes: Sequence[Size], *exprs: Expr) -> dict[str, int]:
    """Large values for all names in `exprs`: sizes far apart from small constants."""
    large = {size.name: min(size.max, 10_000) for size in sizes}
    names = set().union(*map(variables, exprs))
    return {name: large.get(name, 5_000) for name in names}


def _as_differences(atom: Compare, x: str) -> Iterator[Expr]:
    """Expressions e, linear in `x`, such that the answer changes where one of ``e >= 0`` does."""
    a, b = atom.a, atom.b
    upward = ix.sub(a, b)
    forms = {
        ">=": (upward,),
        ">": (ix.sub(upward, 1),),
        "<=": (upward, ix.sub(upward, 1))[1:],
        "<": (upward,),
        "==": (upward, ix.sub(upward, 1)),
        "!=": (upward, ix.sub(upward, 1)),
    }[atom.op]
    for form in forms:
        linear = _without_floor(form, x)
        if linear is not None:
            yield linear


def _without_floor(form: Expr, x: str) -> Expr | None:
    """e' with ``e' >= 0`` exactly where ``form >= 0``, linear in `x`: ``g // d >= t`` is ``g >= d*t``."""
    terms = [(atom, factor) for atom, factor in ix.to_linear(form).terms if x in variables(atom)]
    if all(atom == Var(x) for atom, _ in terms):
        return form
    match terms:
        case [(Binary("//", inner, Const(value, _)) as floor, (1 | -1) as factor)]:
            divisor = int(value)
            rest = ix.sub(form, ix.mul(factor, floor))
            if factor == 1:
                linear = ix.add(inner, ix.mul(divisor, rest))
            else:
                linear = ix.sub(ix.add(ix.mul(divisor, rest), divisor - 1), inner)
            return _without_floor(linear, x)
        case _:
            return None


def _first(form: Expr, loops: Sequence[tuple[str, Expr, Expr]], x: str, least: bool) -> Expr | None:
    """Where ``form >= 0`` changes along `x`, with the inner loops at what makes it least or greatest."""
    for name, lo, hi in reversed(loops):
        factor = dict(ix.to_linear(form).terms).get(Var(name), 0)
        if factor == 0:
            if name in variables(form):
                return None
            continue
        at = lo if (factor > 0) == least else ix.sub(hi, 1)
        form = ix.simplify(substitute(form, {name: at}))
    if reads_memory(form):  # only a call knows where
        return None
    terms = dict(ix.to_linear(form).terms)
    factor = terms.get(Var(x), 0)
    rest = ix.sub(form, ix.mul(factor, Var(x)))
    if factor == 0 or x in variables(rest):
        return None
    if factor > 0:
        return ix.ceildiv(ix.sub(0, rest), factor)
    return ix.add(ix.floordiv(rest, -factor), 1)
