"""The instances of events as isl sets: the agent that runs each, its place in the order of the text, and what it touches.

An instance is a point ``[a0, …, t0, …]``: the values of the loops that are bound to units, one coordinate for each unit,
then its place in the order of the text. Bounds over sizes alone are parameters of their own, whatever the sizes: the
answer holds for more programs than the one at hand. If the sizes are parameters too, as conditions over them make them, the bounds are theirs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import reduce

import islpy as isl

from offcut.core import index as ix
from offcut.core.conditions import conjunction
from offcut.core.expr import (
    Binary,
    Compare,
    Const,
    Expr,
    Logic,
    Var,
    children,
    dtype_of,
    rebuild,
    rewrite,
    substitute,
    variables,
    walk,
)
from offcut.core.interpret.run_arguments import small_sizes
from offcut.core.memo import lazy_property
from offcut.core.program import MAX_SIZE, Action, Size, Sync
from offcut.core.traversal import Place
from offcut.polyhedral.affine import Space, parse_map, parse_set
from offcut.polyhedral.sync.events import Access, Event, Events, Key, Loop, sync_error
from offcut.polyhedral.sync.instances import describe_event, value_of, values_of
from offcut.polyhedral.sync.run_at_sizes import SMALL, with_sizes

_PARAM, _DIV = isl.dim_type.param, isl.dim_type.div
_TRUE = Const(1, "bool")


class Relations:
    """The instances of `events`, as sets and maps.

    keys    the units that bind loops
    agents  their coordinates
    times   the coordinates of the order of the text, without those that are one number for all instances
    dims    all coordinates of an instance: `agents`, then `times`
    """

    def __init__(self, events: Events) -> None:
        self.events = events
        self.program = events.program
        self.all = {event.number: event for event in (*events.leaves, *events.syncs)}
        self.names = {size.name for size in self.program.sizes} | events.derived.keys()
        self.bounds: dict[str, Expr] = {}
        exprs = [e for event in self.all.values() for one in event.loops for e in (one.lo, one.hi)]
        for expr in sorted(exprs, key=lambda e: variables(e) <= self.names):
            self.with_parameters(
                expr
            )  # those that depend on loops first: others are made of their parts
        for event in self.all.values():
            for expr in _others(event):
                self.with_parameters(expr)
        self.space = Space(tuple(map(self._size, self.bounds)), tuple(self._facts()))
        self.keys: list[Key] = sorted({key for event in self.all.values() for key in event.keys})
        self.agents = [f"a{at}" for at in range(len(self.keys))]
        depth = max((len(event.time) for event in self.all.values()), default=0)
        columns = [{self._time(event, at) for event in self.all.values()} for at in range(depth)]
        self._columns = [at for at, values in enumerate(columns) if len(values) > 1 or "" in values]
        self.times = [f"t{at}" for at in self._columns]
        self.dims = [*self.agents, *self.times]
        self._touched: dict[tuple[int, tuple[Access, ...], str, bool], isl.Map | None] = {}
        self._sets = {number: self._instances(event) for number, event in self.all.items()}

    @staticmethod
    def _time(event: Event, at: int) -> int | str:
        """Return a number of an event's time; "" for an iterator."""
        value = event.time[at] if at < len(event.time) else 0
        return value if isinstance(value, int) else ""

    def prefix(self, depth: int) -> list[str]:
        """Return the coordinates of the first `depth` numbers of a time."""
        return [name for at, name in zip(self._columns, self.times, strict=True) if at < depth]

    def of(self, event: Event) -> isl.Set:
        """Return the instances of an event."""
        return self._sets[event.number]

    def union(self, some: Iterable[Event]) -> isl.Set:
        """Return the instances of several events."""
        return reduce(isl.Set.union, map(self.of, some), self.nothing)

    @lazy_property
    def nothing(self) -> isl.Set:
        """No instance."""
        return parse_set(f"{self.space.parameters}{{ [{', '.join(self.dims)}] : false }}")

    @lazy_property
    def no_pairs(self) -> isl.Map:
        """No pair of instances."""
        return self.map(("false",))

    def map(self, conditions: Sequence[str], more: Sequence[str] = ()) -> isl.Map:
        """Return ``{ [x, more] -> [y, more'] : conditions }`` of instances x, with coordinates as `dims`, and y, primed."""
        ones = [*self.dims, *more]
        others = [f"{name}'" for name in ones]
        text = f"{{ [{', '.join(ones)}] -> [{', '.join(others)}] : {' and '.join(conditions) or 'true'} }}"
        return parse_map(self.space.parameters + text)

    def order(self, sign: str, same: Sequence[str], more: Sequence[str] = ()) -> isl.Map:
        """Return the pairs ``[x, more] -> [y, more]`` of instances whose times compare by `sign` (``<<``, ``<<=``, ``>>``),
        alike in the coordinates `same`.
        """
        ones, others = ", ".join(self.times), ", ".join(f"{name}'" for name in self.times)
        later = f"{ones} {sign} {others}" if self.times else "true" if "=" in sign else "false"
        return self.map((*alike(same), *alike(more), later), more)

    @lazy_property
    def later(self) -> isl.Map:
        """``{ a -> b }``: b comes after a in the order of the text."""
        return self.order("<<", ())

    @lazy_property
    def same(self) -> isl.Map:
        """``{ a -> a }``."""
        return self.map(alike(self.dims))

    @lazy_property
    def next_own(self) -> isl.Map:
        """``{ a -> b }``: the same agent, and b after a."""
        return self.order("<<", self.agents)

    @lazy_property
    def own_since(self) -> isl.Map:
        """``{ a -> b }``: the same agent, and b is a or after it."""
        return self.order("<<=", self.agents)

    def next_of_agent(self, one: Event, other: Event) -> isl.Map:
        """Return ``{ a -> b }``: the same agent runs an instance of one event, and of another one after it."""
        if self.events.units[one.unit].fixed:
            return self.next_own
        keys, theirs = one.keys, other.keys
        if not keys and not theirs:  # the last one of the agents
            return self.later
        if keys != theirs:
            return self.no_pairs
        depth = _depth(one, next(iter(keys.values())))
        return self.later.intersect(self.map(alike((*self.agents, *self.prefix(depth)))))

    def axis(self, key: Key) -> str:
        """Return the coordinate of a unit's agents."""
        return self.agents[self.keys.index(key)]

    def conflicts(
        self, one: Event, other: Event, regions: Collection[str] | None = None
    ) -> isl.Map:
        """Return ``{ a -> b }``: b touches a place that a touches, one of them writing.

        regions  those of the places; None: any
        """
        pairs = self.no_pairs
        for region in dict.fromkeys(access.region for access in one.accesses):
            if regions is not None and region not in regions:
                continue
            for first, second in ((True, False), (False, True)):
                mine, theirs = (
                    self.places_of(one, region, first),
                    self.places_of(other, region, second),
                )
                if mine is not None and theirs is not None:
                    pairs = pairs.union(mine.apply_range(theirs.reverse()))
        return pairs

    def places_of(self, event: Event, region: str, written: bool) -> isl.Map | None:
        """Return ``{ instance -> place }`` of a region that an event touches, or of what it writes there if `written`; None
        if there is none.
        """
        key = event.number, event.accesses, region, written
        if key not in self._touched:
            places = [
                self.places(event, access)
                for access in event.accesses
                if access.region == region and (access.writes or not written)
            ]
            self._touched[key] = reduce(isl.Map.union, places) if places else None
        return self._touched[key]

    def widen(self, pairs: isl.Map, keys: Collection[Key], event: Event) -> isl.Map:
        """Return ``{ a -> b' }`` of ``{ a -> b }``: b' is as b, an instance of `event`, but of any agent along `keys`."""
        return (
            pairs.apply_range(self.any_agent(keys)).intersect_range(self.of(event))
            if keys
            else pairs
        )

    def any_agent(self, keys: Collection[Key]) -> isl.Map:
        """Return ``{ b -> b' }``: alike in all coordinates but those of `keys`."""
        free = {self.axis(key) for key in keys}
        return self.map(alike(name for name in self.dims if name not in free))

    def within_one_run(self, one: Event, other: Event) -> isl.Map:
        """Return the pairs of instances of two agents in one run of a loop that is bound to a unit."""
        pairs = self.no_pairs
        for key, loop in one.keys.items():
            if other.keys.get(key) == loop:
                outer = [
                    self.axis(k) for k, around in one.keys.items() if is_inside(loop.at, around.at)
                ]
                same = alike((*self.prefix(_depth(one, loop)), *outer))
                axis = self.axis(key)
                pairs = pairs.union(self.map((*same, f"{axis} != {axis}'")))
        return pairs

    def places(self, event: Event, access: Access) -> isl.Map:
        """Return ``{ instance -> place }`` of an access; a coordinate that isl cannot express is any integer."""
        coordinates = [f"e{at}" for at in range(len(access.place))]
        inner = {name: f"i{at}" for at, (name, _) in enumerate(access.inner)}
        axes = {**self.axes(event), **inner}
        conditions = [self.with_parameters(condition) for condition in access.where]
        for name, extent in access.inner:
            conditions.append(Compare(">=", Var(name), ix.const(0)))
            conditions.append(Compare("<", Var(name), self.with_parameters(extent)))
        parts = [self.space.condition(condition, axes) for condition in conditions]
        for name, value in zip(coordinates, access.place, strict=True):
            text = None if value is None else self.space.expr(self.with_parameters(value), axes)
            parts.append(None if text is None else f"{name} = {text}")
        formula = " and ".join(part for part in parts if part is not None) or "true"
        if inner:
            formula = f"exists ({', '.join(inner.values())} : {formula})"
        dims = ", ".join(self.dims)
        text = f"{{ [{dims}] -> [{', '.join(coordinates)}] : {formula} }}"
        return parse_map(self.space.parameters + text).intersect_domain(self.of(event))

    def axes(self, event: Event) -> dict[str, str]:
        """Return the coordinates of the iterators around an event."""
        serial = {name: f"t{at}" for at, name in enumerate(event.time) if isinstance(name, str)}
        return {**serial, **{loop.name: self.axis(key) for key, loop in event.keys.items()}}

    def _instances(self, event: Event) -> isl.Set:
        axes = self.axes(event)
        parts = [f"t{at} = {v}" for at in self._columns if (v := self._time(event, at)) != ""]
        parts += [
            f"{name} = 0"
            for key, name in zip(self.keys, self.agents, strict=True)
            if key not in event.keys and not _meets_all(event, key)
        ]
        conditions: list[Expr] = []
        for loop in event.loops:
            lo, hi = self.with_parameters(loop.lo), self.with_parameters(loop.hi)
            conditions += [Compare("<=", lo, Var(loop.name)), Compare("<", Var(loop.name), hi)]
        conditions += map(self.with_parameters, event.where)
        for condition in conditions:
            text = self.space.condition(condition, axes)
            if text is None:
                raise sync_error(
                    self.program,
                    event.head,
                    "when it runs is told by more than sums of iterators and sizes",
                    'tiles of literal heights: "balance(16)" for "balance", axis.balanced(16) for axis.balanced()',
                )
            parts.append(text)
        parts.append(self.space.facts)
        dims = ", ".join(self.dims)
        return parse_set(f"{self.space.parameters}{{ [{dims}] : {' and '.join(parts)} }}")

    def _size(self, name: str) -> Size:
        """Return a parameter: any integer; in the range of a size, or that is promised of a derived value; or what a division leaves."""
        atom = self.bounds[name]
        if isinstance(atom, Binary) and atom.op == "%":
            divisor = ix.literal_value(atom.b)
            if divisor is not None and divisor > 0:
                return Size(name, min=0, max=divisor - 1)
        if isinstance(atom, Var) and atom.name in self.events.derived:
            lo, hi = self.events.derived[atom.name]
            return Size(name, min=lo, max=hi - 1)
        for size in self.program.sizes:
            if atom == Var(size.name):
                return replace(size, name=name)
        return Size(name, min=-MAX_SIZE)

    def _facts(self) -> Iterator[Expr]:
        """Return what is known between parameters: one for ``n//16`` is a sixteenth of the one for n, and one for ``(n + 1)//2//11``
        an eleventh of the one for ``(n + 1)//2``, if both occur; one for ``min(n//16, m)`` is at most that, even if there is none for m.
        """
        known = {atom: Var(name) for name, atom in self.bounds.items()}
        for name, atom in self.bounds.items():
            if isinstance(atom, Binary):
                yield from _facts_of(Var(name), atom, known)

    def with_parameters(self, expr: Expr) -> Expr:
        """Return an expression with a parameter for each of its parts over sizes alone."""
        used = variables(expr)
        if not used & self.names:
            return expr
        if not used <= self.names or dtype_of(expr) != "index":
            return ix.fold_indices(rebuild(expr, tuple(map(self.with_parameters, children(expr)))))
        form = ix.to_linear(expr)
        parts = (ix.mul(factor, self.parameter(atom)) for atom, factor in form.terms)
        return ix.add(*parts, form.const)

    def parameter(self, atom: Expr) -> Expr:
        """Return the parameter for an expression over sizes, or an expression over parameters that exist."""
        for name, known in self.bounds.items():
            if known == atom:
                return Var(name)
        if isinstance(atom, Binary) and any(known in walk(atom) for known in self.bounds.values()):
            over_bounds = rebuild(atom, tuple(map(self.with_parameters, children(atom))))
            if not variables(over_bounds) & self.names:
                return over_bounds
        name = f"bound{len(self.bounds)}"
        self.bounds[name] = atom
        return Var(name)

    def conditions(self, points: isl.Set, some: Iterable[Event]) -> dict[int, Expr | None]:
        """Return the condition under which instances of an event are among `points`, by its number; None: always. Events
        without such an instance are left out.
        """
        result: dict[int, Expr | None] = {}
        for event in some:
            part = points.intersect(self.of(event))
            if part.is_empty():
                continue
            iterators = {axis: name for name, axis in self.axes(event).items()}
            names = [iterators.get(axis) for axis in self.dims]
            shorter = part.coalesce().gist(self.of(event)).coalesce()
            condition = _condition(shorter, names, list(self.bounds))
            condition = ix.fold_indices(substitute(condition, self.bounds))
            result[event.number] = None if condition == _TRUE else condition
        return result

    def describe(self, points: isl.Set) -> tuple[str, isl.Set, str]:
        """Return the statement and the iterators of the least instance among `points` at the smallest sizes, this instance,
        and the sizes, for the text of an error.
        """
        points, sizes = self._smallest(points)
        parts = ((event, points.intersect(self.of(event))) for event in self.all.values())
        event, part = next((event, part) for event, part in parts if not part.is_empty())
        first = part.lexmin()
        point, axes = first.sample_point(), self.axes(event)
        numbers = [self.dims.index(axes[loop.name]) for loop in event.loops]
        values = [point.get_coordinate_val(isl.dim_type.set, at).to_python() for at in numbers]
        pairs = zip(event.loops, values, strict=True)
        return describe_event(event, {loop.name: value for loop, value in pairs}), first, sizes

    def _smallest(self, points: isl.Set) -> tuple[isl.Set, str]:
        """Return `points` at the smallest sizes where there are some, and these; all of them if none are known."""
        for sizes in small_sizes(self.program, *SMALL):
            values = values_of(self.events, sizes)
            some = points
            for at, atom in enumerate(self.bounds.values() if values else ()):
                some = some.fix_val(_PARAM, at, value_of(atom)(values))
            if values and not some.is_empty():
                return some, with_sizes(sizes)
        return points, ""


