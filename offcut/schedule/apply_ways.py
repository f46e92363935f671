"""A computation and a schedule in, the loop program that the schedule says out, with its proof.

Scratch, orders, conversions and layouts change the stages one after the other; then each nest is cut
in each of its ways. Every decision is checked where it is applied: a refusal names its line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeGuard

from offcut.core import index as ix
from offcut.core.expr import Const, Expr, Load, Var, walk
from offcut.core.layout import Layout
from offcut.core.program import Alloc, Buffer, Choose, Kind, Option, Program, Stmt
from offcut.core.text.printer import format_expr
from offcut.describe.computation import Computation, Names, Stage, StageAxis
from offcut.describe.microkernel import Microkernel
from offcut.describe.source import plain_loop, source
from offcut.errors import PartitionError
from offcut.partition import (
    AxisCut,
    EmittedTile,
    GroupCut,
    Match,
    Partition,
    Shared,
    all_matches,
    check_shared,
    pieces_of,
    users_of,
    with_shared,
)
from offcut.polyhedral import space_of
from offcut.proof import Certificate, Theorem
from offcut.schedule import decisions
from offcut.schedule.applied import Applied, Choice
from offcut.schedule.apply.group_loops import GroupLowering, cut_group, group_nests
from offcut.schedule.apply.offsets import At
from offcut.schedule.apply.staged_form import Nest as GroupNest
from offcut.schedule.checks import check_layout, check_splits, check_widths
from offcut.schedule.costs import check_cost
from offcut.schedule.decisions import VECTORS, Cover, Order, Schedule, Split, Staging
from offcut.schedule.nests import KernelAxes, Nest, NestView, Pack, Together, Way, nests_of
from offcut.schedule.packing import packed_stages
from offcut.schedule.refusing import at_line, not_applied
from offcut.schedule.restaging import position_of, restaged

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
    return Applying(computation, schedule, microkernels, price, quote).applied()


@dataclass(frozen=True, slots=True)
class ResolvedWay:
    """A way with its loops.

    cost    predicted seconds, by which ways compete at run time
    before  those of a packed copy
    around  loops of its own around both
    """

    way: Way
    cost: Expr
    before: tuple[GroupCut, ...]
    cut: GroupCut
    around: tuple[StageAxis, ...] = ()


@dataclass(frozen=True, slots=True)
class _WayBody:
    """A way as statements, with the tiles in them and what was proved of its loops."""

    way: ResolvedWay
    body: tuple[Stmt, ...]
    tiles: tuple[EmittedTile, ...]
    theorems: tuple[Theorem, ...]

    @property
    def option(self) -> Option:
        """It, where several compete."""
        return Option(self.way.way.label, self.way.cost, self.body)


class Applying:
    """A schedule that is applied; arguments are those of `apply`."""

    def __init__(
        self,
        computation: Computation,
        schedule: Schedule,
        microkernels: Sequence[Microkernel],
        price: WayPrice,
        quote: bool,
    ) -> None:
        self.given, self.schedule, self.kernels = computation, schedule, microkernels
        self.price, self.quote = price, quote
        view = nests_of(schedule)
        self.view = NestView(0, (), {}) if view is None else view
        self.laid = frozenset(step.what for step in schedule.steps if _is_prepacked(step))
        self.nests: dict[int, Nest] = {}
        self.copies: dict[int, Stage] = {}
        self.ways: dict[int, list[ResolvedWay]] = {}
        self.matches: dict[tuple[int, KernelAxes], tuple[Stage, Match]] = {}
        self.packings: dict[tuple[int, str, Pack], tuple[Stage, GroupCut]] = {}

    def line(self, of: object) -> AbstractContextManager[None]:
        """Name the line of a decision, or of what is read of nests, in what is refused meanwhile."""
        if not self.quote:
            return nullcontext()
        return at_line(self.schedule, self.view.lines.get(id(of), of))  # type: ignore[arg-type]

    def applied(self) -> Applied:
        """What it makes."""
        shared = self.shared()
        staged = source(self.given)
        for position, (nest, around) in self.placed(shared).items():
            self.ways[position] = [self.way(position, way, around) for way in nest.ways]
        return self.emitted(self.planned(), staged)

    def shared(self) -> Shared:
        """Return the loops that nests share, after every decision about stages."""
        cut = False
        for step in self.schedule.steps[self.view.first :]:
            with self.line(step):
                cut = cut or isinstance(step, Split | Order | Cover | decisions.Choose)
                if cut and isinstance(step, Staging) and step.how in ("value", "write"):
                    raise not_applied("cannot change stages that are cut", "nests stand before it")
                self.given = restaged(self.given, step)
        shared = Shared((), tuple(self.tree(nest, ()) for nest in self.view.parts))
        self.check_complete(shared)
        return shared

    def placed(self, shared: Shared) -> dict[int, tuple[Nest, tuple[str, ...]]]:
        """Return the nests by position, in the order in which they run, each with the axes of the loops around, which from now on are
        called as they are in `shared`; sums run as they are covered.
        """
        self.given = with_shared(self.given, shared)
        found: dict[int, tuple[Nest, tuple[str, ...]]] = {}

        def visit(part: Nest | Together, around: tuple[str, ...]) -> None:
            if isinstance(part, Nest):
                found[position_of(self.given, part.stage)] = part, around
                return
            for inner in part.parts:
                visit(inner, (*around, *part.axes))

        for part in self.view.parts:
            visit(part, ())
        for position, (nest, _) in found.items():
            self.covered_along(position, nest)
        return found

    def tree(self, nest: Nest | Together, around: tuple[str, ...]) -> int | Shared:
        """Return the groups of a nest, by position, and the loops that they share, inside of loops of the names `around`."""
        with self.line(nest):
            if isinstance(nest, Nest):
                position = position_of(self.given, nest.stage)
                if position in self.nests:
                    raise not_applied(f"cannot compute {nest.stage} twice", "two nests are of it")
                self.nests[position] = nest
                return position
            inside = (*around, *nest.axes)
            first, length = len(around), len(inside)
            parts = tuple(self.tree(part, inside) for part in nest.parts)
            groups = Shared((), parts).groups
            if not groups:
                raise not_applied("cannot share loops", "no nest shares them")
            lead = self.given.groups[groups[0]][0]
            if len(lead.axes) < length:
                because = f"{lead.label} has {len(lead.axes)} axes"
                raise not_applied(f"cannot share {length} loops", because)
            own = lead.axes[first:length]
            for place in range(first, length):
                self.check_shared_name(lead, place, inside)
            axes = tuple(replace(a, name=n) for a, n in zip(own, nest.axes, strict=True))
            made = Shared(axes, parts, nest.block)
            check_shared(self.given, made, first)
            return made

    def check_shared_name(self, lead: Stage, place: int, names: Sequence[str]) -> None:
        """Refuse to call the loop of an axis, by its place, as another axis of its stage or another loop is called."""
        own, name = lead.axes[place].name, names[place]
        others = {axis.name for axis in (*lead.axes, *lead.reduce_axes)} - {own}
        if name in {*others, *names[:place]}:
            raise not_applied(
                f"cannot share a loop {name}",
                f"loops of {lead.label} are shared from its first axis on, and axis {place} is {own}",
                help=(" ".join(("order", lead.buffer, *(a.name for a in lead.axes[: place + 1]))),),
            )

    def check_complete(self, shared: Shared) -> None:
        """Refuse nests that leave a stage out, or run before what they read."""
        done: set[int] = set()
        made = {stage.buffer: k for k, g in enumerate(self.given.groups) for stage in g}
        for position in shared.groups:
            group = self.given.groups[position]
            read = {made[n] for stage in group for n in _read(stage) if n in made} - {position}
            for other in sorted(read - done):
                late = self.given.groups[other][0].buffer
                with self.line(self.nests[position]):
                    raise not_applied(
                        f"cannot compute {group[0].buffer}",
                        f"it reads {late}, which is not computed",
                        help=(f"the decisions of {late} before it",),
                    )
            done.add(position)
        missing = [g[0].buffer for k, g in enumerate(self.given.groups) if k not in done]
        if missing:
            with self.line(self.nests[shared.groups[-1]]):
                raise not_applied(
                    f"cannot end without {', '.join(missing)}",
                    "no nest is of it",
                    help=(f"cover {missing[0]} {VECTORS}, behind what it reads",),
                )

    def covered_along(self, position: int, nest: Nest) -> None:
        """Turn the sum of a nest as its ways cover it: along one axis."""
        with self.line(nest):
            depths = dict.fromkeys(way.cover.depth for way in nest.ways if way.cover is not None)
            if len(depths) > 1:
                raise not_applied("cannot cover one sum along several axes", ", ".join(depths))
            for depth in depths:
                self.innermost(position, depth)

    def innermost(self, position: int, depth: str) -> None:
        """Run the reduction axis that a microkernel takes innermost."""
        lead, *rest = self.given.groups[position]
        axes = tuple(sorted(lead.reduce_axes, key=lambda axis: axis.name == depth))
        groups = list(self.given.groups)
        groups[position] = (replace(lead, reduce_axes=axes), *rest)
        self.given = replace(self.given, groups=tuple(groups))

    def way(
        self, position: int, way: Way, around: tuple[str, ...], asked: bool = True
    ) -> ResolvedWay:
        """Return a way with its loops; where it is `asked`, also what it costs."""
        lead, *rest = self.given.groups[position]
        reduced = {axis.name for axis in lead.reduce_axes}
        free = {axis.name for axis in (*lead.axes, *lead.reduce_axes)} - set(around)
        self.check_cuts(lead, way.splits, free)
        self.check_units(lead, way)
        # Loops with conditions inside are no microkernel's; a cover says the order of their sum, and what is packed for it.
        guarded = False
        for cut in way.splits:
            if cut.axis not in reduced and not cut.by_height:
                with self.line(cut):
                    guarded = guarded or cut.strategy.with_heights(cut.heights).guards(cut.tile)
        found: Match | None = None
        before: tuple[GroupCut, ...] = ()
        if way.cover is not None:
            with self.line(way.cover):
                found = self.matched(lead, way.cover)
            with self.line(next((cut for cut in way.splits if cut.axis == found.columns), way)):
                check_widths(way.splits, found)
        cost = way.cost
        if cost is not None:
            with self.line(way):
                check_cost(cost, self.given.sizes, self.given.assumptions)
        elif asked:
            rows = None if found is None else found.rows
            with self.line(next((cut for cut in way.splits if cut.axis == rows), way)):
                covered = None if guarded else found
                cost = self.price(self.given, (lead, *rest), covered, way, self.laid)
        else:
            cost = Const(0.0, "float64")
        inside: tuple[str, ...] = ()
        if way.pack is not None:
            with self.line(way.pack):
                inside = _loops_around(way.pack, way.loops)
                around = (*around, *inside)
                if found is None or way.cover is None or found.columns is None:
                    raise not_applied(
                        "cannot pack an operand", "no microkernel covers columns here"
                    )
                lead, packing = self.packed(position, lead, found, way.pack, around)
                before, found = (packing,), self.matched(lead, way.cover)
        with self.line(way):
            for name in (*way.loops, *way.inner):
                self.check_axes(lead, [name], free - reduced)
                free.discard(name)
        made = GroupCut(
            (lead, *rest),
            tuple(cut for cut in way.splits if cut.axis not in reduced),
            tuple(cut for cut in way.splits if cut.axis in reduced),
            way.loops[len(inside) :],
            None if guarded else found,
            around,
            way.inner,
        )
        own = tuple(next(a for a in lead.axes if a.name == name) for name in inside)
        return ResolvedWay(way, cost, before, made, own)

    def check_units(self, lead: Stage, way: Way) -> None:
        """Refuse windows that take turns."""
        if way.depth is not None:
            with self.line(way):
                raise not_applied(
                    f"cannot take windows of {lead.label} in turn",
                    "a machine of queues has them, and this target is not one",
                    help=("without its depth",),
                )

    def check_cuts(self, lead: Stage, splits: Sequence[AxisCut], free: set[str]) -> None:
        """Refuse splits of a stage that no loops can be; what they cut is no longer `free`."""
        sums = frozenset(axis.name for axis in lead.reduce_axes)
        for number, cut in enumerate(splits, 1):
            with self.line(cut):
                self.check_axes(lead, [cut.axis], free)
                check_splits(splits[:number], sums)
                free.discard(cut.axis)

    def check_axes(self, lead: Stage, names: Sequence[str], free: set[str]) -> None:
        """Refuse axes that are not `free`."""
        for name in names:
            if name not in free:
                known = ", ".join(axis.name for axis in (*lead.axes, *lead.reduce_axes))
                because = f"the axes of {lead.label} are {known}, each cut or run by one loop"
                raise not_applied(f"cannot cut {name}", because)

    def matched(self, lead: Stage, cover: KernelAxes) -> Match:
        """Return the microkernel laid over a stage as `cover` says."""
        key = id(lead), cover
        if key in self.matches:
            return self.matches[key][1]
        known = [kernel for kernel in self.kernels if kernel.name == cover.microkernel]
        if not known:
            names = ", ".join(kernel.name for kernel in self.kernels)
            raise not_applied(f"cannot cover tiles by {cover.microkernel}", f"there are {names}")
        wanted = (cover.rows, cover.columns, cover.depth)
        for found in all_matches(lead, known):
            if (found.rows, found.columns, found.depth) == wanted:
                self.matches[key] = lead, found
                return found
        raise not_applied(
            f"cannot cover {lead.label} by {cover.microkernel}",
            f"along these axes it does not compute {format_expr(lead.body)}",
        )

    def packed(
        self, position: int, lead: Stage, match: Match, pack: Pack, around: tuple[str, ...]
    ) -> tuple[Stage, GroupCut]:
        """`lead` reading a copy of its columns' operand in panels, and the loops that make it."""
        key = position, match.microkernel.name, pack
        if key in self.packings:
            return self.packings[key]
        buffer, copy, reading = packed_stages(lead, match, pack, around)
        self.hold(position, buffer)
        if self.copies.setdefault(position, copy) != copy:
            raise not_applied(f"cannot pack {pack.name} twice", "another way packs it otherwise")
        free = {axis.name for axis in copy.axes} - set(around)
        self.check_cuts(copy, pack.splits, free)
        self.check_axes(copy, pack.loops, free)
        cut = reading, GroupCut((copy,), pack.splits, (), pack.loops, around=around)
        return self.packings.setdefault(key, cut)

    def hold(self, position: int, buffer: Buffer) -> None:
        """Declare a buffer of a packed copy."""
        known = {one.name: one for one in self.given.buffers}
        if buffer.name in known and (known[buffer.name] != buffer or position not in self.copies):
            raise not_applied(f"cannot call a copy {buffer.name}", "something has that name")
        if buffer.name not in known:
            self.given = replace(self.given, buffers=(*self.given.buffers, buffer))

    def planned(self) -> Computation:
        """Return the computation with the layouts of constants and the stages that pack."""
        layouts: dict[str, Layout] = {}
        for step in self.schedule.steps:
            if _is_prepacked(step):
                assert step.layout is not None
                with self.line(step):
                    self.check_laid(step.what, step.layout)
                    layouts[step.what] = step.layout
        buffers = tuple(
            replace(buffer, layout=layouts.get(buffer.name, buffer.layout))
            for buffer in self.given.buffers
        )
        groups: list[tuple[Stage, ...]] = []
        for position, group in enumerate(self.given.groups):
            if position in self.copies:
                groups.append((self.copies[position],))
            groups.append(group)
        return replace(self.given, buffers=buffers, groups=tuple(groups))

    def check_laid(self, name: str, layout: Layout) -> None:
        """Refuse a layout of what is no constant, or of other axes than it has."""
        found = [buffer for buffer in self.given.buffers if buffer.name == name]
        if not found or found[0].kind is not Kind.CONSTANT:
            known = [b.name for b in self.given.buffers if b.kind is Kind.CONSTANT]
            because = f"the constants are {', '.join(known) or 'none'}"
            raise not_applied(f"cannot lay {name} in panels", because)
        check_layout("lay", replace(found[0], layout=layout), self.kernels)

    def emitted(self, planned: Computation, staged: Program) -> Applied:
        """Return the loops of all nests, with their proof."""
        nests, names = group_nests(self.given, self.view.parts), planned.names()
        bodies_by_nest: dict[str, tuple[_WayBody, ...]] = {}

        def ways(nest: GroupNest, at: At) -> tuple[Stmt, ...]:
            resolved = self.ways[position_of(self.given, nest.name)]
            bodies_by_nest[nest.name] = bodies = tuple(
                self.way_body(planned, w, names, at) for w in resolved
            )
            alone = len(bodies) == 1
            return bodies[0].body if alone else (Choose(tuple(one.option for one in bodies)),)

        lowering = GroupLowering(nests, names, ways)
        body = tuple(s for nest in nests.nests if nest.at is None for s in lowering.root(nest))
        in_order = [bodies_by_nest[nest.name] for nest in nests.nests]
        uncut = source(planned)
        emitted, users = replace(uncut, body=body), users_of(planned)
        tiles = [tile for bodies in in_order for one in bodies for tile in one.tiles]
        pieces = pieces_of(space_of(planned), uncut, emitted, tiles, users)
        home = {id(piece.path[-1]): piece for piece in pieces}
        choices = tuple(
            tuple(
                Choice(way.way.label, way.cut.group[0], of, way.cost, way.way.cost is not None)
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
            for one in (*way.before, way.cut):
                inner, found = cut_group(planned, one, names, partial(self.blamed, one), at.facts)
                body += inner
                theorems |= found.theorems
                tiles = found.made
            around = tuple((Var(name), ix.const(1)) for name in way.cut.around)
            for copy in (planned.buffer(one.group[0].buffer) for one in way.before if around):
                rest = ((ix.const(0), extent) for extent in copy.shape[len(around) :])
                body = (Alloc(copy.name, (*around, *rest), body),)
            for axis in reversed(way.around):
                body = (plain_loop(axis, body),)
        return _WayBody(way, body, tuple(tiles), tuple(theorems))

    @contextmanager
    def blamed(self, made: GroupCut, axis: str) -> Iterator[None]:
        """Name the split of an axis, and the axis as the user does, in what is refused meanwhile."""
        lead = made.group[0]
        label = next(a.label for a in (*lead.axes, *lead.reduce_axes) if a.name == axis)
        split = next(cut for cut in (*made.cuts, *made.reduce_cuts) if cut.axis == axis)
        with self.line(split):
            try:
                yield
            except PartitionError as refused:
                refused.at = refused.at.replace(f"loop {axis}", f"axis {lead.label}.{label}")
                raise


def _loops_around(pack: Pack, loops: tuple[str, ...]) -> tuple[str, ...]:
    """Return the plain loops of a sum in each iteration of which a copy is made, outermost first."""
    return loops[: loops.index(pack.at) + 1] if pack.at else ()


def _is_prepacked(step: object) -> TypeGuard[Staging]:
    return isinstance(step, Staging) and step.how == "prepack"


def _read(stage: Stage) -> set[str]:
    return {node.buffer for node in walk(stage.value) if isinstance(node, Load)}
