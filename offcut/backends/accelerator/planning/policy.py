"""Tiles of a nest where nobody decided them: of all that fit, those that the clock gives the fewest cycles, of some sizes each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from offcut.backends.accelerator.planning.dma_volume import load_volume, store_volume
from offcut.backends.accelerator.planning.elementary import Operations, lanes
from offcut.backends.accelerator.planning.tile_sizes import sizes_of
from offcut.backends.accelerator.planning.tiling import Tiling
from offcut.backends.accelerator.planning.tilings import Tilings, by_size
from offcut.backends.accelerator.planning.typical_sizes import (
    AROUND,
    BETWEEN,
    sizes_around,
    typical_extents,
    typical_sizes,
)
from offcut.backends.accelerator.spec import AcceleratorSpec
from offcut.core import index as ix
from offcut.core.program import Program

DEPTH = 2
"""Windows that iterations take in turn: one is filled while the other one is read."""


def choose_tilings(
    program: Program,
    operations: Operations,
    spec: AcceleratorSpec,
    turns: bool = True,
    tiles: Mapping[str, int] | None = None,
    most: int = 1,
) -> tuple[Tiling, ...]:
    """Return the tilings of which each call takes the one with the fewest cycles.

    turns  whether windows may take turns
    tiles  iterations of the tiles of some axes; of the others it is chosen
    most   tilings, at most; of one alone, it takes the fewest cycles in the mean of `sizes_around` the typical ones
    """
    sizes = sizes_of(operations, spec, nest_extents(program, operations))
    sizes |= {axis: (size,) for axis, size in (tiles or {}).items()}
    alone = sizes_around(program)
    every = sizes_around(program, (*AROUND, *BETWEEN)) if most > 1 else alone
    at = [tilings_at(program, operations, spec, sizes, one) for one in every]
    tilings = by_size(at, len(alone), DEPTH if turns else 1, most)
    return tilings or (_smallest(operations, spec),)


def tilings_at(
    program: Program,
    operations: Operations,
    spec: AcceleratorSpec,
    tiles: Mapping[str, Sequence[int]],
    at: Mapping[str, int],
) -> Tilings:
    """Return the tilings of a nest at sizes of its program."""
    extents = typical_extents(at, (*operations.axes, *operations.terms))
    shapes = {buffer.name: buffer.shape for buffer in program.buffers}
    copies = [load_volume(copy, operations, spec, at, shapes) for copy in operations.copies]
    return Tilings(
        operations, spec, extents, copies, store_volume(operations, spec, extents), tiles
    )


def nest_extents(program: Program, operations: Operations) -> dict[str, int]:
    """Extents of the axes of a nest, at the sizes of a middle layer."""
    return typical_extents(typical_sizes(program), (*operations.axes, *operations.terms))


def _smallest(operations: Operations, spec: AcceleratorSpec) -> Tiling:
    """Return a word of results at a time, of all axes that are longer; windows of a sum whole."""
    words = lanes(operations, spec)
    tiles = []
    for axis in (*operations.axes, *operations.terms):
        known, count = ix.literal_value(axis.extent), words.get(axis.name, 1)
        inside = axis in operations.terms and axis.name not in words
        if known is None or (known > count and not inside):
            tiles.append((axis.name, count))
    order = tuple(axis for axis, _ in tiles)
    return Tiling(tuple(tiles), order)
