"""The steps of a model as the cache keeps them: another process binds them to constants, and plans nothing.

What is kept is known by the graph, by what its kernels are compiled for, and by all that decides how; of constants by their types
and shapes, and by which of them hold an infinity or NaN. So a model has the same kernels, and gives the same bits, wherever they
come from.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import Context, copy_context
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np

from offcut import debug
from offcut.backends.abi import Entry
from offcut.backends.compile_request import has_half_bytes
from offcut.backends.host import cache
from offcut.backends.target import Target
from offcut.core.records_path import records_fingerprint
from offcut.core.unpickle import DataUnpickler
from offcut.describe.request import Array, Recalled, give_back, take_ownership, to_owned_constant
from offcut.errors import DescribeError, TargetError
from offcut.graph.graph import Bound
from offcut.graph.layout.placement import Place
from offcut.graph.models.compiling.compile_pool import max_processes
from offcut.graph.models.compiling.kernel_request import Binding, are_finite, reorder_constants
from offcut.graph.models.kernel_step import Step
from offcut.kernel import Kernel, KernelCode

_ROOMS = frozenset({"graph"})
_UNTOLD = pickle.PickleError, AttributeError, ImportError, TypeError
"""What is raised for what another process does not know: a class that a function made, or one that is gone."""


class Stepped(NamedTuple):
    """The kernels that run a graph.

    outputs  where they lie
    notes    what was not fused, and why
    regions  the steps of each, whatever its constants are
    """

    steps: list[Step]
    outputs: Mapping[str, Place]
    notes: tuple[str, ...]
    regions: tuple[RegionSteps, ...]


class _Kept(NamedTuple):
    """What is written."""

    codes: tuple[KernelCode, ...]
    outputs: Mapping[str, Place]
    notes: tuple[str, ...]
    regions: tuple[RegionSteps, ...]


def name_of(bound: Bound, decides: Iterable[object]) -> str:
    """What the steps of a graph are known by.

    decides  all that they depend on beside the graph, in texts
    """
    infinite = sorted(name for name, array in bound.arrays.items() if not _is_finite(array))
    narrow = sorted(name for name, array in bound.arrays.items() if has_half_bytes(array))
    texts = (
        str(bound.graph),
        repr(infinite),
        repr(narrow),
        records_fingerprint(),
        *map(repr, decides),
    )
    return cache.key("model", *texts, rooms=_ROOMS)


class _Pickler(pickle.Pickler):
    """Writes targets by their numbers: what is read runs on those that a process has."""

    def __init__(self, file: io.BytesIO, targets: Sequence[Target]) -> None:
        super().__init__(file)
        self._targets = targets

    def persistent_id(self, value: object) -> int | None:
        """The number of a target: of itself, or of another that its name gives; None for all else."""
        if not isinstance(value, Target):
            return None
        same = [number for number, one in enumerate(self._targets) if one is value]
        kind = type(value), value.name
        alike = (n for n, one in enumerate(self._targets) if (type(one), one.name) == kind)
        return same[0] if same else next(alike, None)


class _Unpickler(DataUnpickler):
    def __init__(self, file: io.BytesIO, targets: Sequence[Target]) -> None:
        super().__init__(file)
        self._targets = targets

    def persistent_load(self, number: int) -> Target:
        """The target of that number."""
        return self._targets[number]


def read(name: str, arrays: Mapping[str, Array], targets: Sequence[Target]) -> Stepped | None:
    """The steps of that name, bound to constants; None where none are kept, or they are not for these constants.

    targets  that run them, in order
    """
    data = None if debug.verifies() else cache.read(name)
    if data is None:
        return None
    with debug.timed("model"):
        try:
            entry: _Kept = _Unpickler(io.BytesIO(data), targets).load()
        except _UNTOLD:
            return None
        with suppress(DescribeError):  # their code is for finite ones
            return Stepped(_bind_entry(entry, arrays), entry.outputs, entry.notes, entry.regions)
    return None


def _bind_entry(entry: _Kept, arrays: Mapping[str, Array]) -> list[Step]:
    """The steps with constants, which are computed and packed on as many cores as may compile.

    Raises DescribeError where their code is for finite ones, and these are not.
    """
    for code in entry.codes:
        _ = code.loaded  # one that is gone is made here, and once

    def bind(context: Context, region: RegionSteps) -> list[Step]:
        return context.run(lambda: [*region.bind(entry.codes, arrays)])

    with ThreadPoolExecutor(max_processes()) as pool:
        contexts = [copy_context() for _ in entry.regions]  # in which arrays are lent
        steps_of_regions = [*pool.map(bind, contexts, entry.regions)]
    return [step for steps in steps_of_regions for step in steps]


def write(name: str, plan: Stepped, codes: Iterable[KernelCode], targets: Sequence[Target]) -> None:
    """Keep steps, where they depend on nothing but what they are known by, and a process can be told of them.

    targets  that run them, in order
    """
    if all(call.binding.finite for region in plan.regions for call in region.calls):
        entry = _Kept(tuple(codes), plan.outputs, plan.notes, plan.regions)
        file = io.BytesIO()
        try:
            _Pickler(file, targets).dump(entry)
        except _UNTOLD:
            return
        cache.write(name, file.getvalue())


def _is_finite(array: Array) -> bool:
    """Whether nothing in it is infinite or NaN, nor its sum. Its memory is given back to whom it is lent from: what it is packed from is read later."""
    if array.dtype.kind in "biu":
        return True
    with np.errstate(all="ignore"):
        total = array.sum(dtype=np.float64 if array.itemsize > 4 else np.float32)
    give_back(array)
    return bool(np.isfinite(total))


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
    constants = {
        name: to_owned_constant(array) for name, array in arrays.items() if name not in again
    }
    return Recalled(constants, again)


def _of_kernel(step: Step, name: str, order: Sequence[int], shape: Sequence[int]) -> Array:
    """An array whose axes, in an order and some joined, are a kernel's constant."""
    array = step.kernel.constants[name].reshape([shape[axis] for axis in order])
    return take_ownership(array.transpose(np.argsort(order)))


