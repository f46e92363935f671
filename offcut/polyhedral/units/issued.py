"""What units that run side by side are given: leaves with the loops around them, and what they touch."""

from __future__ import annotations

from dataclasses import dataclass

from offcut.core.expr import Expr


@dataclass(frozen=True, slots=True)
class Touch:
    """What a leaf reads or writes.

    thread  the loop whose iteration says which part of the region; None: there is one part
    """

    region: str
    thread: str | None
    writes: bool


@dataclass(frozen=True, slots=True)
class Issued:
    """A leaf with the loops around it.

    unit   which runs it: units are neighbours where their numbers are
    loops  (iterator, lo, hi), outermost first
    where  conditions around it
    time   its place among the statements, and the iterators, by turns
    """

    number: int
    unit: int
    loops: tuple[tuple[str, Expr, Expr], ...]
    where: tuple[Expr, ...]
    time: tuple[int | str, ...]
    touches: tuple[Touch, ...]
