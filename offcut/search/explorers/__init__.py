"""Explorers: what was measured of a space in, what to measure next out."""

from offcut.search.explorers.catalog import EXPLORERS, GROUP, get_explorer
from offcut.search.explorers.explorer import Explorer, Judge, TriedSchedule

__all__ = ["EXPLORERS", "GROUP", "Explorer", "Judge", "TriedSchedule", "get_explorer"]
