"""What decisions say of the nests of a computation, nest by nest.

The decisions of a nest end with what covers its tiles::

    split C.i ladder 14 as i_tile i_in
    split C.j ladder 384 then ladder by i_in 1..6: 64 32 16, 7..14: 32 16 as j_group j_tile j_in
    order C b j_group i_tile j_tile i_in j_in
    cover C at i_in fma_float32_avx512(i=i_in, j=j_in, p=k)

`nests_of` reads these, `decisions_of` writes them: loops outside of the tiles run in the order that is said, and every other loop
lies in the tile. `choose` holds several variants of one nest. ``at S C.i`` says that S is computed in a loop that it shares with C, if
something covers S; else that it is computed at each point of the tiles of C: both are one nest, whose loops are those of C.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import accumulate

from offcut.core.expr import Expr
from offcut.core.program import LANE, THREAD, UNROLL
from offcut.describe.computation import Computation
from offcut.schedule.decisions import (
    ANY,
    Alternative,
    At,
    Bind,
    Choose,
    Cover,
    Level,
    Order,
    Primitive,
    Schedule,
    Separate,
    Split,
    Staging,
    Step,
    each_decision,
    is_of_loops,
    panel_copies,
    stages_at_points,
    stages_in,
    stages_of_points,
    unit_splits,
)
from offcut.schedule.nests import (
    LoopVariant,
    Nest,
    NestView,
    Pack,
    Together,
    label_of,
)
from offcut.schedule.stage_loops import (
    OtherLoops,
    StageLoops,
    loops_in,
    read_loops,
    take_shared_loops,
)


def parts_of(schedule: Schedule) -> tuple[Nest | Together, ...]:
    """Return the nests that a schedule is of, and those that share loops; none where it is of loops as they stand."""
    view = nests_of(schedule)
    return () if view is None else view.parts


@lru_cache(1 << 15)
def nests_of(schedule: Schedule) -> NestView | None:
    """Return what a schedule says of nests; None where it decides about other loops."""
    steps = schedule.steps
    if not any(isinstance(step, Cover | Choose) for step in steps):
        return None
    line, members, copies = 2, stages_of_points(steps), panel_copies(steps)
    for first, step in enumerate(steps):
        if not isinstance(step, Bind) or step.unit in (LANE, THREAD, UNROLL, None):
            with suppress(OtherLoops):
                return _Reader(line, steps[first:], members, copies).view(first)
        if isinstance(step, Staging) and step.name in copies:
            return None  # the copy is made for a cover, which is of no nest without it
        line += _height(step)
    return None


def _height(step: Step) -> int:
    """Return how many lines of text a decision takes."""
    if not isinstance(step, Choose):
        return 1
    return 1 + sum(1 + sum(map(_height, option.steps)) for option in step.options)


@dataclass
class _Group:
    """The decisions about one stage, each with its line."""

    stage: str
    line: int
    steps: list[tuple[Step, int]] = field(default_factory=list)

    @property
    def has_cover(self) -> bool:
        """Return whether what covers it is said."""
        return any(isinstance(step, Cover | Choose) for step, _ in self.steps)


class _Reader:
    """Decisions, the first of which stands in line `line`.

    members  the stages that are computed at each point of another one, with that one
    copies   that are made for what covers their reader
    """

    def __init__(
        self,
        line: int,
        steps: Sequence[Step],
        members: Mapping[str, str],
        copies: Collection[str],
    ) -> None:
        self.line, self.steps, self.members, self.copies = line, steps, members, copies
        self.copy_homes: dict[str, str] = {}
        self.copy_places: list[At] = []
        self.groups: list[_Group] = []
        self.places: list[tuple[At, int]] = []
        self.depths: dict[str, At] = {}
        self.lines: dict[int, int] = {}
        self.named: list[tuple[str, str, int]] = []

    def home(self, stage: str) -> str:
        """Return the stage whose loops a stage is computed in."""
        return self.members.get(stage, stage)

    def view(self, first: int) -> NestView:
        """Return what all of them say of nests.

        Raises OtherLoops where some are of no nest, as all methods do.
        """
        self.sort_by_nest()
        nests: list[Nest] = []
        heads: dict[str, tuple[tuple[str, str, Level | None], ...]] = {}
        readers = {at.reader for at, _ in self.places}
        for group in self.groups:
            steps = list(group.steps)
            if group.stage in readers:
                heads[group.stage] = take_shared_loops(steps)
            terms = self.take_terms(group.stage, steps)
            variants = tuple(self.variants(group, steps))
            lead, *followers = self.stages_at_point(group, steps)
            nest = Nest(lead, variants, tuple(followers), terms)
            self.lines[id(nest)] = group.line
            nests.append(nest)
        return NestView(first, self.group_by_loops(nests, heads), self.lines, tuple(self.named))

    def sort_by_nest(self) -> None:
        """Sort decisions by nest, each of which says what covers it."""
        line, copies = self.line, self.copy_homes
        of_units = unit_splits(Schedule("", tuple(self.steps)))
        for step in self.steps:
            match step:
                case Separate() if is_of_loops(step) and line > self.line and not self.is_whole():
                    raise OtherLoops  # what a target decides begins there
                case Staging(_, _, name, (reader,)) if name in self.copies:
                    copies[name] = self.home(reader)
                    self.add(self.home(reader), step, line)
                case Staging("value" | "write" | "prepack") | Separate():
                    pass
                case Bind():
                    pass
                case At(stage, reader, str(), None, 1, None) if stage in copies:
                    if copies[stage] == self.home(reader) and not self.ends(copies[stage]):
                        self.add(self.home(reader), step, line)
                    else:
                        self.copy_places.append(step)
                case At(stage, reader) if stage in self.members:
                    self.add(reader, step, line)
                case At(stage, reader, axis, None, depth, None):
                    if stage == reader and axis is not None:
                        self.depths[stage] = step
                    elif axis is not None and depth == 1:
                        self.places.append((step, line))
                    else:
                        raise OtherLoops
                case Choose(options):
                    stages = {_covered_stage(option) for option in options}
                    if len(stages) != 1:
                        raise OtherLoops
                    self.add(stages.pop(), step, line)
                case Split(stage) if step in of_units and self.ends(stage):
                    pass
                case Split(stage) | Order(stage) | Cover(stage) if stage != ANY:
                    self.add(copies.get(stage, self.home(stage)), step, line)
                case _:
                    raise OtherLoops
            line += _height(step)
        if not self.is_whole():
            raise OtherLoops

    def is_whole(self) -> bool:
        """Return whether there are nests so far, and each says what covers it."""
        return bool(self.groups) and all(group.has_cover for group in self.groups)

    def ends(self, stage: str) -> bool:
        """Return whether the decisions so far cover a stage."""
        return any(group.stage == stage and group.has_cover for group in self.groups)

    def add(self, stage: str, step: Step, line: int) -> None:
        last = self.groups[-1] if self.groups else None
        if last is None or last.stage != stage or last.has_cover:
            last = _Group(stage, line)
            self.groups.append(last)
        last.steps.append((step, line))

    def take_terms(self, stage: str, steps: list[tuple[Step, int]]) -> tuple[str, ...]:
        """Take the order of the terms of a sum off the decisions about a nest: it stands before another order, or is of a stage at its points."""
        orders = [step for step, _ in steps if isinstance(step, Order) and step.stage == stage]
        has_choice = any(isinstance(step, Choose) for step, _ in steps)
        for place, (step, line) in enumerate(steps):
            if not isinstance(step, Order) or self.home(step.stage) != stage:
                continue
            rest = (s for s, _ in steps[place + 1 :])
            later = {loop for of, loop in loops_in(rest) if of == stage}
            if step.stage == stage and ({*step.loops} & later or len(orders) + has_choice < 2):
                return ()
            del steps[place]
            self.lines[id(step.loops)] = line
            return step.loops
        return ()

    def stages_at_point(self, group: _Group, steps: Sequence[tuple[Step, int]]) -> list[str]:
        """Return the stages of a nest, in the order in which a point of it computes them: those of each of its variants alike."""
        match steps:
            case [(Choose(options), _)]:
                variants = [option.steps for option in options]
            case _:
                variants = [tuple(s for s, _ in steps if isinstance(s, Primitive))]
        first, *rest = (
            [*stages_at_points(variant, self.members), group.stage] for variant in variants
        )
        if any(other != first for other in rest):
            raise OtherLoops
        return first

    def variants(self, group: _Group, steps: Sequence[tuple[Step, int]]) -> Iterator[LoopVariant]:
        """Yield the variants of a nest."""
        match steps:
            case [(Choose(options), line)]:
                line += 1
                for option in options:
                    numbers = accumulate(map(_height, option.steps), initial=line + 1)
                    inside = list(zip(option.steps, numbers, strict=False))
                    variant = self.variant(group.stage, option.label, option.cost, inside)
                    self.lines[id(variant)] = line
                    yield variant
                    line += 1 + sum(map(_height, option.steps))
            case _:
                variant = self.variant(group.stage, None, None, steps)
                self.lines[id(variant)] = group.line
                yield variant

    def variant(
        self,
        stage: str,
        label: str | None,
        cost: Expr | None,
        steps: Sequence[tuple[Step, int]],
    ) -> LoopVariant:
        """Return a variant."""
        copy = next((one for one in steps if isinstance(one[0], Staging)), None)
        members = {member for member, reader in self.members.items() if reader == stage}
        own_stages = {stage, *(step.name for step, _ in steps if isinstance(step, Staging))}
        for step, _ in steps:
            if isinstance(step, Order | Cover) and step.stage not in own_stages:
                raise OtherLoops
            if isinstance(step, Split | At) and step.stage not in own_stages | members:
                raise OtherLoops
        pack: Pack | None = None
        if copy is not None:
            staging, line = copy
            assert isinstance(staging, Staging)
            loops = self.loops(one for one in steps if _is_of(one[0], staging.name))
            if staging.name not in self.copies or loops.inner or loops.cover is not None:
                raise OtherLoops
            own_places = (step for step, _ in steps if isinstance(step, At))
            place = next((p.axis or "" for p in own_places if p.stage == staging.name), "")
            pack = Pack(staging, loops.splits, loops.outer, place)
            self.lines[id(pack)] = line
        own = self.loops(
            one for one in steps if any(_is_of(one[0], name) for name in (stage, *members))
        )
        places = (step.axis for step, _ in steps if isinstance(step, At) and step.stage in members)
        chooses = any(cut.strategy.among for cut in own.splits)  # by hand, a split may be a choice
        if own.around & {*places} or (members and chooses):
            raise OtherLoops
        if own.cover is None or (pack is not None and pack.at not in ("", *own.outer)):
            raise OtherLoops
        cover = own.kernel()
        if cover is not None:
            self.lines[id(cover)] = own.cover_line
        depth = None
        if stage in self.depths:
            at = self.depths[stage]
            depth = own.roots.get(at.axis or "", at.axis or ""), at.depth
        variant = LoopVariant(
            "",
            cost,
            cover,
            pack,
            own.splits,
            own.outer,
            own.inner,
            depth,
        )
        return replace(variant, label=label_of(variant) if label is None else label)

    def loops(self, steps: Iterable[tuple[Step, int]]) -> StageLoops:
        """Return what decisions about one stage make of its loops."""
        return read_loops(tuple(steps), self.lines, self.named)

    def group_by_loops(
        self, nests: Sequence[Nest], heads: Mapping[str, tuple[tuple[str, str, Level | None], ...]]
    ) -> tuple[Nest | Together, ...]:
        """Return the nests, those together that share loops."""
        children: dict[tuple[str, str], list[Nest]] = {}
        inside: set[int] = set()
        firsts = {nest.last: nest for nest in reversed(nests)}
        place = {id(nest): at for at, nest in enumerate(nests)}
        innermost: dict[str, tuple[str, str]] = {}
        first_lines: dict[tuple[str, str], int] = {}
        for at, line in self.places:
            child, reader = firsts.get(at.stage), firsts.get(at.reader)
            if child is None or reader is None or at.axis is None:
                raise OtherLoops
            names = [name for name, _, _ in heads[at.reader]]
            is_placed = id(child) in inside  # by hand, the line that says it twice is refused
            if is_placed or at.axis not in names or place[id(child)] >= place[id(reader)]:
                raise OtherLoops
            children.setdefault((at.reader, at.axis), []).append(child)
            first_lines.setdefault((at.reader, at.axis), line)
            inside.add(id(child))

        def with_children(
            nest: Nest, head: Sequence[tuple[str, str, Level | None]]
        ) -> Nest | Together:
            end = next(
                (k for k, (name, _, _) in enumerate(head) if (nest.last, name) in children), None
            )
            if end is None:
                return nest
            key = nest.last, head[end][0]
            own = sorted(children[key], key=lambda child: place[id(child)])
            innermost.update(dict.fromkeys((one.last for one in (*own, nest)), key))
            parts = [with_children(child, heads.get(child.last, ())) for child in own]
            axes = tuple(axis for _, axis, _ in head[: end + 1])
            together = Together(axes, (*parts, with_children(nest, head[end + 1 :])), head[end][2])
            self.lines[id(together)] = first_lines[key]
            return together

        if any((stage, head[-1][0]) not in children for stage, head in heads.items()):
            raise OtherLoops
        parts = tuple(
            with_children(nest, heads.get(nest.last, ()))
            for nest in nests
            if id(nest) not in inside
        )
        for at in self.copy_places:  # a copy is made in the loops that its reader shares
            if innermost.get(self.copy_homes[at.stage]) != (at.reader, at.axis):
                raise OtherLoops
        return parts


def _covered_stage(option: Alternative) -> str:
    """Return the stage that an option covers.

    Raises OtherLoops where it does not end with that.
    """
    steps = (step for step in reversed(option.steps) if not isinstance(step, Bind))
    last = next(steps, None)
    if not isinstance(last, Cover):
        raise OtherLoops
    return last.stage


def _is_of(step: Step, stage: str) -> bool:
    return isinstance(step, Split | Order | Cover) and step.stage == stage


def decisions_about(schedule: Schedule, computation: Computation) -> Schedule | None:
    """Return the decisions of a schedule about the stages of one nest, without binds; None if they do not cover each group, or are of
    loops that no nest has.
    """
    stages = {stage.buffer for group in computation.groups for stage in group}
    steps: list[Step] = []
    of_units = unit_splits(schedule)
    for step in schedule.steps:
        if isinstance(step, Separate | Bind) or step in of_units:
            continue
        if isinstance(step, Staging) and step.how == "prepack":
            about = any(step.what == buffer.name for buffer in computation.buffers)
        else:
            about = bool(stages_in(step) & stages)
        if about:
            stages |= {step.name} if isinstance(step, Staging) else frozenset()
            steps.append(step)
    covered_stages = {step.stage for step in each_decision(steps) if isinstance(step, Cover)}
    groups = ({stage.buffer for stage in group} for group in computation.groups)
    if not all(group & covered_stages for group in groups):
        return None
    about_nests = Schedule(computation.name, tuple(steps))
    return about_nests if parts_of(about_nests) else None


def hand_steps(schedule: Schedule, binds_last: bool = True) -> tuple[Primitive, ...]:
    """Return the decisions about loops as they stand that a schedule begins with: those before what a processor decides.

    binds_last  whether the target is a processor: it decides at the end, when loops stand, which sums add up in lanes, and which loops run
                serially: that is no primitive, nor are binds behind it
    """
    view = nests_of(schedule)
    steps = schedule.steps if view is None else schedule.steps[: view.first]
    if view is None and binds_last:
        places = (k for k, step in enumerate(reversed(steps)) if not isinstance(step, Bind))
        last = next(places, len(steps))
        binds = steps[len(steps) - last :]
        of_target = (
            k
            for k, step in enumerate(binds)
            if isinstance(step, Bind) and (step.tree or step.unit is None)
        )
        steps = steps[: len(steps) - last + next(of_target, last)]
    primitives: list[Primitive] = []
    for step in steps:
        is_of_all = isinstance(step, Bind | Cover) and step.stage == ANY
        if is_of_all or not isinstance(step, Primitive):
            break
        primitives.append(step)
    return tuple(primitives)
