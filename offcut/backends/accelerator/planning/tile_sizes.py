"""Tiles of an axis that are worth a look."""

from __future__ import annotations

from collections.abc import Mapping

from offcut.backends.accelerator.planning.elementary import Operations, lanes
from offcut.backends.accelerator.spec import AcceleratorSpec
from offcut.core import index as ix


def sizes_of(
    operations: Operations, spec: AcceleratorSpec, extents: Mapping[str, int]
) -> dict[str, tuple[int, ...]]:
    """Return the tiles of each axis that may be cut; windows of a sum stay whole where their extent is known."""
    words = lanes(operations, spec)
    sizes_by_axis = {}
    for axis in (*operations.axes, *operations.terms):
        extent, count = ix.literal_value(axis.extent), words.get(axis.name, 1)
        inside = axis in operations.terms and axis.name not in words
        if extent is None or (extent > count and not inside):
            sizes_by_axis[axis.name] = sizes(extents[axis.name], count, extent is not None)
    return sizes_by_axis


def sizes(extent: int, words: int, bounded: bool) -> tuple[int, ...]:
    """Return tiles that cut an extent into so many of about one size, by whole words, and powers of two: any other has as
    many tiles as the next smaller one, and takes more room.

    bounded  whether the axis may be left whole: 0
    """
    count = -(-extent // words)
    even = {-(-count // parts) for parts in range(1, count + 1)}
    powers = {2**k for k in range(count.bit_length()) if 2**k <= count}
    multiples = sorted(words * size for size in even | powers if not bounded or size < count)
    return (*multiples, 0) if bounded else tuple(multiples)
