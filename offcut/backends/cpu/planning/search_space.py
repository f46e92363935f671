"""The search space of the CPU: what may be decided otherwise than a default schedule decides.

It follows from that schedule, from the computation that it is of, from the microkernels and from the machine: the
variants of each nest (`nest_decisions`), which loops nests share, which decision about stages is taken back, and for a
program that stands as it is the cuts of its loops (`nest_decisions`), how far conditions are separated, which loops are
bound::

    space  =  sum over stages that are as they were, or one of which is taken back
                  steps  x  shared loops  x  nest 1  x  nest 2  x …

Every point looks legal; `offcut.schedule.application` decides whether it is, and a price whether it is worth a trial.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from offcut.backends.cpu.planning.nest_decisions import (
    LoopCuts,
    LoopDecisions,
    NestTree,
    Steps,
    VariantDecision,
    VariantSet,
    limit_variants,
)
from offcut.backends.cpu.planning.variant_forms import forms_of
from offcut.core.memo import lazy_property, memoize_method
from offcut.core.program import Program
from offcut.costmodel import Machine
from offcut.describe.computation import Computation
from offcut.describe.microkernel import Microkernel
from offcut.errors import PartitionError
from offcut.schedule import (
    ANY_PRODUCTS,
    Bind,
    Schedule,
    Separate,
    Split,
    Staging,
    Step,
    decisions_of,
    is_of_loops,
    is_prepacked,
    loop_cuts,
    loop_name,
    nests_in,
    nests_of,
    panel_copies,
    parts_of,
    transform_stages,
    with_orders_of_terms,
)
from offcut.search import ScheduleSpace
from offcut.search.schedule_space import AllOf, CaseOf, OneOf

Decided = tuple[Steps, tuple[bool, ...], tuple[VariantSet, ...]]
"""An alternative of a case: what is said beside nests, which shared loops stay, the variants of each nest."""


@dataclass(frozen=True)
class OpenDecisions:
    """What a schedule leaves open.

    first         the schedule
    program       that it is of
    microkernels  that may cover tiles
    machine       that it is for
    computation   that its nests are of; None if it has none
    most          variants of a nest that may compete
    """

    first: Schedule
    program: Program
    microkernels: tuple[Microkernel, ...]
    machine: Machine
    computation: Computation | None = None
    most: int = 3

    @property
    def space(self) -> ScheduleSpace:
        """Return the schedules that there are."""
        decisions = {case: nests.decision(self._steps) for case, nests in self._cases.items()}
        return ScheduleSpace(
            self.first,
            CaseOf(decisions, self._convert, lambda one, other: None in (one, other)),
            self._schedule_of,
            self._alternative_of,
            computation=self.computation,
            most=self.most,
            narrow=lambda most: (
                replace(self, first=limit_variants(self.first, most), most=most).space
            ),
        )

    @memoize_method
    def _schedule_of(self, at: tuple[int | None, Decided]) -> Schedule:
        """Return the schedule of an alternative, its decisions in the order of `first`."""
        dropped, (said, kept, variants) = at
        nests = self._cases[dropped]
        lays = {one.lay.what: one.lay for one in variants if one.lay is not None}
        steps: list[Step] = []
        for place, step in enumerate(self.first.steps):
            match step:
                case Staging("value" | "write") if place in self._stage_steps:
                    steps += [step] if place != dropped else []
                case Staging("prepack", buffer):
                    steps += [lays[buffer]] if buffer in lays else []
                    steps += [step] if buffer in nests.fixed else []
                case _:
                    pass
        if nests.variants:
            pairs = zip(nests.variants, variants, strict=True)
            ways = {decision.stage: decision.written(one) for decision, one in pairs}
            assert nests.computation is not None
            parts = with_orders_of_terms(nests.tree.written(kept, ways), nests.computation)
            steps += decisions_of(parts, self._sums)
        return Schedule(self.first.name, (*steps, *(step for step in said if step is not None)))

    def _alternative_of(self, schedule: Schedule) -> tuple[int | None, Decided] | None:
        """Return the alternative of a schedule of the same nests; None if it has others."""
        missing = (p for p in self._stage_steps if self.first.steps[p] not in schedule.steps)
        dropped, parts = next(missing, None), parts_of(schedule)
        nests = self._cases.get(dropped)
        if nests is None or [nest.stage for nest in nests_in(parts)] != nests.stages:
            return None
        said = tuple(
            next((option for option in one.options if option in schedule.steps), None)
            for one in self._steps.decisions
            if isinstance(one, OneOf)
        )
        kept, ways = nests.tree.read(parts)
        lays = list(filter(is_prepacked, schedule.steps))
        variants = tuple(
            one.read(ways[one.stage], next((s for s in lays if s.what in one.laid_constants), None))
            for one in nests.variants
        )
        return dropped, (said, kept, variants)

    def _convert(self, case: int | None, at: Decided, other: int | None) -> Decided:
        """Return what is most like an alternative of one case in another, with all loops shared."""
        before, nests = self._cases[case], self._cases[other]
        own = dict(zip(before.stages, at[2], strict=True))
        variants = tuple(
            one.nearest(own[one.stage]) if one.stage in own else one.first for one in nests.variants
        )
        return at[0], (True,) * len(nests.tree.loops), variants

    @lazy_property
    def _sums(self) -> frozenset[tuple[str, str]]:
        """Return the axes along which stages are sums, in every case."""
        return frozenset(
            (group[0].buffer, axis.name)
            for nests in self._cases.values()
            if nests.computation is not None
            for group in nests.computation.groups
            for axis in group[0].reduce_axes
        )

    @lazy_property
    def _stage_steps(self) -> list[int]:
        """Return the places of the decisions that make stages with nests of their own."""
        copies = panel_copies(self.first.steps)
        return [
            place
            for place, step in enumerate(self.first.steps)
            if isinstance(step, Staging) and step.how in ("value", "write")
            if step.name not in copies
        ]

    @lazy_property
    def _cases(self) -> dict[int | None, Nests]:
        """Return the nests by the place of the decision about stages that is taken back; None: none is."""
        cases = {dropped: self._nests(dropped) for dropped in (None, *self._stage_steps)}
        return {dropped: nests for dropped, nests in cases.items() if nests is not None}

    def _nests(self, dropped: int | None) -> Nests | None:
        """Return the nests without a decision; None if others need it, or they become other nests."""
        computation = self.computation
        if computation is None:
            return Nests(NestTree((), {}), (), frozenset(), None)
        for place in self._stage_steps:
            if place == dropped:
                continue
            try:
                computation = transform_stages(computation, self.first.steps[place])
            except PartitionError:
                return None  # it needs the one that is taken back
        axes = {g[0].buffer: tuple(axis.name for axis in g[0].axes) for g in computation.groups}
        tree = NestTree(parts_of(self.first), axes).only(frozenset(axes))
        if {nest.stage for nest in tree.nests} != set(axes):
            return None
        lays = list(filter(is_prepacked, self.first.steps))
        groups = {group[0].buffer: group for group in computation.groups}
        variants = []
        for nest in tree.nests:
            shared = axes[nest.stage][: len(tree.around(nest.stage))]
            given = (computation, groups[nest.stage], nest, lays, shared)
            forms = forms_of(*given, self.microkernels, self.machine)
            variants.append(VariantDecision.of(nest, forms, self.most))
        used = {buffer for one in variants for buffer in one.laid_constants}
        fixed = frozenset(step.what for step in lays) - used
        return Nests(tree, tuple(variants), fixed, computation)

    @lazy_property
    def _steps(self) -> LoopDecisions:
        """Return what may be said beside stages and nests, in order; what `first` says is the first option of each."""
        others: list[OneOf[Step | None]] = []
        bound: list[OneOf[Step | None]] = []
        loops, cut = LoopCuts(self.program, self.machine), loop_cuts(self.first)
        has_nests = nests_of(self.first) is not None
        for step in self.first.steps:
            match step:
                case _ if isinstance(step, Bind) or step == ANY_PRODUCTS:
                    bound.append(OneOf((step, None)))
                case Separate(copies) if is_of_loops(step):
                    counts = (Separate(2**k) for k in range((2 * copies).bit_length()))
                    others.append(OneOf(tuple(dict.fromkeys((step, *counts)))))
                case Split() if step in cut.values():
                    cuts = loops.of(loop_name(step), step)
                    others.append(OneOf(tuple(dict.fromkeys((step, *cuts)))))
                case _ if not has_nests:
                    others.append(OneOf((step,)))
                case _:
                    pass
        if not has_nests:
            whole = (loop for loop in loops.loops if loop not in cut)
            others += [OneOf((None, *loops.of(loop))) for loop in whole]
        return LoopDecisions((*others, *bound), loops)


@dataclass(frozen=True, slots=True)
class Nests:
    """The nests of a computation with or without a decision about its stages.

    fixed        constants whose panels no nest chooses
    computation  of which the nests are
    """

    tree: NestTree
    variants: tuple[VariantDecision, ...]
    fixed: frozenset[str]
    computation: Computation | None

    @property
    def stages(self) -> list[str]:
        """Return what the nests compute, in order."""
        return [one.stage for one in self.variants]

    def decision(self, steps: LoopDecisions) -> AllOf:
        """Return what is decided of them, beside `steps`."""
        shared = AllOf((OneOf((True, False)),) * len(self.tree.loops))
        return AllOf((steps, shared, AllOf(self.variants)))
