"""A cut loop program in, ``scf`` over ``memref`` out.

A loop over a full tile runs from 0 to a literal, its coordinate is the start of the tile and the
counter. The elements of `Nest.held` are SSA values again, which loops and conditions carry on.

What a schedule decides is said so::

    thread              scf.parallel            lane       operations on vectors (`lanes`)
    a kernel            gpu.launch, gpu.barrier  unroll     the body, written out
    a window            memref.alloc, alloca in a kernel, in its memory space
    a covered tile      func.call of a declared function, on views of memrefs
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from xdsl.dialects import arith, func, gpu, memref, scf
from xdsl.dialects.builtin import (
    DYNAMIC_INDEX,
    IndexType,
    IntegerAttr,
    MemRefType,
    NoneAttr,
    StridedLayoutAttr,
    StringAttr,
)
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue

from offcut.core import index as ix
from offcut.core.conditions import conjunction, conjuncts
from offcut.core.expr import COMBINED, reads_memory
from offcut.errors import InternalError
from offcut.ir import (
    Alloc,
    Binary,
    Buffer,
    Expr,
    For,
    If,
    Kind,
    Let,
    Load,
    Program,
    Stmt,
    Store,
    Sync,
    Tile,
    dtype_of,
    free,
    plain,
    rewrite,
    walk,
)
from offcut.plugins.hosts import HARDWARE, Said, View, call_of
from offcut.plugins.mlir.emitting import Scalars, constant
from offcut.plugins.mlir.lanes import check_lanes, written_lanes
from offcut.plugins.mlir.nest import TYPES, Extent, Nest
from offcut.plugins.mlir.signs import is_natural


@dataclass(frozen=True)
class EmittedNest:
    """Operations, the values that take the place of a loop's results, and the functions that they call."""

    operations: tuple[Operation, ...]
    results: tuple[SSAValue, ...]
    functions: tuple[func.FuncOp, ...] = ()


def export_nest(nest: Nest, program: Program | Said) -> EmittedNest:
    """Return the operations that take the place of a nest.

    program  what `nest.program` was cut to, or what a schedule made of it: then all that it holds lies in memory
    """
    if isinstance(program, Said):
        return _Writer(replace(nest, held=frozenset()), program).whole(
            rewrite(program.program, _outside)
        )
    return _Writer(nest).whole(rewrite(plain(program), _outside))


@dataclass
class _Scope:
    """What is known where operations are added.

    names  the values of coordinates and sizes
    held   by array, the element that an instance holds, and its value
    """

    names: dict[str, SSAValue]
    held: dict[str, tuple[tuple[Expr, ...], SSAValue]]
    natural: set[str]
    seen: dict[Expr, SSAValue] = field(default_factory=dict)

    def inner(self) -> _Scope:
        return _Scope(dict(self.names), dict(self.held), set(self.natural), dict(self.seen))


