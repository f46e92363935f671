"""How the loops of a program that stands as it is may be cut: one decision a loop, and which loops are cut together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from offcut.backends.cpu.planning.variant_forms import plain_cuts, tile_forms
from offcut.core.analysis import analysis
from offcut.core.memo import forget, lazy_property, memoize_method
from offcut.core.program import For, Form, Program
from offcut.costmodel import Machine
from offcut.errors import PartitionError
from offcut.partition import CUT, MASK, AxisCut, LoopCut
from offcut.polyhedral import carried_by, request_budget
from offcut.schedule import Split, Step, cut_program, loop_name, split_of
from offcut.search.decisions import AllOf

Steps = tuple[Step | None, ...]
"""What is said of each decision; None: nothing."""

_UNORDERED = frozenset({Form.PAD, Form.SHIFT})
"""Tiles whose instances have no order, or run again."""


@dataclass(frozen=True)
class LoopCuts:
    """The cuts of the loops of a program.

    A loop that carries dependences keeps its instances in order: tiles that run theirs together, or twice, are none of its
    cuts. Loops inside each other are cut together where the proof says that single tiles of them are legal: a cut of two
    loops moves the instances of the inner one, whatever its strategy.

    machine  whose policy says how large tiles are, and how many copies of a statement there may be
    """

    program: Program
    machine: Machine

    @lazy_property
    def loops(self) -> tuple[str, ...]:
        """Return the iterators of the loops, in order."""
        return tuple(dict.fromkeys(loop.iter for loop in analysis(self.program).of(For)))

    @lazy_property
    def loop_order(self) -> frozenset[str]:
        """Return the loops that carry dependences other than sums."""
        dependences = (one for carried in carried_by(self.program).values() for one in carried)
        return frozenset(one.loop for one in dependences if not one.reduction)

    def of(self, loop: str, own: Split | None = None) -> list[Split]:
        """Return the cuts of a loop in one level of tiles; like `own` inside of its outer levels, where it is cut already."""
        tail = MASK if own is None else own.levels[-1].tail
        assert tail is not None
        outer: Sequence[int] = () if own is None else [one.tile for one in own.levels[:-1]]
        tile = self.machine.policy.axis_tile if own is None else own.levels[-1].tile
        options = plain_cuts(AxisCut(loop, tail, tile), self.machine.policy.copies).options
        return [
            split_of(loop, LoopCut((*outer, one.tile), one.strategy))
            for one in options
            if not outer or outer[-1] % one.tile == 0
            if loop not in self.loop_order or not tile_forms(one) & _UNORDERED
        ]

    @memoize_method
    def are_legal(self, loops: frozenset[str]) -> bool:
        """Return whether these loops may be cut in one schedule; not where the proof does not say so in bounded work."""
        if len(loops) < 2 or not loops & self.loop_order:
            return True
        return all(self.are_legal(loops - {one}) for one in loops) and self._is_proved(loops)

    def _is_proved(self, loops: frozenset[str]) -> bool:
        forget()
        cuts = {loop: LoopCut((2,), CUT) for loop in loops}
        try:
            with request_budget("partition", f"cannot cut {self.program.name}"):
                cut_program(self.program, cuts, ())
        except PartitionError:
            return False
        return True


@dataclass(frozen=True)
class LoopDecisions(AllOf):
    """Decisions that are steps or nothing, among them cuts of loops, of which some may not stand beside others."""

    cuts: LoopCuts

    def alternatives(self) -> Iterator[Steps]:
        """Yield the combinations whose cuts may stand together."""
        return filter(self.is_legal, super().alternatives())

    def neighbours(self, at: Steps) -> Iterator[Steps]:
        """Yield the neighbours whose cuts may stand together."""
        return filter(self.is_legal, super().neighbours(at))

    def sample(self, rng: Random) -> Steps:
        """Return a combination, without the cuts that may not stand beside others."""
        return self._without_conflicts(super().sample(rng), rng)

    def crossover(self, a: Steps, b: Steps, rng: Random) -> Steps:
        """Return a combination of both, likewise."""
        return self._without_conflicts(super().crossover(a, b, rng), rng)

    def is_legal(self, steps: tuple[Any, ...]) -> bool:
        """Return whether the loops that are cut may be cut together."""
        return self.cuts.are_legal(
            frozenset(loop_name(step) for step in steps if isinstance(step, Split))
        )

    def _without_conflicts(self, steps: Steps, rng: Random) -> Steps:
        """Return `steps` without cuts that may not stand beside the others; which stay is drawn."""
        places = [place for place, step in enumerate(steps) if isinstance(step, Split)]
        legal = [None if place in places else step for place, step in enumerate(steps)]
        for place in rng.sample(places, len(places)):
            legal[place] = steps[place]
            if not self.is_legal(tuple(legal)):
                legal[place] = None
        return tuple(legal)
