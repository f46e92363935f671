"""Microkernels as data: what one computes, on which shapes and layouts, and what it costs."""

from __future__ import annotations

from dataclasses import dataclass

from offcut.core.tensor import Tensor


@dataclass(frozen=True, slots=True)
class TileShape:
    """One register tile: `rows` by at most `columns`, in elements.

    cycles   predicted cycles per step of the reduction, operands in the nearest cache
    startup  predicted cycles per tile: the call, the first loads, the stores
    """

    rows: int
    columns: int
    cycles: float
    startup: float


@dataclass(frozen=True, slots=True)
class Microkernel:
    """A fixed-shape inner kernel.

    computes    a tensor expression over bounded sizes; matching compares access relations with it
    rows        the axis of `computes` that `TileShape.rows` bounds
    columns     likewise; unit stride in every operand that has it, or packed in panels
    tiles       the register tiles there are; any smaller number of columns is a predicated one
    predicates  axes along which a lane may be off: it reads nothing and writes nothing
    packed      the operand that may be packed, in panels of `panel` columns, zero past the extent
    features    what the hardware must have
    reset       the instruction that starts its reduction, where that is one of its own
    update      likewise the one that adds a step to what was started
    """

    name: str
    computes: Tensor
    rows: str
    columns: str
    tiles: tuple[TileShape, ...]
    predicates: frozenset[str]
    packed: str
    panel: int
    features: frozenset[str] = frozenset()
    reset: str | None = None
    update: str | None = None

    @property
    def max_rows(self) -> int:
        """The tallest tile, in rows."""
        return max(tile.rows for tile in self.tiles)

    def columns_for(self, rows: int) -> int:
        """The widest tile of that many rows, in columns; 0 where there is none."""
        return max((tile.columns for tile in self.tiles if tile.rows == rows), default=0)

    def tile(self, rows: int, columns: int) -> TileShape:
        """The smallest tile of that many rows that holds `columns` columns."""
        fitting = [t for t in self.tiles if t.rows == rows and t.columns >= columns]
        return min(fitting, key=lambda t: t.columns)
