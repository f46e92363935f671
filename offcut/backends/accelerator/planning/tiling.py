"""What is decided of the loops of a nest."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Tiling:
    """What is decided of the loops of a nest.

    tiles  (axis, iterations) of those that are cut
    order  of the loops over tiles, outermost first
    depth  (axis, windows): so many windows, which iterations take in turn, of all that lies in the loop over the tiles of
           an axis; None: of everything one
    tail   the axis whose last tile stands behind its loop, in windows of its own, where it is smaller than the others; None: it is one
           of the loop's
    """

    tiles: tuple[tuple[str, int], ...]
    order: tuple[str, ...]
    depth: tuple[str, int] | None = None
    tail: str | None = None

    def level(self, axes: Set[str]) -> int:
        """Return in how many loops something stands that moves along these axes: down to the innermost of them."""
        return max((at for at, axis in enumerate(self.order, 1) if axis in axes), default=0)

    def windows(self, level: int) -> int:
        """Return how many windows there are of what lies in the first `level` loops."""
        axis, count = self.depth or ("", 1)
        return count if axis in self.order[:level] else 1
