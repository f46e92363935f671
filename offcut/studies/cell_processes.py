"""Groups of cells measured in a process of its own, which a contender may end: its cell is then a row that says how.

A cell is measured in several such processes, one after the other (`offcut.studies.statistics` says why): `GroupProcess.begin`.
The child keeps what it has compiled from group to group of one operator; kernels of the one before hold its constants, and go. Where it ends, the contender whose turn it was is measured alone, in
another child, and the others take their turns anew: memory that one contender damaged may end the turn of another, and only a
cell that ends a process in which nobody else ran has failed by itself.
"""

from __future__ import annotations

import ctypes
import gc
import os
import random
import signal
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from offcut.errors import OffcutError
from offcut.experiment.limits import Limits
from offcut.experiment.timing import THREADS
from offcut.search.job_runner import JobResult, JobRunner, JobStatus
from offcut.studies.compile_options import keep_records_in
from offcut.studies.definition import Definition, Source
from offcut.studies.groups import Group, group_samples, groups_of
from offcut.studies.measures import MAX_MEMORY_BYTES, MAX_SILENCE
from offcut.studies.samples import Sample

MIN_SILENCE = 60.0
"""Seconds for which the child says nothing while turns change: a message would disturb what is timed."""
PADDING = "STUDY_PADDING"
"""The variable whose length differs from process to process, and with it where the stack begins, where the system draws no addresses."""
MAX_PADDING = 4096
"""Bytes of that variable, less than which it has: a page."""
PR_SET_PDEATHSIG = 1
"""The call of Linux by which a process is sent a signal when the one that started it ends."""

TURN = "turn"
"""The file in which the child says whose turn it is."""

Rates = Mapping[str, float]
"""Operations, or bytes, per second of contenders in an operator's rows before."""


@dataclass(frozen=True, slots=True)
class _Order:
    """What the child is asked for.

    cells     that take turns
    process   the number of the child's process, as of `group_samples`
    folder    the path of a folder for what outlasts the child: whose turn it is, and records of what was tuned
    has_owner whether the child ends when its parent does
    """

    source: Source
    cells: tuple[str, ...]
    rates: Rates
    folder: Path
    has_owner: bool
    process: int = 0


