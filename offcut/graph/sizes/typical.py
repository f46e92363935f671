"""Sizes where none is known: expressions are compared at them, and kernels priced."""

from __future__ import annotations

from collections.abc import Sequence

from offcut.core.program import Size

TYPICAL = 64
"""Of a size; one of a narrower range takes its nearest."""


def typical_sizes(sizes: Sequence[Size]) -> dict[str, int]:
    """A value for each size."""
    return {size.name: _typical(size) for size in sizes}


def _typical(size: Size) -> int:
    near = min(max(TYPICAL, size.min), size.max)
    return near - near % size.multiple_of
