"""The order in which instructions are issued: loops around nests that are run as whole words.

A *leaf* is a nest of one statement over a box, which one or a few instructions run. Instructions are issued in the order
of the text. The windows of an ``alloc`` of depth N are N slots, which iterations take in turn: while one is read, the
next one is filled.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from offcut.core import index as ix
from offcut.core.conditions import negate
from offcut.core.expr import Expr, Var, loads, substitute, variables
from offcut.core.program import (
    LANE,
    THREAD,
    UNROLL,
    Alloc,
    Choose,
    For,
    If,
    Let,
    Stmt,
    Store,
    Sync,
    Tile,
)
from offcut.core.text.printer import format_head
from offcut.errors import TargetError
from offcut.polyhedral.sync import slot_of


@dataclass(frozen=True, slots=True)
class Window:
    """A window of a buffer: one `alloc` of the program text.

    number  of the `alloc` among those of the nest
    axes    (start, count) of each axis of the buffer, in elements
    level   the number of loops around it
    slots   the number of windows that iterations take in turn
    slot    the one that an iteration takes, over the loops around
    alloc   the statement
    """

    number: int
    axes: tuple[tuple[Expr, Expr], ...]
    level: int
    slots: int
    slot: Expr
    alloc: Alloc = field(compare=False)


@dataclass(frozen=True, slots=True)
class Leaf:
    """One statement over a box of iterations.

    number       its own among the leaves of the nest, from 0 on
    axes         (iterator, first, trip count) of each
    store        the statement
    windows      the windows around it, by buffer
    around       the iterators of the loops around it
    source       the statement of the text: loops and tiles around one store
    """

    number: int
    axes: tuple[tuple[str, Expr, Expr], ...]
    store: Store
    windows: Mapping[str, Window] = field(hash=False, compare=False)
    around: tuple[str, ...]
    source: Stmt = field(hash=False, compare=False)

    @property
    def tile(self) -> Tile | None:
        """Return the outermost tile around its store."""
        return tile_of(self.source)

    @property
    def microkernel(self) -> str | None:
        """Return the name of the microkernel that covers its tile; None: the text names none."""
        return None if self.tile is None else self.tile.microkernel


@dataclass(frozen=True, slots=True)
class Repeat:
    """``for name in lo:hi``.

    promised  the range, half open, of a `let`, which is a loop of one iteration; None: it is a loop
    """

    name: str
    lo: Expr
    hi: Expr
    body: tuple[Node, ...]
    promised: tuple[int, int] | None = None

    @property
    def range(self) -> tuple[str, Expr, Expr]:
        """Its name, and bounds of its values, half open, over sizes and the loops around."""
        lo, hi = (self.lo, self.hi) if self.promised is None else map(ix.const, self.promised)
        return self.name, lo, hi


@dataclass(frozen=True, slots=True)
class Guard:
    """`body` if the condition holds."""

    condition: Expr
    body: tuple[Node, ...]


Node: TypeAlias = Leaf | Repeat | Guard


def build_issue_tree(body: Sequence[Stmt]) -> tuple[Node, ...]:
    """Return the nodes of a nest.

    Raises TargetError for a statement that no instructions run.
    """
    return _Reader().block(body, _Around({}, (), ()))


def leaves(nodes: Sequence[Node]) -> list[Leaf]:
    """Return all leaves, in the order of the text."""
    return [leaf for leaf, _ in leaves_and_ancestors(nodes)]


def leaves_and_ancestors(
    nodes: Iterable[Node], ancestors: tuple[Repeat | Guard, ...] = ()
) -> Iterator[tuple[Leaf, tuple[Repeat | Guard, ...]]]:
    """Yield all leaves, in the order of the text, each with the loops and conditions around it, outermost first."""
    for node in nodes:
        if isinstance(node, Leaf):
            yield node, ancestors
        else:
            yield from leaves_and_ancestors(node.body, (*ancestors, node))


def ranges_of(ancestors: Iterable[Repeat | Guard]) -> tuple[tuple[str, Expr, Expr], ...]:
    """Return the (name, lo, hi) of the loops among ancestors, outermost first."""
    return tuple(node.range for node in ancestors if isinstance(node, Repeat))


def bounds_of(nodes: Iterable[Node]) -> Iterator[Expr]:
    """Return the bounds of all loops, and the conditions."""
    for node in nodes:
        if isinstance(node, Leaf):
            continue
        yield from (node.condition,) if isinstance(node, Guard) else (node.lo, node.hi)
        yield from bounds_of(node.body)


@dataclass(frozen=True, slots=True)
class _Around:
    """The windows and loops around a statement; fields as those of `Leaf` and `Window`.

    ranges  (name, lo, hi) of the loops without those of a `let`
    """

    windows: Mapping[str, Window]
    loops: tuple[str, ...]
    ranges: tuple[tuple[str, Expr, Expr], ...]

    def inside(self, loop: str) -> _Around:
        """Return the same inside a `let`."""
        return replace(self, loops=(*self.loops, loop))


class _Reader:
    def __init__(self) -> None:
        self.count = self.allocs = 0

    def block(self, body: Sequence[Stmt], at: _Around) -> tuple[Node, ...]:
        return tuple(node for stmt in body for node in self.statement(stmt, at))

    def statement(self, stmt: Stmt, at: _Around) -> tuple[Node, ...]:
        match stmt:
            case Sync():
                return ()  # units keep the order of the text: their tokens are derived from it
            case Alloc(buffer, axes, body):
                self.allocs += 1
                slots = stmt.depth if at.ranges else 1
                slot = slot_of(at.ranges, slots)
                window = Window(self.allocs, axes, len(at.loops), slots, slot, stmt)
                return self.block(body, replace(at, windows={**at.windows, buffer: window}))
            case Let(name, lo, hi, value, body):
                if not ix.is_affine(value, {*at.loops}):
                    raise _refusal(
                        stmt,
                        f"{name} is not an affine value of the loops around it, and tokens are of such loops alone",
                        "a let over sizes alone, which the host computes before",
                    )
                nodes = self.block(body, at.inside(name))
                return (Repeat(name, value, ix.add(value, 1), nodes, (lo, hi)),)
            case If(condition, then, other):
                guards = (Guard(condition, self.block(then, at)),)
                return guards + (
                    (Guard(negate(condition), self.block(other, at)),) if other else ()
                )
        nest = box(stmt)
        if nest is not None:
            if (tile := tile_of(stmt)) is not None and tile.multicast is not None:
                raise _refusal(tile, "there is one of each unit", "a copy by each")
            loops, store = normalize_box(nest)
            self.count += 1
            return (Leaf(self.count - 1, loops, store, at.windows, at.loops, stmt),)
        if isinstance(stmt, For):
            ranges = (*at.ranges, (stmt.iter, stmt.lo, stmt.hi))
            nodes = self.block(stmt.body, replace(at.inside(stmt.iter), ranges=ranges))
            return (Repeat(stmt.iter, stmt.lo, stmt.hi, nodes),)
        if isinstance(stmt, Choose):
            because = "the host chooses before a stream begins, and the costs of these options are of an iteration"
            raise _refusal(stmt, because, *(option.label for option in stmt.options))
        raise _refusal(
            stmt, "it is not a loop, tile, window or condition around copies and operations"
        )


_HOST_UNITS = (THREAD, LANE, UNROLL)
"""The units of loops that are one after the other in a leaf."""

Box: TypeAlias = tuple[tuple[tuple[str, Expr, Expr], ...], Store]


def box(stmt: Stmt) -> Box | None:
    """Return the axes of a nest of one store over a box, and the store; None for any other statement."""
    match stmt:
        case Store():
            return (), stmt
        case For(name, lo, hi, (inner,), unit=unit) if unit in (None, *_HOST_UNITS):
            own: tuple[tuple[str, Expr, Expr], ...] = ((name, lo, ix.sub(hi, lo)),)
        case Tile(axes, (inner,), where=None):
            own = tuple((axis.iter, axis.start, axis.extent) for axis in axes)
        case _:
            return None
    nest = box(inner)
    if nest is None:
        return None
    inside, store = nest
    names = {name for name, _, _ in own}
    if any(names & (variables(first) | variables(count)) for _, first, count in inside):
        return None
    return (*own, *inside), store


def tile_of(stmt: Stmt) -> Tile | None:
    """Return the outermost tile of a box; None if it has only loops."""
    while isinstance(stmt, For):
        (stmt,) = stmt.body
    return stmt if isinstance(stmt, Tile) else None


def normalize_box(box: Box) -> Box:
    """Return the box with each axis counted as the statement indexes it: ``Y[8*io + i]`` for i in 0:8 is ``Y[i]`` for i
    in ``8*io +: 8``.
    """
    axes, store = box
    names = {name for name, _, _ in axes}
    for at, (name, first, count) in enumerate(axes):
        exprs = (*store.index, *(part for load, _ in loads(store.value) for part in load.index))
        rests = (ix.sub(part, Var(name)) for part in exprs if name in variables(part))
        offset = next((rest for rest in rests if not variables(rest) & names), ix.const(0))
        if offset == ix.const(0):
            continue
        values: dict[str, Expr] = {name: ix.sub(Var(name), offset)}
        index = tuple(ix.simplify(substitute(part, values)) for part in store.index)
        store = replace(store, index=index, value=ix.fold_indices(substitute(store.value, values)))
        axes = (*axes[:at], (name, ix.add(first, offset), count), *axes[at + 1 :])
    return axes, store


def _refusal(stmt: Stmt, because: str, *help: str) -> TargetError:
    return TargetError(
        "compile",
        "cannot issue instructions for a statement",
        at=format_head(stmt),
        because=because,
        help=help,
    )