def _facts_of(parameter: Var, atom: Expr, known: Mapping[Expr, Var]) -> Iterator[Expr]:
    """Yield what is known of the parameter for an expression over sizes: its value; or limits, if it is the least or the greatest of
    expressions of which some are known.

    known  parameters, by the expressions that they stand for
    """
    others = {expr: other for expr, other in known.items() if other != parameter}
    value = rewrite(atom, others.get)
    if variables(value) <= {other.name for other in others.values()}:
        yield Compare("==", parameter, value)
    elif isinstance(atom, Binary) and atom.op in ("min", "max"):
        sign = "<=" if atom.op == "min" else ">="
        for part in (atom.a, atom.b):
            for fact in _facts_of(parameter, part, known):
                if isinstance(fact, Compare) and fact.op in ("==", sign):
                    yield replace(fact, op=sign)


def alike(names: Iterable[str]) -> list[str]:
    """Return the conditions of a map that keeps these coordinates, as isl text."""
    return [f"{name} = {name}'" for name in names]


def is_inside(place: Place, outer: Place, itself: bool = False) -> bool:
    """Return whether a place lies inside of another one; `itself`: or is that one."""
    return place[: len(outer)] == outer and (itself or len(place) > len(outer))


def _others(event: Event) -> Iterable[Expr]:
    yield from event.where
    for access in event.accesses:
        yield from (part for part in access.place if part is not None)
        yield from (extent for _, extent in access.inner)
        yield from access.where


