"""A row of results: an operator at a vector of sizes, and what was measured of each contender there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from offcut.experiment.timing import Ratio
from offcut.studies.samples import Sample
from offcut.studies.statistics import call_seconds, ratio


@dataclass(frozen=True, slots=True)
class Row:
    """An operator at a vector of sizes, with what was measured of it.

    name     its sizes, in words
    samples  by contender; those that are measured, failed ones too
    weight   its share of the calls of its operator
    cells    the contenders that have a cell here; none: whoever is asked for
    """

    operator: str
    name: str
    samples: Mapping[str, Sample]
    sizes: Mapping[str, int] = field(default_factory=dict)
    weight: float = 1.0
    cells: tuple[str, ...] = ()

    def expects(self, contenders: Iterable[str]) -> bool:
        """Return whether one of the contenders computes the row's operator, by what the study's file says."""
        return not self.cells or any(name in self.cells for name in contenders)

    @property
    def label(self) -> str:
        """Return the row's name among all."""
        return f"{self.operator} {self.name}".strip()

    @property
    def measured(self) -> tuple[Sample, ...]:
        """Return the samples that have times."""
        return tuple(one for one in self.samples.values() if one.seconds)

    @property
    def peers(self) -> tuple[str, ...]:
        """Return the contenders other than offcut."""
        return tuple(name for name, one in self.samples.items() if one.peer)

    @property
    def unit(self) -> str:
        """Return the unit of its figures: GFLOP/s where operations are known, GB/s where a limit is by bytes, else µs."""
        if self.measured and all(one.flop for one in self.measured):
            return "GFLOP/s"
        return "GB/s" if any(one.limit and one.moved for one in self.measured) else "µs"

    def figure(self, sample: Sample, seconds: float) -> float:
        """Return so many seconds of a call in the row's unit."""
        if self.unit == "µs":
            return seconds * 1e6
        return (sample.flop if self.unit == "GFLOP/s" else sample.moved) / seconds / 1e9

    def seconds(self, contender: str) -> float | None:
        """Return the median seconds of a contender; None without times."""
        sample = self.samples.get(contender)
        return call_seconds(sample) if sample is not None and sample.seconds else None

    def fastest(self, contenders: Iterable[str]) -> str | None:
        """Return the contender with the least median; None where none of them was measured."""
        timed = [(s, name) for name in contenders if (s := self.seconds(name)) is not None]
        return min(timed)[1] if timed else None

    def over(self, contender: str | None, baseline: str | None) -> Ratio | None:
        """Return the baseline's time over the contender's (above 1: the contender is faster); None if either was not measured."""
        pair = self.pair(contender, baseline)
        return None if pair is None else ratio(*pair)

    def pair(self, contender: str | None, baseline: str | None) -> tuple[Sample, Sample] | None:
        """Return the samples of the baseline and of the contender; None if either was not measured."""
        this, other = (self.samples.get(name or "") for name in (contender, baseline))
        if this is None or other is None or not this.seconds or not other.seconds:
            return None
        return other, this

    def share(self, contender: str | None) -> float | None:
        """Return the share of the limit that a contender reaches, from 0 to about 1; None if either is unknown."""
        sample = self.samples.get(contender or "")
        if sample is None or not sample.seconds or not sample.limit:
            return None
        return sample.limit / call_seconds(sample)
