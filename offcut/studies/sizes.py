"""The sizes of an operator: numbers, lists, ranges, weights, lengths out of a CSV file; as points with weights."""

from __future__ import annotations

import csv
import itertools
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from offcut.experiment.sizes import sample
from offcut.studies.errors import Place, check_keys, refusal, text_of, whole_of

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
EXTENT = "[0-9]{1,10}"
"""A regular expression of an extent in a text."""


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


def read_values(spec: Any, at: Place, folder: Path) -> Values:
    """Return the extents that a file says.

    spec    a whole number: one extent, known when the kernel is compiled · a list: these, alike · ``"1:512"`` or
            ``"1:512:8"``: a range, both ends included, of which at most 24 are taken, geometrically · ``{range = "1:512", points = 60}``
            · ``{3 = 0.8, 17 = 0.2}``: these, with weights · ``"lengths.csv"`` or ``{csv = "lengths.csv", column = "length"}``:
            a line for each call, of which equal ones are counted, or with ``weights = "calls"`` those numbers
    folder  that a file's name begins at

    Raises DescribeError for anything else, for an extent below 1, and for a file that cannot be read.
    """
    if isinstance(spec, int) and not isinstance(spec, bool):
        return Values({_extent(spec, at): 1.0}, swept=False)
    if isinstance(spec, list) and spec:
        return _of_weights((_extent(one, at), 1.0) for one in spec)
    if isinstance(spec, str) and spec.endswith(".csv"):
        return _of_csv(folder / spec, "", "", at)
    if isinstance(spec, str):
        return _of_range(spec, POINTS, at)
    if isinstance(spec, Mapping) and "csv" in spec:
        check_keys(spec, ("csv", "column", "weights"), at)
        file, column = text_of(spec, "csv", at), text_of(spec, "column", at)
        return _of_csv(folder / file, column, text_of(spec, "weights", at), at)
    if isinstance(spec, Mapping) and "range" in spec:
        check_keys(spec, ("range", "points"), at)
        return _of_range(str(spec["range"]), whole_of(spec, "points", at, POINTS, 2), at)
    if isinstance(spec, Mapping) and spec:
        return _weighted(spec, at)
    raise refusal(at, f"{spec!r} are not sizes", *EXAMPLES)


def points_of(values: Mapping[str, Values]) -> tuple[Point, ...]:
    """Return every combination of the extents; a combination weighs the product of its weights.

    values  by axis, or by several axes with commas between, which have one extent at each point
    """
    points = []
    for one in itertools.product(*(one.weights.items() for one in values.values())):
        pairs = zip(values, one, strict=True)
        sizes = {name: extent for key, (extent, _) in pairs for name in names_of(key)}
        points.append(Point(sizes, math.prod(weight for _, weight in one)))
    return tuple(points)


def axes_of(values: Mapping[str, Values], at: Place) -> dict[str, Values]:
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


def _of_weights(pairs: Iterable[tuple[int, float]]) -> Values:
    """Return extents whose weights are those of all pairs that have them, as parts of the sum."""
    weights: dict[int, float] = {}
    for extent, weight in pairs:
        weights[extent] = weights.get(extent, 0.0) + weight
    total = sum(weights.values())
    return Values({extent: weights[extent] / total for extent in sorted(weights)}, swept=True)


def _weighted(spec: Mapping[str, Any], at: Place) -> Values:
    weights: dict[int, float] = {}
    for key, weight in spec.items():
        if not re.fullmatch(EXTENT, str(key)):
            raise refusal(at, f"{key!r} is not an extent", *EXAMPLES)
        is_number = isinstance(weight, int | float) and not isinstance(weight, bool)
        if not is_number or not 0 < weight < math.inf:
            because = f"the weight of {key} is {weight!r}, and a weight is above 0"
            raise refusal(at, because, EXAMPLES[-1])
        weights[_extent(int(key), at)] = float(weight)
    return _of_weights(weights.items())


def _of_range(text: str, points: int, at: Place) -> Values:
    match = re.fullmatch(r"\s*([0-9]{1,10})\s*:\s*([0-9]{1,10})\s*(?::\s*([0-9]{1,10})\s*)?", text)
    if match is None:
        raise refusal(at, f"{text!r} is neither a range nor the name of a CSV file", *EXAMPLES)
    first, last, step = int(match[1]), _extent(int(match[2]), at), int(match[3] or 1)
    _extent(first, at)
    if first > last or step < 1:
        because = f"{text!r} is empty: a range begins at its least size and advances"
        raise refusal(at, because, f'"{min(first, last)}:{max(first, last)}"')
    values = range(first, last + 1, step)
    chosen = sample(values, points) if len(values) > max(points, 2) else values
    return _of_weights((extent, 1.0) for extent in chosen)


