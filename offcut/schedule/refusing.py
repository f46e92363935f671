"""A refused decision -> the refusal that names its line in the schedule."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from offcut.errors import PartitionError, TargetError
from offcut.schedule.decisions import (
    At,
    Bind,
    Cover,
    Primitive,
    Schedule,
    Separate,
    Split,
    Staging,
    each_decision,
)
from offcut.schedule.text import Decision, format_decision, lines_of


@contextmanager
def at_line(schedule: Schedule, decision: Decision | int) -> Iterator[None]:
    """Name the line of `decision`, or of that number, in what is refused meanwhile."""
    try:
        yield
    except PartitionError as refused:
        if refused.at.startswith("line "):
            raise
        lines = enumerate(lines_of(schedule), 1)
        at = next(
            f"line {k}: {text.strip()}"
            for k, (text, one) in lines
            if one is decision or k == decision
        )
        raise PartitionError(
            refused.op, refused.refused, at=at, because=refused.because, help=refused.help
        ) from refused


@contextmanager
def at_decision(schedule: Schedule | None) -> Iterator[None]:
    """Name the line of the decision that makes what a target refuses meanwhile, where one does.

    What is refused is a statement, a window or a buffer of the program that the decisions make.
    """
    try:
        yield
    except TargetError as refused:
        decision = None if schedule is None else _decision_of(schedule, refused)
        if schedule is None or decision is None:
            raise
        lines = enumerate(lines_of(schedule), 1)
        at = next(f"line {k}: {text.strip()}" for k, (text, one) in lines if one is decision)
        raise TargetError(
            refused.op, refused.refused, at=at, because=refused.because, help=refused.help
        ) from refused


def _decision_of(schedule: Schedule, refused: TargetError) -> Primitive | None:
    """Return the last decision about what is refused: its tiles, its memory, or what runs it."""
    steps = list(each_decision(schedule.steps))
    if refused.refused.endswith("without a standstill"):
        return next((step for step in steps if isinstance(step, At) and step.depth > 1), None)
    about = re.match(r"(?:alloc |buffer )?(\w+)", refused.at)
    if about is None:
        return None
    name = about[1]
    words = {*re.findall(r"\w+", refused.because)}
    if refused.refused.startswith("cannot find the words"):
        along = {word for text in refused.help for word in re.findall(r"along (\w+)", text)}
        splits = [step for step in steps if isinstance(step, Split)]
        named = [step for step in splits if words & {*step.names}]
        named = named or [step for step in splits if along & {step.axis, *step.names}]
        return named[-1] if named else None
    covers = [step for step in steps if isinstance(step, Cover) and step.stage == name]
    places = [
        step
        for step in steps
        if (isinstance(step, At) and step.stage == name and (step.memory or step.depth > 1))
        or (isinstance(step, Staging) and step.name == name)
    ]
    if refused.refused.startswith("cannot keep"):
        return places[-1] if places else None
    return covers[-1] if covers else None


def not_applied(refused: str, because: str, help: Sequence[str] = ()) -> PartitionError:
    """Return the refusal of a decision; `at_line` adds where it stands."""
    return PartitionError("schedule", refused, because=because, help=tuple(help))


def check_once(schedule: Schedule) -> None:
    """Refuse what a schedule says twice of one thing: the loops of an axis, a layout, a unit."""
    seen = set[object]()
    separate, key = False, object()
    for step in schedule.steps:
        match step:
            case Separate():
                separate, key, what = True, Separate, "separate conditions"
            case Split(stage, axis) if separate:
                key, what = (stage, axis), f"split {f'{stage}.' if stage else ''}{axis}"
            case Staging("prepack", buffer):
                key, what = (Staging, buffer), f"prepack {buffer}"
            case Bind(stage, axis, unit, tree):
                key, what = (stage, axis, unit, tree), format_decision(step)
            case _:
                continue
        if key in seen:
            with at_line(schedule, step):
                raise not_applied(f"cannot {what} twice", "a line before it says how")
        seen.add(key)
