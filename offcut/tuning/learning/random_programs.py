"""Random programs, random legal schedules of them, and what each takes: by the clock, or by the target's simulator.

Programs are contractions, convolutions, stencils, reductions and chains of element-wise operations, in one or several stages. Program number k
of a seed is the same whatever was drawn before it, and so are its schedules: what was broken off is begun
again with the same command, and measures what records do not have.

Source: Adams et al., "Learning to Optimize Halide with Tree Search and Random Programs", SIGGRAPH 2019, section 5: random
pipelines of operations that networks and image processing have.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from math import inf
from random import Random
from typing import Any

from offcut import ops
from offcut.backends.decide import proved_plan
from offcut.backends.options import check_result
from offcut.backends.target import Options, Target
from offcut.core.sizes import dim
from offcut.describe.functions import maximum, minimum, reduce_axis
from offcut.describe.functions import sum as summed
from offcut.describe.tensor import Tensor, compute, placeholder
from offcut.errors import OffcutError, TargetError
from offcut.schedule import Schedule
from offcut.search import Outcome, Records, ScheduleSpace
from offcut.tuning.measuring.candidate import measuring
from offcut.tuning.problem import Limits, Measured, Problem, make_problem
from offcut.tuning.recorded_trials import TrialLog
from offcut.tuning.schedule_prices import ClosedForm

SIZES = 2
"""Sizes of a call at which each schedule is measured."""
LARGEST = 128
"""Of them, the largest."""


@dataclass(frozen=True, slots=True)
class Drawn:
    """A program that was drawn.

    kind       what it begins with, and of which type: ``contraction int8``
    constants  names of inputs that are known before any call
    sizes      of its first dimension
    """

    kind: str
    output: Tensor
    inputs: tuple[Tensor, ...]
    constants: tuple[str, ...]
    sizes: Mapping[str, tuple[int, ...]]


def drawn(rng: Random, kind: str) -> Drawn:
    """Return a program of a kind of `KINDS`.

    rng  decides all else
    """
    kind_of_program, dtype = kind.split()
    sizes = sorted({round(2 ** rng.uniform(0, 7)) for _ in range(SIZES)})
    n = dim("n", min=1, max=LARGEST)
    output, inputs, constants = _OPERATORS[kind_of_program](rng, n, dtype)
    return Drawn(kind, output, inputs, constants, {"n": tuple(min(s, LARGEST) for s in sizes)})


_Operator = tuple[Tensor, tuple[Tensor, ...], tuple[str, ...]]


def _contraction(rng: Random, n: Any, dtype: str) -> _Operator:
    depth, columns = _length(rng), _length(rng)
    x = placeholder((n, depth), dtype, name="X")
    w = placeholder((depth, columns), dtype, name="W")
    sums = ops.dense(x, w, name="S")
    inputs = [x, w]
    if rng.random() < 0.3:
        r = placeholder((n, columns), dtype, name="R")
        wide = _wide(dtype)
        sums = compute(
            (n, columns),
            lambda i, j, s=sums: _shifted(s[i, j], dtype) + r[i, j].astype(wide),
            name="T",
        )
        inputs.append(r)
        return _ended(rng, sums, dtype, 0), tuple(inputs), ("W",)
    return _ended(rng, sums, dtype, 6), tuple(inputs), ("W",)


def _convolution(rng: Random, n: Any, dtype: str) -> _Operator:
    channels, filters = (rng.choice((4, 16, 20, 32)) for _ in range(2))
    width, taps = rng.choice((5, 6, 8)), rng.choice((1, 3))
    x = placeholder((n, width, width, channels), dtype, name="X")
    f = placeholder((taps, taps, channels, filters), dtype, name="F")
    sums = ops.conv2d(x, f, stride=rng.choice((1, 2)), padding=taps // 2, layout="NHWC", name="S")
    return _ended(rng, sums, dtype, 8), (x, f), ("F",)


def _stencil(rng: Random, n: Any, dtype: str) -> _Operator:
    columns, points = _length(rng), rng.randint(2, 4)
    x = placeholder((n, columns + points), dtype, name="X")
    wide = _wide(dtype)
    sums = compute(
        (n, columns),
        lambda i, j: _all([x[i, j + at].astype(wide) for at in range(points)]),
        name="S",
    )
    return _ended(rng, sums, dtype, 1), (x,), ()


def _reduction(rng: Random, n: Any, dtype: str) -> _Operator:
    rows, columns = rng.choice((3, 8, 30)), _length(rng)
    x = placeholder((n, rows, columns), dtype, name="X")
    k = reduce_axis(rows, name="k")
    wide = _wide(dtype)
    sums = compute((n, columns), lambda i, j: summed(x[i, k, j].astype(wide), axis=k), name="S")
    return _ended(rng, sums, dtype, 3), (x,), ()


def _chain(rng: Random, n: Any, dtype: str) -> _Operator:
    columns = _length(rng)
    inputs = [placeholder((n, columns), dtype, name=name) for name in ("X", "Z")]
    wide = _wide(dtype)
    x, z = inputs
    chain = compute(
        (n, columns), lambda i, j: x[i, j].astype(wide) + z[i, j].astype(wide), name="S"
    )
    for number in range(rng.randint(1, 3)):
        chain = _step(rng, chain, f"S{number}")
    return _ended(rng, chain, dtype, 0), (x, z), ()


_OPERATORS: Mapping[str, Callable[[Random, Any, str], _Operator]] = {
    "contraction": _contraction,
    "convolution": _convolution,
    "stencil": _stencil,
    "reduction": _reduction,
    "chain": _chain,
}
KINDS = tuple(f"{made} {dtype}" for made in _OPERATORS for dtype in ("float32", "int8"))
"""What is drawn from; a kind that a target refuses is drawn for others."""


def _length(rng: Random) -> int:
    """Return an extent: often a multiple of what words and vectors have."""
    return rng.choice((16, 32, 48, 64, 96, 128, rng.randint(8, 120)))


def _wide(dtype: str) -> str:
    """Return the type that sums of a type are of."""
    return "int32" if dtype == "int8" else dtype


def _shifted(value: Any, dtype: str) -> Any:
    return value // 64 if dtype == "int8" else value


def _all(terms: list[Any]) -> Any:
    condition = terms[0]
    for term in terms[1:]:
        condition = condition + term
    return condition


def _step(rng: Random, before: Tensor, name: str) -> Tensor:
    """Return a stage that does one operation to each element."""
    constant, which = rng.randint(1, 5), rng.randrange(4)

    def value(*at: Any) -> Any:
        element = before[at]
        return (
            maximum(element, 0),
            element + constant,
            element * constant,
            minimum(element, 20 * constant),
        )[which]

    axes = [f"i{place}" for place in range(len(before.shape))]
    return compute(before.shape, value, axes=axes, name=name)


def _ended(rng: Random, sums: Tensor, dtype: str, shift: int) -> Tensor:
    """Return a program's end: an epilogue by chance; of integers, cut to 8 bits."""
    if rng.random() < 0.5:
        sums = _step(rng, sums, "E")
    if dtype == "int8":
        return ops.requantize(sums, shift, name="Y")
    return sums


