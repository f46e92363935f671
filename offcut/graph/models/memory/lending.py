"""The memory that the inputs of a call lend to it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from offcut.backends.host import arrays as host
from offcut.backends.memory import Memory
from offcut.core.dtypes import ITEM_BYTES, numpy_dtype
from offcut.errors import CallError
from offcut.graph.graph import Value


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
