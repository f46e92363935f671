"""Where the outputs of a graph lie, and which of them a call allocates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from offcut.core.dtypes import numpy_dtype
from offcut.describe.request import Array
from offcut.errors import InternalError
from offcut.graph.graph import Value
from offcut.graph.models.step import Operand
from offcut.graph.placing.places import ONE, ZERO, Place
from offcut.graph.sizes import extents


def check_constant(value: Value, array: Array) -> None:
    """Check that an array is what kernels read by its address."""
    shape = tuple(map(extents.Numbers({}), value.shape))
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


__all__ = ["check_constant", "fresh_outputs", "output_operand"]
