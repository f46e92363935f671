"""Import scalar operations of `arith` and `math` as expressions of `offcut.ir`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from xdsl.dialects import arith, builtin
from xdsl.ir import Operation

from offcut.core import index as ix
from offcut.core.dtypes import INTEGERS
from offcut.ir import Binary, Cast, Compare, Const, Expr, Logic, Select, Unary, dtype_of
from offcut.plugins.mlir.nest import DTYPES, import_error
from offcut.plugins.mlir.operators import BITS, FLOAT, INTEGER

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
