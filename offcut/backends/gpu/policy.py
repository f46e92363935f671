"""The decisions of the default policy: a grid of blocks, a ring in shared memory, sums in registers of warps.

For a product that is followed by a stage element by element, the decisions are::

    stage read A for S as A_in in shared
    stage read W for S as W_in in shared
    split C.i guard 64 as i_block i_in
    split C.j guard 128 as j_block j_in
    order C i_block j_block i_in j_in
    split C.i_in guard 16 as i_warp i_row
    at S C.j_block in registers
    split S.k guard 32 as k_stage k_in
    split S.i guard 16 as i_warp i_row
    order S k_stage i_warp i_row j k_in
    at A_in S.k_stage in shared depth 4
    at W_in S.k_stage in shared depth 4
    bind C.i_block block
    …
    cover S at i_row mma_m16n8k16_shared_bfloat16

A block has a warp for every 16 rows of its tile; the load unit fills the ring, and waits for these warps alone. If no stage
element by element follows, the sums are staged in registers and copied out. `plain_stages` decides for every other stage.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import TYPE_CHECKING, ClassVar

from offcut.backends.covers import Covered, cover_stage, definition_of
from offcut.backends.generic import Plans
from offcut.backends.gpu.boxes import has_whole_rows
from offcut.backends.gpu.instructions import boxes, rows
from offcut.backends.gpu.plain_stages import loop_schedule, plain_decisions
from offcut.backends.gpu.product_kinds import (
    ProductKind,
    begins_at_cells,
    kind_of,
    with_groups,
)
from offcut.backends.gpu.units import REGISTERS, SHARED
from offcut.backends.options import Options, TargetPlan
from offcut.core.analysis import analysis
from offcut.core.dtypes import ITEM_BYTES
from offcut.core.expr import Load, Var, variables, walk
from offcut.core.program import MAX_SIZE, Kind, Program, Tile
from offcut.costmodel.device import Accelerator, Grid
from offcut.describe.computation import Stage
from offcut.describe.microkernel import Microkernel
from offcut.partition import GUARD, MASK, Strategy, Users
from offcut.polyhedral.affine import coefficient
from offcut.polyhedral.index_maximum import upper_bound
from offcut.proof.normal_forms.copies import without_copies
from offcut.schedule import Primitive, Schedule, Staging, create_schedule, each_decision
from offcut.schedule.decisions import At, Bind, Cover, Inline, Level, Order, Split

if TYPE_CHECKING:
    from offcut.backends.planner import Planner

STAGES, STAGE_BYTES = 4, 16
"""Stages of the ring, at most; of large elements, as many as take so many bytes of one."""
MAX_ROWS, TILE_COLUMNS = 256, (64, 128, 256)
"""Rows of tiles that a search may take, at most, and columns."""
OWN_REGISTERS = 40
"""Registers of a thread beside its sums: addresses, fragments, counters. Assumed."""
UNIT_LANES = {"warp": 32, "warpgroup": 128}


@dataclass(frozen=True)
class GridPlans(Plans):
    """The plans of a computation on a grid of blocks.

    reassociate  whether the terms of a sum may be added in another order
    own_kernels  those that the machine has
    """

    tails: ClassVar[tuple[Strategy, ...]] = (GUARD, MASK)
    alone: ClassVar[bool] = True
    narrows: ClassVar[bool] = True
    reassociate: bool = True
    own_kernels: tuple[Microkernel, ...] = ()
    grid: Grid | None = None
    shared_bytes: int = 0

    @classmethod
    def of(
        cls, planner: Planner, program: Program, users: Users, options: Options
    ) -> GridPlans | None:
        """Return the plans of a program, by warpgroups if all of its products can be; None if it is cut already or is not a computation."""
        plans = super().of(planner, program, users, options)
        machine = planner.machine  # type: ignore[attr-defined]
        if not isinstance(plans, GridPlans) or not isinstance(machine, Accelerator):
            return None
        if plans.first and not all(map(plans.is_tiled, plans.covered)):
            plans = plans.without_staging
        covered = plans.covered
        features: frozenset[str] = getattr(planner, "features", frozenset())
        kernels = tuple(one for one in plans.kernels if one.features <= features)
        if all(map(plans.is_tiled, covered)):
            covered = with_groups(plans.computation, covered, kernels) or covered
        shared = next((one.bytes for one in machine.memory if one.name == SHARED), 0)
        return replace(
            plans,
            covered=covered,
            own_kernels=kernels,
            reassociate=options.reassociate,
            grid=machine.grid,
            shared_bytes=shared,
        )

    @classmethod
    def loop_schedule(cls, program: Program, reassociate: bool) -> Schedule | None:
        """Return the decisions for loops that end at elements of arrays; None where nothing is decided."""
        return None if analysis(program).of(Tile) else loop_schedule(program, reassociate)

    @property
    def tilings(self) -> tuple[Mapping[tuple[str, str], int], ...]:
        """Return the tiles that compete: those with room, of which none is twice as large as the axis that it cuts, but for the first."""
        shapes = [kind_of(cover.kernel).tiles for cover in self.covered]
        tilings = [
            self.tiles(each)
            for each in zip(*shapes, strict=True)
            if all(map(self.fits, self.covered, each))
        ]
        return tuple(
            tiles
            for tiles in tilings
            if tiles == tilings[0] or all(self.is_filled(at, tile) for at, tile in tiles.items())
        )

    def sizes(self, at: tuple[str, str]) -> tuple[int, ...]:
        """Return the tiles of an axis that a search may take: more than fit are refused when they meet."""
        (cover,) = (one for one in self.covered if one.stage.buffer == at[0])
        step = kind_of(cover.kernel).rows
        rows = cover.match.axis(definition_of(cover.kernel).axes[0].name)
        return tuple(range(step, MAX_ROWS + 1, step)) if at[1] == rows else TILE_COLUMNS

    def fits(self, cover: Covered, shape: tuple[int, int]) -> bool:
        """Return whether a block with such a tile of a product has room for its stages and for its sums."""
        kind, (rows, columns) = kind_of(cover.kernel), shape
        assert self.grid is not None
        lanes = UNIT_LANES[kind.unit]
        threads = lanes * (-(-rows // kind.rows) + 1)
        registers = threads * (kind.rows * columns // lanes + OWN_REGISTERS)
        item = max(ITEM_BYTES[load.dtype] for _, load in cover.match.operands)
        terms = max(kind.terms, kind.term_bytes // item)
        stages = min(STAGES, STAGE_BYTES // item) * terms * (rows + columns) * item
        return registers <= self.grid.registers and stages <= self.shared_bytes

    def level_in(self, schedule: Schedule, at: tuple[str, str]) -> Level | None:
        """Return the tiles of an axis of a product: those of the same axis of the last stage that follows element by element."""
        (stage,) = (stage for stage in self.stages if stage.buffer == at[0])
        reader = (stage, *self.chain(stage))[-1]
        names = [axis.name for axis in stage.axes]
        return super().level_in(schedule, (reader.buffer, reader.axes[names.index(at[1])].name))

    def is_filled(self, at: tuple[str, str], tile: int) -> bool:
        """Return whether an axis may be longer than half of a tile."""
        (stage,) = (stage for stage in self.stages if stage.buffer == at[0])
        return self.most(stage, at[1], 1) > tile // 2

    @property
    def stages(self) -> tuple[Stage, ...]:
        """Return all stages, in their order."""
        return tuple(stage for group in self.computation.groups for stage in group)

    @property
    def largest(self) -> dict[tuple[str, str], int]:
        """Return the tile sizes of a block, in elements, by stage and axis: rows and columns of each product."""
        return self.tiles([kind_of(cover.kernel).tile for cover in self.covered])

    def tiles(self, shapes: Sequence[tuple[int, int]]) -> dict[tuple[str, str], int]:
        """Return the tile sizes of a block, in elements, by stage and axis: of such rows and columns of each product.

        No more rows than there may be: each loop over the rows of a block has a warp, or a warpgroup, for as many as it multiplies.
        """
        tiles = {}
        for cover, shape in zip(self.covered, shapes, strict=True):
            rows_axis, *_ = axes = definition_of(cover.kernel).axes
            for kernel_axis, size in zip(axes, shape, strict=True):
                axis = cover.match.axis(kernel_axis.name)
                if axis in cover.axes:
                    if kernel_axis is rows_axis:
                        size = min(size, self.most(cover.stage, axis, cover.multiple(axis)))
                    tiles[cover.stage.buffer, axis] = size
        return tiles

    def most(self, stage: Stage, axis: str, multiple: int) -> int:
        """Return the largest extent of an axis of a stage, rounded up to a multiple, of which it is at least one; `MAX_SIZE` if
        nothing bounds it.
        """
        (extent,) = (one.extent for one in stage.axes if one.name == axis)
        sizes, facts = self.computation.sizes, self.computation.assumptions
        bound = upper_bound(extent, Program(self.name, sizes, facts, (), ()), ())
        return MAX_SIZE if bound is None else max(-(-bound // multiple), 1) * multiple

    def schedule(self, cuts: Mapping[tuple[str, str], Level]) -> Schedule:
        """Return the decisions for all stages; an axis that `cuts` does not name takes the default tile.

        Products of warpgroups are those of warps if some of their tiles begin inside of a cell: all of them, so that a kernel
        has one kind of product.
        """
        if not all(self.has_cells(one, cuts) for one in self.covered):
            return self.with_warps().schedule(cuts)
        steps: list[Primitive] = []
        buffers: set[str] = set()
        for one in self.covered:
            if not self.is_tiled(one):
                continue
            chain = self.chain(one.stage)
            steps += self.product_decisions(one, chain, cuts)
            buffers |= {one.stage.buffer, *(stage.buffer for stage in chain)}
        for stage in self.stages:
            if stage.buffer not in buffers:
                steps += plain_decisions(stage, self.reassociate)
        return Schedule(self.name, (*self.first, *steps))

    def starts(self, schedule: Schedule, before: Program) -> tuple[Program, ...]:
        """Return the first programs of a proof; inlining is a step of it, before all but stagings of operands."""
        starts = super().starts(schedule, before)
        steps = each_decision(schedule.steps)
        inlined = tuple(dict.fromkeys(step for step in steps if isinstance(step, Inline)))
        if not inlined:
            return starts
        last = create_schedule(starts[-1]).apply(Schedule(schedule.name, inlined)).emitted
        return *starts, last

    def plan(self, schedule: Schedule, small: bool = True) -> TargetPlan:
        """Return the program that decisions make; before its sums lie in registers, they are in the arrays that they are copied to:
        a step of its own.
        """
        plan = super().plan(schedule, small)
        writes = (s for s in each_decision(schedule.steps) if isinstance(s, Staging))
        sums = {step.name for step in writes if step.how == "write"}
        for number, step in enumerate(plan.through):
            others = tuple(buffer for buffer in step.buffers if buffer.name not in sums)
            if len(others) < len(step.buffers):
                cut, *_ = without_copies(step, replace(step, buffers=others))
                steps = (*plan.through[:number], cut, *plan.through[number:])
                return replace(plan, through=steps)
        return plan

    def with_warps(self) -> GridPlans:
        """Return the plans whose products are those of warps."""
        kernels = [one for one in self.kernels if not kind_of(one).boxes]
        covers = (cover_stage(one.stage, kernels) for one in self.covered)
        return replace(self, covered=tuple(one for one in covers if one is not None))

    @property
    def fallback(self) -> GridPlans | None:
        """Return the plans to try where these are not proved: products of warps; then sums of conditional terms on lanes."""
        if any(kind_of(one.kernel).boxes for one in self.covered):
            return self.with_warps()
        if any(one.stage.narrowed for one in self.covered):
            others = tuple(one for one in self.covered if not one.stage.narrowed)
            return replace(
                self, covered=with_groups(self.computation, others, self.own_kernels) or others
            )
        return None

    def levels(self, one: Covered, cuts: Mapping[tuple[str, str], Level]) -> dict[str, Level]:
        """Return how each axis of a product is cut."""
        own = one.stage.buffer
        return {
            axis: cuts.get((own, axis), Level(self.largest[own, axis], self.tails[0]))
            for axis in one.axes
        }

    def has_cells(self, one: Covered, cuts: Mapping[tuple[str, str], Level]) -> bool:
        """Return whether tiles are cut as a product wants them: of warpgroups, their boxes begin at whole cells."""
        levels = self.levels(one, cuts)
        loads = (load for _, load in one.match.operands)
        return not kind_of(one.kernel).boxes or all(begins_at_cells(one, levels) for one in loads)

    def is_tiled(self, one: Covered) -> bool:
        """Return whether a stage is a product of rows by columns over an axis of terms, and over others around it, of operands that
        lie in rows along these.
        """
        axes = {*one.axes, *one.terms[1]}
        loads = (load for _, load in one.match.operands)
        tiled = len(one.axes) == 2 and len(one.terms[1]) == 1
        return tiled and all(_is_of_rows(load, axes) for load in loads)

    def chain(self, stage: Stage) -> tuple[Stage, ...]:
        """Return the stages that follow `stage` element by element, each the only reader of the one before; without those that follow a
        later product, whose loops they are in.
        """
        late = self.stages[self.stages.index(stage) + 1 :]
        products = (one.stage for one in self.covered if one.stage in late and self.is_tiled(one))
        followers = {reader.buffer for other in products for reader in self.followers(other)}
        return tuple(
            takewhile(lambda reader: reader.buffer not in followers, self.followers(stage))
        )

    def followers(self, stage: Stage) -> Iterator[Stage]:
        """Yield the stages that follow `stage` element by element, each the only reader of the one before."""
        while True:
            readers = [one for one in self.stages if _reads(one, stage.buffer)]
            is_local = self.computation.buffer(stage.buffer).kind in (Kind.LOCAL, Kind.PRIVATE)
            if not is_local or len(readers) != 1 or not _is_elementwise(readers[0], stage):
                return
            (stage,) = readers
            yield stage

    def product_decisions(
        self, one: Covered, chain: tuple[Stage, ...], cuts: Mapping[tuple[str, str], Level]
    ) -> Iterator[Primitive]:
        """Yield the decisions for a product and for `chain`, the stages that follow it element by element."""
        own, sums = one.stage, one.stage.buffer
        reader = chain[-1] if chain else own
        for stage in chain[:-1]:
            yield Inline(stage.buffer)
        if not chain:
            sums = f"{own.buffer}_sum"
            yield Staging("write", own.buffer, sums, memory=REGISTERS)
        reader_axes = {a.name: b.name for a, b in zip(own.axes, reader.axes, strict=True)}
        levels, kind = self.levels(one, cuts), kind_of(one.kernel)
        loads = {load.buffer: load for _, load in one.match.operands}
        windows = {buffer: self.window_name(buffer, own) for buffer in loads}
        for buffer, window in windows.items():
            layout = kind.layout(len(loads[buffer].index))
            yield Staging("read", buffer, window, (sums,), (), SHARED, layout)
        row, column = (one.match.axis(axis.name) for axis in definition_of(one.kernel).axes)
        assert row is not None
        assert column is not None
        to = reader.buffer
        blocks, inner = [], []
        for axis in (row, column):
            name = reader_axes[axis]
            blocks.append(f"{name}_block")
            inner.append(f"{name}_in")
            yield Split(to, name, (levels[axis],), (blocks[-1], inner[-1]))
        others = [axis.name for axis in own.axes if axis.name not in (row, column)]
        batch = [reader_axes[axis] for axis in others]
        yield Order(to, (*batch, *blocks, *inner))
        rows = Level(kind.rows, GUARD)
        yield Split(to, inner[0], (rows,), (f"{row}_{kind.unit}_out", f"{row}_row_out"))
        yield At(sums, to, blocks[-1], REGISTERS)
        around, (terms,) = one.terms
        turn, warp, in_warp = f"{terms}_stage", f"{row}_{kind.unit}", f"{row}_row"
        narrowest = min(ITEM_BYTES[load.dtype] for load in loads.values())
        size = max(kind.terms, kind.term_bytes // narrowest)
        yield Split(sums, terms, (Level(size, GUARD),), (turn, f"{terms}_in"))
        yield Split(sums, row, (rows,), (warp, in_warp))
        yield Order(sums, (*others, turn, *around, warp, in_warp, column, f"{terms}_in"))
        for buffer, load in loads.items():
            stages = min(STAGES, STAGE_BYTES // ITEM_BYTES[load.dtype])
            yield At(windows[buffer], sums, [turn, *around][-1], SHARED, stages)
        for name in (*batch, *blocks):
            yield Bind(to, name, "block")
        yield Bind(to, f"{row}_{kind.unit}_out", kind.unit)
        yield Bind(sums, warp, kind.unit)
        for buffer, load in loads.items():
            first, kernel = self.copy(load, levels, kind, {row, column, terms})
            yield Cover(windows[buffer], first, kernel)
        yield Cover(sums, in_warp, one.kernel.name)

    def window_name(self, buffer: str, stage: Stage) -> str:
        """Return the name of the window of an array that a product reads; with the product's, if several read it."""
        readers = [
            one.stage for one in self.covered if buffer in {x.buffer for _, x in one.match.operands}
        ]
        return f"{buffer}_in" if len(readers) == 1 else f"{buffer}_in_{stage.buffer}"

    def copy(
        self, load: Load, levels: Mapping[str, Level], kind: ProductKind, moved: set[str]
    ) -> tuple[str, str]:
        """Return the first loop of the copy of an operand, and the name of its microkernel.

        moved  the axes of rows, columns and terms of the product

        Rows are copied in the background (``cp.async``) if all of them, of all tiles, begin at multiples of 16 bytes.
        """
        names = [part.name for part in load.index if isinstance(part, Var)]
        moving = [bool(variables(part) & moved) for part in load.index]
        plain = len({*names}) == len(load.index)
        first = names[0] if plain else f"a{moving.index(True)}"
        if kind.boxes:
            return first, boxes(load.dtype).name
        shape = self.computation.buffer(load.buffer).shape
        aligned = (
            moving[-1]
            and begins_at_cells(load, levels)
            and has_whole_rows(shape, load.dtype, self.computation.sizes)
        )
        return first, rows(load.dtype, aligned).name


def _reads(stage: Stage, buffer: str) -> bool:
    return any(isinstance(node, Load) and node.buffer == buffer for node in walk(stage.body))


def _is_of_rows(load: Load, axes: set[str]) -> bool:
    """Return whether the axes move along rows of an array and, element by element, inside of these, one axis along each."""
    steps = [[coefficient(part, axis) for axis in axes] for part in load.index]
    if any(step is None or step < 0 for part in steps for step in part):
        return False
    moving = [[step for step in part if step] for part in steps]
    several = any(len(part) > 1 for part in moving)
    return not several and [part for part in moving if part][-1:] in ([], [[1]])


def _is_elementwise(stage: Stage, of: Stage) -> bool:
    """Return whether `stage` has the axes of `of`, does not reduce, and reads `of` at its own point alone."""
    point = tuple(Var(axis.name) for axis in stage.axes)
    reads = [n for n in walk(stage.body) if isinstance(n, Load) and n.buffer == of.buffer]
    return (
        stage.reducer is None
        and len(stage.axes) == len(of.axes)
        and all(load.index == point for load in reads)
    )


__all__ = ["GridPlans"]
