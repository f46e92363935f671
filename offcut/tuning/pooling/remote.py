"""What a worker of a pool does: it admits a problem, then measures schedules of it, in a child that may end.

One bench is kept between tasks, so that what results must be is computed once, and imports happen once.
"""

from __future__ import annotations

from dataclasses import dataclass

from offcut.errors import OffcutError
from offcut.schedule import Schedule
from offcut.tuning.measuring.candidate import Bench
from offcut.tuning.pooling.wire import Wire, received
from offcut.tuning.problem import Measured


@dataclass
class _Kept:
    """The bench of this process, and the campaign that it is of."""

    campaign: str = ""
    bench: Bench | None = None

    def replace(self, campaign: str, bench: Bench | None) -> None:
        if self.bench is not None:
            self.bench.close()
        self.campaign, self.bench = campaign, bench


_KEPT = _Kept()


def admit(campaign: str, wire: Wire) -> str:
    """Take a problem in the place of the last; why it cannot be measured here, "" where it can."""
    found = received(wire)
    if isinstance(found, str):
        return found
    _KEPT.replace(campaign, Bench(*found))
    return ""


def measure(campaign: str, texts: tuple[str, ...]) -> tuple[Measured, ...] | OffcutError | None:
    """What becomes of schedules, in their order; a refusal to measure; None where the problem is not here any more."""
    if _KEPT.bench is None or campaign != _KEPT.campaign:
        return None
    try:
        return _KEPT.bench.measured([Schedule.parse(text) for text in texts])
    except OffcutError as refused:
        return refused


def dismiss(campaign: str) -> None:
    """End the child of a campaign that is over."""
    if campaign == _KEPT.campaign:
        _KEPT.replace("", None)
