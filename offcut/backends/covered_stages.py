"""Stages that microkernels compute: which does, along which axes, and what has to be staged for it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from math import prod

from offcut.core import index as ix
from offcut.core.expr import Load, variables, walk
from offcut.describe.computation import Computation, Stage
from offcut.describe.microkernel import Microkernel
from offcut.describe.tensor import Compute
from offcut.partition import (
    Match,
    factor_copies,
)
from offcut.partition import matches as matches_of
from offcut.schedule import Staging, value_staging

FULL = 64
"""Instances along an axis that are as good as any number of them."""


@dataclass(frozen=True)
class Covered:
    """A stage that a microkernel computes."""

    stage: Stage
    kernel: Microkernel
    match: Match

    @property
    def axes(self) -> dict[str, str]:
        """Return the axes of the result that its tiles go along, each with the one of the microkernel."""
        results = {axis.name for axis in self.stage.axes}
        return {
            own: theirs for theirs, own in self.match.axes if own is not None and own in results
        }

    @property
    def terms(self) -> tuple[list[str], list[str]]:
        """Return the axes that the stage sums over: those around a tile, and those that the microkernel sums over."""
        names = [axis.name for axis in self.stage.reduce_axes]
        own = {axis for _, axis in self.match.axes}
        return [name for name in names if name not in own], [name for name in names if name in own]

    def largest(self, axis: str) -> int:
        """Return the largest extent of a tile along an axis of the stage."""
        return max(tile.extents[self._place(axis)] for tile in self.kernel.tiles)

    def multiple(self, axis: str) -> int:
        """Return the number that the extents of the microkernel's tiles along an axis of the stage are multiples of."""
        return self.kernel.extents_of(self.axes[axis]).multiple_of

    def _place(self, axis: str) -> int:
        """Return which axis of the microkernel's result a tile goes along there."""
        names = [one.name for one in definition_of(self.kernel).axes]
        return names.index(self.axes[axis])


def covered_stages(computation: Computation, kernels: Sequence[Microkernel]) -> tuple[Covered, ...]:
    """Return the stages that a microkernel computes."""
    stages = (stage for group in computation.groups for stage in group)
    return tuple(one for stage in stages if (one := cover_stage(stage, kernels)) is not None)


def cover_stage(stage: Stage, kernels: Sequence[Microkernel]) -> Covered | None:
    """Return a stage with the first microkernel that computes it, copies aside: whether its tiles fit is asked of each later.

    Of several ways, tiles go along the last axis of the result if they can, and hold as much as they can.
    """
    axes = tuple(axis.name for axis in stage.axes)
    terms = tuple(axis.name for axis in stage.reduce_axes)
    for kernel in kernels:
        if kernel.reducer is None and isinstance(definition_of(kernel).body, Load):
            continue
        matches = matches_of(kernel, stage.value, stage.reducer, axes, terms)
        ways = [Covered(stage, kernel, match) for match in matches]
        ways = [way for way in ways if kernel.accumulate != "fresh" or not way.terms[0]]
        if ways:
            return max(ways, key=_preference)
    return None


def staged_operands(computation: Computation, kernels: Sequence[Microkernel]) -> Iterator[Staging]:
    """Yield the stagings of what products compute of an operand, where a microkernel computes what then is left.

    Of ``where(0 <= i + r - 1 < n, X[i + r - 1, c], 0) * W[r, c]`` it is the first factor, over the elements that are read.
    """
    names = set[str]()
    for position, (lead, *_) in enumerate(computation.groups):
        if cover_stage(lead, kernels) is not None:
            continue
        copies = factor_copies(computation, position, narrow=True)
        body = reduce(lambda body, copy: copy.read_in(body), copies, lead.body)
        if copies and cover_stage(replace(lead, body=body), kernels) is not None:
            for copy in copies:
                name = f"{copy.name}_{lead.buffer}" if copy.name in names else copy.name
                names.add(name)
                yield value_staging(lead.buffer, replace(copy, name=name))


def _preference(way: Covered) -> tuple[bool, int]:
    """Return whether tiles go along the last axis of the result, and how many instances a tile has, at most `FULL` along an axis."""
    extents = {axis.name: ix.literal_value(axis.extent) for axis in way.stage.axes}
    extents |= {axis.name: ix.literal_value(axis.extent) for axis in way.stage.reduce_axes}
    along = [axis for _, axis in way.match.axes if axis is not None]
    instances = (min(extents[axis] or FULL, FULL) for axis in along)
    return any(axis.name in along for axis in way.stage.axes[-1:]), prod(instances)


def definition_of(kernel: Microkernel) -> Compute:
    """Return what a microkernel computes."""
    definition = kernel.computes.definition
    assert definition is not None  # a microkernel without one is refused
    return definition


def index_dependences(stage: Stage, buffer: str) -> frozenset[str]:
    """Return what the elements that a stage reads of an array depend on."""
    loads = (n for n in walk(stage.value) if isinstance(n, Load) and n.buffer == buffer)
    return frozenset(name for load in loads for part in load.index for name in variables(part))


def memory_of(kernel: Microkernel, operand: str) -> str | None:
    """Return the memory that an operand is to lie in; None: any."""
    place = kernel.operands.get(operand)
    return place.memories[0] if place is not None and place.memories else None


def is_staged(one: Covered) -> bool:
    """Return whether an operand, or the result, is to lie in a memory of its own."""
    names = [name for name, _ in one.match.operands]
    return any(memory_of(one.kernel, n) for n in (*names, one.kernel.computes.name))
