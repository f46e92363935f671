"""The memory of a GPU, by its driver: blocks, copies in the order of a stream, and arrays of other packages there."""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import Any, ClassVar

from offcut.backends.gpu.driver import Device, open_device
from offcut.backends.host import arrays
from offcut.backends.host.arrays import ArrayView
from offcut.backends.host.cuda_arrays import current_stream, empty_on_cuda, is_on_cuda, rows_of
from offcut.backends.memory import Block, Memory
from offcut.errors import CallError

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


__all__ = ["DeviceMemory"]
