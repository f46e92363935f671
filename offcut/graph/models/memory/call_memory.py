"""The memory of a call: the arena, and, where it is that of a device, a place in it for each input and result.

Blocks are kept for later calls. A device grants more than is asked for, so that calls of sizes that are alike allocate nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from offcut.backends.host.call import NO_MEMORY
from offcut.backends.memory import Block, Memory
from offcut.describe.request import Array
from offcut.errors import CallError

SLOT = 256
"""Bytes of which the address of an input or a result in a block is a multiple."""


class Blocks:
    """The blocks of a model's calls, each for one call at a time.

    name  of the model
    """

    def __init__(self, name: str, memory: Memory) -> None:
        self.name, self.memory = name, memory
        self._free: list[Block] = []

    def take(self, count: int) -> Block:
        """Return a block of at least so many bytes that no other call has.

        Raises CallError if there is no memory for it.
        """
        while self._free:
            try:
                block = self._free.pop()
            except IndexError:  # another thread took it
                break
            if block.bytes >= count:
                return block
        try:
            return self.memory.allocate(self.memory.size_class(count))
        except NO_MEMORY as error:
            raise CallError(
                self.name,
                "cannot allocate the arena",
                because=f"values between kernels take {count:,} bytes",
            ) from error

    def give_back(self, block: Block) -> None:
        """Let other calls take a block."""
        self._free.append(block)


class Passage:
    """Places for the inputs and results of a call behind its arena, in the memory of a device.

    inputs, results  the bytes of each
    """

    def __init__(self, memory: Memory, inputs: Sequence[int], results: Sequence[int]) -> None:
        self.memory, self.inputs = memory, len(inputs)
        self.counts = (*inputs, *results)
        *self.starts, self.bytes = accumulate(map(rounded, self.counts), initial=0)

    def enter(self, first: int, addresses: Sequence[int]) -> list[int]:
        """Copy the inputs to the device; return the addresses that inputs and results have there.

        first      where the places begin
        addresses  of inputs and results in the process
        """
        for start, source, count in self._each(addresses)[: self.inputs]:
            self.memory.write(first + start, source, count)
        return [first + start for start in self.starts]

    def leave(self, first: int, addresses: Sequence[int]) -> None:
        """Wait for the results, and copy them to the process."""
        for start, target, count in self._each(addresses)[self.inputs :]:
            self.memory.read(target, first + start, count)

    def _each(self, addresses: Sequence[int]) -> list[tuple[int, int, int]]:
        return [*zip(self.starts, addresses, self.counts, strict=True)]


def rounded(count: int) -> int:
    """Return the bytes that an array takes of a block."""
    return -(-count // SLOT) * SLOT


def held(memory: Memory, array: Array) -> Block:
    """Return a constant, whose elements lie row by row, in a memory: in its own, if that is the process's."""
    address: int = array.__array_interface__["data"][0]
    if memory.is_host:
        return Block(address, array.nbytes, array)
    block = memory.allocate(array.nbytes)
    memory.write(block.address, address, array.nbytes)
    return block
