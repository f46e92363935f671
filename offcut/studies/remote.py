"""What a worker of a pool does for a study: it takes the study's files, then measures groups of cells, in a child that may end."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import offcut
from offcut.errors import OffcutError
from offcut.studies.environment import digest, environment
from offcut.studies.isolated import GroupProcess
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
