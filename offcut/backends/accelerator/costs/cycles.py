"""What units do -> cycles of a call: units, the bus, and what has to wait for what.

At sizes that are known, what waits is a line of all instances, each in the queue of its unit (`line.py`). Over sizes that
are left open it is a formula, near that where tiles are alike:

Units run side by side, so a nest takes as long as the one that is busy for longest, or as the bus; before the
first of its instructions, and behind the last, others run alone. Two orders of instructions take longer where
they do. Let a tile take l, s, c cycles to be loaded, stored and computed, e of the latter for the operations
behind its sum, and let f load what one instance of the sum reads. A smaller tile is a part of one.

**chain**, of one set of windows: it is loaded, multiplied, and only then loaded again; the first load of a tile
runs beside the operations of the tile before::

    chain = tiles * (l + c + s) - (tiles - 1) * min(f, e) - min(first loads, what is computed before)

**turns**, of two sets, whose tiles are computed by the one compute unit: what it waits for is added to what it
computes. A pair whose operations run after the sums of both waits for its stores, before the next pair begins: s
and what of it is longer than e. A tile without another beside it is a chain, as long as which the bus is idle,
too, but the last one, whose load nothing holds up. What both sets read, in one window, is loaded once both have read the one before, and what one of them reads
alone behind it::

    turns = tiles * c + pairs * wait + alone * (l + s - min(f, e)) + sum over shared loads of max(load + l - e, 0)
    wait  = 2 * max(s - c, 0)        sums and operations of a tile follow one another
          = s + max(s - e, 0)        those of a pair take turns

Left out: loads and stores that wait for each other's rows on the bus.
"""

from __future__ import annotations

from collections.abc import Mapping

from offcut.backends.accelerator.costs.numbers import (
    Number,
    each,
    least,
    less,
    plus,
    positive,
    times,
    where_any,
)
from offcut.backends.accelerator.costs.totals import Totals
from offcut.backends.accelerator.instances.running import Timed
from offcut.backends.accelerator.isa import Unit

HARDLY = 0.02
"""Of the whole: a unit that waits for less is what a call takes its time for."""


def resources(of: Totals) -> Mapping[str, Number]:
    """Cycles by what takes them; a call takes the most of these."""
    return _open(of) if of.timed is None else _known(of, of.timed)


def _known(of: Totals, timed: Timed) -> Mapping[str, Number]:
    """Where all sizes are known: each unit with what comes before and behind it, the bus, and all that waits."""
    found: dict[str, Number] = {
        unit.value: timed.cycles if cycles >= (1.0 - HARDLY) * timed.cycles else cycles
        for unit, cycles in timed.alone.items()
    }
    return {**found, "bus": timed.bus, "turns" if of.dealt else "chain": timed.cycles}


def _open(of: Totals) -> Mapping[str, Number]:
    """Over sizes that are left open."""
    load, compute, store = (of.cycles[unit] for unit in (Unit.LOAD, Unit.COMPUTE, Unit.STORE))
    first, sum_ = each(load, of.sums), each(of.multiplied, of.sums)
    loaded, computed, stored, end = (each(one, of.tiles) for one in (load, compute, store, of.end))
    beside = least(first, end)
    pairs = less(of.tiles, of.turns) if of.dealt else 0.0
    alone = positive(less(less(of.turns, pairs), 1.0)) if of.dealt else 0.0
    before = less(of.first, least(of.first, of.start))
    idle = times(alone, less(computed, beside))  # of loads and the bus
    found = {
        "load": plus(load, sum_, end, stored, idle),
        "compute": plus(compute, before, stored),
        "store": plus(store, of.first, sum_, end),
        "bus": plus(of.bus, sum_, end, idle),
    }
    if not of.dealt:
        others = positive(less(of.tiles, 1.0))
        hidden = plus(times(others, beside), least(of.first, of.start))
        found["chain"] = less(plus(load, compute, store), hidden)
    else:
        late = positive(less(stored, end))
        wait = plus(stored, late)
        if of.together:
            wait = times(2.0, positive(less(stored, computed)))
        own = each(less(load, plus(*(cycles for cycles, _ in of.shared))), of.tiles)
        again = [
            times(
                positive(less(runs, 1.0)),
                positive(less(plus(each(cycles, runs), own), end)),
            )
            for cycles, runs in of.shared
        ]
        found["turns"] = plus(
            *(compute, before, stored, times(pairs, wait)),
            *(times(alone, less(plus(loaded, stored), beside)), *again),
        )
    return {name: where_any(of.runs, one) for name, one in found.items()}
