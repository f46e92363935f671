"""Candidates measured: compiled, checked and timed in processes that may end, each accounted for."""

from __future__ import annotations

from offcut.tuning.problem import DEFAULT, Limits, Measured, Problem, Time

__all__ = ["DEFAULT", "Limits", "Measured", "Problem", "Time"]