def _depth(event: Event, loop: Loop) -> int:
    """Return the number of coordinates of time that an event shares with all that stands in a loop around it."""
    around = event.loops[: event.loops.index(loop) + 1]
    return sum(1 if one.key is not None else 2 for one in around)


def _meets_all(event: Event, key: Key) -> bool:
    """Return whether an event is a barrier of all agents of a unit, outside of their loops."""
    barrier = isinstance(event.stmt, Sync) and event.stmt.action is Action.BARRIER
    return barrier and key[0] == event.unit


def _condition(points: isl.Set, names: Sequence[str | None], sizes: Sequence[str]) -> Expr:
    """Return a set, which is not empty, as a condition on its coordinates and parameters."""
    options: list[Expr] = []
    for part in points.compute_divs().get_basic_sets():
        conditions: list[Expr] = []
        for constraint in part.get_constraints():
            sign = "==" if constraint.is_equality() else ">="
            value = _expr(constraint.get_aff(), names, sizes)
            conditions.append(Compare(sign, value, ix.const(0)))
        if not conditions:
            return _TRUE
        options.append(conjunction(conditions))
    return options[0] if len(options) == 1 else Logic("or", tuple(options))


def _expr(aff: isl.Aff, names: Sequence[str | None], sizes: Sequence[str]) -> Expr:
    """Return an affine expression of integers; its divisions are floors."""
    scale = aff.get_denominator_val()
    total: Expr = ix.const(int((aff.get_constant_val() * scale).to_python()))

    def factor(kind: isl.dim_type, at: int) -> int:
        return int((aff.get_coefficient_val(kind, at) * scale).to_python())

    for at, size in enumerate(sizes):
        total = ix.add(total, ix.mul(factor(_PARAM, at), Var(size)))
    for at, name in enumerate(names):
        times = factor(isl.dim_type.in_, at)
        if times and name is not None:
            total = ix.add(total, ix.mul(times, Var(name)))
    for at in range(aff.dim(_DIV)):
        times = factor(_DIV, at)
        if times:
            inner = aff.get_div(at)
            whole = int(inner.get_denominator_val().to_python())
            total = ix.add(total, ix.mul(times, ix.floordiv(_expr(inner, names, sizes), whole)))
    return total
