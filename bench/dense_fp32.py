"""Dense float32 layers at every kind of M: `auto` against every peer, the limit, and fixed strategies.

    python bench/dense_fp32.py            # all of it: half an hour
    python bench/dense_fp32.py --quick    # a few M, two layers: under a minute

One thread, a constant packed B. All candidates of a cell take turns in one process, each round in an
order of its own; a figure is the median over the rounds, of processor time, a comparison the median
of the ratios within one round with its 95 % interval. Writes out/dense_fp32.csv and out/dense_fp32.png.
"""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

from offcut.experiment.cells import Row, as_json
from offcut.experiment.contraction import build, draw, make_problem
from offcut.experiment.layers import (
    DENSE,
    LAYERS,
    ODD_LAYERS,
    QUICK_LAYERS,
    QUICK_ROWS,
    ROWS,
)
from offcut.experiment.limits import Bound, Limits
from offcut.experiment.machine import describe
from offcut.experiment.options import bench_parser
from offcut.experiment.peers import load_peers
from offcut.experiment.plots import have_matplotlib, plot_lines
from offcut.experiment.sweep import Cell, Sweep, compile_strategies, measure_point
from offcut.experiment.timing import Ratio, paired_ratio, restart_single_threaded

FIXED = ("cut", "mask", "pad", "shift", "ladder", "balance")
"""The strategies that `auto` is held against; `guard` is left out, it is never the best."""

PEERS = ("numpy", "torch.mm", "torch", "onnxruntime", "openvino")
REGRET = 1.08
"""Time of `auto` over the best fixed strategy that no cell may exceed."""

WIDTH = 160
"""Columns of the printed tables where there is no terminal that has a width of its own."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Time of another over time of `auto` in one cell: above 1, `auto` is faster."""

    cell: str
    other: str
    ratio: Ratio


def measure_layer(
    k: int, n: int, sizes: Sequence[int], budget: float, limits: Limits, console: Console
) -> tuple[Sweep, tuple[Bound, ...]]:
    """Every candidate on one layer, at every M of `sizes`, and the limit of each.

    A cell whose regret is beyond what is asked is measured once more, three times as long, and the
    second measurement counts: the best of several noisy medians is biased low.
    """
    fixed = {"k": k, "n": n}
    computation = build(DENSE, fixed, {"m": (1, max(ROWS))})
    constants = {"B": draw("kn", fixed, np.random.default_rng(0))}
    ours = compile_strategies(("auto", *FIXED), computation, constants)
    peers = load_peers(PEERS)
    for name in ours.refused:
        console.print(f"{k}×{n}: {name} is refused for this layer", style="yellow")
    contenders = (*ours.compiled, *peers.found)
    for name in peers.missing:
        console.print(f"missing: {name} is not installed", style="yellow")
    points, bounds = [], []
    with peers.session():
        for m in track(sizes, f"{k}×{n}", console=console):
            problem = make_problem(DENSE, fixed | {"m": m}, constants, seed=m)
            work = problem.flop, problem.moved, problem.kind
            before = limits.now(*work)
            point = measure_point(problem, contenders, {}, budget=budget)
            worst = regret(point)
            if worst is not None and worst.ratio.low > REGRET:
                point = measure_point(problem, contenders, {}, budget=3 * budget)
            points.append(point)
            bounds.append(min(before, limits.now(*work), key=lambda bound: bound.seconds))
    sweep = Sweep(
        DENSE,
        letters=("m",),
        ours=tuple(contender.name for contender in ours.compiled),
        peers=tuple(contender.name for contender in peers.found),
        machine=str(describe()),
        facts=(
            f"{title(k, n)}, constant packed B, one thread, {budget:g} s per cell",
            ", ".join(peers.versions),
        ),
        points=tuple(points),
    )
    return sweep, tuple(bounds)


def title(k: int, n: int) -> str:
    """The name of a layer's table."""
    return f"float32 {k}×{n}"


def rows_of(sweep: Sweep, bounds: Sequence[Bound]) -> Iterator[Row]:
    """`auto` and the peers of each point, as the other benches have them."""
    for point, bound in zip(sweep.points, bounds, strict=True):
        sizes = point[0].sizes
        m, k, n = (sizes[letter] for letter in "mkn")
        cells = tuple(cell for cell in point if cell.contender in ("auto", *PEERS))
        moved = 4 * (m * k + k * n + m * n)
        yield Row(title(k, n), f"M={m}", sizes, point[0].flop, moved, cells, bound)


