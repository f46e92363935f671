"""Which sizes of a description are those of elements that do not know of each other: a batch, rows, tokens.

Along such a size a part of all results is computed from the same part of what is read, so a kernel may be called for a
part at a time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from offcut.core.expr import Var, all_loads, walk
from offcut.core.sizes import Dim
from offcut.describe.reads import sizes_of
from offcut.describe.tensor import Compute, Tensor


def parallel_axes(tensors: Sequence[Tensor]) -> dict[str, dict[str, int]]:
    """Of each size along which all results at a place depend on what is read at that place alone: the axes that are it, by tensor.

    tensors  those that are computed, and all that they read
    """
    found = {size.name: _axes(size, tensors) for size in sizes_of(tensors)}
    return {name: axes for name, axes in found.items() if axes}


def _axes(size: Dim, tensors: Sequence[Tensor]) -> dict[str, int]:
    """The axis of each tensor that has one; none where places depend on others, or on how many there are."""
    axes = dict[str, int]()
    for tensor in tensors:
        for axis, extent in enumerate(tensor.shape):
            if size not in getattr(extent, "free_symbols", ()):
                continue
            if extent != size or tensor.name in axes:
                return {}
            axes[tensor.name] = axis
    for tensor in tensors:
        if tensor.definition is not None and not _apart(tensor.name, tensor.definition, size, axes):
            return {}
    return axes


def _apart(name: str, made: Compute, size: Dim, axes: Mapping[str, int]) -> bool:
    """Whether each element is of its own place of what is read."""
    if size in made.sizes:
        return False
    if any(size in getattr(axis.extent, "free_symbols", ()) for axis in made.reduce_axes):
        return False
    own = Var(made.axes[axes[name]].name) if name in axes else None
    read = [load for load in all_loads(made.body) if load.buffer in axes]
    if any(load.index[axes[load.buffer]] != own for load in read):
        return False
    return own is None or len(read) == sum(node == own for node in walk(made.body))
