"""The memory of a call: the arena, and a place for each input and result; and arrays for the outputs of a graph.

Blocks are kept for later calls. A device grants more than is asked for, so that calls of sizes that are alike allocate nothing.

Arrays for the outputs of a graph: in the memory of the process or of a device.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np

from offcut.backends.host import arrays as host
from offcut.backends.host.call import NO_MEMORY, too_large
from offcut.backends.memory import Block, Memory
from offcut.core.dtypes import ITEM_BYTES, numpy_dtype
from offcut.core.expr import Expr
from offcut.describe.request import Array
from offcut.errors import CallError, InternalError
from offcut.graph.graph import Value
from offcut.graph.layout.placement import ONE, ZERO, Place, own_place
from offcut.graph.models.kernel_step import Operand
from offcut.graph.sizes import extents
from offcut.graph.sizes.extent_values import Numbers

SLOT = 256
"""Bytes of which the address of an input or a result in a block is a multiple."""


class MemoryBlocks:
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
        *starts, self.bytes = accumulate((slot_bytes(count or 0) for count in counts), initial=0)
        copies = [
            (number, start, count)
            for number, (start, count) in enumerate(zip(starts, counts, strict=True))
            if count is not None
        ]
        self.inputs = [one for one in copies if one[0] < len(inputs)]
        self.results = [one for one in copies if one[0] >= len(inputs)]

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


def slot_bytes(count: int) -> int:
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


def check_constant(value: Value, array: Array) -> None:
    """Check that an array is what kernels read by its address."""
    shape = tuple(map(Numbers({}), value.shape))
    lies = array.flags.c_contiguous and array.flags.aligned
    if not lies or (array.shape, array.dtype) != (shape, numpy_dtype(value.dtype)):
        raise InternalError(
            f"{value.name}: kernels read {value.dtype}{shape}, and it is {array.dtype}{array.shape}"
        )


def fresh_outputs(
    outputs: Sequence[str],
    places: Mapping[str, Place],
    computed: set[str],
    values: Mapping[str, Any],
    orders: Mapping[str, tuple[int, ...]],
) -> dict[str, str]:
    """Return the outputs whose memory a call allocates, as what they hand out, and the values that are computed there.

    orders  of the axes of outputs that are asked for: what lies otherwise is copied
    """
    fresh: dict[str, str] = {}
    for output in outputs:
        place = places[output]
        whole = extents.product(place.shape) == extents.product(values[place.root].shape)
        dense = place.offset == ZERO and _permutes(place)
        dense = dense and (output not in orders or place.lies(orders[output]))
        if whole and dense and place.root in computed and place.root not in fresh.values():
            fresh[output] = place.root
    return fresh


def output_operand(output: str, place: Place, of: Value) -> Operand:
    """Return an output of a graph as an array of its root's memory."""
    return Operand(output, place.root, of.dtype, place.offset, place.shape, place.strides)


def _permutes(place: Place) -> bool:
    """Return whether no element is there twice: no axis is repeated."""
    return all(s != ZERO or e == ONE for e, s in zip(place.shape, place.strides, strict=True))


class Lent(NamedTuple):
    """The memory of an input, its elements side by side.

    kind   of array: numpy, torch, or another package
    is_there  whether it lies in the memory of the model's device
    owner  keeps the memory alive: the array, or a view of it where that had to be looked at closely
    """

    address: int
    shape: tuple[int, ...]
    dtype: str
    kind: str
    owner: object
    is_there: bool = False

    @property
    def bytes(self) -> int:
        """Return how many bytes there are."""
        count = ITEM_BYTES[self.dtype]
        for extent in self.shape:
            count *= extent
        return count


def lend(array: Any, number: int, inputs: Sequence[Value], op: str, memory: Memory) -> Lent:
    """Return the memory of an input; of a copy where its elements do not lie side by side.

    number  of the input, of which there should be one in `inputs`
    op      who asks; memory: that the model's values lie in

    Raises CallError for what is no array.
    """
    plain = host.contiguous_info(array)
    if plain is not None:
        return Lent(*plain, "numpy" if type(array) is np.ndarray else "torch", array)
    at = inputs[number].name if number < len(inputs) else f"argument {number + 1}"
    there = memory.view_of(array, at, op)
    if there is not None:
        return Lent(there.address, there.shape, there.dtype, there.kind, there, is_there=True)
    if not hasattr(array, "__dlpack__"):
        array = np.asarray(array)
    view = host.view(array, at, op=op)
    step, whole = 1, view.fits
    for extent, stride in zip(reversed(view.shape), reversed(view.strides), strict=True):
        whole = whole and (extent == 1 or stride == step)
        step *= extent
    kind = view.kind
    if not whole and step != 0:
        copy = np.array(host.window(view), numpy_dtype(view.dtype), order="C")
        view = host.view(copy, at, op=op)
    return Lent(view.address, view.shape, view.dtype, kind, view)


