"""Times of batches that ran at other moments, or on other devices, made comparable.

A shared machine drifts: the same kernel takes half as long again an hour later, and from one batch to the next.
Within a batch all take turns, so that their ratios hold; and the default schedule's kernel takes turns in
every batch. What it takes there, over what it took first, is the drift, which is divided out at each
vector of sizes::

    seconds(sizes) = measured(sizes) * anchor(sizes) / reference(sizes)

    reference  of the default's kernel in the batch
    anchor     of the default's kernel in the first batch, or what the records know of it

So what is kept are seconds of a call, on the machine as it was when the default was first measured. A spread
is a ratio, and stays.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from offcut.search import Record
from offcut.tuning.pricing.predicting import key_of
from offcut.tuning.problem import Measured, Time


@dataclass
class Anchor:
    """Seconds of the default schedule by sizes, to which all times are scaled; what is known first stays."""

    seconds: dict[object, float] = field(default_factory=dict)

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
        pairs = zip(one.times, one.reference, strict=False)
        times = tuple(
            Time(time.sizes, time.seconds * self._at(time.sizes, beside) / beside, time.spread)
            for time, beside in pairs
        )
        return replace(one, times=times or one.times)

    def _at(self, sizes: Mapping[str, int], seconds: float) -> float:
        """Seconds at these sizes; `seconds` where nothing was known."""
        return self.seconds.setdefault(key_of(sizes), seconds)
