"""What the scripts of this folder share: their options, processes of their own, tables, and samples as a study's folder has them."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from offcut.experiment.machine import describe
from offcut.experiment.outputs import check_writable, wide_console
from offcut.experiment.timing import Ratio, Timing, restart_with_threads
from offcut.studies.definition import read_definition
from offcut.studies.environment import digest, environment, write_environment
from offcut.studies.named import named
from offcut.studies.rows import Row
from offcut.studies.samples import FILE, WRONG, Sample, append_samples
from offcut.studies.tables import number

UNITS = {"ms": 1e3, "µs": 1e6, "ns": 1e9, "MB": 1e-6}
"""Units of a table and their number per second; MB: per byte."""
STUDIES = Path(__file__).parents[1] / "studies" / "bench"
"""The folder of the studies that are benches."""

Line = tuple[str, str, str, str]
"""A line of a summary: what, goal, measured, where."""


@dataclass(frozen=True, slots=True)
class Options:
    """What the command line says.

    cells   regular expression that is looked for in names; empty takes all
    budget  seconds for each that is timed
    slow    whether those take part that take minutes to prepare
    out     the folder of samples; None: they are not kept
    json    where figures go
    case    what this process is to measure alone and print as JSON; empty: everything
    turn    which time it does
    """

    quick: bool = False
    slow: bool = False
    cells: str = ""
    threads: int = 1
    budget: float = 0.12
    out: Path | None = None
    json: Path | None = None
    case: str = ""
    turn: int = 0


def read_options(
    text: str,
    has: Collection[str] = (),
    cases: Collection[str] = (),
) -> Options:
    """Return the options of a script, from the command line; the program starts again with one thread for each library.

    text   the script's docstring, whose first line ``--help`` shows
    has    the options that it has beside ``--quick``
    cases  what it measures in processes of their own
    """
    parser = argparse.ArgumentParser(description=text.partition("\n")[0], allow_abbrev=False)
    arguments: dict[str, dict[str, Any]] = {
        "quick": {"action": "store_true", "help": "some minutes at most"},
        "slow": {"action": "store_true", "help": "what takes minutes to prepare, as well"},
        "cells": {"default": "", "help": "only those with this regular expression"},
        "budget": {"type": float, "help": "seconds for each that is timed"},
        "out": {"type": Path, "help": "a folder of samples, for offcut study compare"},
        "json": {"type": Path, "help": "where all figures go"},
    }
    for name, how in arguments.items():
        if name == "quick" or name in has:
            parser.add_argument(f"--{name}", **how)
    if cases:
        parser.add_argument(
            "case", nargs="?", default="", choices=("", *cases), help="measure it here, once"
        )
        parser.add_argument("turn", nargs="?", type=int, default=0, help="which time that is")
    values = {name: value for name, value in vars(parser.parse_args()).items() if value is not None}
    budget = values.get("budget", 0.04 if values.get("quick") else 0.12)
    restart_with_threads(1)
    options = Options(**{**values, "budget": budget})
    for file in (options.out and options.out / FILE, options.json):
        if file is not None:
            check_writable(file, "bench")
    return options


def models() -> dict[str, Any]:
    """Return the models of `models.toml` by name; ``workload`` makes one, a module with its inputs by sizes."""
    operators = read_definition(STUDIES / "models.toml").operators
    return {operator.name: operator.workload for operator in operators}


def network(name: str, *arguments: int) -> tuple[Any, Callable[..., tuple[Any, ...]]]:
    """Return a module, and its inputs by sizes, that a function of `networks.py` gives."""
    function = named(f"networks:{name}", "offcut.operators", STUDIES, "bench").value
    module, inputs = function(*arguments)
    return module, inputs


def run_case(file: str, case: str, turn: int = 0, **environment: str) -> Any:
    """Run ``python file case turn`` and return the JSON that it prints; on failure print the reason and return None."""
    process = subprocess.run(
        [sys.executable, file, case, str(turn)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    if process.returncode:
        last = (process.stderr.splitlines() or ["no reason"])[-1]
        print(f"{case}: not measured: {last}")
        return None
    return json.loads(process.stdout)


def row_of(
    group: str,
    label: str,
    seconds: Mapping[str, Sequence[float]],
    *,
    peers: Collection[str] = (),
    wrong: Mapping[str, str] | None = None,
) -> Row:
    """Return a row of contenders that took turns.

    seconds  of each contender, one for each round; none where it was not measured
    peers    contenders that are something else than offcut
    wrong    by contender, what is wrong with its values
    """
    turns = digest(
        {"group": group, "label": label, "seconds": {k: [*v] for k, v in seconds.items()}}
    )
    samples = {}
    for name, each in seconds.items():
        cell = digest({"group": group, "label": label, "contender": name})
        fault = (wrong or {}).get(name, "")
        blank = Sample(cell, f"{group}: {label}", {}, name, (), turns=turns, peer=name in peers)
        times = replace(blank, seconds=tuple(each), calls=1, round=tuple(range(len(each))))
        samples[name] = replace(blank, failed=f"{WRONG}: {fault}") if fault else times
    return Row(group, label, samples)


def ratio_to_best(row: Row, *others: str) -> tuple[Ratio, str] | None:
    """Return the speedup of the row's first contender over the fastest of `others` (default: all others), and the row with that name."""
    first, *default = row.samples
    best = row.fastest(others or default)
    ratio = row.over(first, best)
    return None if ratio is None or best is None else (ratio, f"{row.label}, {best}")


