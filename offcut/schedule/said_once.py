"""A schedule in, refused where it says two things of one: no decision is without effect."""

from __future__ import annotations

from offcut.schedule.decisions import Cut, Lay, Mark, Schedule, Separate
from offcut.schedule.refusing import at_line, not_applied


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
