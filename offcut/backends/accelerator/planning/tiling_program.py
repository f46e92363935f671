"""The program of units that tilings of a nest are, in an order of loops: in each loop its copies, then the loops inside."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from functools import partial

import numpy as np

from offcut.backends.accelerator.isa import Unit
from offcut.backends.accelerator.planning.dma_volume import Transfer
from offcut.backends.accelerator.planning.elementary import lanes
from offcut.backends.accelerator.planning.step_costs import (
    StepCost,
    cost_behind,
    start_cost,
    update_cost,
)
from offcut.backends.accelerator.planning.tile_work import TileWork
from offcut.core.expr import Load, walk
from offcut.costmodel.unit_program import End, Ends, Loop, Node, Run, Work

BOX, BOXES = "box of ", 4
"""The window of a box that the vector unit fills, and how many of them it is ahead of rows at most."""
NO_WORK = Work(np.zeros(1), np.zeros(1), np.zeros(1))

RESULTS = "#"
"""The window of results; no user can name an array so."""


def window_depths(
    same: TileWork, order: Sequence[str], turning: str | None, depth: int
) -> Mapping[Hashable, int]:
    """Return the slots of each window, where iterations of the loop `turning` take so many in turn."""
    inside = order.index(turning) if turning else len(order)
    depths: dict[Hashable, int] = {RESULTS: depth if turning else 1}
    for copy in same.of.copies:
        depths[copy.name] = depth if same.level(copy, order) > inside else 1
        if copy.fill:
            depths[BOX, copy.name] = BOXES
    return depths


class TilingProgram:
    """The program of tilings in an order of loops."""

    def __init__(self, same: TileWork, order: Sequence[str]) -> None:
        self.same, self.order = same, order
        self.of, self.spec, self.made = same.of, same.of.spec, same.of.made
        self.words = lanes(self.made, self.spec)
        own = {buffer.name for buffer in self.made.buffers}
        self.ends = [step for step in self.made.steps if step.buffer in own]
        lead = self.made.lead
        reads = () if lead is None else (o for o in walk(lead[1].value) if isinstance(o, Load))
        summed = {one.buffer for one in reads}
        names = [copy.name for copy in self.of.copies]
        self.summed = tuple(name for name in names if name in summed)
        self.others = tuple(name for name in names if name not in summed)

    @property
    def nodes(self) -> tuple[Node, ...]:
        """Return it: in each loop its copies, then the loops inside; in the last one a tile of results."""
        return self.level(0)

    def level(self, at: int) -> tuple[Node, ...]:
        """Return what stands in the first `at` loops."""
        if at == len(self.same.results):
            return (*self.loads(at), *self.tile())
        return (*self.loads(at), self.loop(at, self.level(at + 1)))

    def loop(self, at: int, body: tuple[Node, ...]) -> Loop:
        """Return a loop over tiles."""
        name = self.order[at]
        return Loop(name, self.same.turns(name), body, restarts=self.of.is_open(name))

    def loads(self, at: int) -> Iterator[Node]:
        """Yield the copies that stand in the first `at` loops."""
        for copy in self.of.copies:
            if self.same.level(copy, self.order) == at:
                if copy.fill:
                    yield from self.filled(copy)
                    continue
                moves = partial(self.same.moves, copy)
                yield Run(copy.unit.value, moves, (), (copy.name,), fills=True, ends=copy.ends)

    def filled(self, copy: Transfer) -> Iterator[Node]:
        """Yield a copy whose windows the vector unit fills, box by box, before the rows of a box are moved there."""
        same = self.same
        boxes = same.boxes(copy)

        def each(work: Callable[[Transfer, Ends], Work], ends: Ends) -> Work:
            return Work(*(part / boxes for part in work(copy, ends)))

        box, unit, ends = (BOX, copy.name), Unit.COMPUTE.value, copy.ends
        fills = Run(unit, partial(each, same.fills), (), (box,), fills=True, ends=ends)
        moves = Run(copy.unit.value, partial(each, same.moves), (box,), (copy.name,), ends=ends)
        yield Run(copy.unit.value, lambda _: NO_WORK, (), (copy.name,), fills=True)
        yield Loop(f"{BOX}{copy.name}", boxes, (fills, moves))

    def tile(self) -> Iterator[Node]:
        """Yield a tile of results: its sum, the operations behind it, its stores."""
        operations = self.made
        if operations.lead is not None:
            yield self.compute(
                start_cost(operations.lead[0], operations, self.spec), (), fills=True
            )
            yield from self.sums(len(self.same.results))
        behind = cost_behind(operations, self.spec, self.same.beside(self.order))
        if behind.instructions or operations.lead is None:
            yield self.compute(behind, self.others, fills=operations.lead is None)
        result = self.of.result
        for _ in range(len(operations.steps) - len(self.ends)):
            moves = partial(self.same.moves, result)
            yield Run(result.unit.value, moves, reads=(RESULTS,), ends=result.ends)

    def sums(self, at: int) -> Iterator[Node]:
        """Yield the loops over tiles of terms."""
        if at < len(self.order):
            yield self.loop(at, (*self.loads(at + 1), *self.sums(at + 1)))
            return
        assert self.made.lead is not None
        update = update_cost(self.made.lead[1], self.made, self.spec)
        yield self.compute(update, self.summed, over_terms=True)

    def compute(
        self,
        cost: StepCost,
        reads: tuple[str, ...],
        fills: bool = False,
        over_terms: bool = False,
    ) -> Run:
        """Return a run of the compute unit over the words of results, or of products."""
        axes = [axis.name for axis in (*self.made.axes, *(self.made.terms if over_terms else ()))]
        start = cost.instructions * self.spec.instruction_cycles[Unit.COMPUTE]
        known: dict[Ends, Work] = {}

        def work_at(ends: Ends) -> Work:
            if ends not in known:
                words = np.ones(1)
                for axis in axes:
                    own = ends & {(axis, End.LAST)}
                    words = words * self.same.along(axis, self.words.get(axis, 1), own)
                instructions = np.full(1, float(cost.instructions))
                known[ends] = Work(start + words * cost.cycles, np.zeros(1), instructions)
            return known[ends]

        ends = frozenset((axis, End.LAST) for axis in axes)
        return Run(Unit.COMPUTE.value, work_at, reads, (RESULTS,), fills, ends)
