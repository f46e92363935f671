"""Numbers that a correction is learned from: functions of a case, each of which gives several by name.

Counts stand as logarithms, parts as shares, what a memory gives as ratios, so that another size, program or machine is near
one that was seen. A microkernel is what it does per cycle, never its name. `CLOSED` are what the closed form says, which a model
that is learned alone does without. `COUNTED` are what `cost()` counts of a schedule, of any machine, by the names that its resources have
there.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import pairwise
from math import log, log1p

import numpy as np

from offcut.core.memo import lazy_property
from offcut.core.program import LANE, THREAD
from offcut.costmodel.arrays import Values
from offcut.costmodel.closed.cost import Cost, PieceCost
from offcut.costmodel.device import Accelerator, Device
from offcut.costmodel.learned.case import Case, Ran
from offcut.costmodel.machine import Machine
from offcut.costmodel.nests import NestCost
from offcut.costmodel.resources import resources_of
from offcut.describe.microkernel import Microkernel
from offcut.partition import STRATEGIES
from offcut.schedule import Binds, Staging, Step, is_of_loops

Numbers = Mapping[str, Values | float]
_TINY = 1e-15


def closed(case: Case) -> Numbers:
    """The closed form: seconds, what each resource takes of the cycles that are predicted, what binds, and tails."""
    cycles = np.maximum(case.cycles, _TINY)
    levels = case.sum(_levels) / cycles
    binding = case.sum(_bound) / cycles
    return {
        "seconds": np.log(np.maximum(case.seconds, _TINY)),
        "compute": case.sum(_computed) / cycles,
        "issue": case.sum(_issued) / cycles,
        "tails": case.sum(_tails) / cycles,
        "compute.binds": 1 - binding.sum(axis=0),
        **{f"level{level}": taken for level, taken in enumerate(levels)},
        **{f"level{level}.binds": share for level, share in enumerate(binding)},
    }


def work(case: Case) -> Numbers:
    """Operations, how they divide among nests, and the sizes of calls."""
    sizes = [np.log1p(np.asarray(value, float)) for value in case.sizes.values()]
    none = np.zeros(case.count)
    most = max((way.of(Ran.flop) for way in case.ways), key=np.sum, default=none)
    return {
        "flop": np.log1p(case.flop),
        "flop_of_most": most / np.maximum(case.flop, 1),
        "least_size": np.min(sizes, axis=0) if sizes else none,
        "largest_size": np.max(sizes, axis=0) if sizes else none,
    }


def loops(case: Case) -> Numbers:
    """How deep loops are nested, how long the loops around a tile are, and how often tiles run."""
    ways = case.ways
    return {
        "depth": case.mean(one.around + len(one.way.loops) + len(one.way.inner) for one in ways),
        "shared": case.mean(float(one.around) for one in ways),
        "inner": case.mean(float(len(one.way.inner)) for one in ways),
        "trips": case.mean(one.of(_trips) for one in ways),
        "tiles": case.mean(one.of(_tiles) for one in ways),
        "largest_extent": case.mean(one.of(_largest) for one in ways),
        "least_extent": case.mean(one.of(_least) for one in ways),
    }


def reuse(case: Case) -> Numbers:
    """Bytes from each memory by operation, and over what the memory before it holds."""
    found: dict[str, Values | float] = {}
    capacities = [1.0, *(float(memory.bytes) for memory in case.machine.memory)]
    moved = case.sum(_moved)
    for level, (size, capacity) in enumerate(zip(moved, capacities, strict=True)):
        found[f"level{level}.by_flop"] = np.log1p(size / np.maximum(case.flop, 1))
        found[f"level{level}.over_nearer"] = np.log1p(size / capacity)
    return found


def tiles(case: Case) -> Numbers:
    """How high and wide tiles are, over what their microkernel has, and which share of an axis whole tiles cover."""
    found: dict[str, Values | float] = {}
    facts = [_facts(case, one) for one in case.ways]
    for name in ("rows", "columns"):
        along = [one.rows if name == "rows" else one.columns for one in case.ways]
        most = [max(1.0, fact[f"most_{name}"]) for fact in facts]
        found |= {
            f"{name}.tile": case.mean(log1p(one.tile) for one in along),
            f"{name}.length": case.mean(np.log1p(one.length) for one in along),
            f"{name}.whole": case.mean(one.whole for one in along),
            f"{name}.heights": case.mean(one.heights for one in along),
            f"{name}.of_most": case.mean(
                one.length / has for one, has in zip(along, most, strict=True)
            ),
        }
    return found


def strategies(case: Case) -> Numbers:
    """By strategy, the share of the time in ways whose rows, columns or other axes are cut by it."""
    parts = [one.of(_strategies) for one in case.ways]
    return {f"{axis}.{name}": found for (axis, name), found in case.means(_SPLIT, parts).items()}


def microkernels(case: Case) -> Numbers:
    """What covers tiles: its share of the time, its lanes, rows, terms at once, operations a cycle; and of all, cycles an operation."""
    facts = [tuple(_facts(case, one).values()) for one in case.ways]
    compute = case.sum(_computed)
    return {
        **case.means(tuple(NOTHING), facts),
        "cycles_a_flop": np.log(np.maximum(compute, _TINY) / np.maximum(case.flop, 1)),
    }


def packing(case: Case) -> Numbers:
    """What is copied or laid out before it is read, and how large the groups are that a cache holds."""
    ways = case.ways
    made = {(kind, of) for step in case.schedule.steps for kind, of in _staged(step)}
    groups = [max((cut.group or 0 for cut in one.way.splits), default=0) for one in ways]
    return {
        **{
            name: float(sum(kind == name for kind, _ in made))
            for name in ("lay", "scratch", "copy", "turn")
        },
        "packed": case.mean(float(one.way.pack is not None) for one in ways),
        "copied": case.mean(one.of(_copied) for one in ways),
        "group": case.mean(log1p(group) for group in groups),
    }


def _staged(step: Step) -> Iterator[tuple[str, str]]:
    """Yield how a decision stages an array, and of which stage; nothing of a conversion, which is a stage like any other."""
    match step:
        case Staging("prepack", buffer):
            yield "lay", buffer
        case Staging("write", stage):
            yield "turn", stage
        case Staging("value", what, _, (stage,)) if not _CONVERSION.fullmatch(what):
            yield "copy" if _ELEMENT.fullmatch(what) else "scratch", stage


_ELEMENT = re.compile(r"\w+\[[^\[\]]*\](?: along \w+)?")
_CONVERSION = re.compile(r"\w+\(\w+\[[^\[\]]*\]\)")


def competing(case: Case) -> Numbers:
    """How many nests there are, how many ways, what loops are marked with, threads, and copies of statements."""
    ways = Counter(one.nest for one in case.ways)
    schedule = case.schedule
    marks = {
        "rows": bool(Binds.of(schedule, LANE, tree=True).lines),
        "lanes": bool(Binds.of(schedule, LANE).lines),
        "threads": bool(Binds.of(schedule, THREAD).lines),
    }
    copies = [step.copies for step in case.schedule.steps if is_of_loops(step)]
    return {
        "nests": float(len(ways)),
        "ways": float(max(ways.values(), default=0)),
        **{f"mark.{unit}": float(bound) for unit, bound in marks.items()},
        "copies": log1p(max(copies, default=0)),
        "threads": log(case.threads),
    }


def machine(case: Case) -> Numbers:
    """The machine in ratios: what each memory holds and gives over the one before it, and what a cycle computes."""
    core, memory = case.machine.core, case.machine.memory
    rates = [*(level.bytes_per_cycle for level in memory), case.machine.dram.bytes_per_cycle]
    found: dict[str, Values | float] = {
        "issue": float(core.issue),
        "multiply_adds": float(core.multiply_adds),
        "loads": float(core.loads),
        "hertz": log(case.machine.hertz),
        "nearest_bytes": log(memory[0].bytes),
        "nearest_rate": log(rates[0]),
        "lanes": max(
            (log1p(facts_of(one)["lanes"]) for one in case.microkernels.values()), default=0.0
        ),
    }
    for place, (near, far) in enumerate(pairwise(memory)):
        found[f"bytes{place + 1}"] = log(far.bytes / near.bytes)
    for place, (near_rate, far_rate) in enumerate(pairwise(rates)):
        found[f"rate{place + 1}"] = log(far_rate / near_rate)
    return found


CLOSED = (closed,)
FEATURES = (
    *CLOSED,
    work,
    loops,
    reuse,
    tiles,
    strategies,
    microkernels,
    packing,
    competing,
    machine,
)


def _total(of: Callable[[NestCost], Values]) -> Callable[[Ran], Values]:
    """Return the function that gives the sum of what another one gives of each part of a way."""
    return lambda one: one.total(of)


_levels = _total(lambda part: part.bytes / part.rates)
_bound = _total(lambda part: _binding(part))
_computed = _total(lambda part: part.compute)
_issued = _total(lambda part: part.issue)
_tails = _total(lambda part: part.tails)
_moved = _total(lambda part: part.bytes)


def _largest(one: Ran) -> Values | float:
    return _log(one.extents.values(), np.max)


def _least(one: Ran) -> Values | float:
    return _log(one.extents.values(), np.min)


def _binding(part: NestCost) -> Values:
    """The cycles of a part in the row of the memory that binds; none where computing does."""
    taken = part.bytes / part.rates
    binds = (taken == taken.max(axis=0)) & (taken > np.maximum(part.compute, part.issue))
    first = binds & (np.cumsum(binds, axis=0) == 1)
    found: Values = first * part.cycles
    return found


def _trips(one: Ran) -> Values | float:
    """The logarithm of the iterations of the loops around a tile."""
    names = (*one.way.loops, *one.way.inner)
    return sum((np.log1p(one.extents[name]) for name in names if name in one.extents), 0.0)


def _tiles(one: Ran) -> Values:
    """The logarithm of how many tiles there are along rows and columns."""
    return np.log1p(one.rows.count) + np.log1p(one.columns.count)


def _copied(one: Ran) -> Values:
    """The share of the cycles that packed copies take."""
    copies = sum((part.cycles for part in one.parts[:-1]), np.zeros(len(one.taken)))
    found: Values = copies / np.maximum(sum(part.cycles for part in one.parts), _TINY)
    return found


def _log(values: Iterable[Values], of: Callable[..., Values]) -> Values | float:
    found = list(values)
    return np.log1p(of(found, axis=0)) if found else 0.0


def _facts(case: Case, one: Ran) -> Mapping[str, float]:
    kernel = None if one.way.cover is None else case.microkernels.get(one.way.cover.microkernel)
    return NOTHING if kernel is None else facts_of(kernel)


_SPLIT = tuple(
    (axis, name)
    for axis in ("rows", "columns", "other")
    for name in (*(strategy.name for strategy in STRATEGIES), "own")
)
"""Which axes of a way may be cut by which strategy, one that is the user's among them."""


