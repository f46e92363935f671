"""What a schedule makes of a computation: a loop program, and the ways of each nest that compete at run time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from offcut.core.expr import Expr
from offcut.core.program import Program
from offcut.describe.computation import Stage
from offcut.partition import Partition, Piece, drop_refused_covers


@dataclass(frozen=True)
class Choice:
    """One way to run a group, or the whole computation.

    stage  the first of the group; of the whole computation, of its last group
    cost   predicted seconds, a float64 expression in the sizes, by which it competes
    given  whether the schedule says the cost, which somebody measured or wrote
    parts  of the whole computation, its groups; of a group, none
    """

    label: str
    stage: Stage
    pieces: tuple[Piece, ...]
    cost: Expr
    given: bool = False
    parts: tuple[Choice, ...] = ()

    @property
    def groups(self) -> tuple[Choice, ...]:
        """Return what it runs, group by group."""
        return self.parts or (self,)


@dataclass(frozen=True)
class Applied:
    """What a schedule makes of a computation.

    partition  the loop program, the pieces of every way, and the certificate
    choices    by nest, the ways that compete at run time; one where nothing competes
    staged     the stages as they are cut, in plain loops
    """

    partition: Partition
    choices: tuple[tuple[Choice, ...], ...]
    staged: Program

    def with_microkernels(self, refused: Mapping[int, str]) -> Applied:
        """The same with tiles and pieces that name the microkernels which run.

        refused  why the one that a tile names does not, by the position of the tile
        """
        partition = drop_refused_covers(self.partition, refused)
        now = dict(zip(map(id, self.partition.pieces), partition.pieces, strict=True))
        choices = tuple(
            tuple(
                replace(one, pieces=tuple(now[id(piece)] for piece in one.pieces)) for one in group
            )
            for group in self.choices
        )
        return replace(self, partition=partition, choices=choices)
