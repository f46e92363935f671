"""Schedules of a computation, and of a program in its own loops, in; predicted seconds at many sizes out.

The seconds of a schedule are the sum over its nests, in the variant that is taken at run time: that whose own cost is least.

Schedules of a program whose loops run as they stand in, predicted seconds at many sizes out: nothing is cut, proved or counted.

What is priced so is a sequence of loops inside each other around one statement that computes elements: bounds follow from the sizes,
an array that is written is written by one statement, at the iterators themselves, each moved by a constant at most, and read by
none in its nest; no sum, no condition. Then each nest is a stage over axes that start at 0, and its tiles are those of a nest.
Everything else has no such price, and is cut to be counted: that takes a tenth of a second where this takes a half of a thousandth.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TypeAlias

import numpy as np

from offcut.core import index as ix
from offcut.core.expr import Expr, Load, Select, Var, reads_memory, substitute, variables, walk
from offcut.core.memo import CachedHash, node
from offcut.core.program import LANE, THREAD, For, Program, Stmt, Store
from offcut.costmodel.arrays import Array, Calls
from offcut.costmodel.nests.nest import NestCost, Nests
from offcut.costmodel.nests.parametric import Earlier, Loops
from offcut.costmodel.resources import Hardware
from offcut.describe.computation import Computation, Stage, StageAxis
from offcut.errors import PartitionError
from offcut.partition import LADDER, AxisCut
from offcut.schedule import (
    Bind,
    Binds,
    LoopVariant,
    Nest,
    ResolvedVariant,
    Schedule,
    Separate,
    Split,
    Staging,
    Step,
    Together,
    VariantResolver,
    loop_cuts,
    parts_of,
)


@node
@dataclass(frozen=True, slots=True)
class Surroundings(CachedHash):
    """Where a nest stands.

    around  the loops around it
    behind  those of them in which it runs behind another nest
    before  the nests that run before it, in order, each with the loops that both are in
    windows  all nests in shared loops, each with these: arrays that they compute have windows there
    """

    around: Loops
    behind: Loops
    before: Earlier
    windows: Earlier


@node
@dataclass(frozen=True, slots=True)
class Key(CachedHash):
    """What the price of a variant depends on.

    stages     the decisions about stages
    depths     along what sums are covered
    competing  whether it is one of several
    """

    stages: tuple[Step, ...]
    at: Surroundings
    stage: str
    depths: frozenset[str]
    competing: bool
    variant: LoopVariant


Placed: TypeAlias = tuple[Nest, Surroundings]
"""A nest where it stands."""


@dataclass(frozen=True, slots=True)
class VariantCost:
    """A variant of a nest, by call.

    seconds  that it is predicted to take
    own      seconds by which it competes at run time; 0 where it competes with none
    parts    what it consists of: a packed copy first
    """

    seconds: Array
    own: Array
    parts: tuple[NestCost, ...]


@dataclass(frozen=True, slots=True)
class Taken:
    """A nest, by call.

    variants     that it may run in
    seconds  of the one that runs
    """

    variants: tuple[VariantCost, ...]
    seconds: Array


@dataclass
class SchedulePrices:
    """Predicted seconds of schedules of one program.

    resolving  what gives the loops of their variants
    threads    that share loops where a schedule marks them
    known      by variant
    taken      by the decisions about stages, and by nest
    """

    hardware: Hardware
    calls: Calls
    resolving: VariantResolver
    threads: int = 1
    known: dict[Key, VariantCost | PartitionError] = field(default_factory=dict, init=False)
    taken: dict[tuple[Step, ...], dict[Placed, Taken]] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self._nests = Nests(self.hardware, self.calls)

    def __call__(self, schedule: Schedule) -> Array:
        """Seconds, by call.

        Raises PartitionError for a schedule that is not legal.
        """
        total, nests = self.calls.constant(0), self.taken_in(schedule)
        for nest in nests:
            total += nest.seconds
        call = self.hardware.machine.call.of([len(nest.variants) for nest in nests])
        return total / parallel_speedup(schedule, self.threads) + call

    def nests(self, schedule: Schedule) -> tuple[tuple[VariantCost, ...], ...]:
        """The variants of each nest, in order.

        Raises PartitionError for a schedule that is not legal.
        """
        return tuple(nest.variants for nest in self.taken_in(schedule))

    def competing(self, schedule: Schedule) -> Mapping[str, tuple[VariantCost, ...]]:
        """The variants of each nest of which a call takes the cheapest, by its first stage; none of which it is said what they cost.

        Raises PartitionError for a schedule that is not legal.
        """
        nests = [nest for nest, _ in _nests_in_order(parts_of(schedule))]
        return {
            nest.stage: variants
            for nest, variants in zip(nests, self.nests(schedule), strict=True)
            if len(variants) > 1 and all(variant.cost is None for variant in nest.variants)
        }

    def taken_in(self, schedule: Schedule) -> list[Taken]:
        """Its nests, in order; what is the same in two schedules is the same object.

        Raises PartitionError for a schedule that is not legal.
        """
        others = Staging | Separate | Bind
        stages: tuple[Step, ...] = tuple(s for s in schedule.steps if isinstance(s, others))
        known = self.taken.setdefault(stages, {})
        times = []
        for nest in _nests_in_order(parts_of(schedule)):
            if nest not in known:
                known[nest] = self._nest_seconds(schedule, stages, *nest)
            times.append(known[nest])
        return times

    def _nest_seconds(
        self, schedule: Schedule, stages: tuple[Step, ...], nest: Nest, at: Surroundings
    ) -> Taken:
        """Return the same of a nest that is new."""
        variants = []
        depths = frozenset(
            variant.cover.depth for variant in nest.variants if variant.cover is not None
        )
        for variant in nest.variants:
            key = Key(
                stages, at, nest.stage, depths, len(nest.variants) > 1, _without_names(variant)
            )
            if key not in self.known:
                self.known[key] = self.variant_cost(schedule, key)
            cost = self.known[key]
            if isinstance(cost, PartitionError):
                raise cost
            variants.append(cost)
        seconds = variants[0].seconds
        if len(variants) > 1:
            least = np.argmin([variant.own for variant in variants], axis=0)
            seconds = np.choose(least, [variant.seconds for variant in variants])
        return Taken(tuple(variants), seconds)

    def variant_cost(self, schedule: Schedule, key: Key) -> VariantCost | PartitionError:
        """The price of a variant, or why it is refused.

        Raises PartitionError where what `schedule` says around it is.
        """
        applying = self.resolving.within(schedule)
        rows = Binds.of(schedule, LANE, tree=True).bind_some(key.stage)
        try:
            computation, variant = applying.resolved(key.stage, key.variant, key.competing)
        except PartitionError as refused:
            return refused
        at, before, parts = key.at, key.at.before, list[NestCost]()
        if variant.copy is not None:
            shared = _around(variant.copy, at)
            parts.append(
                self._nests.copy(computation, variant.copy, rows, before, shared, at.windows)
            )
            before = (*before, (variant.copy.group[0].buffer, at.around))
        shared = _around(variant, at)
        parts.append(
            self._nests.cost(computation, variant, rows, before, at.behind, shared, at.windows)
        )
        cycles = sum((part.cycles for part in parts), start=self.calls.constant(0))
        seconds = cycles / self.hardware.machine.hertz
        return VariantCost(seconds, self.calls.of(variant.cost), tuple(parts))


def _around(variant: ResolvedVariant, at: Surroundings) -> Loops:
    """Return the shared loops around the loops of a variant."""
    return tuple(one for one in at.around if one[0] in variant.around)


@lru_cache(1 << 14)
def _without_names(variant: LoopVariant) -> LoopVariant:
    return replace(variant, label="")


def parallel_speedup(schedule: Schedule, threads: int) -> float:
    """By how much marked loops divide the time among so many threads."""
    return float(threads) if Binds.of(schedule, THREAD).lines else 1.0


def _nests_in_order(parts: Sequence[Nest | Together]) -> list[Placed]:
    """The nests in `parts`, in order."""
    nests: list[Placed] = []

    def visit(part: Nest | Together, around: Loops, behind: Loops, before: Earlier) -> list[str]:
        """The stages in it."""
        if isinstance(part, Nest):
            nests.append((part, Surroundings(around, behind, before, ())))
            return [part.stage]
        last = 1 if part.block is None else part.block.tile
        inside = (*around, *((axis, 1) for axis in part.axes[:-1]), (part.axes[-1], last))
        stages: list[str] = []
        for place, inner in enumerate(part.parts):
            now = (*before, *((stage, inside) for stage in stages))
            stages += visit(inner, inside, inside if place else behind, now)
        return stages

    done: list[str] = []
    for part in parts:
        done += visit(part, (), (), tuple((stage, ()) for stage in done))
    windows = tuple((nest.stage, at.around) for nest, at in nests if at.around)
    return [(nest, replace(at, windows=windows)) for nest, at in nests]


@dataclass(frozen=True, slots=True)
class ChoiceError:
    """Of the variants of a nest that compete, at some hundred calls that are allowed.

    stage   the first array that the nest computes
    within  by which part of what is counted a price is off, at most
    regret  by which part longer the nest takes than in its fastest variant, at most
    """

    stage: str
    within: float
    regret: float

    def __str__(self) -> str:
        return (
            f"{self.stage}: a call chooses by prices within {self.within:.0%} of what is predicted, "
            f"and takes at most {self.regret:.1%} longer for it"
        )


def choice_errors(schedule: Schedule, prices: SchedulePrices) -> tuple[ChoiceError, ...]:
    """Return the error and the regret of each nest with several variants; none where the schedule has no closed form.

    prices  at the calls that are looked at
    """
    if not prices.calls.count:
        return ()
    try:
        nests = prices.competing(schedule)
    except PartitionError:
        return ()
    errors: list[ChoiceError] = []
    for stage, variants in nests.items():
        exact = np.array([variant.seconds for variant in variants])
        short = np.array([variant.own for variant in variants])
        least = np.argmin(short, axis=0)
        cheapest_cycles = exact[least, np.arange(prices.calls.count)]
        within = float(np.abs(short / exact - 1).max())
        errors.append(
            ChoiceError(stage, within, float((cheapest_cycles / exact.min(axis=0)).max()) - 1)
        )
    return tuple(errors)


_WHOLE = 1 << 62
"""A tile that holds all iterations of a loop that is not cut."""


@dataclass
class LoopPrices:
    """Predicted seconds of schedules without nests of one program.

    computation  a stage for each of its nests
    threads      that share loops where a schedule marks them
    known        cycles by nest, by call
    """

    computation: Computation
    hardware: Hardware
    calls: Calls
    threads: int = 1
    known: dict[ResolvedVariant, Array] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self._nests = Nests(self.hardware, self.calls)

    def __call__(self, schedule: Schedule) -> Array | None:
        """Seconds, by call; None where a nest is not cut, or has tiles of several levels, or a name is not that of one loop."""
        cuts = loop_cuts(schedule)
        stages = [stage for (stage,) in self.computation.groups]
        axes = [name for stage in stages for names in _names(stage) for name in names]
        total, before = self.calls.constant(0), list[tuple[str, Loops]]()
        if any(axes.count(name) != 1 for name in cuts):
            return None
        for stage in stages:
            cut = _cut_nest(stage, cuts)
            if cut is None:
                return None
            if cut not in self.known:
                arguments = self.computation, cut, False, tuple(before)
                self.known[cut] = self._nests.cost(*arguments).cycles
            total = total + self.known[cut]
            before.append((stage.buffer, ()))
        return total / self.hardware.machine.hertz / parallel_speedup(schedule, self.threads)


def standing(program: Program) -> Computation | None:
    """The nests of a program as stages, in its own names; None where it has another form."""
    stages = [_stage(stmt, frozenset(size.name for size in program.sizes)) for stmt in program.body]
    whole_stages = [stage for stage in stages if stage is not None]
    if len(whole_stages) < len(stages) or len({stage.buffer for stage in whole_stages}) < len(
        whole_stages
    ):
        return None
    return Computation(
        name=program.name,
        sizes=program.sizes,
        size_names=tuple((size.name, size.name) for size in program.sizes),
        assumptions=program.assumptions,
        buffers=program.buffers,
        labels=tuple((buffer.name, buffer.name) for buffer in program.buffers),
        groups=tuple((stage,) for stage in whole_stages),
    )


def _stage(stmt: Stmt, sizes: frozenset[str]) -> Stage | None:
    """A nest as a stage whose axes start at 0; None where it has another form."""
    loops: list[For] = []
    while isinstance(stmt, For):
        plain = stmt.unit is None and len(stmt.body) == 1
        bounds = (stmt.lo, stmt.hi)
        if not plain or any(reads_memory(b) or not variables(b) <= sizes for b in bounds):
            return None
        loops.append(stmt)
        (stmt,) = stmt.body
    if not isinstance(stmt, Store) or stmt.reduce is not None or not loops:
        return None
    nodes = tuple(walk(stmt.value))
    if any(
        isinstance(n, Select) or (isinstance(n, Load) and n.buffer == stmt.buffer) for n in nodes
    ):
        return None
    if [_iterator(part, sizes) for part in stmt.index] != [loop.iter for loop in loops]:
        return None
    starts: dict[str, Expr] = {one.iter: ix.add(Var(one.iter), one.lo) for one in loops}
    axes = tuple(StageAxis(one.iter, ix.sub(one.hi, one.lo), one.iter) for one in loops)
    return Stage(stmt.buffer, stmt.buffer, axes, (), substitute(stmt.value, starts))


def _iterator(index: Expr, sizes: frozenset[str]) -> str | None:
    """The iterator that an index moves with, one by one; None where it moves otherwise."""
    form, names = ix.to_linear(index), variables(index) - sizes
    moving = [(a.name, by) for a, by in form.terms if isinstance(a, Var) and a.name in names]
    return moving[0][0] if moving == [(name, 1) for name in names] and moving else None


def _names(stage: Stage) -> list[tuple[str, str]]:
    """What a schedule may call each of its loops."""
    return [(axis.name, f"{stage.buffer}.{axis.name}") for axis in stage.axes]


def _cut_nest(stage: Stage, cuts: Mapping[str, Split]) -> ResolvedVariant | None:
    """A nest with its loops cut, by the names that a schedule has for these: loops before the first that is cut stay around
    the tiles, others that are not lie inside of them.
    """
    loops = [axis.name for axis in stage.axes]
    own = [cuts.get(whole, cuts.get(loop)) for loop, whole in _names(stage)]
    first = next((place for place, one in enumerate(own) if one is not None), None)
    if first is None or any(one is not None and len(one.levels) > 1 for one in own):
        return None
    tiles: tuple[AxisCut, ...] = ()
    for loop, one in zip(loops[first:], own[first:], strict=True):
        tail = LADDER if one is None else one.levels[0].tail
        if tail is None:
            return None
        tiles += (AxisCut(loop, tail, _WHOLE if one is None else one.levels[0].tile),)
    return ResolvedVariant((stage,), LoopVariant(splits=tiles, loops=tuple(loops[:first])))
