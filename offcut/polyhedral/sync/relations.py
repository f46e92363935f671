"""Sets of what agents do: which instance of an event is which agent's, when it runs, what it touches.

An instance is a point ``[a0, …, t0, …]``: the values of the loops that are bound to units, one coordinate for each unit,
then its place in the order of the text. Bounds over sizes alone are parameters of their own, whatever the sizes: the
answer holds for more programs than were asked about.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import islpy as isl

from offcut.core import index as ix
from offcut.core.conditions import all_of
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
    substitute,
    variables,
    walk,
)
from offcut.core.memo import lazy_property
from offcut.core.program import Action, Size, Sync, Tile
from offcut.core.sizes import MAX_SIZE
from offcut.polyhedral.affine import Space
from offcut.polyhedral.sync.events import Access, Event, Events, Key, Loop, refused

_DIM, _PARAM, _DIV = isl.dim_type.set, isl.dim_type.param, isl.dim_type.div


class Relations:
    """Instances of `events`, as sets and maps.

    keys    the units that bind loops
    agents  their coordinates
    times   the coordinates of the order of the text, those left out that tell no two instances apart
    """

    def __init__(self, events: Events) -> None:
        self.events = events
        self.program = events.program
        self.all = {event.number: event for event in (*events.leaves, *events.syncs)}
        self.names = {size.name for size in self.program.sizes} | events.derived.keys()
        self.bounds: dict[str, Expr] = {}
        exprs = [e for event in self.all.values() for one in event.loops for e in (one.lo, one.hi)]
        for expr in sorted(exprs, key=lambda e: variables(e) <= self.names):
            self.bound(expr)  # those that depend on loops first: others are told by their parts
        for event in self.all.values():
            for expr in _others(event):
                self.bound(expr)
        self.space = Space(tuple(map(self._size, self.bounds)))
        self.keys: list[Key] = sorted({key for event in self.all.values() for key in event.keys})
        self.agents = [f"a{at}" for at in range(len(self.keys))]
        depth = max((len(event.time) for event in self.all.values()), default=0)
        columns = [{self._time(event, at) for event in self.all.values()} for at in range(depth)]
        self._told = [at for at, values in enumerate(columns) if len(values) > 1 or "" in values]
        self.times = [f"t{at}" for at in self._told]
        self.dims = [*self.agents, *self.times]
        self._touched: dict[tuple[int, str, bool], isl.Map | None] = {}
        self._sets = {number: self._instances(event) for number, event in self.all.items()}

    @staticmethod
    def _time(event: Event, at: int) -> int | str:
        """A number of an event's time; "" for an iterator."""
        value = event.time[at] if at < len(event.time) else 0
        return value if isinstance(value, int) else ""

    def prefix(self, depth: int) -> list[str]:
        """The coordinates of the first numbers of a time."""
        return [name for at, name in zip(self._told, self.times, strict=True) if at < depth]

    def of(self, event: Event) -> isl.Set:
        """The instances of an event."""
        return self._sets[event.number]

    def union(self, some: Iterable[Event]) -> isl.Set:
        """The instances of several events."""
        found = self.nothing
        for event in some:
            found = found.union(self.of(event))
        return found

    @lazy_property
    def nothing(self) -> isl.Set:
        """No instance."""
        return isl.Set(f"{self.space.parameters}{{ [{', '.join(self.dims)}] : false }}")

    @lazy_property
    def no_pairs(self) -> isl.Map:
        """No pair of instances."""
        return self.map(("false",))

    def map(self, conditions: Sequence[str], more: Sequence[str] = ()) -> isl.Map:
        """``{ [x, more] -> [y, more'] : conditions }`` of instances x, with coordinates as `dims`, and y, primed."""
        ones = [*self.dims, *more]
        others = [f"{name}'" for name in ones]
        text = f"{{ [{', '.join(ones)}] -> [{', '.join(others)}] : {' and '.join(conditions) or 'true'} }}"
        return isl.Map(self.space.parameters + text)

    def order(self, sign: str, same: Sequence[str], more: Sequence[str] = ()) -> isl.Map:
        """Pairs of instances whose times compare by `sign` (``<<``, ``<<=``), alike in the coordinates `same`."""
        alike = [f"{name} = {name}'" for name in same]
        ones, others = ", ".join(self.times), ", ".join(f"{name}'" for name in self.times)
        return self.map((*alike, f"{ones} {sign} {others}"), more)

    @lazy_property
    def later(self) -> isl.Map:
        """``{ a -> b }``: b comes after a in the order of the text."""
        return self.order("<<", ())

    @lazy_property
    def next_own(self) -> isl.Map:
        """``{ a -> b }``: the same agent, and b after a."""
        return self.order("<<", self.agents)

    @lazy_property
    def own_since(self) -> isl.Map:
        """``{ a -> b }``: the same agent, and b is a or after it."""
        return self.order("<<=", self.agents)

    def axis(self, key: Key) -> str:
        """The coordinate of a unit's agents."""
        return self.agents[self.keys.index(key)]

    def conflicts(self, one: Event, other: Event) -> isl.Map:
        """``{ a -> b }``: b touches what a touches, one of them writing."""
        found = self.no_pairs
        regions = {access.region for access in other.accesses}
        for region in dict.fromkeys(access.region for access in one.accesses):
            for first, second in ((True, False), (False, True)) if region in regions else ():
                mine, theirs = self.touched(one, region, first), self.touched(other, region, second)
                if mine is not None and theirs is not None:
                    found = found.union(mine.apply_range(theirs.reverse()))
        return found

    def touched(self, event: Event, region: str, written: bool) -> isl.Map | None:
        """``{ instance -> place }`` of what an event touches of a region, or writes of it; None where there is none."""
        key = event.number, region, written
        if key not in self._touched:
            found = None
            for access in event.accesses:
                if access.region == region and (access.writes or not written):
                    places = self.places(event, access)
                    found = places if found is None else found.union(places)
            self._touched[key] = found
        return self._touched[key]

    def widened(self, pairs: isl.Map, keys: Iterable[Key], event: Event) -> isl.Map:
        """``{ a -> b' }``: as some b does, of the event, but of any agent along `keys`."""
        free = {self.axis(key) for key in keys}
        if not free:
            return pairs
        alike = [f"{name} = {name}'" for name in self.dims if name not in free]
        return pairs.apply_range(self.map(alike)).intersect_range(self.of(event))

    def within_one_run(self, one: Event, other: Event) -> isl.Map:
        """Pairs of instances in one run of a loop that is bound to a unit, of two of its agents."""
        found = self.no_pairs
        for key, loop in one.keys.items():
            if other.keys.get(key) == loop:
                depth = _depth(one, loop)
                alike = [f"{name} = {name}'" for name in self.prefix(depth)]
                outer = [self.axis(k) for k, around in one.keys.items() if _stands_in(loop, around)]
                alike += [f"{name} = {name}'" for name in outer]
                axis = self.axis(key)
                found = found.union(self.map((*alike, f"{axis} != {axis}'")))
        return found

    def places(self, event: Event, access: Access) -> isl.Map:
        """``{ instance -> place }`` of an access."""
        coordinates = [f"e{at}" for at in range(len(access.place))]
        inner = {name: f"i{at}" for at, (name, _) in enumerate(access.inner)}
        axes = {**self.axes(event), **inner}
        said = []
        for name, extent in access.inner:
            said.append(self.condition(Compare(">=", Var(name), ix.const(0)), axes))
            said.append(self.condition(Compare("<", Var(name), self.bound(extent)), axes))
        said += [self.condition(self.bound(one), axes) for one in access.where]
        for name, value in zip(coordinates, access.place, strict=True):
            text = None if value is None else self.space.expr(self.bound(value), axes)
            said.append(None if text is None else f"{name} = {text}")
        told = " and ".join(text for text in said if text is not None) or "true"
        if inner:
            told = f"exists ({', '.join(inner.values())} : {told})"
        dims = ", ".join(self.dims)
        text = f"{{ [{dims}] -> [{', '.join(coordinates)}] : {told} }}"
        return isl.Map(self.space.parameters + text).intersect_domain(self.of(event))

    def condition(self, expr: Expr, axes: dict[str, str]) -> str | None:
        """A condition as isl text; None where a part of it is not quasi-affine."""
        return self.space.condition(expr, axes)

    def axes(self, event: Event) -> dict[str, str]:
        """isl's names of the iterators around an event."""
        found = {name: f"t{at}" for at, name in enumerate(event.time) if isinstance(name, str)}
        return {**found, **{loop.name: self.axis(key) for key, loop in event.keys.items()}}

    def _instances(self, event: Event) -> isl.Set:
        axes = self.axes(event)
        said = [f"t{at} = {v}" for at in self._told if (v := self._time(event, at)) != ""]
        said += [
            f"{name} = 0"
            for key, name in zip(self.keys, self.agents, strict=True)
            if key not in event.keys and not _meets_all(event, key)
        ]
        wanted: list[Expr] = []
        for loop in event.loops:
            lo, hi = self.bound(loop.lo), self.bound(loop.hi)
            wanted += [Compare("<=", lo, Var(loop.name)), Compare("<", Var(loop.name), hi)]
        wanted += map(self.bound, event.where)
        for one in wanted:
            text = self.condition(one, axes)
            if text is None:
                raise refused(
                    self.program,
                    event.head,
                    "when it runs is told by more than sums of iterators and sizes",
                )
            said.append(text)
        said.append(self.space.facts)
        dims = ", ".join(self.dims)
        return isl.Set(f"{self.space.parameters}{{ [{dims}] : {' and '.join(said)} }}")

    def _size(self, name: str) -> Size:
        """A parameter: any integer, but for a value whose range is promised."""
        atom = self.bounds[name]
        if isinstance(atom, Var) and atom.name in self.events.derived:
            lo, hi = self.events.derived[atom.name]
            return Size(name, min=lo, max=hi - 1)
        return Size(name, min=-MAX_SIZE)

    def bound(self, expr: Expr) -> Expr:
        """An expression whose parts over sizes alone are parameters, or what is known of them."""
        used = variables(expr)
        if not used & self.names:
            return expr
        if not used <= self.names or dtype_of(expr) != "index":
            return ix.folded(rebuild(expr, tuple(map(self.bound, children(expr)))))
        form = ix.linear(expr)
        parts = (ix.mul(factor, self.parameter(atom)) for atom, factor in form.terms)
        return ix.add(*parts, form.const)

    def parameter(self, atom: Expr) -> Expr:
        """The parameter that stands for an expression; a quotient of one that is known is one of it."""
        for name, known in self.bounds.items():
            if known == atom:
                return Var(name)
        if isinstance(atom, Binary) and any(known in walk(atom) for known in self.bounds.values()):
            made = rebuild(atom, tuple(map(self.bound, children(atom))))
            if not variables(made) & self.names:
                return made
        name = f"bound{len(self.bounds)}"
        self.bounds[name] = atom
        return Var(name)

    def told(self, points: isl.Set, some: Iterable[Event]) -> dict[int, Expr]:
        """By event, the condition under which its instances are among `points`; those that never are, left out."""
        found: dict[int, Expr] = {}
        for event in some:
            part = points.intersect(self.of(event))
            if part.is_empty():
                continue
            named = {text: name for name, text in self.axes(event).items()}
            names = [named.get(name) for name in self.dims]
            shorter = part.coalesce().gist(self.of(event)).coalesce()
            said = _condition(shorter, names, list(self.bounds))
            found[event.number] = ix.folded(substitute(said, self.bounds))
        return found

    def at(self, point: isl.Set) -> tuple[Event, str]:
        """An instance of a set: its event, and the least values of sizes and iterators, in words."""
        for event in self.all.values():
            part = point.intersect(self.of(event))
            if not part.is_empty():
                return event, self._words(event, part)
        raise AssertionError(point)

    def _words(self, event: Event, part: isl.Set) -> str:
        point = part.lexmin().sample_point()
        axes = self.axes(event)
        values = [
            f"{loop.name} = {point.get_coordinate_val(_DIM, self.dims.index(axes[loop.name])).to_python()}"
            for loop in event.loops
        ]
        return ", ".join(values)


