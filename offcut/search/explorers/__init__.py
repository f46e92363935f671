"""Explorers: what was measured of a space in, what to measure next out."""

from offcut.search.explorers.catalog import EXPLORERS, GROUP, explorer_named
from offcut.search.explorers.explorer import Explorer, Judge, TriedSchedule

__all__ = ["EXPLORERS", "GROUP", "Explorer", "Judge", "TriedSchedule", "explorer_named"]
