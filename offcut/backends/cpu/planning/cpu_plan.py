"""A plan of the CPU: the program as the host runs it, and what it is predicted to take."""

from __future__ import annotations

from dataclasses import dataclass

from offcut.backends import target
from offcut.backends.cpu.threads.parallel import Parallel
from offcut.core.expr import Expr
from offcut.schedule import Schedule


@dataclass(frozen=True, kw_only=True)
class CpuPlan(target.TargetPlan):
    """A program as the host runs it.

    unnamed  the schedule before its units had loops by name: what is the target's choice stays so, whatever else is varied
    seconds  predicted, of a call on one thread: an expression over the sizes
    shares   the same program, and which of its loops threads share
    work     instances of a call; None where nothing counts them
    """

    schedule: Schedule
    unnamed: Schedule
    seconds: Expr
    shares: Parallel
    work: Expr | None = None
