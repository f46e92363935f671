"""What is known of a statement while a program is counted: where it stands, and what one run of it counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from offcut.core import index as ix
from offcut.core.expr import Expr, substitute
from offcut.core.program import For, Stmt, Store, TileAxis
from offcut.core.program import walk as statements
from offcut.core.scan import Range, ScanContext
from offcut.costmodel.closed.counts import ZERO, Counts, added
from offcut.costmodel.closed.summation import folded
from offcut.costmodel.closed.traffic import Touched

BYTES = -1  # no number of a piece
APART = "#"  # no user can name an array so
OPEN = "#open"
"""In the extent of a tile along its lanes: the text does not say it, whatever is known here, and the code has a loop along it. It is 0."""


class BytesOf(Enum):
    """What the bytes are told of that are counted."""

    PIECES = "pieces"  # in a call after one of the same sizes
    ARRAYS = "arrays"  # in a call that finds nothing in a cache
    NOTHING = "nothing"  # none are counted


@dataclass(frozen=True, slots=True)
class StagedRows:
    """A copy of rows that a padded tile reads: it is made again only where it is of other rows than the last one.

    moves   the iterators of the loops around that move the rows
    counts  of one copy
    """

    moves: frozenset[str]
    counts: Counts


@dataclass(frozen=True, slots=True)
class Tally:
    """What is known of a statement: what one run of it touches, and counts by piece.

    staged  by piece, what of it runs once for all iterations of the loops around that do not move it
    """

    touched: Touched
    counts: Mapping[int, Counts]
    staged: Mapping[int, StagedRows] = field(default_factory=dict)

    @property
    def whole(self) -> Mapping[int, Counts]:
        """The counts by piece, those of staged rows among them."""
        return added((self.counts, {piece: one.counts for piece, one in self.staged.items()}))


@dataclass(frozen=True, slots=True)
class Scope:
    """Where a statement stands.

    piece  that it is a part of, None outside of tiles
    loop   the innermost one around it
    lane   the iterator that runs along lanes, None where instances run one by one
    run    how many of its iterations are side by side, None where no text says so
    across  it, its first and its last iteration, where all of them run at once
    way    of a `choose`
    around  the loop around the tile
    written  arrays that are written in the innermost loop, or the tile
    """

    known: ScanContext
    piece: int | None = None
    loop: For | None = None
    lane: str | None = None
    run: int | None = None
    across: tuple[str, Expr, Expr] | None = None
    way: tuple[int, int] | None = None
    around: For | None = None
    written: frozenset[str] = frozenset()


def extent_of(axis: TileAxis) -> Expr:
    """How many instances a tile has along an axis."""
    return folded(substitute(axis.extent, {OPEN: ZERO}))


def stored_in(body: Sequence[Stmt]) -> frozenset[str]:
    """Return the arrays that statements write."""
    return frozenset(one.buffer for one in statements(tuple(body)) if isinstance(one, Store))


def inside_loop(known: ScanContext, name: str, lo: Expr, hi: Expr) -> ScanContext:
    """Return what is known inside a loop."""
    return known.within(Range(name, (lo,), (ix.sub(hi, 1),)))
