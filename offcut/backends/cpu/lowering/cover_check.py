"""The judgement of tiles: a program goes in, and why tiles of it have no microkernel comes out."""

from __future__ import annotations

from collections.abc import Sequence

from offcut.backends.cpu.lowering.call_layout import runs_as_loops
from offcut.backends.cpu.lowering.lower import Lowering, is_scalar_code
from offcut.backends.cpu.machine.isa import Isa
from offcut.backends.cpu.microkernels.family import Family
from offcut.core import index as ix
from offcut.core.plain_loops import tile_to_loops
from offcut.core.program import Option, Program, Stmt, Tile
from offcut.partition import Refusal


class CoverChecker(Lowering):
    """A walk of the lowering that writes no tile, and says which have no microkernel.

    refused   why a tile is not computed by the microkernel that it names, or by any where it names
              none, by the tile's identity
    """

    def __init__(self, program: Program, isa: Isa, families: Sequence[Family]) -> None:
        super().__init__(program, isa, families, ix.const(0), 1)
        self.refused: dict[int, Refusal] = {}
        self.sizes(self.f)
        self.buffers()
        self.block(program.body)

    def statement(self, stmt: Stmt) -> None:
        """What holds tiles, with what it says of them."""
        if not is_scalar_code(stmt):
            super().statement(stmt)

    def choose(self, options: Sequence[Option]) -> None:
        """Every option."""
        for option in options:
            self.block(option.body)

    def tile(self, tile: Tile) -> None:
        """Who computes a tile, or those inside it."""
        cover = self.cover(tile)
        if isinstance(cover, Refusal):
            self.refused.setdefault(id(tile), cover)
        if runs_as_loops(tile):
            self.block(tile_to_loops(tile))
