"""A node, or several in a row, as tensors: operands in, what `offcut.compile` takes out; a new value's type likewise.

An extent that is no number and no size of the graph, ``(h - 1)//2 + 1``, is a size of its own in a description: what a kernel
computes does not depend on where its sizes come from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from inspect import signature
from typing import Any

from offcut.core import index as ix
from offcut.core.expr import Binary, Const, Expr, Var, children, rebuild, variables, walk
from offcut.core.program import MAX_SIZE, Program, Size
from offcut.core.sizes import Dim, index_of, sympy_of
from offcut.describe.functions import where
from offcut.describe.tensor import Tensor, compute, placeholder
from offcut.describe.value import cast
from offcut.errors import DescribeError
from offcut.graph.graph import Argument, Node, Ref, Value, rename_values
from offcut.graph.operators import get_operator
from offcut.graph.program_operators import Call, ProgramApplication, apply_program, call_of
from offcut.graph.sizes import extents
from offcut.graph.views import VIEWS, is_seen_within
from offcut.ops.checks import axis_letters


class SymbolTable:
    """Extents as sizes of a description, and back: equal extents are one size.

    sizes  of the graph
    """

    def __init__(self, sizes: Sequence[Size]) -> None:
        self.sizes = {size.name: size for size in sizes}
        self.known: dict[Expr, Any] = {}
        self.extents: dict[str, Expr] = {}

    def of(self, extent: Expr) -> Any:
        """An int, or a size."""
        if isinstance(extent, Const):
            return int(extent.value)
        if extent not in self.known:
            dim = self.known[extent] = self._extent_value(extent)
            self.extents[dim.name] = extent
        return self.known[extent]

    def learn(self, shape: Sequence[Any]) -> None:
        """Let extents that are described by others be described so from here on: ``h//2`` is no size beside ``h``."""
        for one in shape:
            extent = self.extent(one)
            if not isinstance(extent, Const):
                self.known.setdefault(extent, one)

    def _extent_value(self, extent: Expr) -> Dim:
        if isinstance(extent, Var):
            size = self.sizes[extent.name]
            return Dim(size.name, size.min, size.max, size.multiple_of)
        number = len(self.known)
        while f"extent{number}" in self.sizes or f"extent{number}" in self.extents:
            number += 1
        every = tuple(self.sizes.values())
        low, high = extents.bounds(extent, every)
        by = extents.divisor(extent, every)
        return Dim(f"extent{number}", min(low, MAX_SIZE), min(high, MAX_SIZE), by)

    def size(self, expr: Expr) -> Any:
        """An index expression over the sizes of the graph, as one of the description."""
        own = extents.normal(expr)
        if own in self.known or isinstance(own, Const) or not is_affine(own):
            return self.of(own)
        names = {name: self.of(Var(name)) for name in variables(own)}
        return sympy_of(in_quotients(own), names)

    def extent(self, described: Any) -> Expr:
        """An extent of a description as one of the graph."""
        index = ix.const(described) if isinstance(described, int) else index_of(described)
        if index is None:
            raise ValueError(f"no extent: {described}")
        return extents.at(index, self.extents)


def in_quotients(extent: Expr) -> Expr:
    """``a % k`` as ``a - k*(a//k)``, which a call checks."""
    parts = tuple(map(in_quotients, children(extent)))
    match extent:
        case Binary("%", _, Const()):
            a, by = parts
            return Binary("-", a, Binary("*", by, Binary("//", a, by)))
        case _:
            return rebuild(extent, parts)


def is_affine(extent: Expr) -> bool:
    """Whether sets decide an extent as it is: no product of sizes, no maximum."""
    return not any(
        isinstance(part, Binary)
        and (part.op in ("min", "max") or (part.op == "*" and not isinstance(part.a, Const)))
        for part in walk(extent)
    )


