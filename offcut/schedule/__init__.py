"""Schedules: decisions as data and their text, what applies them, and the primitives by hand."""

from offcut.schedule.apply import Applied, Choice, Price, apply, at_line, position_of, restaged
from offcut.schedule.axes import Axis
from offcut.schedule.by_hand import HandSchedule, Stage, create_schedule
from offcut.schedule.decisions import (
    Convert,
    Cover,
    Cut,
    Lay,
    Mark,
    Nest,
    Pack,
    Schedule,
    Scratch,
    Separate,
    Step,
    Together,
    Turn,
    Way,
    schedule_of,
)

__all__ = [
    "Applied",
    "Axis",
    "Choice",
    "Convert",
    "Cover",
    "Cut",
    "HandSchedule",
    "Lay",
    "Mark",
    "Nest",
    "Pack",
    "Price",
    "Schedule",
    "Scratch",
    "Separate",
    "Stage",
    "Step",
    "Together",
    "Turn",
    "Way",
    "apply",
    "at_line",
    "create_schedule",
    "position_of",
    "restaged",
    "schedule_of",
]
