"""What is said of two programs where isl gives no answer in bounded work: both run at some small sizes, where they may differ.

Runs refute, they do not prove: a difference is a witness like any other, the smallest of those that are tried; where
none is seen, the programs stay untold.
"""

from __future__ import annotations

from collections.abc import Mapping

from offcut.core.program import Program
from offcut.core.small_sizes import small_sizes
from offcut.errors import PartitionError
from offcut.proof.by_instances.counterexample import difference, elements
from offcut.proof.by_instances.pairing import difference_error, undecided_error

_MOST_STATEMENTS = 1024  # in a run, and
_MOST_ELEMENTS = 2**16  # so that all runs take about as long as isl did


def compare_sampled_runs(
    source: Program, emitted: Program, users: Mapping[str, str], free: bool, because: str
) -> PartitionError:
    """Return the error of programs of which isl tells nothing.

    users    the users' names of sizes, by the program's
    free     whether the terms of a float sum may be added in another order
    because  why isl does not
    """
    seen, last = 0, ""
    for sizes in small_sizes(source):
        at_sizes = ", ".join(f"{users.get(name, name)} = {value}" for name, value in sizes.items())
        if elements(emitted, sizes) > _MOST_ELEMENTS:
            break
        shown = difference(source, emitted, sizes, free, _MOST_STATEMENTS)
        if shown is None:
            break
        if shown:
            return difference_error(
                emitted.name, f"with {at_sizes}, {shown}" if at_sizes else str(shown)
            )
        seen, last = seen + 1, at_sizes
    runs = {
        0: "it is too much to run",
        1: f"a run{' with ' * bool(last)}{last} shows no difference",
    }.get(seen, f"runs at {seen} small sizes, the last with {last}, show no difference")
    return undecided_error(emitted.name, f"{because}; {runs}: it is not known to be wrong")
