from __future__ import annotations

import pytest

from offcut import parse
from offcut.core.expr import Binary, Cast, Compare, Const, Load, Logic, Lookup, Reduce, Unary, Var
from offcut.core.panels import panels
from offcut.core.program import (
    Buffer,
    Cover,
    For,
    Form,
    Kind,
    Let,
    Program,
    Role,
    Size,
    Store,
    Tile,
    TileAxis,
)
from offcut.core.text.expressions import parse_expr
from offcut.errors import ParseError

# Every statement, mark and declaration, as the printer writes them.
EVERYTHING = """\
program dense
size n in 1:4097 multiple_of 2
size m in 0:2147483648
assume n <= 2*m
input A: float32[n, 768]
constant W: float32[768, 3072] @panels(0, 1, 16)
output C: float32[n, 3072]
local L: int8[2*n + 1]
private acc: float32[]
for i_o in 0:n//14  @body
  tile i in 14*i_o +: 14, j in 0 +: 32 where i < n and j < 32  @tail  @mask  @cover(fma 14×32)
    acc[] = 0.0
    for k in 0:768
      acc[] += A[i, k] * W[k, j]
    C[i, j] = where(acc[] > 0, acc[], -(acc[])) + exp(1.5) - -2.0
choose
  option balance costs 1e-06 * float64(n) + [1.0, 2.5][n % 2]
    let t in 1:15 = (n + 13)//14
      tile i in 0 +: t
        C[i, 0] max= min(2.0, 3.0)
  option cut costs 3
    if not n > 4 or m == 0
      C[0, 0] min= -inf
    else
      L[n] = int8(C[0, 0])
tile
  C[0, 0] = float32(n)
tile where n < 4  @pad
  if n == 2
  else
    C[0, 0] = inf"""

A = Buffer("A", "float32", (Var("n"),), Kind.INPUT)
B = Buffer("B", "int8", (), Kind.LOCAL)


def index(value: int) -> Const:
    return Const(value, "index")


def test_every_statement_is_read_back_as_it_was_printed() -> None:
    program = parse(EVERYTHING)
    assert str(program).split() == EVERYTHING.split()
    assert parse(str(program)) == program


def test_the_nodes_are_what_the_text_says() -> None:
    i, n = Var("i"), Var("n")
    text = """\
size n in 0:5
input A: float32[n]
constant W: float32[2, n] @panels(0, 1, 16)
output C: float32[n]
for i in 0:n  @tail
  let t in 1:3 = i % 2 + 1
    tile j in i +: 1 where j < n  @shift  @cover(fma)
      C[i] += A[j] * 2
"""
    tile = Tile(
        axes=(TileAxis("j", i, index(1)),),
        body=(
            Store(
                "C",
                (i,),
                Binary("*", Load("A", (Var("j"),), "float32"), Const(2, "float32")),
                "sum",
            ),
        ),
        where=Compare("<", Var("j"), n),
        form=Form.SHIFT,
        cover=Cover("fma"),
    )
    value = Binary("+", Binary("%", i, index(2)), index(1))
    assert parse(text) == Program(
        "program",
        (Size("n", 0, 4),),
        (),
        (
            Buffer("A", "float32", (n,), Kind.INPUT),
            Buffer("W", "float32", (index(2), n), Kind.CONSTANT, panels(16)),
            Buffer("C", "float32", (n,), Kind.OUTPUT),
        ),
        (For("i", index(0), n, (Let("t", 1, 3, value, (tile,)),), Role.TAIL),),
    )


@pytest.mark.parametrize(
    ("text", "expr"),
    [
        ("A[0] + 1", Binary("+", Load("A", (index(0),), "float32"), Const(1, "float32"))),
        ("1 + A[0]", Binary("+", Const(1, "float32"), Load("A", (index(0),), "float32"))),
        ("(1 + 2) * B[]", Binary("*", Binary("+", Const(1, "int8"), Const(2, "int8")), Load("B", (), "int8"))),
        ("1 < B[]", Compare("<", Const(1, "int8"), Load("B", (), "int8"))),
        ("float32(i + 1)", Cast(Binary("+", Var("i"), index(1)), "float32")),
        ("int8(1)", Const(1, "int8")),
        ("int8(-1)", Const(-1, "int8")),
        ("int8(128)", Cast(index(128), "int8")),
        ("int8(index(1))", Cast(index(1), "int8")),
        ("float64(float32(0.1))", Cast(Const(0.1, "float32"), "float64")),
        ("float64(float32(0.1) * 2)", Cast(Binary("*", Const(0.1, "float32"), Const(2, "float32")), "float64")),
        ("float32(0.1) < 0.2", Compare("<", Const(0.1, "float32"), Const(0.2, "float32"))),
        ("int8(1.0)", Cast(Const(1.0, "float64"), "int8")),
        ("[1, -inf][i]", Lookup((1.0, float("-inf")), Var("i"))),
        ("-3 * i", Binary("*", index(-3), Var("i"))),
        ("-(3)", Unary("neg", index(3))),
        ("-i", Unary("neg", Var("i"))),
        ("max(i, k)", Binary("max", Var("i"), Var("k"))),
        ("max(A[k], k)", Reduce("max", Load("A", (Var("k"),), "float32"), ("k",))),
        ("sum(A[k], k, i)", Reduce("sum", Load("A", (Var("k"),), "float32"), ("k", "i"))),
        ("where + max * exp", Binary("+", Var("where"), Binary("*", Var("max"), Var("exp")))),
    ],
)  # fmt: skip
def test_a_literal_takes_the_type_of_what_it_meets(text: str, expr: object) -> None:
    assert parse_expr(text, buffers=(A, B)) == expr


def test_operators_bind_as_in_python() -> None:
    i, j = Var("i"), Var("j")
    assert parse_expr("i - j - 1") == Binary("-", Binary("-", i, j), index(1))
    assert parse_expr("i + j*2//3 % 4") == Binary(
        "+", i, Binary("%", Binary("//", Binary("*", j, index(2)), index(3)), index(4))
    )
    a, b, c = (Compare("<", Var(x), index(1)) for x in "abc")
    assert parse_expr("not a < 1 and b < 1 or c < 1") == Logic(
        "or", (Logic("and", (Logic("not", (a,)), b)), c)
    )
    assert parse_expr("(a < 1 and b < 1) and c < 1") == Logic("and", (Logic("and", (a, b)), c))
    assert parse_expr("a < 1 and b < 1 and c < 1") == Logic("and", (a, b, c))


@pytest.mark.parametrize(
    "text",
    [
        "C[] = " + "(" * 5000 + "1.0" + ")" * 5000,
        "C[] = " + "-" * 5000 + "1.0",
        "C[] = " + "exp(" * 5000,
        "C[] = " + "1.0 + " * 5000 + "1.0",
        "if " + "not " * 5000 + "true",
        "\n".join(" " * depth + f"for i{depth} in 0:1" for depth in range(2000)),
        "C[] = 1" + "0" * 5000,
    ],
    ids=["brackets", "signs", "calls", "sum", "not", "blocks", "digits"],
)
def test_absurd_depth_is_refused(text: str) -> None:
    with pytest.raises(ParseError):
        parse("output C: float32[]\n" + text)
