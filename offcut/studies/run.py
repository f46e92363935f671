"""A study from its file to its folder: cells that are not measured yet are, in turns; then the report is written."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from offcut import debug
from offcut.errors import OffcutError
from offcut.experiment.outputs import check_writable
from offcut.search.pool import LOCAL, Pool, pool_of
from offcut.studies.cell_processes import GroupProcess, named_sample
from offcut.studies.definition import Definition, read_definition
from offcut.studies.environment import command, digest, environment, write_environment
from offcut.studies.folder import locked
from offcut.studies.groups import Group, groups_of
from offcut.studies.progress import StudyProgress
from offcut.studies.report import tables_of, write_report
from offcut.studies.results import results_of
from offcut.studies.rows import Row
from offcut.studies.samples import (
    FILE,
    WRONG,
    Sample,
    append_samples,
    merge_lines,
    missing_processes,
    read_samples,
)
from offcut.studies.statistics import call_seconds, is_loaded
from offcut.studies.study_files import pack_study
from offcut.studies.table import Table, plural
from offcut.studies.user_objects import absent_lines


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
        measured = f"{plural(self.measured, 'cell')} measured, {self.kept} kept{failed}{loaded}"
        return f"{measured}: {self.folder / 'report.html'}"


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
          ``local``: a process of this machine measures

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
    pool     whose workers measure; None: a process of this machine does

    Raises OffcutError for a folder that cannot be written, or that another process measures into.
    """
    check_writable(folder / FILE, "study")
    try:
        with locked(folder) as killed:
            lines = absent_lines(definition.absent)
            if killed:
                what = f"the process {killed}, which measured into {folder}, was killed"
                lines.append(f"{what}: its samples are kept")
            for line in lines:
                debug.note(0, f"study: {line}", logger="experiment")
            earlier = read_samples(folder / FILE)
            known = {} if again else earlier
            groups = missing_groups(definition, known, retry)
            if pool is None or pool.address == LOCAL or not groups:
                done, left = measure_groups(definition, groups, folder, known, seconds, tell)
            else:
                done, left = measure_groups_pooled(definition, groups, folder, known, pool), 0
            merge_lines(folder / FILE)
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
    current = [samples[cell] for cell in cells & samples.keys()]
    failed = [one.failed for one in current if one.failed]
    wrong = sum(one.startswith(WRONG) for one in failed)
    remaining = len((cells & earlier.keys()).difference(*(group.cells for group in groups)))
    loaded = sum(bool(one.seconds) and is_loaded(one) for one in current)
    by_name = {table.name: table for table in tables}
    return Outcome(folder, done, remaining, len(failed), wrong, left, loaded, by_name)


def folder_of(definition: Definition, file: Path, out: str | Path | None) -> Path:
    """Return the folder of a study: `out`, or ``out`` and its name beside its file."""
    return Path(out) if out is not None else file.parent / "out" / definition.name


def missing_groups(
    definition: Definition, samples: Mapping[str, Sample], retry: bool
) -> list[Group]:
    """Return the cells of a study that lack a sample, or a process of it, those that take turns together."""
    cells = set()
    for _, _, contender, cell in definition.cells():
        one, count = samples.get(cell), definition.processes_of(contender.name)
        if one is None or (
            retry if one.failed else missing_processes(count, one, one.environment, one.device)
        ):
            cells.add(cell)
    return groups_of(definition, frozenset(cells))


def process_counts(definition: Definition, groups: Sequence[Group]) -> dict[str, int]:
    """Return in how many processes each cell of `groups` is to be measured."""
    pairs = (pair for group in groups for pair in group.cells.items())
    return {cell: definition.processes_of(one.name) for cell, one in pairs}


def processes_to_measure(
    definition: Definition,
    groups: Sequence[Group],
    earlier: Mapping[str, Sample],
    environment: str,
) -> dict[str, set[int]]:
    """Return the numbers of the processes that each cell of `groups` is to be measured in, here, in the environment of that digest.

    earlier  samples of some
    """
    counts = process_counts(definition, groups)
    return {
        cell: missing_processes(count, earlier.get(cell), environment)
        for cell, count in counts.items()
    }