@dataclass(frozen=True, slots=True)
class _Csv:
    """The lines of a CSV file of extents.

    header     names of the columns, or the cells of the first line where that has no names
    lines      cells of the other lines, with their numbers in the file
    has_names  whether the first line has names
    """

    file: Path
    header: Sequence[str]
    lines: Sequence[tuple[int, Sequence[str]]]
    has_names: bool

    def cell(self, line: Sequence[str], position: int) -> str:
        """Return a cell without blanks around it, "" where the line has fewer."""
        return line[position].strip() if position < len(line) else ""

    def extents(self, position: int, at: Place, *help: str) -> list[int]:
        """Return the extents in a column.

        Raises DescribeError for a cell that is none.
        """
        extents = []
        for number, line in self.lines:
            text, place = self.cell(line, position), f"{self.file.name}, line {number}"
            if not re.fullmatch(EXTENT, text):
                where = f" in column {self.header[position]!r}" if len(self.header) > 1 else ""
                because = f"{place}: {text!r}{where} is not a whole number from 1 to 2**31 - 1"
                raise refusal(at, because, *(help or ("a whole number in each line",)))
            extents.append(_extent(int(text), f"{at} ({place})"))
        return extents

    def size_columns(self) -> list[str]:
        """Return the columns of which each line has a size, but for those of one name."""
        return [
            name
            for position, name in enumerate(self.header)
            if self.header.count(name) == 1
            and all(re.fullmatch(EXTENT, self.cell(line, position)) for _, line in self.lines)
        ]

    def position(self, column: str, at: Place, help: str) -> int:
        """Return the position of a column.

        Raises DescribeError where not exactly one has that name.
        """
        if not self.has_names or self.header.count(column) != 1:
            listed = ", ".join(self.header) if self.has_names else "without names"
            because = f"{self.file.name} has no column {column!r}: its columns are {listed}"
            raise refusal(at, because, help)
        return self.header.index(column)

    def layers(self, column: str, at: Place) -> list[str]:
        """Return the name of a layer in each line: the text in a column, or "" without one.

        Raises DescribeError for a column that there is not, and an empty cell.
        """
        if not column:
            return [""] * len(self.lines)
        position = self.position(column, at / "names", 'names = "…", the column of names of layers')
        names = [self.cell(line, position) for _, line in self.lines]
        if "" in names:
            place = f"{self.file.name}, line {self.lines[names.index('')][0]}"
            raise refusal(at / "names", f"{place}: the layer has no name", "a name in each line")
        return names

    def weights(self, column: str, at: Place) -> list[float]:
        """Return the weight of each line: the number in a column, or 1 without one.

        Raises DescribeError for a column that there is not, and a cell that is no number above 0.
        """
        if not column:
            return [1.0] * len(self.lines)
        help = 'weights = "…", a column of numbers above 0'
        position = self.position(column, at / "weights", help)
        weights = []
        for number, line in self.lines:
            text = self.cell(line, position)
            try:
                weight = float(text)
            except ValueError:
                weight = math.nan
            if not 0 < weight < math.inf:
                place = f"{self.file.name}, line {number}"
                because = f"{place}: the weight {text!r} is not a number above 0"
                raise refusal(at / "weights", because, "a number above 0 in each line")
            weights.append(weight)
        return weights


def layers_of_csv(file: Path, column: str, at: Place) -> tuple[str, ...]:
    """Return the names of layers in a column of a CSV file, each once, in their order; "" alone of a file without lines.

    Raises DescribeError for a file that cannot be read, a column that it lacks, and a line without a name.
    """
    return tuple(dict.fromkeys(_read_csv(file, at).layers(column, at))) or ("",)


