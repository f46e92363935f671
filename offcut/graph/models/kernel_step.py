"""The calls of kernels that run a graph."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from offcut.backends.abi import DeviceEntry, Entry
from offcut.backends.memory import Memory
from offcut.core.expr import Expr
from offcut.core.memo import lazy_property
from offcut.errors import InternalError
from offcut.graph.graph import Bound, Graph
from offcut.graph.sizes import extents
from offcut.graph.sizes.extent_values import Numbers
from offcut.graph.views import VIEWS, is_seen_within, is_within
from offcut.kernel import Kernel


@dataclass(frozen=True, slots=True)
class Operand:
    """An array of a call: ``root[offset]`` on, with the kernel's axes.

    offset, strides  in elements, over the sizes of the graph
    """

    value: str
    root: str
    dtype: str
    offset: Expr
    shape: tuple[Expr, ...]
    strides: tuple[Expr, ...]


@dataclass(frozen=True)
class Step:
    """A call of a kernel.

    code    the number of its code: two kernels of one code differ in constants alone
    name    of the value that it gives
    nodes   the operators that it runs
    inputs  of the kernel, in order; outputs likewise
    sizes   the kernel's sizes, in order, over those of the graph
    target  the name of the target that runs it; refused: those before it, and why they do not
    constants  of the graph: what the kernel calls each, and the order in which it has its axes
    limits     of its outputs, each of one element, where it measures what the next step reads: above one, the call is run again by
               sums as they are written; empty for any other step
    distributed  whether products are distributed over sums in it
    batch_strides  of each size of the graph that it has: the strides of its inputs and outputs along that, in elements, 0 of what all
               parts read; why it does not run for a part of it, where it may not
    device  what runs it in the memory of a device
    """

    kernel: Kernel
    entry: Entry | None
    code: int
    name: str
    nodes: tuple[str, ...]
    inputs: tuple[Operand, ...]
    outputs: tuple[Operand, ...]
    sizes: tuple[tuple[str, Expr], ...]
    target: str
    refused: tuple[tuple[str, str], ...] = ()
    constants: tuple[tuple[str, str, tuple[int, ...]], ...] = ()
    limits: tuple[float, ...] = ()
    distributed: bool = False
    batch_strides: Mapping[str, tuple[Expr, ...] | str] = field(default_factory=dict)
    device: DeviceEntry | None = None

    @property
    def arrays(self) -> tuple[Operand, ...]:
        """Inputs, then outputs."""
        return (*self.inputs, *self.outputs)

    @lazy_property
    def kernel_shapes(self) -> tuple[tuple[Expr, ...], ...]:
        """Return the shape of each array as the kernel's signature says it, over the sizes of the graph.

        Raises InternalError where the signature has other arrays, element types or ranks.
        """
        signature, sizes = self.kernel.signature, dict(self.sizes)
        arguments = (*signature.inputs, *signature.outputs)
        actual = [(one.dtype, len(one.shape)) for one in self.arrays]
        expected = [(one.dtype, len(one.shape)) for one in arguments]
        if actual != expected:
            raise InternalError(f"{self.name}: its kernel takes {expected}, and is given {actual}")
        return tuple(tuple(extents.at(e, sizes) for e in one.shape) for one in arguments)

    def refuses(self, number: Numbers) -> str:
        """Why the kernel does not run at sizes; "" where it does.

        number  the values of extents there
        """
        extents = {name: number(extent) for name, extent in self.sizes}
        for facts in self.kernel.signature.sizes:
            value = extents[facts.name]
            if not facts.min <= value <= facts.max or value % facts.multiple_of:
                of = f", multiples of {facts.multiple_of}" if facts.multiple_of > 1 else ""
                return f"an extent is {value}, and its kernel takes {facts.min}…{facts.max}{of}"
        for relation in self.kernel.signature.relations:
            if not relation.holds(extents):
                return f"it assumes {relation.text}"
        return ""


def for_memory(memory: Memory, step: Step) -> Step:
    """Return a step as it runs where values lie in a memory: by addresses of the process, or of a device."""
    if memory.is_host:
        return step
    is_there = step.kernel.code.target.memory is memory
    return replace(step, entry=None, device=step.kernel.device_entry if is_there else None)


# Slices that only a call knows to be within their axis, so that it asks before anything runs.
#
# Kernels read a slice as a part of its root's memory: one that goes beyond its axis would read the next row.


@dataclass(frozen=True, slots=True)
class OpenSlice:
    """``start:stop`` of an axis, which has so many elements.

    name  of its result
    """

    name: str
    axis: int
    start: Expr
    stop: Expr
    extent: Expr

    def fault(self, number: Callable[[Expr], int]) -> str:
        """Why it cannot be taken where extents have these values; "" where it can."""
        start, stop, extent = number(self.start), number(self.stop), number(self.extent)
        if is_within(start, stop, extent):
            return ""
        return f"{start}:{stop} of axis {self.axis} is not within 0:{extent}"


def open_slices(graph: Graph) -> Iterator[OpenSlice]:
    """Those of a graph that are not seen to be within their axis at all of its sizes."""
    for node in graph.nodes:
        if node.op != "slice":
            continue
        value = graph.values[node.operands[0]]
        own = VIEWS["slice"].arguments(value, *node.arguments[1:], **dict(node.options))
        axis = own["axis"] % len(value.shape)
        start, stop = extents.normal(own["start"]), extents.normal(own["stop"])
        if not is_seen_within(start, stop, value.shape[axis], graph.sizes):
            yield OpenSlice(node.results[0].name, axis, start, stop, value.shape[axis])


class Observed(Protocol):
    """A model that is called."""

    bound: Bound
    steps: tuple[Step, ...]

    def cost(self, **sizes: int) -> Any:
        """Return what its kernels are predicted to cost: a `ModelCost`."""


class Observer(Protocol):
    """Watches calls of models in a context."""

    def model(self, model: Observed, sizes: Mapping[str, int]) -> AbstractContextManager[Any]:
        """Return what is around a call of a model at these sizes."""

    def kernel(self, step: Step) -> AbstractContextManager[Any]:
        """Return what is around each run of a kernel, which is over at its end, on a device too."""


OBSERVER: ContextVar[Observer | None] = ContextVar("observer", default=None)


@contextmanager
def observed_by(observer: Observer) -> Iterator[None]:
    """Let `observer` watch the calls of models inside of the context."""
    token = OBSERVER.set(observer)
    try:
        yield
    finally:
        OBSERVER.reset(token)
