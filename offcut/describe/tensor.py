"""Tensors: a shape, an element type and a name go in, an input or a computation comes out.

Describing a computation builds nodes and checks what a single node can show (ranks, element types,
axes). What needs sets (accesses in bounds) is proved when the computation is cut.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from offcut.core.dtypes import DTYPES, INTEGERS, to_dtype
from offcut.core.expr import Expr, Load, Reduce, Var, dtype_of, rewrite, walk
from offcut.core.sizes import Dim, size_expr
from offcut.core.text.printer import format_expr
from offcut.describe.refusals import NoOperand
from offcut.describe.value import Axis, Value, combine, size_value
from offcut.errors import DescribeError, trim_traceback


@dataclass(frozen=True, slots=True)
class Compute:
    """``tensor[axes] = body``; a `body` that reduces has its `Reduce` outermost.

    sizes     those that the body names; `size_var` says how
    operands  of an operator, as it was given them: in this order they are inputs of a kernel where nobody says one
    """

    axes: tuple[Axis, ...]
    reduce_axes: tuple[Axis, ...]
    body: Expr
    reads: tuple[Tensor, ...]
    sizes: tuple[Dim, ...] = ()
    operands: tuple[Tensor, ...] = ()


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
        if len(indices) != len(self.shape):
            raise DescribeError(
                "compute",
                f"cannot read {self.name} with {len(indices)} indices",
                at=self.tensor_text,
                because=f"it has {len(self.shape)} axes",
                help=(f"{self.element} is an element",),
            )
        parts = [_index_value(part, self) for part in indices]
        load = Load(self.name, tuple(part.node for part in parts), self.dtype)
        return combine(load, *parts, tensors=(self,))

    __call__ = __getitem__

    def __repr__(self) -> str:
        return f"{self.name}: {self.dtype}[{', '.join(map(str, self.shape))}]"


def _index_value(part: Any, tensor: Tensor) -> Value:
    """Return an index of an element of `tensor`.

    Raises DescribeError for what is no integer expression in axes and sizes.
    """
    value = part if isinstance(part, Value) else size_value(part)
    if value is None or value.dtype != "index":
        shown = part if value is None else f"{value} of type {value.dtype}"
        raise DescribeError(
            "compute",
            f"cannot index with {shown}",
            at=tensor.tensor_text,
            because="an index is an integer expression in axes and sizes",
            help=("index(…) of an element is asked when the kernel is called",)
            if value is not None and value.dtype in INTEGERS
            else (),
        )
    return value


@trim_traceback
def placeholder(shape: Sequence[Any], dtype: str = "float32", name: str = "A") -> Tensor:
    """An input of the computation.

    shape   one size per axis: ints and expressions in sizes, in elements
    dtype   an element type by its name, or numpy's
    """
    checked_name("placeholder", name)
    kind = to_dtype(dtype)
    if kind is None:
        raise DescribeError(
            "placeholder",
            f"cannot hold {dtype!r}",
            at=f"tensor {name}",
            because=f"element types are {', '.join(DTYPES)}",
        )
    return Tensor(name, checked_shape("placeholder", name, shape), kind)


@trim_traceback
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
    if value.dtype == "index":
        raise DescribeError(
            "compute",
            f"cannot store {value} of type {value.dtype}",
            at=f"tensor {name}",
            because="a tensor holds elements",
            help=('cast(i, "int32")', 'cast(i, "int64")'),
        )
    return _define(name, extents, own, value)


def _define(name: str, extents: tuple[Any, ...], own: tuple[Axis, ...], value: Value) -> Tensor:
    """The tensor of `value`, with reductions inside it lifted into tensors of their own."""
    known = {axis.name: axis for axis in value.axes}
    tensors = {tensor.name: tensor for tensor in value.tensors}
    if any(other is not tensors[other.name] for other in value.tensors) or name in tensors:
        called = [tensor.name for tensor in value.tensors]
        twice = name if name in tensors else next(one for one in called if called.count(one) > 1)
        raise DescribeError(
            "compute",
            f"cannot read two tensors of one name in {name}",
            because=f"two of them are called {twice}"
            if twice != name
            else f"it reads another {name}",
            help=(f'name="{twice}2" of one of them, or one tensor in both places',),
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


def tensors_of(outputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """`outputs` and all that they read, each after what it reads."""
    order: dict[Tensor, None] = {}
    pending = [(tensor, False) for tensor in reversed(outputs)]
    while pending:
        tensor, ready = pending.pop()
        if tensor in order:
            continue
        reads = tensor.definition.reads if tensor.definition is not None else ()
        if ready or not reads:
            order[tensor] = None
        else:
            pending.append((tensor, True))
            pending += [(read, False) for read in reversed(reads)]
    return tuple(order)


def sizes_of(tensors: Sequence[Tensor]) -> tuple[Dim, ...]:
    """Every symbolic size in the shapes and bodies of `tensors`, by first appearance.

    Raises DescribeError when two sizes of one name carry different facts.
    """
    found: dict[str, Dim] = {}
    for tensor in tensors:
        definition = tensor.definition
        extents = [*tensor.shape]
        if definition is not None:
            extents += [axis.extent for axis in definition.reduce_axes]
            extents += definition.sizes
        for extent in extents:
            for symbol in sorted(extent.free_symbols, key=str):
                other = found.setdefault(symbol.name, symbol)
                if other != symbol:
                    raise DescribeError(
                        "compute",
                        f"cannot tell two sizes named {symbol.name} apart",
                        at=f"tensor {tensor.name}",
                        because=f"one is {_facts(other)}, the other {_facts(symbol)}",
                        help=("make the size once, and use it in every shape",),
                    )
    return tuple(found.values())


def _facts(size: Dim) -> str:
    multiple = f", a multiple of {size.multiple_of}" if size.multiple_of != 1 else ""
    return f"{size.min}…{size.max}{multiple}"


_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def checked_name(what: str, name: Any) -> str:
    """`name`, which is an ASCII identifier; `what` is the user's call."""
    if not (isinstance(name, str) and name.isidentifier() and name.isascii()):
        raise DescribeError(
            what, f"cannot take the name {name!r}", because="names are ASCII identifiers"
        )
    return name


