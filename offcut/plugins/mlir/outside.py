"""What stands outside of a loop nest, by name: memrefs as arrays, scalars, extents and values as sizes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from xdsl.dialects import arith, func, memref
from xdsl.dialects.builtin import MemRefType
from xdsl.ir import Block, Operation, SSAValue

from offcut.core import index as ix
from offcut.describe.computation import RESERVED
from offcut.errors import DescribeError
from offcut.ir import (
    Buffer,
    Const,
    Expr,
    For,
    If,
    Kind,
    Load,
    Program,
    Stmt,
    Store,
    Var,
    expressions,
    walk,
)
from offcut.plugins.mlir.nest import DTYPES, Extent, refused
from offcut.plugins.mlir.scalars import expression
from offcut.plugins.mlir.signs import is_natural
from offcut.polyhedral import accesses_outside

UNKNOWN = Var("?")
"""An extent that the type of a memref leaves open."""

_MOST = 2**9
"""Elements along an axis that nothing bounds, for each unit of all sizes together. Where an access reaches further, by a step or a
factor beyond it, the nest is refused as one that leaves the array.
"""

_PLAIN = {
    f"arith.{n}" for n in ("addi", "subi", "muli", "floordivsi", "ceildivsi", "divsi", "divui")
}


class Outside:
    """The names of what is outside of one nest.

    env      the expressions of scalars
    natural  coordinates that are never negative
    unasked  extents that nothing asks for, and no loop says
    """

    def __init__(self, root: Operation) -> None:
        self.root = root
        self.names = set(RESERVED)
        self.env: dict[SSAValue, Expr] = {}
        self.buffers: dict[SSAValue, Buffer] = {}
        self.scalars: dict[str, SSAValue] = {}
        self.sizes: dict[str, SSAValue | Extent] = {}
        self.natural: set[str] = set()
        self.unasked: set[Expr] = set()

    def called(self, wanted: str) -> str:
        """`wanted`, or like it, as a name that nothing else has."""
        name = re.sub(r"\W", "_", wanted)
        name = name if re.match(r"[A-Za-z]", name) else f"v{name}"
        found, number = name, 1
        while found in self.names:
            found, number = f"{name}_{number}", number + 1
        self.names.add(found)
        return found

    def name_of(self, value: SSAValue, otherwise: str) -> str:
        """A name for a value: its own, as far as it is free."""
        return self.called(value.name_hint or otherwise)

    def value(self, value: SSAValue) -> Expr:
        """The expression of a scalar."""
        if value not in self.env:
            self.env[value] = self.outer(value)
        return self.env[value]

    def is_natural(self, expr: Expr) -> bool:
        """Whether an index is seen to be never negative, by the loops around."""
        return is_natural(expr, self.natural | set(self.sizes))

    def outer(self, value: SSAValue) -> Expr:
        """The expression of a scalar that is made outside of the nest."""
        owner = value.owner
        if value.type not in DTYPES:
            raise refused(self.root, f"offcut has no scalars of type {value.type}")
        if isinstance(owner, arith.ConstantOp):
            return expression(owner, (), _never)
        dtype = DTYPES[value.type]
        if dtype != "index":
            name = self.name_of(value, "scalar")
            self.scalars[name] = value
            return Load(name, (), dtype)
        if isinstance(owner, memref.DimOp):
            axis = literal_of(owner.index)
            if axis is not None:
                return self.extent(owner.source, axis, value.name_hint)
        if isinstance(owner, Operation) and owner.name in _PLAIN:
            try:
                return expression(owner, [self.value(v) for v in owner.operands], self.is_natural)
            except DescribeError:
                pass
        name = self.name_of(value, "n")
        self.sizes[name] = value
        return Var(name)

    def extent(self, source: SSAValue, axis: int, hint: str | None = None) -> Expr:
        """The extent of a memref along an axis; what is unknown is a size."""
        static = source.type.get_shape()[axis]
        if static >= 0:
            return ix.const(static)
        buffer = self.buffers.get(source)
        if buffer is not None and buffer.kind is Kind.LOCAL:
            return buffer.shape[axis]
        for name, what in self.sizes.items():
            if what == Extent(source, axis):
                return Var(name)
        name = self.called(hint or f"{source.name_hint or 'array'}_{axis}")
        self.sizes[name] = Extent(source, axis)
        return Var(name)

    def array(self, value: SSAValue, op: Operation) -> Buffer:
        """The array that stands for a memref."""
        if value in self.buffers:
            return self.buffers[value]
        kind = value.type
        if not isinstance(kind, MemRefType) or DTYPES.get(kind.element_type, "index") == "index":
            raise refused(op, f"offcut has no arrays of type {kind}")
        shape = tuple(UNKNOWN if n < 0 else ix.const(n) for n in kind.get_shape())
        name = self.name_of(value, "array")
        made = Buffer(name, DTYPES[kind.element_type], shape, Kind.INPUT)
        self.buffers[value] = made
        return made

    def shaped(self, buffer: Buffer, body: tuple[Stmt, ...]) -> Buffer:
        """`buffer` with an extent for each that its type leaves open.

        Of one that nothing asks for, what the loops around its accesses run to; it is at least that.
        """
        source = next(value for value, one in self.buffers.items() if one.name == buffer.name)
        shape = list(buffer.shape)
        for axis, extent in enumerate(shape):
            if extent != UNKNOWN:
                continue
            asked = Extent(source, axis) in self.sizes.values()
            said = None if asked else _run_to(buffer.name, axis, body, frozenset(self.sizes))
            shape[axis] = self.extent(source, axis) if said is None else said
            if not asked and said is None:
                self.unasked.add(shape[axis])
        return replace(buffer, shape=tuple(shape))

    def check_apart(self, op: Operation, stored: set[str]) -> None:
        """Refuse arrays that may share memory, one of them written."""
        if not stored:
            return
        globals_: set[object] = set()
        for value, buffer in self.buffers.items():
            owner = value.owner
            own = isinstance(owner, memref.AllocOp | memref.AllocaOp) or (
                isinstance(owner, Block) and isinstance(owner.parent_op(), func.FuncOp)
            )
            if isinstance(owner, memref.GetGlobalOp):
                own = owner.name_ not in globals_
                globals_.add(owner.name_)
            if not own and len(self.buffers) > 1:
                raise refused(
                    op,
                    f"{buffer.name} may share memory with another memref of the loop",
                    "memrefs that are arguments, allocations or globals are memory of their own",
                )

    def opened(self, program: Program) -> Program:
        """`program` with no end for the axes that nothing asks for, where accesses may not seem to keep to it.

        That they do is known, and of the sizes alone sets may be unable to say it.
        """
        leaving = {one.buffer for one in accesses_outside(program) if one.sizes is not None}
        most = ix.mul(_MOST, ix.add(1, *(Var(size.name) for size in program.sizes)))
        found = [
            replace(b, shape=tuple(most if e in self.unasked else e for e in b.shape))
            if b.name in leaving
            else b
            for b in program.buffers
        ]
        return replace(program, buffers=tuple(found))


def names_in(expr: Expr) -> Iterator[str]:
    """The coordinates and sizes that an expression mentions."""
    return (node.name for node in walk(expr) if isinstance(node, Var))


def literal_of(value: SSAValue) -> int | None:
    """The integer that a value is, where a constant makes it."""
    owner = value.owner
    if not isinstance(owner, arith.ConstantOp):
        return None
    found = expression(owner, (), _never)
    return int(found.value) if isinstance(found, Const) else None


def _run_to(buffer: str, axis: int, body: tuple[Stmt, ...], sizes: frozenset[str]) -> Expr | None:
    """The one end of the loops over which accesses of `buffer` run along an axis; None where there are more."""
    ends: set[Expr | None] = set()

    def seek(stmts: tuple[Stmt, ...], loops: dict[str, Expr]) -> None:
        for stmt in stmts:
            accesses = [n for e in expressions(stmt) for n in walk(e) if isinstance(n, Load)]
            indices = [one.index for one in accesses if one.buffer == buffer]
            if isinstance(stmt, Store) and stmt.buffer == buffer:
                indices.append(stmt.index)
            for index in indices:
                part = index[axis]
                ends.add(loops.get(part.name) if isinstance(part, Var) else None)
            match stmt:
                case For(name, lo, hi, inner):
                    free = set(names_in(hi)) <= sizes and lo == ix.const(0)
                    plain = isinstance(hi, Var) or (isinstance(hi, Const) and hi.value >= 0)
                    seek(inner, {**loops, name: hi} if free and plain else loops)
                case If(_, then, other):
                    seek(then, loops)
                    seek(other, loops)

    seek(body, {})
    return next(iter(ends)) if len(ends) == 1 else None


def _never(expr: Expr) -> bool:
    return False
