"""A refused decision -> the refusal that names its line in the schedule."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from offcut.errors import PartitionError
from offcut.schedule.decisions import Schedule
from offcut.schedule.text import Decision, lines_of


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
