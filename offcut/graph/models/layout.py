"""Where values lie at one set of sizes, where kernels run for a part of a batch at a time.

A value that is made and read within a part lies in memory of one part; one that outlives it has memory of its own, since
later parts write it while earlier values of the part are read anew. All others share slots as they do without parts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from offcut.graph.models.arena import ALIGNMENT, Arena
from offcut.graph.models.microbatches import Part
from offcut.graph.sizes.extents import Numbers


class Layout:
    """Bytes of the arena.

    starts  where each value begins
    inner   the values of each part that no step outside of it reads
    bytes   of all of them; what comes behind is scratch
    """

    def __init__(self, arena: Arena, number: Numbers, parts: Sequence[Part]) -> None:
        """The layout.

        number  the values of extents
        """
        self.starts, self.inner, self.bytes = dict[str, int](), list[frozenset[str]](), 0
        kept, area = dict[str, int](), 0
        for part in parts:
            within = {
                name: last
                for name, (first, last) in arena.lives.items()
                if part.first <= first < part.end
            }
            inner = [name for name, last in within.items() if last < part.end]
            self.inner.append(frozenset(inner))
            kept |= {name: number(arena.needs[name]) for name in within.keys() - inner}
            needs = {name: part.numbers[0](arena.needs[name]) for name in inner}
            placed, size = _packed(needs, arena.lives)
            self.starts |= placed
            area = max(area, size)
        self.bytes = area
        slots = [0] * len(arena.slots)
        for name, slot in arena.of.items():
            if name not in self.starts and name not in kept:
                slots[slot] = max(slots[slot], number(arena.needs[name]))
        begins = [self._taken(need) for need in slots]
        self.starts |= {name: self._taken(need) for name, need in kept.items()}
        for name, slot in arena.of.items():
            self.starts.setdefault(name, begins[slot])

    def _taken(self, need: int) -> int:
        """Where so many further bytes begin."""
        start = self.bytes
        self.bytes += rounded(need)
        return start


def _packed(
    needs: Mapping[str, int], lives: Mapping[str, tuple[int, int]]
) -> tuple[dict[str, int], int]:
    """Where values begin so that none lies over another that is needed at once, and the end of all: each as low as can be."""
    starts, end = dict[str, int](), 0
    for name, need in needs.items():
        first, last = lives[name]
        start = 0
        for other in sorted(
            (one for one in starts if lives[one][1] >= first), key=starts.__getitem__
        ):
            if starts[other] - start >= need:
                break
            start = max(start, starts[other] + rounded(needs[other]))
        starts[name] = start
        end = max(end, start + rounded(need))
    return starts, end


def rounded(count: int) -> int:
    """Bytes up to where the next value may begin."""
    return -(-count // ALIGNMENT) * ALIGNMENT
