"""Cells that take turns: the contenders of one operator at one vector of sizes, checked and measured in this process."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import partial

from offcut.errors import OffcutError
from offcut.experiment.limits import Bound, Limits
from offcut.experiment.timing import Timing, measure
from offcut.studies.contenders import Contender, Ready
from offcut.studies.definition import Definition
from offcut.studies.entries import CALL
from offcut.studies.environment import Clocks, Load, digest, read_clocks, run_watched
from offcut.studies.errors import error_text, in_a_line
from offcut.studies.measures import Cell, read_measure
from offcut.studies.samples import CALLS, SIMULATED, WALL, WRONG, Sample
from offcut.studies.sizes import Point
from offcut.studies.tasks import LAYOUT, Operator, Task

SLOW = "a call is expected to last longer"
"""What the reason of a contender begins with that was left out for its rate."""


@dataclass(frozen=True, slots=True)
class Group:
    """Cells that take turns: the contenders of one operator at one vector of sizes.

    cells  those that are not measured yet, by contender
    """

    operator: Operator
    point: Point
    cells: Mapping[str, Contender]


def groups_of(definition: Definition, cells: frozenset[str]) -> list[Group]:
    """Return some cells of a study, those that take turns together."""
    groups: dict[tuple[str, str], Group] = {}
    for operator, point, contender, cell in definition.cells():
        if cell in cells:
            key = operator.name, str(point)
            group = groups.setdefault(key, Group(operator, point, {}))
            groups[key] = replace(group, cells={**group.cells, cell: contender})
    return list(groups.values())


def group_samples(
    definition: Definition,
    group: Group,
    limits: Limits | None = None,
    rates: Mapping[str, float] | None = None,
    turn: Callable[[str], None] = lambda cell: None,
    process: int = 0,
) -> Iterator[tuple[Sample, ...]]:
    """Yield the samples of a group: those of calls, which take turns, together; then that of each cell that is measured otherwise.

    limits, rates, turn, process  as of `measure_group`
    """
    measures = {cell: definition.entry(one.name).measure for cell, one in group.cells.items()}
    calls = {cell: one for cell, one in group.cells.items() if measures[cell] == CALL}
    if calls:
        in_turns = replace(group, cells=calls)
        yield tuple(measure_group(definition, in_turns, limits, rates, turn, process))
    for cell, contender in group.cells.items():
        if cell in calls:
            continue
        date = datetime.now(UTC).isoformat(timespec="seconds")
        blank = Sample(cell, group.operator.name, group.point.sizes, contender.name, (), date=date)
        blank = replace(blank, peer=contender.is_peer)
        turn(cell)
        failed: dict[str, str] = {}
        with _reason_kept(failed, cell):
            one = Cell(definition, group.operator, group.point, contender, partial(turn, cell))
            blank = replace(blank, **read_measure(measures[cell], one))
        yield (replace(blank, failed=failed.get(cell, "")),)


@contextmanager
def _reason_kept(failed: dict[str, str], cell: str, when: str = "") -> Iterator[None]:
    """Keep why a contender, or the operator, raised inside: what stops one contender is a row that says why."""
    try:
        yield
    except (Exception, SystemExit) as error:
        failed[cell] = f"{when}{reason(error)}"


def measure_group(
    definition: Definition,
    group: Group,
    limits: Limits | None = None,
    rates: Mapping[str, float] | None = None,
    turn: Callable[[str], None] = lambda cell: None,
    process: int = 0,
) -> Iterator[Sample]:
    """Yield a sample for each cell, which is checked against the exact result, then measured in turns with the others.

    limits  of the machine, if they are measured too: before and after, of which the tighter one counts
    rates   operations, or bytes, per second of contenders in the operator's rows before
    turn    told of each cell before its contender runs, and of "" before the operator does
    process the number of this process, which decides where arrays lie, and in which order contenders get ready and take turns
    """
    turn("")
    begin = read_clocks()
    date = datetime.now(UTC).isoformat(timespec="seconds")
    turns = digest({"cells": sorted(group.cells), "date": date, "process": process})
    if process:
        LAYOUT.set(f"{process} {group.operator.name} {group.point}")
        cells = random.Random(process).sample([*group.cells], len(group.cells))
        group = replace(group, cells={cell: group.cells[cell] for cell in cells})
    blank = Sample("", group.operator.name, group.point.sizes, "", (), turns=turns, date=date)
    failed: dict[str, str] = {}
    ready: dict[str, Ready] = {}
    errors: dict[str, float] = {}
    blanks = {
        cell: replace(blank, cell=cell, contender=contender.name, peer=contender.is_peer)
        for cell, contender in group.cells.items()
    }
    with _reason_kept(failed, ""):  # what describes a task, or a model, may be a user's
        task = group.operator.workload.task(group.point.sizes, definition.seed)
        exact = task.exact()
    if failed:
        yield from (replace(one, failed=failed[""]) for one in blanks.values())
        return
    before = None if limits is None else limits.now(task.flop, task.moved, task.kind)
    for cell, contender in group.cells.items():
        rate = (rates or {}).get(contender.name, math.inf)
        if (task.flop or task.moved) / rate > definition.patience:
            failed[cell] = f"{SLOW} than {definition.patience:g} s, by its rate in the rows before"
            continue
        turn(cell)
        with _reason_kept(failed, cell):
            one = contender.ready(group.operator, task)
            results = one.read(one.run())
            errors[cell] = exact.error(results)
            if wrong := exact.mismatch(results):
                failed[cell] = f"{WRONG}: {wrong}"
            else:
                ready[cell] = one
    simulated = {
        cell: Timing((one.simulated,), 1)
        for cell, one in ready.items()
        if one.simulated is not None
    }
    measurable = {cell: one for cell, one in ready.items() if cell not in simulated}
    timings, load, clock = _in_turns(definition, group, measurable, failed, turn, process, begin)
    for cell, one in measurable.items():
        turn(cell)
        with _reason_kept(failed, cell, "after it was timed, "):
            if wrong := exact.mismatch(one.read(one.run())):
                after = "after it was timed, as if a call changed its inputs"
                failed[cell] = f"{WRONG} {after}: {wrong}"
    timings = {**timings, **simulated}
    bound: Bound | None = None
    if before is not None and limits is not None:
        again = limits.now(task.flop, task.moved, task.kind)
        bound = min(before, again, key=lambda one: one.seconds)
    for cell, sample in blanks.items():
        sample = replace(sample, exact=exact.by)
        if bound is not None:
            sample = replace(sample, limit=bound.seconds, limit_by=bound.by)
        distance = errors.get(cell)
        if cell in failed:
            finite = distance if distance is not None and math.isfinite(distance) else None
            yield replace(sample, failed=failed[cell], error=finite)
            continue
        timing, one = timings[cell], ready[cell]
        rounds = len(timing.samples)
        yield replace(
            _with_prediction(one, task, sample),
            seconds=timing.samples,
            calls=timing.calls,
            process=() if cell in simulated else (process,) * rounds,
            round=tuple(range(rounds)),
            order=timing.places,
            way=one.way,
            clock=SIMULATED if cell in simulated else clock,
            error=distance,
            compile_seconds=round(one.compile_seconds, 4),
            load=asdict(load),
        )


def _in_turns(
    definition: Definition,
    group: Group,
    ready: dict[str, Ready],
    failed: dict[str, str],
    turn: Callable[[str], None],
    process: int,
    begin: Clocks,
) -> tuple[Mapping[str, Timing], Load, str]:
    """Return the times of contenders that took turns, the load meanwhile, and the clock: the wall's if several threads run.

    A contender that raises moves from `ready` to `failed`, and the others take their turns anew.
    """
    if not ready:
        return {}, Load(1.0, 0.0, 0.0), ""
    current = ""

    def take_turn(cell: str) -> None:
        nonlocal current
        current = cell
        turn(cell)

    threads = max(int(group.cells[cell].identity.get("threads", 1)) for cell in ready)
    clock: Callable[[], float] = time.process_time if threads == 1 else time.perf_counter

    def run() -> Mapping[str, Timing]:
        runs = {cell: one.run for cell, one in ready.items()}
        rounds = definition.rounds_of(process)
        budget = definition.seconds * rounds / definition.rounds
        return measure(
            runs, budget=budget, rounds=rounds, clock=clock, turn=take_turn, seed=process
        )

    try:
        timings, load = run_watched(run, 1, begin)
    except (Exception, SystemExit) as error:
        del ready[current]
        failed[current] = f"while it was timed, {reason(error)}"
        return _in_turns(definition, group, ready, failed, turn, process, begin)
    return timings, load, CALLS if threads == 1 else WALL


def _with_prediction(ready: Ready, task: Task, sample: Sample) -> Sample:
    """Return a sample with the predicted cost of a call; operations are those of the operator, if they are known."""
    cost = ready.predicted
    if cost is None:
        return replace(sample, flop=task.flop, moved=task.moved)
    return replace(
        sample,
        predicted=cost.seconds,
        energy=getattr(cost, "energy", None),
        bytes=dict(getattr(cost, "bytes", {}) or {}),
        flop=task.flop or int(getattr(cost, "flop", 0)),
        moved=task.moved,
    )


def reason(error: BaseException) -> str:
    """Return why something was not measured, in a line."""
    text = error_text(error)
    if isinstance(error, OffcutError):
        text = f"{error.op}: {error.refused}, because {error.because}"
    return in_a_line(text)
