"""Arrays of other packages in the memory of a CUDA device: their streams, and what these packages allocate and copy there.

Nothing here imports a package: an array that is there has imported its own.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

from offcut.core.dtypes import numpy_dtype
from offcut.errors import CallError

DEVICES = (2, 13)
"""What DLPack calls CUDA memory, and memory that the driver moves between host and device."""


def _torch_stream(ordinal: int) -> int:
    return int(sys.modules["torch"].cuda.current_stream(ordinal).cuda_stream)


def _cupy_stream(ordinal: int) -> int:
    cuda = sys.modules["cupy"].cuda
    with cuda.Device(ordinal):  # each device has a current stream of its own
        return int(cuda.get_current_stream().ptr)


_STREAMS: Mapping[str, Callable[[int], int]] = {"torch": _torch_stream, "cupy": _cupy_stream}


def current_stream(kind: str, ordinal: int) -> int:
    """Return the stream on which a package works on a device now; 0, the stream that all others wait for, if it has none."""
    find = _STREAMS.get(kind)
    return 0 if find is None else find(ordinal)


def dlpack_stream(kind: str) -> int:
    """Return the stream that a package hears of as the reader's: -1 on its own, where nothing has to wait; 1, the stream 0, of others."""
    return -1 if kind in _STREAMS else 1


def is_on_cuda(array: object) -> bool:
    """Return whether an object is an array in the memory of a CUDA device."""
    ask = getattr(type(array), "__dlpack_device__", None)
    return ask is not None and int(ask(array)[0]) in DEVICES


def empty_on_cuda(kind: str, shape: tuple[int, ...], dtype: str, ordinal: int, op: str) -> object:
    """Return an uninitialised array of a package on a device.

    Raises CallError for a package that cannot be asked for one.
    """
    package: Any = sys.modules.get(kind)
    if kind == "torch":
        return package.empty(shape, dtype=getattr(package, dtype), device=f"cuda:{ordinal}")
    if kind == "cupy":
        with package.cuda.Device(ordinal):
            return package.empty(shape, dtype=numpy_dtype(dtype))
    raise CallError(
        op,
        f"cannot allocate a result of {kind} on a device",
        at="out",
        because="torch and cupy are asked for memory of a device, and no other package",
        help=("out= of an array that is there",),
    )


def rows_of(array: Any) -> Any:
    """Return a copy of an array by rows, made by its package on its stream."""
    if hasattr(array, "clone"):
        return array.clone(memory_format=sys.modules["torch"].contiguous_format)
    return array.copy(order="C")
