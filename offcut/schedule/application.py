"""What a schedule makes of a computation: a loop program, with its proof, and the variants of each nest that compete at run time.

Stages change first; then each nest is applied in each of its variants. Every decision is checked where it is applied: a refusal names its line.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial

from offcut.core.expr import Expr
from offcut.core.program import Program
from offcut.describe.computation import Computation, Stage, source
from offcut.describe.microkernel import Microkernel
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
    ResolvedVariant,
    group_nests,
    nest_in_variant,
    staged_form,
    with_copy,
)
from offcut.schedule.apply.staged_form import Alternatives, Nests
from offcut.schedule.apply.staged_form import Nest as GroupNest
from offcut.schedule.checks import check_cost, check_layout, check_splits, check_widths
from offcut.schedule.decisions import (
    Schedule,
    Staging,
    is_prepacked,
)
from offcut.schedule.diagnostics import decision_error
from offcut.schedule.grouped_nests import GroupedNests
from offcut.schedule.nest_reader import parts_of
from offcut.schedule.nests import LoopVariant, Nest, Pack, Together
from offcut.schedule.packing import packed_stages, panel_array


@dataclass(frozen=True)
class Choice:
    """One variant to run a group, or the whole computation.

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

    partition  the loop program, the pieces of every variant, and the certificate
    choices    by nest, the variants that compete at run time; one where nothing competes
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


# (the nest of a group after the decisions of one of its variants, whether it reads a packed copy) -> predicted seconds over the sizes, float64
VariantCostFunction = Callable[[Nests, bool], Expr]


def apply(
    computation: Computation,
    schedule: Schedule,
    microkernels: Sequence[Microkernel],
    price: VariantCostFunction,
    quote: bool = True,
) -> Applied:
    """Return `computation` as `schedule` says, proved.

    microkernels  those that a cover may name
    price         of a variant that does not say what it costs
    quote         whether what is refused names the line: the user has seen `schedule`

    Raises PartitionError, with the line, for a decision that names what is not there, or is not legal.
    """
    applying = ScheduleApplication(computation, schedule, microkernels, price, quote)
    variants = {
        position: tuple(applying.variant(position, variant) for variant in nest.variants)
        for position, (nest, _) in applying.nests.items()
    }
    return applying.emitted(variants)


