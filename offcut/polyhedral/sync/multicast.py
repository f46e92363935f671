"""Copies that run once for all agents of a loop: each of these has to name the same elements and places."""

from __future__ import annotations

from offcut.core import index as ix
from offcut.core.expr import variables
from offcut.core.program import Tile
from offcut.polyhedral.sync.events import Access, Event, Key, multicast_keys, refused
from offcut.polyhedral.sync.relations import Relations, alike


def check_multicast(relations: Relations) -> None:
    """Check that each copy to several agents at once has the same elements and the same places for each of them.

    Raises PartitionError with an agent for which it has others.
    """
    for event in relations.events.leaves:
        if isinstance(event.stmt, Tile) and event.stmt.multicast is not None:
            keys = multicast_keys(event)
            if not keys:
                raise refused(
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
        raise refused(
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
        raise refused(relations.program, at, because)
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
        raise refused(relations.program, at, because, "without @multicast")


def _is_known(relations: Relations, event: Event, access: Access) -> bool:
    """Return whether isl can express all coordinates of an access."""
    axes = {**relations.axes(event), **{name: "o" for name, _ in access.inner}}
    parts = [*access.place, *(extent for _, extent in access.inner)]
    return all(
        part is not None and relations.space.expr(relations.bound(part), axes) is not None
        for part in parts
    )
