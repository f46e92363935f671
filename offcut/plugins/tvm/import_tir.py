"""Import a function of `tvm.tirx` as a loop program: loops, conditions and stores, one for one."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import tvm
from tvm import tirx

import offcut.ir as ir
from offcut.core import index as ix
from offcut.core.conditions import conjunction, conjuncts
from offcut.core.dtypes import DTYPES, FLOATS
from offcut.core.function_table import FUNCTIONS
from offcut.core.text.printer import format_expr
from offcut.core.traversal import map_blocks, substitute_coordinates
from offcut.describe.computation import RESERVED
from offcut.errors import DescribeError, OffcutError
from offcut.pipeline import prove_equal

MAX_EXTENT = 2**40
"""Elements along an axis, at most: more do not fit into the memory of a machine."""

HINT = "pragma_loop_partition_hint"
"""What asks TVM's LoopPartition for what is done here without being asked."""

UNITS = {
    tirx.ForKind.SERIAL: None,
    tirx.ForKind.PARALLEL: "thread",
    tirx.ForKind.VECTORIZED: "lane",
    tirx.ForKind.UNROLLED: "unroll",
}
ARITHMETIC = {
    "Add": "+",
    "Sub": "-",
    "Mul": "*",
    "Div": "/",
    "FloorDiv": "//",
    "FloorMod": "%",
    "Min": "min",
    "Max": "max",
}
COMPARISONS = {"LT": "<", "LE": "<=", "GT": ">", "GE": ">=", "EQ": "==", "NE": "!="}
CALLS = {row.tirx: row for row in FUNCTIONS.values() if row.tirx}


@dataclass(frozen=True)
class Reading:
    """A function of TVM and its loop program.

    sizes    the variables of the function by the names that the program has for them
    buffers  its buffers likewise: parameters, and what it allocates
    hints    what TVM calls the loops that the program has other names for
    """

    function: Any
    program: ir.Program
    sizes: Mapping[str, Any]
    buffers: Mapping[str, Any]
    hints: Mapping[str, str]


def read(function: Any) -> Reading:
    """Return the loop program of a `PrimFunc` without blocks, such as `lowering_passes` produces.

    A parameter that is written to is ``inout``: what is not written stays. A size is a variable that is the extent of
    an axis of a parameter, of 0 up to 2^40 elements. ``C[i] = C[i] + x`` is an update, ``C[i] += x``.

    Raises DescribeError for what is not loops, conditions and stores on arrays.
    """
    if not isinstance(function, tirx.PrimFunc):
        raise DescribeError("tvm", f"cannot read {function!r}", because="it is not a PrimFunc")
    return _Reader(function).reading()


