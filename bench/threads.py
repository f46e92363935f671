"""Two threads over one, dense float32 layers of M ≥ 64.

    python bench/threads.py                # ten minutes
    python bench/threads.py --quick        # a few M: under a minute
    python bench/threads.py --threads 4    # four threads over one

Needs as many idle cores as threads. Seconds on the wall; one kernel for each number of threads, in
turns. A ratio is the median of the ratios within one round with its 95 % interval.
"""

from __future__ import annotations

import json
import re
import statistics
import time

from rich.console import Console
from rich.progress import track
from rich.table import Table

from offcut.experiment.cells import Group, Options, read_options
from offcut.experiment.layers import LAYERS, QUICK_LAYERS, ROWS, dense_groups
from offcut.experiment.machine import describe
from offcut.experiment.ours import Ours
from offcut.experiment.sweep import Cell, measure_point
from offcut.experiment.timing import Ratio, paired_ratio

LEAST = 64
QUICK_ROWS = (64, 129, 512)
ASKED = 1.85
SWEPT = {"m": (1, max(ROWS))}
Row = tuple[str, tuple[Cell, ...], Ratio | None]
"""A cell's label, its measurement on one thread and on several, and time of one over several."""


def measure_layer(group: Group, options: Options, console: Console) -> list[Row]:
    """One layer at every M that was asked for."""
    one, several = Ours(SWEPT, 1, "one"), Ours(SWEPT, options.threads, "several")
    rows: list[Row] = []
    chosen = [x for x in group.tasks if re.search(options.cells, f"{group.title}: {x}")]
    for label in track(chosen, group.title, console=console):
        task = group.tasks[label]()
        cells = measure_point(
            task, (one, several), {}, budget=options.budget, clock=time.perf_counter
        )
        first, other = (cell.timing for cell in cells)
        ratio = None if first is None or other is None else paired_ratio(first, other)
        rows.append((f"{group.title}: {label}", cells, ratio))
    for form, reason in (one.refused | several.refused).items():
        console.print(f"{form}: {reason}", style="yellow", highlight=False)
    return rows


def table(rows: list[Row], threads: int) -> Table:
    """GFLOP/s on one thread and on several, and the ratio."""
    shown = Table("", "one thread", f"{threads} threads", "ratio", title="GFLOP/s")
    for label, cells, ratio in rows:
        rates = ("–" if cell.gflops is None else f"{cell.gflops:.1f}" for cell in cells)
        interval = "–" if ratio is None else f"{ratio.value:.2f} ({ratio.low:.2f}–{ratio.high:.2f})"
        shown.add_row(label, *rates, interval)
    return shown


def main() -> None:
    """Measure, print, write."""
    options = read_options(__doc__ or "", threads=2, without=("slow",))
    console = Console()
    layers = QUICK_LAYERS if options.quick else LAYERS
    sizes = QUICK_ROWS if options.quick else tuple(m for m in ROWS if m >= LEAST)
    groups = dense_groups("float32", layers, sizes)
    rows = [row for group in groups for row in measure_layer(group, options, console)]
    console.print(table(rows, options.threads))
    ratios = [ratio.value for _, _, ratio in rows if ratio is not None]
    if ratios:
        mean, worst = statistics.geometric_mean(ratios), min(ratios)
        console.print(f"{options.threads} threads over one: {mean:.2f}, worst {worst:.2f}")
        console.print(f"asked of two threads: ≥ {ASKED}")
    console.print(f"machine: {describe()}", highlight=False, soft_wrap=True)
    if options.json is not None:
        figures = [
            {
                "cell": label,
                "ratio": None if ratio is None else [ratio.value, ratio.low, ratio.high],
            }
            for label, _, ratio in rows
        ]
        everything = {"bench": "threads", "threads": options.threads, "rows": figures}
        options.json.write_text(json.dumps(everything | {"machine": str(describe())}, indent=1))


if __name__ == "__main__":
    main()
