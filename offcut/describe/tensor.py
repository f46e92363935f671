"""The front end: tensors, axes, and the expressions written with them.

A `Value` wraps an expression node and overloads Python's operators; describing a computation
builds nodes and checks what a single node can show (ranks, element types, axes). What needs sets
(accesses in bounds) is proved when the computation is cut.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from offcut.core import index as ix
from offcut.core.dtypes import DTYPES, FLOATS, INTEGERS, in_range, numpy_dtype
from offcut.core.expr import (
    MAX_HEIGHT,
    Binary,
    Cast,
    Compare,
    Const,
    Expr,
    Load,
    Logic,
    Reduce,
    Select,
    Unary,
    Var,
    dtype_of,
    rewrite,
    substitute,
    walk,
)
from offcut.core.sizes import Dim, index_of, size_expr
from offcut.core.text.printer import format_expr
from offcut.describe.axes import axis_names, checked_name, checked_shape
from offcut.describe.refusals import ARRAY_AS_OPERAND, NoNumber, NoOperand, shown
from offcut.errors import DescribeError


@dataclass(frozen=True, slots=True)
class Axis:
    """A named coordinate ``0 <= name < extent``; `extent` is a sympy expression in sizes."""

    name: str
    extent: Any


@dataclass(frozen=True, slots=True)
class Compute:
    """``tensor[axes] = body``; a `body` that reduces has its `Reduce` outermost."""

    axes: tuple[Axis, ...]
    reduce_axes: tuple[Axis, ...]
    body: Expr
    reads: tuple[Tensor, ...]
    sizes: tuple[Dim, ...] = ()  # those that the body names; `size_var` says how


@dataclass(frozen=True, slots=True, eq=False)
class Tensor(NoOperand):
    """An array of symbolic shape: a placeholder, or defined by a `Compute`."""

    name: str
    shape: tuple[Any, ...]
    dtype: str
    definition: Compute | None = None

    def __getitem__(self, where: Any) -> Value:
        """The element at `where`, one index per axis; ``T[()]`` of a tensor without axes."""
        indices = where if isinstance(where, tuple) else (where,)
        at = self.described
        if len(indices) != len(self.shape):
            raise DescribeError(
                "compute",
                f"cannot read {self.name} with {len(indices)} indices",
                at=at,
                because=f"it has {len(self.shape)} axes",
                help=(f"{self.element} is an element",),
            )
        parts = [_index_value(part, at) for part in indices]
        load = Load(self.name, tuple(part.node for part in parts), self.dtype)
        return _combine(load, *parts, tensors=(self,))

    __call__ = __getitem__

    def __repr__(self) -> str:
        return f"{self.name}: {self.dtype}[{', '.join(map(str, self.shape))}]"


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
        return absolute(self)

    def __mod__(self, other: Any) -> Value:
        return _arithmetic("%", self, other)

    def __neg__(self) -> Value:
        return _arithmetic("-", 0, self) if self.dtype == "index" else _unary("neg", self)

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
        return _logic("and", self, other)

    def __or__(self, other: Any) -> Value:
        return _logic("or", self, other)

    def __rand__(self, other: Any) -> Value:
        return _logic("and", other, self)

    def __ror__(self, other: Any) -> Value:
        return _logic("or", other, self)

    def __invert__(self) -> Value:
        return _logic("not", self)

    def __str__(self) -> str:
        return format_expr(self.node).replace("$", "")

    __repr__ = __str__

    def astype(self, dtype: str) -> Value:
        """This value converted to `dtype`."""
        return cast(self, dtype)


def _combine(node: Expr, *parts: Value, tensors: tuple[Tensor, ...] = ()) -> Value:
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


def _index_value(part: Any, at: str) -> Value:
    value = part if isinstance(part, Value) else _size_value(part)
    if value is None or value.dtype != "index":
        shown = part if value is None else f"{value} of type {value.dtype}"
        raise DescribeError(
            "compute",
            f"cannot index with {shown}",
            at=at,
            because="an index is an integer expression in axes and sizes",
            help=("index(…) of an element is asked when the kernel is called",)
            if value is not None and value.dtype in INTEGERS
            else (),
        )
    return value


def _size_value(part: Any) -> Value | None:
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


def _pair(op: str, a: Any, b: Any) -> tuple[Value, Value]:
    """Both operands as values of one type; a Python scalar takes the other's type."""
    _check_no_tensor(op, a, b)
    if not isinstance(a, Value):
        y, x = _pair(op, b, a)
        return x, y
    if isinstance(b, Value):
        other = b
    elif isinstance(b, bool):
        other = Value(Const(int(b), "bool"))
    elif a.dtype == "index":
        size = _size_value(b)
        if size is None:
            raise _type_error(op, a, type(b).__name__)
        other = size
    elif isinstance(b, int) or (a.dtype in FLOATS and isinstance(b, float)) or hasattr(b, "item"):
        scalar = _python_scalar(op, a, b)
        if isinstance(scalar, float) and a.dtype not in FLOATS:
            raise _type_error(op, a, "float")
        _check_range(scalar, a.dtype)
        other = Value(Const(float(scalar) if a.dtype in FLOATS else int(scalar), a.dtype))
    elif _size_value(b) is not None:
        raise _type_error(op, a, "a size")
    else:
        raise _type_error(op, a, type(b).__name__)
    if other.dtype != a.dtype:
        raise _type_error(op, a, f"{other.dtype} {other}")
    return a, other


