"""Puts synchronization of units that run side by side into a program, and checks it from the text."""

from offcut.polyhedral.sync.agents import Agents, Ends, Unit, slot_of
from offcut.polyhedral.sync.boundaries import (
    check_barriers,
    has_loops_of,
    is_barrier,
    windows_in_step,
    with_barriers,
)
from offcut.polyhedral.sync.synchronize import StandstillError, check, synchronized

__all__ = [
    "Agents",
    "Ends",
    "StandstillError",
    "Unit",
    "check",
    "check_barriers",
    "has_loops_of",
    "is_barrier",
    "slot_of",
    "synchronized",
    "windows_in_step",
    "with_barriers",
]
