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
from offcut.backends.cpu.rows import along_rows
from offcut.backends.schedule import Choice, Schedule
from offcut.core import index as ix
from offcut.core.computation import Computation, Names, Stage, StageAxis
from offcut.core.dtypes import ITEM_BYTES, neutral
from offcut.core.expr import (
    Binary,
    Const,
    Expr,
    Load,
    Select,
    Var,
    loads,
    rewrite,
    variables,
    walk,
)
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
    Shared,
    Strategy,
    all_matches,
    axis_named,
    check_divides,
    converted,
    cut_group,
    fused,
    is_read_once,
    partition_of,
    program_of,
    prove,
    reading,
    sequence,
    staged,
    strategy_named,
    turned,
    window,
    windowed,
)
from offcut.polyhedral import coefficient, space_of

CANDIDATES = (Strategy.LADDER, Strategy.BALANCE)
GROUPS = (96, 48, 24, 12, 6, 4, 3, 2, 1)  # panels: multiples of many widths
GROUP_SHARE = 0.75  # of the nearest cache; rows of A and of the result pass through the rest
SHARED_PANELS = 6  # panels that a thread has at least, where threads share columns and not rows
WIDE_PANELS = 4  # panels that a group of a family without fixed widths is a multiple of
ACCUMULATING = 8.0  # terms that reading and writing the accumulators costs, where loops add to them
STRIDED = 1.1  # time on rows whose terms lie apart over time on rows whose terms lie side by side
COPYING = 1.0  # cycles to copy an element of a result into the order of its axes
MANY = 256  # terms of a sum, where its extent is a size
NARROW_BYTES = 512  # of a row, below which the rows next to it are read as fast as a panel's
REDUCE_TILE = 256  # iterations, where a strategy is asked for a reduction axis


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
        self.kernels = tuple(family.microkernel for family in families)
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
        computation = staged(computation, self.is_computed)
        self.hold(computation)
        for position in reversed(range(len(computation.groups))):
            order = self.better_order(computation.groups[position])
            if order is not None:
                computation = turned(computation, position, order)
        self.hold(computation)
        self.hold(converted(computation, self.is_for_converted))
        computation = self.given
        # What fuses depends on what a microkernel computes, and axes that fuse are named alike.
        limits = [self.limit(k, group[0]) for k, group in enumerate(computation.groups)]
        computation, self.shared = fused(computation, limits)
        self.hold(computation)

    def hold(self, computation: Computation) -> None:
        """Plan this computation from here on."""
        self.given = computation
        self.buffers = {buffer.name: buffer for buffer in computation.buffers}
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
        operands = self.operands(lead)
        if operands:
            found = operands[0].found
            mapped = [k for k, a in enumerate(lead.axes) if a.name in (found.rows, found.columns)]
            limit = min([limit, *mapped])
            packs = any(operand.how == "packed" for operand in operands)
            used = set().union(*(variables(part) for part in found.by_columns.index))
            if packs and any(axis.name not in used for axis in lead.axes[:limit]):
                return 0
            return limit
        return limit if self.is_along_rows(lead) else min(limit, len(lead.axes) - 1)

    def better_order(self, group: tuple[Stage, ...]) -> tuple[str, ...] | None:
        """The axes of a group in an order that is worth a copy of its result: columns of a packed
        constant last. None where the group is best as it is.
        """
        lead = group[0]
        here = self.candidates(lead)
        best = min((key for key, _ in here), default=None)
        names = [axis.name for axis in lead.axes]
        found: list[tuple[float, tuple[str, ...]]] = []
        terms = 1
        for axis in lead.reduce_axes:
            terms *= ix.literal(axis.extent) or MANY
        readings = (lead, reading(lead))
        for match in (one for each in readings for one in all_matches(each, self.kernels)):
            unit_depth = self.families[match.microkernel.name].unit_depth
            if unit_depth and not self.beside(match.by_rows, match.depth):
                continue
            constant = self.buffers[match.by_columns.buffer].kind is Kind.CONSTANT
            if not constant or match.rows is None or match.columns in (None, names[-1]):
                continue
            columns = match.columns or ""
            if self.layout(lead, match) is not None:
                order = (*(name for name in names if name != columns), columns)
                price = self.price(lead, match, "panels") + COPYING / terms
                found.append((price, order))
        if not found or any(len(self.buffers[s.buffer].shape) != len(names) for s in group):
            return None
        price, order = min(found)
        return order if best is None or best > (0, price) else None

    def is_computed(self, lead: Stage, exact: bool) -> bool:
        """Whether some microkernel computes a stage; its operands converted, if not `exact`."""
        readings = (lead,) if exact else (lead, reading(lead))
        return any(m.columns for reading in readings for m in all_matches(reading, self.kernels))

    def is_for_converted(self, lead: Stage) -> bool:
        """Whether a microkernel computes a sum only after its operands are converted."""
        return not self.operands(lead) and bool(self.operands(reading(lead)))

    def is_along_rows(self, lead: Stage) -> bool:
        """Whether a reduction reads what lies along itself, and nothing that lies along its result."""
        if not lead.reduce_axes:
            return False
        loads = [node for node in walk(lead.value) if isinstance(node, Load)]
        along = any(self.beside(load, lead.reduce_axes[-1].name) for load in loads)
        return along and not any(
            self.beside(load, axis.name) for load in loads for axis in lead.axes[-1:]
        )

    def computation(self) -> Computation:
        """The computation with packed layouts and the stages that pack."""
        groups: list[tuple[Stage, ...]] = []
        for position, group in enumerate(self.given.groups):
            groups += [(copy,) for copy in self.copies.get(position, [])]
            groups.append(group)
        return replace(self.given, buffers=tuple(self.buffers.values()), groups=tuple(groups))

    # -- one group ---------------------------------------------------------------------------

    def group(
        self, position: int, group: tuple[Stage, ...], around: Sequence[StageAxis]
    ) -> list[_Way]:
        """The ways to run a group inside the loops `around`."""
        lead = group[0]
        shared = tuple(axis.name for axis in around)
        reduce_cuts = tuple(
            AxisCut(axis.name, self.by_axis[position, axis.name], REDUCE_TILE)
            for axis in lead.reduce_axes
            if (position, axis.name) in self.by_axis
        )
        reduce_cuts = tuple(self.divided(lead, cut) for cut in reduce_cuts)
        operands = self.operands(lead)
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
            along = [n for n in outer if read and all(self.beside(load, n) for load in read)]
            outer = [name for name in outer if name not in along[:1]]
        for axis in axes:
            asked = self.by_axis.get((position, axis.name))
            last = axis is lead.axes[-1]
            if asked is None and last:
                asked = self.named or Strategy.MASK
            if asked is not None:
                tile = 4 * self.isa.lanes("float32") if last else 8
                cuts += (self.divided(lead, AxisCut(axis.name, asked, tile)),)
                outer = [name for name in outer if name != axis.name]
        one = GroupCut(group, cuts, reduce_cuts, tuple(outer), around=shared)
        return _Way("loops", (), one, real(0.0))

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
        ranked = self.candidates(lead)
        if not ranked:
            return []
        _, best = min(ranked, key=lambda entry: entry[0])
        may_pack = best.found.columns is not None and self.packs(lead, best.found)
        may_pack = may_pack and not self.is_narrow(best.found)
        if best.how == "direct" and self.auto and best.found.rows is not None and may_pack:
            return [best, replace(best, how="packed")]
        return [best]

    def candidates(self, lead: Stage) -> list[tuple[tuple[int, float], _Operand]]:
        """Every way to lay a microkernel over `lead`: its form, less is better, and its price."""
        ranked: list[tuple[tuple[int, float], _Operand]] = []
        for found in all_matches(lead, self.kernels):
            if not self.reassociate and found.depth != lead.reduce_axes[-1].name:
                continue
            last = lead.axes[-1].name if lead.axes else None
            private = self.buffers[lead.buffer].kind is Kind.PRIVATE
            if found.columns is not None and found.columns != last and not private:
                continue
            how = self.how(lead, found)
            if how is None:
                continue
            across = found.columns is None or (how == "packed" and found.rows is None)
            if across and along_rows(lead):
                continue
            form = 1 if how == "packed" else 0
            if found.columns is None:
                form = 2
            elif how == "packed" and found.rows is None:
                form = 3
            ranked.append(((form, self.price(lead, found, how)), _Operand(found, how)))
        return ranked

    def price(self, lead: Stage, found: Match, how: str) -> float:
        """Predicted cycles of a multiply–add, by which ways that read the operands alike compete."""
        kernel = found.microkernel
        extents = {a.name: ix.literal(a.extent) for a in (*lead.axes, *lead.reduce_axes)}
        rows, columns = (extents.get(name or "", 1) for name in (found.rows, found.columns))
        depth = extents[found.depth]
        height = kernel.max_rows if rows is None else max(min(rows, kernel.max_rows), 1)
        shape = kernel.tile(height, kernel.columns_for(height))
        cycles = shape.cycles / (shape.rows * shape.columns)
        if columns and kernel.panel:
            cycles *= -(-columns // kernel.panel) * kernel.panel / columns
        if depth is not None:
            cycles *= 1.0 + ACCUMULATING / max(depth, 1)
        if how == "direct" and kernel.packed and not self.is_narrow(found):
            cycles *= self.hardware.unpacked_near
        return cycles if self.beside(found.by_rows, found.depth) else cycles * STRIDED

    def how(self, lead: Stage, found: Match) -> str | None:
        """How the columns' operand can be read; None where the operands do not lie as they must."""
        load, kernel = found.by_columns, found.microkernel
        buffer = self.buffers[load.buffer]
        unit_depth = self.families[kernel.name].unit_depth
        if unit_depth and not self.beside(found.by_rows, found.depth):
            return None
        if found.columns is None:
            return "direct" if kernel.interleave == 1 else None
        constant = buffer.kind is Kind.CONSTANT and self.layout(lead, found) is not None
        if constant and kernel.packed:
            return "panels"
        if kernel.interleave == 1 and self.beside(load, found.columns):
            return "direct"
        return "packed" if self.packs(lead, found) else None

    def is_narrow(self, found: Match) -> bool:
        """Whether the rows of the columns' operand are so short that they lie as near as in panels."""
        load = found.by_columns
        extent = ix.literal(self.buffers[load.buffer].shape[-1]) if load.index else None
        return extent is not None and extent * ITEM_BYTES[load.dtype] <= NARROW_BYTES

    def packs(self, lead: Stage, found: Match) -> bool:
        """Whether a packed copy of the columns' operand holds each element of it once."""
        load = found.by_columns
        used = set().union(*(variables(part) for part in load.index))
        axes = [axis for axis in (*lead.axes, *lead.reduce_axes) if axis.name in used]
        return bool(found.microkernel.packed) and len(axes) <= len(load.index)

    def reordered(self, position: int, lead: Stage, depth: str) -> Stage:
        """`lead` with the reduction axis that runs inside the microkernel innermost."""
        axes = tuple(sorted(lead.reduce_axes, key=lambda axis: axis.name == depth))
        groups = list(self.given.groups)
        groups[position] = (replace(groups[position][0], reduce_axes=axes), *groups[position][1:])
        self.given = replace(self.given, groups=tuple(groups))
        return replace(lead, reduce_axes=axes)

    def beside(self, load: Load, axis: str) -> bool:
        """Whether the elements that `load` reads along `axis` lie next to each other."""
        steps = [coefficient(part, axis) for part in load.index]
        return steps[-1:] == [1] and not any(steps[:-1])

    def layout(self, lead: Stage, found: Match) -> Panels | None:
        """The panels of a constant that only this sum reads, at its depth and column themselves."""
        load, kernel = found.by_columns, found.microkernel
        depth, columns = Var(found.depth), Var(found.columns or "")
        rest = [part for part in load.index if part not in (depth, columns)]
        plain = load.index.count(depth) == 1 and load.index.count(columns) == 1
        if (
            not is_read_once(self.given, load.buffer)
            or not plain
            or any({found.depth, found.columns} & variables(r) for r in rest)
        ):
            return None
        rows, cols = load.index.index(depth), load.index.index(columns)
        return Panels(rows, cols, kernel.panel, kernel.interleave, kernel.multiple)

    def matched(
        self,
        position: int,
        group: tuple[Stage, ...],
        operand: _Operand,
        reduce_cuts: tuple[AxisCut, ...],
        candidates: Sequence[Strategy],
        shared: tuple[str, ...],
    ) -> list[_Way]:
        lead, found = group[0], operand.found
        before: tuple[GroupCut, ...] = ()
        if operand.how == "panels":
            name = found.by_columns.buffer
            self.buffers[name] = replace(self.buffers[name], layout=self.layout(lead, found))
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
        if self.families[found.microkernel.name].wide:
            return tall
        a = found.by_rows
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
        widths = self.families[found.microkernel.name].widths
        if not widths:
            return (AxisCut(name, Strategy.LADDER, limit),)
        tallest = self.tallest(lead, found) if found.rows is not None else 1
        classes: list[tuple[tuple[int, int], int, tuple[int, ...]]] = []
        for rows, options in widths.items():
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
        """Columns of B that a cache group holds: of `GROUPS` panels, what fits the nearest cache,
        and leaves no thread without a group.
        """
        extent = next(a.extent for a in lead.reduce_axes if a.name == found.depth)
        depth = ix.literal(extent) or 1024
        for axis in lead.reduce_axes:
            if axis.name != found.depth:
                depth *= ix.literal(axis.extent) or 1
        panel_bytes = found.microkernel.panel * max(depth, 1) * ITEM_BYTES[found.by_columns.dtype]
        room = GROUP_SHARE * self.hardware.nearest_bytes
        widths = self.families[found.microkernel.name].widths
        tallest = self.tallest(lead, found) if found.rows is not None else 1
        width = widths[tallest][0] if widths else WIDE_PANELS
        columns = next(ix.literal(a.extent) for a in lead.axes if a.name == found.columns)
        most = GROUPS[0]
        if self.threads > 1 and columns is not None:
            each = columns // (self.threads * found.microkernel.panel)
            most = each if each >= SHARED_PANELS else most
        fitting = (n for n in GROUPS if n * panel_bytes <= room and n % width == 0 and n <= most)
        return next(fitting, width) * found.microkernel.panel

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
        along = 1 if self.beside(load, axes[-1].name) and kernel.interleave == 1 else 2
        outer = tuple(axis.name for axis in axes[:-along] if axis.name not in shared)
        return reading, GroupCut((copy,), (cut,), (), outer, around=shared)

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
            item=ITEM_BYTES[found.by_columns.dtype],
        )
        blocks = self.blocks(found)
        once = ((ix.const(1), ix.const(1)),)
        tallest = self.tallest(lead, found)
        runs = once if strategy is None else sequence(strategy, work.rows, tallest)
        total = rows_seconds(work, blocks, runs, self.hardware)
        if operand.how == "packed":
            return Binary("+", total, pack_seconds(work, self.hardware))
        if operand.how == "direct" and found.microkernel.packed and not self.is_narrow(found):
            return Binary("*", unpacked_factor(work, self.hardware), total)
        return total

    def blocks(self, found: Match) -> Blocks:
        """Cycles per term and column by height, of the tile that the column cut takes."""
        kernel = found.microkernel
        step, startup = [0.0], [0.0]
        near = ITEM_BYTES[found.by_columns.dtype] / self.hardware.near_bytes_per_cycle
        for rows in range(1, kernel.max_rows + 1):
            shape = kernel.tile(rows, kernel.columns_for(rows))
            step.append(max(shape.cycles / shape.columns, near))
            startup.append(shape.startup / shape.columns)
        return Blocks(tuple(step), tuple(startup))
