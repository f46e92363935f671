"""What a tile of a microkernel counts: rows that run, calls of its functions, copies of what is padded.

The cycles of a call of its functions are an index expression, in thousandths; tiles of more rows than it has run in turn.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import ceil

from offcut.core import index as ix
from offcut.core.analysis import limits, normalize_start
from offcut.core.dtypes import ITEM_BYTES
from offcut.core.expr import Binary, Const, Expr, substitute, variables
from offcut.core.program import For, Form, Kind, Stmt, Store, Tile, TileAxis
from offcut.core.program import walk as statements
from offcut.core.scan import ScanContext
from offcut.costmodel.closed.count_loops import Scope, StagedRows, Tally, extent_of
from offcut.costmodel.closed.count_statements import StatementCounts
from offcut.costmodel.closed.counts import THOUSANDTHS, ZERO, Counts
from offcut.costmodel.closed.footprints import lesser
from offcut.costmodel.closed.traffic import Touched
from offcut.costmodel.machine import Machine
from offcut.costmodel.simplification import select, simplify_index
from offcut.costmodel.tile_cycles import tile_cycles
from offcut.describe.microkernel import Microkernel
from offcut.partition import Match, matches
from offcut.polyhedral.units import begins_with_store
from offcut.schedule import beside


class MicrokernelCounts(StatementCounts):
    """Counts of tiles that microkernels cover, and of the copies around padded ones."""

    def count_run(self, tile: Tile, kernel: Microkernel, scope: Scope) -> Tally:
        """One run of a tile of a microkernel, which touches each element once: rows that are masked do not run, rows that
        are padded do.
        """
        assert scope.piece is not None
        tile = normalize_start(tile)
        inside = replace(scope, lane=None, run=None, across=None)
        lengths = {axis.iter: self.length(tile, axis, scope.known) for axis in tile.axes}
        rows, columns, match = _along(tile, kernel)
        padded = tile.form is Form.PAD and any(limits(tile, rows))
        full = {}
        if padded:
            full[rows] = next(extent_of(axis) for axis in tile.axes if axis.iter == rows)
        sums, others = _sums_of(tile)
        done = self.instances(tile, sums, {**lengths, **full}, inside)
        after = self.instances(tile, others, lengths, inside)
        counts = done[0].plus(after[0])
        boxes = self.traffic.block([done[1], after[1]]).boxes
        for axis in reversed(tile.axes):
            last = ix.sub(ix.add(axis.start, lengths[axis.iter]), 1)
            boxes = {name: one.over({axis.iter: (axis.start, last)}) for name, one in boxes.items()}
        depth: Expr = ix.const(1)
        again: Expr = ix.const(1)
        turns = 0 if tile.form is Form.PAD else kernel.turns
        extents = [ix.sub(s.hi, s.lo) for s in statements(tile.body) if isinstance(s, For)]
        for place, extent in enumerate(reversed(extents)):
            runs_terms = place <= turns and ix.literal_value(again) == 1
            if runs_terms and (place == 0 or ix.literal_value(extent)):
                depth = ix.mul(depth, extent)
            else:
                again = ix.mul(again, extent)
        for name, length in lengths.items():
            again = again if name in (rows, columns) else ix.mul(again, length)
        height = {**lengths, **full}.get(rows, ix.const(1))
        width = lengths.get(columns, ix.const(1))
        widest = self.widest(tile, kernel, rows, width)
        busy = self.product_cycles(tile, kernel, match, (height, width, depth), widest)
        busy = ix.mul(busy, again)
        issued = busy  # of another unit: one in a cycle, at most
        if self.hardware.on_core(kernel):
            lanes = self.hardware.lanes
            once = operations_issued(kernel, height, width, depth, lanes)
            issued = ix.mul(THOUSANDTHS, ix.mul(once, again))
        counts = replace(counts, runs=ix.const(1), cycles=busy, instructions=issued)
        if any(any(limits(tile, name)) for name in (rows, columns)):
            some = ix.compare(">", ix.mul(lengths.get(rows, ix.const(1)), width), 0)
            counts = counts.map(lambda count: select(some, count, ZERO))
        staged: dict[int, StagedRows] = {}
        if tile.form is Form.PAD and match is not None:
            counts = counts.plus(self.count_result_copies(tile, lengths, columns))
            if padded:
                one = self.count_row_copies(tile, match, lengths[rows], height, depth)
                repeated = ix.literal_value(again) != 1
                kind = self.program.buffer(match.by_rows.buffer).kind
                if repeated or kind not in (Kind.INPUT, Kind.CONSTANT):
                    counts = counts.plus(one.counts.map(lambda count: ix.mul(again, count)))
                else:
                    staged[scope.piece] = one
        return Tally(self.traffic.access(boxes, scope.piece), {scope.piece: counts}, staged)

    def operand_bytes(self, tile: Tile, match: Match) -> Expr:
        """Bytes of the columns' operand that one sum reads."""
        load, inner = match.by_columns, {match.columns or ""}
        inner |= {stmt.iter for stmt in statements(tile.body) if isinstance(stmt, For)}
        size: Expr = ix.const(ITEM_BYTES[load.dtype])
        for part, extent in zip(load.index, self.program.buffer(load.buffer).shape, strict=True):
            size = ix.mul(size, extent) if variables(part) & inner else size
        size = ix.ceildiv(size, match.microkernel.per_byte)
        return simplify_index(substitute(size, self.fixed))

    def product_cycles(
        self,
        tile: Tile,
        kernel: Microkernel,
        match: Match | None,
        extents: tuple[Expr, Expr, Expr],
        widest: int | None,
    ) -> Expr:
        """Return the thousandths of cycles of a product; its columns' operand may lie with rows apart, in the nearest cache or beyond it.

        extents  rows, columns, terms
        widest   columns that one call of a function takes; None: any
        """
        traffic = self.hardware.machine.traffic
        strided = match is not None and not beside(match.by_rows, match.depth)
        times = traffic.strided if strided else 1.0
        packed = cycles(kernel, *extents, widest, times)
        if match is None or not kernel.packed:
            return packed
        buffer = self.program.buffer(match.by_columns.buffer)
        if buffer.layout is not None or not buffer.shape:
            return packed
        near, far = (
            cycles(kernel, *extents, widest, times * factor)
            for factor in (traffic.unpacked_near, traffic.unpacked_far)
        )
        row = ix.mul(substitute(buffer.shape[-1], self.fixed), ITEM_BYTES[buffer.dtype])
        narrow = ix.compare("<=", simplify_index(row), traffic.narrow_bytes)
        nearest = self.hardware.machine.nearest.bytes
        fits = ix.compare("<=", self.operand_bytes(tile, match), nearest)
        return select(narrow, packed, select(fits, near, far))

    def instances(
        self, tile: Tile, body: Sequence[Stmt], lengths: Mapping[str, Expr], scope: Scope
    ) -> tuple[Counts, Touched]:
        """Of statements of a tile: all instances along its axes, and what one of them touches."""
        assert scope.piece is not None
        tally = self.block(body, scope)
        counts = tally.counts.get(scope.piece, Counts())
        for axis in reversed(tile.axes):
            end = ix.add(axis.start, lengths[axis.iter])
            counts = self.over(axis.iter, axis.start, end, counts, scope.known, scope.piece)
        return counts, tally.touched

    def length(self, tile: Tile, axis: TileAxis, known: ScanContext) -> Expr:
        """How many instances along an axis of a tile are in the domain."""
        length, limited = extent_of(axis), False
        for limit in limits(tile, axis.iter):
            length, limited = (
                lesser(
                    length,
                    _remaining_extent(simplify_index(limit), simplify_index(axis.start)),
                    known,
                ),
                True,
            )
        if limited and not known.at_least_zero(length):
            return ix.maximum(length, 0)
        return length

    def widest(self, tile: Tile, kernel: Microkernel, rows: str, width: Expr) -> int | None:
        """The columns that one call of a function takes, where that is less than its height allows: one vector where the
        text does not say how many there are, else as many as tiles of all heights have that the rows may have; None: any.
        """
        if kernel.lowering is not None or kernel.any_columns:
            return None
        if ix.literal_value(width) is None:
            return kernel.panel
        if not any(limits(tile, rows)) or tile.form is Form.PAD:
            return None
        known = next(ix.literal_value(extent_of(axis)) for axis in tile.axes if axis.iter == rows)
        most = min(known or kernel.max_rows, kernel.max_rows)
        return min(kernel.columns_for(height) for height in range(1, most + 1))

    def count_result_copies(self, tile: Tile, lengths: Mapping[str, Expr], columns: str) -> Counts:
        """Of the copies of a padded tile's result between its array and the scratch that it is computed in."""
        store = next(s for s in statements(tile.body) if isinstance(s, Store))
        if store.buffer not in self.held:
            return Counts()
        dtype = self.program.buffer(store.buffer).dtype
        vectors = ix.ceildiv(lengths.get(columns, ix.const(1)), self.hardware.lanes_of(dtype))
        for name, length in lengths.items():
            vectors = vectors if name == columns else ix.mul(vectors, length)
        times = 1 if begins_with_store(store.buffer, tile.body) else 2
        return copy_counts(ix.mul(times, vectors), self.hardware.machine)

    def count_row_copies(
        self, tile: Tile, match: Match, active: Expr, height: Expr, depth: Expr
    ) -> StagedRows:
        """The copy of the rows that a padded tile reads, with zeros past the last one."""
        load = match.by_rows
        inner = {s.iter for s in statements(tile.body) if isinstance(s, For)}
        axes = {axis.iter: axis for axis in tile.axes}
        moves = set[str]().union(*map(variables, load.index))
        for name in moves & axes.keys():
            moves |= variables(axes[name].start)
        lanes = self.hardware.register_bytes // ITEM_BYTES[load.dtype]
        each = ix.ceildiv(depth, lanes)
        counts = staging_counts(active, height, each, self.hardware.machine)
        return StagedRows(frozenset(moves - inner - axes.keys()), counts)


