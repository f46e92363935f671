"""Tiles whose sums a microkernel computes: which functions of its family are called, on what."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager

from offcut.backends.cpu.lowering.addressing import Memory
from offcut.backends.cpu.lowering.prefetch import prefetch_slice, reuse
from offcut.backends.cpu.lowering.vectors import TILE_SCRATCH, Vectors
from offcut.backends.cpu.microkernels.family import WIDE_PARAMETERS, Family, Variant
from offcut.backends.llvm import ir
from offcut.backends.llvm.elements import STORED, item_bytes
from offcut.core import index as ix
from offcut.core.analysis import limits, normalize_start
from offcut.core.expr import Expr, Load, Var, variables
from offcut.core.panels import as_panels
from offcut.core.program import For, Form, Kind, Stmt, Store, Tile, TileAxis
from offcut.core.program import walk as statements
from offcut.core.text.printer import format_expr
from offcut.errors import InternalError
from offcut.partition import Covered, Match, Parts, is_multiple, is_run
from offcut.polyhedral import coefficient
from offcut.polyhedral.units import begins_with_store

ANY = Variant(unit_depth=True, panels=True)  # of a family that has one function


def lower_to_microkernel_calls(lowering: Vectors, tile: Tile, family: Family, parts: Parts) -> None:
    """Lower `tile` by `family`, which covers it as `parts` say."""
    _KernelTile(lowering, tile, family).lower(parts)


class _KernelTile:
    """A tile whose sums a microkernel computes.

    The statements of the tile run one after the other over the whole tile, which is the same as
    instance by instance since instances are independent. The first buffer, the sum, lies in the
    result itself, or in scratch where only the tile's later statements need it.
    """

    def __init__(self, lowering: Vectors, tile: Tile, family: Family) -> None:
        self.low, self.tile, self.family = lowering, normalize_start(tile), family
        self.kernel = family.microkernel
        self.f = lowering.f
        self.axes = {axis.iter: axis for axis in self.tile.axes}

    def lower(self, parts: Parts) -> None:
        """The calls, and what runs between them as vectors."""
        first = next(part for part in parts if isinstance(part, Covered))
        target = first.store.buffer
        memory = self.scratch_for(target, first.match)
        padded = self.tile.form is Form.PAD and target in self.low.memory
        if padded and not begins_with_store(target, self.tile.body):
            self.copy(target, memory, inwards=True)
        pending: list[Stmt] = []
        for part in parts:
            if isinstance(part, Covered):
                if pending:
                    self.low.vectors(self.tile, pending, memory)
                    pending = []
                with self.low.placing(memory):
                    self.within(part.around, part)
            elif part is not None:
                pending.append(part)
        if pending:
            self.low.vectors(self.tile, pending, memory)
        if padded:
            self.copy(target, memory, inwards=False)

    def within(self, around: Sequence[For], plan: Covered) -> None:
        """The loops around a sum, then its calls; axes that the microkernel lacks are loops too."""
        if around:
            low, loop = self.low, around[0]
            lo_hi = low.scalar(loop.lo), low.scalar(loop.hi)
            with self.f.loop(*lo_hi) as now, low.bound(loop.iter, now):
                self.within(around[1:], plan)
            return
        mapped = (plan.match.rows, plan.match.columns)
        others = [axis for axis in self.tile.axes if axis.iter not in mapped]
        self.over(others, plan)

    def scratch_for(self, buffer: str, match: Match) -> dict[str, Memory]:
        """Memory of the sum, where it is private to the tile or the tile is padded."""
        low = self.low
        is_in_memory = buffer in low.memory
        if is_in_memory and self.tile.form is not Form.PAD:
            return {}
        info = low.program.buffer(buffer)
        item = item_bytes(info.dtype)
        names = list(self.axes)
        strides = dict.fromkeys(names, 0)
        step = item
        order = [n for n in names if n not in (match.rows, match.columns)]
        order += [n for n in (match.rows, match.columns) if n is not None]
        for name in reversed(order):
            strides[name] = step
            extent = low.range_of(self.axes[name].extent)[1]
            step *= max(extent, 1)
        low.tile_bytes = max(low.tile_bytes, step)
        point = _point(self.tile, buffer)
        parts = tuple(str(strides.get(name, 0)) for name in point)
        origins = tuple(
            low.scalar(self.axes[name].start) if name in self.axes else low.values[name]
            for name in point
        )
        return {buffer: Memory(TILE_SCRATCH, info.dtype, parts, origins)}

    def copy(self, buffer: str, memory: Mapping[str, Memory], inwards: bool) -> None:
        """Copy what a padded tile owns of the sum between its array and the scratch."""
        low = self.low
        alias = f"{buffer} padded"
        point = tuple(Var(name) for name in _point(self.tile, buffer))
        value = Load(alias, point, low.program.buffer(buffer).dtype)
        there, here = (low.memory[buffer], memory[buffer])[:: 1 if inwards else -1]
        low.vectors(self.tile, (Store(buffer, point, value),), {alias: there, buffer: here})

    def over(self, others: Sequence[TileAxis], plan: Covered) -> None:
        """The calls for each instance of the axes that the microkernel has not."""
        if others:
            start = self.low.scalar(others[0].start)
            end = ir.add(self.f, start, self.low.active(self.tile, others[0]))
            with self.f.loop(start, end) as now, self.low.bound(others[0].iter, now):
                self.over(others[1:], plan)
            return
        low, match = self.low, plan.match
        rows, columns = self.axes.get(match.rows or ""), self.axes.get(match.columns or "")
        points = [(axis.iter, low.scalar(axis.start)) for axis in (rows, columns) if axis]
        terms = [(loop.iter, low.scalar(loop.lo)) for loop in (*plan.turns, plan.loop)]
        with _many(low, [*points, *terms]):
            _Block(self, plan, rows, columns).write()


@contextmanager
def _many(low: Vectors, names: Sequence[tuple[str, str]]) -> Iterator[None]:
    if not names:
        yield
        return
    with low.bound(*names[0]), _many(low, names[1:]):
        yield


class _Block:
    """The calls that cover one rectangle of rows and columns."""

    def __init__(
        self,
        owner: _KernelTile,
        plan: Covered,
        rows: TileAxis | None,
        columns: TileAxis | None,
    ) -> None:
        self.owner, self.low, self.f = owner, owner.low, owner.f
        self.store, self.found, self.loop = plan.store, plan.match, plan.loop
        self.turns, self.split = plan.turns, bool(plan.around)
        self.row_axis, self.column_axis = rows, columns
        self.accumulate = "0" if plan.start == "fresh" else "1"
        self.family = owner.family
        self.a, self.b = self.found.by_rows, self.found.by_columns
        self.others = tuple(self.found.operand(name) for name in self.family.others)
        self.panel = owner.kernel.panel
        self.item = item_bytes(self.a.dtype)

    def write(self) -> None:
        """The calls, where there is a row and a column; of no terms where the loop has none."""
        low, tile = self.low, self.owner.tile
        depth = low.scalar(ix.sub(self.loop.hi, self.loop.lo))
        if low.range_of(ix.sub(self.loop.hi, self.loop.lo))[0] < 0:
            depth = ir.maximum(self.f, depth, "0")
        rows, columns = ("1" if a is None else low.active(tile, a) for a in self.sides)
        with ExitStack() as inside:
            for axis, count in zip(self.sides, (rows, columns), strict=True):
                if axis is not None and self.may_be_none(axis):
                    some = self.f.let(f"icmp sgt i64 {count}, 0")
                    inside.enter_context(self.f.when(some))
            for loop in self.turns:
                if not is_run(loop):
                    count = low.scalar(ix.sub(loop.hi, loop.lo))
                    some = self.f.let(f"icmp sgt i64 {count}, 0")
                    inside.enter_context(self.f.when(some))
            self.calls(rows, columns, depth)

    @property
    def sides(self) -> tuple[TileAxis | None, TileAxis | None]:
        """Return the axes of the rows and of the columns."""
        return self.row_axis, self.column_axis

    def may_be_none(self, axis: TileAxis) -> bool:
        """Return whether no instance along an axis may be in the tile, as far as the text shows."""
        limited = any(limits(self.owner.tile, axis.iter))
        return limited or self.low.range_of(axis.extent)[0] < 1

    def calls(self, rows: str, columns: str, depth: str) -> None:
        """The calls for so many rows, columns and terms, of the first two at least one."""
        low, tile = self.low, self.owner.tile
        padded = tile.form is Form.PAD
        a = (low.address(low.memory[self.a.buffer], self.a.index), *self.steps(self.a))
        if padded and self.row_axis is not None and any(limits(tile, self.row_axis.iter)):
            a = self.stage_rows(a, rows, depth)
            rows = low.scalar(self.row_axis.extent)
        b_memory = low.memory[self.b.buffer]
        known_depth = ir.literal(depth)
        even = known_depth is not None and known_depth % self.low.isa.machine.tiles.unroll == 0
        turns = len(self.turns)
        others = len(self.others)
        variant = Variant(a[2] == str(self.item), b_memory.layout is not None, even, turns, others)
        c_memory = low.memory[self.store.buffer]
        c = low.address(c_memory, self.store.index)
        c_row = self.step(c_memory, self.store.index, self.found.rows)
        literal = ir.literal(columns)
        aligned = b_memory.layout is None or self.starts_panel()
        call = _Call(self, variant, a, c_row, rows, depth)
        if not call.heights:
            return  # it has no row at any size
        if self.family.wide and aligned:
            b = low.address(b_memory, self.b.index)
            call.wide(c, b, columns, b_memory)
        elif literal is not None and aligned:
            call.columns(c, b_memory, literal)
        else:
            call.chunks(b_memory, columns, aligned)

    def starts_panel(self) -> bool:
        """Return whether the tile's first column starts a panel."""
        if self.column_axis is None:
            return False
        return is_multiple(self.column_axis.start, self.panel)

    def step(self, memory: Memory, index: Sequence[Expr], axis: str | None) -> str:
        """Bytes by which an element moves along `axis`; in panels along one row, from one set of rows side by side to the next."""
        total = "0"
        if axis is None:
            return total
        panels = as_panels(memory.layout)
        for position, part in enumerate(index):
            factor = coefficient(part, axis) or 0
            if panels is not None and position == panels.rows and factor % panels.beside == 0:
                factor //= panels.beside
            moved = ir.mul(self.f, str(factor), memory.strides[position])
            total = ir.add(self.f, total, moved)
        return total

    def steps(self, load: Load) -> tuple[str, str]:
        memory = self.low.memory[load.buffer]
        axes = (self.found.rows, self.found.depth)
        row, depth = (self.step(memory, load.index, axis) for axis in axes)
        return row, depth

    def around(self) -> Iterator[str]:
        """Yield the arguments for each loop that the functions run around their terms."""
        for loop in self.turns:
            moved = (
                self.step(self.low.memory[x.buffer], x.index, loop.iter)
                for x in (self.a, self.b, *self.others)
            )
            count = self.low.scalar(ix.sub(loop.hi, loop.lo))
            yield ", ".join(f"i64 {one}" for one in (count, *moved))

    def stage_rows(self, a: tuple[str, str, str], rows: str, depth: str) -> tuple[str, str, str]:
        """Return the rows of A in a full-size scratch, with zeros past the last one.

        Tiles side by side read the same rows: of an array that nobody writes during a call they are copied for the first, if all
        tiles sum over as many terms.
        """
        low, f = self.low, self.f
        assert self.row_axis is not None
        terms = ix.sub(self.loop.hi, self.loop.lo)
        size = ix.mul(ix.mul(self.row_axis.extent, terms), self.item)
        base = low.scratch_of(_over_sizes(size, low))
        row_step = ir.mul(f, depth, str(self.item))
        sizes = {one.name for one in low.program.sizes}
        written = low.program.buffer(self.a.buffer).kind not in (Kind.INPUT, Kind.CONSTANT)
        if written or not variables(terms) <= sizes:
            self.copy_rows(a, rows, depth, base, row_step)
            return base, row_step, str(self.item)
        last = low.last_rows()
        count = f.let(f"getelementptr i8, ptr {last}, i64 8")
        other = f.let(f"icmp ne ptr {f.let(f'load ptr, ptr {last}')}, {a[0]}")
        fewer = f.let(f"icmp ne i64 {f.let(f'load i64, ptr {count}')}, {rows}")
        with f.when(f.let(f"or i1 {other}, {fewer}")):
            self.copy_rows(a, rows, depth, base, row_step)
            f.do(f"store ptr {a[0]}, ptr {last}")
            f.do(f"store i64 {rows}, ptr {count}")
        return base, row_step, str(self.item)

    def copy_rows(
        self, a: tuple[str, str, str], rows: str, depth: str, base: str, row_step: str
    ) -> None:
        """Copy rows of A side by side, and zeros up to the height of the tile."""
        low, f = self.low, self.f
        assert self.row_axis is not None
        with f.loop("0", rows) as row:
            source = f.let(f"getelementptr i8, ptr {a[0]}, i64 {ir.mul(f, row, a[1])}")
            target = f.let(f"getelementptr i8, ptr {base}, i64 {ir.mul(f, row, row_step)}")
            if a[2] == str(self.item):
                f.declares.add("declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)")
                f.do(
                    f"call void @llvm.memcpy.p0.p0.i64(ptr {target}, ptr {source}, i64 {row_step}, i1 false)"
                )
            else:
                t = STORED[self.a.dtype]
                with f.loop("0", depth) as k:
                    there = f.let(f"getelementptr i8, ptr {source}, i64 {ir.mul(f, k, a[2])}")
                    element = f.let(f"load {t}, ptr {there}")
                    at = f.let(f"getelementptr {t}, ptr {target}, i64 {k}")
                    f.do(f"store {t} {element}, ptr {at}")
        height = low.scalar(self.row_axis.extent)
        end = f.let(f"getelementptr i8, ptr {base}, i64 {ir.mul(f, rows, row_step)}")
        rest = ir.mul(f, ir.sub(f, height, rows), row_step)
        f.declares.add("declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)")
        f.do(f"call void @llvm.memset.p0.i64(ptr {end}, i8 0, i64 {rest}, i1 false)")


