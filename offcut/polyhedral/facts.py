"""What is known at a place in a loop program, and what follows from it, for all sizes."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any

import islpy as isl

from offcut.core import index as ix
from offcut.core.expr import Compare, Const, Expr, Logic, Var, variables
from offcut.polyhedral.affine import Set, Space, coordinates
from offcut.polyhedral.witness import smallest

_OPPOSITE = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "==": "!=", "!=": "=="}


@dataclass(frozen=True)
class Facts:
    """The facts of the sizes, the loops around a place, and the conditions that hold there.

    names       iterators, outermost first
    conditions  those that are quasi-affine; another one is left out, so less may follow, never more
    """

    space: Space
    names: tuple[str, ...] = ()
    conditions: tuple[Expr, ...] = ()
    _outer: Facts | None = field(default=None, repr=False, compare=False)
    _kept: dict[object, Any] = field(default_factory=dict, repr=False, compare=False)

    def loop(self, name: str, lo: Expr, hi: Expr) -> Facts:
        """Inside ``for name in lo:hi``."""
        found = self._kept.get((name, lo, hi))
        if found is None:
            bounds = Compare("<=", lo, Var(name)), Compare("<", Var(name), hi)
            names, known = (*self.names, name), (*self.conditions, *bounds)
            found = self._kept[name, lo, hi] = Facts(self.space, names, known, self)
        assert isinstance(found, Facts)
        return found

    def where(self, condition: Expr) -> Facts:
        """Where `condition` holds too."""
        found = self._kept.get(condition)
        if found is None:
            known = (*self.conditions, condition)
            found = self._kept[condition] = Facts(self.space, self.names, known, self)
        assert isinstance(found, Facts)
        return found

    def without(self, name: str) -> Facts:
        """Around the loop over `name`: what mentions it is not known."""
        kept = tuple(c for c in self.conditions if name not in variables(c))
        return Facts(self.space, tuple(n for n in self.names if n != name), kept)

    @cached_property
    def _set(self) -> isl.Set:
        if self._outer is None:
            known = _box(self.space, len(self.names))
            new = self.conditions
        else:
            known = self._outer._set
            new = self.conditions[len(self._outer.conditions) :]
            if len(self.names) > len(self._outer.names):
                known = known.add_dims(isl.dim_type.set, 1)
        for condition in new:
            text = self.space.condition(condition, coordinates(self.names))
            if text is not None:
                known = known & _half(self.space, len(self.names), text)
        return known

    @property
    def known(self) -> frozenset[str]:
        """The names of the sizes and the iterators."""
        return frozenset((*self.names, *(size.name for size in self.space.sizes)))

    @cached_property
    def empty(self) -> bool:
        """Whether nothing runs here, at any size."""
        return bool(self._set.is_empty())

    def expresses(self, condition: Expr) -> bool:
        """Whether sets can say `condition`."""
        return self.space.condition(condition, coordinates(self.names)) is not None

    def holds(self, condition: Expr) -> bool:
        """Whether `condition` holds wherever something runs, at all sizes."""
        key = "holds", condition
        if key not in self._kept:
            self._kept[key] = self._holds(condition)
        return bool(self._kept[key])

    def _holds(self, condition: Expr) -> bool:
        if isinstance(condition, Const):
            return bool(condition.value)
        negated: Expr = Logic("not", (condition,))
        if isinstance(condition, Compare):
            negated = Compare(_OPPOSITE[condition.op], condition.a, condition.b)
        text = self.space.condition(negated, coordinates(self.names))
        if text is None:
            return False
        return bool(self._set.is_disjoint(_half(self.space, len(self.names), text)))

    def witness(self, condition: Expr) -> str | None:
        """The smallest sizes and iterators at which `condition` holds; None where it never does."""
        text = self.space.condition(condition, coordinates(self.names))
        if text is None:
            return None
        found = smallest(self._set & _half(self.space, len(self.names), text))
        if found is None:
            return None
        names = [*(size.name for size in self.space.sizes), *self.names]
        values = [*found[0], *found[1]]
        return ", ".join(f"{n} = {v}" for n, v in zip(names, values, strict=True))

    def decide(self, condition: Compare) -> bool | None:
        """Whether a comparison always holds here, or never; None where that depends."""
        folded = ix.compare(condition.op, ix.simplify(condition.a), ix.simplify(condition.b))
        if isinstance(folded, Const):
            return bool(folded.value)
        if self.holds(condition):
            return True
        if self.holds(Compare(_OPPOSITE[condition.op], condition.a, condition.b)):
            return False
        return None

    def extreme(self, op: str, a: Expr, b: Expr) -> Expr:
        """``min`` or ``max`` of two index expressions, one of them where it is known which."""
        made = (ix.minimum if op == "min" else ix.maximum)(a, b)
        if made in (a, b):
            return made
        if self.holds(Compare("<=", a, b)):
            return a if op == "min" else b
        if self.holds(Compare(">=", a, b)):
            return b if op == "min" else a
        return made


@lru_cache(maxsize=256)
def _box(space: Space, rank: int) -> Set:
    return space.set([""] * rank, ())


@lru_cache(maxsize=4096)
def _half(space: Space, rank: int, condition: str) -> Set:
    """Where one condition holds, whatever the facts."""
    xs = ", ".join(f"x{k}" for k in range(rank))
    return Set(f"{space.parameters}{{ [{xs}] : {condition} }}")
