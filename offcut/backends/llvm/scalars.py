"""Integers of a loop program as LLVM IR: indices, conditions, and what is known of their ranges."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from offcut.backends.llvm import ir
from offcut.backends.llvm.ir import FunctionWriter
from offcut.core.conditions import conjunction
from offcut.core.expr import (
    Binary,
    Cast,
    Compare,
    Const,
    Expr,
    Logic,
    Select,
    Unary,
    Var,
    children,
    dtype_of,
    variables,
    walk,
)
from offcut.core.intervals import Interval, interval
from offcut.core.text.printer import format_expr
from offcut.errors import InternalError


class Scalars:
    """Names with their values, written into `f`.

    values    i64 operand of every size, coordinate and bounded value in scope
    bounds    what conditions around say of an expression, inclusive
    of_sizes  what holds of the sizes in every call, inclusive
    """

    def __init__(self) -> None:
        self.f = FunctionWriter()
        self.values: dict[str, str] = {}
        self.bounds: dict[Expr, tuple[int, int]] = {}
        self.of_sizes: dict[Expr, tuple[int, int]] = {}

    @contextmanager
    def bound(self, name: str, value: str) -> Iterator[None]:
        """`name` stands for `value` inside."""
        old = self.values.get(name)
        self.values[name] = value
        yield
        if old is None:
            del self.values[name]
        else:
            self.values[name] = old

    @contextmanager
    def known(self, expr: Expr, lo: int, hi: int) -> Iterator[None]:
        """``lo <= expr <= hi`` holds inside."""
        old = self.bounds.get(expr)
        before = self.range_of(expr)
        self.bounds[expr] = (max(lo, before[0]), min(hi, before[1]))
        yield
        if old is None:
            del self.bounds[expr]
        else:
            self.bounds[expr] = old

    @contextmanager
    def assumed(self, condition: Expr, holds: bool) -> Iterator[None]:
        """What a comparison with a literal says about its other side."""
        match condition:
            case Logic("and", (first, *rest)) if holds:
                with self.assumed(first, True), self.assumed(conjunction(rest), True):
                    yield
            case Compare(op, a, Const(value, "index")):
                limit = int(value)
                if not holds:
                    op = {"<": ">=", "<=": ">", ">": "<=", ">=": "<"}.get(op, "")
                lo, hi = _INTERVAL.get(op, (None, None))
                low = -(2**62) if lo is None else limit + lo
                high = 2**62 if hi is None else limit + hi
                with self.known(a, low, high):
                    yield
            case _:
                yield

    def range_of(self, expr: Expr) -> tuple[int, int]:
        """Bounds of an index expression, from the conditions around and from its form."""

        def within(node: Expr, bounds: Interval) -> Interval:
            lo, hi = self.bounds.get(node, (-_FAR, _FAR))
            return max(lo, bounds[0]), min(hi, bounds[1])

        return interval(expr, lambda _: (-_FAR, _FAR), within)

    def bounded(self, expr: Expr) -> bool:
        """Return whether an upper bound of a tile's extent is known, so that scratch can hold it."""
        return self.range_of(expr)[1] <= 4096

    def scalar(self, expr: Expr) -> str:
        """Return an index expression as an i64."""
        f = self.f
        match expr:
            case Const(value, _):
                return str(int(value))
            case Var(name):
                return self.values[name]
            case Binary() if self.is_fixed(expr):
                if expr not in f.known:
                    with self.ahead():
                        f.known[expr] = self.scalar(expr)
                return f.known[expr]
            case Binary("//" | "%" as op, a, b):
                x, y = self.scalar(a), self.scalar(b)
                natural = self.range_of(a)[0] >= 0
                return (ir.floordiv if op == "//" else ir.mod)(f, x, y, natural)
            case Binary(op, a, b):
                x, y = self.scalar(a), self.scalar(b)
                operation = {
                    "+": ir.add,
                    "-": ir.sub,
                    "*": ir.mul,
                    "min": ir.minimum,
                    "max": ir.maximum,
                }[op]
                return operation(f, x, y)
            case Unary("neg", a):
                return ir.sub(f, "0", self.scalar(a))
            case Unary("abs", a):
                x = self.scalar(a)
                return ir.maximum(f, x, ir.sub(f, "0", x))
            case Select(condition, then, other):
                holds, x, y = self.holds(condition), self.scalar(then), self.scalar(other)
                return f.let(f"select i1 {holds}, i64 {x}, i64 {y}")
            case Cast(a, "index") if dtype_of(a) == "index":
                return self.scalar(a)
            case _:
                raise InternalError(f"{format_expr(expr)} is not an index")

    def magnitude(self, expr: Expr) -> str:
        """Return a bound on an index expression that is not negative, in float64."""
        match expr:
            case Binary("+" | "*" as op, a, b):
                x, y = self.magnitude(a), self.magnitude(b)
                return self.f.let(f"{'fadd' if op == '+' else 'fmul'} double {x}, {y}")
            case Binary("//", a, Const()) | Binary("-", a, _):
                return self.magnitude(a)
            case _:
                return self.f.let(f"sitofp i64 {self.scalar(expr)} to double")

    @contextmanager
    def ahead(self) -> Iterator[None]:
        """Inside, what is written is computed ahead of all else: no condition around holds there."""
        outer_bounds, self.bounds = self.bounds, dict(self.of_sizes)
        with self.f.ahead():
            yield
        self.bounds = outer_bounds

    def can_go_ahead(self, expr: Expr) -> bool:
        """Return whether there is a place ahead of all else, and `expr` is of what is known there."""
        names = {Var(name) for name in variables(expr)}
        return self.f.early is not None and names <= self.of_sizes.keys()

    def is_fixed(self, expr: Expr) -> bool:
        """Return whether an index is computed ahead of all else: of sizes alone, and dividing by literals."""
        if not self.can_go_ahead(expr):
            return False
        nodes = [node for node in walk(expr) if isinstance(node, Binary | Unary)]
        return len(nodes) == sum(1 for node in walk(expr) if children(node)) and all(
            isinstance(node, Unary) or node.op not in ("//", "%") or isinstance(node.b, Const)
            for node in nodes
        )

    def holds(self, expr: Expr) -> str:
        """Return a condition on indices as an i1."""
        match expr:
            case Const(value, "bool"):
                return "true" if value else "false"
            case Compare(op, a, b):
                word = {"<": "slt", "<=": "sle", ">": "sgt", ">=": "sge", "==": "eq", "!=": "ne"}
                x, y = self.scalar(a), self.scalar(b)
                return self.f.let(f"icmp {word[op]} i64 {x}, {y}")
            case Logic("not", (arg,)):
                return self.f.let(f"xor i1 {self.holds(arg)}, true")
            case Logic(op, args):
                total = self.holds(args[0])
                for arg in args[1:]:
                    total = self.f.let(f"{op} i1 {total}, {self.holds(arg)}")
                return total
            case _:
                raise InternalError(f"{format_expr(expr)} is not a condition on indices")


_FAR = 2**62

_INTERVAL: dict[str, tuple[int | None, int | None]] = {
    "<": (None, -1),
    "<=": (None, 0),
    ">": (1, None),
    ">=": (0, None),
    "==": (0, 0),
}
