"""Loops, windows and conditions around one coordinate in; that coordinate, without counters, out.

A `Strip` is what a loop nest says about one coordinate x: loops whose counters move a window, the
window, and the conditions around it. Most nests are runs of tiles that lie edge to edge,

    for t in a:b    s + c*t <= x < s + c*t + c    with a literal c > 0

and then x lies in the tile ``t = (x - s) // c`` and in no other, so that the whole loop is the
interval ``s + c*a <= x < s + c*b`` (empty where b <= a). Rewritten so from the inside out, a strip
has no counter left, and what remains for isl are intervals over the sizes. Counters that do not
fit the equation stay, as further dimensions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from offcut.core import index as ix
from offcut.core.expr import Compare, Const, Expr, Var, substitute, variables
from offcut.polyhedral import coefficient

X = Var("#x")  # the coordinate; no program can name it so


class NotSeparable(Exception):
    """The program, or a part of it, is not of the form that this proof reads."""


@dataclass(frozen=True, slots=True)
class Value:
    """``let name in lo:hi = value``, and conditions on sizes that hold wherever it is reached."""

    name: str
    lo: int
    hi: int
    value: Expr
    given: tuple[Expr, ...] = ()


@dataclass(frozen=True, slots=True)
class Strip:
    """``lower <= X < upper`` in every iteration of `loops` in which all of `holds` are true.

    loops    (counter, lo, hi), outermost first
    repeats  coordinates may be met again here, or be met by another strip as well
    """

    lower: Expr
    upper: Expr
    loops: tuple[tuple[str, Expr, Expr], ...] = ()
    holds: tuple[Expr, ...] = ()
    values: tuple[Value, ...] = ()
    repeats: bool = False

    @property
    def bound_names(self) -> set[str]:
        """Return the names of its counters and of its values."""
        return {name for name, _, _ in self.loops} | {value.name for value in self.values}

    def exprs(self) -> Iterator[Expr]:
        """All that it says, part by part."""
        for _, lo, hi in self.loops:
            yield from (lo, hi)
        yield from (self.lower, self.upper, *self.holds)
        for value in self.values:
            yield from (value.value, *value.given)

    def mapped(self, change: Callable[[Expr], Expr]) -> Strip:
        """Return the same with every expression changed."""
        return replace(
            self,
            lower=change(self.lower),
            upper=change(self.upper),
            loops=tuple((name, change(lo), change(hi)) for name, lo, hi in self.loops),
            holds=tuple(map(change, self.holds)),
            values=tuple(
                replace(v, value=change(v.value), given=tuple(map(change, v.given)))
                for v in self.values
            ),
        )

    def renamed(self, names: Mapping[str, str]) -> Strip:
        """Return the same with other names for those in `names`, its counters and values included."""
        to: dict[str, Expr] = {old: Var(new) for old, new in names.items()}
        new = self.mapped(lambda expr: substitute(expr, to))
        return replace(
            new,
            loops=tuple((names[name], lo, hi) for name, lo, hi in new.loops),
            values=tuple(replace(value, name=names[value.name]) for value in new.values),
        )

    def fixed(self, value: Expr, literal: int) -> Iterator[Strip]:
        """This strip where `value` is this literal, unless it does not run there."""
        mine = [v for v in self.values if v.value == value]
        if not all(v.lo <= literal < v.hi for v in mine):
            return
        values: dict[str, Expr] = {v.name: ix.const(literal) for v in mine}
        rest = tuple(v for v in self.values if v.value != value)
        new = replace(self, values=()).mapped(lambda e: ix.simplify(substitute(e, values)))
        yield replace(
            new, values=tuple(replace(v, value=substitute(v.value, values)) for v in rest)
        )

    def joined(self) -> Strip:
        """This strip with the counters of adjacent tiles left out, and conditions that are certain."""
        lower, uppers = self.lower, list(ix.parts_of_minimum(self.upper))
        holds = list(self.holds)
        loops = list(self.loops)
        upper = uppers[0]
        for other in uppers:
            if loops and _step(other, lower) is not None:
                upper = other
        uppers.remove(upper)
        holds += [Compare("<", X, other) for other in uppers]
        while loops:
            name, lo, hi = loops[-1]
            step, height = coefficient(lower, name), _step(upper, lower)
            if step is None or step <= 0 or height != step:
                break
            start = substitute(lower, {name: ix.const(0)})
            if any(name in variables(condition) for condition in holds):
                if step != 1:
                    break
                number = {name: ix.sub(X, start)}
                holds = [ix.fold_indices(substitute(condition, number)) for condition in holds]
            lower = ix.simplify(ix.add(start, ix.mul(step, lo)))
            upper = ix.simplify(ix.add(start, ix.mul(step, hi)))
            loops.pop()
        conditions_: list[Expr] = []
        for condition in holds:
            comparison = condition
            if isinstance(condition, Compare):
                comparison = ix.compare(condition.op, condition.a, condition.b)
            if comparison != Const(1, "bool"):
                conditions_.append(comparison)
        return replace(self, lower=lower, upper=upper, loops=tuple(loops), holds=tuple(conditions_))


def _step(upper: Expr, lower: Expr) -> int | None:
    return ix.literal_value(ix.sub(upper, lower))
