"""What can be decided of nests on a machine of queues: tiles of each axis, the order of loops, depths of windows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations

from offcut.backends.accelerator.planning.elementary import Operations, operations
from offcut.backends.accelerator.planning.grid import MOST_ORDERS, sizes
from offcut.backends.accelerator.planning.loops import Tiling
from offcut.backends.accelerator.planning.policy import DEPTH, typical
from offcut.backends.accelerator.planning.regrouped import is_regrouping, regrouped
from offcut.backends.accelerator.planning.windows import lanes
from offcut.backends.accelerator.planning.written import nests_of, roles_of, tiling_of, way_of
from offcut.backends.accelerator.spec import Spec
from offcut.core import index as ix
from offcut.core.memo import lazy_property
from offcut.core.program import Program
from offcut.describe.computation import Computation
from offcut.errors import PartitionError
from offcut.schedule import Nest, Schedule, Way
from offcut.search import Choices
from offcut.search.choices import Point


@dataclass(frozen=True)
class Nests:
    """The nests of a program in the ways that a schedule has them in, and the options of each way.

    each  of the ways, by the stage of its nest
    """

    first: Schedule
    each: tuple[tuple[str, _Way], ...]
    spec: Spec

    @classmethod
    def of(cls, program: Program, computation: Computation, spec: Spec, first: Schedule) -> Nests:
        """Those of a computation.

        first  the schedule that is tried first: its ways lie in words as all others' do

        Raises TargetError for what no instruction does.
        """
        computation = regrouped(computation)[-1]
        names = computation.names()
        nests = nests_of(first, computation)
        each = tuple(
            (stage, _Way(program, operations(computation, group, spec, names, roles), spec, label))
            for group in computation.groups
            if not is_regrouping(group, computation)
            for stage in [group[0].buffer]
            for label, roles in [(way.label, roles_of(way)) for way in nests[stage].ways]
        )
        return cls(first, each, spec)

    @property
    def space(self) -> Choices:
        """The schedules that there are."""
        options = tuple(choice for _, one in self.each for choice in one.options)
        return Choices(self.first, options, self.written, self.read)

    def written(self, point: Point) -> Schedule:
        """The schedule of a point."""
        nests: dict[str, list[Way]] = {}
        at = 0
        for stage, one in self.each:
            part = point[at : at + len(one.options)]
            made = way_of(one.made, one.tiling(part), self.spec, one.label)
            nests.setdefault(stage, []).append(made)
            at += len(one.options)
        steps = (Nest(stage, tuple(ways)) for stage, ways in nests.items())
        return Schedule(self.first.name, tuple(steps))

    def read(self, schedule: Schedule) -> Point | None:
        """The point that a schedule is, if it is one."""
        nests = [step for step in schedule.steps if isinstance(step, Nest)]
        ways = [(nest.stage, way) for nest in nests for way in nest.ways]
        own = [(stage, one.label) for stage, one in self.each]
        if [(stage, way.label) for stage, way in ways] != own or len(nests) < len(schedule.steps):
            return None
        point: Point = ()
        for (_, one), (_, way) in zip(self.each, ways, strict=True):
            try:
                point += one.point(tiling_of(schedule, way, one.made, self.spec))
            except PartitionError:
                return None
        return point


@dataclass(frozen=True)
class _Way:
    """A nest in one way: a choice for each of its axes, one for the order, one for the loop in which windows take turns."""

    program: Program
    made: Operations
    spec: Spec
    label: str

    @lazy_property
    def axes(self) -> tuple[str, ...]:
        """Those that are cut, or could be: results first."""
        words = lanes(self.made, self.spec)
        extents = typical(self.program, self.made)
        found = [axis.name for axis in self.made.axes if extents[axis.name] > 1]
        return (*found, *(a.name for a in self.made.terms if a.name in words))

    @lazy_property
    def outer(self) -> tuple[str, ...]:
        """The axes of results among them."""
        terms = {axis.name for axis in self.made.terms}
        return tuple(axis for axis in self.axes if axis not in terms)

    @lazy_property
    def options(self) -> tuple[Point, ...]:
        """Tiles of each axis, 0 where it is not cut; orders; the axis in whose loop windows take turns."""
        every = {a.name: ix.literal_value(a.extent) for a in (*self.made.axes, *self.made.terms)}
        words, likely = lanes(self.made, self.spec), typical(self.program, self.made)
        tiles = [sizes(likely[a], words.get(a, 1), every[a] is not None) for a in self.axes]
        orders = tuple(permutations(self.outer))[:MOST_ORDERS]
        return (*tiles, orders, (None, *self.outer))

    def tiling(self, part: Sequence[object]) -> Tiling:
        """The tiling of a part of a point."""
        *tiles, order, axis = part
        known = dict(zip(self.axes, tiles, strict=True))
        terms = [axis for axis in self.axes if axis not in self.outer]
        assert isinstance(order, tuple)
        loops = tuple(axis for axis in (*order, *terms) if known[axis])
        cut = tuple((axis, int(str(known[axis]))) for axis in loops)
        depth = (str(axis), DEPTH) if axis in loops else None
        return Tiling(cut, loops, depth)

    def point(self, tiling: Tiling) -> Point:
        """The part of a point that a tiling is."""
        tiles = dict(tiling.tiles)
        orders = self.options[len(self.axes)]
        own = tuple(axis for axis in tiling.order if axis in self.outer)
        order = next((one for one in orders if isinstance(one, tuple) and _within(own, one)), None)
        deep = None if tiling.depth is None else tiling.depth[0]
        return (*(tiles.get(axis, 0) for axis in self.axes), order, deep)


def _within(some: Sequence[str], order: Sequence[str]) -> bool:
    return tuple(axis for axis in order if axis in some) == tuple(some)
