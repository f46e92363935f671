"""What a contender is: something with ways to compute a task."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from offcut.experiment.contraction import Array
from offcut.experiment.timing import Run


@dataclass(frozen=True, slots=True)
class Way:
    """One way to compute a problem.

    run    one call on operands that it holds
    read   the result of the latest `run`, from what that returned; axes as the problem has them
    """

    name: str
    run: Run
    read: Callable[[Any], Array]


class Contender(Protocol):
    """Something that computes tasks: a strategy of offcut's, or a peer."""

    @property
    def name(self) -> str:
        """What tables and pictures call it."""

    def ways(self, task: Any, /) -> tuple[Way, ...]:
        """The ways it has to compute `task`; none when it cannot."""
