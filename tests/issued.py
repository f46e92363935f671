"""One issue of a microkernel of fixed shape: operands at their places in, the result at its places out.

It is what an instruction on registers or on words does, in numpy and by the reference interpreter: the
elements are taken from where the layouts say that they lie, and what is computed is laid back.
"""

from __future__ import annotations

from collections.abc import Mapping

from offcut import Microkernel
from offcut.core.layout import Array
from offcut.describe.computation import computation, source


def laid(kernel: Microkernel, operand: str, array: Array) -> Array:
    """An operand or the result of `kernel`, each element at its place; as it is without a layout."""
    layout = kernel.layout_of(operand)
    return array if layout is None else layout.arrange(array)


def taken(kernel: Microkernel, operand: str, stored: Array) -> Array:
    """An operand or the result of `kernel`, from where its elements lie."""
    layout, tensors = kernel.layout_of(operand), (kernel.computes, *kernel.definition.reads)
    shape = next(tensor.shape for tensor in tensors if tensor.name == operand)
    return stored if layout is None else layout.restore(stored, [int(extent) for extent in shape])


def issued(kernel: Microkernel, stored: Mapping[str, Array], start: Array | None = None) -> Array:
    """What `kernel` leaves where its result lies.

    stored   each operand by its name, where its elements lie
    start    what lies where the result goes, which a sum adds to; None: zeros
    """
    inputs = {name: taken(kernel, name, array) for name, array in stored.items()}
    name = kernel.computes.name
    result: Array = source(computation([kernel.computes])).run(inputs)
    if start is not None:
        result = taken(kernel, name, start) + result
    return laid(kernel, name, result)
