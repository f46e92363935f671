"""The learned correction of a target's closed form, in `cost` and `plan`: seconds = closed form * factor.

The factor is applied here and nowhere below, so that what is corrected once is not corrected again. Where a model is off, it is said why.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from offcut.backends.compile_request import CompileRequest
from offcut.backends.options import Options, TargetPlan
from offcut.backends.plan import Plan
from offcut.core.records_path import default_file
from offcut.costmodel import Cost, Device
from offcut.errors import OffcutError

if TYPE_CHECKING:
    from offcut.backends.target import Target
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
