"""Tiles of a nest where nobody decided them: a climb from the smallest that hold words, by a price of cycles.

A price sees what a tiling moves and computes; what does not fit the memories has none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from math import inf

from offcut.backends.accelerator.isa import Place
from offcut.backends.accelerator.lowering.arithmetic import of_any, recipe
from offcut.backends.accelerator.planning.elementary import Operations
from offcut.backends.accelerator.planning.loops import Tiling
from offcut.backends.accelerator.planning.price import cycles
from offcut.backends.accelerator.planning.typical import typical_extents, typical_of
from offcut.backends.accelerator.planning.windows import Windows, lanes
from offcut.backends.accelerator.spec import Spec
from offcut.core import index as ix
from offcut.core.expr import Load, walk
from offcut.core.program import Program

THREADS = 2
"""Virtual threads: as many as the tokens between units tell apart (VTA)."""

Price = Callable[[Operations, Tiling, Spec, Mapping[str, int]], float]
"""Cycles of a nest at the extents of its axes."""


def chosen(
    program: Program,
    made: Operations,
    spec: Spec,
    price: Price | None = None,
    virtual: bool = True,
) -> Tiling:
    """The tiling with the least price that a climb finds.

    virtual  whether it may have virtual threads
    """
    extents = typical(program, made)
    pricing = cycles if price is None else price

    def of(tiling: Tiling) -> float:
        return pricing(made, tiling, spec, extents) if fits(made, tiling, spec) else inf

    best = _smallest(made, spec)
    while True:
        near = _near(best, made, spec, extents)
        found = min((one for one in near if virtual or one.virtual is None), key=of, default=best)
        if of(found) >= of(best):
            return best
        best = found


def typical(program: Program, made: Operations) -> dict[str, int]:
    """Extents of the axes of a nest, at the sizes of a middle layer."""
    return typical_extents(typical_of(program), (*made.axes, *made.terms))


def _smallest(made: Operations, spec: Spec) -> Tiling:
    """A word of results at a time, of all axes that are longer; windows of a sum whole."""
    words = lanes(made, spec)
    tiles = []
    for axis in (*made.axes, *made.terms):
        known, count = ix.literal(axis.extent), words.get(axis.name, 1)
        inside = axis in made.terms and axis.name not in words
        if known is None or (known > count and not inside):
            tiles.append((axis.name, count))
    order = tuple(axis for axis, _ in tiles)
    return Tiling(tuple(tiles), order)


def _near(
    tiling: Tiling, made: Operations, spec: Spec, extents: Mapping[str, int]
) -> Iterator[Tiling]:
    """Tilings that differ in one decision."""
    tiles, words = dict(tiling.tiles), lanes(made, spec)
    terms = {axis.name for axis in made.terms}
    literal = {a.name: ix.literal(a.extent) for a in (*made.axes, *made.terms)}
    for axis, size in tiles.items():
        for grown in {2 * size, 4 * size, _even(extents[axis], size, words.get(axis, 1))}:
            if literal[axis] is not None and grown >= extents[axis]:
                yield _without(tiling, axis)
            elif grown > size:
                yield replace(tiling, tiles=tuple({**tiles, axis: grown}.items()))
    outer = [axis for axis in tiling.order if axis not in terms]
    inner = tuple(axis for axis in tiling.order if axis in terms)
    for axis in outer:
        for other in outer:
            if axis != other:
                rest = [one for one in outer if one != axis]
                at = rest.index(other)
                yield replace(tiling, order=(*rest[:at], axis, *rest[at:], *inner))
        if tiling.virtual != (axis, THREADS):
            yield replace(tiling, virtual=(axis, THREADS))
    if tiling.virtual is not None:
        yield replace(tiling, virtual=None)


def _even(extent: int, size: int, words: int) -> int:
    """The tile, larger than `size`, that takes one less of them, all about as large."""
    count = max(-(-extent // size) - 1, 1)
    return -(-extent // count // words) * words


def _without(tiling: Tiling, axis: str) -> Tiling:
    """An axis that is not cut."""
    tiles = tuple(one for one in tiling.tiles if one[0] != axis)
    order = tuple(one for one in tiling.order if one != axis)
    virtual = None if tiling.virtual and tiling.virtual[0] == axis else tiling.virtual
    return Tiling(tiles, order, virtual)


def fits(made: Operations, tiling: Tiling, spec: Spec) -> bool:
    """Whether the windows of a tiling fit the memories at any size."""
    largest = {a.name: ix.literal(a.extent) for a in (*made.axes, *made.terms)}
    tiles = dict(tiling.tiles)
    if any(extent is None and axis not in tiles for axis, extent in largest.items()):
        return False
    extents = {a: tiles[a] if n is None else n for a, n in largest.items()}
    at = Windows(made, tiling, spec, extents)
    kept = _windows_of_results(made)
    taken: dict[str, int] = {}

    def take(place: Place, words: int, depth: int) -> None:
        of = spec.words[place]
        inside = tiling.virtual is not None and tiling.virtual[0] in tiling.order[:depth]
        threads = tiling.virtual[1] if inside and tiling.virtual else 1
        taken[of.memory] = taken.get(of.memory, 0) + (words * threads + 1) * of.bytes

    terms = {axis.name for axis in made.terms}
    outer = sum(axis not in terms for axis in tiling.order)
    if at.results * (tiling.virtual[1] if tiling.virtual else 1) > spec.words[Place.OUTPUTS].depth:
        return False
    take(Place.ACCUMULATORS, at.results * kept, outer)
    for copy in made.copies:
        take(copy.place, at.of(copy)[0], at.depth(copy))
    return all(
        bytes_ <= of.bytes * of.depth
        for name, bytes_ in taken.items()
        for of in [next(one for one in spec.words.values() if one.memory == name)]
    )


def _windows_of_results(made: Operations) -> int:
    """How many windows of results there are at most: an operation lies over its first operand where nothing
    reads that again.
    """
    own = {buffer.name: buffer.dtype for buffer in made.buffers}
    reads = [
        {node.buffer for node in walk(step.value) if isinstance(node, Load)} for step in made.steps
    ]
    count = 0 if made.lead is None else 1
    for at, step in enumerate(made.steps):
        found = recipe(step, own[step.buffer], of_any) if step.buffer in own else None
        if found is None:
            continue
        base = found.base
        again = base is not None and any(base.buffer in later for later in reads[at + 1 :])
        twice = sum(load == base for load in found.reads) > 1
        over = base is not None and base.buffer in own and not (found.copied or again or twice)
        count += not over
    return max(count, 1)
