"""Suites: operators and sizes out of papers and benchmarks, as data, each with its source."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from offcut.core.names import similar_names
from offcut.studies.errors import Place, check_keys, refusal, text_of

FOLDER = Path(__file__).with_name("suites")
GROUP = "offcut.suites"


@dataclass(frozen=True, slots=True)
class Suite:
    """A table of a paper or of a benchmark.

    source     where its sizes are from
    about      what it is, in a sentence
    operators  tables as a study has them, each with a name
    folder     that names of files in them begin at
    """

    name: str
    about: str
    source: str
    operators: tuple[Mapping[str, Any], ...]
    folder: Path


def suites() -> Iterator[Suite]:
    """Yield the suites that are shipped, and those of entry points of the group ``offcut.suites``, which are paths of files."""
    for file in (*sorted(FOLDER.glob("*.toml")), *(Path(p.load()) for p in _points())):
        yield read_suite(file)


def _points() -> list[Any]:
    return sorted(entry_points(group=GROUP), key=lambda point: point.name)


def suite_operators(name: str, folder: Path, at: Place) -> Suite:
    """Return the suite of that name, or of a file of the study's folder.

    Raises DescribeError where there is none.
    """
    file = folder / name if name.endswith(".toml") else FOLDER / f"{name}.toml"
    if file.is_file():
        return read_suite(file)
    if name.endswith(".toml"):
        raise refusal(at / "suite", f"there is no file {name}", 'suite = "dietcode"')
    known = {point.name: point for point in _points()}
    if name in known:
        return read_suite(Path(known[name].load()))
    names = [*(path.stem for path in sorted(FOLDER.glob("*.toml"))), *known]
    help = (*filter(None, [similar_names(name, names)]), ", ".join(names))
    raise refusal(at / "suite", f"there is no suite {name!r}", *help)


def read_suite(file: Path) -> Suite:
    """Return the suite in a file: ``about``, ``source``, and a table ``[[operators]]`` for each operator.

    Raises DescribeError where it is none.
    """
    try:
        table = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise refusal(file.name, str(error), what="cannot read the suite") from error
    top = Place(file.name)
    check_keys(table, ("about", "source", "operators"), top)
    operators = table.get("operators", [])
    for number, one in enumerate(operators, 1):
        at = top.entry("operator", number, one)
        if not text_of(one, "name", at):
            raise refusal(at, "it has no name", 'name = "bert qkv"')
    about, source = text_of(table, "about", top), text_of(table, "source", top)
    if not (about and source and operators):
        raise refusal(top, "a suite has about, source and operators", 'source = "…, table 3"')
    return Suite(file.stem, about, source, tuple(operators), file.parent)
