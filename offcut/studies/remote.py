"""What a worker of a pool does for a study: it takes the study's files, then measures groups of cells, in a child that may end."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import offcut
from offcut.errors import OffcutError
from offcut.experiment.timing import THREADS
from offcut.search.children import Children, Ending
from offcut.studies.definition import Definition, read_definition
from offcut.studies.environment import environment
from offcut.studies.run import Group, group_samples, groups_of
from offcut.studies.samples import Sample
from offcut.studies.study_files import SentStudy, unpack_study

MAX_SILENCE = 3600.0
"""Seconds that a group may go on without a sample: compiling and checking are among them."""

MEMORY = 1 << 40
"""Bytes of address space of the child: a study has no limit of its own."""

Cells = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Result:
    """What became of a group of cells.

    samples      a sample for each cell, without an environment
    environment  what they were measured with
    """

    samples: tuple[Sample, ...]
    environment: dict[str, Any]


@dataclass
class _Work:
    """The study of this process, in a folder of its own, and the child that measures it."""

    campaign: str = ""
    study: SentStudy | None = None
    folder: tempfile.TemporaryDirectory[str] | None = None
    children: Children | None = None

    def replace(self, campaign: str, study: SentStudy | None) -> None:
        if self.children is not None:
            self.children.close()
        if self.folder is not None:
            self.folder.cleanup()
        self.campaign, self.study, self.folder, self.children = campaign, study, None, None
        if study is not None:
            self.folder = tempfile.TemporaryDirectory(prefix="offcut-study-")
            unpack_study(study, Path(self.folder.name))
            self.children = Children(MEMORY, dict.fromkeys(THREADS, "1"))

    @property
    def reading(self) -> tuple[str, float | None, bool]:
        assert self.study is not None
        assert self.folder is not None
        return str(Path(self.folder.name) / self.study.file), self.study.seconds, self.study.short


_WORK = _Work()


def admit(campaign: str, study: SentStudy) -> str:
    """Take a study in the place of the last; return why it cannot be measured here, "" where it can."""
    if study.version != offcut.__version__:
        return f"offcut is {offcut.__version__} there, and {study.version} here"
    _WORK.replace(campaign, study)
    assert _WORK.children is not None
    ended = _WORK.children.run("offcut.studies.remote:list_cells", _WORK.reading, MAX_SILENCE)
    if ended.ending is not Ending.RETURNED:
        return f"the study cannot be read there: {ended.because}"
    missing = study.cells - ended.value
    return f"{len(missing)} of {len(study.cells)} cells are others there" if missing else ""


def measure(campaign: str, parcel: Sequence[Cells]) -> tuple[Result, ...] | OffcutError | None:
    """Return what becomes of groups of cells; None where the study is not here any more."""
    if _WORK.children is None or campaign != _WORK.campaign:
        return None
    try:
        return tuple(_measured(cells) for cells in parcel)
    except OffcutError as refused:
        return refused


def dismiss(campaign: str) -> None:
    """End the child of a study that is over."""
    if campaign == _WORK.campaign:
        _WORK.replace("", None)


def _measured(cells: Cells) -> Result:
    """Return the samples of a group; where its process ends, those of each cell alone, so that one contender takes no other along."""
    assert _WORK.children is not None
    argument = (*_WORK.reading, cells)
    ended = _WORK.children.run("offcut.studies.remote:measure_cells", argument, MAX_SILENCE)
    if ended.ending is Ending.RETURNED:
        result: Result = ended.value
        return result
    if len(cells) > 1:
        each = [_measured((cell,)) for cell in cells]
        samples = (sample for result in each for sample in result.samples)
        return Result(tuple(samples), each[0].environment)
    because = f"its process ended: {ended.because}"
    return Result((Sample(cells[0], "", {}, "", (), failed=because),), environment())


def list_cells(
    reading: tuple[str, float | None, bool], say: Callable[[Any], None]
) -> frozenset[str]:
    """Return the cells of a study; called in the child."""
    return frozenset(cell for _, _, _, cell in _definition(*reading).cells())


def measure_cells(
    argument: tuple[str, float | None, bool, Cells], say: Callable[[Any], None]
) -> Result:
    """Return the samples of cells that take turns; called in the child.

    say  is told of each sample, which shows that the child goes on
    """
    file, seconds, short, cells = argument
    definition = _definition(file, seconds, short)
    samples = []
    for group in groups_of(definition, frozenset(cells)):
        for sample in group_samples(definition, group):
            samples.append(sample)
            say(len(samples))
    return Result(tuple(samples), environment())


@lru_cache(maxsize=1)
def _definition(file: str, seconds: float | None, short: bool) -> Definition:
    """Return the study, read once: its contenders keep what they have compiled."""
    return read_definition(Path(file), seconds, short)


def named_sample(sample: Sample, group: Group) -> Sample:
    """Return a sample of a process that ended with what its group says of the cell."""
    if sample.contender:
        return sample
    contender = group.cells[sample.cell]
    whose = replace(sample, contender=contender.name, peer=contender.is_peer)
    return replace(whose, operator=group.operator.name, sizes=group.point.sizes)
