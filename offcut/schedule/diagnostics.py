"""A refused decision -> the refusal that names its line in the schedule."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from offcut.errors import AddressError, PartitionError, TargetError
from offcut.schedule.decisions import (
    ANY,
    UNIT_PRIMITIVES,
    At,
    Bind,
    Choose,
    Cover,
    Fuse,
    Level,
    Order,
    Primitive,
    Schedule,
    Separate,
    Split,
    Staging,
    Step,
    each_decision,
    primitive_of,
    stages_in,
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


class Advice(str):
    """A decision as help of an error: as a call of the method that makes it.

    line  the line of text that says it
    """

    line: str

    @classmethod
    def of(cls, decision: Primitive, more: str = "") -> Advice:
        """Return the advice to make `decision`, followed by the text `more`."""
        advice = cls(format_call(decision) + more)
        advice.line = format_decision(decision) + more
        return advice


def split_advice(stage: str, axis: str, factor: int, more: str = "") -> Advice:
    """Return the advice to split a loop, followed by the text `more`."""
    names = f"{axis}o", f"{axis}i"
    return Advice.of(Split(stage, axis, (Level(factor),), names), more)


def format_call(decision: Primitive) -> str:
    """Return a decision as the call of a method of a stage, or of a schedule."""
    match decision:
        case Split(_, axis, (level,)):
            return f'split("{axis}", {level.tile})'
        case Fuse(_, outer, inner):
            return f'fuse("{outer}", "{inner}")'
        case Bind(_, axis, unit) if unit not in UNIT_PRIMITIVES:
            return f'bind("{axis}", "{unit}")'
        case Staging("write", buffer):
            return f"cache_write({buffer}, scope)"
        case _:
            return format_decision(decision)


@contextmanager
def with_source_line(schedule: Schedule, decision: Decision | int) -> Iterator[None]:
    """Add the line of `decision`, or the line of that number, to errors raised inside; in an option, the line of the decision that
    is at fault.
    """
    try:
        yield
    except (PartitionError, TargetError) as refused:
        if refused.at.startswith("line "):
            raise
        lines = [(step, k, text.strip()) for k, (text, step) in enumerate(lines_of(schedule), 1)]
        matching = [line for line in lines if line[0] is decision or line[1] == decision]
        own = getattr(refused, "decision", None)
        nested = [line for line in lines if line[0] is own is not None]
        step, number, text = (nested or matching)[0]
        op, because = refused.op, refused.because
        type_ = TargetError if isinstance(refused, TargetError) else PartitionError
        if isinstance(step, Primitive) and primitive_of(step) == op:
            op = text.split()[0]
        if isinstance(refused, DecidedError):  # by another schedule, where no line here does
            first = [f"line {k}: {text}" for step, k, text in lines if step is refused.first]
            because = f"{first[0]} has decided it" if first else because
        help = tuple(one.line if isinstance(one, Advice) else one for one in refused.help)
        at = f"line {number}: {text}"
        raise type_(op, refused.refused, at=at, because=because, help=help) from refused


@contextmanager
def at_decision(schedule: Schedule | None) -> Iterator[None]:
    """Name the line of the decision that makes what a target refuses meanwhile, where one does.

    What is refused is a statement, a window or a buffer of the program that the decisions make.
    """
    try:
        yield
    except (TargetError, PartitionError) as refused:
        if schedule is None or refused.at.startswith("line "):
            raise
        steps = _steps_of(schedule, refused.option)
        what, because, help = refused.refused, refused.because, refused.help
        loops = (Split, Order, At, Bind, Cover)
        own = [s for s in steps if isinstance(s, loops) and s.stage == refused.stage]
        missing = refused.uncovered if own and not any(isinstance(s, Cover) for s in own) else ""
        decision = own[-1] if missing else _decision_of(schedule, steps, refused)
        if decision is None:
            raise
        if missing:
            option = f" of option {refused.option}" if refused.option else ""
            what = f"cannot run {refused.stage} without a cover"
            because = f"no line{option} covers {refused.stage}, and {because}"
            help = (_cover_line(refused.stage, missing),)
        elif isinstance(decision, Cover):
            help = tuple(_TILE_COVER.sub(partial(_as_line, decision.stage), one) for one in help)
        lines = enumerate(lines_of(schedule), 1)
        at = next(f"line {k}: {text.strip()}" for k, (text, one) in lines if one is decision)
        raise type(refused)(refused.op, what, at=at, because=because, help=help) from refused


_TILE_COVER = re.compile(r"^@cover\((\w+)\)$")
"""A cover in words of the loop language."""


def _as_line(stage: str, cover: re.Match[str]) -> str:
    """Return the cover of a tile as a line of a schedule."""
    return _cover_line(stage, cover[1])


def _cover_line(stage: str, microkernel: str) -> str:
    """Return the line that covers a stage, its loop left open."""
    return f"cover {stage} at … {microkernel}"


def _steps_of(schedule: Schedule, option: str) -> list[Primitive]:
    """Return the decisions of a schedule, of its choices those of the options called `option` alone, if there are any."""
    steps = list[Primitive]()
    for step in schedule.steps:
        same = [o for o in step.options if o.label == option] if isinstance(step, Choose) else []
        steps += each_decision([s for o in same for s in o.steps] if same else [step])
    return steps


def _decision_of(
    schedule: Schedule, steps: Sequence[Primitive], refused: TargetError | PartitionError
) -> Step | None:
    """Return the last one of some decisions of a schedule about what is refused: its tiles, its memory, or what runs it."""
    if refused.op == "prove":  # of all decisions about a stage together
        concerned = [one for one in schedule.steps if {ANY, refused.at} & _stages_in(one)]
        return concerned[-1] if concerned else None
    if refused.refused.endswith("without a standstill"):
        return next((step for step in steps if isinstance(step, At) and step.depth > 1), None)
    own = [step for step in steps if refused.stage in stages_in(step)]
    if refused.at == "choose":  # which a split by one of several strategies makes inside of loops
        splits = [step for step in steps if isinstance(step, Split)]
        mixed = [s for s in splits if any(one.tail and one.tail.among for one in s.levels)]
        return mixed[0] if mixed else None
    if refused.op == "sync":
        kinds = Order, Bind, At, Split  # what says when instances run, and on which units
        return next((s for kind in kinds for s in own[::-1] if isinstance(s, kind)), None)
    about = re.match(r"(?:alloc |buffer )?(\w+)", refused.at)
    if about is None:
        return None
    if refused.at.startswith("tile "):
        name = refused.refused.partition("cannot cover a tile by ")[2]
        covers = [step for step in steps if isinstance(step, Cover)]
        alike = [step for step in covers if step.stage == refused.stage]
        alike = alike or [step for step in covers if step.microkernel == name]
        return alike[0] if len(alike) == 1 else None
    if refused.at.startswith("for "):
        unit = refused.refused.rpartition(" on ")[2]
        binds = [step for step in steps if isinstance(step, Bind) and step.unit == unit]
        loop = refused.at.split()[1]
        mine = [step for step in own if isinstance(step, Bind) and step.axis == loop]
        return mine[0] if mine else binds[0] if len({step.axis for step in binds}) == 1 else None
    if isinstance(refused, PartitionError) and not refused.at.startswith("alloc "):
        return None
    name = about[1]
    words = {*re.findall(r"\w+", refused.because)}
    if isinstance(refused, AddressError):
        along = {word for text in refused.help for word in re.findall(r"along (\w+)", text)}
        splits = [step for step in steps if isinstance(step, Split)]
        candidates = [step for step in splits if words & {*step.names}]
        candidates = candidates or [step for step in splits if along & {step.axis, *step.names}]
        return candidates[-1] if candidates else None
    covers = [step for step in steps if isinstance(step, Cover) and step.stage == name]
    places = [
        step
        for step in steps
        if (isinstance(step, At) and step.stage == name and (step.memory or step.depth > 1))
        or (isinstance(step, Staging) and step.name == name)
    ]
    if refused.refused.startswith("cannot lay"):
        return next((s for s in places if isinstance(s, Staging) and s.layout is not None), None)
    if refused.refused.startswith(("cannot keep", "cannot place")):
        return places[-1] if places else None
    if refused.at.startswith("alloc "):
        windows = [step for step in steps if isinstance(step, At) and step.stage == name]
        return (windows or places)[-1] if windows or places else None
    return covers[-1] if covers else None


def _stages_in(step: Step) -> frozenset[str]:
    return frozenset({step.stage}) if isinstance(step, Separate) else stages_in(step)


def decision_error(refused: str, because: str, help: Sequence[str] = ()) -> PartitionError:
    """Return the refusal of a decision; `with_source_line` adds where it stands."""
    return PartitionError("schedule", refused, because=because, help=tuple(help))


def check_once(schedule: Schedule) -> None:
    """Refuse what a schedule says twice of one thing: the loops of an axis, a layout, a unit."""
    keys = set[object]()
    separate, key = False, object()
    for step in schedule.steps:
        match step:
            case Separate(_, stage):
                separate = separate or stage == ANY
                of = "" if stage == ANY else f" of {stage}"
                key, what = (Separate, stage), f"separate conditions{of}"
            case Split(stage, axis) if separate:
                key, what = (stage, axis), f"split {stage}.{axis}"
            case Staging("prepack", buffer):
                key, what = (Staging, buffer), f"prepack {buffer}"
            case Bind(stage, axis, unit, tree):
                key, what = (stage, axis, unit, tree), format_decision(step)
            case _:
                continue
        if key in keys:
            with with_source_line(schedule, step):
                raise decision_error(f"cannot {what} twice", "a line before it says how")
        keys.add(key)
