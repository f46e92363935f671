"""A graph: operators on arrays of symbolic shapes, in order, from inputs and constants to outputs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, TypeAlias

from offcut.core.expr import Expr
from offcut.core.memo import lazy_property
from offcut.core.program import Size
from offcut.describe.request import Array


@dataclass(frozen=True, slots=True)
class Ref:
    """A value of the graph, as an operand.

    builder  that gave it; None: any that has a value of this name
    """

    name: str
    builder: object = field(default=None, compare=False, repr=False)


Argument: TypeAlias = "Ref | Expr | int | float | bool | str | tuple[Argument, ...] | None"
"""Of an operator: an operand, an index expression over sizes that is no number, an option, or several."""


@dataclass(frozen=True, slots=True)
class Value:
    """An array: ``name: dtype[shape]``.

    shape  index expressions over the sizes of the graph, in the form of `offcut.graph.sizes.extents`
    """

    name: str
    dtype: str
    shape: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Node:
    """``results = op(*arguments, **options)``.

    op       one of `offcut.graph.operators`
    options  by name, sorted
    """

    results: tuple[Value, ...]
    op: str
    arguments: tuple[Argument, ...]
    options: tuple[tuple[str, Argument], ...] = ()

    @property
    def operands(self) -> tuple[str, ...]:
        """The names of the values that it reads, in order, each once."""
        every = (*self.arguments, *(argument for _, argument in self.options))
        return tuple(dict.fromkeys(name for one in every for name in refs(one)))

    def option(self, name: str, default: Argument = None) -> Argument:
        """An option; `default` where it is not given."""
        return dict(self.options).get(name, default)


@dataclass(frozen=True)
class Graph:
    """Operators in an order in which each comes after what it reads.

    assumptions  conditions over the sizes that every call meets
    inputs       in call order
    constants    arrays that are known before any call; their values are with the graph, not in it
    outputs      names of values; an input may be one

    The maps of values and of users are kept with it: passes ask for them at each node.
    """

    name: str
    sizes: tuple[Size, ...]
    assumptions: tuple[Expr, ...]
    inputs: tuple[Value, ...]
    constants: tuple[Value, ...]
    nodes: tuple[Node, ...]
    outputs: tuple[str, ...]

    @lazy_property
    def values(self) -> Mapping[str, Value]:
        """All values by name."""
        results = (value for node in self.nodes for value in node.results)
        return {value.name: value for value in (*self.inputs, *self.constants, *results)}

    @lazy_property
    def users(self) -> Mapping[str, tuple[Node, ...]]:
        """The nodes that read each value."""
        readers: dict[str, list[Node]] = {name: [] for name in self.values}
        for node in self.nodes:
            for name in node.operands:
                readers[name].append(node)
        return {name: tuple(nodes) for name, nodes in readers.items()}

    def __reduce__(self) -> tuple[Any, ...]:
        return Graph, tuple(getattr(self, one.name) for one in fields(self))

    def __str__(self) -> str:
        from offcut.graph.text import format_graph

        return format_graph(self)


@dataclass(frozen=True)
class Bound:
    """A graph with the values of its constants.

    arrays  by name, of the types and shapes that the graph declares; nobody writes to them
    """

    graph: Graph
    arrays: Mapping[str, Array] = field(default_factory=dict)

    def __str__(self) -> str:
        return str(self.graph)


def refs(argument: Argument) -> Iterator[str]:
    """The values that an argument names."""
    if isinstance(argument, Ref):
        yield argument.name
    elif isinstance(argument, tuple):
        for part in argument:
            yield from refs(part)


def rename_values(argument: Argument, names: Mapping[str, str]) -> Argument:
    """An argument that names other values."""
    if isinstance(argument, Ref):
        return Ref(names.get(argument.name, argument.name))
    if isinstance(argument, tuple):
        return tuple(rename_values(part, names) for part in argument)
    return argument