def _check_no_tensor(op: str, *operands: Any) -> None:
    for operand in operands:
        if isinstance(operand, Tensor):
            raise operand.no_operand(f"{operand.name} as an operand of {op}")


def _python_scalar(op: str, a: Value, b: Any) -> int | float:
    """A Python number, or a numpy scalar as one."""
    if hasattr(b, "item"):
        if getattr(b, "ndim", 1) > 0:
            raise DescribeError(
                "compute",
                f"cannot take {a} {op} {shown(b)}",
                because="an expression is about one element at a time",
                help=(ARRAY_AS_OPERAND,),
            )
        b = b.item()
    if not isinstance(b, int | float):
        raise _type_error(op, a, type(b).__name__)
    return b


def _check_range(value: float, dtype: str) -> None:
    if not in_range(value, dtype):
        info = np.iinfo(numpy_dtype(dtype)) if dtype not in FLOATS else np.finfo("float64")
        raise DescribeError(
            "compute",
            f"cannot take a scalar of {len(str(value))} digits as {dtype}"
            if len(str(value)) > 40
            else f"cannot take {value} as {dtype}",
            because=f"{dtype} holds {info.min}…{info.max}",
            help=('cast(x, "int64") widens, explicitly',),
        )


def _type_error(op: str, a: Value, other: str) -> DescribeError:
    return DescribeError(
        "compute",
        f"cannot take {a.dtype} {op} {other}",
        at=str(a),
        because="arithmetic is between equal element types",
        help=('cast(x, "float32") converts, explicitly',),
    )


