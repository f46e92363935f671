"""The measure and the operators of each contender of a study, and tables that expand to several contenders."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any

from offcut.studies.errors import Place, pattern_of, refusal, text_of
from offcut.studies.sizes import Point
from offcut.studies.tasks import Operator

MEASURES: Mapping[str, str] = {
    "call": "seconds of a call, in turns with the other contenders",
    "predicted": "seconds of a call by the cost model: nothing is run, so any target will do",
    "simulated": "seconds of a call by the target's simulator",
    "compile": "processor seconds of a compile without a cache, in a process of its own",
    "cached compile": "processor seconds of a compile that the disk cache knows, in a process of its own",
    "proof": "the part of a compile that proves what is lowered, in seconds",
    "first call": "seconds on the wall of the first call at a size, in a process that has met only the sizes before it",
}
"""Descriptions of the measures, by their names in a study's file."""

CALL, FIRST_CALL = "call", "first call"

ENTRY_KEYS = ("measure", "only", "each")
"""Keys that every contender's table may have."""


@dataclass(frozen=True, slots=True)
class Entry:
    """How a contender takes part.

    measure  a key of `MEASURES`
    only     a regular expression: the contender computes the operators in whose names it is found; "": all
    """

    measure: str = CALL
    only: str = ""

    def matches(self, operator: Operator) -> bool:
        """Return whether the contender computes an operator."""
        return re.search(self.only, operator.name) is not None

    def takes(self, operator: Operator, point: Point) -> bool:
        """Return whether the contender has a cell here; the first point of a stream of first calls has none."""
        if not self.matches(operator):
            return False
        return self.measure != FIRST_CALL or point != operator.points[0]

    def identity(self, contender: Mapping[str, Any], operator: Operator) -> Mapping[str, Any]:
        """Return the part of a cell's key that names the contender: its identity, the measure unless ``call``, and the stream of sizes."""
        if self.measure == CALL:
            return contender
        identity = {**contender, "measure": self.measure}
        if self.measure == FIRST_CALL:
            identity["stream"] = [dict(one.sizes) for one in operator.points]
        return identity


@dataclass(frozen=True, slots=True)
class ContenderTable:
    """What a file says of a contender.

    keys   but for those of its entry
    at     its place
    """

    keys: Mapping[str, Any]
    at: Place
    entry: Entry = Entry()


def read_contender_tables(
    tables: Sequence[Mapping[str, Any]], measure: str, at: Place
) -> list[ContenderTable]:
    """Return what a file says of each contender.

    A table with ``each = {strategy = ["cut", "mask"], threads = [1, 2]}`` stands for four.

    measure  of tables that do not state one

    Raises DescribeError for an unknown measure or an invalid regular expression.
    """
    contenders: list[ContenderTable] = []
    for number, table in enumerate(tables, 1):
        place = at.entry("contender", number, table)
        for one in expand_table(table, place):
            place = replace(place, each=tuple(table.get("each", ())))
            keys = {key: one[key] for key in one if key not in ENTRY_KEYS}
            contenders.append(ContenderTable(keys, place, _entry(one, measure, place)))
    return contenders


def check_measure(measure: str, at: Place) -> None:
    """Raise DescribeError for an unknown measure."""
    if measure not in MEASURES:
        raise refusal(at, f"nothing called {measure!r} is measured", ", ".join(MEASURES))


def _entry(table: Mapping[str, Any], measure: str, at: Place) -> Entry:
    entry_measure = text_of(table, "measure", at, measure)
    check_measure(entry_measure, at / "measure")
    return Entry(entry_measure, pattern_of(table, "only", at))


def expand_table(table: Mapping[str, Any], at: Place) -> Iterator[dict[str, Any]]:
    """Yield the contenders that a table stands for: every combination of the values of ``each``, with these in their names.

    A key of ``each`` may lead into a table: ``"tune.trials"``.
    """
    each = table.get("each")
    common = {key: value for key, value in table.items() if key != "each"}
    if each is None:
        yield common
        return
    example = 'each = {strategy = ["cut", "mask"]}'
    if not isinstance(each, Mapping) or not each:
        raise refusal(at / "each", f"{each!r} is not a table of lists", example)
    for key, values in each.items():
        if not isinstance(values, list) or not values:
            raise refusal(at / "each" / key, f"{values!r} is not a list of values", example)
    base = text_of(table, "name", at)
    for values in itertools.product(*each.values()):
        one = deepcopy(common)
        for key, value in zip(each, values, strict=True):
            *outer, last = key.split(".")
            place = one
            for part in outer:
                place = place.setdefault(part, {})
                if not isinstance(place, dict):
                    because = f"{part!r} is {place!r}, and not a table that {key!r} leads into"
                    raise refusal(at / "each", because, example)
            place[last] = value
        one["name"] = " ".join(filter(None, (base, *map(_text, values))))
        yield one


def _text(value: Any) -> str:
    if isinstance(value, Mapping):
        return "×".join(map(_text, value.values()))
    return "+".join(map(str, value)) if isinstance(value, list) else str(value)
