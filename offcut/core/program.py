"""The loop program: what a partitioned computation is made of, and what runs.

Nodes are values: frozen, hashable, equal when their fields are equal. A pass builds new nodes and
never edits one in place. `printer.py` says how a program looks, `parser.py` reads that back,
`interpreter.py` runs it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeAlias, assert_never

from offcut.core.expr import Expr
from offcut.core.layout import Layout
from offcut.core.memo import CachedHash, node
from offcut.errors import CallError, DescribeError


class Role(Enum):
    """Which part of a separated loop this is."""

    WHOLE = "whole"  # not separated
    BODY = "body"  # full tiles only: no guard
    TAIL = "tail"  # what the full tiles leave over


THREAD, LANE, UNROLL = "thread", "lane", "unroll"
UNITS = {
    THREAD: "iterations run on several threads",
    LANE: "iterations are lanes of vectors; a pure reduction has partial sums",
    UNROLL: "iterations are written out one after the other",
    "cluster": "a group of blocks that share memory",
    "block": "a block of threads of a grid",
    "warpgroup": "four warps that issue together",
    "warp": "32 lanes that issue together",
    "load": "the unit that copies from main memory",
    "compute": "the unit that computes",
    "store": "the unit that copies to main memory",
}
"""The units that a text may name alone, as ``@thread``; another machine's is ``@bind(name)``.

