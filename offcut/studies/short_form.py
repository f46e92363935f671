"""The short form of a study: fewer operators, contenders and sizes, and less time for each cell."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from offcut.studies.errors import Place, check_keys, pattern_of, refusal, seconds_of, whole_of
from offcut.studies.sizes import Point
from offcut.studies.statistics import MAX_PROCESSES, MAX_ROUNDS

if TYPE_CHECKING:
    from offcut.studies.definition import Definition

KEYS = ("operators", "contenders", "points", "seconds_per_cell", "rounds", "processes")
POINTS = 3
"""Vectors of sizes of an operator, where the file says nothing."""

T = TypeVar("T")


def shorten(definition: Definition, table: Any, at: Place) -> Definition:
    """Return the short form that the table ``[short]`` of a study's file describes.

    operators, contenders  regular expressions: those stay in whose names they are found, and the baseline
    points                 vectors of sizes of an operator, spread over all, both ends among them
    seconds_per_cell, rounds  in place of those of the long form
    processes              one, where the table does not say

    Cells of the short form have the names of the same cells of the long form, unless these two differ.

    Raises DescribeError for another key, and where nothing stays.
    """
    if not isinstance(table, Mapping):
        raise refusal(at, f"{table!r} is not a table", "[short]\npoints = 3")
    check_keys(table, KEYS, at)
    points = whole_of(table, "points", at, POINTS, 1)
    operators = [
        replace(one, points=spread(one.points, points))
        for one in _matching(
            definition.operators, pattern_of(table, "operators", at), at, "operator"
        )
    ]
    pattern = pattern_of(table, "contenders", at)
    names = {one.name for one in _matching(definition.contenders, pattern, at, "contender")}
    names.add(definition.baseline)
    return replace(
        definition,
        seconds=seconds_of(table, "seconds_per_cell", at, definition.seconds),
        rounds=whole_of(table, "rounds", at, definition.rounds, 1, MAX_ROUNDS),
        processes=whole_of(table, "processes", at, 1, 1, MAX_PROCESSES),
        operators=tuple(operators),
        contenders=tuple(one for one in definition.contenders if one.name in names),
    )


def _matching(every: Sequence[T], pattern: str, at: Place, what: str) -> list[T]:
    matching = [one for one in every if re.search(pattern, getattr(one, "name", ""))]
    if not matching:
        listed = ", ".join(getattr(one, "name", "") for one in every)
        raise refusal(at / f"{what}s", f"no {what} has {pattern!r} in its name", listed)
    return matching


def spread(points: Sequence[Point], count: int) -> tuple[Point, ...]:
    """Return at most `count` of the points, evenly spread, the first and the last among them; of one, the middle one."""
    if len(points) <= count:
        return tuple(points)
    if count == 1:
        return (points[len(points) // 2],)
    last = len(points) - 1
    return tuple(points[round(k * last / (count - 1))] for k in range(count))
