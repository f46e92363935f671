"""What strategies and tiles ask of the policy of machines of queues."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from offcut.backends.accelerator.planning.roles import Layouts, Roles
from offcut.backends.accelerator.spec import AcceleratorSpec
from offcut.backends.options import Strategies
from offcut.core import index as ix
from offcut.core.expr import variables
from offcut.describe.computation import Computation, Stage
from offcut.partition import CUT, GUARD, LADDER, Strategy, axis_named, segments
from offcut.schedule import Choose, Schedule


@dataclass(frozen=True)
class PlanRequest:
    """A request to the policy.

    tails  strategies by (stage that leads a group, axis)
    tiles  iterations of a tile by the same
    turns  whether windows may take turns
    tilings  of all nests in combination, at most, among which calls choose by size
    left_out  numbers of options that there are not to be, of those behind the first of each nest
    """

    tails: Mapping[tuple[str, str], Strategy]
    tiles: Mapping[tuple[str, str], int]
    turns: bool = True
    tilings: int = 1
    left_out: frozenset[int] = frozenset()

    def layouts(self, known: Layouts, lead: Stage, spec: AcceleratorSpec) -> tuple[Roles, ...]:
        """Return the layouts worth having whose words begin where tiles do; the best ones where there are none."""

        def fits(roles: Roles) -> bool:
            return all(
                self.begins_with_words(lead, axis, count)
                for axis, count in (
                    (roles.rows, spec.rows),
                    (roles.columns, spec.columns),
                    (roles.depth, spec.terms),
                )
                if axis is not None
            )

        best = tuple(filter(fits, known.chosen))
        if best:
            return best
        full = _count_lanes(known.chosen[0])
        others = (roles for roles in known.every if fits(roles) and _count_lanes(roles) == full)
        return tuple(others)[:1] or known.chosen

    def begins_with_words(
        self, lead: Stage, axis: str, count: int, tile: int | None = None
    ) -> bool:
        """Return whether tiles of an axis begin where its words of `count` elements do.

        tile  iterations of a tile; None: those that are asked for, else words
        """
        at = lead.buffer, axis
        tail, size = self.tails.get(at), tile or self.tiles.get(at, count)
        if count == 1 or (tile is None and at not in self.tails and at not in self.tiles):
            return True
        extent = next(a.extent for a in (*lead.axes, *lead.reduce_axes) if a.name == axis)
        if size % count:
            return False

        def begins(one: Strategy) -> bool:
            own = LADDER if one == CUT else one  # a tile may have any height
            return all(
                ix.known_divisor(part.start) % count == 0 for part in segments(own, extent, size)
            )

        one = tail or GUARD
        return any(map(begins, one.among or (one,)))

    def with_fewer_options(self, schedule: Schedule | None) -> Iterator[PlanRequest]:
        """Yield the same without one of the options of a schedule of it, then without all but the first of each nest."""
        steps = () if schedule is None else schedule.steps
        others = sum(len(step.options) - 1 for step in steps if isinstance(step, Choose))
        for number in reversed(range(others)):
            yield replace(self, left_out=frozenset({number}))
        if others > 1:
            yield replace(self, left_out=frozenset(range(others)))

    def in_smaller_tiles(self) -> Iterator[PlanRequest]:
        """Yield the same with tiles of fewer iterations along axes with a strategy: fewer heights are easier to prove."""
        for size in SMALLER_TILES if self.tails and not self.tiles else ():
            yield replace(self, tiles=dict.fromkeys(self.tails, size))


def _count_lanes(roles: Roles) -> int:
    """Return along how many axes words have several elements."""
    return sum(axis is not None for axis in (roles.rows, roles.columns, roles.depth))


SMALLER_TILES = (32, 16)
"""Iterations of tiles that are tried where those that the policy likes best are not proved: multiples of a word's lanes."""
MAX_TILINGS = 2
"""Tilings of all nests in combination, at most, where nothing is asked for: each is proved."""
NO_REQUEST = PlanRequest({}, {}, tilings=MAX_TILINGS)


def plan_request(computation: Computation, strategy: Strategies) -> PlanRequest:
    """Return what strategies ask of the policy: one for the rows, axes of results whose extents sizes give, or some by axis.

    Raises PartitionError for an axis that there is not.
    """
    if strategy == "auto":
        return NO_REQUEST
    if isinstance(strategy, Strategy):
        axes = [
            (group[0].buffer, axis.name)
            for group in computation.groups
            for axis in group[0].axes
            if variables(axis.extent)
        ]
        return PlanRequest(dict.fromkeys(axes, strategy), {})
    tails = {}
    for name, tail in dict(strategy).items():
        home, axis = axis_named(computation, name)
        tails[first_stage(computation, home), axis] = tail
    return PlanRequest(tails, {})


def first_stage(computation: Computation, home: int) -> str:
    """Return the stage that a group of a computation begins with."""
    return computation.groups[home][0].buffer
