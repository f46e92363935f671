"""The price of a campaign: the closed form, corrected by a model that was learned before, and by what the campaign has measured so far.

Each round fits a correction of what was predicted before any trial to the trials of all rounds before: the same trials teach the same.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from offcut.core.memo import lazy_property
from offcut.costmodel.arrays import Values
from offcut.costmodel.learned import (
    Feature,
    Pair,
    Rows,
    Settings,
    check_names,
    columns,
    described,
    learned,
)
from offcut.costmodel.learned.pair import LEAST
from offcut.errors import OffcutError
from offcut.schedule import Schedule
from offcut.search import Sizes, Times
from offcut.tuning.learning.cases import SHORTEST, Cases, CountedCases

ONLINE = Settings(rounds=40, depth=3)
"""Of a few hundred rows, several times in a campaign."""

SCHEDULES = 6
"""Trials that a correction is fitted to, at least."""

EXACT = 1e-3
"""A closed form that is nearer than this share to all trials is not corrected."""


@dataclass
class Corrected:
    """Predicted seconds of schedules by sizes, which follow what was measured.

    features  that corrections are learned from
    model     that was learned before; None: there is none
    named     what the model is called
    seed      of what is drawn
    notes     what else is to be said of the price
    """

    cases: Cases | CountedCases
    features: tuple[Feature, ...]
    model: Pair | None = None
    named: str = ""
    seed: int = 0
    notes: tuple[str, ...] = ()
    _known: dict[Schedule, tuple[Values, Values]] = field(default_factory=dict, init=False)
    _names: tuple[str, ...] = field(default=(), init=False)
    _fit: Pair | None = field(default=None, init=False)
    _centre: Values = field(default_factory=lambda: np.empty(0), init=False)
    _learned: int = field(default=0, init=False)

    @lazy_property
    def keys(self) -> tuple[Sizes, ...]:
        """The vectors of sizes."""
        return self.cases.problem.keys

    def begin(self, first: Schedule) -> None:
        """Decide by a first schedule whether the model knows what it is asked here.

        It is decided once: prices of which some are corrected and others not would not compare. Before there are trials,
        the first schedule is the middle of what is compared.
        """
        if self.model is None:
            return
        try:
            features, closed = self._row(first)
            self._centre = features
            wanted = columns(self._names, self.model.names, self.named)
            because = self.model.predict(features[:, wanted], closed).because[0]
        except OffcutError as refused:
            because = refused.because
        if because:
            self.model, self.notes = None, (*self.notes, f"not by {self.named}: {because}")

    def __call__(self, schedule: Schedule) -> dict[Sizes, float]:
        """Seconds by sizes; of a schedule without nests, of which nothing is learned, by the closed form.

        Raises PartitionError for what is not legal.
        """
        if not self.cases.describes(schedule):
            return dict(self.cases.closed(schedule))
        if self._fit is None and self.model is None:
            seconds = self.cases.seconds(schedule)
        else:
            features, seconds = self._before(schedule)
            if self._fit is not None:
                seconds = self._fit.corrected(features, seconds, self._centre).seconds
        return {key: float(one) for key, one in zip(self.keys, seconds, strict=True)}

    def refit(self, times: Times) -> None:
        """Learn from trials; too few, or what orders trials that were left out no better, change nothing."""
        self._fit, self._learned = None, 0
        if self._exact(times):
            return
        tried = [self._row(schedule)[0] for schedule in times if self.cases.describes(schedule)]
        if tried:
            self._centre = np.median(tried, axis=0)
        rows = self._rows(times)
        if rows is None:
            return
        fit = learned(rows, self.seed, ONLINE)
        if not fit.useless:
            self._fit, self._learned = fit, len(np.unique(rows.schedule))

    def _exact(self, times: Times) -> bool:
        """Whether the closed form is what was seen, as of a machine whose simulator counts the same."""
        return self.model is None and all(
            abs(found - at[key][0]) <= EXACT * at[key][0]
            for schedule, at in times.items()
            if self.cases.describes(schedule)
            for key, found in zip(self.keys, self.cases.seconds(schedule), strict=True)
        )

    @property
    def has_learned(self) -> bool:
        """Whether prices differ from the closed form: a model knows this program, or trials were learned from."""
        return self.model is not None or self._fit is not None

    @property
    def said(self) -> str:
        """What stands behind a price, in words."""
        by = [self.named] if self.model is not None else []
        by += [f"{self._learned} trials"] if self._fit is not None else []
        said = "the closed form" + (f", corrected by {' and '.join(by)}" if by else "")
        return "; ".join((said, *self.notes))

    def _row(self, schedule: Schedule) -> tuple[Values, Values]:
        """Features and the closed form of a schedule, at all sizes."""
        if schedule not in self._known:
            case = self.cases(schedule)
            names, features = described(case, self.features)
            check_names(self._names, names)
            self._names = names
            self._known[schedule] = features, self.cases.seconds(schedule)
        return self._known[schedule]

    def _before(self, schedule: Schedule) -> tuple[Values, Values]:
        """Features, and what is predicted before any trial."""
        features, closed = self._row(schedule)
        if self.model is None:
            return features, closed
        wanted = columns(self._names, self.model.names, self.named)
        centre = self._centre[:, wanted]
        return features, self.model.corrected(features[:, wanted], closed, centre).seconds

    def _rows(self, times: Times) -> Rows | None:
        found = [
            (schedule, at, *self._before(schedule))
            for schedule, at in times.items()
            if self.cases.describes(schedule)
        ]
        if len(found) < SCHEDULES or len(found) * len(self.keys) < LEAST:
            return None
        here = {"program": "it", "place": "here", "machine": "here"}
        entries = [
            {
                **here,
                "features": row,
                "sizes": repr(key),
                "schedule": schedule.digest,
                "seconds": max(at[key][0], SHORTEST),
                "spread": at[key][1],
                "closed": closed,
            }
            for schedule, at, features, before in found
            for key, row, closed in zip(self.keys, features, before, strict=True)
        ]
        return Rows.of(self._names, entries)
