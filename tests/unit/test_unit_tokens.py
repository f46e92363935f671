"""Tokens between units, held to an enumeration of all instances of small random nests at every size."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from random import Random

import pytest
from conftest import slow

from offcut.core import index as ix
from offcut.errors import PartitionError
from offcut.ir import Compare, Expr, Size, Var
from offcut.polyhedral.units.issued import Issued, Touch
from offcut.polyhedral.units.room import most
from offcut.polyhedral.units.tokens import Queue, queues
from tests.facade import evaluate

SIZES = (Size("n", min=0, max=6), Size("m", min=0, max=6))
N, M = Var("n"), Var("m")
# Rows that are cut into tiles of two, two threads taking turns: what virtual threads are emitted as.
TILES = ix.floordiv(ix.add(N, 1), 2)
TURNS = ix.floordiv(ix.add(TILES, 1), 2)
MOST = 8  # leaves of a nest: those of more take isl seconds

Instance = tuple[Issued, Mapping[str, int]]


@dataclass
class Nests:
    """Draws nests of leaves, numbered as they stand in the text."""

    rng: Random
    leaves: list[Issued] = field(default_factory=list)

    def body(
        self,
        loops: tuple[tuple[str, Expr, Expr], ...],
        where: tuple[Expr, ...],
        time: tuple[int | str, ...],
    ) -> None:
        for position in range(self.rng.randint(1, 3)):
            here = (*time, position)
            if len(loops) < 3 and self.rng.random() < (0.4 if time else 0.7):
                name = f"i{len(self.leaves)}{len(loops)}{position}"
                self.body((*loops, (name, ix.const(0), self.extent(loops))), where, (*here, name))
            elif loops and not where and self.rng.random() < 0.2:
                outer = Var(loops[-1][0])
                self.body(loops, (Compare(">=", outer, ix.const(1)),), here)
            else:
                self.leaf(loops, where, here)

    def extent(self, loops: Sequence[tuple[str, Expr, Expr]]) -> Expr:
        if not loops:
            return self.rng.choice([N, M, TILES, TURNS, ix.const(2)])
        outer = Var(loops[-1][0])
        turns = ix.minimum(ix.const(2), ix.sub(TILES, ix.mul(2, outer)))
        return self.rng.choice([ix.const(2), M, turns, ix.sub(N, outer)])

    def leaf(
        self,
        loops: tuple[tuple[str, Expr, Expr], ...],
        where: tuple[Expr, ...],
        time: tuple[int | str, ...],
    ) -> None:
        threads = [None, *(name for name, _, _ in loops)]
        touches = tuple(
            Touch(region, self.rng.choice(threads), self.rng.random() < 0.5)
            for region in self.rng.sample("ab", self.rng.randint(1, 2))
        )
        unit = self.rng.randrange(3)
        self.leaves.append(Issued(len(self.leaves), unit, loops, where, time, touches))


def drawn(seed: int) -> list[Issued]:
    nests = Nests(Random(seed))
    nests.body((), (), ())
    return nests.leaves[:MOST]


def instances(leaves: Sequence[Issued], sizes: Mapping[str, int]) -> list[Instance]:
    """All instances in the order of the text."""

    def points(leaf: Issued, known: Mapping[str, int], depth: int) -> Iterator[Mapping[str, int]]:
        if depth == len(leaf.loops):
            if all(evaluate(one, known) for one in leaf.where):
                yield known
            return
        name, lo, hi = leaf.loops[depth]
        for at in range(int(evaluate(lo, known)), int(evaluate(hi, known))):
            yield from points(leaf, {**known, name: at}, depth + 1)

    found = [(leaf, at) for leaf in leaves for at in points(leaf, sizes, 0)]
    return sorted(
        found, key=lambda one: [one[1][t] if isinstance(t, str) else t for t in one[0].time]
    )


def must_wait(earlier: Instance, later: Instance) -> bool:
    """Whether two instances touch the same part of a region, one of them writing."""
    (one, at), (other, then) = earlier, later
    return any(
        a.region == b.region
        and (a.writes or b.writes)
        and (a.thread is None or b.thread is None or at[a.thread] == then[b.thread])
        for a, b in product(one.touches, other.touches)
    )


def told(order: Sequence[Instance], unit: int, by_leaf: Mapping[int, Expr]) -> list[int]:
    """The positions of the instances of a unit of which the condition of their leaf holds."""
    return [
        position
        for position, (leaf, at) in enumerate(order)
        if leaf.unit == unit and leaf.number in by_leaf and evaluate(by_leaf[leaf.number], at)
    ]


def check(queue: Queue, order: Sequence[Instance]) -> tuple[int, int]:
    """Hold one queue to all pairs of instances; how many tokens there are, and lie in it at once."""
    pairs = [
        (a, b)
        for b, later in enumerate(order)
        for a, earlier in enumerate(order[:b])
        if earlier[0].unit == queue.source
        and later[0].unit == queue.target
        and must_wait(earlier, later)
    ]
    pushes = told(order, queue.source, queue.pushes)
    pops = told(order, queue.target, queue.pops)
    tokens = list(zip(pushes, pops, strict=True))

    def covered(some: Sequence[tuple[int, int]]) -> bool:
        return all(any(a <= push and pop <= b for push, pop in some) for a, b in pairs)

    assert all(push < pop for push, pop in tokens)
    assert covered(tokens)
    for spare in tokens:
        assert not covered([one for one in tokens if one != spare])
    held = (sum(push < at <= pop for push, pop in tokens) for at in range(len(order)))
    return len(tokens), max(held, default=0)


@pytest.mark.parametrize("seeds", [range(6), slow(range(6, 200))], ids=["few", "many"])
def test_tokens_cover_every_pair_in_turn_and_none_is_spare(seeds: range) -> None:
    total = refused = crowded = shown = 0
    for seed in seeds:
        leaves, room = drawn(seed), 1 + seed % 3
        try:
            made = queues(leaves, SIZES, room)
        except PartitionError:  # it takes more than bounded work
            refused += 1
            continue
        for queue in made:
            held = 0
            for n, m in product((0, 1, 2, 3, 5), (0, 1, 2)):
                tokens, at_once = check(queue, instances(leaves, {"n": n, "m": m}))
                total, held = total + tokens, max(held, at_once)
            assert not queue.fits or held <= room
            crowded += not queue.fits
            shown += held > room
            assert held <= most(leaves, queue.source, queue.target)
    assert total > 20 * len(seeds)
    assert refused <= len(seeds) // 6
    assert (
        shown <= crowded <= 2 * shown + 2
    )  # by bounds of loops as they may be, not only as sizes make them