class _Writer:
    def __init__(self, nest: Nest, said: Said | None = None) -> None:
        self.nest, self.said = nest, said
        self.arrays = dict(nest.buffers)
        self.lanes: dict[str, For | None] = {}
        self.functions: dict[tuple[str, tuple[Attribute, ...]], func.FuncOp] = {}
        self.in_kernel = False
        self.head: list[Operation] = []
        self.constants: dict[tuple[object, str], SSAValue] = {}

    def whole(self, program: Program) -> EmittedNest:
        """All of it, what it needs first."""
        self.program = program
        scope = _Scope({}, {}, set(self.nest.sizes))
        for name, what in self.nest.sizes.items():
            scope.names[name] = self.size(what) if isinstance(what, Extent) else what
        for name, value in self.nest.scalars.items():
            scope.held[name] = (), value
        first: list[Operation] = []
        scalars = self.scalars(scope, first)
        freed: list[Operation] = []
        windows = {stmt.buffer for stmt in walk(program.body) if isinstance(stmt, Alloc)}
        for buffer in program.buffers:
            own = buffer.kind is Kind.LOCAL or buffer.name in self.nest.results
            if own and buffer.name not in self.nest.held | windows:
                allocation = self.allocated(buffer, scalars)
                freed.append(memref.DeallocOp.get(allocation))
        body = self.block(program.body, scope)
        check_lanes(self)
        results: list[SSAValue] = []
        for name in self.nest.results:
            if name in self.nest.held:
                results.append(scope.held[name][1])
            else:
                body.append(memref.LoadOp.get(self.arrays[name], []))
                results.append(body[-1].results[0])
        operations = (*self.head, *first, *body, *freed)
        return EmittedNest(operations, tuple(results), tuple(self.functions.values()))

    def allocated(self, buffer: Buffer, scalars: Scalars) -> SSAValue:
        """Return a new memref for an array, in the memory that it names."""
        shape = [ix.literal_value(extent) for extent in buffer.shape]
        space = None if buffer.scope is None else StringAttr(buffer.scope)
        if self.in_kernel and buffer.scope in _SPACES:
            space = _SPACES[buffer.scope]
        kind = MemRefType(
            TYPES[buffer.dtype],
            [DYNAMIC_INDEX if n is None else n for n in shape],
            NoneAttr(),
            NoneAttr() if space is None else space,
        )
        extents = [scalars.value(e) for e, n in zip(buffer.shape, shape, strict=True) if n is None]
        allocation: Operation = memref.AllocOp(extents, (), kind)
        if self.in_kernel:
            allocation = memref.AllocaOp.build(operands=[extents, ()], result_types=[kind])
        allocation.results[0].name_hint = buffer.name
        self.arrays[buffer.name] = scalars.added(allocation)
        return self.arrays[buffer.name]

    def size(self, what: Extent) -> SSAValue:
        made = memref.DimOp(what.memref, self.constant(what.axis, "index"))
        self.head.append(made)
        return made.result

    def constant(self, value: int | float, dtype: str) -> SSAValue:
        """A literal, made once, before the loops."""
        key = repr(value), dtype
        if key not in self.constants:
            made = constant(value, dtype)
            self.head.append(made)
            self.constants[key] = made.result
        return self.constants[key]

    def scalars(self, scope: _Scope, into: list[Operation]) -> Scalars:
        """What writes expressions into a block."""

        def load(expr: Load, at: Scalars) -> SSAValue:
            if expr.buffer in self.nest.held or expr.buffer in self.nest.scalars:
                return self.held(expr, scope)
            index = [at.value(part) for part in expr.index]
            return at.added(memref.LoadOp.get(self.arrays[expr.buffer], index))

        return Scalars(into, scope.names, scope.seen, self.constant, load, scope.natural)

    def held(self, expr: Load, scope: _Scope) -> SSAValue:
        """The value of an element that this instance holds."""
        index, value = scope.held.get(expr.buffer, (None, None))
        if value is None or index != expr.index:
            raise InternalError(f"{expr.buffer} is read where another instance may have written it")
        return value

    def block(self, body: tuple[Stmt, ...], scope: _Scope) -> list[Operation]:
        operations: list[Operation] = []
        for stmt in body:
            match stmt:
                case For(unit=str() as unit) if self.said is not None:
                    self.bound(stmt, unit, scope, operations)
                case For():
                    self.loop(stmt, scope, operations)
                case Alloc():
                    self.window(stmt, scope, operations)
                case Let(name, lo, _, value, inner):
                    scope.names[name] = self.scalars(scope, operations).value(value)
                    if lo >= 0:
                        scope.natural.add(name)
                    operations += self.block(inner, scope)
                case Tile():
                    self.call(stmt, scope, operations)
                case Sync():
                    operations.append(gpu.BarrierOp())
                case If():
                    self.condition(stmt, scope, operations)
                case Store():
                    self.store(stmt, scope, operations)
                case _:
                    raise InternalError(f"{type(stmt).__name__} is left in plain loops")
        return operations

    def store(self, stmt: Store, scope: _Scope, found: list[Operation]) -> None:
        scalars = self.scalars(scope, found)
        value = stmt.value
        if stmt.reduce is not None:
            value = Binary(
                COMBINED[stmt.reduce], Load(stmt.buffer, stmt.index, dtype_of(value)), value
            )
        made = scalars.value(value)
        if stmt.buffer in self.nest.held:
            scope.held[stmt.buffer] = stmt.index, made
            return
        index = [scalars.value(part) for part in stmt.index]
        found.append(memref.StoreOp.get(made, self.arrays[stmt.buffer], index))

    def loop(self, stmt: For, scope: _Scope, found: list[Operation]) -> None:
        scalars = self.scalars(scope, found)
        count = ix.literal_value(ix.sub(stmt.hi, stmt.lo))
        tiled = count is not None and ix.literal_value(stmt.lo) is None
        if count == 1:
            self.once(stmt, scope, found)
            return
        lo, hi = (ix.const(0), ix.const(count or 0)) if tiled else (stmt.lo, stmt.hi)
        carried = [name for name in _stored(stmt.body) if name in scope.held]
        starts = [scope.held[name] for name in carried]
        bounds = [scalars.value(part) for part in (lo, hi, ix.const(1))]
        start = scalars.value(stmt.lo) if tiled else None
        inner, block = scope.inner(), Block(arg_types=[IndexType(), *(v.type for _, v in starts)])
        counter, *values = block.args
        counter.name_hint = stmt.iter
        for name, (index, _), value in zip(carried, starts, values, strict=True):
            inner.held[name] = index, value
        if is_natural(stmt.lo, scope.natural):
            inner.natural.add(stmt.iter)
        if start is None:
            inner.names[stmt.iter] = counter
        else:
            moved = arith.AddiOp(start, counter)
            block.add_op(moved)
            inner.names[stmt.iter] = moved.result
        block.add_ops(self.block(stmt.body, inner))
        block.add_op(scf.YieldOp(*(inner.held[name][1] for name in carried)))
        made = scf.ForOp(*bounds, [v for _, v in starts], block)
        found.append(made)
        for name, (index, _), result in zip(carried, starts, made.res, strict=True):
            scope.held[name] = index, result

    def once(self, stmt: For, scope: _Scope, found: list[Operation]) -> None:
        """The body of a loop of one iteration, its coordinate the start."""
        start = self.scalars(scope, found).value(stmt.lo)
        inner = scope.inner()
        inner.names[stmt.iter] = start
        inner.seen = {e: v for e, v in scope.seen.items() if stmt.iter not in free(e)}
        if is_natural(stmt.lo, scope.natural):
            inner.natural.add(stmt.iter)
        found += self.block(stmt.body, inner)
        scope.held |= {name: inner.held[name] for name in scope.held}

    # what a schedule decides

    def bound(self, stmt: For, unit: str, scope: _Scope, found: list[Operation]) -> None:
        """Write a loop that a unit runs."""
        if unit in HARDWARE:
            self.kernel(stmt, scope, found)
        elif unit == "thread":
            scalars = self.scalars(scope, found)
            bounds = [[scalars.value(part)] for part in (stmt.lo, stmt.hi, ix.const(1))]
            block = Block(arg_types=[IndexType()])
            inner = self.entered(stmt, block.args[0], scope)
            block.add_ops([*self.block(stmt.body, inner), scf.ReduceOp()])
            found.append(scf.ParallelOp(*bounds, Region(block)))
        elif unit == "lane":
            written_lanes(self, stmt, scope, found)
        else:
            for number in range(ix.literal_value(ix.sub(stmt.hi, stmt.lo)) or 0):
                self.once(replace(stmt, lo=ix.add(stmt.lo, number)), scope, found)

    def entered(self, stmt: For, value: SSAValue, scope: _Scope) -> _Scope:
        """Return the scope inside of a loop whose coordinate is a value."""
        inner = scope.inner()
        value.name_hint = stmt.iter
        inner.names[stmt.iter] = value
        if is_natural(stmt.lo, scope.natural):
            inner.natural.add(stmt.iter)
        return inner

    def kernel(self, stmt: For, scope: _Scope, found: list[Operation]) -> None:
        """Write the loops over a grid, one around the other."""
        scalars, one = self.scalars(scope, found), self.constant(1, "index")
        sizes, block = dict.fromkeys(HARDWARE, one), Block(arg_types=[IndexType()] * 12)
        inner, body = scope, tuple[Stmt, ...]((stmt,))
        while len(body) == 1 and isinstance(body[0], For) and body[0].unit in HARDWARE:
            loop = body[0]
            index, _, axis = str(loop.unit).partition(".")
            which = gpu.BlockIdOp if index == "blockIdx" else gpu.ThreadIdOp
            place = which(gpu.DimensionAttr(gpu.DimensionEnum(axis)))
            block.add_op(place)
            inner = self.entered(loop, place.result, inner)
            sizes[str(loop.unit)] = scalars.value(loop.hi)
            body = loop.body
        self.in_kernel = True
        block.add_ops([*self.block(body, inner), gpu.TerminatorOp()])
        self.in_kernel = False
        grid = list(sizes.values())
        found.append(gpu.LaunchOp(Region(block), grid[:3], grid[3:]))

    def window(self, stmt: Alloc, scope: _Scope, found: list[Operation]) -> None:
        """Write an array that lives as long as its block."""
        buffer = replace(self.program.buffer(stmt.buffer), scope=stmt.memory)
        allocation = self.allocated(buffer, self.scalars(scope, found))
        found += self.block(stmt.body, scope)
        if not self.in_kernel:
            found.append(memref.DeallocOp.get(allocation))

    def call(self, stmt: Tile, scope: _Scope, found: list[Operation]) -> None:
        """Write a covered tile: a function on the views that its operands are."""
        assert self.said is not None
        assert stmt.microkernel is not None
        called, scalars = (
            call_of(stmt, self.said.kernel(stmt.microkernel)),
            self.scalars(scope, found),
        )
        views = [self.view(view, scalars) for view in called.views]
        types = tuple(view.type for view in views)
        key = called.name, types
        if key not in self.functions:
            alike = sum(name == called.name for name, _ in self.functions)
            name = f"{called.name}_{alike + 1}" if alike else called.name
            self.functions[key] = func.FuncOp.external(name, types, [])
        found.append(func.CallOp(self.functions[key].sym_name.data, views, []))

    def view(self, view: View, scalars: Scalars) -> SSAValue:
        """Return a memref of the elements of an operand."""
        memref_, shape = self.arrays[view.buffer], self.program.buffer(view.buffer).shape
        steps: list[Expr] = [ix.const(1)]
        for extent in reversed(shape[1:]):
            steps.insert(0, product(steps[0], extent))
        steps = steps[: len(shape)]
        offset = total(map(product, view.first, steps))
        strides = [
            total(product(ix.const(f), step) for f, step in zip(one, steps, strict=True))
            for one in view.strides
        ]
        kind = memref_.type
        open_ = StridedLayoutAttr([NoneAttr()] * len(strides), NoneAttr())
        result = MemRefType(
            kind.element_type, [DYNAMIC_INDEX] * len(strides), open_, kind.memory_space
        )
        numbers = ([scalars.value(e) for e in part] for part in ([offset], view.sizes, strides))
        return scalars.added(memref.ReinterpretCastOp.from_dynamic(memref_, *numbers, result))

    def condition(self, stmt: If, scope: _Scope, found: list[Operation]) -> None:
        holds = self.scalars(scope, found).value(stmt.condition)
        inners = scope.inner(), scope.inner()
        bodies = [
            self.block(body, inner)
            for body, inner in zip((stmt.then, stmt.other), inners, strict=True)
        ]
        changed = [
            name
            for name in _stored((*stmt.then, *stmt.other))
            if all(name in inner.held for inner in inners)
        ]
        regions: list[Region] = []
        for body, inner in zip(bodies, inners, strict=True):
            last = scf.YieldOp(*(inner.held[name][1] for name in changed))
            regions.append(Region(Block([*body, last])))
        types = [inners[0].held[name][1].type for name in changed]
        other = regions[1] if stmt.other or changed else None
        made = scf.IfOp(holds, types, regions[0], other)
        found.append(made)
        for name, result in zip(changed, made.output, strict=True):
            scope.held[name] = inners[0].held[name][0], result


def _outside(stmt: Stmt) -> Stmt | None:
    """A loop with the conditions of its body that it does not change asked before it."""
    match stmt:
        case For(name, _, _, (If(condition, then, ()),)):
            parts = conjuncts(condition)
            inside = [part for part in parts if name in free(part) or reads_memory(part)]
            before = [part for part in parts if part not in inside]
            if not before:
                return None
            body = (If(conjunction(inside), then),) if inside else then
            return If(conjunction(before), (replace(stmt, body=body),))
    return None


_SPACES: dict[str, IntegerAttr] = {
    "shared": IntegerAttr(3, 64),
    "local": IntegerAttr(5, 64),
}
"""Memories of a kernel, by the numbers that they have for NVVM and ROCDL."""


def product(a: Expr, b: Expr) -> Expr:
    """Return the product of two index expressions, none of which need be a number."""
    if ix.literal_value(a) is not None or ix.literal_value(b) is not None:
        return ix.mul(a, b)
    return Binary("*", a, b)


def total(parts: Iterable[Expr]) -> Expr:
    """Return the sum of index expressions."""
    return ix.add(ix.const(0), *parts)


def _stored(body: tuple[Stmt, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(stmt.buffer for stmt in walk(body) if isinstance(stmt, Store)))
