"""How the CPU runs a computation: which microkernel, which operand is packed, which cuts compete.

A group whose sum a row-block microkernel computes is cut along its rows (heights up to the tallest
tile) and its columns (the wider, the fewer the rows), in cache groups of columns, so that a group
of B stays near while all rows pass. Every other group runs as vectors along its last axis. With
``auto`` the program holds several cuts of the rows and the cost of each as a formula in the sizes;
a call takes the cheapest. A cut that is predicted to gain next to nothing in any call is left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce
from math import prod
from typing import Literal

from offcut.backends.cpu.machine.isa import Isa
from offcut.backends.cpu.microkernels.family import Family
from offcut.backends.cpu.planning.iteration_blocks import iteration_block
from offcut.backends.cpu.planning.lanes import GatherOrder, gather_orders, is_row_reduction
from offcut.backends.cpu.planning.operand_layout import OperandChoice, OperandPlanner
from offcut.backends.cpu.planning.tile_sizes import Tiles
from offcut.core import index as ix
from offcut.core.dtypes import ITEM_BYTES
from offcut.core.expr import Binary, Expr, Var, loads, variables
from offcut.costmodel import prune_dominated, simplify_cost
from offcut.describe.computation import Computation, Stage
from offcut.partition import (
    BALANCE,
    GUARD,
    LADDER,
    MASK,
    RESIDUE,
    AxisCut,
    Match,
    Strategy,
    axis_named,
    factor_copies,
    reading_value,
)
from offcut.polyhedral import Facts, space_of
from offcut.schedule import (
    ANY,
    KernelAxes,
    LoopVariant,
    Nest,
    Pack,
    Schedule,
    Staging,
    Step,
    Together,
    beside,
    conversion_stagings,
    decisions_of,
    each_decision,
    pack_of,
    position_of,
    share_loops,
    transform_stages,
    value_staging,
    whole_stagings,
    with_orders_of_terms,
    with_shared,
)
from offcut.schedule.decisions import Alternative, Choose

CANDIDATES = (LADDER, BALANCE)


def policy(
    computation: Computation,
    isa: Isa,
    families: Sequence[Family],
    strategy: Literal["auto"] | Strategy | Mapping[str, Strategy],
    threads: int = 1,
    reassociate: bool = True,
    every: bool = False,
    competes: bool = True,
) -> Schedule:
    """Return how `computation` is cut for the cores that run it.

    families   whose microkernels may cover the tiles
    strategy   ``"auto"``, one strategy for the rows, or a strategy by axis
    threads    that a call may use: each takes cache groups of its own where columns are enough
    reassociate  whether a sum over several axes may add them in another order
    every        whether variants stay that are predicted to gain nothing at any size
    competes     whether schedules may be options of a choice, of which a call runs the cheapest; else it gathers where sizes decide

    Raises PartitionError for an axis that does not exist.
    """
    planner = _Planner(computation, isa, families, strategy, threads, reassociate, every)
    schedule = planner.schedule()
    if not competes or not planner.gathers:
        return schedule
    turning = _Planner(
        computation, isa, families, strategy, threads, reassociate, every, turns=True
    )
    options = zip((schedule, turning.schedule()), zip(*planner.gathers, strict=True), strict=True)
    alternatives = (
        Alternative(
            f"lanes_{orders[0].order[-1]}",
            simplify_cost(reduce(_plus, (order.seconds for order in orders))),
            tuple(each_decision(option.steps)),
        )
        for option, orders in options
    )
    return Schedule(computation.name, (Choose(tuple(alternatives)),))


def _plus(a: Expr, b: Expr) -> Expr:
    return Binary("+", a, b)


class _Planner:
    """Decides how a computation is cut; arguments are those of `policy`.

    turns    whether stages that gather are turned where sizes decide whether that pays
    gathers  of these stages, the orders that compete
    """

    def __init__(
        self,
        computation: Computation,
        isa: Isa,
        families: Sequence[Family],
        strategy: Literal["auto"] | Strategy | Mapping[str, Strategy],
        threads: int,
        reassociate: bool,
        every: bool,
        turns: bool = False,
    ) -> None:
        self.turns = turns
        self.gathers: list[tuple[GatherOrder, ...]] = []
        self.isa, self.machine, self.threads = isa, isa.machine, threads
        self.reassociate, self.every = reassociate, every
        self.families = {family.microkernel.name: family for family in families}
        self.space = space_of(computation)
        self.by_label: dict[str, Strategy] = {}
        self.named: Strategy | None = None
        self.candidates: tuple[Strategy, ...] = CANDIDATES
        if isinstance(strategy, Mapping):
            self.by_label = dict(strategy)
        elif strategy != "auto" and not strategy.among:
            self.named = strategy
        elif strategy != "auto" and strategy.members:
            self.candidates = strategy.members
        self.auto = not isinstance(strategy, Mapping) and self.named is None
        self.steps: list[Step] = []
        self.laid: list[Staging] = []
        self.hold(computation)

    def hold(self, computation: Computation) -> None:
        """Plan this computation from here on."""
        self.given = computation
        self.operands = OperandPlanner(
            computation,
            self.families,
            self.machine,
            self.auto,
            self.reassociate,
            self.isa.lanes("float32"),
        )
        self.tiles = Tiles(computation, self.families, self.machine, self.threads)
        self.names = computation.names()
        self.copies = dict[int, str]()  # the variants of a nest read one
        self.by_axis = {axis_named(computation, n): s for n, s in self.by_label.items()}

    def decide(self, *steps: Staging) -> None:
        """Take decisions about the stages."""
        for step in steps:
            self.steps.append(step)
            self.hold(transform_stages(self.given, step))

    def schedule(self) -> Schedule:
        """Return every decision, in order."""
        leads = [group[0].buffer for group in self.given.groups]
        for stage in leads:
            self.to_scratch(stage)
        for stage in leads:
            copy = self.operands.to_copy(position_of(self.given, stage))
            if copy is not None:
                self.decide(value_staging(stage, copy))
        for stage in leads:
            self.turn_gather(stage)
        for stage in reversed([group[0].buffer for group in self.given.groups]):
            order = self.operands.better_order(self.given.groups[position_of(self.given, stage)])
            if order is not None:
                axes = tuple((name, Var(name)) for name in order)
                self.decide(*whole_stagings(self.given, Staging("write", stage, ANY, (), axes)))
        for stage in [group[0].buffer for group in self.given.groups]:
            lead = self.given.groups[position_of(self.given, stage)][0]
            operands = self.operands.to_convert(lead)
            if operands:
                self.decide(*conversion_stagings(self.given, stage, operands))
        # What fuses depends on what a microkernel computes, and axes that fuse are named alike.
        limits = [self.limit(k, group[0]) for k, group in enumerate(self.given.groups)]
        parts = share_loops(self.given, limits)
        self.hold(with_shared(self.given, parts))
        nests = with_orders_of_terms([self.nest(part, ()) for part in parts], self.given)
        sums = frozenset(
            (group[0].buffer, axis.name)
            for group in self.given.groups
            for axis in group[0].reduce_axes
        )
        return Schedule(self.given.name, (*self.steps, *self.laid, *decisions_of(nests, sums)))

    def to_scratch(self, stage: str) -> None:
        """Lay computed factors in scratch where some microkernel computes the sum for it: before they
        are converted, or else after.
        """
        for narrow in (True, False):
            position = position_of(self.given, stage)
            factors = factor_copies(self.given, position, narrow)
            lead = self.given.groups[position][0]
            for factor in factors:
                lead = reading_value(lead, factor) or lead
            if factors and self.operands.is_computed(lead, narrow):
                self.decide(*(value_staging(stage, factor) for factor in factors))
                return

    def turn_gather(self, stage: str) -> None:
        """Decide that a stage which gathers is computed in an order of its axes in which it reads vectors, if the copies pay; where sizes
        decide that, if gathers are turned at all.
        """
        position, dtype = position_of(self.given, stage), self.given.buffer(stage).dtype
        if not self.auto:
            return
        orders = gather_orders(self.given, position, self.machine, self.isa.lanes(dtype))
        if len(orders) > 1:
            self.gathers.append(orders)
        if not orders:
            return
        gather_order = orders[-1] if self.turns else orders[0]
        if gather_order.copies:
            axes = tuple((name, Var(name)) for name in gather_order.order)
            self.decide(*(value_staging(stage, copy) for copy in gather_order.copies))
            self.decide(*whole_stagings(self.given, Staging("write", stage, ANY, (), axes)))

    def nest(self, part: Nest | Together, around: tuple[str, ...]) -> Nest | Together:
        """Return a nest with its variants, or the nests in shared loops with theirs, in loops over the axes `around`."""
        if isinstance(part, Nest):
            position = position_of(self.given, part.stage)
            return replace(part, variants=tuple(self.group(position, around)))
        inside = (*around, *part.axes)
        nests = tuple(self.nest(inner, inside) for inner in part.parts)
        return replace(
            part, parts=nests, block=iteration_block(self.given, self.machine, nests, inside)
        )

    def limit(self, position: int, lead: Stage) -> int:
        """Return how many of a group's first axes may be loops that it shares with other groups.

        A microkernel keeps its rows and columns; other groups keep the axis that their lanes take. What no cache holds is not
        read again in each iteration of all of them, but of one loop around, so that what lives between the groups is of one of its iterations.
        """
        limit = len(lead.axes)
        requested_axes = [
            k for k, axis in enumerate(lead.axes) if (position, axis.name) in self.by_axis
        ]
        if requested_axes:
            limit = min(requested_axes)
        operands = self.operands.best(lead)
        if operands:
            match = operands[0].match
            kernel_axes = {match.columns, *(operand.match.rows for operand in operands)}
            mapped = [k for k, a in enumerate(lead.axes) if a.name in kernel_axes]
            limit = min([limit, *mapped])
            packs = any(operand.how == "packed" for operand in operands)
            used = set().union(*(variables(part) for part in match.by_columns.index))
            again = any(axis.name not in used for axis in lead.axes[:limit])
            if again and packs:
                return 0
            if again and not self.stays_in_cache(match.by_columns.buffer):
                return min(limit, 1)
            return limit
        return limit if is_row_reduction(lead) else min(limit, len(lead.axes) - 1)

    def stays_in_cache(self, buffer: str) -> bool:
        """Return whether the last cache of a core holds an array beside what passes through, as far as its extents are known."""
        buffer_type = self.given.buffer(buffer)
        parts = (ix.literal_value(extent) for extent in buffer_type.shape)
        whole = ITEM_BYTES[buffer_type.dtype] * prod(part for part in parts if part is not None)
        return whole <= self.machine.policy.group_share * self.machine.memory[-1].bytes

    def group(self, position: int, shared: tuple[str, ...]) -> list[LoopVariant]:
        """Return the variants to run a group inside loops of these names."""
        group = self.given.groups[position]
        lead, sizes = group[0], self.machine.policy
        reduced = tuple(
            self.dividing_cut(
                lead,
                AxisCut(
                    axis.name,
                    strategy,
                    sizes.residue_tile if strategy == RESIDUE else sizes.reduce_tile,
                ),
            )
            for axis in lead.reduce_axes
            if (strategy := self.by_axis.get((position, axis.name))) is not None
        )
        operands = self.operands.best(lead)
        if not operands:
            return [self.plain(position, group, reduced, shared)]
        if self.is_guarded(position, lead, operands[0].match):
            operands = [self.as_it_lies(operands[0])]
        packs = any(operand.how == "packed" for operand in operands)
        variants: list[LoopVariant] = []
        costs: list[Expr] = []
        for operand in operands:
            candidates = self.candidates
            if packs and operand.how == "direct":
                candidates = (LADDER,)  # where rows are many, packing wins
            also = operand.match.rows if operand.match.rows != operands[0].match.rows else None
            for variant in self.microkernel_matches(
                position, lead, operand, reduced, candidates, shared
            ):
                variants.append(
                    variant if also is None else replace(variant, label=f"{variant.label}_{also}")
                )
                costs.append(self.tiles.seconds(lead, operand, variant.splits))
        if self.every:
            return variants
        computation = self.given
        gain, call = self.machine.policy.gain, self.machine.call
        stay = prune_dominated(costs, computation.sizes, computation.assumptions, gain, call)
        return [variants[position] for position in stay]

    def is_guarded(self, position: int, lead: Stage, match: Match) -> bool:
        """Return whether the tiles of a sum that a microkernel could compute are loops with conditions inside."""
        mapped = [axis.name for axis in lead.axes if axis.name in (match.rows, match.columns)]
        return GUARD in (self.named, *(self.by_axis.get((position, name)) for name in mapped))

    def as_it_lies(self, operand: OperandChoice) -> OperandChoice:
        """Return an operand of plain loops: they read rows of columns where these lie, and panels of any others."""
        match = operand.match
        direct = match.columns is not None and beside(match.by_columns, match.columns)
        return replace(operand, how="direct") if direct else operand

    def plain(
        self,
        position: int,
        group: tuple[Stage, ...],
        reduced: tuple[AxisCut, ...],
        shared: tuple[str, ...],
    ) -> LoopVariant:
        """Vectors along the last axis; the other axes are loops."""
        lead = group[0]
        cuts: tuple[AxisCut, ...] = ()
        axes = lead.axes[len(shared) :]
        outer = [axis.name for axis in axes]
        if len(group) == 1 and lead.reducer is None:
            # A square of vectors is turned in registers, so what lies along memory is in the tile too.
            read = [load for load, _ in loads(lead.body)]
            contiguous = [n for n in outer if read and all(beside(load, n) for load in read)]
            outer = [name for name in outer if name not in contiguous[:1]]
        sizes = self.machine.policy
        for axis in axes:
            strategy = self.by_axis.get((position, axis.name))
            last = axis is lead.axes[-1]
            if strategy is None and last:
                strategy = self.named or MASK
            if strategy is not None:
                # each rest of a residue is code of its own
                vectors = 1 if strategy == RESIDUE else self.vectors(axis.extent)
                tile = vectors * self.isa.lanes("float32") if last else sizes.axis_tile
                cuts += (self.dividing_cut(lead, AxisCut(axis.name, strategy, tile)),)
                outer = [name for name in outer if name != axis.name]
        return LoopVariant("loops", None, None, None, (*cuts, *reduced), tuple(outer))

    def vectors(self, extent: Expr) -> int:
        """Vectors of a tile of plain loops: as many as the machine says; of an extent that is known, no more than spread it evenly
        over as few tiles.
        """
        most, literal = self.machine.policy.loop_vectors, ix.literal_value(extent)
        if not literal:
            return most
        every = -(-literal // self.isa.lanes("float32"))
        return -(-every // -(-every // most))

    def dividing_cut(self, lead: Stage, cut: AxisCut) -> AxisCut:
        """For ``exact``, the largest tile that divides the extent at every allowed size; for ``mix``
        where nothing competes, the first of its sequences.
        """
        if cut.strategy.among:
            return replace(cut, strategy=cut.strategy.among[0])
        if not cut.strategy.divides:
            return replace(cut, strategy=cut.strategy.for_tile(cut.tile))
        axis = next(a for a in (*lead.axes, *lead.reduce_axes) if a.name == cut.axis)
        facts = Facts(self.space)
        tiles = range(cut.tile, 1, -1)
        fits = (t for t in tiles if facts.holds(ix.compare("==", ix.mod(axis.extent, t), 0)))
        return replace(cut, tile=next(fits, cut.tile))

    def microkernel_matches(
        self,
        position: int,
        lead: Stage,
        operand: OperandChoice,
        reduced: tuple[AxisCut, ...],
        candidates: Sequence[Strategy],
        shared: tuple[str, ...],
    ) -> list[LoopVariant]:
        """Return the variants in which a microkernel computes a sum."""
        match = operand.match
        cut = {match.rows, match.columns}
        requested = {
            a.name: self.by_axis[position, a.name]
            for a in lead.axes
            if (position, a.name) in self.by_axis
        }
        others = tuple(
            self.dividing_cut(lead, AxisCut(name, strategy, self.machine.policy.axis_tile))
            for name, strategy in requested.items()
            if name not in cut
        )
        moving = set().union(*(variables(part) for part in match.by_columns.index))
        loops = [a.name for a in lead.axes if a.name not in (*cut, *requested, *shared)]
        outer = tuple(name for name in loops if name in moving)
        inner = tuple(name for name in loops if name not in moving)
        pack: Pack | None = None
        if operand.how == "panels":
            layout = self.operands.layout(lead, match)
            assert layout is not None
            constant = match.by_columns.buffer
            lay = Staging("prepack", constant, constant, layout=layout)
            if lay not in self.laid:
                self.laid.append(lay)
        elif operand.how == "packed":
            name = self.copies.get(position)
            if name is None:
                name = self.names.fresh(f"{match.by_columns.buffer}_panels")
                self.copies[position] = name
            pack = pack_of(lead, match, name, shared, outer)
        columns = self.column_cut(lead, operand, requested)
        cover = KernelAxes.of(match)
        variants = []
        for strategy in self.row_strategies(lead, match, requested, candidates):
            rows = () if strategy is None else (self.row_cut(lead, match, strategy),)
            label = "whole" if strategy is None else strategy.name
            if pack is not None:
                label += "_packed"
            splits = (*others, *rows, *columns, *reduced)
            variants.append(LoopVariant(label, None, cover, pack, splits, outer, inner))
        return variants

    def row_strategies(
        self,
        lead: Stage,
        match: Match,
        requested: Mapping[str, Strategy],
        candidates: Sequence[Strategy],
    ) -> Sequence[Strategy | None]:
        if match.rows is None:
            return (None,)
        if match.rows in requested:
            strategy = requested[match.rows]
            return strategy.members or candidates if strategy.among else (strategy,)
        if self.named is not None:
            return (self.named,)
        return candidates if self.auto and not lead.narrowed else (LADDER,)

    def row_cut(self, lead: Stage, match: Match, strategy: Strategy) -> AxisCut:
        assert match.rows is not None
        return self.dividing_cut(lead, AxisCut(match.rows, strategy, self.tiles.tallest(match)))

    def column_cut(
        self, lead: Stage, operand: OperandChoice, requested: Mapping[str, Strategy]
    ) -> tuple[AxisCut, ...]:
        name, lanes = operand.match.columns, operand.match.microkernel.panel
        if name is None:
            return ()
        strategy = requested.get(name) or (self.named if self.named == GUARD else None)
        if strategy is None:
            return (self.tiles.columns(lead, operand),)
        steps = (2 * lanes, lanes) if strategy == LADDER else None
        tile = 2 * lanes
        if strategy == GUARD:
            extent = next(axis.extent for axis in lead.axes if axis.name == name)
            tile = self.vectors(extent) * self.isa.lanes("float32")
        return (self.dividing_cut(lead, AxisCut(name, strategy, tile, steps)),)
