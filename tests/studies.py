"""Studies in tests: their files, what these say, samples, and two folders of samples that are compared."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import offcut as oc
from offcut.studies import compare
from offcut.studies.compare import Comparison
from offcut.studies.definition import Definition, read_definition
from offcut.studies.samples import FILE, Sample, append_samples, read_samples

HEAD = '[study]\nname = "small"\nseconds_per_cell = 0.002\nrounds = 3\nprocesses = 1\n'
DENSE = '[[operators]]\neinsum = "mk,kn->mn"\nsizes = {m = [1, 3], k = 8, n = 16}\n'
NAMED = DENSE.replace("]]\n", ']]\nname = "dense"\n')
AUTO = '[[contenders]]\nstrategy = "auto"\n'
NUMPY = '[[contenders]]\npeer = "numpy"\n'


def written(folder: Path, text: str) -> Path:
    """Return the file of a study of this text."""
    file = folder / "study.toml"
    file.write_text(text)
    return file


def defined(folder: Path, text: str, **more: Any) -> Definition:
    """Return what a file of this text says."""
    return read_definition(written(folder, text), **more)


def cells_of(folder: Path, text: str) -> list[str]:
    """Return the cells of a study of this text."""
    return [cell for *_, cell in defined(folder, text).cells()]


def measured(folder: Path, text: str) -> dict[str, Sample]:
    """Return the samples of a study of this text by contender and first size."""
    oc.study(written(folder, text), folder / "out")
    found = read_samples(folder / "out" / FILE).values()
    return {f"{one.contender} {next(iter(one.sizes.values()))}": one for one in found}


def compared(folder: Path, *sides: Iterable[Sample]) -> Comparison:
    """Return the comparison of two folders with these samples."""
    for name, samples in zip("ab", sides, strict=True):
        (folder / name).mkdir(parents=True)
        append_samples(folder / name / FILE, [*samples])
    return compare(folder / "a", folder / "b")
