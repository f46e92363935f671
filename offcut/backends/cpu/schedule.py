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
from functools import cache

from offcut.backends.cpu import fma
from offcut.backends.cpu.isa import Isa
from offcut.backends.schedule import Choice, Schedule
from offcut.core import index as ix
from offcut.core.computation import Computation, Stage
from offcut.core.dtypes import ITEM_BYTES
from offcut.core.expr import Binary, Expr, Load, Var, rewrite, variables, walk
from offcut.core.microkernel import Microkernel
from offcut.core.program import Buffer, Choose, Kind, Option, Panels, Stmt
from offcut.costmodel import (
    Blocks,
    Hardware,
    Work,
    pack_seconds,
    real,
    rows_seconds,
    unpacked_factor,
)
from offcut.errors import PartitionError
from offcut.partition import (
    SEQUENCES,
    AxisCut,
    GroupCut,
    Match,
    Strategy,
    all_matches,
    axis_named,
    check_divides,
    cut_group,
    partition_of,
    program_of,
    prove,
    sequence,
    strategy_named,
)
from offcut.polyhedral import coefficient, space_of

CANDIDATES = (Strategy.LADDER, Strategy.BALANCE)
GROUPS = (96, 48, 24, 12, 6, 4, 3, 2, 1)  # panels: multiples of many widths
GROUP_SHARE = 0.75  # of the nearest cache; rows of A and of the result pass through the rest
REDUCE_TILE = 256  # iterations, where a strategy is asked for a reduction axis


@cache
def microkernels(isa: Isa) -> tuple[Microkernel, ...]:
    """The microkernels of an instruction set."""
    return tuple(fma.microkernel(isa, dtype) for dtype in ("float32", "float64"))


def schedule(
    computation: Computation, isa: Isa, hardware: Hardware, strategy: str | Mapping[str, str]
) -> Schedule:
    """`computation` cut for one core, with its proof.

    strategy   ``"auto"``, one strategy for the rows, or a strategy by axis

    Raises PartitionError for a strategy that does not exist or is not legal.
    """
    return _Planner(computation, isa, hardware, strategy).schedule()


@dataclass(frozen=True, slots=True)
class _Operand:
    """How the columns' operand is read: ``direct``, in constant ``panels``, or ``packed`` first."""

    found: Match
    how: str


@dataclass(frozen=True, slots=True)
class _Way:
    label: str
    before: tuple[GroupCut, ...]
    cut: GroupCut
    cost: Expr


