"""Which sizes of a description are those of elements that do not know of each other: a batch, rows, tokens.

A size ``n`` is *parallel* where each tensor has at most one axis that is ``n``, and for all ``i`` the elements of a computed tensor at
``i`` along that axis read the elements at ``i`` of what they read, and nothing else asks for ``i``, or for ``n``. So the part ``[i, i + c)``
of all results is what the same description computes of that part of all inputs, with ``c`` in place of ``n``.

    y[i, j] = x[i, j] + b[j]        parallel along i and j        y[i, j] = x[i, j] / n         along j
    y[i, j] = sum(x[i, k]*w[k, j])  along i and j                 y[i, j] = x[n - 1 - i, j]     along j
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from offcut.core.expr import Expr, Var, all_loads, walk
from offcut.core.sizes import Dim
from offcut.describe.tensor import Compute, Tensor, sizes_of


@dataclass(frozen=True, slots=True)
class Coupling:
    """What shows that elements along a size know of each other.

    tensor  whose elements do, or whose shape has no axis of the size
    how     in words; "" where an element reads one of `read` that is not its own
    at      where that is read along the axis that has the size
    """

    tensor: str
    how: str = ""
    read: str = ""
    at: Expr | None = None


def parallel_axes(tensors: Sequence[Tensor]) -> dict[str, dict[str, int] | Coupling]:
    """Of each size, which axis of each tensor it is, tensors without it left out; what couples its elements where it is not parallel.

    tensors  those that are computed, and all that they read
    """
    return {size.name: _axes(size, tensors) for size in sizes_of(tensors)}


def _axes(size: Dim, tensors: Sequence[Tensor]) -> dict[str, int] | Coupling:
    axes = dict[str, int]()
    for tensor in tensors:
        for axis, extent in enumerate(tensor.shape):
            if size not in getattr(extent, "free_symbols", ()):
                continue
            if extent != size:
                return Coupling(tensor.name, "has an axis that is not as long as that")
            if tensor.name in axes:
                return Coupling(tensor.name, "has two axes of that length")
            axes[tensor.name] = axis
    for tensor in tensors:
        if tensor.definition is not None:
            coupling = _coupling(tensor.name, tensor.definition, size, axes)
            if coupling is not None:
                return coupling
    return axes


def _coupling(
    name: str, definition: Compute, size: Dim, axes: Mapping[str, int]
) -> Coupling | None:
    """What an element asks for beside its own place of what is read; None where it is nothing."""
    own = Var(definition.axes[axes[name]].name) if name in axes else None
    read = [load for load in all_loads(definition.body) if load.buffer in axes]
    for load in read:
        at = load.index[axes[load.buffer]]
        if at != own:
            return Coupling(name, read=load.buffer, at=at)
    if size in definition.sizes:
        return Coupling(name, "computes with its value")
    if any(size in getattr(axis.extent, "free_symbols", ()) for axis in definition.reduce_axes):
        return Coupling(name, "adds up as many")
    count = sum(
        node == own for node in walk(definition.body)
    )  # by each read once, and by nothing else
    if own is not None and count != len(read):
        return Coupling(name, "computes with the index along it")
    return None
