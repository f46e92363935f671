"""Averages over whole images, traced without asking which sizes are 1: torch asks it to choose a layout."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._C import DispatchKey

aten = torch.ops.aten


def average(op: Any, axes: int) -> Callable[..., Any]:
    """What stands for an adaptive average over so many innermost axes."""

    def averaged(x: Any, output_size: Sequence[Any]) -> Any:
        """The mean where one place is asked for; every other call as torch decides it."""
        if x.dim() > axes and all(isinstance(one, int) and one == 1 for one in output_size):
            return x.mean(tuple(range(-axes, 0)), keepdim=True)
        return op._op_dk(DispatchKey.CompositeImplicitAutograd, x, output_size)

    return averaged
