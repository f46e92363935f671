"""A study from its file to its folder: cells that are not measured yet are, in turns; then the report is written."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from offcut.errors import OffcutError
from offcut.experiment.limits import Limits
from offcut.experiment.outputs import check_writable, wide_console
from offcut.experiment.timing import Timing, measure
from offcut.search.pool import LOCAL, Pool, pool_of
from offcut.studies.contenders import Contender, Ready
from offcut.studies.definition import Definition, read_definition
from offcut.studies.entries import CALL
from offcut.studies.environment import (
    Load,
    command,
    digest,
    environment,
    watched,
    write_environment,
)
from offcut.studies.errors import raised
from offcut.studies.lock import locked
from offcut.studies.measures import Cell, read_measure
from offcut.studies.report import tables_of, write_report
from offcut.studies.results import results_of
from offcut.studies.rows import Row
from offcut.studies.samples import FILE, WRONG, Sample, append_sample, read_samples
from offcut.studies.sizes import Point
from offcut.studies.statistics import is_loaded, median
from offcut.studies.study_files import pack_study
from offcut.studies.table import Table
from offcut.studies.tasks import Operator, Task

SIMULATED = "simulated"
"""The clock of a machine that is simulated."""
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


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a study has, when it ends.

    folder    that its files are in
    measured  cells of this run; kept: those that an earlier run had measured; failed: cells that have a reason in place of times
    wrong     of those, the ones whose values were wrong
    left      rows that were not begun, since the time was over
    loaded    cells that were measured while others used the processor: their intervals are wider
    tables    those of the report, by name
    """

    folder: Path
    measured: int
    kept: int
    failed: int
    wrong: int = 0
    left: int = 0
    loaded: int = 0
    tables: Mapping[str, Table] = field(default_factory=dict, repr=False)

    def __str__(self) -> str:
        failed = f", {self.failed} failed" if self.failed else ""
        loaded = f", {self.loaded} LOADED" if self.loaded else ""
        return f"{self.measured} cells measured, {self.kept} kept{failed}{loaded}: {self.folder / 'report.html'}"


def study(
    file: str | Path,
    out: str | Path | None = None,
    *,
    seconds_per_cell: float | None = None,
    retry: bool = False,
    cells: str = "",
    short: bool = False,
    pool: str | Pool | None = None,
) -> Outcome:
    """Measure what a study's file asks for and its folder does not have, and write tables and figures.

    file  TOML: what is measured, at which sizes, against whom (docs/research/study.md)
    out   the folder; None: ``out`` and the study's name beside the file
    seconds_per_cell  in place of the file's
    retry  whether cells that failed are tried again
    cells  a regular expression: only rows whose operator and sizes have it
    short  whether it is the short form, which the file's table ``[short]`` describes; without one, three rows of each operator for
          at most 0.04 s a cell
    pool  the address of a dask scheduler, ``tls://host:port``, over whose workers cells are spread, or a `Pool`; None,
          ``local``: this process measures

    Raises DescribeError for a file that cannot be read, OffcutError for a folder that cannot be written or that another process
    measures into, TargetError for a pool without devices.
    """
    definition = read_definition(Path(file), seconds_per_cell, short).select_rows(cells)
    workers = None if pool is None else pool_of(pool, "study")
    folder = folder_of(definition, Path(file), out)
    return run_study(definition, folder, retry=retry, pool=workers)


def run_study(
    definition: Definition,
    folder: Path,
    *,
    retry: bool = False,
    again: bool = False,
    seconds: float = math.inf,
    tell: Callable[[Row], None] | None = None,
    report: bool = True,
    pool: Pool | None = None,
) -> Outcome:
    """Measure what `folder` does not have of a study, and write tables and figures.

    retry    whether cells that failed are tried again; again: all cells
    seconds  from the begin on, after which no row is begun but the first; a pool begins all
    tell     told of each row as soon as it is measured; not by a pool
    report   whether files are written beside the samples
    pool     whose workers measure; None: this process does

    Raises OffcutError for a folder that cannot be written, or that another process measures into.
    """
    check_writable(folder / FILE, "study")
    try:
        with locked(folder):
            earlier = read_samples(folder / FILE)
            groups = missing_groups(definition, {} if again else earlier, retry)
            if pool is None or pool.address == LOCAL or not groups:
                done, left = measure_groups(definition, groups, folder, seconds, tell)
            else:
                done, left = measure_groups_pooled(definition, groups, folder, pool), 0
            samples = read_samples(folder / FILE)
            if report:
                tables = write_report(definition, samples, folder)
            else:
                tables = tables_of(results_of(definition, samples))
    except OSError as error:  # a full disk, a folder in the place of a file
        because = error.strerror or str(error)
        help = ("the same command goes on with what is measured",)
        at = str(error.filename or folder)
        raise OffcutError("study", "cannot write", at=at, because=because, help=help) from error
    cells = {cell for _, _, _, cell in definition.cells()}
    failed = [samples[cell].failed for cell in cells if cell in samples and samples[cell].failed]
    wrong = sum(1 for one in failed if one.startswith(WRONG))
    new_cells = {cell for group in groups for cell in group.cells}
    remaining = len((cells & earlier.keys()) - new_cells)
    by_name = {table.name: table for table in tables}
    loaded = sum(
        1
        for one in (samples[cell] for cell in cells if cell in samples)
        if one.seconds and is_loaded(one)
    )
    return Outcome(folder, done, remaining, len(failed), wrong, left, loaded, by_name)


