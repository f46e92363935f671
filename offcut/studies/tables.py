"""The tables of a study: speed over the baseline, cells, latency, regret, predictions, what the targets' tables add, failures."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

from offcut.experiment.timing import Timing
from offcut.studies.contenders import NO_WAY
from offcut.studies.goals import Goal
from offcut.studies.results import Results
from offcut.studies.rows import Row
from offcut.studies.samples import WRONG
from offcut.studies.statistics import PERCENTILES, Regret, call_interval, call_seconds, is_loaded
from offcut.studies.table import NONE, Table, plural, shown, shown_ratio, transposed
from offcut.studies.target_tables import target_tables


def tables(results: Results) -> Iterator[Table]:
    """Yield the tables: speed over the baseline, the goals, the rows, the cells, latency over the distribution of sizes, regret, predictions."""
    if len(results.contenders) > 1:
        yield _summary(results)
    yield goals_table(results.definition.goals, results.rows)
    yield rows_table(results.rows, results.definition.baseline, results.contenders)
    yield cells_table(results.rows, results.definition.baseline, results.contenders)
    yield _latency(results)
    if len(results.ours) > 1:
        yield _regret(results)
    if any(results.predicted(name) for name in results.contenders):
        yield _predictions(results)
    yield from target_tables(results)
    failures = tuple(
        (row.operator, row.name, name, one.failed)
        for row in results.rows
        for name, one in row.samples.items()
        if one.failed
    )
    caption, columns = "Cells that were not measured, and why.", "operator sizes contender reason"
    yield Table("failed", caption, tuple(columns.split()), failures, 4)


def failure_lines(rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Yield a line for each reason of each contender; of a peer that computes no such operator, none.

    rows  of the table ``failed``: operator, sizes, contender, reason
    """
    places: dict[tuple[str, str], list[str]] = {}
    for operator, sizes, contender, reason in rows:
        if not reason.startswith(NO_WAY):
            label = " ".join(filter(None, (operator, sizes)))
            places.setdefault((contender, reason), []).append(label)
    for (contender, reason), labels in places.items():
        more = labels[1:] and f" and {plural(len(labels) - 1, 'other row')}"
        yield f"{labels[0]} {contender}{more or ''}: {reason}"


_MOST_COLUMNS = 8
"""Contenders that stand side by side in the table of speeds; more of them, and more than there are operators, stand one below the other."""


def _summary(results: Results) -> Table:
    """Return the geometric mean of each contender's speed over the baseline, by operator and over all."""
    baseline = results.definition.baseline
    others = [name for name in results.contenders if name != baseline]
    parts = {one.name: results.of(one.name) for one in results.definition.operators}
    lines = [*parts.items(), *([("all", results.rows)] if len(parts) > 1 else [])]
    rows = []
    for label, some in lines:
        means = (results.mean_over(name, baseline, some) for name in others)
        rows.append((label, *(NONE if one is None else str(one.ratio) for one in means)))
    caption = f"Geometric mean of the speed over {baseline} with its 95 % interval; above 1, the contender is faster."
    table = Table("speed", caption, ("operator", *others), tuple(rows))
    is_wide = len(others) > max(_MOST_COLUMNS, len(rows))
    return transposed(table, "contender") if is_wide else table


def goals_table(goals: Iterable[Goal], rows: Sequence[Row]) -> Table:
    """Return the goals with the measured values, a line for each threshold."""
    lines = tuple(line for goal in goals for line in goal.lines(rows))
    caption = "The goals, and the measured values; above 1, the contender is faster."
    return Table("goals", caption, ("what", "goal", "measured", "where"), lines, 4)


def rows_table(rows: Sequence[Row], contender: str, contenders: Sequence[str]) -> Table:
    """Return everybody's median in each row, and the time of the best peer over that of `contender`."""
    limited = any(one.limit for row in rows for one in row.measured)
    peers = any(row.peers for row in rows)
    columns = ("operator", "sizes", "unit", *contenders)
    columns += (f"{contender} over the best peer",) if peers else ()
    columns += ("limit", "by", "of it") if limited else ()
    lines = tuple(
        (
            *(row.operator, row.name, row.unit),
            *(_figure_of(row, name) for name in contenders),
            *([_over_peers(row, contender)] if peers else []),
            *(_limit_of(row, contender) if limited else ()),
            _spread(row, contender),
        )
        for row in rows
    )
    caption = (
        f"Medians of a call, and the distance of the quartiles of {contender} over its median."
    )
    return Table("rows", caption, (*columns, "spread"), lines, 3)


def _figure_of(row: Row, name: str) -> str:
    one = row.samples.get(name)
    if one is None or not one.seconds:
        return "WRONG" if one is not None and one.failed.startswith(WRONG) else NONE
    return number(row.figure(one, call_seconds(one)))


