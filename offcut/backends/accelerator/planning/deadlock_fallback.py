"""A plan that cannot deadlock: where tokens have no room, the policy plans again without windows that take turns."""

from __future__ import annotations

from dataclasses import replace

from offcut.backends.accelerator.host_device_split import HostDeviceProgram
from offcut.backends.accelerator.lowering.annotations import with_memories
from offcut.backends.accelerator.lowering.queues import TokensError
from offcut.backends.accelerator.planning.operation_stores import split_statements
from offcut.backends.accelerator.planning.planner import NO_REQUEST, PlanRequest, plan_program
from offcut.backends.accelerator.spec import AcceleratorSpec
from offcut.backends.target import TargetPlan
from offcut.core.program import Program
from offcut.describe.computation import Computation
from offcut.schedule import Schedule


def plan_without_deadlock(
    program: Program,
    computation: Computation,
    spec: AcceleratorSpec,
    schedule: Schedule | None,
    request: PlanRequest = NO_REQUEST,
) -> TargetPlan:
    """Return the program on the chip; `schedule` decides where there is one, else the policy.

    Raises TargetError for what the machine does not do, PartitionError for a schedule that is none of the program, or
    whose windows in turn could come to a standstill.
    """

    def plan(request: PlanRequest) -> TargetPlan:
        planned = plan_program(program, computation, spec, schedule, request)
        return replace(planned, program=split_statements(with_memories(planned.program), spec))

    first = plan(request)
    try:
        _ = HostDeviceProgram(
            first.program, spec
        ).each  # lowers it, and so finds room for its tokens
    except TokensError:
        if schedule is not None:
            raise
        return plan(replace(request, turns=False))
    return first
