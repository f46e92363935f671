"""The sizes of an operator: numbers, lists, ranges, weights, lengths out of a CSV file; as points with weights."""

from __future__ import annotations

import csv
import itertools
import math
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from offcut.experiment.sizes import sample
from offcut.studies.errors import check_keys, refusal, whole_of

EXAMPLES = (
    "m = 64",
    "m = [1, 7, 33]",
    'm = "1:512"',
    'm = "lengths.csv"',
    "m = {3 = 0.8, 17 = 0.2}",
)
POINTS = 24
"""Sizes that are taken of a range where the file says nothing."""
LARGEST = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Values:
    """The extents of an axis.

    weights  extent -> share of the calls; the shares sum up to 1
    swept    whether the axis is a symbolic size; else there is one extent, known when the kernel is compiled
    """

    weights: Mapping[int, float]
    swept: bool


@dataclass(frozen=True, slots=True)
class Point:
    """A vector of extents, with its share of the calls."""

    sizes: Mapping[str, int]
    weight: float

    def __str__(self) -> str:
        return ", ".join(f"{name}={extent}" for name, extent in self.sizes.items())


def read_values(given: Any, at: str, folder: Path) -> Values:
    """Return the extents that `given` says.

    given   a whole number: one extent, known when the kernel is compiled · a list: these, alike · ``"1:512"`` or
            ``"1:512:8"``: a range, both ends included, of which at most 24 are taken, geometrically · ``{range = "1:512", points = 60}``
            · ``{3 = 0.8, 17 = 0.2}``: these, with weights · ``"lengths.csv"`` or ``{csv = "lengths.csv", column = "length"}``:
            a line for each call, of which equal ones are counted
    folder  that a file's name begins at

    Raises DescribeError for anything else, for an extent below 1, and for a file that cannot be read.
    """
    if isinstance(given, int) and not isinstance(given, bool):
        return Values({_extent(given, at): 1.0}, swept=False)
    if isinstance(given, list) and given:
        return _alike([_extent(one, at) for one in given])
    if isinstance(given, str) and given.endswith(".csv"):
        return _of_csv(folder / given, "", at)
    if isinstance(given, str):
        return _of_range(given, POINTS, at)
    if isinstance(given, Mapping) and "csv" in given:
        check_keys(given, ("csv", "column"), at)
        return _of_csv(folder / str(given["csv"]), str(given.get("column", "")), at)
    if isinstance(given, Mapping) and "range" in given:
        check_keys(given, ("range", "points"), at)
        return _of_range(str(given["range"]), whole_of(given, "points", at, POINTS, 2), at)
    if isinstance(given, Mapping) and given:
        return _weighted(given, at)
    raise refusal(at, f"{given!r} are not sizes", *EXAMPLES)


def points_of(values: Mapping[str, Values]) -> tuple[Point, ...]:
    """Return every combination of the extents; a combination weighs the product of its weights.

    values  by axis, or by several axes with commas between, which have one extent at each point
    """
    combinations = itertools.product(*(one.weights.items() for one in values.values()))
    return tuple(
        Point(
            {
                name: extent
                for key, (extent, _) in zip(values, one, strict=True)
                for name in names_of(key)
            },
            math.prod(weight for _, weight in one),
        )
        for one in combinations
    )


def axes_of(values: Mapping[str, Values], at: str) -> dict[str, Values]:
    """Return the extents of each axis, where a key may name several with commas between.

    Raises DescribeError for an axis that two keys name.
    """
    axes: dict[str, Values] = {}
    for key, one in values.items():
        for name in names_of(key):
            if name in axes:
                raise refusal(at, f"the axis {name!r} has sizes twice", f'"{key}" alone')
            axes[name] = one
    return axes


def names_of(key: str) -> tuple[str, ...]:
    """Return the axes that a key names.

    >>> names_of("i, j")
    ('i', 'j')
    """
    return tuple(name.strip() for name in key.split(",") if name.strip())


def _alike(extents: list[int]) -> Values:
    counts = Counter(extents)
    return Values({extent: counts[extent] / len(extents) for extent in sorted(counts)}, swept=True)


def _weighted(given: Mapping[str, Any], at: str) -> Values:
    weights: dict[int, float] = {}
    for key, weight in given.items():
        if not re.fullmatch(r"[0-9]{1,10}", str(key)):
            raise refusal(at, f"{key!r} is not an extent", *EXAMPLES)
        if (
            isinstance(weight, bool)
            or not isinstance(weight, int | float)
            or not 0 < weight < math.inf
        ):
            raise refusal(
                at, f"the weight of {key} is {weight!r}, and a weight is above 0", EXAMPLES[-1]
            )
        weights[_extent(int(key), at)] = float(weight)
    total = sum(weights.values())
    return Values({extent: weights[extent] / total for extent in sorted(weights)}, swept=True)


