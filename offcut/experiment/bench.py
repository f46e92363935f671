"""A bench from its command line to its closing line: measured in turns, checked, printed, written.

A bench gives groups of tasks to `run`, or rows that it measured itself to `publish`.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from math import inf
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import track
from rich.table import Table

from offcut.experiment.limits import Limits
from offcut.experiment.machine import describe
from offcut.experiment.ours import Ours, Task
from offcut.experiment.outputs import check_writable
from offcut.experiment.peers import COMPILED, Contender, Peers, Way, load_peers
from offcut.experiment.table import (
    GBS,
    GFLOPS,
    OVER,
    OVER_BUDGET,
    Asked,
    Cell,
    Line,
    Row,
    as_json,
    summary,
    table,
    wide_console,
)
from offcut.experiment.timing import (
    Clock,
    Timing,
    fastest,
    measure,
    restart_with_threads,
)

PEERS = ("numpy", "torch", "onnxruntime", "openvino")


@dataclass(frozen=True, slots=True)
class Group:
    """The rows of one table, which share kernels and packed constants.

    tasks  row label -> what makes the task, when it is its turn; small ones first
    swept  symbolic letters of contractions, each with the least and largest extent
    """

    title: str
    tasks: Mapping[str, Callable[[], Any]]
    swept: Mapping[str, tuple[int, int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Options:
    """What the command line says.

    cells    regular expression that is looked for in ``title: label``; empty takes all
    budget   seconds per cell and contender
    patience seconds that one call may be expected to last; a slower contender leaves the cell out
    seconds  from the begin of a group, after which no cell of it is begun but its first
    slow     whether peers that take minutes to prepare take part
    case     what this process is to measure alone and print as JSON; empty: the whole bench
    turn     which time it does
    """

    quick: bool = False
    slow: bool = False
    cells: str = ""
    threads: int = 1
    budget: float = 0.12
    patience: float = 1.0
    seconds: float = inf
    json: Path | None = None
    case: str = ""
    turn: int = 0


def read_options(
    text: str, threads: int = 1, without: Collection[str] = (), cases: Collection[str] = ()
) -> Options:
    """The options of a bench, from the command line; starts again with the threads that they ask.

    text     the bench's docstring, whose first line ``--help`` shows
    threads  those that are taken where the command line says nothing
    without  options that the bench has no use for
    cases    what it measures in processes of their own
    """
    parser = argparse.ArgumentParser(description=text.partition("\n")[0], allow_abbrev=False)
    known: dict[str, dict[str, Any]] = {
        "quick": {"action": "store_true", "help": "a few cells: some minutes at most"},
        "slow": {"action": "store_true", "help": f"{COMPILED} as well: minutes more"},
        "cells": {"default": "", "help": "only those with this regular expression"},
        "threads": {"type": int, "default": threads, "help": "of everybody"},
        "budget": {"type": float, "help": "seconds per cell and contender"},
        "json": {"type": Path, "help": "where all figures go"},
    }
    for name, how in known.items():
        if name not in without:
            parser.add_argument(f"--{name}", **how)
    if cases:
        parser.add_argument(
            "case", nargs="?", default="", choices=("", *cases), help="measure it here, once"
        )
        parser.add_argument("turn", nargs="?", type=int, default=0, help="which time that is")
    read = {"budget": None, "threads": threads} | vars(parser.parse_args())
    if read["budget"] is None:
        read["budget"] = 0.04 if read.get("quick") else 0.12
    restart_with_threads(read["threads"])
    return Options(**read)


def main(text: str, groups: Callable[[bool], Iterable[Group]], asked: Asked) -> None:
    """A bench of offcut alone against every peer, from its command line; exits with its status.

    text    the bench's docstring
    groups  of a few cells, or all
    """
    options = read_options(text)
    raise SystemExit(run(Path(sys.argv[0]).stem, groups(options.quick), asked, options)[0])


def run(
    bench: str,
    groups: Iterable[Group],
    asked: Asked,
    options: Options,
    *,
    own: Callable[[Group], Sequence[Contender]] | None = None,
    rivals: int = 0,
    peers: Sequence[str] = PEERS,
    more: Callable[[Sequence[Row]], Iterable[Line]] = lambda rows: (),
    again: Callable[[Row], bool] = lambda row: False,
    tell: Callable[[Sequence[Row]], None] = lambda rows: None,
    over: str = OVER,
) -> tuple[int, list[Row]]:
    """Measure, print and write; 0, or 1 where somebody's values were wrong, and the rows.

    bench  name in the JSON file
    own    the contenders that are no library, the first what the bench is about; offcut alone
    rivals how many of those, from the last on, it is compared with as with a peer
    more   further lines of the summary
    again  whether a row is measured once more, three times as long, and the second time counts
    tell   told the rows of a group that are measured so far, after each
    over   what the column of ratios is called
    """
    if options.json is not None:
        check_writable(options.json, "bench")
    console = wide_console()
    loaded = load_peers((*peers, *([COMPILED] if options.slow else [])), options.threads)
    rows: list[Row] = []
    limits = Limits(options.threads)
    seconds: dict[str, float] = {}
    refused: dict[str, str] = {}
    with loaded.session():
        for group in groups:
            titles = {label: f"{group.title}: {label}" for label in group.tasks}
            chosen = [label for label in titles if re.search(options.cells, titles[label])]
            if not chosen:
                continue
            ours = own(group) if own else [Ours(group.swept, options.threads)]
            part = replace(group, tasks={label: group.tasks[label] for label in chosen})
            mine, others = ours[: len(ours) - rivals], (*ours[len(ours) - rivals :], *loaded.found)
            found = list[Row]()
            for row in measured(part, mine, others, limits, options, console, again):
                found.append(row)
                tell(found)
            console.print(table(found, over))
            console.print(f"limits: {limits}", highlight=False, soft_wrap=True)
            for one in (one for one in ours if isinstance(one, Ours)):
                seconds |= one.seconds
                refused |= one.refused
                for form, reason in one.refused.items():
                    console.print(f"{form}: {reason}", style="yellow", highlight=False)
            rows += found
    lines = [*summary(rows, asked, over), *more(rows)]
    facts = {"asked": asdict(asked), "limits": str(limits), "budget": options.budget}
    facts |= {"compile_seconds": seconds, "refused": refused, "threads": options.threads}
    return publish(bench, rows, options, lines, facts, loaded, console), rows


def measured(
    group: Group,
    own: Sequence[Contender],
    peers: Sequence[Contender],
    limits: Limits,
    options: Options,
    console: Console,
    again: Callable[[Row], bool] = lambda row: False,
) -> Iterator[Row]:
    """A row for each task; its limit is measured before and after, and the tighter one counts."""
    clock: Clock = time.process_time if options.threads == 1 else time.perf_counter
    contenders, rates = (*own, *peers), dict[str, float]()
    begun = time.monotonic()
    for number, (label, make) in enumerate(
        track(group.tasks.items(), group.title, console=console)
    ):
        if number and time.monotonic() - begun > options.seconds:
            left = len(group.tasks) - number
            said = f"{left} of {len(group.tasks)} cells are not measured: {options.seconds:g} s are over"
            console.print(said, style="yellow", highlight=False)
            return
        task = make()
        work = task.flop, task.moved, task.kind
        before = limits.now(*work)
        late = {name for name, rate in rates.items() if task.flop / rate > options.patience}
        unit, amount = (GFLOPS, task.flop) if task.flop else (GBS, task.moved)
        cells = in_turns(task, contenders, late, options.budget, clock)
        row = Row(group.title, label, cells, unit, amount, len(own), None, task.sizes, task.moved)
        if again(row):
            cells = in_turns(task, contenders, late, 3 * options.budget, clock)
            row = replace(row, cells=cells)
        for cell in row.cells:
            if cell.timing is not None and task.flop:
                rates[cell.contender] = task.flop / cell.timing.seconds
        bound = min(before, limits.now(*work), key=lambda bound: bound.seconds)
        yield replace(row, bound=bound)


def in_turns(
    task: Task,
    contenders: Sequence[Contender],
    late: Collection[str],
    budget: float,
    clock: Clock = time.process_time,
) -> tuple[Cell, ...]:
    """The contenders on one task, each compared with float64 before it is timed; a cell for each.

    late    names of those that are left out, since they are expected to take too long
    budget  seconds for each
    """
    reference = task.reference()
    cells: dict[str, Cell] = {}
    chosen: dict[str, Way] = {}
    for contender in contenders:
        name = contender.name
        if name in late:
            cells[name] = Cell(name, note=OVER_BUDGET)
            continue
        ways = {way.name: way for way in contender.ways(task)}
        wrong = [
            (way.name, what)
            for way in ways.values()
            if (what := reference.mismatch(way.read(way.run())))
        ]
        if not ways:
            cells[name] = Cell(name, note="no way to compute it")
        elif wrong:
            cells[name] = Cell(name, wrong[-1][0], note="wrong", wrong=wrong[-1][1])
        else:
            best = fastest({way.name: way.run for way in ways.values()}, clock=clock)
            cells[name], chosen[name] = Cell(name, best), ways[best]
    timings = measure({name: way.run for name, way in chosen.items()}, budget=budget, clock=clock)
    return tuple(replace(cell, timing=timings.get(name)) for name, cell in cells.items())


def publish(
    bench: str,
    rows: Sequence[Row],
    options: Options,
    lines: Iterable[Line] = (),
    facts: Mapping[str, Any] | None = None,
    peers: Peers | None = None,
    console: Console | None = None,
) -> int:
    """Print the summary, the versions and the machine, and write all of it; 1 for wrong values.

    lines  of the summary
    facts  further entries of the JSON file
    """
    console = console or wide_console()
    if not rows:
        console.print("no cell was measured")
        return 1
    closing = Table("", "asked", "measured", "where")
    for line in lines:
        closing.add_row(*map(escape, line))
    if closing.row_count:
        console.print(closing)
    everything: dict[str, Any] = {"bench": bench, "machine": str(describe()), **(facts or {})}
    if peers is not None:
        everything |= {"versions": peers.versions, "missing": peers.missing}
        missing = (f"missing: {name} is not installed" for name in peers.missing)
        for told in filter(None, (", ".join(peers.versions), *missing)):
            console.print(told, highlight=False, soft_wrap=True)
    seconds = everything.get("compile_seconds")
    if seconds:
        slowest = max(seconds, key=lambda form: seconds[form])
        console.print(
            f"compiled in {sum(seconds.values()):.1f} s; longest {seconds[slowest]:.1f} s, {slowest}"
        )
    console.print(f"machine: {everything['machine']}", highlight=False, soft_wrap=True)
    if options.json is not None:
        everything |= {"rows": list(map(as_json, rows))}
        options.json.write_text(json.dumps(everything, indent=1, ensure_ascii=False) + "\n")
        console.print(f"wrote {options.json}")
    wrong = [(row, cell) for row in rows for cell in row.cells if cell.wrong]
    for row, cell in wrong:
        console.print(f"WRONG VALUES: {cell.way} at {row.where}: {cell.wrong}", style="red")
    return 1 if wrong else 0


def fresh(file: str, case: str, turn: int = 0, **environment: str) -> Any:
    """What ``python file case turn`` prints as JSON; None, and a line that says why, if it fails."""
    done = subprocess.run(
        [sys.executable, file, case, str(turn)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        last = (done.stderr.splitlines() or ["no reason"])[-1]
        sys.stdout.write(f"{case}: not measured: {last}\n")
        return None
    return json.loads(done.stdout)


def cell_of(contender: str, samples: Sequence[float]) -> Cell:
    """A cell of seconds that were measured elsewhere; without one, it was not measured."""
    return Cell(contender, contender, Timing(tuple(samples), 1) if samples else None)
