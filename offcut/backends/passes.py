"""Passes: what happens to a program, each step an object that runs, times, dumps and says what it proves.

`offcut.pipeline.PASSES` is the list of those that are common to all targets, in order. A pass takes what those before it gave::

    describe(output, inputs, constants) -> request -> choose -> options -> decide -> candidates -> prove -> planned
    planned -> lower -> lowered -> load -> loaded

What a pass gives is asked for by name, and what nobody asks for does not run: code that is kept on disk needs no plan.

From a request to code that runs: the passes that a kernel asks for when it needs what they give.

Code that is kept on disk is read, and neither planned nor proved again; a plan is made when somebody asks for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from time import perf_counter
from typing import Any, Generic, Protocol, TypeVar

from offcut import debug
from offcut.backends.abi import Signature
from offcut.backends.compile_request import CompileRequest
from offcut.backends.decide import Candidates, candidates
from offcut.backends.host import cache
from offcut.backends.options import Loaded, Options, TargetPlan, check_result
from offcut.backends.target import Target
from offcut.core.program import Program
from offcut.core.text.tables import table

S = TypeVar("S")
V = TypeVar("V")


@dataclass(frozen=True)
class Pass(Generic[S, V]):
    """A step from a description to code.

    takes, gives  names of what it reads and makes
    theorem       what holds of what it gives, and how that is shown
    run           does it: a function of what the passes share (`Walk.state`)
    program       of what it gives, the program to be dumped; None: it makes none
    """

    name: str
    takes: tuple[str, ...]
    gives: str
    theorem: str
    run: Callable[[S], V]
    program: Callable[[V], Program | None] = lambda _: None

    def __call__(self, state: S, log: Log) -> V:
        """Run it; note how long it took, and the program after it."""
        with log.step(self) as step:
            value = self.run(state)
            step.program = self.program(value)
        if step.program is not None:
            earlier = (s.program for s in log.steps if s is not step and not s.inside and s.program)
            before = [*earlier][-1:]
            with debug.listener(None):
                debug.passed(self.name, step.program, *before)
        return value

    def __str__(self) -> str:
        return f"{self.name}: {', '.join(self.takes)} -> {self.gives}; {self.theorem}"


@dataclass
class Step:
    """A pass that ran: of all targets, or, inside of one of these, of one target.

    seconds  that it took; of a target's step that is not timed, None
    program  after it; None: it makes none
    theorem  what it proves; "" of a step inside of another
    """

    name: str
    seconds: float | None = None
    program: Program | None = None
    theorem: str = ""
    inside: bool = False


@dataclass
class Log:
    """The passes that ran, in the order in which they ended; the steps of a target are behind the pass that they are of.

    asked  seconds that passes took which ran while another one waited for what they give, by such passes
    """

    steps: list[Step] = field(default_factory=list)
    asked: list[float] = field(default_factory=list)

    @contextmanager
    def step(self, one: Pass[Any, Any]) -> Iterator[Step]:
        """Add a pass when it ends, and what the target says meanwhile of its own."""
        step, begin = Step(one.name, theorem=one.theorem), perf_counter()
        inner: list[Step] = []
        self.asked.append(0.0)
        with debug.listener(partial(_add, inner)):
            yield step
        seconds = perf_counter() - begin
        step.seconds = seconds - self.asked.pop()
        if self.asked:
            self.asked[-1] += seconds
        self.steps += [step, *inner]

    def __iter__(self) -> Iterator[Step]:
        return iter(self.steps)

    def __len__(self) -> int:
        return len(self.steps)

    def __getitem__(self, name: str) -> Step:
        """Return the last step of that name."""
        return next(step for step in reversed(self.steps) if step.name == name)

    def __str__(self) -> str:
        rows = [["pass", "ms", "loops", "proves"]]
        for one in self.steps:
            time = "" if one.seconds is None else f"{one.seconds * 1e3:.1f}"
            loops = "" if one.program is None else str(str(one.program).count("for "))
            rows.append([("  " if one.inside else "") + one.name, time, loops, one.theorem])
        return "\n".join(table(rows))

    def __repr__(self) -> str:
        return f"<passes {' '.join(step.name for step in self.steps if not step.inside)}>"


def _add(steps: list[Step], name: str, seconds: float | None, program: object) -> None:
    """Add what a target says of a step of its own: its time, or the program after it."""
    if not steps or steps[-1].name != name:
        steps.append(Step(name, inside=True))
    last = steps[-1]
    last.seconds = seconds if seconds is not None else last.seconds
    last.program = program if isinstance(program, Program) else last.program


def walk(passes: Sequence[Pass[Any, Any]], state: Any, log: Log, goal: str) -> Any:
    """Return what the passes give by the name `goal`: those that it needs run, in their order, and set what they give on `state`."""
    needed = {goal}
    for one in reversed(passes):
        if one.gives in needed:
            needed |= {*one.takes}
    for one in passes:
        if one.gives in needed and not hasattr(state, one.gives):
            setattr(state, one.gives, one(state, log))
    return getattr(state, goal)


class Code(Protocol):
    """What the passes share: what is asked for, and what those before have given."""

    @property
    def request(self) -> CompileRequest:
        """Return what is compiled."""

    @property
    def options(self) -> Options:
        """Return how it is asked for."""

    @property
    def target(self) -> Target:
        """Return what runs it."""

    @property
    def signature(self) -> Signature:
        """Return how the kernel is called."""

    @property
    def candidates(self) -> Candidates:
        """Return what `DECIDE` gives."""

    @property
    def planned(self) -> TargetPlan:
        """Return what `PROVE` gives."""

    @property
    def lowered(self) -> bytes:
        """Return what `LOWER` gives."""


def decided(code: Code) -> Candidates:
    """Return the plans of the target's policy, the one that it likes best made."""
    return candidates(code.target, code.request, code.options)


