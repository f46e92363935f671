"""Attention, traced without asking which of its sizes are 1, as torch does under a mask to choose a kernel; but that there are as many
values as keys, which a cache of each does not say, is a guard.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch._C import DispatchKey
from torch.fx.experimental.symbolic_shapes import guard_or_false

aten = torch.ops.aten


def attention(
    q: Any,
    k: Any,
    v: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    """Attention under a mask, by the kernel that torch would choose; every other call as torch decides it."""
    mask = attn_mask
    if enable_gqa:  # how many heads share one of keys is a number, so both are
        _ = [int(one.shape[-3]) for one in (q, k, v)]
    paired = min(k.dim(), v.dim()) > 1 and bool(k.shape[-2] == v.shape[-2])  # asked in any case
    if (
        dropout_p
        or enable_gqa
        or is_causal
        or mask is None
        or not (paired and _fits(q, k, v, mask))
    ):
        arguments = (q, k, v, attn_mask, dropout_p, is_causal)
        return aten.scaled_dot_product_attention.default._op_dk(
            DispatchKey.CompositeImplicitAutograd, *arguments, scale=scale, enable_gqa=enable_gqa
        )
    if mask.dtype is torch.bool:
        mask = torch.zeros_like(mask, dtype=q.dtype).masked_fill(~mask, -math.inf)
    result, _ = aten._scaled_dot_product_flash_attention_for_cpu(
        q, k, v, attn_mask=mask, scale=scale
    )
    return result


def _fits(q: Any, k: Any, v: Any, mask: Any) -> bool:
    """Whether torch's kernel for the CPU takes the call, and each axis of the mask is the number 1 or that of the scores."""
    arrays = q, k, v, mask
    return (
        all(one.dim() == 4 and one.device.type == "cpu" for one in arrays)
        and not (mask.requires_grad or q.dtype not in _FLOATS)
        and all(one.dtype == q.dtype for one in (k, v))
        and mask.dtype in (torch.bool, q.dtype)
        and all(guard_or_false(one.stride(3) == 1) for one in (q, k, v))
        and all(guard_or_false(one.shape[3] == q.shape[3]) for one in (k, v))
        and not any(guard_or_false(size == 0) for one in (q, k) for size in one.shape)
        and all(one.shape[axis] == q.shape[axis] for one in (k, v) for axis in (0, 1))
        and all(
            (isinstance(own, int) and own == 1) or own == size
            for own, size in zip(mask.shape, (*q.shape[:3], k.shape[2]), strict=True)
        )
    )


_FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