def _along(tile: Tile, kernel: Microkernel) -> tuple[str, str, Match | None]:
    """The axes of a tile that are the rows and the columns of its microkernel, "" for none, and how it is laid over the sum."""
    names = [axis.iter for axis in tile.axes]
    for loop in statements(tile.body):
        match loop:
            case For(depth, body=(Store() as store,)) if store.reduce is not None:
                candidates = list(
                    matches(kernel, store.value, store.reduce, tuple(names), (depth,))
                )
                candidates.sort(key=lambda one: [one.columns] != names[-1:])
                if candidates:
                    return candidates[0].rows or "", candidates[0].columns or "", candidates[0]
    return "".join(names[-2:-1]), "".join(names[-1:]), None


def _sums_of(tile: Tile) -> tuple[list[Stmt], list[Stmt]]:
    """The sums of a tile with the zeros that they start from, which its microkernel computes; the other statements."""

    def is_sum(stmt: Stmt) -> bool:
        zero = isinstance(stmt, Store) and isinstance(stmt.value, Const) and stmt.reduce is None
        return zero or isinstance(stmt, For)

    return [s for s in tile.body if is_sum(s)], [s for s in tile.body if not is_sum(s)]


def _remaining_extent(limit: Expr, start: Expr) -> Expr:
    """``limit - start``, as a remainder where it is one."""
    match ix.sub(limit, start):
        case Binary("-", a, Binary("*", Const(by), Binary("//", b, Const(of)))) if (a, by) == (
            b,
            of,
        ):
            return ix.mod(a, int(of))
        case other:
            return other


