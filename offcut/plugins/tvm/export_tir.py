"""Export a loop program as the body of the `tvm.tirx` function that it was read from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import tvm
from tvm import tirx
from tvm.script import tirx as T

import offcut.ir as ir
from offcut.core import index as ix
from offcut.core.expr import BITWISE, COMBINED
from offcut.core.text.printer import format_expr
from offcut.errors import DescribeError
from offcut.plugins.hosts import HARDWARE, Call, HostProgram, call_of
from offcut.plugins.tvm.import_tir import ARITHMETIC, CALLS, COMPARISONS, UNITS, Reading

_KINDS = {unit: kind for kind, unit in UNITS.items()}
_CONSTANT = ("lane", "unroll")
_MAX_QUOTIENT_VALUES = 64
"""Values that a quotient may have, at most, which is counted: by comparisons, of which no divisor is 0."""
_SCOPES = {name: name for name in ("global", "shared", "local", "warp")}
_PAIRS = {sign: getattr(tirx, kind) for kind, sign in (ARITHMETIC | COMPARISONS).items()}
_CALLS = {
    row.name: getattr(tirx, "abs" if name == "fabs" else name, None) for name, row in CALLS.items()
}
"""Of the functions that TVM has, the calls; those that this TVM lacks are None."""


def write(reading: Reading, program: ir.Program | HostProgram) -> Any:
    """Return the function of `reading` with the loops of `program`: the same parameters and attributes.

    program   has the sizes and the buffers of ``reading.program``; tiles are loops, a choice is its first option, as
              `ir.plain` says. A loop keeps how TVM runs it; one that is vectorized or unrolled has a constant extent.
              Of what a schedule made windows are allocated where they live, covered tiles are calls of external functions

    Every loop starts at 0: of a nest of loops whose first iterations depend on each other TVM's CanonicalizeLoop (0.27)
    makes another one, which leaves arrays.

    Raises DescribeError for an expression that TVM has not, and for what TVM's later passes would break.
    """
    scheduled_program = program if isinstance(program, HostProgram) else None
    loops = program.program if isinstance(program, HostProgram) else program
    _check_shifted(loops)
    if scheduled_program is None and any(
        isinstance(one, ir.Alloc | ir.Choose | ir.Let) for one in ir.walk(loops)
    ):
        loops = ir.plain(loops)
    return reading.function.with_body(_Writer(reading, loops, scheduled_program).body())


def _check_shifted(program: ir.Program) -> None:
    """Refuse instances that run twice and read an array that TVM allocates.

    TVM's StorageRewrite lets the array that a statement writes take the memory of one that is read there last.
    """
    allocated_buffers = {
        b.name for b in program.buffers if b.kind in (ir.Kind.LOCAL, ir.Kind.PRIVATE)
    }
    for tile in ir.walk(program):
        if not isinstance(tile, ir.Tile) or tile.form is not ir.Form.SHIFT:
            continue
        statements = list(ir.walk(tile))
        written_buffers = {stmt.buffer for stmt in statements if isinstance(stmt, ir.Store)}
        nodes = (n for stmt in statements for e in ir.expressions(stmt) for n in ir.walk(e))
        read = {node.buffer for node in nodes if isinstance(node, ir.Load)}
        for name in sorted(read & allocated_buffers - written_buffers):
            raise DescribeError(
                "tvm",
                f"cannot write a shifted tile that reads {name}",
                because="TVM may keep what it writes in the memory of what it reads, and it runs twice",
                help=('tail="cut"', 'tail="mask"'),
            )


class _Writer:
    """The export of one program; names are variables from the outside in."""

    def __init__(
        self, reading: Reading, program: ir.Program, host_program: HostProgram | None
    ) -> None:
        self.program, self.host_program = program, host_program
        sizes = {name: _int64(size) for name, size in reading.sizes.items()}
        self.buffers = dict(reading.buffers)
        windows = {stmt.buffer for stmt in ir.walk(program) if isinstance(stmt, ir.Alloc)}
        allocated_buffers = [
            b for b in program.buffers if b.kind in (ir.Kind.LOCAL, ir.Kind.PRIVATE)
        ]
        allocated_buffers = [buffer for buffer in allocated_buffers if buffer.name not in windows]
        for buffer in allocated_buffers:
            if buffer.name not in self.buffers:
                self.declare(buffer, sizes)
        self.allocated = [
            tirx.AllocBuffer(self.buffers[buffer.name]) for buffer in allocated_buffers
        ]
        self.sizes = sizes

    def declare(self, buffer: ir.Buffer, names: Mapping[str, Any]) -> None:
        shape = [self.expr(extent, names) for extent in buffer.shape]
        scope = _SCOPES.get(str(buffer.scope), f"global.{buffer.scope}") if buffer.scope else ""
        buffer_of_tir = tirx.decl_buffer(shape, buffer.dtype, buffer.name, scope=scope)
        self.buffers[buffer.name] = buffer_of_tir

    def body(self) -> Any:
        return _sequence([*self.allocated, *self.statements(self.program.body, self.sizes)])

    def statements(self, body: Sequence[ir.Stmt], names: Mapping[str, Any]) -> list[Any]:
        statements: list[Any] = []
        for stmt in body:
            match stmt:
                case ir.Alloc(buffer, _, inner, memory):
                    self.declare(replace(self.program.buffer(buffer), scope=memory), names)
                    statements += [
                        tirx.AllocBuffer(self.buffers[buffer]),
                        *self.statements(inner, names),
                    ]
                case ir.Let(name, lo, hi, ir.Binary("//", a, b), inner) if (
                    not isinstance(b, ir.Const) and hi - lo <= _MAX_QUOTIENT_VALUES
                ):  # TVM computes a quotient before the loop in which its divisor is positive
                    whole, by = self.expr(a, names), self.expr(b, names)
                    iteration = tirx.const(lo, "int64")
                    for step in range(lo + 1, hi):
                        iteration = iteration + tirx.Cast("int64", whole >= by * step)
                    statements += self.statements(inner, {**names, name: iteration})
                case ir.Let(name, _, _, value, inner):
                    statements += self.statements(inner, {**names, name: self.expr(value, names)})
                case _:
                    statements.append(self.stmt(stmt, names))
        return statements

    def block(self, body: Sequence[ir.Stmt], names: Mapping[str, Any]) -> Any:
        return _sequence(self.statements(body, names))

    def stmt(self, stmt: ir.Stmt, names: Mapping[str, Any]) -> Any:
        match stmt:
            case ir.For(name, lo, hi, body, _, unit):
                return self.loop(name, lo, ix.sub(hi, lo), body, unit, names)
            case ir.Tile(cover=ir.Cover(name)) if self.host_program is not None:
                return self.call(stmt, call_of(stmt, self.host_program.kernel(name)), names)
            case ir.Tile((), body, where):
                return self.block(body if where is None else (ir.If(where, body),), names)
            case ir.Tile((first, *rest), body, where):
                inner = (ir.Tile(tuple(rest), body, where),)
                return self.loop(first.iter, first.start, first.extent, inner, None, names)
            case ir.If(condition, then, other):
                otherwise = self.block(other, names) if other else None
                test = self.expr(condition, names)
                return tirx.IfThenElse(test, self.block(then, names), otherwise)
            case ir.Store(buffer, index, value, reduce):
                if reduce is not None:
                    dtype = self.program.buffer(buffer).dtype
                    value = ir.Binary(COMBINED[reduce], ir.Load(buffer, index, dtype), value)
                at = [self.expr(part, names) for part in index]
                return tirx.BufferStore(self.buffers[buffer], self.expr(value, names), at)
            case ir.Sync():
                return tirx.Evaluate(T.tvm_storage_sync("shared"))
            case _:
                raise _no_counterpart(type(stmt).__name__)

    def call(self, tile: ir.Tile, call: Call, names: Mapping[str, Any]) -> Any:
        """Return a call of an external function: of each operand its first element and its strides, then all extents."""
        arguments: list[Any] = []
        for view in call.views:
            buffer = self.buffers[view.buffer]
            first = [self.expr(part, names) for part in view.first]
            arguments.append(tirx.address_of(tirx.BufferLoad(buffer, first)))
            steps = list(buffer.ty.strides)
            if not steps:
                steps = [tirx.const(1, "int64")]
                for extent in reversed(list(buffer.ty.shape)[1:]):
                    steps.insert(0, steps[0] * _int64(extent))
            for factors in view.strides:
                parts = [_int64(s) * f for s, f in zip(steps, factors, strict=True) if f]
                arguments.append(sum(parts[1:], parts[0]) if parts else tirx.const(0, "int64"))
        arguments += [self.expr(extent, names) for extent in call.extents]
        return tirx.Evaluate(tirx.call_extern("int32", call.name, *arguments))

    def loop(
        self,
        name: str,
        lo: ir.Expr,
        extent: ir.Expr,
        body: tuple[ir.Stmt, ...],
        unit: str | None,
        names: Mapping[str, Any],
    ) -> Any:
        if unit in _CONSTANT and not isinstance(extent, ir.Const):
            unit = None
        variable = tirx.Var(name, "int64")
        first = self.expr(lo, names)
        zero = lo == ix.const(0)
        inner_statement = self.block(body, {**names, name: variable if zero else variable + first})
        steps = self.expr(extent, names)
        if unit in HARDWARE:
            domain = tvm.ir.Range(tirx.const(0, "int64"), steps)
            index = tirx.IterVar(domain, tirx.Var(str(unit), "int64"), 1, str(unit))
            return tirx.For(
                variable,
                tirx.const(0, "int64"),
                steps,
                tirx.ForKind.THREAD_BINDING,
                inner_statement,
                index,
            )
        return tirx.For(variable, tirx.const(0, "int64"), steps, _KINDS[unit], inner_statement)

    def expr(self, expr: ir.Expr, names: Mapping[str, Any]) -> Any:
        """Return an expression of TVM; coordinates and sizes have 64 bits, which TVM narrows if it can."""

        def of(part: ir.Expr) -> Any:
            return self.expr(part, names)

        match expr:
            case ir.Const(value, dtype):
                return tirx.const(value, _name(dtype))
            case ir.Var(name):
                return names[name]
            case ir.Load(buffer, index):
                return tirx.BufferLoad(self.buffers[buffer], [of(part) for part in index])
            case ir.Binary("//" | "%", _, b) if not _is_positive(b):
                raise DescribeError(
                    "tvm",
                    f"cannot write a quotient by {format_expr(b)}",
                    because="TVM computes it before the loop in which its divisor is positive",
                    help=("a tail strategy of constant tiles",),
                )
            case ir.Binary(op) if op in BITWISE:
                raise DescribeError(
                    "tvm",
                    f"cannot write {format_expr(expr)}",
                    because="operations on bits are not written for TVM",
                )
            case ir.Binary(op, a, b) if call := _CALLS.get(op):
                return call(of(a), of(b))
            case ir.Binary(op, a, b) | ir.Compare(op, a, b) if op in _PAIRS:
                return _PAIRS[op](of(a), of(b))
            case ir.Unary("neg", a):
                return tirx.Mul(of(a), tirx.const(-1, ir.dtype_of(a)))
            case ir.Unary(op, a) if call := _CALLS.get(op):
                return call(of(a))
            case ir.Cast(a, "bool"):
                return tirx.NE(of(a), of(ir.Const(0, ir.dtype_of(a))))
            case ir.Cast(a, dtype):
                return tirx.Cast(_name(dtype), of(a))
            case ir.Select(condition, then, other):
                return tirx.if_then_else(of(condition), of(then), of(other))
            case ir.Logic("not", (a,)):
                return tirx.Not(of(a))
            case ir.Logic(op, (first, *rest)):
                result = of(first)
                for part in rest:
                    result = (tirx.And if op == "and" else tirx.Or)(result, of(part))
                return result
            case ir.Unary(op) | ir.Binary(op):
                raise _no_counterpart(op)
            case _:
                raise _no_counterpart(type(expr).__name__)


def _is_positive(divisor: ir.Expr) -> bool:
    match divisor:
        case ir.Binary("max", _, ir.Const(least)) | ir.Binary("max", ir.Const(least), _):
            return least > 0
    return isinstance(divisor, ir.Const)


def _sequence(stmts: Sequence[Any]) -> Any:
    if not stmts:
        return tirx.Evaluate(0)
    return stmts[0] if len(stmts) == 1 else tirx.SeqStmt(list(stmts))


def _name(dtype: str) -> str:
    return "int64" if dtype == "index" else dtype


def _int64(size: Any) -> Any:
    return size if str(size.ty.dtype) == "int64" else tirx.Cast("int64", size)


def _no_counterpart(construct: str) -> DescribeError:
    return DescribeError(
        "tvm", f"cannot write a {construct}", because="TVM has nothing that says it"
    )
