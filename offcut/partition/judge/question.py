"""What the judge asks of a tile, in its order, and the refusal that names the first question that fails."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Question(Enum):
    """What the judge asks, in its order."""

    TERM = "term"
    BOUNDS = "bounds"
    EXTENTS = "extents"
    MOVES = "moves"
    MEMORY = "memory"
    LAYOUT = "layout"
    START = "start"
    INSIDE = "inside"
    UNIT = "unit"


BEFORE_STAGING = frozenset({Question.MEMORY, Question.LAYOUT, Question.UNIT})
"""What is not decided yet where loops are cut: memories, layouts, units."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a microkernel does not run a tile.

    question  the first one that fails
    because   what fails, with its value
    witness   the smallest case in which it does; "" where the text shows it for all
    """

    question: Question
    because: str
    witness: str = ""

    def __str__(self) -> str:
        return f"{self.because}: {self.witness}" if self.witness else self.because
