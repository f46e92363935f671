"""Ways of nests in, their loops out: what schedules that differ in ways alone have in common is found out once."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from copy import copy

from offcut.describe.computation import Computation
from offcut.describe.microkernel import Microkernel
from offcut.errors import PartitionError
from offcut.schedule.apply_ways import Applying, ResolvedWay, WayPrice
from offcut.schedule.decisions import Schedule, Staging
from offcut.schedule.nests import Nest, Pack, Together, Way, nests_of


class Resolving:
    """The loops of ways of schedules of one computation; nothing is cut or proved.

    microkernels  those that a cover may name
    price         of a way that does not say what it costs
    """

    def __init__(
        self, computation: Computation, microkernels: Sequence[Microkernel], price: WayPrice
    ) -> None:
        self.computation, self.microkernels, self.price = computation, microkernels, price
        self.known: dict[Hashable, Within | PartitionError] = {}

    def within(self, schedule: Schedule) -> Within:
        """What a schedule says but for its ways.

        Raises PartitionError for a decision that names what is not there.
        """
        view = nests_of(schedule)
        parts = () if view is None else view.parts
        stages = (step for step in schedule.steps if isinstance(step, Staging))
        key = (*stages, *map(_but_for_ways, parts))
        if key not in self.known:
            applying = Applying(
                self.computation, schedule, self.microkernels, self.price, quote=False
            )
            try:
                self.known[key] = Within(applying)
            except PartitionError as refused:
                self.known[key] = refused
        found = self.known[key]
        if isinstance(found, PartitionError):
            raise found
        return found


class Within:
    """Schedules that say the same of stages, layouts and shared loops, and cover sums along the same axes."""

    def __init__(self, applying: Applying) -> None:
        placed = applying.placed(applying.shared()).items()
        self.places = {nest.stage: (position, around) for position, (nest, around) in placed}
        self.by_packing: dict[tuple[int, Pack] | None, Applying] = {None: applying}
        self.planned: dict[tuple[int, Pack] | None, Computation] = {}

    def way(self, stage: str, way: Way, asked: bool) -> tuple[Computation, ResolvedWay]:
        """Return a way of the nest of `stage` with its loops, and the computation with layouts and what the way packs.

        asked  whether it competes, so that somebody asks what it costs

        Raises PartitionError for a decision that names what is not there; what the sets of an axis refuse, and ways
        that do not go together, `apply` does.
        """
        position, around = self.places[stage]
        key = None if way.pack is None else (position, way.pack)
        applying = self.by_packing.get(key)
        if applying is None:  # ways that pack otherwise add nothing to it
            applying = self.by_packing[key] = copy(self.by_packing[None])
            applying.copies, applying.packings = {}, {}
        resolved = applying.way(position, way, around, asked)
        computation = self.planned.get(key)
        if computation is None:
            computation = self.planned[key] = applying.planned()
        return computation, resolved


def _but_for_ways(step: object) -> Hashable:
    """Return a decision, and of nests along what they are covered."""
    match step:
        case Nest(stage, ways):
            return stage, frozenset(way.cover.depth for way in ways if way.cover is not None)
        case Together(axes, parts, block):
            return axes, tuple(map(_but_for_ways, parts)), block
        case _:
            raise AssertionError(step)
