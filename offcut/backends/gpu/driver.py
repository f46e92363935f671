"""A GPU of this machine and its memory, by the functions of NVIDIA's driver as ``cuda.bindings.driver`` has them.

Every status is checked. Memory is allocated and freed in the order of a stream. This file, `launches` and `errors` are all that
a program needs to run cubins that were made elsewhere.

The memory of a GPU, by its driver: blocks, copies in the order of a stream, and arrays of other packages there.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any, ClassVar

from offcut.backends.gpu.launches import (
    ArrayParameter,
    Launch,
    LaunchPlan,
    SizeParameter,
    TensorMap,
    TensorMapParameter,
    encode,
    encode_function,
)
from offcut.backends.host import arrays
from offcut.backends.host.arrays import (
    ArrayView,
    current_stream,
    empty_on_cuda,
    is_on_cuda,
    rows_of,
)
from offcut.backends.memory import Block, Memory
from offcut.core.extras import extra_help
from offcut.errors import CallError, TargetError

STICKY = frozenset({700, 702, 710, 714, 715, 716, 717, 718, 719, 720})
"""Statuses behind which a context refuses all: an illegal address, instruction or barrier, a trap, a time-out."""
_SUCCESS, _NO_DEVICE, _NO_DRIVER = 0, 100, 999
_PREFERENCE = "CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES"
_WITHOUT_ASKING = 48 * 1024
"""Bytes of shared memory that a block has without asking."""
MAX_KNOWN_GRIDS = 4096
"""Vectors of sizes of which the grids of a plan are kept; tensor maps that a device keeps."""


@dataclass(frozen=True, slots=True)
class Module:
    """Machine code on a device: its kernels by name."""

    functions: Mapping[str, Any]


@dataclass
class Device:
    """A GPU, with the context that all libraries of this process share.

    api      the functions of the driver
    ordinal  its number, from 0
    """

    api: Any
    ordinal: int
    handle: Any = field(init=False, repr=False)
    context: Any = field(init=False, repr=False)
    encode: Any = field(default=None, init=False, repr=False)
    maps: dict[object, TensorMap] = field(default_factory=dict, init=False, repr=False)
    last: tuple[Launch, Sequence[int], Mapping[str, int]] | None = field(
        default=None, init=False, repr=False
    )

    def __post_init__(self) -> None:
        self.handle = self.call("cuDeviceGet", self.ordinal)
        self.context = self.call("cuDevicePrimaryCtxRetain", self.handle)

    # -- what it is

    @property
    def title(self) -> str:
        """Return the name that its maker gives it."""
        return bytes(self.call("cuDeviceGetName", 256, self.handle)).split(b"\0")[0].decode()

    def attribute(self, name: str) -> int:
        """Return an attribute, such as ``MULTIPROCESSOR_COUNT``."""
        number = getattr(self.api.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
        return int(self.call("cuDeviceGetAttribute", number, self.handle))

    @property
    def last_launch(self) -> str:
        """Return the launch that the driver took last, in words."""
        return launch_text(*self.last) if self.last is not None else "none of offcut"

    @property
    def capability(self) -> tuple[int, int]:
        """Return its compute capability, ``(9, 0)``."""
        names = ("COMPUTE_CAPABILITY_MAJOR", "COMPUTE_CAPABILITY_MINOR")
        major, minor = (self.attribute(name) for name in names)
        return major, minor

    # -- calls of the driver

    def call(self, name: str, *arguments: Any, op: str = "cuda", at: str = "") -> Any:
        """Return what a function of the driver gives beside its status; None if nothing.

        op, at  the call and the launch that an error names

        Raises CallError for a status that is no success.
        """
        status, *values = getattr(self.api, name)(*arguments)
        if int(status) != _SUCCESS:
            raise self.error(status, name, op, at)
        return values[0] if values else None

    def error(self, status: Any, name: str, op: str, at: str) -> CallError:
        """Return the error for a status of a function of the driver."""
        because = f"{name} says {self._status_text(status)}"
        if int(status) not in STICKY:
            help: tuple[str, ...] = ()
            if "OUT_OF_MEMORY" in because:
                help = ("smaller sizes", "out= of arrays that are there")
            return CallError(op, f"failed on {self.title}", at=at, because=because, help=help)
        behind = f"the last launch before it: {self.last_launch}"
        return CallError(
            op,
            f"failed on {self.title}, and the context of this process with it",
            at=at or behind,
            because=f"{because}: a kernel that ran before this call has faulted, and each later call of this process will fail alike",
            help=(
                "a new process",
                "compute-sanitizer names the kernel and the address",
                *((behind,) if at else ()),
            ),
        )

    def _status_text(self, status: Any) -> str:
        texts = []
        for name in ("cuGetErrorName", "cuGetErrorString"):
            unknown, text = getattr(self.api, name)(status)
            texts.append(str(int(status)) if int(unknown) else bytes(text).decode())
        return f"{texts[0]} ({texts[1]})"

    @contextmanager
    def current(self) -> Iterator[None]:
        """Make its context that of this thread, inside of a ``with``."""
        self.call("cuCtxPushCurrent", self.context)
        try:
            yield
        finally:
            self.call("cuCtxPopCurrent")

    # -- memory

    def allocate(self, size: int, stream: int, op: str) -> int:
        """Return the address of `size` bytes, allocated in the order of a stream; 0 of none."""
        return int(self.call("cuMemAllocAsync", size, stream, op=op)) if size else 0

    def free(self, address: int, stream: int) -> None:
        """Free memory after all that a stream does so far."""
        if address:
            self.call("cuMemFreeAsync", address, stream)

    def copy_in(self, to: int, host: int, size: int, stream: int, op: str) -> None:
        """Copy bytes of the host to the device, after all that a stream does so far."""
        if size:
            self.call("cuMemcpyHtoDAsync", to, host, size, stream, op=op)

    def copy_out(self, host: int, source: int, size: int, stream: int, op: str) -> None:
        """Copy bytes of the device to the host, after all that a stream does so far."""
        if size:
            self.call("cuMemcpyDtoHAsync", host, source, size, stream, op=op)

    def copy_within(self, to: int, source: int, size: int, stream: int, op: str) -> None:
        """Copy bytes of the device to another place of it, after all that a stream does so far."""
        if size:
            self.call("cuMemcpyDtoDAsync", to, source, size, stream, op=op)

    def synchronize(self, stream: int, op: str) -> None:
        """Wait for a stream."""
        self.call("cuStreamSynchronize", stream, op=op)

    # -- kernels

    def load(self, cubin: bytes, plan: LaunchPlan) -> Module:
        """Load the kernels of a plan, with as much shared memory as they ask for.

        Raises TargetError for a kernel that asks for more threads or shared memory than a block has here, CallError for code
        that the driver does not take.
        """
        op = plan.name
        limits = {
            "threads": self.attribute("MAX_THREADS_PER_BLOCK"),
            "bytes of shared memory": self.attribute("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN"),
        }
        for launch in plan.launches:
            counts = (launch.threads, launch.shared_bytes)
            for (what, limit), count in zip(limits.items(), counts, strict=True):
                if count > limit:
                    raise TargetError(
                        op,
                        f"cannot run {launch.kernel} on {self.title}",
                        because=f"a block takes {count} {what}, and has {limit} at most",
                        help=("smaller tiles", "a smaller depth"),
                    )
        module = self.call("cuModuleLoadData", cubin, op=op)
        functions = {}
        for launch in plan.launches:
            function = self.call("cuModuleGetFunction", module, launch.kernel.encode(), op=op)
            if launch.shared_bytes > _WITHOUT_ASKING:
                attribute = getattr(self.api.CUfunction_attribute, _PREFERENCE)
                self.call("cuFuncSetAttribute", function, attribute, launch.shared_bytes, op=op)
            functions[launch.kernel] = function
        return Module(functions)

    def run(
        self,
        module: Module,
        plan: LaunchPlan,
        addresses: Mapping[str, int],
        sizes: Mapping[str, int],
        stream: int,
    ) -> None:
        """Launch all kernels of a plan, in order, on a stream.

        addresses  of the arrays, by name

        Raises CallError, before any launch, for sizes beyond a grid or an index; and for a launch that the driver refuses.
        """
        for launch, grid in zip(plan.launches, checked_grids(plan, sizes), strict=True):
            if min(grid) < 1:
                continue  # no blocks
            values = [
                self.tensor_map(one, plan, addresses, sizes)
                if isinstance(one, TensorMapParameter)
                else argument_of(one, addresses, sizes)
                for one in launch.parameters
            ]
            places = [
                one.address if isinstance(one, TensorMap) else ctypes.addressof(one)
                for one in values
            ]
            pointers = (ctypes.c_void_p * max(len(values), 1))(*places)
            (status,) = self.api.cuLaunchKernel(
                module.functions[launch.kernel], *grid, launch.threads, 1, 1, launch.shared_bytes,
                stream, ctypes.addressof(pointers), 0,
            )  # fmt: skip
            if int(status) != _SUCCESS:
                at = launch_text(launch, grid, sizes)
                raise self.error(status, "cuLaunchKernel", plan.name, at)
            self.last = launch, grid, sizes

    def tensor_map(
        self,
        parameter: TensorMapParameter,
        plan: LaunchPlan,
        addresses: Mapping[str, int],
        sizes: Mapping[str, int],
    ) -> TensorMap:
        """Return the tensor map of an array at an address, kept for later calls with the same.

        Raises CallError for an array that the driver makes no map of.
        """
        array = next(one for one in plan.arrays if one.name == parameter.buffer)
        address, shape = addresses[array.name], plan.shape(array, sizes)
        key = address, shape, parameter.box
        tensor_map = self.maps.get(key)
        if tensor_map is None:
            if self.encode is None:
                status, self.encode = encode_function(self.api)
                if int(status) != _SUCCESS:
                    raise self.error(status, "cuGetProcAddress", plan.name, "")
            code, tensor_map = encode(self.encode, address, shape, parameter.box)
            if code != _SUCCESS:
                at = f"{array.name} of {' × '.join(map(str, shape))} elements"
                raise self.error(code, "cuTensorMapEncodeTiled", plan.name, at)
            if len(self.maps) >= MAX_KNOWN_GRIDS:
                self.maps.clear()
            self.maps[key] = tensor_map
        return tensor_map


def argument_of(
    parameter: ArrayParameter | SizeParameter,
    addresses: Mapping[str, int],
    sizes: Mapping[str, int],
) -> Any:
    """Return the argument of a launch for a parameter, as ctypes has it."""
    match parameter:
        case ArrayParameter(buffer):
            return ctypes.c_uint64(addresses[buffer])
        case SizeParameter(size):
            return ctypes.c_int32(sizes[size])


def launch_text(launch: Launch, grid: Sequence[int], sizes: Mapping[str, int]) -> str:
    """Return a launch in words: kernel, sizes, grid, threads, shared memory."""
    where = f" at {', '.join(f'{name} = {size}' for name, size in sizes.items())}" if sizes else ""
    blocks = " × ".join(map(str, grid))
    return f"{launch.kernel}{where}: {blocks} blocks of {launch.threads} threads, {launch.shared_bytes} bytes of shared memory each"


def checked_grids(plan: LaunchPlan, sizes: Mapping[str, int]) -> tuple[tuple[int, int, int], ...]:
    """Return the grids of a plan at these sizes, of which none is too large, nor any index.

    Raises CallError with the smallest size that is too large, the others being as they are.
    """
    vector = tuple(sizes.values())
    grids = plan.known_grids.get(vector)
    if grids is not None:
        return grids
    for launch in plan.launches:
        excess = plan.too_large(launch, sizes)
        if excess is None:
            continue
        name, smallest = plan.smallest_too_large(launch, sizes)
        others = "".join(f", {one} = {size}" for one, size in sizes.items() if one != name)
        raise CallError(
            plan.name,
            f"cannot launch {launch.kernel} with {name} = {sizes[name]}",
            because=f"{excess.text} = {excess.value} is {excess.what}, and {excess.limit} is the largest",
            help=(f"{name} <= {smallest - 1}{others}, in several calls",),
        )
    if len(plan.known_grids) >= MAX_KNOWN_GRIDS:
        plan.known_grids.clear()
    grids = plan.known_grids[vector] = plan.grids(sizes)
    return grids


@cache
def driver_api(op: str) -> Any:
    """Return ``cuda.bindings.driver``, begun.

    Raises TargetError where the wheel is missing, and where there is no driver or no GPU.
    """
    try:
        from cuda.bindings import driver
    except ImportError:
        raise TargetError(
            op,
            "cannot reach a GPU without the wheel cuda-bindings",
            because="it is not installed",
            help=(extra_help("gpu"), _EMULATED),
        ) from None
    try:
        (status,) = driver.cuInit(0)
        because = f"cuInit says {driver.CUresult(status).name}"
    except RuntimeError as error:
        status, because = _NO_DRIVER, str(error).partition("\n")[0]
    if int(status) == _SUCCESS:
        return driver
    what = "no GPU was found" if int(status) == _NO_DEVICE else "no driver of a GPU was found"
    raise TargetError(op, "cannot run on a GPU", because=f"{what}: {because}", help=(_EMULATED,))


_EMULATED = 'device="emulated" runs on numpy arrays, without a GPU'
_devices: dict[tuple[int, int], Device] = {}


def open_device(op: str, ordinal: int = 0) -> Device:
    """Return a GPU by its number, the same one at each call.

    Raises TargetError where there is none.
    """
    api = driver_api(op)
    device = _devices.get((id(api), ordinal))
    if device is None:
        device = _devices[id(api), ordinal] = Device(api, ordinal)
    return device


ALIGNED = 16
"""Bytes that the address of an array is a multiple of: a cell that is copied in the background."""
_OP = "cuda"


@dataclass(frozen=True)
class DeviceMemory(Memory):
    """The memory of the GPU of a number."""

    kind: ClassVar[str] = "cuda"

    ordinal: int = 0

    def allocate(self, count: int, stream: int = 0) -> Block:
        """Return a block, which is freed behind all that its stream does when nobody has it any more.

        Raises CallError if there is none.
        """
        device = open_device(_OP, self.ordinal)
        with device.current():
            address = device.allocate(count, stream, _OP)
        owner = _Owner()
        weakref.finalize(owner, _free, device, address, stream).atexit = False
        return Block(address, count, owner)

    def write(self, address: int, source: int, count: int, stream: int = 0) -> None:
        """Copy bytes to the device, after all that a stream does so far."""
        device = open_device(_OP, self.ordinal)
        with device.current():
            device.copy_in(address, source, count, stream, _OP)

    def read(self, target: int, address: int, count: int, stream: int = 0) -> None:
        """Copy bytes from the device, after all that a stream does so far."""
        device = open_device(_OP, self.ordinal)
        with device.current():
            device.copy_out(target, address, count, stream, _OP)

    def wait(self, stream: int = 0) -> None:
        """Wait for a stream."""
        device = open_device(_OP, self.ordinal)
        with device.current():
            device.synchronize(stream, _OP)

    def view_of(self, array: object, at: str, op: str) -> ArrayView | None:
        """Return the memory of an array of this device; of a copy by its package where it does not lie row by row, or begins inside of a cell.

        Raises CallError for an array of another GPU.
        """
        if not is_on_cuda(array):
            return None
        view = arrays.view(array, at, op=op, cuda=True)
        if view.device != self.ordinal:
            raise CallError(
                op,
                f"cannot take {at} from cuda:{view.device}",
                at=at,
                because=f"the model lies on cuda:{self.ordinal}",
            )
        if arrays.is_by_rows(view) and view.address % ALIGNED == 0:
            return view
        return arrays.view(rows_of(array), at, op=op, cuda=True)

    def stream_of(self, kind: str) -> int:
        """Return the current stream of a package."""
        return current_stream(kind, self.ordinal)

    def empty(self, kind: str, shape: tuple[int, ...], dtype: str, op: str) -> tuple[Any, int]:
        """Return an array that a package allocates.

        Raises CallError for another package than torch and cupy.
        """
        array = empty_on_cuda(kind, shape, dtype, self.ordinal, op)
        return array, arrays.view(array, "a result", op=op, cuda=True).address


class _Owner:
    """What a block lives as long as."""


def _free(device: Device, address: int, stream: int) -> None:
    with device.current():
        device.free(address, stream)
