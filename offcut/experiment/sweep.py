"""One contraction, many sizes, several strategies and peers: how fast is each where?"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import inf
from pathlib import Path

import numpy as np
from rich.console import Console

from offcut import debug
from offcut.core.extras import absent, is_installed
from offcut.experiment.bench import Group, Options, run
from offcut.experiment.contraction import (
    check_letters,
    constant_operands,
    draw,
    make_problem,
    parse_contraction,
)
from offcut.experiment.machine import describe
from offcut.experiment.ours import strategies
from offcut.experiment.outputs import check_writable
from offcut.experiment.plots import plot_lines
from offcut.experiment.sizes import points_of, read_axes
from offcut.experiment.table import Asked, Row, in_a_line, lines, to_csv, wide_console
from offcut.partition.show.figure_io import check_format


def sweep(
    text: str,
    fixed: Mapping[str, int],
    sizes: Sequence[str],
    *,
    names: Sequence[str],
    against: Sequence[str],
    points: int | None,
    budget: float,
    seconds: float | None,
    pack: bool,
    csv: Path,
    png: Path,
) -> int:
    """Measure the contraction `text`, print a table, write `csv` and `png`; 1 for wrong values.

    Each size is in `csv` as soon as it is measured, and off a terminal, which has a bar, a line on standard error.

    fixed    letter -> extent of the axes that are not swept
    sizes    of the others, as `read_axes` reads them, `points` of them at most
    names    strategies; the ratios to the best peer are of the first
    against  peers
    budget   seconds per cell, which one call may take at most
    seconds  from the first size on, which is always measured, after which none is begun; None: all are measured
    pack     whether operands after the first without swept sizes are packed constants

    Raises DescribeError where these do not fit, OffcutError where a file cannot be written.
    """
    for file in (csv, png):
        check_writable(file, "sweep")
    check_format("sweep", png)
    contraction, axes = parse_contraction(text), read_axes(sizes, points)
    ranges = {letter: (axis.values[0], axis.values[-1]) for axis in axes for letter in axis.letters}
    check_letters(contraction, fixed, ranges)
    ours, console = strategies(names, ranges), wide_console()
    rng = np.random.default_rng(0)
    constants = {
        name: draw(letters, fixed, rng)
        for name, letters in zip(contraction.names, contraction.operands, strict=True)
        if pack and name in constant_operands(contraction, ranges)
    }
    extents = ", ".join(f"{letter}={extent}" for letter, extent in fixed.items())
    title = f"float32 {contraction}" + (f" at {extents}" if extents else "")
    packed = (
        f"packed constants: {', '.join(constants) or 'none'}; one thread, {budget:g} s per cell"
    )
    for line in (*map(str, axes), packed):
        console.print(line, highlight=False, style="dim", soft_wrap=True)
    tasks = {
        ", ".join(f"{letter}={extent}" for letter, extent in point.items()): partial(
            make_problem, contraction, {**fixed, **point}, constants, seed=number
        )
        for number, point in enumerate(points_of(axes))
    }
    facts = f"machine: {describe()}", title, packed
    status, rows = run(
        "sweep",
        [Group(title, tasks, ranges)],
        Asked(),
        Options(budget=budget, patience=budget, seconds=inf if seconds is None else seconds),
        own=lambda _: ours,
        peers=against,
        tell=_teller(csv, facts, len(tasks), console),
        over=f"{names[0]} over the best peer",
    )
    console.print(f"wrote {csv}", highlight=False)
    if not is_installed("matplotlib"):
        console.print(f"no picture: {absent('matplotlib')}", markup=False, soft_wrap=True)
        return status
    together = all(len(set(point.values())) == 1 for point in points_of(axes))
    letter = next(iter(ranges)) if together else "flop"
    plot_lines(
        png,
        lines(rows, letter),
        title=title,
        x_label=" = ".join(ranges) if together else "flop",
        footer="\n".join(facts),
        dashed=against,
        bold=("auto",),
    )
    console.print(f"wrote {png}", highlight=False)
    return status


def _teller(
    csv: Path, facts: Sequence[str], most: int, console: Console
) -> Callable[[Sequence[Row]], None]:
    """Writes the rows so far, of `most`, to `csv`, and tells of the last one where `console` shows no bar."""

    def tell(rows: Sequence[Row]) -> None:
        csv.write_text(to_csv(rows, facts))
        if not console.is_terminal:
            debug.note(
                0, f"sweep: {len(rows)} of {most}, {in_a_line(rows[-1])}", logger="experiment"
            )

    return tell