def _strategies(one: Ran) -> tuple[float, ...]:
    """Of the splits of a way along the axes of each of `_SPLIT`, the share that is by its strategy."""
    found = Counter[tuple[str, str]]()
    cover = one.way.cover
    known = {strategy.name for strategy in STRATEGIES}
    for cut in one.way.splits:
        axis = "other"
        if cover is not None and cut.axis in (cover.rows, cover.columns):
            axis = "rows" if cut.axis == cover.rows else "columns"
        name = cut.strategy.name if cut.strategy.name in known else "own"
        found.update([(axis, name), (axis, "")])
    return tuple(found[axis, name] / max(1, found[axis, ""]) for axis, name in _SPLIT)


NOTHING: Mapping[str, float] = dict.fromkeys(
    ("covered", "lanes", "most_rows", "most_columns", "at_once", "interleave", "rate", "start"), 0.0
)
"""The facts of what no microkernel covers."""


@lru_cache(256)
def facts_of(kernel: Microkernel) -> Mapping[str, float]:
    """Lanes, rows, columns and terms at once; operations a cycle of the best tile, and cycles to start it, as logarithms."""
    best = min(kernel.tiles, key=lambda shape: shape.cycles / (shape.rows * shape.columns))
    return {
        "covered": 1.0,
        "lanes": float(kernel.panel),
        "most_rows": float(kernel.max_rows),
        "most_columns": float(max(shape.columns for shape in kernel.tiles)),
        "at_once": float(kernel.at_once),
        "interleave": float(kernel.interleave),
        "rate": log(best.rows * best.columns / best.cycles),
        "start": log1p(best.startup),
    }


