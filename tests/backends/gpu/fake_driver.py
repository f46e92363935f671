"""A driver and a compiler without a GPU: their functions by the names of ``cuda.bindings``, whose calls are recorded.

Memory of the device is memory of the host. The cubin is the text itself, which a C++ compiler makes run, if there is one.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from groups_on_cpu import map_of
from on_cpu import COMPILER, UNCHECKED, check_fault, compiled, parameters_of

from offcut.backends.gpu import driver, nvrtc
from offcut.backends.gpu.launches import Encode

H200 = {
    "MULTIPROCESSOR_COUNT": 132,
    "CLOCK_RATE": 1_980_000,
    "COMPUTE_CAPABILITY_MAJOR": 9,
    "COMPUTE_CAPABILITY_MINOR": 0,
    "L2_CACHE_SIZE": 62_914_560,
    "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN": 232_448,
    "MAX_THREADS_PER_BLOCK": 1024,
    "MAX_THREADS_PER_MULTIPROCESSOR": 2048,
    "MAX_BLOCKS_PER_MULTIPROCESSOR": 32,
    "MAX_REGISTERS_PER_MULTIPROCESSOR": 65_536,
}
NAMES = {1: "INVALID_VALUE", 2: "OUT_OF_MEMORY", 700: "ILLEGAL_ADDRESS", 716: "MISALIGNED_ADDRESS"}


class FakeDriver:
    """The functions of a driver.

    calls     name and arguments of each call
    statuses  what a function answers at its next call, where that is no success
    runs      whether kernels run
    times     milliseconds between events, by the kernel that was launched last; else 1
    """

    times: Mapping[str, float] = {}

    runs = COMPILER is not None

    def __init__(self, attributes: dict[str, int] | None = None) -> None:
        self.attributes = H200 | (attributes or {})
        self.calls: list[tuple[str, tuple[Any, ...]]] = []
        self.statuses: dict[str, int] = {}
        self.memory: dict[int, ctypes.Array[ctypes.c_char]] = {}
        self.CUdevice_attribute = SimpleNamespace(
            **{f"CU_DEVICE_ATTRIBUTE_{name}": name for name in self.attributes}
        )
        self.CUfunction_attribute = SimpleNamespace(
            CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES="shared"
        )

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("cu"):
            raise AttributeError(name)

        def called(*arguments: Any) -> tuple[Any, ...]:
            self.calls.append((name, arguments))
            status = self.statuses.pop(name, 0)
            if status:
                return (status, *[None] * 2)[: 1 + name.startswith(("cuMemAlloc", "cuModule"))]
            made = getattr(self, f"_{name}", lambda *_: None)(*arguments)
            return (0,) if made is None else (0, made)

        return called

    def names(self, *without: str) -> list[str]:
        """Return the names of the calls so far, in order."""
        return [name for name, _ in self.calls if name not in without]

    def cuGetErrorName(self, status: int) -> tuple[int, bytes]:
        return 0, f"CUDA_ERROR_{NAMES.get(status, status)}".encode()

    def cuGetErrorString(self, status: int) -> tuple[int, bytes]:
        return 0, NAMES.get(status, str(status)).lower().replace("_", " ").encode()

    def _cuDeviceGet(self, ordinal: int) -> int:
        return ordinal

    def _cuDevicePrimaryCtxRetain(self, handle: int) -> str:
        return f"context {handle}"

    def _cuDeviceGetName(self, length: int, handle: int) -> bytes:
        return b"FAKE H200\0\0"

    def _cuDeviceGetAttribute(self, name: str, handle: int) -> int:
        return self.attributes[name]

    def _cuModuleLoadData(self, code: bytes) -> str:
        return code.decode()

    def _cuModuleGetFunction(self, module: str, name: bytes) -> tuple[str, str]:
        return module, name.decode()

    def _cuMemAllocAsync(self, size: int, stream: int) -> int:
        held = ctypes.create_string_buffer(size + 256)
        address = -(-ctypes.addressof(held) // 256) * 256
        self.memory[address] = held
        return address

    def _cuMemFreeAsync(self, address: int, stream: int) -> None:
        del self.memory[address]

    def _cuMemcpyHtoDAsync(self, to: int, source: int, size: int, stream: int) -> None:
        ctypes.memmove(to, source, size)

    _cuMemcpyDtoHAsync = _cuMemcpyDtoDAsync = _cuMemcpyHtoDAsync

    def _cuEventCreate(self, flags: int) -> int:
        return len(self.calls)

    def _cuEventElapsedTime(self, begin: int, end: int) -> float:
        return self.times.get(launches(self)[-1][0][1] if launches(self) else "", 1.0)

    def cuGetProcAddress(self, name: bytes, version: int, flags: int) -> tuple[int, int, int]:
        assert name == b"cuTensorMapEncodeTiled"
        self.encode = Encode(self.encode_map)
        return 0, ctypes.cast(self.encode, ctypes.c_void_p).value or 0, 0

    def encode_map(
        self,
        to: int,
        dtype: int,
        rank: int,
        address: int,
        extents: Any,
        strides: Any,
        box: Any,
        steps: Any,
        *modes: int,
    ) -> int:
        """Encode a tensor map as `on_cpu` reads it; an address or a stride between cells of 16 bytes is refused."""
        self.calls.append(("cuTensorMapEncodeTiled", (address, tuple(extents[:rank]))))
        held = [1, *(one // 2 for one in strides[: rank - 1]), *[1] * (3 - rank)]
        if to % 64 or address % 16 or any(one % 16 for one in strides[: rank - 1]):
            return 1
        fill = [1] * (3 - rank)
        made = map_of(address, [*extents[:rank], *fill], held, [*box[:rank], *fill])
        ctypes.memmove(to, ctypes.addressof(made), ctypes.sizeof(made))
        return 0

    def _cuLaunchKernel(self, function: tuple[str, str], *arguments: Any) -> None:
        text, name = function
        x, y, z, threads, _, _, shared_bytes, _, pointers, _ = arguments
        assert min(x, y, z) > 0
        if not self.runs:
            return
        values = []
        places = ctypes.cast(pointers, ctypes.POINTER(ctypes.c_void_p))
        for number, declared in enumerate(parameters_of(text)[name]):
            is_map = "tensor_map" in declared
            kind = ctypes.c_void_p if "*" in declared else ctypes.c_int
            place = places[number]
            values.append(ctypes.c_void_p(place) if is_map else kind.from_address(place))
            if kind is ctypes.c_void_p and not is_map:
                values.append(ctypes.c_long(UNCHECKED))
        library = compiled(text)
        getattr(library, f"launch_{name}")(x, y, z, threads, ctypes.c_long(shared_bytes), *values)
        check_fault(library)


class FakeNvrtc:
    """The functions of a compiler, which makes the text the code.

    log, status  what it says of each text
    """

    def __init__(self, log: str = "", status: int = 0) -> None:
        self.log, self.status, self.texts = log, status, list[bytes]()

    def nvrtcCreateProgram(self, text: bytes, *_: Any) -> tuple[int, bytes]:
        self.texts.append(text)
        return 0, text

    def nvrtcCompileProgram(self, *_: Any) -> tuple[int]:
        return (self.status,)

    def nvrtcGetProgramLogSize(self, _: Any) -> tuple[int, int]:
        return 0, len(self.log) + 1

    def nvrtcGetProgramLog(self, _: Any, to: bytearray) -> tuple[int]:
        to[:] = self.log.encode() + b"\0"
        return (0,)

    def nvrtcGetCUBINSize(self, text: bytes) -> tuple[int, int]:
        return 0, len(text)

    def nvrtcGetCUBIN(self, text: bytes, to: bytearray) -> tuple[int]:
        to[:] = text
        return (0,)

    def nvrtcDestroyProgram(self, _: Any) -> tuple[int]:
        return (0,)


class FakeArray:
    """An array on a device, which is memory of the host, by a package called ``cupy``."""

    __module__ = "cupy"

    def __init__(self, held: np.ndarray, ordinal: int = 0) -> None:
        self.held, self.ordinal = held, ordinal

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, self.ordinal

    def __dlpack__(self, *, stream: int, max_version: tuple[int, int]) -> object:
        assert stream == -1
        return self.held.__dlpack__(max_version=max_version)

    def copy(self, order: str) -> FakeArray:
        return FakeArray(self.held.copy(order=order), self.ordinal)

    def __setitem__(self, place: object, value: FakeArray) -> None:
        self.held[place] = value.held


@contextmanager
def fake_package(stream: int) -> Iterator[list[tuple[int, ...]]]:
    """Make a package ``cupy`` that works on `stream`; give the shapes that it is asked to allocate."""
    shapes: list[tuple[int, ...]] = []

    @contextmanager
    def device(ordinal: int) -> Iterator[None]:
        yield

    def empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> FakeArray:
        shapes.append(shape)
        return FakeArray(aligned(np.zeros(shape, dtype)))

    package: Any = ModuleType("cupy")
    package.cuda = SimpleNamespace(
        get_current_stream=lambda: SimpleNamespace(ptr=stream), Device=device
    )
    package.empty = empty
    sys.modules["cupy"] = package
    try:
        yield shapes
    finally:
        del sys.modules["cupy"]


def aligned(array: np.ndarray, offset: int = 0) -> np.ndarray:
    """Return a copy of an array that begins `offset` elements behind a multiple of 256 bytes."""
    size = array.nbytes + 256 + offset * array.itemsize
    held = np.zeros(size, np.uint8)
    begin = -held.ctypes.data % 256 + offset * array.itemsize
    view = held[begin : begin + array.nbytes].view(array.dtype).reshape(array.shape)
    view[...] = array
    return view


def install(monkeypatch: pytest.MonkeyPatch, fake: FakeDriver, compiler: FakeNvrtc) -> None:
    """Make offcut use a driver and a compiler."""
    monkeypatch.setattr(driver, "driver_api", lambda op: fake)
    monkeypatch.setattr(nvrtc, "nvrtc_module", lambda op: compiler)


def launches(fake: FakeDriver) -> Sequence[tuple[Any, ...]]:
    """Return the arguments of all launches so far: function, grid, threads, …"""
    return [arguments for name, arguments in fake.calls if name == "cuLaunchKernel"]