EXPLORER = "random"
"""What records call what was drawn here."""

SCHEDULES = 8
"""Schedules of a program, the target's own first."""

DRAWS = 4
"""Schedules that are drawn for each that is to be measured, at most: some are refused, or drawn twice."""


@dataclass(frozen=True, slots=True)
class Sampled:
    """What came of random programs.

    programs   how many were measured
    outcomes   of schedules, how many came to each
    known      schedules that records had
    refused    how many kinds of programs the target refused, by kind
    """

    programs: int
    outcomes: Mapping[Outcome, int]
    known: int
    refused: Mapping[str, int]


def sample(
    target: Target,
    records: Records,
    programs: int | None,
    seconds: float = inf,
    seed: int = 0,
    schedules: int = SCHEDULES,
    limits: Limits | None = None,
    tell: Callable[[int, str], None] = lambda number, kind: None,
) -> Sampled:
    """Measure random schedules of random programs, and record what each takes.

    programs   how many; None: as many as `seconds` allow
    seconds    after which no further program, and on a simulator no schedule, is begun
    schedules  of each program, at most
    limits     of each candidate
    tell       the number of a program and its kind, before it is measured

    Raises TargetError for a target that takes no program of any kind, and for what `Bench` raises; BusyError where
    the machine does too much else.
    """
    until = time.monotonic() + seconds
    options = check_result(target, "options", target.options("learn"))
    outcomes, refused = Counter[Outcome](), Counter[str]()
    count, before = 0, 0
    while (programs is None or count < programs) and time.monotonic() < until:
        program, problem, space = _accepted(target, options, seed, count, refused)
        tell(count, program.kind)
        log = TrialLog(records, problem, space.first)
        recorded = log.outcomes()
        drawn_schedules = _schedules(problem, space, Random(f"{seed}/{count}/schedules"), schedules)
        before += sum(str(one) in recorded for one in drawn_schedules)
        log.complete(
            drawn_schedules,
            partial(_measure, problem, limits or Limits(noise=inf), until, outcomes),
            EXPLORER,
            ClosedForm(problem, space.computation),
        )
        count += 1
    return Sampled(count, dict(outcomes), before, dict(refused))


