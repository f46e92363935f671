"""Schedules measured by the devices of a pool, and what a worker of it does.

Each device times a parcel of schedules in turns beside the default's kernel. By what that kernel takes, times of other devices
and other moments compare (`recorded_trials`). A worker admits a problem, then measures schedules of it, in a child that may end. One bench is kept between
tasks, so that what results must be is computed once, and imports happen once.

What is sent of a problem: a program goes as its text, as do schedules. The rest is a pickle within: functions and classes go by their names, so
that a target or a microkernel of the user's has to be in a module that the worker imports as well. Version
and place are compared first, since records of another are not this campaign's.
"""

from __future__ import annotations

import pickle
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, TypeAlias

import offcut
from offcut.backends.compile_request import CompileRequest
from offcut.core.text.parser import parse
from offcut.errors import OffcutError, error_line
from offcut.schedule import Schedule
from offcut.search import Outcome
from offcut.search.job_runner import pickle_for_process
from offcut.search.pool import REQUEUES, Device, InFlightTasks, Pool, TaskDispatcher, connect
from offcut.search.pool.tasks import Task
from offcut.tuning.campaign import BATCH
from offcut.tuning.measuring.candidate import Bench
from offcut.tuning.problem import Limits, Measured, Problem


@dataclass(frozen=True, slots=True)
class Wire:
    """What is sent of a problem: texts and bytes, which any version can open.

    program  its text
    digest   `Program.digest`
    place    `Problem.machine`
    rest     the pickle of all else, compressed: constants of which only the name is known are zeros
    """

    version: str
    program: str
    digest: str
    place: str
    rest: bytes


def serialize(problem: Problem, limits: Limits) -> Wire:
    """A problem, and what measuring may take, to be sent.

    Raises OffcutError for what cannot be pickled.
    """
    request = problem.request
    rest = (
        *(request.users, dict(request.arrays), problem.options, problem.target),
        *(problem.sizes, problem.seed, limits, problem.target.machine),
    )
    data = pickle_for_process(rest, "tune", f"cannot send {request.program.name} to a pool")
    texts = str(request.program), problem.program, problem.machine
    return Wire(offcut.__version__, *texts, zlib.compress(data, 1))


def deserialize(wire: Wire) -> tuple[Problem, Limits] | str:
    """The problem on this machine; why it cannot be measured here, in words, where it cannot."""
    if wire.version != offcut.__version__:
        return f"offcut is {offcut.__version__} there, and {wire.version} here"
    try:
        users, arrays, options, target, sizes, seed, limits, machine = pickle.loads(
            zlib.decompress(wire.rest)
        )
        request = CompileRequest(parse(wire.program), users, arrays)
        problem = Problem(request, options, target, sizes, seed)
        place = problem.machine
    except Exception as error:
        return f"what is sent cannot be loaded there: {error_line(error)}"
    if problem.program != wire.digest:
        return "the program is another one there"
    if place != wire.place:
        other = next(_differing("", machine, target.machine), "the target is another one there")
        return f"it is another machine: {other}"
    return problem, limits


def _differing(name: str, here: Any, there: Any) -> Iterator[str]:
    """In which fields two descriptions differ, in words."""
    if is_dataclass(here) and type(here) is type(there):
        for field in fields(here):
            inner = f"{name}.{field.name}" if name else field.name
            yield from _differing(inner, getattr(here, field.name), getattr(there, field.name))
    elif isinstance(here, tuple) and isinstance(there, tuple) and len(here) == len(there):
        for number, (one, other) in enumerate(zip(here, there, strict=True)):
            yield from _differing(f"{name}[{number}]", one, other)
    elif here != there:
        yield f"{name} is {there!r} there, and {here!r} here"


@dataclass
class _Kept:
    """The bench of this process, and the campaign that it is of."""

    campaign: str = ""
    bench: Bench | None = None

    def replace(self, campaign: str, bench: Bench | None) -> None:
        if self.bench is not None:
            self.bench.close()
        self.campaign, self.bench = campaign, bench


_KEPT = _Kept()


def admit_problem(campaign: str, wire: Wire) -> str:
    """Take a problem in the place of the last; why it cannot be measured here, "" where it can."""
    message = deserialize(wire)
    if isinstance(message, str):
        return message
    _KEPT.replace(campaign, Bench(*message))
    return ""


def measure_parcel(
    campaign: str, texts: tuple[str, ...]
) -> tuple[Measured, ...] | OffcutError | None:
    """What becomes of schedules, in their order; a refusal to measure; None where the problem is not here any more."""
    if _KEPT.bench is None or campaign != _KEPT.campaign:
        return None
    try:
        return _KEPT.bench.measured([Schedule.parse(text) for text in texts])
    except OffcutError as refused:
        return refused


def dismiss_campaign(campaign: str) -> None:
    """End the child of a campaign that is over."""
    if campaign == _KEPT.campaign:
        _KEPT.replace("", None)


ROUND = 2 * BATCH
"""Schedules in a round: the same however many devices there are, so that the same ones are proposed."""

Parcel: TypeAlias = tuple[Schedule, ...]
"""What a device is given; nothing: it is asked whether it takes the campaign."""


class PooledBench(TaskDispatcher[Schedule]):
    """Measures schedules of a problem on the devices that there are."""

    op = "tune"
    again = "begun again, tuning takes from the records what was measured"
    most = BATCH

    def __init__(self, problem: Problem, limits: Limits, tasks: InFlightTasks[Parcel]) -> None:
        super().__init__(tasks)
        self._wire = serialize(problem, limits)

    def admission(self) -> Task:
        """Return the task that sends the problem."""
        return admit_problem, self.campaign, self._wire

    def order(self, parcel: Parcel, device: Device) -> Task:
        """Return the task that measures schedules, which go as texts."""
        return measure_parcel, self.campaign, tuple(map(str, parcel))

    def dismissal(self) -> Task:
        """Return the task that ends the device's child."""
        return dismiss_campaign, self.campaign

    def result_of_crash(self, item: Schedule, because: str) -> Measured:
        """Return what is told of a schedule that every device went with."""
        return Measured(item, Outcome.CRASHED, (), because)


@contextmanager
def open_pooled_bench(problem: Problem, limits: Limits, pool: Pool) -> Iterator[PooledBench]:
    """A bench on the devices of a pool, as long as the context lasts.

    Raises TargetError where no scheduler answers.
    """
    with connect(pool, "tune") as client:
        tasks = InFlightTasks[Parcel](client, pool)
        with tasks, PooledBench(problem, limits, tasks) as bench:
            yield bench


__all__ = ["REQUEUES", "ROUND", "Parcel", "PooledBench", "open_pooled_bench"]
