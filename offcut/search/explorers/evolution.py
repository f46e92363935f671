"""Evolution: points that are crossed and changed, generation after generation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from offcut.schedule import Schedule
from offcut.search.explorers.explorer import Judge, Seen
from offcut.search.points import Points


@dataclass(frozen=True, slots=True)
class Evolution:
    """A population of the best of what was measured and of random points. Of a generation the better of two that
    are drawn is a parent; a child is two parents crossed, then often one step aside; the best live on.

    population, generations  how many
    mutation                 how often a child takes a step
    """

    population: int = 16
    generations: int = 12
    mutation: float = 0.7

    def propose(
        self, space: Points, seen: Sequence[Seen], rng: Random, count: int
    ) -> Sequence[Schedule]:
        """The best that ever lived."""
        judge = Judge(space, seen)
        living = judge.best(self.population // 2)
        living += [space.sample(rng) for _ in range(self.population - len(living))]
        visited = list(living)
        for _ in range(self.generations):
            children = []
            for _ in range(self.population):
                child = space.crossed(_parent(living, judge, rng), _parent(living, judge, rng), rng)
                if rng.random() < self.mutation:
                    child = space.step(child, rng)
                children.append(child)
            visited += children
            living = sorted(dict.fromkeys((*living, *children)), key=judge)[: self.population]
        return tuple(judge.to_try(visited, count))


def _parent(living: Sequence[Schedule], judge: Judge, rng: Random) -> Schedule:
    return min(rng.choice(living), rng.choice(living), key=judge)
