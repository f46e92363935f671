"""Facts at a place in a loop program, and their consequences, for all sizes.

A question concerns only the conditions that share names with it, directly or by others: what is
known falls into *parts* that share none, and isl sees one part at a time. Answers are kept by the
conditions of their part, so that the rows of a border are asked once, whatever the columns.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import islpy as isl

from offcut.core import index as ix
from offcut.core.conditions import conjuncts, negate
from offcut.core.expr import Compare, Const, Expr, Var, variables
from offcut.core.memo import lazy_property, memo
from offcut.polyhedral.affine import Set, Space, coordinates, parse_set
from offcut.polyhedral.witness import holds_at, smallest_point

_KEPT = 1 << 14  # answers

_Part = tuple[tuple[str, ...], tuple[Expr, ...]]  # iterators, conditions


@dataclass(frozen=True)
class Facts:
    """The facts of the sizes, the loops around a place, and the conditions that hold there.

    names       iterators, outermost first
    conditions  those that are quasi-affine; another one is left out, so less may follow, never more
    """

    space: Space
    names: tuple[str, ...] = ()
    conditions: tuple[Expr, ...] = ()
    _kept: dict[object, Any] = field(default_factory=dict, repr=False, compare=False)
    _outer: Facts | None = field(default=None, repr=False, compare=False)

    def loop(self, name: str, lo: Expr, hi: Expr) -> Facts:
        """Return the facts inside ``for name in lo:hi``."""
        cached = self._kept.get((name, lo, hi))
        if cached is None:
            bounds = (
                *conjuncts(Compare("<=", lo, Var(name))),
                *conjuncts(Compare("<", Var(name), hi)),
            )
            names, conditions = (*self.names, name), (*self.conditions, *bounds)
            cached = Facts(self.space, names, conditions, _outer=self)
            self._kept[name, lo, hi] = cached
        assert isinstance(cached, Facts)
        return cached

    def where(self, condition: Expr) -> Facts:
        """Return the facts where `condition` holds too."""
        cached = self._kept.get(condition)
        if cached is None:
            cached = Facts(self.space, self.names, (*self.conditions, condition), _outer=self)
            self._kept[condition] = cached
        assert isinstance(cached, Facts)
        return cached

    def without(self, name: str) -> Facts:
        """Return the facts around the loop over `name`, without the conditions that use it."""
        conditions = tuple(c for c in self.conditions if name not in variables(c))
        return Facts(self.space, tuple(n for n in self.names if n != name), conditions)

    @lazy_property
    def _parts(self) -> tuple[tuple[frozenset[str], _Part], ...]:
        """Return the conditions in groups that share no name, each with all its names."""
        groups = () if self._outer is None else self._outer._parts
        outer_count = 0 if self._outer is None else len(self._outer.conditions)
        for condition in self.conditions[outer_count:]:
            names = frozenset(variables(condition))
            related_groups = [group for group in groups if group[0] & names]
            if any(condition in part[1] for _, part in related_groups):
                continue
            conditions: tuple[Expr, ...] = ()
            for others, part in related_groups:
                names |= others
                conditions += part[1]
            mine = tuple(n for n in self.names if n in names), (*conditions, condition)
            groups = (*(g for g in groups if g not in related_groups), (names, mine))
        return groups

    def _about(self, condition: Expr) -> _Part:
        """Return the part of what is known that shares names with `condition`."""
        mine = variables(condition)
        names: set[str] = set(mine)
        conditions: list[Expr] = []
        for others, part in self._parts:
            if others & mine:
                names |= others
                conditions += part[1]
        return tuple(n for n in self.names if n in names), tuple(conditions)

    @lazy_property
    def empty(self) -> bool:
        """Return whether nothing runs here, at any size."""
        parts = (part for _, part in self._parts)
        nothing = any(_known_points(self.space, *part).is_empty() for part in parts)
        return nothing or bool(self.space.context.is_empty())

    def expresses(self, condition: Expr) -> bool:
        """Return whether sets can say `condition`."""
        return self.space.condition(condition, coordinates(self.names)) is not None

    def holds(self, condition: Expr) -> bool:
        """Return whether `condition` holds wherever something runs, at all sizes."""
        if isinstance(condition, Const):
            return bool(condition.value)
        key = "holds", condition
        if key not in self._kept:
            self._kept[key] = _holds(self.space, self._about(condition), condition)
        return bool(self._kept[key])

    def example(self, condition: Expr) -> dict[str, int] | None:
        """Return the smallest sizes and iterators at which `condition` holds, as far as sets tell; None where
        sets cannot say it, where it never holds, and where one of the conditions here that sets
        cannot say reads memory or fails at these.
        """
        if not self.expresses(condition):
            return None
        witness = smallest_point(
            _known_points(self.space, self.names, (*self.conditions, condition))
        )
        if witness is None:
            return None
        names = [*(size.name for size in self.space.sizes), *self.names]
        point = dict(zip(names, [*witness[0], *witness[1]], strict=True))
        others = (one for one in self.conditions if not self.expresses(one))
        return point if all(holds_at(one, point) for one in others) else None

    def decide(self, condition: Compare) -> bool | None:
        """Return whether a comparison always holds here, or never; None where that depends."""
        simplified = ix.compare(condition.op, ix.simplify(condition.a), ix.simplify(condition.b))
        if isinstance(simplified, Const):
            return bool(simplified.value)
        if self.holds(condition):
            return True
        if self.holds(negate(condition)):
            return False
        return None

    def extreme(self, op: str, a: Expr, b: Expr) -> Expr:
        """Return ``min`` or ``max`` of two index expressions; one of them if facts tell which."""
        combined = (ix.minimum if op == "min" else ix.maximum)(a, b)
        if combined in (a, b):
            return combined
        if self.holds(Compare("<=", a, b)):
            return a if op == "min" else b
        if self.holds(Compare(">=", a, b)):
            return b if op == "min" else a
        return combined


@memo(_KEPT)
def _holds(space: Space, part: _Part, condition: Expr) -> bool:
    text = space.condition(negate(condition), coordinates(part[0]))
    if text is None:
        return False
    return bool(_known_points(space, *part).is_disjoint(_half(space, len(part[0]), text)))


@memo(_KEPT)
def _known_points(space: Space, names: tuple[str, ...], conditions: tuple[Expr, ...]) -> Set:
    """Return the points at which all quasi-affine conditions hold, within the facts of the sizes."""
    if not conditions:
        return space.set([""] * len(names), ())
    points = _known_points(space, names, conditions[:-1])
    text = space.condition(conditions[-1], coordinates(names))
    return points if text is None else points & _half(space, len(names), text)


@memo(_KEPT)
def _half(space: Space, rank: int, condition: str) -> isl.Set:
    """Return the points at which one condition holds, without the facts."""
    xs = ", ".join(f"x{k}" for k in range(rank))
    return parse_set(f"{space.parameters}{{ [{xs}] : {condition} }}")
