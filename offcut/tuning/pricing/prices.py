"""What search goes by, as a user names it: the closed form, what corrects it, or a price of the user's."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from offcut.backends.correction import model_path
from offcut.costmodel.learned import Feature, Pair, features_found, library
from offcut.describe.computation import Computation
from offcut.errors import DescribeError, OffcutError, blamed_on_another
from offcut.schedule import Schedule
from offcut.search import Price, Refitted, Sizes, Times
from offcut.search.entry_points import load_entry_point
from offcut.tuning.learning.cases import cases_of
from offcut.tuning.learning.corrected import Corrected
from offcut.tuning.pricing.predicting import price_of
from offcut.tuning.problem import Problem

GROUP = "offcut.prices"
CLOSED, LEARNED = "closed", "learned"


def price_named(
    problem: Problem,
    computation: Computation | None,
    first: Schedule,
    given: object,
    features: Sequence[Feature] = (),
) -> Price:
    """The price that ``price=`` says.

    given     ``"closed"``; ``"learned"``; None, which is ``"learned"``; the path of a model (``.json``); an entry point of
              the group ``offcut.prices``, a class of which an instance is made; or ``price(schedule, **sizes)``, with a method ``refit(times)`` where it learns
    first     the target's own schedule, by which is decided whether a model knows this program and machine
    features  that a correction is learned from beside those that are found

    Raises DescribeError for a name that is none, OffcutError for a file that holds no model.
    """
    if given == CLOSED:
        return _Said(price_of(problem, computation, None), "the closed form")
    if given is None or given == LEARNED:
        path, model, notes = model_path(problem.target.name), None, list[str]()
        named = "" if path is None else path.name
        try:
            model = None if path is None or not path.exists() else Pair.load(path)
        except OffcutError as refused:
            notes.append(f"not by {named}: {refused.because}")
        return _learned(problem, computation, first, model, named, features, notes)
    if isinstance(given, os.PathLike) or (isinstance(given, str) and given.endswith(".json")):
        path = Path(given)
        return _learned(problem, computation, first, Pair.load(path), path.name, features)
    own: Any = _loaded(given) if isinstance(given, str) else given
    price = price_of(problem, computation, own)
    return _Own(price, own.refit) if isinstance(own, Refitted) else price


def _learned(
    problem: Problem,
    computation: Computation | None,
    first: Schedule,
    model: Pair | None,
    named: str,
    features: Sequence[Feature],
    notes: Sequence[str] = (),
) -> Price:
    """Return the closed form where nothing can be learned: without XGBoost."""
    closed = price_of(problem, computation, None)
    missing = library.missing()
    if missing:
        return _Said(closed, "; ".join(("the closed form", *notes, f"not learned: {missing}")))
    every = (*features_found(), *features)
    made = Corrected(
        cases_of(problem, computation, first), every, model, named, problem.seed, tuple(notes)
    )
    made.begin(first)
    return made


@dataclass(frozen=True, slots=True)
class _Said:
    """A price, and what it is in words."""

    price: Price
    said: str

    def __call__(self, schedule: Schedule) -> Mapping[Sizes, float]:
        return self.price(schedule)


@dataclass(frozen=True, slots=True)
class _Own:
    """A price of the user's that learns; schedules are asked by what it was told last."""

    price: Price
    learn: Callable[[Times], None]

    def __call__(self, schedule: Schedule) -> Mapping[Sizes, float]:
        return self.price(schedule)

    def refit(self, times: Times) -> None:
        """Hand over what was measured.

        Raises DescribeError where it raises.
        """

        def refused(did: str) -> DescribeError:
            return DescribeError("tune", "cannot teach price=", because=f"its refit {did}")

        with blamed_on_another(refused):
            self.learn(times)


def _loaded(name: str) -> object:
    known = f'"{CLOSED}", "{LEARNED}", the path of a model (.json)'
    return load_entry_point(GROUP, "price", name, known, ("lambda schedule, n: 2e-9 * n",))
