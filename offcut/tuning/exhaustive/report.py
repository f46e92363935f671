"""An oracle measured, and what it says printed as tables, and written as CSV and as a picture."""

from __future__ import annotations

import csv
import io
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import isfinite
from pathlib import Path
from typing import Any

from rich.markup import escape
from rich.table import Table as Grid

from offcut.core.extras import absent, is_installed
from offcut.core.program import Program
from offcut.experiment.machine import describe
from offcut.experiment.outputs import check_writable, plot_lines, wide_console
from offcut.partition.show.figures import check_format
from offcut.search import Outcome
from offcut.tuning.exhaustive.regret import Findings, Tell, measure_space
from offcut.tuning.learning.online_model import LEARNED
from offcut.tuning.progress import bar_on
from offcut.tuning.recorded_trials import seconds_text, sizes_text


def report(
    program: Program,
    constants: Sequence[str],
    sizes: Mapping[str, Any] | None,
    csv: Path,
    png: Path,
    **options: Any,
) -> None:
    """Run `measure_space` with these options, print its tables, write `csv` and `png`.

    Raises what `measure_space` raises, and OffcutError where a file cannot be written.
    """
    for file in (csv, png):
        check_writable(file, "sweep")
    check_format("sweep", png)
    console = wide_console()
    with _shown(program.name) as tell:
        findings = measure_space(program, constants, sizes, tell=tell, **options)
    lines = (f"machine: {describe()}", *facts(findings))
    for line in lines[1:]:
        console.print(line, highlight=False, soft_wrap=True)
    for grid in tables(findings):
        console.print(grid)
    csv.write_text(to_csv(findings, lines), encoding="utf-8")
    console.print(f"wrote {csv}", highlight=False)
    if not is_installed("matplotlib"):
        console.print(f"no picture: {absent('matplotlib')}", markup=False, soft_wrap=True)
        return
    plot(findings, png, lines)
    console.print(f"wrote {png}", highlight=False)


@contextmanager
def _shown(name: str) -> Iterator[Tell]:
    """A bar on standard error, where that is a terminal."""
    if not sys.stderr.isatty():
        yield lambda what, done, count: None
        return
    from rich.console import Console

    with bar_on(Console(stderr=True)) as bar:
        task = bar.add_task(name, said="")
        yield lambda what, done, count: bar.update(task, completed=done, total=count, said=what)


COLUMNS = ("kind", "who", "price", "at", "figure", "value")
"""Of the CSV: what is told, of whom, by which price, after how many trials or at which sizes."""


def facts(findings: Findings) -> Iterator[str]:
    """What was measured, in a line each."""
    counts = Counter(one.outcome for one in findings.table.measured.values())
    outcomes = ", ".join(f"{counts[o]:,} {o.value}" for o in Outcome if counts[o])
    yield f"{findings.name}: {len(findings.subspace.points):,} schedules, {findings.subspace.description}; {outcomes}"
    yield f"quartiles of a time are {findings.table.spread:.1%} of it apart, in the median"
    if findings.learns and not any(pick.who == LEARNED for pick in findings.picks):
        yield "no model knows this program and machine: without a measurement, the learned price is the closed form"
    if findings.learns and not any(one.price == LEARNED for one in findings.explored):
        yield "nothing was learned from these trials: the explorers go by the closed form"
    if findings.chosen is None:
        yield "the default has one way, or not all of its ways were timed: no choice at run time is judged"
    else:
        yield (
            f"the choice among the {findings.chosen.ways} ways of the default at run time has "
            f"{findings.chosen.whole:.1%} of the speed of the fastest way at each size, "
            f"{findings.chosen.worst:.1%} where it is the least"
        )


def tables(findings: Findings) -> Iterator[Grid]:
    """By size; without a measurement; by explorer."""
    yield _by_size(findings)
    yield _picked(findings)
    yield _explored(findings)


def _by_size(findings: Findings) -> Grid:
    table = findings.table
    grid = _grid(
        "seconds of a call", "sizes", "the size's oracle", *(p.who for p in findings.picks)
    )
    for place, (at, _) in enumerate(table.sizes):
        times = (table.seconds(pick.schedule)[place] for pick in findings.picks)
        least = seconds_text(table.least[place])
        grid.add_row(sizes_text(tuple(at.items())), least, *map(seconds_text, times))
    return grid


def _picked(findings: Findings) -> Grid:
    columns = ("who", "regret", "of the sizes' oracles", "where it is the least")
    grid = _grid("one schedule, chosen without a measurement", *columns)
    for pick in findings.picks:
        grid.add_row(pick.who, _share(pick.regret), f"{pick.whole:.1%}", f"{pick.worst:.1%}")
    return grid


def _explored(findings: Findings) -> Grid:
    counts = list(findings.explored[0].mean) if findings.explored else []
    names = (f"{count} trials" for count in counts)
    grid = _grid("regret, mean and worst over the seeds", "explorer", "price", *names)
    for one in findings.explored:
        cells = (f"{_share(one.mean[c])} {_share(one.worst[c]):>8}" for c in counts)
        grid.add_row(escape(one.explorer), one.price, *cells)
    return grid


def to_csv(findings: Findings, lines: Sequence[str]) -> str:
    """Return a line for each figure, below comment lines."""
    text = io.StringIO()
    text.writelines(f"# {line}\n" for line in lines)
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for place, (at, _) in enumerate(findings.table.sizes):
        sizes = sizes_text(tuple(at.items()))
        writer.writerow(("size", "oracle", "", sizes, "seconds", findings.table.least[place]))
        for pick in findings.picks:
            seconds = findings.table.seconds(pick.schedule)[place]
            writer.writerow(("size", pick.who, "", sizes, "seconds", seconds))
    for pick in findings.picks:
        for figure, value in (
            ("regret", pick.regret),
            ("of the sizes' oracles", pick.whole),
            ("least of these", pick.worst),
        ):
            writer.writerow(("pick", pick.who, "", "", figure, value))
    for one in findings.explored:
        for count, mean in one.mean.items():
            key = ("explorer", one.explorer, one.price, count)
            writer.writerow((*key, "mean regret", mean))
            writer.writerow((*key, "worst regret", one.worst[count]))
    return text.getvalue()


def plot(findings: Findings, png: Path, lines: Sequence[str]) -> None:
    """Mean regret over the trials, a line for each explorer and price."""
    series = {
        f"{one.explorer}, {one.price}": [
            (float(count), 100 * mean) for count, mean in one.mean.items() if isfinite(mean)
        ]
        for one in findings.explored
    }
    plot_lines(
        png,
        series,
        title=f"regret of {findings.name} against the oracle over the sweep",
        x_label="trials",
        y_label="% (lower is better), mean over the seeds",
        footer="\n".join(lines),
    )


def _grid(title: str, *columns: str) -> Grid:
    grid = Grid(title=escape(title), title_justify="left")
    for name in columns:
        grid.add_column(
            name, justify="left" if name in ("sizes", "who", "explorer", "price") else "right"
        )
    return grid


def _share(value: float) -> str:
    return f"{value:.1%}" if isfinite(value) else "none"
