"""The instances of the events of a program at given sizes, each with the agent that runs it and the places that it touches."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from offcut.core.expr import Binary, Compare, Const, Expr, Logic, Var
from offcut.core.extents import APPLIED
from offcut.core.memo import memo
from offcut.polyhedral.sync.events import Access, Event, Events, Key, multicast_keys

MOST = 30_000
"""The most places and instances of an event that are listed."""

Agent: TypeAlias = tuple[str, tuple[tuple[Key, object], ...]]
Values: TypeAlias = Mapping[str, int]
Range: TypeAlias = tuple[str, Callable[[Values], Any], Callable[[Values], Any]]
"""An iterator, its begin and its end."""


class UnknownInstancesError(Exception):
    """Something depends on data, or there is too much of it."""


@dataclass(eq=False)
class Instance:
    """An event with the values of the iterators around it.

    begins, ends   the nodes at which it begins and ends, by lane; an asynchronous tile has one end
    places         those that it touches, each with whether it is written
    """

    event: Event
    values: Values
    agent: Agent
    time: tuple[int, ...]
    places: Sequence[tuple[object, bool]] = ()
    begins: dict[int, int] = field(default_factory=dict)
    ends: dict[int, int] = field(default_factory=dict)

    def __str__(self) -> str:
        return describe_event(self.event, self.values)

    @property
    def copies(self) -> object:
        """What the instances of one copy to several agents have in common; of any other, itself."""
        keys = multicast_keys(self.event)
        if not keys:
            return self
        agent = tuple(one for one in self.agent[1] if one[0] not in keys)
        return self.event.number, self.time, agent


class Listing:
    """The instances of the events of a program at values of its sizes; those of an event are listed once."""

    def __init__(self, events: Events, values: Values) -> None:
        self.events, self.values = events, values
        self.left = MOST
        self.listed: dict[int, tuple[int, Sequence[Instance]]] = {}

    def of(self, event: Event) -> tuple[int, Sequence[Instance]]:
        """Return the number of places and instances of an event, and its instances, which are in no graph yet.

        Raises UnknownInstancesError for more than `MOST`, and where they depend on data.
        """
        if event.number not in self.listed:
            self.left, self.listed[event.number] = MOST, (MOST + 1, ())
            own = tuple(self.instances(event))
            self.listed[event.number] = MOST - self.left, own
        count, instances = self.listed[event.number]
        return count, [replace(one, begins={}, ends={}) for one in instances]

    def spend(self) -> None:
        """Count an instance or a place."""
        self.left -= 1
        if self.left < 0:
            raise UnknownInstancesError

    def instances(self, event: Event) -> Iterator[Instance]:
        """Yield the instances of an event."""
        ranges = [(loop.name, value_of(loop.lo), value_of(loop.hi)) for loop in event.loops]
        conditions = [value_of(condition) for condition in event.where]
        accesses = [(access, self.elements(access)) for access in event.accesses]
        for at in self.points(ranges, dict(self.values)):
            if not all(condition(at) for condition in conditions):
                continue
            values = dict(at)
            time = tuple(values[at] if isinstance(at, str) else at for at in event.time)
            writes: dict[object, bool] = {}
            for access, elements in accesses:
                for place in elements(values):
                    writes[place] = writes.get(place, False) or access.writes
            places = sorted(writes.items(), key=str)
            yield Instance(event, values, self.agent(event, values, time), time, places)

    def points(self, ranges: Sequence[Range], values: dict[str, int]) -> Iterator[dict[str, int]]:
        """Yield `values`, with those of iterators in it, for each of these."""
        if not ranges:
            self.spend()
            yield values
            return
        (name, lo, hi), *rest = ranges
        for value in range(lo(values), hi(values)):
            values[name] = value
            yield from self.points(rest, values)

    def elements(self, access: Access) -> Callable[[Values], Iterator[object]]:
        """Return what lists the places of an access at an instance; one coordinate that is not known is any."""
        ranges = [
            (name, value_of(Const(0, "index")), value_of(extent)) for name, extent in access.inner
        ]
        place = [None if part is None else value_of(part) for part in access.place]
        conditions = [value_of(condition) for condition in access.where]

        def places(values: Values) -> Iterator[object]:
            for at in self.points(ranges, dict(values)):
                if all(condition(at) for condition in conditions):
                    yield access.region, *[part and part(at) for part in place]

        return places

    def agent(self, event: Event, values: Values, time: tuple[int, ...]) -> Agent:
        """Return the agent that runs an instance."""
        keys: list[tuple[Key, object]] = []
        depth = 0
        for loop in event.loops:
            depth += 1
            if loop.key is not None:
                fixed = self.events.units[loop.key[0]].fixed
                value = values[loop.name]
                keys.append((loop.key, value if fixed else (time[:depth], value)))
            else:
                depth += 1
        return event.unit, tuple(sorted(keys))


def values_of(events: Events, sizes: Values) -> dict[str, int]:
    """Return the values of sizes and of what is derived from them; none where they break a promise."""
    values = dict(sizes)
    for name, (lo, hi) in events.derived.items():
        try:
            values[name] = value_of(events.lets[name])(values)
        except ZeroDivisionError:
            return {}
        if not lo <= values[name] < hi:
            return {}
    return {**values, "": 0}


def describe_event(event: Event, values: Values) -> str:
    """Return a statement and the values of the iterators around it, for the text of an error."""
    at_values_text = ", ".join(f"{loop.name} = {values[loop.name]}" for loop in event.loops)
    return f"`{event.head}`" + (f" at {at_values_text}" if at_values_text else "")


_OPERATIONS: Mapping[str, Callable[[Any, Any], Any]] = {
    **APPLIED,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}


@memo(1 << 12)
def value_of(expr: Expr) -> Callable[[Values], Any]:
    """Return what computes an expression.

    Raises UnknownInstancesError if it depends on data.
    """
    match expr:
        case Const(value, _):
            return lambda _: value
        case Var(name):
            return operator.itemgetter(name)
        case Binary(op, a, b) | Compare(op, a, b) if op in _OPERATIONS:
            apply, x, y = _OPERATIONS[op], value_of(a), value_of(b)
            return lambda at: apply(x(at), y(at))
        case Logic("not", (arg,)):
            x = value_of(arg)
            return lambda at: not x(at)
        case Logic(op, args):
            every = all if op == "and" else any
            parts = [value_of(arg) for arg in args]
            return lambda at: every(part(at) for part in parts)
    raise UnknownInstancesError
