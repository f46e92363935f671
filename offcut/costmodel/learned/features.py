"""Numbers that a correction is learned from: functions of a case, each of which gives several by name.

Counts stand as logarithms, parts as shares, what a memory gives as ratios, so that another size, program or machine is near
one that was seen. A microkernel is what it does per cycle, never its name. `CLOSED` are what the closed form says, which a model
that is learned alone does without.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from itertools import pairwise
from math import log, log1p

import numpy as np

from offcut.costmodel.learned.case import Case, Ran, Values, nests
from offcut.partition import STRATEGIES
from offcut.schedule import Copy, Cut, Lay, Mark, Scratch, Separate, Turn

Numbers = Mapping[str, Values | float]
_ROLES = ("body", "tail", "whole")
_TINY = 1e-15


def seconds(case: Case) -> Numbers:
    """The closed form: seconds, the cycles of each resource over those that are predicted, and which binds."""
    cycles = np.maximum(case.total(lambda piece: piece.cycles), _TINY)
    found: dict[str, Values | float] = {"log": np.log(np.maximum(case.seconds, _TINY))}
    for place, name in enumerate(_resources(case)):
        one = case.total(lambda piece, name=name: piece.resources.get(name, 0.0))
        binds = case.total(lambda piece, name=name: piece.cycles * _binds(piece, name))
        found |= {f"{_called(place)}": one / cycles, f"{_called(place)}.binds": binds / cycles}
    return found


def work(case: Case) -> Numbers:
    """Operations, instructions, instances, and how often tiles and statements run."""
    flop = case.flop
    runs = case.total(lambda piece: piece.runs)
    instances = case.total(lambda piece: piece.instances)
    issued = case.total(lambda piece: piece.instructions)
    return {
        "flop": np.log1p(flop),
        "runs": np.log1p(runs),
        "instances": np.log1p(instances),
        "instances_a_run": np.log1p(instances / np.maximum(runs, 1)),
        "instructions_a_flop": np.log1p(issued / np.maximum(flop, 1)),
        "pieces": log1p(len(case.pieces)),
        "pieces_run": np.log1p(case.total(lambda piece: piece.runs > 0)),
    }


def loops(case: Case) -> Numbers:
    """How deep loops are nested, how long those are that are cut, and the values of the sizes."""
    depths = [around + len(way.loops) + len(way.inner) for nest, around in nests(case.schedule.steps) for way in nest.ways]
    cuts = [step for step in case.schedule.steps if isinstance(step, Cut)]
    sizes = [np.log1p(np.asarray(value, float)) for value in case.sizes.values()]
    zero = np.zeros(case.count)
    return {
        "deepest": float(max(depths, default=0)),
        "mean_depth": sum(depths) / max(1, len(depths)),
        "shared": float(max((around for _, around in nests(case.schedule.steps)), default=0)),
        "levels": float(max((len(cut.tiles) for cut in cuts), default=0)),
        "least_size": np.min(sizes, axis=0) if sizes else zero,
        "largest_size": np.max(sizes, axis=0) if sizes else zero,
    }


def reuse(case: Case) -> Numbers:
    """Bytes from each memory by operation, and over what the memory before it holds."""
    flop = np.maximum(case.flop, 1)
    found: dict[str, Values | float] = {}
    capacities = [1.0, *(float(memory.bytes) for memory in case.machine.memory)]
    for place, level in enumerate(case.machine.levels):
        moved = case.total(lambda piece, name=level.name: piece.bytes.get(name, 0.0))
        found[f"level{place}.by_flop"] = np.log1p(moved / flop)
        found[f"level{place}.over_nearer"] = np.log1p(moved / capacities[place])
    return found


def tiles(case: Case) -> Numbers:
    """The share of bodies, tails and whole loops in operations and in time, and how high and wide tiles are."""
    flop, cycles = np.maximum(case.flop, 1), case.total(lambda piece: piece.cycles)
    found: dict[str, Values | float] = {}
    for role in _ROLES:
        part = case.total(lambda piece, role=role: piece.flop * (piece.role == role))
        time = case.total(lambda piece, role=role: piece.cycles * (piece.role == role))
        found |= {f"{role}.flop": part / flop, f"{role}.time": time / np.maximum(cycles, _TINY)}
    shapes = {id(piece): _shape(piece, case) for piece in case.pieces}
    for place, name in enumerate(("height", "width", "height_of_most", "width_of_most")):
        found[name] = case.mean(lambda piece, place=place: shapes[id(piece)][place])
    return found


def strategies(case: Case) -> Numbers:
    """By strategy, the share of the splits of rows, of columns and of other axes that take it."""
    counted: dict[str, Counter[str]] = {"rows": Counter(), "columns": Counter(), "other": Counter()}
    for way in case.ways:
        for cut in way.splits:
            rows = way.cover is not None and cut.axis == way.cover.rows
            columns = way.cover is not None and cut.axis == way.cover.columns
            counted["rows" if rows else "columns" if columns else "other"][cut.strategy.name] += 1
    for step in case.schedule.steps:
        if isinstance(step, Cut):
            counted["other"][step.strategy.name] += 1
    found: dict[str, Values | float] = {}
    for axis, counts in counted.items():
        total = max(1, counts.total())
        found |= {f"{axis}.{one.name}": counts.pop(one.name, 0) / total for one in STRATEGIES}
        found[f"{axis}.own"] = counts.total() / total
    return found


def microkernels(case: Case) -> Numbers:
    """What covers tiles: its share of the time, lanes, rows, terms at once, and cycles of an operation."""
    found: dict[str, Values | float] = {}

    def fact(of: str) -> Values:
        facts = {name: _facts(case, name)[of] for name in case.microkernels}
        return case.mean(lambda piece: facts.get(piece.microkernel or "", 0.0))

    covered = case.mean(lambda piece: float(piece.microkernel in case.microkernels))
    compute = case.total(lambda piece: piece.resources.get("compute", 0.0))
    found["covered"] = covered
    found["cycles_a_flop"] = np.log(np.maximum(compute, _TINY) / np.maximum(case.flop, 1))
    return found | {name: fact(name) for name in _facts(case, "")}


def packing(case: Case) -> Numbers:
    """What is copied or laid out before it is read, and how large the groups are that a cache holds."""
    steps, ways = case.schedule.steps, case.ways
    groups = [cut.group for way in ways for cut in way.splits if cut.group is not None]
    made = {kind.__name__.lower(): kind for kind in (Lay, Scratch, Copy, Turn)}
    counts = {name: float(sum(isinstance(step, kind) for step in steps)) for name, kind in made.items()}
    return {
        **counts,
        "packed": sum(way.pack is not None for way in ways) / max(1, len(ways)),
        "grouped": len(groups) / max(1, len(ways)),
        "group": sum(map(log, groups)) / max(1, len(groups)),
    }


def competing(case: Case) -> Numbers:
    """How many nests there are, how many ways, what loops are marked with, and copies of statements."""
    found = [nest for nest, _ in nests(case.schedule.steps)]
    marks = {step.unit for step in case.schedule.steps if isinstance(step, Mark)}
    copies = [step.copies for step in case.schedule.steps if isinstance(step, Separate)]
    return {
        "nests": float(len(found)),
        "ways": float(max((len(nest.ways) for nest in found), default=0)),
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
        "widest": log(max((_facts(case, name)["lanes"] for name in case.microkernels), default=1.0) or 1.0),
    }
    for place, (near, far) in enumerate(pairwise(memory)):
        found[f"bytes{place + 1}"] = log(far.bytes / near.bytes)
    for place, (near_rate, far_rate) in enumerate(pairwise(rates)):
        found[f"rate{place + 1}"] = log(far_rate / near_rate)
    return found


CLOSED = (seconds,)
FEATURES = (*CLOSED, work, loops, reuse, tiles, strategies, microkernels, packing, competing, machine)


def _resources(case: Case) -> tuple[str, ...]:
    return ("compute", "issue", *(level.name for level in case.machine.levels))


def _called(place: int) -> str:
    """Memories have other names on other machines, and the same places."""
    return ("compute", "issue")[place] if place < 2 else f"level{place - 2}"


def _binds(piece: Ran, name: str) -> Values:
    return piece.resources.get(name, np.zeros_like(piece.cycles)) >= piece.cycles


def _shape(piece: Ran, case: Case) -> tuple[Values | float, ...]:
    """Height and width of a tile, as logarithms, and each over the most that its microkernel has."""
    *rows, columns = piece.tile.values() or (np.ones(case.count),)
    height = np.prod([np.ones(case.count), *rows], axis=0)
    kernel = case.microkernels.get(piece.microkernel or "")
    if kernel is None:
        return np.log1p(height), np.log1p(columns), 0.0, 0.0
    widest = max(shape.columns for shape in kernel.tiles)
    return np.log1p(height), np.log1p(columns), height / kernel.max_rows, columns / widest


def _facts(case: Case, name: str) -> Mapping[str, float]:
    kernel = case.microkernels.get(name)
    if kernel is None:
        return dict.fromkeys(("lanes", "rows", "widest", "at_once", "panel", "rate", "start"), 0.0)
    best = min(kernel.tiles, key=lambda shape: shape.cycles / (shape.rows * shape.columns))
    return {
        "lanes": float(min(shape.columns for shape in kernel.tiles)),
        "rows": float(kernel.max_rows),
        "widest": float(max(shape.columns for shape in kernel.tiles)),
        "at_once": float(kernel.at_once),
        "panel": float(kernel.panel),
        "rate": log(best.rows * best.columns / best.cycles),
        "start": log1p(best.startup),
    }
