"""Expressions of `offcut.ir` as scalar operations of `arith` and `math`."""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import dataclass
from typing import assert_never

from xdsl.dialects import arith, scf
from xdsl.dialects.builtin import FloatAttr, IntegerAttr
from xdsl.ir import Block, Operation, Region, SSAValue

from offcut.core.dtypes import FLOATS, ITEM_BYTES
from offcut.core.expr import reads_memory
from offcut.errors import DescribeError, InternalError
from offcut.ir import (
    Binary,
    Cast,
    Compare,
    Const,
    Expr,
    Load,
    Logic,
    Lookup,
    Reduce,
    Select,
    Unary,
    Var,
    dtype_of,
)
from offcut.plugins.mlir.nest import TYPES
from offcut.plugins.mlir.operators import FLOAT, INTEGER, OPERATIONS, ORDERED, SIGNED
from offcut.plugins.mlir.signs import is_natural


def constant(value: int | float, dtype: str) -> arith.ConstantOp:
    """A literal of a type."""
    if dtype in FLOATS:
        return arith.ConstantOp(FloatAttr(float(value), TYPES[dtype]))
    return arith.ConstantOp(
        IntegerAttr(-int(value) if dtype == "bool" else int(value), TYPES[dtype])
    )


@dataclass
class Scalars:
    """What writes expressions as operations at the end of `into`.

    names      the values of coordinates and sizes
    seen       indices that have a value already
    constants  the value of a literal of a type
    load       the value of an element
    natural    coordinates and sizes that are never negative
    """

    into: list[Operation]
    names: dict[str, SSAValue]
    seen: dict[Expr, SSAValue]
    constants: Callable[[int | float, str], SSAValue]
    load: Callable[[Load, Scalars], SSAValue]
    natural: Container[str]

    def value(self, expr: Expr) -> SSAValue:
        """The value of `expr`."""
        if expr in self.seen:
            return self.seen[expr]
        found = self.made(expr)
        if dtype_of(expr) == "index" and not reads_memory(expr):
            self.seen[expr] = found
        return found

    def added(self, op: Operation) -> SSAValue:
        """The result of `op`, at the end of the block."""
        self.into.append(op)
        return op.results[0]

    def made(self, expr: Expr) -> SSAValue:
        """The value of `expr`, by an operation of its own."""
        match expr:
            case Const(value, dtype):
                return self.constants(value, dtype)
            case Var(name):
                return self.names[name]
            case Load():
                return self.load(expr, self)
            case Binary():
                return self.binary(expr)
            case Unary("neg", a) if dtype_of(a) not in FLOATS:
                return self.added(arith.SubiOp(self.constants(0, dtype_of(a)), self.value(a)))
            case Unary(op, a):
                return self.applied(op, dtype_of(a), self.value(a))
            case Cast(a, dtype):
                return self.cast(a, dtype)
            case Select():
                return self.select(expr)
            case Compare(op, a, b):
                left, right = self.value(a), self.value(b)
                if dtype_of(a) in FLOATS:
                    return self.added(arith.CmpfOp(left, right, ORDERED[op]))
                return self.added(arith.CmpiOp(left, right, SIGNED[op]))
            case Logic("not", (a,)):
                return self.added(arith.XOrIOp(self.value(a), self.constants(1, "bool")))
            case Logic(op, args):
                found, *rest = map(self.value, args)
                for one in rest:
                    made = arith.AndIOp if op == "and" else arith.OrIOp
                    found = self.added(made(found, one))
                return found
            case Lookup() | Reduce():
                raise InternalError(f"{type(expr).__name__} is left in plain loops")
            case _:
                assert_never(expr)

    def binary(self, expr: Binary) -> SSAValue:
        """A binary operation; quotients of what is never negative by the cheaper one."""
        dtype = dtype_of(expr)
        if dtype in FLOATS:
            return self.applied(expr.op, dtype, self.value(expr.a), self.value(expr.b))
        a, b = self.value(expr.a), self.value(expr.b)
        if dtype == "index" and expr.op in ("min", "max"):
            less = self.added(arith.CmpiOp(a, b, "slt" if expr.op == "min" else "sgt"))
            return self.added(arith.SelectOp(less, a, b))
        if expr.op in ("shl", "shr"):
            return self.shifted(expr.op, dtype, a, b)
        natural = dtype == "index" and is_natural(expr.a, self.natural)
        if expr.op == "//":
            return self.added((arith.DivSIOp if natural else arith.FloorDivSIOp)(a, b))
        if expr.op == "%" and natural:
            return self.added(arith.RemSIOp(a, b))
        if expr.op == "%":
            whole = self.added(arith.MuliOp(self.added(arith.FloorDivSIOp(a, b)), b))
            return self.added(arith.SubiOp(a, whole))
        return self.applied(expr.op, dtype, a, b)

    def applied(self, op: str, dtype: str, *operands: SSAValue) -> SSAValue:
        """Return the value of an operator or a function that is one operation.

        Raises DescribeError for a function that `math` lacks.
        """
        name = (FLOAT if dtype in FLOATS else INTEGER).get(op, "")
        if name not in OPERATIONS:
            raise DescribeError(
                "mlir",
                f"cannot write {op} of {dtype}",
                because="no operation of arith and math says it",
            )
        return self.added(OPERATIONS[name](*operands))

    def shifted(self, op: str, dtype: str, a: SSAValue, b: SSAValue) -> SSAValue:
        """A shift; MLIR's is poison where it is by the width or more, or by less than 0, ours is as `offcut.core.expr.BITWISE` has it."""
        width, last = (self.constants(8 * ITEM_BYTES[dtype] - less, dtype) for less in (0, 1))
        inside = self.added(arith.CmpiOp(b, width, "ult"))
        near = self.added(arith.SelectOp(inside, b, last))
        if op == "shr":
            return self.added(arith.ShRSIOp(a, near))
        return self.added(
            arith.SelectOp(inside, self.added(arith.ShLIOp(a, near)), self.constants(0, dtype))
        )

    def select(self, expr: Select) -> SSAValue:
        """One of two values, of which only the one that is taken reads memory."""
        holds = self.value(expr.condition)
        if not reads_memory(expr.then) and not reads_memory(expr.other):
            return self.added(arith.SelectOp(holds, self.value(expr.then), self.value(expr.other)))
        regions: list[Region] = []
        for branch in (expr.then, expr.other):  # only the branch that is taken is accessed
            inside: list[Operation] = []
            inner = Scalars(
                inside, self.names, dict(self.seen), self.constants, self.load, self.natural
            )
            inside.append(scf.YieldOp(inner.value(branch)))
            regions.append(Region(Block(inside)))
        return self.added(scf.IfOp(holds, [TYPES[dtype_of(expr)]], *regions))

    def cast(self, a: Expr, dtype: str) -> SSAValue:
        """A value as another type."""
        given, value, to = dtype_of(a), self.value(a), TYPES[dtype]
        if given == dtype:
            return value
        if dtype == "bool":
            return self.value(Compare("!=", a, Const(0.0 if given in FLOATS else 0, given)))
        if "index" in (given, dtype):
            if given in FLOATS or given == "bool":
                return self.cast(Cast(a, "int64"), dtype)
            if dtype in FLOATS:
                return self.added(arith.SIToFPOp(self.cast(a, "int64"), to))
            return self.added(arith.IndexCastOp(value, to))
        if given == "bool":
            return self.added((arith.UIToFPOp if dtype in FLOATS else arith.ExtUIOp)(value, to))
        if given in FLOATS and dtype in FLOATS:
            if ITEM_BYTES[given] == ITEM_BYTES[dtype]:
                return self.cast(Cast(a, "float32"), dtype)
            wider = ITEM_BYTES[dtype] > ITEM_BYTES[given]
            return self.added((arith.ExtFOp if wider else arith.TruncFOp)(value, to))
        if given in FLOATS:
            return self.added(arith.FPToSIOp(value, to))
        if dtype in FLOATS:
            return self.added(arith.SIToFPOp(value, to))
        wider = ITEM_BYTES[dtype] > ITEM_BYTES[given]
        return self.added((arith.ExtSIOp if wider else arith.TruncIOp)(value, to))
