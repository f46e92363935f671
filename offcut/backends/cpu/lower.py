"""Loop programs to LLVM IR: the entry that every call reaches, for all sizes at once.

Loops, conditions and bounded values become control flow. A `Tile` is lowered in one of two ways:

by a microkernel   each reduction of the tile that the microkernel computes becomes calls of row-block
                   functions on the tile's memory; what follows at the same point runs as vectors
by vectors         lanes along the last axis, a mask where the extent is no multiple of the lanes;
                   what a tile writes lives in registers until its last statement

Either way an element of a sum is one chain of operations in the order of its reduction, so the
result does not depend on the tile it falls into.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import assert_never

from offcut.backends.cpu import fma, ir
from offcut.backends.cpu.elements import STORED, Elements, item_bytes
from offcut.backends.cpu.ir import Function
from offcut.backends.cpu.isa import Isa
from offcut.core import index as ix
from offcut.core.dtypes import FLOATS, neutral
from offcut.core.expr import (
    Binary,
    Cast,
    Compare,
    Const,
    Expr,
    Load,
    Logic,
    Lookup,
    Select,
    Unary,
    Var,
    dtype_of,
    variables,
)
from offcut.core.microkernel import Microkernel
from offcut.core.printer import format_expr
from offcut.core.program import (
    Buffer,
    Choose,
    For,
    Form,
    If,
    Kind,
    Let,
    Option,
    Panels,
    Program,
    Stmt,
    Store,
    Tile,
    TileAxis,
)
from offcut.core.program import walk as statements
from offcut.errors import InternalError
from offcut.partition import Match, matches
from offcut.polyhedral import coefficient

PANEL_SLACK = 64  # bytes past the last panel: a narrow tile reads a whole vector


@dataclass(frozen=True, slots=True)
class Memory:
    """Where a buffer lies.

    strides  bytes per step of each axis; of a panel buffer, only its outer axes use them
    origins  the coordinate at `base`, per axis
    panels   bytes from one panel to the next, for a packed layout
    """

    base: str
    dtype: str
    strides: tuple[str, ...]
    origins: tuple[str, ...]
    layout: Panels | None = None
    panels: str = "0"


@dataclass(frozen=True)
class Lanes:
    """The vector being computed: `width` instances along `axis` from its coordinate on.

    mask   lanes that are in the tile, at least the first; None: all
    path   of these, the ones whose `where` branch is taken; None: all
    """

    width: int
    axis: str | None
    mask: str | None = None
    path: str | None = None


@dataclass(frozen=True, slots=True)
class Lowered:
    """LLVM IR of `offcut_entry`, `offcut_workspace`, `offcut_work`, and the tiles that they call.

    tiles   (element type, variant, (rows, vectors)…) of the row-block functions
    """

    text: str
    tiles: tuple[tuple[str, fma.Variant, tuple[tuple[int, int], ...]], ...]


def lower(program: Program, isa: Isa, microkernels: Sequence[Microkernel], work: Expr) -> Lowered:
    """`program` for an instruction set.

    work   of a call, in instances, by which it is judged worth letting other threads run
    """
    return _Lowering(program, isa, microkernels, work).lowered()


class _Lowering:
    def __init__(
        self, program: Program, isa: Isa, microkernels: Sequence[Microkernel], work: Expr
    ) -> None:
        self.program, self.isa, self.instances_of_call = program, isa, work
        self.microkernels = {kernel.name: kernel for kernel in microkernels}
        self.f = Function()
        self.functions: dict[str, str] = {}
        self.values: dict[str, str] = {}
        self.memory: dict[str, Memory] = {}
        self.bounds: dict[Expr, tuple[int, int]] = {}
        self.tiles: dict[tuple[str, fma.Variant], set[tuple[int, int]]] = {}
        self.tables: dict[str, str] = {}
        self.scratch: list[tuple[str, Expr]] = []
        self.width = isa.lanes("float32")

    # -- the module --------------------------------------------------------------------------

    def lowered(self) -> Lowered:
        self.sizes(self.f)
        self.buffers()
        self.block(self.program.body)
        self.f.do("ret i32 0")
        head = "i32 @offcut_entry(ptr %pointers, ptr %sizes, ptr %strides, ptr %workspace)"
        entry = f"define {head} nounwind {{\n{self.with_scratch()}\n}}"
        sections = [entry, self.workspace(), self.work(), *self.functions.values()]
        sections += self.tables.values()
        tiles = tuple(
            (dtype, variant, tuple(sorted(shapes)))
            for (dtype, variant), shapes in self.tiles.items()
        )
        for dtype, variant, shapes in tiles:
            self.f.declares |= {
                f"declare void @{fma.symbol(self.isa, dtype, variant, *shape)}({fma.PARAMETERS})"
                for shape in shapes
            }
        return Lowered("\n\n".join([*sections, "\n".join(sorted(self.f.declares))]) + "\n", tiles)

    def sizes(self, f: Function) -> None:
        for position, size in enumerate(self.program.sizes):
            address = f.let(f"getelementptr i64, ptr %sizes, i64 {position}")
            self.values[size.name] = f.let(f"load i64, ptr {address}", "size")

    def buffers(self) -> None:
        """Where every buffer lies: arguments in the order of the stable entry, then scratch."""
        order = (Kind.INPUT, Kind.OUTPUT, Kind.CONSTANT)
        crossing = [b for kind in order for b in self.program.buffers if b.kind is kind]
        stride = 0
        for position, buffer in enumerate(crossing):
            address = self.f.let(f"getelementptr ptr, ptr %pointers, i64 {position}")
            base = self.f.let(f"load ptr, ptr {address}", "array")
            if buffer.kind is Kind.CONSTANT:
                self.memory[buffer.name] = self.dense(buffer, base)
                continue
            strides = []
            for axis in range(len(buffer.shape)):
                if axis == len(buffer.shape) - 1:
                    strides.append(str(item_bytes(buffer.dtype)))
                else:
                    at = self.f.let(f"getelementptr i64, ptr %strides, i64 {stride + axis}")
                    step = self.f.let(f"load i64, ptr {at}", "stride")
                    strides.append(ir.mul(self.f, step, str(item_bytes(buffer.dtype))))
            stride += len(buffer.shape)
            origins = ("0",) * len(strides)
            self.memory[buffer.name] = Memory(base, buffer.dtype, tuple(strides), origins)
        for buffer in self.program.buffers:
            if buffer.kind is Kind.LOCAL:
                base = self.scratch_of(bytes_of(buffer))
                self.memory[buffer.name] = self.dense(buffer, base)

    def dense(self, buffer: Buffer, base: str) -> Memory:
        """A buffer that offcut lays out: row-major, or in panels."""
        item = str(item_bytes(buffer.dtype))
        extents = [self.scalar(extent) for extent in buffer.shape]
        strides = [""] * len(extents)
        layout, step, panels = buffer.layout, item, "0"
        if layout is not None:
            panels = ir.mul(self.f, extents[layout.rows], str(layout.width * int(item)))
            columns = ir.add(self.f, extents[layout.columns], str(layout.width - 1))
            count = ir.floordiv(self.f, columns, str(layout.width))
            step = ir.mul(self.f, panels, count)
            strides[layout.rows], strides[layout.columns] = str(layout.width * int(item)), item
        for axis in reversed(range(len(extents))):
            if not strides[axis]:
                strides[axis] = step
                step = ir.mul(self.f, step, extents[axis])
        origins = ("0",) * len(strides)
        return Memory(base, buffer.dtype, tuple(strides), origins, layout, panels)

    def scratch_of(self, size: Expr) -> str:
        """The address of a new part of the workspace, of `size` bytes."""
        name = f"%scratch{len(self.scratch)}"
        self.scratch.append((name, size))
        return name

    def with_scratch(self) -> str:
        """The entry's text, with the parts of the workspace laid out before all else."""

        def lay_out(f: Function) -> None:
            offset = "0"
            for name, size in self.scratch:
                f.lines.append(f"  {name} = getelementptr i8, ptr %workspace, i64 {offset}")
                offset = ir.add(f, offset, self.aligned(size))

        head, body = self.over_sizes(lay_out), self.f
        return "\n".join(["entry:", *body.slots, *head.slots, *head.lines, *body.lines])

    def workspace(self) -> str:
        """Bytes of scratch of a call; where they pass int64, more than any allocator has."""

        def add_up(f: Function) -> None:
            total, magnitude = "0", "0.0"
            for _, size in self.scratch:
                total = ir.add(f, total, self.aligned(size))
                magnitude = f.let(f"fadd double {magnitude}, {self.magnitude(size)}")
            self.capped(total, magnitude)

        text = self.over_sizes(add_up).text()
        return f"define i64 @offcut_workspace(ptr %sizes) nounwind {{\n{text}\n}}"

    def work(self) -> str:
        """Instances of a call."""

        def instances(f: Function) -> None:
            total = self.scalar(self.instances_of_call)
            self.capped(total, self.magnitude(self.instances_of_call))

        text = self.over_sizes(instances).text()
        return f"define i64 @offcut_work(ptr %sizes) nounwind {{\n{text}\n}}"

    def capped(self, total: str, magnitude: str) -> None:
        """Return `total`, or 2^61 where its magnitude shows that it may have passed int64."""
        huge = self.f.let(f"fcmp ogt double {magnitude}, 0x43C0000000000000")
        self.f.do(f"ret i64 {self.f.let(f'select i1 {huge}, i64 {1 << 61}, i64 {total}')}")

    def magnitude(self, expr: Expr) -> str:
        """A bound on an index expression that is not negative, in float64."""
        match expr:
            case Binary("+" | "*" as op, a, b):
                x, y = self.magnitude(a), self.magnitude(b)
                return self.f.let(f"{'fadd' if op == '+' else 'fmul'} double {x}, {y}")
            case Binary("//", a, Const()) | Binary("-", a, _):
                return self.magnitude(a)
            case _:
                return self.f.let(f"sitofp i64 {self.scalar(expr)} to double")

    def over_sizes(self, write: Callable[[Function], None]) -> Function:
        """A function of the sizes alone, whose names are none of the entry's."""
        f = Function(prefix="s")
        kept, self.f, values = self.f, f, dict(self.values)
        self.sizes(f)
        write(f)
        self.f, self.values = kept, values
        self.f.declares |= f.declares
        return f

    def aligned(self, size: Expr) -> str:
        """`size` bytes rounded up to cache lines."""
        up = ir.add(self.f, self.scalar(size), "63")
        return ir.mul(self.f, ir.floordiv(self.f, up, "64"), "64")

    # -- statements --------------------------------------------------------------------------

    def block(self, body: Sequence[Stmt]) -> None:
        for stmt in body:
            self.statement(stmt)

    def statement(self, stmt: Stmt) -> None:
        match stmt:
            case For(name, lo, hi, body, _):
                with self.f.loop(self.scalar(lo), self.scalar(hi)) as now, self.bound(name, now):
                    self.block(body)
            case If(condition, then, other):
                self.branch(condition, then, other)
            case Let(name, lo, hi, value, body):
                with self.bound(name, self.scalar(value)), self.known(Var(name), lo, hi - 1):
                    self.block(body)
            case Tile():
                self.tile(stmt)
            case Store():
                self.tile(Tile((), (stmt,)))
            case Choose(options):
                self.choose(options)
            case _:
                assert_never(stmt)

    def branch(self, condition: Expr, then: Sequence[Stmt], other: Sequence[Stmt]) -> None:
        holds = self.holds(condition)
        yes, no, end = self.f.name("then"), self.f.name("else"), self.f.name("end")
        self.f.do(f"br i1 {holds}, label {yes}, label {no}")
        self.f.start(yes)
        with self.assumed(condition, True):
            self.block(then)
        self.f.do(f"br label {end}")
        self.f.start(no)
        with self.assumed(condition, False):
            self.block(other)
        self.f.block(end)

    def choose(self, options: Sequence[Option]) -> None:
        """Evaluate every cost, run the first of the cheapest."""
        best, cheapest = "0", ""
        for position, option in enumerate(options):
            cost = self.cost(option.cost)
            if not cheapest:
                cheapest = cost
                continue
            less = self.f.let(f"fcmp olt double {cost}, {cheapest}")
            best = self.f.let(f"select i1 {less}, i64 {position}, i64 {best}")
            cheapest = self.f.let(f"select i1 {less}, double {cost}, double {cheapest}")
        end = self.f.name("end")
        labels = [self.f.name("option") for _ in options]
        cases = " ".join(f"i64 {k}, label {label}" for k, label in enumerate(labels[1:], 1))
        self.f.do(f"switch i64 {best}, label {labels[0]} [ {cases} ]")
        for label, option in zip(labels, options, strict=True):
            self.f.start(label)
            self.block(option.body)
            self.f.do(f"br label {end}")
        self.f.start(end)

    def cost(self, expr: Expr) -> str:
        """A float64 expression over sizes, as a scalar."""
        lanes = Lanes(1, None)
        vector = self.value(expr, lanes, {})
        return self.f.let(f"extractelement <1 x double> {vector}, i32 0")

    @contextmanager
    def bound(self, name: str, value: str) -> Iterator[None]:
        """`name` stands for `value` inside."""
        old = self.values.get(name)
        self.values[name] = value
        yield
        if old is None:
            del self.values[name]
        else:
            self.values[name] = old

    @contextmanager
    def known(self, expr: Expr, lo: int, hi: int) -> Iterator[None]:
        """``lo <= expr <= hi`` holds inside."""
        old = self.bounds.get(expr)
        before = self.range_of(expr)
        self.bounds[expr] = (max(lo, before[0]), min(hi, before[1]))
        yield
        if old is None:
            del self.bounds[expr]
        else:
            self.bounds[expr] = old

    @contextmanager
    def assumed(self, condition: Expr, holds: bool) -> Iterator[None]:
        """What a comparison with a literal says about its other side."""
        match condition:
            case Logic("and", (first, *rest)) if holds:
                with self.assumed(first, True), self.assumed(_joined(rest), True):
                    yield
            case Compare(op, a, Const(value, "index")):
                limit = int(value)
                if not holds:
                    op = {"<": ">=", "<=": ">", ">": "<=", ">=": "<"}.get(op, "")
                lo, hi = _INTERVAL.get(op, (None, None))
                low = -(2**62) if lo is None else limit + lo
                high = 2**62 if hi is None else limit + hi
                with self.known(a, low, high):
                    yield
            case _:
                yield

    def range_of(self, expr: Expr) -> tuple[int, int]:
        """Bounds of an index expression, from the conditions around and from its form."""
        lo, hi = self.bounds.get(expr, (-(2**62), 2**62))
        match expr:
            case Const(value, _):
                return int(value), int(value)
            case Binary("%", _, Const(value, _)):
                return max(lo, 0), min(hi, int(value) - 1)
            case Binary("+" | "-" as op, a, Const(value, _)):
                first, last = self.range_of(a)
                step = int(value) if op == "+" else -int(value)
                return max(lo, first + step), min(hi, last + step)
        return lo, hi

    def bounded(self, expr: Expr) -> bool:
        """Whether an upper bound of a tile's extent is known, so that scratch can hold it."""
        return self.range_of(expr)[1] <= 4096

    # -- integers ----------------------------------------------------------------------------

    def scalar(self, expr: Expr) -> str:
        """An index expression as an i64."""
        f = self.f
        match expr:
            case Const(value, _):
                return str(int(value))
            case Var(name):
                return self.values[name]
            case Binary(op, a, b):
                x, y = self.scalar(a), self.scalar(b)
                operation = {
                    "+": ir.add,
                    "-": ir.sub,
                    "*": ir.mul,
                    "//": ir.floordiv,
                    "%": ir.mod,
                    "min": ir.minimum,
                    "max": ir.maximum,
                }[op]
                return operation(f, x, y)
            case _:
                raise InternalError(f"{format_expr(expr)} is no index")

    def holds(self, expr: Expr) -> str:
        """A condition on indices as an i1."""
        match expr:
            case Const(value, "bool"):
                return "true" if value else "false"
            case Compare(op, a, b):
                word = {"<": "slt", "<=": "sle", ">": "sgt", ">=": "sge", "==": "eq", "!=": "ne"}
                x, y = self.scalar(a), self.scalar(b)
                return self.f.let(f"icmp {word[op]} i64 {x}, {y}")
            case Logic("not", (arg,)):
                return self.f.let(f"xor i1 {self.holds(arg)}, true")
            case Logic(op, args):
                total = self.holds(args[0])
                for arg in args[1:]:
                    total = self.f.let(f"{op} i1 {total}, {self.holds(arg)}")
                return total
            case _:
                raise InternalError(f"{format_expr(expr)} is no condition on indices")

    # -- tiles -------------------------------------------------------------------------------

    def tile(self, tile: Tile) -> None:
        kernel = self.microkernels.get(tile.microkernel or "")
        if kernel is None or not _KernelTile(self, tile, kernel).lower():
            self.vectors(tile, tile.body, {})

    def active(self, tile: Tile, axis: TileAxis) -> str:
        """How many instances of a tile along `axis` are in the domain, from its start on."""
        extent = self.scalar(axis.extent)
        for limit in _limits(tile.where, axis.iter):
            room = ir.sub(self.f, self.scalar(limit), self.scalar(axis.start))
            extent = ir.minimum(self.f, extent, room)
        return extent

    def vectors(self, tile: Tile, body: Sequence[Stmt], memory: Mapping[str, Memory]) -> None:
        """Run `body` for every instance of `tile`, lanes along its last axis.

        memory   where buffers lie that the tile keeps in scratch
        """
        written = {s.buffer for s in statements(tuple(body)) if isinstance(s, Store)}
        with self.placed(memory):
            self.rows(tile, tile.axes, body, written)

    @contextmanager
    def placed(self, memory: Mapping[str, Memory]) -> Iterator[None]:
        kept = self.memory
        self.memory = {**kept, **memory}
        yield
        self.memory = kept

    def rows(
        self, tile: Tile, axes: Sequence[TileAxis], body: Sequence[Stmt], written: set[str]
    ) -> None:
        if len(axes) > 1:
            start = self.scalar(axes[0].start)
            end = ir.add(self.f, start, self.active(tile, axes[0]))
            with self.f.loop(start, end) as now, self.bound(axes[0].iter, now):
                self.rows(tile, axes[1:], body, written)
            return
        if not axes:
            self.instances(body, written, Lanes(1, None))
            return
        axis, width = axes[0], self.width
        start, count = self.scalar(axis.start), self.active(tile, axis)
        known = ir.literal(count)
        if known is not None and known < width:
            width = 1 if known == 1 else width
        full = ir.mul(self.f, ir.floordiv(self.f, count, str(width)), str(width))
        if known is None or known >= width:
            with self.f.loop("0", full, width) as now:
                at = ir.add(self.f, start, now)
                with self.bound(axis.iter, at):
                    self.instances(body, written, Lanes(width, axis.iter))
        if known is not None and known % width == 0:
            return
        rest = ir.sub(self.f, count, full)
        some = self.f.let(f"icmp sgt i64 {rest}, 0")
        with self.f.when(some), self.bound(axis.iter, ir.add(self.f, start, full)):
            e = self.elements(width)
            limit = e.splat(rest, "index")
            mask = e.compare("<", "index", e.ramp(), limit)
            self.instances(body, written, Lanes(width, axis.iter, mask))

    def elements(self, width: int) -> Elements:
        return Elements(self.f, width, self.isa.fma, self.functions)

    def instances(self, body: Sequence[Stmt], written: set[str], lanes: Lanes) -> None:
        """Run `body` for one vector of instances; what it writes is kept in registers meanwhile."""
        e = self.elements(lanes.width)
        stores = [s for s in statements(tuple(body)) if isinstance(s, Store)]
        slots: dict[str, str] = {}
        last: dict[str, Store] = {}
        for store in stores:
            if store.buffer not in slots:
                dtype = self.program.buffer(store.buffer).dtype
                slots[store.buffer] = self.f.slot(e.kind(dtype))
                if store.reduce is not None:
                    old = self.load(store.buffer, store.index, dtype, lanes)
                    self.f.do(f"store {e.kind(dtype)} {old}, ptr {slots[store.buffer]}")
            last[store.buffer] = store
        self.vector_block(body, lanes, slots)
        for buffer, store in last.items():
            if buffer in self.memory:
                dtype = self.program.buffer(buffer).dtype
                value = self.f.let(f"load {e.kind(dtype)}, ptr {slots[buffer]}")
                self.save(buffer, store.index, value, lanes)

    def vector_block(self, body: Sequence[Stmt], lanes: Lanes, slots: dict[str, str]) -> None:
        e = self.elements(lanes.width)
        for stmt in body:
            match stmt:
                case For(name, lo, hi, inner, _):
                    lo_hi = self.scalar(lo), self.scalar(hi)
                    with self.f.loop(*lo_hi) as now, self.bound(name, now):
                        self.vector_block(inner, lanes, slots)
                case If(condition, then, other):
                    holds = self.holds(condition)
                    with self.f.when(holds):
                        self.vector_block(then, lanes, slots)
                    if other:
                        with self.f.when(self.f.let(f"xor i1 {holds}, true")):
                            self.vector_block(other, lanes, slots)
                case Store(buffer, _, value, reduce):
                    dtype, slot = self.program.buffer(buffer).dtype, slots[buffer]
                    kind = e.kind(dtype)
                    if reduce is None:
                        result = self.value(value, lanes, slots)
                    else:
                        old = self.f.let(f"load {kind}, ptr {slot}")
                        result = self.reduced(reduce, old, value, dtype, lanes, slots)
                    self.f.do(f"store {kind} {result}, ptr {slot}")
                case _:
                    raise InternalError(f"{type(stmt).__name__} inside a tile")

    def reduced(
        self, op: str, old: str, term: Expr, dtype: str, lanes: Lanes, slots: dict[str, str]
    ) -> str:
        """``old op term``; a product is contracted into the sum, as microkernels do."""
        e = self.elements(lanes.width)
        match term:
            case Select(inside, then, Const()) if _is_neutral(op, term.other):
                holds = self.value(inside, lanes, slots)
                path = holds
                if lanes.path is not None:
                    path = self.f.let(f"and <{lanes.width} x i1> {lanes.path}, {holds}")
                new = self.reduced(op, old, then, dtype, replace(lanes, path=path), slots)
                return e.select(holds, new, old, dtype)
        if op == "sum" and isinstance(term, Binary) and term.op == "*" and dtype in FLOATS:
            a, b = self.value(term.a, lanes, slots), self.value(term.b, lanes, slots)
            return e.multiply_add(dtype, a, b, old)
        return e.binary({"sum": "+"}.get(op, op), dtype, old, self.value(term, lanes, slots))

    # -- values ------------------------------------------------------------------------------

    def value(self, expr: Expr, lanes: Lanes, slots: Mapping[str, str]) -> str:
        """An expression for a vector of instances; `slots` hold what the tile has written."""
        e = self.elements(lanes.width)
        dtype = dtype_of(expr)
        if dtype == "index":
            return self.lane_index(expr, lanes)
        match expr:
            case Const(value, _):
                return e.constant(value, dtype)
            case Load(buffer, index, _):
                if buffer in slots:
                    return self.f.let(f"load {e.kind(dtype)}, ptr {slots[buffer]}")
                return self.load(buffer, index, dtype, lanes)
            case Binary(op, a, b):
                x, y = self.value(a, lanes, slots), self.value(b, lanes, slots)
                return e.binary(op, dtype, x, y)
            case Unary(op, a):
                return e.unary(op, dtype, self.value(a, lanes, slots))
            case Cast(a, _):
                return e.cast(self.value(a, lanes, slots), dtype_of(a), dtype)
            case Compare(op, a, b):
                x, y = self.value(a, lanes, slots), self.value(b, lanes, slots)
                return e.compare(op, dtype_of(a), x, y)
            case Logic("not", (arg,)):
                word = f"xor <{lanes.width} x i1>"
                return self.f.let(f"{word} {self.value(arg, lanes, slots)}, splat (i1 true)")
            case Logic(op, args):
                total = self.value(args[0], lanes, slots)
                for arg in args[1:]:
                    other = self.value(arg, lanes, slots)
                    total = self.f.let(f"{op} <{lanes.width} x i1> {total}, {other}")
                return total
            case Select(condition, then, other):
                return self.select(condition, then, other, lanes, slots)
            case Lookup(values, index):
                return self.lookup(values, index, lanes)
            case _:
                raise InternalError(f"{format_expr(expr)} inside a statement")

    def select(
        self, condition: Expr, then: Expr, other: Expr, lanes: Lanes, slots: Mapping[str, str]
    ) -> str:
        """Both branches, each with the lanes of the other turned off."""
        e = self.elements(lanes.width)
        holds = self.value(condition, lanes, slots)
        kind = f"<{lanes.width} x i1>"
        fails = self.f.let(f"xor {kind} {holds}, splat (i1 true)")
        sides = []
        for chosen, branch in ((holds, then), (fails, other)):
            path = chosen
            if lanes.path is not None:
                path = self.f.let(f"and {kind} {lanes.path}, {chosen}")
            sides.append(self.value(branch, replace(lanes, path=path), slots))
        return e.select(holds, sides[0], sides[1], dtype_of(then))

    def lookup(self, values: tuple[float, ...], index: Expr, lanes: Lanes) -> str:
        e = self.elements(lanes.width)
        name = f"@table{len(self.tables)}"
        entries = ", ".join(f"double {e.scalar(v, 'float64')}" for v in values)
        self.tables[name] = f"{name} = internal constant [{len(values)} x double] [{entries}]"
        address = self.f.let(f"getelementptr double, ptr {name}, i64 {self.scalar(index)}")
        return e.splat(self.f.let(f"load double, ptr {address}"), "float64")

    def lane_index(self, expr: Expr, lanes: Lanes) -> str:
        """An index expression for every lane, as <lanes x i64>."""
        e = self.elements(lanes.width)
        if lanes.axis is None or lanes.axis not in variables(expr):
            return e.splat(self.scalar(expr), "index")
        match expr:
            case Var():
                base = e.splat(self.scalar(expr), "index")
                return base if lanes.width == 1 else e.binary("+", "index", base, e.ramp())
            case Binary(op, a, b):
                x, y = self.lane_index(a, lanes), self.lane_index(b, lanes)
                return e.binary(op, "index", x, y)
            case _:
                raise InternalError(f"{format_expr(expr)} is no index")

    # -- memory ------------------------------------------------------------------------------

    def address(self, memory: Memory, index: Sequence[Expr]) -> str:
        """The address of one element, the lane axis at its first lane."""
        base = memory.base
        total = "0"
        for axis, part in enumerate(index):
            at = ir.sub(self.f, self.scalar(part), memory.origins[axis])
            if memory.layout is not None and axis == memory.layout.columns:
                width = str(memory.layout.width)
                panel = ir.mul(self.f, ir.floordiv(self.f, at, width), memory.panels)
                inside = ir.mul(self.f, ir.mod(self.f, at, width), memory.strides[axis])
                total = ir.add(self.f, total, ir.add(self.f, panel, inside))
            else:
                total = ir.add(self.f, total, ir.mul(self.f, at, memory.strides[axis]))
        return base if total == "0" else self.f.let(f"getelementptr i8, ptr {base}, i64 {total}")

    def lane_addresses(self, memory: Memory, index: Sequence[Expr], lanes: Lanes) -> str:
        """The addresses of every lane's element, as <lanes x ptr>."""
        e = self.elements(lanes.width)
        total = e.constant(0, "index")
        for axis, part in enumerate(index):
            at = self.lane_index(part, lanes)
            if memory.origins[axis] != "0":
                at = e.binary("-", "index", at, e.splat(memory.origins[axis], "index"))
            if memory.layout is not None and axis == memory.layout.columns:
                width = e.constant(memory.layout.width, "index")
                panel = e.binary("//", "index", at, width)
                panel = e.binary("*", "index", panel, e.splat(memory.panels, "index"))
                inside = e.binary("%", "index", at, width)
                inside = e.binary("*", "index", inside, e.splat(memory.strides[axis], "index"))
                step = e.binary("+", "index", panel, inside)
            else:
                step = e.binary("*", "index", at, e.splat(memory.strides[axis], "index"))
            total = e.binary("+", "index", total, step)
        vector = f"<{lanes.width} x i64>"
        return self.f.let(f"getelementptr i8, ptr {memory.base}, {vector} {total}")

    def along(self, memory: Memory, index: Sequence[Expr], lanes: Lanes) -> str:
        """How lanes lie: "one" element for all, "next" to each other, or "apart"."""
        if lanes.axis is None or lanes.width == 1:
            return "one" if lanes.axis is None else "next"
        steps = [coefficient(part, lanes.axis) for part in index]
        if all(step == 0 for step in steps):
            return "one"
        moving = [axis for axis, step in enumerate(steps) if step != 0]
        if moving != [len(index) - 1] and memory.layout is None:
            return "apart"
        if len(moving) != 1 or steps[moving[0]] != 1:
            return "apart"
        if memory.layout is None:
            return "next" if memory.strides[-1] == str(item_bytes(memory.dtype)) else "apart"
        on_columns = moving[0] == memory.layout.columns
        whole = memory.layout.width % lanes.width == 0
        return "next" if on_columns and whole and index[moving[0]] == Var(lanes.axis) else "apart"

    def mask_of(self, lanes: Lanes) -> str | None:
        if lanes.mask is None or lanes.path is None:
            return lanes.mask or lanes.path
        return self.f.let(f"and <{lanes.width} x i1> {lanes.mask}, {lanes.path}")

    def load(self, buffer: str, index: Sequence[Expr], dtype: str, lanes: Lanes) -> str:
        """The elements at `index`; lanes that are off read nothing."""
        memory, e = self.memory[buffer], self.elements(lanes.width)
        stored, align = e.stored(dtype), item_bytes(dtype)
        kind, bits = self.along(memory, index, lanes), f"<{lanes.width} x i1>"
        suffix = f"v{lanes.width}{_SUFFIX[STORED[dtype]]}"
        mask = self.mask_of(lanes)
        if kind == "one":
            address = self.address(memory, index)
            if lanes.path is None:
                element = self.f.let(f"load {STORED[dtype]}, ptr {address}, align {align}")
            else:
                element = self.load_if_any(address, dtype, mask or "", lanes)
            raw = self.splat_stored(element, dtype, lanes)
        elif kind == "next":
            address = self.address(memory, index)
            if mask is None:
                raw = self.f.let(f"load {stored}, ptr {address}, align {align}")
            else:
                raw = self.f.call(
                    stored,
                    f"llvm.masked.load.{suffix}.p0",
                    f"ptr {address}, i32 {align}, {bits} {mask}, {stored} zeroinitializer",
                    f"ptr, i32, {bits}, {stored}",
                )
        else:
            addresses = self.lane_addresses(memory, index, lanes)
            pointers = f"<{lanes.width} x ptr>"
            chosen = mask if mask is not None else "splat (i1 true)"
            raw = self.f.call(
                stored,
                f"llvm.masked.gather.{suffix}.v{lanes.width}p0",
                f"{pointers} {addresses}, i32 {align}, {bits} {chosen}, {stored} zeroinitializer",
                f"{pointers}, i32, {bits}, {stored}",
            )
        return e.loaded(raw, dtype)

    def load_if_any(self, address: str, dtype: str, mask: str, lanes: Lanes) -> str:
        """One element, read only where some lane wants it; 0 otherwise."""
        bits = f"<{lanes.width} x i1>"
        some = self.f.call("i1", f"llvm.vector.reduce.or.v{lanes.width}i1", f"{bits} {mask}", bits)
        slot = self.f.slot(STORED[dtype])
        zero = "0.0" if STORED[dtype] in ("float", "double") else "0"
        self.f.do(f"store {STORED[dtype]} {zero}, ptr {slot}")
        with self.f.when(some):
            element = self.f.let(f"load {STORED[dtype]}, ptr {address}, align {item_bytes(dtype)}")
            self.f.do(f"store {STORED[dtype]} {element}, ptr {slot}")
        return self.f.let(f"load {STORED[dtype]}, ptr {slot}")

    def splat_stored(self, element: str, dtype: str, lanes: Lanes) -> str:
        kind = f"<{lanes.width} x {STORED[dtype]}>"
        one = self.f.let(f"insertelement {kind} poison, {STORED[dtype]} {element}, i32 0")
        zeros = f"<{lanes.width} x i32> zeroinitializer"
        return self.f.let(f"shufflevector {kind} {one}, {kind} poison, {zeros}")

    def save(self, buffer: str, index: Sequence[Expr], value: str, lanes: Lanes) -> None:
        """Write the elements at `index`; lanes that are off write nothing."""
        memory, e = self.memory[buffer], self.elements(lanes.width)
        dtype = memory.dtype
        stored, align = e.stored(dtype), item_bytes(dtype)
        raw, bits = e.storable(value, dtype), f"<{lanes.width} x i1>"
        suffix = f"v{lanes.width}{_SUFFIX[STORED[dtype]]}"
        mask = self.mask_of(lanes)
        kind = self.along(memory, index, lanes)
        if kind == "apart":
            addresses = self.lane_addresses(memory, index, lanes)
            pointers = f"<{lanes.width} x ptr>"
            chosen = mask if mask is not None else "splat (i1 true)"
            name = f"llvm.masked.scatter.{suffix}.v{lanes.width}p0"
            self.f.declares.add(f"declare void @{name}({stored}, {pointers}, i32, {bits})")
            arguments = f"{stored} {raw}, {pointers} {addresses}, i32 {align}, {bits} {chosen}"
            self.f.do(f"call void @{name}({arguments})")
            return
        address = self.address(memory, index)
        if mask is not None and memory.layout is not None:
            # A panel holds whole vectors: its columns past the extent are zero.
            zero = "zeroinitializer"
            raw = self.f.let(f"select {bits} {mask}, {stored} {raw}, {stored} {zero}")
            mask = None
        if mask is None:
            self.f.do(f"store {stored} {raw}, ptr {address}, align {align}")
            return
        name = f"llvm.masked.store.{suffix}.p0"
        self.f.declares.add(f"declare void @{name}({stored}, ptr, i32, {bits})")
        self.f.do(f"call void @{name}({stored} {raw}, ptr {address}, i32 {align}, {bits} {mask})")


