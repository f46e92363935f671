"""A graph that runs: one kernel for each distinct operator, bound to its constants, in order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from offcut.backends.target import Target
from offcut.core.interpret.run_arguments import checked_arrays, checked_sizes
from offcut.describe.request import Array
from offcut.graph.describing import Description
from offcut.graph.graph import Bound, Node, Value, renamed
from offcut.graph.interpret import concrete, declaration_of
from offcut.graph.views import VIEWS
from offcut.kernel import Kernel
from offcut.pipeline import compile


@dataclass(frozen=True)
class Step:
    """A kernel, and which values it takes and gives."""

    kernel: Kernel
    operands: tuple[str, ...]
    results: tuple[str, ...]


class Model:
    """A graph compiled for all its sizes: ``model({"x": x})`` gives the outputs by name.

    bound  the graph that runs, with its constants
    """

    def __init__(self, bound: Bound, steps: Sequence[Step | Node]) -> None:
        self.bound, self.steps = bound, tuple(steps)
        self.declared = declaration_of(bound.graph)

    def __call__(self, inputs: Mapping[str, Any], **sizes: int) -> dict[str, Array]:
        """The outputs by name.

        inputs  an array for each input
        sizes   those that no shape determines

        Raises CallError where an array does not fit.
        """
        given = checked_arrays(self.declared, inputs)
        known = checked_sizes(self.declared, given, sizes)
        held: dict[str, Any] = {**self.bound.arrays, **given}
        for step in self.steps:
            if isinstance(step, Step):
                made = step.kernel(*(held[name] for name in step.operands))
                results = made if isinstance(made, tuple) else (made,)
                held.update(zip(step.results, results, strict=True))
            else:
                first, *rest = (concrete(one, held, known) for one in step.arguments)
                options = {name: concrete(one, held, known) for name, one in step.options}
                held[step.results[0].name] = VIEWS[step.op].apply(first, *rest, **options)
        return {name: held[name] for name in self.bound.graph.outputs}


def compiled(bound: Bound, threads: int | None = None, target: str | Target = "cpu") -> Model:
    """A model of a graph.

    threads  that a kernel may use; None: as `offcut.compile` says

    Raises DescribeError, PartitionError or TargetError for what a kernel cannot be made of.
    """
    kernels: dict[tuple[object, ...], Kernel] = {}
    steps: list[Step | Node] = []
    values = bound.graph.values
    for node in bound.graph.nodes:
        if node.op in VIEWS:
            steps.append(node)
            continue
        names = {name: f"x{place}" for place, name in enumerate(node.operands)}
        arrays = {names[name]: bound.arrays[name] for name in names if name in bound.arrays}
        alike = Node((), node.op, *_renamed(node, names))
        types = tuple(Value(names[name], values[name].dtype, values[name].shape) for name in names)
        key = alike, types, tuple(arrays)
        if key in kernels:
            found = kernels[key]
            kernel = found.with_constants(arrays) if arrays else found
        else:
            description = Description(bound.graph.sizes)
            tensors = [description.given(value) for value in types]
            made = description.node(node.op, alike, ("y",))
            kernel = kernels[key] = compile(
                made, inputs=tensors, constants=arrays, threads=threads, target=target
            )
        steps.append(
            Step(
                kernel,
                tuple(name for name in node.operands if name not in bound.arrays),
                tuple(value.name for value in node.results),
            )
        )
    return Model(bound, steps)


def _renamed(node: Node, names: Mapping[str, str]) -> tuple[Any, Any]:
    return (
        tuple(renamed(one, names) for one in node.arguments),
        tuple((name, renamed(one, names)) for name, one in node.options),
    )
