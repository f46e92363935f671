"""Axes of 1 that are left out, traced with a guard: a result without an axis is another than one with it.

With sizes that start at 0, torch takes a size that is not known to be 1 for one that is not, in a batch of 1, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def squeeze(x: Any, dim: int | Sequence[int] | None = None) -> Any:
    """The elements without the axes that are 1, among those that are named."""
    named = range(x.dim()) if dim is None else (dim,) if isinstance(dim, int) else dim
    gone = {axis % x.dim() for axis in named if x.dim()}
    kept = [axis for axis in range(x.dim()) if axis not in gone or not bool(x.shape[axis] == 1)]
    shape, strides = ([of[axis] for axis in kept] for of in (x.shape, x.stride()))
    return x.as_strided(shape, strides, x.storage_offset())
