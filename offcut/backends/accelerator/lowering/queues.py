"""Which leaves push and pop tokens, and in which of their instances.

What units run of a nest is a program of its own, of tiles that read and write regions, each region as one word for each
virtual thread; `polyhedral.sync` puts arrivals and waits into it::

    for i in 0:n
      for v in 0:2
        wait compute_to_load where i >= 1
        tile at in 0 +: 1 @by(load)
          A_in[v] = 0
        arrive load_to_compute
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from offcut.backends.accelerator.isa import Unit
from offcut.backends.accelerator.lowering.tree import Guard, Leaf, Node, Repeat, leaves
from offcut.backends.accelerator.spec import Spec
from offcut.core import index as ix
from offcut.core.expr import Binary, Const, Expr, Load, Var
from offcut.core.program import (
    Action,
    Buffer,
    For,
    If,
    Kind,
    Program,
    Stmt,
    Store,
    Sync,
    Tile,
    TileAxis,
    blocks,
)
from offcut.errors import TargetError
from offcut.polyhedral import sync

_UNITS = tuple(Unit)
_MEMORY = "main_memory"
"""What stores write, and the end of a stream reads."""
_MANY = 2**30
"""Virtual threads whose number is not known."""


NEVER = Const(0, "bool")


class TokensError(TargetError):
    """Virtual threads for whose tokens there is no room."""


@dataclass(frozen=True, slots=True)
class Touch:
    """What a leaf reads or writes.

    thread  the loop whose iteration says which part of the region; None: all of it
    """

    region: str
    thread: str | None
    writes: bool


@dataclass(frozen=True, slots=True)
class Conditions:
    """When an instance of a leaf pops and pushes, as conditions on loops and sizes; in the order of an instruction's fields."""

    pop_prev: Expr = NEVER
    pop_next: Expr = NEVER
    push_prev: Expr = NEVER
    push_next: Expr = NEVER

    @property
    def fields(self) -> tuple[Expr, Expr, Expr, Expr]:
        """All four."""
        return self.pop_prev, self.pop_next, self.push_prev, self.push_next


SILENT = Conditions()


def agents(spec: Spec) -> sync.Agents:
    """The units of a machine of queues: each in its own order, tokens between neighbours."""
    names = [unit.value for unit in _UNITS]
    ends = [*pairwise(names), *pairwise(names[::-1])]
    units = tuple(sync.Unit(name) for name in names)
    return sync.Agents(units, Unit.COMPUTE.value, frozenset(ends), spec.token_depth, blocks=True)


def token_conditions(
    program: Program,
    nodes: Sequence[Node],
    unit: Callable[[Leaf], Unit],
    touches: Callable[[Leaf], Sequence[Touch]],
    spec: Spec,
) -> tuple[dict[int, Conditions], Program]:
    """The tokens of each leaf by its number, the end of the stream as one more leaf; and the program that says them.

    touches  the regions on the chip that a leaf accesses

    Raises TokensError where a stream could come to a standstill.
    """
    order = _Order(program, nodes, unit, touches)
    try:
        made = sync.synchronized(order.program, agents(spec))
    except sync.StandstillError as refused:
        raise TokensError(
            "compile",
            f"cannot run {program.name} on {spec.name} without a standstill",
            because=f"{refused.because}: token_depth is {spec.token_depth}",
            help=("without virtual threads",),
        ) from None
    found: dict[int, Conditions] = {}
    numbers = iter([*(leaf.number for leaf in leaves(nodes)), len(order.leaves)])
    for tile, syncs in _with_syncs(made.body):
        fields = {_field(made, tile, one): one.where or Const(1, "bool") for one in syncs}
        found[next(numbers)] = replace(SILENT, **fields)
    return found, made


def _with_syncs(body: Sequence[Stmt]) -> Iterator[tuple[Tile, list[Sync]]]:
    """Each tile with the waits before it and the arrivals behind it."""
    syncs: list[Sync] = []
    tile: Tile | None = None
    for stmt in body:
        starts = isinstance(stmt, Sync) and stmt.action is Action.WAIT
        if tile is not None and (starts or not isinstance(stmt, Sync)):
            yield tile, syncs
            syncs, tile = [], None
        if isinstance(stmt, Sync):
            syncs.append(stmt)
        elif isinstance(stmt, Tile):
            tile = stmt
        else:
            for block in blocks(stmt):
                yield from _with_syncs(block)
    if tile is not None:
        yield tile, syncs