class Description:
    """Values of a graph as tensors, computed one from the other.

    tensors  by value
    calls    of nodes that are loop programs, by their first result: their results are placeholders
    """

    def __init__(self, sizes: Sequence[Size]) -> None:
        self.dims = SymbolTable(sizes)
        self.tensors: dict[str, Tensor] = {}
        self.calls: dict[str, Call] = {}

    def placeholder_like(self, value: Value, shape: tuple[Expr, ...] | None = None) -> Tensor:
        """A value that comes from elsewhere, as a placeholder.

        shape  another one for it; None: its own
        """
        own = value.shape if shape is None else shape
        tensor = placeholder(tuple(map(self.dims.of, own)), value.dtype, value.name)
        self.tensors[value.name] = tensor
        return tensor

    def node(self, op: str, node: Node, names: Sequence[str]) -> tuple[Tensor, ...]:
        """The results of an operator whose operands are known, called `names`.

        Raises DescribeError for what it does not take.
        """
        if op == "slice" and (result := self._open_slice(node, names[0])) is not None:
            self.tensors[names[0]] = result
            return (result,)
        description = get_operator(op)(
            *(self.argument(one) for one in node.arguments),
            **{name: self.argument(one) for name, one in node.options},
            name=names[0],
        )
        if isinstance(description, Program):  # its sizes are called as those of the description
            own = apply_program(
                description, {tensor.name: tensor for tensor in self.tensors.values()}
            )
            return self.call_results(self.call(own).with_own_sizes(), names)
        if isinstance(description, ProgramApplication):
            return self.call_results(self.call(description), names)
        results = description if isinstance(description, tuple) else (description,)
        for result in results:
            self.dims.learn(result.shape)
        self.tensors.update(zip(names, results, strict=False))
        return results

    def _open_slice(self, node: Node, name: str) -> Tensor | None:
        """Return a slice that only a call knows to be within its axis, so that the call asks before a kernel runs; None for others.

        Its first element is a size of its own, 0 or more, and elements that no call asks for are 0: a kernel reads within the array at
        all sizes, whatever its sizes are to each other.
        """
        if not node.results:
            return None  # what an element of it is, is asked by itself, in no call
        x, *arguments = (self.argument(node.arguments[0]), *node.arguments[1:])
        own = VIEWS["slice"].arguments(x, *arguments, **dict(node.options))
        axis, step = own["axis"] % len(x.shape), own["step"]
        start, stop = extents.normal(own["start"]), extents.normal(own["stop"])
        extent, sizes = self.dims.extent(x.shape[axis]), tuple(self.dims.sizes.values())
        if is_seen_within(start, stop, extent, sizes):
            return None
        first, count = self.dims.of(start), self.dims.of(node.results[0].shape[axis])
        shape = (*x.shape[:axis], count, *x.shape[axis + 1 :])

        def element(*at: Any) -> Any:
            place = at[axis] * step + first
            value = x[(*at[:axis], place, *at[axis + 1 :])]
            return where(place < x.shape[axis], value, cast(0, x.dtype))

        return compute(shape, element, name, axis_letters(len(shape)))

    def call(self, applied_program: ProgramApplication) -> Call:
        """A loop program on tensors as one on values.

        Raises DescribeError where it does not take them.
        """
        shapes = [tuple(map(self.dims.extent, tensor.shape)) for tensor in applied_program.operands]
        sizes = {
            name: ix.const(size) if isinstance(size, int) else self.dims.extent(size)
            for name, size in applied_program.sizes.items()
        }
        return call_of(applied_program, shapes, sizes)

    def call_results(self, call: Call, names: Sequence[str]) -> tuple[Tensor, ...]:
        """The results of a loop program."""
        self.calls[names[0]] = call
        labels = (*names, *(f"{names[0]}_{n}" for n in range(len(names), len(call.results))))
        results = tuple(
            placeholder(tuple(map(self.dims.of, shape)), dtype, label)
            for label, (dtype, shape) in zip(labels, call.results, strict=True)
        )
        self.tensors.update(zip(names, results, strict=False))
        return results

    def argument(self, argument: Argument) -> Any:
        """An argument as the function of tensors takes it."""
        if isinstance(argument, Ref):
            return self.tensors[argument.name]
        if isinstance(argument, tuple):
            return tuple(self.argument(part) for part in argument)
        if isinstance(argument, Expr):
            return self.dims.size(argument)
        return argument


