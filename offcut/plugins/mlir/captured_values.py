"""Values from outside of a loop nest, by name: memrefs as arrays, scalars, extents and index values as sizes."""

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
from offcut.plugins.mlir.nest import DTYPES, Extent, import_error, is_natural
from offcut.plugins.mlir.scalars import expression
from offcut.polyhedral import accesses_outside

UNKNOWN = Var("?")
"""An extent that the type of a memref leaves open."""

_MAX_EXTENT_PER_UNIT = 2**9
"""Elements along an axis that nothing bounds, for each unit of all sizes together. Where an access reaches further, by a step or a
factor beyond it, the nest is refused as one that leaves the array.
"""

_PLAIN = {
    f"arith.{n}" for n in ("addi", "subi", "muli", "floordivsi", "ceildivsi", "divsi", "divui")
}


class CapturedValues:
    """The names of all values that one nest uses from outside.

    env             the expressions of scalars
    natural         coordinates that are never negative
    unread_extents  extents that nothing asks for, and no loop says
    """

    def __init__(self, root: Operation) -> None:
        self.root = root
        self.names = set(RESERVED)
        self.env: dict[SSAValue, Expr] = {}
        self.buffers: dict[SSAValue, Buffer] = {}
        self.scalars: dict[str, SSAValue] = {}
        self.sizes: dict[str, SSAValue | Extent] = {}
        self.natural: set[str] = set()
        self.unread_extents: set[Expr] = set()

    def new_name(self, hint: str) -> str:
        """Return a new name, equal or similar to `hint`."""
        name = re.sub(r"\W", "_", hint)
        name = name if re.match(r"[A-Za-z]", name) else f"v{name}"
        unique, number = name, 1
        while unique in self.names:
            unique, number = f"{name}_{number}", number + 1
        self.names.add(unique)
        return unique

    def name_of(self, value: SSAValue, otherwise: str) -> str:
        """Return a new name for a value: its own hint if it has one."""
        return self.new_name(value.name_hint or otherwise)

    def value(self, value: SSAValue) -> Expr:
        """Return the expression of a scalar."""
        if value not in self.env:
            self.env[value] = self.expression_of(value)
        return self.env[value]

    def is_natural(self, expr: Expr) -> bool:
        """Return whether the loops around show that an index is never negative."""
        return is_natural(expr, self.natural | set(self.sizes))

    def expression_of(self, value: SSAValue) -> Expr:
        """Return the expression of a scalar that is defined outside of the nest."""
        owner = value.owner
        if value.type not in DTYPES:
            raise import_error(self.root, f"offcut has no scalars of type {value.type}")
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
        """Return the extent of a memref along an axis; an unknown one becomes a size."""
        static = source.type.get_shape()[axis]
        if static >= 0:
            return ix.const(static)
        buffer = self.buffers.get(source)
        if buffer is not None and buffer.kind is Kind.LOCAL:
            return buffer.shape[axis]
        for name, size in self.sizes.items():
            if size == Extent(source, axis):
                return Var(name)
        name = self.new_name(hint or f"{source.name_hint or 'array'}_{axis}")
        self.sizes[name] = Extent(source, axis)
        return Var(name)

    def array(self, value: SSAValue, op: Operation) -> Buffer:
        """Return the array of a memref."""
        if value in self.buffers:
            return self.buffers[value]
        kind = value.type
        if not isinstance(kind, MemRefType) or DTYPES.get(kind.element_type, "index") == "index":
            raise import_error(op, f"offcut has no arrays of type {kind}")
        shape = tuple(UNKNOWN if n < 0 else ix.const(n) for n in kind.get_shape())
        name = self.name_of(value, "array")
        buffer = Buffer(name, DTYPES[kind.element_type], shape, Kind.INPUT)
        self.buffers[value] = buffer
        return buffer

    def with_extents(self, buffer: Buffer, body: tuple[Stmt, ...]) -> Buffer:
        """Return `buffer` with an extent for each axis that its type leaves open.

        Of one that nothing asks for, what the loops around its accesses run to; it is at least that.
        """
        source = next(value for value, one in self.buffers.items() if one.name == buffer.name)
        shape = list(buffer.shape)
        for axis, extent in enumerate(shape):
            if extent != UNKNOWN:
                continue
            is_read = Extent(source, axis) in self.sizes.values()
            loop_end = (
                None if is_read else _loop_end(buffer.name, axis, body, frozenset(self.sizes))
            )
            shape[axis] = self.extent(source, axis) if loop_end is None else loop_end
            if not is_read and loop_end is None:
                self.unread_extents.add(shape[axis])
        return replace(buffer, shape=tuple(shape))

    def check_apart(self, op: Operation, written: set[str]) -> None:
        """Refuse arrays that may share memory, one of them written."""
        if not written:
            return
        globals_: set[object] = set()
        for value, buffer in self.buffers.items():
            owner = value.owner
            is_separate = isinstance(owner, memref.AllocOp | memref.AllocaOp) or (
                isinstance(owner, Block) and isinstance(owner.parent_op(), func.FuncOp)
            )
            if isinstance(owner, memref.GetGlobalOp):
                is_separate = owner.name_ not in globals_
                globals_.add(owner.name_)
            if not is_separate and len(self.buffers) > 1:
                raise import_error(
                    op,
                    f"{buffer.name} may share memory with another memref of the loop",
                    "memrefs that are arguments, allocations or globals are memory of their own",
                )

    def open_unread_axes(self, program: Program) -> Program:
        """Return `program` without an end for axes whose extent it never reads, if accesses may seem to exceed them.

        That they do is known, and of the sizes alone sets may be unable to say it.
        """
        leaving = {one.buffer for one in accesses_outside(program) if one.sizes is not None}
        bound = ix.mul(_MAX_EXTENT_PER_UNIT, ix.add(1, *(Var(size.name) for size in program.sizes)))
        buffers = [
            replace(b, shape=tuple(bound if e in self.unread_extents else e for e in b.shape))
            if b.name in leaving
            else b
            for b in program.buffers
        ]
        return replace(program, buffers=tuple(buffers))


def names_in(expr: Expr) -> Iterator[str]:
    """Return the names of the coordinates and sizes in an expression."""
    return (node.name for node in walk(expr) if isinstance(node, Var))


def literal_of(value: SSAValue) -> int | None:
    """Return the integer of a constant; None for any other value."""
    owner = value.owner
    if not isinstance(owner, arith.ConstantOp):
        return None
    constant = expression(owner, (), _never)
    return int(constant.value) if isinstance(constant, Const) else None


def _loop_end(buffer: str, axis: int, body: tuple[Stmt, ...], sizes: frozenset[str]) -> Expr | None:
    """Return the end of the loops over which accesses of `buffer` run along an axis; None if there are several."""
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