@dataclass(frozen=True, slots=True)
class _Sum:
    """A sum inside a tile: its store, how the microkernel covers it, and its loops."""

    store: Store
    found: Match
    loop: For
    around: tuple[For, ...]


class _KernelTile:
    """A tile whose sums a row-block microkernel computes.

    The statements of the tile run one after the other over the whole tile, which is the same as
    instance by instance since instances are independent. The first buffer, the sum, lies in the
    result itself, or in scratch where only the tile's later statements need it.
    """

    def __init__(self, lowering: _Lowering, tile: Tile, kernel: Microkernel) -> None:
        self.low, self.tile, self.kernel = lowering, tile, kernel
        self.f = lowering.f
        self.axes = {axis.iter: axis for axis in tile.axes}

    def lower(self) -> bool:
        """Whether the microkernel could take the tile; nothing is written where it could not."""
        body = self.tile.body
        plans = [self.reduction(stmt) for stmt in body]
        first = next((plan for plan in plans if plan), None)
        if first is None:
            return False
        sum_buffer = first.store.buffer
        memory = self.scratch_for(sum_buffer, first.found)
        padded = self.tile.form is Form.PAD and sum_buffer in self.low.memory
        pending: list[Stmt] = []
        set_to_zero = False
        for position, (stmt, plan) in enumerate(zip(body, plans, strict=True)):
            if plan is None:
                after = plans[position + 1] if position + 1 < len(plans) else None
                sets = isinstance(stmt, Store) and stmt.buffer == sum_buffer and not stmt.reduce
                if sets and after is not None and not after.around:
                    set_to_zero = True
                else:
                    pending.append(stmt)
                continue
            if pending:
                self.low.vectors(self.tile, pending, memory)
                pending = []
            with self.low.placed(memory):
                self.within(plan.around, plan, accumulate=not set_to_zero)
            set_to_zero = False
        if padded:
            self.copy_out(sum_buffer, memory)
        if pending:
            self.low.vectors(self.tile, pending, {} if padded else memory)
        return True

    def reduction(self, stmt: Stmt) -> _Sum | None:
        """A sum that the microkernel computes, with the loops around its innermost one."""
        around: list[For] = []
        while isinstance(stmt, For) and len(stmt.body) == 1:
            inner = stmt.body[0]
            if isinstance(inner, Store):
                ways = matches(self.kernel, inner.value, inner.reduce, list(self.axes), [stmt.iter])
                found = next((way for way in ways if self.fits(inner, way)), None)
                return None if found is None else _Sum(inner, found, stmt, tuple(around))
            around.append(stmt)
            stmt = inner
        return None

    def fits(self, store: Store, found: Match) -> bool:
        """Whether heights exist and columns are next to each other, in B and in the result."""
        low = self.low
        rows = self.axes.get(found.rows or "")
        columns = self.axes.get(found.columns or "")
        if rows is not None and low.range_of(rows.extent)[1] > self.kernel.max_rows:
            return False
        if not all(low.bounded(axis.extent) for axis in self.tile.axes):
            return False
        if columns is None:
            return True
        lanes = Lanes(2, columns.iter)
        b = found.operand("B")
        layout = low.memory[b.buffer].layout
        if layout is None:
            b_unit = low.along(low.memory[b.buffer], b.index, lanes) == "next"
        else:
            b_unit = b.index[layout.columns] == Var(columns.iter)
        held = low.memory.get(store.buffer)
        if held is not None and self.tile.form is not Form.PAD:
            b_unit = b_unit and low.along(held, store.index, lanes) == "next"
        return b_unit

    def within(self, around: Sequence[For], plan: _Sum, accumulate: bool) -> None:
        """The loops around a sum, then its calls; axes that the microkernel lacks are loops too."""
        if around:
            low, loop = self.low, around[0]
            lo_hi = low.scalar(loop.lo), low.scalar(loop.hi)
            with self.f.loop(*lo_hi) as now, low.bound(loop.iter, now):
                self.within(around[1:], plan, accumulate)
            return
        mapped = (plan.found.rows, plan.found.columns)
        others = [axis for axis in self.tile.axes if axis.iter not in mapped]
        self.over(others, plan.store, plan.found, plan.loop, accumulate)

    def scratch_for(self, buffer: str, found: Match) -> dict[str, Memory]:
        """Memory of the sum, where it is private to the tile or the tile is padded."""
        low = self.low
        held = buffer in low.memory
        if held and self.tile.form is not Form.PAD:
            return {}
        info = low.program.buffer(buffer)
        item = item_bytes(info.dtype)
        names = list(self.axes)
        strides = dict.fromkeys(names, 0)
        step = item
        order = [n for n in names if n not in (found.rows, found.columns)]
        order += [n for n in (found.rows, found.columns) if n is not None]
        for name in reversed(order):
            strides[name] = step
            extent = low.range_of(self.axes[name].extent)[1]
            step *= max(extent, 1)
        slot = self.f.slot(f"[{max(step, 64)} x i8]", 64)
        point = low_point(self.tile, buffer)
        parts = tuple(str(strides.get(name, 0)) for name in point)
        origins = tuple(
            low.scalar(self.axes[name].start) if name in self.axes else low.values[name]
            for name in point
        )
        return {buffer: Memory(slot, info.dtype, parts, origins)}

    def copy_out(self, buffer: str, memory: Mapping[str, Memory]) -> None:
        """Store what a padded tile owns of the sum."""
        low = self.low
        info = low.program.buffer(buffer)
        point = tuple(Var(name) for name in low_point(self.tile, buffer))
        alias = f"{buffer} padded"
        value = Load(alias, point, info.dtype)
        low.vectors(self.tile, (Store(buffer, point, value),), {alias: memory[buffer]})

    def over(
        self,
        others: Sequence[TileAxis],
        store: Store,
        found: Match,
        loop: For,
        accumulate: bool,
    ) -> None:
        if others:
            start = self.low.scalar(others[0].start)
            end = ir.add(self.f, start, self.low.active(self.tile, others[0]))
            with self.f.loop(start, end) as now, self.low.bound(others[0].iter, now):
                self.over(others[1:], store, found, loop, accumulate)
            return
        low = self.low
        rows, columns = self.axes.get(found.rows or ""), self.axes.get(found.columns or "")
        points = [(axis.iter, low.scalar(axis.start)) for axis in (rows, columns) if axis]
        depth = (loop.iter, low.scalar(loop.lo))
        with _many(low, [*points, depth]):
            _Block(self, store, found, loop, rows, columns, accumulate).write()


