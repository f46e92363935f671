"""Arrays for the outputs of a graph: in the memory of the process or of a device."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from offcut.backends.host import arrays as host
from offcut.backends.host.call import NO_MEMORY, too_large
from offcut.backends.memory import Memory
from offcut.core.dtypes import ITEM_BYTES, numpy_dtype
from offcut.core.expr import Expr
from offcut.graph.graph import Value
from offcut.graph.layout.placement import Place, own_place
from offcut.graph.models.memory.call_memory import Lent, Passage, empty_there
from offcut.graph.sizes.extent_values import Numbers


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
