"""Expressions: axes, sizes and elements go in, joined by Python's operators; checked nodes come out."""

from __future__ import annotations

import builtins
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from offcut.core import index as ix
from offcut.core.dtypes import (
    DTYPES,
    FLOATS,
    INTEGERS,
    describe_range,
    in_range,
    numpy_dtype,
    to_dtype,
)
from offcut.core.expr import (
    MAX_HEIGHT,
    Binary,
    Cast,
    Compare,
    Const,
    Expr,
    Logic,
    Unary,
    Var,
    dtype_of,
    substitute,
)
from offcut.core.sizes import Dim, index_of, size_expr
from offcut.core.text.printer import format_expr
from offcut.describe.refusals import ARRAY_AS_OPERAND, NoNumber, NoOperand, operand_text
from offcut.errors import DescribeError

if TYPE_CHECKING:
    from offcut.describe.tensor import Tensor


@dataclass(frozen=True, slots=True)
class Axis:
    """A named coordinate ``0 <= name < extent``; `extent` is a sympy expression in sizes."""

    name: str
    extent: Any


class Value(NoNumber):
    """An expression over axes, sizes and tensor elements, with Python's operators."""

    __slots__ = ("axes", "height", "node", "sizes", "tensors")

    def __init__(
        self,
        node: Expr,
        tensors: tuple[Tensor, ...] = (),
        axes: tuple[Axis, ...] = (),
        sizes: tuple[Dim, ...] = (),
        height: int = 0,
    ) -> None:
        self.node, self.tensors, self.axes, self.sizes = node, tensors, axes, sizes
        self.height = height

    @property
    def dtype(self) -> str:
        """The element type; "index" for coordinates and sizes, "bool" for conditions."""
        return dtype_of(self.node)

    def __add__(self, other: Any) -> Value:
        return _arithmetic("+", self, other)

    def __radd__(self, other: Any) -> Value:
        return _arithmetic("+", other, self)

    def __sub__(self, other: Any) -> Value:
        return _arithmetic("-", self, other)

    def __rsub__(self, other: Any) -> Value:
        return _arithmetic("-", other, self)

    def __mul__(self, other: Any) -> Value:
        return _arithmetic("*", self, other)

    def __rmul__(self, other: Any) -> Value:
        return _arithmetic("*", other, self)

    def __truediv__(self, other: Any) -> Value:
        return _arithmetic("/", self, other)

    def __rtruediv__(self, other: Any) -> Value:
        return _arithmetic("/", other, self)

    def __floordiv__(self, other: Any) -> Value:
        return _arithmetic("//", self, other)

    def __rfloordiv__(self, other: Any) -> Value:
        return _arithmetic("//", other, self)

    def __rmod__(self, other: Any) -> Value:
        return _arithmetic("%", other, self)

    def __abs__(self) -> Value:
        return unary("abs", self)

    def __mod__(self, other: Any) -> Value:
        return _arithmetic("%", self, other)

    def __neg__(self) -> Value:
        return _arithmetic("-", 0, self) if self.dtype == "index" else unary("neg", self)

    def __pos__(self) -> Value:
        return self

    def __lt__(self, other: Any) -> Value:
        return _compare("<", self, other)

    def __le__(self, other: Any) -> Value:
        return _compare("<=", self, other)

    def __gt__(self, other: Any) -> Value:
        return _compare(">", self, other)

    def __ge__(self, other: Any) -> Value:
        return _compare(">=", self, other)

    def __eq__(self, other: object) -> Value:  # type: ignore[override]
        return _compare("==", self, other)

    def __ne__(self, other: object) -> Value:  # type: ignore[override]
        return _compare("!=", self, other)

    __hash__ = object.__hash__

    def __and__(self, other: Any) -> Value:
        return _logic_or_bits("and", self, other)

    def __or__(self, other: Any) -> Value:
        return _logic_or_bits("or", self, other)

    def __xor__(self, other: Any) -> Value:
        return _logic_or_bits("xor", self, other)

    def __rand__(self, other: Any) -> Value:
        return _logic_or_bits("and", other, self)

    def __ror__(self, other: Any) -> Value:
        return _logic_or_bits("or", other, self)

    def __rxor__(self, other: Any) -> Value:
        return _logic_or_bits("xor", other, self)

    def __lshift__(self, other: Any) -> Value:
        return bitwise("shl", self, other)

    def __rlshift__(self, other: Any) -> Value:
        return bitwise("shl", other, self)

    def __rshift__(self, other: Any) -> Value:
        return bitwise("shr", self, other)

    def __rrshift__(self, other: Any) -> Value:
        return bitwise("shr", other, self)

    def __invert__(self) -> Value:
        if self.dtype not in INTEGERS:
            return _logic("not", self)
        return bitwise("bitxor", self, all_ones(self.dtype))

    def __str__(self) -> str:
        return format_expr(self.node).replace("$", "")

    __repr__ = __str__

    def astype(self, dtype: str) -> Value:
        """This value converted to `dtype`."""
        return cast(self, dtype)


