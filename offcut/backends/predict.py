"""Predict the time of calls of a plan, for any target: by the closed form over its resources, and its learned correction.

The learned correction of a target's closed form, in `cost` and `plan`: seconds = closed form * factor.

The factor is applied here and nowhere below, so that what is corrected once is not corrected again. Where a model is off, it is said why.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from offcut.backends.compile_request import CompileRequest
from offcut.backends.options import Options, TargetPlan, check_result
from offcut.backends.plan import CallPredictor, Plan, check_sizes, evaluate_plan
from offcut.backends.signature import signature_of
from offcut.core.dtypes import ITEM_BYTES
from offcut.core.records_path import default_file
from offcut.costmodel import (
    CallCycles,
    Cost,
    Device,
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
from offcut.errors import OffcutError

if TYPE_CHECKING:
    from offcut.backends.target import Resources, Target
    from offcut.costmodel.learned import CorrectedModel


def model_path(target: str) -> Path | None:
    """Return the default file of the model that is learned for a target: ``OFFCUT_MODEL``, else ``model-vta.json`` and so on beside
    the default records; None where ``OFFCUT_RECORDS`` is ``off``.
    """
    path_of_user = os.environ.get("OFFCUT_MODEL")
    if path_of_user:
        return Path(path_of_user).expanduser()
    records = default_file()
    return None if records is None else records.with_name(f"model-{target}.json")


@dataclass(frozen=True)
class Correction:
    """The learned model of a target.

    named    its file
    pair     None: it is off
    because  why it is
    """

    named: str
    pair: CorrectedModel | None
    because: str = ""

    def factor(self, cost: Cost, machine: Device) -> tuple[float, str]:
        """Return what the seconds of a call are multiplied by, and a line that says so; 1 where the model is off, or was not learned
        from the like of this call.
        """
        import numpy as np

        from offcut.costmodel.learned import Case, columns, compute_features, load_features

        because = self.because
        if self.pair is not None:
            try:
                names, features = compute_features(Case.of_costs((cost,), machine), load_features())
                feature_columns = columns(names, self.pair.names, self.named)
                closed_form = np.array([cost.seconds])
                corrections = self.pair.predict(features[:, feature_columns], closed_form)
                because = corrections.because[0]
                if not because:
                    factor = float(corrections.seconds[0] / closed_form[0])
                    return factor, f"{self.named}: the closed form × {factor:.3f}"
            except OffcutError as error:
                because = error.because
        return 1.0, f"not by {self.named}: {because}"


def correction_of(target: Target) -> Correction | None:
    """Return the model of a target; None where there is no file of one."""
    path = model_path(target.name)
    try:
        return None if path is None else _read(path, path.stat().st_mtime_ns)
    except OSError:
        return None


@lru_cache(8)
def _read(path: Path, modified_ns: int) -> Correction:
    from offcut.costmodel.learned import CorrectedModel, useless_in

    try:
        because = useless_in(path)
        return Correction(path.name, None if because else CorrectedModel.load(path), because)
    except OffcutError as error:
        return Correction(path.name, None, error.because)


def corrected_cost(target: Target, cost: Cost) -> Cost:
    """Return the cost of a call, corrected by the model of the target if there is one."""
    correction = correction_of(target)
    if correction is None or not cost.seconds > 0:
        return cost
    factor, note = correction.factor(cost, target.machine)
    return replace(cost, factor=factor, correction=note)


def corrected_plan(
    target: Target, planned: TargetPlan, request: CompileRequest, options: Options, plan: Plan
) -> Plan:
    """Return the plan of a call, its seconds corrected as those of its cost are."""
    correction = correction_of(target)
    if correction is None:
        return plan
    try:
        cost = target.predict_cost(planned, request, options, plan.sizes)
    except OffcutError:
        return plan
    if not isinstance(cost, Cost) or not cost.seconds > 0:
        return plan
    factor, note = correction.factor(cost, target.machine)
    return replace(
        plan,
        pieces=tuple(replace(one, seconds=one.seconds * factor) for one in plan.pieces),
        considered=tuple(replace(one, seconds=one.seconds * factor) for one in plan.considered),
        beside=plan.beside * factor,
        notes=(*plan.notes, note),
    )


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
