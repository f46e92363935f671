"""Explorers: evolution, simulated annealing and beam search on the predicted price; and the table of all explorers by name."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from inspect import isclass
from math import exp, inf, isfinite, log
from random import Random
from typing import Any

from offcut.errors import DescribeError
from offcut.schedule import Schedule
from offcut.search.entry_points import load_entry_point
from offcut.search.explorers.explorer import (
    Exhaustive,
    Explorer,
    Function,
    Judge,
    Sampling,
    Schedules,
    Trials,
)
from offcut.search.explorers.gradient import Gradient
from offcut.search.explorers.tree import FINEST, TreeSearch, coarse_key
from offcut.search.schedule_space import ScheduleSpace


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

    def propose(self, space: ScheduleSpace, trials: Trials, rng: Random, count: int) -> Schedules:
        """Return the best that ever lived."""
        judge = Judge(space, trials)
        living = judge.best(self.population // 2)
        living += [space.sample(rng) for _ in range(self.population - len(living))]
        visited = list(living)
        for _ in range(self.generations):
            children = []
            for _ in range(self.population):
                child = space.crossover(
                    _parent(living, judge, rng), _parent(living, judge, rng), rng
                )
                if rng.random() < self.mutation:
                    child = space.step(child, rng)
                children.append(child)
            visited += children
            living = sorted(dict.fromkeys((*living, *children)), key=judge)[: self.population]
        return tuple(judge.to_try(visited, count))


def _parent(living: Sequence[Schedule], judge: Judge, rng: Random) -> Schedule:
    return min(rng.choice(living), rng.choice(living), key=judge)


@dataclass(frozen=True, slots=True)
class Beam:
    """From a few points on, the best of all their neighbours, again and again.

    A pass tells points apart by their *grain* alone, and keeps the best of each: at first by what covers a nest,
    what is packed and which loops are shared; then by strategies, too; then by tiles; at last by all. A pass goes on
    from what the last one kept, and takes no point whose coarser grain that has not seen among its best.

    width   points that go on
    rounds  of a pass, at most: it ends where the best stays

    Source: Adams et al., "Learning to Optimize Halide with Tree Search and Random Programs", SIGGRAPH 2019,
    section 3: there, decisions are taken stage by stage, and passes share the grains of the best schedule.
    """

    width: int = 8
    rounds: int = 4

    def propose(self, space: ScheduleSpace, trials: Trials, rng: Random, count: int) -> Schedules:
        """Return the best that the passes visit."""
        judge = Judge(space, trials)
        beam = judge.best(self.width)
        visited = list(beam)
        allowed: set[Hashable] | None = None
        for level in range(FINEST + 1):
            best = _best(beam, judge, level, self.width)
            for _ in range(self.rounds):
                near = [other for point in best for other in space.neighbours(point)]
                fits = [o for o in near if allowed is None or coarse_key(o, level - 1) in allowed]
                visited += fits
                before, best = best, _best([*best, *fits], judge, level, self.width)
                if best == before:
                    break
            beam, allowed = best, {coarse_key(point, level) for point in best}
        return tuple(judge.to_try(visited, count))


def _best(points: Sequence[Schedule], judge: Judge, level: int, width: int) -> list[Schedule]:
    """Return the best point of each grain, the best of these first."""
    by_key: dict[Hashable, Schedule] = {}
    for point in sorted(dict.fromkeys(points), key=judge):
        if isfinite(judge(point)):
            by_key.setdefault(coarse_key(point, level), point)
    return list(by_key.values())[:width]


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

    def propose(self, space: ScheduleSpace, trials: Trials, rng: Random, count: int) -> Schedules:
        """Return the best that the chains visit."""
        judge = Judge(space, trials)
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
        samples = [space.sample(rng) for _ in range(round(self.random * count))]
        new = judge.to_try(samples, len(samples))
        return tuple(dict.fromkeys((*judge.to_try(visited, count - len(new)), *new)))


def _is_taken(old: float, new: float, temperature: float, rng: Random) -> bool:
    if new <= old:
        return True
    if new == inf or old <= 0:
        return False
    return rng.random() < exp(-log(new / old) / temperature)


GROUP = "offcut.explorers"
EXPLORERS: dict[str, Callable[[], Explorer]] = {
    "anneal": Anneal,
    "beam": Beam,
    "evolution": Evolution,
    "exhaustive": Exhaustive,
    "gradient": Gradient,
    "random": Sampling,
    "tree": TreeSearch,
}
_OTHERWISE = ("a function of (space, seen, rng, count)",)


def get_explorer(explorer: object) -> tuple[str, Explorer]:
    """What a user gave as ``explorer=``, and what records call it.

    explorer  a name, of `EXPLORERS` or of an entry point of the group ``offcut.explorers``; an explorer; a class of
              them; or a function ``(space, seen, rng, count) -> schedules``

    Raises DescribeError for anything else, and for a plug-in that cannot be loaded.
    """
    if isinstance(explorer, str):
        return explorer, _make(_load(explorer), explorer)
    name = getattr(explorer, "__name__", type(explorer).__name__)
    return str(name), _make(explorer, repr(explorer))


def _load(name: str) -> object:
    if name in EXPLORERS:
        return EXPLORERS[name]
    return load_entry_point(GROUP, "explorer", name, ", ".join(EXPLORERS), _OTHERWISE)


def _make(value: Any, text: str) -> Explorer:
    explorer = value() if isclass(value) else value
    if isinstance(explorer, Explorer):
        return explorer
    if callable(explorer):
        return Function(explorer)
    raise DescribeError(
        "tune",
        f"cannot take explorer={text}",
        because="it is neither a name nor a function, and has no method propose",
        help=(", ".join(EXPLORERS), *_OTHERWISE),
    )
