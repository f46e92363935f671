"""Schedules of one program as cases, in closed form at vectors of sizes, where nothing is cut, compiled or run; and the price of a campaign: the closed form,
corrected by a model that was learned before, and by what the campaign has measured so far.

`get_cost` gives what a user names: the closed form, what corrects it, or a price of the user's. Each round fits a correction of what was predicted before any trial to the trials of all rounds before: the same trials teach the same.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from offcut.backends.predict import model_path
from offcut.core.memo import lazy_property
from offcut.costmodel import Cost
from offcut.costmodel.arrays import Values
from offcut.costmodel.learned import (
    Case,
    CorrectedModel,
    Dataset,
    Feature,
    Settings,
    StageCounts,
    check_names,
    columns,
    compute_features,
    load_features,
    stages_of_nest,
    train,
    xgboost_loader,
)
from offcut.costmodel.learned.corrected_model import LEAST
from offcut.costmodel.nests import SchedulePrices
from offcut.costmodel.resources import resources_of
from offcut.describe.computation import Computation
from offcut.errors import DescribeError, OffcutError
from offcut.schedule import Schedule, parts_of
from offcut.search import Price, RefittablePrice, Sizes, Times
from offcut.search.entry_points import load_entry_point
from offcut.tuning.problem import Problem
from offcut.tuning.schedule_prices import (
    ClosedForm,
    LearningUserPrice,
    UserPrice,
    planned_costs,
)

SHORTEST = 1e-12
"""Seconds, of which there is a logarithm."""


@dataclass(frozen=True)
class Cases:
    """The schedules of a problem as cases, at its sizes.

    computation  what nests are of; None where there are none
    """

    problem: Problem
    computation: Computation | None = None

    def __call__(self, schedule: Schedule) -> Case:
        """Return a schedule at each vector of sizes: of nests as search prices them, of any other as the target counts it.

        Raises PartitionError or TargetError for one that is refused, DescribeError where nothing is predicted.
        """
        nests, options = self.closed.nests, self.problem.options
        if nests is not None and has_nests(schedule):
            return self._of_nests(nests, schedule)
        machine, costs = self.problem.target.machine, self.costs(schedule)
        if len(costs) < len(self.problem.sizes):
            because = f"of calls on {machine.name} nothing is predicted"
            raise DescribeError("learn", "cannot describe this schedule", because=because)
        return Case.of_costs(costs, machine, options.threads, schedule)

    def _of_nests(self, nests: SchedulePrices, schedule: Schedule) -> Case:
        seconds, times = nests(schedule), nests.taken_in(schedule)
        machine = nests.hardware.machine
        own = resources_of(machine)
        stages = list[StageCounts]()
        for nest in times:
            if id(nest) not in self._stages:
                self._stages[id(nest)] = stages_of_nest(nest, own)
            stages += self._stages[id(nest)]
        sizes = {
            name: np.array([at[name] for at, _ in self.problem.sizes])
            for name in self.problem.sizes[0][0]
        }
        call = machine.call.of([len(nest.variants) for nest in times]) * machine.hertz
        return Case(
            machine,
            sizes,
            tuple(stages),
            seconds,
            nests.calls.constant(call),
            own.unhidden,
            self.problem.options.threads,
            schedule,
        )

    @lazy_property
    def _stages(self) -> dict[int, tuple[StageCounts, ...]]:
        """By what `SchedulePrices` keeps of a nest where it stands, its stages."""
        return {}

    @lazy_property
    def closed(self) -> ClosedForm:
        """Return the closed form of any schedule."""
        return ClosedForm(self.problem, self.computation)

    def seconds(self, schedule: Schedule) -> Values:
        """Return the seconds by the closed form, at each vector of sizes."""
        return np.maximum(list(self.closed(schedule).values()), SHORTEST)

    @lazy_property
    def costs(self) -> Callable[[Schedule], Sequence[Cost]]:
        """What the target counts."""
        problem = self.problem
        target, request = problem.target, problem.request
        vectors = [dict(sizes) for sizes, _ in problem.sizes]

        def planned(schedule: Schedule) -> Sequence[Cost]:
            return [one for one in planned_costs(problem, schedule) if isinstance(one, Cost)]

        return target.predict_costs(request, problem.options, vectors) or planned


def has_nests(schedule: Schedule) -> bool:
    """Whether there is a closed form for a schedule that is not cut yet."""
    return bool(parts_of(schedule))


ONLINE = Settings(rounds=40, depth=3)
"""Of a few hundred rows, several times in a campaign."""

SCHEDULES = 6
"""Trials that a correction is fitted to, at least."""

EXACT = 1e-3
"""A closed form that is nearer than this share to all trials is not corrected."""


@dataclass
class OnlineModel:
    """Predicted seconds of schedules by sizes, which follow what was measured.

    features  that corrections are learned from
    model     that was learned before; None: there is none
    named     what the model is called
    seed      of what is drawn
    notes     what else is to be said of the price
    """

    cases: Cases
    features: tuple[Feature, ...]
    model: CorrectedModel | None = None
    named: str = ""
    seed: int = 0
    notes: tuple[str, ...] = ()
    _known: dict[Schedule, tuple[Values, Values]] = field(default_factory=dict, init=False)
    _names: tuple[str, ...] = field(default=(), init=False)
    _fit: CorrectedModel | None = field(default=None, init=False)
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
            own_columns = columns(self._names, self.model.names, self.named)
            because = self.model.predict(features[:, own_columns], closed).because[0]
        except OffcutError as refused:
            because = refused.because
        if because:
            self.model, self.notes = None, (*self.notes, f"not by {self.named}: {because}")

    def __call__(self, schedule: Schedule) -> dict[Sizes, float]:
        """Return seconds by sizes.

        Raises PartitionError for what is not legal.
        """
        if self._fit is None and self.model is None:
            seconds = self.cases.seconds(schedule)
        else:
            features, seconds = self._before(schedule)
            if self._fit is not None:
                seconds = self._fit.corrected_seconds(features, seconds, self._centre).seconds
        return {key: float(one) for key, one in zip(self.keys, seconds, strict=True)}

    def refit(self, times: Times) -> None:
        """Learn from trials; too few, or what orders trials that were left out no better, change nothing."""
        self._fit, self._learned = None, 0
        if self._exact(times):
            return
        features = [self._row(schedule)[0] for schedule in times]
        if features:
            self._centre = np.median(features, axis=0)
        rows = self._rows(times)
        if rows is None:
            return
        fit = train(rows, self.seed, ONLINE)
        if not fit.useless:
            self._fit, self._learned = fit, len(np.unique(rows.schedule))

    def _exact(self, times: Times) -> bool:
        """Whether the closed form is what was seen, as of a machine whose simulator counts the same."""
        return self.model is None and all(
            abs(seconds - at[key][0]) <= EXACT * at[key][0]
            for schedule, at in times.items()
            for key, seconds in zip(self.keys, self.cases.seconds(schedule), strict=True)
        )

    @property
    def has_learned(self) -> bool:
        """Whether prices differ from the closed form: a model knows this program, or trials were learned from."""
        return self.model is not None or self._fit is not None

    @property
    def description(self) -> str:
        """What stands behind a price, in words."""
        by = [self.named] if self.model is not None else []
        by += [f"{self._learned} trials"] if self._fit is not None else []
        text = "the closed form" + (f", corrected by {' and '.join(by)}" if by else "")
        return "; ".join((text, *self.notes))

    def _row(self, schedule: Schedule) -> tuple[Values, Values]:
        """Features and the closed form of a schedule, at all sizes."""
        if schedule not in self._known:
            case = self.cases(schedule)
            names, features = compute_features(case, self.features)
            check_names(self._names, names)
            self._names = names
            self._known[schedule] = features, self.cases.seconds(schedule)
        return self._known[schedule]

    def _before(self, schedule: Schedule) -> tuple[Values, Values]:
        """Features, and what is predicted before any trial."""
        features, closed = self._row(schedule)
        if self.model is None:
            return features, closed
        own_columns = columns(self._names, self.model.names, self.named)
        centre = self._centre[:, own_columns]
        return features, self.model.corrected_seconds(
            features[:, own_columns], closed, centre
        ).seconds

    def _rows(self, times: Times) -> Dataset | None:
        rows = [(schedule, at, *self._before(schedule)) for schedule, at in times.items()]
        if len(rows) < SCHEDULES or len(rows) * len(self.keys) < LEAST:
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
            for schedule, at, features, before in rows
            for key, row, closed in zip(self.keys, features, before, strict=True)
        ]
        return Dataset.of(self._names, entries)


GROUP = "offcut.prices"
CLOSED, LEARNED = "closed", "learned"


def get_cost(
    problem: Problem,
    computation: Computation | None,
    first: Schedule,
    value: object,
    features: Sequence[Feature] = (),
) -> Price:
    """The price that ``price=`` says.

    value     ``"closed"``; ``"learned"``; None, which is ``"learned"``; the path of a model (``.json``); an entry point of
              the group ``offcut.prices``, a class of which an instance is made; or ``price(schedule, **sizes)``, with a method ``refit(times)`` where it learns
    first     the target's own schedule, by which is decided whether a model knows this program and machine
    features  that a correction is learned from beside those that are found

    Raises DescribeError for a name that is none, OffcutError for a file that holds no model.
    """
    if value == CLOSED:
        return ClosedForm(problem, computation)
    if value is None or value == LEARNED:
        path, model, notes = model_path(problem.target.name), None, list[str]()
        name = "" if path is None else path.name
        try:
            model = None if path is None or not path.exists() else CorrectedModel.load(path)
        except OffcutError as refused:
            notes.append(f"not by {name}: {refused.because}")
        return _learned(problem, computation, first, model, name, features, notes)
    if isinstance(value, os.PathLike) or (isinstance(value, str) and value.endswith(".json")):
        path = Path(value)
        return _learned(problem, computation, first, CorrectedModel.load(path), path.name, features)
    own: Any = _loaded(value) if isinstance(value, str) else value
    return (LearningUserPrice if isinstance(own, RefittablePrice) else UserPrice)(problem, own)


def _learned(
    problem: Problem,
    computation: Computation | None,
    first: Schedule,
    model: CorrectedModel | None,
    name: str,
    features: Sequence[Feature],
    notes: Sequence[str] = (),
) -> Price:
    """Return the closed form where nothing can be learned: without XGBoost."""
    missing = xgboost_loader.import_error()
    if missing:
        return ClosedForm(problem, computation, (*notes, f"not learned: {missing}"))
    every = (*load_features(), *features)
    price = OnlineModel(Cases(problem, computation), every, model, name, problem.seed, tuple(notes))
    price.begin(first)
    return price


def _loaded(name: str) -> object:
    known = f'"{CLOSED}", "{LEARNED}", the path of a model (.json)'
    return load_entry_point(GROUP, "price", name, known, ("lambda schedule, n: 2e-9 * n",))
