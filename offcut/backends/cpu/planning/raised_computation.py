"""Reads a program as a computation: a sequence of whole arrays, each from those before; else tells why it is none."""

from __future__ import annotations

from offcut import debug
from offcut.backends.cpu.planning.vectorize import privatize
from offcut.backends.raising import raise_to_computation
from offcut.core.program import Program
from offcut.describe.computation import Computation
from offcut.partition import Users, labelled
from offcut.polyhedral import BudgetExceeded, pass_budget


def computation_of(
    program: Program, users: Users, reassociate: bool
) -> tuple[Computation | None, str]:
    """Return `program` as a computation, in the user's names; else None, and the reason as text."""
    try:
        with debug.timed("raise"), pass_budget():
            computation = raise_to_computation(*privatize(program), narrows=True)
    except BudgetExceeded:
        return None, "isl takes too long to tell whether it is a computation"
    if computation is None:
        return None, "it is not a sequence of whole arrays, each from those before"
    late = None if reassociate else _added_last(computation, program)
    return (None, late) if late is not None else (labelled(computation, users), "")


def _added_last(computation: Computation, program: Program) -> str | None:
    """Return the reason, as text, if `computation` adds the start of a sum of `program` after its terms; else None."""
    buffers = {buffer.name for buffer in program.buffers}
    for lead in (group[0] for group in computation.groups):
        if lead.reducer is not None and lead.buffer not in buffers:
            name = lead.buffer.removesuffix("_sum")
            return f"the sum in {name} starts from a value, and reassociate=False"
    return None