def folder_of(definition: Definition, file: Path, out: str | Path | None) -> Path:
    """Return the folder of a study: `out`, or ``out`` and its name beside its file."""
    return Path(out) if out is not None else file.parent / "out" / definition.name


def missing_groups(
    definition: Definition, samples: Mapping[str, Sample], retry: bool
) -> list[Group]:
    """Return the cells of a study that have no sample, those that take turns together."""
    cells = (cell for _, _, _, cell in definition.cells())
    missing = (cell for cell in cells if cell not in samples or (retry and samples[cell].failed))
    return groups_of(definition, frozenset(missing))


def groups_of(definition: Definition, cells: frozenset[str]) -> list[Group]:
    """Return some cells of a study, those that take turns together."""
    groups: dict[tuple[str, str], Group] = {}
    for operator, point, contender, cell in definition.cells():
        if cell in cells:
            key = operator.name, str(point)
            group = groups.setdefault(key, Group(operator, point, {}))
            groups[key] = replace(group, cells={**group.cells, cell: contender})
    return list(groups.values())


def measure_groups(
    definition: Definition,
    groups: Sequence[Group],
    folder: Path,
    seconds: float = math.inf,
    tell: Callable[[Row], None] | None = None,
) -> tuple[int, int]:
    """Measure the cells of `groups`, each written as soon as its group is; how many, and how many groups were left out.

    seconds  after which no group is begun but the first
    tell     told of each row
    """
    if not groups:
        return 0, 0
    where = environment()
    count = sum(len(group.cells) for group in groups)
    done, start = 0, time.monotonic()
    limits = Limits(definition.threads) if definition.limits else None
    rates: dict[tuple[str, str], float] = {}
    with _progress() as bar:
        task = bar.add_task(definition.name, total=count)
        for number, group in enumerate(groups):
            if number and time.monotonic() - start > seconds:
                return done, len(groups) - number
            bar.update(task, description=f"{group.operator.name} {group.point}"[:48])
            samples: dict[str, Sample] = {}
            known_rates = {
                who: rate
                for (operator, who), rate in rates.items()
                if operator == group.operator.name
            }
            for sample in group_samples(definition, group, limits, known_rates):
                write_sample(definition, folder, sample, where)
                samples[sample.contender] = sample
                if sample.seconds and (sample.flop or sample.moved):
                    rate = (sample.flop or sample.moved) / median(sample)
                    rates[group.operator.name, sample.contender] = rate
                done += 1
                bar.advance(task)
            if tell is not None:
                tell(Row(group.operator.name, str(group.point), samples, group.point.sizes))
    return done, 0


def measure_groups_pooled(
    definition: Definition, groups: Sequence[Group], folder: Path, pool: Pool
) -> int:
    """Measure the cells of `groups` on the devices of a pool, each written as soon as its group is here; the number of them."""
    from offcut.studies.pooled import measure_pooled
    from offcut.studies.remote import Result

    cells = frozenset(cell for group in groups for cell in group.cells)
    study = pack_study(definition.file, definition.seconds, definition.short, cells)
    done = 0
    with _progress() as bar:
        task = bar.add_task(definition.name, total=len(cells))

        def write(result: Result) -> None:
            nonlocal done
            for sample in result.samples:
                write_sample(definition, folder, sample, result.environment)
                done += 1
                bar.advance(task)

        measure_pooled(study, groups, pool, write)
    return done


def write_sample(
    definition: Definition, folder: Path, sample: Sample, facts: Mapping[str, Any]
) -> None:
    """Append a sample to those of a folder, with the environment that it was measured in beside them."""
    name = digest(facts)
    if not (folder / "environments" / f"{name}.json").exists():
        write_environment(folder, name, {**facts, "command": command(), "seed": definition.seed})
    append_sample(folder / FILE, replace(sample, environment=name))


def _progress() -> Progress:
    console = wide_console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    return Progress(*columns, console=console, disable=not console.is_terminal)


def group_samples(
    definition: Definition,
    group: Group,
    limits: Limits | None = None,
    rates: Mapping[str, float] | None = None,
) -> Iterator[Sample]:
    """Yield a sample for each cell of a group: first those of calls, which take turns, then what else is measured.

    limits, rates  as of `measured_group`
    """
    measures = {cell: definition.entry(one.name).measure for cell, one in group.cells.items()}
    calls = {cell: one for cell, one in group.cells.items() if measures[cell] == CALL}
    if calls:
        yield from measured_group(definition, replace(group, cells=calls), limits, rates)
    for cell, contender in group.cells.items():
        if cell in calls:
            continue
        date = datetime.now(UTC).isoformat(timespec="seconds")
        blank = Sample(cell, group.operator.name, group.point.sizes, contender.name, (), date=date)
        blank = replace(blank, peer=contender.is_peer)
        try:
            one = Cell(definition, group.operator, group.point, contender)
            yield replace(blank, **read_measure(measures[cell], one))
        except (Exception, SystemExit) as error:  # what stops one contender is a row that says why
            yield replace(blank, failed=reason(error))


