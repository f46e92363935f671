"""A sweep: the study of one contraction at many sizes, strategies against each other and peers, from what a command line says."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from rich.console import Console

from offcut import debug
from offcut.core.extras import absent, is_installed
from offcut.errors import DescribeError
from offcut.experiment.contraction import Contraction, check_letters, parse_contraction
from offcut.experiment.machine import describe
from offcut.experiment.outputs import check_writable, wide_console
from offcut.experiment.peers import load_peers
from offcut.experiment.sizes import sample
from offcut.partition import STRATEGIES
from offcut.partition.show.figure_io import check_format
from offcut.studies.definition import Definition, definition_of
from offcut.studies.rows import Row
from offcut.studies.run import Outcome, run_study
from offcut.studies.samples import FILE, WRONG
from offcut.studies.table import as_csv, as_rich
from offcut.studies.tables import cells_table, number

Extents = Mapping[str, Sequence[int]]
"""Sizes by the letters that have them together, ascending."""


def sweep(
    text: str,
    fixed: Mapping[str, int],
    sizes: Sequence[str],
    *,
    strategies: Sequence[str],
    peers: Sequence[str],
    points: int | None,
    seconds_per_cell: float,
    seconds: float,
    packed: bool,
    csv: Path,
    png: Path,
) -> int:
    """Measure the contraction `text`, print its tables, write `csv` and `png`, and beside `csv` a folder of samples; 1 for wrong values.

    Each row is in `csv` as soon as it is measured, and off a terminal, which has a bar, a line on standard error.

    fixed    letter -> extent of the axes that are not swept
    sizes    of the others, as `read_sizes` reads them, `points` of them at most
    strategies  names; the ratios to the best peer are of the first
    peers    names; one that is not installed is named, and left out
    seconds_per_cell  which one call may take at most
    seconds  from the first row on, which is always measured, after which none is begun
    packed   whether operands after the first without swept sizes are packed constants

    Raises DescribeError where these do not fit, OffcutError where a file cannot be written.
    """
    for file in (csv, png):
        check_writable(file, "sweep")
    check_format("sweep", png)
    contraction, extents = parse_contraction(text), read_sizes(sizes, points)
    ranges = {letter: (x[0], x[-1]) for letters, x in extents.items() for letter in letters}
    check_letters(contraction, fixed, ranges)
    _check_strategies(strategies)
    loaded = load_peers([name for name in peers if ":" not in name])
    installed = [name for name in dict.fromkeys(peers) if name not in loaded.missing]
    tables = _tables(contraction, fixed, extents, dict.fromkeys(strategies), installed, packed)
    tables["study"] |= {"seconds_per_cell": seconds_per_cell, "patience": seconds_per_cell}
    definition = definition_of(tables, Path("sweep.toml"))
    constants = ", ".join(definition.operators[0].identity["constants"]) or "none"
    how = f"packed constants: {constants}; one thread, {seconds_per_cell:g} s per cell"
    facts = (f"machine: {describe()}", definition.operators[0].name, how)
    console = wide_console()
    size_lines = [_sizes_text(letters, x, sizes) for letters, x in extents.items()]
    for line in (*size_lines, how):
        console.print(line, highlight=False, style="dim", soft_wrap=True)
    rows: list[Row] = []
    tell = _teller(definition, csv, facts, rows, console, [*ranges])
    folder = csv.parent / f"{csv.stem}-study"
    outcome = run_study(definition, folder, again=True, seconds=seconds, tell=tell, report=False)
    _print(outcome, rows, loaded.versions, loaded.missing, facts[0], console)
    console.print(f"wrote {csv}; every sample is in {folder / FILE}", highlight=False)
    if is_installed("matplotlib"):
        from offcut.studies.figures import write_speed

        write_speed(definition, rows, png, "\n".join(facts))
        console.print(f"wrote {png}", highlight=False)
    else:
        console.print(f"no picture: {absent('matplotlib')}", markup=False, soft_wrap=True)
    return 1 if outcome.wrong else 0


def _tables(
    contraction: Contraction,
    fixed: Mapping[str, int],
    extents: Extents,
    strategies: Sequence[str] | Mapping[str, Any],
    peers: Sequence[str],
    packed: bool,
) -> dict[str, Any]:
    """Return the tables of the study's file."""
    at = ", ".join(f"{letter}={extent}" for letter, extent in fixed.items())
    operator: dict[str, Any] = {
        "name": f"float32 {contraction}" + (f" at {at}" if at else ""),
        "einsum": str(contraction),
        "sizes": {**{",".join(letters): list(x) for letters, x in extents.items()}, **fixed},
        "bounds": {letter: max(x[-1], 2) for letters, x in extents.items() for letter in letters},
    }
    if not packed:
        operator["constants"] = []
    contenders = [{"strategy": name} for name in strategies] + [{"peer": name} for name in peers]
    return {
        "study": {"name": "sweep", "limits": True},
        "operators": [operator],
        "contenders": contenders,
    }


def _check_strategies(names: Sequence[str]) -> None:
    """Refuse a name of no strategy; one's own is ``module:function``."""
    strategy_names = ("auto", "mix", *(strategy.name for strategy in STRATEGIES))
    for name in names:
        if ":" not in name and name.partition("(")[0] not in strategy_names:
            raise DescribeError(
                "sweep",
                f"there is no strategy {name!r}",
                at=f"--strategies {name}",
                because=f"the strategies are {', '.join(strategy_names)}",
                help=("module:function, a generator of tiles of one's own",),
            )


