"""Convolutions, traced without asking which of their sizes are 1: torch asks it to choose a library, and by that a layout."""

from __future__ import annotations

from typing import Any

import torch
from torch._meta_registrations import calc_conv_nd_return_shape


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
    step = x.stride(1)
    last = x.dim() == 4 and isinstance(step, int) and step == 1 and x.shape[1] != 1
    with mode:
        found = x.new_empty(shape)
        return found.to(memory_format=torch.channels_last) if last else found
