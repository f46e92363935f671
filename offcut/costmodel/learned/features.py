"""Numbers that a correction is learned from: functions of a case, each of which gives several by name.

They are the resources and counts of the closed form, the same on each target, and nothing else. Counts stand as logarithms and parts as
shares, so that another size, program or machine is near one that was seen. `CLOSED` are what the closed form says of time, which a
model that is learned alone does without.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import log, log1p

import numpy as np

from offcut.costmodel.arrays import Array
from offcut.costmodel.learned.case import Case, machine_resources

Numbers = Mapping[str, Array | float]
_TINY = 1e-15


def resources(case: Case) -> Numbers:
    """Return seconds as a logarithm; of each resource its share of the cycles, and of those where it takes longest; the share for
    which the busiest resource of a stage is waited for; and that of the call itself.
    """
    cycles = np.maximum(case.cycles, _TINY)
    by_name = case.resources
    busy = np.array(list(by_name.values()))  # (resources, stages, count)
    binds = np.argmax(busy, axis=0)[None] == np.arange(len(by_name))[:, None, None]
    sums, bound = busy.sum(axis=1) / cycles, (busy * binds).sum(axis=1) / cycles
    ranked = np.sort(busy, axis=0)
    return {
        "seconds": np.log(np.maximum(case.seconds, _TINY)),
        "call": case.call / cycles,
        "waits": (ranked[-1] - ranked[-2]).sum(axis=0) / cycles if len(by_name) > 1 else 0.0,
        **dict(zip(by_name, sums, strict=True)),
        **dict(zip((f"{name}.binds" for name in by_name), bound, strict=True)),
    }


def memories(case: Case) -> Numbers:
    """Return the bytes from each memory, and those by operation, as logarithms."""
    flop = np.maximum(case.flop, 1)
    return {
        **{name: np.log1p(size) for name, size in case.bytes.items()},
        **{f"{name}.by_flop": np.log1p(size / flop) for name, size in case.bytes.items()},
    }


def counts(case: Case) -> Numbers:
    """Return operations, runs of tiles, instructions and sizes as logarithms; the share of partial tiles; stages and threads."""
    sizes = [np.log1p(np.asarray(value, float)) for value in case.sizes.values()]
    runs = np.maximum(case.runs, 1)
    return {
        "flop": np.log1p(case.flop),
        "runs": np.log1p(case.runs),
        "flop_by_run": np.log1p(case.flop / runs),
        "instructions_by_run": np.log1p(case.instructions / runs),
        "tails": case.tails / np.maximum(case.cycles, _TINY),
        "stages": log1p(len(case.stages)),
        "least_size": np.min(sizes, axis=0) if sizes else 0.0,
        "largest_size": np.max(sizes, axis=0) if sizes else 0.0,
        "threads": log(case.threads),
    }


def machine(case: Case) -> Numbers:
    """Return the machine as logarithms: its clock, what its units multiply, and of each resource its rate, of queues their startup, of caches what they hold."""
    rates = [unit.multiply_adds for unit in case.machine.unit]
    numbers = {"hertz": log(case.machine.hertz), "multiply_adds": log1p(max(rates, default=0.0))}
    own = machine_resources(case.machine)
    for one in () if own is None else own.every.values():
        numbers[f"{one.name}.rate"] = log(one.rate)
        if one.ordered:
            numbers[f"{one.name}.startup"] = log1p(one.startup)
        if one.bytes is not None:
            numbers[f"{one.name}.bytes"] = log(one.bytes)
    return numbers


CLOSED = (resources,)
FEATURES = (*CLOSED, memories, counts, machine)
