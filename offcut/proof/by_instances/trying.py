"""What is said of two programs where isl gives no answer in bounded work: both run at some small sizes, where they may differ.

Runs refute, they do not prove: a difference is a witness like any other, the smallest of those that are tried; where
none is seen, the programs stay untold.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product

from offcut.core.interpret.values import evaluate
from offcut.core.program import Program
from offcut.errors import PartitionError
from offcut.proof.by_instances.differing import difference, elements
from offcut.proof.by_instances.pairing import refused, untold

_LEAST = 4  # values of each size at most, from its least one on, that are combined
_COMBINATIONS = 4096  # so many at most,
_COMBINED = 12  # of which the smallest are tried
_ALIKE = (
    5,
    7,
    8,
    9,
    15,
    16,
    17,
    33,
)  # further values, of all sizes at once: about the edges of tiles
_MOST_STATEMENTS = 1024  # in a run, and
_MOST_ELEMENTS = 2**16  # so that all runs take about as long as isl did


def tried(
    source: Program, emitted: Program, users: Mapping[str, str], free: bool, because: str
) -> PartitionError:
    """The error of programs of which isl tells nothing.

    users    the users' names of sizes, by the program's
    free     whether the terms of a float sum may be added in another order
    because  why isl does not
    """
    seen, last = 0, ""
    for sizes in small_sizes(source):
        given = ", ".join(f"{users.get(name, name)} = {value}" for name, value in sizes.items())
        if elements(emitted, sizes) > _MOST_ELEMENTS:
            break
        told = difference(source, emitted, sizes, free, _MOST_STATEMENTS)
        if told is None:
            break
        if told:
            return refused(emitted.name, f"with {given}, {told}" if given else str(told))
        seen, last = seen + 1, given
    runs = {
        0: "it is too much to run",
        1: f"a run{' with ' * bool(last)}{last} shows no difference",
    }.get(seen, f"runs at {seen} small sizes, the last with {last}, show no difference")
    return untold(emitted.name, f"{because}; {runs}: it is not known to be wrong")


def small_sizes(program: Program) -> Iterator[dict[str, int]]:
    """Some sizes that a program allows, from the smallest on."""
    sizes = program.sizes
    each = next((k for k in range(_LEAST, 1, -1) if k ** len(sizes) <= _COMBINATIONS), 1)
    least = [
        [size.at_or_above(size.min + k * size.multiple_of) for k in range(each)] for size in sizes
    ]
    combined = sorted(product(*least), key=lambda one: (sum(one), one))
    alike = (tuple(size.at_or_above(value) for size in sizes) for value in _ALIKE)
    fine = [one for one in dict.fromkeys(combined) if _allowed(program, one)][:_COMBINED]
    further = (
        [one for one in alike if sum(one) > sum(fine[-1]) and _allowed(program, one)]
        if fine
        else []
    )
    for values in dict.fromkeys((*fine, *further)):
        yield dict(zip((size.name for size in sizes), values, strict=True))


def _allowed(program: Program, values: tuple[int, ...]) -> bool:
    at = dict(zip((size.name for size in program.sizes), values, strict=True))
    return all(evaluate(one, at) for one in program.assumptions)