def measured_group(
    definition: Definition,
    group: Group,
    limits: Limits | None = None,
    rates: Mapping[str, float] | None = None,
) -> Iterator[Sample]:
    """Yield a sample for each cell: checked against the exact result, then measured in turns with the others.

    limits  of the machine, if they are measured too: before and after, of which the tighter one counts
    rates   operations, or bytes, per second of contenders in the operator's rows before
    """
    date = datetime.now(UTC).isoformat(timespec="seconds")
    turns = digest({"cells": sorted(group.cells), "date": date})
    blank = Sample("", group.operator.name, group.point.sizes, "", (), turns=turns, date=date)
    failed: dict[str, str] = {}
    ready: dict[str, Ready] = {}
    errors: dict[str, float] = {}
    try:
        task = group.operator.workload.task(group.point.sizes, definition.seed)
        exact = task.exact()
    except (Exception, SystemExit) as error:  # what describes a task, or a model, may be a user's
        for cell, contender in group.cells.items():
            sample = replace(blank, cell=cell, contender=contender.name, peer=contender.is_peer)
            yield replace(sample, failed=reason(error))
        return
    before = None if limits is None else limits.now(task.flop, task.moved, task.kind)
    for cell, contender in group.cells.items():
        rate = (rates or {}).get(contender.name, math.inf)
        if (task.flop or task.moved) / rate > definition.patience:
            failed[cell] = f"{SLOW} than {definition.patience:g} s, by its rate in the rows before"
            continue
        try:
            one = contender.ready(group.operator, task)
            results = one.read(one.run())
            errors[cell] = exact.error(results)
            wrong = exact.mismatch(results)
            if wrong:
                failed[cell] = f"{WRONG}: {wrong}"
            else:
                ready[cell] = one
        except (Exception, SystemExit) as error:  # what stops one contender is a row that says why
            failed[cell] = reason(error)
    simulated = {
        cell: Timing((one.simulated,), 1)
        for cell, one in ready.items()
        if one.simulated is not None
    }
    measurable = {cell: one for cell, one in ready.items() if cell not in simulated}
    timings, load, clock = _in_turns(definition, group, measurable, failed)
    timings = {**timings, **simulated}
    if before is not None and limits is not None:
        after = limits.now(task.flop, task.moved, task.kind)
        bound = min(before, after, key=lambda one: one.seconds)
        blank = replace(blank, limit=bound.seconds, limit_by=bound.by)
    for cell, contender in group.cells.items():
        sample = replace(blank, cell=cell, contender=contender.name, peer=contender.is_peer)
        sample = replace(sample, exact=exact.by)
        off = errors.get(cell)
        if cell in failed:
            shown = off if off is not None and math.isfinite(off) else None
            yield replace(sample, failed=failed[cell], error=shown)
            continue
        timing, one = timings[cell], ready[cell]
        yield replace(
            _predicted(one, task, sample),
            seconds=timing.samples,
            calls=timing.calls,
            round=tuple(range(len(timing.samples))),
            order=timing.places,
            way=one.way,
            clock=SIMULATED if cell in simulated else clock,
            error=off,
            compile_seconds=round(one.compile_seconds, 4),
            load=asdict(load),
        )


def _in_turns(
    definition: Definition, group: Group, ready: dict[str, Ready], failed: dict[str, str]
) -> tuple[Mapping[str, Timing], Load, str]:
    """Return the times of contenders that took turns, the load meanwhile, and the clock: that of the wall where several threads run.

    One that raises moves from `ready` to `failed`, and the others take their turns anew.
    """
    if not ready:
        return {}, Load(1.0, 0.0, 0.0), ""
    turn = ""

    def begin(cell: str) -> None:
        nonlocal turn
        turn = cell

    threads = max(int(group.cells[cell].identity.get("threads", 1)) for cell in ready)
    clock: Callable[[], float] = time.process_time if threads == 1 else time.perf_counter

    def run() -> Mapping[str, Timing]:
        runs = {cell: one.run for cell, one in ready.items()}
        rounds = definition.rounds
        return measure(runs, budget=definition.seconds, rounds=rounds, clock=clock, turn=begin)

    try:
        timings, load = watched(run, 1)
    except (Exception, SystemExit) as error:
        del ready[turn]
        failed[turn] = f"while it was timed, {reason(error)}"
        return _in_turns(definition, group, ready, failed)
    return timings, load, "processor time" if threads == 1 else "wall"


def _predicted(ready: Ready, task: Task, sample: Sample) -> Sample:
    """Return a sample with what the cost of a call says; operations are those of the operator, where they are known."""
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
    if isinstance(error, OffcutError):
        return f"{error.op}: {error.refused}, because {error.because}"
    return raised(error)
