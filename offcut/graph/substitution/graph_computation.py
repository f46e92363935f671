"""A whole graph as one computation, each node a function of those before it, in the sizes of the graph alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from offcut.core.dtypes import FLOATS, numpy_dtype
from offcut.core.expr import Const, Expr, Var, variables
from offcut.core.sizes import sympy_of
from offcut.describe.computation import Computation, computation
from offcut.describe.request import Array
from offcut.describe.tensor import Tensor, compute
from offcut.errors import DescribeError, OffcutError
from offcut.graph.graph import Graph, Node, Ref
from offcut.graph.interpret import run_node
from offcut.graph.sizes import extents
from offcut.graph.tensor_semantics import Description, SymbolTable, in_quotients, is_affine
from offcut.graph.views import VIEWS
from offcut.ops.checks import axis_letters


class NotDescribed(Exception):
    """A graph with a node that is no function of tensors: which, and why."""


def computation_of(graph: Graph) -> tuple[Computation, dict[str, Expr]]:
    """Return what a graph computes, and what sizes that are none of the graph's are in terms of these.

    Results are called as the graph's outputs, inputs as its inputs.

    Raises NotDescribed for a node that is a loop program, or a reshape that no index says.
    """
    description = Description(graph.sizes)
    description.dims = _Sizes(graph.sizes)
    inputs = [description.placeholder_like(value) for value in graph.inputs]
    for node in graph.nodes:
        names = [value.name for value in node.results]
        try:
            if node.op == "reshape":
                description.tensors[names[0]] = _reshape_of(description, graph, node)
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


class _Sizes(SymbolTable):
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


def _reshape_of(description: Description, graph: Graph, node: Node) -> Tensor:
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


# How far apart two graphs that compute the same may be: what rounding does, and no more.
#
#     |after - before|  <=  part*|before| + part*(the largest |before| of the array) + swing          part = ULPS*(the epsilon of a type)
#
# An element's swing is the most that it moves, in float64, where inputs and all results on the way move by up to `part` of themselves: much
# for a difference of large numbers, nothing for a product with a small one. So a sign or a factor is seen however small a result is. What
# jumps, as by rounding to integers, does so by no more where these move `FURTHER`: the jump is then no swing.

ULPS = 32
"""Roundings that add up: of sums in another order, and of functions."""
RUNS = 4
"""Of a graph whose results move."""
FURTHER = 16
"""What moves so much further as its inputs do does not jump; as far as `SMOOTH` of these."""
SMOOTH = 1e-3


def rounding_unit(dtypes: Iterable[str]) -> float:
    """What of an element rounding may change: of the widest steps that one of some types has; 0 without floats."""
    every = (ml_dtypes.finfo(numpy_dtype(name)).eps for name in dtypes if name in FLOATS)
    return ULPS * max(map(float, every), default=0.0)


def rounding_tolerance(
    graph: Graph, inputs: Mapping[str, Array], sizes: Mapping[str, int], part: float
) -> dict[str, Array]:
    """Of each element of the outputs how far it moves; infinitely far where it does not stay finite.

    graph  computes in float64
    """
    generator = np.random.default_rng(0)

    def perturb(array: Array, by: float) -> Array:
        if array.dtype.kind in "biu":
            return array
        return np.asarray(array * (1 + by * generator.uniform(-1, 1, array.shape)), array.dtype)

    def outputs(by: float) -> dict[str, Array]:
        declared = {value.name: numpy_dtype(value.dtype) for value in graph.inputs}
        values = {name: perturb(array.astype(declared[name]), by) for name, array in inputs.items()}
        for node in graph.nodes:
            of = 0.0 if node.op in VIEWS else by
            results = (perturb(array, of) for array in run_node(node, values, sizes))
            values.update(zip((value.name for value in node.results), results, strict=True))
        return {name: values[name].astype("f8") for name in graph.outputs}

    def most(still: Mapping[str, Array], by: float) -> dict[str, Array]:
        off = {name: np.zeros(array.shape) for name, array in still.items()}
        for _ in range(RUNS):
            try:
                now = outputs(by)
            except OffcutError:  # moved so far that an operator does not take it
                return {name: np.full(array.shape, np.inf) for name, array in still.items()}
            for name, array in now.items():
                change = np.nan_to_num(np.abs(array - still[name]), nan=np.inf)
                off[name] = np.maximum(off[name], change)
        return off

    with np.errstate(all="ignore"):
        still = outputs(0.0)
        near = most(still, part)
        if FURTHER * part > SMOOTH:
            return near
        far = most(still, FURTHER * part)
        return {name: np.minimum(off, far[name] * (2 / FURTHER)) for name, off in near.items()}