def share(point: Sequence[Cell], bound: Bound) -> float | None:
    """Of the limit, what `auto` reaches at `point`."""
    auto = next((cell for cell in point if cell.contender == "auto"), None)
    return None if auto is None or auto.timing is None else bound.seconds / auto.timing.seconds


def compare(point: Sequence[Cell], others: Iterable[str]) -> list[Comparison]:
    """`auto` against each of `others` that was measured at `point`."""
    timings = {cell.contender: cell.timing for cell in point if cell.timing is not None}
    auto = timings.get("auto")
    sizes = point[0].sizes
    cell = f"M={sizes['m']} at {sizes['k']}×{sizes['n']}"
    if auto is None:
        return []
    return [
        Comparison(cell, other, paired_ratio(timings[other], auto))
        for other in others
        if other in timings
    ]


def closest(points: Iterable[Sequence[Cell]], others: Sequence[str]) -> list[Comparison]:
    """`auto` against the fastest of `others`, per point where one was measured."""
    return [
        min(each, key=lambda comparison: comparison.ratio.value)
        for point in points
        if (each := compare(point, others))
    ]


def regret(point: Sequence[Cell]) -> Comparison | None:
    """Time of `auto` over the best fixed strategy; None when either was not measured."""
    timings = {cell.contender: cell.timing for cell in point if cell.timing is not None}
    fixed = [name for name in FIXED if name in timings]
    auto = timings.get("auto")
    if auto is None or not fixed:
        return None
    best = min(fixed, key=lambda name: timings[name].seconds)
    sizes = point[0].sizes
    cell = f"M={sizes['m']} at {sizes['k']}×{sizes['n']}"
    return Comparison(cell, best, paired_ratio(auto, timings[best]))


def geometric_mean(comparisons: Sequence[Comparison]) -> float:
    """Of the ratios; nan when there are none."""
    ratios = [comparison.ratio.value for comparison in comparisons]
    return statistics.geometric_mean(ratios) if ratios else float("nan")


def summary(sweeps: Sequence[Sweep], bounds: Sequence[Sequence[Bound]]) -> Table:
    """What is asked of `auto` and what was measured, one line each."""
    points = [point for sweep in sweeps for point in sweep.points]
    table = Table("auto", "asked", "measured", "where")
    for peer, asked in (("torch.mm", 1.25), ("numpy", 1.4)):
        found = [each for point in points for each in compare(point, [peer])]
        table.add_row(
            f"geometric mean over {peer}",
            f"≥ {asked:g}",
            f"{geometric_mean(found):.3f}" if found else "not installed",
            f"{len(found)} cells",
        )
    best = closest(points, PEERS)
    if best:
        worst = min(best, key=lambda comparison: comparison.ratio.value)
        mean = f"{geometric_mean(best):.3f}"
        table.add_row("geometric mean over the best peer", "≥ 1.1", mean, f"{len(best)} cells")
        where = f"{worst.cell}, {worst.other}"
        table.add_row("worst cell over the best peer", "≥ 0.95", str(worst.ratio), where)
    shares = [
        reached
        for sweep, each in zip(sweeps, bounds, strict=True)
        for point, bound in zip(sweep.points, each, strict=True)
        if (reached := share(point, bound)) is not None
    ]
    if shares:
        mean = f"{statistics.geometric_mean(shares):.0%}"
        table.add_row("geometric mean of the limit", "≥ 85%", mean, f"least {min(shares):.0%}")
    better = closest(points, ["torch.mm", "numpy"])
    if better:
        worst = min(better, key=lambda comparison: comparison.ratio.value)
        where = f"{worst.cell}, {worst.other}"
        table.add_row("worst cell over the better", "≥ 0.9", str(worst.ratio), where)
    prepacked = closest(points, ["torch.mm", "torch"])
    if prepacked:
        worst = min(prepacked, key=lambda comparison: comparison.ratio.value)
        mean = f"{geometric_mean(prepacked):.3f}"
        where = f"worst {worst.ratio}, {worst.cell}"
        table.add_row("geometric mean over torch at its best", "–", mean, where)
    regrets = [each for each in map(regret, points) if each is not None]
    if regrets:
        mean = f"{geometric_mean(regrets) - 1:+.1%}"
        worst = max(regrets, key=lambda comparison: comparison.ratio.value)
        where = f"{worst.cell}, {worst.other}"
        table.add_row("geometric mean of the regret", "≤ 3 %", mean, f"{len(regrets)} cells")
        table.add_row("largest regret, as a ratio", "–", str(worst.ratio), where)
        beyond = [each for each in regrets if each.ratio.low > REGRET]
        table.add_row("cells with regret beyond 8 %", "0", f"{len(beyond)}", _cells(beyond))
    return table


