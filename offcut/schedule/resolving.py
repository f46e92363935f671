"""Ways of nests in, their loops out: what schedules that differ in ways alone have in common is computed once."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from offcut.describe.computation import Computation
from offcut.describe.microkernel import Microkernel
from offcut.errors import PartitionError
from offcut.schedule.apply_ways import Applying, WayPrice
from offcut.schedule.decisions import Schedule, Staging
from offcut.schedule.nest_reader import parts_of
from offcut.schedule.nests import Nest, Together


class Resolving:
    """The loops of ways of schedules of one computation; nothing is cut or proved.

    microkernels  those that a cover may name
    price         of a way that does not say what it costs
    """

    def __init__(
        self, computation: Computation, microkernels: Sequence[Microkernel], price: WayPrice
    ) -> None:
        self.computation, self.microkernels, self.price = computation, microkernels, price
        self.known: dict[Hashable, Applying | PartitionError] = {}

    def within(self, schedule: Schedule) -> Applying:
        """Return what applies ways in what a schedule says but for them: stages, layouts, shared loops, along which axes sums are covered.

        Raises PartitionError for a decision that names what is not there.
        """
        stages = (step for step in schedule.steps if isinstance(step, Staging))
        key = (*stages, *map(_but_for_ways, parts_of(schedule)))
        if key not in self.known:
            try:
                applying = Applying(
                    self.computation, schedule, self.microkernels, self.price, quote=False
                )
                applying.stage()
                applying.place()
                self.known[key] = applying
            except PartitionError as refused:
                self.known[key] = refused
        known = self.known[key]
        if isinstance(known, PartitionError):
            raise known
        return known


def _but_for_ways(step: object) -> Hashable:
    """Return a decision, and of nests along what they are covered."""
    match step:
        case Nest(stage, ways):
            return stage, frozenset(way.cover.depth for way in ways if way.cover is not None)
        case Together(axes, parts, block):
            return axes, tuple(map(_but_for_ways, parts)), block
        case _:
            raise AssertionError(step)
