"""What is tuned, for which sizes and within which limits, and what is known of a candidate once it was measured."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from itertools import product
from math import fsum, isfinite, isnan, prod
from numbers import Real
from time import time
from typing import Any, TypeAlias

import offcut
from offcut.backends.compile_request import CompileRequest, request_by_names
from offcut.backends.target import Options, Target
from offcut.core.integers import whole
from offcut.core.interpret.values import evaluate
from offcut.core.program import Program, Size
from offcut.core.text.printer import format_expr
from offcut.costmodel import plain
from offcut.describe.tensor import Tensor
from offcut.errors import DescribeError
from offcut.experiment.sizes import sample
from offcut.partition import Users
from offcut.schedule import Schedule
from offcut.search import Origin, Outcome, Place, ProgramText, Record, Sizes, Source, key_of

POINTS = 8
"""Sizes that are taken of a range, and of several together."""

Weights = tuple[tuple[Mapping[str, int], float], ...]
_HELP = ('sizes={"n": [1, 7, 33]}', 'sizes={"n": (1, 512)}', 'sizes={"n": {1: 0.7, 33: 0.3}}')


def distribution(program: Program, users: Users, weights: object) -> Weights:
    """Vectors of sizes, by the user's names, each with its share of the calls; the shares sum up to 1.

    weights  by size, independently of the others: a list of values, all as likely; a ``range``, or both ends
             ``(low, high)``, of which `POINTS` are taken, geometrically; or a weight by value

    Raises DescribeError for sizes that are missing, not allowed, or not what is described here.
    """
    names = {name: user for user, name in users.sizes}
    sizes = {names[size.name]: size for size in program.sizes}
    if not sizes and (weights is None or weights == {}):
        return (({}, 1.0),)
    if not isinstance(weights, Mapping) or not weights:
        raise _refused(weights, f"it does not say which values {_listed(sizes)} take")
    for name in weights:
        if name not in sizes:
            raise _refused(name, f"the sizes are {_listed(sizes)}", at="sizes=")
    missing = [name for name in sizes if name not in weights]
    if missing:
        raise _refused(weights, f"it does not say which values {_listed(missing)} take")
    points = max(2, round(POINTS ** (1 / len(sizes))))
    axes = {name: _values(size, name, weights[name], points) for name, size in sizes.items()}
    vectors = []
    for values in product(*(axis.items() for axis in axes.values())):
        vector = {name: value for name, (value, _) in zip(axes, values, strict=True)}
        _check_assumed(program, dict(users.sizes), vector)
        vectors.append((vector, prod(weight for _, weight in values)))
    total = sum(weight for _, weight in vectors)
    return tuple((vector, weight / total) for vector, weight in vectors)


def read_sizes(texts: Sequence[str]) -> dict[str, range | list[int]]:
    """What is given of each size, as text: ``n=1,7,33`` a list; ``n=1:512``, ``n=1:512:8`` a range with both ends.

    >>> read_sizes(["n=1,7", "m=8:64:8"])
    {'n': [1, 7], 'm': range(8, 65, 8)}

    Raises DescribeError for any other text, and for a size that is given twice.
    """
    values_by_size: dict[str, range | list[int]] = {}
    for text in texts:
        name, _, values = (part.strip() for part in text.partition("="))
        numbers = [int(number) for number in re.findall(r"\d+", values)]
        if not name or not re.fullmatch(r"\d+(,\d+)*|\d+:\d+(:\d+)?", values):
            because = "it is not a name with a list or a range of whole numbers from 0 on"
        elif name in values_by_size:
            because = f"--sizes {name}=… came before"
        elif ":" in values and numbers[2:] == [0]:
            because = "the range does not advance: its step is 0"
        else:
            step = numbers[2] if len(numbers) == 3 else 1
            values_by_size[name] = (
                range(numbers[0], numbers[1] + 1, step) if ":" in values else numbers
            )
            continue
        help = ("--sizes n=1,7,33", "--sizes n=1:512", "--sizes n=1:512:8")
        raise DescribeError(
            "tune", "cannot read the sizes", at=f"--sizes {text}", because=because, help=help
        )
    return values_by_size


def _values(size: Size, name: str, spec: Any, points: int) -> dict[int, float]:
    """The values of a size, with a weight each."""
    single = whole(spec)
    if single is not None:
        spec = [single]
    if isinstance(spec, Mapping):
        weights = {_allowed(size, name, value): _weight(name, w) for value, w in spec.items()}
        if not any(weights.values()):
            raise _refused(spec, "some weight is above 0", at=f"sizes of {name}")
        return {value: weight for value, weight in weights.items() if weight}
    if isinstance(spec, tuple):
        if len(spec) != 2 or any(whole(end) is None for end in spec) or spec[0] > spec[1]:
            raise _refused(spec, "a tuple is both ends, ascending", at=f"sizes of {name}")
        ends = [_within(size, name, end) for end in spec]
        step = size.multiple_of
        spec = range(-(-ends[0] // step) * step, ends[1] + 1, step)
    if isinstance(spec, range):
        spec = spec if spec.step > 0 else spec[::-1]
        spec = sample(spec, points) if len(spec) > points else spec
    if isinstance(spec, str) or not isinstance(spec, Iterable):
        raise _refused(spec, "it is not a list, range, pair or mapping", at=f"sizes of {name}")
    values: dict[int, float] = {}
    for value in spec:
        values[_allowed(size, name, value)] = values.get(value, 0.0) + 1.0
    if not values:
        raise _refused(spec, "there is no value in it", at=f"sizes of {name}")
    return values


def _allowed(size: Size, name: str, value: Any) -> int:
    extent = _within(size, name, value)
    if extent % size.multiple_of:
        because = f"{name} is a multiple of {size.multiple_of}"
        raise _refused(value, because, at=f"sizes of {name}")
    return extent


def _within(size: Size, name: str, value: Any) -> int:
    number = whole(value)
    if number is None:
        raise _refused(value, "it is not a whole number", at=f"sizes of {name}")
    if not size.min <= number <= size.max:
        because = f"{name} is from {size.min} to {size.max}"
        raise _refused(value, because, at=f"sizes of {name}")
    return number


def _weight(name: str, weight: Any) -> float:
    number = isinstance(weight, int | float) and not isinstance(weight, bool)
    if not number or not isfinite(weight) or weight < 0:
        raise _refused(weight, "a weight is a number that is at least 0", at=f"sizes of {name}")
    return float(weight)


def _check_assumed(program: Program, names: Mapping[str, str], vector: Mapping[str, int]) -> None:
    at = {names[user]: value for user, value in vector.items()}
    for condition in program.assumptions:
        if not evaluate(condition, at):
            sizes_text = ", ".join(f"{name} = {value}" for name, value in vector.items())
            raise _refused(sizes_text, f"every call meets {format_expr(condition)}", at="sizes=")


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"


def _refused(value: object, because: str, at: str = "") -> DescribeError:
    text = value if isinstance(value, str) else repr(value)
    return DescribeError(
        "tune", f"cannot tune for {text}", at=at, because=because, help=_HELP if not at else ()
    )


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
                expected = "an int" if counted else "a number"
                raise DescribeError(
                    "Limits",
                    f"cannot take {one.name}={value!r}",
                    because=f"{one.name} is {expected} {'from 0 on' if may_be_zero else 'above 0'}",
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
        record = partial(
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
            return (record(sizes=dict(self.at), outcome=self.outcome, because=because),)
        guesses = (*predicted, *[None] * len(self.times))
        return tuple(
            record(
                sizes=dict(one.sizes),
                outcome=self.outcome,
                seconds=one.seconds,
                spread=one.spread,
                predicted=guess,
            )
            for one, guess in zip(self.times, guesses, strict=False)
        )


Measure: TypeAlias = Callable[[Sequence[Schedule], Callable[[Measured], None]], object]
"""Measures schedules, in their order; the second argument is told of each as soon as it is known."""


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
