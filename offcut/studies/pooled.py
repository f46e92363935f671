"""The cells of a study spread over the devices of a pool: a group of cells that take turns goes to one device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from offcut.search.pool import Device, InFlightTasks, Pool, TaskDispatcher, connect
from offcut.search.pool.tasks import Task
from offcut.studies import remote
from offcut.studies.environment import environment
from offcut.studies.groups import Group
from offcut.studies.isolated import named_sample
from offcut.studies.remote import Cells, Result
from offcut.studies.samples import Sample
from offcut.studies.study_files import SentStudy

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
        return remote.admit, self.campaign, self._study

    def order(self, parcel: tuple[Cells, ...], device: Device) -> Task:
        """Return the task that measures groups."""
        return remote.measure, self.campaign, parcel, device.name

    def suits(self, item: Cells, device: Device) -> bool:
        """Return whether a device measured a part of a group before."""
        earlier = (self._study.earlier.get(cell) for cell in item)
        return any(one is not None and one.device == device.name for one in earlier)

    def dismissal(self) -> Task:
        """Return the task that ends the device's child."""
        return remote.dismiss, self.campaign

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