def _field(program: Program, tile: Tile, one: Sync) -> str:
    """The field of an instruction that a statement of synchronization is."""
    token = next(token for token in program.tokens if token.name == one.name)
    pops = one.action is Action.WAIT
    other = token.source if pops else token.target
    names = [unit.value for unit in _UNITS]
    side = "prev" if names.index(other) < names.index(tile.unit or "") else "next"
    return f"{'pop' if pops else 'push'}_{side}"


@dataclass
class _Order:
    """What units run of a nest, in order, as a program on regions."""

    source: Program
    nodes: Sequence[Node]
    unit: Callable[[Leaf], Unit]
    touches: Callable[[Leaf], Sequence[Touch]]
    parts: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.leaves = leaves(self.nodes)
        self.names: dict[str, str] = {}
        self.taken: set[str] = set()
        self.count(self.nodes, {})
        self.one = TileAxis(self.fresh("at"), ix.const(0), ix.const(1))
        end = Tile((self.one,), (Store("end", (), Load(_MEMORY, (), "int8")),), unit=_COMPUTE)
        body = (*self.block(self.nodes), end)
        buffers = [_buffer(self.names[region], parts) for region, parts in self.parts.items()]
        buffers += [_buffer(_MEMORY, 0), _buffer("end", 0)]
        program = self.source
        self.program = Program(
            program.name, program.sizes, program.assumptions, tuple(buffers), body
        )

    def count(self, nodes: Sequence[Node], loops: Mapping[str, int]) -> None:
        """Note how many virtual threads have a part of each region, 0 where it has one part."""
        for node in nodes:
            match node:
                case Repeat(name, lo, hi, body):
                    self.taken.add(name)
                    most = _greatest(hi) if lo == ix.const(0) else _MANY
                    self.count(body, {**loops, name: most})
                case Guard(_, body):
                    self.count(body, loops)
                case Leaf():
                    for touch in self.touches(node):
                        self.names.setdefault(touch.region, touch.region.replace(".", "_window"))
                        parts = 0 if touch.thread is None else loops[touch.thread]
                        self.parts[touch.region] = max(self.parts.get(touch.region, 0), parts)

    def fresh(self, name: str) -> str:
        """A name for an iterator that no loop of the nest has."""
        while name in self.taken:
            name += "_"
        return name

    def block(self, nodes: Sequence[Node]) -> tuple[Stmt, ...]:
        """Nodes as statements."""
        return tuple(map(self.statement, nodes))

    def statement(self, node: Node) -> Stmt:
        match node:
            case Repeat(name, lo, hi, body):
                return For(name, lo, hi, self.block(body))
            case Guard(condition, body):
                return If(condition, self.block(body))
            case Leaf():
                return self.tile(node)

    def tile(self, leaf: Leaf) -> Tile:
        """A leaf as a tile that reads and writes parts of regions."""
        unit = self.unit(leaf)
        axes = [self.one]
        stored: list[tuple[str, tuple[Expr, ...]]] = []
        value: Expr = Const(0, "int8")
        for touch in self.touches(leaf):
            name, parts = self.names[touch.region], self.parts[touch.region]
            index: tuple[Expr, ...] = ()
            if parts and touch.thread is not None:
                index = (Var(touch.thread),)
            elif parts:
                axis = self.fresh(f"all{len(axes)}")
                axes.append(TileAxis(axis, ix.const(0), ix.const(parts)))
                index = (Var(axis),)
            if touch.writes:
                stored.append((name, index))
            else:
                value = Binary("+", value, Load(name, index, "int8"))
        if unit is Unit.STORE:
            stored.append((_MEMORY, ()))
        body = tuple(Store(name, index, value) for name, index in stored)
        return Tile(tuple(axes), body, unit=unit.value)


_COMPUTE = Unit.COMPUTE.value


def _buffer(name: str, parts: int) -> Buffer:
    shape = (ix.const(parts),) if parts else ()
    return Buffer(name, "int8", shape, Kind.LOCAL)


def _greatest(end: Expr) -> int:
    """A literal that a bound does not exceed."""
    known = ix.literal(end)
    if known is not None:
        return known
    if isinstance(end, Binary) and end.op == "min":
        return min(_greatest(end.a), _greatest(end.b))
    return _MANY