def combine(node: Expr, *parts: Value, tensors: tuple[Tensor, ...] = ()) -> Value:
    """`node`, made of `parts` and elements of `tensors`, with all that they read and name."""
    read = dict.fromkeys(tensors)
    axes: dict[Axis, None] = {}
    sizes: dict[Dim, None] = {}
    for part in parts:
        read |= dict.fromkeys(part.tensors)
        axes |= dict.fromkeys(part.axes)
        sizes |= dict.fromkeys(part.sizes)
    height = 1 + builtins.max((part.height for part in parts), default=0)
    if height > MAX_HEIGHT:
        raise DescribeError(
            "compute",
            "cannot take an expression so deep",
            because=f"more than {MAX_HEIGHT} operations are nested",
            help=("a tensor for each part: T = compute(shape, …)", "sum(…, axis=k) of many terms"),
        )
    return Value(node, tuple(read), tuple(axes), tuple(sizes), height)


def size_value(part: Any) -> Value | None:
    """An int or a sympy size as a Value of type index; None for anything else."""
    import sympy

    from offcut.core.sizes import Residue

    if isinstance(part, bool) or not (
        isinstance(part, int | sympy.Expr | Residue) or hasattr(part, "__index__")
    ):
        return None
    size = size_expr(part, "compute")
    expr = index_of(size)
    assert expr is not None
    symbols = tuple(sorted(size.free_symbols, key=str))
    marked = substitute(expr, {s.name: Var(size_var(s.name)) for s in symbols})
    return Value(marked, (), (), symbols)


def size_var(name: str) -> str:
    """How the body of a compute names a size, so that an axis of the same name is another thing."""
    return f"${name}"


def pair(op: str, a: Any, b: Any) -> tuple[Value, Value]:
    """Both operands as values of one type; a Python scalar takes the other's type."""
    check_no_tensor(op, a, b)
    if not isinstance(a, Value):
        y, x = pair(op, b, a)
        return x, y
    if isinstance(b, Value):
        other = b
    elif isinstance(b, bool | np.bool_):
        other = Value(Const(int(b), "bool"))
    elif a.dtype == "bool":
        raise _type_error(op, a, type(b).__name__)
    elif a.dtype == "index":
        size = size_value(b)
        if size is None:
            raise _type_error(op, a, type(b).__name__)
        other = size
    elif isinstance(b, int) or (a.dtype in FLOATS and isinstance(b, float)) or hasattr(b, "item"):
        scalar = _python_scalar(op, a, b)
        if isinstance(scalar, float) and a.dtype not in FLOATS:
            raise _type_error(op, a, "float")
        _check_range(scalar, a.dtype)
        other = Value(Const(float(scalar) if a.dtype in FLOATS else int(scalar), a.dtype))
    elif size_value(b) is not None:
        raise _type_error(op, a, "a size")
    else:
        raise _type_error(op, a, type(b).__name__)
    if other.dtype != a.dtype:
        raise _type_error(op, a, f"{other.dtype} {other}")
    return a, other