class _Planner:
    def __init__(
        self,
        computation: Computation,
        isa: Isa,
        hardware: Hardware,
        strategy: str | Mapping[str, str],
    ) -> None:
        self.given, self.isa, self.hardware = computation, isa, hardware
        self.buffers = {buffer.name: buffer for buffer in computation.buffers}
        self.kernels = microkernels(isa)
        self.names = computation.names()
        self.space = space_of(computation)
        self.users = {name: user for user, name in computation.size_names}
        self.copies: dict[int, list[Stage]] = {}
        self.by_axis: dict[tuple[int, str], Strategy] = {}
        self.named: Strategy | None = None
        if isinstance(strategy, Mapping):
            self.by_axis = {
                axis_named(computation, name): strategy_named(
                    choice, at=f"axis {name}", op="compile"
                )
                for name, choice in strategy.items()
            }
        elif strategy not in ("auto", "mix"):
            self.named = strategy_named(strategy, at="every axis of rows", op="compile")
        self.auto = strategy in ("auto", "mix")

    def schedule(self) -> Schedule:
        ways = [self.group(k, group) for k, group in enumerate(self.given.groups)]
        planned = self.computation()
        names, cuts = planned.names(), []
        body: tuple[Stmt, ...] = ()
        choices: list[tuple[Choice, ...]] = []
        for competing in ways:
            options = []
            for way in competing:
                cuts += [*way.before, way.cut]
                statements = tuple(
                    stmt for one in way.before for stmt in cut_group(planned, one, names)[0]
                )
                inner, pieces = cut_group(planned, way.cut, names)
                made = Choice(way.label, pieces, way.cost)
                options.append((made, Option(way.label, way.cost, (*statements, *inner))))
            choices.append(tuple(choice for choice, _ in options))
            alone = len(options) == 1
            body += options[0][1].body if alone else (Choose(tuple(o for _, o in options)),)
        certificate = prove(planned, cuts)
        pieces = tuple(piece for group in choices for choice in group for piece in choice.pieces)
        partition = partition_of(planned, pieces, program_of(planned, body), certificate)
        return Schedule(partition, tuple(choices))

    def computation(self) -> Computation:
        """The computation with packed layouts and the stages that pack."""
        groups: list[tuple[Stage, ...]] = []
        for position, group in enumerate(self.given.groups):
            groups += [(copy,) for copy in self.copies.get(position, [])]
            groups.append(group)
        return replace(self.given, buffers=tuple(self.buffers.values()), groups=tuple(groups))

    # -- one group ---------------------------------------------------------------------------

    def group(self, position: int, group: tuple[Stage, ...]) -> list[_Way]:
        lead = group[0]
        reduce_cuts = tuple(
            AxisCut(axis.name, self.by_axis[position, axis.name], REDUCE_TILE)
            for axis in lead.reduce_axes
            if (position, axis.name) in self.by_axis
        )
        reduce_cuts = tuple(self.divided(lead, cut) for cut in reduce_cuts)
        operands = self.operands(lead)
        if not operands:
            return [self.plain(position, group, reduce_cuts)]
        ways: list[_Way] = []
        for operand in operands:
            candidates: tuple[Strategy, ...] = CANDIDATES
            if len(operands) > 1 and operand.how == "direct":
                candidates = (Strategy.LADDER,)  # where rows are many, packing wins
            ways += self.matched(position, group, operand, reduce_cuts, candidates)
        return ways

    def plain(
        self, position: int, group: tuple[Stage, ...], reduce_cuts: tuple[AxisCut, ...]
    ) -> _Way:
        """Vectors along the last axis; the other axes are loops."""
        lead = group[0]
        cuts: tuple[AxisCut, ...] = ()
        outer = [axis.name for axis in lead.axes]
        for axis in lead.axes:
            asked = self.by_axis.get((position, axis.name))
            last = axis is lead.axes[-1]
            if asked is None and last:
                asked = self.named or Strategy.MASK
            if asked is not None:
                tile = 4 * self.isa.lanes("float32") if last else 8
                cuts += (self.divided(lead, AxisCut(axis.name, asked, tile)),)
                outer.remove(axis.name)
        return _Way("loops", (), GroupCut(group, cuts, reduce_cuts, tuple(outer)), real(0.0))

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

    # -- groups that a microkernel computes --------------------------------------------------

    def operands(self, lead: Stage) -> list[_Operand]:
        """The best way to lay a microkernel over `lead`; two where packing competes at run time."""
        ranked: list[tuple[int, _Operand]] = []
        for found in all_matches(lead, self.kernels):
            last = lead.axes[-1].name if lead.axes else None
            private = self.buffers[lead.buffer].kind is Kind.PRIVATE
            if found.columns is not None and found.columns != last and not private:
                continue
            how = self.how(lead, found)
            rank = {"panels": 0, "direct": 1, "packed": 2}[how]
            if found.columns is None:
                rank = 3
            elif how == "packed" and found.rows is None:
                rank = 4
            ranked.append((rank, _Operand(found, how)))
        if not ranked:
            return []
        rank, best = min(ranked, key=lambda entry: entry[0])
        if rank == 1 and self.auto and best.found.rows is not None:
            return [best, replace(best, how="packed")]
        return [best]

    def how(self, lead: Stage, found: Match) -> str:
        load = found.packed
        buffer = self.buffers[load.buffer]
        if found.columns is None:
            return "direct"
        if buffer.kind is Kind.CONSTANT and self.layout(lead, found) is not None:
            return "panels"
        return "direct" if self.beside(load, found.columns) else "packed"

    def beside(self, load: Load, axis: str) -> bool:
        """Whether the elements that `load` reads along `axis` lie next to each other."""
        steps = [coefficient(part, axis) for part in load.index]
        return steps[-1] == 1 and not any(steps[:-1])

    def layout(self, lead: Stage, found: Match) -> Panels | None:
        """The panels of a constant that only this sum reads, at its depth and column themselves."""
        load = found.packed
        uses = [
            node
            for group in self.given.groups
            for stage in group
            for node in walk(stage.value)
            if isinstance(node, Load) and node.buffer == load.buffer
        ]
        depth, columns = Var(found.depth), Var(found.columns or "")
        rest = [part for part in load.index if part not in (depth, columns)]
        plain = load.index.count(depth) == 1 and load.index.count(columns) == 1
        if (
            len(uses) != 1
            or not plain
            or any({found.depth, found.columns} & variables(r) for r in rest)
        ):
            return None
        rows, cols = load.index.index(depth), load.index.index(columns)
        return Panels(rows, cols, found.microkernel.panel)

    def matched(
        self,
        position: int,
        group: tuple[Stage, ...],
        operand: _Operand,
        reduce_cuts: tuple[AxisCut, ...],
        candidates: Sequence[Strategy],
    ) -> list[_Way]:
        lead, found = group[0], operand.found
        before: tuple[GroupCut, ...] = ()
        if operand.how == "panels":
            name = found.packed.buffer
            self.buffers[name] = replace(self.buffers[name], layout=self.layout(lead, found))
        elif operand.how == "packed":
            lead, packing = self.packed(position, lead, found)
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
        outer = tuple(a.name for a in lead.axes if a.name not in cut and a.name not in asked)
        columns = self.column_cut(lead, found, asked)
        ways = []
        for strategy in self.row_strategies(found, asked, candidates):
            rows = () if strategy is None else (self.row_cut(lead, found, strategy),)
            cuts = (*others, *rows, *columns)
            one = GroupCut(group, cuts, reduce_cuts, outer, found)
            label = "whole" if strategy is None else strategy.value
            if operand.how == "packed":
                label += "_packed"
            ways.append(_Way(label, before, one, self.cost(lead, found, strategy, operand)))
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
        return self.divided(lead, AxisCut(found.rows, strategy, self.tallest(lead, found)))

    def tallest(self, lead: Stage, found: Match) -> int:
        """Rows of the largest tile: what the microkernel has, and what L1 holds of A's rows."""
        tall = found.microkernel.max_rows
        a = next(load for name, load in found.operands if name != found.microkernel.packed)
        shape = self.buffers[a.buffer].shape
        on_rows = [axis for axis, part in enumerate(a.index) if found.rows in variables(part)]
        if len(on_rows) != 1:
            return tall
        row = 1
        for extent in shape[on_rows[0] + 1 :]:
            row *= ix.literal(extent) or 0
        step = row * ITEM_BYTES[a.dtype]
        return min(tall, self.hardware.rows_in_l1(step)) if step else tall

    def column_cut(
        self, lead: Stage, found: Match, asked: Mapping[str, Strategy]
    ) -> tuple[AxisCut, ...]:
        """Columns by the widest tile of the rows' height, then by the narrower ones, in turn."""
        name = found.columns
        if name is None:
            return ()
        lanes = found.microkernel.panel
        strategy = asked.get(name) or (self.named if self.named is Strategy.GUARD else None)
        if strategy is not None:
            steps = (2 * lanes, lanes) if strategy is Strategy.LADDER else None
            return (self.divided(lead, AxisCut(name, strategy, 2 * lanes, steps)),)
        limit = self.group_size(lead, found)
        tallest = self.tallest(lead, found) if found.rows is not None else 1
        classes: list[tuple[tuple[int, int], int, tuple[int, ...]]] = []
        for rows, options in fma.widths(self.isa).items():
            if rows > tallest:
                break
            widest = next(w for w in options if limit % (w * lanes) == 0)
            heights = tuple(w * lanes for w in sorted({widest, min(2, widest), 1}, reverse=True))
            if classes and classes[-1][2] == heights:
                classes[-1] = ((classes[-1][0][0], rows), heights[0], heights)
            else:
                classes.append(((rows, rows), heights[0], heights))
        if found.rows is None:
            _, tile, heights = classes[0]
            return (AxisCut(name, Strategy.LADDER, tile, heights, group=limit),)
        return (AxisCut(name, Strategy.LADDER, 0, None, tuple(classes), group=limit),)

    def group_size(self, lead: Stage, found: Match) -> int:
        """Columns of B that a cache group holds: of `GROUPS` panels, what fits the nearest cache."""
        extent = next(a.extent for a in lead.reduce_axes if a.name == found.depth)
        depth = ix.literal(extent) or 1024
        panel_bytes = found.microkernel.panel * max(depth, 1) * ITEM_BYTES[found.packed.dtype]
        room = GROUP_SHARE * self.hardware.nearest_bytes
        width = fma.widths(self.isa)[self.tallest(lead, found) if found.rows is not None else 1][0]
        fitting = (n for n in GROUPS if n * panel_bytes <= room and n % width == 0)
        return next(fitting, width) * found.microkernel.panel

    def packed(self, position: int, lead: Stage, found: Match) -> tuple[Stage, GroupCut]:
        """`lead` reading a copy of its columns' operand in panels, and the group that makes it."""
        load = found.packed
        used = set().union(*(variables(part) for part in load.index))
        axes = [a for a in (*lead.axes, *lead.reduce_axes) if a.name in used]
        inner = [next(a for a in axes if a.name == n) for n in (found.depth, found.columns)]
        axes = [a for a in axes if a not in inner] + inner
        name = self.names.fresh(f"{load.buffer}_panels")
        layout = Panels(len(axes) - 2, len(axes) - 1, found.microkernel.panel)
        shape = tuple(axis.extent for axis in axes)
        self.buffers[name] = Buffer(name, load.dtype, shape, Kind.LOCAL, layout)
        copy = Stage(name, name, tuple(axes), (), load)
        self.copies.setdefault(position, []).append(copy)
        point = tuple(Var(axis.name) for axis in axes)

        def panels(node: Expr) -> Expr | None:
            return Load(name, point, load.dtype) if node == load else None

        reading = replace(lead, body=rewrite(lead.body, panels))
        cut = AxisCut(axes[-1].name, Strategy.MASK, found.microkernel.panel)
        # A transposing copy passes along the depth inside a panel: the lines it reads stay near.
        along = 1 if self.beside(load, axes[-1].name) else 2
        outer = tuple(axis.name for axis in axes[:-along])
        return reading, GroupCut((copy,), (cut,), (), outer)

    # -- cost --------------------------------------------------------------------------------

    def cost(self, lead: Stage, found: Match, strategy: Strategy | None, operand: _Operand) -> Expr:
        """Predicted seconds of one way, as an expression in the sizes."""
        extents = {a.name: a.extent for a in (*lead.axes, *lead.reduce_axes)}
        repeats: Expr = ix.const(1)
        for name, extent in extents.items():
            if name not in (found.rows, found.columns, found.depth):
                repeats = ix.mul(repeats, extent)
        work = Work(
            rows=extents.get(found.rows or "", ix.const(1)),
            columns=extents.get(found.columns or "", ix.const(1)),
            depth=extents[found.depth],
            repeats=repeats,
            item=ITEM_BYTES[found.packed.dtype],
        )
        blocks = self.blocks(found)
        once = ((ix.const(1), ix.const(1)),)
        tallest = self.tallest(lead, found)
        runs = once if strategy is None else sequence(strategy, work.rows, tallest)
        total = rows_seconds(work, blocks, runs, self.hardware)
        if operand.how == "packed":
            return Binary("+", total, pack_seconds(work, self.hardware))
        if operand.how == "direct":
            return Binary("*", unpacked_factor(work, self.hardware), total)
        return total

    def blocks(self, found: Match) -> Blocks:
        """Cycles per term and column by height, of the tile that the column cut takes."""
        kernel = found.microkernel
        step, startup = [0.0], [0.0]
        near = ITEM_BYTES[found.packed.dtype] / self.hardware.near_bytes_per_cycle
        for rows in range(1, kernel.max_rows + 1):
            shape = kernel.tile(rows, kernel.columns_for(rows))
            step.append(max(shape.cycles / shape.columns, near))
            startup.append(shape.startup / shape.columns)
        return Blocks(tuple(step), tuple(startup))
