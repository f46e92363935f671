"""Whatever is printed is read back node for node, and no text breaks the parser."""

from __future__ import annotations

import math
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from offcut import parse
from offcut.core.dtypes import finite_range
from offcut.core.expr import (
    BITWISE,
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
    walk,
)
from offcut.core.function_table import FUNCTIONS, UNARY
from offcut.core.layout import Swizzle
from offcut.core.panels import panels, words
from offcut.core.program import (
    Buffer,
    Choose,
    Cover,
    For,
    Form,
    If,
    Kind,
    Let,
    Option,
    Program,
    Role,
    Size,
    Stmt,
    Store,
    Tile,
    TileAxis,
)
from offcut.core.text.expressions import parse_expr
from offcut.core.text.printer import format_expr
from offcut.errors import ParseError

n, m = Var("n"), Var("m")
BUFFERS = (
    Buffer("A", "float32", (n, m), Kind.INPUT),
    Buffer("W", "bfloat16", (m, Const(8, "index")), Kind.CONSTANT, panels(16)),
    Buffer("T", "int32", (n,), Kind.LOCAL, replace(words((0, 4)), swizzle=Swizzle(1, 2, 3))),
    Buffer("exp", "float64", (), Kind.PRIVATE),
    Buffer("C", "float32", (n, m), Kind.OUTPUT),
)
WRITTEN = [buffer for buffer in BUFFERS if buffer.kind not in (Kind.INPUT, Kind.CONSTANT)]
FLOATS = ("float32", "bfloat16", "float64")
VALUES = (*FLOATS, "int32")
ROLES, FORMS = st.sampled_from(list(Role)), st.sampled_from(list(Form))


def reads_nothing(expr: Expr) -> bool:
    return not any(isinstance(node, Load) for node in walk(expr))


@st.composite
def leaves(draw: st.DrawFn, dtype: str, names: tuple[str, ...], literal: bool = True) -> Expr:
    if dtype == "bool":
        return Const(draw(st.integers(0, 1)), "bool")
    if literal and draw(st.booleans()):
        if dtype in FLOATS:
            least, most = map(float, finite_range(dtype))
            whole = st.integers(max(int(least), -(2**70)), min(int(most), 2**70))
            numbers = st.floats(least, most) | st.sampled_from([-math.inf, math.inf]) | whole
            return Const(draw(numbers), dtype)
        return Const(draw(st.integers(-(2**31), 2**31 - 1)), dtype)
    if dtype == "index":
        return Var(draw(st.sampled_from(names)))
    buffer = next(b for b in BUFFERS if b.dtype == dtype)
    return Load(buffer.name, tuple(draw(exprs("index", names, 0)) for _ in buffer.shape), dtype)


@st.composite
def exprs(draw: st.DrawFn, dtype: str, names: tuple[str, ...], depth: int = 3) -> Expr:
    if depth == 0 or draw(st.integers(0, 3)) == 0:
        return draw(leaves(dtype, names))

    def part(of: str) -> Expr:
        return draw(exprs(of, names, depth - 1))

    if dtype == "bool":
        kind = draw(st.sampled_from(["compare", "and", "or", "not", "equal"]))
        if kind == "compare":
            of = draw(st.sampled_from(["index", *VALUES]))
            op = draw(st.sampled_from(["<", "<=", ">", ">=", "==", "!="]))
            return Compare(op, part(of), part(of))
        if kind == "equal":
            return Compare(draw(st.sampled_from(["==", "!="])), part("bool"), part("bool"))
        if kind == "not":
            return Logic("not", (part("bool"),))
        return Logic(kind, tuple(part("bool") for _ in range(draw(st.integers(2, 3)))))
    kind = draw(st.sampled_from(["binary", "binary", "divide", "unary", "select", "cast", "table"]))
    if kind == "divide":
        divisor: Expr = draw(leaves(dtype, names, literal=False) | divisors(dtype))
        return Binary(draw(st.sampled_from(["//", "%"])), part(dtype), divisor)
    if kind == "unary":
        taken = [name for name in UNARY if dtype in FLOATS or FUNCTIONS[name].integers]
        return Unary(draw(st.sampled_from(["neg", *taken])), part(dtype))
    if kind == "select":
        return Select(part("bool"), part(dtype), part(dtype))
    if kind == "cast":
        return Cast(part(draw(st.sampled_from(["bool", "index", *VALUES]))), dtype)
    if kind == "table" and dtype == "float64":
        return Lookup(tuple(draw(st.lists(st.floats(allow_nan=False)))), part("index"))
    more = ["/", "%", "pow"] if dtype in FLOATS else BITWISE if dtype == "int32" else []
    ops = ["+", "-", "*", "min", "max", *more]
    return Binary(draw(st.sampled_from(ops)), part(dtype), part(dtype))


def divisors(dtype: str) -> st.SearchStrategy[Expr]:
    return st.integers(1, 99).map(lambda value: Const(value, dtype))


@st.composite
def blocks(draw: st.DrawFn, names: tuple[str, ...], depth: int) -> tuple[Stmt, ...]:
    return tuple(draw(st.lists(statements(names, depth), max_size=2)))


