"""Parallel simulated annealing on the predicted price."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, inf, log
from random import Random

from offcut.schedule import Schedule
from offcut.search.explorers.explorer import Judge, Seen
from offcut.search.points import Points


@dataclass(frozen=True, slots=True)
class Anneal:
    """Chains of steps to neighbours: a worse one is taken with probability ``exp(-log(new / old) / t)``, where
    the temperature t falls from 1 to 0.

    Chains begin at the best of what was measured and, those that are left, at points drawn at random. What is
    proposed is the best of what they visit, and a share of random points, which the price may misjudge.

    chains, steps  how many, and how long
    random         share of the proposals

    Source: Chen et al., "Learning to Optimize Tensor Programs", NeurIPS 2018, section 4.
    """

    chains: int = 8
    steps: int = 24
    random: float = 0.05

    def propose(
        self, space: Points, seen: Sequence[Seen], rng: Random, count: int
    ) -> Sequence[Schedule]:
        """The best that the chains visit."""
        judge = Judge(space, seen)
        heads = judge.best(self.chains - self.chains // 2)
        heads += [space.sample(rng) for _ in range(self.chains - len(heads))]
        visited = list(heads)
        for step in range(self.steps):
            temperature = 1 - step / self.steps
            for chain, head in enumerate(heads):
                point = space.step(head, rng)
                if _is_taken(judge(head), judge(point), temperature, rng):
                    heads[chain] = point
                visited.append(point)
        drawn = [space.sample(rng) for _ in range(round(self.random * count))]
        new = judge.to_try(drawn, len(drawn))
        return tuple(dict.fromkeys((*judge.to_try(visited, count - len(new)), *new)))


def _is_taken(old: float, new: float, temperature: float, rng: Random) -> bool:
    if new <= old:
        return True
    if new == inf or old <= 0:
        return False
    return rng.random() < exp(-log(new / old) / temperature)
