"""What a microkernel is declared with: the extents of an axis, the shape of a tile, and where an operand lies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

from offcut.core.layout import Layout
from offcut.core.program import MAX_SIZE
from offcut.core.sizes import Dim


@dataclass(frozen=True, slots=True)
class Extents:
    """The extents that an axis may have: from `least` to `most`, multiples of `multiple_of`, in elements."""

    least: int = 1
    most: int = MAX_SIZE
    multiple_of: int = 1

    def __contains__(self, extent: int) -> bool:
        return self.least <= extent <= self.most and extent % self.multiple_of == 0

    @property
    def only(self) -> int | None:
        """Return the one extent that there is; None where there are several."""
        return self.least if self.least == self.most else None

    def __str__(self) -> str:
        if self.only is not None:
            return str(self.only)
        ends = (
            f"from {self.least} to {self.most}"
            if self.most < MAX_SIZE
            else f"at least {self.least}"
        )
        return ends if self.multiple_of == 1 else f"{ends}, multiples of {self.multiple_of}"


Bound: TypeAlias = int | tuple[int, int] | Extents


def multiples(of: int, most: int = MAX_SIZE) -> Extents:
    """Return the extents ``of, 2*of, …`` up to `most`, for `Microkernel.bounds`."""
    return Extents(of, most, of)


@dataclass(frozen=True, slots=True)
class TileShape:
    """A tile that a microkernel computes at once.

    extents  elements along each axis of the result; along an axis with a predicate, at most
    cycles   predicted cycles per step of the reduction, operands in the nearest cache; of the whole tile
             where nothing is reduced
    startup  predicted cycles per tile: the call, the first loads, the stores
    """

    extents: tuple[int, ...]
    cycles: float
    startup: float

    @property
    def rows(self) -> int:
        """Elements along the axis before the last one."""
        return self.extents[-2] if len(self.extents) > 1 else 1

    @property
    def columns(self) -> int:
        """Elements along the last axis."""
        return self.extents[-1] if self.extents else 1

    @property
    def elements(self) -> int:
        """Elements of the result."""
        count = 1
        for extent in self.extents:
            count *= extent
        return count


@dataclass(frozen=True, slots=True)
class Place:
    """Where an operand of a microkernel lies, and how it is handed over.

    memories  names of the memories that it may lie in; none: any memory that has addresses
    layout    where its elements lie; None: as those of an array do, at a stride along each axis
    by        "plain": an address and strides; "fragment": registers of the lanes that run it;
              "descriptor": a word that says address and layout; "immediate": a constant of the
              instruction, of an operand without axes
    beside    the axis along which its elements lie next to each other; "": along none in particular
    types     element types that lie there as the declared one, of the same value: what it reads is ``int32(B[j])``
    repeated  axes along which an array may stand still: its one element lies there as often as the tile has any
    """

    memories: tuple[str, ...] = ()
    layout: Layout | None = None
    by: str = "plain"
    beside: str = ""
    types: tuple[str, ...] = ()
    repeated: frozenset[str] = frozenset()


def _extents_of(extent: Any) -> Extents:
    """Return the values that an extent, a sum of sizes, may have; all where it is no such sum."""
    if isinstance(extent, Dim):
        return Extents(extent.min, extent.max, extent.multiple_of)
    if extent.is_Integer:
        return Extents(int(extent), int(extent))
    least = most = 0
    for term, factor in extent.as_coefficients_dict().items():
        ends = (term.min, term.max) if isinstance(term, Dim) else (1, 1) if term == 1 else None
        if ends is None or not factor.is_Integer:
            return Extents(0)
        low, high = sorted(int(factor) * end for end in ends)
        least, most = least + low, most + high
    return Extents(max(least, 0), min(most, MAX_SIZE))
