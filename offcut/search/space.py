"""The space of schedules of a program: a default schedule in, everything that may be decided otherwise out.

A point is a `Schedule`. What may be decided follows from the schedule that a target's policy made, from the
computation that it is of, from the microkernels and from the machine: the ways of each nest (`ways`), how many of
them compete (`nests`), which loops are shared (`shared`), which decision about stages is taken back, which loops
of a program that stands as it is are cut, how far conditions are separated, and which loops are marked::

    space  =  stages  x  steps  x  shared loops  x  nest 1  x  nest 2  x …

Every point looks legal; `offcut.schedule.apply_ways` decides whether it is, and a price whether it is worth a trial.

Of a program that stands as it is, a loop that carries dependences keeps its instances in order: tiles that run theirs together, or twice, are none of its cuts.
Loops inside each other are cut together where the proof says that single tiles of them are legal: a cut of two loops moves
the instances of the inner one, whatever its strategy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, combinations, islice, product
from math import prod
from random import Random

from offcut.core.analysis import analysis
from offcut.core.cached_hash import CachedHash, node
from offcut.core.memo import forget, lazy_property, memoize_method
from offcut.core.program import For, Form, Program
from offcut.costmodel import Machine
from offcut.describe.computation import Computation
from offcut.describe.microkernel import Microkernel
from offcut.errors import DescribeError, PartitionError
from offcut.partition import CUT, MASK, AxisCut, LoopCut
from offcut.polyhedral import carried_by, request_budget
from offcut.schedule import (
    ANY_PRODUCTS,
    Bind,
    Schedule,
    Separate,
    Split,
    Staging,
    Step,
    cut_program,
    decisions_of,
    is_of_loops,
    is_prepacked,
    loop_cuts,
    loop_name,
    nests_in,
    nests_of,
    parts_of,
    restaged,
    split_of,
)
from offcut.search.choices import Points
from offcut.search.nest_space import Chosen, Leaves, NestSpace, Tree
from offcut.search.variant_space import forms_of, plain_cuts, tile_forms

Options = tuple[Step | None, ...]


@node
@dataclass(frozen=True, slots=True)
class Point(CachedHash):
    """What a schedule of a space decides, choice by choice.

    dropped  the decision about stages that is taken back, by its place; None: none is
    steps    what is said of each other choice; None: nothing
    kept     the shared loops that stay, by the nests in them
    nests    the ways of each nest, in order
    """

    dropped: int | None
    steps: Options
    kept: frozenset[Leaves]
    nests: tuple[Chosen, ...]


@dataclass(frozen=True)
class Space(Points):
    """The schedules that are derived from the first one.

    program       that it is of
    microkernels  that may cover tiles
    machine       that it is for
    """

    program: Program
    microkernels: tuple[Microkernel, ...]
    machine: Machine
    most: int = field(default=3, kw_only=True)

    @property
    def size(self) -> int:
        """Return how many points there are, at most: loops that may not be cut together are counted as if they might."""
        steps = prod(len(options) for options in self._choices)
        nests: Iterator[int] = (
            2 ** len(variant.tree.loops) * prod(nest.size for nest in variant.nests)
            for variant in self._variants.values()
        )
        return steps * sum(nests)

    def enumerate(self, limit: int | None = None) -> Iterator[Schedule]:
        """Return the points, `first` before all others; at most `limit` of them."""
        return islice(chain((self.first,), self._others()), limit)

    def neighbours(self, point: Schedule) -> tuple[Schedule, ...]:
        """Return the points that differ from `point` in one choice, in an order that depends on it alone.

        Raises DescribeError where it is no point of this space.
        """
        found = dict.fromkeys(self._written(near()) for near in self._near(self._read(point)))
        return tuple(other for other in found if other != point)

    def step(self, point: Schedule, rng: Random) -> Schedule:
        """Return one of the neighbours of `point`; itself where it has none.

        Raises DescribeError where it is no point of this space.
        """
        near = self._near(self._read(point))
        return self._written(rng.choice(near)()) if near else point

    def sample(self, rng: Random) -> Schedule:
        """Return a point whose choices are drawn one by one, each option as likely as any other."""
        dropped = rng.choice(tuple(self._variants))
        variant = self._variants[dropped]
        kept = frozenset(loops for loops in variant.tree.loops if rng.random() < 0.5)
        steps = self._fitting(tuple(map(rng.choice, self._choices)), rng)
        nests = tuple(nest.drawn(rng) for nest in variant.nests)
        return self._written(Point(dropped, steps, kept, nests))

    def crossed(self, a: Schedule, b: Schedule, rng: Random) -> Schedule:
        """Return a point each choice of which is that of `a` or that of `b`.

        Raises DescribeError where one of them is no point of this space.
        """
        one, other = self._read(a), self._read(b)
        drawn = tuple(rng.choice(pair) for pair in zip(one.steps, other.steps, strict=True))
        steps = self._fitting(drawn, rng)
        base = rng.choice((one, other))
        kept, nests = base.kept, base.nests
        if one.dropped == other.dropped:
            spaces = self._variants[one.dropped].nests
            trios = zip(spaces, one.nests, other.nests, strict=True)
            nests = tuple(space.crossed(mine, theirs, rng) for space, mine, theirs in trios)
            kept = rng.choice((one.kept, other.kept))
        return self._written(Point(base.dropped, steps, kept, nests))

    def _others(self) -> Iterator[Schedule]:
        for dropped, variant in self._variants.items():
            loops = variant.tree.loops
            keeps = [c for n in range(len(loops), -1, -1) for c in combinations(loops, n)]
            for steps in filter(self._fits, product(*self._choices)):
                for kept in keeps:
                    for nests in _each(variant.nests):
                        made = self._written(Point(dropped, steps, frozenset(kept), nests))
                        if made != self.first:
                            yield made

    def _near(self, point: Point) -> list[Callable[[], Point]]:
        """What makes each of the points that differ in one choice: most of them nobody asks for."""
        variant, found = self._variants[point.dropped], list[Callable[[], Point]]()
        for place, nest in enumerate(variant.nests):
            before, after = point.nests[:place], point.nests[place + 1 :]
            for chosen in nest.near(point.nests[place]):
                found.append(partial(_in_ways, point, before, chosen, after))
        for loops in variant.tree.loops:
            found.append(partial(replace, point, kept=point.kept ^ {loops}))
        for place, options in enumerate(self._choices):
            for option in (one for one in options if one != point.steps[place]):
                steps = (*point.steps[:place], option, *point.steps[place + 1 :])
                if self._fits(steps):
                    found.append(partial(replace, point, steps=steps))
        for dropped, other in self._variants.items():
            if dropped != point.dropped and None in (dropped, point.dropped):
                own = dict(zip(variant.stages, point.nests, strict=True))
                nests = tuple(
                    nest.nearest(own[nest.stage]) if nest.stage in own else nest.first
                    for nest in other.nests
                )
                kept = frozenset(loops for loops in other.tree.loops)
                found.append(partial(Point, dropped, point.steps, kept, nests))
        return found

    @memoize_method
    def _written(self, point: Point) -> Schedule:
        """Return the schedule that says so, its decisions in the order of `first`."""
        variant = self._variants[point.dropped]
        lays = {one.lay.what: one.lay for one in point.nests if one.lay is not None}
        pairs = zip(variant.nests, point.nests, strict=True)
        ways = {nest.stage: nest.written(one) for nest, one in pairs}
        said: list[Step] = [step for step in point.steps if step is not None]
        steps: list[Step] = []
        for place, step in enumerate(self.first.steps):
            match step:
                case Staging("value" | "write"):
                    steps += [step] if place != point.dropped else []
                case Staging("prepack", buffer):
                    steps += [lays[buffer]] if buffer in lays else []
                    steps += [step] if buffer in variant.fixed else []
                case _:
                    pass
        if ways:
            steps += decisions_of(variant.tree.written(point.kept, ways), self._sums)
        return Schedule(self.first.name, (*steps, *said))

    @lazy_property
    def _sums(self) -> frozenset[tuple[str, str]]:
        """Return the axes along which stages are sums, of every variant."""
        return frozenset(
            (group[0].buffer, axis.name)
            for variant in self._variants.values()
            if variant.computation is not None
            for group in variant.computation.groups
            for axis in group[0].reduce_axes
        )

    @memoize_method
    def _read(self, schedule: Schedule) -> Point:
        """What `_written` has made `schedule` of."""
        missing = (p for p in self._stage_steps if self.first.steps[p] not in schedule.steps)
        steps: Options = tuple(
            next((option for option in options if option in schedule.steps), None)
            for options in self._choices
        )
        dropped = next(missing, None)
        parts = parts_of(schedule)
        stages = [n.stage for n in nests_in(parts)]
        if dropped in self._variants and stages == list(self._variants[dropped].stages):
            variant = self._variants[dropped]
            kept, ways = variant.tree.read(parts)
            lays = list(filter(is_prepacked, schedule.steps))
            chosen = (
                n.read(ways[n.stage], next((s for s in lays if s.what in n.laid), None))
                for n in variant.nests
            )
            point = Point(dropped, steps, kept, tuple(chosen))
            if self._written(point) == schedule:
                return point
        raise DescribeError(
            "tune",
            f"cannot search around a schedule of {schedule.name}",
            because="it is not a point of the space",
            help=("space.first", "space.sample(rng)", "space.neighbours(point)"),
        )

    @property
    def _stage_steps(self) -> list[int]:
        return [
            place
            for place, step in enumerate(self.first.steps)
            if isinstance(step, Staging) and step.how in ("value", "write")
        ]

    @lazy_property
    def _variants(self) -> dict[int | None, Variant]:
        """Return the space of the nests, by the decision about stages that is taken back."""
        found = {}
        for dropped in (None, *self._stage_steps):
            made = self._variant(dropped)
            if made is not None:
                found[dropped] = made
        return found

    def _variant(self, dropped: int | None) -> Variant | None:
        nests, computation = parts_of(self.first), self.computation
        if computation is None:
            return Variant(Tree((), {}), (), frozenset(), None)
        for place in self._stage_steps:
            if place == dropped:
                continue
            try:
                computation = restaged(computation, self.first.steps[place])
            except PartitionError:
                return None  # it needs the one that is taken back
        axes = {g[0].buffer: tuple(axis.name for axis in g[0].axes) for g in computation.groups}
        tree = Tree(nests, axes).only(frozenset(axes))
        if {nest.stage for nest in tree.nests} != set(axes):
            return None
        lays = list(filter(is_prepacked, self.first.steps))
        groups = {group[0].buffer: group for group in computation.groups}
        spaces = []
        for nest in tree.nests:
            shared = axes[nest.stage][: len(tree.around(nest.stage))]
            given = (computation, groups[nest.stage], nest, lays, shared)
            forms = forms_of(*given, self.microkernels, self.machine)
            spaces.append(NestSpace.of(nest, forms, self.most))
        used = {buffer for space in spaces for buffer in space.laid}
        fixed = frozenset(step.what for step in lays) - used
        return Variant(tree, tuple(spaces), fixed, computation)

    @lazy_property
    def _choices(self) -> tuple[Options, ...]:
        """What may be said beside stages and nests, in order; what `first` says first."""
        found: list[Options] = []
        marks: list[Options] = []
        cuts = loop_cuts(self.first)
        nests = nests_of(self.first) is not None
        for step in self.first.steps:
            match step:
                case Bind() | _ if isinstance(step, Bind) or step == ANY_PRODUCTS:
                    marks.append((step, None))
                case Separate(copies) if is_of_loops(step):
                    every = (2**k for k in range((2 * copies).bit_length()))
                    found.append(tuple(dict.fromkeys((step, *map(Separate, every)))))
                case Split() if step in cuts.values():
                    found.append(
                        tuple(dict.fromkeys((step, *self._loops.of(loop_name(step), step))))
                    )
                case _ if not nests:
                    found.append((step,))
                case _:
                    pass
        if not nests:
            found += [
                (None, *self._loops.of(loop)) for loop in self._loops.loops if loop not in cuts
            ]
        return (*found, *marks)

    @lazy_property
    def _loops(self) -> LoopCuts:
        return LoopCuts(self.program, self.machine)

    def _fits(self, steps: Options) -> bool:
        """Return whether the loops that are cut may be cut together."""
        return self._loops.together(_cut_in(steps))

    def _fitting(self, steps: Options, rng: Random) -> Options:
        """Return `steps` without cuts of loops that may not be cut beside the others; which stay is drawn."""
        cuts = [place for place, step in enumerate(steps) if isinstance(step, Split)]
        found = [None if place in cuts else step for place, step in enumerate(steps)]
        for place in rng.sample(cuts, len(cuts)):
            found[place] = steps[place]
            if not self._fits(tuple(found)):
                found[place] = None
        return tuple(found)


def _in_ways(
    point: Point, before: tuple[Chosen, ...], chosen: Chosen, after: tuple[Chosen, ...]
) -> Point:
    """Return `point` with the ways of one nest."""
    return Point(point.dropped, point.steps, point.kept, (*before, chosen, *after))


def _cut_in(steps: Options) -> frozenset[str]:
    return frozenset(loop_name(step) for step in steps if isinstance(step, Split))


def _each(nests: Sequence[NestSpace]) -> Iterator[tuple[Chosen, ...]]:
    """Yield every choice of ways of all nests, one by one: there may be more than memory holds."""
    if not nests:
        yield ()
        return
    for chosen in nests[0].every:
        yield from ((chosen, *rest) for rest in _each(nests[1:]))


@dataclass(frozen=True, slots=True)
class Variant:
    """The nests of a computation with or without a decision about its stages.

    fixed        constants whose panels no nest chooses
    computation  of which the nests are
    """

    tree: Tree
    nests: tuple[NestSpace, ...]
    fixed: frozenset[str]
    computation: Computation | None

    @property
    def stages(self) -> tuple[str, ...]:
        """What the nests compute, in order."""
        return tuple(nest.stage for nest in self.nests)


_TOGETHER = frozenset({Form.PAD, Form.SHIFT})
"""Tiles whose instances have no order, or run again."""


@dataclass
class LoopCuts:
    """The cuts of the loops of a program.

    machine  whose policy says how large tiles are, and how many copies of a statement there may be
    """

    program: Program
    machine: Machine

    def __post_init__(self) -> None:
        self.loops = tuple(dict.fromkeys(s.iter for s in analysis(self.program).of(For)))
        self.ordered = frozenset(
            one.loop
            for found in carried_by(self.program).values()
            for one in found
            if not one.reduction
        )

    def of(self, loop: str, own: Split | None = None) -> list[Split]:
        """Return the cuts of a loop in one level of tiles; like `own` inside of its outer levels, where it is cut already."""
        tail = MASK if own is None else own.levels[-1].tail
        assert tail is not None
        outer: Sequence[int] = () if own is None else [one.tile for one in own.levels[:-1]]
        tile = self.machine.policy.axis_tile if own is None else own.levels[-1].tile
        options = plain_cuts(AxisCut(loop, tail, tile), self.machine.policy.copies).options
        return [
            split_of(loop, LoopCut((*outer, one.tile), one.strategy))
            for one in options
            if not outer or outer[-1] % one.tile == 0
            if loop not in self.ordered or not tile_forms(one) & _TOGETHER
        ]

    @memoize_method
    def together(self, loops: frozenset[str]) -> bool:
        """Return whether these loops may be cut in one schedule; not where the proof does not say so in bounded work."""
        if len(loops) < 2 or not loops & self.ordered:
            return True
        return all(self.together(loops - {one}) for one in loops) and self._legal(loops)

    def _legal(self, loops: frozenset[str]) -> bool:
        forget()
        wanted = {loop: LoopCut((2,), CUT) for loop in loops}
        try:
            with request_budget("partition", f"cannot cut {self.program.name}"):
                cut_program(self.program, wanted, ())
        except PartitionError:
            return False
        return True
