"""From a program to the one of a machine of queues, and to the schedule that says what was decided.

The program is read as a computation, whose grouped axes are made axes of their own; then decisions are applied, those
of a schedule, or of the policy for the nests that it says nothing of. Where words may lie along one axis or another, and
sizes say which is better, the policy has an option for each layout, and where no tiling is near the best one at all sizes, an option for
some; options cost nothing in the text, because a call counts what each takes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count

from offcut.backends.accelerator.microkernels import microkernels
from offcut.backends.accelerator.planning.decide import decisions, tiling_of
from offcut.backends.accelerator.planning.elementary import (
    Operations,
    lanes,
    layouts_of,
    narrow_elements,
    operations,
)
from offcut.backends.accelerator.planning.grouped_products import is_regrouping, split_groups
from offcut.backends.accelerator.planning.plan_request import NO_REQUEST, PlanRequest
from offcut.backends.accelerator.planning.roles import (
    AROUND,
    BETWEEN,
    Roles,
    least_sizes,
    sizes_around,
    typical_extents,
    typical_sizes,
)
from offcut.backends.accelerator.planning.tile_work import load_volume, store_volume
from offcut.backends.accelerator.planning.tilings import Tiling, Tilings, by_size, sizes_of
from offcut.backends.accelerator.spec import AcceleratorSpec
from offcut.backends.raising import unfuse_stages
from offcut.backends.target import TargetPlan
from offcut.core import index as ix
from offcut.core.expr import all_loads
from offcut.core.program import UNROLL, Kind, Program
from offcut.describe.computation import Computation, Stage
from offcut.errors import PartitionError
from offcut.partition import CUT, GUARD, Strategy
from offcut.schedule import (
    ANY,
    VECTORS,
    Alternative,
    Bind,
    Choose,
    Cover,
    Nest,
    Primitive,
    Schedule,
    create_schedule,
    each_decision,
    nests_of,
    stages_in,
    with_source_line,
    with_strategy_options,
)

MAX_COMBINATIONS = 16
"""Of the options of all nests, at most: each is proved, so that this bounds what a compile takes, to as many proofs of a program
without options. Nests behind those that have several have one.
"""
LABEL = "chip"
"""What the policy calls its way of a nest."""


def plan_program(
    program: Program,
    computation: Computation,
    spec: AcceleratorSpec,
    schedule: Schedule | None,
    request: PlanRequest = NO_REQUEST,
) -> TargetPlan:
    """Return the program on the chip; `schedule` decides where there is one, else the policy.

    Raises TargetError for what no instruction does, PartitionError for a schedule that is none of it.
    """
    steps = prepare_computation(computation)
    requested = () if schedule is None else migrate_schedule(schedule, program, steps[-1], spec)
    rest = policy_decisions(program, steps[-1], spec, request, requested)
    whole = Schedule(program.name, (*requested, *rest))
    check_units(whole, spec)
    unfused, kernels = tuple(map(unfuse_stages, steps)), microkernels(spec)
    by_hand = create_schedule(unfused[-1]).with_microkernels(kernels).apply(whole)
    options = with_strategy_options(whole)  # the host chooses among whole nests
    if options != whole:
        by_hand = create_schedule(unfused[-1]).with_microkernels(kernels).apply(options)
    (*forms, last), tiles = by_hand.forms()
    through = (*unfused, *forms)
    return TargetPlan(last, whole, through=through, tiles=tiles)


def check_units(schedule: Schedule, spec: AcceleratorSpec) -> None:
    """Check that no loop is bound to what the machine has not, and no tile runs as vectors: its units run tiles, and each finds its own.

    Raises PartitionError, with the line.
    """
    for step in each_decision(schedule.steps):
        if isinstance(step, Cover) and step.microkernel == VECTORS:
            with with_source_line(schedule, step):
                raise PartitionError(
                    "tensorize",
                    f"cannot cover {step.stage} {VECTORS}",
                    because=f"{VECTORS} are the lanes of a processor; units of {spec.name} run words by their instructions",
                    help=(", ".join(kernel.name for kernel in microkernels(spec)),),
                )
        if isinstance(step, Bind) and step.unit not in (None, UNROLL):
            with with_source_line(schedule, step):
                raise PartitionError(
                    "bind",
                    f"cannot bind {step.stage}.{step.axis} to {step.unit}",
                    because=f"loops of {spec.name} issue instructions one after the other, and its units run tiles",
                    help=("without this line", "at … depth 2 lets windows take turns"),
                )


def migrate_schedule(
    schedule: Schedule, program: Program, computation: Computation, spec: AcceleratorSpec
) -> tuple[Primitive, ...]:
    """Return the decisions of a schedule, those of nests in ways of versions before 0.3 as decisions of today.

    Raises PartitionError, with the line, for a nest that is none of the computation, or a decision of another target.
    """
    steps: list[Primitive] = []
    groups = {one.group[0].buffer: one for one, _ in stage_groups(program, computation, spec)}
    names = computation.names()
    view = nests_of(schedule)
    old = () if view is None else view.parts
    for step in schedule.steps[: None if view is None else view.first]:
        if not isinstance(step, Primitive) or ANY in stages_in(step):
            with with_source_line(schedule, step):
                raise _foreign(spec, "the policy of a processor alone decides it")
        steps.append(step)
    for nest in old:
        line = schedule.steps[0] if view is None else view.lines[id(nest)]
        with with_source_line(schedule, line):
            if not isinstance(nest, Nest) or nest.stage not in groups:
                raise _foreign(
                    spec, f"no stage of that name begins a nest on it: {', '.join(groups)}"
                )
            one, options = groups[nest.stage], list[tuple[str, tuple[Primitive, ...]]]()
            for way in nest.variants:
                cover = way.cover
                depth = None if cover is None or not cover.depth else cover.depth
                roles = Roles(cover.rows, cover.columns, depth) if cover is not None else None
                group_operations = operations(computation, one.group, spec, names, roles)
                tiles = {cut.axis: cut.tile for cut in way.splits}
                order = ((axis, tiles.get(axis, 1)) for axis in way.loops)
                tiling = Tiling(tuple(order), way.loops, way.depth)
                options.append((way.label, one.tiling_decisions(group_operations, tiling)))
            steps += chosen_among(options)
    return tuple(steps)


def _foreign(spec: AcceleratorSpec, because: str) -> PartitionError:
    """Return the refusal of a decision that is of no nest of a machine of queues."""
    return PartitionError(
        "schedule",
        f"cannot apply this to {spec.name}",
        because=because,
        help=(
            "split, order, at, stage, cover, choose",
            "kernel.schedule has the decisions of its policy",
        ),
    )


def prepare_computation(computation: Computation) -> tuple[Computation, ...]:
    """Return steps from a computation to the one whose nests are decided: grouped axes apart, elements widened late."""
    steps = split_groups(computation)
    last = _stored_between(narrow_elements(steps[-1]))
    return steps if last == steps[-1] else (*steps, last)


def _stored_between(computation: Computation) -> Computation:
    """Return a computation whose groups end with a result that later stages read, where these read nothing else of the group."""
    results = {buffer.name for buffer in computation.buffers if buffer.kind is Kind.OUTPUT}
    groups = list[tuple[Stage, ...]]()
    for group in computation.groups:
        first = 0
        for at in range(1, len(group)):
            before = {stage.buffer for stage in group[first:at]}
            loads = (load for stage in group[at:] for load in all_loads(stage.value))
            used = {load.buffer for load in loads} & before
            if group[at - 1].buffer in used and used <= results:
                groups.append(tuple(group[first:at]))
                first = at
        groups.append(tuple(group[first:]))
    return replace(computation, groups=tuple(groups))


def policy_decisions(
    program: Program,
    computation: Computation,
    spec: AcceleratorSpec,
    request: PlanRequest = NO_REQUEST,
    requested: Sequence[object] = (),
) -> tuple[Primitive, ...]:
    """Return what the policy decides of the nests of a computation that `requested` says nothing of."""
    decided = {
        name for step in requested if isinstance(step, Primitive) for name in stages_in(step)
    }
    steps: list[Primitive] = []
    budget, number = request.tilings, count()
    for one, ways in stage_groups(program, computation, spec, request):
        if not decided & {stage.buffer for stage in one.group}:
            options = one.options(ways, max(budget // len(ways), 1))
            budget //= len(options)
            others = (o for o in options[1:] if next(number) not in request.left_out)
            steps += chosen_among([options[0], *others])
    return tuple(steps)


def chosen_among(options: Sequence[tuple[str, tuple[Primitive, ...]]]) -> tuple[Primitive, ...]:
    """Return a choice among the options of a nest, each once; of one alone its steps.

    options  what they are called, if no other one is called so, else with a number behind it; and their steps
    """
    each = list(dict.fromkeys(options))
    if len(each) == 1:
        return each[0][1]
    names = [name for name, _ in each]
    labels = (
        name if names.count(name) == 1 else f"{name}_{names[:at].count(name) + 1}"
        for at, name in enumerate(names)
    )
    return (Choose(tuple(Alternative(a, None, b) for a, (_, b) in zip(labels, each, strict=True))),)


def stage_groups(
    program: Program,
    computation: Computation,
    spec: AcceleratorSpec,
    request: PlanRequest = NO_REQUEST,
) -> Iterator[tuple[GroupDecisions, list[tuple[str, Operations]]]]:
    """Yield each group of stages that runs on the chip, with the layouts in words that are worth it."""
    inner = [b for b in computation.buffers if b.name not in {one.name for one in program.buffers}]
    program = replace(program, buffers=(*program.buffers, *inner))
    names, left = computation.names(), MAX_COMBINATIONS
    for group in computation.groups:
        if is_regrouping(group, computation):
            continue
        laid = request.layouts(layouts_of(computation, group, spec), group[0], spec)
        laid = laid if len(laid) <= left else laid[:1]
        left //= len(laid)
        layouts = (operations(computation, group, spec, names, roles) for roles in laid)
        ways = list(zip(layout_labels(laid), layouts, strict=True))
        yield GroupDecisions(program, computation, group, spec, request), ways


@dataclass(frozen=True)
class GroupDecisions:
    """What is decided of one group of stages."""

    program: Program
    computation: Computation
    group: tuple[Stage, ...]
    spec: AcceleratorSpec
    request: PlanRequest

    def by_strategy(self, layout: Operations) -> Iterator[tuple[tuple[str, ...], GroupDecisions]]:
        """Yield the same with one strategy of those that a choice is among, and its name; of no choice the same."""
        among = {at: tail.among for at, tail in self.request.tails.items() if tail.among}
        if not among:
            yield (), self
            return
        for one in next(iter(among.values())):
            tails = {at: one if at in among else tail for at, tail in self.request.tails.items()}
            by = replace(self, request=replace(self.request, tails=tails))
            words = lanes(layout, self.spec).items()
            if all(
                by.request.begins_with_words(self.group[0], axis, count) for axis, count in words
            ):
                yield (one.name,), by

    def options(
        self, ways: Sequence[tuple[str, Operations]], most: int
    ) -> list[tuple[str, tuple[Primitive, ...]]]:
        """Return the options of the policy for layouts in words, each by its strategies: what they are called, and decide.

        most  tilings of each layout

        Raises PartitionError if tiles begin inside of a word in all of them.
        """
        options, errors = list[tuple[str, tuple[Primitive, ...]]](), list[PartitionError]()
        for label, layout in ways:
            for called, by in self.by_strategy(layout):
                for tiling in by.best_tilings(layout, most):
                    error = by.word_error(layout, tiling)
                    if error is None:
                        options.append(("_".join((label, *called)), by.decisions(layout, tiling)))
                    else:  # the words of another layout may lie so
                        errors.append(error)
        if errors and not options:
            raise errors[-1]
        return options

    def best_tilings(self, layout: Operations, most: int) -> tuple[Tiling, ...]:
        """Return the tilings that the policy likes best for a layout in words, of which each call takes the fastest."""
        lead = self.group[0].buffer
        tiles = {axis: size for (stage, axis), size in self.request.tiles.items() if stage == lead}
        turns = self.request.turns
        best = choose_tilings(self.program, layout, self.spec, turns, tiles, most)
        return tuple(self.with_tail(layout, tiling) for tiling in best)

    def with_tail(self, layout: Operations, tiling: Tiling) -> Tiling:
        """Return a tiling with the last tile in windows of its own if these fit, as the policy chooses it."""
        at = typical_sizes(self.program)
        return tilings_at(
            self.program, layout, self.spec, {axis: (size,) for axis, size in tiling.tiles}, at
        ).with_tail(tiling)

    def word_error(self, layout: Operations, tiling: Tiling) -> PartitionError | None:
        """Return the error of a tiling whose tiles along the lanes of words begin inside of one; None where none does."""
        tiles, lead = dict(tiling.tiles), self.group[0]
        for axis, width in lanes(layout, self.spec).items():
            tile = tiles.get(axis)
            if tile is None or self.request.begins_with_words(lead, axis, width, tile):
                continue
            tail = self.request.tails.get((lead.buffer, axis), GUARD)
            return PartitionError(
                "schedule",
                f"cannot cut {lead.label}.{axis} by {tile}, {tail}",
                at=f"axis {lead.label}.{axis}",
                because=f"it runs along words of {width}, and a tile would begin inside of one",
                help=(
                    f"a tile that is a multiple of {width}"
                    if tile % width
                    else "a tail that moves no tile: mask, pad, guard, cut or ladder",
                ),
            )
        return None

    def tiling_decisions(self, operations: Operations, tiling: Tiling) -> tuple[Primitive, ...]:
        """Return the decisions that a tiling is.

        Raises PartitionError for tiles that begin inside of a word.
        """
        error = self.word_error(operations, tiling)
        if error is not None:
            raise error
        return self.decisions(operations, tiling)

    def decisions(self, operations: Operations, tiling: Tiling) -> tuple[Primitive, ...]:
        """Return the decisions that a tiling is, whose tiles begin where words do."""
        lead = self.group[0].buffer
        tails: dict[str, Strategy] = {} if tiling.tail is None else {tiling.tail: CUT}
        tails |= {axis: tail for (stage, axis), tail in self.request.tails.items() if stage == lead}
        return decisions(self.computation, self.group, operations, tiling, self.spec, tails)

    def tiling(self, operations: Operations, steps: Sequence[object]) -> Tiling:
        """Return the tiling that decisions are."""
        return tiling_of(self.group, operations, steps)


def layout_labels(ways: Sequence[Roles]) -> list[str]:
    """What the policy calls the options of a nest: of several, by the axes along which their words lie."""
    if len(ways) == 1:
        return [LABEL]
    lanes = ((roles.rows, roles.columns, roles.depth) for roles in ways)
    labels = ["_".join((LABEL, *(axis for axis in one if axis is not None))) for one in lanes]
    return [
        one if labels.count(one) == 1 else f"{one}_{number}" for number, one in enumerate(labels, 1)
    ]


DEPTH = 2
"""Windows that iterations take in turn: one is filled while the other one is read."""


def choose_tilings(
    program: Program,
    made: Operations,
    spec: AcceleratorSpec,
    turns: bool = True,
    tiles: Mapping[str, int] | None = None,
    most: int = 1,
) -> tuple[Tiling, ...]:
    """Return the tilings of which each call takes the one with the fewest cycles.

    turns  whether windows may take turns
    tiles  iterations of the tiles of some axes; of the others it is chosen
    most   tilings, at most; of one alone, it takes the fewest cycles in the mean of `sizes_around` the typical ones
    """
    sizes = sizes_of(made, spec, nest_extents(program, made))
    sizes |= {axis: (size,) for axis, size in (tiles or {}).items()}
    alone = sizes_around(program)
    every = sizes_around(program, (*AROUND, *BETWEEN)) if most > 1 else alone
    at = [tilings_at(program, made, spec, sizes, one) for one in every]
    least = tilings_at(program, made, spec, sizes, least_sizes(program))
    tilings = by_size(at, least, len(alone), DEPTH if turns else 1, most)
    return tilings or (_smallest(made, spec),)


def tilings_at(
    program: Program,
    made: Operations,
    spec: AcceleratorSpec,
    tiles: Mapping[str, Sequence[int]],
    at: Mapping[str, int],
) -> Tilings:
    """Return the tilings of a nest at sizes of its program."""
    extents = typical_extents(at, (*made.axes, *made.terms))
    shapes = {buffer.name: buffer.shape for buffer in program.buffers}
    copies = [load_volume(copy, made, spec, at, shapes) for copy in made.copies]
    return Tilings(made, spec, extents, copies, store_volume(made, spec, extents), tiles)


def nest_extents(program: Program, made: Operations) -> dict[str, int]:
    """Extents of the axes of a nest, at the sizes of a middle layer."""
    return typical_extents(typical_sizes(program), (*made.axes, *made.terms))


def _smallest(made: Operations, spec: AcceleratorSpec) -> Tiling:
    """Return a word of results at a time, of all axes that are longer; windows of a sum whole."""
    words = lanes(made, spec)
    tiles = []
    for axis in (*made.axes, *made.terms):
        known, count = ix.literal_value(axis.extent), words.get(axis.name, 1)
        inside = axis in made.terms and axis.name not in words
        if known is None or (known > count and not inside):
            tiles.append((axis.name, count))
    order = tuple(axis for axis, _ in tiles)
    return Tiling(tuple(tiles), order)
