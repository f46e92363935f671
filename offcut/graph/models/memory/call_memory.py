"""The memory of a call: the arena, and, where it is that of a device, a place in it for each input and result.

Blocks are kept for later calls. A device grants more than is asked for, so that calls of sizes that are alike allocate nothing.
"""

from __future__ import annotations

from collections import defaultdict
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
        self._free = defaultdict[int, list[Block]](list)  # by stream, in whose order all use them

    def take(self, count: int, stream: int = 0) -> Block:
        """Return a block of at least so many bytes that no other call has, for a stream.

        Raises CallError if there is no memory for it.
        """
        free = self._free[stream]
        while free:
            try:
                block = free.pop()
            except IndexError:  # another thread took it
                break
            if block.bytes >= count:
                return block
        try:
            return self.memory.allocate(self.memory.size_class(count), stream)
        except NO_MEMORY as error:
            raise CallError(
                self.name,
                "cannot allocate the arena",
                because=f"values between kernels take {count:,} bytes",
            ) from error

    def give_back(self, block: Block, stream: int = 0) -> None:
        """Let other calls on a stream take a block."""
        self._free[stream].append(block)


class Passage:
    """Places for the inputs and results of a call behind its arena, in the memory of a device, of those that do not lie there themselves.

    inputs, results  the bytes of each; None of one that lies there
    """

    def __init__(
        self, memory: Memory, inputs: Sequence[int | None], results: Sequence[int | None]
    ) -> None:
        self.memory, counts = memory, (*inputs, *results)
        *starts, self.bytes = accumulate((rounded(count or 0) for count in counts), initial=0)
        moved = [
            (number, start, count)
            for number, (start, count) in enumerate(zip(starts, counts, strict=True))
            if count is not None
        ]
        self.inputs = [one for one in moved if one[0] < len(inputs)]
        self.results = [one for one in moved if one[0] >= len(inputs)]

    def enter(self, first: int, addresses: Sequence[int], stream: int) -> list[int]:
        """Copy the inputs to the device; return the addresses that inputs and results have there.

        first      where the places begin
        addresses  of inputs and results
        """
        for number, start, count in self.inputs:
            self.memory.write(first + start, addresses[number], count, stream)
        there = [*addresses]
        for number, start, _ in (*self.inputs, *self.results):
            there[number] = first + start
        return there

    def leave(self, first: int, addresses: Sequence[int], stream: int) -> None:
        """Copy the results to the process, and wait for them, if there are any."""
        for number, start, count in self.results:
            self.memory.read(addresses[number], first + start, count, stream)
        if self.results:
            self.memory.wait(stream)


def rounded(count: int) -> int:
    """Return the bytes that an array takes of a block."""
    return -(-count // SLOT) * SLOT


def copy_to_memory(memory: Memory, array: Array) -> Block:
    """Return a constant, whose elements lie row by row, in a memory: in its own, if that is the process's."""
    address: int = array.__array_interface__["data"][0]
    if memory.is_host:
        return Block(address, array.nbytes, array)
    block = memory.allocate(array.nbytes)
    memory.write(block.address, address, array.nbytes)
    memory.wait()
    return block
