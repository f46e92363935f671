"""Tensor maps of arrays, by the function of the driver that encodes them: for copies in boxes of 64 columns, swizzled.

Source: CUDA Driver API, "Tensor Map Object Management".
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

BYTES, ALIGNMENT = 128, 64
_ITEM = 2
_UINT16, _NO_INTERLEAVE, _SWIZZLE_128B, _PROMOTE_256B, _ZEROS = 1, 0, 3, 3, 0
_NAME, _VERSION = b"cuTensorMapEncodeTiled", 12000
Encode = ctypes.CFUNCTYPE(
    ctypes.c_int,
    ctypes.c_void_p,
    ctypes.c_int,
    ctypes.c_uint32,
    ctypes.c_void_p,
    ctypes.POINTER(ctypes.c_uint64),
    ctypes.POINTER(ctypes.c_uint64),
    ctypes.POINTER(ctypes.c_uint32),
    ctypes.POINTER(ctypes.c_uint32),
    *[ctypes.c_int] * 4,
)
"""The type of the function: map, type, rank, address, extents, strides in bytes, box, steps; then four modes."""


class TensorMap:
    """A tensor map in memory of the host, at a multiple of 64 bytes."""

    def __init__(self) -> None:
        self.memory = ctypes.create_string_buffer(BYTES + ALIGNMENT)
        self.address = -(-ctypes.addressof(self.memory) // ALIGNMENT) * ALIGNMENT


def encode_function(api: Any) -> tuple[Any, Any]:
    """Return the status of asking the driver for its function, and the function."""
    status, address, *_ = api.cuGetProcAddress(_NAME, _VERSION, 0)
    return status, Encode(int(address)) if address else None


def encode(
    function: Any, address: int, shape: Sequence[int], box: Sequence[int]
) -> tuple[int, TensorMap]:
    """Return the status of encoding a tensor map, and the map.

    address     of the array, a multiple of 16
    shape, box  elements along its axes, the last one contiguous; an empty array, of which nothing is copied, counts as of one element
    """
    tensor_map, rank = TensorMap(), len(shape)
    extents = [max(extent, 1) for extent in reversed(shape)]
    strides, step = [], _ITEM
    for extent in extents[:-1]:
        step *= extent
        strides.append(-(-step // 16) * 16)  # of one element, where the array is empty
    status = function(
        tensor_map.address,
        _UINT16,
        rank,
        address,
        (ctypes.c_uint64 * rank)(*extents),
        (ctypes.c_uint64 * (rank - 1))(*strides),
        (ctypes.c_uint32 * rank)(*reversed(box)),
        (ctypes.c_uint32 * rank)(*[1] * rank),
        _NO_INTERLEAVE,
        _SWIZZLE_128B,
        _PROMOTE_256B,
        _ZEROS,
    )
    return int(status), tensor_map
