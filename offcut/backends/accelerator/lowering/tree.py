"""The order in which instructions are issued: loops around nests that are run as whole words.

A *leaf* is a nest of one statement over a box: what one instruction runs, or a few. Virtual threads take
turns: a loop over them goes inwards, past every loop that does not depend on the thread, down to leaves
that stand side by side on one unit::

    for v in 0:2  @virtual              for k in 0:n
      for k in 0:n                        for v in 0:2
        load, load, multiply       ->       load, load
                                          for v in 0:2
                                            multiply
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import TypeAlias

from offcut.backends.accelerator.isa import Unit
from offcut.core import index as ix
from offcut.core.expr import Binary, Expr, Var, loads, substitute, variables, walk
from offcut.core.program import (
    LANE,
    THREAD,
    UNROLL,
    VIRTUAL,
    Alloc,
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


@dataclass(frozen=True, slots=True)
class Window:
    """A window of a buffer: one `alloc` of the program text.

    number  of the `alloc` among those of the nest
    axes    (start, count) by axis of the buffer
    thread  the loop whose virtual threads have one window each; None: there is one
    depth   how many loops it stands in
    alloc   the statement
    """

    number: int
    axes: tuple[tuple[Expr, Expr], ...]
    thread: str | None
    depth: int
    alloc: Alloc = field(compare=False)


@dataclass(frozen=True, slots=True)
class Leaf:
    """One statement over a box of iterations.

    axes         (iterator, first, how many)
    store        the statement
    windows      that it stands in, by buffer
    around       the loops that it stands in
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
        """The outermost tile around its store."""
        return tile_of(self.source)

    @property
    def microkernel(self) -> str | None:
        """The name of the microkernel that its tile is covered by; None: it says none."""
        return None if self.tile is None else self.tile.microkernel


@dataclass(frozen=True, slots=True)
class Repeat:
    """``for name in lo:hi``.

    promised  of a `let`, as a loop of one iteration: its range, half open
    """

    name: str
    lo: Expr
    hi: Expr
    body: tuple[Node, ...]
    promised: tuple[int, int] | None = None

    @property
    def range(self) -> tuple[str, Expr, Expr]:
        """Its name, and bounds of its values over sizes and the loops around."""
        if self.promised is None:
            return self.name, self.lo, self.hi
        lo, hi = self.promised
        return self.name, ix.const(lo), ix.const(hi)


@dataclass(frozen=True, slots=True)
class Guard:
    """`body` where the condition holds."""

    condition: Expr
    body: tuple[Node, ...]


Node: TypeAlias = Leaf | Repeat | Guard
UnitOf: TypeAlias = Callable[[Leaf], Unit]


def issued(body: Sequence[Stmt], unit: UnitOf, turns: bool = True) -> tuple[Node, ...]:
    """The nodes of a nest.

    unit   which unit runs a leaf: virtual threads take turns where it changes
    turns  whether they do; else they run one after the other

    Raises TargetError for a statement that no stream of instructions is.
    """
    return _Reading(unit, turns).block(body, _Around({}, (), None))


def leaves(nodes: Sequence[Node]) -> list[Leaf]:
    """All leaves, in the order of the text."""
    found: list[Leaf] = []
    for node in nodes:
        found += [node] if isinstance(node, Leaf) else leaves(node.body)
    return found


def bounds_of(nodes: Iterable[Node]) -> Iterator[Expr]:
    """Return the bounds of all loops, and the conditions."""
    for node in nodes:
        if isinstance(node, Leaf):
            continue
        yield from (node.condition,) if isinstance(node, Guard) else (node.lo, node.hi)
        yield from bounds_of(node.body)


@dataclass(frozen=True, slots=True)
class _Around:
    """What a statement stands in; fields as those of `Leaf`."""

    windows: Mapping[str, Window]
    loops: tuple[str, ...]
    thread: str | None

    def inside(self, loop: str) -> _Around:
        """Inside a loop."""
        return replace(self, loops=(*self.loops, loop))


