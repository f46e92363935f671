"""The cost of a launch on a grid: waves of blocks over multiprocessors, in closed form over the sizes.

A launch has B blocks, each of P multiprocessors runs r of them at a time,
and all blocks together do W of one kind of work, at a rate per multiprocessor and cycle::

    busy(resource) = ceil(B / P) * W / B / rate          tensor core, lanes, shared memory, its share of L2
    waiting        = ceil(B / (P * r)) * latency         of a block alone: loads and barriers of its turns, one after the other
    main memory    = bytes of each array once, or what is moved of it if that is less, / (P * its share), if these do not fit L2
    launch         = max of these

Extents that differ from block to block count as in the first block; if they are trip counts of stages, or of blocks, as in the middle block. All
iterations of a loop count as its first one. Stages with terms at the border of a mask, which lanes add, are the first and the last ones of a block:
these are counted one by one, by the first and the last unit, and all others as the middle one. Warps run whole issues, in tails too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields

from offcut.core import index as ix
from offcut.core.dtypes import ITEM_BYTES
from offcut.core.expr import Binary, Compare, Expr, Select, loads, real, substitute, variables
from offcut.core.program import (
    COUNTED_UNITS,
    THREAD,
    Action,
    Alloc,
    Choose,
    For,
    If,
    Let,
    Program,
    Stmt,
    Store,
    Sync,
    Tile,
    walk,
)
from offcut.costmodel.closed.counts import Counts, Piece
from offcut.costmodel.closed.operations import operations, picojoules
from offcut.costmodel.closed.prediction import Predicted, joules
from offcut.costmodel.device import Accelerator, Grid, Memory
from offcut.costmodel.launch_loops import (
    count_blocks,
    count_statements,
    counted_iterations,
    inner_statements,
    trip_count,
    typical_iteration,
    with_bounds,
)
from offcut.costmodel.simplification import part_of_cheapest, simplify_cost
from offcut.describe.microkernel import Microkernel
from offcut.polyhedral.window_room import agent_count, window_rooms

TENSOR, LANES, WAITING = "tensor core", "lanes", "waiting"
"""Resources beside the memories, which have the names of their description."""
ZERO, ONE = ix.const(0), ix.const(1)


@dataclass
class Work:
    """The work of all blocks of a launch, as index expressions over the sizes.

    steps      multiply-adds of tensor cores, in whole issues
    operations of lanes, one element each
    shared     bytes that are read from and written to shared memory
    main       by array, bytes that are read from and written to main memory, through L2
    flop       floating-point operations of the program, without those of padding
    instances  of statements
    picojoules of the operations, in thousandths
    kernels    names of the microkernels that run, in the order of the text
    """

    steps: Expr = ZERO
    operations: Expr = ZERO
    shared: Expr = ZERO
    main: dict[str, Expr] = field(default_factory=dict)
    flop: Expr = ZERO
    instances: Expr = ZERO
    picojoules: Expr = ZERO
    kernels: dict[str, None] = field(default_factory=dict)

    def add(self, what: str, amount: Expr) -> None:
        """Add `amount` to the field named `what`."""
        setattr(self, what, ix.add(getattr(self, what), amount))

    def move(self, array: str, amount: Expr) -> None:
        """Add bytes of an array that are moved."""
        self.main[array] = ix.add(self.main.get(array, ZERO), amount)

    def add_cheapest(self, costs: Sequence[Expr], works: Sequence[Work]) -> None:
        """Add the work of the option whose cost is least."""
        self.kernels |= {name: None for work in works for name in work.kernels}
        for one in fields(self) if works else ():
            if one.name not in ("kernels", "main"):
                amounts = [getattr(work, one.name) for work in works]
                if any(amount != ZERO for amount in amounts):
                    self.add(one.name, part_of_cheapest(costs, amounts))
        for array in dict.fromkeys(name for work in works for name in work.main):
            amounts = [work.main.get(array, ZERO) for work in works]
            self.move(array, part_of_cheapest(costs, amounts))


@dataclass(frozen=True)
class LaunchCounter:
    """Counts the work of the launches of a program on a machine."""

    program: Program
    machine: Accelerator
    grid: Grid
    kernels: Mapping[str, Microkernel]

    def launch(self, stmt: Stmt, way: tuple[int, int] | None) -> Predicted:
        """Return the predicted cost of a launch.

        way  the number of a choice and of its option, if the launch is in one
        """
        work, bounded = Work(), with_bounds(stmt)
        self.count((bounded,), {}, ONE, work)
        machine, count = self.machine, self.machine.cores
        blocks = ix.maximum(count_blocks((stmt,), {}) or ONE, 1)
        share = Binary("/", real(ix.ceildiv(blocks, count)), real(blocks))

        def busy(amount: Expr, rate: float) -> Expr:
            return simplify_cost(Binary("*", Binary("*", real(amount), real(1 / rate)), share))

        shared, l2 = self.shared, machine.memory[-1]
        lanes = next((u.multiply_adds for u in machine.unit if "float32" in u.of), 1.0)
        resident = count * self.resident((stmt,))
        waves = real(ix.ceildiv(blocks, resident))
        has_work = Compare(">", work.instances, ZERO)
        latency = Binary("*", waves, self.latency((stmt,), {}, 1))
        moved = ix.add(*work.main.values(), ZERO)
        arrays = ix.add(*map(self.bytes_once, work.main, work.main.values()), ZERO)
        fits = Compare("<=", arrays, ix.const(l2.bytes * count))
        dram_bytes = Select(has_work, Select(fits, ZERO, arrays), ZERO)
        main = self.machine.dram
        resources = {
            TENSOR: busy(work.steps, self.tensor_rate(work.kernels)),
            LANES: busy(work.operations, lanes),
            shared.name: busy(work.shared, shared.bytes_per_cycle),
            l2.name: busy(moved, l2.bytes_per_cycle),
            main.name: Binary("*", real(dram_bytes), real(1 / (main.bytes_per_cycle * count))),
            WAITING: Select(has_work, latency, real(0.0)),
        }
        resources = {name: simplify_cost(cycles) for name, cycles in resources.items()}
        cache_bytes = {memory.name: moved for memory in machine.memory[1:]}  # through caches
        bytes_ = {shared.name: work.shared, **cache_bytes, main.name: dram_bytes}
        stores = [store.buffer for store in walk((stmt,)) if isinstance(store, Store)]
        piece = Piece(stores[-1], "whole", (), next(iter(work.kernels), None), way)
        counts = Counts(
            runs=Select(has_work, ONE, ZERO),
            instances=work.instances,
            flop=work.flop,
            instructions=ZERO,
            picojoules=work.picojoules,
        )
        energy = joules(work.picojoules, bytes_, machine)
        return Predicted(piece, counts, resources, bytes_, energy)

    def count(
        self, body: Sequence[Stmt], values: Mapping[str, Expr], times: Expr, work: Work
    ) -> None:
        """Add the work of statements that run `times` times.

        values  of the iterators around: the first value of each
        """
        for stmt in body:
            match stmt:
                case For(name, lo, hi, inner):
                    lo, hi = substitute(lo, values), substitute(hi, values)
                    trips = ix.maximum(ix.sub(hi, lo), 0)
                    for at, often in counted_iterations(stmt, lo, hi, trips):
                        self.count(inner, {**values, name: at}, ix.mul(times, often), work)
                case If(condition, then, other):
                    holds = substitute(condition, values)
                    if self.is_of_sizes(condition):
                        self.count(then, values, Select(holds, times, ZERO), work)
                        self.count(other, values, Select(holds, ZERO, times), work)
                    else:
                        self.count(*inner_statements(stmt, values), times, work)
                case Let() | Alloc():
                    self.count(*inner_statements(stmt, values), times, work)
                case Choose(options):
                    works = [Work() for _ in options]
                    for option, own in zip(options, works, strict=True):
                        self.count(option.body, values, times, own)
                    work.add_cheapest([substitute(one.cost, values) for one in options], works)
                case Tile(axes, inner):
                    starts = {a.iter: substitute(a.start, values) for a in axes}
                    if self.is_product(stmt):
                        kernel = self.kernels[stmt.microkernel or ""]
                        self.product(stmt, {**values, **starts}, times, work, kernel)
                        continue
                    extents = (ix.maximum(substitute(a.extent, values), 0) for a in axes)
                    often, before = ix.product((times, *extents)), work.operations
                    self.count(inner, {**values, **starts}, often, work)
                    if self.is_background_copy(stmt):
                        work.operations = before
                case Store():
                    self.store(stmt, times, work)
                case Sync():
                    pass

    @property
    def shared(self) -> Memory:
        """Return the memory of a block's windows: the nearest."""
        return self.machine.memory[0]

    def is_background_copy(self, tile: Tile) -> bool:
        """Return whether a tile is copied without an operation of a lane for each element."""
        kernel = self.kernels.get(tile.microkernel or "")
        return kernel is not None and kernel.reducer is None and kernel.issue == "async"

    def is_product(self, tile: Tile) -> bool:
        """Return whether a microkernel that reduces runs a tile."""
        kernel = self.kernels.get(tile.microkernel or "")
        return kernel is not None and kernel.reducer is not None

    def is_of_sizes(self, condition: Expr) -> bool:
        """Return whether a condition is about sizes alone: it holds for all blocks or for none."""
        return variables(condition) <= {size.name for size in self.program.sizes}

    def product(
        self,
        tile: Tile,
        values: Mapping[str, Expr],
        times: Expr,
        work: Work,
        kernel: Microkernel,
    ) -> None:
        """Add the work of a product of a tile, in whole issues of the hardware: of tensor cores, else of lanes.

        Each issue of a warpgroup reads both operands from shared memory, which binds those of few columns.
        """
        work.kernels[kernel.name] = None
        types = {tensor.dtype for tensor in kernel.definition.reads}
        units = [u for u in self.machine.unit if types & {*u.of}]
        on_lanes = not any(u.name.startswith(TENSOR) for u in units)
        unit = (units or [*self.machine.unit])[0]
        rows, columns = (ix.maximum(substitute(a.extent, values), 0) for a in tile.axes[-2:])
        issue = kernel.extents_of(kernel.rows).multiple_of if self.is_grouped(kernel) else unit.rows
        issues = ix.ceildiv(rows, issue)
        whole_rows = ix.mul(issues, issue)
        whole_columns = ix.mul(ix.ceildiv(columns, unit.columns), unit.columns)
        for stmt in tile.body:
            inner = stmt
            terms: Expr = ONE
            while isinstance(inner, For):
                terms = ix.mul(terms, trip_count(inner, values))
                inner = inner.body[0]
            assert isinstance(inner, Store)
            instances = ix.product((rows, columns, terms, times))
            work.add("instances", instances)
            if inner.reduce is None:
                continue
            whole_terms = ix.mul(ix.ceildiv(terms, unit.terms), unit.terms)
            steps = ix.product((whole_rows, whole_columns, whole_terms, times))
            work.add("operations" if on_lanes else "steps", steps)
            work.add("flop", ix.mul(operations(inner), instances))
            self.energy(inner, instances, work)
            item = max((ITEM_BYTES[load.dtype] for load, _ in loads(inner.value)), default=2)
            reads = ix.mul(issues, whole_columns) if self.is_grouped(kernel) else whole_columns
            elements = ix.mul(ix.add(whole_rows, reads), whole_terms)
            work.add("shared", ix.product((elements, item, times)))

    def is_grouped(self, kernel: Microkernel) -> bool:
        """Return whether a warpgroup runs a microkernel."""
        return kernel.unit == "warpgroup"

    def store(self, store: Store, times: Expr, work: Work) -> None:
        """Add the work of a statement that lanes run `times` times."""
        work.add("instances", times)
        work.add("flop", ix.mul(operations(store), times))
        work.add("operations", ix.mul(operations(store) + 1, times))
        self.energy(store, times, work)
        arrays = [load.buffer for load in dict.fromkeys(load for load, _ in loads(store.value))]
        for name in (*arrays, store.buffer):
            buffer = self.program.buffer(name)
            if buffer.scope is None and not self.is_window(name):
                work.move(name, ix.mul(ITEM_BYTES[buffer.dtype], times))
            elif buffer.scope is not None:
                work.add("shared", ix.mul(ITEM_BYTES[buffer.dtype], times))

    def is_window(self, name: str) -> bool:
        """Return whether the program has windows of a buffer."""
        return any(isinstance(s, Alloc) and s.buffer == name for s in walk(self.program))

    def energy(self, store: Store, instances: Expr, work: Work) -> None:
        """Add the picojoules of the instances of a statement, if the machine describes energy."""
        if self.machine.energy is not None:
            each = round(1000 * picojoules(store, self.program, self.machine.energy))
            work.add("picojoules", ix.mul(each, instances))

    def tensor_rate(self, kernels: Mapping[str, None]) -> float:
        """Return the multiply-adds per cycle of a multiprocessor's tensor cores, for the element types of these microkernels."""
        types = {t.dtype for name in kernels for t in self.kernels[name].definition.reads}
        rates = (u.multiply_adds for u in self.machine.unit if types & {*u.of})
        return max(rates, default=1.0)

    def bytes_once(self, array: str, moved: Expr) -> Expr:
        """Return the bytes of an array of main memory, each once, or those that are moved, if they are fewer."""
        buffer = self.program.buffer(array)
        return ix.minimum(ix.product((ITEM_BYTES[buffer.dtype], *buffer.shape)), moved)

    def resident(self, body: Sequence[Stmt]) -> int:
        """Return the number of blocks that run on a multiprocessor at a time, as shared memory, warps and its own limit allow."""
        rooms = [
            room
            for stmt in body
            for room in window_rooms(self.program, stmt, self.shared.name, COUNTED_UNITS)
        ]
        shared = sum(room.bytes or 0 for room in rooms)
        fits = self.shared.bytes // shared if shared else self.grid.blocks
        if any(agent_count(self.program, stmt, "warpgroup") for stmt in body):
            return 1  # warpgroups split all registers
        warps = max([1, *(self.warps(stmt) for stmt in body)])
        return max(min(fits, self.grid.warps // warps, self.grid.blocks), 1)

    def warps(self, stmt: Stmt) -> int:
        """Return the warps of a block: those that loops are bound to, or threads by 32."""
        threads = agent_count(self.program, stmt, THREAD) or 0
        groups = agent_count(self.program, stmt, "warpgroup") or 0
        return max(agent_count(self.program, stmt, "warp") or 0, 4 * groups, -(-threads // 32))

    def product_cycles(self, tile: Tile) -> float:
        """Return the cycles for which a warpgroup waits for its product of a stage, at most; 0 of products that are not in the background."""
        kernel = self.kernels[tile.microkernel or ""]
        loop = next((one for one in walk(tile.body) if isinstance(one, For)), None)
        if not self.is_grouped(kernel) or loop is None:
            return 0.0
        widest = max(one.columns for one in kernel.tiles)
        columns = min(ix.literal_bound(tile.axes[-1].extent) or widest, widest)
        issue = next(one for one in kernel.tiles if one.columns >= columns)
        return issue.cycles * (ix.literal_bound(ix.sub(loop.hi, loop.lo)) or kernel.at_once)

    def latency(self, body: Sequence[Stmt], values: Mapping[str, Expr], depth: int) -> Expr:
        """Return the cycles from the begin to the end of a block that has its multiprocessor for itself.

        depth  of the ring of windows around: as many loads are in flight
        """
        total: Expr = real(0.0)
        far, near = self.machine.memory[-1].latency_cycles, self.shared.latency_cycles
        for stmt in body:
            inner: Expr | None = None
            match stmt:
                case For(name, lo, _, inner_body, unit=unit):
                    trips = trip_count(stmt, values)
                    first = substitute(lo, values)
                    inner_values = {**values, name: typical_iteration(stmt, first, trips)}
                    if unit in _LANES and not any(
                        isinstance(child, Tile | Alloc) for child in walk(inner_body)
                    ):
                        steps = count_statements(inner_body, inner_values)
                        inner = Binary("*", real(steps), real(_STEP_CYCLES / _LANES[unit]))
                        inner = Binary("+", inner, real(far))
                    else:
                        inner = self.latency(inner_body, inner_values, depth)
                    if unit is None and inner != real(0.0):
                        inner = Binary("*", real(trips), inner)
                case If() | Let() | Alloc():
                    deeper = max(depth, stmt.depth) if isinstance(stmt, Alloc) else depth
                    inner = self.latency(*inner_statements(stmt, values), deeper)
                case Choose(options) if options:
                    costs = [substitute(one.cost, values) for one in options]
                    parts = [self.latency(one.body, values, depth) for one in options]
                    inner = part_of_cheapest(costs, parts)
                case Tile() if self.is_product(stmt):
                    inner = real(near + self.product_cycles(stmt))
                case Tile() | Store():
                    inner = real(far / depth)
                case Sync(action=Action.BARRIER | Action.WAIT | Action.WAIT_GROUP):
                    inner = real(self.grid.barrier_cycles)
            if inner is not None and inner != real(0.0):
                total = inner if total == real(0.0) else Binary("+", total, inner)
        return total


_LANES = {"warpgroup": 128, "warp": 32, "thread": 1}
"""Lanes of each unit of a block, side by side."""
_STEP_CYCLES = 8.0
"""Cycles of a lane between a statement and the next one, which needs its value."""
