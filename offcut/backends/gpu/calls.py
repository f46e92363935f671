"""Calls of kernels on a GPU: arrays of a device are used where they lie, those of the host are copied there and back.

On a device nothing waits: the launches follow what the package of the first array does on its current stream, and results are
allocated by that package. Intermediate arrays stay allocated, for each stream, so a call of sizes that were seen allocates
nothing of its own, and a CUDA graph can record it. A call with arrays of the host copies all of them, and waits.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

import numpy as np

from offcut import debug
from offcut.backends.abi import Signature
from offcut.backends.gpu.driver import Device, Module, open_device
from offcut.backends.gpu.launches import ArrayParameter, DeviceArray, LaunchPlan, TensorMapParameter
from offcut.backends.gpu.nvrtc import architecture_of, cached_cubin
from offcut.backends.gpu.text import cuda_kernels
from offcut.backends.host import arrays
from offcut.backends.host.arrays import (
    ArrayView,
    current_stream,
    empty_on_cuda,
    is_on_cuda,
    rows_of,
)
from offcut.backends.host.binding import Call, bind, out_names
from offcut.backends.host.call import SlowPath
from offcut.backends.options import Loaded
from offcut.core.dtypes import ITEM_BYTES, numpy_dtype
from offcut.core.program import Program
from offcut.describe.request import Array
from offcut.errors import CallError, DescribeError, TargetError, trim_traceback

SLOT = 256
"""Bytes of which the address of each intermediate array in a workspace is a multiple."""


@dataclass
class _Resident:
    """A kernel on a device: its code, its constants, and arrays of its own by stream and name, with their bytes."""

    device: Device
    module: Module
    constants: Mapping[str, int]
    owned: dict[tuple[int, str], tuple[int, int]] = field(default_factory=dict)

    def room(self, stream: int, name: str, size: int, op: str) -> int:
        """Return the address of `size` bytes that stay allocated; what was too small is freed behind all that uses it."""
        address, capacity = self.owned.get((stream, name), (0, 0))
        if capacity < size:
            self.device.free(address, stream)
            self.owned.pop((stream, name), None)
            address = self.device.allocate(size, stream, op)
            self.owned[stream, name] = address, size
        return address


@dataclass
class DeviceKernel:
    """A kernel as a Python callable, on the device of its arrays; with arrays of the host, on device 0.

    code       the cubin
    constants  by the program's names
    """

    signature: Signature
    plan: LaunchPlan
    code: bytes
    constants: Mapping[str, Array]
    residents: dict[int, _Resident] = field(default_factory=dict)
    lock: Lock = field(default_factory=Lock)

    def __post_init__(self) -> None:
        self.host = SlowPath(self.signature, self.run_from_host)
        kinds = [(array.name, array.kind) for array in self.plan.arrays]
        self.inputs = [name for name, kind in kinds if kind in ("input", "inout")]
        self.outputs = [name for name, kind in kinds if kind in ("output", "inout")]
        self.locals = [array for array in self.plan.arrays if array.kind == "local"]
        self.alignments: dict[str, int] = {}
        for launch in self.plan.launches:
            for one in launch.parameters:
                if isinstance(one, ArrayParameter | TensorMapParameter):
                    known = self.alignments.get(one.buffer, 1)
                    self.alignments[one.buffer] = max(known, one.alignment)

    @trim_traceback
    def __call__(self, /, *args: object, **kwargs: object) -> Any:
        """Check the arguments, launch, return the result: `out` where it is given."""
        out = kwargs.get("out")
        outs = out if isinstance(out, tuple) else (out,)
        if not any(map(is_on_cuda, (*args, *kwargs.values(), *outs))):
            return self.host(*args, **kwargs)
        call = bind(self.signature, args, kwargs, cuda=True)
        ordinal, kind, stream = self.place_of(call)
        op = self.signature.name
        results = out
        targets = call.outs
        if not targets:
            new_arrays = [
                empty_on_cuda(kind, shape, output.dtype, ordinal, op)
                for shape, output in zip(call.shapes, self.signature.outputs, strict=True)
            ]
            results = tuple(new_arrays) if len(new_arrays) > 1 else new_arrays[0]
            labels = out_names(self.signature)
            targets = tuple(arrays.view(one, at, op=op, cuda=True) for one, at in zip(new_arrays, labels, strict=True))  # fmt: skip
        self.run_in_place(call, targets, ordinal, stream)
        return results

    def place_of(self, call: Call) -> tuple[int, str, int]:
        """Return the device of a call, the package of its first array there, and the stream of that package.

        Raises CallError for arrays of several devices, or of packages that work on several streams.
        """
        names = [*(one.name for one in self.signature.inputs), *out_names(self.signature)]
        views = [*zip(names, (*call.inputs, *call.outs), strict=False)]
        first, view = next((name, one) for name, one in views if one.device is not None)
        ordinal = view.device
        assert ordinal is not None
        stream = current_stream(view.kind, ordinal)
        for name, one in views:
            if one.device != ordinal:
                where = (
                    "in the memory of the host" if one.device is None else f"on cuda:{one.device}"
                )
                raise CallError(
                    self.signature.name,
                    f"{name} is on another device than {first}",
                    at=name,
                    because=f"{first} is on cuda:{ordinal}, and {name} {where}",
                    help=(f"all arrays on cuda:{ordinal}", "all arrays in the memory of the host"),
                )
            if current_stream(one.kind, ordinal) != stream:
                raise CallError(
                    self.signature.name,
                    f"{name} is worked on by another stream than {first}",
                    at=name,
                    because=f"the current stream of {one.kind} is not that of {view.kind}",
                    help=(f"the same current stream for {view.kind} and {one.kind}",),
                )
        return ordinal, view.kind, stream

    def run_in_place(
        self, call: Call, targets: Sequence[ArrayView], ordinal: int, stream: int
    ) -> None:
        """Launch on arrays of a device; one that does not lie as the kernel reads it is copied by its package."""
        copies: list[Any] = []
        addresses: dict[str, int] = {}
        late: list[tuple[Any, Any]] = []
        for name, view in zip(self.inputs, call.inputs, strict=True):
            addresses[name] = self.usable(name, view, copies).address
        starts = {number: addresses[self.inputs[source]] for source, number in self.signature.updated}  # fmt: skip
        begins: list[tuple[int, int, int]] = []
        for number, (name, view) in enumerate(zip(self.outputs, targets, strict=True)):
            target = self.usable(name, view, copies)
            addresses[name] = target.address
            if target is not view:
                late.append((_array_of(view), copies[-1]))
            if starts.get(number, target.address) != target.address:
                begins.append((target.address, starts[number], _bytes_of(view)))
        self.launch(addresses, self.sizes_of(call.sizes), ordinal, stream, begins)
        for array, copy in late:
            array[...] = copy

    def usable(self, name: str, view: ArrayView, copies: list[Any]) -> ArrayView:
        """Return a view that the kernel can use; where that is of a copy, the copy is added to `copies`."""
        if arrays.is_by_rows(view) and view.address % self.alignments.get(name, 1) == 0:
            return view
        debug.note(
            2, f"{self.signature.name}: {name} is copied on the device, by rows", logger="call"
        )
        copies.append(rows_of(_array_of(view)))
        return arrays.view(copies[-1], name, op=self.signature.name, cuda=True)

    def run_from_host(
        self, inputs: Sequence[ArrayView], sizes: Mapping[str, int], outs: Sequence[ArrayView]
    ) -> None:
        """Copy the inputs to device 0, launch, copy the results back, and wait."""
        op, stream = self.signature.name, 0
        debug.note(2, f"{op}: arrays of the host are copied to the GPU and back", logger="call")
        with self.lock:
            resident = self.resident(0)
            device = resident.device
            with device.current():
                addresses: dict[str, int] = {}
                for name, view in zip((*self.outputs, *self.inputs), (*outs, *inputs), strict=True):
                    addresses[name] = resident.room(stream, name, _bytes_of(view), op)
                contiguous = [np.ascontiguousarray(arrays.window(view)) for view in inputs]
                for name, array in zip(self.inputs, contiguous, strict=True):
                    device.copy_in(addresses[name], array.ctypes.data, array.nbytes, stream, op)
                self.launch_locked(resident, addresses, self.sizes_of(sizes), stream)
                results = [np.empty(view.shape, numpy_dtype(view.dtype)) for view in outs]
                for name, result in zip(self.outputs, results, strict=True):
                    device.copy_out(result.ctypes.data, addresses[name], result.nbytes, stream, op)
                device.synchronize(stream, op)
        for view, result in zip(outs, results, strict=True):
            arrays.window(view)[...] = result

    def launch(
        self,
        addresses: dict[str, int],
        sizes: Mapping[str, int],
        ordinal: int,
        stream: int,
        begins: Sequence[tuple[int, int, int]],
    ) -> None:
        """Launch on a stream, after copies on the device.

        begins  ``(to, from, bytes)``
        """
        with self.lock:
            resident = self.resident(ordinal)
            with resident.device.current():
                for to, source, size in begins:
                    resident.device.copy_within(to, source, size, stream, self.signature.name)
                self.launch_locked(resident, addresses, sizes, stream)

    def launch_locked(
        self, resident: _Resident, addresses: dict[str, int], sizes: Mapping[str, int], stream: int
    ) -> None:
        """Launch, with the constants and with room for intermediate arrays."""
        addresses.update(resident.constants)
        for array in self.locals:
            size = _array_bytes(self.plan, array, sizes)
            addresses[array.name] = resident.room(stream, array.name, size, self.signature.name)
        resident.device.run(resident.module, self.plan, addresses, sizes, stream)

    def resident(self, ordinal: int) -> _Resident:
        """Return the kernel on a device, with its constants, where it is loaded once."""
        resident = self.residents.get(ordinal)
        if resident is None:
            op = self.signature.name
            device = open_device(op, ordinal)
            with device.current():
                module = device.load(self.code, self.plan)
                constants = {}
                for name, array in self.constants.items():
                    contiguous = np.ascontiguousarray(array)
                    constants[name] = device.allocate(contiguous.nbytes, 0, op)
                    device.copy_in(
                        constants[name], contiguous.ctypes.data, contiguous.nbytes, 0, op
                    )
                if constants:
                    device.synchronize(0, op)
            resident = self.residents[ordinal] = _Resident(device, module, constants)
        return resident

    def sizes_of(self, sizes: Mapping[str, int]) -> dict[str, int]:
        """Return sizes by the program's names, in its order."""
        users = (facts.name for facts in self.signature.sizes)
        return {name: sizes[user] for name, user in zip(self.plan.sizes, users, strict=True)}


