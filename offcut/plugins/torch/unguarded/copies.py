"""What is written to a part of an array, traced without asking which of its sizes are 1: torch asks it to see how elements lie."""

from __future__ import annotations

from typing import Any

import torch

SHARED, UNKNOWN = 1, 2
"""As torch numbers what it finds of two elements of one array."""


def overlap(x: Any) -> int:
    """`SHARED` where an axis repeats its elements, as one that is broadcast does; `UNKNOWN` of all others."""
    axes = zip(x.shape, x.stride(), strict=True)
    repeats = any(isinstance(step, int) and step == 0 and size > 1 for size, step in axes)
    return SHARED if repeats else UNKNOWN


def copy(mode: Any, op: Any, x: Any, source: Any, non_blocking: bool = False) -> Any:
    """An array of the same shape that holds what is broadcast to it, without the elements.

    Raises RuntimeError where that cannot be broadcast.
    """
    with mode:
        torch._refs.expand(source, x.shape)
        return x.new_empty(x.shape)
