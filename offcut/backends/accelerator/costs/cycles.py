"""Cycles of a call at known sizes: units, the bus, and what has to wait for what; over open sizes, the formula of these.

At sizes that are known, what waits is a line of all instances, each in the queue of its unit (`costmodel/event_simulation.py`). Over
sizes that are left open, the formula is made of such lines at a few of them (`periodic.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import lcm

from offcut.backends.accelerator.lowering.issue_tree import bounds_of
from offcut.backends.accelerator.lowering.nest import LoweredNest
from offcut.backends.accelerator.nest_run import Ran, run_of
from offcut.core import index as ix
from offcut.core.expr import Binary, Const, Expr, children, variables
from offcut.costmodel.periodic import PeriodicFit, fit_periodic

HARDLY = 0.02
"""Of the whole: a unit that waits for less is what a call takes its time for."""


def resources(of: Ran) -> Mapping[str, float]:
    """Cycles by what takes them, a call takes the most of these: each unit with what comes before and behind it, the bus,
    and all that waits.
    """
    timed = of.timed
    cycles_by_resource = {
        unit: timed.cycles if cycles >= (1.0 - HARDLY) * timed.cycles else cycles
        for unit, cycles in timed.alone.items()
    }
    return {**cycles_by_resource, "bus": timed.bus, "chain": timed.cycles}


def formula(nest: LoweredNest) -> PeriodicFit:
    """Cycles over the sizes of a nest."""
    derived = nest.derived
    sizes = [size for size in nest.program.sizes if size.name not in derived.lets]
    exprs = [derived.expand(expr) for expr in _asked(nest)]
    read = frozenset[str]().union(*map(variables, exprs))
    least = {size.name: size.min for size in sizes}

    def cycles(sizes_of_call: Mapping[str, int]) -> float:
        return run_of(nest, {**least, **sizes_of_call}).timed.cycles

    divisors = {
        size.name: sorted({_divisor(expr, size.name) for expr in exprs} - {1})
        for size in sizes
        if size.name in read
    }
    return fit_periodic(cycles, [size for size in sizes if size.name in read], divisors)


def _asked(nest: LoweredNest) -> Iterator[Expr]:
    """Yield how often loops run, whether, how many words leaves have along their axes, and where main memory ends."""
    yield from bounds_of(nest.nodes)
    for work in nest.work:
        yield from (ix.ceildiv(work.asked[at], lanes) for at, lanes in work.counts)
        for low, high in work.bounds:
            yield from (work.asked[at] for at in (*low, *high))


def _divisor(expr: Expr, size: str) -> int:
    """What an expression divides a size by: of so many more, it gives as many more, or its part of a turn again."""
    if size not in variables(expr):
        return 1
    inner = lcm(*(_divisor(child, size) for child in children(expr)))
    match expr:
        case Binary("//" | "%", _, Const(by)):
            return inner * int(by)
        case _:
            return inner