def checked_shape(what: str, name: str, shape: Any) -> tuple[Any, ...]:
    """The extents of the tensor `name`, as sizes; `what` is the user's call.

    Raises DescribeError where it is no sequence of sizes that are at least 0.
    """
    if isinstance(shape, str) or not isinstance(shape, Sequence):
        raise DescribeError(
            what,
            f"cannot take the shape {shape!r}",
            at=f"tensor {name}",
            because="a shape is a tuple of sizes",
            help=("(n, 768)", "(n,)"),
        )
    sizes = tuple(size_expr(extent, what) for extent in shape)
    for axis, extent in enumerate(sizes):
        if extent.is_Integer and extent < 0:
            raise DescribeError(
                what,
                f"cannot take the extent {extent}",
                at=f"tensor {name}, axis {axis}",
                because="an extent is at least 0",
            )
    return sizes


def axis_names(
    fn: Callable[..., Any], name: str, axes: Sequence[str] | None, rank: int, op: str = "compute"
) -> tuple[str, ...]:
    """The names of the axes of `name`: `axes`, else the parameters of `fn`; `op` is the user's call.

    Raises DescribeError where they are no names, or not `rank` different ones.
    """
    if not callable(fn):
        raise DescribeError(
            op,
            f"cannot {op} with {fn!r}",
            at=f"tensor {name}",
            because="it is not a function of the axes",
            help=(f"{op}({'(n,)' if op == 'compute' else name}, lambda i: A[i] + 1.0)",),
        )
    if axes is not None and not isinstance(axes, Sequence):
        raise DescribeError(
            op,
            f"cannot take axes={axes!r}",
            at=f"tensor {name}",
            because="axes are a tuple of names",
            help=('axes=("i", "j")',),
        )
    parameters = [p for p in inspect.signature(fn).parameters.values() if p.default is p.empty]
    if axes is None and any(p.kind not in _POSITIONAL for p in parameters):
        raise DescribeError(
            op,
            "cannot name the axes",
            at=f"tensor {name}",
            because="the function's parameters are not all plain names",
            help=('axes=("i", "j")',),
        )
    names = tuple(axes) if axes is not None else tuple(p.name for p in parameters)
    if len(names) != rank:
        raise DescribeError(
            op,
            f"cannot give {rank} axes the names {', '.join(names) or '(none)'}",
            at=f"tensor {name}",
            because=f"the shape has {rank} extents and the function {len(names)} parameters",
        )
    for axis in names:
        checked_name(op, axis)
    if len(set(names)) != len(names):
        raise DescribeError(
            op,
            f"cannot name axes {names}",
            at=f"tensor {name}",
            because="a name is repeated",
        )
    return names
