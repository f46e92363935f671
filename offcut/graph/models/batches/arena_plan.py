"""Where values lie at one set of sizes.

Without parts they share slots. With parts, a value that is made and read within one takes memory of one part, and all others are there
from the first step of a part to its last, where they are anywhere within: later parts write one that outlives it while earlier
values are read anew. Then each lies as low as can be.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from offcut.graph.models.batches.microbatches import Run
from offcut.graph.models.memory.arena import ALIGNMENT, Arena
from offcut.graph.sizes.extent_values import Numbers


class ArenaPlan:
    """Bytes of the arena.

    starts  where each value begins
    inner   the values of each run of steps that no step outside of it reads
    slots   bytes of each slot, where nothing runs in parts
    bytes   of all; what comes behind is scratch
    """

    def __init__(self, arena: Arena, number: Numbers, runs: Sequence[Run]) -> None:
        """Place all values.

        number  the values of extents for the whole batch
        """
        self.inner = [
            frozenset(
                name for name, (a, b) in arena.lives.items() if run.first <= a and b < run.end
            )
            for run in runs
        ]
        self.slots = () if runs else tuple(max(map(number, slot.bytes)) for slot in arena.slots)
        if runs:
            self.starts, self.bytes = self._in_parts(arena, number, runs)
            return
        begins = [0]
        for need in self.slots:
            begins.append(begins[-1] + align_up(need))
        self.starts, self.bytes = {name: begins[at] for name, at in arena.of.items()}, begins[-1]

    def _in_parts(
        self, arena: Arena, number: Numbers, runs: Sequence[Run]
    ) -> tuple[dict[str, int], int]:
        """Where each value begins, and the end of all."""
        needs = {name: number(need) for name, need in arena.needs.items()}
        lives = dict(arena.lives)
        for run, inner in zip(runs, self.inner, strict=True):
            needs |= {name: run.numbers[0](arena.needs[name]) for name in inner}
            for name in lives.keys() - inner:
                first, last = lives[name]
                if run.first <= first < run.end:
                    first = run.first
                if run.first <= last < run.end:
                    last = run.end - 1
                lives[name] = first, last
        order = sorted(lives, key=lambda name: lives[name][0])
        return pack_slots({name: needs[name] for name in order}, lives)


def pack_slots(
    needs: Mapping[str, int], lives: Mapping[str, tuple[int, int]]
) -> tuple[dict[str, int], int]:
    """Where values begin so that none lies over another that is there at once, each as low as can be; and the end of all.

    needs  bytes of each, in the order of the first step that has it
    """
    starts, end = dict[str, int](), 0
    for name, need in needs.items():
        start, first = 0, lives[name][0]
        there = [other for other in starts if lives[other][1] >= first]
        for other in sorted(there, key=starts.__getitem__):
            if starts[other] - start >= need:
                break
            start = max(start, starts[other] + align_up(needs[other]))
        starts[name] = start
        end = max(end, start + align_up(need))
    return starts, end


def align_up(count: int) -> int:
    """Bytes up to where the next value may begin."""
    return -(-count // ALIGNMENT) * ALIGNMENT
