"""`oc.prove_equal`: compare two loop programs at every size."""

from __future__ import annotations

from offcut.backends.arguments import check_program
from offcut.backends.compile_request import check_reassociate
from offcut.core.analysis import analysis
from offcut.core.memo import forget
from offcut.core.program import Program, Store
from offcut.core.text.round_trip import read_back
from offcut.errors import PartitionError, trim_traceback
from offcut.partition import check_marks, check_windows
from offcut.polyhedral import PASS, check_promises, request_budget
from offcut.proof import Certificate, check_equal, check_throughout


@trim_traceback
def prove_equal(source: Program, emitted: Program, reassociate: bool = False) -> Certificate:
    """Return the proof that one loop program computes what another one does, at every allowed size.

    source       what must be computed, in plain loops
    emitted      the same sizes and buffers, in whatever order and pieces
    reassociate  whether the terms of a sum may be added in another order

    Raises PartitionError, with the smallest witness, where they differ or the proof does not reach.
    """
    for program in (source, emitted):
        check_program(program, "prove_equal")
        read_back(program, "prove_equal")
    with request_budget("prove_equal", f"cannot compare with {source.name}"):
        check_promises(source, "prove_equal", {})
    check_reassociate(reassociate, "prove_equal")
    forget()
    check_throughout(emitted)
    marks = check_marks(emitted, {}, reassociate)
    try:
        theorems = check_equal(source, emitted, reassociate=reassociate)
    except PartitionError as error:
        adds = any(s.reduce == "sum" for s in analysis(source).of(Store))
        if _are_equal(emitted, source, reassociate):
            help = (*error.help, "prove_equal(emitted, source) is proved: plain loops come first")
        elif adds and not reassociate and _are_equal(source, emitted, reassociate=True):
            help = (*error.help, "reassociate=True: the terms of a sum in any order")
        else:
            raise
        raise PartitionError(
            error.op, error.refused, at=error.at, because=error.because, help=help
        ) from None
    for program in (source, emitted):  # of equal texts, no access was looked at
        check_windows(program, "prove_equal")
    return Certificate((*theorems, *marks))


def _are_equal(source: Program, emitted: Program, reassociate: bool) -> bool:
    """Return whether programs are proved equal in little work."""
    try:
        check_equal(source, emitted, reassociate=reassociate, most=PASS)
    except PartitionError:
        return False
    return True
