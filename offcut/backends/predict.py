"""Predict the time of calls of a plan, for any target: by the closed form over its resources."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from offcut.backends.compile_request import CompileRequest
from offcut.backends.correction import corrected_plan
from offcut.backends.options import Options, TargetPlan
from offcut.backends.plan import CallPredictor, Plan, check_sizes, evaluate_plan
from offcut.backends.result_checks import check_result
from offcut.backends.signature import signature_of
from offcut.core.dtypes import ITEM_BYTES
from offcut.costmodel import (
    CallCycles,
    Cost,
    Formulas,
    Hardware,
    Level,
    Machine,
    call_cycles,
    cost,
    formulas,
    processor,
    sample_calls,
)
from offcut.costmodel.nests import SchedulePrices
from offcut.costmodel.nests.schedules import choice_errors

if TYPE_CHECKING:
    from offcut.backends.target import Resources, Target

ELEMENT = ITEM_BYTES["float64"]
"""Bytes of what a machine computes at once that says nothing of vectors."""


def hardware_of(
    resources: Resources, options: Options, vector_bytes: int = ELEMENT, vectors: int = 1
) -> Hardware:
    """Return the hardware that the closed form counts by: the description, its levels of memory, the microkernels.

    vector_bytes, vectors  of what holds values while they are computed with

    Raises TargetError where the description says nothing of loops.
    """
    machine = processor(resources.machine)
    levels = (
        Level(vectors * vector_bytes, 1),
        *(Level(m.bytes, m.line, m.ways) for m in machine.memory),
    )
    kernels = {kernel.name: kernel for kernel in resources.microkernels(options)}  # type: ignore[attr-defined]
    return Hardware(machine, kernels, vector_bytes, levels)


def pricing(
    resources: Resources, planned: TargetPlan, request: CompileRequest, options: Options
) -> CallPredictor | None:
    """Return the function that predicts calls of a plan; None if the machine's description has no loops."""
    if not isinstance(resources.machine, Machine):
        return None
    hardware, users = resources.hardware(options), dict(request.users.sizes)

    def predict(sizes: Mapping[str, int], options_of: Mapping[int, int]) -> CallCycles:
        program_sizes = {users[user]: size for user, size in sizes.items()}
        return call_cycles(planned.program, hardware, program_sizes, options_of)

    return predict


def plan_of(
    target: Resources,
    planned: TargetPlan,
    request: CompileRequest,
    options: Options,
    sizes: Mapping[str, int],
) -> Plan:
    """Return the plan at these sizes, in the users' names."""
    predicted = pricing(target, planned, request, options)
    plan = evaluate_plan(
        planned.applied, signature_of(request.program, request.users), sizes, predicted
    )
    names = dict(request.users.sizes)
    program_sizes = {names[user]: n for user, n in plan.sizes.items()}
    notes = check_result(target, "notes", target.notes(planned, program_sizes, options))  # type: ignore[attr-defined]
    return replace(plan, notes=(*plan.notes, *planned.notes, *notes))


def explain_plan(
    target: Target,
    planned: TargetPlan,
    request: CompileRequest,
    options: Options,
    sizes: Mapping[str, int],
    notes: tuple[str, ...],
) -> Plan:
    """Return the plan of a call, with `notes` before what it says, and behind it how far its choices are off."""
    plan = target.describe_plan(planned, request, options, sizes)
    plan = corrected_plan(target, planned, request, options, plan)
    return replace(
        plan, notes=(*notes, *plan.notes, *choice_notes(target, planned, request, options))
    )


def cost_of(
    resources: Resources,
    planned: TargetPlan,
    request: CompileRequest,
    options: Options,
    sizes: Mapping[str, int] | None = None,
) -> Cost | Formulas:
    """Return the cost of a call by the closed form, on one engine: at `sizes`, or as formulas in them.

    Raises CallError for a size that is missing or not allowed, TargetError where the machine's description says
    nothing of loops.
    """
    hardware = resources.hardware(options)
    programs = request.program, planned.program
    return cost_at(
        request,
        sizes,
        lambda users: formulas(*programs, hardware, users),
        lambda user_sizes, at: cost(*programs, hardware, user_sizes, at),
    )


def cost_at(
    request: CompileRequest,
    sizes: Mapping[str, int] | None,
    formulas: Callable[[Mapping[str, str]], Formulas],
    cost: Callable[[Mapping[str, int], Mapping[str, int]], Cost],
) -> Cost | Formulas:
    """Return a cost at `sizes`, by the user's names; None: as formulas.

    formulas  from the user's name of each size, by the program's name
    cost      from checked sizes: by the user's names, and by the program's

    Raises CallError for a size that is missing or not allowed.
    """
    users = dict(request.users.sizes)
    if sizes is None:
        return formulas({name: user for user, name in users.items()})
    sizes = check_sizes(signature_of(request.program, request.users), sizes, "cost")
    return cost(sizes, {users[user]: size for user, size in sizes.items()})


def choice_notes(
    target: Target, planned: TargetPlan, request: CompileRequest, options: Options
) -> tuple[str, ...]:
    """Return notes on the error of the costs by which a call chooses, and on the time that it loses; none if nothing competes."""
    competes = planned.applied is not None and any(
        len(ways) > 1 for ways in planned.applied.choices
    )
    if not competes or planned.schedule is None or not isinstance(target.machine, Machine):
        return ()
    computation = target.computation(request, options)
    resolving = None if computation is None else target.variant_resolver(computation, options)
    if resolving is None:
        return ()
    calls = sample_calls(request.program.sizes, request.program.assumptions)
    prices = SchedulePrices(target.hardware(options), calls, resolving)
    return tuple(map(str, choice_errors(planned.schedule, prices)))
