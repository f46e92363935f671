"""How the results of torch lie in memory: the strides that it expects, as functions of sizes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

import sympy
import torch
from torch.utils._sympy.functions import Max

from offcut.plugins.torch.sizes import symbols_of, sympy_of, values_of

Strides: TypeAlias = Callable[[Mapping[str, int]], tuple[int, ...]]
"""Of a tensor, as a function of sizes."""


def expected_strides(fake: Any) -> Strides | None:
    """Return the strides that torch expects of a result, as a function of sizes; None where they are those of an array by rows."""
    own = [_without_max(sympy_of(stride)) for stride in fake.stride()]
    if _is_dense(fake, range(fake.dim())) or 0 in own:
        return None
    return values_of(own)


def memory_order(fake: Any) -> tuple[int, ...] | None:
    """Return the axes as they lie in memory, outermost first; None where elements do not lie side by side."""
    symbols = sorted(symbols_of(fake.stride()), key=str)
    apart = {symbol: 97 + number for number, symbol in enumerate(symbols)}
    steps = [int(sympy_of(stride).subs(apart)) for stride in fake.stride()]
    order = tuple(sorted(range(fake.dim()), key=lambda axis: -steps[axis]))
    return order if _is_dense(fake, order) else None


def _is_dense(fake: Any, order: Iterable[int]) -> bool:
    """Return whether elements lie side by side, by the axes in that order, outermost first."""
    step = sympy.Integer(1)
    for axis in reversed([*order]):
        extent = sympy_of(fake.shape[axis])
        if extent != 1 and _without_max(sympy_of(fake.stride(axis))) != step:
            return False
        step = step * extent
    return True


def _without_max(stride: Any) -> Any:
    """Return a stride without ``Max(1, s)``, which torch writes for sizes that may be 0."""

    def bare(*args: Any) -> Any:
        others = [one for one in args if one != 1]
        return others[0] if len(others) == 1 else Max(*args)

    return stride.replace(Max, bare)


def with_strides(tensor: Any, strides: Strides | None, sizes: Mapping[str, int]) -> Any:
    """Return a tensor, or a copy of it, in the strides that torch expects."""
    if strides is None:
        return tensor.contiguous()
    expected = strides(sizes)
    if tensor.stride() == expected:
        return tensor
    copy = torch.empty_strided(tensor.shape, expected, dtype=tensor.dtype, device=tensor.device)
    copy.copy_(tensor)
    return copy


__all__ = ["expected_strides", "memory_order", "with_strides"]