class _Call:
    """Calls of row-block functions for one block of rows."""

    def __init__(
        self,
        block: _Block,
        variant: Variant,
        a: tuple[str, str, str],
        c_row: str,
        rows: str,
        depth: str,
    ) -> None:
        self.block, self.low, self.f = block, block.low, block.f
        self.variant, self.a, self.c_row, self.rows, self.depth = variant, a, c_row, rows, depth
        axis = block.row_axis
        low, high = (1, 1) if axis is None else self.low.range_of(axis.extent)
        self.heights = range(max(low, 1), high + 1)
        if ir.literal(rows) is not None:
            self.heights = range(max(int(rows), 1), int(rows) + 1)
        elif axis is not None and any(limits(block.owner.tile, axis.iter)):
            self.heights = range(1, high + 1)

    def columns(self, c: str, b: Memory, count: int) -> None:
        """A literal number of columns: the widest tiles that fit, in turn, then a masked one."""
        lanes, shapes = self.block.panel, self.block.family.widths
        common = set.intersection(*(set(shapes[h]) for h in self.heights))
        remaining, done = count, 0
        while remaining > 0:
            vectors = -(-remaining // lanes)
            width = max(w for w in common if w <= vectors)
            covered = min(remaining, width * lanes)
            last = covered - (width - 1) * lanes
            at_c = self.column_address(c, self.block.store, done)
            self.write(at_c, self.b_at(b, done), width, str(last), b, done)
            remaining, done = remaining - covered, done + covered

    def column_address(self, address: str, access: Load | Store, columns: int) -> str:
        """Return the address of the element of an access that is so many columns after the one at `address`."""
        memory = self.low.memory[access.buffer]
        step = self.block.step(memory, access.index, self.block.found.columns)
        offset = ir.mul(self.f, step, str(columns))
        if offset == "0":
            return address
        return self.f.let(f"getelementptr i8, ptr {address}, i64 {offset}")

    def b_at(self, b: Memory, columns: int) -> str:
        base = self.low.address(b, self.block.b.index)
        panel = columns // self.block.panel
        item = item_bytes(self.block.b.dtype)
        step = b.panels if b.layout is not None else str(self.block.panel * item)
        offset = ir.mul(self.f, step, str(panel))
        return base if offset == "0" else self.f.let(f"getelementptr i8, ptr {base}, i64 {offset}")

    def chunks(self, b: Memory, columns: str, aligned: bool) -> None:
        """Any number of columns from any column on: one vector at a time, never across a panel."""
        block, f, low = self.block, self.f, self.low
        name = block.found.columns
        lanes = str(block.panel)
        first = "0" if block.column_axis is None else low.scalar(block.column_axis.start)
        end = ir.add(f, first, columns)
        counter = f.slot("i64")
        head, body, done = f.name("head"), f.name("body"), f.name("end")
        f.do(f"store i64 {first}, ptr {counter}")
        f.block(head)
        now = f.let(f"load i64, ptr {counter}")
        f.do(f"br i1 {f.let(f'icmp slt i64 {now}, {end}')}, label {body}, label {done}")
        with f.within(body), _many(low, [(name, now)] if name is not None else []):
            room = lanes if aligned else ir.sub(f, lanes, ir.mod(f, now, lanes))
            count = ir.minimum(f, room, ir.sub(f, end, now))
            at_c = low.address(low.memory[block.store.buffer], block.store.index)
            at_b = low.address(b, block.b.index)
            if block.family.wide:
                self.wide(at_c, at_b, count, b)
            else:
                self.write(at_c, at_b, 1, count, b)
            f.do(f"store i64 {ir.add(f, now, count)}, ptr {counter}")
            f.do(f"br label {head}")
        f.start(done)

    def wide(self, c: str, b: str, columns: str, memory: Memory) -> None:
        """One call for any rows and columns."""
        block, low = self.block, self.low
        name = block.family.microkernel.name
        low.tiles.setdefault((name, ANY), set())
        panels = memory.panels
        if memory.layout is None:
            panels = block.step(memory, block.b.index, block.found.depth)
        function = block.family.symbol(ANY, 0, 0)
        low.f.declares.add(f"declare void @{function}({WIDE_PARAMETERS})")
        self.f.do(
            f"call void @{function}(ptr {self.a[0]}, i64 {self.a[1]}, i64 {self.rows}, ptr {b}, "
            f"i64 {panels}, ptr {c}, i64 {self.c_row}, i64 {self.depth}, i64 {columns}, "
            f"i64 {block.accumulate})"
        )

    def write(self, c: str, b: str, width: int, last: str, memory: Memory, done: int = 0) -> None:
        """One call of `width` vectors, or as many as the rows are; other operands are addressed `done` columns on."""
        block, low, family = self.block, self.low, self.block.family
        name = family.microkernel.name
        shapes_called = low.tiles.setdefault((name, self.variant), set())
        shapes = family.widths
        shapes_called |= {(h, width) for h in self.heights if width in shapes[h]}
        b_step = block.step(memory, block.b.index, block.found.depth)
        b_panel = memory.panels if memory.layout is not None else "0"
        arguments = (
            f"ptr {self.a[0]}, i64 {self.a[1]}, i64 {self.a[2]}, ptr {b}, i64 {b_panel}, "
            f"i64 {b_step}, ptr {c}, i64 {self.c_row}, i64 {self.depth}, i64 {last}, "
            f"i64 {block.accumulate}, {self.ahead(b, b_step, width, memory)}"
        )
        for load in block.others:
            first = low.address(low.memory[load.buffer], load.index)
            arguments += f", ptr {self.column_address(first, load, done)}"
        arguments = ", ".join((arguments, *block.around()))
        if len(self.heights) == 1:
            function = family.symbol(self.variant, self.heights[0], width)
            self.f.do(f"call void @{function}({arguments})")
            return
        table = f"@rows_{name}_{self.variant.suffix}_{width}_{self.heights[0]}_{self.heights[-1]}"
        entries = ", ".join(f"ptr @{family.symbol(self.variant, h, width)}" for h in self.heights)
        count = len(self.heights)
        low.tables[table] = f"{table} = internal constant [{count} x ptr] [{entries}]"
        position = ir.sub(self.f, self.rows, str(self.heights[0]))
        address = self.f.let(f"getelementptr ptr, ptr {table}, i64 {position}")
        function = self.f.let(f"load ptr, ptr {address}")
        self.f.do(f"call void {function}({arguments})")

    def ahead(self, b: str, step: str, panels: int, memory: Memory) -> str:
        """What the function asks for ahead of its use: where, and how far that moves with each step."""
        block = self.block
        columns = block.column_axis
        reuse_of_columns = None if block.split else reuse(self.low, block.b, memory, columns)
        at, moved = b, "0"
        if reuse_of_columns is not None and columns is not None:
            at, moved = prefetch_slice(self.low, reuse_of_columns, block.b, columns, panels, step)
        return f"ptr {at}, i64 {moved}"


def _point(tile: Tile, buffer: str) -> tuple[str, ...]:
    """Return the coordinates at which the tile stores `buffer`."""
    store = next(s for s in statements(tile.body) if isinstance(s, Store) and s.buffer == buffer)
    return tuple(part.name for part in store.index if isinstance(part, Var))


def _over_sizes(size: Expr, low: Vectors) -> Expr:
    """Return a bound on `size` that names only symbolic sizes."""
    sizes = {s.name for s in low.program.sizes}
    if variables(size) <= sizes:
        return size
    raise InternalError(f"scratch of {format_expr(size)} bytes depends on a loop")
