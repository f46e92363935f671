"""`oc.compile`: what is asked of it, described, and how it is to be compiled."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from offcut.backends.arguments import check_price
from offcut.backends.compile_request import CompileRequest, request_of
from offcut.backends.decide import proved_plan
from offcut.backends.options import Options
from offcut.backends.passes import Pass
from offcut.backends.target import Target
from offcut.backends.tuned_schedule import RecordsArg, find_tuned_schedule
from offcut.backends.verify import unproved_choice_notes
from offcut.schedule import with_user_costs


@dataclass(frozen=True)
class Alternative:
    """One way to compile a request.

    notes   what its plan says first
    source  the records that it is from, which may be left aside; "" for what the user asked
    """

    options: Options
    notes: tuple[str, ...]
    source: str = ""


@dataclass
class Compilation:
    """What `oc.compile` is asked, and what its passes have given.

    price    a cost model of the user's
    records  None, False, a file: where nothing is decided
    decided  the first argument that leaves nothing for records to decide; "" for none
    """

    output: Any
    inputs: Any
    constants: Mapping[str, Any] | None
    target: Target
    asked: Options
    price: Any
    records: RecordsArg
    decided: str
    notes: tuple[str, ...] = ()
    request: CompileRequest = field(init=False)
    options: tuple[Alternative, ...] = field(init=False)

    def describe(self) -> CompileRequest:
        """Return the program, its constants bound, checked."""
        request, notes = request_of(
            self.target, self.output, self.inputs, self.constants, self.asked, "compile"
        )
        self.notes = (*notes, *unproved_choice_notes(request.program, "compile"))
        return request


def alternatives(job: Compilation) -> tuple[Alternative, ...]:
    """Return how a request is to be compiled, in order of preference: as records settled it before the target's own policy."""
    options, request = job.asked, job.request
    if job.price is not None:
        check_price(job.price, options.schedule)
        planned = proved_plan(job.target, request, replace(options, keep_pruned=True))
        if planned.schedule is not None and planned.applied is not None:
            loops, sizes = planned.applied.partition.loops, dict(request.users.sizes)
            options = replace(
                options, schedule=with_user_costs(planned.schedule, loops, job.price, sizes)
            )
    if job.decided:
        return (Alternative(options, job.notes),)
    tuned_schedule = find_tuned_schedule(request, options, job.target, job.records)
    own = Alternative(options, (*job.notes, *tuned_schedule.notes))
    if tuned_schedule.schedule is None:
        return (own,)
    from_records = Alternative(
        replace(options, schedule=tuned_schedule.schedule), own.notes, tuned_schedule.source
    )
    return (from_records, replace(own, notes=own.notes[:-1]))


DESCRIBE: Pass[Any, Any] = Pass(
    "describe",
    ("output", "inputs", "constants"),
    "request",
    "accesses stay inside, sizes keep their promises, arrays fit, at every size",
    lambda job: job.describe(),
    lambda request: request.program,
)
CHOOSE: Pass[Compilation, tuple[Alternative, ...]] = Pass(
    "choose",
    ("request",),
    "options",
    "none: the user, records or the policy decide, and what they decide is proved below",
    alternatives,
)
