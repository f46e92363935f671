"""DLPack in C: the structures inside its capsules, and the functions of types that exchange arrays without Python.

Types that offer DLPack's C exchange interface are entered into a small table that generated code reads (`exchange_table`).
"""

from __future__ import annotations

import ctypes
import itertools
import sys
from typing import Any

DLPACK_CODES: dict[str, tuple[int, int]] = {
    "float32": (2, 32),
    "float64": (2, 64),
    "float16": (2, 16),
    "bfloat16": (4, 16),
    "int8": (0, 8),
    "int16": (0, 16),
    "int32": (0, 32),
    "int64": (0, 64),
    "uint8": (1, 8),
    "uint16": (1, 16),
    "uint32": (1, 32),
    "uint64": (1, 64),
    "bool": (6, 8),
}
"""Element type to DLPack's type code and width in bits."""

NAMES: dict[tuple[int, int], str] = {code: name for name, code in DLPACK_CODES.items()}
_KINDS = {0: "int", 1: "uint", 2: "float", 3: "handle", 4: "bfloat", 5: "complex", 6: "bool"}
DEVICES = {2: "cuda", 4: "opencl", 7: "vulkan", 8: "metal", 10: "rocm", 13: "cuda (managed)", 14: "oneapi", 15: "webgpu", 16: "hexagon"}  # fmt: skip
HOST = (1, 3, 11)  # plain memory, and memory pinned for CUDA or ROCm
READ_ONLY = 1

EXCHANGE_SLOTS = 8
EXCHANGE_WORDS = 6
_exchange = (ctypes.c_uint64 * (EXCHANGE_SLOTS * (EXCHANGE_WORDS + 1)))()
_exchange_index = itertools.count()
_exchange_types: dict[type, object] = {}


class DLTensor(ctypes.Structure):
    """An array: its address, device, element type, extents, and strides in elements."""

    _fields_ = (
        ("data", ctypes.c_uint64),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class Versioned(ctypes.Structure):
    """An array with the function that gives its memory back."""

    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("manager", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", DLTensor),
    )


class ExchangeApi(ctypes.Structure):
    """The functions of a type: of versions of DLPack, the newest first."""

    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("previous", ctypes.c_void_p),
        ("allocate", ctypes.c_uint64),
        ("managed_from_object", ctypes.c_uint64),
        ("managed_to_object", ctypes.c_uint64),
        ("tensor_from_object", ctypes.c_uint64),
        ("stream", ctypes.c_uint64),
    )


capsule_is = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_IsValid", ctypes.pythonapi)
)
_capsule_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)


def exchange_table() -> int:
    """Address of the table of DLPack C exchange functions, `EXCHANGE_SLOTS` rows of words.

    Words of a row: type, tensor_from_object, allocate, managed_to_object, the attribute name
    "requires_grad" or 0, 1 where arrays of the type are writeable. A row is valid once its type
    is not 0; rows fill in order, when the slow path first meets a type, and stay. Behind all rows there
    is one word for each: the name of the method "is_neg", or 0.
    """
    return ctypes.addressof(_exchange)


def capsule_of(array: Any, stream: int | None) -> object:
    """Return the DLPack capsule of an array; of one on a device, for work on a stream."""
    options = {} if stream is None else {"stream": stream}
    try:
        return array.__dlpack__(max_version=(1, 0), **options)
    except TypeError:
        return array.__dlpack__(**options)


def address_in(capsule: object, name: bytes) -> int:
    """Return the address that a capsule of that name holds."""
    address: int = _capsule_pointer(capsule, name)
    return address


def dtype_name(tensor: DLTensor) -> str:
    """Return the name of the element type of an array; of one that has none here, a name that DLPack's code says."""
    name = NAMES.get((tensor.code, tensor.bits)) if tensor.lanes == 1 else None
    if name is not None:
        return name
    lanes = "" if tensor.lanes == 1 else f"x{tensor.lanes}"
    return f"{_KINDS.get(tensor.code, f'type{tensor.code}_')}{tensor.bits}{lanes}"


def register(array: object) -> None:
    """Enter the type of `array` into the exchange table, where it offers the interface itself.

    A subclass does not: what it overrides would be skipped.
    """
    cls = type(array)
    capsule = vars(cls).get("__dlpack_c_exchange_api__")
    if capsule is None or cls in _exchange_types:
        return
    if not capsule_is(capsule, b"dlpack_exchange_api"):
        return
    address: int | None = address_in(capsule, b"dlpack_exchange_api")
    while address and (api := ExchangeApi.from_address(address)).major != 1:
        address = api.previous
    slot = next(_exchange_index)
    if not address or not api.tensor_from_object or slot >= EXCHANGE_SLOTS:
        return
    grad, negated = sys.intern("requires_grad"), sys.intern("is_neg")
    _exchange_types[cls] = (capsule, grad, negated)
    row = slot * EXCHANGE_WORDS
    _exchange[row + 1] = api.tensor_from_object
    _exchange[row + 2] = api.allocate if api.managed_to_object else 0
    _exchange[row + 3] = api.managed_to_object
    _exchange[row + 4] = id(grad) if hasattr(cls, "requires_grad") else 0
    _exchange[row + 5] = int(cls.__module__.partition(".")[0] == "torch")
    _exchange[EXCHANGE_SLOTS * EXCHANGE_WORDS + slot] = id(negated) if hasattr(cls, "is_neg") else 0
    _exchange[row] = id(cls)  # last: from here on other threads use the row
