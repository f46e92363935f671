"""Instances of a tile as vectors: expressions over lanes, and where their elements lie.

Lanes run along the last axis of a tile, under a mask where its extent is no multiple of them. What
a tile writes lives in registers until its last statement.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import gcd

from offcut.backends.cpu import fma, ir
from offcut.backends.cpu.elements import STORED, Elements, item_bytes
from offcut.backends.cpu.ir import Function
from offcut.backends.cpu.isa import Isa
from offcut.backends.cpu.scalars import Scalars
from offcut.core.dtypes import FLOATS, is_identity
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
    walk,
)
from offcut.core.index import linear
from offcut.core.printer import format_expr
from offcut.core.program import For, If, Panels, Program, Stmt, Store, Tile, TileAxis
from offcut.core.program import walk as statements
from offcut.errors import InternalError
from offcut.polyhedral import coefficient


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

    multiple   what the first lane's coordinate is known to be a multiple of
    mask   lanes that are in the tile, at least the first; None: all
    path   of these, the ones whose `where` branch is taken; None: all
    """

    width: int
    axis: str | None
    mask: str | None = None
    path: str | None = None
    multiple: int = 1


TILE_SCRATCH = "%tile_scratch"


class Vectors(Scalars):
    """Lowers tiles by vectors.

    memory     where every buffer lies
    tiles      (rows, vectors) of the row-block functions that are called, by type and variant
    tables     constant tables of the module, by name
    functions  definitions of exp, tanh, erf that the module needs
    scratch    (name, bytes) of the parts of the workspace
    tile_bytes size of `TILE_SCRATCH`, which tiles share: each is done with it before the next
    """

    def __init__(self, program: Program, isa: Isa) -> None:
        super().__init__()
        self.program, self.isa = program, isa
        self.memory: dict[str, Memory] = {}
        self.tiles: dict[tuple[str, fma.Variant], set[tuple[int, int]]] = {}
        self.tables: dict[str, str] = {}
        self.functions: dict[str, str] = {}
        self.scratch: list[tuple[str, Expr]] = []
        self.tile_bytes = 0
        self.width = isa.lanes("float32")

    def scratch_of(self, size: Expr) -> str:
        """The address of a new part of the workspace, of `size` bytes."""
        name = f"%scratch{len(self.scratch)}"
        self.scratch.append((name, size))
        return name

    def active(self, tile: Tile, axis: TileAxis) -> str:
        """How many instances of a tile along `axis` are in the domain, from its start on."""
        extent = self.scalar(axis.extent)
        for limit in limits(tile.where, axis.iter):
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
        """Inside, these buffers lie elsewhere, or exist at all."""
        kept = self.memory
        self.memory = {**kept, **memory}
        yield
        self.memory = kept

    def rows(
        self, tile: Tile, axes: Sequence[TileAxis], body: Sequence[Stmt], written: set[str]
    ) -> None:
        """Loops over `axes` but the last, whose instances become vectors."""
        if len(axes) == 2 and self.is_transposition(axes, body):
            self.transposed(tile, axes, body[0])
            return
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
        multiple = gcd(_multiple_of(axis.start), width)
        known = ir.literal(count)
        if known is not None and known < width:
            width = 1 if known == 1 else width
        full = ir.mul(self.f, ir.floordiv(self.f, count, str(width)), str(width))
        if known is None or known >= width:
            with self.f.loop("0", full, width) as now:
                at = ir.add(self.f, start, now)
                with self.bound(axis.iter, at):
                    self.instances(body, written, Lanes(width, axis.iter, multiple=multiple))
        if known is not None and known % width == 0:
            return
        rest = ir.sub(self.f, count, full)
        some = self.f.let(f"icmp sgt i64 {rest}, 0")
        with self.f.when(some), self.bound(axis.iter, ir.add(self.f, start, full)):
            e = self.elements(width)
            # A literal mask of one lane would become a store that is wider than a 16-bit element.
            hidden = self.f.let(f'call i64 asm "", "=r,0"(i64 {rest})')
            limit = e.splat(hidden, "index")
            mask = e.compare("<", "index", e.ramp(), limit)
            self.instances(body, written, Lanes(width, axis.iter, mask, multiple=multiple))

    def is_transposition(self, axes: Sequence[TileAxis], body: Sequence[Stmt]) -> bool:
        """Whether the tile copies what lies along its first axis to lie along its last."""
        match body:
            case [Store(buffer, index, Load(source, at, dtype), None)] if buffer in self.memory:
                down, across = (
                    Lanes(self.width, axis.iter, multiple=gcd(_multiple_of(axis.start), self.width))
                    for axis in axes
                )
                whole = self.width * item_bytes(dtype) == self.isa.register_bytes
                read, written = self.memory[source], self.memory[buffer]
                turned = self.along(read, at, across) == "apart"
                turned = turned and self.along(read, at, down) == "next"
                return whole and turned and self.along(written, index, across) == "next"
            case _:
                return False

    def transposed(self, tile: Tile, axes: Sequence[TileAxis], copy: Stmt) -> None:
        """Copy squares of vectors: read along the first axis, turned in registers, written along the
        last. A gather would read the same elements one by one.
        """
        assert isinstance(copy, Store)
        assert isinstance(copy.value, Load)
        f, width, load = self.f, self.width, copy.value
        e = self.elements(width)
        bits, kind, dtype = f"<{width} x i1>", e.kind(load.dtype), load.dtype
        (down, height), (across, count) = ((a, self.active(tile, a)) for a in axes)
        first = self.scalar(down.start), self.scalar(across.start)
        with f.loop("0", count, width) as j, f.loop("0", height, width) as k:
            inside = [
                e.compare("<", "index", e.ramp(), e.splat(ir.sub(f, n, at), "index"))
                for n, at in ((height, k), (count, j))
            ]
            rows = []
            for lane in range(width):
                at_k, at_j = ir.add(f, first[0], k), ir.add(f, ir.add(f, first[1], j), str(lane))
                with self.bound(down.iter, at_k), self.bound(across.iter, at_j):
                    one = f.let(f"extractelement {bits} {inside[1]}, i32 {lane}")
                    none = f"{bits} zeroinitializer"
                    mask = f.let(f"select i1 {one}, {bits} {inside[0]}, {none}")
                    lanes = Lanes(width, down.iter, mask)
                    rows.append(self.load(load.buffer, load.index, dtype, lanes))
            step = width // 2
            while step:
                rows = _swapped(f, rows, step, kind)
                step //= 2
            for row in range(width):
                at_k, at_j = ir.add(f, ir.add(f, first[0], k), str(row)), ir.add(f, first[1], j)
                there = f.let(f"extractelement {bits} {inside[0]}, i32 {row}")
                with f.when(there), self.bound(down.iter, at_k), self.bound(across.iter, at_j):
                    multiple = gcd(_multiple_of(across.start), width)
                    lanes = Lanes(width, across.iter, inside[1], multiple=multiple)
                    self.save(copy.buffer, copy.index, rows[row], lanes)

    def elements(self, width: int) -> Elements:
        """Operations on vectors of that many lanes."""
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
        """The statements of a tile for one vector of instances."""
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
            case Select(inside, then, Const(value)) if is_identity(op, value, dtype):
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
        """An entry of a constant table, in every lane."""
        e = self.elements(lanes.width)
        name = f"@table{len(self.tables)}"
        entries = ", ".join(f"double {e.scalar(v, 'float64')}" for v in values)
        self.tables[name] = f"{name} = internal constant [{len(values)} x double] [{entries}]"
        address = self.f.let(f"getelementptr double, ptr {name}, i64 {self.scalar(index)}")
        return e.splat(self.f.let(f"load double, ptr {address}"), "float64")

    def lane_index(self, expr: Expr, lanes: Lanes) -> str:
        """An index expression for every lane, as <lanes x i64>."""
        e = self.elements(lanes.width)
        match expr:
            case Unary(op, a):
                return e.unary(op, "index", self.lane_index(a, lanes))
            case Select(condition, then, other):
                holds = self.value(condition, lanes, {})
                x, y = self.lane_index(then, lanes), self.lane_index(other, lanes)
                return e.select(holds, x, y, "index")
            case Binary(op, a, b) if any(isinstance(n, Unary | Select) for n in walk(expr)):
                x, y = self.lane_index(a, lanes), self.lane_index(b, lanes)
                return e.binary(op, "index", x, y)
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
        steps = [coefficient(part, lanes.axis or "") for part in index]
        if memory.layout is None and None not in steps:
            step = "0"
            for factor, stride in zip(steps, memory.strides, strict=True):
                step = ir.add(self.f, step, ir.mul(self.f, str(factor), stride))
            offsets = e.binary("*", "index", e.ramp(), e.splat(step, "index"))
            first = self.address(memory, index)
            return self.f.let(f"getelementptr i8, ptr {first}, <{lanes.width} x i64> {offsets}")
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
        whole = gcd(memory.layout.width, lanes.multiple) % lanes.width == 0
        return "next" if on_columns and whole and index[moving[0]] == Var(lanes.axis) else "apart"

    def mask_of(self, lanes: Lanes) -> str | None:
        """The lanes that are on; None where all are."""
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
        """An element as it lies in memory, in every lane."""
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


