"""The constants of a model from its kernels: these hold the one copy, and a graph's arrays are made of it when somebody asks."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial

import numpy as np

from offcut.describe.recalled import Recalled
from offcut.describe.request import Array, take_ownership, to_owned_constant
from offcut.graph.models.step import Step


def from_kernels(
    arrays: Mapping[str, Array], steps: Sequence[Step], read: Collection[str]
) -> Recalled:
    """The constants of a graph: those that no kernel has as they are, and those that steps read by address, are held.

    read  the names of the latter
    """
    again = dict[str, partial[Array]]()
    for step in steps:
        for name, own_name, order in step.constants:
            if name not in read:
                again.setdefault(
                    name, partial(_of_kernel, step, own_name, order, arrays[name].shape)
                )
    own_arrays = {
        name: to_owned_constant(array) for name, array in arrays.items() if name not in again
    }
    return Recalled(own_arrays, again)


def _of_kernel(step: Step, name: str, order: Sequence[int], shape: Sequence[int]) -> Array:
    """An array whose axes, in an order and some joined, are a kernel's constant."""
    array = step.kernel.constants[name].reshape([shape[axis] for axis in order])
    return take_ownership(array.transpose(np.argsort(order)))


def from_later(
    before: Mapping[str, Array], after: Mapping[str, Array], later_arrays: Recalled
) -> Recalled:
    """The constants of a graph before passes: views of those after them are made of these, others are held.

    after  the arrays of the graph after the passes; found: the same, from kernels
    """
    places = {array.__array_interface__["data"][0]: name for name, array in after.items()}
    again, own_arrays = dict[str, partial[Array]](), dict[str, Array]()
    for name, array in before.items():
        later = places.get(array.__array_interface__["data"][0], "")
        order = _order(array, after[later]) if later else None
        if order is None:
            own_arrays[name] = to_owned_constant(array)
        else:
            again[name] = partial(_turned, later_arrays, later, order)
    return Recalled(own_arrays, again)


def _turned(arrays: Recalled, name: str, order: Sequence[int]) -> Array:
    return take_ownership(arrays[name].transpose(order))


def _order(array: Array, other: Array) -> tuple[int, ...] | None:
    """The axes of `other` in the order in which they are those of `array`, all of the same memory; None where they are not."""
    if array.dtype != other.dtype or array.ndim != other.ndim:
        return None
    left, order = list(range(other.ndim)), list[int]()
    for extent, step in zip(array.shape, array.strides, strict=True):
        same = (x for x in left if other.shape[x] == extent and other.strides[x] == step)
        axis = next(same, None)
        if axis is None:
            return None
        left.remove(axis)
        order.append(axis)
    return tuple(order)
