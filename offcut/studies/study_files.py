"""The files of a study, to be sent to another machine: the study itself, and what it names in its folder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import offcut
from offcut.errors import OffcutError
from offcut.studies.definition import Source
from offcut.studies.operators import read_toml
from offcut.studies.samples import Sample

MAX_BYTES = 1 << 28
"""Of all files of a study that is sent."""


@dataclass(frozen=True, slots=True)
class SentStudy:
    """A study as a worker of a pool is sent it.

    version  of offcut
    source   of the study, whose file is beside `files`
    files    the contents of all that it names, by their paths in its folder
    counts   in how many processes each cell is measured; the worker finds the same cells, or refuses
    earlier  samples of some, which the device that measured them adds to
    """

    version: str
    source: Source
    files: Mapping[str, bytes]
    counts: Mapping[str, int]
    earlier: Mapping[str, Sample] = field(default_factory=dict)


def pack_study(
    source: Source, counts: Mapping[str, int], earlier: Mapping[str, Sample]
) -> SentStudy:
    """Return a study to be sent: its file, what it names, and the modules beside it.

    counts, earlier  as of `SentStudy`

    Raises OffcutError for a file outside of the study's folder, and for more than 256 MiB.
    """
    file = source.file
    folder = file.parent.resolve()
    contents: dict[str, bytes] = {}
    for path in _named_files(file.resolve(), folder):
        if not path.is_relative_to(folder):
            because = f"{path.name} lies outside of the folder of {file.name}"
            raise _unsendable(file, because, "move it beside the study")
        contents[path.relative_to(folder).as_posix()] = path.read_bytes()
    if sum(map(len, contents.values())) > MAX_BYTES:
        largest = max(contents, key=lambda name: len(contents[name]))
        because = f"its files have more than {MAX_BYTES >> 20} MiB, most of them {largest}"
        raise _unsendable(file, because, "offcut study … without --pool")
    sent = replace(source, file=Path(file.name))
    measured_cells = {cell: earlier[cell] for cell in counts if cell in earlier}
    return SentStudy(offcut.__version__, sent, contents, dict(counts), measured_cells)


def _unsendable(file: Path, because: str, help: str) -> OffcutError:
    return OffcutError("study", f"cannot send {file.name} to a pool", because=because, help=(help,))


def _named_files(file: Path, folder: Path) -> Iterator[Path]:
    """Yield a file of tables, and those that its texts name; of one that names functions, all modules of the folder."""
    yield file
    modules = False
    for text in _texts(read_toml(file, str(file))):
        path = folder / text
        if path.is_file() and path.resolve() != file:
            if path.suffix == ".toml":
                yield from _named_files(path.resolve(), folder)
            else:
                yield path.resolve()
        modules |= ":" in text
    if modules:
        yield from (path.resolve() for path in sorted(folder.glob("*.py")))


def _texts(value: Any) -> Iterator[str]:
    """Yield the texts of nested tables and lists that could be names of files."""
    if isinstance(value, str):
        if value and "\n" not in value and len(value) < 4096:
            yield value
    elif isinstance(value, Mapping):
        for one in value.values():
            yield from _texts(one)
    elif isinstance(value, list):
        for one in value:
            yield from _texts(one)


def unpack_study(study: SentStudy, folder: Path) -> Path:
    """Write the files of a study into a folder; return its own file.

    Raises OffcutError for a path that leads out of the folder.
    """
    for name, content in study.files.items():
        path = (folder / name).resolve()
        if not path.is_relative_to(folder.resolve()):
            raise OffcutError("study", f"cannot write {name}", because="it leads out of the folder")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return folder / study.source.file
