"""Breaks: a loop and the comparisons inside it go in; the iterations where answers change come out.

The bounds of the loops further in give the least and the greatest value of a comparison's two sides,
hence the iterations from which on it always holds and those up to which it never does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from offcut.core import index as ix
from offcut.core.expr import (
    Binary,
    Compare,
    Const,
    Expr,
    Var,
    reads_memory,
    substitute,
    variables,
)
from offcut.core.interpret.values import evaluate
from offcut.core.program import For, Size
from offcut.partition.comparisons import LoopComparison
from offcut.polyhedral import Facts

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