class _Reading:
    def __init__(self, unit: UnitOf, turns: bool) -> None:
        self.unit, self.turns = unit, turns
        self.count = self.allocs = 0

    def block(self, body: Sequence[Stmt], at: _Around) -> tuple[Node, ...]:
        return tuple(node for stmt in body for node in self.statement(stmt, at))

    def statement(self, stmt: Stmt, at: _Around) -> tuple[Node, ...]:
        match stmt:
            case Sync():
                return ()  # units keep the order of the text: their tokens are derived from it
            case Alloc(buffer, axes, body):
                if stmt.depth != 1 or stmt.layout is not None:
                    what = "layout" if stmt.layout is not None else "depth"
                    raise _refused(stmt, *_NO_WORDS[what])
                self.allocs += 1
                window = Window(self.allocs, axes, at.thread, len(at.loops), stmt)
                return self.block(body, replace(at, windows={**at.windows, buffer: window}))
            case For(name, lo, hi, body, unit=unit) if unit == VIRTUAL and self.turns:
                if at.thread is not None:
                    raise _refused(stmt, f"it stands in the virtual threads of {at.thread}")
                nodes = self.block(body, replace(at.inside(name), thread=name))
                return self.dealt(name, lo, hi, nodes)
            case Let(name, lo, hi, value, body):
                if not _is_affine(value, {*at.loops}):
                    raise _refused(
                        stmt,
                        f"{name} is no affine value of the loops around it, and tokens are of such loops alone",
                        "a let over sizes alone, which the host computes before",
                    )
                nodes = self.block(body, at.inside(name))
                return (Repeat(name, value, ix.add(value, 1), nodes, (lo, hi)),)
            case If(condition, then, ()):
                return (Guard(condition, self.block(then, at)),)
        found = box(stmt)
        if found is not None:
            if (tile := tile_of(stmt)) is not None and tile.multicast is not None:
                raise _refused(tile, *_NO_WORDS["multicast"])
            loops, store = counted(found)
            self.count += 1
            return (Leaf(self.count - 1, loops, store, at.windows, at.loops, stmt),)
        if isinstance(stmt, For):
            return (
                Repeat(stmt.iter, stmt.lo, stmt.hi, self.block(stmt.body, at.inside(stmt.iter))),
            )
        raise _refused(
            stmt, "it is no loop, tile, window or condition around copies and operations"
        )

    def dealt(self, name: str, lo: Expr, hi: Expr, nodes: Sequence[Node]) -> tuple[Node, ...]:
        """`nodes` for each virtual thread, in turns."""
        made: list[Node] = []

        def kind(node: Node) -> object:
            return self.unit(node) if isinstance(node, Leaf) else id(node)

        for _, group in groupby(nodes, key=kind):
            same = tuple(group)
            match same:
                case (Repeat(lo=first, hi=end, body=body) as loop,) if name not in variables(
                    first
                ) | variables(end):
                    made.append(replace(loop, body=self.dealt(name, lo, hi, body)))
                case (Guard(condition, body),) if name not in variables(condition):
                    made.append(Guard(condition, self.dealt(name, lo, hi, body)))
                case _:
                    made.append(Repeat(name, lo, hi, same))
        return tuple(made)


_NO_WORDS = {
    "depth": (
        "windows that iterations take in turn are those of virtual threads",
        "for t in 0:2  @virtual around it",
    ),
    "layout": ("what reads it says how it lies in words", "alloc without layout"),
    "multicast": ("there is one of each unit", "a copy by each"),
}
"""Words of the language that no instruction of these machines means: why, and what does."""

Box: TypeAlias = tuple[tuple[tuple[str, Expr, Expr], ...], Store]


def box(stmt: Stmt) -> Box | None:
    """A nest of one statement over a box; None for any other."""
    match stmt:
        case Store():
            return (), stmt
        case For(name, lo, hi, (inner,), unit=unit) if unit in (
            None,
            THREAD,
            LANE,
            UNROLL,
            VIRTUAL,
        ):
            found = box(inner)
            own: tuple[tuple[str, Expr, Expr], ...] = ((name, lo, ix.sub(hi, lo)),)
        case Tile(axes, (inner,), where=None):
            found = box(inner)
            own = tuple((axis.iter, axis.start, axis.extent) for axis in axes)
        case _:
            return None
    if found is None:
        return None
    inside, store = found
    names = {name for name, _, _ in own}
    if any(names & (variables(first) | variables(count)) for _, first, count in inside):
        return None
    return (*own, *inside), store


def tile_of(stmt: Stmt) -> Tile | None:
    """Return the outermost tile of a box; None where it has loops alone."""
    while isinstance(stmt, For):
        (stmt,) = stmt.body
    return stmt if isinstance(stmt, Tile) else None


def counted(box: Box) -> Box:
    """The same box with each axis counted as the statement indexes it: ``Y[8*io + i]`` for i in 0:8 is Y[i]
    from ``8*io`` on.
    """
    axes, store = box
    names = {name for name, _, _ in axes}
    for at, (name, first, count) in enumerate(axes):
        exprs = (*store.index, *(part for load, _ in loads(store.value) for part in load.index))
        offset = next(
            (
                rest
                for part in exprs
                if name in variables(part)
                for rest in [ix.sub(part, Var(name))]
                if not variables(rest) & names
            ),
            ix.const(0),
        )
        if offset == ix.const(0):
            continue
        values: dict[str, Expr] = {name: ix.sub(Var(name), offset)}
        index = tuple(ix.simplify(substitute(part, values)) for part in store.index)
        store = replace(store, index=index, value=ix.folded(substitute(store.value, values)))
        axes = (*axes[:at], (name, ix.add(first, offset), count), *axes[at + 1 :])
    return axes, store


def _is_affine(value: Expr, loops: set[str]) -> bool:
    """Return whether a value is quasi-affine in loops: no factor and no divisor of theirs but constants."""
    for node in walk(value):
        match node:
            case Binary("*", a, b):
                moving = [bool(variables(one) & loops) for one in (a, b)]
                fixed = b if moving[0] else a
                if all(moving) or (any(moving) and ix.literal(fixed) is None):
                    return False
            case Binary("//" | "%", a, b) if variables(a) & loops or variables(b) & loops:
                if ix.literal(b) is None:
                    return False
    return True


def _refused(stmt: Stmt, because: str, *help: str) -> TargetError:
    return TargetError(
        "compile",
        "cannot issue instructions for a statement",
        at=format_head(stmt),
        because=because,
        help=help,
    )
