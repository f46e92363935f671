"""Dense float32 layers at every kind of M: `auto` against every peer, the limit, and fixed strategies.

    python bench/dense_fp32.py            # all of it: half an hour
    python bench/dense_fp32.py --quick    # a few M, two layers: under a minute

One thread, a constant packed B. All candidates of a cell take turns in one process, each round in an
order of its own; a figure is the median over the rounds, of processor time, a comparison the median
of the ratios within one round with its 95 % interval. Writes out/dense_fp32.csv and out/dense_fp32.png.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from layers import (
    LAYERS,
    ODD_LAYERS,
    QUICK_LAYERS,
    QUICK_ROWS,
    ROWS,
    dense_groups,
)

from offcut.core.extras import is_installed
from offcut.experiment.bench import PEERS, Group, read_options, run
from offcut.experiment.machine import describe
from offcut.experiment.ours import Ours, strategies
from offcut.experiment.outputs import check_writable
from offcut.experiment.plots import plot_lines
from offcut.experiment.table import (
    Asked,
    Line,
    Over,
    Row,
    lines,
    mean_line,
    overs,
    to_csv,
    worst_line,
)

ASKED = Asked(mean=1.1, worst=0.95, share=0.85)
FIXED = ("cut", "mask", "pad", "shift", "ladder", "balance")
"""The strategies that `auto` is held against; `guard` is left out, it is never the best."""

REGRET = 1.08
"""Time of `auto` over the best fixed strategy that no cell may exceed."""

OUT = Path("out")


def own(group: Group) -> tuple[Ours, ...]:
    """`auto`, and the fixed strategies."""
    return strategies(("auto", *FIXED), group.swept)


def regret(row: Row) -> Over | None:
    """Time of `auto` over that of the best fixed strategy."""
    over = row.over(*FIXED)
    return None if over is None else replace(over, ratio=over.ratio.inverse)


def regrets(row: Row) -> bool:
    """Whether the whole interval of the regret is beyond what is asked.

    The best of several noisy medians is biased low, so such a cell is measured once more.
    """
    found = regret(row)
    return found is not None and found.ratio.low > REGRET


def more(rows: Sequence[Row]) -> Iterator[Line]:
    """What is asked of `auto` beside the best peer."""
    for peer, asked in (("torch.mm", 1.25), ("numpy", 1.4)):
        yield mean_line(f"geometric mean over {peer}", asked, overs(rows, peer), len(rows))
    yield worst_line("worst cell over the better", 0.9, overs(rows, "torch.mm", "numpy"))
    prepacked = overs(rows, "torch.mm", "torch")
    yield mean_line("geometric mean over torch at its best", None, prepacked, len(rows))
    found = [one for one in map(regret, rows) if one is not None]
    what, _, mean, where = mean_line("geometric mean of the regret", None, found, len(rows))
    yield what, "≤ 1.03", mean, where
    if found:
        worst = max(found, key=lambda one: one.ratio.value)
        yield "largest regret", "–", str(worst.ratio), worst.where
    beyond = [one for one in found if one.ratio.low > REGRET]
    yield (
        "cells with regret beyond 8 %",
        "0",
        str(len(beyond)),
        "\n".join(f"{one.where}, {one.ratio}" for one in beyond),
    )


def main() -> None:
    """Measure, print, write."""
    options = read_options(__doc__ or "", without=("slow", "threads"))
    table, picture = OUT / "dense_fp32.csv", OUT / "dense_fp32.png"
    check_writable(table, "bench")
    layers, sizes = (QUICK_LAYERS, QUICK_ROWS) if options.quick else (LAYERS + ODD_LAYERS, ROWS)
    status, rows = run(
        "dense_fp32",
        dense_groups("float32", layers, sizes),
        ASKED,
        options,
        own=own,
        peers=("torch.mm", *PEERS),
        more=more,
        again=regrets,
    )
    if rows:
        machine = f"machine: {describe()}"
        about = f"dense float32, constant packed B, one thread, {options.budget:g} s per cell"
        table.write_text(to_csv(rows, (machine, about)))
        print(f"wrote {table}")
    if rows and is_installed("matplotlib"):
        drawn = lines([row for row in rows if row.group == rows[0].group], "m")
        plot_lines(
            picture,
            {name: points for name, points in drawn.items() if name not in FIXED},
            title=f"{rows[0].group}, {about}",
            x_label="M",
            footer=machine,
            dashed=("torch.mm", *PEERS),
            bold=("auto",),
        )
        print(f"wrote {picture}")
    raise SystemExit(status)


if __name__ == "__main__":
    main()
