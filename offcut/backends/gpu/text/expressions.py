"""An expression as C++: indices are ints, floor division is written where a quotient may be negative."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from offcut.backends.gpu.text.primitives import PRIMITIVE_NAMES
from offcut.core import index as ix
from offcut.core.dtypes import FLOATS, HALVES, ITEM_BYTES
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
WARP = Var("the warp")
"""The number of the warp, which iterators of loops over warps stand for; no program can name it so."""
GROUP = Var("the warpgroup")
"""The number of the warpgroup, which iterators of loops over warpgroups stand for."""
NUMBERS = {WARP.name: "warp", GROUP.name: "group"}
_OPERATORS = {"bitand": "&", "bitor": "|", "bitxor": "^", "shl": "<<", "shr": ">>"}
_WIDENED = ("int8", "uint8", "int16", "uint16")
_SHIFTS = {"shl": "shift_left", "shr": "shift_right"}
_OR, _AND, _COMPARE, _SUM, _PRODUCT, _UNARY = range(6)


TAKEN = frozenset(
    [
        "warp",
        "group",
        "lane",
        "bytes",
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
                return _UNARY, literal(value, dtype)
            case Var(name):
                return _UNARY, NUMBERS.get(name) or name_of(name)
            case Load():
                return _UNARY, self.element(expr)
            case Cast(a, dtype):
                return _UNARY, self.cast(a, dtype)
            case Unary(op, a) if dtype_of(a) in HALVES:
                wide = Unary(op, Cast(a, "float32"))
                return _UNARY, f"to_{TYPES[dtype_of(a)]}({self.text(wide)})"
            case Unary("neg", a):
                narrow = f"({TYPES[dtype_of(a)]})" if dtype_of(a) in _WIDENED else ""
                return _UNARY, f"{narrow}-{self.text(a, _UNARY)}"
            case Unary("abs", a) if dtype_of(a) not in FLOATS:
                return _UNARY, f"magnitude({self.text(a)})"
            case Unary(op, a) if op in FUNCTIONS and dtype_of(a) in FLOATS:
                return _UNARY, f"{function_name(op, dtype_of(a))}({self.text(a)})"
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
        if source in HALVES:
            value = f"to_float({self.text(a)})"
            return value if dtype == "float32" else self.converted(value, "float32", dtype)
        return self.converted(self.text(a), source, dtype)

    def converted(self, value: str, source: str, dtype: str) -> str:
        """Return the text of a value as another type."""
        if (source, dtype) == ("float64", "float16"):
            raise no_text(
                f"{source} to {dtype}", "it rounds once, and has no text in CUDA C++ so far"
            )
        if dtype in HALVES:
            return f"to_{TYPES[dtype]}({value if source == 'float32' else f'(float)({value})'})"
        if dtype == "bool":
            return f"({value} != 0)"
        if source in FLOATS and dtype not in FLOATS:
            return f"to_whole<{TYPES[dtype]}>({value})"
        return f"({TYPES[dtype]}){_bracketed(value)}"

    def binary(self, op: str, a: Expr, b: Expr) -> tuple[int, str]:
        """Return an operation, with how tightly it binds; of integers that C++ widens to int, the result is narrowed."""
        dtype = dtype_of(a)
        level, text = self.operation(op, a, b, dtype)
        if dtype in _WIDENED and op in ("+", "-", "*", "shl"):
            return _UNARY, f"({TYPES[dtype]})({text})"
        return level, text

    def operation(self, op: str, a: Expr, b: Expr, dtype: str) -> tuple[int, str]:
        """Return an operation on values of a type, as C++ has it."""
        if dtype in HALVES:
            wide = Binary(op, Cast(a, "float32"), Cast(b, "float32"))
            return _UNARY, f"to_{TYPES[dtype]}({self.text(wide)})"
        if op in ("+", "-"):
            return _SUM, f"{self.text(a, _SUM)} {op} {self.text(b, _SUM + (op == '-'))}"
        if op in ("*", "/"):
            return _PRODUCT, f"{self.text(a, _PRODUCT)} {op} {self.text(b, _UNARY)}"
        if op in ("//", "%"):
            if dtype not in FLOATS and is_nonnegative(a):
                sign = "/" if op == "//" else "%"
                return _PRODUCT, f"{self.text(a, _PRODUCT)} {sign} {self.text(b, _UNARY)}"
            name = "floor_div" if op == "//" else "floor_mod"
            return _UNARY, f"{name}({self.text(a)}, {self.text(b)})"
        if op in _SHIFTS and not (isinstance(b, Const) and 0 <= b.value < 8 * ITEM_BYTES[dtype]):
            return _UNARY, f"{_SHIFTS[op]}({self.text(a)}, {self.text(b)})"
        if op in _OPERATORS:
            return -1, f"{self.text(a, _UNARY)} {_OPERATORS[op]} {self.text(b, _UNARY)}"
        if op in ("min", "max") or op in FUNCTIONS:
            return _UNARY, self.combined(op, dtype, self.text(a), self.text(b))
        raise no_text(op, "this operation has no text in CUDA C++ so far")

    def combined(self, op: str, dtype: str, a: str, b: str) -> str:
        """Return the text of a sum, or of a function of two values of a type, of which the texts are given."""
        if dtype in HALVES:
            wide = self.combined(op, "float32", f"to_float({a})", f"to_float({b})")
            return f"to_{TYPES[dtype]}({wide})"
        if op == "+":
            return f"{a} + {b}"
        if op in ("min", "max"):
            floats = {"min": "lesser", "max": "greater"}
            return f"{floats[op] if dtype in FLOATS else op}({a}, {b})"
        return f"{function_name(op, dtype)}({a}, {b})"


def function_name(op: str, dtype: str) -> str:
    """Return the name of a function of floats in the library of the language."""
    name = {"round": "rint", "abs": "fabs"}.get(op, FUNCTIONS[op].libm)
    return f"{name}{'f' if dtype == 'float32' else ''}"


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


def _bracketed(text: str) -> str:
    return text if text.isidentifier() or text.isdigit() else f"({text})"


def literal(value: int | float, dtype: str) -> str:
    """Return the text of a number of a type."""
    if dtype in HALVES:
        return f"to_{TYPES[dtype]}({literal(value, 'float32')})"
    if dtype in FLOATS:
        if value != value:
            return "__uint_as_float(0x7fc00000)"
        if value in (float("inf"), float("-inf")):
            return f"__uint_as_float(0x{'7f' if value > 0 else 'ff'}800000)"
        return f"{float(value)!r}{'f' if dtype == 'float32' else ''}"
    if dtype == "bool":
        return "true" if value else "false"
    suffix = {"uint32": "u", "int64": "ll", "uint64": "ull"}.get(dtype, "")
    if value in (-(2**31), -(2**63)):  # a sign is no part of a number in C++
        return f"(-{-value - 1}{suffix} - 1)"
    return f"{int(value)}{suffix}"
