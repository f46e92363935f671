"""The end of a campaign, kept: which schedule was chosen, beside the default, as their last run in turns had them."""

from __future__ import annotations

from dataclasses import replace
from time import time

from offcut.search import Records
from offcut.search.verdict import BEST, DEFAULT, verdicts_of
from offcut.tuning.known import trials_of
from offcut.tuning.problem import Measured, Problem


def settle(records: Records, problem: Problem, chosen: Measured, default: Measured | None) -> None:
    """Record a verdict, whole or not at all; one that is there already is not written again.

    default  None: it could not be measured
    """
    kept = [replace(record, explorer=BEST) for record in chosen.records(problem)]
    if default is not None:
        kept += [replace(record, explorer=DEFAULT) for record in default.records(problem)]
    known = [record for trial in trials_of(records, problem) for record in trial.records]
    (made,) = verdicts_of(replace(one, created=0.0) for one in kept)
    there = (replace(one, created=0.0) for one in verdicts_of(known))
    if made not in there:
        now = time()
        records.add(replace(one, created=now) for one in kept)
