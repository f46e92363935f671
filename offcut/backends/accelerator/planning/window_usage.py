"""What windows on the chip take at a tiling: words of results and of copies, and how often they are filled."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from offcut.backends.accelerator.planning.elementary import Operations
from offcut.backends.accelerator.planning.staging import Staged
from offcut.backends.accelerator.planning.tiling import Tiling
from offcut.backends.accelerator.spec import AcceleratorSpec
from offcut.core import index as ix
from offcut.core.expr import Var, variables


def lanes(made: Operations, spec: AcceleratorSpec) -> dict[str, int]:
    """Elements of a word along each axis that runs in lanes."""
    roles = made.roles
    pairs = (roles.rows, spec.rows), (roles.columns, spec.columns), (roles.depth, spec.terms)
    return {axis: count for axis, count in pairs if axis is not None}


@dataclass(frozen=True, slots=True)
class WindowUsage:
    """What windows take at a tiling: words by operand, and bytes."""

    made: Operations
    tiling: Tiling
    spec: AcceleratorSpec
    extents: Mapping[str, int]

    def tile(self, axis: str) -> int:
        """Iterations of an axis in a tile."""
        return min(dict(self.tiling.tiles).get(axis, self.extents[axis]), self.extents[axis])

    def words(self, axis: str) -> int:
        """Words along an axis in a tile."""
        return -(-self.tile(axis) // lanes(self.made, self.spec).get(axis, 1))

    def of(self, copy: Staged) -> tuple[int, int]:
        """Words of a copy's window, and how many lie side by side in main memory."""
        counts = []
        held = lanes(self.made, self.spec)
        for part in copy.index:
            reach = 1 + sum(
                abs(k) * (self.tile(a.name) - 1)
                for a, k in ix.to_linear(part).terms
                if isinstance(a, Var) and a.name in self.extents
            )
            lane = held.get(part.name, 1) if isinstance(part, Var) else 1
            counts.append(-(-reach // lane))
        whole = [not variables(part) & set(self.tiling.order) for part in copy.index]
        run = prod(n for n, all_of in zip(counts, whole, strict=True) if all_of)
        partial = [n for n, all_of in zip(counts, whole, strict=True) if not all_of]
        return prod(counts), run * (partial[-1] if partial else 1)

    @property
    def results(self) -> int:
        """Words of a tile of results."""
        return prod(self.words(axis.name) for axis in self.made.axes)

    def times(self, until: int) -> int:
        """Return how often what stands in the first `until` loops runs."""
        count = 1
        for axis in self.tiling.order[:until]:
            count *= -(-self.extents[axis] // self.tile(axis))
        return count

    def depth(self, copy: Staged) -> int:
        """Loops that a copy stands in."""
        return self.tiling.level({name for part in copy.index for name in variables(part)})