def _arithmetic(op: str, a: Any, b: Any) -> Value:
    x, y = _pair(op, a, b)
    dtype = x.dtype
    if dtype == "bool":
        raise _type_error(op, x, str(y.dtype))
    if op in ("//", "%") and not (
        dtype not in FLOATS and isinstance(y.node, Const) and y.node.value > 0
    ):
        raise DescribeError(
            "compute",
            f"cannot take {x} {op} {y}",
            because="// and % floor integers, by a positive constant",
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
    return _combine(node, x, y)


def _compare(op: str, a: Any, b: Any) -> Value:
    x, y = _pair(op, a, b)
    return _combine(Compare(op, x.node, y.node), x, y)


def _logic(op: str, *args: Any) -> Value:
    for arg in args:
        if not (isinstance(arg, Value) and arg.dtype == "bool"):
            raise DescribeError(
                "compute",
                f"cannot take {op} of {arg}",
                because="& | ~ join conditions, such as (i >= 1) & (i < n)",
            )
    return _combine(Logic(op, tuple(arg.node for arg in args)), *args)


def _unary(op: str, a: Any) -> Value:
    _check_no_tensor(op, a)
    if not isinstance(a, Value) or (a.dtype not in FLOATS and op not in ("neg", "abs")):
        shown = f"{a.dtype} {a}" if isinstance(a, Value) else repr(a)
        raise DescribeError(
            "compute", f"cannot take {op} of {shown}", because=f"{op} is for float elements"
        )
    if isinstance(a.node, Const) and op == "neg":
        return Value(Const(-a.node.value, a.node.dtype))
    return _combine(Unary(op, a.node), a)


def exp(a: Value) -> Value:
    """``e**a``, within 2 ULP (float32)."""
    return _unary("exp", a)


def log(a: Value) -> Value:
    """The natural logarithm of `a`, the C library's; -inf of 0, NaN below."""
    return _unary("log", a)


def tanh(a: Value) -> Value:
    """The hyperbolic tangent of `a`, within 2 ULP (float32)."""
    return _unary("tanh", a)


def erf(a: Value) -> Value:
    """``2/sqrt(pi) * integral of exp(-t**2) from 0 to a``, within 2 ULP (float32)."""
    return _unary("erf", a)


def sqrt(a: Value) -> Value:
    """The square root of `a`, correctly rounded."""
    return _unary("sqrt", a)


def absolute(a: Value) -> Value:
    """The absolute value of `a`."""
    return _unary("abs", a)


def maximum(a: Any, b: Any) -> Value:
    """The larger of two, by element; NaN where either is NaN."""
    return _extreme("max", a, b)


def minimum(a: Any, b: Any) -> Value:
    """The smaller of two, by element; NaN where either is NaN."""
    return _extreme("min", a, b)


def _extreme(op: str, a: Any, b: Any) -> Value:
    _check_no_tensor(f"{op}imum", a, b)
    if not isinstance(a, Value) and not isinstance(b, Value):
        raise DescribeError(
            "compute",
            f"cannot take {op}imum of {a!r} and {b!r}",
            because="neither is an expression",
        )
    x, y = _pair(op, a, b)
    return _combine(Binary(op, x.node, y.node), x, y)


def where(condition: Value, a: Any, b: Any) -> Value:
    """`a` where the condition holds, else `b`; only the branch taken is accessed."""
    _check_no_tensor("where", condition, a, b)
    if not (isinstance(condition, Value) and condition.dtype == "bool"):
        raise DescribeError(
            "where",
            f"cannot choose by {condition}",
            because="the condition is a comparison of elements, axes or sizes",
        )
    if not isinstance(a, Value) and not isinstance(b, Value):
        raise DescribeError(
            "where",
            f"cannot tell the element type of {a!r} and {b!r}",
            because="both are Python scalars",
            help=('where(c, cast(1.0, "float32"), 0.0)',),
        )
    x, y = _pair("where", a, b)
    return _combine(Select(condition.node, x.node, y.node), condition, x, y)


def cast(a: Any, dtype: str) -> Value:
    """`a`, an expression, a size or a Python scalar, converted to `dtype`."""
    if dtype not in DTYPES:
        raise DescribeError(
            "cast", f"cannot convert to {dtype!r}", because=f"element types are {', '.join(DTYPES)}"
        )
    if isinstance(a, bool | int | float):
        _check_range(a, dtype)
        return Value(Const(float(a) if dtype in FLOATS else int(a), dtype))
    _check_no_tensor("cast", a)
    value = a if isinstance(a, Value) else _size_value(a)
    if value is None:
        raise DescribeError("cast", f"cannot convert {a!r}", because="it is not an expression")
    if value.dtype == dtype:
        return value
    return _combine(Cast(value.node, dtype), value)


def index(value: Any) -> Value:
    """`value`, an integer element, as an index: ``table[index(ids[i]), j]``.

    value   an element of int64, int32, int8 or uint8; a coordinate, a size or an int is an index as
            it is

    No proof knows what an array holds, so that the kernel itself compares such an index with the
    extents of what it reads: one below 0 or not below the extent is refused by CallError. Only the
    branch of a `where` that is taken is asked.

    Raises DescribeError for floats and conditions.
    """
    found = value if isinstance(value, Value) else _size_value(value)
    if found is None or found.dtype not in (*INTEGERS, "index"):
        shown = repr(value) if found is None else f"{found.dtype} {found}"
        raise DescribeError(
            "index",
            f"cannot take {shown} as an index",
            because=f"an index is made of {', '.join(INTEGERS)}",
        )
    return found if found.dtype == "index" else _combine(Cast(found.node, "index"), found)


def _reduce(op: str, value: Any, axis: Any) -> Value:
    _check_no_tensor(op, value)
    axes = axis if isinstance(axis, tuple | list) else (axis,)
    named: list[Axis] = []
    for a in axes:
        if not (isinstance(a, Value) and isinstance(a.node, Var) and len(a.axes) == 1):
            raise DescribeError(
                op,
                f"cannot reduce over {a!r}",
                because="it is not an axis made by reduce_axis",
                help=('k = reduce_axis(768, name="k"); sum(A[i, k], axis=k)',),
            )
        named.append(a.axes[0])
    if not isinstance(value, Value) or value.dtype in ("bool", "index"):
        shown = f"{value.dtype} {value}" if isinstance(value, Value) else repr(value)
        raise DescribeError(
            op, f"cannot reduce {shown}", because="a reduction is over tensor elements"
        )
    names = tuple(a.name for a in named)
    if len(set(names)) != len(names):
        raise DescribeError(op, f"cannot reduce over {names}", because="an axis is named twice")
    return _combine(Reduce(op, value.node, names), value, *axes)


def sum(value: Any, axis: Any) -> Value:
    """``sum of value over axis``, accumulated in the type of `value`; 0 over no element."""
    return _reduce("sum", value, axis)


def max(value: Any, axis: Any) -> Value:
    """The greatest `value` over `axis`; the least value of the type over no element."""
    return _reduce("max", value, axis)


def min(value: Any, axis: Any) -> Value:
    """The least `value` over `axis`; the greatest value of the type over no element."""
    return _reduce("min", value, axis)


def reduce_axis(extent: Any, name: str = "k") -> Value:
    """A reduction axis: ``0 <= name < extent``, for ``sum(…, axis=)``."""
    axis = Axis(checked_name("reduce_axis", name), size_expr(extent, "reduce_axis"))
    return Value(Var(axis.name), (), (axis,))


def placeholder(shape: Sequence[Any], dtype: str = "float32", name: str = "A") -> Tensor:
    """An input of the computation.

    shape   one size per axis: ints and expressions in sizes, in elements
    """
    checked_name("placeholder", name)
    if dtype not in DTYPES:
        raise DescribeError(
            "placeholder",
            f"cannot hold {dtype!r}",
            at=f"tensor {name}",
            because=f"element types are {', '.join(DTYPES)}",
        )
    return Tensor(name, checked_shape("placeholder", name, shape), dtype)


def compute(
    shape: Sequence[Any],
    fn: Callable[..., Any],
    name: str = "C",
    axes: Sequence[str] | None = None,
) -> Tensor:
    """The tensor whose element at ``(i, j, …)`` is ``fn(i, j, …)``.

    shape   one size per axis
    fn      called once with one axis per parameter; the parameters name the axes
    axes    the names, for ``lambda *ix``

    A reduction inside a larger expression, ``sum(…) + bias[j]``, becomes a tensor of its own.

    Raises DescribeError when ranks, names or element types do not fit.
    """
    checked_name("compute", name)
    extents = checked_shape("compute", name, shape)
    names = axis_names(fn, name, axes, len(extents))
    own = tuple(Axis(n, extent) for n, extent in zip(names, extents, strict=True))
    value = fn(*(Value(Var(axis.name), (), (axis,)) for axis in own))
    if isinstance(value, Tensor):
        raise value.no_operand(f"{value.name} as an element of {name}")
    if not isinstance(value, Value):
        raise DescribeError(
            "compute",
            f"cannot store {value!r}",
            at=f"tensor {name}",
            because="the function gives no expression",
            help=('cast(1.0, "float32") is a constant expression',),
        )
    if value.dtype in ("bool", "index"):
        raise DescribeError(
            "compute",
            f"cannot store {value} of type {value.dtype}",
            at=f"tensor {name}",
            because="a tensor holds numbers",
            help=('cast(i, "int32")', "where(condition, a, b)"),
        )
    return _define(name, extents, own, value)


def _define(name: str, extents: tuple[Any, ...], own: tuple[Axis, ...], value: Value) -> Tensor:
    """The tensor of `value`, with reductions inside it lifted into tensors of their own."""
    known = {axis.name: axis for axis in value.axes}
    tensors = {tensor.name: tensor for tensor in value.tensors}
    if any(other is not tensors[other.name] for other in value.tensors) or name in tensors:
        raise DescribeError(
            "compute",
            f"cannot read two tensors of one name in {name}",
            because=f"names {', '.join(sorted(t.name for t in value.tensors))} are not all different",
        )
    for node in walk(value.node):
        if isinstance(node, Reduce) and any(isinstance(n, Reduce) for n in walk(node.value)):
            raise DescribeError(
                "compute",
                f"cannot reduce inside a reduction: {format_expr(node)}",
                at=f"tensor {name}",
                because="each reduction is a tensor of its own",
                help=("compute the inner one first, and read it",),
            )
    lifted: dict[Expr, Tensor] = {}

    def lift(node: Expr) -> Expr | None:
        if not isinstance(node, Reduce) or node is value.node:
            return None
        if node not in lifted:
            suffix = f"_{len(lifted)}" if lifted else ""
            part = _tensor(
                f"{name}_{node.op}{suffix}", extents, own, node, known, tensors, value.sizes
            )
            lifted[node] = tensors[part.name] = part
        part = lifted[node]
        return Load(part.name, tuple(Var(axis.name) for axis in own), part.dtype)

    body = value.node if isinstance(value.node, Reduce) else rewrite(value.node, lift)
    return _tensor(name, extents, own, body, known, tensors, value.sizes)


def _tensor(
    name: str,
    extents: tuple[Any, ...],
    own: tuple[Axis, ...],
    body: Expr,
    known: dict[str, Axis],
    tensors: dict[str, Tensor],
    sizes: tuple[Dim, ...],
) -> Tensor:
    reduced = tuple(known[n] for n in body.axes) if isinstance(body, Reduce) else ()
    clash = {axis.name for axis in own} & {axis.name for axis in reduced}
    if clash:
        raise DescribeError(
            "compute",
            f"cannot use {', '.join(sorted(clash))} as an axis and as a reduction axis",
            at=f"tensor {name}",
            because="an axis is known by its name",
            help=('reduce_axis(extent, name="r")',),
        )
    allowed = {*own, *reduced}
    used = {node.name for node in walk(body) if isinstance(node, Var)}
    foreign = [axis for axis in known.values() if axis.name in used and axis not in allowed]
    if foreign:
        raise DescribeError(
            "compute",
            f"cannot use the axis {foreign[0].name} here",
            at=f"tensor {name}",
            because="it is neither an axis of the tensor nor reduced by this sum, max or min",
            help=(f"sum(…, axis={foreign[0].name})",),
        )
    read = dict.fromkeys(node.buffer for node in walk(body) if isinstance(node, Load))
    reads = tuple(tensors[buffer] for buffer in read)
    return Tensor(name, extents, dtype_of(body), Compute(own, reduced, body, reads, sizes))
