"""A schedule as data: decisions about a program, in the order in which they are applied.

Each decision is a frozen record: a function from the staged form to itself, with a theorem (`apply`).
A stage is named by the buffer that it computes, a loop by its stage and its name, ``C.i``: a loop of the
source, or one that a decision before made. `text` prints a schedule and reads it back.

=============  ================================================================================
Split          a loop as tiles, by levels, with a strategy for the tail each
Fuse, Order    one loop over pairs; the order of the loops of a stage
At             a stage is computed in a loop of its reader, in a window there
Staging        what is read or written lies in an array of its own, which is copied or computed
Inline         a stage is computed wherever it is read
RFactor        partial sums in a stage of their own
Bind           what runs a loop: a unit of the machine
Cover          loops are run by a microkernel
Separate       conditions leave the loops
Choose         alternatives, each a list of decisions, of which a call takes the cheapest
=============  ================================================================================
"""

from __future__ import annotations

import hashlib
import html
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeGuard

from offcut.core.expr import Expr
from offcut.core.layout import Layout
from offcut.core.memo import CachedHash, node
from offcut.core.program import LANE, THREAD, UNROLL
from offcut.errors import trim_tracebacks
from offcut.partition import LADDER, LoopCut, Strategy
from offcut.partition.cutting import ByHeight

ANY = "*"
"""What a decision names that is about all that there are."""


@dataclass(frozen=True, slots=True)
class Level:
    """One level of tiles of a split.

    tile      the largest tile, in iterations
    tail      what the last, partial tile does; None: the default, which depends on what runs it
    heights   the sizes of tiles that there are, descending from `tile`; None: those that the strategy says
    by        the loop inside another tile whose height decides instead; `classes` has tile and heights for each range
    room      bytes in which what lives in a tile has to fit; where it does not, iterations run one by one; None: no matter
    """

    tile: int
    tail: Strategy | None = None
    heights: tuple[int, ...] | None = None
    by: str | None = None
    classes: ByHeight = ()
    room: int | None = None


@dataclass(frozen=True, slots=True)
class Split:
    """A loop of `stage` becomes a loop for each level of tiles, outermost first, and one inside the tiles.

    stage  `ANY`: whichever has a loop of that name
    names  of these loops; one more than there are levels

    Halide, TVM: `split`, with a `TailStrategy`.
    """

    stage: str
    axis: str
    levels: tuple[Level, ...]
    names: tuple[str, ...]

    @property
    def pairs(self) -> Iterator[SplitPair]:
        """It as splits of one loop in two, from the outermost level on."""
        axis = self.axis
        for number, level in enumerate(self.levels):
            last = number == len(self.levels) - 1
            inner = self.names[-1] if last else f"{self.names[number]}.rest"
            yield SplitPair(axis, self.names[number], inner, level)
            axis = inner


@dataclass(frozen=True, slots=True)
class SplitPair:
    """``axis = factor*outer + inner``: a relation between loops of a nest, which a `Split` makes."""

    axis: str
    outer: str
    inner: str
    level: Level

    @property
    def factor(self) -> int:
        """Iterations of a tile, at most."""
        level = self.level
        return level.tile if level.by is None else max(tile for _, tile, _ in level.classes)

    @property
    def tail(self) -> Strategy | None:
        """What the last, partial tile does."""
        return self.level.tail


@dataclass(frozen=True, slots=True)
class Fuse:
    """``outer = fused // extent(inner)``, ``inner = fused % extent(inner)``. Halide, TVM: `fuse`."""

    stage: str
    outer: str
    inner: str
    fused: str


@dataclass(frozen=True, slots=True)
class Order:
    """Loops of `stage` in this order, at the places that they have. Halide, TVM: `reorder`."""

    stage: str
    loops: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class At:
    """`stage` is computed inside a loop of what reads it, in a window of the elements that are read there.

    axis     the loop; None: before the loops of `reader`
    memory   in which the window lies; None: where its buffer does
    depth    how many windows there are: that of iteration t is number t % depth
    inplace  the stage in whose window it lies, whose values die element by element; None: in one of its own

    Halide, TVM: `compute_at`, `store_at`.
    """

    stage: str
    reader: str
    axis: str | None = None
    memory: str | None = None
    depth: int = 1
    inplace: str | None = None


@dataclass(frozen=True, slots=True)
class Staging:
    """`readers` read `name` in place of `what`, or `what` is computed in `name` and copied from there.

    how      ``read``: `what` is an array, and `name` a copy of it; ``value``: `what` is an expression over `axes`
             and sizes, and `name` an array of its values, or a constant that is converted when it is bound;
             ``write``: `what` is a stage, computed in `name` and copied from there; ``prepack``: `what` is a constant,
             which is laid out when it is bound
    name     `ANY`: whatever a stage of its own is called that does so
    axes     of ``value``: (axis of `name`, what stands for it in the reader), in the order of the array's axes; of
             ``write``: the axes of the stage in the order of the array's
    memory   in which `name` lies; None: main memory
    layout   in which it lies; None: row by row

    Halide, TVM: `cache_read`, `cache_write`, `compute_root` of a part of an expression, `transform_layout`, `reorder_storage`.
    """

    how: str
    what: str
    name: str
    readers: tuple[str, ...] = ()
    axes: tuple[tuple[str, Expr], ...] = ()
    memory: str | None = None
    layout: Layout | None = None


