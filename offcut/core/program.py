"""The loop program: what a partitioned computation is made of, and what runs.

Nodes are values: frozen, hashable, equal when their fields are equal. A pass builds new nodes and
never edits one in place. `printer.py` says how a program looks, `parser.py` reads that back,
`interpreter.py` runs it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias, assert_never

from offcut.core.expr import Expr


class Role(Enum):
    """Which part of a separated loop this is."""

    WHOLE = "whole"  # not separated
    BODY = "body"  # full tiles only: no guard
    TAIL = "tail"  # what the full tiles leave over


class Form(Enum):
    """How the instances of a tile are executed."""

    FULL = "full"  # all of them, each is in the domain
    MASK = "mask"  # those where the condition holds; the other lanes read nothing, write nothing
    PAD = "pad"  # all of them, on full-size copies of the operands; only owned results are stored
    SHIFT = "shift"  # all of them, some a second time, writing the same values again


@dataclass(frozen=True, slots=True)
class For:
    """``for iter in lo:hi``, unit step, half open, empty when ``hi <= lo``, in ascending order."""

    iter: str
    lo: Expr
    hi: Expr
    body: tuple[Stmt, ...]
    role: Role = Role.WHOLE


@dataclass(frozen=True, slots=True)
class If:
    """`then` where the condition holds, else `other`."""

    condition: Expr
    then: tuple[Stmt, ...]
    other: tuple[Stmt, ...] = ()


@dataclass(frozen=True, slots=True)
class Let:
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


@dataclass(frozen=True, slots=True)
class TileAxis:
    """``iter in start +: extent``: coordinates ``start <= iter < start + extent``."""

    iter: str
    start: Expr
    extent: Expr


@dataclass(frozen=True, slots=True)
class Tile:
    """Parallel loops over a rectangle of instances, each running `body`, covered by a microkernel.

    where        an instance is executed only where this holds (None: everywhere)
    form         how the ones where it does not hold are treated
    microkernel  the name of the one that covers it, None where plain loops do
    """

    axes: tuple[TileAxis, ...]
    body: tuple[Stmt, ...]
    where: Expr | None = None
    form: Form = Form.FULL
    role: Role = Role.WHOLE
    microkernel: str | None = None


@dataclass(frozen=True, slots=True)
class Store:
    """``buffer[index] = value``, or with `reduce`: ``+=`` (sum), ``max=``, ``min=``."""

    buffer: str
    index: tuple[Expr, ...]
    value: Expr
    reduce: str | None = None


@dataclass(frozen=True, slots=True)
class Option:
    """One way to run the same instances, and its predicted time in seconds (a float64 expression)."""

    label: str
    cost: Expr
    body: tuple[Stmt, ...]


@dataclass(frozen=True, slots=True)
class Choose:
    """Exactly one option runs: the one whose cost is least for the sizes of the call, first if equal."""

    options: tuple[Option, ...]


Stmt: TypeAlias = For | If | Let | Tile | Store | Choose


class Kind(Enum):
    """Who owns a buffer."""

    INPUT = "input"  # the caller's, read only
    CONSTANT = "constant"  # known when compiled, read only, packed as its layout says
    OUTPUT = "output"  # the caller's, written
    LOCAL = "local"  # scratch of one call
    PRIVATE = "private"  # each tile has its own: never seen by another instance


@dataclass(frozen=True, slots=True)
class Panels:
    """Packed layout of a matrix axis pair inside a buffer: panels of `width` columns.

    Element ``[…, k, …, n, …]`` lies in panel ``n // width`` at ``(k, n % width)``; columns past the
    extent are zero. The axes other than `rows` (k) and `columns` (n) are outermost, in their order.
    """

    rows: int
    columns: int
    width: int


@dataclass(frozen=True, slots=True)
class Buffer:
    """``kind name: dtype[shape]``; `layout` None means strided."""

    name: str
    dtype: str
    shape: tuple[Expr, ...]
    kind: Kind
    layout: Panels | None = None


@dataclass(frozen=True, slots=True)
class Size:
    """``size name in min:max+1``, a multiple of `multiple_of`."""

    name: str
    min: int = 0
    max: int = 2**31 - 1
    multiple_of: int = 1


@dataclass(frozen=True, slots=True)
class Program:
    """Sizes, facts between them, buffers, and the statements in order.

    assumptions   conditions over sizes that every call satisfies
    """

    name: str
    sizes: tuple[Size, ...]
    assumptions: tuple[Expr, ...]
    buffers: tuple[Buffer, ...]
    body: tuple[Stmt, ...]

    def buffer(self, name: str) -> Buffer:
        """The buffer of that name."""
        return next(buffer for buffer in self.buffers if buffer.name == name)

    def __str__(self) -> str:
        from offcut.core.printer import format_program

        return format_program(self)


def blocks(stmt: Stmt) -> tuple[tuple[Stmt, ...], ...]:
    """The statement lists inside `stmt`, in printing order."""
    match stmt:
        case For() | Let() | Tile():
            return (stmt.body,)
        case If(_, then, other):
            return (then, other)
        case Choose(options):
            return tuple(option.body for option in options)
        case Store():
            return ()
        case _:
            assert_never(stmt)


def walk(body: tuple[Stmt, ...]) -> Iterator[Stmt]:
    """Every statement of `body`, parents first."""
    for stmt in body:
        yield stmt
        for block in blocks(stmt):
            yield from walk(block)
