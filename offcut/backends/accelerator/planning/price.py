"""Cycles of a nest at a tiling, before there is a program of it: what its leaves would move and compute.

Tails of tiles count as they are where results are stored, and as whole tiles where operands are loaded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import prod

from offcut.backends.accelerator.costs.counts import Issued
from offcut.backends.accelerator.costs.cycles import resources
from offcut.backends.accelerator.costs.numbers import value
from offcut.backends.accelerator.costs.totals import Totals
from offcut.backends.accelerator.isa import Place, Unit
from offcut.backends.accelerator.planning.elementary import Operations
from offcut.backends.accelerator.planning.loops import Tiling
from offcut.backends.accelerator.planning.windows import Windows, lanes
from offcut.backends.accelerator.spec import Spec
from offcut.core import index as ix
from offcut.core.expr import Binary, Load
from offcut.core.program import Store


def cycles(made: Operations, tiling: Tiling, spec: Spec, extents: Mapping[str, int]) -> float:
    """Cycles, at the extents of the axes."""
    return max(map(value, resources(totals(made, tiling, spec, extents)).values()))


def totals(made: Operations, tiling: Tiling, spec: Spec, extents: Mapping[str, int]) -> Totals:
    """What units, bus and memories do."""
    at, words = Windows(made, tiling, spec, extents), lanes(made, spec)
    terms = {axis.name for axis in made.terms}
    outer = sum(axis not in terms for axis in tiling.order)
    tiles, sums = at.times(outer), at.times(len(tiling.order))
    results = prod(-(-extents[axis.name] // words.get(axis.name, 1)) for axis in made.axes)
    turns, turned = _turned(tiling, extents)
    found = Totals(spec, dealt=tiling.virtual is not None)
    found.together = not any(axis in terms for axis in tiling.order)

    def issued(runs: int, each: int = 1, **counts: float) -> Issued:
        whole = {name: ix.const(round(count)) for name, count in counts.items()}
        return replace(Issued(ix.const(runs), instructions=ix.const(runs * each)), **whole)

    for copy in made.copies:
        held, run = at.of(copy)
        times = at.times(at.depth(copy))
        one = issued(times, rows=times * held / run, words=times * held)
        own = found.moved(copy.place, spec.loads[copy.place], one)
        inside = tiling.virtual is None or tiling.virtual[0] in tiling.order[: at.depth(copy)]
        if spec.loads[copy.place] is Unit.LOAD and not inside:
            found.shared.append((own, float(times)))
    if made.lead is not None:
        found.add_operation(issued(tiles, resets=results), behind=False)
        visits = results * prod(-(-extents[a.name] // words.get(a.name, 1)) for a in made.terms)
        if made.roles.depth is not None or any(c.place is Place.WEIGHTS for c in made.copies):
            found.add_product(issued(sums, steps=visits))
        else:
            found.add_operation(issued(sums, pairs=visits), behind=False)
    stores = [step for step in made.steps if step.buffer not in {b.name for b in made.buffers}]
    for step in made.steps:
        if step not in stores:
            visits_of = {"pairs" if _reads_two(step) else "steps": results}
            found.add_operation(issued(tiles, **visits_of), behind=True)
    run = max(at.words(axis.name) for axis in made.axes) if made.axes else 1
    for _ in stores:
        one = issued(tiles, rows=results / run, words=results)
        found.moved(Place.OUTPUTS, Unit.STORE, one)
    found.runs = ix.const(tiles)
    found.turns = tiles * turns
    found.tiles = found.turns / turned
    found.sums = sums * found.tiles / tiles
    return found


def _turned(tiling: Tiling, extents: Mapping[str, int]) -> tuple[float, float]:
    """Of tiles, and of their results, the share of the first virtual thread."""
    if tiling.virtual is None:
        return 1.0, 1.0
    axis, threads = tiling.virtual
    tile, extent = dict(tiling.tiles)[axis], extents[axis]
    count = -(-extent // tile)
    mine = sum(min(tile, extent - tile * number) for number in range(0, count, threads))
    return -(-count // threads) / count, mine / extent


def _reads_two(step: Store) -> bool:
    """Whether an operation takes a second word."""
    value_ = step.value
    return isinstance(value_, Binary) and isinstance(value_.a, Load) and isinstance(value_.b, Load)