@contextmanager
def _many(low: _Lowering, names: Sequence[tuple[str, str]]) -> Iterator[None]:
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
        store: Store,
        found: Match,
        loop: For,
        rows: TileAxis | None,
        columns: TileAxis | None,
        accumulate: bool,
    ) -> None:
        self.owner, self.low, self.f = owner, owner.low, owner.f
        self.store, self.found, self.loop = store, found, loop
        self.row_axis, self.column_axis = rows, columns
        self.accumulate = "1" if accumulate else "0"
        self.kernel = owner.kernel
        self.a = found.operand("A")
        self.b = found.operand("B")
        self.dtype = self.a.dtype
        self.lanes = self.low.isa.lanes(self.dtype)
        self.item = item_bytes(self.dtype)

    def write(self) -> None:
        low, tile = self.low, self.owner.tile
        padded = tile.form is Form.PAD
        depth = ir.sub(self.f, low.scalar(self.loop.hi), low.scalar(self.loop.lo))
        rows = "1" if self.row_axis is None else low.active(tile, self.row_axis)
        columns = "1" if self.column_axis is None else low.active(tile, self.column_axis)
        a = (low.address(low.memory[self.a.buffer], self.a.index), *self.steps(self.a))
        if padded and self.row_axis is not None:
            a = self.staged(a, rows, depth)
            rows = low.scalar(self.row_axis.extent)
        b_memory = low.memory[self.b.buffer]
        variant = fma.Variant(a[2] == str(self.item), b_memory.layout is not None)
        c_memory = low.memory[self.store.buffer]
        c = low.address(c_memory, self.store.index)
        c_row = self.step(c_memory, self.store.index, self.found.rows)
        known = ir.literal(columns)
        aligned = b_memory.layout is None or self.aligned(b_memory.layout)
        call = _Call(self, variant, a, c_row, rows, depth)
        if known is not None and aligned:
            call.columns(c, b_memory, known)
        else:
            call.chunks(c, b_memory, columns, aligned)

    def aligned(self, layout: Panels) -> bool:
        """Whether the tile's first column starts a panel."""
        if self.column_axis is None:
            return False
        form = ix.linear(self.column_axis.start)
        steps = [form.const, *(factor for _, factor in form.terms)]
        return all(step % layout.width == 0 for step in steps)

    def step(self, memory: Memory, index: Sequence[Expr], axis: str | None) -> str:
        """Bytes by which an element moves along `axis`."""
        total = "0"
        if axis is None:
            return total
        for position, part in enumerate(index):
            factor = coefficient(part, axis) or 0
            moved = ir.mul(self.f, str(factor), memory.strides[position])
            total = ir.add(self.f, total, moved)
        return total

    def steps(self, load: Load) -> tuple[str, str]:
        memory = self.low.memory[load.buffer]
        along = (self.found.rows, self.found.depth)
        row, depth = (self.step(memory, load.index, axis) for axis in along)
        return row, depth

    def staged(self, a: tuple[str, str, str], rows: str, depth: str) -> tuple[str, str, str]:
        """A copied into a full-size scratch, rows past the extent zero."""
        low, f = self.low, self.f
        assert self.row_axis is not None
        height = low.scalar(self.row_axis.extent)
        size = ix.mul(ix.mul(self.row_axis.extent, ix.sub(self.loop.hi, self.loop.lo)), self.item)
        base = low.scratch_of(_over_sizes(size, low))
        row_step = ir.mul(f, depth, str(self.item))
        t = STORED[self.dtype]
        with f.loop("0", height) as row:
            inside = f.let(f"icmp slt i64 {row}, {rows}")
            source = f.let(f"getelementptr i8, ptr {a[0]}, i64 {ir.mul(f, row, a[1])}")
            target = f.let(f"getelementptr i8, ptr {base}, i64 {ir.mul(f, row, row_step)}")
            with f.loop("0", depth) as k:
                at = f.let(f"getelementptr {t}, ptr {target}, i64 {k}")
                f.do(f"store {t} 0.0, ptr {at}")
            with f.when(inside), f.loop("0", depth) as k:
                there = f.let(f"getelementptr i8, ptr {source}, i64 {ir.mul(f, k, a[2])}")
                element = f.let(f"load {t}, ptr {there}")
                at = f.let(f"getelementptr {t}, ptr {target}, i64 {k}")
                f.do(f"store {t} {element}, ptr {at}")
        return base, row_step, str(self.item)