@dataclass(frozen=True, slots=True)
class Alike:
    """A node whose operands are called ``x0, x1, …``, and these: equal for nodes that compute the same.

    sizes  of its graph
    typed  its arguments and options as text: 1, 1.0 and True are equal, and are three
    """

    node: Node
    operands: tuple[Value, ...]
    sizes: tuple[Size, ...]
    typed: str


def alike(node: Node, values: Mapping[str, Value], sizes: tuple[Size, ...]) -> Alike:
    """What a node is but for the names of its operands and results."""
    names = {name: f"x{place}" for place, name in enumerate(node.operands)}
    arguments = tuple(rename_values(one, names) for one in node.arguments)
    options = tuple((name, rename_values(one, names)) for name, one in node.options)
    operands = tuple(Value(names[n], values[n].dtype, values[n].shape) for n in node.operands)
    same = Node((), node.op, arguments, options)
    return Alike(same, operands, sizes, arguments_text(same))


def arguments_text(node: Node) -> str:
    """Arguments and options as text."""
    return repr((node.arguments, node.options))


@lru_cache(maxsize=1024)
def description_of(same: Alike) -> tuple[Description, tuple[Tensor, ...]]:
    """What such nodes describe, and their results, the first of which is ``y``; nobody adds to it.

    Raises DescribeError for what the operator does not take.
    """
    description = Description(same.sizes)
    for value in same.operands:
        description.placeholder_like(value)
    return description, description.node(same.node.op, same.node, ("y",))


def infer_types(
    op: str,
    arguments: tuple[Argument, ...],
    options: tuple[tuple[str, Argument], ...],
    values: Mapping[str, Value],
    sizes: Sequence[Size],
) -> tuple[tuple[str, tuple[Expr, ...]], ...]:
    """The element type and the shape of each result of an operator.

    Raises DescribeError where it does not take such operands or options; the pairs that it says to be equal are extents of the graph.
    """
    node = Node((), op, arguments, options)
    _check_arguments(node, values)
    if op in VIEWS:
        first, *rest = arguments
        if not isinstance(first, Ref):
            raise DescribeError(
                "graph", f"cannot take {op} of {first!r}", because="its operand is a value"
            )
        x = values[first.name]
        return ((x.dtype, VIEWS[op].shape(x, *rest, **dict(options))),)
    try:
        return _types_of(alike(node, values, tuple(sizes)))
    except DescribeError:  # said once more, of the operands by their own names
        description = Description(sizes)
        for name in node.operands:
            description.placeholder_like(values[name])
        try:
            description.node(op, node, ("result",))
        except DescribeError as refused:
            dims = description.dims
            refused.equal = tuple((dims.extent(a), dims.extent(b)) for a, b in refused.equal)
            raise
        raise


@lru_cache(maxsize=4096)
def _types_of(same: Alike) -> tuple[tuple[str, tuple[Expr, ...]], ...]:
    description, results = description_of(same)
    return tuple(
        (one.dtype, tuple(description.dims.extent(extent) for extent in one.shape))
        for one in results
    )


def _check_arguments(node: Node, values: Mapping[str, Value]) -> None:
    """Refuse values that are not there, and arguments that the operator does not have."""
    for name in node.operands:
        if name not in values:
            raise DescribeError(
                "graph", f"cannot read the value {name}", because="nothing before gives it"
            )
    view = VIEWS.get(node.op)
    function = get_operator(node.op) if view is None else view.shape
    options = dict(node.options)
    if "name" in options:
        raise DescribeError(
            "graph", f"cannot apply {node.op} so", because="results= names what a node gives"
        )
    try:
        signature(function).bind(*node.arguments, **options)
    except TypeError as error:
        names = ", ".join(name for name in signature(function).parameters if name != "name")
        raise DescribeError(
            "graph",
            f"cannot apply {node.op} so",
            because=str(error),
            help=(f"{node.op}({names})",),
        ) from None
