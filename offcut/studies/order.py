"""The order of contenders by predictions: the share of pairs, of one operator at one vector of sizes, that predictions order as times do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import permutations

from offcut.studies.results import Results
from offcut.studies.statistics import median
from offcut.studies.table import NONE, Table

MIN_DIFFERENCE = 0.15
"""The part of the shorter time by which the longer one of a pair exceeds it, at least."""


def ordered_pairs(predicted: Sequence[float], times: Sequence[float]) -> tuple[float, int]:
    """Return the number of pairs that predictions put in order, and of all pairs whose times differ by `MIN_DIFFERENCE`.

    A pair with equal predictions counts half.

    predicted, times  seconds, those of one contender at the same place

    >>> ordered_pairs([1.0, 2.0, 2.0], [1.0, 1.1, 3.0])
    (1.5, 2)
    """
    in_order, count = 0.0, 0
    for longer, shorter in permutations(range(len(times)), 2):
        if times[longer] > (1 + MIN_DIFFERENCE) * times[shorter]:
            count += 1
            difference = predicted[longer] - predicted[shorter]
            in_order += 0.5 if difference == 0 else float(difference > 0)
    return in_order, count


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
                more, pairs = ordered_pairs(predicted, list(map(median, samples)))
                in_order, count, most = in_order + more, count + pairs, max(most, len(samples))
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
