"""A plan whose tiles name what runs them, and that cannot deadlock: where tokens have no room, windows do not take turns."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from offcut.backends.accelerator.host_device_split import HostDeviceProgram
from offcut.backends.accelerator.isa import MemorySpace
from offcut.backends.accelerator.lowering.annotations import annotate, with_memories
from offcut.backends.accelerator.lowering.arithmetic import recipe_of
from offcut.backends.accelerator.lowering.issue_tree import box
from offcut.backends.accelerator.lowering.queues import TokensError
from offcut.backends.accelerator.planning.plan_request import NO_REQUEST, PlanRequest
from offcut.backends.accelerator.planning.planner import plan_program
from offcut.backends.accelerator.spec import AcceleratorSpec
from offcut.backends.decide import attempt
from offcut.backends.options import TargetPlan
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
from offcut.describe.computation import Computation, Names
from offcut.schedule import Schedule


def annotated_plan(plan: TargetPlan, spec: AcceleratorSpec) -> TargetPlan:
    """Return a plan in statements of one operation each, with the words of its program about the machine.

    Raises TargetError for what the machine does not run, TokensError where windows in turn could come to a standstill.
    """
    program = split_statements(with_memories(plan.program), spec)
    phases = HostDeviceProgram(program, spec).nests
    nests = [option.nest for phase in phases for option in phase.options]
    return replace(plan, program=annotate(program, nests))


def plan_without_deadlock(
    program: Program,
    computation: Computation,
    spec: AcceleratorSpec,
    schedule: Schedule | None,
    request: PlanRequest = NO_REQUEST,
) -> TargetPlan:
    """Return the program on the chip; `schedule` decides where there is one, else the policy.

    Raises TargetError for what the machine does not do, PartitionError for a schedule that is none of the program, or
    whose windows in turn could come to a standstill.
    """

    def plan(request: PlanRequest) -> TargetPlan:
        return annotated_plan(plan_program(program, computation, spec, schedule, request), spec)

    refused: TokensError | None = None
    for tilings in dict.fromkeys((request.tilings, 1)):
        in_turn = attempt(partial(plan, replace(request, tilings=tilings)), TokensError)
        if isinstance(in_turn, TargetPlan):
            return in_turn
        refused = refused or in_turn
        if schedule is not None:
            raise refused
    return plan(replace(request, turns=False))


# A program that says what lies on the chip, its statements as operations one by one.
#
# ::
#
#     tile …: Y = int8(max(S // 64, 0))   ->   alloc Y_1[tile]
#                                                tile …: Y_1 = S // 64
#                                                alloc Y_2[tile]
#                                                  tile …: Y_2 = max(Y_1, 0)
#                                                  tile …: Y = int8(Y_2)


def split_statements(program: Program, spec: AcceleratorSpec) -> Program:
    """Return `program` with a statement for each operation; itself where it has no others."""
    return _StatementSplitter(program, spec).make_program()


class _StatementSplitter:
    def __init__(self, program: Program, spec: AcceleratorSpec) -> None:
        self.program, self.spec = program, spec
        self.names = Names(used_names(program))
        self.added: list[Buffer] = []
        memory = spec.words[MemorySpace.ACCUMULATORS].memory
        self.held = {b.name for b in program.buffers if b.scope == memory}
        self.scoped = {b.name for b in program.buffers if b.scope is not None}

    def make_program(self) -> Program:
        """Return the program."""
        body = self.block(self.program.body)
        if not self.added:
            return self.program
        return replace(self.program, buffers=(*self.program.buffers, *self.added), body=body)

    def block(self, body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        return tuple(new for stmt in body for new in self.statement(stmt))

    def statement(self, stmt: Stmt) -> tuple[Stmt, ...]:
        found = box(stmt)
        if found is None:
            return (map_blocks(stmt, self.block),)
        axes, store = found
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
