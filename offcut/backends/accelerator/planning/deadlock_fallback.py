"""A plan whose tiles name what runs them, and that cannot deadlock: where tokens have no room, windows do not take turns."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from offcut.backends.accelerator.host_device_split import HostDeviceProgram
from offcut.backends.accelerator.lowering.annotations import annotate, with_memories
from offcut.backends.accelerator.lowering.queues import TokensError
from offcut.backends.accelerator.planning.operation_stores import split_statements
from offcut.backends.accelerator.planning.plan_request import NO_REQUEST, PlanRequest
from offcut.backends.accelerator.planning.planner import plan_program
from offcut.backends.accelerator.spec import AcceleratorSpec
from offcut.backends.decide import attempt
from offcut.backends.options import TargetPlan
from offcut.core.program import Program
from offcut.describe.computation import Computation
from offcut.schedule import Schedule


def annotated_plan(plan: TargetPlan, spec: AcceleratorSpec) -> TargetPlan:
    """Return a plan in statements of one operation each, with the words of its program about the machine.

    Raises TargetError for what the machine does not run, TokensError where windows in turn could come to a standstill.
    """
    program = split_statements(with_memories(plan.program), spec)
    phases = HostDeviceProgram(program, spec).nests
    nests = [option.nest for phase in phases for option in phase.options]
    return replace(plan, program=annotate(program, nests))


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
        return annotated_plan(plan_program(program, computation, spec, schedule, request), spec)

    refused: TokensError | None = None
    for tilings in dict.fromkeys((request.tilings, 1)):
        in_turn = attempt(partial(plan, replace(request, tilings=tilings)), TokensError)
        if isinstance(in_turn, TargetPlan):
            return in_turn
        refused = refused or in_turn
        if schedule is not None:
            raise refused
    return plan(replace(request, turns=False))
