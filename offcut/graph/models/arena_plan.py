"""Where values lie at one set of sizes, where kernels run for a part of a batch at a time.

A value that is made and read within a part lies in memory of one part; one that outlives it has memory of its own, since
later parts write it while earlier values of the part are read anew. All others share slots as they do without parts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from offcut.graph.models.arena import ALIGNMENT, Arena
from offcut.graph.models.microbatches import Run
from offcut.graph.sizes.extents import Numbers


class ArenaPlan:
    """Bytes of the arena.

    starts  where each value begins
    inner   the values of each part that no step outside of it reads; of_parts: bytes that these take, at most
    slots   bytes of each slot
    kept    bytes of each value that outlives its part
    bytes   of all of them; what comes behind is scratch
    """

    def __init__(self, arena: Arena, number: Numbers, runs: Sequence[Run]) -> None:
        """Place all values.

        number  the values of extents for the whole batch
        """
        self.starts, self.inner, self.of_parts = dict[str, int](), list[frozenset[str]](), 0
        self.kept = dict[str, int]()
        for run in runs:
            inner = dict[str, int]()
            for name, (first, last) in arena.lives.items():
                if run.first <= first < run.end:
                    if last < run.end:
                        inner[name] = run.numbers[0](arena.needs[name])
                    else:
                        self.kept[name] = number(arena.needs[name])
            starts, end = packed(inner, arena.lives)
            self.inner.append(frozenset(inner))
            self.starts |= starts
            self.of_parts = max(self.of_parts, end)
        self.slots, self.bytes = [0] * len(arena.slots), self.of_parts
        sharing = [name for name in arena.of if name not in self.starts | self.kept]
        for name in sharing:
            slot = arena.of[name]
            self.slots[slot] = max(self.slots[slot], number(arena.needs[name]))
        begins = [self._taken(need) for need in self.slots]
        self.starts |= {name: begins[arena.of[name]] for name in sharing}
        self.starts |= {name: self._taken(need) for name, need in self.kept.items()}

    def _taken(self, need: int) -> int:
        """Where so many further bytes begin."""
        start = self.bytes
        self.bytes += rounded(need)
        return start


def packed(
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
            start = max(start, starts[other] + rounded(needs[other]))
        starts[name] = start
        end = max(end, start + rounded(need))
    return starts, end


def rounded(count: int) -> int:
    """Bytes up to where the next value may begin."""
    return -(-count // ALIGNMENT) * ALIGNMENT
