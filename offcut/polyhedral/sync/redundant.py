"""Statements of synchronization that a program does not need: without them all is ordered, too."""

from __future__ import annotations

from collections.abc import Iterator

from offcut.core.program import Action
from offcut.errors import PartitionError
from offcut.polyhedral.sync.events import Event
from offcut.polyhedral.sync.order import Order
from offcut.polyhedral.sync.run_at_sizes import RunsAtSizes

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
