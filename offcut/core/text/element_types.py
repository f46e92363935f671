"""Element types of what is read: nodes with literals of no type go in, nodes of one type come out.

Literals do not show their element type. One takes the type of what it meets: the other operand,
the other branch, the buffer it is stored in, an index position. ``float32(0.1)`` is a literal that
does. One that meets nothing typed (both sides of a comparison are literals, or they are the whole
operand of a cast) is an index, or float64 where a literal with a point is among them.
"""

from __future__ import annotations

from dataclasses import dataclass

from offcut.core.dtypes import FLOATS, INTEGERS, describe_range, in_range
from offcut.core.expr import (
    BITWISE,
    Binary,
    Const,
    Expr,
    Select,
    Unary,
    children,
    rebuild,
)
from offcut.core.function_table import OF_FLOATS
from offcut.core.text.tokens import Tokens
from offcut.errors import ParseError

OPEN = "untyped"


@dataclass(frozen=True, slots=True)
class TypedNode:
    """A node with its element type (`OPEN` for literals only), where it starts, and its height."""

    expr: Expr
    dtype: str
    column: int
    height: int = 1


class TypeInference(Tokens):
    """What is read of a line, with its literals on the type that is wanted."""

    def expression_of_type(self, value: TypedNode, dtype: str, what: str, *help: str) -> Expr:
        """`value` as an expression of type `dtype`; its literals take it.

        help  what would be read where they do not
        """
        if value.dtype == OPEN and dtype != "bool":
            return self.of_type(value, dtype, *help)
        if value.dtype != dtype:
            raise self.mixed_types_error(value, dtype, what)
        return value.expr

    def mixed_types_error(self, value: TypedNode, dtype: str, what: str) -> ParseError:
        """The error that `value`, which is `what`, is not of type `dtype`."""
        own = "a number" if value.dtype == OPEN else value.dtype
        cast = value.dtype not in (OPEN, "bool") and dtype != "bool"
        wanted = {
            "index": "an integer expression in coordinates and sizes is wanted here",
            "bool": "a comparison, or several joined by and, or, not, is wanted here",
        }
        return self.refuse(
            f"cannot take {own} as {what}",
            wanted.get(dtype, f"{what} is {dtype}"),
            *((f"{dtype}(…) converts it",) if cast else ()),
            column=value.column,
        )

    def of_type(self, value: TypedNode, dtype: str, *help: str) -> Expr:
        """`value`, of which nothing is typed yet, with every literal of type `dtype`."""

        def rule(expr: Expr) -> Expr:
            if isinstance(expr, Const) and expr.dtype == OPEN:
                self.check_literal(expr.value, dtype, value.column, *help)
                return Const(expr.value, dtype)
            if isinstance(expr, Select):
                return Select(expr.condition, rule(expr.then), rule(expr.other))
            if isinstance(expr, Binary) and expr.op == "/":
                self.check_division(dtype, value.column)
            if isinstance(expr, Unary | Binary):
                self.check_function(expr.op, dtype, value.column)
            return rebuild(expr, tuple(map(rule, children(expr))))

        return rule(value.expr)

    def default_type(self, value: TypedNode) -> tuple[Expr, str]:
        """`value` and its type, where nothing around it says which."""
        if value.dtype != OPEN:
            return value.expr, value.dtype
        dtype = "float64" if has_point(value.expr) else "index"
        return self.of_type(value, dtype), dtype

    def check_literal(self, value: int | float, dtype: str, column: int, *help: str) -> None:
        """Refuse a literal that `dtype` does not hold."""
        because = literal_error(value, dtype)
        if because:
            raise self.refuse("cannot read this literal", because, *help, column=column)

    def check_division(self, dtype: str, column: int) -> None:
        """Refuse ``/`` of integers and of conditions."""
        if dtype not in (*FLOATS, OPEN):
            raise self.refuse(
                f"cannot divide {dtype} by `/`",
                "`/` is for floating-point values",
                "`//` is the floor of the quotient",
                column=column,
            )

    def check_function(self, op: str, dtype: str, column: int) -> None:
        """Refuse a function of floats for other types, and one of bits for what is no integer in memory."""
        if op in OF_FLOATS and dtype not in (*FLOATS, OPEN):
            raise self.refuse(
                f"cannot take {op} of {dtype}",
                "it is defined for floating-point values",
                f"{op}(float32(…))",
                column=column,
            )
        if op in BITWISE and dtype not in (*INTEGERS, OPEN):
            raise self.refuse(
                f"cannot take {op} of {dtype}",
                "it is defined for the bits of integers that are elements",
                f"{op}(int64(…), …)",
                column=column,
            )

    def unify(self, values: tuple[TypedNode, ...], what: str) -> tuple[tuple[Expr, ...], str]:
        """`values` on one element type, that of the first that has one."""
        first = next((value for value in values if value.dtype != OPEN), None)
        if first is None:
            return tuple(value.expr for value in values), OPEN
        dtype = first.dtype
        help: tuple[str, ...] = ()
        if dtype not in FLOATS and any(v.dtype == OPEN and has_point(v.expr) for v in values):
            from offcut.core.text.printer import format_expr  # which loads this module

            help = (f"float64({format_expr(first.expr)})",)
        return tuple(self.expression_of_type(value, dtype, what, *help) for value in values), dtype


def literal_error(value: int | float, dtype: str) -> str:
    """Why `value` is no literal of type `dtype`; empty where it is one."""
    if dtype not in FLOATS and not isinstance(value, int):
        return f"{value} is not an integer, and {dtype} is wanted here"
    return "" if in_range(value, dtype) else describe_range(dtype)


def has_point(expr: Expr) -> bool:
    """Whether a literal of no type yet is written as a float."""
    if isinstance(expr, Const):
        return expr.dtype == OPEN and isinstance(expr.value, float)
    if isinstance(expr, Select):
        return has_point(expr.then) or has_point(expr.other)
    return any(map(has_point, children(expr)))
