"""A schedule as data: what was decided about a program, in the order in which it is applied.

Each decision is a frozen record, named after the primitive that users of Halide and TVM know it by.
Names are those of the program: a buffer stands for the statements that compute it, an axis for its
loop. `text` prints a schedule and reads it back, `apply` makes the loops that it says. The primitives
of a schedule by hand (`by_hand`) come before what a target decides of the loops that they make.
"""

from __future__ import annotations

import hashlib
import html
from collections.abc import Mapping
from dataclasses import dataclass

from offcut.core.cached_hash import CachedHash
from offcut.core.expr import Expr
from offcut.core.layout import Layout
from offcut.core.program import LANE, THREAD, UNROLL
from offcut.errors import trim_tracebacks
from offcut.partition import AxisCut, Block, LoopCut, Strategy


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
class Separate:
    """Conditions on coordinates leave the loops, which are split where they change.

    copies  of a statement that this may make, at most

    Halide: loop partitioning; TVM: `LoopPartition`.
    """

    copies: int


@dataclass(frozen=True, slots=True)
class Mark:
    """Loops run as a unit of the target runs them, wherever it proves that they may.

    unit  ``products``: nests that are computations of their own, by microkernels; ``rows``: lanes along sums over rows of
          memory; ``lanes``: vectors; ``threads``

    Halide, TVM: `vectorize`, `parallel`.
    """

    unit: str


@dataclass(frozen=True, slots=True)
class Split:
    """``axis = factor*outer + inner``: two loops of `stage`, one inside the other.

    tail  what the last, partial tile does; None: the default, which depends on what runs it

    Halide, TVM: `split`.
    """

    stage: str
    axis: str
    outer: str
    inner: str
    factor: int
    tail: Strategy | None


@dataclass(frozen=True, slots=True)
class Fuse:
    """``outer = fused // extent(inner)``, ``inner = fused % extent(inner)``. Halide, TVM: `fuse`."""

    stage: str
    outer: str
    inner: str
    fused: str


@dataclass(frozen=True, slots=True)
class Reorder:
    """Loops of `stage` in this order, at the places that they have. Halide, TVM: `reorder`."""

    stage: str
    axes: tuple[str, ...]


RUN_WORDS = {
    None: "serial",
    THREAD: "parallel",
    LANE: "vectorize",
    UNROLL: "unroll",
}
"""The decisions that say what runs a loop, by the unit; any other unit is for `Bind`."""


@dataclass(frozen=True, slots=True)
class Run:
    """How one loop of `stage` runs, whatever was said of it before. Halide, TVM: `unroll`, `vectorize`, `parallel`."""

    stage: str
    axis: str
    unit: str | None

    @property
    def word(self) -> str:
        """The word of the decision in a schedule's text."""
        return RUN_WORDS[self.unit]


@dataclass(frozen=True, slots=True)
class Bind:
    """One loop of `stage` is run by a hardware index. TVM: `bind`."""

    stage: str
    axis: str
    index: str


@dataclass(frozen=True, slots=True)
class ComputeAt:
    """`stage` is computed inside a loop of what reads it. Halide, TVM: `compute_at`.

    depth  the number of windows that iterations of the loop take in turn. TVM: `double_buffer`
    """

    stage: str
    consumer: str
    axis: str
    depth: int = 1


@dataclass(frozen=True, slots=True)
class ComputeInline:
    """`stage` is computed wherever it is read. Halide, TVM: `compute_inline`."""

    stage: str


@dataclass(frozen=True, slots=True)
class CacheRead:
    """The stages `readers` read `copy`, which lies in `memory`, in place of `buffer`. TVM: `cache_read`."""

    buffer: str
    memory: str
    readers: tuple[str, ...]
    copy: str


@dataclass(frozen=True, slots=True)
class CacheWrite:
    """`stage` is computed in `name`, which lies in `memory`, then copied. TVM: `cache_write`."""

    stage: str
    memory: str
    name: str


@dataclass(frozen=True, slots=True)
class RFactor:
    """`name` reduces what is inside `axis`, and `stage` reduces over `axis`. Halide, TVM: `rfactor`."""

    stage: str
    axis: str
    name: str


@dataclass(frozen=True, slots=True)
class Tensorize:
    """The loops of `stage` from `axis` inwards are run by a declared instruction. TVM: `tensorize`."""

    stage: str
    axis: str
    intrinsic: str


Primitive = (
    Split
    | Fuse
    | Reorder
    | Run
    | Bind
    | ComputeAt
    | ComputeInline
    | CacheRead
    | CacheWrite
    | RFactor
    | Tensorize
)
Step = Scratch | Copy | Turn | Convert | Lay | Nest | Together | Cut | Separate | Mark | Primitive


@trim_tracebacks
@dataclass(frozen=True, slots=True)
class Schedule(CachedHash):
    """Decisions about the program `name`, in order; ``str`` is its text, which `parse` reads back."""

    name: str
    steps: tuple[Step, ...]

    __hash__ = CachedHash.__hash__

    @property
    def digest(self) -> str:
        """64 bits of SHA-256 of its decisions, in hexadecimal: equal schedules have equal ones.

        A strategy of the user's is what it gives here, and not its name alone.
        """
        return hashlib.sha256(repr((self.name, self.steps)).encode()).hexdigest()[:16]

    @staticmethod
    def parse(text: str) -> Schedule:
        """The schedule that prints as `text`; comments and blank lines are skipped.

        Raises ParseError, with the line, for any other text.
        """
        from offcut.schedule.text import parse_schedule

        return parse_schedule(text)

    def __str__(self) -> str:
        from offcut.schedule.text import format_schedule

        return format_schedule(self)

    def __repr__(self) -> str:
        return f"<schedule {self.name}: {len(self.steps)} decisions, {self.digest}>"

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"


def schedule_of(name: str, cuts: Mapping[str, LoopCut], copies: int) -> Schedule:
    """The schedule of a program of that name whose loops are cut so, and run as vectors.

    copies  of a statement that separating conditions may make, at most
    """
    made = (Cut(axis, cut.tiles, cut.strategy) for axis, cut in cuts.items())
    return Schedule(name, (Separate(copies), *made, Mark("rows"), Mark("lanes")))