def _others(event: Event) -> Iterable[Expr]:
    yield from event.where
    for access in event.accesses:
        yield from (part for part in access.place if part is not None)
        yield from (extent for _, extent in access.inner)
        yield from access.where


def _depth(event: Event, loop: Loop) -> int:
    """How many coordinates of time an event shares with all that stands in a loop around it."""
    depth = 0
    for one in event.loops:
        depth += 1 if one.key is not None else 2
        if one == loop:
            return depth
    raise AssertionError(loop)


def _stands_in(loop: Loop, other: Loop) -> bool:
    return len(other.at) < len(loop.at) and loop.at[: len(other.at)] == other.at


def _meets_all(event: Event, key: Key) -> bool:
    """Whether all agents of a unit come to an event that stands outside of their loops."""
    return (
        isinstance(event.stmt, Sync)
        and event.stmt.action is Action.BARRIER
        and key[0] == event.unit
    )


def multicast_keys(event: Event) -> tuple[Key, ...]:
    """The unit over whose agents a leaf copies at once."""
    name = event.stmt.multicast if isinstance(event.stmt, Tile) else None
    return tuple(key for key, loop in event.keys.items() if loop.name == name)


def _condition(points: isl.Set, names: Sequence[str | None], sizes: Sequence[str]) -> Expr:
    """A set as a condition on its coordinates and parameters."""
    options: list[Expr] = []
    for part in points.compute_divs().get_basic_sets():
        said: list[Expr] = []
        for constraint in part.get_constraints():
            value = _expr(constraint.get_aff(), names, sizes)
            said.append(Compare("==" if constraint.is_equality() else ">=", value, ix.const(0)))
        if not said:
            return Const(1, "bool")
        options.append(all_of(said))
    if not options:
        return Const(0, "bool")
    return options[0] if len(options) == 1 else Logic("or", tuple(options))


def _expr(aff: isl.Aff, names: Sequence[str | None], sizes: Sequence[str]) -> Expr:
    """An affine expression of integers; its divisions are floors."""
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


__all__ = ["Relations", "multicast_keys"]
