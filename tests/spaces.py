"""Programs whose spaces are searched in tests, for a machine that is named: the same on any host."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from math import log2

import offcut as oc
from offcut import Schedule, Target
from tests.facade import (
    ClosedForm,
    OpenDecisions,
    Options,
    Problem,
    Request,
    ScheduleSpace,
    processor,
    proved_plan,
    requested,
    stand_ins,
)

n = oc.dim("n", min=1, max=4096)
A = oc.placeholder((n, 96), name="A")
W = oc.placeholder((96, 80), name="W")
B = oc.placeholder((n, 96), "bfloat16", name="B")
k = oc.reduce_axis(96, name="k")
DENSE = oc.compute((n, 80), lambda i, j: oc.sum(A[i, k] * W[k, j], axis=k), name="C")
MIXED = oc.compute(
    (n, 80), lambda i, j: oc.sum(B[i, k].astype("float32") * W[k, j], axis=k), name="D"
)
TURNED = oc.compute((80, n), lambda i, j: oc.sum(A[j, k] * W[k, i], axis=k), name="T")
DOUBLED = oc.compute((n, 96), lambda i, j: A[i, j] * 2.0, name="E")
SCAN = oc.parse("""\
program scan
size n in 0:4097
input A: float32[n]
inout B: float32[n]
for i in 1:n
  B[i] = A[i] * 2.0 + B[i - 1]
""")


def dense() -> tuple[oc.Tensor, oc.Tensor, oc.Tensor]:
    """Return a small product, its operand of symbolic height, and its weights: quick to compile and to measure."""
    height = oc.dim("n", min=1, max=64)
    a, w = oc.placeholder((height, 24), name="A"), oc.placeholder((24, 16), name="W")
    depth = oc.reduce_axis(24, name="k")
    sums = oc.compute(
        (height, 16), lambda i, j: oc.sum(a[i, depth] * w[depth, j], axis=depth), name="C"
    )
    return sums, a, w


SIZES = (({"n": 1}, 0.5), ({"n": 64}, 0.5))
"""Sizes that programs are tuned for, each with its weight."""
PROGRAMS: Mapping[str, tuple[object, tuple[str, ...], int]] = {
    "dense": (DENSE, ("W",), 1),
    "unpacked": (DENSE, (), 1),
    "mixed": (MIXED, ("W",), 1),
    "turned": (TURNED, (), 2),
    "softmax": (oc.ops.softmax(A), (), 2),
    "elementwise": (DOUBLED, (), 1),
    "loops": (SCAN, (), 1),
}


@cache
def problem(name: str, machine: str = "cascade-lake") -> tuple[Request, Options, Target]:
    """What is tuned, for a machine that is described."""
    output, constants, threads = PROGRAMS[name]
    target = oc.target("cpu", machine=machine)
    options = target.options("tune", threads=threads)
    return (
        requested(output, None, stand_ins(constants, output, None, "tune"), "tune"),
        options,
        target,
    )


def space_of(
    request: Request, options: Options, target: Target, alternatives: int
) -> ScheduleSpace:
    """What can be decided of a program with nests."""
    planned = proved_plan(target, request, options)
    found = target.space(planned, request, options, alternatives)
    assert isinstance(found, ScheduleSpace)
    return found


def open_decisions(
    name: str,
    alternatives: int = 3,
    machine: str = "cascade-lake",
    first: Schedule | None = None,
) -> OpenDecisions:
    """What a schedule of a program leaves open; None: the schedule that the policy decides."""
    request, options, target = problem(name, machine)
    return OpenDecisions(
        space(name, alternatives, machine).first if first is None else first,
        request.program,
        target.microkernels(options),
        processor(target.machine),
        target.computation(request, options),
        alternatives,
    )


@cache
def space(name: str, alternatives: int = 3, machine: str = "cascade-lake") -> ScheduleSpace:
    """The space of a program, without a price."""
    return space_of(*problem(name, machine), alternatives)


@cache
def closed_form(name: str, seed: int = 0) -> ClosedForm:
    """Return the price of schedules of a program in a space of two alternatives, at `SIZES`.

    All campaigns share it, so each schedule is predicted once.
    """
    return ClosedForm(Problem(*problem(name), SIZES, seed), space(name, 2).computation)


def planted(space: ScheduleSpace, best: Schedule) -> Callable[[Schedule], float]:
    """A price whose least point is `best`: 1, and more the more a schedule differs from it, word by word; a number
    by how often it doubles.
    """
    wanted = _words(best)

    def price(schedule: Schedule) -> float:
        found = _words(schedule)
        return 1.0 + sum(
            _apart(wanted.get(line, ()), found.get(line, ())) for line in {**wanted, **found}
        )

    return price


def _words(schedule: Schedule) -> dict[tuple[str, ...], tuple[str, ...]]:
    """The words of each line, by its first two, which name the stage, and a unit by all; not the names of options."""
    found: dict[tuple[str, ...], tuple[str, ...]] = {}
    for line in str(schedule).splitlines():
        words = line.split()
        if words[0] not in ("choose", "option"):
            names = len(words) if words[0] == "bind" else 2
            found[tuple(words[:names])] = tuple(words[names:]) or ("there",)
    return found


def _apart(one: tuple[str, ...], other: tuple[str, ...]) -> float:
    if not one or not other:
        return 4.0
    total = float(abs(len(one) - len(other)))
    for mine, theirs in zip(one, other, strict=False):
        if mine.isdigit() and theirs.isdigit():
            total += abs(log2(max(int(mine), 1) / max(int(theirs), 1)))
        else:
            total += mine != theirs
    return total


def with_planted(space: ScheduleSpace, best: Schedule) -> ScheduleSpace:
    """The space with that price."""
    return replace(space, expected=planted(space, best))
