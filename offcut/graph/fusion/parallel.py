"""Which sizes of a description are those of elements that do not know of each other: a batch, rows, tokens.

A size ``n`` is *parallel* where each tensor has at most one axis that is ``n``, and for all ``i`` the elements of a computed tensor at
``i`` along that axis read the elements at ``i`` of what they read, and nothing else asks for ``i``, or for ``n``. So the part ``[i, i + c)``
of all results is what the same description computes of that part of all inputs, with ``c`` in place of ``n``.

    y[i, j] = x[i, j] + b[j]        parallel along i and j        y[i, j] = x[i, j] / n         along j
    y[i, j] = sum(x[i, k]*w[k, j])  along i and j                 y[i, j] = x[n - 1 - i, j]     along j
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from offcut.core.expr import Var, all_loads, walk
from offcut.core.sizes import Dim
from offcut.describe.reads import sizes_of
from offcut.describe.tensor import Compute, Tensor


def parallel_axes(tensors: Sequence[Tensor]) -> dict[str, dict[str, int]]:
    """Of each parallel size, which axis of each tensor it is; tensors without it are left out.

    tensors  those that are computed, and all that they read
    """
    found = {size.name: _axes(size, tensors) for size in sizes_of(tensors)}
    return {name: axes for name, axes in found.items() if axes is not None}


def _axes(size: Dim, tensors: Sequence[Tensor]) -> dict[str, int] | None:
    """The axis of each tensor that has one; None where the size is not parallel."""
    axes = dict[str, int]()
    for tensor in tensors:
        for axis, extent in enumerate(tensor.shape):
            if size not in getattr(extent, "free_symbols", ()):
                continue
            if extent != size or tensor.name in axes:
                return None
            axes[tensor.name] = axis
    for tensor in tensors:
        if tensor.definition is not None and not _apart(tensor.name, tensor.definition, size, axes):
            return None
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
    asked = sum(node == own for node in walk(made.body))  # by each read once, and by nothing else
    return own is None or asked == len(read)
