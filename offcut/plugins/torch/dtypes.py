"""Tensors of torch as arrays and back, without a copy; element types by their names."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import ml_dtypes
import numpy as np
import torch

from offcut.describe.request import Array

NAMES: Mapping[Any, str] = {
    torch.float32: "float32",
    torch.float64: "float64",
    torch.bfloat16: "bfloat16",
    torch.float16: "float16",
    torch.int64: "int64",
    torch.int32: "int32",
    torch.int16: "int16",
    torch.int8: "int8",
    torch.uint64: "uint64",
    torch.uint32: "uint32",
    torch.uint16: "uint16",
    torch.uint8: "uint8",
    torch.bool: "bool",
}

_BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


def is_held(tensor: Any, devices: Collection[str] = ("cpu",)) -> bool:
    """Whether the elements of a tensor can be those of an array: of which type, where, and how they lie.

    devices  whose tensors may be constants, too
    """
    strided = tensor.layout is torch.strided
    return strided and tensor.device.type in devices and tensor.dtype in NAMES


def plain_of(tensor: Any) -> Any:
    """A tensor of the same elements that records no gradient and is not negated lazily."""
    plain = tensor.detach() if tensor.requires_grad else tensor
    return plain.resolve_neg() if plain.is_neg() else plain


def array_of(tensor: Any) -> Array:
    """The memory of a tensor as an array, of its strides; of a tensor on a device, that of a copy."""
    plain = plain_of(tensor).cpu()
    if plain.dtype is torch.bfloat16:
        bits: Array = plain.view(torch.int16).numpy().view(_BFLOAT16)
        return bits
    array: Array = plain.numpy()
    return array


def tensor_of(array: Array) -> Any:
    """An array as a tensor of its memory."""
    if array.dtype == _BFLOAT16:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)
