"""The plan of a program whose tokens have room: the policy does without windows in turn where they have none."""

from __future__ import annotations

from dataclasses import replace

from offcut.backends.accelerator.lowering.queues import TokensError
from offcut.backends.accelerator.phases import Phases
from offcut.backends.accelerator.planning.planner import planned
from offcut.backends.accelerator.spec import Spec
from offcut.backends.target import Planned
from offcut.core.program import Program
from offcut.describe.computation import Computation
from offcut.errors import PartitionError
from offcut.schedule import Nest, Schedule
from offcut.schedule.refusing import at_line


def settled(
    program: Program, computation: Computation, spec: Spec, schedule: Schedule | None
) -> Planned:
    """The program on the chip; `schedule` decides where there is one, else the policy.

    Raises TargetError for what the machine does not do, PartitionError for a schedule that is none of the program, or
    whose windows in turn could come to a standstill.
    """
    made = planned(program, computation, spec, schedule)
    refused = standstill(made.program, spec)
    if refused is None:
        return made
    if schedule is None:
        return planned(program, computation, spec, None, turns=False)
    deep = [
        (step, way.depth)
        for step in schedule.steps
        if isinstance(step, Nest)
        for way in step.ways
        if way.depth is not None
    ]
    for nest, depth in deep:
        alone = planned(program, computation, spec, _with_depth_of(schedule, nest))
        if len(deep) == 1 or standstill(alone.program, spec) is not None:
            with at_line(schedule, depth):
                raise PartitionError(
                    "schedule",
                    "cannot cut a nest so",
                    because=refused.because,
                    help=refused.help,
                )
    raise refused


def standstill(program: Program, spec: Spec) -> TokensError | None:
    """The refusal of a program whose tokens have no room."""
    try:
        Phases(program, spec).each  # noqa: B018
    except TokensError as refused:
        return refused
    return None


def _with_depth_of(schedule: Schedule, nest: Nest) -> Schedule:
    """`schedule` without the depths of other nests."""
    steps = tuple(
        replace(step, ways=tuple(replace(way, depth=None) for way in step.ways))
        if isinstance(step, Nest) and step is not nest
        else step
        for step in schedule.steps
    )
    return replace(schedule, steps=steps)
