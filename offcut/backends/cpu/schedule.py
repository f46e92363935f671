"""How the CPU runs a computation: which microkernel, which operand is packed, which cuts compete.

A group whose sum a row-block microkernel computes is cut along its rows (heights up to the tallest
tile) and its columns (the wider, the fewer the rows), in cache groups of columns, so that a group
of B stays near while all rows pass. Every other group runs as vectors along its last axis. With
``auto`` the program holds several cuts of the rows and the cost of each as a formula in the sizes;
a call takes the cheapest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from offcut.backends.cpu.family import Family
from offcut.backends.cpu.isa import Isa
from offcut.backends.cpu.operands import Operand, Operands, beside
from offcut.backends.cpu.rows import along_rows
from offcut.backends.cpu.tiles import Tiles
from offcut.backends.schedule import Choice, Schedule
from offcut.core import index as ix
from offcut.core.computation import Computation, Names, Stage, StageAxis
from offcut.core.dtypes import neutral
from offcut.core.expr import (
    Const,
    Expr,
    Load,
    Select,
    Var,
    loads,
    rewrite,
    variables,
)
from offcut.core.program import Buffer, Choose, Kind, Option, Panels, Stmt
from offcut.costmodel import Hardware, lanes_seconds
from offcut.errors import PartitionError
from offcut.partition import (
    SEQUENCES,
    AxisCut,
    GroupCut,
    Match,
    Shared,
    Strategy,
    all_matches,
    axis_named,
    check_divides,
    converted,
    cut_group,
    fused,
    partition_of,
    program_of,
    prove,
    staged,
    strategy_named,
    turned,
    window,
    windowed,
)
from offcut.polyhedral import space_of

CANDIDATES = (Strategy.LADDER, Strategy.BALANCE)
REDUCE_TILE = 256  # iterations, where a strategy is asked for a reduction axis
RESIDUE_TILE = 8  # the same for `residue`, which has code of its own for each rest, in each tile


def schedule(
    computation: Computation,
    isa: Isa,
    families: Sequence[Family],
    hardware: Hardware,
    strategy: str | Mapping[str, str],
    threads: int = 1,
    reassociate: bool = True,
) -> Schedule:
    """`computation` cut for the cores that run it, with its proof.

    families   whose microkernels may cover the tiles
    strategy   ``"auto"``, one strategy for the rows, or a strategy by axis
    threads    that a call may use: each takes cache groups of its own where columns are enough
    reassociate  whether a sum over several axes may add them in another order

    Raises PartitionError for a strategy that does not exist or is not legal.
    """
    planner = _Planner(computation, isa, families, hardware, strategy, threads, reassociate)
    return planner.schedule()


@dataclass(frozen=True, slots=True)
class _Way:
    label: str
    before: tuple[GroupCut, ...]
    cut: GroupCut
    cost: Expr


@dataclass(frozen=True, slots=True)
class _Part:
    """A group in the ways it may run, or loops that several share; inside the loops `around`."""

    around: tuple[StageAxis, ...]
    ways: Sequence[_Way]
    shared: Shared | None = None
    inside: Sequence[_Part] = ()


class _Planner:
    def __init__(
        self,
        computation: Computation,
        isa: Isa,
        families: Sequence[Family],
        hardware: Hardware,
        strategy: str | Mapping[str, str],
        threads: int,
        reassociate: bool,
    ) -> None:
        self.isa, self.hardware, self.threads = isa, hardware, threads
        self.reassociate = reassociate
        self.families = {family.microkernel.name: family for family in families}
        self.space = space_of(computation)
        self.users = {name: user for user, name in computation.size_names}
        self.copies: dict[int, list[Stage]] = {}
        self.by_label: dict[str, Strategy] = {}
        self.named: Strategy | None = None
        if isinstance(strategy, Mapping):
            self.by_label = {
                name: strategy_named(choice, at=f"axis {name}", op="compile")
                for name, choice in strategy.items()
            }
        elif strategy not in ("auto", "mix"):
            self.named = strategy_named(strategy, at="every axis of rows", op="compile")
        self.auto = strategy in ("auto", "mix")
        self.hold(computation)
        self.hold(staged(self.given, self.operands.is_computed))
        for position in reversed(range(len(self.given.groups))):
            order = self.operands.better_order(self.given.groups[position])
            if order is not None:
                self.hold(turned(self.given, position, order))
        self.hold(converted(self.given, self.operands.to_convert))
        # What fuses depends on what a microkernel computes, and axes that fuse are named alike.
        limits = [self.limit(k, group[0]) for k, group in enumerate(self.given.groups)]
        computation, self.shared = fused(self.given, limits)
        self.hold(computation)

    def hold(self, computation: Computation) -> None:
        """Plan this computation from here on."""
        self.given = computation
        self.buffers = {buffer.name: buffer for buffer in computation.buffers}
        self.operands = Operands(
            computation, self.families, self.hardware, self.auto, self.reassociate
        )
        self.tiles = Tiles(computation, self.families, self.hardware, self.threads)
        self.names = computation.names()
        self.by_axis = {axis_named(computation, n): s for n, s in self.by_label.items()}

    def schedule(self) -> Schedule:
        parts = [self.part(part, ()) for part in self.shared.parts]
        planned = self.computation()
        names, cuts = planned.names(), list[GroupCut]()
        choices: list[tuple[Choice, ...]] = []

        def statements(part: _Part) -> tuple[Stmt, ...]:
            if part.shared is not None:
                inner = tuple(stmt for one in part.inside for stmt in statements(one))
                return windowed(self.given, part.shared, part.around, inner)
            options = []
            for way in part.ways:
                made, option = self.option(planned, way, part.around, names)
                cuts.extend([*way.before, way.cut])
                options.append((made, option))
            choices.append(tuple(choice for choice, _ in options))
            alone = len(options) == 1
            return options[0][1].body if alone else (Choose(tuple(o for _, o in options)),)

        body = tuple(stmt for part in parts for stmt in statements(part))
        certificate = prove(planned, cuts)
        pieces = tuple(piece for group in choices for choice in group for piece in choice.pieces)
        partition = partition_of(planned, pieces, program_of(planned, body), certificate)
        return Schedule(partition, tuple(choices))

    def option(
        self, planned: Computation, way: _Way, around: Sequence[StageAxis], names: Names
    ) -> tuple[Choice, Option]:
        """A way as statements; what it packs in an iteration of loops around lives in a window."""
        body: tuple[Stmt, ...] = ()
        for one in way.before:
            body += cut_group(planned, one, names)[0]
        inner, pieces = cut_group(planned, way.cut, names)
        body += inner
        for one in way.before if around else ():
            body = (window(planned.buffer(one.group[0].buffer), around, body),)
        return Choice(way.label, pieces, way.cost), Option(way.label, way.cost, body)

    def part(self, part: int | Shared, around: tuple[StageAxis, ...]) -> _Part:
        """The ways of a group, or of the groups in shared loops."""
        if isinstance(part, int):
            return _Part(around, self.group(part, self.given.groups[part], around))
        inside = [self.part(inner, (*around, *part.axes)) for inner in part.parts]
        return _Part(around, (), part, inside)

    def limit(self, position: int, lead: Stage) -> int:
        """How many of a group's first axes may be loops that it shares with other groups.

        A microkernel keeps its rows and columns; other groups keep the axis that their lanes take.
        """
        limit = len(lead.axes)
        asked = [k for k, axis in enumerate(lead.axes) if (position, axis.name) in self.by_axis]
        if asked:
            limit = min(asked)
        operands = self.operands.best(lead)
        if operands:
            found = operands[0].found
            mapped = [k for k, a in enumerate(lead.axes) if a.name in (found.rows, found.columns)]
            limit = min([limit, *mapped])
            packs = any(operand.how == "packed" for operand in operands)
            used = set().union(*(variables(part) for part in found.by_columns.index))
            if packs and any(axis.name not in used for axis in lead.axes[:limit]):
                return 0
            return limit
        return limit if along_rows(lead) else min(limit, len(lead.axes) - 1)

    def computation(self) -> Computation:
        """The computation with packed layouts and the stages that pack."""
        groups: list[tuple[Stage, ...]] = []
        for position, group in enumerate(self.given.groups):
            groups += [(copy,) for copy in self.copies.get(position, [])]
            groups.append(group)
        return replace(self.given, buffers=tuple(self.buffers.values()), groups=tuple(groups))

    def group(
        self, position: int, group: tuple[Stage, ...], around: Sequence[StageAxis]
    ) -> list[_Way]:
        """The ways to run a group inside the loops `around`."""
        lead = group[0]
        shared = tuple(axis.name for axis in around)
        reduce_cuts = tuple(
            AxisCut(axis.name, asked, RESIDUE_TILE if asked is Strategy.RESIDUE else REDUCE_TILE)
            for axis in lead.reduce_axes
            if (asked := self.by_axis.get((position, axis.name))) is not None
        )
        reduce_cuts = tuple(self.divided(lead, cut) for cut in reduce_cuts)
        operands = self.operands.best(lead)
        if not operands:
            return [self.plain(position, group, reduce_cuts, shared)]
        lead = self.reordered(position, lead, operands[0].found.depth)
        group = (lead, *group[1:])
        ways: list[_Way] = []
        for operand in operands:
            candidates: tuple[Strategy, ...] = CANDIDATES
            if len(operands) > 1 and operand.how == "direct":
                candidates = (Strategy.LADDER,)  # where rows are many, packing wins
            ways += self.matched(position, group, operand, reduce_cuts, candidates, shared)
        return ways

    def plain(
        self,
        position: int,
        group: tuple[Stage, ...],
        reduce_cuts: tuple[AxisCut, ...],
        shared: tuple[str, ...],
    ) -> _Way:
        """Vectors along the last axis; the other axes are loops."""
        lead = group[0]
        cuts: tuple[AxisCut, ...] = ()
        axes = lead.axes[len(shared) :]
        outer = [axis.name for axis in axes]
        if len(group) == 1 and lead.reducer is None:
            # A square of vectors is turned in registers, so what lies along memory is in the tile too.
            read = [load for load, _ in loads(lead.body)]
            along = [n for n in outer if read and all(beside(load, n) for load in read)]
            outer = [name for name in outer if name not in along[:1]]
        for axis in axes:
            asked = self.by_axis.get((position, axis.name))
            last = axis is lead.axes[-1]
            if asked is None and last:
                asked = self.named or Strategy.MASK
            if asked is not None:
                vectors = 1 if asked is Strategy.RESIDUE else 4  # each rest is code of its own
                tile = vectors * self.isa.lanes("float32") if last else 8
                cuts += (self.divided(lead, AxisCut(axis.name, asked, tile)),)
                outer = [name for name in outer if name != axis.name]
        one = GroupCut(group, cuts, reduce_cuts, tuple(outer), around=shared)
        instances = ix.add(*(stage.instances for stage in group))
        return _Way("loops", (), one, lanes_seconds(instances))

    def divided(self, lead: Stage, cut: AxisCut) -> AxisCut:
        """For ``exact``, the largest tile that divides the extent at every allowed size; for ``mix``
        where nothing competes, the first of its sequences.
        """
        if cut.strategy is Strategy.MIX:
            return replace(cut, strategy=SEQUENCES[0])
        if cut.strategy is not Strategy.EXACT:
            return cut
        axis = next(a for a in (*lead.axes, *lead.reduce_axes) if a.name == cut.axis)
        at = f"axis {lead.label}.{axis.label}"
        for tile in range(cut.tile, 1, -1):
            try:
                check_divides(self.space, self.users, axis.extent, tile, at=at)
            except PartitionError:
                continue
            return replace(cut, tile=tile)
        return cut

    def reordered(self, position: int, lead: Stage, depth: str) -> Stage:
        """`lead` with the reduction axis that runs inside the microkernel innermost."""
        axes = tuple(sorted(lead.reduce_axes, key=lambda axis: axis.name == depth))
        groups = list(self.given.groups)
        groups[position] = (replace(groups[position][0], reduce_axes=axes), *groups[position][1:])
        self.given = replace(self.given, groups=tuple(groups))
        return replace(lead, reduce_axes=axes)

    def matched(
        self,
        position: int,
        group: tuple[Stage, ...],
        operand: Operand,
        reduce_cuts: tuple[AxisCut, ...],
        candidates: Sequence[Strategy],
        shared: tuple[str, ...],
    ) -> list[_Way]:
        lead, found = group[0], operand.found
        before: tuple[GroupCut, ...] = ()
        if operand.how == "panels":
            name = found.by_columns.buffer
            self.buffers[name] = replace(
                self.buffers[name], layout=self.operands.layout(lead, found)
            )
        elif operand.how == "packed":
            lead, packing = self.packed(position, lead, found, shared)
            before, group = (packing,), (lead, *group[1:])
            found = next(
                way
                for way in all_matches(lead, (found.microkernel,))
                if (way.rows, way.columns, way.depth) == (found.rows, found.columns, found.depth)
            )
        cut = {found.rows, found.columns}
        asked = {
            a.name: self.by_axis[position, a.name]
            for a in lead.axes
            if (position, a.name) in self.by_axis
        }
        others = tuple(
            self.divided(lead, AxisCut(name, strategy, 8))
            for name, strategy in asked.items()
            if name not in cut
        )
        moving = set().union(*(variables(part) for part in found.by_columns.index))
        loops = [a.name for a in lead.axes if a.name not in (*cut, *asked, *shared)]
        outer = tuple(name for name in loops if name in moving)
        inner = tuple(name for name in loops if name not in moving)
        columns = self.column_cut(lead, found, asked)
        ways = []
        for strategy in self.row_strategies(found, asked, candidates):
            rows = () if strategy is None else (self.row_cut(lead, found, strategy),)
            cuts = (*others, *rows, *columns)
            one = GroupCut(group, cuts, reduce_cuts, outer, found, shared, inner)
            label = "whole" if strategy is None else strategy.value
            if operand.how == "packed":
                label += "_packed"
            ways.append(_Way(label, before, one, self.tiles.seconds(lead, operand, strategy)))
        return ways

    def row_strategies(
        self, found: Match, asked: Mapping[str, Strategy], candidates: Sequence[Strategy]
    ) -> Sequence[Strategy | None]:
        if found.rows is None:
            return (None,)
        if found.rows in asked:
            return candidates if asked[found.rows] is Strategy.MIX else (asked[found.rows],)
        if self.named is not None:
            return (self.named,)
        return candidates if self.auto else (Strategy.LADDER,)

    def row_cut(self, lead: Stage, found: Match, strategy: Strategy) -> AxisCut:
        assert found.rows is not None
        return self.divided(lead, AxisCut(found.rows, strategy, self.tiles.tallest(found)))

    def column_cut(
        self, lead: Stage, found: Match, asked: Mapping[str, Strategy]
    ) -> tuple[AxisCut, ...]:
        name, lanes = found.columns, found.microkernel.panel
        if name is None:
            return ()
        strategy = asked.get(name) or (self.named if self.named is Strategy.GUARD else None)
        if strategy is None:
            return (self.tiles.columns(lead, found),)
        steps = (2 * lanes, lanes) if strategy is Strategy.LADDER else None
        return (self.divided(lead, AxisCut(name, strategy, 2 * lanes, steps)),)

    def packed(
        self, position: int, lead: Stage, found: Match, shared: tuple[str, ...]
    ) -> tuple[Stage, GroupCut]:
        """`lead` reading a copy of its columns' operand in panels, and the group that makes it."""
        load, kernel = found.by_columns, found.microkernel
        used = set().union(*(variables(part) for part in load.index))
        axes = [a for a in (*lead.axes, *lead.reduce_axes) if a.name in used]
        inner = [next(a for a in axes if a.name == n) for n in (found.depth, found.columns)]
        axes = [a for a in axes if a not in inner] + inner
        name = self.names.fresh(f"{load.buffer}_panels")
        rank, multiple = len(axes), kernel.multiple
        layout = Panels(rank - 2, rank - 1, kernel.panel, kernel.interleave, multiple)
        value: Expr = load
        depth = axes[-2]
        if (ix.literal(depth.extent) or 1) % multiple:
            # Terms past the last are multiplied by zeros, so they must be no NaN.
            whole = ix.mul(ix.ceildiv(depth.extent, multiple), multiple)
            inside = ix.compare("<", Var(depth.name), depth.extent)
            value = Select(inside, load, Const(neutral("sum", load.dtype), load.dtype))
            axes[-2] = replace(depth, extent=whole)
        shape = tuple(axis.extent for axis in axes)
        self.buffers[name] = Buffer(name, load.dtype, shape, Kind.LOCAL, layout)
        copy = Stage(name, name, tuple(axes), (), value)
        self.copies.setdefault(position, []).append(copy)
        point = tuple(Var(axis.name) for axis in axes)

        def panels(node: Expr) -> Expr | None:
            return Load(name, point, load.dtype) if node == load else None

        reading = replace(lead, body=rewrite(lead.body, panels))
        cut = AxisCut(axes[-1].name, Strategy.MASK, found.microkernel.panel)
        # A transposing copy passes along the depth inside a panel: the lines it reads stay near.
        along = 1 if beside(load, axes[-1].name) and kernel.interleave == 1 else 2
        outer = tuple(axis.name for axis in axes[:-along] if axis.name not in shared)
        return reading, GroupCut((copy,), (cut,), (), outer, around=shared)
