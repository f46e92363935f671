"""Export loops whose iterations are lanes as operations on vectors, one statement at a time.

Elements that lie beside each other are a vector; what all lanes have alike is broadcast; what lanes add to one element is
reduced, in their order. A statement that is neither is written out, once for each lane.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from xdsl.dialects import memref, scf, vector
from xdsl.dialects.builtin import IndexType, VectorType
from xdsl.ir import Block, Operation, Region, SSAValue

from offcut.core import index as ix
from offcut.core.dtypes import FLOATS
from offcut.core.expr import COMBINED, substitute, variables
from offcut.ir import Binary, Expr, For, If, Load, Stmt, Store, Unary, Var, dtype_of
from offcut.plugins.mlir.nest import FLOAT, INTEGER, OPERATIONS, TYPES
from offcut.plugins.mlir.scalars import Scalars

if TYPE_CHECKING:
    from offcut.plugins.mlir.export_scf import _Scope, _Writer

_KINDS = {
    "sum": ("add", "add"),
    "max": ("maximumf", "maxsi"),
    "min": ("minimumf", "minsi"),
}
"""Kinds of ``vector.reduction``, of floats and of integers."""
_SHIFTS = ("shl", "shr")


class _NoVector(Exception):
    """Raised for a statement that has no vector operation."""


def export_lanes(writer: _Writer, loop: For, scope: _Scope, operations: list[Operation]) -> None:
    """Write a loop of a constant extent as vectors; `writer.lanes` has the loops of that name none of which was one yet."""
    lanes = _Lanes(writer, loop)
    lanes.block(loop.body, scope, operations)
    writer.lanes[loop.iter] = None if lanes.vectors else writer.lanes.get(loop.iter, loop)


def check_lanes(writer: _Writer) -> None:
    """Refuse a loop over lanes of which no piece has a vector."""
    for loop in filter(None, writer.lanes.values()):
        assert writer.host_program is not None
        raise writer.host_program.refuse(
            loop,
            "vectors of MLIR load and store elements that lie beside each other, and no statement has such",
            f"order …, so that {loop.iter} is the last index of what is stored",
        )


class _Lanes:
    def __init__(self, writer: _Writer, loop: For) -> None:
        self.writer, self.loop = writer, loop
        self.count = ix.literal_value(ix.sub(loop.hi, loop.lo)) or 0
        self.vectors = 0 if self.count else 1

    def moves(self, expr: Expr) -> bool:
        return self.loop.iter in variables(expr)

    def first(self, expr: Expr) -> Expr:
        """Return what an expression is of the first lane."""
        return ix.simplify(substitute(expr, {self.loop.iter: self.loop.lo}))

    def block(self, body: tuple[Stmt, ...], scope: _Scope, operations: list[Operation]) -> None:
        for stmt in body:
            match stmt:
                case For(_, lo, hi, unit=None) if not self.moves(lo) and not self.moves(hi):
                    self.loop_of(stmt, scope, operations)
                case If(condition) if not self.moves(condition):
                    self.condition(stmt, scope, operations)
                case Store():
                    try:
                        new_operations: list[Operation] = []
                        self.store(stmt, scope.inner(), new_operations)
                    except _NoVector:
                        self.unroll(stmt, scope, operations)
                    else:
                        operations += new_operations
                        self.vectors += 1
                case _:
                    self.unroll(stmt, scope, operations)

    def unroll(self, stmt: Stmt, scope: _Scope, operations: list[Operation]) -> None:
        for number in range(self.count):
            lane = replace(self.loop, lo=ix.add(self.loop.lo, number), body=(stmt,))
            self.writer.single_iteration(lane, scope, operations)

    def loop_of(self, stmt: For, scope: _Scope, operations: list[Operation]) -> None:
        scalars = self.writer.scalars(scope, operations)
        bounds = [scalars.value(part) for part in (stmt.lo, stmt.hi, ix.const(1))]
        block = Block(arg_types=[IndexType()])
        body_operations: list[Operation] = []
        self.block(stmt.body, self.writer.enter(stmt, block.args[0], scope), body_operations)
        block.add_ops([*body_operations, scf.YieldOp()])
        operations.append(scf.ForOp(*bounds, [], block))

    def condition(self, stmt: If, scope: _Scope, operations: list[Operation]) -> None:
        holds = self.writer.scalars(scope, operations).value(stmt.condition)
        regions: list[Region] = []
        for body in (stmt.then, stmt.other):
            body_operations: list[Operation] = []
            self.block(body, scope.inner(), body_operations)
            regions.append(Region(Block([*body_operations, scf.YieldOp()])))
        operations.append(scf.IfOp(holds, [], *(regions if stmt.other else regions[:1])))

    def store(self, stmt: Store, scope: _Scope, operations: list[Operation]) -> None:
        """Write a store of neighbours, or an update of one element by the sum of all lanes."""
        scalars = self.writer.scalars(scope, operations)
        array, dtype = self.writer.arrays[stmt.buffer], dtype_of(stmt.value)
        if any(map(self.moves, stmt.index)):
            index = self.neighbours(stmt.index, scalars)
            value = stmt.value
            if stmt.reduce is not None:
                value = Binary(COMBINED[stmt.reduce], Load(stmt.buffer, stmt.index, dtype), value)
            operations.append(vector.StoreOp(self.broadcast(value, scalars), array, index))
            return
        if stmt.reduce is None or not self.moves(stmt.value):
            raise _NoVector
        kind = _KINDS[stmt.reduce][dtype not in FLOATS]
        total = vector.ReductionOp.create(
            operands=[self.vector(stmt.value, scalars)],
            result_types=[TYPES[dtype]],
            properties={"kind": vector.CombiningKindAttr(vector.CombiningKindFlag(kind))},
        )
        scalars.add(total)
        before = scalars.value(Load(stmt.buffer, stmt.index, dtype))
        combined = scalars.apply(COMBINED[stmt.reduce], dtype, before, total.results[0])
        index = [scalars.value(part) for part in stmt.index]
        operations.append(memref.StoreOp.get(combined, array, index))

    def neighbours(self, index: tuple[Expr, ...], scalars: Scalars) -> list[SSAValue]:
        """Return the index of the first lane's element, where the others lie behind it."""
        *outer, last = index
        step = dict(ix.to_linear(last).terms).get(Var(self.loop.iter))
        offset = ix.sub(last, Var(self.loop.iter))
        if any(map(self.moves, outer)) or step != 1 or self.moves(offset):
            raise _NoVector
        return [scalars.value(self.first(part)) for part in index]

    def broadcast(self, expr: Expr, scalars: Scalars) -> SSAValue:
        if self.moves(expr):
            return self.vector(expr, scalars)
        kind = VectorType(TYPES[dtype_of(expr)], [self.count])
        return scalars.add(vector.BroadcastOp(scalars.value(expr), kind))

    def vector(self, expr: Expr, scalars: Scalars) -> SSAValue:
        """Return the values of an expression in all lanes."""
        dtype = dtype_of(expr)
        kind = VectorType(TYPES[dtype], [self.count])
        match expr:
            case Load(buffer, index) if buffer in self.writer.arrays:
                array = self.writer.arrays[buffer]
                at = self.neighbours(index, scalars)
                return scalars.add(vector.LoadOp(array, at, kind))
            case Binary(op) | Unary(op) if op not in _SHIFTS and dtype not in ("index", "bool"):
                name = (FLOAT if dtype in FLOATS else INTEGER).get(op, "")
                parts = (expr.a, expr.b) if isinstance(expr, Binary) else (expr.a,)
                same = all(dtype_of(part) == dtype for part in parts)
                if name in OPERATIONS and same:
                    operation: Callable[..., Operation] = OPERATIONS[name]
                    return scalars.add(operation(*(self.broadcast(p, scalars) for p in parts)))
        raise _NoVector
