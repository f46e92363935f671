"""What is decided of the loops of a nest."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Tiling:
    """What is decided of the loops of a nest.

    tiles    (axis, iterations) of those that are cut
    order    of the loops over tiles, outermost first
    virtual  (axis, threads): its tiles are dealt to virtual threads; None: to none
    """

    tiles: tuple[tuple[str, int], ...]
    order: tuple[str, ...]
    virtual: tuple[str, int] | None = None
