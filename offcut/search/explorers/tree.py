"""Monte Carlo tree search: decisions are taken from coarse to fine, and those are tried more often that have led to low prices.

A node of the tree is all schedules that decide alike down to a grain: covers, then strategies, then tiles
(`coarse_key`). A visit begins at the root and goes down to the child of the greatest upper confidence bound::

    best of the root / best of the child  +  exploration * sqrt(ln(visits of the node) / visits of the child)

until it comes to a node with fewer children than ``widening * sqrt(visits)``: there a schedule of the node is drawn, and is
counted in the node of each of its grains.

The decisions of a schedule from coarse to fine: what covers a nest, by which strategies, in which tiles.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from functools import lru_cache
from math import inf, log, sqrt
from random import Random

from offcut.schedule import Bind, Choose, Order, Schedule, Separate, Split, Step
from offcut.search.explorers.explorer import Judge, Schedules, Trials
from offcut.search.schedule_space import ScheduleSpace

FINEST = 3
"""The level at which different schedules have different keys."""


def coarse_key(schedule: Schedule, level: int) -> Hashable:
    """Return a key of the decisions down to a level; schedules that differ only in finer decisions have equal keys.

    level  0: covers, copies and shared loops; 1: strategies, too; 2: tiles, too; 3: all
    """
    if level >= FINEST:
        return schedule
    keys = (_of_step(step, level) for step in schedule.steps)
    return tuple(key for key in keys if key is not None)


@lru_cache(1 << 16)
def _of_step(step: Step, level: int) -> Hashable:
    """Return the key of a decision, None if it is a finer one; cached, since most schedules of a search share decisions."""
    match step:
        case Split(stage, axis, levels):
            tiles = tuple((one.tile, one.heights, one.classes) for one in levels)
            return stage, axis, (levels[-1].tail,)[:level], tiles if level > 1 else ()
        case Choose(options):
            return frozenset(tuple(_of_step(own, level) for own in one.steps) for one in options)
        case Separate():
            return step if level > 1 else None
        case Bind() | Order():
            return None
        case _:
            return step


LAST = FINEST - 1
"""The level of the nodes that have no children."""

_DRAWS = 4  # steps aside in a node, until one stays in it


@dataclass(slots=True)
class Node:
    """Schedules that decide alike down to a level; -1: all.

    best   the drawn schedule of the lowest price, and that price
    """

    level: int
    key: Hashable = None
    visits: int = 0
    best: Schedule | None = None
    price: float = inf
    children: dict[Hashable, Node] = field(default_factory=dict)

    def count(self, point: Schedule, price: float) -> None:
        """Count a schedule in this node and in its descendants that contain the schedule."""
        self.visits += 1
        if self.best is None or price < self.price:
            self.best, self.price = point, price
        if self.level < LAST:
            level = self.level + 1
            key = coarse_key(point, level)
            self.children.setdefault(key, Node(level, key)).count(point, price)


@dataclass(frozen=True, slots=True)
class TreeSearch:
    """Monte Carlo tree search; the tree starts with the best measured schedules.

    visits       number of visits for each proposal
    widening     maximum children of a node, divided by the square root of its visits
    exploration  weight of the bonus for rarely visited nodes

    Source: Kocsis and Szepesvári, "Bandit based Monte-Carlo planning", ECML 2006; Coulom, "Computing Elo ratings of move
    patterns", 2007 (widening); Haj-Ali et al., "ProTuner", 2020, which takes the best of a subtree for its value, as is done here.
    """

    visits: int = 256
    widening: float = 1.5
    exploration: float = 0.3

    def propose(self, space: ScheduleSpace, trials: Trials, rng: Random, count: int) -> Schedules:
        """Return the schedules of the lowest predicted cost among those drawn."""
        judge, root = Judge(space, trials), Node(-1)
        visited = judge.best(8)
        for point in visited:
            root.count(point, judge(point))
        for _ in range(self.visits):
            point = self._draw(space, self._select(root), rng)
            root.count(point, judge(point))
            visited.append(point)
        return tuple(judge.to_try(visited, count))

    def _select(self, root: Node) -> Node:
        """Return the node in which a schedule is to be drawn."""
        node = root
        while node.level < LAST and len(node.children) >= self.widening * sqrt(node.visits):
            parent = node

            def bound(child: Node, parent: Node = parent) -> float:
                share = root.price / child.price if 0 < child.price < inf else 0.0
                return share + self.exploration * sqrt(log(parent.visits) / child.visits)

            node = max(node.children.values(), key=bound)
        return node

    @staticmethod
    def _draw(space: ScheduleSpace, node: Node, rng: Random) -> Schedule:
        """Return a schedule of a node: any at the root; else one step aside from its best that stays in it, or the best itself."""
        if node.best is None or (node.level < 0 and rng.random() < 0.5):
            return space.sample(rng)
        for _ in range(_DRAWS):
            point = space.step(node.best, rng)
            if node.level < 0 or coarse_key(point, node.level) == node.key:
                return point
        return node.best
