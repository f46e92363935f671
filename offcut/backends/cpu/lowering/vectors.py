"""Instances of a tile as vectors: which of them run side by side.

Lanes run along the last axis of a tile, under a mask where its extent is no multiple of them; the
other axes are loops. The statements of a tile run one after the other for a vector of instances
(`statements`). Statements outside of tiles are those of a vector with one lane. Where a reduction takes
the lanes for its terms (`reductions`), the last axis is a loop too.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from math import gcd

from offcut.backends.cpu.lowering.addressing import Lanes, Memory
from offcut.backends.cpu.lowering.expressions import store_apart, streamed_buffers
from offcut.backends.cpu.lowering.interleave import (
    emit_interleaved_pack,
    emit_transpose_step,
    interleaves,
)
from offcut.backends.cpu.lowering.lane_reductions import has_lane_reductions
from offcut.backends.cpu.lowering.vector_statements import VectorStatements
from offcut.backends.cpu.machine.isa import Isa
from offcut.backends.cpu.microkernels.family import Variant
from offcut.backends.llvm import ir
from offcut.backends.llvm.elements import item_bytes
from offcut.core import index as ix
from offcut.core.analysis import at_most, limits, residual_conditions
from offcut.core.expr import Expr, dtype_of, loads, variables
from offcut.core.program import For, Form, If, Program, Stmt, Store, Tile, TileAxis
from offcut.core.program import walk as statements
from offcut.polyhedral import BACK, NEXT, SAME

TILE_SCRATCH = "%tile_scratch"


class Vectors(VectorStatements):
    """Lowers tiles by vectors.

    tiles      (rows, panels) of the functions that are called, by microkernel and variant
    scratch    (name, bytes) of the parts of the workspace
    tile_bytes size of `TILE_SCRATCH`, which tiles share: each is done with it before the next
    copied     the places that say of which rows a part of the workspace holds a copy
    chains     registers of lanes that a tile with a loop inside takes at once
    around     the loops around the statement that is being lowered, outermost first
    half_panels  buffers in panels whose rows are read by half if they have at most half a panel's columns
    jammed     the iterator of a loop whose iterations run a tile together, and the number of each; none where they run in turn
    """

    def __init__(self, program: Program, isa: Isa, chains: int = 1) -> None:
        super().__init__(program, isa)
        self.tiles: dict[tuple[str, Variant], set[tuple[int, int]]] = {}
        self.scratch: list[tuple[str, Expr]] = []
        self.tile_bytes = 0
        self.copied: list[str] = []
        self.width, self.chains = isa.lanes("float32"), chains
        self.around: list[For] = []
        self.half_panels: Container[str] = ()
        self.jammed: tuple[str, tuple[str, ...]] = ("", ())

    def scratch_of(self, size: Expr) -> str:
        """The address of a new part of the workspace, of `size` bytes."""
        name = f"%scratch{len(self.scratch)}"
        self.scratch.append((name, size))
        return name

    def last_rows(self) -> str:
        """The address of a new place for the address of rows, and how many there are; null when a call begins."""
        self.copied.append(f"%copied{len(self.copied)}")
        return self.copied[-1]

    def active(self, tile: Tile, axis: TileAxis) -> str:
        """How many instances of a tile along `axis` are in the domain, from its start on."""
        extent = self.scalar(axis.extent)
        for limit in limits(tile, axis.iter):
            room = ir.sub(self.f, self.scalar(limit), self.scalar(axis.start))
            extent = ir.minimum(self.f, extent, room)
        return extent

    def vectors(self, tile: Tile, body: Sequence[Stmt], memory: Mapping[str, Memory]) -> None:
        """Run `body` for every instance of `tile`, lanes along its last axis.

        memory   where buffers lie that the tile keeps in scratch
        """
        for condition in reversed(residual_conditions(tile)):
            body = (If(condition, tuple(body)),)
        with self.placing(memory):
            self.rows(tile, tile.axes, body)

    def instances(self, body: Sequence[Stmt], lanes: Lanes) -> None:
        """Run `body` for one vector of instances, of several iterations where these are jammed."""
        name, numbers = self.jammed
        if not numbers:
            super().instances(body, lanes)
            return
        copies = list[tuple[str, dict[str, str]]]()
        for number in numbers:
            with self.bound(name, number):
                copies.append((number, self.load_registers(body, lanes)))
        self.jammed_statements(body, lanes, name, copies)
        for number, slots in copies:
            with self.bound(name, number):
                self.store_registers(body, lanes, slots)

    def jammed_statements(
        self,
        body: Sequence[Stmt],
        lanes: Lanes,
        name: str,
        copies: Sequence[tuple[str, Mapping[str, str]]],
    ) -> None:
        """Write statements for a vector of instances of several iterations of a loop: what all of them read alike is loaded once.

        name    the loop's iterator
        copies  of each iteration its number, and the registers that stand for buffers
        """
        for stmt in body:
            if isinstance(stmt, For):
                ends = self.scalar(stmt.lo), self.scalar(stmt.hi)
                inner = partial(self.jammed_statements, stmt.body, name=name, copies=copies)
                self.each(stmt, ends, lanes, inner)
                continue
            assert isinstance(stmt, Store)
            for value, slots in copies:
                with self.bound(name, value):
                    self.vector_store(stmt, lanes, slots)

    def rows(self, tile: Tile, axes: Sequence[TileAxis], body: Sequence[Stmt]) -> None:
        """Loops over `axes` but the last, whose instances become vectors."""
        if interleaves(self, axes, body):
            counts = [self.active(tile, axis) for axis in axes]
            (copy,) = (stmt for stmt in body if isinstance(stmt, Store))
            emit_interleaved_pack(self, axes, counts, copy)
            return
        if len(axes) == 2 and self.is_transposition(axes, body):
            self.write_transposed(tile, axes, body[0])
            return
        if len(axes) > 1:
            with self.each_row(tile, axes[0]):
                self.rows(tile, axes[1:], body)
            return
        if not axes:
            self.instances(body, Lanes(1, None))
            return
        axis = axes[0]
        stores_apart = store_apart(self.program, self.memory, body, axis.iter)
        if not stores_apart or has_lane_reductions(body, self.program, self.isa):
            with self.each_row(tile, axis):
                self.instances(body, Lanes(1, None))
            return
        if tile.form is Form.GUARD and any(limits(tile, axis.iter)):
            self.guarded_lanes(tile, axis, body)
            return
        start = self.scalar(axis.start)
        count = ir.maximum(self.f, self.active(tile, axis), "0")
        literal_count, done = ir.literal(count), "0"
        most = at_most(axis.extent) if literal_count is None else literal_count
        for width in self.widths(body, most):
            if most is not None and most < width:
                continue
            full = ir.mul(self.f, ir.floordiv(self.f, count, str(width)), str(width))
            lanes = Lanes(width, axis.iter, multiple=gcd(ix.known_divisor(axis.start), width))
            with self.f.loop(done, full, width) as now:
                at = ir.add(self.f, start, now)
                with self.bound(axis.iter, at):
                    if most is None or variables(axis.start):
                        self.fetched_ahead(body, lanes)
                    self.instances(body, lanes)
            done = full
        if width == 1 or (literal_count is not None and literal_count % width == 0):
            return
        rest = ir.sub(self.f, count, done)
        some = self.f.let(f"icmp sgt i64 {rest}, 0")
        with self.f.when(some), self.bound(axis.iter, ir.add(self.f, start, done)):
            e = self.elements(width)
            # A literal mask of one lane would become a store that is wider than a 16-bit element.
            hidden = self.f.let(f'call i64 asm "", "=r,0"(i64 {rest}) memory(none)')
            limit = e.splat(hidden, "index")
            mask = e.compare("<", "index", e.ramp(), limit)
            multiple = gcd(ix.known_divisor(axis.start), width)
            self.instances(body, Lanes(width, axis.iter, mask, multiple=multiple))

    @contextmanager
    def each_row(self, tile: Tile, axis: TileAxis) -> Iterator[None]:
        """Write a loop over an axis of a tile that lanes do not run along; of a guarded tile, over its whole extent, and each
        iteration asks whether it is in the domain.
        """
        start = self.scalar(axis.start)
        if tile.form is not Form.GUARD:
            end = ir.add(self.f, start, self.active(tile, axis))
            with self.f.loop(start, end) as now, self.bound(axis.iter, now):
                yield
            return
        ends = [self.scalar(limit) for limit in limits(tile, axis.iter)]
        end = ir.add(self.f, start, self.scalar(axis.extent))
        with ExitStack() as inside:
            now = inside.enter_context(self.f.loop(start, end))
            inside.enter_context(self.bound(axis.iter, now))
            for limit in ends:
                within = self.f.let(f"icmp slt i64 {now}, {limit}")
                inside.enter_context(self.f.when(within))
            yield

    def guarded_lanes(self, tile: Tile, axis: TileAxis, body: Sequence[Stmt]) -> None:
        """Run `body` for all vectors of an axis of a guarded tile: in each, the lanes that are in the domain."""
        start, extent = self.scalar(axis.start), self.scalar(axis.extent)
        literal_extent = ir.literal(extent)
        width = self.widths(body, literal_extent)[0]
        with self.f.loop("0", extent, width) as now:
            at, active_lanes = ir.add(self.f, start, now), str(width)
            ends = [self.scalar(limit) for limit in limits(tile, axis.iter)]
            if literal_extent is None or literal_extent % width:
                ends.append(ir.add(self.f, start, extent))
            for end in ends:
                active_lanes = ir.minimum(self.f, active_lanes, ir.sub(self.f, end, at))
            # Not 0: of a count that may be negative, the comparison is one signed instruction on every processor.
            mask = self.first_lanes(width, ir.maximum(self.f, active_lanes, "-1"))
            multiple = gcd(ix.known_divisor(axis.start), width)
            with self.bound(axis.iter, at):
                self.instances(body, Lanes(width, axis.iter, mask, multiple=multiple))

    def fetched_ahead(self, body: Sequence[Stmt], lanes: Lanes) -> None:
        """Ask for what `body` will stream through, some bytes from here, unless it loops inside.

        Rows that start inside a cache line touch two lines with every vector, and what the processor
        fetches by itself then comes late.
        """
        if any(isinstance(stmt, For) for stmt in statements(tuple(body))):
            return
        for buffer, index in streamed_buffers(body, self.memory).items():
            memory, names = self.memory[buffer], set().union(*map(variables, index))
            if not names <= self.values.keys() or self.along(memory, index, lanes) != NEXT:
                continue
            address = self.address(memory, index)
            ahead = self.f.let(
                f"getelementptr i8, ptr {address}, i64 {self.isa.machine.loops.ahead_bytes}"
            )
            self.f.declares.add("declare void @llvm.prefetch.p0(ptr, i32, i32, i32)")
            self.f.do(f"call void @llvm.prefetch.p0(ptr {ahead}, i32 0, i32 3, i32 1)")

    def widths(self, body: Sequence[Stmt], most: int | None) -> tuple[int, ...]:
        """Lanes of the vectors that run through an axis, one after the other, the widest first.

        A body with a loop takes several registers at once: their chains of operations overlap.

        most   instances along the axis, at most; None: any number
        """
        if most is not None and most <= 1:
            return (1,)
        several = self.chains * self.width
        loops = any(isinstance(stmt, For) for stmt in statements(tuple(body)))
        if not loops or self.chains == 1 or (most is not None and most < several):
            return (self.width,)
        return several, self.width

    def is_transposition(self, axes: Sequence[TileAxis], body: Sequence[Stmt]) -> bool:
        """Whether the tile reads what lies along its first axis, and writes along its last."""
        match body:
            case [Store(buffer, index, value, None)] if buffer in self.memory:
                down, across = (
                    Lanes(
                        self.width,
                        axis.iter,
                        multiple=gcd(ix.known_divisor(axis.start), self.width),
                    )
                    for axis in axes
                )
                read = [load for load, _ in loads(value)]
                fits = self.width * item_bytes(dtype_of(value)) <= self.isa.register_bytes
                turned = any(
                    self.along(self.memory[load.buffer], load.index, across)
                    not in (SAME, NEXT, BACK)
                    for load in read
                    if load.buffer in self.memory
                ) and all(
                    load.buffer in self.memory
                    and self.along(self.memory[load.buffer], load.index, down) == NEXT
                    for load in read
                )
                return fits and turned and self.along(self.memory[buffer], index, across) == NEXT
            case _:
                return False

    def write_transposed(self, tile: Tile, axes: Sequence[TileAxis], copy: Stmt) -> None:
        """Squares of vectors: computed along the first axis, turned in registers, written along the
        last. A gather would read the same elements one by one.
        """
        assert isinstance(copy, Store)
        f, width = self.f, self.width
        (down, height), (across, count) = ((a, self.active(tile, a)) for a in axes)
        first = self.scalar(down.start), self.scalar(across.start)
        multiple = gcd(ix.known_divisor(across.start), width)
        with f.loop("0", count, width) as j, f.loop("0", height, width) as k:
            at = ir.add(f, first[0], k), ir.add(f, first[1], j)
            rows, columns = (
                None if _divides(width, extent) else ir.sub(f, extent, done)
                for extent, done in ((height, k), (count, j))
            )
            turned = partial(
                self.transpose_square,
                axes=(down.iter, across.iter),
                at=at,
                columns=columns,
                copy=copy,
                multiple=multiple,
            )
            counts = [width]
            if columns is not None and self.memory[copy.buffer].layout is not None:
                counts = [width // 4, width // 2, width]
            if rows is None:
                self.turned_columns(counts, columns, partial(turned, rows=None))
                return
            square, edge, end = f.name("square"), f.name("edge"), f.name("end")
            deep = f.let(f"icmp sge i64 {rows}, {width}")
            f.do(f"br i1 {deep}, label {square}, label {edge}")
            for label, remaining in ((square, None), (edge, rows)):
                with f.within(label):
                    self.turned_columns(counts, columns, partial(turned, rows=remaining))
                f.do(f"br label {end}")
            f.start(end)

    def turned_columns(
        self, counts: Sequence[int], columns: str | None, turned: Callable[[int], None]
    ) -> None:
        """Turn a square, of which the least of these numbers of columns that holds all of them is read: a panel is written whole, however few it has,
        or the half that is read.

        counts  the last one is the width of a vector
        turned  turns a square of which so many columns are read
        """
        f, (few, *more) = self.f, counts
        if not more:
            turned(few)
            return
        narrow, wide, end = f.name("narrow"), f.name("wide"), f.name("end")
        is_narrow = f.let(f"icmp sle i64 {columns}, {few}")
        f.do(f"br i1 {is_narrow}, label {narrow}, label {wide}")
        with f.within(narrow):
            turned(few)
            f.do(f"br label {end}")
        with f.within(wide):
            self.turned_columns(more, columns, turned)
            f.do(f"br label {end}")
        f.start(end)

    def transpose_square(
        self,
        read: int,
        *,
        axes: tuple[str, str],
        at: tuple[str, str],
        rows: str | None,
        columns: str | None,
        copy: Store,
        multiple: int,
    ) -> None:
        """One square from `at` on, of which there are so many rows and columns; None: all.

        Past the last column, the last one is read again, and written to a panel alone, which is whole vectors; past the first `read`
        columns, nothing is read.
        """
        f, width = self.f, self.width
        e = self.elements(width)
        bits, kind = f"<{width} x i1>", e.kind(dtype_of(copy.value))
        deep, wide = (
            None if n is None else e.compare("<", "index", e.ramp(), e.splat(n, "index"))
            for n in (rows, columns)
        )
        last = None if columns is None else ir.sub(f, columns, "1")
        values = []
        for lane in range(read):
            column = str(lane) if last is None else ir.minimum(f, str(lane), last)
            with self.bound(axes[0], at[0]), self.bound(axes[1], ir.add(f, at[1], column)):
                values.append(self.value(copy.value, Lanes(width, axes[0], deep), {}))
        values += ["zeroinitializer"] * (width - read)
        steps = [1 << bit for bit in range(width.bit_length() - 1)]
        # columns that are read mix with each other first: a step with zeros alone is none
        for step in steps if read < width else reversed(steps):
            values = emit_transpose_step(f, values, step, kind)
        is_panel = self.memory[copy.buffer].layout is not None
        lanes = Lanes(width, axes[1], None if is_panel else wide, multiple=multiple)
        if is_panel and 2 * read <= width and copy.buffer in self.half_panels:
            values = [self.first_half(value, kind) for value in values]
            lanes = replace(lanes, width=width // 2)
        for row, value in enumerate(values):
            with self.bound(axes[0], ir.add(f, at[0], str(row))), self.bound(axes[1], at[1]):
                if deep is None:
                    self.save(copy.buffer, copy.index, value, lanes)
                    continue
                there = f.let(f"extractelement {bits} {deep}, i32 {row}")
                with f.when(there):
                    self.save(copy.buffer, copy.index, value, lanes)

    def first_half(self, value: str, kind: str) -> str:
        """Return the first half of a vector's lanes."""
        lanes = ", ".join(f"i32 {lane}" for lane in range(self.width // 2))
        return self.f.let(
            f"shufflevector {kind} {value}, {kind} poison, <{self.width // 2} x i32> <{lanes}>"
        )


def _divides(width: int, extent: str) -> bool:
    """Whether an extent is known, and vectors of `width` lanes fill it."""
    literal = ir.literal(extent)
    return literal is not None and literal % width == 0
