"""Convolutions, traced without asking which of their sizes are 1: torch asks it to choose a library, and by that a layout."""

from __future__ import annotations

from typing import Any

import torch
from torch._meta_registrations import calc_conv_nd_return_shape

from offcut.plugins.torch.unguarded.layout import has_channels_last


def convolution(mode: Any, op: Any, *arguments: Any, **options: Any) -> Any:
    """The result without its elements: by rows, or with channels last where an image is so.

    Raises RuntimeError where channels or element types do not fit, or an image is smaller than the window.
    """
    names = [one.name for one in op._schema.arguments]
    given = {**dict(zip(names, arguments, strict=False)), **options}
    x, weight, transposed = (given[name] for name in ("input", "weight", "transposed"))
    torch._check(x.dtype == weight.dtype, lambda: f"{x.dtype} with weights of {weight.dtype}")
    if transposed:
        torch._check(x.shape[1] == weight.shape[0], lambda: "channels that the weights have not")
    shape = calc_conv_nd_return_shape(
        x,
        weight,
        *(given[name] for name in ("stride", "padding", "dilation")),
        transposed,
        given["groups"],
        given["output_padding"] if transposed else None,
    )
    with mode:
        found = x.new_empty(shape)
        return found.to(memory_format=torch.channels_last) if has_channels_last(x) else found
