"""The expressions of the loop syntax read back: ``parse_expr(format_expr(e)) == e``.

A line is split into tokens, its expressions are read by precedence climbing into the nodes that
the text shows, with nothing simplified. Names are contextual: ``exp`` is a function where ``(``
follows, a buffer before ``[``, else a variable.

Literals do not show their element type. One takes the type of what it meets: the other operand,
the other branch, the buffer it is stored in, an index position. ``float32(0.1)`` is a literal that
does. One that meets nothing typed (both sides of a comparison are literals, or they are the whole
operand of a cast) is an index, or float64 where a literal with a point is among them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from offcut.core.conditions import all_of
from offcut.core.dtypes import DTYPES, FLOATS, numpy_dtype
from offcut.core.expr import (
    MAX_HEIGHT,
    Binary,
    Cast,
    Compare,
    Const,
    Expr,
    Load,
    Logic,
    Lookup,
    Reduce,
    Select,
    Unary,
    Var,
    children,
    rebuild,
)
from offcut.core.program import Buffer
from offcut.errors import ParseError

# Words that mean something wherever an expression or a statement may begin.
UNNAMEABLE = frozenset({"and", "or", "not", "true", "false", "inf", "nan", "if", "assume"})

_TOKEN = re.compile(
    r"(?P<number>(?:[0-9]+\.[0-9]*|\.[0-9]+|[0-9]+)(?:[eE][+-]?[0-9]+)?)"
    r"|(?P<name>[^\W\d]\w*(?:\.[^\W\d]\w*)*)"
    r"|(?P<op>//|<=|>=|==|!=|\+:|\+=|-=|[-+*/%<>()\[\],:=@])"
    r"|(?P<other>[^\s#])"
)
_OR, _AND, _NOT, _COMPARE, _SUM, _PRODUCT = range(6)
_ARITHMETIC = {"+": _SUM, "-": _SUM, "*": _PRODUCT, "/": _PRODUCT, "//": _PRODUCT, "%": _PRODUCT}
_COMPARISONS = ("<", "<=", ">", ">=", "==", "!=")
_FLOAT_FUNCTIONS = ("exp", "tanh", "erf", "sqrt", "log")
_REDUCERS = ("sum", "max", "min")
_LITERALS = {"inf": math.inf, "nan": math.nan}
_OPEN = "untyped"

# Deeper text is refused, long before Python's own stack would overflow.
_MAX_BRACKETS = 80
_INT64 = range(-(2**63), 2**63)


@dataclass(frozen=True, slots=True)
class Token:
    """``line[start:end]``; `kind` is number, name, op, other or end."""

    kind: str
    text: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Line:
    """One line without its comment; `number` counts from 1."""

    number: int
    indent: str
    text: str
    tokens: tuple[Token, ...]

    def refuse(self, column: int, refused: str, because: str, *help: str) -> ParseError:
        """The error about what stands at `column`, counted from 0."""
        where = f"line {self.number}, column {column + 1}: {self.text.strip()}"
        return ParseError("parse", refused, at=where, because=because, help=help)


@dataclass(frozen=True, slots=True)
class Typed:
    """A node with its element type (`_OPEN` for literals only), where it starts, and its height."""

    expr: Expr
    dtype: str
    column: int
    height: int = 1


def read_lines(text: str) -> list[Line]:
    """The lines that say something, comments removed."""
    lines = []
    for number, raw in enumerate(text.split("\n"), 1):
        code = raw.partition("#")[0].rstrip()
        if code.strip():
            matches = [m for m in _TOKEN.finditer(code) if m.lastgroup]
            tokens = [Token(m.lastgroup or "", m.group(), m.start(), m.end()) for m in matches]
            end = Token("end", "the end of the line", len(code), len(code))
            indent = code[: len(code) - len(code.lstrip())]
            lines.append(Line(number, indent, code, (*tokens, end)))
    return lines


class Reader:
    """The tokens of one line, from left to right, and the expressions among them.

    buffers   what may be read
    names     coordinates and sizes in scope; None accepts every name
    """

    def __init__(
        self, line: Line, buffers: Mapping[str, Buffer], names: frozenset[str] | None
    ) -> None:
        self.line, self.buffers, self.names = line, buffers, names
        self.position = self.depth = 0

    @property
    def token(self) -> Token:
        """The one to read next."""
        return self.line.tokens[self.position]

    def following(self) -> Token:
        """The token after the current one."""
        return self.line.tokens[min(self.position + 1, len(self.line.tokens) - 1)]

    def refuse(
        self, refused: str, because: str, *help: str, column: int | None = None
    ) -> ParseError:
        """The error about what stands at `column`, or at the current token."""
        return self.line.refuse(
            self.token.start if column is None else column, refused, because, *help
        )

    def expected(self, what: str) -> ParseError:
        """The error that something other than `what` stands here."""
        found = self.token.text if self.token.kind == "end" else f"`{self.token.text}`"
        return self.refuse("cannot read this line", f"found {found}", f"{what} is expected here")

    def advance(self) -> Token:
        """Take the current token."""
        token = self.token
        self.position = min(self.position + 1, len(self.line.tokens) - 1)
        return token

    def at(self, text: str) -> bool:
        """Whether the current token is this word or operator."""
        return self.token.text == text and self.token.kind in ("op", "name")

    def accept(self, text: str) -> bool:
        """Take this word or operator where it comes next; say whether it did."""
        if found := self.at(text):
            self.advance()
        return found

    def expect(self, text: str) -> Token:
        """Take this word or operator, refuse any other."""
        if not self.at(text):
            raise self.expected(f"`{text}`")
        return self.advance()

    def close(self, bracket: Token, text: str) -> None:
        """Take `text`, which closes `bracket`."""
        if self.token.kind == "end":
            raise self.refuse(
                "cannot read this line",
                f"`{bracket.text}` is never closed",
                f"a `{text}` on the same line",
                column=bracket.start,
            )
        self.expect(text)

    def name(self, what: str) -> str:
        """Take a name, refuse words of the syntax."""
        if self.token.kind != "name":
            raise self.expected(what)
        if self.token.text in UNNAMEABLE:
            raise self.refuse(
                f"cannot use `{self.token.text}` as a name",
                "it is a word of the syntax",
                f"`{self.token.text}_` is free",
            )
        return self.advance().text

    def raw(self, what: str, stop: str | None = None) -> str:
        """The text from here to the token `stop`, or to the end of the line."""
        first = self.token
        if first.kind == "end":
            raise self.expected(what)
        self.advance()
        while self.token.kind != "end" and self.token.text != stop:
            self.advance()
        return self.line.text[first.start : self.token.start].rstrip()

    def integer(self) -> int:
        """Take an integer literal of 64 bits."""
        column, negative = self.token.start, self.accept("-")
        if self.token.kind != "number":
            raise self.expected("an integer literal")
        value = self._number(self.advance(), negative, column)
        if not isinstance(value, int) or value not in _INT64:
            raise self.refuse(
                "cannot read this line", f"{value} is not a 64-bit integer", column=column
            )
        return value

    def _number(self, token: Token, negative: bool, column: int) -> int | float:
        sign = -1 if negative else 1
        try:
            value = sign * int(token.text) if token.text.isdigit() else sign * float(token.text)
        except ValueError:  # Python refuses to read very long integers
            value = math.inf
        if isinstance(value, float) and math.isinf(value):
            raise self.refuse("cannot read this number", "no element type holds it", column=column)
        return value

    def _named(self, negative: bool) -> float:
        """Take ``inf`` or ``nan``; always the same object for nan, so that nodes compare equal."""
        value = _LITERALS[self.advance().text]
        return -value if negative and value == value else value

    def finish(self) -> None:
        """Refuse whatever is left of the line."""
        if self.token.kind != "end":
            if self.token.text in (")", "]"):
                raise self.refuse("cannot read this line", f"`{self.token.text}` closes nothing")
            raise self.expected("the end of the line")

    def typed(self, value: Typed, dtype: str, what: str) -> Expr:
        """`value` as an expression of type `dtype`; its literals take it."""
        if value.dtype == _OPEN and dtype != "bool":
            return self._fix(value, dtype)
        if value.dtype != dtype:
            raise self._mixed(value, dtype, what)
        return value.expr

    def _mixed(self, value: Typed, dtype: str, what: str) -> ParseError:
        own = "a number" if value.dtype == _OPEN else value.dtype
        cast = value.dtype not in (_OPEN, "bool") and dtype != "bool"
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

    def _fix(self, value: Typed, dtype: str) -> Expr:
        """`value`, of which nothing is typed yet, with every literal of type `dtype`."""

        def rule(expr: Expr) -> Expr:
            if isinstance(expr, Const) and expr.dtype == _OPEN:
                self._check_literal(expr.value, dtype, value.column)
                return Const(expr.value, dtype)
            if isinstance(expr, Select):
                return Select(expr.condition, rule(expr.then), rule(expr.other))
            if isinstance(expr, Binary) and expr.op == "/":
                self._check_division(dtype, value.column)
            if isinstance(expr, Unary):
                self._check_function(expr.op, dtype, value.column)
            return rebuild(expr, tuple(map(rule, children(expr))))

        return rule(value.expr)

    def _settled(self, value: Typed) -> tuple[Expr, str]:
        """`value` and its type, where nothing around it says which."""
        if value.dtype != _OPEN:
            return value.expr, value.dtype
        dtype = "float64" if _has_point(value.expr) else "index"
        return self._fix(value, dtype), dtype

    def _check_literal(self, value: int | float, dtype: str, column: int) -> None:
        because = _why_no_literal(value, dtype)
        if because:
            raise self.refuse("cannot read this literal", because, column=column)

    def _check_division(self, dtype: str, column: int) -> None:
        if dtype not in (*FLOATS, _OPEN):
            raise self.refuse(
                f"cannot divide {dtype} by `/`",
                "`/` is for floating-point values",
                "`//` is the floor of the quotient",
                column=column,
            )

    def _check_function(self, op: str, dtype: str, column: int) -> None:
        if op in _FLOAT_FUNCTIONS and dtype not in (*FLOATS, _OPEN):
            raise self.refuse(
                f"cannot take {op} of {dtype}",
                "it is defined for floating-point values",
                f"{op}(float32(…))",
                column=column,
            )

    def _unify(self, values: tuple[Typed, ...], what: str) -> tuple[tuple[Expr, ...], str]:
        """`values` on one element type, that of the first that has one."""
        dtype = next((value.dtype for value in values if value.dtype != _OPEN), _OPEN)
        if dtype == _OPEN:
            return tuple(value.expr for value in values), _OPEN
        return tuple(self.typed(value, dtype, what) for value in values), dtype

    def _node(self, expr: Expr, dtype: str, column: int, *parts: Typed) -> Typed:
        height = 1 + max((part.height for part in parts), default=0)
        if height > MAX_HEIGHT:
            raise self._too_deep(f"more than {MAX_HEIGHT} operations", column)
        return Typed(expr, dtype, column, height)

    def _too_deep(self, what: str, column: int) -> ParseError:
        return self.refuse("cannot read an expression so deep", f"{what} are nested", column=column)

    def index(self) -> Expr:
        """An integer expression in coordinates and sizes."""
        return self.typed(self.expression(), "index", "an index")

    def condition(self) -> Expr:
        """An expression of type bool."""
        return self.typed(self.expression(), "bool", "a condition")

    def expression(self, weakest: int = _OR) -> Typed:
        """An expression whose operators bind at least as strongly as `weakest`."""
        self.depth += 1
        if self.depth > _MAX_BRACKETS:
            raise self._too_deep(f"more than {_MAX_BRACKETS} brackets", self.token.start)
        left = self._prefix(weakest)
        while True:
            op = self.token.text
            if (strength := _ARITHMETIC.get(op, -1)) >= weakest:
                left = self._arithmetic(left, strength)
            elif op in _COMPARISONS and weakest <= _COMPARE:
                left = self._comparison(left)
            elif op in ("and", "or") and weakest <= (_AND if op == "and" else _OR):
                left = self._logic(left, op)
            else:
                self.depth -= 1
                return left

    def _arithmetic(self, left: Typed, strength: int) -> Typed:
        op = self.advance().text
        right = self.expression(strength + 1)
        return self._binary(op, left, right, f"an operand of `{op}`")

    def _binary(self, op: str, left: Typed, right: Typed, what: str) -> Typed:
        for operand in (left, right):
            if operand.dtype == "bool":
                raise self.refuse(
                    f"cannot take a condition as {what}",
                    "it is an operation on numbers",
                    "`and`, `or` and `not` combine conditions",
                    column=operand.column,
                )
        (a, b), dtype = self._unify((left, right), what)
        if op == "/":
            self._check_division(dtype, left.column)
        if op in ("//", "%") and isinstance(b, Const) and not b.value > 0:
            raise self.refuse(
                f"cannot divide by {b.value}",
                f"`{op}` is the floor for positive divisors",
                column=right.column,
            )
        return self._node(Binary(op, a, b), dtype, left.column, left, right)

    def _comparison(self, left: Typed) -> Typed:
        operands, ops = [left], []
        while self.token.kind == "op" and self.token.text in _COMPARISONS:
            ops.append(self.advance().text)
            operands.append(self.expression(_SUM))
        steps = []
        for op, pair in zip(ops, pairwise(operands), strict=True):
            (a, b), dtype = self._unify(pair, f"a side of `{op}`")
            if dtype == _OPEN:
                wanted = "float64" if _has_point(a) or _has_point(b) else "index"
                a, b = (self._fix(side, wanted) for side in pair)
            if dtype == "bool" and op not in ("==", "!="):
                raise self.refuse(
                    f"cannot order conditions by `{op}`",
                    "they are equal or not",
                    "`and` joins two conditions",
                    column=left.column,
                )
            steps.append(Compare(op, a, b))
        whole = all_of(steps)
        return self._node(whole, "bool", left.column, *operands)

    def _logic(self, left: Typed, op: str) -> Typed:
        parts = [left]
        while self.accept(op):
            parts.append(self.expression((_AND if op == "and" else _OR) + 1))
        args = tuple(self.typed(part, "bool", f"an operand of `{op}`") for part in parts)
        return self._node(Logic(op, args), "bool", left.column, *parts)

    def _prefix(self, weakest: int) -> Typed:
        column = self.token.start
        if self.at("not"):
            if weakest > _NOT:
                raise self.refuse(
                    "cannot read this line", "`not` binds weaker than what is around it", "(not …)"
                )
            self.advance()
            arg = self.expression(_NOT)
            negated = self.typed(arg, "bool", "the operand of `not`")
            return self._node(Logic("not", (negated,)), "bool", column, arg)
        if not self.accept("-"):
            return self._atom()
        if self.token.kind == "number":
            return self._node(
                Const(self._number(self.advance(), True, column), _OPEN), _OPEN, column
            )
        if self.token.text in _LITERALS:
            return self._node(Const(self._named(True), _OPEN), _OPEN, column)
        arg = self.expression(_PRODUCT + 1)
        if arg.dtype == "bool":
            raise self._mixed(arg, "a number", "the operand of `-`")
        return self._node(Unary("neg", arg.expr), arg.dtype, column, arg)

    def _atom(self) -> Typed:
        token = self.token
        if token.kind == "number":
            self.advance()
            return Typed(Const(self._number(token, False, token.start), _OPEN), _OPEN, token.start)
        if self.accept("("):
            inside = self.expression()
            self.close(token, ")")
            return inside
        if self.accept("["):
            return self._lookup(token)
        if token.kind != "name":
            raise self.expected("an expression")
        if token.text in ("true", "false"):
            self.advance()
            return Typed(Const(int(token.text == "true"), "bool"), "bool", token.start)
        if token.text in _LITERALS:
            return Typed(Const(self._named(False), _OPEN), _OPEN, token.start)
        name = self.name("a name")
        if self.at("("):
            return self._call(token)
        if self.at("["):
            buffer = self.buffer(token)
            parts = self.subscript(buffer)
            load = Load(
                name, tuple(self.typed(p, "index", "an index") for p in parts), buffer.dtype
            )
            return self._node(load, buffer.dtype, token.start, *parts)
        if self.names is not None and name not in self.names:
            because, *help = f"no size and no loop around it has the name {name}", *self._nearest()
            if name in self.buffers:
                because, help = f"{name} is a buffer", [f"{name}[…] reads an element"]
            raise self.refuse(f"cannot use `{name}` here", because, *help, column=token.start)
        return Typed(Var(name), "index", token.start)

    def _nearest(self) -> tuple[str, ...]:
        return (f"in scope: {', '.join(sorted(self.names))}",) if self.names else ()

    def buffer(self, token: Token) -> Buffer:
        """The declared buffer that `token` names."""
        if token.text not in self.buffers:
            known = ", ".join(self.buffers)
            raise self.refuse(
                f"cannot access `{token.text}`",
                f"no buffer of that name {'is declared' if known else 'can be read here'}",
                *((f"declared: {known}",) if known else ()),
                column=token.start,
            )
        return self.buffers[token.text]

    def subscript(self, buffer: Buffer) -> tuple[Typed, ...]:
        """``[index, …]``, one for each axis of `buffer`."""
        parts = self.listed(self.expect("["), "]")
        if len(parts) != len(buffer.shape):
            raise self.refuse(
                f"cannot access `{buffer.name}` with {count(len(parts), 'index', 'indices')}",
                f"{buffer.name} has {count(len(buffer.shape), 'axis', 'axes')}",
                f"{buffer.name}[{', '.join('…' for _ in buffer.shape)}]",
                column=self.line.tokens[self.position - 1].start,
            )
        return parts

    def listed(self, bracket: Token, stop: str) -> tuple[Typed, ...]:
        """Expressions separated by commas up to `stop`; a comma may end them."""
        parts: list[Typed] = []
        while not self.at(stop):
            parts.append(self.expression())
            if not self.accept(","):
                break
        self.close(bracket, stop)
        return tuple(parts)

    def _lookup(self, bracket: Token) -> Typed:
        values: list[float] = []
        while not self.at("]"):
            column, negative = self.token.start, self.accept("-")
            if self.token.text in _LITERALS:
                value: int | float = self._named(negative)
            elif self.token.kind == "number":
                value = self._number(self.advance(), negative, column)
            else:
                raise self.expected("a number of the table")
            self._check_literal(value, "float64", column)
            values.append(float(value))
            if not self.accept(","):
                break
        self.close(bracket, "]")
        opened = self.expect("[")
        position = self.expression()
        self.close(opened, "]")
        at = self.typed(position, "index", "the index of a table")
        return self._node(Lookup(tuple(values), at), "float64", bracket.start, position)

    def _call(self, function: Token) -> Typed:
        name, column = function.text, function.start
        args = self.listed(self.expect("("), ")")
        if name in _REDUCERS and self._is_reduction(name, args):
            return self._reduction(name, args, column)
        wanted = {"min": 2, "max": 2, "where": 3}.get(name, 1)
        known = name in (*_FLOAT_FUNCTIONS, "abs", "min", "max", "where", "index", *DTYPES)
        if not known:
            raise self.refuse(
                f"cannot call `{name}`",
                "there is no function and no element type of that name",
                f"functions: {', '.join((*_FLOAT_FUNCTIONS, 'abs', 'min', 'max', 'where'))}",
                f"element types: {', '.join(DTYPES)}, index",
                column=column,
            )
        if len(args) != wanted:
            raise self.refuse(
                f"cannot call `{name}` with {count(len(args), 'argument')}",
                f"it takes {wanted}",
                column=column,
            )
        if name in ("min", "max"):
            return self._binary(name, args[0], args[1], f"an operand of {name}")
        if name == "where":
            condition = self.typed(args[0], "bool", "a condition")
            (then, other), dtype = self._unify(args[1:], "a branch of where")
            return self._node(Select(condition, then, other), dtype, column, *args)
        if name in DTYPES or name == "index":
            return self._node(self._cast(args[0], name), name, column, *args)
        if args[0].dtype == "bool":
            raise self._mixed(args[0], "a number", f"the operand of {name}")
        self._check_function(name, args[0].dtype, column)
        return self._node(Unary(name, args[0].expr), args[0].dtype, column, *args)

    def _cast(self, value: Typed, dtype: str) -> Expr:
        """A literal of `dtype`, where it holds it; else `value` converted."""
        expr = value.expr
        if (
            isinstance(expr, Const)
            and value.dtype == _OPEN
            and not _why_no_literal(expr.value, dtype)
        ):
            return Const(expr.value, dtype)
        return Cast(self._settled(value)[0], dtype)

    def _is_reduction(self, name: str, args: tuple[Typed, ...]) -> bool:
        """``max(x, k)`` reduces over k where x is a value; where x is an index it is the larger."""
        if name == "sum" or len(args) != 2:
            return True
        value, axis = args
        is_value = _has_point(value.expr) if value.dtype == _OPEN else value.dtype != "index"
        return is_value and isinstance(axis.expr, Var)

    def _reduction(self, name: str, args: tuple[Typed, ...], column: int) -> Typed:
        axes = [arg.expr.name for arg in args[1:] if isinstance(arg.expr, Var)]
        if self.names is not None:
            raise self.refuse(
                f"cannot reduce by {name}(…) here",
                "a loop program reduces by loops",
                "+=, max= or min= inside a for",
                column=column,
            )
        if len(axes) != len(args) - 1 or not args or args[0].dtype == "bool":
            raise self.refuse(
                f"cannot reduce by {name}(…)",
                "it takes a value, then the names of axes",
                f"{name}(A[i, k], k)",
                column=column,
            )
        return self._node(Reduce(name, args[0].expr, tuple(axes)), args[0].dtype, column, args[0])


def _why_no_literal(value: int | float, dtype: str) -> str:
    """Why `value` is no literal of type `dtype`; empty where it is one."""
    if dtype in FLOATS:
        return (
            f"{dtype} does not hold it" if isinstance(value, int) and abs(value) > 2**1023 else ""
        )
    if not isinstance(value, int):
        return f"{value} is not an integer, and {dtype} is wanted here"
    info = np.iinfo(numpy_dtype("int64" if dtype == "index" else dtype))
    inside = info.min <= value <= info.max
    return "" if inside else f"{dtype} goes from {info.min} to {info.max}"


def _has_point(expr: Expr) -> bool:
    """Whether a literal of no type yet is written as a float."""
    if isinstance(expr, Const):
        return expr.dtype == _OPEN and isinstance(expr.value, float)
    if isinstance(expr, Select):
        return _has_point(expr.then) or _has_point(expr.other)
    return any(map(_has_point, children(expr)))


def count(number: int, one: str, many: str = "") -> str:
    """``2 axes``, for a message."""
    return f"{number or 'no'} {one if number == 1 else many or one + 's'}"


def parse_expr(
    text: str,
    dtype: str | None = None,
    *,
    buffers: Iterable[Buffer] = (),
    names: Iterable[str] | None = None,
) -> Expr:
    """The expression that `text` says, in the syntax that `format_expr` writes.

    dtype     its element type: "index", "bool" or numeric. None: what its parts say
    buffers   those that it may read
    names     coordinates and sizes in scope; None accepts every name, and reductions over them

    Raises ParseError for any other text, or another element type.
    """
    lines = read_lines(text)
    if len(lines) != 1:
        raise ParseError(
            "parse",
            "cannot read an expression",
            because=f"an expression is one line, this has {count(len(lines), 'line')}",
        )
    declared = {buffer.name: buffer for buffer in buffers}
    reader = Reader(lines[0], declared, None if names is None else frozenset(names))
    value = reader.expression()
    reader.finish()
    if dtype is None:
        return reader._settled(value)[0]
    return reader.typed(value, dtype, "this expression")
