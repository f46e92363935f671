"""How far the prices are off by which a call chooses, and what it takes longer because of them: beside what is counted."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from offcut.costmodel.nests import SchedulePrices
from offcut.errors import PartitionError
from offcut.schedule import Schedule


@dataclass(frozen=True, slots=True)
class ChoiceError:
    """Of the ways of a nest that compete, at some hundred calls that are allowed.

    stage   the first array that the nest computes
    within  by which part of what is counted a price is off, at most
    regret  by which part longer the nest takes than in its fastest way, at most
    """

    stage: str
    within: float
    regret: float

    def __str__(self) -> str:
        return (
            f"{self.stage}: a call chooses by prices within {self.within:.0%} of what is predicted, "
            f"and takes at most {self.regret:.1%} longer for it"
        )


def choice_errors(schedule: Schedule, prices: SchedulePrices) -> tuple[ChoiceError, ...]:
    """Return the error and the regret of each nest with several ways; none where the schedule has no closed form.

    prices  at the calls that are looked at
    """
    if not prices.calls.count:
        return ()
    try:
        nests = prices.competing(schedule)
    except PartitionError:
        return ()
    found: list[ChoiceError] = []
    for stage, ways in nests.items():
        exact = np.array([way.seconds for way in ways])
        short = np.array([way.own for way in ways])
        least = np.argmin(short, axis=0)
        taken = exact[least, np.arange(prices.calls.count)]
        within = float(np.abs(short / exact - 1).max())
        found.append(ChoiceError(stage, within, float((taken / exact.min(axis=0)).max()) - 1))
    return tuple(found)
