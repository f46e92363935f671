"""The memory that the arrays of a target's kernels lie in: of the process, or of a device.

What a model needs of a device is here, and nothing else: blocks of memory, and copies between them and the process. A device runs calls
and copies in the order in which they were made; `Memory.read` alone waits for them.
"""

from __future__ import annotations

import ctypes
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

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
    """

    is_host: ClassVar[bool] = False

    @abstractmethod
    def allocate(self, count: int) -> Block:
        """Return a block of at least `count` bytes, which are not initialised.

        Raises MemoryError if there is none.
        """

    @abstractmethod
    def write(self, address: int, source: int, count: int) -> None:
        """Copy `count` bytes from `source`, an address in the process, to `address`."""

    @abstractmethod
    def read(self, target: int, address: int, count: int) -> None:
        """Wait until all that was called has ended; copy `count` bytes from `address` to `target`, an address in the process."""

    def size_class(self, count: int) -> int:
        """Return the bytes that are allocated for `count`: the next power of two, so that calls of alike sizes share a block."""
        return 1 << max(count - 1, 0).bit_length()


class HostMemory(Memory):
    """The memory of the process."""

    is_host = True

    def allocate(self, count: int) -> Block:
        """Return a block that begins at a multiple of `ALIGNMENT`."""
        owner = np.empty(count + ALIGNMENT, np.uint8)
        start: int = owner.__array_interface__["data"][0]
        return Block(start + -start % ALIGNMENT, count, owner)

    def write(self, address: int, source: int, count: int) -> None:
        """Copy bytes."""
        ctypes.memmove(address, source, count)

    def read(self, target: int, address: int, count: int) -> None:
        """Copy bytes."""
        ctypes.memmove(target, address, count)

    def size_class(self, count: int) -> int:
        """Return `count`."""
        return count


HOST = HostMemory()

__all__ = ["ALIGNMENT", "HOST", "Block", "HostMemory", "Memory"]
