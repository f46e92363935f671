"""The emulated device: memory of its own, and kernels that run there on the executor.

A kernel is called by addresses, as one on a GPU is. Whatever lies outside of the blocks that the device has allocated is an illegal
address, and memory that nobody has written holds NaN.
"""

from __future__ import annotations

import ctypes
import math
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from offcut.backends.abi import Signature
from offcut.backends.gpu.executor import ExecutionFault, Limits, execute
from offcut.backends.host.call import python_callable
from offcut.backends.memory import Block, Memory
from offcut.backends.signature import boundary_buffers, run_by_name
from offcut.core.analysis import windowed_arrays
from offcut.core.dtypes import ITEM_BYTES, numpy_dtype
from offcut.core.interpret.values import evaluate
from offcut.core.program import Buffer, Kind, Program
from offcut.describe.microkernel import Microkernel
from offcut.describe.request import Array
from offcut.errors import InternalError

SLOT = 256
"""Bytes of which the address of each intermediate tensor in a workspace is a multiple."""


class EmulatedMemory(Memory):
    """The memory of the emulated device.

    allocations, writes, reads, waits  how many there were in this process
    """

    def __init__(self) -> None:
        self.allocations = self.writes = self.reads = self.waits = 0
        self._blocks: weakref.WeakSet[_Bytes] = weakref.WeakSet()
        self._lock = threading.Lock()

    def allocate(self, count: int, stream: int = 0) -> Block:
        """Return a block whose bytes are all 255: floats that are NaN."""
        block = _Bytes(count)
        with self._lock:
            self.allocations += 1
            self._blocks.add(block)
        return Block(block.address, count, block)

    def write(self, address: int, source: int, count: int, stream: int = 0) -> None:
        """Copy bytes to the device.

        Raises InternalError for an illegal address.
        """
        self.writes += 1
        self.check(address, count)
        ctypes.memmove(address, source, count)

    def read(self, target: int, address: int, count: int, stream: int = 0) -> None:
        """Copy bytes from the device.

        Raises InternalError for an illegal address.
        """
        self.reads += 1
        self.check(address, count)
        ctypes.memmove(target, address, count)

    def wait(self, stream: int = 0) -> None:
        """Count that somebody waited: what is called here has ended."""
        self.waits += 1

    def check(self, address: int, count: int) -> None:
        """Check that bytes lie in one block.

        Raises InternalError if they do not.
        """
        if count:
            self._bytes(address, count)

    def array(self, address: int, shape: tuple[int, ...], dtype: str) -> Array:
        """Return the elements from `address` on as an array, row by row.

        Raises InternalError for an illegal address.
        """
        element = numpy_dtype(dtype)
        count = math.prod(shape) * element.itemsize
        if not count:
            return np.empty(shape, element)
        return self._bytes(address, count).view(element).reshape(shape)

    def _bytes(self, address: int, count: int) -> Array:
        """Return bytes of a block."""
        with self._lock:
            for block in self._blocks:
                start = address - block.address
                if start >= 0 and start + count <= len(block.bytes):
                    return block.bytes[start : start + count]
        raise InternalError(f"illegal address {address:#x}: {count} bytes lie in no block")


class _Bytes:
    """The bytes of a block."""

    def __init__(self, count: int) -> None:
        owner = np.full(count + SLOT, 255, np.uint8)
        start: int = owner.__array_interface__["data"][0]
        self.address = start + -start % SLOT
        self.bytes = owner[self.address - start :][:count]


MEMORY = EmulatedMemory()


@dataclass(frozen=True)
class EmulatedCode:
    """A program that the executor runs, on arrays of the host or by addresses."""

    program: Program
    signature: Signature
    kernels: tuple[Microkernel, ...]
    limits: Limits

    def __call__(self, constants: Mapping[str, Array]) -> Callable[..., Any]:
        """Return the kernel of some constants, which takes arrays of the host."""

        def run(inputs: Sequence[Array], sizes: Mapping[str, int]) -> Sequence[Array]:
            return self.results(inputs, constants, sizes)

        return python_callable(self.signature, run)

    def device_entry(self, constants: Mapping[str, Array]) -> EmulatedEntry:
        """Return the kernel of some constants, which takes addresses."""
        return EmulatedEntry(
            self, {name: _ConstantCopy(array) for name, array in constants.items()}
        )

    def results(
        self, inputs: Sequence[Array], constants: Mapping[str, Array], sizes: Mapping[str, int]
    ) -> list[Array]:
        """Return the results in the order of the program.

        sizes  in the order of the program's

        Raises ExecutionFault for what units side by side do not run as the text says.
        """

        def run(arrays: dict[str, Array], values: dict[str, int]) -> Mapping[str, Array]:
            all_arrays = {**arrays, **constants}
            return execute(
                self.program, all_arrays, values, kernels=self.kernels, limits=self.limits
            )

        return run_by_name(self.program, run, inputs, sizes)


class _ConstantCopy:
    """A constant in the memory of the device."""

    def __init__(self, array: Array) -> None:
        source = np.ascontiguousarray(array)
        self._block = MEMORY.allocate(source.nbytes)
        MEMORY.write(self._block.address, source.__array_interface__["data"][0], source.nbytes)
        self.array = MEMORY.array(self._block.address, array.shape, array.dtype.name)


@dataclass(frozen=True)
class EmulatedEntry:
    """A kernel with its constants in the memory of the device."""

    code: EmulatedCode
    constants: Mapping[str, _ConstantCopy]

    def workspace(self, sizes: Sequence[int]) -> int:
        """Return the bytes of the intermediate tensors in main memory."""
        program = self.code.program
        windowed = windowed_arrays(program.body)
        values = self._values(sizes)
        return sum(
            -(-_bytes_of(buffer, values) // SLOT) * SLOT
            for buffer in program.buffers
            if buffer.kind is Kind.LOCAL and buffer.name not in windowed
        )

    def __call__(
        self, pointers: Sequence[int], sizes: Sequence[int], workspace: int, stream: int = 0
    ) -> None:
        """Run the kernel.

        Raises InternalError for an illegal address, and for a fault that no data causes; ExecutionFault for an index out of bounds.
        """
        values = self._values(sizes)
        MEMORY.check(workspace, self.workspace(sizes))
        inputs, outputs = boundary_buffers(self.code.program.buffers)
        arrays = [
            MEMORY.array(pointer, _shape_of(buffer, values), buffer.dtype)
            for buffer, pointer in zip((*inputs, *outputs), pointers, strict=True)
        ]
        constants = {name: constant.array for name, constant in self.constants.items()}
        try:
            results = self.code.results(arrays[: len(inputs)], constants, values)
        except ExecutionFault as fault:
            if fault.finder == "bounds":  # an index that data says
                raise
            raise InternalError(str(fault)) from fault
        for target, result in zip(arrays[len(inputs) :], results, strict=True):
            target[...] = result

    def _values(self, sizes: Sequence[int]) -> dict[str, int]:
        """Return the sizes by the program's names."""
        return dict(zip((one.name for one in self.code.program.sizes), sizes, strict=True))


def _shape_of(buffer: Buffer, sizes: Mapping[str, int]) -> tuple[int, ...]:
    return tuple(int(evaluate(extent, sizes)) for extent in buffer.shape)


def _bytes_of(buffer: Buffer, sizes: Mapping[str, int]) -> int:
    count = ITEM_BYTES[buffer.dtype]
    for extent in _shape_of(buffer, sizes):
        count *= extent
    return count


__all__ = ["MEMORY", "EmulatedCode", "EmulatedEntry", "EmulatedMemory"]
