"""Arrays in another shape, traced without asking whether a size is 1.

Of an array whose axes are exchanged, torch asks whether its elements lie by rows all the same, as they do where an axis is 1. Here an
array that is not known to lie so is copied where one of sizes above 1 is: what is written to the copy is then not written to the array,
in a batch of 1 as in others.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._prims_common import (
    infer_size,
    is_contiguous_for_memory_format_or_false,
    is_contiguous_or_false,
)
from torch._subclasses.fake_impls import _compute_stride, _view_meta
from torch.utils._mode_utils import no_dispatch


def result_axes(*tensors: Any, **options: Any) -> tuple[list[int], bool]:
    """Return the axes of an elementwise result as they lie in memory, outermost first, and whether that is ambiguous.

    Where sizes do not say how strides compare, as of every other row, they lie as in the traced call.
    """
    axes, is_ambiguous = _result_axes(*tensors, **{**options, "ambiguity_check": True})
    shapes = [
        _traced(x.shape, x.stride()) for x in tensors if isinstance(x, torch.Tensor) and x.dim()
    ]
    if not is_ambiguous or None in shapes:
        return axes, is_ambiguous
    with no_dispatch():
        traced = [torch.empty_strided(*one, device="meta") for one in shapes if one]
        return _result_axes(*traced, **options)


def are_channels_last(shape: Sequence[Any], strides: Sequence[Any]) -> bool:
    """Return whether the channels of images lie innermost; where sizes do not say it, since they may be 0, as in the traced call."""
    traced = _traced(shape, strides)
    return _are_channels_last(*((shape, strides) if traced is None else traced))


_result_axes: Callable[..., tuple[list[int], bool]] = (
    torch._prims_common.compute_elementwise_output_logical_to_physical_perm
)
_are_channels_last: Callable[..., bool] = (
    torch._prims_common.are_strides_like_channels_last_or_false
)


def _traced(*parts: Sequence[Any]) -> list[list[int]] | None:
    """Return sizes or strides as numbers of the traced call; None if some depend on data."""
    hints = [[*map(_hint, part)] for part in parts]
    return hints if all(isinstance(one, int) for part in hints for one in part) else None


def contiguous(x: Any, memory_format: torch.memory_format = torch.contiguous_format) -> Any:
    """The array, or a copy of it in an order: as a method of arrays, which asks before it is an operator."""
    if memory_format not in (torch.contiguous_format, torch.channels_last):
        return torch.Tensor.contiguous(x, memory_format=memory_format)
    is_so = is_contiguous_for_memory_format_or_false(x, memory_format=memory_format)
    return x if is_so else x.clone(memory_format=memory_format)


def reshape(x: Any, shape: Sequence[Any]) -> Any:
    """The elements in another shape: a view where sizes above 1 allow one, else a copy."""
    shape = _shape_with_number(shape)
    if _has_rest(shape):
        _guard_first_sizes(x, shape)
        shape = infer_size(shape, x.numel())
    if is_contiguous_or_false(x) or _is_view(x, shape):
        return x.view(shape)
    return x.clone(memory_format=torch.contiguous_format).view(shape)


def view(mode: Any, op: Any, x: Any, shape: Sequence[Any]) -> Any:
    """The elements in another shape, without the elements."""
    shape = _shape_with_number(shape)
    if _has_rest(shape):
        _guard_first_sizes(x, shape)
    elif not is_contiguous_or_false(x) and not _is_view(x, shape):
        strides = _strides_of_split(x, shape)
        if strides is not None:
            return x.as_strided(shape, strides)
    return _view_meta(mode, op, x, shape)


def _shape_with_number(shape: Sequence[Any]) -> tuple[Any, ...]:
    """The shape, where an integer that the frame is given, and that is -1 in the traced call, is that number: it is guarded."""
    return tuple(
        -1 if _is_symbol(one) and one.node.hint == -1 and one == -1 else one for one in shape
    )


def _has_rest(shape: Sequence[Any]) -> bool:
    return any(isinstance(one, int) and one == -1 for one in shape)


def _guard_first_sizes(x: Any, shape: Sequence[Any]) -> None:
    """Guard that the first sizes stay what they are: of two symbols that are equal in the traced call, which -1 would hide.

    ``keys.view(batch, -1, heads, width)``, where keys have a batch of their own.
    """
    for own, extent in zip(x.shape, shape, strict=False):
        if own is extent or (isinstance(own, int) and isinstance(extent, int) and own == extent):
            continue
        if not (_is_symbol(own) and _is_symbol(extent) and own.node.hint == extent.node.hint):
            return
        torch._check(own == extent)


def _strides_of_split(x: Any, shape: Sequence[Any]) -> list[Any] | None:
    """The strides of an array in a shape that has its sizes, or two parts of one in its place, ``x.view(n, h // 2, 2, c)``, in the traced call:
    it is guarded that they multiply to it. None of other shapes.

    Torch guards all sizes of an array that does not lie by rows, where it does not know that.
    """
    wholes, strides = list[tuple[Any, Any]](), list[Any]()
    for size, step in zip(x.shape, x.stride(), strict=True):
        one, other = (*shape[len(strides) :], 0, 0)[:2]
        whole = _hint(size)
        if _hint(one) == whole:
            wholes.append((size, one))
            strides.append(step)
        elif _hint(one) * _hint(other) == whole:
            wholes.append((size, one * other))
            strides += [other * step, step]
        else:
            return None
    if len(strides) != len(shape):
        return None
    for size, product in wholes:
        torch._check(size == product)
    return strides


def _hint(size: Any) -> Any:
    return size.node.hint if isinstance(size, torch.SymInt) and size.node.has_hint() else size


def _is_symbol(size: Any) -> bool:
    return isinstance(size, torch.SymInt) and size.node.expr.is_Symbol and size.node.has_hint()


def flatten(x: Any, start_dim: int = 0, end_dim: int = -1) -> Any:
    """Some axes beside each other as one."""
    first, last = (dim + x.dim() if dim < 0 else dim for dim in (start_dim, end_dim))
    if first >= last or not 0 <= first < last < x.dim():
        return torch.ops.aten.flatten.using_ints._op_dk(
            torch._C.DispatchKey.CompositeImplicitAutograd, x, start_dim, end_dim
        )
    extent = math.prod(x.shape[first : last + 1])
    return reshape(x, (*x.shape[:first], extent, *x.shape[last + 1 :]))


def _is_view(x: Any, shape: Sequence[Any]) -> bool:
    """Whether strides give the shape, of sizes above 1."""
    return (
        x.dim() > 0
        and len(shape) > 0
        and _compute_stride(x.size(), x.stride(), shape, size_oblivious=True) is not None
    )


def has_channels_last(x: Any) -> bool:
    """Whether an image's channels are innermost, and more than one."""
    step = x.stride(1)
    return x.dim() == 4 and isinstance(step, int) and step == 1 and bool(x.shape[1] != 1)