@dataclass(frozen=True)
class DeviceCode:
    """The cubin of a kernel: a function of the constants, which returns what a user calls."""

    signature: Signature
    plan: LaunchPlan
    code: bytes

    def __call__(self, constants: Mapping[str, Array]) -> DeviceKernel:
        """Return the kernel of some constants."""
        return DeviceKernel(self.signature, self.plan, self.code, constants)

    def device_entry(self, constants: Mapping[str, Array]) -> LaunchEntry:
        """Return the kernel of some constants, which takes addresses on device 0, where both are loaded."""
        kernel = self(constants)
        kernel.resident(0)
        return LaunchEntry(kernel)


@dataclass(frozen=True)
class LaunchEntry:
    """A kernel, with its constants on device 0, that is called by addresses there."""

    kernel: DeviceKernel

    def workspace(self, sizes: Sequence[int]) -> int:
        """Return the bytes of intermediate arrays."""
        return sum(count for _, count in self._local_arrays(sizes))

    def __call__(
        self, pointers: Sequence[int], sizes: Sequence[int], workspace: int, stream: int = 0
    ) -> None:
        """Launch, after copies of the arrays that are updated.

        Raises CallError as `Device.run` does.
        """
        kernel, op = self.kernel, self.kernel.signature.name
        inputs, outputs = pointers[: len(kernel.inputs)], pointers[len(kernel.inputs) :]
        values = dict(zip(kernel.plan.sizes, sizes, strict=True))
        addresses = dict(zip((*kernel.inputs, *kernel.outputs), pointers, strict=True))
        for name, count in self._local_arrays(sizes):
            addresses[name] = workspace
            workspace += count
        with kernel.lock:
            resident = kernel.resident(0)
            device = resident.device
            with device.current():
                for source, target in kernel.signature.updated:
                    array = next(a for a in kernel.plan.arrays if a.name == kernel.inputs[source])
                    count = _array_bytes(kernel.plan, array, values)
                    device.copy_within(outputs[target], inputs[source], count, stream, op)
                addresses.update(resident.constants)
                device.run(resident.module, kernel.plan, addresses, values, stream)

    def _local_arrays(self, sizes: Sequence[int]) -> list[tuple[str, int]]:
        """Return the intermediate arrays, and the bytes of a workspace that each takes."""
        plan = self.kernel.plan
        values = dict(zip(plan.sizes, sizes, strict=True))
        return [
            (array.name, -(-_array_bytes(plan, array, values) // SLOT) * SLOT)
            for array in self.kernel.locals
        ]


def lowered_kernels(program: Program) -> bytes:
    """Return the text of the kernels of a program and how they are launched, as JSON.

    Raises TargetError for a statement that has no text in CUDA C++ so far.
    """
    try:
        text, plan = cuda_kernels(program)
    except DescribeError as error:
        raise TargetError(
            "compile",
            f"cannot run {program.name} on a GPU",
            at=error.at,
            because=error.because,
            help=('device="emulated" runs it on numpy arrays',),
        ) from None
    return json.dumps({"text": text, "plan": plan.to_json()}).encode()


def load_on_device(lowered: bytes, signature: Signature, machine: str) -> Loaded:
    """Return code that runs on a GPU: a function of the constants, which returns what a user calls.

    lowered  what `lowered_kernels` gave
    machine  the architecture that its description names

    Raises TargetError where no driver, no GPU or no compiler is found, where the GPU does not run code of that architecture, and
    for code that is slow.
    """
    fields = json.loads(lowered)
    plan = LaunchPlan.from_json(fields["plan"])
    device = open_device("compile")
    architecture = architecture_of(machine)
    check_capability(device, architecture)
    threads = {launch.kernel: launch.threads for launch in plan.launches}
    code = cached_cubin("compile", fields["text"], architecture, threads)

    return DeviceCode(signature, plan, code)


def check_capability(device: Device, architecture: str) -> None:
    """Check that a device runs code of an architecture: of the same major version, and of no later minor one; with an ``a``, of exactly that.

    Raises TargetError if it does not.
    """
    digits = architecture.removeprefix("sm_").rstrip("a")
    required = int(digits[:-1]), int(digits[-1])
    own = device.capability
    runs = (
        own == required if architecture.endswith("a") else own[0] == required[0] and own >= required
    )
    if not runs:
        raise TargetError(
            "compile",
            f"cannot run code of {architecture} on {device.title}",
            because=f"its compute capability is {own[0]}.{own[1]}, and the code is for {required[0]}.{required[1]}",
            help=('oc.target("cuda", machine=…) of the GPU that is there',),
        )


def _array_of(view: ArrayView) -> Any:
    """Return the array that a view on a device is of."""
    assert isinstance(view.owner, tuple)
    return view.owner[0]


def _array_bytes(plan: LaunchPlan, array: DeviceArray, sizes: Mapping[str, int]) -> int:
    return math.prod(plan.shape(array, sizes)) * ITEM_BYTES[array.dtype]


def _bytes_of(view: ArrayView) -> int:
    return math.prod(view.shape) * ITEM_BYTES[view.dtype]