@dataclass
class _Reader:
    """The import of one function; variables are compared by identity and get unique names."""

    function: Any
    names: dict[Any, str] = field(default_factory=dict)
    used_names: set[str] = field(default_factory=lambda: set(RESERVED))
    values: dict[Any, ir.Expr] = field(default_factory=dict)
    sizes: dict[str, Any] = field(default_factory=dict)
    buffers: dict[str, Any] = field(default_factory=dict)
    kinds: dict[str, ir.Kind] = field(default_factory=dict)
    shapes: dict[str, tuple[ir.Expr, ...]] = field(default_factory=dict)
    hints: dict[str, str] = field(default_factory=dict)
    outside_threads: bool = True

    def reading(self) -> Reading:
        name = _to_identifier(str((self.function.attrs or {}).get("global_symbol", "main")))
        for parameter in self.function.params:
            if not isinstance(parameter.ty, tirx.buffer.BufferType):
                raise import_error(f"the parameter {parameter.name}", "it is not an array")
            for extent in parameter.ty.shape:
                if isinstance(extent, tvm.ir.Var) and extent not in self.values:
                    self.sizes[self.new_name(extent)] = extent
                    self.values[extent] = ir.Var(self.names[extent])
        for parameter in self.function.params:
            self.declare(parameter, ir.Kind.INPUT)
        body = tuple(self.block(self.function.body))
        written_buffers = {stmt.buffer for stmt in ir.walk(body) if isinstance(stmt, ir.Store)}
        program = ir.Program(
            name,
            tuple(ir.Size(size, 0, MAX_EXTENT) for size in self.sizes),
            (),
            tuple(
                ir.Buffer(
                    buffer,
                    str(variable.dtype),
                    self.shapes[buffer],
                    self.kind(buffer, written_buffers),
                )
                for buffer, variable in self.buffers.items()
            ),
            body,
        )
        return Reading(self.function, program, self.sizes, self.buffers, self.hints)

    def kind(self, buffer: str, written_buffers: set[str]) -> ir.Kind:
        if self.kinds[buffer] is ir.Kind.INPUT and buffer in written_buffers:
            return ir.Kind.INOUT
        return self.kinds[buffer]

    def new_name(self, variable: Any) -> str:
        """Return a new name for a variable."""
        base = _to_identifier(variable.name)
        name, number = base, 1
        while name in self.used_names:
            number += 1
            name = f"{base}_{number}"
        self.used_names.add(name)
        self.names[variable] = name
        return name

    def declare(self, buffer: Any, kind: ir.Kind) -> None:
        dtype = str(buffer.ty.dtype)
        if dtype not in DTYPES:
            raise import_error(f"the array {buffer.name}", f"offcut has no element type {dtype}")
        name = self.new_name(buffer)
        self.buffers[name], self.kinds[name] = buffer, kind
        self.shapes[name] = tuple(self.index(extent) for extent in buffer.ty.shape)

    def block(self, stmt: Any) -> Iterator[ir.Stmt]:
        match stmt:
            case tirx.SeqStmt():
                for one in stmt.seq:
                    yield from self.block(one)
            case tirx.For():
                yield self.loop(stmt)
            case tirx.IfThenElse():
                other = () if stmt.else_case is None else tuple(self.block(stmt.else_case))
                condition = self.expr(stmt.condition)
                yield ir.If(condition, tuple(self.block(stmt.then_case)), other)
            case tirx.BufferStore():
                yield self.store(stmt)
            case tirx.AllocBuffer():
                if not self.outside_threads:
                    raise import_error(
                        f"the array {stmt.buffer.name}", "each thread has one of its own"
                    )
                self.declare(stmt.buffer, ir.Kind.LOCAL)
            case tirx.stmt.Bind():
                value = self.expr(stmt.value)
                if any(isinstance(node, ir.Load) for node in ir.walk(value)):
                    raise import_error(
                        f"the name {stmt.var.name}", "it is bound to what memory holds"
                    )
                self.values[stmt.var] = value
            case tirx.AttrStmt() if str(stmt.attr_key) == HINT:
                yield from self.block(stmt.body)
            case tirx.Evaluate() if isinstance(stmt.value, tirx.IntImm):
                return
            case _:
                raise import_error(
                    _text(stmt), f"{type(stmt).__name__} is not a loop, condition or store"
                )

    def loop(self, stmt: Any) -> ir.For:
        kind = tirx.ForKind(stmt.kind)
        if kind not in UNITS or stmt.thread_binding is not None:
            raise import_error(f"the loop {stmt.loop_var.name}", "an index of the hardware runs it")
        if stmt.step is not None and not _is_literal(stmt.step, 1):
            raise import_error(f"the loop {stmt.loop_var.name}", f"its step is {stmt.step}, not 1")
        lo = self.index(stmt.min)
        hi = ix.add(lo, self.index(stmt.extent))
        self.values[stmt.loop_var] = ir.Var(name := self.new_name(stmt.loop_var))
        self.hints[name] = _to_identifier(stmt.loop_var.name)
        before = self.outside_threads
        self.outside_threads = before and kind is not tirx.ForKind.PARALLEL
        body = tuple(self.block(stmt.body))
        self.outside_threads = before
        return ir.For(name, lo, hi, body, unit=UNITS[kind])

    def store(self, stmt: Any) -> ir.Store:
        buffer = self.buffer_name(stmt.buffer)
        index = tuple(self.index(part) for part in stmt.indices)
        dtype = str(stmt.buffer.ty.dtype)
        value = self.element(stmt.value, dtype)
        match value:
            case ir.Binary("+" | "max" | "min" as op, ir.Load(name, at, _), term) if (name, at) == (
                buffer,
                index,
            ) and not _reads(term, buffer):
                return ir.Store(buffer, index, term, "sum" if op == "+" else op)
            case _:
                return ir.Store(buffer, index, value)

    def buffer_name(self, buffer: Any) -> str:
        if buffer not in self.names or self.names[buffer] not in self.buffers:
            raise import_error(f"the array {buffer.name}", "it is declared as a view of something")
        return self.names[buffer]

    def index(self, value: Any) -> ir.Expr:
        return ix.fold_indices(self.element(value, "index"))

    def element(self, value: Any, dtype: str) -> ir.Expr:
        """Return a value converted to `dtype`; integers in coordinates and sizes are cast explicitly."""
        expr = self.expr(value)
        if (have := ir.dtype_of(expr)) == dtype:
            return expr
        if isinstance(expr, ir.Const) and have == "index":
            return ir.Const(expr.value, dtype)
        return ir.Cast(expr, dtype)

    def expr(self, value: Any) -> ir.Expr:
        kind = type(value).__name__
        dtype = str(value.ty.dtype) if hasattr(value.ty, "dtype") else ""
        match kind:
            case "IntImm" if dtype == "bool":
                return ir.Compare("==", ix.const(0), ix.const(0 if value.value else 1))
            case "IntImm":
                return ix.const(int(value.value))
            case "FloatImm" if dtype in FLOATS:
                return ir.Const(float(value.value), dtype)
            case "Var" if value in self.values:
                return self.values[value]
            case "Var":
                raise import_error(
                    f"the name {value.name}", "it is neither an extent of a parameter nor a loop's"
                )
            case "TensorLoad":
                index = tuple(self.index(part) for part in value.indices)
                return ir.Load(self.buffer_name(value.source), index, dtype)
            case "Cast":
                return self.cast(self.expr(value.value), dtype)
            case "Div" if dtype not in FLOATS:
                raise import_error(_text(value), "a quotient that truncates is not one that floors")
            case _ if kind in ARITHMETIC:
                return self.pair(value, lambda a, b: ir.Binary(ARITHMETIC[kind], a, b))
            case _ if kind in COMPARISONS:
                return self.pair(value, lambda a, b: ir.Compare(COMPARISONS[kind], a, b))
            case "And" | "Or":
                return ir.Logic(kind.lower(), (self.expr(value.a), self.expr(value.b)))
            case "Not":
                return ir.Logic("not", (self.expr(value.a),))
            case "Select":
                return self.select(value.condition, value.true_value, value.false_value)
            case "Call":
                return self.call(value, dtype)
            case _:
                raise import_error(_text(value), f"offcut has no {kind} of {dtype or 'no type'}")

    def cast(self, value: ir.Expr, dtype: str) -> ir.Expr:
        have = ir.dtype_of(value)
        if have == "index" and dtype in ("int32", "int64"):
            return value
        if dtype not in DTYPES:
            raise import_error(format_expr(value), f"offcut has no element type {dtype}")
        return value if have == dtype else ir.Cast(value, dtype)

    def pair(self, value: Any, make: Callable[[ir.Expr, ir.Expr], ir.Expr]) -> ir.Expr:
        a, b = self.expr(value.a), self.expr(value.b)
        have = {ir.dtype_of(a), ir.dtype_of(b)} - {"index"}
        if not have:
            return ix.fold_indices(make(a, b))
        (dtype,) = have
        return make(self.element(value.a, dtype), self.element(value.b, dtype))

    def select(self, condition: Any, then: Any, other: Any) -> ir.Expr:
        test, a, b = self.expr(condition), self.expr(then), self.expr(other)
        dtype = next(iter({ir.dtype_of(a), ir.dtype_of(b)} - {"index"}), "index")
        return ir.Select(test, self.element(then, dtype), self.element(other, dtype))

    def call(self, value: Any, dtype: str) -> ir.Expr:
        op = str(getattr(value.op, "name", value.op)).removeprefix("tirx.").removeprefix("prim.")
        arguments: Sequence[Any] = value.args
        if op in CALLS and dtype in FLOATS:
            node = ir.Unary if CALLS[op].arity == 1 else ir.Binary
            return node(CALLS[op].name, *(self.element(one, dtype) for one in arguments))
        if op in ("rsqrt", "sigmoid") and dtype in FLOATS:  # as TVM itself lowers them
            one, x = ir.Const(1.0, dtype), self.element(arguments[0], dtype)
            minus = ir.Binary("*", x, ir.Const(-1.0, dtype))
            under = (
                ir.Unary("sqrt", x)
                if op == "rsqrt"
                else ir.Binary("+", one, ir.Unary("exp", minus))
            )
            return ir.Binary("/", one, under)
        if op == "if_then_else":
            return self.select(*arguments)
        if op == "likely":
            return self.expr(arguments[0])
        raise import_error(_text(value), f"offcut has no function {op} of {dtype or 'no type'}")


