"""What can be decided of nests on a machine of queues: tiles of each axis, the order of loops, virtual threads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import permutations

from offcut.backends.accelerator.planning.elementary import Operations, operations
from offcut.backends.accelerator.planning.grid import MOST_ORDERS, sizes
from offcut.backends.accelerator.planning.loops import Tiling
from offcut.backends.accelerator.planning.policy import THREADS, typical
from offcut.backends.accelerator.planning.regrouped import is_regrouping, regrouped
from offcut.backends.accelerator.planning.windows import lanes
from offcut.backends.accelerator.planning.written import nest_of, tiling_of
from offcut.backends.accelerator.spec import Spec
from offcut.core import index as ix
from offcut.core.program import Program
from offcut.describe.computation import Computation
from offcut.errors import PartitionError
from offcut.schedule import Nest, Schedule
from offcut.search import Choices
from offcut.search.choices import Point


@dataclass(frozen=True)
class Nests:
    """The nests of a program, and the options of each.

    made  their operations
    """

    program: Program
    made: tuple[Operations, ...]
    spec: Spec

    @classmethod
    def of(cls, program: Program, computation: Computation, spec: Spec) -> Nests:
        """Those of a computation.

        Raises TargetError for what no instruction does.
        """
        computation = regrouped(computation)[-1]
        names = computation.names()
        made = (
            operations(computation, group, spec, names)
            for group in computation.groups
            if not is_regrouping(group, computation)
        )
        return cls(program, tuple(made), spec)

    def space(self, first: Schedule) -> Choices:
        """The schedules that there are; `first` is the one that is tried first."""
        options = tuple(choice for one in self.each for choice in one.options)
        return Choices(first, options, self.written(first.name), self.read)

    @cached_property
    def each(self) -> tuple[_Nest, ...]:
        """The nests, one by one."""
        return tuple(_Nest(self.program, made, self.spec) for made in self.made)

    def written(self, name: str) -> Callable[[Point], Schedule]:
        """What writes the schedule of a point."""

        def schedule(point: Point) -> Schedule:
            nests, at = [], 0
            for one in self.each:
                part = point[at : at + len(one.options)]
                nests.append(nest_of(one.made, one.tiling(part), self.spec))
                at += len(one.options)
            return Schedule(name, tuple(nests))

        return schedule

    def read(self, schedule: Schedule) -> Point | None:
        """The point that a schedule is, if it is one."""
        steps = schedule.steps
        if len(steps) != len(self.each):
            return None
        point: Point = ()
        for one, step in zip(self.each, steps, strict=True):
            if not isinstance(step, Nest) or step.stage != one.made.label or len(step.ways) != 1:
                return None
            try:
                point += one.point(tiling_of(schedule, step, one.made, self.spec))
            except PartitionError:
                return None
        return point


@dataclass(frozen=True)
class _Nest:
    """One nest: a choice for each of its axes, one for the order, one for the threads."""

    program: Program
    made: Operations
    spec: Spec

    @cached_property
    def axes(self) -> tuple[str, ...]:
        """Those that are cut, or could be: results first."""
        words = lanes(self.made, self.spec)
        extents = typical(self.program, self.made)
        found = [axis.name for axis in self.made.axes if extents[axis.name] > 1]
        return (*found, *(a.name for a in self.made.terms if a.name in words))

    @cached_property
    def outer(self) -> tuple[str, ...]:
        """The axes of results among them."""
        terms = {axis.name for axis in self.made.terms}
        return tuple(axis for axis in self.axes if axis not in terms)

    @cached_property
    def options(self) -> tuple[Point, ...]:
        """Tiles of each axis, 0 where it is not cut; orders; the axis of virtual threads."""
        every = {a.name: ix.literal(a.extent) for a in (*self.made.axes, *self.made.terms)}
        words, likely = lanes(self.made, self.spec), typical(self.program, self.made)
        tiles = [sizes(likely[a], words.get(a, 1), every[a] is not None) for a in self.axes]
        orders = tuple(permutations(self.outer))[:MOST_ORDERS]
        threads: Point = (None, *self.outer) if self.spec.tokens else (None,)
        return (*tiles, orders, threads)

    def tiling(self, part: Sequence[object]) -> Tiling:
        """The tiling of a part of a point."""
        *tiles, order, thread = part
        known = dict(zip(self.axes, tiles, strict=True))
        terms = [axis for axis in self.axes if axis not in self.outer]
        assert isinstance(order, tuple)
        loops = tuple(axis for axis in (*order, *terms) if known[axis])
        cut = tuple((axis, int(str(known[axis]))) for axis in loops)
        virtual = (str(thread), THREADS) if thread in loops else None
        return Tiling(cut, loops, virtual)

    def point(self, tiling: Tiling) -> Point:
        """The part of a point that a tiling is."""
        tiles = dict(tiling.tiles)
        orders = self.options[len(self.axes)]
        own = tuple(axis for axis in tiling.order if axis in self.outer)
        order = next((one for one in orders if isinstance(one, tuple) and _within(own, one)), None)
        thread = None if tiling.virtual is None else tiling.virtual[0]
        return (*(tiles.get(axis, 0) for axis in self.axes), order, thread)


def _within(some: Sequence[str], order: Sequence[str]) -> bool:
    return tuple(axis for axis in order if axis in some) == tuple(some)
