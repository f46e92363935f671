"""What is tuned, within which limits, and what is known of a candidate once it was measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from math import fsum, isnan
from numbers import Real
from time import time
from typing import Any

import offcut
from offcut.backends.compile_request import CompileRequest, request_by_names
from offcut.backends.target import Options, Target
from offcut.core.integers import whole
from offcut.core.program import Program
from offcut.costmodel import plain
from offcut.describe.tensor import Tensor
from offcut.errors import DescribeError
from offcut.schedule import Schedule
from offcut.search import Origin, Outcome, Place, ProgramText, Record, Sizes, Source, key_of
from offcut.tuning.distribution import distribution


@dataclass(frozen=True)
class Problem:
    """A program to be tuned for a distribution of sizes; it can be pickled where its options can.

    request, options, target  as a kernel is made of; a constant that is zero everywhere stands for any
    sizes                     vectors of sizes, by the user's names, each with how much a call there counts
    seed                      of the arrays that candidates are called with
    """

    request: CompileRequest
    options: Options
    target: Target
    sizes: tuple[tuple[Mapping[str, int], float], ...]
    seed: int = 0

    @property
    def keys(self) -> tuple[Sizes, ...]:
        """The vectors of sizes, as prices and trials have them."""
        return tuple(key_of(at) for at, _ in self.sizes)

    @property
    def weights(self) -> dict[Sizes, float]:
        """How much a call at each vector of sizes counts."""
        return {key_of(at): weight for at, weight in self.sizes}

    @property
    def program(self) -> str:
        """What records call the program."""
        return self.request.program.digest

    @property
    def machine(self) -> str:
        """What records call the place."""
        return self.target.record_key(self.options)

    @property
    def origins(self) -> tuple[Origin, ...]:
        """The program and the place in full: with these, what was recorded can be planned again."""
        options = self.options
        lent = tuple(kernel.name for kernel in options.microkernels)
        machine = plain(self.target.machine)
        return (
            ProgramText(self.program, str(self.request.program), dict(self.request.users.sizes)),
            Place(
                self.machine, self.target.name, machine, options.threads, options.reassociate, lent
            ),
        )

    @property
    def source(self) -> Source:
        """Return where its times are from."""
        if self.target.is_predicted:
            return Source.PREDICTED
        return Source.SIMULATED if self.target.is_simulator else Source.MEASURED

    def scheduled(self, schedule: Schedule | None) -> Options:
        """The options of a candidate; of the default policy where there is no schedule."""
        return replace(self.options, schedule=schedule)


@dataclass(frozen=True, slots=True)
class Limits:
    """What measuring may take.

    patience    seconds that a candidate may be silent, on the wall: to be compiled, to run once
    memory      bytes that one may take beside what an interpreter has
    budget      seconds that each is timed at one vector of sizes, at most
    resolution  the half width of the 95 % interval of a median over that median, which is enough to rank
    hopeless    times the least median: a candidate beyond is not timed again, and one that is predicted beyond the least
                prediction is not tried
    noise       the distance of the quartiles over the median of one and the same kernel: beyond, nothing is ranked
    reference   seconds that what results must be may take to compute, for all sizes
    """

    patience: float = 60.0
    memory: int = 4 << 30
    budget: float = 0.3
    resolution: float = 0.02
    hopeless: float = 4.0
    noise: float = field(default=0.5, metadata={"zero": True})
    reference: float = 300.0

    def __post_init__(self) -> None:
        """Raises DescribeError for what is no such number."""
        for one in fields(self):
            value, counted = getattr(self, one.name), isinstance(one.default, int)
            good = whole(value) is not None if counted else _is_number(value)
            may_be_zero = one.metadata.get("zero", False)
            if not (good and (value > 0 or (may_be_zero and value == 0))):
                wanted = "an int" if counted else "a number"
                raise DescribeError(
                    "Limits",
                    f"cannot take {one.name}={value!r}",
                    because=f"{one.name} is {wanted} {'from 0 on' if may_be_zero else 'above 0'}",
                    help=(f"Limits({one.name}={one.default})",),
                )


def _is_number(value: object) -> bool:
    """Whether it is one; infinity is, NaN is not."""
    return isinstance(value, Real) and not isinstance(value, bool) and not isnan(value)


DEFAULT = Limits()


@dataclass(frozen=True, slots=True)
class Time:
    """How long a call takes at one vector of sizes.

    seconds  median of a call
    spread   distance of the quartiles over the median
    """

    sizes: Mapping[str, int] = field(hash=False)
    seconds: float
    spread: float


@dataclass(frozen=True, slots=True)
class Measured:
    """What became of a candidate.

    times      in the order of the problem's sizes; none where the outcome is not ok
    because    why it is not ok
    at         the sizes where it ended; empty where that was before any call
    reference  seconds of the default schedule's kernel, which took its turns beside it, in the order of the
               problem's sizes; none where nothing was timed, or that kernel failed
    """

    schedule: Schedule
    outcome: Outcome
    times: tuple[Time, ...] = ()
    because: str = ""
    at: Mapping[str, int] = field(default_factory=dict, hash=False)
    reference: tuple[float, ...] = ()

    def seconds(self, problem: Problem) -> float:
        """Sum of weight * seconds over the problem's sizes; infinite where the outcome is not ok."""
        if self.outcome is not Outcome.OK:
            return float("inf")
        pairs = zip(problem.sizes, self.times, strict=True)
        return fsum(weight * one.seconds for (_, weight), one in pairs)

    def records(
        self, problem: Problem, explorer: str = "", predicted: Sequence[float | None] = ()
    ) -> tuple[Record, ...]:
        """What is to be kept: a record for each vector of sizes; one where the outcome is not ok.

        predicted  seconds, in the order of the problem's sizes
        """
        kept = partial(
            Record,
            program=problem.program,
            schedule=str(self.schedule),
            machine=problem.machine,
            version=offcut.__version__,
            seed=problem.seed,
            explorer=explorer,
            created=time(),
            source=problem.source,
        )
        if self.outcome is not Outcome.OK:
            because = self.because.encode(errors="replace").decode()
            return (kept(sizes=dict(self.at), outcome=self.outcome, because=because),)
        guesses = (*predicted, *[None] * len(self.times))
        return tuple(
            kept(
                sizes=dict(one.sizes),
                outcome=self.outcome,
                seconds=one.seconds,
                spread=one.spread,
                predicted=guess,
            )
            for one, guess in zip(self.times, guesses, strict=False)
        )


def make_problem(
    op: str,
    output: Tensor | Sequence[Tensor] | Program,
    inputs: Sequence[Tensor] | None,
    constants: Sequence[str] | Mapping[str, Any],
    sizes: Mapping[str, Any] | None,
    target: Target,
    options: Options,
    seed: int = 0,
) -> Problem:
    """Return a computation at a distribution of sizes; other arguments are those of `offcut.tune`.

    op   what refusals call the step

    Raises DescribeError for an argument that means nothing.
    """
    request, _ = request_by_names(target, output, inputs, constants, options, op)
    weights = distribution(request.program, request.users, sizes)
    return Problem(request, options, target, weights, seed)
