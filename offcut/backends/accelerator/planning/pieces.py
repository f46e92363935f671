"""The pieces of a call: each nest of a schedule, with its tiles and its share of what its stream is predicted to take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from offcut.backends.accelerator.instances.visited import Ran, run_of
from offcut.backends.accelerator.lowering.covers import Product, Result
from offcut.backends.accelerator.phases import Phases
from offcut.backends.accelerator.planning.regrouped import is_regrouping, regrouped
from offcut.backends.plan import Considered, PlannedPiece
from offcut.core.interpret.values import evaluate
from offcut.describe.computation import Computation, Stage
from offcut.schedule import Nest, Way


@dataclass(frozen=True, slots=True)
class Stream:
    """A stream of a call.

    ran      the option of it that is taken
    options  all that there are, in predicted seconds
    """

    ran: Ran
    options: tuple[Considered, ...]

    @property
    def taken(self) -> Considered:
        """The option that is taken."""
        return next(one for one in self.options if one.chosen)

    @property
    def stored(self) -> frozenset[str]:
        """The arrays that it leaves in main memory."""
        work = self.ran.nest.work
        return frozenset(one.leaf.store.buffer for one in work if isinstance(one.does, Result))


def streams_of(phases: Phases, sizes: Mapping[str, int]) -> list[Stream]:
    """The streams of a call of these sizes, by the program's names, in order.

    Raises TargetError where windows do not fit.
    """
    found: list[Stream] = []
    for at in phases.nests:
        costs = [evaluate(cost, sizes) for cost in phases.costs(at)]
        ran = [run_of(nest, sizes) for nest in phases.options(at)]
        best = min(range(len(ran)), key=lambda k: (costs[k], ran[k].timed.cycles))
        options = (
            Considered(
                one.nest.stage,
                label or "chip",
                one.timed.cycles / phases.spec.hertz,
                one is ran[best],
            )
            for label, one in zip(phases.labels(at), ran, strict=True)
        )
        found.append(Stream(ran[best], tuple(options)))
    return found


def pieces_of(
    computation: Computation,
    nests: Sequence[Nest],
    streams: Sequence[Stream],
    sizes: Mapping[str, int],
) -> list[PlannedPiece]:
    """A piece for each nest that has an instance.

    nests  of the schedule: one for each group of stages that runs on the chip
    """
    computation = regrouped(computation)[-1]
    groups = (group for group in computation.groups if not is_regrouping(group, computation))
    of: list[tuple[Stream, PlannedPiece]] = []
    for group, nest in zip(groups, nests, strict=True):
        own = {stage.buffer for stage in group}
        stream = next(one for one in streams if own & one.stored)
        ways = {way.label: way for way in nest.ways}
        way = ways.get(stream.taken.label, nest.ways[0])
        of.append((stream, _piece(group, way, stream.ran, sizes)))
    whole = {id(one): sum(p.instances for s, p in of if s is one) for one in streams}
    return [
        replace(piece, seconds=stream.taken.seconds * piece.instances / whole[id(stream)])
        for stream, piece in of
        if piece.instances
    ]


def _piece(group: Sequence[Stage], way: Way, ran: Ran, sizes: Mapping[str, int]) -> PlannedPiece:
    """The piece of a nest, whose time is not known yet."""
    axes = (*group[0].axes, *group[0].reduce_axes)
    extents = {axis.name: max(int(evaluate(axis.extent, sizes)), 0) for axis in axes}
    labels = {axis.name: axis.label for axis in axes}
    products = (one.leaf.microkernel for one in ran.nest.work if isinstance(one.does, Product))
    return PlannedPiece(
        stage=group[-1].label,
        role="whole",
        roles={},
        ranges={labels[name]: (0, extent) for name, extent in extents.items()},
        tile={labels[cut.axis]: min(cut.tile, extents[cut.axis]) for cut in way.splits},
        microkernel=next(filter(None, products), "vector unit"),
        instances=prod(extents.values()),
        seconds=0.0,
    )
