"""The expressions of the loop syntax read back: ``parse_expr(format_expr(e)) == e``.

The tokens of a line (`tokens`) are read by precedence climbing into the nodes that the text shows,
with nothing simplified; their literals take the type of what they meet (`element_types`). Names are
contextual: ``exp`` is a function where ``(`` follows, a buffer before ``[``, else a variable.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise

from offcut.core.conditions import conjunction
from offcut.core.dtypes import DTYPES, FLOATS
from offcut.core.expr import (
    BITWISE,
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
)
from offcut.core.function_table import PAIRED, UNARY
from offcut.core.program import Buffer
from offcut.core.text.element_types import (
    OPEN,
    TypedNode,
    TypeInference,
    has_point,
    literal_error,
)
from offcut.core.text.tokens import LITERALS, Line, Token, read_lines
from offcut.errors import ParseError

_OR, _AND, _NOT, _COMPARE, _SUM, _PRODUCT = range(6)
_ARITHMETIC = {"+": _SUM, "-": _SUM, "*": _PRODUCT, "/": _PRODUCT, "//": _PRODUCT, "%": _PRODUCT}
_COMPARISONS = ("<", "<=", ">", ">=", "==", "!=")
_REDUCERS = ("sum", "max", "min")
_PAIRED = (*PAIRED, *BITWISE)
_FUNCTIONS = (*UNARY, *_PAIRED, "where")

# Deeper text is refused, long before Python's own stack would overflow.
_MAX_BRACKETS = 80


class Reader(TypeInference):
    """The tokens of one line, from left to right, and the expressions among them.

    buffers   what may be read
    names     coordinates and sizes in scope; None accepts every name
    empty     coordinates of the loops above, beside the line, that contain nothing
    """

    def __init__(
        self, line: Line, buffers: Mapping[str, Buffer], names: frozenset[str] | None
    ) -> None:
        super().__init__(line)
        self.buffers, self.names, self.depth = buffers, names, 0
        self.empty = frozenset[str]()

    def _node(self, expr: Expr, dtype: str, column: int, *parts: TypedNode) -> TypedNode:
        height = 1 + max((part.height for part in parts), default=0)
        if height > MAX_HEIGHT:
            raise self._too_deep(f"more than {MAX_HEIGHT} operations", column)
        return TypedNode(expr, dtype, column, height)

    def _too_deep(self, what: str, column: int) -> ParseError:
        return self.refuse("cannot read an expression so deep", f"{what} are nested", column=column)

    def index(self) -> Expr:
        """An integer expression in coordinates and sizes."""
        return self.expression_of_type(self.expression(), "index", "an index")

    def condition(self) -> Expr:
        """An expression of type bool."""
        return self.expression_of_type(self.expression(), "bool", "a condition")

    def expression(self, weakest: int = _OR) -> TypedNode:
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

    def _arithmetic(self, left: TypedNode, strength: int) -> TypedNode:
        op = self.advance().text
        right = self.expression(strength + 1)
        return self._binary(op, left, right, f"an operand of `{op}`")

    def _binary(self, op: str, left: TypedNode, right: TypedNode, what: str) -> TypedNode:
        for operand in (left, right):
            if operand.dtype == "bool":
                raise self.refuse(
                    f"cannot take a condition as {what}",
                    "it is an operation on numbers",
                    "`and`, `or` and `not` combine conditions",
                    column=operand.column,
                )
        (a, b), dtype = self.unify((left, right), what)
        if op == "/":
            self.check_division(dtype, left.column)
        if op not in _ARITHMETIC:
            self.check_function(op, dtype, left.column)
        floats = dtype in FLOATS or (dtype == OPEN and has_point(b))
        if op in ("//", "%") and not floats and isinstance(b, Const) and not b.value > 0:
            raise self.refuse(
                f"cannot divide by {b.value}",
                f"`{op}` is the floor for positive divisors",
                column=right.column,
            )
        return self._node(Binary(op, a, b), dtype, left.column, left, right)

    def _comparison(self, left: TypedNode) -> TypedNode:
        operands, ops = [left], []
        while self.token.kind == "op" and self.token.text in _COMPARISONS:
            ops.append(self.advance().text)
            operands.append(self.expression(_SUM))
        steps = []
        for op, pair in zip(ops, pairwise(operands), strict=True):
            (a, b), dtype = self.unify(pair, f"a side of `{op}`")
            if dtype == OPEN:
                wanted = "float64" if has_point(a) or has_point(b) else "index"
                a, b = (self.of_type(side, wanted) for side in pair)
            if dtype == "bool" and op not in ("==", "!="):
                raise self.refuse(
                    f"cannot order conditions by `{op}`",
                    "they are equal or not",
                    "`and` joins two conditions",
                    column=left.column,
                )
            steps.append(Compare(op, a, b))
        whole = conjunction(steps)
        return self._node(whole, "bool", left.column, *operands)

    def _logic(self, left: TypedNode, op: str) -> TypedNode:
        parts = [left]
        while self.accept(op):
            parts.append(self.expression((_AND if op == "and" else _OR) + 1))
        args = tuple(
            self.expression_of_type(part, "bool", f"an operand of `{op}`") for part in parts
        )
        return self._node(Logic(op, args), "bool", left.column, *parts)

    def _prefix(self, weakest: int) -> TypedNode:
        column = self.token.start
        if self.at("not"):
            if weakest > _NOT:
                raise self.refuse(
                    "cannot read this line", "`not` binds weaker than what is around it", "(not …)"
                )
            self.advance()
            arg = self.expression(_NOT)
            negated = self.expression_of_type(arg, "bool", "the operand of `not`")
            return self._node(Logic("not", (negated,)), "bool", column, arg)
        if not self.accept("-"):
            return self._atom()
        if self.token.kind == "number":
            return self._node(Const(self.number(self.advance(), True, column), OPEN), OPEN, column)
        if self.token.text in LITERALS:
            return self._node(Const(self.named_float(True), OPEN), OPEN, column)
        arg = self.expression(_PRODUCT + 1)
        if arg.dtype == "bool":
            raise self.mixed_types_error(arg, "a number", "the operand of `-`")
        return self._node(Unary("neg", arg.expr), arg.dtype, column, arg)

    def _atom(self) -> TypedNode:
        token = self.token
        if token.kind == "number":
            self.advance()
            return TypedNode(Const(self.number(token, False, token.start), OPEN), OPEN, token.start)
        if self.accept("("):
            inside = self.expression()
            self.close(token, ")")
            return inside
        if self.accept("["):
            return self._lookup(token)
        if token.kind != "name":
            raise self.expected_error("an expression")
        if token.text in ("true", "false"):
            self.advance()
            return TypedNode(Const(int(token.text == "true"), "bool"), "bool", token.start)
        if token.text in LITERALS:
            return TypedNode(Const(self.named_float(False), OPEN), OPEN, token.start)
        name = self.name("a name")
        if self.at("("):
            return self._call(token)
        if self.at("["):
            buffer = self.buffer(token)
            parts = self.subscript(buffer)
            load = Load(
                name,
                tuple(self.expression_of_type(p, "index", "an index") for p in parts),
                buffer.dtype,
            )
            return self._node(load, buffer.dtype, token.start, *parts)
        if self.names is not None and name not in self.names:
            because, *help = f"no size and no loop around it has the name {name}", *self._nearest()
            if name in self.buffers:
                because, help = f"{name} is a buffer", [f"{name}[…] reads an element"]
            if name in self.empty:
                help = [f"for {name} contains what is indented below it: indent this line", *help]
            raise self.refuse(f"cannot use `{name}` here", because, *help, column=token.start)
        return TypedNode(Var(name), "index", token.start)

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

    def subscript(self, buffer: Buffer) -> tuple[TypedNode, ...]:
        """``[index, …]``, one for each axis of `buffer`."""
        parts = self.comma_list(self.expect("["), "]")
        if len(parts) != len(buffer.shape):
            raise self.refuse(
                f"cannot access `{buffer.name}` with {count(len(parts), 'index', 'indices')}",
                f"{buffer.name} has {count(len(buffer.shape), 'axis', 'axes')}",
                f"{buffer.name}[{', '.join('…' for _ in buffer.shape)}]",
                column=self.line.tokens[self.position - 1].start,
            )
        return parts

    def comma_list(self, bracket: Token, stop: str) -> tuple[TypedNode, ...]:
        """Expressions separated by commas up to `stop`; a comma may end them."""
        parts: list[TypedNode] = []
        while not self.at(stop):
            parts.append(self.expression())
            if not self.accept(","):
                break
        self.close(bracket, stop)
        return tuple(parts)

    def _lookup(self, bracket: Token) -> TypedNode:
        values: list[float] = []
        while not self.at("]"):
            column, negative = self.token.start, self.accept("-")
            if self.token.text in LITERALS:
                value: int | float = self.named_float(negative)
            elif self.token.kind == "number":
                value = self.number(self.advance(), negative, column)
            else:
                raise self.expected_error("a number of the table")
            self.check_literal(value, "float64", column)
            values.append(float(value))
            if not self.accept(","):
                break
        self.close(bracket, "]")
        opened = self.expect("[")
        position = self.expression()
        self.close(opened, "]")
        at = self.expression_of_type(position, "index", "the index of a table")
        return self._node(Lookup(tuple(values), at), "float64", bracket.start, position)

    def _call(self, function: Token) -> TypedNode:
        name, column = function.text, function.start
        args = self.comma_list(self.expect("("), ")")
        if name in _REDUCERS and self._is_reduction(name, args):
            return self._reduction(name, args, column)
        wanted = 3 if name == "where" else 2 if name in _PAIRED else 1
        known = name in (*_FUNCTIONS, "index", *DTYPES)
        if not known:
            raise self.refuse(
                f"cannot call `{name}`",
                "there is no function and no element type of that name",
                f"functions: {', '.join(_FUNCTIONS)}",
                f"element types: {', '.join(DTYPES)}, index",
                column=column,
            )
        if len(args) != wanted:
            raise self.refuse(
                f"cannot call `{name}` with {count(len(args), 'argument')}",
                f"it takes {wanted}",
                column=column,
            )
        if name in _PAIRED:
            return self._binary(name, args[0], args[1], f"an operand of {name}")
        if name == "where":
            condition = self.expression_of_type(args[0], "bool", "a condition")
            (then, other), dtype = self.unify(args[1:], "a branch of where")
            return self._node(Select(condition, then, other), dtype, column, *args)
        if name == "bool" and isinstance(literal := args[0].expr, Const):
            return TypedNode(Const(int(literal.value != 0), "bool"), "bool", column)
        if name in DTYPES or name == "index":
            return self._node(self._cast(args[0], name), name, column, *args)
        if args[0].dtype == "bool":
            raise self.mixed_types_error(args[0], "a number", f"the operand of {name}")
        self.check_function(name, args[0].dtype, column)
        return self._node(Unary(name, args[0].expr), args[0].dtype, column, *args)

    def _cast(self, value: TypedNode, dtype: str) -> Expr:
        """A literal of `dtype`, where it holds it; else `value` converted."""
        expr = value.expr
        if isinstance(expr, Const) and value.dtype == OPEN and not literal_error(expr.value, dtype):
            return Const(expr.value, dtype)
        return Cast(self.default_type(value)[0], dtype)

    def _is_reduction(self, name: str, args: tuple[TypedNode, ...]) -> bool:
        """``max(x, k)`` reduces over k where x is a value; where x is an index it is the larger."""
        if name == "sum" or len(args) != 2:
            return True
        value, axis = args
        is_value = has_point(value.expr) if value.dtype == OPEN else value.dtype != "index"
        return is_value and isinstance(axis.expr, Var)

    def _reduction(self, name: str, args: tuple[TypedNode, ...], column: int) -> TypedNode:
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
        return reader.default_type(value)[0]
    return reader.expression_of_type(value, dtype, "this expression")