@dataclass(frozen=True)
class Counted:
    """A schedule at several vectors of sizes, as `cost()` prints it at each.

    machine  that it is for: resources of it that a schedule does not use are 0
    """

    costs: Sequence[Cost]
    machine: Device

    @property
    def count(self) -> int:
        """Return how many vectors of sizes there are."""
        return len(self.costs)

    @lazy_property
    def seconds(self) -> Values:
        """By the closed form."""
        return np.array([one.seconds for one in self.costs])

    def each(self, of: Callable[[Cost], Mapping[str, float]]) -> dict[str, Values]:
        """Return what a function gives of each cost, by name."""
        rows = [of(one) for one in self.costs]
        names = dict.fromkeys(name for row in rows for name in row)
        return {name: np.array([row.get(name, 0.0) for row in rows]) for name in names}


def resources(case: Counted) -> dict[str, Values]:
    """Seconds; of each resource its share of the cycles, and of those where it takes longest; what all wait for; the call."""
    described = isinstance(case.machine, Accelerator | Machine)
    every = tuple(resources_of(case.machine).every) if described else ()
    return case.each(partial(_resources, every))


def memories(case: Counted) -> dict[str, Values]:
    """Bytes from each memory by operation, as logarithms, and the share of it that is filled."""
    return case.each(_memories)


