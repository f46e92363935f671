"""A refused decision -> the refusal that names its line in the schedule."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from offcut.errors import PartitionError
from offcut.schedule.decisions import Schedule, Separate
from offcut.schedule.text import Decision, lines_of
from offcut.schedule.ways import Cut, Lay, Mark


@contextmanager
def at_line(schedule: Schedule, decision: Decision) -> Iterator[None]:
    """Name the line of `decision` in what is refused meanwhile."""
    try:
        yield
    except PartitionError as refused:
        if refused.at.startswith("line "):
            raise
        lines = enumerate(lines_of(schedule), 1)
        at = next(f"line {k}: {text.strip()}" for k, (text, one) in lines if one is decision)
        raise PartitionError(
            refused.op, refused.refused, at=at, because=refused.because, help=refused.help
        ) from refused


def not_applied(refused: str, because: str, help: Sequence[str] = ()) -> PartitionError:
    """The refusal of a decision; `at_line` adds where it stands."""
    return PartitionError("schedule", refused, because=because, help=tuple(help))


def check_once(schedule: Schedule) -> None:
    """Refuse what a schedule says twice of one thing: the loops of an axis, a layout, a unit."""
    said = set[str]()
    for step in schedule.steps:
        match step:
            case Cut(axis):
                what = f"cut {axis}"
            case Lay(buffer):
                what = f"lay {buffer}"
            case Mark(unit):
                what = f"mark {unit}"
            case Separate():
                what = "separate conditions"
            case _:
                continue
        if what in said:
            with at_line(schedule, step):
                raise not_applied(f"cannot {what} twice", "a line before it says how")
        said.add(what)
