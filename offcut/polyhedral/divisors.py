"""Check that the divisors of a loop program are positive wherever they divide.

``//`` and ``%`` of integers floor, for positive divisors: what they are for others is left open, so that no
code need ask; ``%`` of floats is defined for any divisor. A literal is seen to be positive when it is read; any other divisor is shown to be, by what
is known where it stands, or the program is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from offcut.core import index as ix
from offcut.core.dtypes import FLOATS, numpy_dtype
from offcut.core.expr import (
    Binary,
    Cast,
    Compare,
    Const,
    Expr,
    Logic,
    Select,
    children,
    dtype_of,
)
from offcut.core.expr import walk as nodes
from offcut.core.interpret.values import evaluate
from offcut.core.program import Alloc, Choose, For, Form, If, Let, Program, Size, Stmt, Tile, walk
from offcut.core.text.printer import format_expr, format_head
from offcut.core.traversal import expressions
from offcut.errors import PartitionError
from offcut.polyhedral.affine import Space
from offcut.polyhedral.facts import Facts
from offcut.polyhedral.isl_budget import request_budget

_ZERO = ix.const(0)


def check_divisors(program: Program, op: str) -> None:
    """Reject `program` unless every divisor in it is positive wherever it divides, for all sizes.

    op   what was asked for, in the words of the refusal

    Raises PartitionError with the smallest sizes and coordinates at which one is not, and for ``//``
    of floats, which only the reference interpreter knows; and where isl does not say.
    """
    for stmt in walk(program.body):
        for node in (node for expr in expressions(stmt) for node in nodes(expr)):
            if isinstance(node, Binary) and node.op == "//" and dtype_of(node) in FLOATS:
                raise PartitionError(
                    op,
                    f"cannot take {format_expr(node)}",
                    at=format_head(stmt),
                    because=f"// floors integers, and these are {dtype_of(node)}",
                    help=("/ divides floats",),
                )
    with request_budget(op, f"cannot tell whether the divisors of {program.name} are positive"):
        _check_divisors(program, op)


def unsafe_divisor(
    expr: Expr, sizes: Sequence[Size], assumptions: Sequence[Expr]
) -> tuple[Expr, str] | None:
    """Return the first divisor in an expression over sizes that is not shown to be positive, and why."""
    for divisor, facts in _divisors(expr, Facts(Space(tuple(sizes), tuple(assumptions)))):
        if not _is_positive(divisor, facts):
            return divisor, _because(divisor, facts)
    return None


def _check_divisors(program: Program, op: str) -> None:
    """Check the integer divisors of a program by isl."""
    at = Facts(Space(program.sizes, program.assumptions))
    for stmt, divisor, facts in _block(program.body, at):
        if not _is_positive(divisor, facts):
            raise PartitionError(
                op,
                f"cannot divide by {format_expr(divisor)}",
                at=format_head(stmt),
                because=_because(divisor, facts),
                help=(f"max({format_expr(divisor)}, 1)", "an if, or where(…), around the division"),
            )


def _because(divisor: Expr, at: Facts) -> str:
    """Return why a divisor may not be positive: the smallest such point, if one is known."""
    if isinstance(divisor, Cast) and dtype_of(divisor.a) == "index":
        divisor = divisor.a
    is_index = dtype_of(divisor) == "index"
    point = at.example(Compare("<=", divisor, _ZERO)) if is_index else None
    if point is None:
        return "nothing shows that it is positive wherever it divides"
    witness = ", ".join(f"{name} = {value}" for name, value in point.items())
    return f"{f'with {witness}, ' if witness else ''}it is {evaluate(divisor, point)}"


def _is_positive(divisor: Expr, at: Facts) -> bool:
    """Return whether a divisor is shown to be positive."""
    match divisor:
        case Const(value, _):
            return value > 0
        case Binary("max", a, b):
            return _is_positive(a, at) or _is_positive(b, at)
        case Binary("min", a, b):
            return _is_positive(a, at) and _is_positive(b, at)
        case Cast(a, dtype) if dtype_of(a) == "index" and numpy_dtype(dtype).kind in "iu":
            max_value = 2 ** (8 * numpy_dtype(dtype).itemsize - 1) - 1
            return _is_positive(a, at) and at.holds(Compare("<=", a, ix.const(max_value)))
        case _ if dtype_of(divisor) != "index":
            return False
        case Binary("*", a, b) if _is_positive(a, at) and _is_positive(b, at):
            return True
        case _:
            return at.holds(Compare(">", divisor, _ZERO))


def _block(body: Sequence[Stmt], at: Facts) -> Iterator[tuple[Stmt, Expr, Facts]]:
    """Yield every divisor that is no positive literal, with its statement and the facts there."""
    for stmt in body:
        inner = at
        if isinstance(stmt, Tile):
            for axis in stmt.axes:
                inner = inner.loop(axis.iter, axis.start, ix.add(axis.start, axis.extent))
        for expr in expressions(stmt):
            facts = inner if isinstance(stmt, Tile) and expr is stmt.where else at
            yield from (
                (stmt, divisor, divisor_facts) for divisor, divisor_facts in _divisors(expr, facts)
            )
        match stmt:
            case For(name, lo, hi):
                yield from _block(stmt.body, at.loop(name, lo, hi))
            case Let(name, first, end):
                yield from _block(stmt.body, at.loop(name, ix.const(first), ix.const(end)))
            case Tile():
                if stmt.where is not None and stmt.form is not Form.PAD:
                    inner = inner.where(stmt.where)
                yield from _block(stmt.body, inner)
            case Alloc():
                yield from _block(stmt.body, at)
            case If(condition, then, other):
                yield from _block(then, at.where(condition))
                yield from _block(other, at.where(Logic("not", (condition,))))
            case Choose(options):
                for option in options:
                    yield from _block(option.body, at)
            case _:
                pass


def _divisors(expr: Expr, at: Facts) -> Iterator[tuple[Expr, Facts]]:
    match expr:
        case Select(condition, then, other):
            yield from _divisors(condition, at)
            yield from _divisors(then, at.where(condition))
            yield from _divisors(other, at.where(Logic("not", (condition,))))
            return
        case Binary("//" | "%", _, b) if dtype_of(b) not in FLOATS and not (
            isinstance(b, Const) and b.value > 0
        ):
            yield b, at
        case _:
            pass
    for child in children(expr):
        yield from _divisors(child, at)
