"""The memory that the inputs of a call lend to it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from offcut.backends.host import arrays as host
from offcut.core.dtypes import ITEM_BYTES, numpy_dtype
from offcut.graph.graph import Value


class Lent(NamedTuple):
    """The memory of an input, its elements side by side.

    kind   of array: numpy, torch, or another package
    owner  keeps the memory alive: the array, or a view of it where that had to be looked at closely
    """

    address: int
    shape: tuple[int, ...]
    dtype: str
    kind: str
    owner: object

    @property
    def bytes(self) -> int:
        """Return how many bytes there are."""
        count = ITEM_BYTES[self.dtype]
        for extent in self.shape:
            count *= extent
        return count


def lend(array: Any, number: int, inputs: Sequence[Value], op: str) -> Lent:
    """Return the memory of an input; of a copy where its elements do not lie side by side.

    number  of the input, of which there should be one in `inputs`
    op      who asks

    Raises CallError for what is no array.
    """
    plain = host.contiguous_info(array)
    if plain is not None:
        return Lent(*plain, "numpy" if type(array) is np.ndarray else "torch", array)
    at = inputs[number].name if number < len(inputs) else f"argument {number + 1}"
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
