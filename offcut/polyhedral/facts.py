"""Facts at a place in a loop program, and their consequences, for all sizes.

A question concerns only the conditions that share names with it, directly or by others: what is
known falls into *parts* that share none, and isl sees one part at a time. Answers are kept by the
conditions of their part, so that the rows of a border are asked once, whatever the columns.

The scope that encloses a place in a program with bounded values, and quick conclusions from it.

A question about a row of a tile concerns the loops over rows, not those over columns. So a few
bounded values are fixed at a time, literal by literal, and not all of them with all others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from itertools import product
from math import inf, prod
from typing import Any, TypeGuard

import islpy as isl

from offcut.core import index as ix
from offcut.core.conditions import conjuncts, negate
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
from offcut.core.index import Linear
from offcut.core.intervals import interval
from offcut.core.memo import lazy_property, memo
from offcut.core.program import For, Let, Tile
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


_MOST = 1024  # combinations of bounded values
# answers

Loop = tuple[str, Expr, Expr]  # name, lo, hi


@dataclass(frozen=True)
class EnclosingScope:
    """A scope: loops, bounded values and conditions, outermost first."""

    space: Space
    entries: tuple[Loop | Let | Expr, ...] = ()

    def inside(self, *entries: Loop | Let | Expr) -> EnclosingScope:
        """Return the scope with more entries, further in."""
        return EnclosingScope(self.space, (*self.entries, *entries)) if entries else self

    def where(self, *conditions: Expr, holds: bool = True) -> EnclosingScope:
        """Return the scope where these conditions hold too, or fail, if not `holds`."""
        return self.inside(*(part for one in conditions for part in conjuncts(one, holds)))

    def loop(self, stmt: For | Tile) -> EnclosingScope:
        """Return the scope inside a loop, or in the rectangle of a tile."""
        if isinstance(stmt, For):
            return self.inside((stmt.iter, stmt.lo, stmt.hi))
        axes = stmt.axes
        return self.inside(*((a.iter, a.start, ix.add(a.start, a.extent)) for a in axes))

    def implies(self, condition: Expr) -> bool:
        """Return whether what is around, and shares a name with `condition`, makes it hold, at all sizes.

        False where it may hold all the same.
        """
        ranges, minima = self._ranges, self.space.minima
        is_over_sizes = not (reads_memory(condition) or ranges.keys() & minima.keys())
        if is_over_sizes and holds_syntactically(condition, ranges, minima):
            return True
        return _shows(self.space, self._about(variables(condition)), condition)

    def implies_where_it_runs(self, condition: Expr) -> bool:
        """Return whether all that is around makes `condition` hold, at all sizes at which a statement runs there: loops that share
        no name with it, too, have an iteration.

        False where it may hold all the same.
        """
        near = self._about(variables(condition))
        return len(near) < len(self.entries) and _shows(self.space, self.entries, condition)

    @lazy_property
    def _ranges(self) -> dict[str, tuple[Expr, Expr]]:
        """Return the half-open ranges of iterators and bounded values; none if two have one name.

        A bound that is read from memory may be another one where it is read again: it bounds nothing here.
        """
        bounds = [entry for entry in self.entries if isinstance(entry, tuple | Let)]
        ranges = dict(map(_range, bounds))
        if len(ranges) < len(bounds):
            return {}
        return {name: ends for name, ends in ranges.items() if not any(map(reads_memory, ends))}

    def _about(self, names: AbstractSet[str]) -> tuple[Loop | Let | Expr, ...]:
        """Return the entries that these names depend on, directly or by others; sizes connect nothing."""
        sizes = self.space.minima.keys()
        names, before = names - sizes, -1
        while len(names) != before:
            before = len(names)
            for entry in self.entries:
                if _concerns(entry, names):
                    names |= _names(entry) - sizes
        entries = (e for e in self.entries if _concerns(e, names) or not _names(e) - sizes)
        return tuple(entries)


def equal(value: Expr, literal: Expr) -> tuple[Expr, ...]:
    """Return the conditions for ``value == literal``; `value` may be a quotient by a positive expression."""
    if _is_open_quotient(value):
        return in_range(value, literal, ix.add(literal, 1))
    return (Compare("==", value, literal),)


def in_range(value: Expr, lo: Expr | int, hi: Expr | int) -> tuple[Expr, ...]:
    """Return the conditions for ``lo <= value < hi``, and for the divisor of a quotient by an expression to be positive."""
    if _is_open_quotient(value):
        a, b = value.a, value.b
        above = Compare("<=", ix.mul(lo, b), a)
        return Compare("<", ix.const(0), b), above, Compare("<", a, ix.mul(hi, b))
    return Compare("<=", ix.index(lo), value), Compare("<", value, ix.index(hi))


def _is_open_quotient(value: Expr) -> TypeGuard[Binary]:
    """Return whether a value divides by anything but a number."""
    return isinstance(value, Binary) and value.op == "//" and not isinstance(value.b, Const)


def _range(entry: Loop | Let) -> tuple[str, tuple[Expr, Expr]]:
    if isinstance(entry, Let):
        return entry.name, (ix.const(entry.lo), ix.const(entry.hi))
    name, lo, hi = entry
    return name, (lo, hi)


def _names(entry: Loop | Let | Expr) -> set[str]:
    match entry:
        case (name, lo, hi):
            return {name, *variables(lo), *variables(hi)}
        case Let(name, _, _, value):
            return {name, *variables(value)}
        case _:
            return set(variables(entry))


def _concerns(entry: Loop | Let | Expr, names: AbstractSet[str]) -> bool:
    """Return whether `entry` says something of one of `names`."""
    match entry:
        case (name, _, _) | Let(name):
            return name in names
        case _:
            return not names.isdisjoint(variables(entry))


@memo(_KEPT)
def _shows(space: Space, entries: Sequence[Loop | Let | Expr], condition: Expr) -> bool:
    lets = [entry for entry in entries if isinstance(entry, Let)]
    if prod(let.hi - let.lo for let in lets) > _MOST:
        return False
    return all(
        _facts(space, entries, values).holds(_with_values(condition, values))
        for values in _values(lets)
    )


def _values(lets: Sequence[Let]) -> Iterator[dict[str, Expr]]:
    ranges = (range(let.lo, let.hi) for let in lets)
    for literals in product(*ranges):
        yield {let.name: ix.const(q) for let, q in zip(lets, literals, strict=True)}


def _facts(space: Space, entries: Sequence[Loop | Let | Expr], values: Mapping[str, Expr]) -> Facts:
    at = Facts(space)
    for entry in entries:
        match entry:
            case (name, lo, hi):
                at = at.loop(name, _with_values(lo, values), _with_values(hi, values))
            case Let(name, _, _, value):
                for condition in equal(_with_values(value, values), values[name]):
                    at = at.where(condition)
            case _:
                at = at.where(_with_values(entry, values))
    return at


def _with_values(expr: Expr, values: Mapping[str, Expr]) -> Expr:
    return ix.fold_indices(substitute(expr, values)) if values else expr


# Decide comparisons of indices by their form and the loops around, without isl.
#
# The smaller side is taken from the greater one; each iterator stands for the end of its loop at which that
# is the least, innermost first, a quotient for what it does not exceed, and the sum that is left has to be
# of parts that are never negative. What is not seen so is left to sets, which take a hundred times as long.

Ranges = dict[str, tuple[Expr, Expr]]
"""What iterates, with the first value and the one behind the last, where it runs at all; outermost first."""

_MAX_REPLACEMENTS = 24  # replacements on one way


def holds_syntactically(condition: Expr, ranges: Ranges, minima: Mapping[str, int]) -> bool:
    """Return whether ``a <= b`` or ``a < b`` is seen to hold wherever all of `ranges` run; False is no answer.

    minima  lower bounds of the other names
    """
    match condition:
        case Compare("<=", a, b) if dtype_of(a) == "index":
            difference = ix.to_linear(b).plus(ix.to_linear(a), -1)
        case Compare("<", a, b) if dtype_of(a) == "index":
            difference = ix.to_linear(b).plus(ix.to_linear(a), -1).plus(Linear((), -1))
        case _:
            return False
    return _is_no_less(difference, ranges, minima, _MAX_REPLACEMENTS)


def _is_no_less(form: Linear, ranges: Ranges, minima: Mapping[str, int], depth: int) -> bool:
    """Return whether a sum is never negative; `depth` replacements may be made."""
    if all(factor > 0 for _, factor in form.terms):
        lowest = sum(factor * _least(atom, ranges, minima) for atom, factor in form.terms)
        if form.const + lowest >= 0:
            return True
    smaller = _no_more(form, ranges) if depth else ()
    return any(_is_no_less(one, ranges, minima, depth - 1) for one in smaller)


def _no_more(form: Linear, ranges: Ranges) -> list[Linear]:
    """Return lower bounds of a sum, each with one atom less: the innermost iterator, unless another atom
    names it, else what the form of an atom bounds.
    """
    plain = {term[0].name: term for term in form.terms if isinstance(term[0], Var)}
    atom_names = [variables(atom) for atom, _ in form.terms if not isinstance(atom, Var)]
    for name in reversed(ranges):
        if name in plain and not any(name in names for names in atom_names):
            (atom, factor), (lo, hi) = plain[name], ranges[name]
            end = ix.to_linear(lo if factor > 0 else hi).times(factor)
            return [_with(form, atom, end if factor > 0 else end.plus(Linear((), -factor)))]
    for atom, factor in sorted(form.terms, key=lambda term: term[1] < 0):
        if ends := _no_more_than(atom, factor):
            return [_with(form, atom, ix.to_linear(end)) for end in ends]
    return []


def _with(form: Linear, atom: Expr, other: Linear) -> Linear:
    """Return a sum with another one in place of one of its atoms and its factor."""
    rest = tuple([term for term in form.terms if term[0] is not atom])
    return Linear(rest, form.const).plus(other)


def _no_more_than(atom: Expr, factor: int) -> list[Expr]:
    """Return lower bounds of ``factor * atom``; none if its form gives none."""
    match atom:
        case Binary("//", a, Const(value, _)) if factor < 0 < value and factor % int(value) == 0:
            return [ix.mul(factor // int(value), ix.sub(a, ix.mod(a, int(value))))]
        case Binary("%", _, Const(value, _)) if factor < 0 < value:
            return [ix.const(factor * (int(value) - 1))]
        case Binary("min", a, b) if factor < 0:
            return [ix.mul(factor, a), ix.mul(factor, b)]
        case Binary("max", a, b) if factor > 0:
            return [ix.mul(factor, a), ix.mul(factor, b)]
        case _:
            return []


def _least(expr: Expr, ranges: Ranges, minima: Mapping[str, int]) -> float:
    """Return a lower bound of an expression; minus infinity where its form shows none."""

    if isinstance(expr, Var) and expr.name not in ranges:
        return minima.get(expr.name, -inf)

    def known(part: Expr) -> tuple[float, float]:
        match part:
            case Var(name):
                lowest = (
                    _least(ranges[name][0], ranges, minima)
                    if name in ranges
                    else minima.get(name, -inf)
                )
                return lowest, inf
            case _:
                return -inf, inf

    return interval(expr, known)[0]
