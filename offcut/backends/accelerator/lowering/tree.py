"""The order in which instructions are issued: loops around nests that are run as whole words.

A *leaf* is a nest of one statement over a box, which one or a few instructions run. Virtual threads take turns:
a loop over them goes inwards, past every loop that does not depend on the thread, down to leaves that stand side
by side on one unit::

    for v in 0:2  @virtual              for k in 0:n
      for k in 0:n                        for v in 0:2
        load, load, multiply       ->       load, load
                                          for v in 0:2
                                            multiply
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
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
    axes    (start, count) of each axis of the buffer, in elements
    thread  the loop whose virtual threads have one window each; None: there is one
    depth   the number of loops around it
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
        """The outermost tile around its store."""
        return tile_of(self.source)

    @property
    def microkernel(self) -> str | None:
        """The name of the microkernel that covers its tile; None: the text names none."""
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
UnitOf: TypeAlias = Callable[[Leaf], Unit]


def issued(body: Sequence[Stmt], unit: UnitOf, turns: bool = True) -> tuple[Node, ...]:
    """Return the nodes of a nest.

    unit   the unit that runs a leaf: virtual threads take turns where it changes
    turns  whether virtual threads take turns; else they run one after the other

    Raises TargetError for a statement that no instructions run.
    """
    return _Reader(unit, turns).block(body, _Around({}, (), None))


def leaves(nodes: Sequence[Node]) -> list[Leaf]:
    """Return all leaves, in the order of the text."""
    return [
        leaf for node in nodes for leaf in ([node] if isinstance(node, Leaf) else leaves(node.body))
    ]


def bounds_of(nodes: Iterable[Node]) -> Iterator[Expr]:
    """Return the bounds of all loops, and the conditions."""
    for node in nodes:
        if isinstance(node, Leaf):
            continue
        yield from (node.condition,) if isinstance(node, Guard) else (node.lo, node.hi)
        yield from bounds_of(node.body)


@dataclass(frozen=True, slots=True)
class _Around:
    """The windows and loops around a statement; fields as those of `Leaf` and `Window`."""

    windows: Mapping[str, Window]
    loops: tuple[str, ...]
    thread: str | None

    def inside(self, loop: str) -> _Around:
        """Return the same inside a loop."""
        return replace(self, loops=(*self.loops, loop))


class _Reader:
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
                return self.distribute(name, lo, hi, nodes)
            case Let(name, lo, hi, value, body):
                if not is_affine(value, {*at.loops}):
                    raise _refused(
                        stmt,
                        f"{name} is no affine value of the loops around it, and tokens are of such loops alone",
                        "a let over sizes alone, which the host computes before",
                    )
                nodes = self.block(body, at.inside(name))
                return (Repeat(name, value, ix.add(value, 1), nodes, (lo, hi)),)
            case If(condition, then, ()):
                return (Guard(condition, self.block(then, at)),)
        nest = box(stmt)
        if nest is not None:
            if (tile := tile_of(stmt)) is not None and tile.multicast is not None:
                raise _refused(tile, *_NO_WORDS["multicast"])
            loops, store = counted(nest)
            self.count += 1
            return (Leaf(self.count - 1, loops, store, at.windows, at.loops, stmt),)
        if isinstance(stmt, For):
            nodes = self.block(stmt.body, at.inside(stmt.iter))
            return (Repeat(stmt.iter, stmt.lo, stmt.hi, nodes),)
        raise _refused(
            stmt, "it is no loop, tile, window or condition around copies and operations"
        )

    def distribute(self, name: str, lo: Expr, hi: Expr, nodes: Sequence[Node]) -> tuple[Node, ...]:
        """Return `nodes` for each virtual thread ``name in lo:hi``, in turns."""
        result: list[Node] = []

        def kind(node: Node) -> object:
            return self.unit(node) if isinstance(node, Leaf) else id(node)

        for _, group in groupby(nodes, key=kind):
            same = tuple(group)
            node = same[0]
            if len(same) > 1 or isinstance(node, Leaf) or _depends(node, name):
                result.append(Repeat(name, lo, hi, same))
            else:
                result.append(replace(node, body=self.distribute(name, lo, hi, node.body)))
        return tuple(result)


def _depends(node: Repeat | Guard, name: str) -> bool:
    """Return whether the bounds of a loop, or a condition, depend on an iterator."""
    exprs = (node.condition,) if isinstance(node, Guard) else (node.lo, node.hi)
    return any(name in variables(expr) for expr in exprs)


_NO_WORDS = {
    "depth": (
        "windows that iterations take in turn are those of virtual threads",
        "for t in 0:2  @virtual around it",
    ),
    "layout": ("what reads it says how it lies in words", "alloc without layout"),
    "multicast": ("there is one of each unit", "a copy by each"),
}
"""The words of the language that these machines have no instruction for, each with the reason and the help of the error."""

_HOST_UNITS = (THREAD, LANE, UNROLL, VIRTUAL)
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


def counted(box: Box) -> Box:
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


def is_affine(value: Expr, names: Set[str]) -> bool:
    """Return whether a value is quasi-affine in names: their factors and divisors are constants."""
    for node in walk(value):
        match node:
            case Binary("*", a, b):
                moving = [bool(variables(one) & names) for one in (a, b)]
                fixed = b if moving[0] else a
                if all(moving) or (any(moving) and ix.literal_value(fixed) is None):
                    return False
            case Binary("//" | "%", a, b) if variables(a) & names or variables(b) & names:
                if ix.literal_value(b) is None:
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