class _Call:
    """Calls of row-block functions for one block of rows."""

    def __init__(
        self,
        block: _Block,
        variant: fma.Variant,
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
            self.heights = range(int(rows), int(rows) + 1)
        elif axis is not None and any(_limits(block.owner.tile.where, axis.iter)):
            self.heights = range(1, high + 1)

    def columns(self, c: str, b: Memory, count: int) -> None:
        """A literal number of columns: the widest tiles that fit, in turn, then a masked one."""
        lanes = self.block.lanes
        shapes = fma.widths(self.low.isa)
        common = set.intersection(*(set(shapes[h]) for h in self.heights))
        left, done = count, 0
        while left > 0:
            vectors = -(-left // lanes)
            width = max(w for w in common if w <= vectors)
            covered = min(left, width * lanes)
            self.call(self.moved(c, done), self.b_at(b, done), width, covered, b)
            left, done = left - covered, done + covered

    def moved(self, c: str, columns: int) -> str:
        step = self.block.step(
            self.low.memory[self.block.store.buffer],
            self.block.store.index,
            self.block.found.columns,
        )
        offset = ir.mul(self.f, step, str(columns))
        return c if offset == "0" else self.f.let(f"getelementptr i8, ptr {c}, i64 {offset}")

    def b_at(self, b: Memory, columns: int) -> str:
        base = self.low.address(b, self.block.b.index)
        panel = columns // self.block.lanes
        step = b.panels if b.layout is not None else str(self.block.lanes * self.block.item)
        offset = ir.mul(self.f, step, str(panel))
        return base if offset == "0" else self.f.let(f"getelementptr i8, ptr {base}, i64 {offset}")

    def chunks(self, c: str, b: Memory, columns: str, aligned: bool) -> None:
        """Any number of columns from any column on: one vector at a time, never across a panel."""
        block, f, low = self.block, self.f, self.low
        name = block.found.columns
        lanes = str(block.lanes)
        first = "0" if block.column_axis is None else low.scalar(block.column_axis.start)
        end = ir.add(f, first, columns)
        counter = f.slot("i64")
        head, body, done = f.name("head"), f.name("body"), f.name("end")
        f.do(f"store i64 {first}, ptr {counter}")
        f.block(head)
        now = f.let(f"load i64, ptr {counter}")
        f.do(f"br i1 {f.let(f'icmp slt i64 {now}, {end}')}, label {body}, label {done}")
        f.start(body)
        room = lanes if aligned else ir.sub(f, lanes, ir.mod(f, now, lanes))
        count = ir.minimum(f, room, ir.sub(f, end, now))
        with _many(low, [(name, now)] if name is not None else []):
            at_c = low.address(low.memory[block.store.buffer], block.store.index)
            at_b = low.address(b, block.b.index)
            self.call_dynamic(at_c, at_b, count, b)
        f.do(f"store i64 {ir.add(f, now, count)}, ptr {counter}")
        f.do(f"br label {head}")
        f.start(done)

    def call(self, c: str, b: str, width: int, columns: int, memory: Memory) -> None:
        last = columns - (width - 1) * self.block.lanes
        self.write(c, b, width, str(last), memory)

    def call_dynamic(self, c: str, b: str, columns: str, memory: Memory) -> None:
        self.write(c, b, 1, columns, memory)

    def write(self, c: str, b: str, width: int, last: str, memory: Memory) -> None:
        block, low = self.block, self.low
        dtype, isa = block.dtype, low.isa
        wanted = low.tiles.setdefault((dtype, self.variant), set())
        shapes = fma.widths(isa)
        wanted |= {(h, width) for h in self.heights if width in shapes[h]}
        b_step = block.step(memory, block.b.index, block.found.depth)
        b_panel = memory.panels if memory.layout is not None else "0"
        arguments = (
            f"ptr {self.a[0]}, i64 {self.a[1]}, i64 {self.a[2]}, ptr {b}, i64 {b_panel}, "
            f"i64 {b_step}, ptr {c}, i64 {self.c_row}, i64 {self.depth}, i64 {last}, "
            f"i64 {block.accumulate}"
        )
        if len(self.heights) == 1:
            name = fma.symbol(isa, dtype, self.variant, self.heights[0], width)
            self.f.do(f"call void @{name}({arguments})")
            return
        table = f"@rows_{dtype}_{self.variant.suffix}_{width}_{self.heights[0]}_{self.heights[-1]}"
        entries = ", ".join(
            f"ptr @{fma.symbol(isa, dtype, self.variant, h, width)}" for h in self.heights
        )
        count = len(self.heights)
        low.tables[table] = f"{table} = internal constant [{count} x ptr] [{entries}]"
        position = ir.sub(self.f, self.rows, str(self.heights[0]))
        address = self.f.let(f"getelementptr ptr, ptr {table}, i64 {position}")
        function = self.f.let(f"load ptr, ptr {address}")
        self.f.do(f"call void {function}({arguments})")


_INTERVAL: dict[str, tuple[int | None, int | None]] = {
    "<": (None, -1),
    "<=": (None, 0),
    ">": (1, None),
    ">=": (0, None),
    "==": (0, 0),
}
_SUFFIX = {"double": "f64", "float": "f32", "i64": "i64", "i32": "i32", "i16": "i16", "i8": "i8"}


def bytes_of(buffer: Buffer) -> Expr:
    """Bytes of a buffer that offcut lays out, as an index expression."""
    total: Expr = ix.const(item_bytes(buffer.dtype))
    for axis, extent in enumerate(buffer.shape):
        if buffer.layout is not None and axis == buffer.layout.columns:
            width = buffer.layout.width
            extent = ix.mul(ix.ceildiv(extent, width), width)
        total = ix.mul(total, extent)
    return ix.add(total, PANEL_SLACK) if buffer.layout is not None else total


def low_point(tile: Tile, buffer: str) -> tuple[str, ...]:
    """The coordinates at which the tile stores `buffer`."""
    store = next(s for s in statements(tile.body) if isinstance(s, Store) and s.buffer == buffer)
    return tuple(part.name for part in store.index if isinstance(part, Var))


def _is_neutral(op: str, value: Expr) -> bool:
    """Whether ``x op value`` is x for every x; for a float sum that is -0.0 alone."""
    if not isinstance(value, Const):
        return False
    if op == "sum":
        return str(value.value) in ("-0.0", "0")
    return value.value == neutral(op, value.dtype)


def _joined(conditions: Sequence[Expr]) -> Expr:
    return conditions[0] if len(conditions) == 1 else Logic("and", tuple(conditions))


def _limits(where: Expr | None, axis: str) -> Iterator[Expr]:
    """The `hi` of every condition ``axis < hi`` of a tile."""
    match where:
        case Logic("and", args):
            for arg in args:
                yield from _limits(arg, axis)
        case Compare("<", Var(name), hi) if name == axis:
            yield hi


def _over_sizes(size: Expr, low: _Lowering) -> Expr:
    """A bound on `size` that names only symbolic sizes."""
    known = {s.name for s in low.program.sizes}
    if variables(size) <= known:
        return size
    raise InternalError(f"scratch of {format_expr(size)} bytes depends on a loop")
