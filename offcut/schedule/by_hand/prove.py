"""What is proved of a lowered schedule, from its program and its source alone."""

from __future__ import annotations

from offcut.core.program import Program
from offcut.errors import PartitionError
from offcut.partition import check_marks
from offcut.proof import Certificate, Theorem, check_equal
from offcut.schedule.by_hand.nests import Nests


def prove(nests: Nests, program: Program, reassociate: bool = True) -> Certificate:
    """The theorems by which `program` computes what was described, for all sizes.

    The rewrites of stages, each by its equation; that `program` computes what `nests.source` does; and
    that loops whose iterations run together carry no dependence.

    reassociate  whether the terms of a declared sum may be added in any order

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
    theorems += check_equal(nests.source, program, reassociate=reassociate, users=users)
    theorems += check_marks(program, users, reassociate)
    return Certificate(tuple(theorems))