class ScheduleApplication(GroupedNests):
    """The application of a schedule to a computation; arguments are those of `apply`."""

    def __init__(
        self,
        computation: Computation,
        schedule: Schedule,
        microkernels: Sequence[Microkernel],
        price: VariantCostFunction,
        quote: bool,
    ) -> None:
        super().__init__(computation, schedule, quote)
        self.kernels, self.price = microkernels, price
        self.stage()
        self.with_own_axes = self.given
        self.place()
        self.packings: dict[tuple[int, str, Pack], tuple[Stage, ResolvedVariant]] = {}
        self.plans: dict[tuple[int, Pack] | None, Computation] = {}

    def place(self) -> None:
        """Call the axes of shared loops as the schedule does, run sums as they are covered, and lay constants out."""
        super().place()
        self.declarations = replace(staged_form(self.given), microkernels=tuple(self.kernels))
        for step in filter(is_prepacked, self.schedule.steps):
            with self.line(step):
                self.declarations = apply_decision(self.declarations, step)
                check_layout("lay", self.declarations.buffer(step.what), self.kernels)

    def variant(
        self, position: int, variant: LoopVariant, competes: bool = True
    ) -> ResolvedVariant:
        """Return a variant after its decisions; with what it costs, if it `competes`.

        Raises PartitionError for a decision that does not apply.
        """
        group, (_, shared) = self.given.groups[position], self.nests[position]
        lead, *rest = group
        self.check_terms(lead, variant.loops)
        blame = partial(self.naming_split, lead)
        with self.line(variant):
            nests, cover = nest_in_variant(self.declarations, group, variant, shared, blame)
        guarded = self.check_splits(lead, variant)
        self.check_units(lead, variant)
        with self.line(variant.cover or variant):
            nests = apply_decision(nests, cover)
        match, cuts = nests.nests[0].match, {cut.axis: cut for cut in variant.splits[::-1]}
        if match is not None:
            with self.line(variant.cover):
                self.check_rows(lead, variant, match)
            with self.line(cuts.get(match.columns or "", variant)):
                check_widths(variant.splits, match)
        if guarded:
            nests = nests.with_nest(nests.nests[0].with_match(None))
        cost: Expr = FREE
        if variant.cost is not None:
            with self.line(variant):
                check_cost(variant.cost, self.given.sizes, self.given.assumptions)
            cost = variant.cost
        elif competes:
            with self.line(cuts.get(match.rows or "", variant) if match else variant):
                cost = self.price(nests, variant.pack is not None)
        copy, around, own = None, shared, nests.nests
        if variant.pack is not None:
            with self.line(variant.pack):
                around = (*shared, *_loops_around(variant.pack, variant.loops))
                if match is None or match.columns is None:
                    raise decision_error(
                        "cannot pack an operand", "no microkernel covers columns here"
                    )
                reading, copy = self.packed(position, lead, match, variant.pack, around)
                group = (reading, *rest)
                own = with_copy(own[0], copy.nests[0], variant.pack.at, group)
        return ResolvedVariant(group, variant, around, cost, copy, own)

    def check_splits(self, lead: Stage, variant: LoopVariant) -> bool:
        """Return whether loops have conditions inside: such are no microkernel's. A cover says the order of their sum, and what is packed for it.

        Raises PartitionError for splits that are no loops of a nest.
        """
        reduced, guarded = frozenset(axis.name for axis in lead.reduce_axes), False
        for number, cut in enumerate(variant.splits, 1):
            with self.line(cut):
                check_splits(variant.splits[:number], reduced)
                guarded = guarded or (cut.axis not in reduced and cut.guards)
        return guarded

    def resolved(
        self, stage: str, variant: LoopVariant, competes: bool
    ) -> tuple[Computation, ResolvedVariant]:
        """Return a variant of the nest of `stage` with its loops, and the computation with layouts and what the variant packs.

        competes  whether it is one of several, so that somebody asks what it costs

        Raises PartitionError for a decision that names what is not there; what the sets of an axis refuse, and variants
        that do not go together, `apply` does.
        """
        position = next(k for k, (nest, _) in self.nests.items() if nest.stage == stage)
        resolved = self.variant(position, variant, competes)
        key = None if variant.pack is None else (position, variant.pack)
        if key not in self.plans:
            self.plans[key] = self.planned({position: (resolved,)})
        return self.plans[key], resolved

    def check_units(self, lead: Stage, variant: LoopVariant) -> None:
        """Refuse windows that take turns."""
        if variant.depth is not None:
            with self.line(variant):
                raise decision_error(
                    f"cannot take windows of {lead.label} in turn",
                    "a machine of queues has them, and this target is not one",
                    help=("without its depth",),
                )

    def check_rows(self, lead: Stage, variant: LoopVariant, match: Match) -> None:
        """Refuse tiles of rows that are as high as those of another axis say: such are columns."""
        if any(cut.by_height for cut in variant.splits if cut.axis == match.rows):
            raise decision_error(
                f"cannot cover {lead.label} by {match.microkernel.name}",
                f"its rows are {match.rows}, whose tiles depend on the height of the tiles around",
                help=(f"the other axis as rows, {match.rows} as columns",),
            )

    def packed(
        self, position: int, lead: Stage, match: Match, pack: Pack, around: tuple[str, ...]
    ) -> tuple[Stage, ResolvedVariant]:
        """Return `lead` reading a copy of its columns' operand in panels, and the stage that makes it."""
        key = position, match.microkernel.name, pack
        if key not in self.packings:
            copy, reading = packed_stages(self.given, lead, match, pack, around)
            if any(pack.name == one.name for one in self.given.buffers):
                raise _has_that_name(pack)
            variant = LoopVariant(splits=pack.splits, loops=pack.loops)
            blame = partial(self.naming_split, copy)
            nests, cover = nest_in_variant(self.declarations, (copy,), variant, around, blame)
            own = apply_decision(nests, cover).nests
            self.packings[key] = reading, ResolvedVariant((copy,), variant, around, nests=own)
        return self.packings[key]

    def planned(self, variants: Mapping[int, Sequence[ResolvedVariant]]) -> Computation:
        """Return the computation with the layouts of constants, and with the stages that pack for `variants`, by the position of their group."""
        buffers = {buffer.name: buffer for buffer in self.declarations.buffers}
        copies: dict[int, tuple[Stage, ...]] = {}
        pairs = (
            (position, variant) for position, several in variants.items() for variant in several
        )
        for position, variant in pairs:
            pack = variant.decisions.pack
            if variant.copy is None or pack is None:
                continue
            group, array = variant.copy.group, panel_array(pack, variant.copy.group[0])
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

    def emitted(self, variants: Mapping[int, Sequence[ResolvedVariant]]) -> Applied:
        """Return the loops of all nests, with their proof."""
        packed_computation = self.planned(variants)
        variant_by_nests: dict[int, ResolvedVariant] = {}
        cuttings: dict[tuple[int, str], Cutting] = {}

        def option(variant: ResolvedVariant) -> tuple[str, Expr, Nests]:
            nests = replace(
                self.declarations, buffers=packed_computation.buffers, nests=variant.nests
            )
            variant_by_nests[id(nests)] = variant
            return variant.decisions.label, variant.cost, nests

        def loops(lowering: Lowering, nest: GroupNest) -> GroupLoops:
            variant = variant_by_nests.get(id(lowering.nests))
            one = GroupLoops(lowering, nest, partial(self.blame, variant, nest.group[0]))
            cuttings[id(lowering.nests), nest.name] = one.cutting
            return one

        nests = group_nests(self.given, self.view.parts)
        alternatives = tuple(
            Alternatives(frozenset({several[0].group[0].buffer}), tuple(map(option, several)))
            for several in variants.values()
        )
        lowering = Lowering(
            replace(nests, alternatives=alternatives), packed_computation.names(), loops
        )
        body = tuple(s for nest in nests.nests if nest.at is None for s in lowering.root(nest))
        uncut = source(packed_computation)
        emitted, users = replace(uncut, body=body), users_of(packed_computation)
        theorems, tiles = dict[Theorem, None](), dict[int, list[EmittedTile]]()
        for number, variant in variant_by_nests.items():
            nest_cuttings = [cuttings[number, nest.name] for nest in variant.nests]
            theorems |= {theorem: None for one in nest_cuttings for theorem in one.theorems}
            tiles[id(variant)] = nest_cuttings[-1].made
        every_tile = [tile for own in tiles.values() for tile in own]
        pieces = pieces_of(space_of(packed_computation), uncut, emitted, every_tile, users)
        home = {id(piece.path[-1]): piece for piece in pieces}

        def choice(variant: ResolvedVariant) -> Choice:
            own = tuple(home[id(tile.leaf)] for tile in tiles[id(variant)])
            return Choice(
                variant.decisions.label,
                variant.group[0],
                own,
                variant.cost,
                variant.decisions.cost is not None,
            )

        choices = tuple(tuple(map(choice, several)) for several in variants.values())
        partition = Partition(uncut, pieces, emitted, Certificate(tuple(theorems)), users)
        return Applied(partition, choices, source(self.with_own_axes))

    def blame(
        self, variant: ResolvedVariant | None, lead: Stage, axis: str | None
    ) -> AbstractContextManager[None]:
        """Name what is refused meanwhile: the split of an axis of `lead`, in a variant of its nest; None: the variant."""
        if variant is None:
            return nullcontext()
        if axis is None:
            return self.line(variant.decisions)
        splits = (
            variant.decisions.splits
            if variant.copy is None or lead in variant.group
            else variant.copy.decisions.splits
        )
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


