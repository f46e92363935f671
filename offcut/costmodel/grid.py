"""The cost of a program on a grid of blocks, whose outermost statements are launches.

The cost of a launch on a grid: waves of blocks over multiprocessors, in closed form over the sizes.

A launch has B blocks, each of P multiprocessors runs r of them at a time,
and all blocks together do W of one kind of work (`launch_counts`), at a rate per multiprocessor and cycle::

    busy(resource) = ceil(B / P) * W / B / rate          tensor core, lanes, shared memory, its share of L2
    waiting        = ceil(B / (P * r)) * latency         of a block alone: loads and barriers of its turns, one after the other
    main memory    = bytes of each array once, or what is moved of it if that is less, / (P * its share), if these do not fit L2
    launch         = max of these
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce

from offcut.core import index as ix
from offcut.core.dtypes import ITEM_BYTES
from offcut.core.expr import Binary, Compare, Expr, Select, real
from offcut.core.program import (
    COUNTED_UNITS,
    GROUPED_UNITS,
    LANES_OF_UNIT,
    WARP_LANES,
    Program,
    Stmt,
)
from offcut.costmodel.arrays import Calls
from offcut.costmodel.clock import stage_formula
from offcut.costmodel.closed.cost import Cost, PieceCost, cost_of_call, piece_at
from offcut.costmodel.closed.counts import Counts, HowExact, Piece
from offcut.costmodel.closed.prediction import (
    Predicted,
    Prediction,
    SampledPrediction,
    by_stage,
    joules,
)
from offcut.costmodel.device import Accelerator, Device, Grid
from offcut.costmodel.launch_counts import (
    LANES,
    MAIN,
    TENSOR,
    TICKS,
    WAITING,
    LaunchCounts,
    count_blocks,
)
from offcut.costmodel.simplification import simplify_cost
from offcut.describe.microkernel import Microkernel
from offcut.errors import TargetError
from offcut.polyhedral.index_maximum import agent_count, window_rooms

ZERO, ONE = ix.const(0), ix.const(1)


@dataclass(frozen=True)
class LaunchCost:
    """Predicts the cost of the launches of a program on a machine."""

    program: Program
    machine: Accelerator
    grid: Grid

    def launch_cost(
        self, piece: Piece, counts: Counts, launch: Stmt, kernels: Sequence[Microkernel]
    ) -> Predicted:
        """Return the predicted cost of a launch.

        kernels  that add up products in it
        """
        machine, work, count = self.machine, counts.work, self.machine.cores
        blocks = ix.maximum(count_blocks((launch,), {}) or ONE, 1)
        share = Binary("/", real(ix.ceildiv(blocks, count)), real(blocks))

        def busy(amount: Expr, rate: float) -> Expr:
            return Binary("*", Binary("*", real(amount), real(1 / rate)), share)

        main, shared, l2 = machine.dram, machine.memory[0], machine.memory[-1]
        lanes = next((u.multiply_adds for u in machine.unit if "float32" in u.of), 1.0)
        waves = real(ix.ceildiv(blocks, count * self.resident(launch)))
        has_work = Compare(">", counts.instances, ZERO)
        ticks = work.get(WAITING, ZERO)
        latency = Binary("*", waves, Binary("*", real(ticks), real(1 / TICKS)))
        moved_by_array = {
            name.removeprefix(MAIN): amount
            for name, amount in work.items()
            if name.startswith(MAIN)
        }
        volume = ix.add(*moved_by_array.values(), ZERO)
        arrays = ix.add(*(self.bytes_once(*one) for one in moved_by_array.items()), ZERO)
        fits = Compare("<=", arrays, ix.const(l2.bytes * count))
        dram_bytes = Select(has_work, Select(fits, ZERO, arrays), ZERO)
        shared_bytes = work.get(shared.name, ZERO)
        resources = {
            TENSOR: busy(work.get(TENSOR, ZERO), self.tensor_rate(kernels)),
            LANES: busy(work.get(LANES, ZERO), lanes),
            shared.name: busy(shared_bytes, shared.bytes_per_cycle),
            l2.name: busy(volume, l2.bytes_per_cycle),
            main.name: Binary("*", real(dram_bytes), real(1 / (main.bytes_per_cycle * count))),
            WAITING: Select(has_work, latency, real(0.0)),
        }
        resources = {name: simplify_cost(cycles) for name, cycles in resources.items()}
        cache_bytes = {memory.name: volume for memory in machine.memory[1:]}  # through caches
        bytes_ = {shared.name: shared_bytes, **cache_bytes, main.name: dram_bytes}
        energy = joules(counts.picojoules, bytes_, machine)
        runs = Select(has_work, ONE, ZERO)
        return Predicted(piece, replace(counts, runs=runs), resources, bytes_, energy)

    def tensor_rate(self, kernels: Sequence[Microkernel]) -> float:
        """Return the multiply-adds per cycle of a multiprocessor's tensor cores, for the element types of these microkernels."""
        types = {tensor.dtype for kernel in kernels for tensor in kernel.definition.reads}
        rates = (u.multiply_adds for u in self.machine.unit if types & {*u.of})
        return max(rates, default=1.0)

    def bytes_once(self, array: str, volume: Expr) -> Expr:
        """Return the bytes of an array of main memory, each once, or those that are moved, if they are fewer."""
        buffer = self.program.buffer(array)
        return ix.minimum(ix.product((ITEM_BYTES[buffer.dtype], *buffer.shape)), volume)

    def resident(self, launch: Stmt) -> int:
        """Return the number of blocks that run on a multiprocessor at a time, as shared memory, warps and its own limit allow."""
        if any(agent_count(self.program, launch, unit) for unit in GROUPED_UNITS):
            return 1
        shared = self.machine.memory[0]
        rooms = window_rooms(self.program, launch, shared.name, COUNTED_UNITS)
        room_bytes = sum(room.bytes or 0 for room in rooms)
        fits = shared.bytes // room_bytes if room_bytes else self.grid.blocks
        return max(min(fits, self.grid.warps // self.warps(launch), self.grid.blocks), 1)

    def warps(self, launch: Stmt) -> int:
        """Return the warps of a block, at least 1: those of the lanes of the units that loops are bound to."""
        lanes = (
            lanes * (agent_count(self.program, launch, unit) or 0)
            for unit, lanes in LANES_OF_UNIT.items()
        )
        return max(-(-max(lanes) // WARP_LANES), 1)


_ZERO = ix.const(0)


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
    nothing = {memory.name: _ZERO for memory in machine.memory}
    call = _count_launches(counts.pieces) * grid.launch_seconds * machine.hertz
    return Prediction(pieces, counts.choices, nothing, {}, HowExact.estimates(), call)


def _count_launches(pieces: Sequence[Piece]) -> int:
    """Return the number of launches of a call; of each choice, those of the option that has most."""
    by_option = Counter(piece.option for piece in pieces)
    most = dict[int, int]()
    for option, count in by_option.items():
        if option is not None:
            most[option[0]] = max(most.get(option[0], 0), count)
    return by_option[None] + sum(most.values())


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
    running = (one for one in prediction.pieces if sampled.is_cheapest(one.piece.option)[0])
    return [piece for piece in (piece_at(one, sizes) for one in running) if piece.runs]


def option_cost(program: Program, machine: Device, microkernels: Sequence[Microkernel]) -> Expr:
    """Return the seconds of a program without choices as a formula in its sizes, the call itself included.

    Raises TargetError if the machine's description has no table [grid].
    """
    prediction = grid_prediction(program, machine, microkernels)
    stages = [stage_formula(resources, 0.0) for resources in by_stage(prediction.pieces).values()]
    cycles = reduce(lambda a, b: Binary("+", a, b), stages, real(prediction.call))
    return Binary("*", cycles, real(1 / machine.hertz))
