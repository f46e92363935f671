"""Microkernels as data: what one computes, on which shapes and layouts, and what it costs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from offcut.core.expr import Load, loads, variables
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
    packed      the operand that may be packed, in panels of `panel` columns, zero past the extent;
                "": none is, the columns' operand is read as it lies
    features    what the hardware must have
    reset       the instruction that starts its reduction, where that is one of its own
    update      likewise the one that adds a step to what was started
    interleave  terms of the reduction that are added up at once: so many rows of a panel lie side by
                side; above 1 the operand must be packed, and the other one's terms lie side by side
    multiple    what the rows of a panel are rounded up to
    ascending   whether an element is what adding its terms one after the other gives
    repeats     whether one call takes more columns than a tile has, as tiles side by side
    lowering    how a function that is not the back end's is called; None: the back end knows
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
    interleave: int = 1
    multiple: int = 1
    ascending: bool = True
    repeats: bool = False
    lowering: Any = None

    def operand_along(self, axis: str) -> str:
        """The first operand that moves along an axis of `computes`; "" where none does."""
        definition = self.computes.definition
        assert definition is not None
        moving = (load.buffer for load, _ in loads(definition.body) if _moves(load, axis))
        return next(moving, "")

    @property
    def cycles(self) -> float:
        """Predicted cycles of a multiply–add in the best tile: by which microkernels compete."""
        return min(tile.cycles / (tile.rows * tile.columns) for tile in self.tiles)

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


def _moves(load: Load, axis: str) -> bool:
    return any(axis in variables(part) for part in load.index)
