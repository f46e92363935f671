"""Passes: what happens to a program, each step an object that runs, times, dumps and says what it proves.

`offcut.pipeline.PASSES` is the list of those that are common to all targets, in order. A pass takes what those before it gave::

    describe(output, inputs, constants) -> request -> choose -> options -> decide -> candidates -> prove -> planned
    planned -> lower -> lowered -> load -> loaded

What a pass gives is asked for by name, and what nobody asks for does not run: code that is kept on disk needs no plan.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from time import perf_counter
from typing import Any, Generic, TypeVar

from offcut import debug
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
