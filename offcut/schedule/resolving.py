"""Ways of nests in, their loops out: what schedules that differ in ways alone have in common is found out once."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from copy import copy

from offcut.describe.computation import Computation, Stage
from offcut.describe.microkernel import Microkernel
from offcut.errors import PartitionError
from offcut.partition import GroupCut, Match, with_shared
from offcut.schedule.apply_ways import Applying, ResolvedWay, WayPrice
from offcut.schedule.decisions import Schedule, Staging
from offcut.schedule.nests import KernelAxes, Nest, Pack, Together, Way, nests_of


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
            made = _Remembering(
                self.computation, schedule, self.microkernels, self.price, quote=False
            )
            try:
                self.known[key] = Within(made)
            except PartitionError as refused:
                self.known[key] = refused
        found = self.known[key]
        if isinstance(found, PartitionError):
            raise found
        return found


class Within:
    """Schedules that say the same of stages, layouts and shared loops, and cover sums along the same axes."""

    def __init__(self, made: _Remembering) -> None:
        shared = made.shared()
        made.given = with_shared(made.given, shared)
        placed = made.placed()
        for position, (nest, _) in placed.items():
            made.covered_along(position, nest)
        self.plain = made
        self.places = {
            nest.stage: (position, around) for position, (nest, around) in placed.items()
        }
        self.packing: dict[tuple[int, Pack], _Remembering] = {}

    def way(self, stage: str, way: Way, asked: bool) -> tuple[Computation, ResolvedWay]:
        """Return a way of the nest of `stage` with its loops, and the computation with layouts and what the way packs.

        asked  whether it competes, so that somebody asks what it costs

        Raises PartitionError for a decision that names what is not there; what the sets of an axis refuse, and ways
        that do not go together, `apply` does.
        """
        position, around = self.places[stage]
        made = self.plain
        if way.pack is not None:
            key = position, way.pack
            if key not in self.packing:
                self.packing[key] = self.plain.apart()
            made = self.packing[key]
        found = made.way(position, way, around, asked)
        return made.whole(), found


class _Remembering(Applying):
    """A schedule that is applied to one way after the other, each of which packs the same, or nothing."""

    def __init__(
        self,
        computation: Computation,
        schedule: Schedule,
        microkernels: Sequence[Microkernel],
        price: WayPrice,
        quote: bool,
    ) -> None:
        super().__init__(computation, schedule, microkernels, price, quote)
        self.matches: dict[tuple[int, KernelAxes], tuple[Stage, Match]] = {}
        self.packings: dict[str, tuple[Stage, GroupCut]] = {}
        self.held: Computation | None = None

    def apart(self) -> _Remembering:
        """Return the same, to which nothing was added by ways."""
        made = copy(self)
        made.copies, made.packings, made.held = {}, {}, None
        return made

    def whole(self) -> Computation:
        """Return the computation with layouts and with what is packed."""
        if self.held is None:
            self.held = self.planned()
        return self.held

    def matched(self, lead: Stage, cover: KernelAxes) -> Match:
        """Return the microkernel laid over a stage as `cover` says."""
        key = id(lead), cover
        if key not in self.matches:
            self.matches[key] = lead, super().matched(lead, cover)
        return self.matches[key][1]

    def packed(
        self, position: int, lead: Stage, found: Match, pack: Pack, around: tuple[str, ...]
    ) -> tuple[Stage, GroupCut]:
        """`lead` reading a copy of its columns' operand in panels, and the loops that make it."""
        kernel = found.microkernel.name
        if kernel not in self.packings:
            self.packings[kernel] = super().packed(position, lead, found, pack, around)
        return self.packings[kernel]


def _but_for_ways(step: object) -> Hashable:
    """Return a decision, and of nests along what they are covered."""
    match step:
        case Nest(stage, ways):
            return stage, frozenset(way.cover.depth for way in ways if way.cover is not None)
        case Together(axes, parts, block):
            return axes, tuple(map(_but_for_ways, parts)), block
        case _:
            raise AssertionError(step)