_SUFFIX = {"double": "f64", "float": "f32", "i64": "i64", "i32": "i32", "i16": "i16", "i8": "i8"}


def _multiple_of(expr: Expr) -> int:
    """A number that divides an index expression, from its form; 0 for 0."""
    form = linear(expr)
    return gcd(form.const, *(factor for _, factor in form.terms))


def limits(where: Expr | None, axis: str) -> Iterator[Expr]:
    """The `hi` of every condition ``axis < hi`` of a tile."""
    match where:
        case Logic("and", args):
            for arg in args:
                yield from limits(arg, axis)
        case Compare("<", Var(name), hi) if name == axis:
            yield hi


def _swapped(f: Function, rows: Sequence[str], step: int, kind: str) -> list[str]:
    """One step of a transposition: off-diagonal blocks of `step` × `step` elements change places."""
    width, turned = len(rows), list(rows)
    for i in range(width):
        if i & step:
            continue
        a, b = rows[i], rows[i + step]
        upper = [t if not t & step else width + t - step for t in range(width)]
        lower = [t + step if not t & step else width + t for t in range(width)]
        for row, order in ((i, upper), (i + step, lower)):
            indices = ", ".join(f"i32 {t}" for t in order)
            shuffle = f"shufflevector {kind} {a}, {kind} {b}, <{width} x i32> <{indices}>"
            turned[row] = f.let(shuffle)
    return turned
