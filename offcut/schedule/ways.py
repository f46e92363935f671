"""What the CPU's policy says of the nests of a computation: stages, ways to run a nest, and units.

These records go when that policy writes the decisions of `decisions`; they print in lines of their own.
"""

from __future__ import annotations

from dataclasses import dataclass

from offcut.core.cached_hash import CachedHash
from offcut.core.expr import Expr
from offcut.core.layout import Layout
from offcut.partition import AxisCut, Block, Strategy


@dataclass(frozen=True, slots=True)
class Scratch:
    """The factors of the sum `stage` that are computed lie in scratch of their own, computed once.

    narrow  whether as they are read, and converted by the sum; else as it multiplies them

    Halide, TVM: `compute_root` of a part of an expression, `cache_read`.
    """

    stage: str
    narrow: bool


@dataclass(frozen=True, slots=True)
class Copy:
    """An element that the sum `stage` multiplies is copied before it, its terms along `depth` side by side.

    operand  the element, as it prints: ``A[k, i]``

    TVM: `cache_read` and `transform_layout`.
    """

    stage: str
    operand: str
    depth: str


@dataclass(frozen=True, slots=True)
class Turn:
    """`stage` is computed into scratch whose axes lie in this order, then copied.

    Halide: `reorder_storage`; TVM: `cache_write` with a layout.
    """

    stage: str
    axes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Convert:
    """Operands of the sum `stage` are converted before it, not in each of its terms.

    operands  the conversions, as they print: ``float32(A[i, k])``

    TVM: `cache_read` of a cast.
    """

    stage: str
    operands: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Lay:
    """The constant `buffer` lies in panels, packed when it is bound. TVM: `transform_layout`."""

    buffer: str
    layout: Layout


@dataclass(frozen=True, slots=True)
class Cover:
    """Tiles are computed by a microkernel, where it computes them. TVM: `tensorize`.

    rows, columns, depth  the axes that it runs along; None: it has one row, or one column
    """

    microkernel: str
    rows: str | None
    columns: str | None
    depth: str


@dataclass(frozen=True, slots=True)
class Words:
    """Elements lie in words of a machine along these axes, where no microkernel of a sum says so.

    rows, columns  of a word; None: it has one row, or one column

    TVM: `transform_layout`.
    """

    rows: str | None
    columns: str | None


@dataclass(frozen=True, slots=True)
class Pack:
    """The operand that moves along the columns is copied into panels. Halide, TVM: `cache_read`.

    name    of the copy
    layout  how it lies, in panels: its rows and columns are its last two axes
    splits  of the loops that copy it
    loops   of them that run plainly, outermost first
    """

    name: str
    layout: Layout
    splits: tuple[AxisCut, ...]
    loops: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Way(CachedHash):
    """How the loops of a nest run, outermost first: plain loops, cache groups, plain loops in these,
    tiles; what is neither split nor a loop lies in the tile.

    cost    seconds, over the sizes: a call takes the cheapest of the ways; None: what the cost model
            predicts
    splits  with a tail strategy each (Halide: `split` with a `TailStrategy`; TVM: `split`)
    depth   (axis, windows): so many windows, which iterations take in turn, of all that lies in the loop over the tiles of
            an axis; None: of everything one (TVM: `vthread`, `double_buffer`)
    words   along which axes the words of a machine lie, of a nest whose sums no microkernel covers; None: as its target
            decides, or `cover` says
    """

    label: str
    cost: Expr | None
    cover: Cover | None
    pack: Pack | None
    splits: tuple[AxisCut, ...]
    loops: tuple[str, ...]
    inner: tuple[str, ...] = ()
    depth: tuple[str, int] | None = None
    words: Words | None = None

    __hash__ = CachedHash.__hash__


@dataclass(frozen=True, slots=True)
class Nest(CachedHash):
    """The loops that compute `stage` and what follows it point by point, in one way or in several
    that compete at run time.
    """

    stage: str
    ways: tuple[Way, ...]

    __hash__ = CachedHash.__hash__


@dataclass(frozen=True, slots=True)
class Together:
    """Nests that share their outermost loops. Halide, TVM: `compute_at`.

    axes   of the shared loops, outermost first
    parts  what runs inside, in order
    block  iterations of the innermost of the loops that each part runs in turn; None: one
    """

    axes: tuple[str, ...]
    parts: tuple[Nest | Together, ...]
    block: Block | None = None


@dataclass(frozen=True, slots=True)
class Cut:
    """A loop of the program as it stands is cut into tiles by level, outermost first.

    axis  its name, ``C.j`` where several statements have it
    """

    axis: str
    tiles: tuple[int, ...]
    strategy: Strategy


@dataclass(frozen=True, slots=True)
class Mark:
    """Loops run as a unit of the target runs them, wherever it proves that they may.

    unit  ``products``: nests that are computations of their own, by microkernels; ``rows``: lanes along sums over rows of
          memory; ``lanes``: vectors; ``threads``

    Halide, TVM: `vectorize`, `parallel`.
    """

    unit: str


OfWays = Scratch | Copy | Turn | Convert | Lay | Nest | Together | Cut | Mark
