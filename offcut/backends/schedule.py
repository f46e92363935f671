"""What a back end decides: the ways that compete for each group, and the program that holds them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from offcut.core.expr import Expr
from offcut.partition import Partition, Piece, settled


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

    def settled(self, refused: Mapping[int, str]) -> Schedule:
        """The schedule whose tiles and pieces name the microkernels that run."""
        made = settled(self.partition, refused)
        now = dict(zip(map(id, self.partition.pieces), made.pieces, strict=True))
        choices = tuple(
            tuple(
                replace(
                    one, pieces=tuple(p for q in one.pieces if isinstance(p := now[id(q)], Piece))
                )
                for one in group
            )
            for group in self.choices
        )
        return replace(self, partition=made, choices=choices)

    @property
    def has_loops(self) -> bool:
        """Whether some group runs in plain loops, without a microkernel."""
        pieces = (piece for choices in self.choices for one in choices for piece in one.pieces)
        return any(piece.microkernel is None for piece in pieces)