def scheduled_program(reading: Reading) -> ir.Program:
    """Return the program of a reading as a schedule has it: loops are called as TVM calls them, and a sum starts before its loop.

    TVM starts it in the first iteration: ``if k == 0``. That it is the same is proved; what cannot be is left as it is.
    """
    names = {*reading.sizes, *reading.buffers}

    def with_tvm_names(
        body: tuple[ir.Stmt, ...], outer_names: frozenset[str]
    ) -> tuple[ir.Stmt, ...]:
        return tuple(
            loop(one, outer_names)
            if isinstance(one, ir.For)
            else map_blocks(one, lambda block: with_tvm_names(block, outer_names))
            for one in body
        )

    def loop(stmt: ir.For, outer_names: frozenset[str]) -> ir.For:
        name = reading.hints.get(stmt.iter, stmt.iter)
        if name in outer_names or name in names:
            name = stmt.iter
        body = substitute_coordinates(stmt.body, {stmt.iter: ir.Var(name)})
        return replace(stmt, iter=name, body=with_tvm_names(body, outer_names | {name}))

    program = reading.program
    program = replace(program, body=with_tvm_names(program.body, frozenset()))

    def rule(stmt: ir.Stmt) -> ir.Stmt | tuple[ir.Stmt, ...] | None:
        match stmt:
            case ir.For(name, lo, hi, (ir.If(condition, then, ()), *rest)) if rest:
                first = ir.Compare("==", ir.Var(name), lo)
                parts = conjuncts(condition)
                extent = ix.literal_value(ix.sub(hi, lo))
                others = [part for part in parts if part != first]
                if first not in parts or not extent or any(name in ir.free(p) for p in others):
                    return None
                first_iteration = substitute_coordinates(then, {name: lo})
                start = (
                    (ir.If(conjunction(others), first_iteration),) if others else first_iteration
                )
                return (*start, replace(stmt, body=tuple(rest)))
        return None

    split_program = ir.rewrite(program, rule)
    try:
        if split_program != program:
            prove_equal(
                split_program, program
            )  # equality has no direction, and plain loops come first
    except OffcutError:
        return program
    return split_program


def import_error(subject: str, because: str) -> DescribeError:
    """Return the error for a construct that cannot be imported; TVM's code stays."""
    return DescribeError("tvm", f"cannot read {subject}", because=because)


def _to_identifier(name: str) -> str:
    identifier = re.sub(r"\W", "_", name)
    return identifier if identifier[:1].isalpha() else f"v{identifier}"


def _is_literal(value: Any, number: int) -> bool:
    return isinstance(value, tirx.IntImm) and int(value.value) == number


def _reads(value: ir.Expr, buffer: str) -> bool:
    return any(isinstance(node, ir.Load) and node.buffer == buffer for node in ir.walk(value))


def _text(node: Any) -> str:
    return " ".join(str(node).split())[:80]
