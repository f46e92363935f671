"""What the closed form is worth without a measurement: how it orders schedules, and what following it costs; then what
a correction adds that is learned from these measurements, on shapes and operators that were left out.

    python bench/cost_model.py            # twelve programs, about ten minutes
    python bench/cost_model.py --quick    # a few schedules of each: two minutes

Of each program schedules are taken of its space: half of them at random, half those that are predicted the
fastest of many at random; with the default and each of its ways. All are measured at sizes that nothing
was fitted to, each in turns with the default. Orders are judged at each size by itself, and the median over the sizes
is told, with the least; a pair of schedules whose times are within their noise is no pair: that of a time in its batch, and
that of the default from one batch to the next, both of which the records know. The
oracles are the fastest of what was measured. Where XGBoost is installed, a second table has the closed form, what is
learned alone and the pair, of all programs' pairs together. With `--json figures.json` the measurements stay in figures.sqlite, for `offcut learn`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from math import isfinite
from pathlib import Path
from random import Random
from statistics import geometric_mean, median
from tempfile import TemporaryDirectory
from time import process_time

from harness import Options, read_options
from programs import Judged, programs
from rich.table import Table as Grid

import offcut as oc
from offcut.backends.decide import proved_plan
from offcut.costmodel.learned import library
from offcut.costmodel.learned.metrics import pairwise_accuracy, recall_at, regret
from offcut.experiment.machine import describe
from offcut.experiment.outputs import wide_console
from offcut.experiment.timing import Timing
from offcut.schedule import Schedule
from offcut.search import Expected, Points, Records, Space, key_of
from offcut.tuning.exhaustive import Table
from offcut.tuning.exhaustive.regret import chosen_by, fill_table
from offcut.tuning.exhaustive.space_table import limit_variants, single_variant_schedules
from offcut.tuning.learning.heldout import held_out, table
from offcut.tuning.learning.learn import learn
from offcut.tuning.measuring.candidate import Bench
from offcut.tuning.problem import Limits, Measured, make_problem
from offcut.tuning.schedule_prices import price_of

SCHEDULES, QUICK = 64, 16
"""Of each program."""

DRAWN = 400
"""Among which those are that are predicted the fastest."""

RECALL = 30
ASKED = {"pairwise": "≥ .80", "recall": "≥ .75", "regret": "≤ 10 %", "auto": "≥ .98"}


@dataclass(frozen=True)
class Figures:
    """Of one program; each order at the median size and at the worst.

    predicted  seconds of the default over those measured, the geometric mean over the sizes
    auto       share of the speed of the fastest of its ways at each size that the default has
    default    share of the speed of the fastest of all at each size that the default has
    spread     of a time, in the median, and that of the default's from one batch to the next
    priced     seconds of processor time that a price took in search, each schedule once
    """

    program: str
    schedules: int
    pairwise: tuple[float, float]
    recall: tuple[float, float]
    regret: tuple[float, float]
    predicted: float
    auto: float
    default: float
    spread: tuple[float, float]
    priced: float


def drawn(space: Points, expected: Expected, count: int) -> list[Schedule]:
    """Schedules that look legal: half of them at random, half those predicted the fastest."""
    rng = Random(0)
    found = dict.fromkeys(space.sample(rng) for _ in range(DRAWN))
    legal = [one for one in found if isfinite(expected(one))]
    some = legal[: count // 2]
    return [*some, *(one for one in sorted(legal, key=expected) if one not in some)][:count]


def figures(judged: Judged, count: int, budget: float, records: Records) -> Figures:
    """Measure the schedules of a program into records, and judge the closed form by them."""
    target = oc.target("cpu")
    options = target.options("tune", threads=1)
    given = judged.output, judged.inputs, judged.constants, judged.held_out
    problem = make_problem("tune", *given, target, options)
    weights = problem.sizes
    planned = proved_plan(target, problem.request, options)
    whole = target.space(planned, problem.request, options, 1)
    assert isinstance(whole, Space)
    space = limit_variants(whole, 1)
    price = price_of(problem, space.computation, None)
    expected = Expected(price, {key_of(at): weight for at, weight in weights})
    began = process_time()
    picked = drawn(space, expected, count)
    priced = (process_time() - began) / max(expected.looked, 1)
    points = (*picked, *single_variant_schedules(whole.first))
    wanted = dict.fromkeys((whole.first, *points))
    with Bench(problem, Limits(budget=budget, resolution=0.01)) as bench:
        beside: list[tuple[float, ...]] = []

        def each(schedules: Sequence[Schedule], tell: Callable[[Measured], None]) -> None:
            def told(one: Measured) -> None:
                beside.append(one.reference)
                tell(one)

            bench.each(schedules, told)

        measured = fill_table(problem, wanted, records, price, each)
    between = [Timing(one, 1).spread for one in zip(*filter(None, beside), strict=True)]
    measures = Table(weights, tuple(dict.fromkeys(points)), measured)
    guesses = {one: price(one) for one in measures.sound}
    orders: list[tuple[float, float, float]] = []
    for place, key in enumerate(measures.keys):
        times = [measured[one].times[place] for one in measures.sound]
        seconds, predicted = [t.seconds for t in times], [guesses[s][key] for s in measures.sound]
        accuracy = pairwise_accuracy(seconds, predicted, [time.spread for time in times])
        orders.append((accuracy, recall_at(RECALL, seconds, predicted), regret(seconds, predicted)))
    pairs, recalls, regrets = zip(*orders, strict=True)
    default = measures.seconds(whole.first)
    ratios = [price(whole.first)[k] / t for k, t in zip(measures.keys, default, strict=True)]
    choice = chosen_by(measures, whole.first)
    return Figures(
        judged.name,
        len(measures.sound),
        (median(pairs), min(pairs)),
        (median(recalls), min(recalls)),
        (median(regrets), max(regrets)),
        geometric_mean(ratios) if all(ratios) else 0.0,
        1.0 if choice is None else choice.whole,
        measures.of_oracle(default)[0],
        (measures.spread, median(between)),
        priced,
    )


def main() -> None:
    """Judge each program, print a row for each, and the worst of all; then learn from what was measured."""
    options = read_options(__doc__ or "", ("cells", "budget", "json"))
    with TemporaryDirectory() as folder:
        kept = Path(folder) / "records.sqlite"
        if options.json is not None:
            kept = options.json.with_suffix(".sqlite")
            if kept.exists():
                raise SystemExit(f"{kept} is there: what was measured before is not measured again")
        judge(options, Records(kept))
        if library.there() and kept.exists():
            done = learn([kept], Path(folder) / "model.json", Path(folder) / "model.npz")
            wide_console().print(table(held_out(done.rows)))


def judge(options: Options, records: Records) -> None:
    """Print a row for each program, and the worst of all."""
    console, found = wide_console(), list[Figures]()
    heads: tuple[str, ...] = (
        "program",
        "schedules",
        "pairwise",
        "least",
        f"recall@{RECALL}",
        "least",
    )
    heads += ("top-1 regret", "most", "predicted/measured", "auto of its ways")
    grid = Grid(
        *heads,
        "default of the oracles",
        "spread",
        "of batches",
        "ms a price",
        title="the closed form, nothing measured",
    )
    for name, make in programs().items():
        if not re.search(options.cells, name):
            continue
        try:
            one = figures(*(make(), QUICK if options.quick else SCHEDULES, options.budget, records))
        except oc.OffcutError as refused:
            grid.add_row(name, refused.because)
            continue
        found.append(one)
        grid.add_row(
            *(name, f"{one.schedules}", *(f"{x:.2f}" for x in (*one.pairwise, *one.recall))),
            *(f"{x:.1%}" for x in one.regret),
            *(f"{one.predicted:.2f}", f"{one.auto:.3f}", f"{one.default:.3f}"),
            *(f"{x:.1%}" for x in one.spread),
            f"{1e3 * one.priced:.2f}",
        )
    console.print(grid)
    closing = Grid("median over the programs", "asked", "measured", "worst")
    for figure, values in (
        ("pairwise", [one.pairwise[0] for one in found]),
        ("recall", [one.recall[0] for one in found]),
        ("auto", [one.auto for one in found]),
        ("regret", [-one.regret[0] for one in found]),
    ):
        if values:
            middle, worst = abs(median(values)), abs(min(values))
            closing.add_row(figure, ASKED[figure], f"{middle:.3f}", f"{worst:.3f}")
    console.print(closing)
    console.print(f"machine: {describe()}", highlight=False, soft_wrap=True)
    if options.json is not None:
        told = {"bench": "cost_model", "machine": str(describe()), "rows": list(map(asdict, found))}
        Path(options.json).write_text(json.dumps(told, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
