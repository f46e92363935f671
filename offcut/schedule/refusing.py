"""A refused decision -> the refusal that names its line in the schedule."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from offcut.errors import PartitionError, TargetError
from offcut.schedule.decisions import (
    UNIT_PRIMITIVES,
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


class DecidedError(PartitionError):
    """A decision about what another one has decided.

    first  the other decision
    """

    def __init__(
        self, op: str, refused: str, *, at: str, first: Primitive, help: tuple[str, ...] = ()
    ) -> None:
        because = f"{format_decision(first)} has decided it"
        super().__init__(op, refused, at=at, because=because, help=help)
        self.first = first

    def __reduce__(self) -> tuple[Any, ...]:
        return _decided_error, (self.op, self.refused, self.at, self.first, self.help)


def _decided_error(
    op: str, refused: str, at: str, first: Primitive, help: tuple[str, ...]
) -> DecidedError:
    return DecidedError(op, refused, at=at, first=first, help=help)


WORDS = {
    "reorder": "order",
    "compute_at": "at",
    "cache_read": "stage read",
    "cache_write": "stage write",
    "stage_value": "stage value",
    "prepack": "stage prepack",
    "compute_inline": "inline",
    "tensorize": "cover",
    **dict.fromkeys(UNIT_PRIMITIVES.values(), "bind"),
}
"""The words of the text for the methods of a schedule that are called otherwise."""

_METHOD = re.compile(rf"\b({'|'.join(WORDS)})\b")


_CALLS = (
    (re.compile(r'split\("(\w+)", (\d+)\)'), r"split {}.\1 \2 as \1o \1i"),
    (re.compile(r'fuse\("(\w+)", "(\w+)"\)'), r"fuse {0}.\1 {0}.\2 as \1_\2"),
    (re.compile(r'bind\(axis, "([\w.]+)"\)'), r"bind {}.i \1"),
)


def _in_words(text: str, decision: object) -> str:
    """Return what is said of methods, as it is said of lines of text."""
    stage = getattr(decision, "stage", "C")
    for call, line in _CALLS:
        text = call.sub(line.format(stage), text)
    return _METHOD.sub(lambda match: WORDS[match[1]], text)


@contextmanager
def at_line(schedule: Schedule, decision: Decision | int) -> Iterator[None]:
    """Name the line of `decision`, or of that number, in what is refused meanwhile."""
    try:
        yield
    except PartitionError as refused:
        if refused.at.startswith("line "):
            raise
        lines = [(one, k, text.strip()) for k, (text, one) in enumerate(lines_of(schedule), 1)]
        at = next(f"line {k}: {text}" for one, k, text in lines if one is decision or k == decision)
        because = _in_words(refused.because, decision)
        if isinstance(refused, DecidedError):
            first = next(f"line {k}: {text}" for one, k, text in lines if one is refused.first)
            because = f"{first} has decided it"
        op = WORDS.get(refused.op, refused.op).split()[0]
        help = tuple(_in_words(one, decision) for one in refused.help)
        raise PartitionError(op, refused.refused, at=at, because=because, help=help) from refused


@contextmanager
def at_decision(schedule: Schedule | None) -> Iterator[None]:
    """Name the line of the decision that makes what a target refuses meanwhile, where one does.

    What is refused is a statement, a window or a buffer of the program that the decisions make.
    """
    try:
        yield
    except (TargetError, PartitionError) as refused:
        decision = None if schedule is None else _decision_of(schedule, refused)
        if schedule is None or decision is None or refused.at.startswith("line "):
            raise
        lines = enumerate(lines_of(schedule), 1)
        at = next(f"line {k}: {text.strip()}" for k, (text, one) in lines if one is decision)
        raise type(refused)(
            refused.op, refused.refused, at=at, because=refused.because, help=refused.help
        ) from refused


def _decision_of(schedule: Schedule, refused: TargetError | PartitionError) -> Primitive | None:
    """Return the last decision about what is refused: its tiles, its memory, or what runs it."""
    steps = list(each_decision(schedule.steps))
    if refused.refused.endswith("without a standstill"):
        return next((step for step in steps if isinstance(step, At) and step.depth > 1), None)
    about = re.match(r"(?:alloc |buffer )?(\w+)", refused.at)
    if about is None:
        return None
    if refused.at.startswith("tile "):
        name = refused.refused.partition("cannot cover a tile by ")[2]
        alike = [step for step in steps if isinstance(step, Cover) and step.microkernel == name]
        return alike[0] if len(alike) == 1 else None
    if isinstance(refused, PartitionError):
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
    if refused.refused.startswith("cannot lay"):
        return next((s for s in places if isinstance(s, Staging) and s.layout is not None), None)
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
                key, what = (stage, axis), f"split {stage}.{axis}"
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