def stream_of(memory: Memory, lent: Sequence[Lent], op: str) -> int:
    """Return the stream of a call: that of the packages whose arrays lie in the memory of the device; 0 if there are none.

    Raises CallError for packages that work on several streams.
    """
    streams = {memory.stream_of(one.kind): one.kind for one in lent if one.is_there}
    if len(streams) > 1:
        raise CallError(
            op,
            "cannot run on several streams",
            because=f"{' and '.join(streams.values())} work on other streams than each other",
            help=("one current stream for all packages",),
        )
    return next(iter(streams), 0)


def empty_there(
    memory: Memory,
    kind: str,
    shape: tuple[int, ...],
    strides: tuple[int, ...] | None,
    dtype: str,
    op: str,
) -> tuple[Any, int]:
    """Return an uninitialised result in the memory of a device, and its address.

    strides  in elements, of elements side by side in another order of the axes; None: row by row

    Raises CallError for a package that allocates none there.
    """
    if strides is None:
        return memory.empty(kind, shape, dtype, op)
    order = sorted(range(len(shape)), key=lambda axis: -strides[axis])
    array, address = memory.empty(kind, tuple(shape[axis] for axis in order), dtype, op)
    back = [order.index(axis) for axis in range(len(shape))]
    return (array.permute(back) if kind == "torch" else array.transpose(back)), address


class OutputArrays:
    """Arrays for the outputs of calls, in the memory of the process or of a device.

    name     of the graph, for errors
    places   where each output lies
    lengths  elements of the memory of each value
    orders   of the axes of outputs that are asked for otherwise than they lie
    """

    def __init__(
        self,
        name: str,
        memory: Memory,
        values: Mapping[str, Value],
        places: Mapping[str, Place],
        lengths: Mapping[str, Expr],
        orders: Mapping[str, tuple[int, ...]],
    ) -> None:
        self._name, self._memory, self._values, self._places = name, memory, values, places
        self._lengths, self._orders = lengths, orders
        self._compact = {output: place.compact for output, place in places.items()}

    def bytes_of(self, root: str, number: Numbers) -> int:
        """Return the bytes of the memory of a value."""
        return number(self._lengths[root]) * ITEM_BYTES[self._values[root].dtype]

    def facts_of(
        self, output: str, number: Numbers
    ) -> tuple[tuple[int, ...], tuple[int, ...] | None, str]:
        """Return the shape, the strides in elements and the element type of an output that a call allocates; no strides where it lies row by row."""
        place = self._places[output]
        strides = None if self._compact[output] else tuple(map(number, place.strides))
        return tuple(map(number, place.shape)), strides, self._values[output].dtype

    def passage(
        self, lent: Sequence[Lent], roots: Iterable[str], number: Numbers
    ) -> Passage | None:
        """Return the places of inputs and results in the memory of a device; None where values lie in that of the process.

        roots  values that are computed in the memory of a result
        """
        if self._memory.is_host:
            return None
        is_there = bool(lent) and lent[0].is_there
        inputs = [None if one.is_there else one.bytes for one in lent]
        results = [None if is_there else self.bytes_of(root, number) for root in roots]
        return Passage(self._memory, inputs, results)

    def allocate(
        self,
        kind: str,
        shape: tuple[int, ...],
        strides: tuple[int, ...] | None,
        dtype: str,
        is_there: bool = False,
    ) -> tuple[Any, int]:
        """Return an uninitialised result and its address.

        is_there  whether it lies in the memory of the device

        Raises CallError where there is no memory for it.
        """
        try:
            if is_there:
                return empty_there(self._memory, kind, shape, strides, dtype, self._name)
            return host.allocate(kind, shape, strides, dtype)
        except NO_MEMORY as error:
            raise too_large(self._name, shape, dtype) from error

    def copy(
        self, output: str, number: Numbers, address: int, stream: int, kind: str, is_there: bool
    ) -> Any:
        """Return a fresh array of an output that lies in other memory, or otherwise than it is asked for.

        address  of the memory of its root
        """
        place = self._places[output]
        dtype = self._values[output].dtype
        if not self._memory.is_host:
            staged = np.empty(self.bytes_of(place.root, number), np.uint8)
            at = staged.__array_interface__["data"][0]
            self._memory.read(at, address, staged.nbytes, stream)
            self._memory.wait(stream)
            address = at
        address += number(place.offset) * ITEM_BYTES[dtype]
        shape, strides = tuple(map(number, place.shape)), tuple(map(number, place.strides))
        source = host.ArrayView(address, shape, strides, dtype, False, None, "memory", True)
        order = self._orders.get(output)
        requested = None if order is None else own_place(output, place.shape, order).strides
        steps = None if requested is None else tuple(map(number, requested))
        result, to = self.allocate(kind, shape, steps, dtype, is_there)
        copy = np.empty(math.prod(shape) if is_there else 0, numpy_dtype(dtype))
        at = copy.__array_interface__["data"][0] if is_there else to
        own = steps or host.c_strides(shape)
        target = replace(source, address=at, strides=own, writeable=True)
        host.window(target)[...] = host.window(source)
        if is_there:
            self._memory.write(to, at, copy.nbytes, stream)
        return result
