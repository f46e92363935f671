"""Expressions for a vector of instances, and what of them is the same in every lane.

What statements access: the expressions of a statement, and buffers accessed at one element only.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence, Set
from dataclasses import replace

from offcut.backends.cpu.lowering.addressing import Addressing, Lanes
from offcut.backends.cpu.machine.isa import Isa
from offcut.backends.llvm.elements import float_bounds
from offcut.core import index as ix
from offcut.core.analysis import indices, read_arrays
from offcut.core.dtypes import FLOATS, is_identity
from offcut.core.expr import (
    COMBINED,
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
    children,
    dtype_of,
    loads,
    variables,
    walk,
)
from offcut.core.program import STATUS, Program, Stmt, Store, Tile, blocks
from offcut.core.program import walk as statements
from offcut.core.text.printer import format_expr
from offcut.core.traversal import all_bound_names, expressions
from offcut.errors import InternalError
from offcut.polyhedral import coefficient


class Expressions(Addressing):
    """Values of expressions, one for each lane.

    tables   constant tables of the module, by name
    current_store    the assignment whose value is being computed
    store_lanes      the lanes that run it; a value for another number of lanes, such as one that all of these read, is not of them
    """

    def __init__(self, program: Program, isa: Isa) -> None:
        super().__init__(program, isa)
        self.tables: dict[str, str] = {}
        self.current_store: Store | None = None
        self.store_lanes = Lanes(1, None)

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
                if self.store_lanes.width == lanes.width and self.is_always_inside(expr):
                    lanes = replace(lanes, path=self.store_lanes.path)
                return self.load(buffer, index, dtype, lanes)
            case Binary(op, a, b):
                x, y = self.value(a, lanes, slots), self.value(b, lanes, slots)
                return e.binary(op, dtype, x, y)
            case Unary(op, a):
                return e.unary(op, dtype, self.value(a, lanes, slots))
            case Cast(a, _):
                old, bounds = dtype_of(a), float_bounds(a)
                return e.cast(self.value(a, lanes, slots), old, dtype, bounds)
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

    def is_always_inside(self, load: Load) -> bool:
        """Return whether an element exists for each instance of the statement, since the statement writes one at the same coordinates.

        Reads of it in several branches of the value are then one load.
        """
        shapes = {buffer.name: buffer.shape for buffer in self.program.buffers}
        store = self.current_store
        if store is None or not {store.buffer, load.buffer} <= shapes.keys():
            return False
        extents = dict(zip(store.index, shapes[store.buffer], strict=True))
        extents_read = zip(load.index, shapes[load.buffer], strict=True)
        return all(extents.get(part) == extent for part, extent in extents_read)

    def reduce(
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
                new = self.reduce(op, old, then, dtype, replace(lanes, path=path), slots)
                return e.select(holds, new, old, dtype)
            case Select(inside, Binary("*") as then, Const(0) as zero) if op == "sum":
                # As where the condition has left the loop: the product is not rounded before it is added.
                holds = self.value(inside, lanes, slots)
                new = self.reduce(op, old, then, dtype, self.on(lanes, holds), slots)
                unchanged = e.binary("+", dtype, old, self.value(zero, lanes, slots))
                return e.select(holds, new, unchanged, dtype)
        if op == "sum" and isinstance(term, Binary) and term.op == "*" and dtype in FLOATS:
            a, b = self.value(term.a, lanes, slots), self.value(term.b, lanes, slots)
            return e.multiply_add(dtype, a, b, old)
        return e.binary(COMBINED[op], dtype, old, self.value(term, lanes, slots))

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
        """The entry of a constant table that each lane reads; lanes that are off read none."""
        e = self.elements(lanes.width)
        name = f"@table{len(self.tables)}"
        entries = ", ".join(f"double {e.scalar(v, 'float64')}" for v in values)
        self.tables[name] = f"{name} = internal constant [{len(values)} x double] [{entries}]"
        if lanes.path is None and not self.differs(index, lanes, {}):
            address = self.f.let(f"getelementptr double, ptr {name}, i64 {self.scalar(index)}")
            return e.splat(self.f.let(f"load double, ptr {address}"), "float64")
        places = f"<{lanes.width} x i64> {self.lane_index(index, lanes)}"
        addresses = self.f.let(f"getelementptr double, ptr {name}, {places}")
        return self.at_addresses("float64", addresses, self.mask_of(lanes), lanes.width)

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
                raise InternalError(f"{format_expr(expr)} is not an index")

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
        if all(
            dtype_of(node) in ("index", "bool") and not isinstance(node, Load)
            for node in walk(condition)
        ):
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


def is_one_element(buffer: str, body: Sequence[Stmt], inner: Set[str] = frozenset()) -> bool:
    """Whether `body` accesses a buffer at one index only, the same wherever `body` is.

    inner   names that are bound around `body`, and make a difference
    """
    found_indices = _indices(buffer, body)
    names = inner | all_bound_names(tuple(body))
    return (
        found_indices is not None
        and len(found_indices) <= 1
        and not any(variables(part) & names for index in found_indices for part in index)
    )


def streamed_buffers(
    body: Sequence[Stmt], memory: Container[str]
) -> Mapping[str, tuple[Expr, ...]]:
    """Where `body` accesses each buffer that it streams through: at the index of a store only.

    Empty where these are not most of its accesses: then it goes over elements again and again. An
    index that is read from an array counts as none: it may be read only where conditions allow.

    memory   the buffers that lie in memory
    """
    stores = [stmt for stmt in statements(tuple(body)) if isinstance(stmt, Store)]
    written = {tuple(map(ix.simplify, s.index)) for s in stores if s.buffer in memory}
    buffers = {store.buffer: None for store in stores}
    buffers |= {load.buffer: None for store in stores for load, _ in loads(store.value)}
    indices_by_buffer: dict[str, tuple[Expr, ...]] = {}
    accesses = 0
    for buffer in buffers:
        if buffer not in memory:
            continue
        accessed = _indices(buffer, body)
        if accessed is None:
            return {}
        accesses += len(accessed)
        if len(accessed) == 1 and accessed <= written:
            (index,) = accessed
            if not any(isinstance(node, Load) for part in index for node in walk(part)):
                indices_by_buffer[buffer] = index
    return indices_by_buffer if 2 * len(indices_by_buffer) > accesses else {}


def store_apart(program: Program, memory: Container[str], body: Sequence[Stmt], axis: str) -> bool:
    """Return whether no two lanes along `axis` write one element, as far as the indices show.

    memory   the buffers that lie in memory
    """
    return all(
        stmt.buffer not in memory
        or program.buffer(stmt.buffer).scope == STATUS
        or any(coefficient(part, axis) != 0 for part in stmt.index)
        for stmt in statements(tuple(body))
        if isinstance(stmt, Store)
    )


def panels_read_by(program: Program, microkernels: Container[str]) -> frozenset[str]:
    """Return the buffers with a layout of their own that tiles of these microkernels read, and nothing else does."""
    panels = {buffer.name for buffer in program.buffers if buffer.layout is not None}

    def others(body: Sequence[Stmt]) -> Iterator[str]:
        for stmt in body:
            if not (isinstance(stmt, Tile) and stmt.microkernel in microkernels):
                yield from read_arrays(expressions(stmt))
                for block in blocks(stmt):
                    yield from others(block)

    return frozenset(panels.difference(others(program.body))) if panels else frozenset()


def loaded_buffers(expr: Expr, always: bool) -> set[str]:
    """The buffers that an expression reads; `always`: only those read whatever its conditions say."""
    return {load.buffer for load, path in loads(expr) if not (always and path)}


def _indices(buffer: str, body: Sequence[Stmt]) -> set[tuple[Expr, ...]] | None:
    """The indices at which `body` accesses a buffer; None where an index is read from it."""
    exprs = (expr for stmt in statements(tuple(body)) for expr in expressions(stmt))
    if buffer in read_arrays(part for expr in exprs for part in _index_parts(expr)):
        return None
    return {tuple(map(ix.simplify, index)) for index in indices(tuple(body), buffer)}


def _index_parts(expr: Expr) -> Iterator[Expr]:
    """The largest parts of an expression that are indices."""
    pending = [expr]
    while pending:
        node = pending.pop()
        if dtype_of(node) == "index":
            yield node
        else:
            pending += children(node)
