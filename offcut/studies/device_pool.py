"""The cells of a study spread over the devices of a pool: a group of cells that take turns goes to one device.

What a worker of a pool does for a study: it takes the study's files, then measures groups of cells, in a child that may end.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import offcut
from offcut.errors import OffcutError
from offcut.search.pool import Device, InFlightTasks, Pool, TaskDispatcher, connect
from offcut.search.pool.tasks import Task
from offcut.studies.cell_processes import GroupProcess, named_sample
from offcut.studies.environment import digest, environment
from offcut.studies.groups import Group
from offcut.studies.samples import Sample, missing_processes
from offcut.studies.study_files import SentStudy, unpack_study

Cells = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Result:
    """What became of a group of cells.

    samples      a sample for each cell and process, without an environment
    environment  what they were measured with
    """

    samples: tuple[Sample, ...]
    environment: dict[str, Any]


@dataclass
class _Work:
    """The study of this process, in a folder of its own, and the process that measures it."""

    campaign: str = ""
    folder: tempfile.TemporaryDirectory[str] | None = None
    process: GroupProcess | None = None
    study: SentStudy | None = None

    def replace(self, campaign: str, study: SentStudy | None) -> None:
        if self.process is not None:
            self.process.close()
        if self.folder is not None:
            self.folder.cleanup()
        self.campaign, self.folder, self.process, self.study = campaign, None, None, study
        if study is not None:
            self.folder = tempfile.TemporaryDirectory(prefix="offcut-study-")
            file = unpack_study(study, Path(self.folder.name))
            self.process = GroupProcess(replace(study.source, file=file))


_WORK = _Work()


def admit(campaign: str, study: SentStudy) -> str:
    """Take a study in the place of the last; return why it cannot be measured here, "" where it can."""
    if study.version != offcut.__version__:
        return f"offcut is {offcut.__version__} there, and {study.version} here"
    _WORK.replace(campaign, study)
    assert _WORK.process is not None
    try:
        missing = study.counts.keys() - _WORK.process.cells()
    except OffcutError as refused:
        return f"the study cannot be read there: {refused.because}"
    return f"{len(missing)} of {len(study.counts)} cells are others there" if missing else ""


def measure(
    campaign: str, parcel: Sequence[Cells], device: str
) -> tuple[Result, ...] | OffcutError | None:
    """Return what becomes of groups of cells on this device; None where the study is not here any more."""
    if _WORK.process is None or campaign != _WORK.campaign:
        return None
    try:
        return tuple(_measured(cells, device) for cells in parcel)
    except OffcutError as refused:
        return refused


def dismiss(campaign: str) -> None:
    """End the child of a study that is over."""
    if campaign == _WORK.campaign:
        _WORK.replace("", None)


def _measured(cells: Cells, device: str) -> Result:
    """Return the samples of a group, of one process after the other, of those that the device has not measured before."""
    process, study, where = _WORK.process, _WORK.study, environment()
    assert process is not None
    assert study is not None
    missing = {
        cell: missing_processes(study.counts[cell], study.earlier.get(cell), digest(where), device)
        for cell in cells
    }
    samples: list[Sample] = []
    for number in range(max(study.counts.values())):
        finished = {one.cell for one in samples if one.failed or not one.process}
        waiting = [cell for cell in cells if number in missing[cell] and cell not in finished]
        if waiting:
            process.begin(number)
            process.measure(dict(zip(waiting, waiting, strict=True)), samples.extend)
    return Result(tuple(samples), where)


AGAIN = "the same command goes on with what is measured"

Tell = Callable[[Result], None]


class PooledStudy(TaskDispatcher[Cells]):
    """Measures groups of a study's cells on the devices that there are; samples are labelled by their device."""

    op = "study"
    again = AGAIN
    most = 1

    def __init__(
        self, study: SentStudy, groups: Sequence[Group], tasks: InFlightTasks[tuple[Cells, ...]]
    ) -> None:
        super().__init__(tasks)
        self._study = study
        self._group_of = {cell: group for group in groups for cell in group.cells}

    def measure(self, tell: Tell) -> None:
        """Tell what becomes of each group, as soon as it is measured.

        Raises TargetError where no device is left.
        """
        self.dispatch([tuple(group.cells) for group in self._group_of.values()], tell)

    def admission(self) -> Task:
        """Return the task that sends the study's files."""
        return admit, self.campaign, self._study

    def order(self, parcel: tuple[Cells, ...], device: Device) -> Task:
        """Return the task that measures groups."""
        return measure, self.campaign, parcel, device.name

    def suits(self, item: Cells, device: Device) -> bool:
        """Return whether a device measured a part of a group before."""
        earlier = (self._study.earlier.get(cell) for cell in item)
        return any(one is not None and one.device == device.name for one in earlier)

    def dismissal(self) -> Task:
        """Return the task that ends the device's child."""
        return dismiss, self.campaign

    def result_of_crash(self, item: Cells, because: str) -> Result:
        """Return failed samples for the cells that every device went with."""
        samples = tuple(Sample(cell, "", {}, "", (), failed=because) for cell in item)
        return self.result(Result(samples, environment()), None)

    def result(self, value: Result, device: Device | None) -> Result:
        """Return what a device gave, with its name in each sample."""
        name = device.name if device is not None else ""
        samples = (
            replace(named_sample(one, self._group_of[one.cell]), device=name)
            for one in value.samples
        )
        return replace(value, samples=tuple(samples))


def measure_pooled(study: SentStudy, groups: Sequence[Group], pool: Pool, tell: Tell) -> None:
    """Measure groups of cells on the devices of a pool.

    Raises TargetError where no scheduler answers, or no device is left.
    """
    with connect(pool, "study") as client:
        tasks = InFlightTasks[tuple[Cells, ...]](client, pool, "study", AGAIN)
        with tasks, PooledStudy(study, groups, tasks) as bench:
            bench.measure(tell)
