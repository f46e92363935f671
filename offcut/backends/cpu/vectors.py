"""Instances of a tile as vectors: expressions over lanes, and where their elements lie.

Lanes run along the last axis of a tile, under a mask where its extent is no multiple of them. The
statements of a tile run one after the other for a vector of instances. A buffer that they access at
one element of each instance lives in a register meanwhile, one that a loop accesses at one element
while the loop runs; every other access goes to memory.

A condition that is the same for all lanes is a branch, any other one turns lanes off. Statements
outside of tiles are those of a vector with one lane.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import gcd
from typing import assert_never

from offcut.backends.cpu import fma, ir
from offcut.backends.cpu.elements import STORED, Elements, item_bytes
from offcut.backends.cpu.ir import Function
from offcut.backends.cpu.isa import Isa
from offcut.backends.cpu.scalars import Scalars
from offcut.backends.inside import STATUS
from offcut.core import index as ix
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
    loads,
    variables,
    walk,
)
from offcut.core.index import linear
from offcut.core.printer import format_expr
from offcut.core.program import (
    Alloc,
    Choose,
    For,
    If,
    Let,
    Panels,
    Program,
    Stmt,
    Store,
    Tile,
    TileAxis,
    substituted,
)
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
SHORT = 8  # iterations of a loop that needs no vectors beside each other


class Vectors(Scalars):
    """Lowers tiles by vectors.

    memory     where every buffer lies
    tiles      (rows, vectors) of the row-block functions that are called, by type and variant
    tables     constant tables of the module, by name
    functions  definitions of exp, tanh, erf that the module needs
    scratch    (name, bytes) of the parts of the workspace
    tile_bytes size of `TILE_SCRATCH`, which tiles share: each is done with it before the next
    chains     registers of lanes that a tile with a loop inside takes at once
    """

    def __init__(self, program: Program, isa: Isa, chains: int = 1) -> None:
        super().__init__()
        self.program, self.isa = program, isa
        self.memory: dict[str, Memory] = {}
        self.tiles: dict[tuple[str, fma.Variant], set[tuple[int, int]]] = {}
        self.tables: dict[str, str] = {}
        self.functions: dict[str, str] = {}
        self.scratch: list[tuple[str, Expr]] = []
        self.tile_bytes = 0
        self.width, self.chains = isa.lanes("float32"), chains

    def scratch_of(self, size: Expr) -> str:
        """The address of a new part of the workspace, of `size` bytes."""
        name = f"%scratch{len(self.scratch)}"
        self.scratch.append((name, size))
        return name

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
        for condition in reversed(unlimited(tile)):
            body = (If(condition, tuple(body)),)
        with self.placed(memory):
            self.rows(tile, tile.axes, body)

    @contextmanager
    def placed(self, memory: Mapping[str, Memory]) -> Iterator[None]:
        """Inside, these buffers lie elsewhere, or exist at all."""
        kept = self.memory
        self.memory = {**kept, **memory}
        yield
        self.memory = kept

    def rows(self, tile: Tile, axes: Sequence[TileAxis], body: Sequence[Stmt]) -> None:
        """Loops over `axes` but the last, whose instances become vectors."""
        if len(axes) == 2 and self.is_transposition(axes, body):
            self.transposed(tile, axes, body[0])
            return
        if len(axes) > 1:
            start = self.scalar(axes[0].start)
            end = ir.add(self.f, start, self.active(tile, axes[0]))
            with self.f.loop(start, end) as now, self.bound(axes[0].iter, now):
                self.rows(tile, axes[1:], body)
            return
        if not axes:
            self.instances(body, Lanes(1, None))
            return
        axis = axes[0]
        start = self.scalar(axis.start)
        count = ir.maximum(self.f, self.active(tile, axis), "0")
        if not self.apart(body, axis.iter):
            end = ir.add(self.f, start, count)
            with self.f.loop(start, end) as now, self.bound(axis.iter, now):
                self.instances(body, Lanes(1, None))
            return
        known, done = ir.literal(count), "0"
        for width in self.widths(body, known):
            full = ir.mul(self.f, ir.floordiv(self.f, count, str(width)), str(width))
            if known is None or known >= width:
                multiple = gcd(_multiple_of(axis.start), width)
                lanes = Lanes(width, axis.iter, multiple=multiple)
                with self.f.loop(done, full, width) as now:
                    at = ir.add(self.f, start, now)
                    with self.bound(axis.iter, at):
                        self.instances(body, lanes)
            done = full
        if known is not None and known % width == 0:
            return
        rest = ir.sub(self.f, count, done)
        some = self.f.let(f"icmp sgt i64 {rest}, 0")
        with self.f.when(some), self.bound(axis.iter, ir.add(self.f, start, done)):
            e = self.elements(width)
            # A literal mask of one lane would become a store that is wider than a 16-bit element.
            hidden = self.f.let(f'call i64 asm "", "=r,0"(i64 {rest})')
            limit = e.splat(hidden, "index")
            mask = e.compare("<", "index", e.ramp(), limit)
            multiple = gcd(_multiple_of(axis.start), width)
            self.instances(body, Lanes(width, axis.iter, mask, multiple=multiple))

    def widths(self, body: Sequence[Stmt], count: int | None) -> tuple[int, ...]:
        """Lanes of the vectors that run through an axis, one after the other, the widest first.

        A body with a loop takes several registers at once: their chains of operations overlap.
        """
        if count is not None and count < self.width:
            return (1,) if count == 1 else (self.width,)
        chains = any(isinstance(stmt, For) for stmt in statements(tuple(body)))
        return (
            (self.chains * self.width, self.width) if chains and self.chains > 1 else (self.width,)
        )

    def apart(self, body: Sequence[Stmt], axis: str) -> bool:
        """Whether no two lanes along `axis` write one element, as far as the indices show."""
        return all(
            stmt.buffer not in self.memory
            or self.program.buffer(stmt.buffer).scope == STATUS
            or any(coefficient(part, axis) != 0 for part in stmt.index)
            for stmt in statements(tuple(body))
            if isinstance(stmt, Store)
        )

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

    def instances(self, body: Sequence[Stmt], lanes: Lanes) -> None:
        """Run `body` for one vector of instances."""
        e = self.elements(lanes.width)
        stores = [s for s in statements(tuple(body)) if isinstance(s, Store)]
        slots: dict[str, str] = {}
        last: dict[str, Store] = {}
        for store in stores:
            buffer = store.buffer
            if buffer not in slots and self.held(buffer, body, set()):
                dtype = self.program.buffer(buffer).dtype
                slots[buffer] = self.f.slot(e.kind(dtype))
                if buffer in self.memory and not begins_with_store(buffer, body):
                    old = self.load(buffer, store.index, dtype, lanes)
                    self.f.do(f"store {e.kind(dtype)} {old}, ptr {slots[buffer]}")
            last[buffer] = store
        self.vector_block(body, lanes, slots)
        for buffer, slot in slots.items():
            if buffer in self.memory:
                dtype = self.program.buffer(buffer).dtype
                value = self.f.let(f"load {e.kind(dtype)}, ptr {slot}")
                self.save(buffer, last[buffer].index, value, lanes)

    def held(self, buffer: str, body: Sequence[Stmt], inner: set[str]) -> bool:
        """Whether a register can stand for what `body` accesses of `buffer`.

        It does so at one element, the same wherever `body` is, and at least one access of it, a
        direct statement of `body`, always runs: so the element exists.

        inner   names that `body` binds around itself
        """
        if not is_one_element(buffer, body, inner):
            return False
        direct = (stmt for stmt in body if isinstance(stmt, Store))
        always = any(
            stmt.buffer == buffer or buffer in _loaded(stmt.value, always=True) for stmt in direct
        )
        return always or buffer not in self.memory

    def vector_block(self, body: Sequence[Stmt], lanes: Lanes, slots: Mapping[str, str]) -> None:
        """Statements for one vector of instances.

        slots   the registers that stand for buffers, by name
        """
        for stmt in body:
            match stmt:
                case For():
                    self.vector_loop(stmt, lanes, slots)
                case If(condition, then, other):
                    self.vector_if(condition, then, other, lanes, slots)
                case Let(name, _, _, value, inner):
                    if self.differs(value, lanes, slots):
                        self.vector_block(substituted(inner, {name: value}), lanes, slots)
                    else:
                        with self.bound(name, self.scalar(value)):
                            self.vector_block(inner, lanes, slots)
                case Tile():
                    self.vector_block(as_loops(stmt), lanes, slots)
                case Alloc(_, _, inner):
                    self.vector_block(inner, lanes, slots)
                case Store():
                    self.vector_store(stmt, lanes, slots)
                case Choose():
                    raise InternalError("choose inside a tile")
                case _:
                    assert_never(stmt)

    def vector_store(self, stmt: Store, lanes: Lanes, slots: Mapping[str, str]) -> None:
        """One assignment or update: of a register where one stands for its buffer, else of memory."""
        e, dtype = self.elements(lanes.width), self.program.buffer(stmt.buffer).dtype
        kind, slot = e.kind(dtype), slots.get(stmt.buffer)
        old = ""
        if slot is not None and (stmt.reduce is not None or lanes.path is not None):
            old = self.f.let(f"load {kind}, ptr {slot}")
        elif slot is None and stmt.reduce is not None:
            old = self.load(stmt.buffer, stmt.index, dtype, lanes)
        if stmt.reduce is None:
            result = self.value(stmt.value, lanes, slots)
        else:
            result = self.reduced(stmt.reduce, old, stmt.value, dtype, lanes, slots)
        if slot is None:
            self.save(stmt.buffer, stmt.index, result, lanes)
            return
        if lanes.path is not None:
            result = e.select(lanes.path, result, old, dtype)
        self.f.do(f"store {kind} {result}, ptr {slot}")

    def vector_if(
        self,
        condition: Expr,
        then: Sequence[Stmt],
        other: Sequence[Stmt],
        lanes: Lanes,
        slots: Mapping[str, str],
    ) -> None:
        """A branch where the condition is that of all lanes, else each side for its own lanes."""
        match condition:
            case Logic("and", (first, *rest)) if not other:
                # One after the other: those that are the same for all lanes are branches.
                inner = If(rest[0] if len(rest) == 1 else Logic("and", tuple(rest)), tuple(then))
                self.vector_if(first, (inner,), (), lanes, slots)
                return
        if not self.differs(condition, lanes, slots):
            holds = self.truth(condition, slots)
            with self.f.when(holds):
                self.vector_block(then, lanes, slots)
            if other:
                with self.f.when(self.f.let(f"xor i1 {holds}, true")):
                    self.vector_block(other, lanes, slots)
            return
        holds = self.value(condition, lanes, slots)
        self.vector_block(then, self.on(lanes, holds), slots)
        if other:
            fails = self.f.let(f"xor <{lanes.width} x i1> {holds}, splat (i1 true)")
            self.vector_block(other, self.on(lanes, fails), slots)

    def vector_loop(self, loop: For, lanes: Lanes, slots: Mapping[str, str]) -> None:
        """A loop inside: what it accesses at one element only is kept in a register meanwhile."""
        f, inside = self.f, lanes
        apart = any(self.differs(bound, lanes, slots) for bound in (loop.lo, loop.hi))
        if apart:
            e = self.elements(lanes.width)
            lo, hi = (self.lane_index(bound, lanes) for bound in (loop.lo, loop.hi))
            inside = self.on(lanes, e.compare("<", "index", lo, hi))
            # Lanes that are off are not to make the loop longer.
            far = e.constant(2**62, "index"), e.constant(-(2**62), "index")
            active = self.mask_of(inside) or ""
            low, high = (
                e.select(active, x, y, "index") for x, y in zip((lo, hi), far, strict=True)
            )
            kind = f"<{lanes.width} x i64>"
            first, last = (
                f.call("i64", f"llvm.vector.reduce.{op}.v{lanes.width}i64", f"{kind} {x}", kind)
                for op, x in (("smin", low), ("smax", high))
            )
        else:
            first, last = self.scalar(loop.lo), self.scalar(loop.hi)
        written = {s.buffer: s for s in statements(loop.body) if isinstance(s, Store)}
        kept = [
            store
            for buffer, store in written.items()
            if buffer in self.memory
            and buffer not in slots
            and self.held(buffer, loop.body, {loop.iter})
        ]
        if not kept:
            self.iterations(loop, (first, last), apart, lanes, slots)
            return
        e = self.elements(lanes.width)
        with f.when(f.let(f"icmp slt i64 {first}, {last}")):
            own = dict(slots)
            for store in kept:
                dtype = self.program.buffer(store.buffer).dtype
                own[store.buffer] = f.slot(e.kind(dtype))
                old = self.load(store.buffer, store.index, dtype, inside)
                f.do(f"store {e.kind(dtype)} {old}, ptr {own[store.buffer]}")
            self.iterations(loop, (first, last), apart, lanes, own)
            for store in kept:
                dtype = self.program.buffer(store.buffer).dtype
                new = f.let(f"load {e.kind(dtype)}, ptr {own[store.buffer]}")
                self.save(store.buffer, store.index, new, inside)

    def iterations(
        self,
        loop: For,
        ends: tuple[str, str],
        apart: bool,
        lanes: Lanes,
        slots: Mapping[str, str],
    ) -> None:
        """The body of `loop` from the first end to the last; where lanes have bounds `apart`, masked."""
        with self.f.loop(*ends) as now, self.bound(loop.iter, now):
            inside = lanes
            if apart:
                e = self.elements(lanes.width)
                at = e.splat(now, "index")
                for op, bound in (("<=", loop.lo), (">", loop.hi)):
                    holds = e.compare(op, "index", self.lane_index(bound, lanes), at)
                    inside = self.on(inside, holds)
            self.vector_block(loop.body, inside, slots)

    def on(self, lanes: Lanes, holds: str) -> Lanes:
        """Of `lanes`, those where `holds`."""
        if lanes.path is not None:
            holds = self.f.let(f"and <{lanes.width} x i1> {lanes.path}, {holds}")
        return replace(lanes, path=holds)

    def differs(self, expr: Expr, lanes: Lanes, slots: Mapping[str, str]) -> bool:
        """Whether `expr` may have another value in another lane."""
        if lanes.axis is None or lanes.width == 1:
            return False
        return lanes.axis in variables(expr) or any(
            isinstance(node, Load) and node.buffer in slots for node in walk(expr)
        )

    def truth(self, condition: Expr, slots: Mapping[str, str]) -> str:
        """A condition that is the same in all lanes, as an i1."""
        if all(dtype_of(node) in ("index", "bool") for node in walk(condition)):
            return self.holds(condition)
        vector = self.value(condition, Lanes(1, None), slots)
        return self.f.let(f"extractelement <1 x i1> {vector}, i32 0")

    def scalar(self, expr: Expr) -> str:
        """An index expression as an i64; one that is read from an array too."""
        match expr:
            case Cast(a, "index") if dtype_of(a) != "index":
                vector = self.elements(1).cast(
                    self.value(a, Lanes(1, None), {}), dtype_of(a), "index"
                )
                return self.f.let(f"extractelement <1 x i64> {vector}, i32 0")
            case Select(condition, then, other):
                holds = self.truth(condition, {})
                x, y = self.scalar(then), self.scalar(other)
                return self.f.let(f"select i1 {holds}, i64 {x}, i64 {y}")
        return super().scalar(expr)

    def reduced(
        self, op: str, old: str, term: Expr, dtype: str, lanes: Lanes, slots: Mapping[str, str]
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
                return self.logic(op, args, lanes, slots)
            case Select(condition, then, other):
                return self.select(condition, then, other, lanes, slots)
            case Lookup(values, index):
                return self.lookup(values, index, lanes)
            case _:
                raise InternalError(f"{format_expr(expr)} inside a statement")

    def logic(self, op: str, args: Sequence[Expr], lanes: Lanes, slots: Mapping[str, str]) -> str:
        """``and`` or ``or`` of conditions; one that reads memory does so where those before leave it open."""
        kind = f"<{lanes.width} x i1>"
        total = self.value(args[0], lanes, slots)
        for arg in args[1:]:
            inside = lanes
            if any(isinstance(node, Load) for node in walk(arg)):
                inside = self.on(
                    lanes,
                    total if op == "and" else self.f.let(f"xor {kind} {total}, splat (i1 true)"),
                )
            other = self.value(arg, inside, slots)
            total = self.f.let(f"{op} {kind} {total}, {other}")
        return total

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
            case Cast(a, "index"):
                return e.cast(self.value(a, lanes, {}), dtype_of(a), "index")
            case Unary(op, a):
                return e.unary(op, "index", self.lane_index(a, lanes))
            case Select(condition, then, other):
                holds = self.value(condition, lanes, {})
                x, y = self.lane_index(then, lanes), self.lane_index(other, lanes)
                return e.select(holds, x, y, "index")
            case Binary(op, a, b) if any(isinstance(n, Unary | Select | Cast) for n in walk(expr)):
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
        if kind == "apart" or (kind == "one" and lanes.width > 1):
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


def as_loops(tile: Tile) -> tuple[Stmt, ...]:
    """The instances of a tile one after the other."""
    body = tile.body if tile.where is None else (If(tile.where, tile.body),)
    for axis in reversed(tile.axes):
        body = (For(axis.iter, axis.start, ix.add(axis.start, axis.extent), body),)
    return body


def own_expressions(stmt: Stmt) -> tuple[Expr, ...]:
    """The expressions of a statement itself, not of what is inside it."""
    match stmt:
        case For():
            return (stmt.lo, stmt.hi)
        case If():
            return (stmt.condition,)
        case Let():
            return (stmt.value,)
        case Store():
            return (stmt.value, *stmt.index)
        case Tile():
            ends = tuple(end for axis in stmt.axes for end in (axis.start, axis.extent))
            return ends if stmt.where is None else (*ends, stmt.where)
        case Alloc() | Choose():
            return ()
        case _:
            assert_never(stmt)


def is_one_element(buffer: str, body: Sequence[Stmt], inner: Set[str] = frozenset()) -> bool:
    """Whether `body` accesses a buffer at one index only, the same wherever `body` is.

    inner   names that are bound around `body`, and make a difference
    """
    found = _indices(buffer, body)
    names = inner | _names(body)
    return (
        found is not None
        and len(found) <= 1
        and not any(variables(part) & names for index in found for part in index)
    )


def _indices(buffer: str, body: Sequence[Stmt]) -> set[tuple[Expr, ...]] | None:
    """The indices at which `body` accesses a buffer; None where an index is read from it."""
    found: set[tuple[Expr, ...]] = set()
    for stmt in statements(tuple(body)):
        if isinstance(stmt, Store) and stmt.buffer == buffer:
            found.add(tuple(map(ix.simplify, stmt.index)))
        for node in (node for expr in own_expressions(stmt) for node in walk(expr)):
            if dtype_of(node) == "index" and _reads(node, buffer):
                return None
            if isinstance(node, Load) and node.buffer == buffer:
                found.add(tuple(map(ix.simplify, node.index)))
    return found


def at_most(extent: Expr) -> int | None:
    """A literal that an index expression does not exceed, as its form shows; None where it shows none."""
    form = ix.linear(extent)
    if not form.terms:
        return form.const
    found = []
    for atom, factor in form.terms:
        match atom, factor:
            case (Binary("min", a, b), 1) | (Binary("max", a, b), -1):
                rest = ix.sub(extent, atom) if factor == 1 else ix.add(extent, atom)
                for side in (a, b):
                    found.append(at_most(ix.add(rest, side) if factor == 1 else ix.sub(rest, side)))
    return min((value for value in found if value is not None), default=None)


def _reads(expr: Expr, buffer: str) -> bool:
    return any(isinstance(node, Load) and node.buffer == buffer for node in walk(expr))


def _names(body: Sequence[Stmt]) -> set[str]:
    """What loops, tiles and bounded values inside `body` bind."""
    found: set[str] = set()
    for stmt in statements(tuple(body)):
        match stmt:
            case For(name) | Let(name):
                found.add(name)
            case Tile():
                found |= {axis.iter for axis in stmt.axes}
            case _:
                pass
    return found


def begins_with_store(buffer: str, body: Sequence[Stmt]) -> bool:
    """Whether the first access of a buffer is a direct statement of `body` that overwrites it."""
    for stmt in body:
        if isinstance(stmt, Store) and stmt.buffer == buffer and stmt.reduce is None:
            return not _reads(stmt.value, buffer)
        touched = any(isinstance(s, Store) and s.buffer == buffer for s in statements((stmt,)))
        inside = (expr for s in statements((stmt,)) for expr in own_expressions(s))
        if touched or any(_reads(expr, buffer) for expr in inside):
            return False
    return False


def _loaded(expr: Expr, always: bool) -> set[str]:
    """The buffers that an expression reads; `always`: only those read whatever its conditions say."""
    return {load.buffer for load, path in loads(expr) if not (always and path)}


def _multiple_of(expr: Expr) -> int:
    """A number that divides an index expression, from its form; 0 for 0."""
    form = linear(expr)
    return gcd(form.const, *(factor for _, factor in form.terms))


def limits(tile: Tile, axis: str) -> Iterator[Expr]:
    """The `hi` of every condition ``axis < hi`` of a tile, equal for all its instances."""
    for condition in _conditions(tile.where):
        if isinstance(condition, Compare) and _limited(tile, condition) == axis:
            yield condition.b


def unlimited(tile: Tile) -> tuple[Expr, ...]:
    """The conditions of a tile that are no `limits` of an axis."""
    return tuple(c for c in _conditions(tile.where) if _limited(tile, c) is None)


def _limited(tile: Tile, condition: Expr) -> str | None:
    axes = {axis.iter for axis in tile.axes}
    match condition:
        case Compare("<", Var(name), hi) if name in axes and not variables(hi) & axes:
            plain = not any(isinstance(node, Load) for node in walk(hi))
            return name if plain else None
    return None


def _conditions(where: Expr | None) -> Iterator[Expr]:
    match where:
        case None:
            return
        case Logic("and", args):
            for arg in args:
                yield from _conditions(arg)
        case _:
            yield where


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