def vectors_of_csv(
    file: Path, columns: Mapping[str, str] | None, weights: str, at: Place, names: str = ""
) -> list[tuple[str, dict[str, int], float]]:
    """Return the lines of a CSV file, whose first line has names: the layer, the vector of extents, the weight.

    columns  by axis; None: every column but those of weights and of layers is the axis of its name
    weights  the column of weights; "": lines weigh the same
    names    the column of names of layers; "": the layer of each line is ""

    Raises DescribeError for a file that cannot be read, a column that it lacks, and a cell that is not an extent.
    """
    table = _read_csv(file, at)
    if not table.has_names:
        raise refusal(at, f"{file.name} has no line with names of axes", "m,n,k")
    own = {name: name for name in table.header if name and name not in (weights, names)}
    column_by_axis = own if columns is None else columns
    sized = table.size_columns()
    for axis, column in column_by_axis.items():
        if table.header.count(column) != 1:
            listed = ", ".join(table.header)
            because = f"{file.name} has {table.header.count(column) or 'no'} columns {column!r} for {axis}: its columns are {listed}"
            stated = {one: name for one, name in column_by_axis.items() if name in sized}
            free = (one for one in sized if one not in stated.values())
            other = {one: stated.get(one) or next(free, "…") for one in column_by_axis}
            raise refusal(at, because, _columns_text(file, other))
    if not table.lines:
        raise refusal(at, f"{file.name} has no line with sizes", "a line for each vector")
    extents = {}
    for axis, column in column_by_axis.items():
        position, helps = table.header.index(column), ["a whole number in each line"]
        if columns is None and sized:
            helps.append(_columns_text(file, {one: one for one in sized if one in own}))
        if not (
            columns or names or any(table.cell(x, position).isdecimal() for _, x in table.lines)
        ):
            helps.append(f'{{csv = "{file.name}", names = "{column}"}}, layers by name')
        extents[axis] = table.extents(position, at, *helps)
    vectors = [dict(zip(extents, one, strict=True)) for one in zip(*extents.values(), strict=True)]
    layers = table.layers(names, at)
    return list(zip(layers, vectors, table.weights(weights, at), strict=True))


def _columns_text(file: Path, columns: Mapping[str, str]) -> str:
    """Return the sizes of a file with a column for each axis, as a study has them."""
    listed = ", ".join(f'{axis} = "{column}"' for axis, column in columns.items())
    return f'{{csv = "{file.name}", columns = {{{listed}}}}}'


def _read_csv(file: Path, at: Place) -> _Csv:
    """Return the lines of a CSV file: cells are apart by the comma, semicolon or tab that its first line has most of.

    Lines of nothing and of comments are left out.
    """
    try:
        lines = file.read_text(encoding="utf-8-sig").splitlines()
        first = next((x for x in lines if x.strip() and not x.lstrip().startswith("#")), "")
        reader = csv.reader(lines, delimiter=max(",;\t", key=first.count), strict=True)
        numbered = [
            (reader.line_num, line)
            for line in reader
            if any(cell.strip() for cell in line) and not line[0].lstrip().startswith("#")
        ]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        why = getattr(error, "strerror", None) or "it is not a CSV file in UTF-8"
        because, what = f"{file.name}: {why}", "cannot read the sizes"
        raise refusal(at, because, *EXAMPLES, what=what) from error
    header = [name.strip() for name in numbered[0][1]] if numbered else []
    has_names = bool(header) and not all(re.fullmatch(EXTENT, name) for name in header)
    return _Csv(file, header, numbered[has_names:], has_names)


def _of_csv(file: Path, column: str, weights: str, at: Place) -> Values:
    """Return the extents in a column of a CSV file, whose first line has names; a file of one column needs no name."""
    table = _read_csv(file, at)
    header, name = table.header, column or at.keys[-1]
    if header.count(name) > 1:
        because = f"{file.name} has {header.count(name)} columns {name!r}: its columns are {', '.join(header)}"
        raise refusal(at, because, "one name for one column")
    if table.has_names and name in header:
        position = header.index(name)
    elif len(header) == 1 and not column:
        position = 0
    else:
        listed = ", ".join(header) if table.has_names else "without names" if header else "none"
        because = f"{file.name} has no column {name!r}: its columns are {listed}"
        raise refusal(at, because, f'{{csv = "{file.name}", column = "…"}}')
    extents = table.extents(position, at)
    if not extents:
        raise refusal(at, f"{file.name} has no line with a size", "a line for each call")
    return _of_weights(zip(extents, table.weights(weights, at), strict=True))


def _extent(value: Any, at: Place | str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= LARGEST:
        because = f"{value!r} is not a size: sizes are whole numbers from 1 to 2**31 - 1"
        raise refusal(at, because, *EXAMPLES)
    return value
