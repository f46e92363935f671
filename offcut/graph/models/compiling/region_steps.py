"""The steps of a region, whatever its constants are: planned once, bound to the constants of each graph that has it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from offcut.backends.abi import Entry
from offcut.describe.request import Array
from offcut.errors import DescribeError, TargetError
from offcut.graph.models.compiling.wanted import Binding, are_finite, shaped
from offcut.graph.models.step import Step
from offcut.kernel import Kernel, KernelCode


class Call(NamedTuple):
    """A kernel of a region.

    code     the number of its code
    binding  how its arrays are those of the region
    """

    code: int
    binding: Binding


class Held(NamedTuple):
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

    def bound(self, codes: Sequence[KernelCode], arrays: Mapping[str, Array]) -> Iterator[Step]:
        """The steps with the constants of a graph.

        codes  by their numbers

        Raises DescribeError where the code is for finite ones, and these are not.
        """
        own = {name: arrays[of] for name, of in self.constants.items()}
        return self.steps(bind_kernels(self.calls, codes, own, self.orders))

    def steps(self, kernels_of: Held, priced: bool = False) -> Iterator[Step]:
        """The steps of kernels.

        priced  whether they are asked for their cost alone
        """
        for call, make, kernel in zip(self.calls, self.made, kernels_of.kernels, strict=True):
            limits = tuple(
                0.0 if priced else one.limit(kernels_of.constants[one.points])
                for one in call.binding.assumed
            )
            yield make(kernel=kernel, entry=entry_of(kernel), limits=limits)


def bind_kernels(
    calls: Sequence[Call],
    codes: Sequence[KernelCode],
    constants: Mapping[str, Array],
    orders: Mapping[str, tuple[int, ...]],
) -> Held:
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
        arrays = shaped(read, binding.runs, orders)
        bound_constants = {own: arrays[name] for own, name in binding.constants.items()}
        kernels.append(codes[code].with_constants(bound_constants))
    return Held(kernels, known)


def entry_of(kernel: Kernel) -> Entry | None:
    """Its machine code; None where the target makes none."""
    try:
        return kernel.entry
    except TargetError:
        return None
