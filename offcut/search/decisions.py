"""The decisions that a schedule leaves open: what may be decided, and which alternatives lie beside each other.

A decision is one of several alternatives (`OneOf`), one alternative of each of several decisions (`AllOf`), or the
decisions of one of several cases (`CaseOf`): what a target leaves open is composed of these three. A target may add
a kind of its own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from random import Random
from typing import Any, Generic, TypeVar

T = TypeVar("T", bound=Hashable)


class Decision(ABC, Generic[T]):
    """A decision with alternatives, which are hashable."""

    @property
    @abstractmethod
    def size(self) -> int:
        """Return the number of alternatives, at most."""

    @abstractmethod
    def alternatives(self) -> Iterator[T]:
        """Yield all alternatives, one by one: there may be more than memory holds."""

    @abstractmethod
    def neighbours(self, at: T) -> Iterable[T]:
        """Return the alternatives that differ from `at` in one thing, in an order that depends on it alone."""

    @abstractmethod
    def sample(self, rng: Random) -> T:
        """Return an alternative, drawn."""

    def crossover(self, a: T, b: T, rng: Random) -> T:
        """Return `a`, `b`, or an alternative made of parts of both."""
        return rng.choice((a, b))


@dataclass(frozen=True)
class OneOf(Decision[T]):
    """One of several options.

    options     in order
    is_ordered  whether only the options before and after one are its neighbours; else all others are
    """

    options: tuple[T, ...]
    is_ordered: bool = False

    @property
    def size(self) -> int:
        """Return the number of options."""
        return len(self.options)

    def alternatives(self) -> Iterator[T]:
        """Yield the options."""
        return iter(self.options)

    def neighbours(self, at: T) -> Iterable[T]:
        """Return the options beside one, or all others."""
        if not self.is_ordered:
            return tuple(option for option in self.options if option != at)
        place = self.options.index(at)
        return (*self.options[max(place - 1, 0) : place], *self.options[place + 1 : place + 2])

    def sample(self, rng: Random) -> T:
        """Return an option, each as likely as any other."""
        return rng.choice(self.options)


@dataclass(frozen=True)
class AllOf(Decision[tuple[Any, ...]]):
    """One alternative of each of several decisions, as a tuple in their order."""

    decisions: tuple[Decision[Any], ...]

    @property
    def size(self) -> int:
        """Return the product of the sizes."""
        return prod(decision.size for decision in self.decisions)

    def alternatives(self) -> Iterator[tuple[Any, ...]]:
        """Yield all combinations; the last decision varies first."""
        return _combinations(self.decisions)

    def neighbours(self, at: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
        """Yield the combinations in which one decision has a neighbour."""
        for place, decision in enumerate(self.decisions):
            before, after = at[:place], at[place + 1 :]
            for other in decision.neighbours(at[place]):
                yield (*before, other, *after)

    def sample(self, rng: Random) -> tuple[Any, ...]:
        """Return a combination, drawn decision by decision."""
        return tuple(decision.sample(rng) for decision in self.decisions)

    def crossover(self, a: tuple[Any, ...], b: tuple[Any, ...], rng: Random) -> tuple[Any, ...]:
        """Return a combination, crossed decision by decision."""
        trios = zip(self.decisions, a, b, strict=True)
        return tuple(decision.crossover(one, other, rng) for decision, one, other in trios)


def _combinations(decisions: Sequence[Decision[Any]]) -> Iterator[tuple[Any, ...]]:
    if not decisions:
        yield ()
        return
    for first in decisions[0].alternatives():
        yield from ((first, *rest) for rest in _combinations(decisions[1:]))


@dataclass(frozen=True)
class CaseOf(Decision[tuple[Hashable, Any]]):
    """A case, and an alternative of its decision, as a pair.

    cases       the decision of each case, by its key
    convert     return what is most like an alternative of one case in another: ``convert(case, alternative, other)``
    is_beside   whether two cases are neighbours
    """

    cases: Mapping[Any, Decision[Any]]
    convert: Callable[[Any, Any, Any], Any]
    is_beside: Callable[[Any, Any], bool] = lambda case, other: True

    @property
    def size(self) -> int:
        """Return the sum of the sizes."""
        return sum(decision.size for decision in self.cases.values())

    def alternatives(self) -> Iterator[tuple[Hashable, Any]]:
        """Yield the alternatives of each case."""
        for case, decision in self.cases.items():
            yield from ((case, one) for one in decision.alternatives())

    def neighbours(self, at: tuple[Hashable, Any]) -> Iterator[tuple[Hashable, Any]]:
        """Yield the neighbours in the same case, then what is most like `at` in each case beside it."""
        case, own = at
        yield from ((case, one) for one in self.cases[case].neighbours(own))
        for other in self.cases:
            if other != case and self.is_beside(case, other):
                yield other, self.convert(case, own, other)

    def sample(self, rng: Random) -> tuple[Hashable, Any]:
        """Return an alternative of a case; each case is as likely as any other."""
        case = rng.choice(tuple(self.cases))
        return case, self.cases[case].sample(rng)

    def crossover(
        self, a: tuple[Hashable, Any], b: tuple[Hashable, Any], rng: Random
    ) -> tuple[Hashable, Any]:
        """Return an alternative of the case of one, crossed with what is most like the other there."""
        (case, own), (other, theirs) = rng.sample((a, b), 2)
        if case != other:
            theirs = self.convert(other, theirs, case)
        return case, self.cases[case].crossover(own, theirs, rng)
