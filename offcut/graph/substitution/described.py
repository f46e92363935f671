"""A whole graph as one computation, each node a function of those before it, in the sizes of the graph alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from offcut.core.expr import Const, Expr, Var, variables
from offcut.core.sizes import sympy_of
from offcut.describe.computation import Computation, computation
from offcut.describe.tensor import Tensor, compute
from offcut.errors import DescribeError
from offcut.graph.describing import Description, Dims, in_quotients, is_affine
from offcut.graph.graph import Graph, Node, Ref
from offcut.graph.sizes import extents
from offcut.ops.given.operands import axis_letters


class NotDescribed(Exception):
    """A graph with a node that is no function of tensors: which, and why."""


def computation_of(graph: Graph) -> tuple[Computation, dict[str, Expr]]:
    """Return what a graph computes, and what sizes that are none of the graph's are in terms of these.

    Results are called as the graph's outputs, inputs as its inputs.

    Raises NotDescribed for a node that is a loop program, or a reshape that no index says.
    """
    description = Description(graph.sizes)
    description.dims = _Sizes(graph.sizes)
    inputs = [description.given(value) for value in graph.inputs]
    for node in graph.nodes:
        names = [value.name for value in node.results]
        try:
            if node.op == "reshape":
                description.tensors[names[0]] = _reshaped(description, graph, node)
            else:
                description.node(node.op, node, names)
        except DescribeError as refused:
            raise NotDescribed(f"{names[0]}: {str(refused).splitlines()[0]}") from None
        if names[0] in description.calls:
            raise NotDescribed(f"{names[0]} = {node.op}(…) is a loop program")
    outputs = [description.tensors[name] for name in graph.outputs]
    if any(tensor.definition is None for tensor in outputs):
        raise NotDescribed("an output is an input as it is")
    return computation(outputs, inputs), description.dims.extents


class _Sizes(Dims):
    """Extents as expressions of the sizes of a graph, so that ``a + b`` is known to be that; one that is not quasi-affine is a size of its own."""

    def of(self, extent: Expr) -> Any:
        """An int, a size, or an expression of sizes."""
        own = extents.normal(extent)
        if isinstance(own, Const):
            return int(own.value)
        if isinstance(own, Var) or not is_affine(own):
            return super().of(own)
        return sympy_of(in_quotients(own), {name: self.of(Var(name)) for name in variables(own)})

    def learn(self, shape: Sequence[Any]) -> None:
        """Nothing is to be learned: extents are what they say."""


def _reshaped(description: Description, graph: Graph, node: Node) -> Tensor:
    """A reshape, by the axes that merge and part together."""
    operand = node.arguments[0]
    assert isinstance(operand, Ref)
    name, own, shape = node.results[0].name, graph.values[operand.name].shape, node.results[0].shape
    groups = _merging(own, shape)
    if groups is None:
        raise NotDescribed(f"{name} = reshape(…): which axes merge is not seen")
    x = description.tensors[operand.name]
    before = [description.dims.of(extent) for extent in own]
    after = [description.dims.of(extent) for extent in shape]

    def element(*point: Any) -> Any:
        at: list[Any] = [0] * len(before)
        for theirs, mine in groups:
            place: Any = 0
            for axis in mine:
                place = place * after[axis] + point[axis]
            long = [axis for axis in theirs if before[axis] != 1]
            for axis in reversed(long[1:]):
                at[axis], place = place % before[axis], place // before[axis]
            if long:
                at[long[0]] = place
        return x[tuple(at)]

    return compute(tuple(after), element, name, axis_letters(len(after)))


def _merging(
    before: Sequence[Expr], after: Sequence[Expr]
) -> list[tuple[list[int], list[int]]] | None:
    """Axes of two shapes in groups of equally many elements; None where these are not seen."""
    groups, i, j = list[tuple[list[int], list[int]]](), 0, 0
    while i < len(before) or j < len(after):
        mine, theirs = [i] if i < len(before) else [], [j] if j < len(after) else []
        i, j = i + len(mine), j + len(theirs)
        while True:
            a = extents.product(before[axis] for axis in mine)
            b = extents.product(after[axis] for axis in theirs)
            if a == b:
                break
            if i < len(before) and (extents.quotient(b, a) is not None or j == len(after)):
                mine, i = [*mine, i], i + 1
            elif j < len(after):
                theirs, j = [*theirs, j], j + 1
            else:
                return None
        groups.append((mine, theirs))
    return groups
