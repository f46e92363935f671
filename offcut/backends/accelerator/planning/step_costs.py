"""What operations take of each word, and the windows that their results need."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass

from offcut.backends.accelerator.isa import MemorySpace
from offcut.backends.accelerator.lowering.arithmetic import Recipe, recipe_of
from offcut.backends.accelerator.planning.elementary import Operations
from offcut.backends.accelerator.spec import AcceleratorSpec
from offcut.core.expr import Load, walk
from offcut.core.program import Store


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


def steps_of(operations: Operations, spec: AcceleratorSpec) -> list[Step]:
    """Return the operations of a nest on the chip, without its sum and its stores."""
    own = {buffer.name: buffer.dtype for buffer in operations.buffers}
    reads = [
        {node.buffer for node in walk(step.value) if isinstance(node, Load)}
        for step in operations.steps
    ]
    steps = []
    for at, step in enumerate(operations.steps):
        recipe = recipe_of(step, own[step.buffer], spec) if step.buffer in own else None
        if recipe is not None:
            base = recipe.base
            again = base is None or any(base.buffer in later for later in reads[at + 1 :])
            twice = sum(load == base for load in recipe.reads) > 1
            moved = base is not None and base.index != step.index
            lies = base is not None and not (again or twice or moved or recipe.copied)
            steps.append(Step(recipe, base.buffer if base is not None and lies else None))
    return steps


def is_in_place(step: Step, operations: Operations, beside: Set[str]) -> bool:
    """Return whether a result lies over what it is computed from.

    beside  copies that stand in the loop of the tile, whose windows are as those of results
    """
    return step.over is not None and (
        step.over in beside or all(step.over != copy.name for copy in operations.copies)
    )


def cost_behind(operations: Operations, spec: AcceleratorSpec, beside: Set[str]) -> StepCost:
    """Return the cost of the operations behind a sum; `beside` as in `is_in_place`."""
    total = NOTHING
    for step in steps_of(operations, spec):
        total += _cost(step.recipe, spec, is_in_place(step, operations, beside))
    return total


def start_cost(start: Store, operations: Operations, spec: AcceleratorSpec) -> StepCost:
    """Return the cost of what a sum or a maximum begins with."""
    dtype = next(buffer.dtype for buffer in operations.buffers if buffer.name == start.buffer)
    recipe = recipe_of(start, dtype, spec)
    return StepCost(1, spec.gemm_cycles) if recipe is None else _cost(recipe, spec, False)


def update_cost(update: Store, operations: Operations, spec: AcceleratorSpec) -> StepCost:
    """Return the cost of a term of the sum or maximum, of a word of terms."""
    if multiplies(operations):
        return StepCost(1, spec.gemm_cycles)
    dtype = next(buffer.dtype for buffer in operations.buffers if buffer.name == update.buffer)
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


def multiplies(operations: Operations) -> bool:
    """Return whether its sum is of products, which the matrix unit adds up."""
    return operations.roles.depth is not None or any(
        copy.place is MemorySpace.WEIGHTS for copy in operations.copies
    )


def windows_of_results(operations: Operations, spec: AcceleratorSpec, beside: Set[str]) -> int:
    """Return how many windows of results there are at most; `beside` as in `is_in_place`."""
    own = sum(not is_in_place(step, operations, beside) for step in steps_of(operations, spec))
    return own + (operations.lead is not None)