def _of_range(text: str, points: int, at: str) -> Values:
    match = re.fullmatch(r"\s*([0-9]{1,10})\s*:\s*([0-9]{1,10})\s*(?::\s*([0-9]{1,10})\s*)?", text)
    if match is None:
        raise refusal(at, f"{text!r} is neither a range nor the name of a CSV file", *EXAMPLES)
    first, last, step = int(match[1]), _extent(int(match[2]), at), int(match[3] or 1)
    _extent(first, at)
    if first > last or step < 1:
        because = f"{text!r} is empty: a range begins at its least size and advances"
        raise refusal(at, because, f'"{min(first, last)}:{max(first, last)}"')
    values = range(first, last + 1, step)
    return _alike(list(sample(values, points) if len(values) > max(points, 2) else values))


def vectors_of_csv(file: Path, columns: Mapping[str, str] | None, at: str) -> list[dict[str, int]]:
    """Return the vectors of extents in the lines of a CSV file, whose first line has names.

    columns  by axis; None: every column is the axis of its name

    Raises DescribeError for a file that cannot be read, a column that it lacks, and a cell that is not an extent.
    """
    header, lines, named = _lines_of_csv(file, at)
    if not named:
        raise refusal(at, f"{file.name} has no line with names of axes", "m,n,k")
    wanted = dict(zip(header, header, strict=True)) if columns is None else columns
    listed, help = ", ".join(header), f'{{csv = "{file.name}", columns = {{m = "{header[0]}"}}}}'
    for axis, column in wanted.items():
        if header.count(column) != 1:
            because = f"{file.name} has {header.count(column) or 'no'} columns {column!r} for {axis}: its columns are {listed}"
            raise refusal(at, because, help)
    vectors: list[dict[str, int]] = []
    for number, line in lines:
        texts = {
            axis: line[header.index(column)].strip() if header.index(column) < len(line) else ""
            for axis, column in wanted.items()
        }
        for axis, text in texts.items():
            if not re.fullmatch(r"[0-9]{1,10}", text):
                because = f"{file.name}, line {number}: {text!r} in column {wanted[axis]!r} is not a whole number"
                raise refusal(at, because, help)
        vectors.append(
            {a: _extent(int(t), f"{at} ({file.name}, line {number})") for a, t in texts.items()}
        )
    if not vectors:
        raise refusal(at, f"{file.name} has no line with sizes")
    return vectors


def _lines_of_csv(file: Path, at: str) -> tuple[list[str], list[tuple[int, list[str]]], bool]:
    """Return the first line of a CSV file, the lines of extents with their numbers, and whether the first one has names."""
    try:
        with file.open(newline="", encoding="utf-8-sig") as text:
            reader = csv.reader(text)
            numbered = [
                (reader.line_num, line) for line in reader if line and not line[0].startswith("#")
            ]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        because = getattr(error, "strerror", None) or "it is not a CSV file in UTF-8"
        raise refusal(
            at, f"{file.name}: {because}", *EXAMPLES, what="cannot read the sizes"
        ) from error
    header = [name.strip() for name in numbered[0][1]] if numbered else []
    named = bool(header) and not all(re.fullmatch(r"[0-9]{1,10}", name) for name in header)
    return header, numbered[named:], named


def _of_csv(file: Path, column: str, at: str) -> Values:
    """Return the extents in a column of a CSV file, whose first line has names; a file of one column needs no name."""
    header, lines, named = _lines_of_csv(file, at)
    name = column or at.rpartition(".")[2]
    if header.count(name) > 1:
        because = f"{file.name} has {header.count(name)} columns {name!r}: its columns are {', '.join(header)}"
        raise refusal(at, because, "one name for one column")
    if named and name in header:
        position = header.index(name)
    elif len(header) == 1 and not column:
        position = 0
    else:
        listed = ", ".join(header) if named else "without names" if header else "none"
        raise refusal(
            at,
            f"{file.name} has no column {name!r}: its columns are {listed}",
            f'{{csv = "{file.name}", column = "…"}}',
        )
    extents: list[int] = []
    for number, line in lines:
        text_here = line[position].strip() if position < len(line) else ""
        if not re.fullmatch(r"[0-9]{1,10}", text_here):
            raise refusal(at, f"{file.name}, line {number}: {text_here!r} is not a whole number")
        extents.append(_extent(int(text_here), f"{at} ({file.name}, line {number})"))
    if not extents:
        raise refusal(at, f"{file.name} has no line with a size")
    return _alike(extents)


def _extent(value: Any, at: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= LARGEST:
        raise refusal(
            at, f"{value!r} is not a size: sizes are whole numbers from 1 to 2**31 - 1", *EXAMPLES
        )
    return value
