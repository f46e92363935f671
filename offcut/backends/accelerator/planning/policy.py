"""Tiles of a nest where nobody decided them: of all that fit, those that the clock gives the fewest cycles, of some sizes each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean

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
from offcut.core.expr import variables
from offcut.core.program import Program

DEPTH = 2
"""Windows that iterations take in turn: one is filled while the other one is read."""


def choose_tilings(
    program: Program,
    made: Operations,
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
    sizes = sizes_of(made, spec, nest_extents(program, made))
    sizes |= {axis: (size,) for axis, size in (tiles or {}).items()}
    alone = sizes_around(program)
    every = sizes_around(program, (*AROUND, *BETWEEN)) if most > 1 else alone
    at = [tilings_at(program, made, spec, sizes, one) for one in every]
    tilings = by_size(at, len(alone), DEPTH if turns else 1, most)
    return tilings or (_smallest(made, spec),)


PROBES, SPREAD = 9, 4
"""Sizes at which tiles of one height are compared with whole tiles and a smaller last one, and over how many tiles they are spread."""
BALANCE_GAIN, BALANCE_LOSS = 0.01, 0.005
"""What tiles of one height gain in the mean of these sizes, at least, and lose at one of them, at most."""


def with_balance(
    program: Program, made: Operations, spec: AcceleratorSpec, tiling: Tiling, axes: Sequence[str]
) -> Tiling:
    """Return `tiling` with tiles of one height along an axis if calls take less so; the same object if they do not.

    axes  that may have such tiles

    A tile is chosen that divides the sizes well at which tilings are compared; a call of another size has a small tile behind the
    others, for which all of the weights are brought once more. So both are compared at sizes that tiles do not divide.
    """
    best, least = tiling, 1.0 - BALANCE_GAIN
    for axis, tile in tiling.tiles:
        at = _ragged_sizes(program, made, axis, tile) if axis in axes and tile > 1 else []
        other = replace(tiling, balanced=axis)
        nests = [tilings_at(program, made, spec, {a: (n,) for a, n in tiling.tiles}, n) for n in at]
        ratios = [one.walked(other) / one.walked(tiling) for one in nests]
        if ratios and max(ratios) <= 1.0 + BALANCE_LOSS and fmean(ratios) <= least:
            best, least = other, fmean(ratios)
    return best


def _ragged_sizes(program: Program, made: Operations, axis: str, tile: int) -> list[dict[str, int]]:
    """Return sizes of a program at which an axis has some tiles, the last of them of whatever height."""
    typical = typical_sizes(program)
    (along,) = (one for one in made.axes if one.name == axis)
    extent = typical_extents(typical, (along,))[axis]
    vectors = list[dict[str, int]]()
    for probe in range(PROBES):
        wanted = tile + 1 + probe * SPREAD * tile // (PROBES - 1)
        sizes = typical | {
            size.name: size.at_or_above(round(typical[size.name] * wanted / extent))
            for size in program.sizes
            if size.name in variables(along.extent)
        }
        if sizes not in vectors and typical_extents(sizes, (along,))[axis] > tile:
            vectors.append(sizes)
    return vectors


def tilings_at(
    program: Program,
    made: Operations,
    spec: AcceleratorSpec,
    tiles: Mapping[str, Sequence[int]],
    at: Mapping[str, int],
) -> Tilings:
    """Return the tilings of a nest at sizes of its program."""
    extents = typical_extents(at, (*made.axes, *made.terms))
    shapes = {buffer.name: buffer.shape for buffer in program.buffers}
    copies = [load_volume(copy, made, spec, at, shapes) for copy in made.copies]
    return Tilings(made, spec, extents, copies, store_volume(made, spec, extents), tiles)


def nest_extents(program: Program, made: Operations) -> dict[str, int]:
    """Extents of the axes of a nest, at the sizes of a middle layer."""
    return typical_extents(typical_sizes(program), (*made.axes, *made.terms))


def _smallest(made: Operations, spec: AcceleratorSpec) -> Tiling:
    """Return a word of results at a time, of all axes that are longer; windows of a sum whole."""
    words = lanes(made, spec)
    tiles = []
    for axis in (*made.axes, *made.terms):
        known, count = ix.literal_value(axis.extent), words.get(axis.name, 1)
        inside = axis in made.terms and axis.name not in words
        if known is None or (known > count and not inside):
            tiles.append((axis.name, count))
    order = tuple(axis for axis, _ in tiles)
    return Tiling(tuple(tiles), order)
