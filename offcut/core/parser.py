"""The loop syntax read back: ``parse(str(program)) == program``, node for node.

A statement is a line; what it contains is indented below it. Every line is split into tokens, its
expressions are read by precedence climbing into the nodes that the text shows, with nothing
simplified. Names are contextual: ``exp`` is a function where ``(`` follows, a buffer before ``[``,
else a variable.

Literals do not show their element type. One takes the type of what it meets: the other operand,
the other branch, the buffer it is stored in, an index position. One that meets nothing typed (both
sides of a comparison are literals, or the whole operand of a cast) is an index, or float64 where a
literal with a point is among them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
import numpy as np

from offcut.core.dtypes import DTYPES, FLOATS, numpy_dtype
from offcut.core.expr import (
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
from offcut.core.program import (
    Buffer,
    Choose,
    For,
    Form,
    If,
    Kind,
    Let,
    Option,
    Panels,
    Program,
    Role,
    Size,
    Stmt,
    Store,
    Tile,
    TileAxis,
)
from offcut.errors import ParseError

# Words that mean something wherever an expression or a statement may begin.
UNNAMEABLE = frozenset({"and", "or", "not", "true", "false", "inf", "nan", "if", "assume"})

_TOKEN = re.compile(
    r"(?P<number>(?:[0-9]+\.[0-9]*|\.[0-9]+|[0-9]+)(?:[eE][+-]?[0-9]+)?)"
    r"|(?P<name>[^\W\d]\w*(?:\.[^\W\d]\w*)*)"
    r"|(?P<op>//|<=|>=|==|!=|\+:|\+=|[-+*/%<>()\[\],:=@])"
    r"|(?P<other>[^\s#])"
)
_OR, _AND, _NOT, _COMPARE, _SUM, _PRODUCT = range(6)
_ARITHMETIC = {"+": _SUM, "-": _SUM, "*": _PRODUCT, "/": _PRODUCT, "//": _PRODUCT, "%": _PRODUCT}
_COMPARISONS = ("<", "<=", ">", ">=", "==", "!=")
_FLOAT_FUNCTIONS = ("exp", "tanh", "erf", "sqrt", "log")
_REDUCERS = ("sum", "max", "min")
_LITERALS = {"inf": math.inf, "nan": math.nan}
_ROLES = {role.value: role for role in Role}
_FORMS = {form.value: form for form in Form}
_KINDS = {kind.value: kind for kind in Kind}
_READ_ONLY = (Kind.INPUT, Kind.CONSTANT)
_OPEN = "untyped"

# Deeper text is refused, long before Python's own stack would overflow.
_MAX_BRACKETS, _MAX_HEIGHT, _MAX_BLOCKS = 80, 200, 50
_INT64 = range(-(2**63), 2**63)


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str  # a group of _TOKEN, or "end"
    text: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class _Line:
    number: int
    indent: str
    text: str
    tokens: tuple[_Token, ...]

    def refuse(self, column: int, refused: str, because: str, *help: str) -> ParseError:
        where = f"line {self.number}, column {column + 1}: {self.text.strip()}"
        return ParseError("parse", refused, at=where, because=because, help=help)


@dataclass(frozen=True, slots=True)
class _Typed:
    """A node with its element type (`_OPEN` for literals only), where it starts, and its height."""

    expr: Expr
    dtype: str
    column: int
    height: int = 1


def _lines(text: str) -> list[_Line]:
    """The lines that say something, comments removed."""
    lines = []
    for number, raw in enumerate(text.split("\n"), 1):
        code = raw.partition("#")[0].rstrip()
        if code.strip():
            matches = [m for m in _TOKEN.finditer(code) if m.lastgroup]
            tokens = [_Token(m.lastgroup or "", m.group(), m.start(), m.end()) for m in matches]
            end = _Token("end", "the end of the line", len(code), len(code))
            indent = code[: len(code) - len(code.lstrip())]
            lines.append(_Line(number, indent, code, (*tokens, end)))
    return lines


class _Reader:
    """The tokens of one line, from left to right, and the expressions among them.

    buffers   what may be read
    names     coordinates and sizes in scope; None accepts every name
    """

    def __init__(
        self, line: _Line, buffers: Mapping[str, Buffer], names: frozenset[str] | None
    ) -> None:
        self.line, self.buffers, self.names = line, buffers, names
        self.position = self.depth = 0

    # Tokens.

    @property
    def token(self) -> _Token:
        return self.line.tokens[self.position]

    def following(self) -> _Token:
        """The token after the current one."""
        return self.line.tokens[min(self.position + 1, len(self.line.tokens) - 1)]

    def refuse(
        self, refused: str, because: str, *help: str, column: int | None = None
    ) -> ParseError:
        return self.line.refuse(
            self.token.start if column is None else column, refused, because, *help
        )

    def expected(self, what: str) -> ParseError:
        found = self.token.text if self.token.kind == "end" else f"`{self.token.text}`"
        return self.refuse("cannot read this line", f"found {found}", f"{what} is expected here")

    def advance(self) -> _Token:
        token = self.token
        self.position = min(self.position + 1, len(self.line.tokens) - 1)
        return token

    def at(self, text: str) -> bool:
        return self.token.text == text and self.token.kind in ("op", "name")

    def accept(self, text: str) -> bool:
        if found := self.at(text):
            self.advance()
        return found

    def expect(self, text: str) -> _Token:
        if not self.at(text):
            raise self.expected(f"`{text}`")
        return self.advance()

    def close(self, bracket: _Token, text: str) -> None:
        if self.token.kind == "end":
            raise self.refuse(
                "cannot read this line",
                f"`{bracket.text}` is never closed",
                f"a `{text}` on the same line",
                column=bracket.start,
            )
        self.expect(text)

    def name(self, what: str) -> str:
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
        column, negative = self.token.start, self.accept("-")
        if self.token.kind != "number":
            raise self.expected("an integer literal")
        value = self.number(self.advance(), negative, column)
        if not isinstance(value, int) or value not in _INT64:
            raise self.refuse(
                "cannot read this line", f"{value} is not a 64-bit integer", column=column
            )
        return value

    def number(self, token: _Token, negative: bool, column: int) -> int | float:
        sign = -1 if negative else 1
        try:
            value = sign * int(token.text) if token.text.isdigit() else sign * float(token.text)
        except ValueError:  # Python refuses to read very long integers
            value = math.inf
        if isinstance(value, float) and math.isinf(value):
            raise self.refuse("cannot read this number", "no element type holds it", column=column)
        return value

    def finish(self) -> None:
        if self.token.kind != "end":
            if self.token.text in (")", "]"):
                raise self.refuse("cannot read this line", f"`{self.token.text}` closes nothing")
            raise self.expected("the end of the line")

    # Element types.

    def typed(self, value: _Typed, dtype: str, what: str) -> Expr:
        """`value` as an expression of type `dtype`; its literals take it."""
        if value.dtype == _OPEN and dtype != "bool":
            return self.fix(value, dtype)
        if value.dtype != dtype:
            raise self.mixed(value, dtype, what)
        return value.expr

    def mixed(self, value: _Typed, dtype: str, what: str) -> ParseError:
        own = "a number" if value.dtype == _OPEN else value.dtype
        cast = value.dtype not in (_OPEN, "bool") and dtype != "bool"
        return self.refuse(
            f"cannot take {own} as {what}",
            f"{what} is {dtype}",
            *((f"{dtype}(…) converts it",) if cast else ()),
            column=value.column,
        )

    def fix(self, value: _Typed, dtype: str) -> Expr:
        def rule(expr: Expr) -> Expr:
            if isinstance(expr, Const) and expr.dtype == _OPEN:
                self.check_literal(expr.value, dtype, value.column)
                return Const(expr.value, dtype)
            if isinstance(expr, Select):
                return Select(expr.condition, rule(expr.then), rule(expr.other))
            if isinstance(expr, Binary) and expr.op == "/":
                self.check_division(dtype, value.column)
            if isinstance(expr, Unary):
                self.check_function(expr.op, dtype, value.column)
            return rebuild(expr, tuple(map(rule, children(expr))))

        return rule(value.expr)

    def settled(self, value: _Typed) -> tuple[Expr, str]:
        """`value` and its type, where nothing around it says which."""
        if value.dtype != _OPEN:
            return value.expr, value.dtype
        dtype = "float64" if _has_point(value.expr) else "index"
        return self.fix(value, dtype), dtype

    def check_literal(self, value: int | float, dtype: str, column: int) -> None:
        because = ""
        if dtype in FLOATS:
            if isinstance(value, int) and abs(value) > 2**1023:
                because = f"{dtype} does not hold it"
        elif not isinstance(value, int):
            because = f"{value} is not an integer, and {dtype} is wanted here"
        else:
            info = np.iinfo(numpy_dtype("int64" if dtype == "index" else dtype))
            if not info.min <= value <= info.max:
                because = f"{dtype} goes from {info.min} to {info.max}"
        if because:
            raise self.refuse("cannot read this literal", because, column=column)

    def check_division(self, dtype: str, column: int) -> None:
        if dtype not in (*FLOATS, _OPEN):
            raise self.refuse(
                f"cannot divide {dtype} by `/`",
                "`/` is for floating-point values",
                "`//` is the floor of the quotient",
                column=column,
            )

    def check_function(self, op: str, dtype: str, column: int) -> None:
        if op in _FLOAT_FUNCTIONS and dtype not in (*FLOATS, _OPEN):
            raise self.refuse(
                f"cannot take {op} of {dtype}",
                "it is defined for floating-point values",
                f"float32(…) converts {'it' if dtype == 'index' else 'the operand'}",
                column=column,
            )

    def unify(self, values: tuple[_Typed, ...], what: str) -> tuple[tuple[Expr, ...], str]:
        """`values` on one element type, that of the first that has one."""
        dtype = next((value.dtype for value in values if value.dtype != _OPEN), _OPEN)
        if dtype == _OPEN:
            return tuple(value.expr for value in values), _OPEN
        return tuple(self.typed(value, dtype, what) for value in values), dtype

    def node(self, expr: Expr, dtype: str, column: int, *parts: _Typed) -> _Typed:
        height = 1 + max((part.height for part in parts), default=0)
        if height > _MAX_HEIGHT:
            raise self.too_deep(f"more than {_MAX_HEIGHT} operations", column)
        return _Typed(expr, dtype, column, height)

    def too_deep(self, what: str, column: int) -> ParseError:
        return self.refuse("cannot read an expression so deep", f"{what} are nested", column=column)

    # Expressions.

    def index(self) -> Expr:
        """An integer expression in coordinates and sizes."""
        return self.typed(self.expression(), "index", "an index")

    def condition(self) -> Expr:
        return self.typed(self.expression(), "bool", "a condition")

    def expression(self, weakest: int = _OR) -> _Typed:
        self.depth += 1
        if self.depth > _MAX_BRACKETS:
            raise self.too_deep(f"more than {_MAX_BRACKETS} brackets", self.token.start)
        left = self.prefix(weakest)
        while True:
            op = self.token.text
            if (strength := _ARITHMETIC.get(op, -1)) >= weakest:
                left = self.arithmetic(left, strength)
            elif op in _COMPARISONS and weakest <= _COMPARE:
                left = self.comparison(left)
            elif op in ("and", "or") and weakest <= (_AND if op == "and" else _OR):
                left = self.logic(left, op)
            else:
                self.depth -= 1
                return left

    def arithmetic(self, left: _Typed, strength: int) -> _Typed:
        op = self.advance().text
        right = self.expression(strength + 1)
        return self.binary(op, left, right, f"an operand of `{op}`")

    def binary(self, op: str, left: _Typed, right: _Typed, what: str) -> _Typed:
        (a, b), dtype = self.unify((left, right), what)
        if dtype == "bool":
            raise self.refuse(
                f"cannot take a condition as {what}",
                "it is an operation on numbers",
                "`and`, `or` and `not` combine conditions",
                column=left.column,
            )
        if op == "/":
            self.check_division(dtype, left.column)
        if op in ("//", "%") and isinstance(b, Const) and not b.value > 0:
            raise self.refuse(
                f"cannot divide by {b.value}",
                f"`{op}` is the floor for positive divisors",
                column=right.column,
            )
        return self.node(Binary(op, a, b), dtype, left.column, left, right)

    def comparison(self, left: _Typed) -> _Typed:
        operands, ops = [left], []
        while self.token.kind == "op" and self.token.text in _COMPARISONS:
            ops.append(self.advance().text)
            operands.append(self.expression(_SUM))
        steps = []
        for op, pair in zip(ops, pairwise(operands), strict=True):
            (a, b), dtype = self.unify(pair, f"a side of `{op}`")
            if dtype == _OPEN:
                wanted = "float64" if _has_point(a) or _has_point(b) else "index"
                a, b = (self.fix(side, wanted) for side in pair)
            if dtype == "bool" and op not in ("==", "!="):
                raise self.refuse(
                    f"cannot order conditions by `{op}`",
                    "they are equal or not",
                    "`and` joins two conditions",
                    column=left.column,
                )
            steps.append(Compare(op, a, b))
        whole = steps[0] if len(steps) == 1 else Logic("and", tuple(steps))
        return self.node(whole, "bool", left.column, *operands)

    def logic(self, left: _Typed, op: str) -> _Typed:
        parts = [left]
        while self.accept(op):
            parts.append(self.expression((_AND if op == "and" else _OR) + 1))
        args = tuple(self.typed(part, "bool", f"an operand of `{op}`") for part in parts)
        return self.node(Logic(op, args), "bool", left.column, *parts)

    def prefix(self, weakest: int) -> _Typed:
        column = self.token.start
        if self.at("not"):
            if weakest > _NOT:
                raise self.refuse(
                    "cannot read this line", "`not` binds weaker than what is around it", "(not …)"
                )
            self.advance()
            arg = self.expression(_NOT)
            negated = self.typed(arg, "bool", "the operand of `not`")
            return self.node(Logic("not", (negated,)), "bool", column, arg)
        if not self.accept("-"):
            return self.atom()
        if self.token.kind == "number":
            return self.node(Const(self.number(self.advance(), True, column), _OPEN), _OPEN, column)
        if self.token.text in _LITERALS:
            return self.node(Const(-_LITERALS[self.advance().text], _OPEN), _OPEN, column)
        arg = self.expression(_PRODUCT + 1)
        if arg.dtype == "bool":
            raise self.mixed(arg, "a number", "the operand of `-`")
        return self.node(Unary("neg", arg.expr), arg.dtype, column, arg)

    def atom(self) -> _Typed:
        token = self.token
        if token.kind == "number":
            self.advance()
            return _Typed(Const(self.number(token, False, token.start), _OPEN), _OPEN, token.start)
        if self.accept("("):
            inside = self.expression()
            self.close(token, ")")
            return inside
        if self.accept("["):
            return self.lookup(token)
        if token.kind != "name":
            raise self.expected("an expression")
        if token.text in ("true", "false"):
            self.advance()
            return _Typed(Const(int(token.text == "true"), "bool"), "bool", token.start)
        if token.text in _LITERALS:
            self.advance()
            return _Typed(Const(_LITERALS[token.text], _OPEN), _OPEN, token.start)
        name = self.name("a name")
        if self.at("("):
            return self.call(token)
        if self.at("["):
            buffer = self.buffer(token)
            parts = self.subscript(buffer)
            load = Load(
                name, tuple(self.typed(p, "index", "an index") for p in parts), buffer.dtype
            )
            return self.node(load, buffer.dtype, token.start, *parts)
        if self.names is not None and name not in self.names:
            because, *help = f"no size and no loop around it has the name {name}", *self.nearest()
            if name in self.buffers:
                because, help = f"{name} is a buffer", [f"{name}[…] reads an element"]
            raise self.refuse(f"cannot use `{name}` here", because, *help, column=token.start)
        return _Typed(Var(name), "index", token.start)

    def nearest(self) -> tuple[str, ...]:
        return (f"in scope: {', '.join(sorted(self.names))}",) if self.names else ()

    def buffer(self, token: _Token) -> Buffer:
        if token.text not in self.buffers:
            known = ", ".join(self.buffers)
            raise self.refuse(
                f"cannot access `{token.text}`",
                f"no buffer of that name {'is declared' if known else 'can be read here'}",
                *((f"declared: {known}",) if known else ()),
                column=token.start,
            )
        return self.buffers[token.text]

    def subscript(self, buffer: Buffer) -> tuple[_Typed, ...]:
        """``[index, …]``, one for each axis of `buffer`."""
        parts = self.listed(self.expect("["), "]")
        if len(parts) != len(buffer.shape):
            raise self.refuse(
                f"cannot access `{buffer.name}` with {_count(len(parts), 'index', 'indices')}",
                f"{buffer.name} has {_count(len(buffer.shape), 'axis', 'axes')}",
                f"{buffer.name}[{', '.join('…' for _ in buffer.shape)}]",
                column=self.line.tokens[self.position - 1].start,
            )
        return parts

    def listed(self, bracket: _Token, stop: str) -> tuple[_Typed, ...]:
        """Expressions separated by commas up to `stop`; a comma may end them."""
        parts: list[_Typed] = []
        while not self.at(stop):
            parts.append(self.expression())
            if not self.accept(","):
                break
        self.close(bracket, stop)
        return tuple(parts)

    def lookup(self, bracket: _Token) -> _Typed:
        values: list[float] = []
        while not self.at("]"):
            column, negative = self.token.start, self.accept("-")
            if self.token.text in _LITERALS:
                value: int | float = _LITERALS[self.advance().text] * (-1 if negative else 1)
            elif self.token.kind == "number":
                value = self.number(self.advance(), negative, column)
            else:
                raise self.expected("a number of the table")
            self.check_literal(value, "float64", column)
            values.append(float(value))
            if not self.accept(","):
                break
        self.close(bracket, "]")
        opened = self.expect("[")
        position = self.expression()
        self.close(opened, "]")
        at = self.typed(position, "index", "the index of a table")
        return self.node(Lookup(tuple(values), at), "float64", bracket.start, position)

    def call(self, function: _Token) -> _Typed:
        name, column = function.text, function.start
        args = self.listed(self.expect("("), ")")
        if name in _REDUCERS and self.is_reduction(name, args):
            return self.reduction(name, args, column)
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
                f"cannot call `{name}` with {_count(len(args), 'argument')}",
                f"it takes {wanted}",
                column=column,
            )
        if name in ("min", "max"):
            return self.binary(name, args[0], args[1], f"an operand of {name}")
        if name == "where":
            condition = self.typed(args[0], "bool", "a condition")
            (then, other), dtype = self.unify(args[1:], "a branch of where")
            return self.node(Select(condition, then, other), dtype, column, *args)
        if name in DTYPES or name == "index":
            return self.node(Cast(self.settled(args[0])[0], name), name, column, *args)
        if args[0].dtype == "bool":
            raise self.mixed(args[0], "a number", f"the operand of {name}")
        self.check_function(name, args[0].dtype, column)
        return self.node(Unary(name, args[0].expr), args[0].dtype, column, *args)

    def is_reduction(self, name: str, args: tuple[_Typed, ...]) -> bool:
        """``max(x, k)`` reduces over k where x is a value; where x is an index it is the larger."""
        if name == "sum" or len(args) != 2:
            return True
        value, axis = args
        is_value = _has_point(value.expr) if value.dtype == _OPEN else value.dtype != "index"
        return is_value and isinstance(axis.expr, Var)

    def reduction(self, name: str, args: tuple[_Typed, ...], column: int) -> _Typed:
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
        return self.node(Reduce(name, args[0].expr, tuple(axes)), args[0].dtype, column, args[0])


def _has_point(expr: Expr) -> bool:
    """Whether a literal of no type yet is written as a float."""
    if isinstance(expr, Const):
        return expr.dtype == _OPEN and isinstance(expr.value, float)
    if isinstance(expr, Select):
        return _has_point(expr.then) or _has_point(expr.other)
    return any(map(_has_point, children(expr)))


def _count(number: int, one: str, many: str = "") -> str:
    return f"{number or 'no'} {one if number == 1 else many or one + 's'}"


class _Statements:
    """The lines of a program, from top to bottom."""

    def __init__(self, lines: list[_Line]) -> None:
        self.lines, self.position = lines, 0
        self.levels = [lines[0].indent if lines else ""]
        self.name = ""
        self.sizes: dict[str, Size] = {}
        self.assumptions: list[Expr] = []
        self.buffers: dict[str, Buffer] = {}

    def program(self) -> Program:
        declare = self.declarations()
        while self.line is not None and self.line.indent == self.levels[0]:
            reader = self.reader(self.line, frozenset(self.sizes), readable=False)
            if reader.token.text not in declare or reader.following().text == "[":
                break
            declare[reader.token.text](reader)
            reader.finish()
            self.position += 1
        body = self.statements(frozenset(self.sizes))
        return Program(
            self.name or "program",
            tuple(self.sizes.values()),
            tuple(self.assumptions),
            tuple(self.buffers.values()),
            body,
        )

    def declarations(self) -> dict[str, Callable[[_Reader], None]]:
        """What reads a declaration, by its first word."""
        return {
            "program": self.header,
            "size": self.size,
            "assume": self.assumption,
            **dict.fromkeys(_KINDS, self.declaration),
        }

    @property
    def line(self) -> _Line | None:
        """The line to read next."""
        return self.lines[self.position] if self.position < len(self.lines) else None

    def reader(self, line: _Line, names: frozenset[str], readable: bool = True) -> _Reader:
        return _Reader(line, self.buffers if readable else {}, names)

    # Declarations.

    def header(self, reader: _Reader) -> None:
        if self.position:
            raise reader.refuse("cannot name the program here", "its header is the first line")
        reader.advance()
        self.name = reader.raw("a name")

    def size(self, reader: _Reader) -> None:
        reader.advance()
        column, name = reader.token.start, reader.name("the name of a size")
        if name in self.sizes:
            raise reader.refuse(
                f"cannot declare size {name} twice", "a size is known by its name", column=column
            )
        reader.expect("in")
        column, low = reader.token.start, reader.integer()
        reader.expect(":")
        high = reader.integer() - 1
        multiple = reader.integer() if reader.accept("multiple_of") else 1
        if not (0 <= low <= high and multiple >= 1):
            raise reader.refuse(
                f"cannot declare size {name}",
                f"no size has {low} <= {name} < {high + 1} and is a multiple of {multiple}",
                "size n in 0:4097 multiple_of 8",
                column=column,
            )
        self.sizes[name] = Size(name, low, high, multiple)

    def assumption(self, reader: _Reader) -> None:
        reader.advance()
        self.assumptions.append(reader.condition())

    def declaration(self, reader: _Reader) -> None:
        kind = _KINDS[reader.advance().text]
        column, name = reader.token.start, reader.name("the name of a buffer")
        if name in self.buffers:
            raise reader.refuse(
                f"cannot declare buffer {name} twice",
                f"it is {self.buffers[name].kind.value} {name} already",
                column=column,
            )
        reader.expect(":")
        dtype = reader.token.text
        if dtype not in DTYPES:
            raise reader.refuse(
                f"cannot declare buffer {name} of `{dtype}`",
                "there is no element type of that name",
                f"element types: {', '.join(DTYPES)}",
            )
        reader.advance()
        extents = reader.listed(reader.expect("["), "]")
        shape = tuple(reader.typed(extent, "index", "an extent") for extent in extents)
        layout = self.panels(reader, len(shape)) if reader.accept("@") else None
        self.buffers[name] = Buffer(name, dtype, shape, kind, layout)

    def panels(self, reader: _Reader, rank: int) -> Panels:
        column = reader.token.start
        reader.expect("panels")
        bracket = reader.expect("(")
        rows = reader.integer()
        reader.expect(",")
        columns = reader.integer()
        reader.expect(",")
        width = reader.integer()
        reader.close(bracket, ")")
        if not (0 <= rows < rank and 0 <= columns < rank and rows != columns and width > 0):
            raise reader.refuse(
                "cannot lay the buffer out in panels",
                f"rows {rows} and columns {columns} are two of its {rank} axes, counted from 0, "
                f"and the width {width} is positive",
                "@panels(rows, columns, width)",
                column=column,
            )
        return Panels(rows, columns, width)

    # Blocks.

    def block(self, names: frozenset[str]) -> tuple[Stmt, ...]:
        """The statements indented below the line just read; none is legal."""
        line = self.line
        if line is None or not self.opens(line):
            return ()
        self.open(line)
        body = self.statements(names)
        self.levels.pop()
        return body

    def opens(self, line: _Line) -> bool:
        return len(line.indent) > len(self.levels[-1]) and line.indent.startswith(self.levels[-1])

    def open(self, line: _Line) -> None:
        self.levels.append(line.indent)
        if len(self.levels) > _MAX_BLOCKS:
            raise line.refuse(
                len(line.indent),
                "cannot read statements so deep",
                f"more than {_MAX_BLOCKS} blocks are nested",
            )

    def here(self) -> _Line | None:
        """The next line where it is on the current level; None at the end of the block."""
        line = self.line
        if line is None or line.indent == self.levels[-1]:
            return line
        if line.indent in self.levels:
            return None
        raise self.misplaced(line)

    def misplaced(self, line: _Line) -> ParseError:
        deeper = len(line.indent) > len(self.levels[-1])
        levels = ", ".join(str(len(level)) for level in self.levels)
        return line.refuse(
            len(line.indent),
            "cannot place this line",
            "no statement above it takes a block"
            if deeper and self.opens(line)
            else f"its indentation of {len(line.indent)} is none of those around it ({levels})",
            "a block is indented alike, by spaces or by tabs",
        )

    def statements(self, names: frozenset[str]) -> tuple[Stmt, ...]:
        body: list[Stmt] = []
        while (line := self.here()) is not None:
            reader = self.reader(line, names)
            self.position += 1
            body.append(self.statement(reader, names))
        return tuple(body)

    def statement(self, reader: _Reader, names: frozenset[str]) -> Stmt:
        first = reader.token
        if first.kind == "name" and reader.following().text == "[" and first.text != "if":
            return self.store(reader)
        match first.text:
            case "for":
                return self.loop(reader, names)
            case "if":
                return self.condition(reader, names)
            case "let":
                return self.let(reader, names)
            case "tile":
                return self.tile(reader, names)
            case "choose":
                return self.choose(reader, names)
            case word if word in self.declarations():
                raise reader.refuse(
                    f"cannot place this {word}", "declarations come before the statements"
                )
            case _:
                raise reader.refuse(
                    "cannot read this line",
                    f"no statement begins with `{first.text}`",
                    "for, if … else, let, tile, choose, or buffer[index] = value",
                )

    def new_name(self, reader: _Reader, names: frozenset[str]) -> str:
        column, name = reader.token.start, reader.name("the name of a coordinate")
        if name in names:
            raise reader.refuse(
                f"cannot use the name {name} again",
                f"{name} is {'a size' if name in self.sizes else 'a coordinate around this line'}",
                column=column,
            )
        return name

    def loop(self, reader: _Reader, names: frozenset[str]) -> For:
        reader.advance()
        name = self.new_name(reader, names)
        reader.expect("in")
        lo = reader.index()
        reader.expect(":")
        hi = reader.index()
        role, _, _ = self.marks(reader, "a for", _ROLES, {}, False)
        return For(name, lo, hi, self.block(names | {name}), role)

    def condition(self, reader: _Reader, names: frozenset[str]) -> If:
        reader.advance()
        condition = reader.condition()
        reader.finish()
        then = self.block(names)
        line = self.here()
        if line is None or [token.text for token in line.tokens[:-1]] != ["else"]:
            return If(condition, then)
        self.position += 1
        return If(condition, then, self.block(names))

    def let(self, reader: _Reader, names: frozenset[str]) -> Let:
        reader.advance()
        name = self.new_name(reader, names)
        reader.expect("in")
        lo = reader.integer()
        reader.expect(":")
        hi = reader.integer()
        reader.expect("=")
        value = reader.index()
        reader.finish()
        return Let(name, lo, hi, value, self.block(names | {name}))

    def tile(self, reader: _Reader, names: frozenset[str]) -> Tile:
        reader.advance()
        axes: list[TileAxis] = []
        while reader.token.kind == "name" and (
            axes or reader.token.text != "where" or reader.following().text == "in"
        ):
            iter = self.new_name(reader, names | {axis.iter for axis in axes})
            reader.expect("in")
            start = reader.index()
            reader.expect("+:")
            axes.append(TileAxis(iter, start, reader.index()))
            if not reader.accept(","):
                break
        inner = names | {axis.iter for axis in axes}
        reader.names = inner
        where = reader.condition() if reader.accept("where") else None
        role, form, microkernel = self.marks(reader, "a tile", _ROLES, _FORMS, True)
        return Tile(tuple(axes), self.block(inner), where, form, role, microkernel)

    def marks(
        self,
        reader: _Reader,
        what: str,
        roles: Mapping[str, Role],
        forms: Mapping[str, Form],
        covered: bool,
    ) -> tuple[Role, Form, str | None]:
        """``@body @mask @microkernel(name)``, each kind at most once, to the end of the line."""
        role: Role | None = None
        form: Form | None = None
        microkernel: str | None = None
        while reader.token.kind != "end":
            reader.expect("@")
            mark = reader.token
            if mark.text in roles and role is None:
                role = roles[reader.advance().text]
            elif mark.text in forms and form is None:
                form = forms[reader.advance().text]
            elif mark.text == "microkernel" and covered and microkernel is None:
                reader.advance()
                bracket = reader.expect("(")
                microkernel = reader.raw("the name of a microkernel", ")")
                reader.close(bracket, ")")
            else:
                known = [*roles, *forms, *(["microkernel(…)"] if covered else [])]
                repeated = mark.text in (*roles, *forms, "microkernel")
                repeated = repeated and any(k.startswith(mark.text) for k in known)
                raise reader.refuse(
                    f"cannot mark {what} with @{mark.text}",
                    "it has such a mark already" if repeated else "there is no such mark",
                    f"marks of {what}: {', '.join('@' + k for k in known)}",
                )
        return role or Role.WHOLE, form or Form.FULL, microkernel

    def store(self, reader: _Reader) -> Store:
        token = reader.advance()
        buffer = reader.buffer(token)
        if buffer.kind in _READ_ONLY:
            raise reader.refuse(
                f"cannot write `{buffer.name}`",
                f"it is declared {buffer.kind.value}, which is read only",
                "output, local and private buffers are written",
                column=token.start,
            )
        parts = reader.subscript(buffer)
        index = tuple(reader.typed(part, "index", "an index") for part in parts)
        reduce = self.assignment(reader)
        value = reader.typed(reader.expression(), buffer.dtype, f"an element of {buffer.name}")
        reader.finish()
        return Store(buffer.name, index, value, reduce)

    def assignment(self, reader: _Reader) -> str | None:
        """``=`` or a reduce mark: ``+=``, ``max=``, ``min=``."""
        if reader.accept("="):
            return None
        if reader.accept("+="):
            return "sum"
        if reader.token.text in ("max", "min") and reader.following().text == "=":
            op = reader.advance().text
            reader.advance()
            return op
        raise reader.expected("=, +=, max= or min=")

    def choose(self, reader: _Reader, names: frozenset[str]) -> Choose:
        reader.advance()
        reader.finish()
        options: list[Option] = []
        line = self.line
        if line is not None and self.opens(line):
            self.open(line)
            while (line := self.here()) is not None:
                self.position += 1
                options.append(self.option(self.reader(line, names, readable=False), names))
            self.levels.pop()
        return Choose(tuple(options))

    def option(self, reader: _Reader, names: frozenset[str]) -> Option:
        if not reader.at("option"):
            raise reader.expected("`option`")
        reader.advance()
        label = reader.raw("a label", "costs")
        reader.expect("costs")
        cost = reader.typed(reader.expression(), "float64", "a cost")
        reader.finish()
        return Option(label, cost, self.block(names))


def parse(text: str) -> Program:
    """The program that `text` says, in the syntax that ``str(program)`` writes.

    ``parse(str(program)) == program``. Blank lines and ``# comments`` may stand anywhere, any
    consistent indentation will do, ``0 <= i < n`` is two comparisons joined by `and`, and a
    program without a header is called "program".

    >>> print(parse("size n in 0:9\noutput C: int32[n]\nfor i in 0:n\n    C[i] = int32(i)"))
    program program
    size n in 0:9
    output C: int32[n]
    for i in 0:n
      C[i] = int32(i)

    Raises ParseError, with line and column, for any other text.
    """
    return _Statements(_lines(text)).program()


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
    lines = _lines(text)
    if len(lines) != 1:
        raise ParseError(
            "parse",
            "cannot read an expression",
            because=f"an expression is one line, this has {_count(len(lines), 'line')}",
        )
    declared = {buffer.name: buffer for buffer in buffers}
    reader = _Reader(lines[0], declared, None if names is None else frozenset(names))
    value = reader.expression()
    reader.finish()
    if dtype is None:
        return reader.settled(value)[0]
    return reader.typed(value, dtype, "this expression")
