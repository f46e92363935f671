"""A program that says what lies on the chip, its statements as operations one by one.

::

    tile …: Y = int8(max(S // 64, 0))   ->   alloc Y_1[tile]
                                               tile …: Y_1 = S // 64
                                               alloc Y_2[tile]
                                                 tile …: Y_2 = max(Y_1, 0)
                                                 tile …: Y = int8(Y_2)
"""

from __future__ import annotations

from dataclasses import replace

from offcut.backends.accelerator.isa import MemorySpace
from offcut.backends.accelerator.lowering.arithmetic import recipe_of
from offcut.backends.accelerator.lowering.issue_tree import box
from offcut.backends.accelerator.spec import AcceleratorSpec
from offcut.core import index as ix
from offcut.core.expr import (
    Binary,
    Cast,
    Const,
    Expr,
    Load,
    Unary,
    dtype_of,
    loads,
    substitute,
    variables,
)
from offcut.core.program import Alloc, Buffer, For, Kind, Program, Stmt, Store, Tile
from offcut.core.traversal import map_blocks, used_names
from offcut.describe.computation import Names


def split_statements(program: Program, spec: AcceleratorSpec) -> Program:
    """Return `program` with a statement for each operation; itself where it has no others."""
    return _StatementSplitter(program, spec).made()


class _StatementSplitter:
    def __init__(self, program: Program, spec: AcceleratorSpec) -> None:
        self.program, self.spec = program, spec
        self.names = Names(used_names(program))
        self.added: list[Buffer] = []
        memory = spec.words[MemorySpace.ACCUMULATORS].memory
        self.held = {b.name for b in program.buffers if b.scope == memory}
        self.scoped = {b.name for b in program.buffers if b.scope is not None}

    def made(self) -> Program:
        """Return the program."""
        body = self.block(self.program.body)
        if not self.added:
            return self.program
        return replace(self.program, buffers=(*self.program.buffers, *self.added), body=body)

    def block(self, body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        return tuple(new for stmt in body for new in self.statement(stmt))

    def statement(self, stmt: Stmt) -> tuple[Stmt, ...]:
        boxed = box(stmt)
        if boxed is None:
            return (map_blocks(stmt, self.block),)
        axes, store = boxed
        if store.reduce is not None or not self.is_compound(store):
            return (stmt,)
        starts: dict[str, Expr] = {name: first for name, first, _ in axes}
        counts = {name: count for name, _, count in axes}
        window = tuple(
            (
                ix.simplify(substitute(part, starts)),
                next((counts[n] for n in counts if n in variables(part)), ix.const(1)),
            )
            for part in store.index
        )
        ops: list[Store] = []
        value = self.value(store.value, store, ops)
        body: tuple[Stmt, ...] = (_with_store(stmt, replace(store, value=value), named=True),)
        for one in reversed(ops):
            body = (Alloc(one.buffer, window, (_with_store(stmt, one), *body)),)
        return body

    def is_compound(self, store: Store) -> bool:
        """Return whether a statement computes from accumulators what is no one operation."""
        reads = {load.buffer for load, _ in loads(store.value)}
        if not reads & self.held or reads - self.scoped:
            return False
        if store.buffer in self.held:
            return recipe_of(store, self.program.buffer(store.buffer).dtype, self.spec) is None
        return store.buffer not in self.scoped and not isinstance(_bare(store.value), Load)

    def value(self, expr: Expr, store: Store, ops: list[Store]) -> Expr:
        """What stands for `expr` in the statement, after the operations that it needs."""
        match expr:
            case Load() | Const():
                return expr
            case Cast(a, dtype) if expr is store.value or dtype == "int32":
                return Cast(self.value(a, store, ops), dtype)
        inner: Expr
        match expr:
            case Binary(op, a, b):
                inner = Binary(op, self.value(a, store, ops), self.value(b, store, ops))
            case Unary(op, a):
                inner = Unary(op, self.value(a, store, ops))
            case Cast(a, dtype):
                inner = Cast(self.value(a, store, ops), dtype)
            case _:
                return expr
        if expr is store.value and store.buffer in self.held:
            return inner
        dtype = dtype_of(expr)
        name = self.names.fresh(f"{store.buffer}_{len(ops) + 1}")
        shape = self.program.buffer(store.buffer).shape
        memory = self.spec.words[MemorySpace.ACCUMULATORS].memory
        self.added.append(Buffer(name, dtype, shape, Kind.LOCAL, None, memory))
        ops.append(Store(name, store.index, inner))
        return Load(name, store.index, dtype)


def _with_store(stmt: Stmt, store: Store, named: bool = False) -> Stmt:
    """Return the nest of one statement with another one in its place; `named`: what covers it stays."""
    match stmt:
        case For(_, _, _, (inner,)):
            return replace(stmt, body=(_with_store(inner, store, named),))
        case Tile(_, (inner,), cover=cover):
            return replace(
                stmt, body=(_with_store(inner, store, named),), cover=cover if named else None
            )
    return store


def _bare(expr: Expr) -> Expr:
    return _bare(expr.a) if isinstance(expr, Cast) else expr
