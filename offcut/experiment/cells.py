"""The tables of the benches: offcut, every peer, and the physical limit, cell by cell.

A bench gives groups of tasks; `run` measures them, prints a table for each group and what is asked
beside what was measured, and writes all of it as JSON where that is wanted.
"""

from __future__ import annotations

import json
import re
import statistics
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import track
from rich.table import Table

from offcut.experiment.described import Task
from offcut.experiment.limits import Bound, Limits
from offcut.experiment.machine import describe
from offcut.experiment.options import bench_parser
from offcut.experiment.ours import Ours
from offcut.experiment.outputs import check_writable
from offcut.experiment.peers import COMPILED, Contender, Peers, load_peers
from offcut.experiment.sweep import Cell, measure_point
from offcut.experiment.timing import Clock, Ratio, paired_ratio, restart_with_threads

PEERS = ("numpy", "torch", "onnxruntime", "openvino")
PATIENCE = 1.0
"""Seconds that one call may be expected to last; a slower contender leaves the cell out."""

WIDTH = 140
"""Columns of the printed tables where there is no terminal that has a width of its own."""


@dataclass(frozen=True, slots=True)
class Group:
    """The cells of one table, which share kernels and packed constants.

    tasks  row label -> what makes the task, when it is its turn; small ones first
    swept  symbolic letters of contractions, each with the least and largest extent
    """

    title: str
    tasks: Mapping[str, Callable[[], Task]]
    swept: Mapping[str, tuple[int, int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Asked:
    """What a bench is asked for: speed over the best peer, and share of the limit; None: nothing.

    mean   geometric mean of the speed over the best of all peers, per cell
    worst  its least
    share  geometric mean of the share of the limit
    """

    mean: float | None = None
    worst: float | None = None
    share: float | None = None


@dataclass(frozen=True, slots=True)
class Options:
    """What the command line says.

    cells    regular expression that is looked for in ``title: label``; empty takes all
    budget   seconds per cell and contender
    slow     whether peers that take minutes to prepare take part
    """

    quick: bool = False
    slow: bool = False
    cells: str = ""
    threads: int = 1
    budget: float = 0.12
    json: Path | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """One cell of the bench: what was measured there.

    cells  one per contender, offcut first
    bound  the physical limit, measured in the same run
    """

    group: str
    label: str
    task: Mapping[str, int]
    flop: int
    moved: int
    cells: tuple[Cell, ...]
    bound: Bound

    @property
    def ours(self) -> Cell:
        """The cell of offcut."""
        return self.cells[0]

    @property
    def best_peer(self) -> Cell | None:
        """The fastest of the others; None where none was measured."""
        measured = [cell for cell in self.cells[1:] if cell.timing is not None]
        return min(
            measured, key=lambda cell: cell.timing.seconds if cell.timing else 0, default=None
        )

    @property
    def ratio(self) -> Ratio | None:
        """Time of the best peer over that of offcut: above 1, offcut is faster."""
        best = self.best_peer
        if best is None or best.timing is None or self.ours.timing is None:
            return None
        return paired_ratio(best.timing, self.ours.timing)

    @property
    def share(self) -> float | None:
        """Of the limit."""
        timing = self.ours.timing
        return None if timing is None else self.bound.seconds / timing.seconds


def read_options(text: str, threads: int = 1, without: Collection[str] = ()) -> Options:
    """The options of a bench, from the command line; starts again with the threads that they ask.

    text     the bench's docstring
    threads  those that are taken where the command line says nothing
    without  options that the bench has no use for
    """
    parser = bench_parser(text)
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
    unused: dict[str, Any] = {"slow": False, "cells": "", "budget": None}
    read = unused | vars(parser.parse_args())
    if read["budget"] is None:
        read["budget"] = 0.04 if read["quick"] else 0.12
    restart_with_threads(read["threads"])
    return Options(**read)


def run(bench: str, groups: Iterable[Group], asked: Asked, options: Options) -> int:
    """Measure, print and write; 0, or 1 where somebody's values were wrong.

    bench   name in the JSON file
    """
    if options.json is not None:
        check_writable(options.json, "bench")
    console = Console()
    if not console.is_terminal:
        console = Console(width=WIDTH)
    peers = load_peers((*PEERS, *([COMPILED] if options.slow else [])), options.threads)
    rows: list[Row] = []
    limits = Limits(options.threads)
    compiled: dict[str, float] = {}
    refused: dict[str, str] = {}
    with peers.session():
        for group in groups:
            chosen = {
                label: make
                for label, make in group.tasks.items()
                if re.search(options.cells, f"{group.title}: {label}")
            }
            if not chosen:
                continue
            ours = Ours(group.swept, options.threads)
            contenders = (ours, *peers.found)
            found = measure_group(group.title, chosen, contenders, limits, options, console)
            console.print(group_table(group.title, found, [c.name for c in peers.found]))
            console.print(f"limits: {limits}", highlight=False, soft_wrap=True)
            for form, reason in ours.refused.items():
                console.print(f"{form}: {reason}", style="yellow", highlight=False)
            rows += found
            compiled |= ours.seconds
            refused |= ours.refused
    if not rows:
        console.print("no cell was measured")
        return 1
    console.print(summary_table(rows, asked))
    console.print(_closing(peers, compiled), highlight=False, soft_wrap=True)
    if options.json is not None:
        everything = {
            "bench": bench,
            "machine": str(describe()),
            "versions": peers.versions,
            "missing": peers.missing,
            "threads": options.threads,
            "budget": options.budget,
            "asked": asdict(asked),
            "limits": str(limits),
            "compile_seconds": compiled,
            "refused": refused,
            "rows": list(map(as_json, rows)),
        }
        options.json.write_text(json.dumps(everything, indent=1, ensure_ascii=False) + "\n")
        console.print(f"wrote {options.json}")
    wrong = [(row, cell) for row in rows for cell in row.cells if cell.wrong]
    for row, cell in wrong:
        where = f"{row.group}: {row.label}"
        console.print(f"WRONG VALUES: {cell.way} at {where}: {cell.wrong}", style="red")
    return 1 if wrong else 0


def measure_group(
    title: str,
    tasks: Mapping[str, Callable[[], Task]],
    contenders: Sequence[Contender],
    limits: Limits,
    options: Options,
    console: Console,
) -> list[Row]:
    """A row for each task; its limit is measured before and after, and the tighter one counts."""
    clock: Clock = time.process_time if options.threads == 1 else time.perf_counter
    expected: dict[str, float] = {}
    rows = []
    for label, make in track(tasks.items(), title, console=console):
        task = make()
        work = task.flop, task.moved, task.kind
        before = limits.now(*work)
        cells = measure_point(task, contenders, expected, budget=options.budget, clock=clock)
        bound = min(before, limits.now(*work), key=lambda bound: bound.seconds)
        for cell in cells:
            if cell.timing is not None and task.flop:
                expected[cell.contender] = (
                    task.flop / cell.timing.seconds * PATIENCE / options.budget
                )
        rows.append(Row(title, label, task.sizes, task.flop, task.moved, cells, bound))
    return rows


def group_table(title: str, rows: Sequence[Row], peers: Sequence[str]) -> Table:
    """Rates of everybody, in GFLOP/s or, where only bytes count, in GB/s."""
    unit = "GFLOP/s" if rows[0].flop else "GB/s"
    table = Table(
        *("", "offcut", *peers, "over the best peer", "limit", "by", "of it", "spread"),
        title=f"{title}, {unit}",
    )
    for row in rows:
        best, ratio, share = row.best_peer, row.ratio, row.share
        rates = []
        for cell in row.cells:
            shown = _rate(row, cell)
            rates.append(f"[bold]{shown}[/bold]" if cell is best else shown)
        spread = "–" if row.ours.timing is None else f"{row.ours.timing.spread:.0%}"
        limit = _number((row.flop or row.moved) / row.bound.seconds / 1e9)
        table.add_row(
            *(row.label, *rates, "–" if ratio is None else str(ratio), limit),
            *(row.bound.by, "–" if share is None else f"{share:.0%}", spread),
        )
    return table


def summary_table(rows: Sequence[Row], asked: Asked) -> Table:
    """What is asked and what was measured, one line each."""
    table = Table("offcut", "asked", "measured", "where")
    compared = [(row, row.ratio) for row in rows]
    ratios = [(row, ratio) for row, ratio in compared if ratio is not None]
    if ratios:
        mean = statistics.geometric_mean(ratio.value for _, ratio in ratios)
        count = f"{len(ratios)} of {len(rows)} cells"
        table.add_row("geometric mean over the best peer", _asked(asked.mean), f"{mean:.3f}", count)
        row, worst = min(ratios, key=lambda pair: pair[1].value)
        where = f"{row.group}: {row.label}"
        if row.best_peer is not None:
            where += f", {row.best_peer.way}"
        table.add_row("worst cell", _asked(asked.worst), str(worst), where)
    shares = [(row, row.share) for row in rows if row.share is not None]
    known = [share for _, share in shares if share is not None]
    if known:
        mean = statistics.geometric_mean(known)
        row = min(shares, key=lambda pair: pair[1] or 0)[0]
        where = f"least {min(known):.0%}, {row.group}: {row.label}, by {row.bound.by}"
        limit = "–" if asked.share is None else f"≥ {asked.share:.0%}"
        table.add_row("geometric mean of the limit", limit, f"{mean:.0%}", where)
    without = [row.label for row in rows if row.ours.timing is None]
    if without:
        table.add_row("cells without offcut", "0", str(len(without)), ", ".join(without[:6]))
    return table


def as_json(row: Row) -> dict[str, Any]:
    """Everything that is known of a cell of the bench."""
    ratio, best = row.ratio, row.best_peer
    return {
        "group": row.group,
        "cell": row.label,
        "sizes": dict(row.task),
        "flop": row.flop,
        "bytes": row.moved,
        "limit_seconds": row.bound.seconds,
        "limit_by": row.bound.by,
        "share_of_limit": row.share,
        "best_peer": None if best is None else best.way,
        "ratio_to_best_peer": None if ratio is None else [ratio.value, ratio.low, ratio.high],
        "contenders": {cell.contender: _measured(cell) for cell in row.cells},
    }


def _measured(cell: Cell) -> dict[str, Any]:
    if cell.timing is None:
        return {"note": cell.note, "wrong": cell.wrong}
    low, high = cell.timing.quartiles
    return {
        "way": cell.way,
        "seconds": cell.timing.seconds,
        "quartiles": [low, high],
        "calls": cell.timing.calls,
        "rounds": len(cell.timing.samples),
    }


def _closing(peers: Peers, compiled: Mapping[str, float]) -> str:
    lines = [", ".join(peers.versions)]
    lines += [f"missing: {name} is not installed" for name in peers.missing]
    if compiled:
        slowest = max(compiled, key=lambda form: compiled[form])
        total = sum(compiled.values())
        lines.append(f"compiled in {total:.1f} s; longest {compiled[slowest]:.1f} s, {slowest}")
    lines.append(f"machine: {describe()}")
    return "\n".join(lines)


def _rate(row: Row, cell: Cell) -> str:
    if cell.timing is None:
        return "WRONG" if cell.wrong else "> 1 s" if "budget" in cell.note else "–"
    return _number((row.flop or row.moved) / cell.timing.seconds / 1e9)


def _number(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 1 else f"{value:.2g}"


def _asked(value: float | None) -> str:
    return "–" if value is None else f"≥ {value:g}"
