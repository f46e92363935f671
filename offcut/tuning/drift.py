"""Times of batches that ran at other moments, or on other devices, made comparable.

A shared machine drifts: the same kernel takes half as long again an hour later, and from one batch to the next.
Within a batch all take turns, so that their ratios hold; and the default schedule's kernel takes turns in
every batch. What it takes there, over what it took first, is the drift, which is divided out at each
vector of sizes::

    seconds(sizes) = measured(sizes) * anchor(sizes) / reference(sizes)

    reference  of the default's kernel in the batch
    anchor     of the default's kernel in the first batch, or what the records know of it

So what is kept are seconds of a call, on the machine as it was when the default was first measured. Their spread is that in the
batch, and that from one batch to the next, where code and arrays lie elsewhere: what the default's kernel tells of it::

    step          = reference / the reference before, for each batch so far
    spread(sizes) = hypot(spread in the batch, sqrt(2) * median of |step / median step - 1|)

Quartiles of independent normal errors are 2 * 0.674 of their deviation apart, and the median of the
difference of two is 0.674 * sqrt(2) of it; what drifts slowly is no part of that.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import hypot, sqrt
from statistics import median

from offcut.search import Record
from offcut.tuning.pricing.predicting import key_of
from offcut.tuning.problem import Measured, Time


@dataclass
class Anchor:
    """Seconds of the default schedule by sizes, to which all times are scaled; what is known first stays.

    beside  of the default's kernel in each batch, in order
    """

    seconds: dict[object, float] = field(default_factory=dict)
    beside: dict[object, list[float]] = field(default_factory=dict, init=False)

    @staticmethod
    def of(records: Iterable[Record]) -> Anchor:
        """What records of the default schedule, in order of writing, say."""
        found = Anchor()
        for one in records:
            if one.seconds:
                found._at(one.sizes, one.seconds)
        return found

    def scaled(self, one: Measured) -> Measured:
        """A candidate with its times as they were when the default was first measured.

        What has no reference stays as it is. `Measured.reference` stays, so that what was read from the clock is
        ``seconds * reference / anchor``.
        """
        if not all(one.reference):  # a clock that did not move
            return one
        times = []
        for time, beside in zip(one.times, one.reference, strict=False):
            seconds = time.seconds * self._at(time.sizes, beside) / beside
            known = self.beside.setdefault(key_of(time.sizes), [])
            if known[-1:] != [beside]:  # all candidates of a batch have the same
                known.append(beside)
            spread = hypot(time.spread, self.between(time.sizes))
            times.append(Time(time.sizes, seconds, spread))
        return replace(one, times=tuple(times) or one.times)

    def between(self, sizes: Mapping[str, int]) -> float:
        """Distance of the quartiles over the median that a time has from one batch to the next; 0 where nothing is known."""
        beside = self.beside.get(key_of(sizes), [])
        steps = [after / before for before, after in pairwise(beside)]
        return sqrt(2) * median(abs(step / median(steps) - 1) for step in steps) if steps else 0.0

    def _at(self, sizes: Mapping[str, int], seconds: float) -> float:
        """Seconds at these sizes; `seconds` where nothing was known."""
        return self.seconds.setdefault(key_of(sizes), seconds)
