"""The calls of kernels that run a graph."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from offcut.backends.abi import DeviceEntry, Entry
from offcut.backends.memory import Memory
from offcut.core.expr import Expr
from offcut.core.memo import lazy_property
from offcut.errors import InternalError
from offcut.graph.sizes import extents
from offcut.graph.sizes.extent_values import Numbers
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
