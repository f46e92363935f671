"""The cost of a program on a grid of blocks, whose outermost statements are launches (`launch_cost`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import reduce

from offcut.core import index as ix
from offcut.core.expr import Binary, Expr, real
from offcut.core.program import Program
from offcut.costmodel.arrays import Calls
from offcut.costmodel.clock import stage_formula
from offcut.costmodel.closed.cost import Cost, PieceCost, cost_of_call, piece_at
from offcut.costmodel.closed.counts import HowExact, Piece
from offcut.costmodel.closed.prediction import (
    Prediction,
    SampledPrediction,
    by_stage,
)
from offcut.costmodel.device import Accelerator, Device, Grid
from offcut.costmodel.launch_cost import LaunchCost
from offcut.costmodel.launch_counts import LaunchCounts
from offcut.describe.microkernel import Microkernel
from offcut.errors import TargetError

ZERO = ix.const(0)


def grid_of(machine: Device) -> tuple[Accelerator, Grid]:
    """Return a machine as an accelerator, and its table [grid].

    Raises TargetError if its description has no table [grid].
    """
    if isinstance(machine, Accelerator) and machine.grid is not None:
        return machine, machine.grid
    raise TargetError(
        "target",
        f"cannot plan for machine={machine.name!r}",
        because=f"{machine.title} is not a GPU: its description has no [grid]",
        help=('oc.target("cuda", machine="h200")',),
    )


def grid_prediction(
    program: Program, machine: Device, microkernels: Sequence[Microkernel]
) -> Prediction:
    """Return the predicted cost of the launches of a program, a piece each, over its sizes.

    Raises TargetError if the machine's description has no table [grid].
    """
    engines, grid = grid_of(machine)
    kernels = {kernel.name: kernel for kernel in microkernels}
    counter = LaunchCounts(program, engines, grid, kernels)
    counts, cost = counter.counted_program(), LaunchCost(program, engines, grid)
    pieces = tuple(
        cost.launch_cost(piece, own, launch, counter.product_kernels(launch))
        for piece, own, launch in zip(counts.pieces, counts.counts, counter.launches, strict=True)
    )
    nothing = {memory.name: ZERO for memory in machine.memory}
    call = _count_launches(counts.pieces) * grid.launch_seconds * machine.hertz
    return Prediction(pieces, counts.choices, nothing, {}, HowExact.estimates(), call)


def _count_launches(pieces: Sequence[Piece]) -> int:
    """Return the number of launches of a call; of each choice, those of the option that has most."""
    by_way = Counter(piece.way for piece in pieces)
    most = dict[int, int]()
    for way, count in by_way.items():
        if way is not None:
            most[way[0]] = max(most.get(way[0], 0), count)
    return by_way[None] + sum(most.values())


def grid_cost(
    described: Program,
    program: Program,
    machine: Device,
    microkernels: Sequence[Microkernel],
    user_sizes: Mapping[str, int],
    sizes: Mapping[str, int],
) -> Cost:
    """Return the cost of a call at given sizes.

    described   the program before it was scheduled, whose flop count
    user_sizes  the sizes by the user's names
    sizes       the same by the program's names

    Raises TargetError if the machine's description has no table [grid].
    """
    prediction = grid_prediction(program, machine, microkernels)
    pieces = _pieces_at(prediction, sizes)
    units = {unit.name.startswith("tensor"): unit.multiply_adds for unit in machine.unit[::-1]}
    multiplies = any(piece.microkernel for piece in pieces)
    peak = 2 * machine.hertz * machine.cores * units.get(multiplies, 1.0)
    return cost_of_call(described, prediction, machine, pieces, user_sizes, sizes, peak=peak)


def _pieces_at(prediction: Prediction, sizes: Mapping[str, int]) -> list[PieceCost]:
    """Return the costs of the launches of a call; of a choice, those of the cheapest option."""
    sampled = SampledPrediction(prediction, Calls.of_one(sizes))
    running = (one for one in prediction.pieces if sampled.is_cheapest(one.piece.way)[0])
    return [piece for piece in (piece_at(one, sizes) for one in running) if piece.runs]


def option_cost(program: Program, machine: Device, microkernels: Sequence[Microkernel]) -> Expr:
    """Return the seconds of a program without choices as a formula in its sizes, the call itself included.

    Raises TargetError if the machine's description has no table [grid].
    """
    prediction = grid_prediction(program, machine, microkernels)
    stages = [stage_formula(resources, 0.0) for resources in by_stage(prediction.pieces).values()]
    cycles = reduce(lambda a, b: Binary("+", a, b), stages, real(prediction.call))
    return Binary("*", cycles, real(1 / machine.hertz))