def pieces(case: Counted) -> dict[str, Values]:
    """Trips, startups, heights and widths of tiles as logarithms, the share of tails; operations beside those that are described."""
    return case.each(_pieces)


COUNTED = (resources, memories, pieces)


def _resources(every: Iterable[str], one: Cost) -> dict[str, float]:
    cycles, stages = max(one.cycles, _TINY), one.stages.values()
    features = {"seconds": log(max(one.seconds, _TINY)), "call": one.call / cycles}
    for name in dict.fromkeys((*every, *(name for stage in stages for name in stage))):
        features[name] = sum(stage.get(name, 0.0) for stage in stages) / cycles
        bound = [stage for stage in stages if max(stage, key=lambda n: stage[n]) == name]
        features[f"{name}.binds"] = sum(stage[name] for stage in bound) / cycles
    busy = [sorted(stage.values())[-2:] for stage in stages]
    features["waits"] = (
        sum(last - first for first, last in (x for x in busy if len(x) == 2)) / cycles
    )
    return features


def _memories(one: Cost) -> dict[str, float]:
    rest = sum(size for name, size in one.bytes.items() if name not in one.occupancy)
    bytes_by_memory = {"main": rest, **{name: one.bytes.get(name, 0) for name in one.occupancy}}
    features = {name: log1p(size / max(one.flop, 1)) for name, size in bytes_by_memory.items()}
    return {**features, **{f"{name}.filled": share for name, share in one.occupancy.items()}}


def _pieces(one: Cost) -> dict[str, float]:
    cycles = max(sum(piece.cycles for piece in one.pieces), _TINY)

    def mean(of: Callable[[PieceCost], float]) -> float:
        return sum(of(piece) * piece.cycles for piece in one.pieces) / cycles

    done = sum(piece.flop for piece in one.pieces)
    return {
        "count": log1p(len(one.pieces)),
        "trips": mean(lambda piece: log1p(piece.runs)),
        "startups": log1p(one.instructions),
        "startups_a_trip": mean(lambda piece: log1p(piece.instructions / max(piece.runs, 1))),
        "height": mean(lambda piece: _extent(piece, -2)),
        "width": mean(lambda piece: _extent(piece, -1)),
        "tails": mean(lambda piece: float(piece.role == "tail")),
        "padded": log((1 + done) / (1 + one.flop)),
        "rate": log((1 + one.flop) / (1 + max(one.seconds, _TINY) * one.peak)),
    }


def _extent(piece: PieceCost, place: int) -> float:
    """Return the logarithm of an extent of a tile, counted from the last; 0 of one that moves, or of none."""
    extents = list(piece.tile.values())
    is_literal = -place <= len(extents) and extents[place].isdigit()
    return log1p(int(extents[place])) if is_literal else 0.0