A unit says what runs the iterations of a loop, or a tile; it never changes what they compute.
"""
WARP_LANES = 32
LANES_OF_UNIT = {"warpgroup": 4 * WARP_LANES, "warp": WARP_LANES, THREAD: 1}
"""Lanes of each unit of a block, side by side."""
GROUPED_UNITS = tuple(unit for unit, lanes in LANES_OF_UNIT.items() if lanes > WARP_LANES)
"""Units of several warps: they share all registers, and their products read both operands from shared memory, in the background."""
COUNTED_UNITS = ("warpgroup", "warp")
"""Units that each block has a constant number of, whatever it computes: the last ones may have no tile. Each has a copy of the
windows inside of its loops."""


class Form(Enum):
    """How the instances of a tile are executed."""

    FULL = "full"  # all of them, each is in the domain
    GUARD = "guard"  # loops of the full extents, the condition tested in each instance
    MASK = "mask"  # those where the condition holds; the other lanes read nothing, write nothing
    PAD = "pad"  # all of them, on full-size copies of the operands; only owned results are stored
    SHIFT = "shift"  # all of them, some a second time, writing the same values again


@node
@dataclass(frozen=True, slots=True)
class For(CachedHash):
    """``for iter in lo:hi``, unit step, half open, empty when ``hi <= lo``, in ascending order.

    unit   what runs its iterations side by side: one of `UNITS`, or a name of the machine's, such as
           ``blockIdx.x``; None: one after the other
    factor iterations, at least 1, of each tile inside that ``@unroll(4)`` runs together: unroll-and-jam; None: of no such loop
    """

    iter: str
    lo: Expr
    hi: Expr
    body: tuple[Stmt, ...]
    role: Role = Role.WHOLE
    unit: str | None = None
    factor: int | None = None


@node
@dataclass(frozen=True, slots=True)
class If(CachedHash):
    """`then` where the condition holds, else `other`."""

    condition: Expr
    then: tuple[Stmt, ...]
    other: tuple[Stmt, ...] = ()


@node
@dataclass(frozen=True, slots=True)
class Let(CachedHash):
    """``let name in lo:hi = value`` around `body`.

    lo, hi   integer literals: the promised range, half open. The value may be any integer
             expression, also one that is not quasi-affine: sets treat the name as a finite
             union over its literals.
    """

    name: str
    lo: int
    hi: int
    value: Expr
    body: tuple[Stmt, ...]


@node
@dataclass(frozen=True, slots=True)
class TileAxis(CachedHash):
    """``iter in start +: extent``: coordinates ``start <= iter < start + extent``."""

    iter: str
    start: Expr
    extent: Expr


@node
@dataclass(frozen=True, slots=True)
class Cover(CachedHash):
    """A microkernel that runs a tile: which iterator is which of its axes, which array which operand.

    axes      (axis of the microkernel, iterator) each; an axis that is left out has one value
    operands  (operand or result of the microkernel, buffer) each

    Where neither is said, the judge of covers finds both.
    """

    microkernel: str
    axes: tuple[tuple[str, str], ...] = ()
    operands: tuple[tuple[str, str], ...] = ()


@node
@dataclass(frozen=True, slots=True)
class Tile(CachedHash):
    """Parallel loops over a rectangle of instances, each running `body`, covered by a microkernel.

    where         an instance is executed only where this holds (None: everywhere)
    form          how the ones where it does not hold are treated
    cover         the microkernel that runs it, None where plain loops do
    unit          what runs it, such as ``load``; None: what runs the loops around
    asynchronous  whether it may end later than it is issued: until a wait says that it has
    multicast     the loop around, of blocks of a cluster, for all of whose iterations it is run once:
                  each of them copies the same elements to the same place of a window of its own
    """

    axes: tuple[TileAxis, ...]
    body: tuple[Stmt, ...]
    where: Expr | None = None
    form: Form = Form.FULL
    role: Role = Role.WHOLE
    cover: Cover | None = None
    unit: str | None = None
    asynchronous: bool = False
    multicast: str | None = None

    @property
    def microkernel(self) -> str | None:
        """Return the name of the microkernel that covers it; None where plain loops do."""
        return None if self.cover is None else self.cover.microkernel


@node
@dataclass(frozen=True, slots=True)
class Alloc(CachedHash):
    """``alloc buffer[start +: extent, …]`` around `body`, where the buffer holds that window only.

    axes     (start, extent) per axis of the buffer. Indices stay those of the whole buffer; what the
             window held before the block, and what it holds after, is undefined
    memory   the memory of the machine that holds the window; None: the buffer's `scope`
    depth    how many windows there are, which the iterations of the loop around take in turn
    inplace  the buffer in whose window it lies, element on element, which is read last as it is written
    layout   where elements lie in the window; None: as the buffer's says
    """

    buffer: str
    axes: tuple[tuple[Expr, Expr], ...]
    body: tuple[Stmt, ...]
    memory: str | None = None
    depth: int = 1
    inplace: str | None = None
    layout: Layout | None = None


@node
@dataclass(frozen=True, slots=True)
class Store(CachedHash):
    """``buffer[index] = value``, or with `reduce`: ``+=`` (sum), ``max=``, ``min=``."""

    buffer: str
    index: tuple[Expr, ...]
    value: Expr
    reduce: str | None = None


@node
@dataclass(frozen=True, slots=True)
class Option(CachedHash):
    """One way to run the same instances, and its predicted time in seconds (a float64 expression)."""

    label: str
    cost: Expr
    body: tuple[Stmt, ...]


@node
@dataclass(frozen=True, slots=True)
class Choose(CachedHash):
    """Exactly one option runs: the one whose cost is least for the sizes of the call, first if equal."""

    options: tuple[Option, ...]


class Action(Enum):
    """What a statement of synchronization does."""

    BARRIER = "barrier"  # all instances of a unit come here before one of them goes on
    ARRIVE = "arrive"  # one token more
    WAIT = "wait"  # until there is a token, and one less
    WAIT_GROUP = "wait group"  # until no more than so many asynchronous groups are under way
    FENCE = "fence"  # what was written is seen by a kind of reader


@node
@dataclass(frozen=True, slots=True)
class Sync(CachedHash):
    """``barrier thread``, ``arrive full where …``, ``wait full``, ``wait group 1``, ``fence async``.

    It orders what units do side by side, and changes nothing that a program computes.

    name     the unit of a barrier, the token of an arrival or a wait, the kind of a fence; else ""
    where    it is there only where this holds (None: always)
    pending  of `WAIT_GROUP`: how many groups may still be under way
    unit     who does it, where the statements around do not say so

    Raises DescribeError for an action that is none, and for a number of groups below 0.
    """

    action: Action
    name: str = ""
    where: Expr | None = None
    pending: int = 0
    unit: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.action, Action):
            because = (
                f"an action is one of ir.Action, and it is of type {type(self.action).__name__}"
            )
            help = tuple(f"ir.Action.{one.name}" for one in Action)
            raise DescribeError("Sync", f"cannot take {self.action!r}", because=because, help=help)
        if not isinstance(self.pending, int) or self.pending < 0:
            what = f"cannot wait for {self.pending!r} groups"
            because = "so many may still be under way: a count, from 0 on"
            raise DescribeError("Sync", what, because=because, help=("pending=0",))


@node
@dataclass(frozen=True, slots=True)
class Token(CachedHash):
    """``token name: source -> target count 1 room 4``: what one unit gives and another takes.

    count  arrivals that make a token, at least 1
    room   tokens that may be under way, at least 1
    """

    name: str
    source: str
    target: str
    count: int = 1
    room: int = 1


Stmt: TypeAlias = For | If | Let | Tile | Alloc | Store | Choose | Sync


class Kind(Enum):
    """Who owns a buffer."""

    INPUT = "input"  # the caller's, read only
    CONSTANT = "constant"  # known when compiled, read only, packed as its layout says
    OUTPUT = "output"  # the caller's, written
    INOUT = "inout"  # the caller's, read and updated; the result is an array of its own
    LOCAL = "local"  # scratch of one call
    PRIVATE = "private"  # each tile has its own: never seen by another instance


STATUS = "status"
"""The scope of a buffer that says whether some statement would have left an array."""


@node
@dataclass(frozen=True, slots=True)
class Buffer(CachedHash):
    """``kind name: dtype[shape]``; `layout` None means strided, else offcut lays it out so.

    scope   the memory of the hardware that holds it, such as ``acc_buffer``; None: main memory
    finite  of a constant: none of its elements is infinite or NaN, so that zero times it is zero
    bits    of a constant of integers: of its elements, a sign among them where its type has one; None: those of its type
    """

    name: str
    dtype: str
    shape: tuple[Expr, ...]
    kind: Kind
    layout: Layout | None = None
    scope: str | None = None
    finite: bool = False
    bits: int | None = None

    @property
    def narrow_refusal(self) -> str:
        """Return why elements cannot share bytes as the layout says; "" where they can, or need not."""
        if self.layout is None or self.layout.bits is None:
            return ""
        if self.kind is not Kind.CONSTANT:
            return f"code writes whole bytes, and {self.kind.value} arrays are written"
        if self.bits is None or self.bits > self.layout.bits:
            return f"not all of its elements are known to have {self.layout.bits} bits"
        return ""


MAX_SIZE = 2**31 - 1
"""The greatest value of a size, and the greatest extent of an axis."""


@node
@dataclass(frozen=True, slots=True)
class Size(CachedHash):
    """``size name in min:max+1``, a multiple of `multiple_of`."""

    name: str
    min: int = 0
    max: int = MAX_SIZE
    multiple_of: int = 1

    @property
    def last(self) -> int:
        """Return the greatest value."""
        return self.max // self.multiple_of * self.multiple_of

    def at_or_above(self, value: int) -> int:
        """Return the least value from `value` on; the greatest where there is none."""
        return min(-(-max(value, self.min) // self.multiple_of) * self.multiple_of, self.last)


@node
@dataclass(frozen=True, slots=True)
class Program(CachedHash):
    """Sizes, facts between them, buffers, and the statements in order.

    assumptions   conditions over sizes that every call satisfies
    tokens        what its statements of synchronization arrive at and wait for
    """

    name: str
    sizes: tuple[Size, ...]
    assumptions: tuple[Expr, ...]
    buffers: tuple[Buffer, ...]
    body: tuple[Stmt, ...]
    tokens: tuple[Token, ...] = ()

    def buffer(self, name: str) -> Buffer:
        """Return the buffer of that name."""
        return next(buffer for buffer in self.buffers if buffer.name == name)

    @property
    def read_only_arrays(self) -> frozenset[str]:
        """Return the names of the arrays that a call gives and the program never writes: inputs and constants."""
        given = (Kind.INPUT, Kind.CONSTANT)
        return frozenset(buffer.name for buffer in self.buffers if buffer.kind in given)

    @property
    def results(self) -> tuple[Buffer, ...]:
        """What a call gives back, in order: outputs, and what it updated."""
        return tuple(b for b in self.buffers if b.kind in (Kind.OUTPUT, Kind.INOUT))

    def run(self, inputs: Mapping[str, Any], **sizes: int) -> Any:
        """Return the result of the reference interpreter on numpy arrays; a tuple where there are several.

        inputs   an array for each input, constant and inout buffer; none of them is changed
        sizes    those that no shape determines

        Raises CallError where an input or a size does not fit, and where the program leaves a buffer
        or breaks a promise.
        """
        from offcut.core.interpret.interpreter import run
        from offcut.core.interpret.values import InterpreterFault

        if not isinstance(inputs, Mapping):
            raise CallError(
                "run",
                f"cannot take inputs= {type(inputs).__name__}",
                because="inputs are arrays by the names of their buffers",
                help=('run({"A": a}, n=12)',),
            )
        try:
            memory = run(self, inputs, sizes)
        except InterpreterFault as stopped:
            what = f"cannot run {self.name}: {stopped.what}"
            raise CallError("run", what, at=stopped.at, because=stopped.because) from None
        results = tuple(memory[buffer.name] for buffer in self.results)
        return results[0] if len(results) == 1 else results

    def __str__(self) -> str:
        from offcut.core.text.printer import format_program

        return format_program(self)

    @property
    def digest(self) -> str:
        """64 bits of SHA-256 of its text, in hexadecimal: equal programs have equal ones."""
        return digest_of(str(self))

    def __repr__(self) -> str:
        """In a line, and no two programs alike: what is kept on disk is kept by it."""
        sizes, lines = ", ".join(size.name for size in self.sizes), sum(1 for _ in walk(self.body))
        return f"<program {self.name}({sizes}): {lines} statements, {self.digest}>"

    def _repr_html_(self) -> str:
        import html  # in a notebook

        return f"<pre>{html.escape(str(self))}</pre>"


Tree: TypeAlias = Program | Stmt | tuple[Stmt, ...]


def blocks(stmt: Stmt) -> tuple[tuple[Stmt, ...], ...]:
    """Return the statement lists inside `stmt`, in printing order."""
    match stmt:
        case For() | Let() | Tile() | Alloc():
            return (stmt.body,)
        case If(_, then, other):
            return (then, other)
        case Choose(options):
            return tuple(option.body for option in options)
        case Store() | Sync():
            return ()
        case _:
            assert_never(stmt)


def statements_of(tree: Tree) -> tuple[Stmt, ...]:
    """Return the outermost statements of a program, or of one statement or several themselves."""
    match tree:
        case Program():
            return tree.body
        case tuple():
            return tree
        case _:
            return (tree,)


def walk(tree: Tree) -> Iterator[Stmt]:
    """Yield every statement of `tree`, parents first."""
    pending = [*reversed(statements_of(tree))]
    while pending:
        stmt = pending.pop()
        yield stmt
        for block in reversed(blocks(stmt)):
            pending += reversed(block)


def digest_of(text: str) -> str:
    """What `Program.digest` is, of the program's text."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]
