"""An expression as C++: indices are ints, floor division is written where a quotient may be negative."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from offcut.backends.gpu.text.primitives import PRIMITIVE_NAMES
from offcut.core import index as ix
from offcut.core.dtypes import FLOATS
from offcut.core.expr import (
    Binary,
    Cast,
    Compare,
    Const,
    Expr,
    Load,
    Logic,
    Select,
    Unary,
    Var,
    dtype_of,
)
from offcut.core.function_table import FUNCTIONS
from offcut.core.text.printer import format_expr
from offcut.errors import DescribeError

TYPES: Mapping[str, str] = {
    "float32": "float",
    "float64": "double",
    "bfloat16": "bf16",
    "float16": "f16",
    "int8": "signed char",
    "uint8": "unsigned char",
    "int16": "short",
    "uint16": "unsigned short",
    "int32": "int",
    "uint32": "unsigned",
    "int64": "long long",
    "uint64": "unsigned long long",
    "bool": "bool",
    "index": "int",
}
"""The types of elements, and of indices."""
NARROW = ("bfloat16", "float16")
WARP = Var("the warp")
"""The number of the warp, which iterators of loops over warps stand for; no program can name it so."""
_OPERATORS = {"bitand": "&", "bitor": "|", "bitxor": "^", "shl": "<<", "shr": ">>"}
_OR, _AND, _COMPARE, _SUM, _PRODUCT, _UNARY = range(6)


TAKEN = frozenset(
    [
        "warp",
        "lane",
        "shared",
        "row_tile",
        "column_tile",
        "element",
        "barrier",
        "bf16",
        "f16",
        "main",
        "asm",
        "auto",
        "break",
        "case",
        "char",
        "class",
        "const",
        "continue",
        "default",
        "delete",
        "do",
        "double",
        "else",
        "enum",
        "extern",
        "float",
        "for",
        "goto",
        "if",
        "inline",
        "int",
        "long",
        "new",
        "operator",
        "private",
        "public",
        "register",
        "return",
        "short",
        "signed",
        "sizeof",
        "static",
        "struct",
        "switch",
        "template",
        "this",
        "typedef",
        "typename",
        "union",
        "unsigned",
        "virtual",
        "void",
        "volatile",
        "while",
        "bool",
        "true",
        "false",
        "min",
        "max",
        "blockIdx",
        "threadIdx",
        "gridDim",
        "blockDim",
    ]
)
"""Names of C++ and CUDA, which names of a program may not equal in the text."""


def name_of(name: str) -> str:
    """Return a name of a program as the text has it."""
    return f"{name}_" if name in TAKEN | PRIMITIVE_NAMES else name


def no_text(at: str, because: str) -> DescribeError:
    """Return the error for a construct that has no text in CUDA C++."""
    return DescribeError(
        "source", 'cannot show "cuda"', at=at, because=because, help=('source("loops")',)
    )


@dataclass(frozen=True)
class Writer:
    """Writes expressions.

    element  from a load to the text of its value
    """

    element: Callable[[Load], str]

    def text(self, expr: Expr, level: int = 0) -> str:
        """Return an expression, in brackets if it binds less tightly than `level`, that of the operation around it."""
        own_level, text = self._level_and_text(expr)
        return f"({text})" if own_level < level else text

    def _level_and_text(self, expr: Expr) -> tuple[int, str]:
        match expr:
            case Const(value, dtype):
                return _UNARY, _literal(value, dtype)
            case Var(name):
                return _UNARY, "warp" if name == WARP.name else name_of(name)
            case Load():
                return _UNARY, self.element(expr)
            case Cast(a, dtype):
                return _UNARY, self.cast(a, dtype)
            case Unary("neg", a):
                return _UNARY, f"-{self.text(a, _UNARY)}"
            case Unary(op, a) if op in FUNCTIONS and dtype_of(a) in ("float32", "float64"):
                suffix = "f" if dtype_of(a) == "float32" else ""
                return _UNARY, f"{FUNCTIONS[op].libm}{suffix}({self.text(a)})"
            case Binary(op, a, b):
                return self.binary(op, a, b)
            case Compare(op, a, b):
                return _COMPARE, f"{self.text(a, _SUM)} {op} {self.text(b, _SUM)}"
            case Logic("not", (arg,)):
                return _UNARY, f"!{self.text(arg, _UNARY)}"
            case Logic(op, args):
                level, word = (_AND, " && ") if op == "and" else (_OR, " || ")
                return level, word.join(self.text(arg, level + 1) for arg in args)
            case Select(condition, then, other):
                parts = (self.text(condition, _COMPARE), self.text(then), self.text(other))
                return -1, "{} ? {} : {}".format(*parts)
        raise no_text(format_expr(expr), "this expression has no text in CUDA C++ so far")

    def cast(self, a: Expr, dtype: str) -> str:
        """Return a value as another type."""
        source = dtype_of(a)
        if source == dtype:
            return self.text(a, _UNARY)
        if source in NARROW and dtype == "float32":
            return f"to_float({self.text(a)})"
        if dtype in NARROW and source == "float32":
            return f"to_{TYPES[dtype]}({self.text(a)})"
        if source in NARROW or dtype in NARROW or (source in FLOATS and dtype not in FLOATS):
            what = f"{source} to {dtype}"
            raise no_text(what, "this conversion has no text in CUDA C++ so far")
        return f"({TYPES[dtype]}){self.text(a, _UNARY)}"

    def binary(self, op: str, a: Expr, b: Expr) -> tuple[int, str]:
        """Return an operation, with how tightly it binds."""
        dtype = dtype_of(a)
        if dtype in NARROW:
            raise no_text(op, f"{dtype} is computed with as float32 alone")
        if op in ("+", "-"):
            return _SUM, f"{self.text(a, _SUM)} {op} {self.text(b, _SUM + (op == '-'))}"
        if op in ("*", "/"):
            return _PRODUCT, f"{self.text(a, _PRODUCT)} {op} {self.text(b, _UNARY)}"
        if op in ("//", "%") and dtype not in FLOATS:
            if is_nonnegative(a):
                sign = "/" if op == "//" else "%"
                return _PRODUCT, f"{self.text(a, _PRODUCT)} {sign} {self.text(b, _UNARY)}"
            name = "floor_div" if op == "//" else "floor_mod"
            return _UNARY, f"{name}({self.text(a)}, {self.text(b)})"
        if op in ("min", "max"):
            floats = {"min": "lesser", "max": "greater"}
            name = floats[op] if dtype in FLOATS else op
            return _UNARY, f"{name}({self.text(a)}, {self.text(b)})"
        if op in _OPERATORS:
            return -1, f"{self.text(a, _UNARY)} {_OPERATORS[op]} {self.text(b, _UNARY)}"
        raise no_text(op, "this operation has no text in CUDA C++ so far")


def is_nonnegative(expr: Expr) -> bool:
    """Return whether an index is 0 or more as it stands: sizes and iterators are."""
    form = ix.to_linear(expr)
    return form.const >= 0 and all(factor > 0 and _is_atom(atom) for atom, factor in form.terms)


def _is_atom(atom: Expr) -> bool:
    match atom:
        case Var():
            return True
        case Binary("//" | "%" | "min", a, _):
            return is_nonnegative(a)
        case Binary("max", a, b):
            return is_nonnegative(a) or is_nonnegative(b)
    return False


def _literal(value: int | float, dtype: str) -> str:
    if dtype == "float32":
        if value != value:
            return "__uint_as_float(0x7fc00000)"
        if value in (float("inf"), float("-inf")):
            return f"__uint_as_float(0x{'7f' if value > 0 else 'ff'}800000)"
        return f"{float(value)!r}f"
    if dtype == "float64":
        return repr(float(value))
    if dtype in NARROW:
        return f"to_{TYPES[dtype]}({float(value)!r}f)"
    if dtype == "bool":
        return "true" if value else "false"
    return str(int(value))
