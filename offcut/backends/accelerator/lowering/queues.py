"""The conditions under which leaves push and pop tokens.

The order of a nest is a program of its own, of tiles that read and write regions, each region as one word for each
of its slots; `polyhedral.sync` puts arrivals and waits into it::

    for i in 0:n
      wait compute_to_load where i >= 2
      tile at in 0 +: 1 @by(load)
        A_in[i % 2] = 0
      arrive load_to_compute
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from offcut.backends.accelerator.isa import Unit
from offcut.backends.accelerator.lowering.issue_tree import Guard, Leaf, Node, Repeat, leaves
from offcut.backends.accelerator.spec import AcceleratorSpec
from offcut.core import index as ix
from offcut.core.expr import Binary, Const, Expr, Load
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
    Token,
    walk,
)
from offcut.describe.computation import Names
from offcut.errors import PartitionError, TargetError
from offcut.polyhedral import sync

_UNITS = tuple(Unit)
_MEMORY = "main_memory"
"""The region that stores write, and that the end of a stream reads."""

NEVER = Const(0, "bool")
ALWAYS = Const(1, "bool")


class TokensError(TargetError):
    """An error for windows in turn whose tokens have no room."""


@dataclass(frozen=True, slots=True)
class Touch:
    """A region that a leaf reads or writes.

    slots  the number of windows that iterations take in turn
    slot   the one that is accessed
    """

    region: str
    slots: int
    slot: Expr
    writes: bool


@dataclass(frozen=True, slots=True)
class Conditions:
    """The conditions, on loops and sizes, under which an instance of a leaf pops and pushes, in the order of an instruction's fields."""

    pop_prev: Expr = NEVER
    pop_next: Expr = NEVER
    push_prev: Expr = NEVER
    push_next: Expr = NEVER

    @property
    def fields(self) -> tuple[Expr, Expr, Expr, Expr]:
        """All four."""
        return self.pop_prev, self.pop_next, self.push_prev, self.push_next


SILENT = Conditions()


def agents(spec: AcceleratorSpec) -> sync.Agents:
    """Return the units of a machine of queues: each in its own order, tokens between neighbours."""
    names = [unit.value for unit in _UNITS]
    ends = [*pairwise(names), *pairwise(names[::-1])]
    units = tuple(sync.Unit(name) for name in names)
    return sync.Agents(units, Unit.COMPUTE.value, frozenset(ends), spec.token_depth, blocks=True)


def token_conditions(
    program: Program,
    nodes: Sequence[Node],
    unit: Callable[[Leaf], Unit],
    touches: Callable[[Leaf], Sequence[Touch]],
    spec: AcceleratorSpec,
) -> tuple[dict[int, Conditions], Program]:
    """Return the tokens of each leaf by its number, the end of the stream as one more leaf; and the program with them.

    touches  the regions on the chip that a leaf accesses

    Raises TokensError if a stream could come to a standstill, or nothing shows that it does not.
    """
    order = _Order(program, nodes, unit, touches)
    try:
        synchronized = sync.synchronized(order.program, agents(spec))
    except PartitionError as refused:
        room = f": token_depth is {spec.token_depth}"
        stands = isinstance(refused, sync.StandstillError)
        raise TokensError(
            "compile",
            f"cannot run {program.name} on {spec.name} without a standstill",
            because=f"{refused.because}{room if stands else ''}",
            help=("windows of less depth",),
        ) from None
    tokens = {token.name: token for token in synchronized.tokens}
    numbers = [*(leaf.number for leaf in order.leaves), len(order.leaves)]
    result: dict[int, Conditions] = {}
    waits: list[Sync] = []
    at = -1
    for stmt in walk(synchronized.body):  # waits stand before their tile, arrivals behind it
        if isinstance(stmt, Tile):
            at += 1
            fields = {_field(tokens[wait.name], wait): wait.where or ALWAYS for wait in waits}
            result[numbers[at]], waits = replace(SILENT, **fields), []
        elif isinstance(stmt, Sync) and stmt.action is Action.WAIT:
            waits.append(stmt)
        elif isinstance(stmt, Sync):
            fields = {_field(tokens[stmt.name], stmt): stmt.where or ALWAYS}
            result[numbers[at]] = replace(result[numbers[at]], **fields)
    return result, synchronized


def _field(token: Token, sync: Sync) -> str:
    """Return the field of an instruction that a wait or an arrival sets."""
    source, target = (_UNITS.index(Unit(name)) for name in (token.source, token.target))
    if sync.action is Action.WAIT:
        return "pop_prev" if source < target else "pop_next"
    return "push_prev" if target < source else "push_next"


@dataclass
class _Order:
    """The tiles that units run of a nest, in order, as a program on regions."""

    source: Program
    nodes: Sequence[Node]
    unit: Callable[[Leaf], Unit]
    touches: Callable[[Leaf], Sequence[Touch]]

    def __post_init__(self) -> None:
        self.leaves = leaves(self.nodes)
        touches = [touch for leaf in self.leaves for touch in self.touches(leaf)]
        self.names = {one.region: one.region.replace(".", "_window") for one in touches}
        self.slots: dict[str, int] = {}
        for touch in touches:
            self.slots[touch.region] = max(self.slots.get(touch.region, 1), touch.slots)
        iterators = {name for leaf in self.leaves for name in leaf.around}
        self.one = TileAxis(Names(iterators).fresh("at"), ix.const(0), ix.const(1))
        end = Tile((self.one,), (Store("end", (), Load(_MEMORY, (), "int8")),), unit=_COMPUTE)
        body = (*self.block(self.nodes), end)
        buffers = [_buffer(self.names[region], slots) for region, slots in self.slots.items()]
        buffers += [_buffer(_MEMORY, 1), _buffer("end", 1)]
        source = self.source
        self.program = Program(source.name, source.sizes, source.assumptions, tuple(buffers), body)

    def block(self, nodes: Sequence[Node]) -> tuple[Stmt, ...]:
        """Return nodes as statements."""
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
        """Return a leaf as a tile that reads and writes slots of regions."""
        unit = self.unit(leaf)
        stored: list[tuple[str, tuple[Expr, ...]]] = []
        value: Expr = Const(0, "int8")
        for touch in self.touches(leaf):
            name = self.names[touch.region]
            index = (touch.slot,) if self.slots[touch.region] > 1 else ()
            if touch.writes:
                stored.append((name, index))
            else:
                value = Binary("+", value, Load(name, index, "int8"))
        if unit is Unit.STORE:
            stored.append((_MEMORY, ()))
        body = tuple(Store(name, index, value) for name, index in stored)
        return Tile((self.one,), body, unit=unit.value)


_COMPUTE = Unit.COMPUTE.value


def _buffer(name: str, slots: int) -> Buffer:
    shape = (ix.const(slots),) if slots > 1 else ()
    return Buffer(name, "int8", shape, Kind.LOCAL)
