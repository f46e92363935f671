"""What runs a prepared kernel on arrays: a GPU, through the driver, or the emulated device."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from device_run.folder import Prepared
from device_run.reference import STORED, Array
from offcut.backends.gpu.driver import Device, Module, open_device
from offcut.backends.gpu.launches import ArrayParameter

GUARD_BYTES = 4096
"""Bytes before and behind each array on a GPU that no kernel may write."""
_GUARD, _POISON = 0xA5, 0xFF


class WrongWrite(Exception):
    """A kernel wrote outside of its arrays, or into an input."""


class Runner(Protocol):
    """What runs kernels."""

    @property
    def title(self) -> str:
        """Return the name of the device."""

    def run(
        self, kernel: Prepared, inputs: Mapping[str, Array], n: int, offset: bool = False
    ) -> dict[str, Array]:
        """Return the results of a kernel at a size, by name.

        offset  whether arrays begin as oddly as the kernel takes them

        Raises WrongWrite for a write to any other place.
        """


@dataclass
class Emulated:
    """The emulated device, which needs all of offcut."""

    title: str = "emulated"

    def run(
        self, kernel: Prepared, inputs: Mapping[str, Array], n: int, offset: bool = False
    ) -> dict[str, Array]:
        """Return the results, by the executor of units; it checks bounds itself."""
        from offcut.backends.gpu.executor import execute
        from offcut.core.dtypes import numpy_dtype
        from offcut.core.text.parser import parse
        from offcut.pipeline import target

        kinds = {array.name: array.dtype for array in kernel.plan.arrays}
        arrays = {name: array.view(numpy_dtype(kinds[name])) for name, array in inputs.items()}
        cuda: Any = target("cuda", machine="h200", device="emulated")
        sizes = dict.fromkeys(kernel.plan.sizes, n)
        results = execute(parse(kernel.loops), arrays, sizes, kernels=cuda.microkernels())
        outputs = [array for array in kernel.plan.arrays if array.kind == "output"]
        return {
            array.name: np.asarray(results[array.name]).view(STORED[array.dtype])
            for array in outputs
        }


@dataclass
class OnDevice:
    """A GPU, with the cubins of a folder.

    device  None: the first one
    """

    folder: Path
    device: Device = field(default_factory=lambda: open_device("bench"))
    modules: dict[str, Module] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """Return the name of the GPU."""
        return self.device.title

    def module(self, kernel: Prepared) -> Module:
        """Return the code of a kernel, loaded once.

        Raises ValueError if none was made.
        """
        if kernel.name not in self.modules:
            if kernel.cubin is None:
                raise ValueError(f"{kernel.name} was prepared without code")
            code = (self.folder / kernel.cubin).read_bytes()
            self.modules[kernel.name] = self.device.load(code, kernel.plan)
        return self.modules[kernel.name]

    def run(
        self, kernel: Prepared, inputs: Mapping[str, Array], n: int, offset: bool = False
    ) -> dict[str, Array]:
        """Return the results; arrays lie between guards, and results are NaN before."""
        device, plan = self.device, kernel.plan
        sizes = dict.fromkeys(plan.sizes, n)
        alignments = {
            one.buffer: one.alignment
            for launch in plan.launches
            for one in launch.parameters
            if isinstance(one, ArrayParameter)
        }
        with device.current():
            places: dict[str, tuple[int, int, Array]] = {}
            for array in plan.arrays:
                shape, kind = plan.shape(array, sizes), np.dtype(STORED[array.dtype])
                size = int(np.prod(shape)) * kind.itemsize
                begin = GUARD_BYTES + (alignments.get(array.name, 1) if offset else 0)
                host = np.full(begin + size + GUARD_BYTES, _GUARD, np.uint8)
                inner = host[begin : begin + size]
                inner[...] = _POISON
                if array.name in inputs:
                    inner[...] = np.ascontiguousarray(inputs[array.name]).view(np.uint8).ravel()
                address = device.allocate(len(host), 0, "bench")
                device.copy_in(address, host.ctypes.data, len(host), 0, "bench")
                places[array.name] = address, begin, host
            addresses = {name: at + begin for name, (at, begin, _) in places.items()}
            device.run(self.module(kernel), plan, addresses, sizes, 0)
            results = {}
            for array in plan.arrays:
                address, begin, host = places[array.name]
                after = np.empty_like(host)
                device.copy_out(after.ctypes.data, address, len(after), 0, "bench")
                device.synchronize(0, "bench")
                device.free(address, 0)
                shape, kind = plan.shape(array, sizes), np.dtype(STORED[array.dtype])
                size = int(np.prod(shape)) * kind.itemsize
                keeps = [slice(0, begin), slice(begin + size, None)]
                if array.name in inputs:
                    keeps = [slice(None)]
                for part in keeps:
                    changed = np.flatnonzero(after[part] != host[part])
                    if changed.size:
                        side = "before" if part.start == 0 and part.stop else "behind"
                        raise WrongWrite(f"{kernel.name} at n = {n} wrote {changed.size} bytes {side} {array.name}, or into it")  # fmt: skip
                if array.kind == "output":
                    results[array.name] = after[begin : begin + size].view(kind).reshape(shape)
        return results

    def seconds(self, launches: Sequence[Callable[[], None]], rounds: int = 5) -> float:
        """Return the median seconds of one launch, over rounds of all of them, by events of the device.

        launches  what enqueues one each, on stream 0: of other arrays in turn, so that L2 does not hold them
        """
        device = self.device
        with device.current():
            events = [device.call("cuEventCreate", 0) for _ in range(2)]
            for launch in launches[:2]:
                launch()
            samples = []
            for _ in range(rounds):
                device.call("cuEventRecord", events[0], 0)
                for launch in launches:
                    launch()
                device.call("cuEventRecord", events[1], 0)
                device.call("cuEventSynchronize", events[1])
                milliseconds = device.call("cuEventElapsedTime", *events)
                samples.append(milliseconds / 1e3 / len(launches))
            for event in events:
                device.call("cuEventDestroy", event)
        return float(np.median(samples))
