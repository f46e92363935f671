"""The cells of a study with their samples: by operator, sizes and contender; and the figures that tables and pictures show."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from offcut.experiment.timing import Ratio
from offcut.studies.definition import Definition
from offcut.studies.samples import Sample
from offcut.studies.sizes import Point
from offcut.studies.statistics import (
    Mean,
    Regret,
    geometric_mean,
    is_loaded,
    median,
    percentiles,
    ratio,
    regret,
)
from offcut.studies.tasks import Operator


@dataclass(frozen=True, slots=True)
class Row:
    """An operator at a vector of sizes.

    samples  by contender; those that are measured, failed ones too
    """

    operator: Operator
    point: Point
    samples: Mapping[str, Sample]

    @property
    def label(self) -> str:
        """Return the row's name among all."""
        return f"{self.operator.name} {self.point}"

    def seconds(self, contender: str) -> float | None:
        """Return a contender's median; None where it has none."""
        sample = self.samples.get(contender)
        return median(sample) if sample is not None and sample.seconds else None

    def over(self, contender: str, baseline: str) -> Ratio | None:
        """Return the baseline's time over that of a contender: above 1, the contender is faster."""
        this, other = self.samples.get(contender), self.samples.get(baseline)
        if this is None or other is None or not this.seconds or not other.seconds:
            return None
        return ratio(other, this)


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

    def of(self, operator: Operator) -> tuple[Row, ...]:
        """Return the rows of an operator."""
        return tuple(row for row in self.rows if row.operator is operator)

    def times(self, contender: str, rows: Sequence[Row] | None = None) -> dict[str, float]:
        """Return a contender's medians by row."""
        found = {row.label: row.seconds(contender) for row in (self.rows if rows is None else rows)}
        return {label: seconds for label, seconds in found.items() if seconds is not None}

    def mean_over(
        self, contender: str, baseline: str, rows: Sequence[Row] | None = None
    ) -> Mean | None:
        """Return the weighted geometric mean of `Row.over`; each operator weighs the same."""
        pairs = [
            (row.over(contender, baseline), row.point.weight)
            for row in (self.rows if rows is None else rows)
        ]
        known = [(one, weight) for one, weight in pairs if one is not None]
        return geometric_mean([one for one, _ in known], [weight for _, weight in known])

    def latency(self, contender: str, rows: Sequence[Row]) -> dict[int, float]:
        """Return percentiles of the seconds of a call, over the distribution of sizes and all rounds."""
        each = []
        for row in rows:
            sample = row.samples.get(contender)
            if sample is not None and sample.seconds:
                each += [
                    (second, row.point.weight / len(sample.seconds)) for second in sample.seconds
                ]
        return percentiles(each)

    @property
    def ours(self) -> tuple[str, ...]:
        """Return the contenders that are offcut."""
        return tuple(one.name for one in self.definition.contenders if not one.is_peer)

    def regrets(self, contender: str) -> tuple[Regret | None, Regret | None]:
        """Return the regret of one of ours against the best fixed one of an operator, and against the best at each vector of sizes."""
        weights = {row.label: row.point.weight for row in self.rows}
        fixed: dict[str, float] = {}
        for operator in self.definition.operators:
            rows = self.of(operator)
            whole = {name: self.times(name, rows) for name in self.ours}
            whole = {name: one for name, one in whole.items() if len(one) == len(rows)}
            if whole:
                sums = {
                    name: sum(one[row.label] * row.point.weight for row in rows)
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
        found = (row.samples.get(contender) for row in self.rows)
        return [
            (one.predicted, median(one))
            for one in found
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
        row = rows.setdefault((operator.name, str(point)), Row(operator, point, {}))
        if cell in samples:
            rows[operator.name, str(point)] = Row(
                operator, point, {**row.samples, contender.name: samples[cell]}
            )
    return Results(
        definition, tuple(rows.values()), tuple(one.name for one in definition.contenders)
    )
