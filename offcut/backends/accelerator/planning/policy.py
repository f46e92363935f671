"""Tiles of a nest where nobody decided them: of all that fit, those that the clock gives the fewest cycles."""

from __future__ import annotations

from collections.abc import Mapping

from offcut.backends.accelerator.lowering.arithmetic import recipe_of
from offcut.backends.accelerator.planning.dma_volume import load_volume, store_volume
from offcut.backends.accelerator.planning.elementary import Operations, lanes
from offcut.backends.accelerator.planning.tiling import Tiling
from offcut.backends.accelerator.planning.tilings import Tilings, sizes_of
from offcut.backends.accelerator.planning.typical_sizes import typical_extents, typical_sizes
from offcut.backends.accelerator.spec import AcceleratorSpec
from offcut.core import index as ix
from offcut.core.expr import Load, walk
from offcut.core.program import Program

DEPTH = 2
"""Windows that iterations take in turn: one is filled while the other one is read."""


def choose_tiling(
    program: Program,
    made: Operations,
    spec: AcceleratorSpec,
    turns: bool = True,
    tiles: Mapping[str, int] | None = None,
) -> Tiling:
    """Return the tiling that takes the fewest cycles by the clock.

    turns  whether windows may take turns
    tiles  iterations of the tiles of some axes; of the others it is chosen
    """
    extents, at = nest_extents(program, made), typical_sizes(program)
    shapes = {buffer.name: buffer.shape for buffer in program.buffers}
    copies = [load_volume(copy, made, spec, at, shapes) for copy in made.copies]
    result = store_volume(made, spec, extents)
    sizes = sizes_of(made, spec, extents) | {a: (size,) for a, size in (tiles or {}).items()}
    windows = _windows_of_results(made, spec)
    tilings = Tilings(made, spec, extents, copies, result, sizes, windows)
    return tilings.best(DEPTH if turns else 1) or _smallest(made, spec)


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


def _windows_of_results(made: Operations, spec: AcceleratorSpec) -> int:
    """Return how many windows of results there are at most: an operation lies over its first operand where nothing
    reads that again.
    """
    own = {buffer.name: buffer.dtype for buffer in made.buffers}
    reads = [
        {node.buffer for node in walk(step.value) if isinstance(node, Load)} for step in made.steps
    ]
    count = 0 if made.lead is None else 1
    for at, step in enumerate(made.steps):
        found = recipe_of(step, own[step.buffer], spec) if step.buffer in own else None
        if found is None:
            continue
        base = found.base
        again = base is not None and any(base.buffer in later for later in reads[at + 1 :])
        twice = sum(load == base for load in found.reads) > 1
        over = base is not None and base.buffer in own and not (found.copied or again or twice)
        count += not over
    return max(count, 1)
