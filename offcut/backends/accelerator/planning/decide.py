"""What the policy decides of a nest, as decisions: tiles of its loops, what lies on the chip, and what runs it.

The last stage of a group is the one whose loops are cut; what it reads of the group, and of main memory, is
computed and copied inside of them::

    stage read X for S as X_in in inputs
    split Y.i guard 10 as i_tile i_in
    at S Y.i_tile in accumulators
    at X_in Y.i_tile
    cover S at i gemm_1x16x16
    cover Y at i_in store_outputs
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import takewhile
from operator import ne

from offcut.backends.accelerator.isa import MemorySpace
from offcut.backends.accelerator.microkernels import STORE_NAME, microkernel_name
from offcut.backends.accelerator.planning.elementary import Operations
from offcut.backends.accelerator.planning.staging import Staged
from offcut.backends.accelerator.planning.tilings import Tiling
from offcut.backends.accelerator.spec import AcceleratorSpec
from offcut.core.expr import Var, all_loads, variables
from offcut.core.program import Kind, Store
from offcut.core.text.printer import format_expr
from offcut.describe.computation import Computation, Stage
from offcut.partition import GUARD, Strategy
from offcut.schedule.decisions import (
    At,
    Cover,
    Level,
    Order,
    Primitive,
    Split,
    Staging,
)


def decisions(
    computation: Computation,
    group: Sequence[Stage],
    operations: Operations,
    tiling: Tiling,
    spec: AcceleratorSpec,
    tails: Mapping[str, Strategy],
) -> tuple[Primitive, ...]:
    """Return the decisions about one group of stages.

    tails  the strategy of an axis; `guard` of the others: one loop, whose last tile is as high as what is left
    """
    return tuple(_Deciding(computation, group, operations, tiling, spec, tails).each())


def tiling_of(group: Sequence[Stage], operations: Operations, steps: Sequence[object]) -> Tiling:
    """Return the tiling of a group that decisions say: those that `decisions` writes, in which case they are of no other."""
    own = (group[-1].buffer, *(store.buffer for store in (operations.lead or ())[:1]))
    splits = [step for step in steps if isinstance(step, Split) and step.stage in own]
    orders = {step.stage: step.loops for step in steps if isinstance(step, Order)}
    inside = {step.stage: step.axis for step in steps if isinstance(step, Cover)}
    heads = {step.names[0]: step.axis for step in splits}
    tiles = {step.axis: step.levels[0].tile for step in splits}
    order = tuple(
        heads.get(loop, loop)
        for stage in own
        for loop in takewhile(partial(ne, inside.get(stage)), orders.get(stage, ()))
    )
    depth: tuple[str, int] | None = None
    for step in steps:
        if isinstance(step, At) and step.reader in own and step.axis is not None and step.depth > 1:
            axis = heads.get(step.axis, step.axis)
            if axis in order and (depth is None or order.index(axis) < order.index(depth[0])):
                depth = axis, step.depth
    return Tiling(tuple((axis, tiles.get(axis, 1)) for axis in order), order, depth)


@dataclass
class _Deciding:
    computation: Computation
    group: Sequence[Stage]
    made: Operations
    tiling: Tiling
    spec: AcceleratorSpec
    tails: Mapping[str, Strategy]
    heads: dict[str, str] = field(default_factory=dict)
    within: dict[tuple[str, str], str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.tiles, self.names = dict(self.tiling.tiles), self.computation.names()
        self.terms = {axis.name for axis in self.made.terms}
        self.last = self.group[-1].buffer
        self.lead = self.group[0].buffer
        self.results = {b.name for b in self.computation.buffers if b.kind is Kind.OUTPUT}
        self.memory = {place: words.memory for place, words in self.spec.words.items()}

    def each(self) -> Iterator[Primitive]:
        """Yield the decisions, in order."""
        inner = [stage.buffer for stage in self.group[:-1]]
        if self.group[-1].reducer is not None:
            assert self.made.lead is not None
            name = self.made.lead[0].buffer
            yield Staging("write", self.last, name, memory=self.memory[MemorySpace.ACCUMULATORS])
            inner.append(name)
            self.lead = name if self.lead == self.last else self.lead
        for copy in self.made.copies:
            yield from self.staging(copy)
        parts = list(self.operations())
        yield from parts
        outer = [axis for axis in self.tiling.order if axis not in self.terms]
        yield from self.splits(self.last, outer)
        yield Order(self.last, (*(self.heads[a] for a in outer), *self.inside(self.last)))
        inmost = self.heads[outer[-1]] if outer else None
        for stage in reversed(self.computation_order(inner, parts)):
            if stage in self.results:
                yield At(stage, self.last, inmost)
                continue
            memory, depth = self.memory[MemorySpace.ACCUMULATORS], self.tiling.windows(len(outer))
            yield At(stage, self.last, inmost, memory, depth)
        for copy in self.made.copies:
            depth = self.depth_of(copy)
            if depth <= len(outer):
                loop = self.heads[outer[depth - 1]] if depth else None
                yield At(copy.name, self.last, loop, None, self.tiling.windows(depth))
        sums = [axis for axis in self.tiling.order if axis in self.terms]
        if self.made.lead is not None:
            yield from self.splits(self.lead, sums)
            order = (*(self.heads[a] for a in sums), *self.inside(self.lead, spatial=True))
            yield Order(self.lead, order)
            for copy in self.made.copies:
                depth = self.depth_of(copy)
                if depth > len(outer):
                    loop = self.heads[sums[depth - len(outer) - 1]]
                    yield At(copy.name, self.lead, loop, None, self.tiling.windows(depth))
        yield from self.covers(inner, parts)

    def staging(self, copy: Staged) -> Iterator[Primitive]:
        """Yield what makes a copy an array, filled by the host first where no load can fill it."""
        readers = tuple(self.readers(copy))
        memory = self.memory[copy.place]
        value, load = copy.element.value, copy.element.load
        axes = tuple((axis.name, part) for axis, part in zip(copy.axes, copy.index, strict=True))
        others = [c for c in self.made.copies if c.origin.load.buffer == copy.origin.load.buffer]
        alone = value == load and load.index == copy.point and len(others) == 1
        extents = tuple(axis.extent for axis in copy.axes)
        if alone and not copy.by_host and extents == self.computation.buffer(load.buffer).shape:
            yield Staging("read", load.buffer, copy.name, readers, (), memory)
            return
        text = format_expr(value)
        if not copy.by_host:
            yield Staging("value", text, copy.name, readers, axes, memory)
            return
        laid = f"{copy.name}_laid"
        yield Staging("value", text, laid, readers, axes)
        yield Staging("read", laid, copy.name, readers, (), memory)

    def operations(self) -> Iterator[Staging]:
        """Yield an array of its own for each operation, of those that a stage needs."""
        stages = {stage.buffer for stage in self.group}
        axes = tuple((axis.name, Var(axis.name)) for axis in self.made.axes)
        pending = list[Store]()
        for step in self.made.steps:
            if step.buffer not in stages:
                pending.append(step)
                continue
            for one in pending:
                text, reader = format_expr(one.value), (step.buffer,)
                memory = self.memory[MemorySpace.ACCUMULATORS]
                yield Staging("value", text, one.buffer, reader, axes, memory)
            pending.clear()

    def computation_order(self, inner: Sequence[str], parts: Sequence[Staging]) -> list[str]:
        """Return the stages on the chip in the order in which they are computed."""
        ordered_parts = []
        for stage in (*inner, self.last):
            ordered_parts += [part.name for part in parts if part.readers == (stage,)]
            ordered_parts += [stage] if stage != self.last else []
        return ordered_parts

    def readers(self, copy: Staged) -> Iterator[str]:
        """Yield the stages that read what a copy holds: where an array has several copies, those that have its own load."""
        load = copy.origin.load
        alone = sum(one.origin.load.buffer == load.buffer for one in self.made.copies) == 1
        for stage in self.group:
            own = stage.buffer
            if own == self.last and self.group[-1].reducer is not None:
                own = self.lead
            loads = all_loads(stage.value)
            if load in loads or (alone and load.buffer in {one.buffer for one in loads}):
                yield own

    def splits(self, stage: str, axes: Sequence[str]) -> Iterator[Primitive]:
        """Yield the splits of a stage's loops into tiles; in tiles of one iteration a loop is its own."""
        for axis in axes:
            size, tail = self.tiles[axis], self.tails.get(axis)
            if size == 1 and tail is None:
                self.heads[axis] = axis
                continue
            head = self.heads[axis] = self.names.fresh(f"{axis}_tile")
            within = self.names.fresh(f"{axis}_in")
            self.within[stage, axis] = within
            yield Split(stage, axis, (Level(size, tail or GUARD),), (head, within))

    def inside(self, stage: str, spatial: bool = False) -> list[str]:
        """Return the loops inside a tile, those of lanes last; of a sum its terms innermost."""
        roles = self.made.roles
        last = [axis for axis in (roles.rows, roles.columns) if axis is not None]
        names = [axis.name for axis in self.made.axes]
        names.sort(key=lambda name: last.index(name) if name in last else -1)
        if not spatial:
            return [self.within.get((stage, a), a) for a in names if self.heads.get(a) != a]
        terms = sorted((a.name for a in self.made.terms), key=lambda name: name == roles.depth)
        inner = [self.within.get((stage, a), a) for a in terms if self.heads.get(a) != a]
        return [*names, *inner]

    def depth_of(self, copy: Staged) -> int:
        """Return in how many loops over tiles a copy stands: the innermost that moves its window."""
        return self.tiling.level({name for part in copy.index for name in variables(part)})

    def cover(self, stage: str, name: str, terms: bool = False) -> Cover:
        """Return the cover of a stage on the axes that words lie along."""
        roles = self.made.roles
        loops = self.inside(stage, spatial=True)
        lanes = ("i", roles.rows), ("j", roles.columns), ("p", roles.depth if terms else None)
        axes = ((lane, self.within.get((stage, a), a)) for lane, a in lanes if a is not None)
        return Cover(stage, loops[0], name, tuple(one for one in axes if one[1] in loops))

    def covers(self, inner: Sequence[str], parts: Sequence[Staging]) -> Iterator[Primitive]:
        """Yield what runs each stage."""
        operations = self.made
        if operations.lead is not None:
            yield self.cover(self.lead, microkernel_name(operations.lead[1], self.spec), terms=True)
        last = {store.buffer: store for store in operations.steps}
        for stage in (*inner, *(part.name for part in parts)):
            if stage in last:
                own = [axis.name for axis in operations.axes]
                loops = [axis for axis in self.inside(stage, spatial=True) if axis in own]
                if loops[:1] != own[:1]:  # the tile is all of them
                    yield Order(stage, tuple(loops))
                name = microkernel_name(last[stage], self.spec)
                yield self.cover(stage, name if stage not in self.results else STORE_NAME)
        within = self.inside(self.last)
        if within:
            yield Cover(self.last, within[0], STORE_NAME)
