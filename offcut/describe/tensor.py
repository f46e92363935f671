"""Tensors: a shape, an element type and a name go in, an input or a computation comes out.

Describing a computation builds nodes and checks what a single node can show (ranks, element types,
axes). What needs sets (accesses in bounds) is proved when the computation is cut.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from offcut.core.dtypes import DTYPES, INTEGERS, to_dtype
from offcut.core.expr import Expr, Load, Reduce, Var, dtype_of, rewrite, walk
from offcut.core.sizes import Dim
from offcut.core.text.printer import format_expr
from offcut.describe.axes import axis_names, checked_name, checked_shape
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
                at=self.described,
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
            at=tensor.described,
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
