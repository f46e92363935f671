"""Scalar operations of `arith` and `math` as expressions of `offcut.ir`, and back.

Import scalar operations of `arith` and `math` as expressions of `offcut.ir`.

Emit expressions of `offcut.ir` as scalar operations of `arith` and `math`.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from typing import assert_never

from xdsl.dialects import arith, builtin, scf
from xdsl.dialects.builtin import FloatAttr, IntegerAttr
from xdsl.ir import Block, Operation, Region, SSAValue

from offcut.core import index as ix
from offcut.core.dtypes import FLOATS, INTEGERS, ITEM_BYTES
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
from offcut.plugins.mlir.nest import (
    BITS,
    DTYPES,
    FLOAT,
    INTEGER,
    OPERATIONS,
    ORDERED,
    SIGNED,
    TYPES,
    import_error,
    is_natural,
)

_READ = {
    theirs: ours for table in (FLOAT, INTEGER) for ours, theirs in table.items() if ours not in BITS
}
_READ_BITS = {theirs: ours for ours, theirs in BITS.items()}
_CASTS = ("extf", "truncf", "extsi", "trunci", "sitofp", "fptosi", "index_cast")
_FROM_BOOL = ("arith.extui", "arith.uitofp")
_INTEGER = ("==", "!=", "<", "<=", ">", ">=", "<", "<=", ">", ">=")
_ORDERED = {1: "==", 2: ">", 3: ">=", 4: "<", 5: "<="}

IsNatural = Callable[[Expr], bool]


def expression(op: Operation, args: Sequence[Expr], natural: IsNatural) -> Expr:
    """Return the expression of the result of `op`, from its operands.

    natural  whether an index is never negative, wherever `op` runs

    Raises DescribeError for an operation that no expression says.
    """
    match op:
        case arith.ConstantOp():
            return _constant(op)
        case arith.CmpiOp():
            return _comparison(op, args, natural)
        case arith.CmpfOp():
            return _ordered_comparison(int(op.predicate.value.data), *args)
        case arith.SelectOp():
            return _smaller(*args) or Select(*args)
    name = op.name
    if name in _READ and len(args) == 2:
        return _fold(Binary(_READ[name], *args))
    if name in _READ_BITS and dtype_of(args[0]) in INTEGERS:
        return Binary(_READ_BITS[name], *args)
    if name in _READ:
        return Unary(_READ[name], *args)
    if name in ("arith.maxnumf", "arith.minnumf"):
        return _number(">" if "max" in name else "<", *args)
    if name.removeprefix("arith.") in _CASTS and dtype_of(args[0]) != "bool":
        return Cast(args[0], DTYPES[op.results[0].type])
    if name in _FROM_BOOL and dtype_of(args[0]) == "bool":
        return Cast(args[0], DTYPES[op.results[0].type])
    if name in ("arith.andi", "arith.ori", "arith.xori") and dtype_of(args[0]) == "bool":
        return _logic(op, args)
    if name in _DIVISIONS and dtype_of(args[0]) == "index":
        return _division(op, args, natural)
    if name == "arith.shli" and dtype_of(args[0]) == "index" and _literal(args[1]) is not None:
        return ix.mul(args[0], 2 ** (_literal(args[1]) or 0))
    raise import_error(op, "no expression of offcut.ir says what it computes")


def _constant(op: arith.ConstantOp) -> Expr:
    dtype = DTYPES.get(op.result.type)
    match op.value:
        case builtin.IntegerAttr() as attribute if dtype is not None:
            value = int(attribute.value.data)
            return Const(abs(value), dtype) if dtype == "bool" else Const(value, dtype)
        case builtin.FloatAttr() as attribute if dtype is not None:
            return Const(float(attribute.value.data), dtype)
    raise import_error(op, f"offcut has no scalars of type {op.result.type}")


def _fold(expr: Expr) -> Expr:
    return ix.simplify(expr) if dtype_of(expr) == "index" else expr


def _literal(expr: Expr) -> int | None:
    return ix.literal_value(expr)


def _comparison(op: arith.CmpiOp, args: Sequence[Expr], natural: IsNatural) -> Expr:
    number = int(op.predicate.value.data)
    if number > 5 and not all(map(natural, args)):
        a, b = args
        if number == 6 and natural(b):  # one test of both bounds
            low, high = Compare("<=", ix.const(0), a), Compare("<", a, b)
            return Logic("and", (low, high))
        raise import_error(
            op, "it compares without sign, and an operand may be negative", "a signed predicate"
        )
    return Compare(_INTEGER[number], *args)


def _ordered_comparison(predicate: int, a: Expr, b: Expr) -> Expr:
    """Return a predicate of ``arith.cmpf``: 1 to 7 are false, 8 to 14 true if an operand is NaN."""
    if predicate in (0, 15):
        return Const(predicate // 15, "bool")
    if predicate == 13:
        return Compare("!=", a, b)
    if predicate > 7:
        return Logic("not", (_ordered_comparison(_FAILS[predicate], a, b),))
    if predicate == 6:
        return Logic("or", (Compare("<", a, b), Compare(">", a, b)))
    if predicate == 7:
        return Logic("and", (Compare("==", a, a), Compare("==", b, b)))
    return Compare(_ORDERED[predicate], a, b)


def _smaller(condition: Expr, then: Expr, other: Expr) -> Expr | None:
    """Return ``a < b ? a : b`` of indices as their minimum, or the maximum likewise; None for any other choice."""
    match condition:
        case Compare("<" | "<=" | ">" | ">=" as op, a, b) if dtype_of(a) == "index":
            if {then, other} == {a, b}:
                is_minimum = (op[0] == "<") == (then == a)
                return (ix.minimum if is_minimum else ix.maximum)(a, b)
    return None


_FAILS = {8: 6, 9: 5, 10: 4, 11: 3, 12: 2, 14: 7}
"""The predicate that fails where this one holds: ``ugt`` where ``ole`` fails."""


def _number(better: str, a: Expr, b: Expr) -> Expr:
    """Return the operand that is `better`; the other one if one is NaN."""
    return Select(Logic("or", (Compare(better, a, b), Compare("!=", b, b))), a, b)


def _logic(op: Operation, args: Sequence[Expr]) -> Expr:
    a, b = args
    if op.name == "arith.andi":
        return Logic("and", (a, b))
    if op.name == "arith.ori":
        return Logic("or", (a, b))
    for one, other in ((a, b), (b, a)):
        if one == Const(1, "bool"):
            return Logic("not", (other,))
    return Logic(
        "or", (Logic("and", (a, Logic("not", (b,)))), Logic("and", (b, Logic("not", (a,)))))
    )


_DIVISIONS = {
    **{f"arith.{name}": "//" for name in ("floordivsi", "divsi", "divui", "shrsi", "shrui")},
    **{f"arith.{name}": "%" for name in ("remsi", "remui")},
    **{f"arith.{name}": "up" for name in ("ceildivsi", "ceildivui")},
}
_ANY_SIGN = ("arith.floordivsi", "arith.ceildivsi", "arith.shrsi")


def _division(op: Operation, args: Sequence[Expr], natural: IsNatural) -> Expr:
    """Return a quotient or a remainder of an index by a positive literal."""
    a, by = args[0], _literal(args[1])
    if by is not None and "shr" in op.name:
        by = 2**by
    if by is None or by <= 0:
        raise import_error(op, "it divides by what is not a positive literal")
    if op.name not in _ANY_SIGN and not natural(a):
        because = "offcut rounds down, and its operand may be negative"
        raise import_error(op, because, "arith.floordivsi", "arith.ceildivsi")
    match _DIVISIONS[op.name]:
        case "//":
            return ix.floordiv(a, by)
        case "%":
            return ix.mod(a, by)
        case _:
            return ix.ceildiv(a, by)


def constant(value: int | float, dtype: str) -> arith.ConstantOp:
    """Return a literal of a type."""
    if dtype in FLOATS:
        return arith.ConstantOp(FloatAttr(float(value), TYPES[dtype]))
    return arith.ConstantOp(
        IntegerAttr(-int(value) if dtype == "bool" else int(value), TYPES[dtype])
    )


@dataclass
class Scalars:
    """An emitter that appends the operations of expressions to `into`.

    names      the values of coordinates and sizes
    values     the values of indices that were computed already
    constants  the value of a literal of a type
    load       the value of an element
    natural    coordinates and sizes that are never negative
    """

    into: list[Operation]
    names: dict[str, SSAValue]
    values: dict[Expr, SSAValue]
    constants: Callable[[int | float, str], SSAValue]
    load: Callable[[Load, Scalars], SSAValue]
    natural: Container[str]

    def value(self, expr: Expr) -> SSAValue:
        """Return the value of `expr`, emitted once for equal indices."""
        if expr in self.values:
            return self.values[expr]
        result = self.emit(expr)
        if dtype_of(expr) == "index" and not reads_memory(expr):
            self.values[expr] = result
        return result

    def add(self, op: Operation) -> SSAValue:
        """Append `op`; return its result."""
        self.into.append(op)
        return op.results[0]

    def emit(self, expr: Expr) -> SSAValue:
        """Emit the operation of `expr`; return its value."""
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
                return self.add(arith.SubiOp(self.constants(0, dtype_of(a)), self.value(a)))
            case Unary(op, a):
                return self.apply(op, dtype_of(a), self.value(a))
            case Cast(a, dtype):
                return self.cast(a, dtype)
            case Select():
                return self.select(expr)
            case Compare(op, a, b):
                a_value, b_value = self.value(a), self.value(b)
                if dtype_of(a) in FLOATS:
                    return self.add(arith.CmpfOp(a_value, b_value, ORDERED[op]))
                return self.add(arith.CmpiOp(a_value, b_value, SIGNED[op]))
            case Logic("not", (a,)):
                return self.add(arith.XOrIOp(self.value(a), self.constants(1, "bool")))
            case Logic(op, args):
                result, *rest = map(self.value, args)
                for one in rest:
                    operation = arith.AndIOp if op == "and" else arith.OrIOp
                    result = self.add(operation(result, one))
                return result
            case Lookup() | Reduce():
                raise InternalError(f"{type(expr).__name__} is left in plain loops")
            case _:
                assert_never(expr)

    def binary(self, expr: Binary) -> SSAValue:
        """Emit a binary operation; a quotient of an index that is never negative by the cheaper operation."""
        dtype = dtype_of(expr)
        if dtype in FLOATS:
            return self.apply(expr.op, dtype, self.value(expr.a), self.value(expr.b))
        a, b = self.value(expr.a), self.value(expr.b)
        if dtype == "index" and expr.op in ("min", "max"):
            comparison = self.add(arith.CmpiOp(a, b, "slt" if expr.op == "min" else "sgt"))
            return self.add(arith.SelectOp(comparison, a, b))
        if expr.op in ("shl", "shr"):
            return self.shift(expr.op, dtype, a, b)
        natural = dtype == "index" and is_natural(expr.a, self.natural)
        if expr.op == "//":
            return self.add((arith.DivSIOp if natural else arith.FloorDivSIOp)(a, b))
        if expr.op == "%" and natural:
            return self.add(arith.RemSIOp(a, b))
        if expr.op == "%":
            whole = self.add(arith.MuliOp(self.add(arith.FloorDivSIOp(a, b)), b))
            return self.add(arith.SubiOp(a, whole))
        return self.apply(expr.op, dtype, a, b)

    def apply(self, op: str, dtype: str, *operands: SSAValue) -> SSAValue:
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
        return self.add(OPERATIONS[name](*operands))

    def shift(self, op: str, dtype: str, a: SSAValue, b: SSAValue) -> SSAValue:
        """Emit a shift by any amount, as `offcut.core.expr.BITWISE` defines it; MLIR's is poison for a negative amount, and from the width on."""
        width, last = (self.constants(8 * ITEM_BYTES[dtype] - less, dtype) for less in (0, 1))
        in_range = self.add(arith.CmpiOp(b, width, "ult"))
        near = self.add(arith.SelectOp(in_range, b, last))
        if op == "shr":
            return self.add(arith.ShRSIOp(a, near))
        return self.add(
            arith.SelectOp(in_range, self.add(arith.ShLIOp(a, near)), self.constants(0, dtype))
        )

    def select(self, expr: Select) -> SSAValue:
        """Emit a choice of two values; only the branch that is taken reads memory."""
        holds = self.value(expr.condition)
        if not reads_memory(expr.then) and not reads_memory(expr.other):
            return self.add(arith.SelectOp(holds, self.value(expr.then), self.value(expr.other)))
        regions: list[Region] = []
        for branch in (expr.then, expr.other):  # only the branch that is taken is accessed
            operations: list[Operation] = []
            inner = Scalars(
                operations, self.names, dict(self.values), self.constants, self.load, self.natural
            )
            operations.append(scf.YieldOp(inner.value(branch)))
            regions.append(Region(Block(operations)))
        return self.add(scf.IfOp(holds, [TYPES[dtype_of(expr)]], *regions))

    def cast(self, a: Expr, dtype: str) -> SSAValue:
        """Emit a conversion to another type."""
        source, value, to = dtype_of(a), self.value(a), TYPES[dtype]
        if source == dtype:
            return value
        if dtype == "bool":
            return self.value(Compare("!=", a, Const(0.0 if source in FLOATS else 0, source)))
        if "index" in (source, dtype):
            if source in FLOATS or source == "bool":
                return self.cast(Cast(a, "int64"), dtype)
            if dtype in FLOATS:
                return self.add(arith.SIToFPOp(self.cast(a, "int64"), to))
            return self.add(arith.IndexCastOp(value, to))
        if source == "bool":
            return self.add((arith.UIToFPOp if dtype in FLOATS else arith.ExtUIOp)(value, to))
        if source in FLOATS and dtype in FLOATS:
            if ITEM_BYTES[source] == ITEM_BYTES[dtype]:
                return self.cast(Cast(a, "float32"), dtype)
            wider = ITEM_BYTES[dtype] > ITEM_BYTES[source]
            return self.add((arith.ExtFOp if wider else arith.TruncFOp)(value, to))
        if source in FLOATS:
            return self.add(arith.FPToSIOp(value, to))
        if dtype in FLOATS:
            return self.add(arith.SIToFPOp(value, to))
        wider = ITEM_BYTES[dtype] > ITEM_BYTES[source]
        return self.add((arith.ExtSIOp if wider else arith.TruncIOp)(value, to))