def from_later(before: Mapping[str, Array], after: Mapping[str, Array], lazy: Recalled) -> Recalled:
    """The constants of a graph before passes: views of those after them are made of these, others are held.

    after  the arrays of the graph after the passes; found: the same, from kernels
    """
    places = {array.__array_interface__["data"][0]: name for name, array in after.items()}
    again, constants = dict[str, partial[Array]](), dict[str, Array]()
    for name, array in before.items():
        later = places.get(array.__array_interface__["data"][0], "")
        order = _order(array, after[later]) if later else None
        if order is None:
            constants[name] = to_owned_constant(array)
        else:
            again[name] = partial(_transposed_recall, lazy, later, order)
    return Recalled(constants, again)


def _transposed_recall(lazy: Recalled, name: str, order: Sequence[int]) -> Array:
    return take_ownership(lazy[name].transpose(order))


def _order(array: Array, other: Array) -> tuple[int, ...] | None:
    """The axes of `other` in the order in which they are those of `array`, all of the same memory; None where they are not."""
    if array.dtype != other.dtype or array.ndim != other.ndim:
        return None
    open_axes, order = list(range(other.ndim)), list[int]()
    for extent, step in zip(array.shape, array.strides, strict=True):
        same = (x for x in open_axes if other.shape[x] == extent and other.strides[x] == step)
        axis = next(same, None)
        if axis is None:
            return None
        open_axes.remove(axis)
        order.append(axis)
    return tuple(order)


class Call(NamedTuple):
    """A kernel of a region.

    code     the number of its code
    binding  how its arrays are those of the region
    """

    code: int
    binding: Binding


class BoundKernels(NamedTuple):
    """Kernels with their constants.

    constants  of the region, and what is computed from these
    """

    kernels: Sequence[Kernel]
    constants: Mapping[str, Array]


@dataclass(frozen=True)
class RegionSteps:
    """The steps of a region but for what its constants say.

    constants  what the graph calls those that the region has, by the region's names
    orders     of axes in memory, by the same
    calls      in order
    made       each as a step, of a kernel, its entry, and the limits of what it measures
    """

    constants: Mapping[str, str]
    orders: Mapping[str, tuple[int, ...]]
    calls: tuple[Call, ...]
    made: tuple[partial[Step], ...]

    def bind(self, codes: Sequence[KernelCode], arrays: Mapping[str, Array]) -> Iterator[Step]:
        """The steps with the constants of a graph.

        codes  by their numbers

        Raises DescribeError where the code is for finite ones, and these are not.
        """
        own = {name: arrays[of] for name, of in self.constants.items()}
        return self.steps(bind_kernels(self.calls, codes, own, self.orders))

    def steps(self, bound: BoundKernels, priced: bool = False) -> Iterator[Step]:
        """The steps of kernels.

        priced  whether they are asked for their cost alone
        """
        for call, make, kernel in zip(self.calls, self.made, bound.kernels, strict=True):
            limits = tuple(
                0.0 if priced else one.limit(bound.constants[one.points])
                for one in call.binding.assumed
            )
            yield make(kernel=kernel, entry=entry_of(kernel), limits=limits)


def bind_kernels(
    calls: Sequence[Call],
    codes: Sequence[KernelCode],
    constants: Mapping[str, Array],
    orders: Mapping[str, tuple[int, ...]],
) -> BoundKernels:
    """The kernels of calls with the constants of a region.

    Raises DescribeError where their code is for finite ones, and these or what is computed from them are not.
    """
    last = calls[-1].binding
    computed = last.derived.run(constants)
    if last.distributed and not are_finite(computed):
        raise DescribeError(
            "graph",
            "cannot distribute products over sums",
            because="what is computed from these constants would not be finite",
        )
    known = {**constants, **computed}
    kernels = list[Kernel]()
    for code, binding in calls:
        read = {name: known[name] for name in binding.constants.values()}
        arrays = reorder_constants(read, binding.runs, orders)
        constants_of_call = {own: arrays[name] for own, name in binding.constants.items()}
        kernels.append(codes[code].with_constants(constants_of_call))
    return BoundKernels(kernels, known)


def entry_of(kernel: Kernel) -> Entry | None:
    """Its machine code; None where the target makes none."""
    try:
        return kernel.entry
    except TargetError:
        return None
