"""The cost of a launch on a grid: waves of blocks over multiprocessors, in closed form over the sizes.

A launch has B blocks, each of P multiprocessors runs r of them at a time,
and all blocks together do W of one kind of work, at a rate per multiprocessor and cycle::

    busy(resource) = ceil(B / P) * W / B / rate          tensor core, lanes, shared memory, its share of L2
    waiting        = ceil(B / (P * r)) * latency         of a block alone: loads and barriers of its turns, one after the other
    main memory    = bytes of each array once, or what is moved of it if that is less, / (P * its share), if these do not fit L2
    launch         = max of these

All blocks count as the first one; as the middle one where their trip counts depend on the block. What runs inside of a block is summed over its
loops in closed form, else estimated by the last iteration of a loop and the middle one of the others; stages with terms at the border of a mask,
which lanes add, are counted one by one (`launch_blocks`). Warps run whole issues, in tails too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import partial

from offcut.core import index as ix
from offcut.core.dtypes import ITEM_BYTES
from offcut.core.expr import (
    Binary,
    Compare,
    Const,
    Expr,
    Select,
    loads,
    reads_memory,
    real,
    rewrite,
    substitute,
)
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
from offcut.core.scan import ScanContext
from offcut.core.traversal import map_blocks
from offcut.costmodel.closed.count_loops import inside_loop
from offcut.costmodel.closed.counting import with_divisor, with_known_ends
from offcut.costmodel.closed.counts import Counts, Piece
from offcut.costmodel.closed.operations import operations, picojoules
from offcut.costmodel.closed.prediction import Predicted, joules
from offcut.costmodel.closed.summation import NoClosedForm, half_way, sum_over
from offcut.costmodel.device import Accelerator, Grid, Memory
from offcut.costmodel.launch_blocks import (
    block_iteration,
    count_blocks,
    sampled_iterations,
    with_bounds,
)
from offcut.costmodel.simplification import (
    drop_decided_conditions,
    part_of_cheapest,
    simplify_cost,
    simplify_index,
)
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

    def mapped(self, change: Callable[[Expr], Expr]) -> Work:
        """Return the work with each amount changed."""
        return combine_work([self], lambda amounts: change(amounts[0]))


def combine_work(works: Sequence[Work], change: Callable[[Sequence[Expr]], Expr]) -> Work:
    """Return the work whose amounts are made of those of others; of no work, nothing."""
    total = Work(kernels={name: None for work in works for name in work.kernels})
    for one in fields(Work) if works else ():
        if one.name not in ("kernels", "main"):
            amounts = [getattr(work, one.name) for work in works]
            setattr(total, one.name, change(amounts) if any(a != ZERO for a in amounts) else ZERO)
    for array in dict.fromkeys(name for work in works for name in work.main):
        total.main[array] = change([work.main.get(array, ZERO) for work in works])
    return total


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
        (stmt,) = with_known_ends(_with_elements((stmt,)))
        work = self.count((with_bounds(stmt),), {}, ScanContext.of(self.program.sizes))
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
        ticks = self.latency((stmt,), {}, ScanContext.of(self.program.sizes), 1)
        latency = Binary("*", waves, Binary("*", real(ticks), real(1 / TICKS)))
        volume = ix.add(*work.main.values(), ZERO)
        arrays = ix.add(*map(self.bytes_once, work.main, work.main.values()), ZERO)
        fits = Compare("<=", arrays, ix.const(l2.bytes * count))
        dram_bytes = Select(has_work, Select(fits, ZERO, arrays), ZERO)
        main = self.machine.dram
        resources = {
            TENSOR: busy(work.steps, self.tensor_rate(work.kernels)),
            LANES: busy(work.operations, lanes),
            shared.name: busy(work.shared, shared.bytes_per_cycle),
            l2.name: busy(volume, l2.bytes_per_cycle),
            main.name: Binary("*", real(dram_bytes), real(1 / (main.bytes_per_cycle * count))),
            WAITING: Select(has_work, latency, real(0.0)),
        }
        resources = {name: simplify_cost(cycles) for name, cycles in resources.items()}
        cache_bytes = {memory.name: volume for memory in machine.memory[1:]}  # through caches
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

    def count(self, body: Sequence[Stmt], values: Mapping[str, Expr], known: ScanContext) -> Work:
        """Return the work of one run of statements, over the iterators around.

        values  of bounded values, and of the iterators of blocks around
        """
        works = [self.statement(stmt, values, known) for stmt in body]
        return combine_work(works, lambda amounts: ix.add(*amounts, ZERO))

    def statement(self, stmt: Stmt, values: Mapping[str, Expr], known: ScanContext) -> Work:
        """Return the work of one run of a statement, over the iterators around."""
        match stmt:
            case For(name, lo, hi, inner):
                lo, hi = substitute(lo, values), substitute(hi, values)
                works = list[Work]()
                for at, often in sampled_iterations(stmt, lo, hi):
                    each = self.count(inner, {**values, name: at}, known)
                    works.append(each.mapped(partial(ix.mul, often)))
                if works:
                    return combine_work(works, lambda amounts: ix.add(*amounts))
                work = self.count(inner, values, inside_loop(known, name, lo, hi))
                return work.mapped(lambda each: _total(name, lo, hi, each, known))
            case If(condition, then, other):
                holds = drop_decided_conditions(substitute(condition, values))
                if isinstance(holds, Const):
                    return self.count(then if holds.value else other, values, known)
                sides = [self.count(side, values, known) for side in (then, other)]
                if reads_memory(holds):
                    return combine_work(sides, lambda amounts: ix.add(*amounts))
                return combine_work(sides, lambda amounts: Select(holds, *amounts))
            case Let(name, _, _, value, inner):
                inside = {**values, name: rewrite(substitute(value, values), with_divisor)}
                return self.count(inner, inside, known)
            case Alloc(body=inner):
                return self.count(inner, values, known)
            case Choose(options):
                costs = [substitute(one.cost, values) for one in options]
                works = [self.count(one.body, values, known) for one in options]
                return combine_work(works, lambda amounts: part_of_cheapest(costs, amounts))
            case Tile() if self.is_product(stmt):
                return self.product(stmt, values, self.kernels[stmt.microkernel or ""])
            case Tile():
                return self.tile(stmt, values, known)
            case Store():
                return self.store(stmt)
            case Sync():
                return Work()

    def tile(self, tile: Tile, values: Mapping[str, Expr], known: ScanContext) -> Work:
        """Return the work of a tile that no product covers: of all its instances."""
        loops = list[tuple[str, Expr, Expr, ScanContext]]()
        for axis in tile.axes:
            lo = substitute(axis.start, values)
            hi = ix.add(lo, substitute(axis.extent, values))
            loops.append((axis.iter, lo, hi, known))
            known = inside_loop(known, axis.iter, lo, hi)
        work = self.count(tile.body, values, known)
        if self.is_background_copy(tile):
            work.operations = ZERO
        for name, lo, hi, around in reversed(loops):
            work = work.mapped(partial(_total, name, lo, hi, known=around))
        return work

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

    def product(self, tile: Tile, values: Mapping[str, Expr], kernel: Microkernel) -> Work:
        """Return the work of a product of a tile, in whole issues of the hardware: of tensor cores, else of lanes.

        Each issue of a warpgroup reads both operands from shared memory, which binds those of few columns.
        """
        work = Work(kernels={kernel.name: None})
        starts = {axis.iter: substitute(axis.start, values) for axis in tile.axes}
        inside = {**values, **starts}
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
                ends = (substitute(end, inside) for end in (inner.hi, inner.lo))
                terms = ix.mul(terms, ix.maximum(ix.sub(*ends), 0))
                inner = inner.body[0]
            assert isinstance(inner, Store)
            instances = ix.product((rows, columns, terms))
            work.add("instances", instances)
            if inner.reduce is None:
                continue
            whole_terms = ix.mul(ix.ceildiv(terms, unit.terms), unit.terms)
            steps = ix.product((whole_rows, whole_columns, whole_terms))
            work.add("operations" if on_lanes else "steps", steps)
            work.add("flop", ix.mul(operations(inner), instances))
            self.energy(inner, instances, work)
            item = max((ITEM_BYTES[load.dtype] for load, _ in loads(inner.value)), default=2)
            reads = ix.mul(issues, whole_columns) if self.is_grouped(kernel) else whole_columns
            elements = ix.mul(ix.add(whole_rows, reads), whole_terms)
            work.add("shared", ix.mul(elements, item))
        return work

    def is_grouped(self, kernel: Microkernel) -> bool:
        """Return whether a warpgroup runs a microkernel."""
        return kernel.unit == "warpgroup"

    def store(self, store: Store) -> Work:
        """Return the work of one instance of a statement that lanes run."""
        flop = operations(store)
        work = Work(instances=ONE, flop=ix.const(flop), operations=ix.const(flop + 1))
        self.energy(store, ONE, work)
        arrays = [load.buffer for load in dict.fromkeys(load for load, _ in loads(store.value))]
        for name in (*arrays, store.buffer):
            buffer = self.program.buffer(name)
            if buffer.scope is None and not self.is_window(name):
                work.move(name, ix.const(ITEM_BYTES[buffer.dtype]))
            elif buffer.scope is not None:
                work.add("shared", ix.const(ITEM_BYTES[buffer.dtype]))
        return work

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

    def bytes_once(self, array: str, volume: Expr) -> Expr:
        """Return the bytes of an array of main memory, each once, or those that are moved, if they are fewer."""
        buffer = self.program.buffer(array)
        return ix.minimum(ix.product((ITEM_BYTES[buffer.dtype], *buffer.shape)), volume)

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

    def latency(
        self, body: Sequence[Stmt], values: Mapping[str, Expr], known: ScanContext, depth: int
    ) -> Expr:
        """Return the ticks from the start to the end of a block that has its multiprocessor for itself, over the iterators around.

        values  of bounded values, and of the iterators of units around: of blocks as they are counted, of others the first
        depth   of the ring of windows around: as many loads are in flight
        """
        each = (self.latency_of(stmt, values, known, depth) for stmt in body)
        return ix.add(*each, ZERO)

    def latency_of(
        self, stmt: Stmt, values: Mapping[str, Expr], known: ScanContext, depth: int
    ) -> Expr:
        """Return the ticks of a statement, as `latency` does."""
        far, near = self.machine.memory[-1].latency_cycles, self.shared.latency_cycles
        match stmt:
            case For(name, lo, hi, inner, unit=unit):
                lo, hi = substitute(lo, values), substitute(hi, values)
                at = {**values, name: block_iteration(stmt, lo, hi) if unit == "block" else lo}
                if unit in _LANES and not any(isinstance(one, Tile | Alloc) for one in walk(inner)):
                    steps = self.count(inner, at, known).instances
                    return ix.add(ix.mul(steps, _ticks(_STEP_CYCLES / _LANES[unit])), _ticks(far))
                if unit is not None:
                    return self.latency(inner, at, known, depth)
                each = self.latency(inner, values, inside_loop(known, name, lo, hi), depth)
                return _total(name, lo, hi, each, known)
            case If(condition, then, other):
                holds = drop_decided_conditions(substitute(condition, values))
                sides = [self.latency(side, values, known, depth) for side in (then, other)]
                if isinstance(holds, Const):
                    return sides[0 if holds.value else 1]
                return ix.add(*sides) if reads_memory(holds) else Select(holds, *sides)
            case Let(name, _, _, value, inner):
                inside = {**values, name: rewrite(substitute(value, values), with_divisor)}
                return self.latency(inner, inside, known, depth)
            case Alloc(body=inner):
                return self.latency(inner, values, known, max(depth, stmt.depth))
            case Choose(options):
                costs = [substitute(one.cost, values) for one in options]
                parts = [self.latency(one.body, values, known, depth) for one in options]
                return part_of_cheapest(costs, parts) if parts else ZERO
            case Tile() if self.is_product(stmt):
                return _ticks(near + self.product_cycles(stmt))
            case Tile() | Store():
                return _ticks(far / depth)
            case Sync(action=Action.BARRIER | Action.WAIT | Action.WAIT_GROUP):
                return _ticks(self.grid.barrier_cycles)
            case Sync():
                return ZERO


def _total(name: str, lo: Expr, hi: Expr, each: Expr, known: ScanContext) -> Expr:
    """Return an amount of all iterations of a loop inside of a block: in closed form; added up, of few; else as many as the last one and the
    middle one of the others say.
    """
    try:
        return sum_over(name, lo, hi, each, known)
    except NoClosedForm:
        count = ix.literal_value(ix.sub(hi, lo))
        if count is None or count > MAX_ADDED_ITERATIONS:
            return half_way(name, lo, hi, each, known)
        terms = (substitute(each, {name: ix.add(lo, step)}) for step in range(count))
        return ix.add(*map(simplify_index, terms), ZERO)


def _ticks(cycles: float) -> Expr:
    return ix.const(round(cycles * TICKS))


MAX_ADDED_ITERATIONS = 16
"""Maximum number of iterations of a loop that are added up one by one: those of the warps of a block."""
TICKS = 1 << 10
"""Ticks in a cycle: of whole ones, sums over loops are those of any other count."""
_LANES = {"warpgroup": 128, "warp": 32, "thread": 1}
"""Lanes of each unit of a block, side by side."""
_STEP_CYCLES = 8.0
"""Cycles of a lane between a statement and the next one, which needs its value."""


def _with_elements(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    """Return a block in which conditions on elements of arrays hold: no size says how many blocks a length leaves without work."""
    result: tuple[Stmt, ...] = ()
    for stmt in body:
        if isinstance(stmt, If) and not stmt.other and reads_memory(stmt.condition):
            result += _with_elements(stmt.then)
        else:
            result += (map_blocks(stmt, _with_elements),)
    return result
