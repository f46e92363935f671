"""Operators, attention among them, traced without asking which of their sizes are 1, and a few that ask with a guard.

Of norms, pools and convolutions torch asks it to choose a library, and by that a layout; of products, to choose how rows and batches are joined.
With sizes that start at 0, torch takes a size that is not known to be 1 for one that is not: of axes that are left out and of the ends
of parts of an axis, which make another result, it is a guard instead.

Attention, traced without asking which of its sizes are 1, as torch does under a mask to choose a kernel; but that there are as many
values as keys, which a cache of each does not say, is a guard.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._C import DispatchKey
from torch._meta_registrations import calc_conv_nd_return_shape
from torch._subclasses.fake_impls import _compute_slice_index
from torch.fx.experimental.symbolic_shapes import guard_or_false

from offcut.plugins.torch.tracing_patches.layout import contiguous, has_channels_last, reshape

aten = torch.ops.aten


def group_norm(
    x: Any,
    num_groups: int,
    weight: Any = None,
    bias: Any = None,
    eps: float = 1e-5,
    cudnn_enabled: bool = True,
) -> Any:
    """Return the norm of each group: by rows, or with channels last where an image is so.

    Raises RuntimeError where groups do not divide the channels.
    """
    batch, channels, *inner = x.shape
    torch._check(channels % num_groups == 0, lambda: f"{channels} channels in {num_groups} groups")
    last = has_channels_last(x)
    kind = torch.channels_last if last else torch.contiguous_format
    x = contiguous(x, kind)
    # Torch's kernel reads its weights side by side, however they lie.
    weight, bias = (None if one is None else contiguous(one) for one in (weight, bias))
    result = aten.native_group_norm(
        x, weight, bias, batch, channels, math.prod(inner), num_groups, eps
    )[0]
    return result.contiguous(memory_format=kind) if last else result


def squeeze(x: Any, dim: int | Sequence[int] | None = None) -> Any:
    """Return the elements without the axes that are 1, among those that are named."""
    dims = range(x.dim()) if dim is None else (dim,) if isinstance(dim, int) else dim
    gone = {axis % x.dim() for axis in dims if x.dim()}
    axes = [axis for axis in range(x.dim()) if axis not in gone or not bool(x.shape[axis] == 1)]
    shape, strides = ([of[axis] for axis in axes] for of in (x.shape, x.stride()))
    return x.as_strided(shape, strides, x.storage_offset())


def average(op: Any, axes: int) -> Callable[..., Any]:
    """What stands for an adaptive average over so many innermost axes."""

    def averaged(x: Any, output_size: Sequence[Any]) -> Any:
        """Return the mean where one place is asked for; every other call as torch decides it."""
        if x.dim() > axes and all(isinstance(one, int) and one == 1 for one in output_size):
            return x.mean(tuple(range(-axes, 0)), keepdim=True)
        return op._op_dk(DispatchKey.CompositeImplicitAutograd, x, output_size)

    return averaged


def slice_index(size: Any, index: Any) -> Any:
    """Return an index from 0 on and within the axis; None for one that only data tell."""
    bounds = _compute_slice_index(size, index)
    if bounds is not None or not _known(size) or not _known(index):
        return bounds
    if index >= 0:
        return index if index <= size else size
    return index + size if index >= -size else 0


def _known(value: Any) -> bool:
    return not isinstance(value, torch.SymInt) or value.node.has_hint()


SHARED, UNKNOWN = 1, 2
"""As torch numbers what it finds of two elements of one array."""


def overlap(x: Any) -> int:
    """Return `SHARED` where an axis repeats its elements, as one that is broadcast does; `UNKNOWN` of all others."""
    axes = zip(x.shape, x.stride(), strict=True)
    repeats = any(isinstance(step, int) and step == 0 and size > 1 for size, step in axes)
    return SHARED if repeats else UNKNOWN


def copy(mode: Any, op: Any, x: Any, source: Any, non_blocking: bool = False) -> Any:
    """Return an array of the same shape that holds what is broadcast to it, without the elements.

    Raises RuntimeError where that cannot be broadcast.
    """
    with mode:
        torch._refs.expand(source, x.shape)
        return torch.empty_like(x)


def convolution(mode: Any, op: Any, *arguments: Any, **options: Any) -> Any:
    """Return the result without its elements: by rows, or with channels last where an image is so.

    Raises RuntimeError where channels or element types do not fit, or an image is smaller than the window.
    """
    names = [one.name for one in op._schema.arguments]
    values = {**dict(zip(names, arguments, strict=False)), **options}
    x, weight, transposed = (values[name] for name in ("input", "weight", "transposed"))
    torch._check(x.dtype == weight.dtype, lambda: f"{x.dtype} with weights of {weight.dtype}")
    if transposed:
        torch._check(x.shape[1] == weight.shape[0], lambda: "channels that the weights have not")
    shape = calc_conv_nd_return_shape(
        x,
        weight,
        *(values[name] for name in ("stride", "padding", "dilation")),
        transposed,
        values["groups"],
        values["output_padding"] if transposed else None,
    )
    with mode:
        result = x.new_empty(shape)
        return result.to(memory_format=torch.channels_last) if has_channels_last(x) else result


def dense(x: Any, w: Any, bias: Any = None) -> Any:
    """``x @ w.T + bias`` of rows that lie together: those that do not are copied."""
    if x.dim() <= 2 or w.dim() != 2 or (bias is not None and bias.dim() != 1):
        return aten.linear.default._op_dk(DispatchKey.CompositeImplicitAutograd, x, w, bias)
    *rows, k = x.shape
    flat = reshape(x, (math.prod(rows), k))
    result = flat.mm(w.t()) if bias is None else torch.addmm(bias, flat, w.t())
    return result.view(*rows, w.shape[0])


def einsum(equation: str, operands: Sequence[Any], *, path: Sequence[int] | None = None) -> Any:
    """Return the sum of products that an equation says, as torch takes it apart.

    Torch's own fails where a size of 1 that is traced as a size is broadcast: that it is 1 is a guard before.
    """
    sizes = dict[str, list[Any]]()
    terms = equation.replace(" ", "").partition("->")[0].split(",")
    for term, x in zip(terms, operands, strict=True):
        before, dots, after = term.partition("...")
        covered = x.dim() - len(before) - len(after) if dots else 0
        labels = (*before, *(f".{place}" for place in reversed(range(covered))), *after)
        for label, size in zip(labels, x.shape, strict=True):
            sizes.setdefault(label, []).append(size)
    for each in sizes.values():
        ones = [_traced_size(size) == 1 for size in each]
        if not all(ones):
            _ = [bool(size == 1) for size, is_one in zip(each, ones, strict=True) if is_one]
    return torch.ops.aten.einsum.default._op_dk(
        DispatchKey.CompositeImplicitAutograd, equation, operands, path=path
    )


def _traced_size(size: Any) -> Any:
    """Return what a size is in the traced call; None for one that only data tell."""
    if not isinstance(size, torch.SymInt):
        return size
    return size.node.hint if size.node.has_hint() else None


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
