"""A computation and a schedule in, the loop program that the schedule says out, with its proof.

Scratch, orders, conversions and layouts change the stages one after the other; then each nest is cut
in each of its ways. Every decision is checked where it is applied: a refusal names its line.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

from offcut.core import index as ix
from offcut.core.expr import Expr, Var
from offcut.core.program import Alloc, Buffer, Choose, Option, Program, Stmt
from offcut.core.text.printer import format_expr
from offcut.describe.computation import Computation, Names, Stage
from offcut.describe.microkernel import Microkernel
from offcut.describe.source import plain_loops, source
from offcut.errors import PartitionError
from offcut.partition import (
    AxisCut,
    EmittedTile,
    Match,
    Partition,
    all_matches,
    pieces_of,
    users_of,
)
from offcut.polyhedral import space_of
from offcut.proof import Certificate, Theorem
from offcut.schedule.applied import Applied, Choice
from offcut.schedule.apply.apply_decision import apply_decision
from offcut.schedule.apply.emit import Lowering
from offcut.schedule.apply.group_loops import (
    FREE,
    ResolvedWay,
    SharedLoops,
    cut_group,
    group_nests,
    staged_form,
    staged_way,
)
from offcut.schedule.apply.offsets import At
from offcut.schedule.apply.staged_form import Nest as GroupNest
from offcut.schedule.checks import check_layout, check_splits, check_widths
from offcut.schedule.costs import check_cost
from offcut.schedule.decisions import (
    Schedule,
    Staging,
    is_prepacked,
)
from offcut.schedule.diagnostics import decision_error
from offcut.schedule.grouped_nests import GroupedNests
from offcut.schedule.nest_reader import parts_of
from offcut.schedule.nests import KernelAxes, Nest, Pack, Together, Way
from offcut.schedule.packing import packed_stages
from offcut.schedule.stage_transforms import position_of

# Predicted seconds of a group in a way, over the sizes: (computation, statements at one point, what the
# cover lays over them, way, constants in panels) -> a float64 expression
WayPrice = Callable[[Computation, Sequence[Stage], Match | None, Way, frozenset[str]], Expr]


def apply(
    computation: Computation,
    schedule: Schedule,
    microkernels: Sequence[Microkernel],
    price: WayPrice,
    quote: bool = True,
) -> Applied:
    """Return `computation` as `schedule` says, proved.

    microkernels  those that a cover may name
    price         of a way that does not say what it costs
    quote         whether what is refused names the line: the user has seen `schedule`

    Raises PartitionError, with the line, for a decision that names what is not there, or is not legal.
    """
    applying = Applying(computation, schedule, microkernels, price, quote)
    applying.stage()
    staged = source(applying.given)
    applying.place()
    return applying.emitted(applying.ways(), staged)


@dataclass(frozen=True, slots=True)
class _WayBody:
    """A way as statements, with the tiles in them and what was proved of its loops."""

    way: ResolvedWay
    body: tuple[Stmt, ...]
    tiles: tuple[EmittedTile, ...]
    theorems: tuple[Theorem, ...]


class Applying(GroupedNests):
    """A schedule that is applied; arguments are those of `apply`."""

    def __init__(
        self,
        computation: Computation,
        schedule: Schedule,
        microkernels: Sequence[Microkernel],
        price: WayPrice,
        quote: bool,
    ) -> None:
        super().__init__(computation, schedule, quote)
        self.kernels, self.price = microkernels, price
        self.laid = frozenset(step.what for step in schedule.steps if is_prepacked(step))
        self.matches: dict[tuple[int, KernelAxes], tuple[Stage, Match]] = {}
        self.packings: dict[tuple[int, str, Pack], tuple[Stage, ResolvedWay]] = {}
        self.plans: dict[tuple[int, Pack] | None, Computation] = {}

    def ways(self) -> dict[int, tuple[ResolvedWay, ...]]:
        """Return the ways of each nest with their loops, by the position of its group."""
        return {
            position: tuple(self.way(position, way) for way in nest.ways)
            for position, (nest, _) in self.nests.items()
        }

    def way(self, position: int, way: Way, competes: bool = True) -> ResolvedWay:
        """Return a way with its loops; with what it costs, if it `competes`.

        Raises PartitionError for a decision that does not apply.
        """
        lead, *rest = self.given.groups[position]
        _, around = self.nests[position]
        self.check_terms(lead, way.loops)
        with self.line(way):
            self.check_applies(ResolvedWay((lead, *rest), way, around))
        reduced = frozenset(axis.name for axis in lead.reduce_axes)
        for number, cut in enumerate(way.splits, 1):
            with self.line(cut):
                check_splits(way.splits[:number], reduced)
        self.check_units(lead, way)
        # Loops with conditions inside are no microkernel's; a cover says the order of their sum, and what is packed for it.
        guarded = False
        for cut in way.splits:
            if cut.axis not in reduced:
                with self.line(cut):
                    guarded = guarded or cut.guards
        match: Match | None = None
        if way.cover is not None:
            with self.line(way.cover):
                match = self.matched(lead, way.cover)
                self.check_rows(lead, way, match)
            with self.line(next((cut for cut in way.splits if cut.axis == match.columns), way)):
                check_widths(way.splits, match)
        cost: Expr = FREE
        if way.cost is not None:
            with self.line(way):
                check_cost(way.cost, self.given.sizes, self.given.assumptions)
            cost = way.cost
        elif competes:
            rows = None if match is None else match.rows
            with self.line(next((cut for cut in way.splits if cut.axis == rows), way)):
                covered = None if guarded else match
                cost = self.price(self.given, (lead, *rest), covered, way, self.laid)
        copy: ResolvedWay | None = None
        if way.pack is not None:
            with self.line(way.pack):
                around = (*around, *_loops_around(way.pack, way.loops))
                if match is None or way.cover is None or match.columns is None:
                    raise decision_error(
                        "cannot pack an operand", "no microkernel covers columns here"
                    )
                lead, copy = self.packed(position, lead, match, way.pack, around)
                match = self.matched(lead, way.cover)
        return ResolvedWay((lead, *rest), way, around, None if guarded else match, cost, copy)

    def resolved(self, stage: str, way: Way, competes: bool) -> tuple[Computation, ResolvedWay]:
        """Return a way of the nest of `stage` with its loops, and the computation with layouts and what the way packs.

        competes  whether it is one of several, so that somebody asks what it costs

        Raises PartitionError for a decision that names what is not there; what the sets of an axis refuse, and ways
        that do not go together, `apply` does.
        """
        position = next(k for k, (nest, _) in self.nests.items() if nest.stage == stage)
        resolved = self.way(position, way, competes)
        key = None if way.pack is None else (position, way.pack)
        if key not in self.plans:
            self.plans[key] = self.planned({position: (resolved,)})
        return self.plans[key], resolved

    def check_units(self, lead: Stage, way: Way) -> None:
        """Refuse windows that take turns."""
        if way.depth is not None:
            with self.line(way):
                raise decision_error(
                    f"cannot take windows of {lead.label} in turn",
                    "a machine of queues has them, and this target is not one",
                    help=("without its depth",),
                )

    def check_rows(self, lead: Stage, way: Way, match: Match) -> None:
        """Refuse tiles of rows that are as high as those of another axis say: such are columns."""
        if any(cut.by_height for cut in way.splits if cut.axis == match.rows):
            raise decision_error(
                f"cannot cover {lead.label} by {match.microkernel.name}",
                f"its rows are {match.rows}, whose tiles depend on the height of the tiles around",
                help=(f"the other axis as rows, {match.rows} as columns",),
            )

    def check_applies(self, way: ResolvedWay) -> None:
        """Refuse decisions about loops that do not apply to these."""
        staged_way(self.given, way, partial(self.naming_split, way))

    def matched(self, lead: Stage, cover: KernelAxes) -> Match:
        """Return the microkernel laid over a stage as `cover` says."""
        key = id(lead), cover
        if key in self.matches:
            return self.matches[key][1]
        known = [kernel for kernel in self.kernels if kernel.name == cover.microkernel]
        if not known:
            names = ", ".join(kernel.name for kernel in self.kernels)
            raise decision_error(f"cannot cover tiles by {cover.microkernel}", f"there are {names}")
        for found in all_matches(lead, known):
            if KernelAxes.of(found) == cover:
                self.matches[key] = lead, found
                return found
        raise decision_error(
            f"cannot cover {lead.label} by {cover.microkernel}",
            f"along these axes it does not compute {format_expr(lead.body)}",
        )

    def packed(
        self, position: int, lead: Stage, match: Match, pack: Pack, around: tuple[str, ...]
    ) -> tuple[Stage, ResolvedWay]:
        """Return `lead` reading a copy of its columns' operand in panels, and the stage that makes it."""
        key = position, match.microkernel.name, pack
        if key not in self.packings:
            array, copy, reading = packed_stages(self.given, lead, match, pack, around)
            if any(array.name == one.name for one in self.given.buffers):
                raise _has_that_name(array)
            way = Way(splits=pack.splits, loops=pack.loops)
            copying = ResolvedWay((copy,), way, around, array=array)
            self.check_applies(copying)
            self.packings[key] = reading, copying
        return self.packings[key]

    def planned(self, ways: Mapping[int, Sequence[ResolvedWay]]) -> Computation:
        """Return the computation with the layouts of constants, and with the stages that pack for `ways`, by the position of their group."""
        buffers = {buffer.name: buffer for buffer in self.given.buffers}
        copies: dict[int, tuple[Stage, ...]] = {}
        pairs = ((position, way) for position, several in ways.items() for way in several)
        for position, way in pairs:
            if way.copy is None or way.copy.array is None:
                continue
            array, group = way.copy.array, way.copy.group
            with self.line(way.way.pack):
                known = buffers.setdefault(array.name, array)
                if known != array or (known is not array and position not in copies):
                    raise _has_that_name(array)
                if copies.setdefault(position, group) != group:
                    because = "another way packs it otherwise"
                    raise decision_error(f"cannot pack {array.name} twice", because)
        laid = staged_form(self.given)
        for step in filter(is_prepacked, self.schedule.steps):
            with self.line(step):
                laid = apply_decision(laid, step)
                buffers[step.what] = laid.buffer(step.what)
                check_layout("lay", buffers[step.what], self.kernels)
        groups: list[tuple[Stage, ...]] = []
        for position, group in enumerate(self.given.groups):
            groups += [copies[position]] if position in copies else []
            groups.append(group)
        return replace(self.given, buffers=tuple(buffers.values()), groups=tuple(groups))

    def emitted(self, ways: Mapping[int, Sequence[ResolvedWay]], staged: Program) -> Applied:
        """Return the loops of all nests, with their proof.

        staged  the stages as they are cut, in plain loops
        """
        planned = self.planned(ways)
        nests, names = group_nests(self.given, self.view.parts), planned.names()
        bodies_by_nest: dict[str, tuple[_WayBody, ...]] = {}

        def body_of(nest: GroupNest, at: At) -> tuple[Stmt, ...]:
            bodies_by_nest[nest.name] = bodies = tuple(
                self.way_body(planned, way, names, at)
                for way in ways[position_of(self.given, nest.name)]
            )
            options = (Option(one.way.way.label, one.way.cost, one.body) for one in bodies)
            return bodies[0].body if len(bodies) == 1 else (Choose(tuple(options)),)

        lowering = Lowering(nests, names, partial(SharedLoops, body_of))
        body = tuple(s for nest in nests.nests if nest.at is None for s in lowering.root(nest))
        in_order = [bodies_by_nest[nest.name] for nest in nests.nests]
        uncut = source(planned)
        emitted, users = replace(uncut, body=body), users_of(planned)
        tiles = [tile for bodies in in_order for one in bodies for tile in one.tiles]
        pieces = pieces_of(space_of(planned), uncut, emitted, tiles, users)
        home = {id(piece.path[-1]): piece for piece in pieces}
        choices = tuple(
            tuple(
                Choice(way.way.label, way.group[0], of, way.cost, way.way.cost is not None)
                for one in bodies
                for way in (one.way,)
                for of in (tuple(home[id(tile.leaf)] for tile in one.tiles),)
            )
            for bodies in in_order
        )
        theorems = (theorem for bodies in in_order for one in bodies for theorem in one.theorems)
        certificate = Certificate(tuple(dict.fromkeys(theorems)))
        partition = Partition(uncut, pieces, emitted, certificate, users)
        return Applied(partition, choices, staged)

    def way_body(self, planned: Computation, way: ResolvedWay, names: Names, at: At) -> _WayBody:
        """Return a way as statements, at a place in loops that it shares; what it packs in an iteration of these lives in a window."""
        body: tuple[Stmt, ...] = ()
        theorems: dict[Theorem, None] = {}
        tiles: list[EmittedTile] = []
        with self.line(way.way):
            for one in (way,) if way.copy is None else (way.copy, way):
                inner, cutting = cut_group(
                    planned, one, names, partial(self.naming_split, one), at.facts
                )
                body += inner
                theorems |= cutting.theorems
                tiles = cutting.made
            if way.copy is not None and way.around:
                lead = way.copy.group[0]
                window = (
                    (Var(axis.name), ix.const(1))
                    if axis.name in way.around
                    else (ix.const(0), axis.extent)
                    for axis in lead.axes
                )
                body = (Alloc(lead.buffer, tuple(window), body),)
        return _WayBody(way, plain_loops(way.own, body), tuple(tiles), tuple(theorems))

    @contextmanager
    def naming_split(self, made: ResolvedWay, cut: AxisCut) -> Iterator[None]:
        """Name a split, and its axis as the user does, in what is refused meanwhile."""
        lead = made.group[0]
        axes = {axis.name: axis.label for axis in (*lead.axes, *lead.reduce_axes)}
        named = f"axis {lead.label}.{axes.get(cut.axis, cut.axis)}"
        with self.line(cut):
            try:
                yield
            except PartitionError as refused:
                if refused.at in (f"loop {cut.axis}", f"axis {lead.buffer}.{cut.axis}"):
                    refused.at = named
                raise


def _has_that_name(array: Buffer) -> PartitionError:
    return decision_error(f"cannot call a copy {array.name}", "something has that name")


def _loops_around(pack: Pack, loops: tuple[str, ...]) -> tuple[str, ...]:
    """Return the plain loops of a sum in each iteration of which a copy is made, outermost first."""
    return loops[: loops.index(pack.at) + 1] if pack.at else ()


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
        case Nest(stage, ways, _, terms):
            depths = frozenset(way.cover.depth for way in ways if way.cover is not None)
            return stage, depths, terms
        case Together(axes, parts, block):
            return axes, tuple(map(_but_for_ways, parts)), block
        case _:
            raise AssertionError(step)