def _cells(comparisons: Iterable[Comparison]) -> str:
    return "\n".join(f"{each.cell}: {each.other}, {each.ratio}" for each in comparisons)


def layer_table(sweep: Sweep, bounds: Sequence[Bound]) -> Table:
    """GFLOP/s of every candidate at every M, and the share of the limit that `auto` reaches."""
    table = Table("M", *sweep.ours, *sweep.peers, "of the limit", title=sweep.facts[0])
    for point, bound in zip(sweep.points, bounds, strict=True):
        rates = ("–" if cell.gflops is None else f"{cell.gflops:.1f}" for cell in point)
        reached = share(point, bound)
        last = "–" if reached is None else f"{reached:.0%} {bound.by}"
        table.add_row(str(point[0].sizes["m"]), *rates, last)
    return table


def main() -> None:
    """Measure, print, write."""
    parser = bench_parser(__doc__ or "")
    parser.add_argument("--quick", action="store_true", help="a few M, two layers")
    parser.add_argument("--budget", type=float, default=0.12, help="seconds per cell")
    parser.add_argument("--cells", default="", help="only those with this regular expression")
    parser.add_argument("--json", type=Path, help="where all figures go")
    parser.add_argument("--out", type=Path, default=Path("out"), help="folder of CSV and PNG")
    options = parser.parse_args()
    restart_single_threaded()
    layers = QUICK_LAYERS if options.quick else LAYERS + ODD_LAYERS
    sizes = QUICK_ROWS if options.quick else ROWS
    console = Console()
    if not console.is_terminal:
        console = Console(width=WIDTH)
    limits = Limits()
    chosen = {
        (k, n): [m for m in sizes if re.search(options.cells, f"{title(k, n)}: M={m}")]
        for k, n in layers
    }
    measured = [
        measure_layer(k, n, some, options.budget, limits, console)
        for (k, n), some in chosen.items()
        if some
    ]
    if not measured:
        raise SystemExit("no cell was measured")
    sweeps, bounds = [sweep for sweep, _ in measured], [each for _, each in measured]
    for sweep, each in measured:
        console.print(layer_table(sweep, each))
        spread = "none" if sweep.spread is None else f"{sweep.spread:.1%}"
        console.print(f"distance of the quartiles over the median, middle cell: {spread}")
    console.print(summary(sweeps, bounds))
    console.print(f"limits: {limits}", highlight=False, soft_wrap=True)
    console.print(f"machine: {sweeps[0].machine}", highlight=False, soft_wrap=True)
    options.out.mkdir(parents=True, exist_ok=True)
    table = options.out / "dense_fp32.csv"
    about = f"float32 {DENSE}, constant packed B, one thread, {options.budget:g} s per cell"
    whole = [replace(sweep, facts=(about, *sweep.facts[1:])) for sweep in sweeps]
    first, *rest = (sweep.to_csv() for sweep in whole)
    bodies = (line for text in rest for line in text.splitlines() if not _heading(line))
    table.write_text(first + "".join(f"{line}\n" for line in bodies))
    console.print(f"wrote {table}")
    if options.json is not None:
        rows = [row for sweep, each in measured for row in rows_of(sweep, each)]
        figures: dict[str, object] = {
            "bench": "dense_fp32",
            "machine": sweeps[0].machine,
            "limits": str(limits),
        }
        figures |= {"rows": [as_json(row) for row in rows]}
        options.json.write_text(json.dumps(figures, indent=1, ensure_ascii=False) + "\n")
        console.print(f"wrote {options.json}")
    if have_matplotlib():
        picture = options.out / "dense_fp32.png"
        shown = ("auto", *PEERS)
        lines = sweeps[0].lines()
        plot_lines(
            picture,
            {name: lines[name] for name in shown if name in lines},
            title=sweeps[0].facts[0],
            x_label="M",
            footer=sweeps[0].machine,
            dashed=sweeps[0].peers,
            bold=("auto",),
        )
        console.print(f"wrote {picture}")
    wrong = [cell for sweep in sweeps for cell in sweep.mismatches]
    for cell in wrong:
        console.print(f"WRONG VALUES: {cell.way} at {dict(cell.sizes)}: {cell.wrong}", style="red")
    raise SystemExit(1 if wrong else 0)


def _heading(line: str) -> bool:
    return line.startswith(("#", "m,"))


if __name__ == "__main__":
    main()
