"""Operators of which torch asks whether a size is 1, traced without that question: a batch of 1 then needs no graph of its own.

Of an array whose axes are exchanged, `contiguous` asks whether its elements lie by rows all the same, as they do where an axis is 1,
and a dense layer asks whether rows lie together; attention asks it of a mask that is broadcast, to choose a kernel. An array that is
not known to lie by rows is copied: what is written to the copy is then not written to the array, in a batch of 1 as in others.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch._C import DispatchKey
from torch._prims_common import is_contiguous_or_false
from torch._subclasses.fake_tensor import FakeTensor
from torch._subclasses.functional_tensor import FunctionalTensor
from torch.fx.experimental.symbolic_shapes import guard_or_false

aten = torch.ops.aten

_KEY = DispatchKey.CompositeImplicitAutograd


def contiguous(x: Any, memory_format: torch.memory_format = torch.contiguous_format) -> Any:
    """The array, or a copy of it by rows: as a method of arrays, which asks before it is an operator."""
    if memory_format is not torch.contiguous_format:
        return torch.Tensor.contiguous(x, memory_format=memory_format)
    return x if is_contiguous_or_false(x) else x.clone(memory_format=memory_format)


def dense(x: Any, w: Any, bias: Any = None) -> Any:
    """``x @ w.T + bias`` of rows that lie together: those that do not are copied."""
    return aten.linear.default._op_dk(_KEY, contiguous(x) if x.dim() > 2 else x, w, bias)


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
    """Attention under a broadcast mask, by the kernel that torch would choose; every other call as torch decides it."""
    mask = attn_mask
    if dropout_p or enable_gqa or is_causal or mask is None or not _broadcast(q, k, v, mask):
        wanted = (q, k, v, attn_mask, dropout_p, is_causal)
        return aten.scaled_dot_product_attention.default._op_dk(
            _KEY, *wanted, scale=scale, enable_gqa=enable_gqa
        )
    if mask.dtype is torch.bool:
        mask = torch.zeros_like(mask, dtype=q.dtype).masked_fill(~mask, -math.inf)
    found, _ = aten._scaled_dot_product_flash_attention_for_cpu(
        q, k, v, attn_mask=mask, scale=scale
    )
    return found


def _broadcast(q: Any, k: Any, v: Any, mask: Any) -> bool:
    """Whether torch's kernel for the CPU takes the call, and its mask has a 1 where the scores have a size."""
    arrays = q, k, v, mask
    return (
        all(one.dim() == 4 and one.device.type == "cpu" for one in arrays)
        and not (mask.requires_grad or q.dtype not in _FLOATS)
        and all(one.dtype == q.dtype for one in (k, v))
        and mask.dtype in (torch.bool, q.dtype)
        and all(guard_or_false(one.stride(3) == 1) for one in (q, k, v))
        and all(guard_or_false(one.shape[3] == q.shape[3]) for one in (k, v))
        and not any(guard_or_false(size == 0) for one in (q, k) for size in one.shape)
        and isinstance(mask.shape[0], int)
        and mask.shape[0] == 1
        and all(one.shape[axis] == q.shape[axis] for one in (k, v) for axis in (0, 1))
        and all(mask.shape[1 + axis] in (1, size) for axis, size in enumerate(_scores(q, k)))
        and k.shape[2] == v.shape[2]
    )


def _scores(q: Any, k: Any) -> tuple[Any, ...]:
    """The shape of the scores, but for the batch."""
    return q.shape[1], q.shape[2], k.shape[2]


_FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)

UNGUARDED: Mapping[Any, Callable[..., Any]] = {
    aten.linear.default: dense,
    aten.scaled_dot_product_attention.default: attention,
}
"""By operator of torch, what stands for it while torch traces for us."""

_TRACED: tuple[Any, ...] = (FakeTensor, FunctionalTensor)
"""Tensors without elements, that torch traces with."""


def enter() -> None:
    """Trace them so."""
    for op, rule in UNGUARDED.items():
        op.py_kernels[_KEY] = rule
        op._dispatch_cache.clear()
    for one in _TRACED:
        one.contiguous = contiguous


def leave() -> None:
    """Trace them as torch does."""
    for op in UNGUARDED:
        op.py_kernels.pop(_KEY, None)
        op._dispatch_cache.clear()
    for one in _TRACED:
        del one.contiguous
