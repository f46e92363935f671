"""The steps of a model as the cache keeps them: another process binds them to constants, and plans nothing.

What is kept is known by the graph, by what its kernels are compiled for, and by all that decides how; of constants by their types
and shapes, and by which of them hold an infinity or NaN. So a model has the same kernels, and gives the same bits, wherever they
come from.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import Context, copy_context
from typing import NamedTuple

import numpy as np

from offcut import debug
from offcut.backends.compile_request import has_half_bytes
from offcut.backends.host import cache
from offcut.backends.target import Target
from offcut.core.records_path import records_fingerprint
from offcut.core.unpickle import DataUnpickler
from offcut.describe.request import Array, give_back
from offcut.errors import DescribeError
from offcut.graph.graph import Bound
from offcut.graph.models.compiling.ahead import processes
from offcut.graph.models.compiling.region_steps import RegionSteps
from offcut.graph.models.step import Step
from offcut.graph.placing.places import Place
from offcut.kernel import KernelCode

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
            return Stepped(_bound(entry, arrays), entry.outputs, entry.notes, entry.regions)
    return None


def _bound(entry: _Kept, arrays: Mapping[str, Array]) -> list[Step]:
    """The steps with constants, which are computed and packed on as many cores as may compile.

    Raises DescribeError where their code is for finite ones, and these are not.
    """
    for code in entry.codes:
        _ = code.loaded  # one that is gone is made here, and once

    def bind(context: Context, region: RegionSteps) -> list[Step]:
        return context.run(lambda: [*region.bound(entry.codes, arrays)])

    with ThreadPoolExecutor(processes()) as pool:
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
