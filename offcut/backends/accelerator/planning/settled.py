"""The plan of a program whose tokens have room: the policy lets no windows take turns where they have none."""

from __future__ import annotations

from dataclasses import replace

from offcut.backends.accelerator.lowering.annotations import with_memories
from offcut.backends.accelerator.lowering.queues import TokensError
from offcut.backends.accelerator.phases import Phases
from offcut.backends.accelerator.planning.planner import FREE, Wanted, planned
from offcut.backends.accelerator.planning.single import single
from offcut.backends.accelerator.spec import Spec
from offcut.backends.target import Planned
from offcut.core.program import Program
from offcut.describe.computation import Computation
from offcut.schedule import Schedule


def settled(
    program: Program,
    computation: Computation,
    spec: Spec,
    schedule: Schedule | None,
    wanted: Wanted = FREE,
) -> Planned:
    """Return the program on the chip; `schedule` decides where there is one, else the policy.

    Raises TargetError for what the machine does not do, PartitionError for a schedule that is none of the program, or
    whose windows in turn could come to a standstill.
    """

    def made(wanted: Wanted) -> Planned:
        found = planned(program, computation, spec, schedule, wanted)
        return replace(found, program=single(with_memories(found.program), spec))

    first = made(wanted)
    refused = standstill(first.program, spec)
    if refused is None:
        return first
    if schedule is None:
        return made(replace(wanted, turns=False))
    raise refused


def standstill(program: Program, spec: Spec) -> TokensError | None:
    """Return the refusal of a program whose tokens have no room."""
    try:
        Phases(program, spec).each  # noqa: B018
    except TokensError as refused:
        return refused
    return None
