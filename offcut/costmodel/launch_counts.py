"""The work of the launches of a program on a grid of blocks, and how long a block takes that has its multiprocessor for itself.

All blocks count as the first one; as the middle one where their trip counts depend on the block. What runs inside of a block is summed over its
loops in closed form, else estimated by the last iteration of a loop and the middle one of the others; stages with terms at the border of a mask,
which lanes add, are counted one by one. Warps run whole issues, in tails too.

Units of a block run side by side: a loop over them takes the time of the first one, and the work of all.

The blocks of a launch, and iterations of its loops that stand for others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from offcut.core import index as ix
from offcut.core.analysis import last_stored
from offcut.core.conditions import conjuncts
from offcut.core.dtypes import ITEM_BYTES
from offcut.core.expr import Compare, Expr, Select, loads, reads_memory, substitute, variables
from offcut.core.program import (
    GROUPED_UNITS,
    LANES_OF_UNIT,
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
    blocks,
    walk,
)
from offcut.core.traversal import map_blocks, substitute_coordinates
from offcut.costmodel.closed.count_loops import BytesOf, Scope, Tally, inside_loop
from offcut.costmodel.closed.count_programs import ProgramCounts, bounded_value
from offcut.costmodel.closed.count_statements import operations, picojoules
from offcut.costmodel.closed.counting import known_part, with_known_ends
from offcut.costmodel.closed.counts import Counted, Counts, Piece
from offcut.costmodel.closed.sums import SumMethod
from offcut.costmodel.device import Accelerator, Grid, Memory
from offcut.costmodel.simplification import part_of_cheapest, select
from offcut.describe.microkernel import Microkernel
from offcut.proof.normal_forms.condition_hoisting import bound

MAX_BORDER_STAGES = 4
"""Maximum number of stages at each end of a loop that are counted one by one."""


def with_bounds(loop: For) -> For:
    """Return a loop over blocks with its bounds, and those of such loops in it, tightened by the conditions around all that is inside."""
    match loop.body:
        case (If(condition, then, ()),):
            limits = [bound(atom, loop.iter) for atom in conjuncts(condition)]
            known = [limit for limit in limits if limit is not None]
            if len(known) == len(limits):
                lo, hi = loop.lo, loop.hi
                for limit in known:
                    if limit.op == ">=":
                        lo = ix.maximum(lo, limit.b)
                    else:
                        hi = ix.minimum(hi, limit.b)
                return replace(loop, lo=lo, hi=hi, body=then)
    inner = (with_bounds(s) if isinstance(s, For) and s.unit == "block" else s for s in loop.body)
    return replace(loop, body=tuple(inner))


def sampled_iterations(loop: For, lo: Expr, hi: Expr) -> list[tuple[Expr, Expr]]:
    """Return iterations of a loop, each with the number of iterations that it stands for; none if the loop is summed.

    A loop over blocks counts as one of them. Around stages at the border of a mask no sum is closed: these stages are counted one by one;
    of a loop over units, the first and the last iteration stand for half each.
    """
    trips = ix.maximum(ix.sub(hi, lo), 0)
    if loop.unit == "block":
        return [(block_iteration(loop, lo, hi), trips)]
    border = [one for one in walk(loop.body) if isinstance(one, Tile) and _is_border(one)]
    if not border:
        return []
    if loop.unit is not None:
        return [(lo, ix.ceildiv(trips, 2)), (ix.sub(hi, 1), ix.floordiv(trips, 2))]
    sums = (one.body[0] for one in border)
    bounds = [variables(one.lo) | variables(one.hi) for one in sums if isinstance(one, For)]
    if not any(loop.iter in names for names in bounds):
        return [(lo, trips)]
    edge = _border_stages(loop, border[0])
    middle = ix.add(lo, ix.floordiv(trips, 2))
    counts = [(middle, ix.maximum(ix.sub(trips, 2 * edge), 0))]
    for number in range(edge):
        has_last, has_first = (
            Compare(">", trips, ix.const(number)),
            Compare(">", trips, ix.const(number + edge)),
        )
        counts.append((ix.sub(hi, number + 1), Select(has_last, ONE, ZERO)))
        counts.append((ix.add(lo, number), Select(has_first, ONE, ZERO)))
    return counts


def _is_border(tile: Tile) -> bool:
    """Return whether a tile is at the border of a mask: its terms are added under a condition."""
    match tile.body:
        case (For(_, _, _, (If(_, (Store(reduce=str()),), ()),)),):
            return tile.cover is None
    return False


def _border_stages(loop: For, tile: Tile) -> int:
    """Return the maximum number of border stages at an end of a loop: those crossed by the rows of a block, plus one."""
    rows = max((ix.literal_bound(axis.extent) or 1 for axis in tile.axes[:-1]), default=1)
    for one in walk(loop.body):
        if isinstance(one, For) and one.unit is not None:
            rows *= ix.literal_bound(ix.sub(one.hi, one.lo)) or 1
    products = (one.body[0] for one in walk(loop.body) if isinstance(one, Tile) and one.cover)
    terms = (ix.literal_bound(ix.sub(one.hi, one.lo)) for one in products if isinstance(one, For))
    return min(-(-rows // max((one or 1 for one in terms), default=rows)) + 1, MAX_BORDER_STAGES)


def block_iteration(loop: For, lo: Expr, hi: Expr) -> Expr:
    """Return the iteration of a loop over blocks that stands for all: the middle one if inner bounds depend on the iterator, else the first."""
    ends = (
        stmt
        for stmt in walk(loop.body)
        if isinstance(stmt, For)
        and stmt.unit in (None, "block")
        and loop.iter in variables(stmt.lo) | variables(stmt.hi)
    )
    if not any(ends):
        return lo
    return ix.add(lo, ix.floordiv(ix.maximum(ix.sub(ix.sub(hi, lo), 1), 0), 2))


def count_blocks(body: Sequence[Stmt], values: Mapping[str, Expr]) -> Expr | None:
    """Return the number of blocks that run statements; None if no loop is bound to blocks.

    values  of the iterators of blocks around, and of bounded values
    """
    counts = [count for stmt in body if (count := _blocks_of(stmt, values)) is not None]
    return ix.add(*counts) if counts else None


def _blocks_of(stmt: Stmt, values: Mapping[str, Expr]) -> Expr | None:
    match stmt:
        case For(name, lo, hi, inner, unit="block"):
            lo, hi = substitute(lo, values), substitute(hi, values)
            each = count_blocks(inner, {**values, name: block_iteration(stmt, lo, hi)})
            count = ix.maximum(ix.sub(hi, lo), 0)
            return count if each is None else ix.mul(count, each)
        case Let(name, _, _, value, inner):
            own = bounded_value(substitute(value, values))
            return count_blocks(inner, {**values, name: own})
        case Choose(options):
            counts = [count_blocks(option.body, values) for option in options]
            if all(one is None for one in counts):
                return None
            costs = [substitute(option.cost, values) for option in options]
            return part_of_cheapest(costs, [ix.const(1) if one is None else one for one in counts])
        case _:
            return count_blocks([one for block in blocks(stmt) for one in block], values)


TENSOR, LANES, WAITING = "tensor core", "lanes", "waiting"
"""Work beside that of the memories: multiply-adds in whole issues; operations of lanes; ticks of a block alone, for its loads and barriers."""
MAIN = "main "
"""Before the name of an array: bytes of it that are read from and written to main memory, through L2."""
TICKS = 1 << 10
"""Ticks in a cycle: of whole ones, sums over loops are those of any other count."""
ASSUMED_TRIPS = 64
"""Iterations that are assumed of a loop whose bounds are elements of arrays alone."""
ZERO, ONE = ix.const(0), ix.const(1)
_STEP_CYCLES = 8.0
"""Cycles of a lane between a statement and the next one, which needs its value."""


class LaunchCounts(ProgramCounts):
    """Counts of the launches of a program, a piece each.

    launches  the statement of each piece
    """

    assumed_trips = ASSUMED_TRIPS

    def __init__(
        self,
        program: Program,
        machine: Accelerator,
        grid: Grid,
        kernels: Mapping[str, Microkernel],
    ) -> None:
        super().__init__(program, (), {}, {}, {}, BytesOf.NOTHING)
        self.machine, self.grid, self.kernels = machine, grid, kernels
        self.windows = {one.buffer for one in walk(program) if isinstance(one, Alloc)}
        self.launches: list[Stmt] = []

    def counted_program(self) -> Counted:
        """Return what all launches count."""
        return self.counts_by_piece(with_known_ends(_with_all_elements(self.program.body)))

    @property
    def methods(self) -> Sequence[SumMethod]:
        """Return the methods to sum counts."""
        return (SumMethod.NEAR,)

    @property
    def shared_memory(self) -> Memory:
        """Return the memory of a block's windows: the nearest."""
        return self.machine.memory[0]

    def piece_of(self, stmt: Stmt, scope: Scope) -> Piece | None:
        """Return the piece of a launch: of all but a choice, whose options have launches, and a barrier, which ends one."""
        if isinstance(stmt, Choose | Sync):
            return None
        self.launches.append(stmt)
        kernel = next((kernel.name for kernel in self.product_kernels(stmt)), None)
        return Piece(last_stored(stmt), "whole", (), kernel, scope.option)

    def product_kernels(self, launch: Stmt) -> tuple[Microkernel, ...]:
        """Return the microkernels that add up products in a launch, in the order of the text."""
        tiles = (one for one in walk((launch,)) if isinstance(one, Tile))
        kernels = (self.kernels.get(tile.microkernel or "") for tile in tiles)
        reducing = [one for one in kernels if one is not None and one.reducer is not None]
        return tuple({one.name: one for one in reducing}.values())

    def for_loop(self, stmt: For, scope: Scope) -> Tally:
        """Return the counts of all iterations of a loop."""
        if stmt.unit == "block":
            stmt = with_bounds(stmt)
        name, lo, hi = stmt.iter, self.bound(stmt.lo), self.bound(stmt.hi, stmt.lo)
        if samples := sampled_iterations(stmt, lo, hi):
            bodies = [substitute_coordinates(stmt.body, {name: at}) for at, _ in samples]
            first, *others = (_counts_of(self.block(body, scope)) for body in bodies)
            total = Counts()
            for each, (_, often) in zip((first, *others), samples, strict=True):
                total = total.plus(each.map(partial(ix.mul, often)))
            every = self.tally(total, scope)
        else:
            inside = replace(scope, known=inside_loop(scope.known, name, lo, hi))
            body = self.block(stmt.body, inside)
            every = self.loop(name, lo, hi, body, scope.known)
            first = _counts_of(body).map(lambda count: substitute(count, {name: lo}))
        if stmt.unit is None:
            return every
        return self.tally(
            _with_work(_counts_of(every), {WAITING: self.latency(stmt, first)}), scope
        )

    def latency(self, loop: For, first: Counts) -> Expr:
        """Return the ticks of a loop over units.

        first  the counts of its first iteration
        """
        lanes = LANES_OF_UNIT.get(loop.unit or "")
        if lanes is None or any(isinstance(one, Tile | Alloc) for one in walk(loop.body)):
            return first.work.get(WAITING, ZERO)
        return ix.add(ix.mul(first.instances, _ticks(_STEP_CYCLES / lanes)), self.far_ticks(1))

    def far_ticks(self, depth: int) -> Expr:
        """Return the ticks of a load from the farthest cache, of which so many are in flight."""
        return _ticks(self.machine.memory[-1].latency_cycles / depth)

    def count_bounded_value(self, let: Let, scope: Scope) -> Tally:
        """Return the counts inside of a bounded value, in terms of what it is bound to."""
        value = bounded_value(let.value)
        return self.block(substitute_coordinates(let.body, {let.name: value}), scope)

    def alloc(self, stmt: Alloc, scope: Scope) -> Tally:
        """Return the counts inside of a window."""
        return self.block(stmt.body, replace(scope, depth=max(scope.depth, stmt.depth)))

    def sync(self, stmt: Sync, scope: Scope) -> Tally:
        """Return the counts of a meeting of the units of a block."""
        if scope.piece is None or stmt.action not in _MEETINGS:
            return super().sync(stmt, scope)
        return self.tally(Counts(work={WAITING: _ticks(self.grid.barrier_cycles)}), scope)

    def seconds(self, cost: Expr) -> float | None:
        """Return None: a plan lists all options, whatever they cost."""
        return None

    def choose(self, stmt: Choose, scope: Scope) -> Tally:
        """Return the counts of the cheapest option of a choice inside of a launch; those of all options of any other."""
        if scope.piece is None:
            return super().choose(stmt, scope)
        first, *others = stmt.options
        least, counts = first.cost, _counts_of(self.block(first.body, scope))
        for option in others:
            is_less = Compare("<", option.cost, least)
            other = _counts_of(self.block(option.body, scope))
            counts = other.combine(counts, partial(select, is_less))
            least = Select(is_less, option.cost, least)
        return self.tally(counts, scope)

    def tile_of(self, tile: Tile, scope: Scope) -> Tally:
        """Return the counts of a tile: of a product of its microkernel, else of all its instances."""
        kernel = self.kernels.get(tile.microkernel or "")
        if kernel is not None and kernel.reducer is not None:
            return self.tally(self.product(tile, kernel), scope)
        loops, known = list[tuple[str, Expr, Expr]](), [scope.known]
        for axis in tile.axes:
            loops.append((axis.iter, axis.start, ix.add(axis.start, axis.extent)))
            known.append(inside_loop(known[-1], *loops[-1]))
        body = self.block(tile.body, replace(scope, known=known[-1]))
        if kernel is not None and kernel.issue == "async":
            # no lane has an operation of each element
            body = self.tally(_with_work(_counts_of(body), {LANES: ZERO}), scope)
        for loop, around in zip(reversed(loops), reversed(known[:-1]), strict=True):
            body = self.loop(*loop, body, around)
        return self.tally(
            _with_work(_counts_of(body), {WAITING: self.far_ticks(scope.depth)}), scope
        )

    def product(self, tile: Tile, kernel: Microkernel) -> Counts:
        """Return the counts of a product of a tile, in whole issues of the hardware: of tensor cores, else of lanes.

        Each issue of a unit of several warps reads both operands from shared memory, which binds those of few columns.
        """
        starts = {axis.iter: axis.start for axis in tile.axes}
        types = {tensor.dtype for tensor in kernel.definition.reads}
        units = [u for u in self.machine.unit if types & {*u.of}]
        on_lanes = not any(u.name.startswith(TENSOR) for u in units)
        unit = (units or [*self.machine.unit])[0]
        rows, columns = (ix.maximum(axis.extent, 0) for axis in tile.axes[-2:])
        is_grouped = kernel.unit in GROUPED_UNITS
        issue = kernel.extents_of(kernel.rows).multiple_of if is_grouped else unit.rows
        issues = ix.ceildiv(rows, issue)
        whole_rows = ix.mul(issues, issue)
        whole_columns = ix.mul(ix.ceildiv(columns, unit.columns), unit.columns)
        waiting = _ticks(self.shared_memory.latency_cycles + self.product_cycles(tile, kernel))
        counts = Counts(work={WAITING: waiting})
        for stmt in tile.body:
            inner = stmt
            terms: Expr = ONE
            while isinstance(inner, For):
                ends = (substitute(end, starts) for end in (inner.hi, inner.lo))
                terms = ix.mul(terms, ix.maximum(ix.sub(*ends), 0))
                inner = inner.body[0]
            assert isinstance(inner, Store)
            instances = ix.product((rows, columns, terms))
            if inner.reduce is None:
                counts = counts.plus(Counts(instances=instances))
                continue
            whole_terms = ix.mul(ix.ceildiv(terms, unit.terms), unit.terms)
            item = max((ITEM_BYTES[load.dtype] for load, _ in loads(inner.value)), default=2)
            reads = ix.mul(issues, whole_columns) if is_grouped else whole_columns
            elements = ix.mul(ix.add(whole_rows, reads), whole_terms)
            work = {
                LANES if on_lanes else TENSOR: ix.product((whole_rows, whole_columns, whole_terms)),
                self.shared_memory.name: ix.mul(elements, item),
            }
            counts = counts.plus(
                Counts(
                    instances=instances,
                    flop=ix.mul(operations(inner), instances),
                    picojoules=ix.mul(self.energy(inner), instances),
                    work=work,
                )
            )
        return counts

    def product_cycles(self, tile: Tile, kernel: Microkernel) -> float:
        """Return the cycles for which a unit of several warps waits for its product of a stage, at most; 0 of products that are not in the background."""
        loop = next((one for one in walk(tile.body) if isinstance(one, For)), None)
        if kernel.unit not in GROUPED_UNITS or loop is None:
            return 0.0
        widest = max(one.columns for one in kernel.tiles)
        columns = min(ix.literal_bound(tile.axes[-1].extent) or widest, widest)
        issue = next(one for one in kernel.tiles if one.columns >= columns)
        return issue.cycles * (ix.literal_bound(ix.sub(loop.hi, loop.lo)) or kernel.at_once)

    def store(self, stmt: Store, scope: Scope) -> Tally:
        """Return the counts of one instance of a statement that lanes run."""
        flop = operations(stmt)
        work = {LANES: ix.const(flop + 1), WAITING: self.far_ticks(scope.depth)}
        arrays = [load.buffer for load in dict.fromkeys(load for load, _ in loads(stmt.value))]
        for name in (*arrays, stmt.buffer):
            buffer = self.program.buffer(name)
            if buffer.scope is not None or name not in self.windows:
                moved = self.shared_memory.name if buffer.scope is not None else f"{MAIN}{name}"
                work[moved] = ix.add(work.get(moved, ZERO), ITEM_BYTES[buffer.dtype])
        counts = Counts(
            instances=ONE,
            flop=ix.const(flop),
            picojoules=ix.const(self.energy(stmt)),
            work=work,
        )
        return self.tally(counts, scope)

    def energy(self, store: Store) -> int:
        """Return the thousandths of picojoules of an instance of a statement; 0 if the machine does not describe energy."""
        if self.machine.energy is None:
            return 0
        return round(1000 * picojoules(store, self.program, self.machine.energy))

    def tally(self, counts: Counts, scope: Scope) -> Tally:
        """Return the tally of counts of the launch around."""
        assert scope.piece is not None
        return Tally(self.traffic.nothing, {scope.piece: counts})


_MEETINGS = (Action.BARRIER, Action.WAIT, Action.WAIT_GROUP)
"""What units of a block wait at."""


def _counts_of(tally: Tally) -> Counts:
    """Return the counts of the one launch that statements are in."""
    return next(iter(tally.counts.values()), Counts())


def _with_work(counts: Counts, work: Mapping[str, Expr]) -> Counts:
    """Return counts with other work of some resources."""
    return replace(counts, work={**counts.work, **work})


def _ticks(cycles: float) -> Expr:
    return ix.const(round(cycles * TICKS))


def _with_all_elements(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    """Return a block in which conditions on elements of arrays hold, and loops that begin at the least of a known value and of an element
    begin at the known value: no size says how many blocks a length leaves without work.
    """
    result: tuple[Stmt, ...] = ()
    for stmt in body:
        if isinstance(stmt, If) and not stmt.other and reads_memory(stmt.condition):
            result += _with_all_elements(stmt.then)
            continue
        if isinstance(stmt, For):
            stmt = replace(stmt, lo=known_part("min", stmt.lo))
        result += (map_blocks(stmt, _with_all_elements),)
    return result
