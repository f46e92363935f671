"""The program of units that tilings of a nest are, in an order of loops: in each loop its copies, then the loops inside."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import partial

import numpy as np

from offcut.backends.accelerator.isa import MemorySpace, Unit
from offcut.backends.accelerator.lowering.arithmetic import Recipe, recipe_of
from offcut.backends.accelerator.planning.elementary import Operations, lanes
from offcut.backends.accelerator.planning.tile_work import TileWork, Transfer
from offcut.backends.accelerator.spec import AcceleratorSpec
from offcut.core.expr import Load, all_loads
from offcut.core.program import Store
from offcut.costmodel.clock import End, Ends, Loop, Node, Run, Work

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
        reads = () if lead is None else all_loads(lead[1].value)
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
                    yield from self.filled_boxes(copy)
                    continue
                moves = partial(self.same.moves, copy)
                yield Run(copy.unit.value, moves, (), (copy.name,), fills=True, ends=copy.ends)

    def filled_boxes(self, copy: Transfer) -> Iterator[Node]:
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


@dataclass(frozen=True, slots=True)
class StepCost:
    """An operation on a word.

    instructions  that run over the words of a tile
    cycles        of a word
    """

    instructions: int
    cycles: float

    def __add__(self, other: StepCost) -> StepCost:
        return StepCost(self.instructions + other.instructions, self.cycles + other.cycles)


NOTHING = StepCost(0, 0.0)


@dataclass(frozen=True, slots=True)
class Step:
    """An operation behind a sum, or one that a nest begins with.

    over    what its result may lie over: the array of its first operand, where nothing reads that again
    """

    recipe: Recipe
    over: str | None


def steps_of(made: Operations, spec: AcceleratorSpec) -> list[Step]:
    """Return the operations of a nest on the chip, without its sum and its stores."""
    own = {buffer.name: buffer.dtype for buffer in made.buffers}
    reads = [{load.buffer for load in all_loads(step.value)} for step in made.steps]
    steps = []
    for at, step in enumerate(made.steps):
        recipe = recipe_of(step, own[step.buffer], spec) if step.buffer in own else None
        if recipe is not None:
            base = recipe.base
            again = base is None or any(base.buffer in later for later in reads[at + 1 :])
            twice = sum(load == base for load in recipe.reads) > 1
            moved = base is not None and base.index != step.index
            lies = base is not None and not (again or twice or moved or recipe.copied)
            steps.append(Step(recipe, base.buffer if base is not None and lies else None))
    return steps


def is_in_place(step: Step, made: Operations, beside: Set[str]) -> bool:
    """Return whether a result lies over what it is computed from.

    beside  copies that stand in the loop of the tile, whose windows are as those of results
    """
    return step.over is not None and (
        step.over in beside or all(step.over != copy.name for copy in made.copies)
    )


def cost_behind(made: Operations, spec: AcceleratorSpec, beside: Set[str]) -> StepCost:
    """Return the cost of the operations behind a sum; `beside` as in `is_in_place`."""
    total = NOTHING
    for step in steps_of(made, spec):
        total += _cost(step.recipe, spec, is_in_place(step, made, beside))
    return total


def start_cost(start: Store, made: Operations, spec: AcceleratorSpec) -> StepCost:
    """Return the cost of what a sum or a maximum begins with."""
    dtype = next(buffer.dtype for buffer in made.buffers if buffer.name == start.buffer)
    recipe = recipe_of(start, dtype, spec)
    return StepCost(1, spec.gemm_cycles) if recipe is None else _cost(recipe, spec, False)


def update_cost(update: Store, made: Operations, spec: AcceleratorSpec) -> StepCost:
    """Return the cost of a term of the sum or maximum, of a word of terms."""
    if multiplies(made):
        return StepCost(1, spec.gemm_cycles)
    dtype = next(buffer.dtype for buffer in made.buffers if buffer.name == update.buffer)
    recipe = recipe_of(update, dtype, spec)
    return StepCost(1, spec.operand_cycles) if recipe is None else _cost(recipe, spec, True)


def _cost(recipe: Recipe, spec: AcceleratorSpec, in_place: bool) -> StepCost:
    total = NOTHING
    if not (recipe.update or in_place):
        total += StepCost(1, spec.gemm_cycles)
        total += NOTHING if recipe.base is None else StepCost(1, spec.operand_cycles)
    for _, other in recipe.steps:
        total += StepCost(
            1, spec.operand_cycles if isinstance(other, Load) else spec.immediate_cycles
        )
    return total


def multiplies(made: Operations) -> bool:
    """Return whether its sum is of products, which the matrix unit adds up."""
    return made.roles.depth is not None or any(
        copy.place is MemorySpace.WEIGHTS for copy in made.copies
    )


def windows_of_results(made: Operations, spec: AcceleratorSpec, beside: Set[str]) -> int:
    """Return how many windows of results there are at most; `beside` as in `is_in_place`."""
    own = sum(not is_in_place(step, made, beside) for step in steps_of(made, spec))
    return own + (made.lead is not None)