@dataclass(frozen=True, slots=True)
class Inline:
    """`stage` is computed wherever it is read. Halide, TVM: `compute_inline`."""

    stage: str


@dataclass(frozen=True, slots=True)
class RFactor:
    """`name` reduces what is inside `axis`, and `stage` reduces over `axis`. Halide, TVM: `rfactor`."""

    stage: str
    axis: str
    name: str


UNIT_PRIMITIVES = {
    None: "serial",
    THREAD: "parallel",
    LANE: "vectorize",
    UNROLL: "unroll",
}
"""The primitives of a schedule by hand that bind a loop to a unit, by the unit; `bind` takes any other."""


@dataclass(frozen=True, slots=True)
class Bind:
    """One loop of `stage` is run by a unit of the machine, whatever was said of it before; None: one iteration after the other.

    stage, axis  `ANY`: every loop of which it is proved that the unit may run it
    tree         whether lanes run the terms of a sum, whose partial sums are added in a tree

    Halide, TVM: `bind`, `parallel`, `vectorize`, `unroll`.
    """

    stage: str
    axis: str
    unit: str | None
    tree: bool = False


SERIAL = "serial"
"""What texts call the unit that runs iterations one after the other."""
VECTORS = "vectors"
"""What runs a tile that no microkernel does: instructions of the target's own, along lanes where it has some."""


@dataclass(frozen=True, slots=True)
class Cover:
    """The loops of `stage` from `axis` inwards are one tile, which a microkernel runs, or `VECTORS`. TVM: `tensorize`.

    stage     `ANY`: every nest of a program that a microkernel runs, in the tiles that the target chooses
    axis      ""  : all loops that no order names
    axes      (axis of the microkernel, loop); empty: the judge finds them
    operands  (operand of the microkernel, buffer); empty: the judge finds them
    """

    stage: str
    axis: str
    microkernel: str
    axes: tuple[tuple[str, str], ...] = ()
    operands: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Separate:
    """Conditions on coordinates leave the loops, which are split where they change.

    copies  of a statement that this may make, at most
    stage   `ANY`: all loops; else a sum, whose terms that padding makes zero are left out: loops over them end where padding begins.
            With 0 copies, all terms stay
    axis    the loop in a tile of the sum whose conditions leave, too: tiles are then of as many rows as a term has; "": none does

    Halide: loop partitioning; TVM: `LoopPartition`.
    """

    copies: int
    stage: str = ANY
    axis: str = ""


@dataclass(frozen=True, slots=True)
class Alternative:
    """Decisions that compete with others; `cost` in seconds, over the sizes; None: the target counts what each takes at a call."""

    label: str
    cost: Expr | None
    steps: tuple[Primitive, ...]


@dataclass(frozen=True, slots=True)
class Choose:
    """Alternatives for the same stages, of which a call takes the cheapest."""

    options: tuple[Alternative, ...]


def primitive_of(step: Primitive) -> str:
    """Return the primitive of a schedule by hand that writes a decision, as errors name it."""
    match step:
        case Bind(_, _, unit):
            return UNIT_PRIMITIVES.get(unit, "bind")
        case Staging(how):
            return {"read": "cache_read", "write": "cache_write", "prepack": "prepack"}.get(
                how, "stage_value"
            )
        case _:
            return _PRIMITIVES[type(step)]


def stages_of_points(steps: Sequence[Step]) -> dict[str, str]:
    """Return the stages that are computed at each point of another one, with that one: nothing covers them."""
    decisions = list(each_decision(steps))
    covered = {step.stage for step in decisions if isinstance(step, Cover)}
    copies = {s.name for s in decisions if isinstance(s, Staging) and s.how == "read"}
    copies |= panel_copies(decisions)
    return {
        step.stage: step.reader
        for step in decisions
        if isinstance(step, At)
        if step.stage not in covered | copies | {step.reader} and step.reader in covered
        if (step.memory, step.depth, step.inplace) == (None, 1, None)
    }


def panel_copies(steps: Iterable[object]) -> frozenset[str]:
    """Return the copies in a layout of main memory that one stage reads, and that no decision covers: they are made for what covers their reader."""
    decisions = list(each_decision(steps))
    covered = {step.stage for step in decisions if isinstance(step, Cover)}
    return frozenset(
        step.name
        for step in decisions
        if isinstance(step, Staging) and step.how in ("read", "value") and len(step.readers) == 1
        if step.layout is not None and step.memory is None
        if step.how == "read" or step.name not in covered
    )


def stages_at_points(steps: Sequence[Step], members: Mapping[str, str]) -> tuple[str, ...]:
    """Return the stages that decisions place at each point of a tile, what is read before what reads it: readers are placed first."""
    stages = (step.stage for step in steps if isinstance(step, At) and step.stage in members)
    return tuple(dict.fromkeys(stages))[::-1]


