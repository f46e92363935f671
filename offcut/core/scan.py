"""Loops over the points of a rectangle at which conditions hold.

A comparison that is affine in the innermost axis that it names becomes a bound of that axis' loop:
``2*j <= i`` over the axes i, j becomes ``for j in 0:i//2 + 1``. Any other condition (``!=``, ``or``,
an axis under ``//`` or ``%``) becomes an `if` just inside that loop, one that reads a tensor an
`if` around the instance. A bound that another one implies is left out; what implies what is found
by putting the ends of the surrounding loops into their difference, so that ``max(0, i)`` is ``i``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from offcut.core import index as ix
from offcut.core.conditions import conjunction
from offcut.core.expr import (
    Binary,
    Compare,
    Const,
    Expr,
    Var,
    dtype_of,
    reads_memory,
    substitute,
    variables,
)
from offcut.core.program import For, If, Size, Stmt

Axes = Sequence[tuple[str, Expr]]  # names and extents, outermost first


@dataclass(frozen=True, slots=True)
class Range:
    """``low <= name <= high`` for each low of `lows` and each high of `highs`."""

    name: str
    lows: tuple[Expr, ...]
    highs: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class ScanContext:
    """What sizes and surrounding loops allow, each range in terms of those before it."""

    ranges: tuple[Range, ...] = ()

    @classmethod
    def of(cls, sizes: Iterable[Size]) -> ScanContext:
        """What sizes allow: ``min <= size <= max`` of each."""
        return cls(tuple(Range(s.name, (ix.const(s.min),), (ix.const(s.max),)) for s in sizes))

    def within(self, inner: Range) -> ScanContext:
        """The same inside one more loop."""
        return replace(self, ranges=(*self.ranges, inner))

    def at_least_zero(self, expr: Expr) -> bool:
        """Whether the ranges show that ``expr >= 0``; False may also mean that they do not."""
        form = ix.to_linear(expr)
        if not form.terms:
            return form.const >= 0
        factors = {atom.name: factor for atom, factor in form.terms if isinstance(atom, Var)}
        for atom, factor in form.terms:
            if not isinstance(atom, Var):
                rest = ix.sub(expr, ix.mul(factor, atom))
                match atom:
                    case Binary("//", a, Const(by)) if factor < 0 and factor % int(by) == 0:
                        return self.at_least_zero(ix.add(rest, ix.mul(factor // int(by), a)))
                end = self._end(atom, factor > 0)
                return end is not None and self.at_least_zero(ix.add(rest, ix.mul(factor, end)))
        inner = next((r for r in reversed(self.ranges) if r.name in factors), None)
        if inner is None:
            return False
        ends = inner.lows if factors[inner.name] > 0 else inner.highs
        return any(self.at_least_zero(substitute(expr, {inner.name: end})) for end in ends)

    def _end(self, atom: Expr, low: bool) -> Expr | None:
        """A bound of a quotient or a remainder: below where `low`, else above."""
        match atom:
            case Binary("//", a, Const()) if self.at_least_zero(a):
                return ix.const(0) if low else a
            case Binary("%", _, Const(divisor, _)):
                return ix.const(0 if low else int(divisor) - 1)
            case _:
                return None

    def greatest(self, bounds: Iterable[Expr]) -> tuple[Expr, ...]:
        """Those of `bounds` that no other one is known to reach."""
        maximal: list[Expr] = []
        for bound in bounds:
            if not any(self.at_least_zero(ix.sub(other, bound)) for other in maximal):
                maximal = [o for o in maximal if not self.at_least_zero(ix.sub(bound, o))] + [bound]
        return tuple(maximal)

    def least(self, bounds: Iterable[Expr]) -> tuple[Expr, ...]:
        """Those of `bounds` that are not known to reach another one."""
        minimal: list[Expr] = []
        for bound in bounds:
            if not any(self.at_least_zero(ix.sub(bound, other)) for other in minimal):
                minimal = [o for o in minimal if not self.at_least_zero(ix.sub(o, bound))] + [bound]
        return tuple(minimal)


def scan_rectangle(
    axes: Axes,
    conditions: Iterable[Expr],
    known: ScanContext,
    inside: Callable[[ScanContext], tuple[Stmt, ...]],
) -> tuple[Stmt, ...]:
    """Loops over the points of `axes` where all `conditions` hold, around ``inside(what is known)``.

    The points are visited in lexicographic order of the axes, each once.
    """
    names = [name for name, _ in axes]
    bounds: dict[str, tuple[list[Expr], list[Expr]]] = {name: ([], []) for name in names}
    guards: dict[str, list[Expr]] = {name: [] for name in ("", *names)}
    late: list[Expr] = []
    for condition in conditions:
        if reads_memory(condition):
            late.append(condition)
            continue
        used = variables(condition)
        place = next((name for name in reversed(names) if name in used), "")
        ends = _ends(condition, place)
        if ends is None:
            guards[place].append(condition)
        else:
            bounds[place][0].extend(ends[0])
            bounds[place][1].extend(ends[1])

    def level(depth: int, known: ScanContext) -> tuple[Stmt, ...]:
        if depth == len(axes):
            return _guard(late, inside(known))
        name, extent = axes[depth]
        lows, highs = bounds[name]
        lows = list(known.greatest([ix.const(0), *lows]))
        highs = list(known.least([ix.sub(extent, 1), *highs]))
        lo, hi = lows[0], ix.add(highs[0], 1)
        for low in lows[1:]:
            lo = ix.maximum(lo, low)
        for high in highs[1:]:
            hi = ix.minimum(hi, ix.add(high, 1))
        inner = level(depth + 1, known.within(Range(name, tuple(lows), tuple(highs))))
        return (For(name, lo, hi, _guard(guards[name], inner)),)

    return _guard(guards[""], level(0, known))


def _guard(conditions: Sequence[Expr], body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    if not conditions:
        return body
    whole = conjunction(conditions)
    return (If(whole, body),)


def _ends(condition: Expr, axis: str) -> tuple[tuple[Expr, ...], tuple[Expr, ...]] | None:
    """The least and the greatest values of `axis` by `condition`; None where it is no bound."""
    if not (isinstance(condition, Compare) and dtype_of(condition.a) == "index"):
        return None
    difference = ix.sub(condition.b, condition.a)
    margins = {
        "<": (ix.sub(difference, 1),),
        "<=": (difference,),
        ">": (ix.sub(ix.mul(-1, difference), 1),),
        ">=": (ix.mul(-1, difference),),
        "==": (difference, ix.mul(-1, difference)),
    }
    lows: tuple[Expr, ...] = ()
    highs: tuple[Expr, ...] = ()
    for margin in margins.get(condition.op, (None,)):
        factor = 0 if margin is None else dict(ix.to_linear(margin).terms).get(Var(axis), 0)
        if margin is None or factor == 0:
            return None
        rest = ix.sub(margin, ix.mul(factor, Var(axis)))  # factor * axis + rest >= 0
        if axis in variables(rest):
            return None
        if factor > 0:
            lows += (ix.ceildiv(ix.mul(-1, rest), factor),)
        else:
            highs += (ix.floordiv(rest, -factor),)
    return lows, highs