def check_no_tensor(op: str, *operands: Any) -> None:
    """Refuse a tensor where an element of it is wanted."""
    for operand in operands:
        if isinstance(operand, NoOperand):
            raise operand.no_operand(f"{operand.name} as an operand of {op}")


def _python_scalar(op: str, a: Value, b: Any) -> int | float:
    """A Python number, or a numpy scalar as one."""
    if hasattr(b, "item"):
        if getattr(b, "ndim", 1) > 0:
            raise DescribeError(
                "compute",
                f"cannot take {a} {op} {operand_text(b)}",
                because="an expression is about one element at a time",
                help=(ARRAY_AS_OPERAND,),
            )
        b = b.item()
    if not isinstance(b, int | float):
        raise _type_error(op, a, type(b).__name__)
    return b


def _check_range(value: float, dtype: str) -> None:
    if in_range(value, dtype):
        return
    widest = "float64" if dtype in FLOATS else "int64"
    widens = dtype not in (widest, "uint64") and in_range(value, widest)
    raise DescribeError(
        "compute",
        f"cannot take a scalar of {len(str(value))} digits as {dtype}"
        if len(str(value)) > 40
        else f"cannot take {value} as {dtype}",
        because=describe_range(dtype),
        help=(f'cast(x, "{widest}") widens, explicitly' if widens else "a number within these",),
    )


_WRITTEN = {"bitand": "&", "bitor": "|", "bitxor": "^", "shl": "<<", "shr": ">>"}
"""How operations on bits are written of elements."""


def _type_error(op: str, a: Value, other: str) -> DescribeError:
    if op in _WRITTEN:
        return DescribeError(
            "compute",
            f"cannot take {a.dtype} {_WRITTEN[op]} {other}",
            at=str(a),
            because="bits are of integers of one type, or of conditions",
            help=(
                f'cast(…, "{a.dtype if a.dtype in INTEGERS else "int64"}") converts, explicitly',
            ),
        )
    return DescribeError(
        "compute",
        f"cannot take {a.dtype} {op} {other}",
        at=str(a),
        because="arithmetic is between equal element types",
        help=('cast(x, "float32") converts, explicitly',),
    )


def _arithmetic(op: str, a: Any, b: Any) -> Value:
    x, y = pair(op, a, b)
    dtype = x.dtype
    if dtype == "bool":
        raise _type_error(op, x, str(y.dtype))
    floors = op == "//" or (op == "%" and dtype not in FLOATS)
    if floors and not (dtype not in FLOATS and _is_positive(y.node)):
        raise DescribeError(
            "compute",
            f"cannot take {x} {op} {y}",
            because="// and % floor integers, by a positive constant",
            help=("maximum(b, 1) of elements is positive, too",) if dtype in INTEGERS else (),
        )
    if op == "/" and dtype not in FLOATS:
        raise DescribeError(
            "compute",
            f"cannot take {x} / {y}",
            because=f"/ is for floats, and these are {dtype}",
            help=("// floors integers",),
        )
    node: Expr = Binary(op, x.node, y.node)
    if dtype == "index":
        node = ix.simplify(node)
    return combine(node, x, y)


def _is_positive(divisor: Expr) -> bool:
    """Whether a divisor is a positive literal, or an element that is no less than one."""
    match divisor:
        case Const(value, _):
            return value > 0
        case Binary("max", a, b) if dtype_of(divisor) != "index":
            return _is_positive(a) or _is_positive(b)
        case _:
            return False


