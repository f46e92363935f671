"""How the loops of a program that stands as it is may be cut: a program in, the cuts of each loop and what may be cut together out.

A loop that carries dependences keeps its instances in order: tiles that run theirs together, or twice, are none of its cuts.
Loops inside each other are cut together where the proof says that single tiles of them are legal: a cut of two loops moves
the instances of the inner one, whatever its strategy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from offcut.core.analysis import analysis
from offcut.core.memo import forget, memoize_method
from offcut.core.program import For, Form, Program
from offcut.costmodel import Machine
from offcut.errors import PartitionError
from offcut.partition import CUT, MASK, AxisCut, LoopCut, cut_program
from offcut.polyhedral import carried_by, request_budget
from offcut.schedule import Cut
from offcut.search.cuts import plain_cuts, tile_forms

_TOGETHER = frozenset({Form.PAD, Form.SHIFT})
"""Tiles whose instances have no order, or run again."""


@dataclass
class LoopCuts:
    """The cuts of the loops of a program.

    machine  whose policy says how large tiles are, and how many copies of a statement there may be
    """

    program: Program
    machine: Machine

    def __post_init__(self) -> None:
        self.loops = tuple(dict.fromkeys(s.iter for s in analysis(self.program).of(For)))
        self.ordered = frozenset(
            one.loop
            for found in carried_by(self.program).values()
            for one in found
            if not one.reduction
        )

    def of(self, loop: str, own: Cut | None = None) -> list[Cut]:
        """The cuts of a loop in one level of tiles; like `own` inside of its outer levels, where it is cut already."""
        outer: Sequence[int] = () if own is None else own.tiles[:-1]
        tile = self.machine.policy.axis_tile if own is None else own.tiles[-1]
        like = AxisCut(loop, MASK if own is None else own.strategy, tile)
        options = plain_cuts(like, self.machine.policy.copies).options
        return [
            Cut(loop, (*outer, one.tile), one.strategy)
            for one in options
            if not outer or outer[-1] % one.tile == 0
            if loop not in self.ordered or not tile_forms(one) & _TOGETHER
        ]

    @memoize_method
    def together(self, loops: frozenset[str]) -> bool:
        """Whether these loops may be cut in one schedule; not where the proof does not say so in bounded work."""
        if len(loops) < 2 or not loops & self.ordered:
            return True
        return all(self.together(loops - {one}) for one in loops) and self._legal(loops)

    def _legal(self, loops: frozenset[str]) -> bool:
        forget()
        wanted = {loop: LoopCut((2,), CUT) for loop in loops}
        try:
            with request_budget("partition", f"cannot cut {self.program.name}"):
                cut_program(self.program, wanted, ())
        except PartitionError:
            return False
        return True
