"""Explorers: evolution, simulated annealing and beam search on the predicted price; and all by name, with those of plug-ins."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from inspect import isclass
from itertools import islice
from math import exp, inf, isfinite, log
from random import Random
from statistics import median
from typing import Any, Protocol, TypeAlias, runtime_checkable

from offcut.errors import DescribeError
from offcut.partition import AxisCut
from offcut.schedule import Nest, Schedule, Separate, Split, Staging, Step, Together, Way, parts_of
from offcut.search.choices import Points
from offcut.search.entry_points import load_entry_point


@dataclass(frozen=True, slots=True)
class Seen:
    """A schedule that was tried.

    seconds  measured, of a call drawn from the distribution of sizes; None: it was refused, or failed
    """

    schedule: Schedule
    seconds: float | None


@runtime_checkable
class Explorer(Protocol):
    """Proposes schedules.

    What it draws, it draws from the generator that it is given: the same space, trials and generator give
    the same proposals, in any process.
    """

    def propose(
        self, space: Points, seen: Sequence[Seen], rng: Random, count: int
    ) -> Sequence[Schedule]:
        """At most `count` schedules to try next; none ends the search.

        seen  all that was tried, in order; what is proposed again is skipped
        """
        ...


Propose: TypeAlias = Callable[[Points, Sequence[Seen], Random, int], Sequence[Schedule]]


@dataclass(frozen=True, slots=True)
class Function:
    """An explorer that is a function."""

    function: Propose

    def propose(
        self, space: Points, seen: Sequence[Seen], rng: Random, count: int
    ) -> Sequence[Schedule]:
        """What the function gives."""
        return self.function(space, seen, rng, count)


class Judge:
    """Seconds of schedules: measured where they were, else predicted, in the scale of what was measured.

    The scale is the median of measured over predicted seconds; 1 where nothing was measured.
    """

    def __init__(self, space: Points, seen: Sequence[Seen]) -> None:
        self.space = space
        self.measured = {one.schedule: inf if one.seconds is None else one.seconds for one in seen}
        ratios = [
            seconds / expected
            for schedule, seconds in self.measured.items()
            if isfinite(seconds) and 0 < (expected := space.expected(schedule)) < inf
        ]
        self.scale = median(ratios) if ratios else 1.0

    def __call__(self, schedule: Schedule) -> float:
        """Seconds; infinite for what is refused, failed, or is not worth a trial."""
        if schedule in self.measured:
            return self.measured[schedule]
        return self.scale * self.space.expected(schedule)

    def best(self, count: int) -> list[Schedule]:
        """Return the best of what was measured, and `space.first` before it where that was not."""
        fine = [one for one, seconds in self.measured.items() if isfinite(seconds)]
        found = sorted(fine, key=self.measured.__getitem__)[:count]
        return found if self.space.first in self.measured else [self.space.first, *found][:count]

    def to_try(self, visited: Sequence[Schedule], count: int) -> list[Schedule]:
        """Return the `count` best of what was visited that were not measured; of equal ones the first."""
        new = [s for s in dict.fromkeys(visited) if s not in self.measured and isfinite(self(s))]
        return sorted(new, key=self)[:count]


@dataclass(frozen=True, slots=True)
class Sampling:
    """Points that the price does not leave out, each choice drawn alike.

    draws  for each schedule that is asked for, at most: a small space is exhausted some day
    """

    draws: int = 64

    def propose(
        self, space: Points, seen: Sequence[Seen], rng: Random, count: int
    ) -> Sequence[Schedule]:
        """As many as are new."""
        schedules = {one.schedule for one in seen}
        proposals: dict[Schedule, None] = {}
        for _ in range(self.draws * count):
            if len(proposals) == count:
                break
            point = space.sample(rng)
            if point not in schedules and isfinite(space.expected(point)):
                proposals[point] = None
        return tuple(proposals)


@dataclass(frozen=True, slots=True)
class Exhaustive:
    """All points that the price does not leave out: for small spaces."""

    def propose(
        self, space: Points, seen: Sequence[Seen], rng: Random, count: int
    ) -> Sequence[Schedule]:
        """Return the next ones."""
        schedules = {one.schedule for one in seen}
        new = (s for s in space.enumerate() if s not in schedules and isfinite(space.expected(s)))
        return tuple(islice(new, count))


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
        """Return the best that ever lived."""
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


_FINEST = 3


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

    def propose(
        self, space: Points, seen: Sequence[Seen], rng: Random, count: int
    ) -> Sequence[Schedule]:
        """Return the best that the passes visit."""
        judge = Judge(space, seen)
        beam = judge.best(self.width)
        visited = list(beam)
        allowed: set[Hashable] | None = None
        for level in range(_FINEST + 1):
            kept = _best(beam, judge, level, self.width)
            for _ in range(self.rounds):
                near = [other for point in kept for other in space.neighbours(point)]
                fits = [o for o in near if allowed is None or grain(o, level - 1) in allowed]
                visited += fits
                before, kept = kept, _best([*kept, *fits], judge, level, self.width)
                if kept == before:
                    break
            beam, allowed = kept, {grain(point, level) for point in kept}
        return tuple(judge.to_try(visited, count))


def _best(points: Sequence[Schedule], judge: Judge, level: int, width: int) -> list[Schedule]:
    """Return the best point of each grain, the best of these first."""
    found: dict[Hashable, Schedule] = {}
    for point in sorted(dict.fromkeys(points), key=judge):
        if isfinite(judge(point)):
            found.setdefault(grain(point, level), point)
    return list(found.values())[:width]


def grain(schedule: Schedule, level: int) -> Hashable:
    """What a pass tells a schedule by: 0, covers, copies and shared loops; 1, strategies; 2, tiles; 3, all."""
    if level >= _FINEST:
        return schedule
    parts = parts_of(schedule)
    if not parts:
        return tuple(_of_step(step, level) for step in schedule.steps)
    nests = tuple(_of_part(part, level) for part in parts)
    return nests, tuple(step for step in schedule.steps if isinstance(step, Staging))


def _of_part(part: Nest | Together, level: int) -> Hashable:
    if isinstance(part, Nest):
        return _of_nest(part, level)
    return part.axes, tuple(_of_part(inner, level) for inner in part.parts)


def _of_step(step: Step, level: int) -> Hashable:
    match step:
        case Split(stage, axis, levels):
            tiles = tuple(one.tile for one in levels) if level > 1 else ()
            return stage, axis, (levels[-1].tail,)[:level], tiles
        case Separate():
            return step if level > 1 else None
        case _:
            return step


@lru_cache(1 << 16)
def _of_nest(nest: Nest, level: int) -> Hashable:
    """Of a nest, which most schedules of a search have in common with others."""
    return nest.stage, frozenset(_of_way(way, level) for way in nest.ways)


def _of_way(way: Way, level: int) -> Hashable:
    splits = tuple(_of_split(cut, level) for cut in way.splits)
    return way.cover, way.pack, splits


def _of_split(cut: AxisCut, level: int) -> Hashable:
    tiles = (cut.tile, cut.heights, cut.by_height) if level > 1 else ()
    return cut.axis, (cut.strategy,)[:level], tiles


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
        """Return the best that the chains visit."""
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


GROUP = "offcut.explorers"
EXPLORERS: dict[str, Callable[[], Explorer]] = {
    "anneal": Anneal,
    "beam": Beam,
    "evolution": Evolution,
    "exhaustive": Exhaustive,
    "random": Sampling,
}
_OTHERWISE = ("a function of (space, seen, rng, count)",)


def explorer_named(given: object) -> tuple[str, Explorer]:
    """What a user gave as ``explorer=``, and what records call it.

    given   a name, of `EXPLORERS` or of an entry point of the group ``offcut.explorers``; an explorer; a class of
            them; or a function ``(space, seen, rng, count) -> schedules``

    Raises DescribeError for anything else, and for a plug-in that cannot be loaded.
    """
    if isinstance(given, str):
        return given, _made(_loaded(given), given)
    name = getattr(given, "__name__", type(given).__name__)
    return str(name), _made(given, repr(given))


def _loaded(name: str) -> object:
    if name in EXPLORERS:
        return EXPLORERS[name]
    return load_entry_point(GROUP, "explorer", name, ", ".join(EXPLORERS), _OTHERWISE)


def _made(given: Any, shown: str) -> Explorer:
    made = given() if isclass(given) else given
    if isinstance(made, Explorer):
        return made
    if callable(made):
        return Function(made)
    raise DescribeError(
        "tune",
        f"cannot take explorer={shown}",
        because="it is no name, no function, and has no method propose",
        help=(", ".join(EXPLORERS), *_OTHERWISE),
    )
