"""What a target asks of a program that somebody wrote, where it says nothing else: its covers, and its synchronization."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from offcut.backends.covers import complete_covers, unknown_covers, unknown_microkernel_error
from offcut.backends.options import Options
from offcut.core.plain_loops import is_synchronized, unsynchronized
from offcut.core.program import Program
from offcut.core.text.read_back import read_back
from offcut.polyhedral.sync import Agents, check

if TYPE_CHECKING:
    from offcut.backends.planner import Planner


def without_synchronization(output: Any, agents: Agents | None, op: str) -> Any:
    """Return `output`; a program without its statements of synchronization, checked for `agents`: what is lowered gets its own.

    agents  None: nothing is checked, and nothing left out

    Raises PartitionError, in the name of `sync`, where the order of its text would not be kept.
    """
    if agents is None or not isinstance(output, Program):
        return output
    if not is_synchronized(read_back(output, op)):
        return output
    check(output, agents)
    return unsynchronized(output)


def check_covers(planner: Planner, program: Program, options: Options, op: str) -> tuple[str, ...]:
    """Check the covers of a text; return a line for each name of a microkernel that nobody knows.

    Memories, layouts and units of the target's own microkernels may be decided by its policy: these are asked of its plan.

    Raises PartitionError, in the name of `op`, with the first question that a tile fails.
    """
    own = planner.microkernels(options)
    complete_covers(program, own, op, None if planner.judges else False)
    unknown = unknown_covers(program, own)
    if unknown and not planner.accepts_any_cover:
        raise unknown_microkernel_error(*next(iter(unknown.items())), own, op)
    if planner.judges:
        return ()
    because = f"target={planner.name!r} knows no microkernel of that name"  # type: ignore[attr-defined]
    return tuple(f"{name} stays a name, and is not checked: {because}" for name in unknown)


__all__ = ["check_covers", "without_synchronization"]
