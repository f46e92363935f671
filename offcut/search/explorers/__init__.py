"""Explorers: what was measured of a space in, what to measure next out."""

from offcut.search.explorers.explorer import Explorer, Judge, Seen
from offcut.search.explorers.named import EXPLORERS, GROUP, explorer_named

__all__ = ["EXPLORERS", "GROUP", "Explorer", "Judge", "Seen", "explorer_named"]