def _over_peers(row: Row, contender: str) -> str:
    over = row.over(contender, row.fastest(row.peers))
    return NONE if over is None else str(over)


def _limit_of(row: Row, contender: str) -> tuple[str, str, str]:
    one = next((one for one in row.measured if one.limit), None)
    if one is None:
        return NONE, NONE, NONE
    return number(row.figure(one, one.limit)), one.limit_by, shown(row.share(contender), 1.0, ".0%")


def _spread(row: Row, contender: str) -> str:
    one = row.samples.get(contender)
    if one is None or not one.seconds:
        return NONE
    return f"{Timing(one.seconds, one.calls).spread:.0%}"


def number(value: float) -> str:
    """Return a positive number with three digits, or all before the point."""
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.3g}"


def cells_table(measured: Sequence[Row], baseline: str, contenders: Sequence[str]) -> Table:
    """Return each cell's median with its and the baseline's time over it; axes that all operators have are columns, too."""
    rows = []
    axes = {tuple(row.sizes) for row in measured}
    axis_columns = next(iter(axes)) if len(axes) == 1 else ()
    for row in measured:
        for name, one in ((name, row.samples.get(name)) for name in contenders):
            if one is None or not one.seconds:
                continue
            seconds = call_seconds(one)
            rows.append(
                (
                    *(row.operator, row.name, f"{row.weight:.4g}", name, one.way),
                    *(f"{x * 1e6:.4g}" for x in (seconds, *call_interval(one))),
                    shown(one.flop / seconds, 1e-9),
                    *shown_ratio(row.over(name, baseline), ".4f"),
                    *(shown(one.predicted, 1e6), shown(one.limit, 1e6), one.limit_by or NONE),
                    NONE if one.error is None else f"{one.error:.2g}",
                    *(shown(one.energy, 1.0, ".3g"), shown(sum(one.bytes.values()), 1, "d")),
                    *(str(len(one.seconds)), str(len({*one.process}) or 1), str(one.calls)),
                    *(one.clock, "yes" if is_loaded(one) else "no"),
                    *(str(row.sizes[axis]) for axis in axis_columns),
                )
            )
    columns = (
        *("operator", "sizes", "weight", "contender", "way", "µs", "µs low", "µs high", "GFLOP/s"),
        *(f"over {baseline}", "low", "high", "predicted µs", "limit µs", "limit by", "error"),
        *("predicted J", "predicted bytes, all memories"),
        *("rounds", "processes", "calls", "clock", "loaded", *axis_columns),
    )
    caption = (
        "Medians of a call with their 95 % intervals; errors are parts of the largest element."
    )
    return Table("cells", caption, columns, tuple(rows), 5)


def _latency(results: Results) -> Table:
    """Return percentiles of a call over the distribution of sizes."""
    rows = []
    for operator in results.definition.operators:
        for name in results.contenders:
            if times := results.latency(name, results.of(operator.name)):
                each = (f"{times[p] * 1e6:.4g}" for p in PERCENTILES)
                rows.append((operator.name, name, *each))
    clocks = sorted({one.clock for one in results.samples if one.seconds})
    caption = f"Percentiles of a call in µs over the distribution of sizes, by {', '.join(clocks) or 'no clock'}."
    columns = ("operator", "contender", *(f"p{p}" for p in PERCENTILES))
    return Table("latency", caption, columns, tuple(rows), 2)


def _regret(results: Results) -> Table:
    """Return how much longer each of ours takes than the best fixed one of an operator, and than the best of each cell."""
    rows = []
    for name in results.ours:
        fixed, oracle = results.regrets(name)
        rows.append((name, *_regret_figures(fixed), *_regret_figures(oracle)))
    to_oracle = ("mean to oracle", "worst to oracle", "at, to oracle")
    columns = ("contender", "mean", "worst", "at", *to_oracle)
    caption = "How much longer a contender takes than the best fixed one for an operator, and than the fastest at each size (the oracle)."
    return Table("regret", caption, columns, tuple(rows))


def _regret_figures(one: Regret | None) -> tuple[str, str, str]:
    return (NONE, NONE, NONE) if one is None else (f"{one.mean:.2%}", f"{one.worst:.2%}", one.at)


def _predictions(results: Results) -> Table:
    rows = []
    for name in results.ours:
        pairs = results.predicted(name)
        if pairs:
            ratios = sorted(p / m for p, m in pairs)
            middle = results.bias(name) or math.nan
            near = sum(1 for one in ratios if 1 / 1.15 <= one <= 1.15) / len(ratios)
            three = (f"{x:.3f}" for x in (middle, ratios[0], ratios[-1]))
            rows.append((name, str(len(ratios)), *three, f"{near:.0%}"))
    columns = ("contender", "cells", "median", "least", "greatest", "within 15 %")
    return Table("predicted", "Predicted over measured seconds.", columns, tuple(rows))