def measure_groups(
    definition: Definition,
    groups: Sequence[Group],
    folder: Path,
    earlier: Mapping[str, Sample],
    seconds: float = math.inf,
    tell: Callable[[Row], None] | None = None,
) -> tuple[int, int]:
    """Measure the cells of `groups`, all in one process, then all in the next one; how many, and how many groups were left out.

    earlier  samples of some, whose processes of the same environment count
    seconds  after which no group is begun but the first
    tell     told of each row
    """
    if not groups:
        return 0, 0
    where, start = environment(), time.monotonic()
    name, measured, left = digest(where), set[str](), 0
    missing = processes_to_measure(definition, groups, earlier, name)
    counts = process_counts(definition, groups)
    rates: dict[str, dict[str, float]] = {}

    def write(group: Group, some: Sequence[Sample]) -> None:
        samples = [named_sample(one, group) for one in some]
        write_samples(definition, folder, samples, where)
        for one in samples:
            measured.add(one.cell)
            before = len(missing[one.cell])
            missing[one.cell] = missing[one.cell].difference(one.process) if one.process else set()
            progress.advance((before - len(missing[one.cell])) / counts[one.cell])
            if one.seconds and (one.flop or one.moved):
                rate = (one.flop or one.moved) / call_seconds(one)
                rates.setdefault(one.operator, {})[one.contender] = rate

    with (
        StudyProgress(definition.name, len(missing)) as progress,
        GroupProcess(definition.source, has_owner=True) as process,
    ):
        for number in range(definition.processes):
            process.begin(number)
            for index, whole in enumerate(groups):
                cells = {cell: one for cell, one in whole.cells.items() if number in missing[cell]}
                if not cells:
                    continue
                if not number and index and time.monotonic() - start > seconds:
                    left = len(groups) - index
                    groups = groups[:index]
                    break
                group = replace(whole, cells=cells)
                operator = group.operator.name
                progress.begin_row(f"{operator} {group.point}", number, definition.processes)
                names = {cell: f"{operator}\n{one.name}" for cell, one in cells.items()}
                known_rates = {} if number else rates.get(operator, {})
                process.measure(names, partial(write, group), known_rates)
                if tell is not None and not any(missing[cell] for cell in whole.cells):
                    tell(_row(whole, read_samples(folder / FILE)))
    return len(measured), left


def _row(group: Group, samples: Mapping[str, Sample]) -> Row:
    in_order = {one.name: samples[cell] for cell, one in group.cells.items()}
    return Row(group.operator.name, str(group.point), in_order, group.point.sizes)


def measure_groups_pooled(
    definition: Definition,
    groups: Sequence[Group],
    folder: Path,
    earlier: Mapping[str, Sample],
    pool: Pool,
) -> int:
    """Measure the cells of `groups` on the devices of a pool, each written as soon as its group is here; the number of them.

    earlier  samples of some, whose processes count for the device that measured them, in the same environment
    """
    from offcut.studies.device_pool import Result, measure_pooled

    counts = process_counts(definition, groups)
    study = pack_study(definition.source, counts, earlier)
    done = 0
    with StudyProgress(definition.name, len(counts)) as progress:

        def write(result: Result) -> None:
            nonlocal done
            write_samples(definition, folder, result.samples, result.environment)
            cells = {one.cell for one in result.samples}
            done += len(cells)
            progress.advance(len(cells))

        measure_pooled(study, groups, pool, write)
    return done


def write_samples(
    definition: Definition, folder: Path, samples: Sequence[Sample], facts: Mapping[str, Any]
) -> None:
    """Append samples to those of a folder, together, with the environment that they were measured in beside them."""
    name = digest(facts)
    if not (folder / "environments" / f"{name}.json").exists():
        write_environment(folder, name, {**facts, "command": command(), "seed": definition.seed})
    append_samples(folder / FILE, [replace(one, environment=name) for one in samples])
