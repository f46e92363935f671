"""The stages that say whether kernels are right: meaning, bits, edges."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np

from device_run.folder import Prepared, Results
from device_run.reference import Array, drawn, wrong
from device_run.runners import Runner, WrongWrite
from offcut.backends.gpu.launches import LaunchPlan
from offcut.errors import OffcutError

ONE_TILE = (64, 1)
"""Rows of the first run of a kernel: those of a tile, and one."""
BATCHES = (1, 17, 64, 65)
"""Batches of which the rows must have the bits that they have in a larger one."""
EDGES = (0, 1, 7, 63, 64, 65, 127, 128, 129, 255, 256, 257)
FEW_EDGES = (0, 1, 7, 65)
MOST_ROWS = 700
"""Rows of random sizes, at most."""


def shapes_of(plan: LaunchPlan, n: int) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the inputs of a plan at a size."""
    sizes = dict.fromkeys(plan.sizes, n)
    return {a.name: plan.shape(a, sizes) for a in plan.arrays if a.kind == "input"}


def fault_of(
    runner: Runner, kernel: Prepared, n: int, seed: int, whole: bool, offset: bool = False
) -> str:
    """Return what is wrong with a kernel at a size, in one line; empty if nothing is."""
    inputs = drawn(kernel.computes, shapes_of(kernel.plan, n), seed, whole)
    try:
        (result,) = runner.run(kernel, inputs, n, offset).values()
    except WrongWrite as error:
        return str(error)
    text = wrong(kernel.computes, inputs, result, whole)
    return f"{kernel.name} at n = {n}: {text}" if text else ""


def meaning(runner: Runner, kernels: Sequence[Prepared], results: Results, quick: bool) -> bool:
    """Run each kernel on one tile, on whole and on normal numbers; return whether all are right."""
    record = results.begin("meaning", device=runner.title, right=[], wrong=[])
    for kernel in kernels:
        faults = [
            fault_of(runner, kernel, n, 1, whole)
            for n in ONE_TILE
            for whole in ((True,) if quick else (True, False))
        ]
        _note(record, kernel.name, faults)
        results.flush()
    return not record["wrong"]


def bits(runner: Runner, kernels: Sequence[Prepared], results: Results, quick: bool) -> bool:
    """Compare bits: of rows in batches of several sizes, of equal rows at all places, of kernels that compute the same.

    Return whether those that must be equal are; of kernels by other instructions the record says whether they are.
    """
    record = results.begin("bits", right=[], wrong=[], between={})
    most = BATCHES[-1] + (0 if quick else 135)
    by_meaning: dict[str, list[tuple[str, Array]]] = defaultdict(list)
    for kernel in kernels:
        if kernel.computes["op"] != "dense":
            continue
        inputs = drawn(kernel.computes, shapes_of(kernel.plan, most), 2, whole=False)
        (full,) = runner.run(kernel, inputs, most).values()
        by_meaning[repr(sorted(kernel.computes.items()))].append((kernel.name, full))
        faults = []
        for n in BATCHES[-2:] if quick else BATCHES:
            (part,) = runner.run(kernel, {**inputs, "A": inputs["A"][:n]}, n).values()
            if not np.array_equal(_bits(part), _bits(full[:n])):
                faults.append(f"{kernel.name}: rows of a batch of {n} have other bits than in {most}")  # fmt: skip
        alike = {**inputs, "A": np.repeat(inputs["A"][:1], most, 0)}
        (rows,) = runner.run(kernel, alike, most).values()
        if not (_bits(rows) == _bits(rows[:1])).all():
            faults.append(f"{kernel.name}: equal rows have other bits at another place")
        _note(record, kernel.name, faults)
        results.flush()
    for alike_ in by_meaning.values():
        (first, one), *others = alike_
        for name, other in others:
            record["between"][f"{first} and {name}"] = bool(np.array_equal(_bits(one), _bits(other)))  # fmt: skip
    results.flush()
    return not record["wrong"]


def edges(
    runner: Runner,
    kernels: Sequence[Prepared],
    results: Results,
    quick: bool,
    budget: float = 90.0,
) -> bool:
    """Run each kernel at edge sizes and at random ones, with arrays that begin oddly; return whether all are right.

    budget  seconds; what was not run then is counted
    """
    record = results.begin("edges", right=[], wrong=[], left_out=0)
    draw, until = np.random.default_rng(3), time.monotonic() + budget
    for kernel in kernels:
        random = [] if quick else [int(n) for n in draw.integers(1, MOST_ROWS, 5)]
        faults = []
        for number, n in enumerate((*(FEW_EDGES if quick else EDGES), *random)):
            if time.monotonic() > until:
                record["left_out"] += 1
                continue
            faults.append(fault_of(runner, kernel, n, 10 + number, True, offset=number % 2 == 0))
        _note(record, kernel.name, faults)
        results.flush()
    return not record["wrong"]


def run_stage(
    stage: Any, runner: Runner, kernels: Sequence[Prepared], results: Results, quick: bool
) -> bool:
    """Run a stage; an error of the driver ends it, and is its result."""
    try:
        return bool(stage(runner, kernels, results, quick))
    except OffcutError as error:
        results.held.setdefault(stage.__name__, {})["error"] = str(error)
        results.flush()
        return False


def _bits(array: Array) -> Array:
    return np.ascontiguousarray(array).view(np.uint8)


def _note(record: dict[str, Any], name: str, faults: Sequence[str]) -> None:
    found = [fault for fault in faults if fault]
    if found:
        record["wrong"] += found
    else:
        record["right"].append(name)
