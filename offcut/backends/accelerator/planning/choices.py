"""What can be decided of nests on a machine of queues: tiles of each axis, the order of loops, windows that take turns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby, islice, permutations

from offcut.backends.accelerator.planning.elementary import Operations, lanes
from offcut.backends.accelerator.planning.planner import (
    DEPTH,
    GroupDecisions,
    chosen_among,
    nest_extents,
    prepare_computation,
    stage_groups,
)
from offcut.backends.accelerator.planning.tilings import Tiling, sizes, sizes_of
from offcut.backends.accelerator.spec import AcceleratorSpec
from offcut.core import index as ix
from offcut.core.memo import lazy_property
from offcut.core.program import Program
from offcut.describe.computation import Computation
from offcut.schedule import Choose, Primitive, Schedule, stages_in
from offcut.search import ScheduleSpace
from offcut.search.schedule_space import Point, product_space

MAX_ORDERS = 5040
"""Orders of the loops over tiles of results, at most: all of seven, so that the policy's is among them."""


@dataclass(frozen=True)
class Nests:
    """The nests of a program, and the options that a schedule has of each.

    each  nest, by its options: those of one layout beside each other
    """

    first: Schedule
    each: tuple[tuple[_Way, ...], ...]

    @classmethod
    def of(
        cls, program: Program, computation: Computation, spec: AcceleratorSpec, first: Schedule
    ) -> Nests:
        """Return those of a computation.

        first  the schedule of the policy, which is tried first

        Raises TargetError for what no instruction does.
        """
        each = list[tuple[_Way, ...]]()
        for one, layouts in stage_groups(program, prepare_computation(computation)[-1], spec):
            ways = [_Way(one, layout, label) for label, layout in layouts]
            parts = _options_in(first, one)
            counts = [sum(way.point_of(part) is not None for part in parts) for way in ways]
            pairs = zip(ways, counts, strict=True)
            each.append(tuple(way for way, many in pairs for _ in range(max(many, 1))))
        return cls(first, tuple(each))

    @property
    def space(self) -> ScheduleSpace:
        """Return the schedules that there are."""
        options = tuple(choice for ways in self.each for one in ways for choice in one.options)
        return product_space(self.first, options, self.schedule_of, self.point_of)

    def schedule_of(self, point: Point) -> Schedule:
        """Return the schedule of a point."""
        steps, at = list[Primitive](), 0
        for ways in self.each:
            options = []
            for one in ways:
                part = point[at : at + len(one.options)]
                options.append(
                    (one.label, one.deciding.tiling_decisions(one.made, one.tiling(part)))
                )
                at += len(one.options)
            steps += chosen_among(options)
        return Schedule(self.first.name, tuple(steps))

    def point_of(self, schedule: Schedule) -> Point | None:
        """Return the point that a schedule is; None if it is none. Of a layout that has fewer options there, the last one stands
        several times.
        """
        point: Point = ()
        for ways in self.each:
            parts = _options_in(schedule, ways[0].deciding)
            for _, alike in groupby(ways, lambda way: way.label):
                same = list(alike)
                points = [own for part in parts if (own := same[0].point_of(part)) is not None]
                if not 1 <= len(points) <= len(same):
                    return None
                for at in range(len(same)):
                    point += points[min(at, len(points) - 1)]
        return point


def _options_in(schedule: Schedule, nest: GroupDecisions) -> list[tuple[Primitive, ...]]:
    """Return the options that a schedule has of a nest; without a choice, its plain decisions."""
    stages = {stage.buffer for stage in nest.group}
    for step in schedule.steps:
        if isinstance(step, Choose) and stages & stages_in(step):
            return [tuple(option.steps) for option in step.options]
    plain = (step for step in schedule.steps if isinstance(step, Primitive))
    return [tuple(step for step in plain if not isinstance(step, Choose))]


@dataclass(frozen=True)
class _Way:
    """A nest in one way: a choice for each of its axes, one for the order, one for the loop in which windows take turns."""

    deciding: GroupDecisions
    made: Operations
    label: str

    @property
    def spec(self) -> AcceleratorSpec:
        """Return the machine."""
        return self.deciding.spec

    @lazy_property
    def extents(self) -> dict[str, int]:
        """Return the extents of a middle layer."""
        return nest_extents(self.deciding.program, self.made)

    @lazy_property
    def policy_sizes(self) -> dict[str, tuple[int, ...]]:
        """Return the tiles of each axis that the policy may cut."""
        return sizes_of(self.made, self.spec, self.extents)

    @lazy_property
    def axes(self) -> tuple[str, ...]:
        """Those that are cut, or could be: results first."""
        words, policy = lanes(self.made, self.spec), self.policy_sizes
        results = (a.name for a in self.made.axes if self.extents[a.name] > 1 or a.name in policy)
        return (*results, *(a.name for a in self.made.terms if a.name in (*words, *policy)))

    @lazy_property
    def outer(self) -> tuple[str, ...]:
        """Return the axes of results among them."""
        terms = {axis.name for axis in self.made.terms}
        return tuple(axis for axis in self.axes if axis not in terms)

    @lazy_property
    def options(self) -> tuple[Point, ...]:
        """Tiles of each axis, 0 where it is not cut; orders; the axis in whose loop windows take turns."""
        every = {a.name: ix.literal_value(a.extent) for a in (*self.made.axes, *self.made.terms)}
        words = lanes(self.made, self.spec)
        tiles = [sizes(self.extents[a], words.get(a, 1), every[a] is not None) for a in self.axes]
        return (*tiles, self.orders, (None, *self.outer))

    @lazy_property
    def orders(self) -> tuple[tuple[str, ...], ...]:
        """Return the orders of the loops over tiles of results."""
        return tuple(islice(permutations(self.outer), MAX_ORDERS))

    def tiling(self, part: Sequence[object]) -> Tiling:
        """Return the tiling of a part of a point."""
        *tiles, order, axis = part
        known = dict(zip(self.axes, tiles, strict=True))
        terms = [axis for axis in self.axes if axis not in self.outer]
        assert isinstance(order, tuple)
        loops = tuple(axis for axis in (*order, *terms) if known[axis])
        cut = tuple((axis, int(str(known[axis]))) for axis in loops)
        depth = (str(axis), DEPTH) if axis in loops else None
        return self.deciding.with_tail(self.made, Tiling(cut, loops, depth))

    def point_of(self, steps: Sequence[Primitive]) -> Point | None:
        """Return the part of a point that decisions are, those of other nests aside; None if they are none of this layout."""
        point = self.point(self.deciding.tiling(self.made, steps))
        own = () if point is None else self.deciding.decisions(self.made, self.tiling(point))
        return point if set(own) <= set(steps) else None

    def point(self, tiling: Tiling) -> Point | None:
        """Return the part of a point that a tiling is; None where it is none."""
        tiles = dict(tiling.tiles)
        own = tuple(axis for axis in tiling.order if axis in self.outer)
        order = next((one for one in self.orders if _within(own, one)), None)
        deep = None if tiling.depth is None else tiling.depth[0]
        point = (*(tiles.get(axis, 0) for axis in self.axes), order, deep)
        is_offered = all(one in among for one, among in zip(point, self.options, strict=True))
        return point if is_offered else None


def _within(some: Sequence[str], order: Sequence[str]) -> bool:
    return tuple(axis for axis in order if axis in some) == tuple(some)
