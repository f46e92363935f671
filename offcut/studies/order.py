"""The order of contenders by predictions: the share of pairs, of one operator at one vector of sizes, that predictions order as times do."""

from __future__ import annotations

from collections.abc import Mapping

from offcut.costmodel.learned import metrics
from offcut.studies.results import Results
from offcut.studies.statistics import call_seconds
from offcut.studies.table import NONE, Table

MIN_DIFFERENCE = 0.15
"""The part of the shorter time by which the longer one of a pair exceeds it, at least."""


def order_table(results: Results, targets: Mapping[str, str]) -> Table:
    """Return the share of pairs that predictions put in order, by target and operator, and for all operators of a target.

    targets  of each of our contenders: only contenders of one target make pairs
    """
    lines: list[tuple[str, ...]] = []
    for target in dict.fromkeys(targets.values()):
        names = [name for name in results.ours if targets[name] == target]
        total, total_count = 0.0, 0
        for operator in results.definition.operators:
            in_order, count, most = 0.0, 0, 0
            for row in results.of(operator.name):
                samples = [row.samples[name] for name in names if name in row.samples]
                samples = [one for one in samples if one.predicted and one.seconds]
                predicted = [one.predicted or 0.0 for one in samples]
                more, compared = metrics.pairs(
                    list(map(call_seconds, samples)), predicted, apart_by=MIN_DIFFERENCE
                )
                in_order, count, most = in_order + more, count + compared, max(most, len(samples))
            if most > 1:
                lines.append((target, operator.name, str(most), *_share(in_order, count)))
            total, total_count = total + in_order, total_count + count
        if total_count:
            lines.append((target, "all", NONE, *_share(total, total_count)))
    caption = f"Pairs of contenders on one target whose times differ by more than {MIN_DIFFERENCE:.0%}, and the share of them that the predictions put in order."
    return Table(
        "order", caption, ("target", "operator", "contenders", "pairs", "in order"), tuple(lines), 2
    )


def _share(in_order: float, count: int) -> tuple[str, str]:
    return str(count), f"{in_order / count:.3f}" if count else NONE