def _compare(op: str, a: Any, b: Any) -> Value:
    x, y = pair(op, a, b)
    if x.dtype == "bool" and op not in ("==", "!="):
        raise DescribeError(
            "compute",
            f"cannot take {x} {op} {y}",
            because="conditions are equal or not, and have no order",
            help=("a & b, a | b, ~a join conditions",),
        )
    return combine(Compare(op, x.node, y.node), x, y)


def _logic(op: str, *args: Any) -> Value:
    for arg in args:
        if not (isinstance(arg, Value) and arg.dtype == "bool"):
            raise DescribeError(
                "compute",
                f"cannot take {op} of {arg}",
                because="& | ^ ~ join conditions, such as (i >= 1) & (i < n), or bits of integers",
            )
    if op == "xor":
        return _compare("!=", *args)
    return combine(Logic(op, tuple(arg.node for arg in args)), *args)


def _logic_or_bits(op: str, a: Any, b: Any) -> Value:
    """``& | ^`` of two conditions, or of the bits of two integers."""
    if any(isinstance(one, Value) and one.dtype in INTEGERS for one in (a, b)):
        return bitwise(f"bit{op}", a, b)
    return _logic(op, a, b)


def bitwise(op: str, a: Any, b: Any) -> Value:
    """``a op b`` on the bits of integers: one of `offcut.core.expr.BITWISE`.

    Raises DescribeError for floats, conditions, coordinates and sizes.
    """
    x, y = pair(op, a, b)
    if x.dtype not in INTEGERS:
        raise DescribeError(
            "compute",
            f"cannot take {x.dtype} {x} {_WRITTEN[op]} {y}",
            because=f"bits are of elements of {', '.join(INTEGERS)}",
            help=('cast(x, "int64") of a coordinate or a size',) if x.dtype == "index" else (),
        )
    return combine(Binary(op, x.node, y.node), x, y)


def all_ones(dtype: str) -> int:
    """The integer of a type whose bits are all set."""
    info = np.iinfo(numpy_dtype(dtype))
    return int(info.max) if info.min == 0 else -1


def unary(op: str, a: Any) -> Value:
    """`op` of `a`, by element; of a literal, the literal with the other sign."""
    check_no_tensor(op, a)
    if not isinstance(a, Value) or (
        a.dtype not in FLOATS and (op not in ("neg", "abs") or a.dtype == "bool")
    ):
        operand_text = f"{a.dtype} {a}" if isinstance(a, Value) else repr(a)
        raise DescribeError(
            "compute", f"cannot take {op} of {operand_text}", because=f"{op} is for float elements"
        )
    if isinstance(a.node, Const) and op == "neg":
        value = -a.node.value
        if a.dtype in INTEGERS:  # as of an element: of uint16, that of 5 is 65531
            info = np.iinfo(numpy_dtype(a.dtype))
            value = (int(value) - info.min) % (info.max - info.min + 1) + info.min
        return Value(Const(value, a.node.dtype))
    return combine(Unary(op, a.node), a)


def cast(a: Any, dtype: str) -> Value:
    """`a`, an expression, a size or a Python scalar, converted to `dtype`; to bool: whether it is not 0."""
    kind = to_dtype(dtype)
    if kind is None:
        raise DescribeError(
            "cast", f"cannot convert to {dtype!r}", because=f"element types are {', '.join(DTYPES)}"
        )
    dtype = kind
    if isinstance(a, bool | int | float):
        if dtype == "bool":
            return Value(Const(int(a != 0), dtype))
        _check_range(a, dtype)
        return Value(Const(float(a) if dtype in FLOATS else int(a), dtype))
    check_no_tensor("cast", a)
    value = a if isinstance(a, Value) else size_value(a)
    if value is None:
        raise DescribeError("cast", f"cannot convert {a!r}", because="it is not an expression")
    if value.dtype == dtype:
        return value
    if dtype == "bool":
        return _compare("!=", value, 0)
    return combine(Cast(value.node, dtype), value)
