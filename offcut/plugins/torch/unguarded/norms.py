"""Norms of groups of channels, traced without asking which sizes are 1: torch asks it to choose a layout."""

from __future__ import annotations

import math
from typing import Any

import torch

from offcut.plugins.torch.unguarded.layout import contiguous, has_channels_last

aten = torch.ops.aten


def group_norm(
    x: Any,
    num_groups: int,
    weight: Any = None,
    bias: Any = None,
    eps: float = 1e-5,
    cudnn_enabled: bool = True,
) -> Any:
    """The norm of each group: by rows, or with channels last where an image is so.

    Raises RuntimeError where groups do not divide the channels.
    """
    batch, channels, *inner = x.shape
    torch._check(channels % num_groups == 0, lambda: f"{channels} channels in {num_groups} groups")
    last = has_channels_last(x)
    kind = torch.channels_last if last else torch.contiguous_format
    x = x if last else contiguous(x)
    # Torch's kernel reads its weights side by side, however they lie.
    weight, bias = (None if one is None else contiguous(one) for one in (weight, bias))
    found = aten.native_group_norm(
        x, weight, bias, batch, channels, math.prod(inner), num_groups, eps
    )[0]
    return found.contiguous(memory_format=kind) if last else found
