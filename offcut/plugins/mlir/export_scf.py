"""Export a loop program as ``scf`` over ``memref``.

A loop over a full tile runs from 0 to a literal, its coordinate is the start of the tile and the
counter. The elements of `Nest.held_arrays` are SSA values again, which loops and conditions carry on.

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
from offcut.plugins.hosts import HARDWARE, HostProgram, View, call_of
from offcut.plugins.mlir.lanes import check_lanes, export_lanes
from offcut.plugins.mlir.nest import TYPES, Extent, Nest, is_natural
from offcut.plugins.mlir.scalars import Scalars, constant


@dataclass(frozen=True)
class EmittedNest:
    """Operations, the values that take the place of a loop's results, and the functions that they call."""

    operations: tuple[Operation, ...]
    results: tuple[SSAValue, ...]
    functions: tuple[func.FuncOp, ...] = ()


def export_nest(nest: Nest, program: Program | HostProgram) -> EmittedNest:
    """Return the operations that take the place of a nest.

    program  what `nest.program` was cut to, or what a schedule made of it: then all that it holds lies in memory
    """
    if isinstance(program, HostProgram):
        return _Writer(replace(nest, held_arrays=frozenset()), program).export(
            rewrite(program.program, _hoist_conditions)
        )
    return _Writer(nest).export(rewrite(plain(program), _hoist_conditions))


@dataclass
class _Scope:
    """The names, elements and values in scope where operations are added.

    names          the values of coordinates and sizes
    held_elements  by array, the element that an instance holds, and its value
    """

    names: dict[str, SSAValue]
    held_elements: dict[str, tuple[tuple[Expr, ...], SSAValue]]
    natural: set[str]
    values: dict[Expr, SSAValue] = field(default_factory=dict)

    def inner(self) -> _Scope:
        return _Scope(
            dict(self.names), dict(self.held_elements), set(self.natural), dict(self.values)
        )


