"""Where regions on the chip begin: one behind the other in the bytes of their memory, those that are stored first."""

from __future__ import annotations

from collections.abc import Mapping

from offcut.backends.accelerator.isa import MemorySpace
from offcut.backends.accelerator.spec import AcceleratorSpec


def allocate_regions(
    room: Mapping[str, int],
    place_of: Mapping[str, MemorySpace],
    stored: frozenset[str],
    spec: AcceleratorSpec,
) -> tuple[dict[str, int], dict[str, int]]:
    """Return the first word of each region, and the bytes that are taken by memory.

    room    words of each region
    stored  the regions that stores read

    Regions of fewer words begin no later: what fits at its greatest extents fits at all.
    """

    def order(region: str) -> tuple[bool, str, str]:
        return region not in stored, place_of[region].value, region

    first: dict[str, int] = {}
    ends: dict[str, int] = {}
    for region in sorted(room, key=order):
        of = spec.words[place_of[region]]
        first[region] = -(-ends.get(of.memory, 0) // of.bytes)
        ends[of.memory] = (first[region] + room[region]) * of.bytes
    return first, ends


def first_free_word(ends: Mapping[str, int], spec: AcceleratorSpec) -> int:
    """Return the first word of accumulators behind all regions."""
    of = spec.words[MemorySpace.ACCUMULATORS]
    return -(-ends.get(of.memory, 0) // of.bytes)
