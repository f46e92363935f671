"""Import ``scf`` over ``memref`` as a loop program.

An SSA value is an expression where it is used. One that reads memory which is written before its last
use is stored in a local array of its own first, and so is what a loop or a condition carries on: a
nest in which such a value is made and used holds one element of it at a time (`Nest.held_arrays`).

Accesses of a memref lie inside of it, since MLIR gives no meaning to others: the sizes at which they
do are the program's assumptions. Memrefs that are arguments or allocations of their own are different
memory; a nest that writes through a view beside another memref is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from xdsl.dialects import memref, scf
from xdsl.dialects.builtin import IndexType
from xdsl.ir import Block, Operation, SSAValue

from offcut.core import index as ix
from offcut.core.expr import COMBINED
from offcut.ir import (
    Binary,
    Buffer,
    Cast,
    Const,
    Expr,
    For,
    If,
    Kind,
    Load,
    Program,
    Select,
    Size,
    Stmt,
    Store,
    Var,
    dtype_of,
    walk,
)
from offcut.plugins.mlir.captured_values import UNKNOWN, CapturedValues, literal_of, names_in
from offcut.plugins.mlir.nest import DTYPES, Nest, import_error
from offcut.plugins.mlir.scalars import expression
from offcut.polyhedral import in_bounds_sizes, try_isl

NEST = "nest"
"""What the program of a nest is called."""
_REDUCERS = {op: reducer for reducer, op in COMBINED.items()}


def import_nest(op: scf.ForOp) -> Nest:
    """Return the program of an outermost loop, with all values that it uses from outside.

    Raises DescribeError for what no loop program says, with the operation.
    """
    reader = _Reader(op)
    body = reader.operation(op)
    return reader.nest(op, body)


class _Reader(CapturedValues):
    """The import of one nest: its statements, and the values that it holds."""

    def __init__(self, root: Operation) -> None:
        super().__init__(root)
        self.place = {one: k for k, one in enumerate(root.walk())}
        self.writes = {one: _written_memrefs(one) for one in self.place if one.regions}
        self.iterators: set[str] = set()
        self.locals: list[Buffer] = []
        self.held_arrays: set[str] = set()
        self.results: list[str] = []
        self.loops: list[tuple[str, Expr, Expr]] = []

    def nest(self, op: Operation, body: tuple[Stmt, ...]) -> Nest:
        """Return the nest; extents that are never read are those of the loops over them."""
        arrays = [self.with_extents(buffer, body) for buffer in self.buffers.values()]
        inputs = [Buffer(n, DTYPES[v.type], (), Kind.INPUT) for n, v in self.scalars.items()]
        written = {stmt.buffer for stmt in walk(body) if isinstance(stmt, Store)}
        arrays = [
            replace(b, kind=Kind.INOUT) if b.name in written and b.kind is Kind.INPUT else b
            for b in arrays
        ]
        sizes = tuple(Size(name) for name in self.sizes)
        buffers = (*inputs, *arrays, *self.locals)
        program = Program(self.new_name(NEST), sizes, (), buffers, body)
        self.check_apart(op, written)
        program = self.open_unread_axes(
            replace(program, assumptions=try_isl(lambda: in_bounds_sizes(program), ()))
        )
        memrefs = {buffer.name: value for value, buffer in self.buffers.items()}
        buffer_memrefs = {b.name: memrefs[b.name] for b in arrays if b.kind is not Kind.LOCAL}
        held_arrays = frozenset(self.held_arrays)
        return Nest(
            op, program, buffer_memrefs, self.scalars, self.sizes, held_arrays, tuple(self.results)
        )

    def iterator(self, variable: SSAValue) -> str:
        """Return the name of a loop: its hint, which loops side by side may share."""
        hint = variable.name_hint
        if hint in self.iterators and hint not in {name for name, _, _ in self.loops}:
            return str(hint)
        name = self.name_of(variable, "loop")
        self.iterators.add(name)
        return name

    def block(self, block: Block) -> tuple[Stmt, ...]:
        """Return the statements of all operations but the last one, which yields."""
        statements: tuple[Stmt, ...] = ()
        for op in block.ops:
            if not isinstance(op, scf.YieldOp):
                statements += self.operation(op)
        return statements

    def operation(self, op: Operation) -> tuple[Stmt, ...]:
        """Return the statements of an operation; none if its result is an expression."""
        match op:
            case memref.LoadOp():
                buffer = self.array(op.memref, op)
                index = tuple(map(self.value, op.indices))
                self.env[op.res] = Load(buffer.name, index, buffer.dtype)
                return ()
            case memref.StoreOp():
                return self.store(op)
            case scf.ForOp():
                return self.loop(op)
            case scf.IfOp():
                return self.condition(op)
            case memref.AllocOp() | memref.AllocaOp():
                return self.allocation(op)
            case memref.DimOp() if (axis := literal_of(op.index)) is not None:
                self.env[op.result] = self.extent(op.source, axis, op.result.name_hint)
                return ()
            case memref.DeallocOp():
                return ()
        if op.regions or len(op.results) != 1:
            raise import_error(op, "it is not a loop, condition, access or scalar operation")
        if op.results[0].type not in DTYPES:
            raise import_error(op, f"offcut has no scalars of type {op.results[0].type}")
        args = [self.value(v) for v in op.operands]
        self.env[op.results[0]] = expression(op, args, self.is_natural)
        return ()

    def allocation(self, op: memref.AllocOp | memref.AllocaOp) -> tuple[Stmt, ...]:
        buffer = self.array(op.memref, op)
        dynamic_extents = iter([self.value(v) for v in op.dynamic_sizes])
        shape = tuple(next(dynamic_extents) if n == UNKNOWN else n for n in buffer.shape)
        outer_loops = {name for name, _, _ in self.loops}
        if any(set(names_in(extent)) & outer_loops for extent in shape):
            raise import_error(op, "its extent changes from one iteration to the next")
        self.buffers[op.memref] = replace(buffer, shape=shape, kind=Kind.LOCAL)
        return ()

    def store(self, op: memref.StoreOp) -> tuple[Stmt, ...]:
        buffer = self.array(op.memref, op)
        index = tuple(map(self.value, op.indices))
        before = self.save_values(op, {buffer.name}, after=True)
        return (*before, _store(buffer, index, self.value(op.value)))

    def loop(self, op: scf.ForOp) -> tuple[Stmt, ...]:
        variable, *carried = op.body.block.args
        step = self.value(op.step) if isinstance(op.step.type, IndexType) else None
        if not isinstance(step, Const) or int(step.value) <= 0:
            raise import_error(op, "its step is not a positive literal of type index")
        before = self.save_values(op, self.written_arrays(op))
        lo, hi, by = self.value(op.lb), self.value(op.ub), int(step.value)
        name = self.iterator(variable)
        self.env[variable] = Var(name)
        if by > 1:
            self.env[variable] = ix.add(lo, ix.mul(by, Var(name)))
            lo, hi = ix.const(0), ix.ceildiv(ix.sub(hi, lo), by)
        holders = [self.holder(value, op is self.root) for value in carried]
        for value, holder, start in zip(carried, holders, op.iter_args, strict=True):
            before += (_store(holder, self.own_element(holder), self.value(start)),)
            self.env[value] = Load(holder.name, self.own_element(holder), holder.dtype)
        outer = tuple(self.env[value] for value in carried)
        self.loops.append((name, lo, hi))
        if self.is_natural(lo):
            self.natural.add(name)
        body = self.block(op.body.block)
        body += self.hand_over(op.body.block.last_op, holders, outer)
        self.loops.pop()
        self.natural.discard(name)
        self.env.update(zip(op.results, outer, strict=True))
        if op is self.root:
            self.results = [holder.name for holder in holders]
        return (*before, For(name, lo, hi, body))

    def hand_over(
        self, last: Operation | None, holders: Sequence[Buffer], places: Sequence[Expr]
    ) -> tuple[Stmt, ...]:
        """Return the stores of the values for the next iteration: all are read before any is written."""
        values = [self.value(v) for v in last.operands] if last is not None else []
        statements: list[Stmt] = []
        for k, (holder, place) in enumerate(zip(holders, places, strict=True)):
            if values[k] == place:
                continue
            assert isinstance(place, Load)
            for later in range(k + 1, len(values)):
                if _reads(values[later], {holder.name}) and values[later] != places[later]:
                    save, values[later] = self.save_value(values[later])
                    statements.append(save)
            statements.append(_store(holder, place.index, values[k]))
        return tuple(statements)

    def condition(self, op: scf.IfOp) -> tuple[Stmt, ...]:
        before = self.save_values(op, self.written_arrays(op))
        holds = self.value(op.cond)
        regions = (op.true_region, op.false_region)
        holders = [self.holder(value) for value in op.results if not _is_pure(op)]
        branches: list[tuple[Stmt, ...]] = []
        values: list[list[Expr]] = []
        for region in regions:
            body = self.block(region.block) if region.blocks else ()
            last = region.block.last_op if region.blocks else None
            values.append([self.value(v) for v in last.operands] if last is not None else [])
            if holders:
                pairs = zip(holders, values[-1], strict=True)
                body += tuple(_store(holder, self.own_element(holder), v) for holder, v in pairs)
            branches.append(body)
        for k, result in enumerate(op.results):
            if holders:
                holder = holders[k]
                self.env[result] = Load(holder.name, self.own_element(holder), holder.dtype)
            else:
                self.env[result] = Select(holds, values[0][k], values[1][k])
        if not any(branches):
            return before
        return (*before, If(holds, *branches))

    # values that memory holds

    def written_arrays(self, op: Operation) -> set[str]:
        """Return the names of the arrays that `op` writes."""
        return {self.buffers[v].name for v in self.writes[op] if v in self.buffers}

    def save_values(
        self, op: Operation, written: set[str], after: bool = False
    ) -> tuple[Stmt, ...]:
        """Return stores that save, before `op`, the values that read arrays written by `op` and are used in or after it.

        after   only those that are used after it
        """
        position = self.place[op]
        statements: list[Stmt] = []
        for value, expr in self.env.items():
            uses = (self.place.get(use.operation, -1) for use in value.uses)
            if _reads(expr, written) and any(
                u > position or (u == position and not after) for u in uses
            ):
                save, self.env[value] = self.save_value(expr)
                statements.append(save)
        return tuple(statements)

    def save_value(self, expr: Expr) -> tuple[Stmt, Expr]:
        """Return a store of the value of `expr`, and the load that reads it back."""
        dtype = dtype_of(expr)
        value = Cast(expr, "int64") if dtype == "index" else expr
        holder = self.local("value", dtype_of(value))
        read = Load(holder.name, self.own_element(holder), holder.dtype)
        return _store(holder, read.index, value), Cast(read, "index") if dtype == "index" else read

    def holder(self, value: SSAValue, result: bool = False) -> Buffer:
        """Return a local array for a value that a loop or a condition carries on."""
        dtype = DTYPES.get(value.type)
        if dtype is None or dtype == "index":
            raise import_error(_owner(value), f"it carries a value of type {value.type}")
        return self.local(value.name_hint or "carried", dtype, result)

    def local(self, hint: str, dtype: str, result: bool = False) -> Buffer:
        """Return a new local array with an axis for each loop around whose extent depends on sizes alone."""
        axes = () if result else tuple(hi for _, lo, hi in self.loops if self.is_plain(lo, hi))
        kind = Kind.OUTPUT if result else Kind.LOCAL
        buffer = Buffer(self.new_name(hint), dtype, axes, kind)
        self.locals.append(buffer)
        self.held_arrays.add(buffer.name)
        return buffer

    def own_element(self, holder: Buffer) -> tuple[Expr, ...]:
        """Return the index of the element of `holder` that belongs to this instance."""
        plain = [Var(name) for name, lo, hi in self.loops if self.is_plain(lo, hi)]
        return tuple(plain[: len(holder.shape)])

    def is_plain(self, lo: Expr, hi: Expr) -> bool:
        """Return whether the range of a loop can be the extent of an array."""
        from_start = isinstance(lo, Const) and int(lo.value) >= 0
        return from_start and set(names_in(hi)) <= set(self.sizes) and self.is_natural(hi)


def _store(buffer: Buffer, index: tuple[Expr, ...], value: Expr) -> Store:
    """Return a store; as an update if it is one: ``C[i] = C[i] + x`` adds x, in either order of the two."""
    place = Load(buffer.name, index, buffer.dtype)
    match value:
        case Binary(op, a, b) if op in _REDUCERS and place in (a, b):
            other = b if a == place else a
            if not _reads(other, {buffer.name}):
                return Store(buffer.name, index, other, _REDUCERS[op])
    return Store(buffer.name, index, value)


def _reads(expr: Expr, buffers: set[str]) -> bool:
    return any(isinstance(node, Load) and node.buffer in buffers for node in walk(expr))


def _written_memrefs(op: Operation) -> set[SSAValue]:
    return {one.memref for one in op.walk() if isinstance(one, memref.StoreOp)}


def _is_pure(op: scf.IfOp) -> bool:
    """Return whether both branches are expressions: no store, no loop, no allocation."""
    operations = (one for region in op.regions for one in region.walk())
    return not any(
        isinstance(one, memref.StoreOp | scf.ForOp | memref.AllocOp) for one in operations
    )


def _owner(value: SSAValue) -> Operation:
    owner = value.owner
    operation = owner.parent_op() if isinstance(owner, Block) else owner
    assert operation is not None
    return operation
