"""The memory that the arrays of a target's kernels lie in: of the process, or of a device.

What a model needs of a device is here, and nothing else: blocks of memory, copies between them and the process, and arrays that lie there
already. A device runs what is called on a stream in that order; `Memory.wait` alone waits for it.
"""

from __future__ import annotations

import ctypes
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from offcut.backends.host.arrays import ArrayView

ALIGNMENT = 64
"""Bytes: where a block of the process begins."""


@dataclass(frozen=True, slots=True)
class Block:
    """Memory from `address` on, of so many bytes, as long as `owner` lives."""

    address: int
    bytes: int
    owner: object


class Memory(ABC):
    """A memory with addresses of its own.

    is_host  whether code of the process reads and writes there
    kind     what packages of arrays call the devices whose arrays may be read in place; "": there are none
    """

    is_host: ClassVar[bool] = False
    kind: ClassVar[str] = ""

    @abstractmethod
    def allocate(self, count: int, stream: int = 0) -> Block:
        """Return a block of at least `count` bytes, which are not initialised, for what is called on a stream.

        Raises MemoryError or CallError if there is none.
        """

    @abstractmethod
    def write(self, address: int, source: int, count: int, stream: int = 0) -> None:
        """Copy `count` bytes from `source`, an address in the process, to `address`; `source` may change from here on."""

    @abstractmethod
    def read(self, target: int, address: int, count: int, stream: int = 0) -> None:
        """Copy `count` bytes from `address` to `target`, an address in the process, where they are after `wait`."""

    @abstractmethod
    def wait(self, stream: int = 0) -> None:
        """Wait until all that was called on a stream has ended."""

    def size_class(self, count: int) -> int:
        """Return the bytes that are allocated for `count`: the next power of two, so that calls of alike sizes share a block."""
        return 1 << max(count - 1, 0).bit_length()

    def view_of(self, array: object, at: str, op: str) -> ArrayView | None:
        """Return the memory of an array that lies here, row by row; None for an array that lies elsewhere.

        at, op  the argument, and who asks, in words of errors

        Raises CallError for an array of another such device.
        """
        return None

    def stream_of(self, kind: str) -> int:
        """Return the stream on which a package of arrays works now."""
        return 0

    def empty(self, kind: str, shape: tuple[int, ...], dtype: str, op: str) -> tuple[Any, int]:
        """Return an uninitialised array here, row by row, by a package of arrays, and its address.

        Raises CallError for a package that allocates none.
        """
        raise NotImplementedError


class HostMemory(Memory):
    """The memory of the process."""

    is_host = True

    def allocate(self, count: int, stream: int = 0) -> Block:
        """Return a block that begins at a multiple of `ALIGNMENT`."""
        owner = np.empty(count + ALIGNMENT, np.uint8)
        start: int = owner.__array_interface__["data"][0]
        return Block(start + -start % ALIGNMENT, count, owner)

    def write(self, address: int, source: int, count: int, stream: int = 0) -> None:
        """Copy bytes."""
        ctypes.memmove(address, source, count)

    def read(self, target: int, address: int, count: int, stream: int = 0) -> None:
        """Copy bytes."""
        ctypes.memmove(target, address, count)

    def wait(self, stream: int = 0) -> None:
        """Do nothing."""

    def size_class(self, count: int) -> int:
        """Return `count`."""
        return count


HOST = HostMemory()
