"""Tiles, strategies and covers by loop, as a cutter is given them, and the tiles with their theorems that it gives back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace

from offcut.core import index as ix
from offcut.core.expr import Binary, Const, Expr, real
from offcut.core.memo import CachedHash, node
from offcut.core.program import Cover, For, Stmt, Tile
from offcut.describe.computation import Names
from offcut.partition.strategies.catalog import Strategy
from offcut.partition.strategies.segment_placement import Segment
from offcut.proof import Theorem

# Predicted seconds of runs of equal tiles, (how many, their height), of at most `tile` instances.
PiecesCost = Callable[[Sequence[tuple[Expr, Expr]], int], Expr]

# (a tile, least and most instances along each of its axes) -> the cover of it, or None
CoverTile = Callable[[Tile, Mapping[str, tuple[int, int]]], Cover | None]

# ((least, greatest height of the tile around), tile, its sizes), in ascending order
ByHeight = tuple[tuple[tuple[int, int], int, tuple[int, ...]], ...]

# By the iterator of a loop, what is around everything that is asked of it.
Blame = Callable[[str], AbstractContextManager[None]]


def tiles_alike(runs: Sequence[tuple[Expr, Expr]], tile: int) -> Expr:
    """A price where nothing is known of the hardware: a tile costs its height, and 4 to start."""
    total: Expr = Const(0.0, "float64")
    for count, height in runs:
        one = real(ix.add(height, 4))
        total = Binary("+", total, Binary("*", real(count), one))
    return Binary("*", total, Const(1e-9, "float64"))


@dataclass(frozen=True, slots=True)
class LoopCut:
    """How a loop is cut: the largest tile by level, outermost first, and the innermost one's tail."""

    tiles: tuple[int, ...]
    strategy: Strategy


@node
@dataclass(frozen=True, slots=True)
class AxisCut(CachedHash):
    """How an axis of a nest is cut into the tiles of a microkernel.

    tile       the largest tile, in iterations
    heights    the tile sizes there are, for `ladder`; None: those that the strategy says
    by_height  instead, for columns: tile and heights by the height of the row tile around
    group      tiles are visited in groups of this many iterations, outermost; a multiple of every
               tile; None: no groups
    """

    axis: str
    strategy: Strategy
    tile: int
    heights: tuple[int, ...] | None = None
    by_height: ByHeight = ()
    group: int | None = None

    @property
    def guards(self) -> bool:
        """Return whether a tile has conditions on its instances inside; tiles by the height of others are a ladder's, which have none."""
        one = self.strategy.with_heights(self.heights)
        return not self.by_height and one.guards(self.tile)


@dataclass(frozen=True, slots=True)
class EmittedTile:
    """What one tile of the program is, by the loops that were cut around it.

    leaf         the statement that runs the instances of one tile
    segments     (loop, its segment); the segment's quantities count from the start of the loop
    microkernel  the name of the one that covers it
    """

    leaf: Stmt
    segments: tuple[tuple[str, Segment], ...]
    microkernel: str | None


@dataclass(frozen=True)
class Carried:
    """What the loops of one nest carry, by their names.

    sequential  loops that carry any dependence
    reductions  those of them that carry nothing but updates of a declared reduction: (op)
    """

    sequential: frozenset[str]
    reductions: Mapping[str, str]


@dataclass
class Cutting:
    """What the cutting of one nest is asked, and what it finds.

    choice    how a loop is cut; None: it is not
    names     that are taken; new ones come from it
    blame     around what is asked of a loop, by its iterator: it may say more in a refusal
    made      the tiles
    tiles     how many, those of parts of sums among them
    theorems  what is proved of each loop that is cut
    notes     what was decided
    """

    choice: Callable[[For], LoopCut | None]
    carried: Carried
    names: Names
    cover: CoverTile = lambda tile, heights: None
    price: PiecesCost = tiles_alike
    blame: Blame = lambda iterator: nullcontext()
    made: list[EmittedTile] = field(default_factory=list)
    tiles: int = 0
    theorems: dict[Theorem, None] = field(default_factory=dict)
    notes: dict[str, None] = field(default_factory=dict)
    _sequences: dict[tuple[str, Expr, Expr], Strategy] = field(default_factory=dict)

    def cut_of(self, loop: For) -> LoopCut | None:
        """How `loop` is cut, in the option that is being made; None: it is not."""
        cut = self.choice(loop)
        one = self._sequences.get((loop.iter, loop.lo, loop.hi))
        return cut if cut is None or one is None else replace(cut, strategy=one)

    @contextmanager
    def decide(self, mixed: Sequence[For], one: Strategy) -> Iterator[None]:
        """Take the loops in `mixed` in this sequence meanwhile."""
        outer_sequences = self._sequences
        self._sequences = outer_sequences | {(loop.iter, loop.lo, loop.hi): one for loop in mixed}
        try:
            yield
        finally:
            self._sequences = outer_sequences