def read_sizes(texts: Sequence[str], points: int | None) -> dict[str, tuple[int, ...]]:
    """Return the extents that texts say, by the letters that take them together.

    texts    ``m=1:512`` every size, both ends included; ``m=1:512:8`` every eighth; ``m=1,7,100`` exactly these; ``ik=1:512``
             two letters together
    points   most combinations that are taken of ranges (None: no limit); a list is taken whole

    >>> read_sizes(["m=1:512"], 8)
    {'m': (1, 3, 7, 17, 40, 95, 221, 512)}

    Raises DescribeError when a text is none of these, describes a size below 1, or when an axis is swept twice.
    """
    if points is not None and len(texts) > 1:
        points = max(2, round(points ** (1 / len(texts))))
    extents: dict[str, tuple[int, ...]] = {}
    texts_by_letter: dict[str, str] = {}
    for text in texts:
        letters, values = _values_of(text)
        for letter in letters:
            if letter in texts_by_letter:
                raise DescribeError(
                    "sweep",
                    f"the axis {letter!r} is swept twice",
                    at=f"--sizes {text}",
                    because=f"--sizes {texts_by_letter[letter]} has it too",
                    help=(f"--sizes {letter}=1,7,100: all of its sizes at once",),
                )
            texts_by_letter[letter] = text
        is_long = isinstance(values, range) and points is not None and len(values) > points
        extents[letters] = sample(values, points or 2) if is_long else tuple(values)  # type: ignore[arg-type]
    return extents


def _values_of(text: str) -> tuple[str, Sequence[int]]:
    """Return the letters of a text, and all extents that it describes, ascending."""

    def refused(because: str) -> DescribeError:
        return DescribeError(
            "sweep",
            "cannot read the sizes",
            at=f"--sizes {text}",
            because=because,
            help=("m=1:512 or m=1:512:8 for a range, both ends included", "m=1,7,100 for a list"),
        )

    letters, equals, body = text.replace(" ", "").partition("=")
    if not equals or not re.fullmatch("[A-Za-z]+", letters):
        raise refused("it does not begin with an axis and '=', such as m=")
    if not re.fullmatch(r"\d+(,\d+)*|\d+:\d+(:\d+)?", body):
        raise refused(f"{body!r} is neither a range nor a list of whole numbers from 0 on")
    numbers = [int(number) for number in re.split("[,:]", body)]
    if max(numbers) > 2**31 - 1:
        raise refused("a size is at most 2**31 - 1")
    values: Sequence[int] = sorted(set(numbers))
    if ":" in body:
        first, last, step = (*numbers, 1)[:3]
        if first > last:
            raise refused(f"the range ends at {last}, before its start {first}")
        if step < 1:
            raise refused("the range does not advance: its step is 0")
        values = range(first, last + 1, step)
    if values[0] < 1:
        raise refused("size 0 has no work to time")
    return letters, values


def _sizes_text(letters: str, extents: Sequence[int], texts: Sequence[str]) -> str:
    """Return which sizes are taken, and of how many."""
    every = next(values for one, values in map(_values_of, texts) if one == letters)
    count = f"{len(extents)} of" if len(extents) < len(every) else "all"
    return f"{' = '.join(letters)}: {count} {len(every)} sizes: {', '.join(map(str, extents))}"


def _teller(
    definition: Definition,
    csv: Path,
    facts: Sequence[str],
    rows: list[Row],
    console: Console,
    swept: Sequence[str],
) -> Callable[[Row], None]:
    """Return what takes up a row that was measured, writes all to `csv`, and tells of it where `console` shows no bar."""
    names = [one.name for one in definition.contenders]
    count = len(definition.operators[0].points)

    def tell(row: Row) -> None:
        rows.append(row)
        text = as_csv(cells_table(rows, definition.baseline, names), facts)
        csv.write_text(text, encoding="utf-8")
        if not console.is_terminal:
            at = ", ".join(f"{letter}={row.sizes[letter]}" for letter in swept)
            figures = ", ".join(f"{name} {_median_text(row, name)}" for name in row.samples)
            line = f"sweep: {len(rows)} of {count}, {at}: {figures} {row.unit}"
            debug.note(0, line, logger="experiment")

    return tell


def _median_text(row: Row, name: str) -> str:
    seconds = row.seconds(name)
    return "–" if seconds is None else number(row.figure(row.samples[name], seconds))


def _print(
    outcome: Outcome,
    rows: Sequence[Row],
    versions: Sequence[str],
    missing: Sequence[str],
    machine: str,
    console: Console,
) -> None:
    if outcome.left:
        count = outcome.left + len(rows)
        line = f"{outcome.left} of {count} cells are not measured: the seconds are over"
        console.print(line, style="yellow", highlight=False)
    for name in ("rows", "goals"):
        if name in outcome.tables:
            console.print(as_rich(outcome.tables[name]))
    lines = (", ".join(versions), *(f"missing: {name} is not installed" for name in missing))
    for line in filter(None, (*lines, machine)):
        console.print(line, highlight=False, soft_wrap=True)
    samples = chain.from_iterable(row.samples.values() for row in rows)
    for one in (one for one in samples if one.failed):
        style = "red" if one.failed.startswith(WRONG) else "yellow"
        at = ", ".join(f"{name}={extent}" for name, extent in one.sizes.items())
        line = f"{one.contender} at {at}: {one.failed}"
        console.print(line, style=style, highlight=False, soft_wrap=True)
