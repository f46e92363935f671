"""A graph on arrays, by the reference interpreter of loop programs: nothing is fused, planned or compiled."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from offcut.core import index as ix
from offcut.core.expr import Expr
from offcut.core.interpret.run_arguments import checked_arrays, checked_sizes
from offcut.core.interpret.values import evaluate
from offcut.core.program import Buffer, Kind, Program
from offcut.describe.computation import computation, source
from offcut.describe.request import Array
from offcut.errors import CallError
from offcut.graph.graph import Argument, Bound, Graph, Node, Ref, Value
from offcut.graph.program_operators import given_to
from offcut.graph.tensor_semantics import alike, description_of
from offcut.graph.views import VIEWS


def interpret_graph(bound: Bound, inputs: Mapping[str, Any], **sizes: int) -> dict[str, Array]:
    """The outputs by name.

    inputs  an array for each input
    sizes   those that no shape determines

    Raises CallError where an array does not fit.
    """
    if not isinstance(bound, Bound):
        raise CallError(
            "graph", f"cannot interpret {bound!r}", because="it is not a graph with its constants"
        )
    graph = bound.graph
    declared = declaration_of(graph)
    arrays = checked_arrays(declared, inputs)
    known = checked_sizes(declared, arrays, sizes)
    known_arrays: dict[str, Array] = {**bound.arrays, **arrays}
    for node in graph.nodes:
        known_arrays.update(
            zip((v.name for v in node.results), run_node(node, known_arrays, known), strict=True)
        )
    return {name: known_arrays[name] for name in graph.outputs}


def declaration_of(graph: Graph) -> Program:
    """What a call of a graph takes, as a program that does nothing: its sizes, what they promise, and its inputs."""
    inputs = tuple(Buffer(v.name, v.dtype, v.shape, Kind.INPUT) for v in graph.inputs)
    return Program(graph.name, graph.sizes, graph.assumptions, inputs, ())


def run_node(
    node: Node, arrays_by_name: Mapping[str, Array], sizes: Mapping[str, int]
) -> tuple[Array, ...]:
    """The results of a node."""
    if node.op in VIEWS:
        first, *rest = (evaluate_argument(one, arrays_by_name, sizes) for one in node.arguments)
        options = {
            name: evaluate_argument(one, arrays_by_name, sizes) for name, one in node.options
        }
        if node.op == "reshape":  # of no element, what -1 stands for is in the result's shape alone
            rest, options = [evaluate_argument(node.results[0].shape, arrays_by_name, sizes)], {}
        return (VIEWS[node.op].apply(first, *rest, **options),)
    values = {
        name: Value(
            name, arrays_by_name[name].dtype.name, tuple(map(ix.const, arrays_by_name[name].shape))
        )
        for name in node.operands
    }
    given_options = tuple((name, _evaluated_argument(one, sizes)) for name, one in node.options)
    fixed = Node(
        (), node.op, tuple(_evaluated_argument(one, sizes) for one in node.arguments), given_options
    )
    same = alike(fixed, values, ())
    description, results = description_of(same)
    operands = same.operands
    tensors = tuple(description.tensors[value.name] for value in operands)
    arrays = {
        value.name: arrays_by_name[name]
        for value, name in zip(operands, node.operands, strict=True)
    }
    for call in description.calls.values():
        inputs = zip(given_to(call.program), call.operands, strict=True)
        known = {name: int(evaluate(extent, {})) for name, extent in call.sizes.items()}
        results_of_call = call.program.run(
            {one.name: arrays[name] for one, name in inputs}, **known
        )
        return results_of_call if isinstance(results_of_call, tuple) else (results_of_call,)
    if any(result.definition is None for result in results):
        return tuple(arrays_by_name[node.operands[tensors.index(result)]] for result in results)
    outputs = source(computation(results, tensors)).run(arrays)
    return outputs if isinstance(outputs, tuple) else (outputs,)


def _evaluated_argument(argument: Argument, sizes: Mapping[str, int]) -> Argument:
    """An argument without sizes."""
    if isinstance(argument, tuple):
        return tuple(_evaluated_argument(part, sizes) for part in argument)
    if isinstance(argument, Expr):
        return int(evaluate(argument, sizes))
    return argument


def evaluate_argument(
    argument: Argument, arrays: Mapping[str, Array], sizes: Mapping[str, int]
) -> Any:
    """An argument as numpy takes it: arrays for values, numbers for extents."""
    if isinstance(argument, Ref):
        return arrays[argument.name]
    if isinstance(argument, tuple):
        return tuple(evaluate_argument(part, arrays, sizes) for part in argument)
    return _evaluated_argument(argument, sizes)