def _accepted(
    target: Target, options: Options, seed: int, number: int, refused: Counter[str]
) -> tuple[Drawn, Problem, ScheduleSpace]:
    """Return the program of a number: of the kinds in an order of its own, the first that the target takes."""
    rng = Random(f"{seed}/{number}")
    because = ""
    for kind in rng.sample(KINDS, len(KINDS)):
        program = drawn(Random(f"{seed}/{number}/{kind}"), kind)
        try:
            sizes = {name: list(values) for name, values in program.sizes.items()}
            problem = make_problem(
                "learn",
                program.output,
                program.inputs,
                program.constants,
                sizes,
                target,
                options,
                seed,
            )
            default = proved_plan(target, problem.request, options)
            return program, problem, target.space(default, problem.request, options, 1)
        except OffcutError as error:
            refused[kind] += 1
            because = because or str(error).partition("\n")[0]
    raise TargetError(
        "learn",
        f"cannot learn from random programs on target={target.name!r}",
        because=f"it refuses all of them, the first so: {because}",
        help=("offcut learn RECORDS: of programs that it takes",),
    )


def _schedules(
    problem: Problem, space: ScheduleSpace, rng: Random, count: int
) -> Sequence[Schedule]:
    """Return schedules of a space that have a price, the target's own first."""
    price = ClosedForm(problem, space.computation)
    schedules: dict[Schedule, None] = {}
    for number in range(DRAWS * count):
        if len(schedules) >= count:
            break
        one = space.sample(rng) if number else space.first
        try:
            price(one)
        except OffcutError:
            continue
        schedules[one] = None
    return list(schedules)


def _measure(
    problem: Problem,
    limits: Limits,
    until: float,
    outcomes: Counter[Outcome],
    schedules: Sequence[Schedule],
    tell: Callable[[Measured], None],
) -> None:
    """Measure schedules; on a simulator, as many as there is time for."""

    def count(one: Measured) -> None:
        outcomes[one.outcome] += 1
        tell(one)

    with ExitStack() as stack:
        here = measuring(problem, limits, stack)
        if not problem.target.is_simulator:
            here.turns(schedules, count)
            return
        for one in schedules:
            if time.monotonic() >= until:
                return
            here.turns([one], count)
