"""The nests of a schedule, each with the group of stages that it is of: every group has one, in loops that its nests can share.

Decisions about stages change the groups first. A refusal names the line of the decision.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace

from offcut.core.analysis import read_arrays
from offcut.describe.computation import Computation, Stage
from offcut.schedule import decisions
from offcut.schedule.decisions import (
    VECTORS,
    Cover,
    Order,
    Schedule,
    Split,
    Staging,
    each_decision,
    panel_copies,
)
from offcut.schedule.diagnostics import decision_error, with_source_line
from offcut.schedule.nest_reader import nests_of
from offcut.schedule.nests import Nest, NestView, Together
from offcut.schedule.shared_loops import check_shared, with_shared
from offcut.schedule.stage_transforms import position_of, transform_stages


class GroupedNests:
    """The nests of a schedule of a computation.

    given  the computation, as decisions have changed it
    nests  by the position of their groups, each with the axes of the loops around it
    quote  whether what is refused names the line: the user has seen the schedule
    """

    def __init__(self, computation: Computation, schedule: Schedule, quote: bool) -> None:
        self.given, self.schedule, self.quote = computation, schedule, quote
        view = nests_of(schedule)
        self.view = NestView(0, (), {}) if view is None else view
        self.nests: dict[int, tuple[Nest, tuple[str, ...]]] = {}

    def line(self, of: object) -> AbstractContextManager[None]:
        """Name the line of a decision, or of what is read of nests, in what is refused meanwhile."""
        if not self.quote:
            return nullcontext()
        return with_source_line(self.schedule, self.view.lines.get(id(of), of))  # type: ignore[arg-type]

    def stage(self) -> None:
        """Apply every decision about stages, and check that nests are of all of them, in loops that they can share."""
        cut, copies = False, panel_copies(self.schedule.steps)
        for step in self.schedule.steps[self.view.first :]:
            if isinstance(step, Staging) and step.name in copies:
                continue
            with self.line(step):
                cut = cut or isinstance(step, Split | Order | Cover | decisions.Choose)
                if cut and isinstance(step, Staging) and step.how in ("value", "write"):
                    raise decision_error(
                        "cannot change stages that are cut", "nests stand before it"
                    )
                self.given = transform_stages(self.given, step)
        for part in self.view.parts:
            self.enter(part, ())
        for stage, loop, line in self.view.named:
            if stage not in copies:
                self.check_named(stage, loop, line)
        self.check_complete()

    def check_named(self, stage: str, loop: str, line: int) -> None:
        """Refuse an order in line `line` that names a loop which `stage` has not."""
        groups = self.given.groups
        group = next((g for g in groups if stage in [one.buffer for one in g]), ())
        axes = {a.name: a.label for one in group for a in (*one.axes, *one.reduce_axes)}
        if axes and loop not in axes:
            with self.line(line):
                because = f"{stage} has no such loop: its axes are {', '.join(axes.values())}"
                raise decision_error(f"cannot order {stage} by {loop}", because)

    def place(self) -> None:
        """Call the axes of shared loops as the schedule does, and run sums as they are covered."""
        self.given = with_shared(self.given, self.view.parts)
        for position, (nest, _) in self.nests.items():
            self.covered_along(position, nest)

    def enter(self, part: Nest | Together, around: tuple[str, ...]) -> None:
        """Note the nests of `part`, inside of loops of the names `around`.

        Raises PartitionError for one that is of no group, or of one that another nest is of, and for loops that its nests cannot share.
        """
        with self.line(part):
            if isinstance(part, Nest):
                position = position_of(self.given, part.stage)
                self.check_followers(position, part)
                if position in self.nests:
                    raise decision_error(
                        f"cannot compute {part.stage} twice", "two nests are of it"
                    )
                self.nests[position] = part, around
                return
            inside, before = (*around, *part.axes), len(self.nests)
            for inner in part.parts:
                self.enter(inner, inside)
            lead = self.given.groups[list(self.nests)[before]][0]
            if len(lead.axes) < len(inside):
                because = f"{lead.label} has {len(lead.axes)} axes"
                raise decision_error(f"cannot share {len(inside)} loops", because)
            for place in range(len(around), len(inside)):
                self.check_shared_name(lead, place, inside)
            check_shared(self.given, part, len(around))

    def check_followers(self, position: int, nest: Nest) -> None:
        """Refuse a nest of other stages than are computed at one point."""
        group = tuple(stage.buffer for stage in self.given.groups[position])
        members = (nest.stage, *nest.followers)
        if not nest.followers or members == group:
            return
        refused = f"cannot compute {', '.join(members[:-1])} at each point of {nest.last}"
        if nest.last not in group:
            because = f"{nest.last} reads other elements of {group[-1]} than the one at its point, or has other axes"
            raise decision_error(
                refused, because, help=(f"at {nest.stage} in a loop around the tile",)
            )
        because = f"what is computed at one point is {', '.join(group)}, in this order"
        places = (f"at {one} {group[-1]} …" for one in reversed(group[:-1]))
        raise decision_error(refused, because, help=tuple(places))

    def check_shared_name(self, lead: Stage, place: int, names: Sequence[str]) -> None:
        """Refuse to call the loop of an axis, by its place, as another axis of its stage or another loop is called."""
        own, name = lead.axes[place].name, names[place]
        others = {axis.name for axis in (*lead.axes, *lead.reduce_axes)} - {own}
        if name in {*others, *names[:place]}:
            raise decision_error(
                f"cannot share a loop {name}",
                f"loops of {lead.label} are shared from its first axis on, and axis {place} is {own}",
                help=(" ".join(("order", lead.buffer, *(a.name for a in lead.axes[: place + 1]))),),
            )

    def check_complete(self) -> None:
        """Refuse nests that leave a stage out, or run before what they read."""
        done: set[int] = set()
        positions = {stage.buffer: k for k, g in enumerate(self.given.groups) for stage in g}
        for position, (nest, _) in self.nests.items():
            group = self.given.groups[position]
            names = read_arrays(stage.value for stage in group)
            operand_positions = {positions[name] for name in names if name in positions} - {
                position
            }
            for other in sorted(operand_positions - done):
                late = self.given.groups[other][0].buffer
                with self.line(nest):
                    raise decision_error(
                        f"cannot compute {group[0].buffer}",
                        f"it reads {late}, which is not computed",
                        help=(f"the decisions of {late} before it",),
                    )
            done.add(position)
        missing = [g[0].buffer for k, g in enumerate(self.given.groups) if k not in done]
        if missing:
            last, _ = list(self.nests.values())[-1]
            with self.line(last):
                raise decision_error(
                    f"cannot end without {', '.join(missing)}",
                    "no nest is of it",
                    help=(f"cover {missing[0]} {VECTORS}, behind what it reads",),
                )

    def covered_along(self, position: int, nest: Nest) -> None:
        """Put the axes of a sum in the order that its nest says; the one that its variants are covered along is the innermost.

        Raises PartitionError where they are covered along several, or the order says another one.
        """
        with self.line(nest.terms or nest):
            depths = dict.fromkeys(
                variant.cover.depth for variant in nest.variants if variant.cover is not None
            )
            if len(depths) > 1:
                raise decision_error("cannot cover one sum along several axes", ", ".join(depths))
            lead, *rest = self.given.groups[position]
            names = [axis.name for axis in lead.reduce_axes]
            terms = [name for name in nest.terms if name in names]
            if terms and len({*terms}) < len(nest.terms):
                help = " ".join(("order", nest.stage, *sorted(names, key=depths.__contains__)))
                because = f"the sum runs along {', '.join(names)}, each once"
                what = f"cannot order the terms of {nest.stage} by {', '.join(nest.terms)}"
                raise decision_error(what, because, (help,))
            ordered = iter(terms)
            names = [next(ordered) if name in terms else name for name in names]
            for depth in depths:
                if terms and names[-1] != depth:
                    help = " ".join(("order", nest.stage, *sorted(names, key=depth.__eq__)))
                    because = f"what covers {nest.stage} runs along {depth} innermost"
                    raise decision_error(
                        f"cannot run along {names[-1]} innermost", because, (help,)
                    )
                names.sort(key=depth.__eq__)
            axes = tuple(sorted(lead.reduce_axes, key=lambda axis: names.index(axis.name)))
            groups = list(self.given.groups)
            groups[position] = (replace(lead, reduce_axes=axes), *rest)
            self.given = replace(self.given, groups=tuple(groups))

    def check_terms(self, lead: Stage, loops: Sequence[str]) -> None:
        """Refuse the terms of a sum among the loops around what covers it: they lie in the tile."""
        terms = {axis.name for axis in lead.reduce_axes}
        named = [name for name in loops if name in terms]
        if not named:
            return
        orders = (s for s in each_decision(self.schedule.steps) if isinstance(s, Order))
        order = next(s for s in orders if s.stage == lead.buffer and {*named} & {*s.loops})
        with self.line(order):
            raise decision_error(
                f"cannot run {lead.label} in loops over {', '.join(named)}",
                "its sum adds them up inside of its tiles; their order is a line of its own, before that of its loops",
                help=(
                    " ".join(("order", lead.buffer, *named)),
                    " ".join(("order", lead.buffer, *(axis.name for axis in lead.axes))),
                ),
            )