def table(
    rows: Sequence[Row],
    unit: str,
    name: str = "",
    others: Sequence[str] = (),
    goals: Mapping[str, str] | None = None,
) -> Table:
    """Return the table of one group: the median of each contender, the ratio of `ratio_to_best`, the spread of the first.

    unit   one of `UNITS`
    name   of the column of ratios; "": there is none
    goals  text of the goal of each row, by row name; empty: no column
    """
    names = list(dict.fromkeys(name for row in rows for name in row.samples))
    columns = ("", *names, *([name] if name else []), "spread", *(["goal"] if goals else []))
    grid = Table(*columns, title=f"{rows[0].operator}, {unit}")
    for row in rows:
        times = [row.samples.get(one) for one in names]
        figures = [
            number(Timing(one.seconds, 1).seconds * UNITS[unit]) if one and one.seconds else "–"
            for one in times
        ]
        ratio = ratio_to_best(row, *others)
        first = times[0]
        spread = f"{Timing(first.seconds, 1).spread:.0%}" if first and first.seconds else "–"
        ratio_text = [("–" if ratio is None else str(ratio[0]))] if name else []
        goal = [goals.get(row.name, "")] if goals else []
        grid.add_row(escape(row.name), *figures, *ratio_text, spread, *goal)
    return grid


def publish(
    bench: str,
    rows: Sequence[Row],
    options: Options,
    lines: Iterable[Line] = (),
    console: Console | None = None,
) -> int:
    """Print a summary and the machine, and append the samples to ``options.out``; return 1 for wrong or missing values, else 0."""
    console = console or wide_console()
    closing = Table("", "goal", "measured", "where")
    for line in lines:
        closing.add_row(*map(escape, line))
    if closing.row_count:
        console.print(closing)
    console.print(f"machine: {describe()}", highlight=False, soft_wrap=True)
    samples = [one for row in rows for one in row.samples.values() if one.seconds or one.failed]
    if options.out is not None:
        facts = environment()
        write_environment(options.out, digest(facts), {**facts, "command": bench})
        append_samples(
            options.out / FILE, (replace(one, environment=digest(facts)) for one in samples)
        )
        console.print(f"wrote {options.out / FILE}", highlight=False)
    wrong = [one for one in samples if one.failed]
    for one in wrong:
        console.print(f"{one.contender} at {one.operator}: {one.failed}", style="red")
    return 1 if wrong or not samples else 0
