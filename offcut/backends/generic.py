"""The policy of a target that says nothing of one: programs run as they stand."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from offcut.backends.options import Options, Planned
from offcut.backends.requested import Request
from offcut.core.program import Program
from offcut.errors import TargetError
from offcut.partition import LoopCut, Users
from offcut.search import Points

if TYPE_CHECKING:
    from offcut.backends.target import Planner


def policy(planner: Planner, program: Program, users: Users, options: Options) -> Iterator[Planned]:
    """Yield the program as it stands."""
    yield Planned(program)


def cut(
    planner: Planner, program: Program, users: Users, cuts: Mapping[str, LoopCut], options: Options
) -> Planned | None:
    """Return None: the loops of a program are cut as they stand."""
    return None


def space(planner: Planner, planned: Planned, request: Request, options: Options) -> Points:
    """Return what can be decided of a program.

    Raises TargetError for a program of which a schedule says nothing.
    """
    raise TargetError(
        "tune",
        f"cannot tune {request.program.name} for target={planner.name!r}",  # type: ignore[attr-defined]
        because="it decides nothing that a schedule says",
    )
