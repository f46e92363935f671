"""What a study's file says: its name, how it measures, its operators with their sizes, its contenders."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from offcut.errors import DescribeError
from offcut.experiment.timing import ROUNDS
from offcut.studies.contenders import Contender, check_operator, read_contenders
from offcut.studies.entries import CALL, Entry, check_measure, read_contender_tables
from offcut.studies.environment import digest
from offcut.studies.errors import (
    Place,
    check_keys,
    flag_of,
    number_of,
    refusal,
    seconds_of,
    text_of,
    threads_of,
    whole_of,
)
from offcut.studies.goals import Goal, check_goals, read_goals
from offcut.studies.operators import read_operators, read_toml
from offcut.studies.samples import cell_of
from offcut.studies.short_form import shorten
from offcut.studies.sizes import Point
from offcut.studies.statistics import MAX_PROCESSES, MAX_ROUNDS
from offcut.studies.tasks import Operator
from offcut.studies.user_objects import AbsentOperator

SECONDS = 0.3
"""For which a cell is measured, in all of its processes together, where its file says nothing."""
PROCESSES = 7
"""In which a cell is measured, one after the other, where its file says nothing: three rounds of `ROUNDS` in each."""
SHORT_SECONDS = 0.04
"""For which it is measured at most in a short form that the file does not describe."""

HEAD = (
    *("name", "about", "seconds_per_cell", "rounds", "processes", "seed", "threads", "baseline"),
    *("measure", "limits", "patience"),
)
"""The keys of the table ``[study]``."""


@dataclass(frozen=True, slots=True)
class Source:
    """What a study is read from, as plain data: another process reads the same study from it.

    tables         of its file
    file           its name is that in errors, and names of files in it begin at its folder; it need not be there
    seconds, short as of `read_definition`
    rows           a regular expression, as of `Definition.select_rows`; "": all rows
    """

    tables: Mapping[str, Any]
    file: Path
    seconds: float | None = None
    short: bool = False
    rows: str = ""

    def read(self) -> Definition:
        """Return the study.

        Raises DescribeError as `read_definition` and `Definition.select_rows`.
        """
        definition = _definition(self)
        form = self.tables.get(
            "short", {"seconds_per_cell": min(definition.seconds, SHORT_SECONDS)}
        )
        if self.seconds is not None and isinstance(form, Mapping):
            form = {key: form[key] for key in form if key != "seconds_per_cell"}
        short_form = shorten(definition, form, Place(self.file.name) / "short")
        return (short_form if self.short else definition).select_rows(self.rows)


@dataclass(frozen=True)
class Definition:
    """A study.

    about     what it asks, in a sentence or two
    seconds   for which each cell is measured; rounds: samples of it
    processes among which these are divided, of cells that are timed by their calls: others have one (`processes_of`); no part of a cell's
              name: more are added
    seed      of the arrays
    baseline  the contender that ratios are to
    source    that says all this
    entries   how each contender takes part, by its name; of one that is not there: by its calls, on all operators
    limits    whether the limit of each row is measured before and after it
    patience  seconds that a call may be expected to last, by its rate in the rows before; a slower one is left out
    goals     thresholds that the contenders are compared with
    absent    operators that are left out, since a module that they need is not installed
    """

    name: str
    about: str
    seconds: float
    rounds: int
    seed: int
    threads: int
    baseline: str
    operators: tuple[Operator, ...]
    contenders: tuple[Contender, ...]
    source: Source
    entries: Mapping[str, Entry] = field(default_factory=dict)
    limits: bool = False
    patience: float = math.inf
    goals: tuple[Goal, ...] = ()
    absent: tuple[AbsentOperator, ...] = ()
    processes: int = 1

    @property
    def file(self) -> Path:
        """Return the file that says all this."""
        return self.source.file

    @property
    def how(self) -> Mapping[str, Any]:
        """Return how a cell is measured, which is a part of what names it."""
        how = {"seconds": self.seconds, "rounds": self.rounds, "seed": self.seed}
        return {**how, "limits": True} if self.limits else how

    def rounds_of(self, process: int) -> int:
        """Return the rounds of a process, by its number: at least one."""
        return max((self.rounds + self.processes - 1 - process) // self.processes, 1)

    def processes_of(self, contender: str) -> int:
        """Return among how many processes the rounds of a contender are divided: what is not timed by calls has one."""
        return self.processes if self.entry(contender).measure == CALL else 1

    def select_rows(self, cells: str) -> Definition:
        """Return the study with the rows whose operator and sizes match the regular expression `cells`, such as ``dense m=1,``.

        Raises DescribeError for an invalid regular expression, and if no row matches.
        """
        if not cells:
            return self
        try:
            pattern = re.compile(cells)
        except re.error as error:
            because = f"{cells!r} is not a regular expression: {error}"
            raise DescribeError("study", "cannot read --cells", because=because) from error
        operators = []
        for operator in self.operators:
            points = tuple(
                one for one in operator.points if pattern.search(f"{operator.name} {one}")
            )
            operators += [replace(operator, points=points)] if points else []
        if not operators:
            first = f"{self.operators[0].name} {self.operators[0].points[0]}"
            because = f"no row matches {cells!r}; the first is {first}"
            raise DescribeError("study", "cannot measure nothing", because=because)
        source = replace(self.source, rows=cells)
        return replace(self, operators=tuple(operators), source=source)

    def cells(self) -> Iterator[tuple[Operator, Point, Contender, str]]:
        """Yield every cell: an operator, a vector of sizes, a contender, and the key of the cell.

        Equal cells, of operators or contenders that differ in their names alone, have keys of their own: they say what noise is.
        """
        counts = Counter[str]()
        for operator in self.operators:
            for point in operator.points:
                for contender in self.contenders:
                    entry = self.entry(contender.name)
                    if entry.takes(operator, point):
                        identity = entry.identity(contender.identity, operator)
                        first = cell_of(operator.identity, point.sizes, identity, self.how)
                        again = counts[first]
                        counts[first] += 1
                        cell = digest({"cell": first, "again": again}) if again else first
                        yield operator, point, contender, cell

    def entry(self, contender: str) -> Entry:
        """Return how the contender of that name takes part."""
        return self.entries.get(contender, Entry())


def read_definition(file: Path, seconds: float | None = None, short: bool = False) -> Definition:
    """Return what a file says.

    seconds  for each cell, in place of what the file says
    short    whether it is the short form, which the table ``[short]`` describes; without one, three rows of each operator

    Raises DescribeError for a key, an operator, sizes or a contender that are none, with their place.
    """
    return Source(read_toml(file, str(file)), file, seconds, short).read()


def _definition(source: Source) -> Definition:
    """Return what the tables of a study say, in its long form."""
    table, file, seconds = source.tables, source.file, source.seconds
    top = Place(file.name)
    at = top / "study"
    check_keys(table, ("study", "operators", "contenders", "goals", "short"), top)
    head = table.get("study", {})
    if not isinstance(head, Mapping):
        raise refusal(at, "it is not a table", '[study]\nname = "layers"')
    check_keys(head, HEAD, at)
    stem = re.sub(r"[^\w.-]+", "-", file.stem).strip(".") or "study"
    name = text_of(head, "name", at, stem)
    if not re.fullmatch(r"[\w.-]+", name) or not name.strip("."):
        because = f"{name!r} is not a name of letters, digits, hyphens, underscores and dots, as the study's folder has"
        raise refusal(at / "name", because, f'name = "{stem}"')
    threads = threads_of(head, at, 1)
    examples = {"operators": 'einsum = "mk,kn->mn"', "contenders": 'strategy = "auto"'}
    for key, example in examples.items():
        tables = table.get(key) or [None]
        if not isinstance(tables, list) or not all(isinstance(one, Mapping) for one in tables):
            raise refusal(top, f"it has no {key}", f"[[{key}]]\n{example}")
    measure = text_of(head, "measure", at, CALL)
    check_measure(measure, at / "measure")
    contender_tables = read_contender_tables(table["contenders"], measure, top)
    contenders = read_contenders(contender_tables, threads, file)
    baseline = text_of(head, "baseline", at, contenders[0].name)
    names = [one.name for one in contenders]
    if baseline not in names:
        raise refusal(at / "baseline", f"there is no contender {baseline!r}", ", ".join(names))
    if seconds is not None:
        head = {**head, "seconds_per_cell": seconds}
    patience = math.inf
    if "patience" in head:
        patience = number_of(head, "patience", at, 1.0, 1e-6)
    operators, absent = read_operators(table["operators"], file)
    rows = {one.name: one.points for one in operators} | {one.name: () for one in absent}
    for contender, one in zip(contenders, contender_tables, strict=True):
        if not any(re.search(one.entry.only, name) for name in rows):
            because = f"no operator has {one.entry.only!r} in its name"
            raise refusal(one.at / "only", because, ", ".join(rows))
        for operator in filter(one.entry.matches, operators):
            check_operator(contender, operator, one.at)
    goals = read_goals(table.get("goals"), names, baseline, file)
    limits = flag_of(head, "limits", at, False)
    check_goals(goals, rows, limits, file)
    is_timed = any(one.entry.measure == CALL for one in contender_tables)
    processes = whole_of(head, "processes", at, PROCESSES, 1, MAX_PROCESSES)
    return Definition(
        name,
        text_of(head, "about", at),
        seconds_of(head, "seconds_per_cell", at, SECONDS),
        whole_of(head, "rounds", at, ROUNDS, 1, MAX_ROUNDS),
        whole_of(head, "seed", at, 0, 0),
        threads,
        baseline,
        operators,
        contenders,
        source,
        dict(zip(names, (one.entry for one in contender_tables), strict=True)),
        limits,
        patience,
        goals,
        absent,
        processes if is_timed else 1,
    )
