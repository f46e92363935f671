"""Schedules by hand: Halide's and TVM's primitives, each small, each checked."""

from offcut.schedule.axes import Axis
from offcut.schedule.schedule import Schedule, Stage, create_schedule

__all__ = ["Axis", "Schedule", "Stage", "create_schedule"]
