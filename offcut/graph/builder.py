"""A graph made node by node: operators called on values give values; shapes and types are found on the way."""

from __future__ import annotations

import operator
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from offcut.core.dtypes import DTYPES, to_dtype
from offcut.core.expr import Const, Expr, Var, variables
from offcut.core.integers import whole
from offcut.core.program import Program, Size
from offcut.describe.computation import RESERVED
from offcut.describe.request import Array, to_constant
from offcut.errors import DescribeError
from offcut.graph.graph import Argument, Bound, Graph, Node, Ref, Value
from offcut.graph.sizes.extents import normal
from offcut.graph.tensor_semantics import infer_types
from offcut.graph.views import VIEWS


class Mark(NamedTuple):
    """How many nodes and constants a graph had."""

    nodes: int
    constants: int


class Builder:
    """What a graph consists of so far; its name is an identifier, which may have dots.

    >>> from offcut.graph import Builder
    >>> made = Builder("mlp")
    >>> batch = made.size("batch", 1, 512)
    >>> x = made.input("x", "float32", (batch, 16))
    >>> w = made.input("w", "float32", (16, 9))
    >>> made.output(made.node("relu", made.node("matmul", x, w)))
    >>> print(made.graph)
    graph mlp
    size batch in 1:513
    input x: float32[batch, 16]
    input w: float32[16, 9]
    matmul: float32[batch, 9] = matmul(x, w)
    relu: float32[batch, 9] = relu(matmul)
    output relu
    """

    def __init__(self, name: str = "graph") -> None:
        if not (isinstance(name, str) and all(part.isidentifier() for part in name.split("."))):
            written = re.sub(r"\W", "_", str(name))
            raise DescribeError(
                "graph",
                f"cannot name a graph {name!r}",
                because="a name is an identifier, which may have dots",
                help=(f'Builder("{written if written.isidentifier() else "graph"}")',),
            )
        self.name = name
        self.sizes: dict[str, Size] = {}
        self.assumptions: list[Expr] = []
        self.values: dict[str, Value] = {}
        self.inputs: list[Value] = []
        self.constants: dict[str, Value] = {}
        self.arrays: dict[str, Array] = {}
        self.nodes: list[Node] = []
        self.outputs: list[str] = []
        self.later: set[str] = set()  # names that are kept for nodes to come

    def size(self, name: str, low: int = 0, high: int = 2**31 - 1, multiple_of: int = 1) -> Expr:
        """A size, as an extent.

        Raises DescribeError for facts that no value meets, or where another size or a value has the name.
        """
        if not (isinstance(name, str) and name.isascii() and name.isidentifier()):
            because = "a size is known by an ASCII identifier"
            raise DescribeError("graph", f"cannot name a size {name!r}", because=because)
        for fact in (low, high, multiple_of):
            if whole(fact) is None:
                because = f"{fact!r} is not an integer"
                raise DescribeError("graph", f"cannot declare the size {name}", because=because)
        if not (
            0 <= low <= high and multiple_of >= 1 and -(-low // multiple_of) * multiple_of <= high
        ):
            because = f"no value is in {low}…{high} and a multiple of {multiple_of}"
            raise DescribeError("graph", f"cannot declare the size {name}", because=because)
        known = self.sizes.setdefault(name, Size(name, low, high, multiple_of))
        if known != Size(name, low, high, multiple_of) or name in self.values:
            raise DescribeError(
                "graph", f"cannot declare the size {name}", because="its name is taken already"
            )
        return Var(name)

    def assume(self, condition: Expr) -> None:
        """A condition over the sizes that every call meets."""
        self.assumptions.append(condition)

    def input(self, name: str, dtype: str, shape: Iterable[Expr | int]) -> Ref:
        """An array that a call gives.

        Raises DescribeError where there is no such element type, or the name is taken.
        """
        kind = to_dtype(dtype)
        if kind is None:
            because = f"element types are {', '.join(DTYPES)}"
            raise DescribeError("graph", f"cannot hold {dtype!r}", at=name, because=because)
        value = self._value(name, kind, self._shape(name, shape))
        self.inputs.append(value)
        return Ref(value.name, self)

    def constant(self, name: str, array: Any) -> Ref:
        """An array that is known: copied, where somebody might write to it.

        Raises DescribeError where there is no such element type, or the name is taken.
        """
        copy = to_constant(np.asarray(array))
        if str(copy.dtype) not in DTYPES:
            because = f"element types are {', '.join(DTYPES)}"
            raise DescribeError("graph", f"cannot hold {copy.dtype}", at=name, because=because)
        value = self._value(name, str(copy.dtype), tuple(normal(int(e)) for e in np.shape(array)))
        self.constants[value.name] = value
        self.arrays[value.name] = copy.reshape(np.shape(array))
        return Ref(value.name, self)

    def node(
        self, op: str, *arguments: Argument, results: Iterable[str] = (), **options: Argument
    ) -> Any:
        """The result of an operator, or several.

        results  their names; by default that of the operator, made fresh

        Raises DescribeError where the operator does not take such operands, or one is of another builder.
        """
        for argument in (*arguments, *options.values()):
            self._check_own(argument, op)
        arguments = tuple(map(plain, arguments))
        sorted_options = tuple(sorted((name, plain(value)) for name, value in options.items()))
        types = infer_types(op, arguments, sorted_options, self.values, tuple(self.sizes.values()))
        wished, values = list(results), list[Value]()
        for place, (dtype, shape) in enumerate(types):
            name = wished[place] if place < len(wished) else op
            is_wished = place < len(wished) and name in self.later
            values.append(self._value(name if is_wished else self.fresh(name), dtype, shape))
        self.later.difference_update(value.name for value in values)
        self.nodes.append(Node(tuple(values), op, arguments, sorted_options))
        refs = tuple(Ref(value.name, self) for value in values)
        return refs[0] if len(refs) == 1 else refs

    def shape(self, value: Ref) -> tuple[Expr, ...]:
        """The shape of a value.

        Raises DescribeError for a value that is not there.
        """
        self._check(value, "ask for the shape of {}")
        return self.values[value.name].shape

    def is_zero(self, value: Ref) -> bool:
        """Whether a value is known to be nothing but zeros: a constant, a view of one, or that in another type.

        Raises DescribeError for a value that is not there.
        """
        self._check(value, "look for zeros in {}")
        name = value.name
        for node in reversed(self.nodes):
            if node.op in (*VIEWS, "cast") and node.results[0].name == name:
                (name,) = node.operands
        array = self.arrays.get(name)
        return array is not None and not array.any()

    @property
    def mark(self) -> Mark:
        """Where the graph is, for `back_to`."""
        return Mark(len(self.nodes), len(self.constants))

    def back_to(self, mark: Mark) -> frozenset[str]:
        """Take back the nodes and constants that were made since: the names of their values, which others may have now.

        Sizes and inputs stay. Nobody may read such a value any more.
        """
        constants = tuple(self.constants)[mark.constants :]
        results = [value.name for node in self.nodes[mark.nodes :] for value in node.results]
        del self.nodes[mark.nodes :]
        for name in constants:
            del self.values[name], self.constants[name], self.arrays[name]
        for name in results:
            del self.values[name]
        return frozenset((*constants, *results))

    def output(self, *values: Ref) -> None:
        """What a call gives back, after what it gave before.

        Raises DescribeError for a value that is not there.
        """
        for value in values:
            self._check(value, "give {} back")
        self.outputs += [value.name for value in values]

    def fresh(self, name: str) -> str:
        """An identifier like `name` that names nothing yet, and is no word of the loop syntax."""
        base = "".join(c if c.isascii() and (c.isalnum() or c == "_") else "_" for c in name)
        base = base if base[:1].isalpha() or base[:1] == "_" else f"v{base}"
        candidate, number = base, 1
        used_names = (self.values, self.sizes, self.later, RESERVED)
        while any(candidate in names for names in used_names):
            number += 1
            candidate = f"{base}_{number}"
        return candidate

    @property
    def graph(self) -> Graph:
        """The graph so far."""
        return Graph(
            self.name,
            tuple(self.sizes.values()),
            tuple(self.assumptions),
            tuple(self.inputs),
            tuple(self.constants.values()),
            tuple(self.nodes),
            tuple(self.outputs),
        )

    @property
    def bound(self) -> Bound:
        """The graph so far, with its constants."""
        return Bound(self.graph, dict(self.arrays))

    def _check(self, value: Ref, what: str) -> None:
        """That a value, for which there is a ``{}`` in what is done with it, is one of this graph."""
        if not isinstance(value, Ref):
            raise DescribeError(
                "graph",
                f"cannot {what.format(repr(value))}",
                because=f"it is a {type(value).__name__}, no value of the graph",
                help=("what input, constant and node give",),
            )
        self._check_own(value, "", what)
        if value.name not in self.values:
            because = "no input, constant or node is called so"
            raise DescribeError("graph", f"cannot {what.format(value.name)}", because=because)

    def _check_own(self, argument: Argument, at: str, what: str = "take {}") -> None:
        """That no value of an argument was given by another builder: its name may be that of another value here."""
        if isinstance(argument, list | tuple):
            for one in argument:
                self._check_own(one, at, what)
        elif isinstance(argument, Ref) and argument.builder not in (None, self):
            name = getattr(argument.builder, "name", "")
            raise DescribeError(
                "graph",
                f"cannot {what.format(argument.name)}",
                at=at,
                because=f"another Builder gave it, that of the graph {name}; this one is that of {self.name}",
                help=(
                    f"{argument.name} = builder.input(…), an input of this graph",
                    "one Builder for all nodes of a graph",
                ),
            )

    def _shape(self, name: str, shape: Iterable[Expr | int]) -> tuple[Expr, ...]:
        """A shape in the form of graphs; refused where an extent is none, or names no size."""
        extents = tuple(shape) if isinstance(shape, Iterable) else ()
        good = isinstance(shape, Iterable) and all(
            variables(one) <= set(self.sizes) if isinstance(one, Expr) else _is_extent(one)
            for one in extents
        )
        if not good:
            because = "an extent is an int of at least 0, or an expression over sizes of the graph"
            raise DescribeError(
                "graph", f"cannot take the shape {shape!r}", at=name, because=because
            )
        return tuple(
            normal(one if isinstance(one, Expr) else operator.index(one)) for one in extents
        )

    def _value(self, name: str, dtype: str, shape: tuple[Expr, ...]) -> Value:
        if name not in self.later and self.fresh(name) != name:
            raise DescribeError(
                "graph",
                f"cannot name a value {name!r}",
                because="it is not an identifier, a word of the syntax, or taken",
            )
        value = Value(name, dtype, shape)
        self.values[name] = value
        return value


def _is_extent(one: object) -> bool:
    extent = whole(one)
    return extent is not None and extent >= 0


def plain(argument: Argument) -> Argument:
    """An argument in the form that graphs hold: values by their names, lists as tuples, numbers of any kind as Python's, extents in their form, programs as
    texts.
    """
    if isinstance(argument, Program):
        return str(argument)
    if isinstance(argument, list | tuple):
        return tuple(map(plain, argument))
    if isinstance(argument, Ref):
        return Ref(argument.name)
    if isinstance(argument, np.generic):
        return plain(argument.item())
    if isinstance(argument, np.ndarray):
        raise DescribeError(
            "graph",
            f"cannot take an array of shape {argument.shape} as an argument",
            because="a node reads values of its graph",
            help=('builder.constant("w", array)',),
        )
    if isinstance(argument, Const):
        return int(argument.value)
    if isinstance(argument, Expr):
        extent = normal(argument)
        return int(extent.value) if isinstance(extent, Const) else extent
    return argument


def rebuilt(graph: Graph, arrays: Mapping[str, Array]) -> Builder:
    """A builder that has the sizes, inputs and constants of a graph, and no node yet; the names of its values are kept for them."""
    builder = Builder(graph.name)
    builder.sizes = {size.name: size for size in graph.sizes}
    builder.assumptions = list(graph.assumptions)
    builder.inputs = list(graph.inputs)
    builder.constants = {value.name: value for value in graph.constants}
    builder.arrays = dict(arrays)
    builder.values = {value.name: value for value in (*graph.inputs, *graph.constants)}
    builder.later = {value.name for node in graph.nodes for value in node.results}
    return builder