@st.composite
def statements(draw: st.DrawFn, names: tuple[str, ...], depth: int) -> Stmt:
    kinds = ["store", "for", "if", "let", "tile", "choose"] if depth else ["store"]
    kind, fresh = draw(st.sampled_from(kinds)), f"i{len(names)}"
    index = exprs("index", names, 2)
    if kind == "store":
        buffer = draw(st.sampled_from(WRITTEN))
        at = tuple(draw(index) for _ in buffer.shape)
        reduce = draw(st.sampled_from([None, "sum", "max", "min"]))
        return Store(buffer.name, at, draw(exprs(buffer.dtype, names)), reduce)
    if kind == "for":
        body = draw(blocks((*names, fresh), depth - 1))
        return For(fresh, draw(index), draw(index), body, draw(ROLES))
    if kind == "if":
        block = blocks(names, depth - 1)
        return If(draw(exprs("bool", names)), draw(block), draw(block))
    if kind == "let":
        lo, hi = draw(st.integers(-9, 9)), draw(st.integers(-9, 9))
        return Let(fresh, lo, hi, draw(index), draw(blocks((*names, fresh), depth - 1)))
    if kind == "tile":
        iters = [f"{fresh}.o{k}" for k in range(draw(st.integers(0, 3)))]
        inner = (*names, *iters)
        return Tile(
            tuple(TileAxis(iter, draw(index), draw(index)) for iter in iters),
            draw(blocks(inner, depth - 1)),
            draw(st.none() | exprs("bool", inner)),
            draw(FORMS),
            draw(ROLES),
            draw(st.sampled_from([None, Cover("fma"), Cover("avx512.f32 14×32")])),
        )
    costs = exprs("float64", names, 2).filter(reads_nothing)
    options = st.builds(Option, st.sampled_from(["cut", "14×32"]), costs, blocks(names, depth - 1))
    return Choose(tuple(draw(st.lists(options, min_size=1, max_size=2))))


@st.composite
def programs(draw: st.DrawFn) -> Program:
    sizes = (Size("n", 1, draw(st.integers(64, 2**31 - 1)), draw(st.integers(1, 9))), Size("m"))
    facts = exprs("bool", ("n", "m"), 2).filter(reads_nothing)
    assumptions = tuple(draw(st.lists(facts, max_size=2)))
    return Program("C", sizes, assumptions, BUFFERS, draw(blocks(("n", "m"), 3)))


NAMES = ("n", "m", "i", "where", "max", "C.i")


@given(st.data(), st.sampled_from(["index", "bool", *VALUES]))
@settings(max_examples=25, deadline=None)
def test_an_expression_is_read_back_as_it_was_printed(data: st.DataObject, dtype: str) -> None:
    expr = data.draw(exprs(dtype, NAMES, 4))
    assert parse_expr(format_expr(expr), dtype, buffers=BUFFERS, names=NAMES) == expr


@given(st.data(), st.sampled_from(VALUES), st.sampled_from(["sum", "max", "min"]))
@settings(max_examples=12, deadline=None)
def test_a_reduction_is_read_back_as_it_was_printed(
    data: st.DataObject, dtype: str, op: str
) -> None:
    value = data.draw(exprs(dtype, NAMES, 2).filter(lambda e: not reads_nothing(e)))
    expr = Reduce(op, value, data.draw(st.sampled_from([("i",), ("i", "max")])))
    assert parse_expr(format_expr(expr), dtype, buffers=BUFFERS) == expr


@given(programs())
@settings(max_examples=25, deadline=None)
def test_a_program_is_read_back_as_it_was_printed(program: Program) -> None:
    assert parse(str(program)) == program


@given(programs(), st.sampled_from([" ", "\t", "   "]))
@settings(max_examples=12, deadline=None)
def test_indentation_blank_lines_and_comments_do_not_matter(program: Program, step: str) -> None:
    lines = []
    for line in str(program).split("\n"):
        depth = (len(line) - len(line.lstrip(" "))) // 2
        lines += [f"  {step * depth}{line.lstrip(' ')}  # why", "", "# a line of its own"]
    assert parse("\r\n".join(lines)) == program


def read_or_refusal(text: str) -> Program | ParseError:
    try:
        return parse(text)
    except ParseError as refused:
        return refused


SCRAPS = ["(", ")", "[", "]", ",", "  ", "\n", "\t", "@", "not ", "-", "1.5", "9" * 30, "if ", "q"]


@given(programs(), st.data())
@settings(max_examples=25, deadline=None)
def test_a_mutated_program_is_read_or_refused(program: Program, data: st.DataObject) -> None:
    text = str(program)
    for _ in range(data.draw(st.integers(1, 3))):
        begin = data.draw(st.integers(0, len(text)))
        end = data.draw(st.integers(begin, min(len(text), begin + 9)))
        scrap = data.draw(st.sampled_from(SCRAPS) | st.text(max_size=3))
        other = data.draw(st.integers(0, len(text)))
        text = (
            text[:begin] + data.draw(st.sampled_from([scrap, text[other : other + 9]])) + text[end:]
        )
    read = read_or_refusal(text)
    if isinstance(read, ParseError):
        assert read.at.startswith("line ")
        assert read.because
    else:
        assert parse(str(read)) == read


@given(st.text())
@settings(max_examples=50, deadline=None)
def test_any_text_is_read_or_refused(text: str) -> None:
    read = read_or_refusal(text)
    assert isinstance(read, Program) or read.at.startswith("line ")