class VariantResolver:
    """The loops of variants of schedules of one computation; nothing is cut or proved.

    microkernels  those that a cover may name
    price         of a variant that does not say what it costs
    """

    def __init__(
        self,
        computation: Computation,
        microkernels: Sequence[Microkernel],
        price: VariantCostFunction,
    ) -> None:
        self.computation, self.microkernels, self.price = computation, microkernels, price
        self.known: dict[Hashable, ScheduleApplication | PartitionError] = {}

    def within(self, schedule: Schedule) -> ScheduleApplication:
        """Return what applies variants in what a schedule says but for them: stages, layouts, shared loops, along which axes sums are covered.

        Raises PartitionError for a decision that names what is not there.
        """
        stages = (step for step in schedule.steps if isinstance(step, Staging))
        key = (*stages, *map(_without_variants, parts_of(schedule)))
        if key not in self.known:
            try:
                self.known[key] = ScheduleApplication(
                    self.computation, schedule, self.microkernels, self.price, quote=False
                )
            except PartitionError as refused:
                self.known[key] = refused
        known = self.known[key]
        if isinstance(known, PartitionError):
            raise known
        return known


def _without_variants(step: object) -> Hashable:
    """Return a decision, and of nests along what they are covered."""
    match step:
        case Nest(stage, variants, _, terms):
            depths = frozenset(
                variant.cover.depth for variant in variants if variant.cover is not None
            )
            return stage, depths, terms
        case Together(axes, parts, block):
            return axes, tuple(map(_without_variants, parts)), block
        case _:
            raise AssertionError(step)
