"""Finds the pairs of instances of which one must wait for the other, and synchronization that a program does not need.

Statements of synchronization that a program does not need: without them all is ordered, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product

import islpy as isl

from offcut.core import index as ix
from offcut.core.expr import variables
from offcut.core.program import Action, For, Let, Tile
from offcut.core.traversal import walk_with_paths
from offcut.errors import PartitionError
from offcut.polyhedral.sync.events import (
    Access,
    Event,
    Key,
    by_one_lane,
    fence_between,
    multicast_keys,
    sync_error,
)
from offcut.polyhedral.sync.order import Order, Pair
from offcut.polyhedral.sync.relations import Relations, alike
from offcut.polyhedral.sync.run_at_sizes import RunsAtSizes
from offcut.polyhedral.units import Independence


def pairs_of(relations: Relations) -> list[Pair]:
    """Return the pairs of instances of which the second must wait for the first.

    Raises PartitionError if iterations of a loop that is bound to a unit need each other.
    """
    leaves, units = relations.events.leaves, relations.events.units
    check_multicast(relations)
    result = []
    firsts, lasts = [*leaves], [*leaves]
    if not relations.keys and not any(leaf.engine for leaf in leaves):
        firsts, lasts = without_implied(leaves), without_implied(leaves[::-1])
    for one, other in product(lasts, firsts):
        own = one.unit == other.unit and not one.engine
        own = own and not by_one_lane(units, one, other) and not fence_between(units, one, other)
        if own and not relations.keys:
            continue  # one agent, which keeps its own order
        touching = relations.conflicts(one, other)
        if touching.is_empty():
            continue
        if relations.keys:
            across = touching.intersect(relations.within_one_run(one, other))
            if not across.is_empty():
                _check_bound(relations, one, other, across)
                touching = touching.subtract(across)
        _check_own(relations, one, other, touching)
        pairs = touching.intersect(relations.later)
        pairs = relations.widen(pairs, multicast_keys(other), other).coalesce()
        if own:
            pairs = pairs.subtract(relations.next_of_agent(one, other))
        elif not relations.keys and not one.engine:
            # Of a leaf whose instances one agent ends in their order, the last one before b says all, and of b the first one behind it.
            pairs = pairs.reverse().lexmax().reverse().lexmin().coalesce()
        if not pairs.is_empty():
            result.append(Pair(one, other, pairs))
    return result


def _check_own(relations: Relations, one: Event, other: Event, touching: isl.Map) -> None:
    """Check that no agent touches a window in the own memory of another one.

    touching   ``{ a -> b }``: b touches a place that a touches

    Raises PartitionError with the least instance that does.
    """
    own = relations.events.own
    if not any(access.region in own for access in one.accesses):
        return
    touching = touching.intersect(relations.conflicts(one, other, own))
    if one.unit == other.unit and one.keys.keys() == other.keys.keys():
        touching = touching.subtract(relations.map(alike(relations.agents)))
    if touching.is_empty():
        return
    at, first, sizes = relations.describe(touching.domain())
    (memory,) = relations.events.agents.own
    raise sync_error(
        relations.program,
        relations.describe(touching.intersect_domain(first).range())[0],
        f"{sizes}it touches what {at} touches, in {memory} of another {one.unit}",
        "loops over the same elements, bound to the same unit",
        "a window in a memory that they share",
        stmt=other.stmt,
    )


def without_implied(leaves: Sequence[Event]) -> list[Event]:
    """Return leaves without the accesses that the leaf before makes too, if both are of one unit and stand in one block.

    A unit that has waited for the first of two equal accesses has nothing to wait for at the second. For leaves in reverse
    order: another unit that waits for the last of them has waited for all.
    """
    result = []
    for before, leaf in zip((None, *leaves), leaves, strict=False):
        implied = set[Access]()
        if before is not None and _follow_in_block(before, leaf):
            implied = {*before.accesses, *(replace(a, writes=False) for a in before.accesses)}
        accesses = tuple(access for access in leaf.accesses if access not in implied)
        if accesses:
            result.append(replace(leaf, accesses=accesses))
    return result


def _follow_in_block(one: Event, other: Event) -> bool:
    """Return whether two leaves of one unit stand in one block."""
    return one.unit == other.unit and one.place[:-1] == other.place[:-1]


def _check_bound(relations: Relations, one: Event, other: Event, across: isl.Map) -> None:
    """Check that iterations of loops that are bound to units need nothing of each other, though sets say they do.

    across   ``{ a -> b }``: instances of both, in one run of such a loop, that touch one place

    Raises PartitionError with the least of them.
    """
    program = relations.program
    independence = Independence(program)
    shared = [loop for key, loop in one.keys.items() if other.keys.get(key) == loop]
    independent = True
    for place, stmt in walk_with_paths(program.body):
        if isinstance(stmt, Let):
            independence.inside(stmt)
        if isinstance(stmt, For) and any(loop.at == place for loop in shared):
            independent = independent and independence.of(stmt, place)
    if independent:
        return
    at, first, sizes = relations.describe(across.domain())
    units = ", ".join(f"@{loop.key[0]}" for loop in shared if loop.key is not None)
    raise sync_error(
        program,
        relations.describe(across.intersect_domain(first).range())[0],
        f"{sizes}it touches what {at} touches: both are in one run of a loop {units}, whose iterations "
        "run side by side",
        stmt=other.stmt,
    )


def check_multicast(relations: Relations) -> None:
    """Check that each copy to several agents at once has the same elements and the same places for each of them.

    Raises PartitionError with an agent for which it has others.
    """
    for event in relations.events.leaves:
        if isinstance(event.stmt, Tile) and event.stmt.multicast is not None:
            keys = multicast_keys(event)
            if not keys:
                raise sync_error(
                    relations.program,
                    f"@multicast({event.stmt.multicast})",
                    f"no loop {event.stmt.multicast} around is bound to a unit of the machine",
                )
            for key in keys:
                _check(relations, event, key)


def _check(relations: Relations, event: Event, key: Key) -> None:
    loop = event.keys[key]
    lo, hi = ix.literal_value(loop.lo), ix.literal_value(loop.hi)
    if lo is None or hi is None:
        raise sync_error(
            relations.program,
            f"`{event.head}`",
            f"how many iterations {loop.name} has is not a number: a copy goes to a cluster of so many",
        )
    axis = relations.axis(key)
    same = alike(name for name in relations.dims if name != axis)
    others = relations.map((*same, f"{lo} <= {axis}' < {hi}"))
    mine = relations.of(event)
    absent = mine.apply(others).subtract(mine)
    if not absent.is_empty():
        at, _, sizes = relations.describe(mine.intersect(absent.apply(others)))
        because = f"{sizes}it runs there, and not for each {loop.name}"
        raise sync_error(relations.program, at, because)
    to_others = others.intersect_domain(mine).intersect_range(mine)
    for access in event.copies:
        moving = [*(part for part in access.place if part is not None)]
        moving += [extent for _, extent in access.inner] + [*access.where]
        if not any(loop.name in variables(part) for part in moving):
            continue
        places = relations.places(event, access)
        differing = to_others.apply_range(places).subtract(places)
        if differing.is_empty() and _is_known(relations, event, access):
            continue
        pairs = differing.apply_range(places.reverse()).intersect(to_others)
        pairs = to_others.subtract(relations.same) if pairs.is_empty() else pairs
        at, first, sizes = relations.describe(pairs.domain())
        other, _, _ = relations.describe(pairs.intersect_domain(first).range())
        because = f"{sizes}what it copies to {access.region}, or where, is not what {other} does: one copy cannot be both"
        raise sync_error(relations.program, at, because, "without @multicast")


def _is_known(relations: Relations, event: Event, access: Access) -> bool:
    """Return whether isl can express all coordinates of an access."""
    axes = {**relations.axes(event), **{name: "o" for name, _ in access.inner}}
    parts = [*access.place, *(extent for _, extent in access.inner)]
    return all(
        part is not None and relations.space.expr(relations.with_parameters(part), axes) is not None
        for part in parts
    )


_OF_TOKENS = (Action.ARRIVE, Action.WAIT)


def find_redundant(order: Order) -> list[Event]:
    """Return statements without which all is ordered, too: a barrier, a fence, a wait for a group, or all arrivals and
    waits of a token that are for each other; none if all are needed.

    A token is needed if no others lead from its source to its target: each wait is for an arrival that something behind
    it needs (`check_match`), and between it and the next wait nothing else comes from there.
    """
    runs = RunsAtSizes(order.events)
    alone = [[one] for one in order.events.syncs if one.stmt.action not in _OF_TOKENS]
    for events in (*alone, *_implied_tokens(order)):
        without = {event.number for event in events}
        if runs.smallest_fault(without) is None:
            try:
                Order(order.relations, order.pairs, without).check()
            except PartitionError:
                continue
            return events
    return []


def _implied_tokens(order: Order) -> Iterator[list[Event]]:
    """Return the arrivals and waits that are for each other, of each token to whose target others lead from its source,
    or whose waits are for later arrivals than they need.
    """
    for token in order.program.tokens:
        others = [(t.source, t.target) for t in order.program.tokens if t is not token]
        reached = {token.source}
        for _ in others:
            reached |= {target for source, target in others if source in reached}
        if token.target not in reached and order.matches[token.name].by_need:
            continue
        ordered = order.keeps_order(order.matches[token.name])
        rest = order.syncs(Action.ARRIVE, token.name) + order.syncs(Action.WAIT, token.name)
        while rest:
            some = more = [rest.pop(0)]
            while more:
                of = order.relations.union(more)
                both = of.apply(ordered).union(of.apply(ordered.reverse()))
                more = [one for one in rest if not both.is_disjoint(order.relations.of(one))]
                some, rest = [*some, *more], [one for one in rest if one not in more]
            yield some
