"""The cells of a study with their samples: by operator, sizes and contender; and the figures that tables and pictures show."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from offcut.studies.definition import Definition
from offcut.studies.rows import Row
from offcut.studies.samples import Sample
from offcut.studies.statistics import (
    Mean,
    Regret,
    call_seconds,
    geometric_mean_of_pairs,
    is_loaded,
    percentiles,
    regret,
)


@dataclass(frozen=True)
class Results:
    """All that a study has measured.

    contenders  in the file's order
    """

    definition: Definition
    rows: tuple[Row, ...]
    contenders: tuple[str, ...]

    @property
    def samples(self) -> Iterator[Sample]:
        """Yield the samples of all rows."""
        for row in self.rows:
            yield from row.samples.values()

    @property
    def environments(self) -> tuple[str, ...]:
        """Return the digests of the environments that cells were measured in."""
        return tuple(dict.fromkeys(one.environment for one in self.samples if one.environment))

    @property
    def loaded(self) -> int:
        """Return how many cells were measured on a machine that others used."""
        return sum(1 for one in self.samples if one.seconds and is_loaded(one))

    def of(self, operator: str) -> tuple[Row, ...]:
        """Return the rows of the operator of that name."""
        return tuple(row for row in self.rows if row.operator == operator)

    def times(self, contender: str, rows: Sequence[Row] | None = None) -> dict[str, float]:
        """Return a contender's medians by row."""
        seconds = {
            row.label: row.seconds(contender) for row in (self.rows if rows is None else rows)
        }
        return {label: seconds for label, seconds in seconds.items() if seconds is not None}

    def mean_over(
        self, contender: str, baseline: str, rows: Sequence[Row] | None = None
    ) -> Mean | None:
        """Return the weighted geometric mean of `Row.over`; each operator weighs the same."""
        pairs = [
            (row.pair(contender, baseline), row.weight)
            for row in (self.rows if rows is None else rows)
        ]
        measured = [(pair, weight) for pair, weight in pairs if pair is not None]
        return geometric_mean_of_pairs(
            [pair for pair, _ in measured], [weight for _, weight in measured]
        )

    def latency(self, contender: str, rows: Sequence[Row]) -> dict[int, float]:
        """Return percentiles of the seconds of a call, over the distribution of sizes and all rounds."""
        each = []
        for row in rows:
            sample = row.samples.get(contender)
            if sample is not None and sample.seconds:
                each += [(second, row.weight / len(sample.seconds)) for second in sample.seconds]
        return percentiles(each)

    @property
    def ours(self) -> tuple[str, ...]:
        """Return the contenders that are offcut."""
        return tuple(one.name for one in self.definition.contenders if not one.is_peer)

    def regrets(self, contender: str) -> tuple[Regret | None, Regret | None]:
        """Return the regret of one of ours against the best fixed one of an operator, and against the best at each vector of sizes."""
        weights = {row.label: row.weight for row in self.rows}
        fixed: dict[str, float] = {}
        for operator in self.definition.operators:
            rows = self.of(operator.name)
            whole = {name: self.times(name, rows) for name in self.ours}
            whole = {name: one for name, one in whole.items() if len(one) == len(rows)}
            if whole:
                sums = {
                    name: sum(one[row.label] * row.weight for row in rows)
                    for name, one in whole.items()
                }
                fixed |= whole[min(sums, key=lambda name: sums[name])]
        each = {name: self.times(name) for name in self.ours}
        oracle = {
            row.label: min(one[row.label] for one in each.values() if row.label in one)
            for row in self.rows
            if any(row.label in one for one in each.values())
        }
        times = self.times(contender)
        return regret(times, fixed, weights), regret(times, oracle, weights)

    def predicted(self, contender: str) -> list[tuple[float, float]]:
        """Return pairs of predicted and measured seconds."""
        samples = (row.samples.get(contender) for row in self.rows)
        return [
            (one.predicted, call_seconds(one))
            for one in samples
            if one is not None and one.predicted and one.seconds
        ]

    def bias(self, contender: str) -> float | None:
        """Return the median of predicted over measured; None where nothing is predicted."""
        pairs = self.predicted(contender)
        return statistics.median(a / b for a, b in pairs) if pairs else None


def results_of(definition: Definition, samples: Mapping[str, Sample]) -> Results:
    """Return a study's results: the samples of the cells that its file has now."""
    rows: dict[tuple[str, str], Row] = {}
    for operator, point, contender, cell in definition.cells():
        key = operator.name, str(point)
        row = rows.setdefault(key, Row(*key, {}, point.sizes, point.weight))
        known = {contender.name: samples[cell]} if cell in samples else {}
        names = (*row.cells, contender.name)
        rows[key] = replace(row, samples={**row.samples, **known}, cells=names)
    names = tuple(one.name for one in definition.contenders)
    return Results(definition, tuple(rows.values()), names)