def stages_in(step: Primitive) -> frozenset[str]:
    """Return the stages that a decision is about: what it changes, reads and makes."""
    match step:
        case At(stage, reader, _, _, _, inplace):
            return frozenset({stage, reader} if inplace is None else {stage, reader, inplace})
        case Staging(_, _, name, readers):
            return frozenset({name, *readers})
        case Choose(options):
            return frozenset().union(*(stages_in(s) for option in options for s in option.steps))
        case _:
            return frozenset({step.stage})


def each_decision(steps: Iterable[object]) -> Iterator[Primitive]:
    """Yield the decisions among `steps`, those of options in place of their choice."""
    for step in steps:
        if isinstance(step, Choose):
            for option in step.options:
                yield from each_decision(option.steps)
        elif isinstance(step, Primitive):
            yield step


_PRIMITIVES: dict[type, str] = {
    Split: "split",
    Fuse: "fuse",
    Order: "reorder",
    At: "compute_at",
    Inline: "compute_inline",
    RFactor: "rfactor",
    Cover: "tensorize",
    Choose: "choose",
}
ANY_TREE, ANY_LANES, ANY_THREADS = (
    Bind(ANY, ANY, LANE, tree=True),
    Bind(ANY, ANY, LANE),
    Bind(ANY, ANY, THREAD),
)
ANY_PRODUCTS = Cover(ANY, "", ANY)

Primitive = Split | Fuse | Order | At | Staging | Inline | RFactor | Bind | Cover | Choose
Step = Separate | Primitive


@trim_tracebacks
@node
@dataclass(frozen=True, slots=True)
class Schedule(CachedHash):
    """Decisions about the program `name`, in order; ``str`` is its text, which `parse` reads back."""

    name: str
    steps: tuple[Step, ...]

    @property
    def digest(self) -> str:
        """64 bits of SHA-256 of its decisions, in hexadecimal: equal schedules have equal ones.

        A strategy of the user's is what it gives here, and not its name alone.
        """
        return hashlib.sha256(repr((self.name, self.steps)).encode()).hexdigest()[:16]

    @staticmethod
    def parse(text: str) -> Schedule:
        """Return the schedule that prints as `text`; comments and blank lines are skipped.

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
    """Return the schedule of a program of that name whose loops are cut so, and run as vectors.

    copies  of a statement that separating conditions may make, at most
    """
    splits = (split_of(axis, cut) for axis, cut in cuts.items())
    return Schedule(name, (Separate(copies), *splits, ANY_TREE, ANY_LANES))


def split_of(loop: str, cut: LoopCut) -> Split:
    """Return the split that cuts a loop so, by its name, or its stage and its name."""
    stage, _, axis = loop.rpartition(".")
    *outer, tile = cut.tiles
    levels = (*(Level(size, LADDER) for size in outer), Level(tile, cut.strategy))
    return Split(stage or ANY, axis, levels, split_names(axis, len(levels)))


def split_names(axis: str, levels: int) -> tuple[str, ...]:
    """Return what the loops of a split are called where nothing else asks: ``i_group``, ``i_tile``, ``i_in``."""
    outer = (f"{axis}_group{number or ''}" for number in range(levels - 1))
    return (*outer, f"{axis}_tile", f"{axis}_in")


def is_of_loops(step: object) -> TypeGuard[Separate]:
    """Return whether a decision moves conditions out of all loops, and not those on terms out of one sum."""
    return isinstance(step, Separate) and step.stage == ANY


def is_prepacked(step: object) -> TypeGuard[Staging]:
    """Return whether a decision lays a constant out when it is bound."""
    return isinstance(step, Staging) and step.how == "prepack"


def unit_splits(schedule: Schedule) -> tuple[Split, ...]:
    """Return the splits that say how many iterations a unit takes: of one level without a tail strategy, whose outer loop is bound to
    threads (chunks), or whose inner loop is unrolled (unroll-and-jam).
    """
    binds = {
        (step.stage, step.axis, step.unit) for step in schedule.steps if isinstance(step, Bind)
    }
    splits = (step for step in schedule.steps if isinstance(step, Split))
    return tuple(
        step
        for step in splits
        if step.levels == (Level(step.levels[0].tile),)
        and {(step.stage, step.names[0], THREAD), (step.stage, step.names[-1], UNROLL)} & binds
    )


def loop_cuts(schedule: Schedule) -> dict[str, Split]:
    """Return how loops are split that stand as they are once conditions have left them, by their names, ``C.j`` where it is said of which stage."""
    steps = schedule.steps
    at = next((k for k, step in enumerate(steps) if is_of_loops(step)), len(steps))
    of_units = unit_splits(schedule)
    splits = (step for step in steps[at:] if isinstance(step, Split) and step not in of_units)
    return {loop_name(s): s for s in splits}


def loop_name(step: Split) -> str:
    """Return what a user calls the loop that is split: ``C.j``, or ``j`` where it is that of several stages."""
    return step.axis if step.stage == ANY else f"{step.stage}.{step.axis}"