class GroupProcess:
    """A process that measures groups of cells of one study; a context manager that leaves none behind.

    Its mathematics libraries run with one thread, unless a contender asks for more.

    has_owner  whether it ends at once when this process is killed; this thread must then live as long as it
    """

    def __init__(self, source: Source, has_owner: bool = False) -> None:
        self._source, self._has_owner = source, has_owner
        self._process = 0
        environment = dict.fromkeys(THREADS, "1")
        self._shared_child = JobRunner(MAX_MEMORY_BYTES, environment)
        self._single_child = JobRunner(MAX_MEMORY_BYTES, environment)
        self._suspects: set[str] = set()
        self._folder = tempfile.TemporaryDirectory(prefix="offcut-study-")

    def __enter__(self) -> GroupProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the process."""
        self._end_children()
        self._folder.cleanup()

    def begin(self, process: int) -> None:
        """Let the process of a number measure from now on; that of another one ends."""
        if process == self._process:
            return
        self._end_children()
        self._process = process
        padding = "=" * random.Random(process).randrange(MAX_PADDING)
        for children in (self._shared_child, self._single_child):
            children.environment = {**children.environment, PADDING: padding}

    def _end_children(self) -> None:
        self._shared_child.close()
        self._single_child.close()

    def cells(self) -> frozenset[str]:
        """Return the cells of the study, as the process finds them.

        Raises OffcutError where it cannot read the study.
        """
        job = "offcut.studies.cell_processes:list_cells"
        ended = self._shared_child.run(job, self._order((), {}), MAX_SILENCE)
        if ended.status is not JobStatus.RETURNED:
            raise OffcutError("study", "cannot read the study", because=ended.because)
        cells: frozenset[str] = ended.value
        return cells

    def measure(
        self,
        cells: Mapping[str, str],
        tell: Callable[[Sequence[Sample]], None],
        rates: Rates | None = None,
    ) -> None:
        """Measure the cells of a group; tell the sample of each once, those that took turns together.

        cells  with a key of the contender of each: one that ended a process is measured alone from then on
        tell   called with samples; that of a process that ended lacks its names (`named_sample`)
        rates  as of `measure_group`

        Raises OffcutError where the process reads another study than this one, since a file was changed.
        """
        done: set[str] = set()

        def tell_once(samples: Sequence[Sample]) -> None:
            if new := [one for one in samples if one.cell not in done]:
                done.update(one.cell for one in new)
                tell(new)

        def run(children: JobRunner, some: Sequence[str]) -> JobResult:
            (Path(self._folder.name) / TURN).write_text("")
            order = self._order(tuple(some), rates or {})
            job = "offcut.studies.cell_processes:measure_cells"
            ended = children.run(job, order, MAX_SILENCE, tell_once)
            if ended.status is JobStatus.RAISED:
                because = ended.because.partition("study: ")[2] or ended.because
                help = "the same command goes on with what is measured"
                raise OffcutError("study", "cannot go on", because=because, help=(help,))
            return ended

        suspects = [cell for cell, known in cells.items() if known in self._suspects]
        while waiting := [cell for cell in cells if cell not in suspects and cell not in done]:
            ended = run(self._shared_child, waiting)
            if ended.status is JobStatus.RETURNED:
                break
            if (
                cell := self._turn()
            ) not in waiting:  # the operator itself: no contender had its turn
                tell_once([_failure(one, ended) for one in waiting])
                break
            self._suspects.add(cells[cell])
            suspects.append(cell)
        for cell in suspects:
            ended = run(self._single_child, [cell])
            if ended.status is not JobStatus.RETURNED:
                tell_once([_failure(cell, ended)])

    def _turn(self) -> str:
        """Return the cell whose turn it was, "" where none was told."""
        return (Path(self._folder.name) / TURN).read_text().strip()

    def _order(self, cells: tuple[str, ...], rates: Rates) -> _Order:
        folder = Path(self._folder.name)
        return _Order(self._source, cells, dict(rates), folder, self._has_owner, self._process)


def _failure(cell: str, ended: JobResult) -> Sample:
    """Return the failed sample of a cell whose process ended, or was silent."""
    date = datetime.now(UTC).isoformat(timespec="seconds")
    return Sample(cell, "", {}, "", (), failed=f"its process ended: {ended.because}", date=date)


def named_sample(sample: Sample, group: Group) -> Sample:
    """Return a sample of a process that ended with what its group says of the cell."""
    if sample.contender:
        return sample
    contender = group.cells[sample.cell]
    whose = replace(sample, contender=contender.name, peer=contender.is_peer)
    return replace(whose, operator=group.operator.name, sizes=group.point.sizes)


def list_cells(order: _Order, say: Callable[[Any], None]) -> frozenset[str]:
    """Return the cells of a study; called in the child."""
    return frozenset(cell for *_, cell in _definition(order.source).cells())


def measure_cells(order: _Order, say: Callable[[Any], None]) -> None:
    """Measure cells that take turns, and say their samples; called in the child.

    An empty tuple is said now and then, as a sign of life.

    Raises OffcutError for a cell that the study does not have here.
    """
    if order.has_owner:
        end_with_parent()
    groups = groups_of(_definition(order.source), frozenset(order.cells))
    definition = _definition(order.source, frozenset(group.operator.name for group in groups))
    groups = groups_of(definition, frozenset(order.cells))
    missing = set(order.cells).difference(*(group.cells for group in groups))
    if missing:
        others = f"{len(missing)} of {len(order.cells)} cells are others now"
        raise OffcutError("study", f"a file was changed while the study ran: {others}", because="")
    limits = _limits(definition.threads) if definition.limits else None
    last_message = time.monotonic()
    keep_records_in(order.folder)
    with (order.folder / TURN).open("r+b", buffering=0) as turns:

        def turn(cell: str) -> None:
            nonlocal last_message
            os.pwrite(turns.fileno(), f"{cell:16}".encode(), 0)
            if time.monotonic() - last_message > MIN_SILENCE:
                last_message = time.monotonic()
                say(())

        for group in groups:
            how = limits, order.rates, turn, order.process
            for samples in group_samples(definition, group, *how):
                say(samples)


def end_with_parent() -> None:
    """Let Linux end this process when its parent ends: a study that is begun again runs alone."""
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is not None:
        prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)


@dataclass(slots=True)
class _Study:
    """A study as the child has read it.

    operators  that its contenders have compiled; none yet, where it was just read
    """

    source: Source
    definition: Definition
    operators: frozenset[str]


_READ: list[_Study] = []
"""The study that was read last."""


def _definition(source: Source, operators: frozenset[str] | None = None) -> Definition:
    """Return the study, read once for the same operators: its contenders keep what they have compiled.

    operators  that are measured next; None: those before
    """
    is_other = operators is not None and any({*one.operators} - operators for one in _READ)
    if is_other or not any(one.source == source for one in _READ):
        _READ.clear()
        gc.collect()  # kernels and their callers refer to each other
        _READ.append(_Study(source, source.read(), frozenset()))
    _READ[0].operators |= operators or frozenset()
    return _READ[0].definition


_limits = cache(Limits)