def first_proved_plan(code: Code) -> TargetPlan:
    """Return the first plan that is proved: mostly the one that was made; else those that are easier to prove are made in turn."""
    return code.candidates.first_proved_plan


def lowered(code: Code) -> bytes:
    """Return the target's code of the plan: from the cache where it was made before.

    Raises PartitionError or TargetError where none can be made.
    """
    target, options = code.target, code.options
    content = (code.request.text, repr(code.signature), repr(code.request.users))
    facts = check_result(target, "cache_key_parts", target.cache_key_parts(options))
    name = cache.key(target.name, *content, *facts)
    cached = cache.read(name)
    if cached is not None and not debug.verifies():
        return cached
    planned = code.planned  # which proves it, again where it was kept
    if cached is not None:
        return cached
    lowered_bytes = check_result(target, "lower", target.lower(planned, code.signature, options))
    cache.write(name, lowered_bytes)
    return lowered_bytes


def loaded(code: Code) -> Loaded:
    """Return the code in this process.

    Raises TargetError where this machine cannot run it.
    """
    lowered, target = code.lowered, code.target
    with debug.timed("load"):
        return check_result(target, "load", target.load(lowered, code.signature, code.options))


DECIDE: Pass[Code, Candidates] = Pass(
    "decide",
    ("request", "options"),
    "candidates",
    "each decision by its theorem",
    decided,
    lambda plans: plans.first.program,
)
PROVE: Pass[Code, TargetPlan] = Pass(
    "prove",
    ("candidates",),
    "planned",
    "source = emitted, step by step to the last one, at every size; loops may run as marked",
    first_proved_plan,
    lambda planned: planned.program,
)
LOWER: Pass[Code, bytes] = Pass(
    "lower", ("planned",), "lowered", "tiles call the microkernels that they name", lowered
)
LOAD: Pass[Code, Loaded] = Pass(
    "load", ("lowered",), "loaded", "the machine has what the code needs", loaded
)
