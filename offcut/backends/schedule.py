"""What a back end decides: the ways that compete for each group, and the program that holds them."""

from __future__ import annotations

from dataclasses import dataclass

from offcut.core.expr import Expr
from offcut.partition import Partition, Piece


@dataclass(frozen=True)
class Choice:
    """One way to run a group.

    cost   predicted seconds, a float64 expression in the sizes
    """

    label: str
    pieces: tuple[Piece, ...]
    cost: Expr


@dataclass(frozen=True)
class Schedule:
    """A computation as a back end runs it.

    partition  the loop program, the pieces of every choice, and the certificate
    choices    by group, the ways that compete at run time; one where nothing competes
    """

    partition: Partition
    choices: tuple[tuple[Choice, ...], ...]

    @property
    def has_loops(self) -> bool:
        """Whether some group runs in plain loops, without a microkernel."""
        pieces = (piece for choices in self.choices for one in choices for piece in one.pieces)
        return any(piece.microkernel is None for piece in pieces)
