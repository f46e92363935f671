"""What is proved of a lowered schedule, from its program and its source alone."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from itertools import pairwise

from offcut.core.program import Program
from offcut.errors import PartitionError
from offcut.partition import check_marks
from offcut.polyhedral import request_budget
from offcut.proof import Certificate, Theorem, check_equal
from offcut.schedule.apply.staged_form import Nests


def lowering_budget() -> AbstractContextManager[None]:
    """Let isl take what one request may, for a step of lowering a schedule."""
    help = 'fewer splits, or tail="cut"'
    return request_budget("lower", "cannot lower the schedule", help=(help,))


def prove(
    nests: Nests,
    source: Program,
    programs: Sequence[Program],
    reassociate: bool = True,
    most: int | None = None,
    inside: bool = False,
) -> Certificate:
    """Return the theorems by which the last of `programs` computes what was described, for all sizes.

    The rewrites of stages, each by its equation; that each program computes what the one before does, the first what
    `source` does; and that loops whose iterations run together carry no dependence.

    Each question has the work of a request: one more staged array makes no other question harder.

    source       the stages of the first program, in their own loops
    programs     of which each has one staged array more than the one before
    reassociate  whether the terms of a declared sum may be added in any order
    most         operations that isl may take for a question; None: those of a request
    inside       whether every access of `source` is known to lie inside

    Raises PartitionError with the smallest witness.
    """
    users = {name: user for user, name in nests.size_names}
    theorems = []
    for one in nests.rewrites:
        if one.groups and not reassociate:
            raise PartitionError(
                "prove",
                "cannot group the terms of a sum",
                at=one.primitive,
                because="reassociate=False: they are added in ascending order",
            )
        if one.alike is not None:
            check_equal(*one.alike, reassociate=reassociate, users=users)
        theorems.append(Theorem("substitution", one.equation, one.primitive))
    for before, after in pairwise((source, *programs)):
        theorems += check_equal(
            before, after, reassociate=reassociate, users=users, inside=inside, most=most
        )
        inside = True
    with lowering_budget():
        theorems += check_marks(programs[-1], users, reassociate)
    return Certificate(tuple(dict.fromkeys(theorems)))