def cycles(
    kernel: Microkernel,
    rows: Expr,
    columns: Expr,
    depth: Expr,
    most: int | None = None,
    times: float = 1.0,
) -> Expr:
    """Thousandths of cycles of a tile.

    most  columns that one call of a function takes; None: as many as its widest tile of these rows has
    times  how much longer it takes than with operands as it likes them
    """
    scale = THOUSANDTHS * times
    tile_price = tile_cycles(kernel)
    tallest, width = tile_price.tallest, ix.literal_value(columns)
    if most is not None:
        width = most if width is None else min(width, most)

    def of_height(height: int) -> Expr:
        widest, term, start = tile_price.of(height, width)
        once = ix.add(ix.mul(round(term * scale), depth), round(start * scale))
        return ix.mul(ix.ceildiv(columns, widest if most is None else min(widest, most)), once)

    known = ix.literal_value(rows)
    if known is not None:
        whole, rest = divmod(known, tallest)
        last = of_height(rest) if rest else ix.const(0)
        return ix.add(ix.mul(whole, of_height(tallest)), last)
    return _by_height(rows, 1, tallest, of_height)


def operations_issued(
    kernel: Microkernel, rows: Expr, columns: Expr, depth: Expr, lanes: int
) -> Expr:
    """Instructions of a tile: of each term a load for each vector of columns, and a multiply–add for each of its rows."""
    vectors = ix.ceildiv(columns, lanes)
    return ix.mul(
        ix.mul(vectors, ix.add(rows, 1)),
        ix.floordiv(ix.add(depth, kernel.interleave - 1), kernel.interleave),
    )


def copy_counts(vectors: Expr, machine: Machine) -> Counts:
    """Of so many vectors that are copied from one place to another."""
    loops = machine.loops
    each = round((2 * loops.vector_cycles + loops.lane_iterate_cycles) * THOUSANDTHS)
    return Counts(instructions=ix.mul(2 * THOUSANDTHS, vectors), cycles=ix.mul(each, vectors))


def staging_counts(rows: Expr, height: Expr, vectors: Expr, machine: Machine) -> Counts:
    """Of rows of so many vectors that are copied, and of zeros up to a height: each vector is stored once, each of a row loaded."""
    stored, loaded = ix.mul(height, vectors), ix.mul(rows, vectors)
    each = round(machine.loops.vector_cycles * THOUSANDTHS)
    step = round(machine.loops.lane_iterate_cycles * THOUSANDTHS)
    return Counts(
        instructions=ix.mul(THOUSANDTHS, ix.add(stored, loaded)),
        cycles=ix.add(ix.mul(each + step, stored), ix.mul(each, loaded)),
    )


def _by_height(rows: Expr, low: int, high: int, of: Callable[[int], Expr]) -> Expr:
    """A table by the height, which is in ``low … high``, by halves."""
    if low == high:
        return of(low)
    middle = ceil((low + high) / 2) - 1
    return select(
        ix.compare("<=", rows, middle),
        _by_height(rows, low, middle, of),
        _by_height(rows, middle + 1, high, of),
    )
