"""Tiles of a nest where nobody decided them: of all that fit, those whose units do least are looked at tile by tile."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from math import inf

from offcut.backends.accelerator.isa import MemorySpace
from offcut.backends.accelerator.lowering.arithmetic import recipe_of
from offcut.backends.accelerator.planning.dma_volume import load_volume, store_volume
from offcut.backends.accelerator.planning.elementary import Operations
from offcut.backends.accelerator.planning.grid import Grid, sizes_of
from offcut.backends.accelerator.planning.queues import Queues
from offcut.backends.accelerator.planning.tiling import Tiling
from offcut.backends.accelerator.planning.typical_sizes import typical_extents, typical_sizes
from offcut.backends.accelerator.planning.window_usage import WindowUsage, lanes
from offcut.backends.accelerator.spec import AcceleratorSpec
from offcut.core import index as ix
from offcut.core.expr import Load, walk
from offcut.core.program import Program

DEPTH = 2
"""Windows that iterations take in turn: one is filled while the other one is read."""

MAX_TILED_TRIALS = 100
"""Tilings that are looked at tile by tile."""
MAX_WHOLE_TRIALS = 8
"""Of these, by a few turns of their longest loops, those that are looked at whole."""
MAX_INSTANCES = 4096
"""Instances of the innermost loop that are looked at; of more, what the units do is near what they take."""


def choose_tiling(
    program: Program,
    made: Operations,
    spec: AcceleratorSpec,
    turns: bool = True,
    tiles: Mapping[str, int] | None = None,
) -> Tiling:
    """Return the tiling that takes the fewest cycles, of the first few by what units do.

    turns  whether windows may take turns
    tiles  iterations of the tiles of some axes; of the others it is chosen
    """
    extents, at = nest_extents(program, made), typical_sizes(program)
    shapes = {buffer.name: buffer.shape for buffer in program.buffers}
    copies = [load_volume(copy, made, spec, at, shapes) for copy in made.copies]
    result = store_volume(made, spec, extents)
    kept = _windows_of_results(made, spec)
    sizes = sizes_of(made, spec, extents) | {a: (size,) for a, size in (tiles or {}).items()}
    grid = Grid(made, spec, extents, copies, result, sizes, kept)
    found: dict[object, tuple[float, Tiling]] = {}  # of orders that make no difference, one
    for cycles, tiling in grid.best(DEPTH if turns else 1):
        found.setdefault((frozenset(tiling.tiles), tiling.depth, cycles), (cycles, tiling))
    ranked = sorted(found.values(), key=lambda one: one[0])
    first = (one for one in ranked if fits_memories(made, one[1], spec))
    about: list[tuple[float, Queues]] = []
    for cycles, tiling in islice(first, MAX_TILED_TRIALS):
        queues = Queues(made, tiling, spec, extents, copies, result)
        about.append((queues.settled() if queues.instances <= MAX_INSTANCES else cycles, queues))
    best, least = _smallest(made, spec), inf
    for cycles, queues in sorted(about, key=lambda one: one[0])[:MAX_WHOLE_TRIALS]:
        part = queues.longest is not None and queues.instances <= MAX_INSTANCES
        taken = queues.cycles() if part else cycles
        if taken < least:
            best, least = queues.tiling, taken
    return best


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


def fits_memories(made: Operations, tiling: Tiling, spec: AcceleratorSpec) -> bool:
    """Return whether the windows of a tiling fit the memories at any size."""
    largest = {a.name: ix.literal_value(a.extent) for a in (*made.axes, *made.terms)}
    tiles = dict(tiling.tiles)
    if any(extent is None and axis not in tiles for axis, extent in largest.items()):
        return False
    extents = {a: tiles[a] if n is None else n for a, n in largest.items()}
    at = WindowUsage(made, tiling, spec, extents)
    kept = _windows_of_results(made, spec)
    taken: dict[str, int] = {}

    def take(place: MemorySpace, words: int, level: int) -> None:
        of = spec.words[place]
        total = words * tiling.windows(level) + 1
        taken[of.memory] = taken.get(of.memory, 0) + total * of.bytes

    terms = {axis.name for axis in made.terms}
    outer = sum(axis not in terms for axis in tiling.order)
    if at.results * tiling.windows(outer) > spec.words[MemorySpace.OUTPUTS].depth:
        return False
    take(MemorySpace.ACCUMULATORS, at.results * kept, outer)
    for copy in made.copies:
        take(copy.place, at.of(copy)[0], at.depth(copy))
    return all(
        bytes_ <= of.bytes * of.depth
        for name, bytes_ in taken.items()
        for of in [next(one for one in spec.words.values() if one.memory == name)]
    )


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
