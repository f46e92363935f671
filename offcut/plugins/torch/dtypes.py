"""Tensors of torch as arrays and back, without a copy; element types by their names, and floats of 16 bits.

Floats of 16 bits: what torch calculates of them in float32, and rounds once.

An operator of torch that is several of ours rounds to 16 bits at its end alone, unless its rule says otherwise: where what one of
ours has rounded goes into the arithmetic of another, all of them are calculated in float32 instead.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Set
from typing import Any

import ml_dtypes
import numpy as np
import torch

from offcut.core.dtypes import HALVES, numpy_dtype
from offcut.describe.request import Array
from offcut.graph.graph import Node
from offcut.graph.views import VIEWS

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


WIDER = ("float32", "float64")

UNROUNDED = frozenset(
    {
        *VIEWS,
        *("absolute", "negative", "relu", "max", "min", "maximum", "minimum", "where", "merged"),
        *("max_pool2d", "max_pool2d_with_places", "adaptive_max_pool2d", "sort", "topk", "take"),
        *("kth", "leading"),
        *("concat", "flip", "pad", "repeat", "transpose", "embedding", "take_along_axis"),
    }
)
"""Operators that round nothing, and of rounded numbers give the rounded result."""


def rounds_again(nodes: Iterable[Node], numbers: Set[str] = frozenset()) -> bool:
    """Whether one of some nodes calculates with what another has rounded to 16 bits, or with a number that these do not hold.

    numbers  constants of 16 bits that stand for others

    Operands are converted as torch converts them, before anything is calculated: that is not counted.
    """
    rounded, wider = set(numbers), set[str]()
    for node in nodes:
        again = not rounded.isdisjoint(node.operands)
        kind, names = node.results[0].dtype, [value.name for value in node.results]
        if node.op == "cast":
            moves = kind in WIDER or (kind in HALVES and wider.isdisjoint(node.operands))
        else:
            moves = node.op in UNROUNDED
        if not moves and (again or any(is_rounded(one, kind) for one in node.arguments)):
            return True
        if again or (kind in HALVES and not moves):
            rounded.update(names)
        if kind in WIDER:
            wider.update(names)
    return False


def accumulation_dtype(kind: str) -> str | None:
    """The element type of sums that are rounded later; None: that of the operands does."""
    return "float32" if kind in HALVES else None


def is_rounded(value: object, kind: str) -> bool:
    """Whether an element type of 16 bits holds no float that is this number."""
    if kind not in HALVES or isinstance(value, bool) or not isinstance(value, int | float):
        return False
    with np.errstate(over="ignore"):
        return float(numpy_dtype(kind).type(float(value))) != value
