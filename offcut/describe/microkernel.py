"""Microkernels as data: what one computes, on which shapes and layouts, and what it costs."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Any

from offcut.core.expr import Load, loads, variables
from offcut.core.layout import Layout
from offcut.describe.tensor import Tensor
from offcut.errors import DescribeError


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
    panel       what cuts of the columns are a multiple of, in columns
    layouts     where the elements of operands lie, by name; the others are read as arrays lie. That of
                the columns' operand, which the rows' may not have, is what it is packed in
    unit        what runs it: a core of the CPU, a warp, a matrix unit
    features    what the hardware must have
    reset       the instruction that starts its reduction, where that is one of its own
    update      likewise the one that adds a step to what was started
    ascending   whether an element is what adding its terms one after the other gives
    repeats     whether one call takes more columns than a tile has, as tiles side by side
    turns       loops around the terms of a sum that one call runs as well, at most
    lowering    how a function that is not the back end's is called; None: the back end knows
    """

    name: str
    computes: Tensor
    rows: str
    columns: str
    tiles: tuple[TileShape, ...]
    predicates: frozenset[str]
    panel: int
    layouts: tuple[tuple[str, Layout], ...] = ()
    unit: str = "core"
    features: frozenset[str] = frozenset()
    reset: str | None = None
    update: str | None = None
    ascending: bool = True
    repeats: bool = False
    turns: int = 0
    lowering: Any = None

    def __post_init__(self) -> None:
        definition = self.computes.definition if isinstance(self.computes, Tensor) else None
        if definition is None:
            because = f"it computes {self.computes!r}, and no tensor that compute defines"
            raise self._refused(because)
        axes = [axis.name for axis in definition.axes]
        for what, name in (("rows", self.rows), ("columns", self.columns)):
            if name and name not in axes:
                raise self._refused(f"{what} is {name!r}, and its axes are {', '.join(axes)}")
        if self.rows and self.rows == self.columns:
            raise self._refused(f"{self.rows} is its rows and its columns")
        known = {*axes, *(axis.name for axis in definition.reduce_axes)}
        if unknown := sorted(self.predicates - known):
            because = f"its predicates have {', '.join(unknown)}, which is no axis of it"
            raise self._refused(because)
        if not self.tiles:
            raise self._refused("it has no tiles")
        for tile in self.tiles:
            whole = tile.rows >= 1 and tile.columns >= 1
            if not (whole and 0 <= tile.cycles < inf and 0 <= tile.startup < inf):
                raise self._refused(f"{tile} has no instances, or takes no time that there is")

    def _refused(self, because: str) -> DescribeError:
        return DescribeError("microkernel", f"cannot declare {self.name or 'one'}", because=because)

    def layout_of(self, operand: str) -> Layout | None:
        """Where the elements of an operand, or of the result, lie; None where as an array's do."""
        return dict(self.layouts).get(operand)

    @property
    def packed(self) -> str:
        """The operand that may be packed, zero past its extents; "" where none may."""
        name = self.operand_along(self.columns)
        return name if self.layout_of(name) is not None else ""

    def layout_on(self, rows: int, columns: int) -> Layout | None:
        """Return the layout of an array that it reads as the packed operand, None where it packs none.

        rows, columns  axes of the array that its terms and its columns run along
        """
        layout = self.layout_of(self.packed)
        if layout is None or len(layout.multiple) != 2:
            return None
        return layout.on(*((rows, columns) if self._depth == 0 else (columns, rows)))

    @property
    def interleave(self) -> int:
        """Terms that are added up at once: so many lie side by side in the packed operand, which is
        then read only so, and those of the other operand lie side by side.
        """
        layout = self.layout_of(self.packed)
        return 1 if layout is None else layout.beside(self._depth)

    @property
    def multiple(self) -> int:
        """What the terms of the packed operand are rounded up to."""
        layout = self.layout_of(self.packed)
        return 1 if layout is None else layout.multiple[self._depth]

    @property
    def depth(self) -> str:
        """The axis of `computes` that it sums over; "" where there is none."""
        definition = self.computes.definition
        assert definition is not None
        return definition.reduce_axes[0].name if definition.reduce_axes else ""

    @property
    def _depth(self) -> int:
        """The axis of the packed operand along which it is reduced."""
        definition = self.computes.definition
        assert definition is not None
        load = next(load for load, _ in loads(definition.body) if load.buffer == self.packed)
        return next(at for at, part in enumerate(load.index) if self.depth in variables(part))

    @property
    def at_once(self) -> int:
        """Terms of a sum that one issue takes, all or none; 1 where it takes as many as there are."""
        definition = self.computes.definition
        assert definition is not None
        fixed = (axis.extent for axis in definition.reduce_axes if axis.extent.is_Integer)
        return 1 if self.depth in self.predicates else next(map(int, fixed), 1)

    def shape_of(self, operand: str) -> tuple[int, ...]:
        """The extents of an operand, or of the result, of a microkernel of fixed shape."""
        definition = self.computes.definition
        assert definition is not None
        tensors = (self.computes, *definition.reads)
        return tuple(int(e) for e in next(t for t in tensors if t.name == operand).shape)

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
