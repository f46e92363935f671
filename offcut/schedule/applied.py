"""What a schedule makes of a computation: a loop program, with its proof, and the ways of each nest that compete at run time.

Stages change first; then each nest is applied in each of its ways. Every decision is checked where it is applied: a refusal names its line.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial

from offcut.core.expr import Expr
from offcut.core.program import Program
from offcut.describe.computation import Computation, Stage
from offcut.describe.microkernel import Microkernel
from offcut.describe.source import source
from offcut.errors import PartitionError
from offcut.partition import (
    AxisCut,
    EmittedTile,
    Match,
    Partition,
    Piece,
    drop_refused_covers,
    pieces_of,
    users_of,
)
from offcut.partition.cutting import Cutting
from offcut.polyhedral import space_of
from offcut.proof import Certificate, Theorem
from offcut.schedule.apply.apply_decision import apply_decision
from offcut.schedule.apply.emit import Lowering
from offcut.schedule.apply.group_loops import (
    FREE,
    GroupLoops,
    ResolvedWay,
    covered_nest,
    group_nests,
    nest_in_way,
    staged_form,
    with_copy,
)
from offcut.schedule.apply.staged_form import Alternatives, Nests
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
from offcut.schedule.nests import Nest, Pack, Together, Way
from offcut.schedule.packing import packed_stages, panel_array


@dataclass(frozen=True)
class Choice:
    """One way to run a group, or the whole computation.

    stage  the first of the group; of the whole computation, of its last group
    cost   predicted seconds, a float64 expression in the sizes, by which it competes
    given  whether the schedule says the cost, which somebody measured or wrote
    parts  of the whole computation, its groups; of a group, none
    """

    label: str
    stage: Stage
    pieces: tuple[Piece, ...]
    cost: Expr
    given: bool = False
    parts: tuple[Choice, ...] = ()

    @property
    def groups(self) -> tuple[Choice, ...]:
        """Return what it runs, group by group."""
        return self.parts or (self,)


@dataclass(frozen=True)
class Applied:
    """What a schedule makes of a computation.

    partition  the loop program, the pieces of every way, and the certificate
    choices    by nest, the ways that compete at run time; one where nothing competes
    staged     the stages as they are cut, in plain loops
    """

    partition: Partition
    choices: tuple[tuple[Choice, ...], ...]
    staged: Program

    def with_microkernels(self, refused: Mapping[int, str]) -> Applied:
        """The same with tiles and pieces that name the microkernels which run.

        refused  why the one that a tile names does not, by the position of the tile
        """
        partition = drop_refused_covers(self.partition, refused)
        now = dict(zip(map(id, self.partition.pieces), partition.pieces, strict=True))
        choices = tuple(
            tuple(
                replace(one, pieces=tuple(now[id(piece)] for piece in one.pieces)) for one in group
            )
            for group in self.choices
        )
        return replace(self, partition=partition, choices=choices)


# (the nest of a group after the decisions of one of its ways, whether it reads a packed copy) -> predicted seconds over the sizes, float64
WayPrice = Callable[[Nests, bool], Expr]


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
    ways = {
        position: tuple(applying.way(position, way) for way in nest.ways)
        for position, (nest, _) in applying.nests.items()
    }
    return applying.emitted(ways, staged)


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
        self.packings: dict[tuple[int, str, Pack], tuple[Stage, ResolvedWay]] = {}
        self.plans: dict[tuple[int, Pack] | None, Computation] = {}

    def place(self) -> None:
        """Call the axes of shared loops as the schedule does, run sums as they are covered, and lay constants out."""
        super().place()
        self.declared = replace(staged_form(self.given), microkernels=tuple(self.kernels))
        for step in filter(is_prepacked, self.schedule.steps):
            with self.line(step):
                self.declared = apply_decision(self.declared, step)
                check_layout("lay", self.declared.buffer(step.what), self.kernels)

    def way(self, position: int, way: Way, competes: bool = True) -> ResolvedWay:
        """Return a way after its decisions; with what it costs, if it `competes`.

        Raises PartitionError for a decision that does not apply.
        """
        group, (_, shared) = self.given.groups[position], self.nests[position]
        lead, *rest = group
        self.check_terms(lead, way.loops)
        blame = partial(self.naming_split, lead)
        with self.line(way):
            nests = nest_in_way(self.declared, group, way, shared, blame)
        guarded = self.check_splits(lead, way)
        self.check_units(lead, way)
        with self.line(way.cover or way):
            nests = covered_nest(nests, way.cover)
        match = nests.nests[0].match
        if match is not None:
            with self.line(way.cover):
                self.check_rows(lead, way, match)
            with self.line(next((cut for cut in way.splits if cut.axis == match.columns), way)):
                check_widths(way.splits, match)
        if guarded:
            nests = nests.with_nest(nests.nests[0].with_match(None))
        cost: Expr = FREE
        if way.cost is not None:
            with self.line(way):
                check_cost(way.cost, self.given.sizes, self.given.assumptions)
            cost = way.cost
        elif competes:
            rows = None if match is None else match.rows
            with self.line(next((cut for cut in way.splits if cut.axis == rows), way)):
                cost = self.price(nests, way.pack is not None)
        copy, around, own = None, shared, nests.nests
        if way.pack is not None:
            with self.line(way.pack):
                around = (*shared, *_loops_around(way.pack, way.loops))
                if match is None or match.columns is None:
                    raise decision_error(
                        "cannot pack an operand", "no microkernel covers columns here"
                    )
                reading, copy = self.packed(position, lead, match, way.pack, around)
                group = (reading, *rest)
                own = with_copy(own[0], copy.nests[0], way.pack.at, group)
        return ResolvedWay(group, way, around, cost, copy, own)

    def check_splits(self, lead: Stage, way: Way) -> bool:
        """Return whether loops have conditions inside: such are no microkernel's. A cover says the order of their sum, and what is packed for it.

        Raises PartitionError for splits that are no loops of a nest.
        """
        reduced, guarded = frozenset(axis.name for axis in lead.reduce_axes), False
        for number, cut in enumerate(way.splits, 1):
            with self.line(cut):
                check_splits(way.splits[:number], reduced)
                guarded = guarded or (cut.axis not in reduced and cut.guards)
        return guarded

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

    def packed(
        self, position: int, lead: Stage, match: Match, pack: Pack, around: tuple[str, ...]
    ) -> tuple[Stage, ResolvedWay]:
        """Return `lead` reading a copy of its columns' operand in panels, and the stage that makes it."""
        key = position, match.microkernel.name, pack
        if key not in self.packings:
            copy, reading = packed_stages(self.given, lead, match, pack, around)
            if any(pack.name == one.name for one in self.given.buffers):
                raise _has_that_name(pack)
            way = Way(splits=pack.splits, loops=pack.loops)
            blame = partial(self.naming_split, copy)
            nests = nest_in_way(self.declared, (copy,), way, around, blame)
            own = covered_nest(nests, None).nests
            self.packings[key] = reading, ResolvedWay((copy,), way, around, nests=own)
        return self.packings[key]

    def planned(self, ways: Mapping[int, Sequence[ResolvedWay]]) -> Computation:
        """Return the computation with the layouts of constants, and with the stages that pack for `ways`, by the position of their group."""
        buffers = {buffer.name: buffer for buffer in self.declared.buffers}
        copies: dict[int, tuple[Stage, ...]] = {}
        pairs = ((position, way) for position, several in ways.items() for way in several)
        for position, way in pairs:
            pack = way.way.pack
            if way.copy is None or pack is None:
                continue
            group, array = way.copy.group, panel_array(pack, way.copy.group[0])
            with self.line(pack):
                known = buffers.setdefault(array.name, array)
                if known != array or (known is not array and position not in copies):
                    raise _has_that_name(pack)
                if copies.setdefault(position, group) != group:
                    because = "another way packs it otherwise"
                    raise decision_error(f"cannot pack {array.name} twice", because)
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
        way_by_nests: dict[int, ResolvedWay] = {}
        cuttings: dict[tuple[int, str], Cutting] = {}

        def option(way: ResolvedWay) -> tuple[str, Expr, Nests]:
            nests = replace(self.declared, buffers=planned.buffers, nests=way.nests)
            way_by_nests[id(nests)] = way
            return way.way.label, way.cost, nests

        def loops(lowering: Lowering, nest: GroupNest) -> GroupLoops:
            way = way_by_nests.get(id(lowering.nests))
            one = GroupLoops(lowering, nest, partial(self.blame, way, nest.group[0]))
            cuttings[id(lowering.nests), nest.name] = one.cutting
            return one

        nests = group_nests(self.given, self.view.parts)
        alternatives = tuple(
            Alternatives(frozenset({several[0].group[0].buffer}), tuple(map(option, several)))
            for several in ways.values()
        )
        lowering = Lowering(replace(nests, alternatives=alternatives), planned.names(), loops)
        body = tuple(s for nest in nests.nests if nest.at is None for s in lowering.root(nest))
        uncut = source(planned)
        emitted, users = replace(uncut, body=body), users_of(planned)
        theorems, tiles = dict[Theorem, None](), dict[int, list[EmittedTile]]()
        for number, way in way_by_nests.items():
            made = [cuttings[number, nest.name] for nest in way.nests]
            theorems |= {theorem: None for one in made for theorem in one.theorems}
            tiles[id(way)] = made[-1].made
        every_tile = [tile for of_way in tiles.values() for tile in of_way]
        pieces = pieces_of(space_of(planned), uncut, emitted, every_tile, users)
        home = {id(piece.path[-1]): piece for piece in pieces}

        def choice(way: ResolvedWay) -> Choice:
            own = tuple(home[id(tile.leaf)] for tile in tiles[id(way)])
            return Choice(way.way.label, way.group[0], own, way.cost, way.way.cost is not None)

        choices = tuple(tuple(map(choice, several)) for several in ways.values())
        partition = Partition(uncut, pieces, emitted, Certificate(tuple(theorems)), users)
        return Applied(partition, choices, staged)

    def blame(
        self, way: ResolvedWay | None, lead: Stage, axis: str | None
    ) -> AbstractContextManager[None]:
        """Name what is refused meanwhile: the split of an axis of `lead`, in a way of its nest; None: the way."""
        if way is None:
            return nullcontext()
        if axis is None:
            return self.line(way.way)
        splits = way.way.splits if way.copy is None or lead in way.group else way.copy.way.splits
        return self.naming_split(lead, next(cut for cut in splits if cut.axis == axis))

    @contextmanager
    def naming_split(self, lead: Stage, cut: AxisCut) -> Iterator[None]:
        """Name a split, and its axis as the user does, in what is refused meanwhile."""
        axes = {axis.name: axis.label for axis in (*lead.axes, *lead.reduce_axes)}
        named = f"axis {lead.label}.{axes.get(cut.axis, cut.axis)}"
        with self.line(cut):
            try:
                yield
            except PartitionError as refused:
                if refused.at in (f"loop {cut.axis}", f"axis {lead.buffer}.{cut.axis}"):
                    refused.at = named
                raise


def _has_that_name(pack: Pack) -> PartitionError:
    return decision_error(f"cannot call a copy {pack.name}", "something has that name")


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
