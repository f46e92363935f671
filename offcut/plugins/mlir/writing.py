"""A cut loop program in, ``scf`` over ``memref`` out.

A loop over a full tile runs from 0 to a literal, its coordinate is the start of the tile and the
counter. The elements of `Nest.held` are SSA values again, which loops and conditions carry on.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from xdsl.dialects import arith, memref, scf
from xdsl.dialects.builtin import DYNAMIC_INDEX, IndexType, MemRefType
from xdsl.ir import Block, Operation, Region, SSAValue

from offcut.core import index as ix
from offcut.core.conditions import conjunction, conjuncts
from offcut.core.expr import COMBINED, reads_memory
from offcut.errors import InternalError
from offcut.ir import (
    Binary,
    Expr,
    For,
    If,
    Kind,
    Load,
    Program,
    Stmt,
    Store,
    dtype_of,
    free,
    plain,
    rewrite,
    walk,
)
from offcut.plugins.mlir.emitting import Scalars, constant
from offcut.plugins.mlir.nest import TYPES, Extent, Nest
from offcut.plugins.mlir.signs import is_natural


def written(nest: Nest, program: Program) -> tuple[tuple[Operation, ...], tuple[SSAValue, ...]]:
    """The operations that take the place of a nest, and the values of its results.

    program  what `nest.program` was cut to
    """
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
    def __init__(self, nest: Nest) -> None:
        self.nest = nest
        self.arrays = dict(nest.buffers)
        self.head: list[Operation] = []
        self.constants: dict[tuple[object, str], SSAValue] = {}

    def whole(self, program: Program) -> tuple[tuple[Operation, ...], tuple[SSAValue, ...]]:
        """All of it, what it needs first."""
        scope = _Scope({}, {}, set(self.nest.sizes))
        for name, what in self.nest.sizes.items():
            scope.names[name] = self.size(what) if isinstance(what, Extent) else what
        for name, value in self.nest.scalars.items():
            scope.held[name] = (), value
        first: list[Operation] = []
        scalars = self.scalars(scope, first)
        freed: list[Operation] = []
        for buffer in program.buffers:
            if buffer.kind is Kind.LOCAL and buffer.name not in self.nest.held:
                shape = [ix.literal_value(extent) for extent in buffer.shape]
                kind = MemRefType(
                    TYPES[buffer.dtype], [DYNAMIC_INDEX if n is None else n for n in shape]
                )
                given = [
                    scalars.value(e) for e, n in zip(buffer.shape, shape, strict=True) if n is None
                ]
                first.append(memref.AllocOp(given, (), kind))
                self.arrays[buffer.name] = first[-1].results[0]
                freed.append(memref.DeallocOp.get(first[-1]))
        body = self.block(program.body, scope)
        results = tuple(scope.held[name][1] for name in self.nest.results)
        return (*self.head, *first, *body, *freed), results

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
        found: list[Operation] = []
        for stmt in body:
            match stmt:
                case For():
                    self.loop(stmt, scope, found)
                case If():
                    self.condition(stmt, scope, found)
                case Store():
                    self.store(stmt, scope, found)
                case _:
                    raise InternalError(f"{type(stmt).__name__} is left in plain loops")
        return found

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


def _stored(body: tuple[Stmt, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(stmt.buffer for stmt in walk(body) if isinstance(stmt, Store)))
