"""Numbers that a correction is learned from: functions of a case, each of which gives several by name.

Counts stand as logarithms, parts as shares, what a memory gives as ratios, so that another size, program or machine is near
one that was seen. A microkernel is what it does per cycle, never its name. `CLOSED` are what the closed form says, which a model
that is learned alone does without.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise
from math import log, log1p

import numpy as np

from offcut.costmodel.learned.case import Case, Ran, Values
from offcut.costmodel.learned.facts import NOTHING, Along, facts_of, tiles_along
from offcut.costmodel.nests import NestCost
from offcut.partition import STRATEGIES
from offcut.schedule import Copy, Lay, Mark, Scratch, Separate, Turn

Numbers = Mapping[str, Values | float]
_TINY = 1e-15


def closed(case: Case) -> Numbers:
    """The closed form: seconds, what each resource takes of the cycles that are predicted, what binds, and tails."""
    cycles = np.maximum(case.cycles, _TINY)
    found: dict[str, Values | float] = {
        "seconds": np.log(np.maximum(case.seconds, _TINY)),
        "compute": case.total(lambda part: part.compute) / cycles,
        "issue": case.total(lambda part: part.issue) / cycles,
        "tails": case.total(lambda part: part.tails) / cycles,
        "compute.binds": case.total(lambda part: part.cycles * (part.compute >= part.memory)) / cycles,
    }
    for level, _ in enumerate(case.machine.levels):
        taken = case.total(lambda part, level=level: (part.bytes / part.rates)[level])
        binds = case.total(lambda part, level=level: part.cycles * _binds(part, level))
        found |= {f"level{level}": taken / cycles, f"level{level}.binds": binds / cycles}
    return found


def work(case: Case) -> Numbers:
    """Operations, how they divide among nests, and the sizes of calls."""
    sizes = [np.log1p(np.asarray(value, float)) for value in case.sizes.values()]
    none = np.zeros(case.count)
    flop = np.maximum(case.flop, 1)
    most = max((way.total(lambda part: part.flop) for way in case.ways), key=np.sum, default=none)
    return {
        "flop": np.log1p(case.flop),
        "flop_of_most": most / flop,
        "least_size": np.min(sizes, axis=0) if sizes else none,
        "largest_size": np.max(sizes, axis=0) if sizes else none,
    }


def loops(case: Case) -> Numbers:
    """How deep loops are nested, how long the loops around a tile are, and how often tiles run."""
    return {
        "depth": case.mean(lambda one: one.around + len(one.way.loops) + len(one.way.inner)),
        "shared": case.mean(lambda one: float(one.around)),
        "inner": case.mean(lambda one: float(len(one.way.inner))),
        "trips": case.mean(_trips),
        "tiles": case.mean(lambda one: sum((np.log1p(along.count) for along in _along(one)), 0.0)),
        "largest_extent": case.mean(lambda one: _log(one.extents.values(), np.max)),
        "least_extent": case.mean(lambda one: _log(one.extents.values(), np.min)),
    }


def reuse(case: Case) -> Numbers:
    """Bytes from each memory by operation, and over what the memory before it holds."""
    found: dict[str, Values | float] = {}
    flop = np.maximum(case.flop, 1)
    capacities = [1.0, *(float(memory.bytes) for memory in case.machine.memory)]
    for level, capacity in enumerate(capacities):
        moved = case.total(lambda part, level=level: part.bytes[level])
        found[f"level{level}.by_flop"] = np.log1p(moved / flop)
        found[f"level{level}.over_nearer"] = np.log1p(moved / capacity)
    return found


def tiles(case: Case) -> Numbers:
    """How high and wide tiles are, over what their microkernel has, and which share of an axis whole tiles cover."""
    found: dict[str, Values | float] = {}
    for name in ("rows", "columns"):
        along = {id(one): tiles_along(one, name) for one in case.ways}
        facts = {id(one): _facts(case, one) for one in case.ways}
        found |= {
            f"{name}.length": case.mean(lambda one, along=along: np.log1p(along[id(one)].length)),
            f"{name}.whole": case.mean(lambda one, along=along: along[id(one)].whole),
            f"{name}.heights": case.mean(lambda one, along=along: along[id(one)].heights),
            f"{name}.of_most": case.mean(
                lambda one, along=along, facts=facts, name=name: along[id(one)].length
                / max(1.0, facts[id(one)][f"most_{name}"])
            ),
        }
    return found


def strategies(case: Case) -> Numbers:
    """By strategy, the share of the time in ways whose rows, columns or other axes are cut by it."""
    found: dict[str, Values | float] = {}
    named = {id(one): _strategies(one) for one in case.ways}
    for axis in ("rows", "columns", "other"):
        for name in (*(strategy.name for strategy in STRATEGIES), "own"):
            shares = {key: counts[axis, name] / max(1, counts[axis, ""]) for key, counts in named.items()}
            some = any(shares.values())
            found[f"{axis}.{name}"] = case.mean(lambda one, shares=shares: shares[id(one)]) if some else 0.0
    return found


def microkernels(case: Case) -> Numbers:
    """What covers tiles: its share of the time, its lanes, rows, terms at once, operations a cycle; and of all, cycles an operation."""
    facts = {id(one): _facts(case, one) for one in case.ways}
    found: dict[str, Values | float] = {
        name: case.mean(lambda one, name=name: facts[id(one)][name]) for name in NOTHING
    }
    compute = case.total(lambda part: part.compute)
    found["cycles_a_flop"] = np.log(np.maximum(compute, _TINY) / np.maximum(case.flop, 1))
    return found


def packing(case: Case) -> Numbers:
    """What is copied or laid out before it is read, and how large the groups are that a cache holds."""
    steps = case.schedule.steps
    made = {"lay": Lay, "scratch": Scratch, "copy": Copy, "turn": Turn}
    copied = sum(
        (np.where(one.taken, sum(part.cycles for part in one.parts[:-1]), 0.0) for one in case.ways),
        np.zeros(case.count),
    )
    return {
        **{name: float(sum(isinstance(step, kind) for step in steps)) for name, kind in made.items()},
        "packed": case.mean(lambda one: float(one.way.pack is not None)),
        "copied": copied / np.maximum(case.cycles, _TINY),
        "group": case.mean(lambda one: log1p(max((cut.group or 0 for cut in one.way.splits), default=0))),
    }


def competing(case: Case) -> Numbers:
    """How many nests there are, how many ways, what loops are marked with, threads, and copies of statements."""
    ways = Counter(one.nest for one in case.ways)
    marks = {step.unit for step in case.schedule.steps if isinstance(step, Mark)}
    copies = [step.copies for step in case.schedule.steps if isinstance(step, Separate)]
    return {
        "nests": float(len(ways)),
        "ways": float(max(ways.values(), default=0)),
        **{f"mark.{unit}": float(unit in marks) for unit in ("rows", "lanes", "threads")},
        "copies": log1p(max(copies, default=0)),
        "threads": log(case.threads),
    }


def machine(case: Case) -> Numbers:
    """The machine in ratios: what each memory holds and gives over the one before it, and what a cycle computes."""
    core, memory = case.machine.core, case.machine.memory
    rates = [level.bytes_per_cycle for level in (*memory, case.machine.dram)]
    found: dict[str, Values | float] = {
        "issue": float(core.issue),
        "multiply_adds": float(core.multiply_adds),
        "loads": float(core.loads),
        "hertz": log(case.machine.hertz),
        "nearest_bytes": log(memory[0].bytes),
        "nearest_rate": log(rates[0]),
        "lanes": max((log1p(facts_of(one)["lanes"]) for one in case.microkernels.values()), default=0.0),
    }
    for place, (near, far) in enumerate(pairwise(memory)):
        found[f"bytes{place + 1}"] = log(far.bytes / near.bytes)
    for place, (near_rate, far_rate) in enumerate(pairwise(rates)):
        found[f"rate{place + 1}"] = log(far_rate / near_rate)
    return found


CLOSED = (closed,)
FEATURES = (*CLOSED, work, loops, reuse, tiles, strategies, microkernels, packing, competing, machine)


def _binds(part: NestCost, level: int) -> Values:
    taken = part.bytes / part.rates
    return (taken[level] >= taken.max(axis=0)) & (taken[level] > part.compute)


def _trips(one: Ran) -> Values | float:
    """The logarithm of the iterations of the loops around a tile."""
    names = (*one.way.loops, *one.way.inner)
    return sum((np.log1p(one.extents[name]) for name in names if name in one.extents), 0.0)


def _along(one: Ran) -> tuple[Along, ...]:
    return tuple(tiles_along(one, name) for name in ("rows", "columns"))


def _log(values: Iterable[Values], of: Callable[..., Values]) -> Values | float:
    found = list(values)
    return np.log1p(of(found, axis=0)) if found else 0.0


def _facts(case: Case, one: Ran) -> Mapping[str, float]:
    kernel = None if one.way.cover is None else case.microkernels.get(one.way.cover.microkernel)
    return NOTHING if kernel is None else facts_of(kernel)


def _strategies(one: Ran) -> Counter[tuple[str, str]]:
    """How many splits of a way there are, by which of its axes they cut and by strategy; "" counts all."""
    found = Counter[tuple[str, str]]()
    cover = one.way.cover
    known = {strategy.name for strategy in STRATEGIES}
    for cut in one.way.splits:
        axis = "other"
        if cover is not None and cut.axis in (cover.rows, cover.columns):
            axis = "rows" if cut.axis == cover.rows else "columns"
        name = cut.strategy.name if cut.strategy.name in known else "own"
        found.update([(axis, name), (axis, "")])
    return found
