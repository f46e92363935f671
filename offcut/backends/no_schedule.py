"""The error that a plan has no schedule: its program is decided as it is written, or the target decides nothing."""

from __future__ import annotations

from offcut.core.program import Alloc, For, Program, Tile, walk
from offcut.errors import TargetError


def no_schedule_error(op: str, refused: str, program: Program, target: str) -> TargetError:
    """Return the error for a plan without decisions.

    program  as it was compiled
    target   its name
    """
    decided = any(
        isinstance(stmt, Alloc | Tile) or (isinstance(stmt, For) and stmt.unit is not None)
        for stmt in walk(program)
    )
    if not decided:
        because = f"target={target!r} decides nothing that a schedule says"
        return TargetError(op, refused, because=because)
    return TargetError(
        op,
        refused,
        because=f"{program.name} runs as it is written: its tiles, units and windows are its schedule",
        help=(
            "kernel.loops, whose text is edited and compiled again",
            "what it computes as tensors, or as loops without tiles, units and windows",
        ),
    )