class _Writer:
    def __init__(self, nest: Nest, host_program: HostProgram | None = None) -> None:
        self.nest, self.host_program = nest, host_program
        self.arrays = dict(nest.buffers)
        self.lanes: dict[str, For | None] = {}
        self.functions: dict[tuple[str, tuple[Attribute, ...]], func.FuncOp] = {}
        self.in_kernel = False
        self.head: list[Operation] = []
        self.constants: dict[tuple[object, str], SSAValue] = {}

    def export(self, program: Program) -> EmittedNest:
        """Return all operations, those of sizes and constants first."""
        self.program = program
        scope = _Scope({}, {}, set(self.nest.sizes))
        for name, source in self.nest.sizes.items():
            scope.names[name] = self.size(source) if isinstance(source, Extent) else source
        for name, value in self.nest.scalars.items():
            scope.held_elements[name] = (), value
        first: list[Operation] = []
        scalars = self.scalars(scope, first)
        deallocations: list[Operation] = []
        windows = {stmt.buffer for stmt in walk(program.body) if isinstance(stmt, Alloc)}
        for buffer in program.buffers:
            is_allocated = buffer.kind is Kind.LOCAL or buffer.name in self.nest.results
            if is_allocated and buffer.name not in self.nest.held_arrays | windows:
                allocation = self.allocate(buffer, scalars)
                deallocations.append(memref.DeallocOp.get(allocation))
        body = self.block(program.body, scope)
        check_lanes(self)
        results: list[SSAValue] = []
        for name in self.nest.results:
            if name in self.nest.held_arrays:
                results.append(scope.held_elements[name][1])
            else:
                body.append(memref.LoadOp.get(self.arrays[name], []))
                results.append(body[-1].results[0])
        operations = (*self.head, *first, *body, *deallocations)
        return EmittedNest(operations, tuple(results), tuple(self.functions.values()))

    def allocate(self, buffer: Buffer, scalars: Scalars) -> SSAValue:
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
        self.arrays[buffer.name] = scalars.add(allocation)
        return self.arrays[buffer.name]

    def size(self, extent: Extent) -> SSAValue:
        operation = memref.DimOp(extent.memref, self.constant(extent.axis, "index"))
        self.head.append(operation)
        return operation.result

    def constant(self, value: int | float, dtype: str) -> SSAValue:
        """Return a literal, emitted once, before the loops."""
        key = repr(value), dtype
        if key not in self.constants:
            operation = constant(value, dtype)
            self.head.append(operation)
            self.constants[key] = operation.result
        return self.constants[key]

    def scalars(self, scope: _Scope, into: list[Operation]) -> Scalars:
        """Return an emitter of expressions into a block."""

        def load(expr: Load, at: Scalars) -> SSAValue:
            if expr.buffer in self.nest.held_arrays or expr.buffer in self.nest.scalars:
                return self.held_value(expr, scope)
            index = [at.value(part) for part in expr.index]
            return at.add(memref.LoadOp.get(self.arrays[expr.buffer], index))

        return Scalars(into, scope.names, scope.values, self.constant, load, scope.natural)

    def held_value(self, expr: Load, scope: _Scope) -> SSAValue:
        """Return the value of an element that this instance holds."""
        index, value = scope.held_elements.get(expr.buffer, (None, None))
        if value is None or index != expr.index:
            raise InternalError(f"{expr.buffer} is read where another instance may have written it")
        return value

    def block(self, body: tuple[Stmt, ...], scope: _Scope) -> list[Operation]:
        operations: list[Operation] = []
        for stmt in body:
            match stmt:
                case For(unit=str() as unit) if self.host_program is not None:
                    self.unit_loop(stmt, unit, scope, operations)
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

    def store(self, stmt: Store, scope: _Scope, operations: list[Operation]) -> None:
        scalars = self.scalars(scope, operations)
        value = stmt.value
        if stmt.reduce is not None:
            value = Binary(
                COMBINED[stmt.reduce], Load(stmt.buffer, stmt.index, dtype_of(value)), value
            )
        new_value = scalars.value(value)
        if stmt.buffer in self.nest.held_arrays:
            scope.held_elements[stmt.buffer] = stmt.index, new_value
            return
        index = [scalars.value(part) for part in stmt.index]
        operations.append(memref.StoreOp.get(new_value, self.arrays[stmt.buffer], index))

    def loop(self, stmt: For, scope: _Scope, operations: list[Operation]) -> None:
        scalars = self.scalars(scope, operations)
        count = ix.literal_value(ix.sub(stmt.hi, stmt.lo))
        is_tile = count is not None and ix.literal_value(stmt.lo) is None
        if count == 1:
            self.single_iteration(stmt, scope, operations)
            return
        lo, hi = (ix.const(0), ix.const(count or 0)) if is_tile else (stmt.lo, stmt.hi)
        carried = [name for name in _written_buffers(stmt.body) if name in scope.held_elements]
        starts = [scope.held_elements[name] for name in carried]
        bounds = [scalars.value(part) for part in (lo, hi, ix.const(1))]
        start = scalars.value(stmt.lo) if is_tile else None
        inner, block = scope.inner(), Block(arg_types=[IndexType(), *(v.type for _, v in starts)])
        counter, *values = block.args
        counter.name_hint = stmt.iter
        for name, (index, _), value in zip(carried, starts, values, strict=True):
            inner.held_elements[name] = index, value
        if is_natural(stmt.lo, scope.natural):
            inner.natural.add(stmt.iter)
        if start is None:
            inner.names[stmt.iter] = counter
        else:
            coordinate = arith.AddiOp(start, counter)
            block.add_op(coordinate)
            inner.names[stmt.iter] = coordinate.result
        block.add_ops(self.block(stmt.body, inner))
        block.add_op(scf.YieldOp(*(inner.held_elements[name][1] for name in carried)))
        operation = scf.ForOp(*bounds, [v for _, v in starts], block)
        operations.append(operation)
        for name, (index, _), result in zip(carried, starts, operation.res, strict=True):
            scope.held_elements[name] = index, result

    def single_iteration(self, stmt: For, scope: _Scope, operations: list[Operation]) -> None:
        """Write the body of a loop of one iteration, whose coordinate is the start."""
        start = self.scalars(scope, operations).value(stmt.lo)
        inner = scope.inner()
        inner.names[stmt.iter] = start
        inner.values = {e: v for e, v in scope.values.items() if stmt.iter not in free(e)}
        if is_natural(stmt.lo, scope.natural):
            inner.natural.add(stmt.iter)
        operations += self.block(stmt.body, inner)
        scope.held_elements |= {name: inner.held_elements[name] for name in scope.held_elements}

    # what a schedule decides

    def unit_loop(self, stmt: For, unit: str, scope: _Scope, operations: list[Operation]) -> None:
        """Write a loop that a unit runs."""
        if unit in HARDWARE:
            self.kernel(stmt, scope, operations)
        elif unit == "thread":
            scalars = self.scalars(scope, operations)
            bounds = [[scalars.value(part)] for part in (stmt.lo, stmt.hi, ix.const(1))]
            block = Block(arg_types=[IndexType()])
            inner = self.enter(stmt, block.args[0], scope)
            block.add_ops([*self.block(stmt.body, inner), scf.ReduceOp()])
            operations.append(scf.ParallelOp(*bounds, Region(block)))
        elif unit == "lane":
            export_lanes(self, stmt, scope, operations)
        else:
            for number in range(ix.literal_value(ix.sub(stmt.hi, stmt.lo)) or 0):
                self.single_iteration(replace(stmt, lo=ix.add(stmt.lo, number)), scope, operations)

    def enter(self, stmt: For, value: SSAValue, scope: _Scope) -> _Scope:
        """Return the scope inside of a loop whose coordinate is a value."""
        inner = scope.inner()
        value.name_hint = stmt.iter
        inner.names[stmt.iter] = value
        if is_natural(stmt.lo, scope.natural):
            inner.natural.add(stmt.iter)
        return inner

    def kernel(self, stmt: For, scope: _Scope, operations: list[Operation]) -> None:
        """Write the loops over a grid, one around the other."""
        scalars, one = self.scalars(scope, operations), self.constant(1, "index")
        sizes, block = dict.fromkeys(HARDWARE, one), Block(arg_types=[IndexType()] * 12)
        inner, body = scope, tuple[Stmt, ...]((stmt,))
        while len(body) == 1 and isinstance(body[0], For) and body[0].unit in HARDWARE:
            loop = body[0]
            index, _, axis = str(loop.unit).partition(".")
            which = gpu.BlockIdOp if index == "blockIdx" else gpu.ThreadIdOp
            place = which(gpu.DimensionAttr(gpu.DimensionEnum(axis)))
            block.add_op(place)
            inner = self.enter(loop, place.result, inner)
            sizes[str(loop.unit)] = scalars.value(loop.hi)
            body = loop.body
        self.in_kernel = True
        block.add_ops([*self.block(body, inner), gpu.TerminatorOp()])
        self.in_kernel = False
        grid = list(sizes.values())
        operations.append(gpu.LaunchOp(Region(block), grid[:3], grid[3:]))

    def window(self, stmt: Alloc, scope: _Scope, operations: list[Operation]) -> None:
        """Write an array that lives as long as its block."""
        buffer = replace(self.program.buffer(stmt.buffer), scope=stmt.memory)
        allocation = self.allocate(buffer, self.scalars(scope, operations))
        operations += self.block(stmt.body, scope)
        if not self.in_kernel:
            operations.append(memref.DeallocOp.get(allocation))

    def call(self, stmt: Tile, scope: _Scope, operations: list[Operation]) -> None:
        """Write a covered tile: a function on the views that its operands are."""
        assert self.host_program is not None
        assert stmt.microkernel is not None
        call, scalars = (
            call_of(stmt, self.host_program.kernel(stmt.microkernel)),
            self.scalars(scope, operations),
        )
        views = [self.view(view, scalars) for view in call.views]
        types = tuple(view.type for view in views)
        key = call.name, types
        if key not in self.functions:
            alike = sum(name == call.name for name, _ in self.functions)
            name = f"{call.name}_{alike + 1}" if alike else call.name
            self.functions[key] = func.FuncOp.external(name, types, [])
        operations.append(func.CallOp(self.functions[key].sym_name.data, views, []))

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
        return scalars.add(memref.ReinterpretCastOp.from_dynamic(memref_, *numbers, result))

    def condition(self, stmt: If, scope: _Scope, operations: list[Operation]) -> None:
        holds = self.scalars(scope, operations).value(stmt.condition)
        inners = scope.inner(), scope.inner()
        bodies = [
            self.block(body, inner)
            for body, inner in zip((stmt.then, stmt.other), inners, strict=True)
        ]
        changed_arrays = [
            name
            for name in _written_buffers((*stmt.then, *stmt.other))
            if all(name in inner.held_elements for inner in inners)
        ]
        regions: list[Region] = []
        for body, inner in zip(bodies, inners, strict=True):
            last = scf.YieldOp(*(inner.held_elements[name][1] for name in changed_arrays))
            regions.append(Region(Block([*body, last])))
        types = [inners[0].held_elements[name][1].type for name in changed_arrays]
        other = regions[1] if stmt.other or changed_arrays else None
        operation = scf.IfOp(holds, types, regions[0], other)
        operations.append(operation)
        for name, result in zip(changed_arrays, operation.output, strict=True):
            scope.held_elements[name] = inners[0].held_elements[name][0], result


def _hoist_conditions(stmt: Stmt) -> Stmt | None:
    """Return a loop inside the conditions that do not depend on it; None if it has none."""
    match stmt:
        case For(name, _, _, (If(condition, then, ()),)):
            parts = conjuncts(condition)
            inner_parts = [part for part in parts if name in free(part) or reads_memory(part)]
            before = [part for part in parts if part not in inner_parts]
            if not before:
                return None
            body = (If(conjunction(inner_parts), then),) if inner_parts else then
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


def _written_buffers(body: tuple[Stmt, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(stmt.buffer for stmt in walk(body) if isinstance(stmt, Store)))
