from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from conftest import rejection
from hypothesis import given, settings
from hypothesis import strategies as st

from offcut import Program, parse
from offcut.core.interpret.interpreter import run
from offcut.errors import CallError, InternalError
from offcut.ir import (
    Binary,
    Buffer,
    Cast,
    Choose,
    Compare,
    Expr,
    Kind,
    Logic,
    Select,
    Store,
    Tile,
    TileAxis,
    Var,
)
from tests.facade import const, evaluate, format_expr, numpy_dtype

INDEX_NAMES = ("i", "j", "n")


@st.composite
def index_exprs(draw: st.DrawFn, depth: int = 4) -> Expr:
    if depth == 0 or draw(st.integers(0, 3)) == 0:
        return draw(
            st.sampled_from([Var(name) for name in INDEX_NAMES]) | st.integers(-9, 9).map(const)
        )
    a, b = draw(index_exprs(depth - 1)), draw(index_exprs(depth - 1))
    kind = draw(st.sampled_from(["+", "-", "*", "//", "%", "min", "max", "where"]))
    if kind in ("//", "%"):
        return Binary(kind, a, const(draw(st.integers(1, 9))))
    if kind == "where":
        compare = Compare(draw(st.sampled_from(["<", "<=", "==", "!="])), a, b)
        both = Logic(draw(st.sampled_from(["and", "or"])), (compare, Compare(">", a, const(0))))
        return Select(Logic("not", (both,)), a, b)
    return Binary(kind, a, b)


@given(index_exprs(), st.integers(1, 6), st.booleans())
@settings(max_examples=60, deadline=None)
def test_a_tile_of_any_expression_is_pythons_own_loops(expr: Expr, n: int, inner: bool) -> None:
    i, j = Var("i"), Var("j")
    out = Buffer("C", "int64", (Var("n"), const(3)), Kind.OUTPUT)
    store = Store("C", (i, j), Cast(expr, "int64"))
    axes = (TileAxis("i", const(0), Var("n")), TileAxis("j", const(0), const(3)))
    tiles = (Tile(axes[:1], (Tile(axes[1:], (store,)),)),) if inner else (Tile(axes, (store,)),)
    program = parse(str(Program("P", parse("size n in 0:9").sizes, (), (out,), tiles)))
    meaning = {"where": lambda c, a, b: a if c else b, "min": min, "max": max, "n": n}
    code = compile(format_expr(expr), "expression", "eval")
    expected = [[eval(code, {**meaning, "i": a, "j": b}) for b in range(3)] for a in range(n)]
    np.testing.assert_array_equal(run(program, {}, {"n": n})["C"], expected)
    assert evaluate(expr, {"i": 0, "j": 2, "n": n}) == expected[0][2]


def values(dtype: str, expr: str, *inputs: Any) -> np.ndarray[Any, Any]:
    """`expr` of A and B, element by element, in a tile."""
    arrays = dict(zip("AB", (np.asarray(i, numpy_dtype(dtype)) for i in inputs), strict=False))
    declared = "".join(f"input {name}: {dtype}[n]\n" for name in arrays)
    text = f"size n in 0:99\n{declared}output C: {dtype}[n]\ntile i in 0 +: n\n  C[i] = {expr}"
    result = run(parse(text), arrays)["C"]
    assert result.dtype == numpy_dtype(dtype)
    return result


def test_values_are_computed_in_their_element_type() -> None:
    assert values("float32", "A[i] + 1", [2**24])[0] == 2**24
    assert values("float64", "A[i] + 1", [2**24])[0] == 2**24 + 1
    assert values("bfloat16", "A[i] + 1", [256])[0] == 256
    assert values("uint8", "A[i] + 1", [255])[0] == 0
    assert values("float16", "A[i] * 2", [65504])[0] == math.inf


def test_the_branch_not_taken_is_not_accessed() -> None:
    shifted = values("float32", "where(0 < i and i < n, A[where(0 < i, i - 1, 0)], 7.0)", [1, 2, 3])
    assert shifted.tolist() == [7, 1, 2]
    assert values("float32", "where(i + 1 < n, A[i + 1], 0.0)", [1, 2, 3]).tolist() == [2, 3, 0]


@pytest.mark.parametrize(
    ("mark", "expected", "dtype"),
    [("+=", 7, "bfloat16"), ("max=", 4, "float32"), ("min=", -1, "int8")],
)
def test_a_reduction_over_a_tile_axis_meets_every_instance(
    mark: str, expected: int, dtype: str
) -> None:
    start = {"+=": 0, "max=": -9, "min=": 9}[mark]
    text = f"""
        size n in 0:9
        input A: {dtype}[n]
        output C: {dtype}[]
        C[] = {start}
        tile i in 0 +: n where A[i] != 9
            C[] {mark} A[i]
    """
    a = np.array([4, 9, -1, 4, 9], numpy_dtype(dtype))
    assert run(parse(text), {"A": a})["C"] == expected


@pytest.mark.parametrize(
    ("tile", "wanted"),
    [
        ("tile i in 0 +: 4\n  C[i] = 0\n  for k in i:3\n    C[i] += int32(k)", [3, 3, 2, 0]),
        ("tile i in 0 +: 4\n  if i % 2 == 0\n    C[i] = 1\n  else\n    C[i] = 2", [1, 2, 1, 2]),
        ("for i in 0:4\n  tile\n    C[i] = 3", [3, 3, 3, 3]),
    ],
)
def test_loops_and_conditions_inside_a_tile_are_those_of_an_instance(
    tile: str, wanted: list[int]
) -> None:
    assert run(parse(f"output C: int32[4]\n{tile}"), {})["C"].tolist() == wanted


def test_what_is_never_written_shows() -> None:
    text = "output C: float32[2]\nlocal L: float32[2]\noutput T: int8[1]\nC[0] = L[1]"
    outputs = run(parse(text), {})
    assert np.isnan(outputs["C"]).all()
    assert outputs["T"].tolist() == [-91]


def test_a_private_buffer_is_fresh_in_every_instance() -> None:
    text = """
        private P: float32[]
        output C: float32[4]
        tile i in 0 +: 4
            if i < 2
                P[] = float32(i)
            C[i] = P[]
    """
    assert run(parse(text), {})["C"].tolist()[:2] == [0, 1]
    assert np.isnan(run(parse(text), {})["C"][2:]).all()


CHOICE = """\
size n in 0:9
output C: int32[]
choose
  option one costs float64(n)
    C[] = 1
  option two costs 4.0
    C[] = 2
"""


def test_the_cheapest_option_runs_and_the_first_of_equals() -> None:
    assert [int(run(parse(CHOICE), {}, {"n": n})["C"]) for n in (3, 4, 5)] == [1, 1, 2]


def test_an_option_can_be_forced_by_its_label() -> None:
    def last(stmt: Choose) -> str:
        return stmt.options[-1].label

    assert run(parse(CHOICE), {}, {"n": 0}, choose="two")["C"] == 2
    assert run(parse(CHOICE), {}, {"n": 0}, choose=last)["C"] == 2
    with rejection(
        "CallError: run: cannot choose 'three'\n  because  no option has that label\n  help     options: one, two"
    ):
        run(parse(CHOICE), {}, {"n": 0}, choose="three")


@pytest.mark.parametrize(
    ("statements", "what"),
    [
        (
            "for i_o in 0:2\n  tile i in 4*i_o +: 4\n    C[i] = A[i]",
            "[5] is outside A of shape (5,)\n"
            "  at       C[i] = A[i]\n"
            "  because  it runs at n = 5, i_o = 1, i = 5",
        ),
        ("C[n] = 1.0", "[5] is outside C of shape (5,)\n  at       C[n] = 1.0"),
        ("C[-1] = 1.0", "[-1] is outside C"),
        ("C[0] = float32([1.0, 2.0][n])", "[5] is outside the table"),
        ("let t in 0:5 = n\n  C[0] = 1.0", "t = 5 is not in 0:5\n  at       let t in 0:5 = n"),
        ("for i in 0:n//(5 - n)", "// by 0, which is not positive"),
        ("tile i in 0 +: n\n  C[0] = float32(i)", "two instances of one tile store different values in C"),
    ],
)  # fmt: skip
def test_a_program_that_breaks_a_promise_is_stopped(statements: str, what: str) -> None:
    text = f"size n in 0:9\ninput A: float32[n]\noutput C: float32[n]\n{statements}"
    with pytest.raises(InternalError) as stopped:
        run(parse(text), {"A": np.zeros(5, np.float32)})
    assert what in str(stopped.value)


def test_a_masked_lane_touches_nothing() -> None:
    text = "size n in 0:9\ninput A: float32[n]\noutput C: float32[n]\n"
    text += "tile i in -2 +: 12 where 0 <= i < n  @pad\n  C[i] = A[i]"
    a = np.arange(5, dtype=np.float32)
    assert run(parse(text), {"A": a})["C"].tolist() == a.tolist()
    assert run(parse(text), {"A": a[:0]})["C"].tolist() == []


def test_sizes_are_solved_from_shapes() -> None:
    text = """
        size n in 0:99
        size m in 0:99
        input A: float32[n + m, 2]
        input B: float32[2*n + 1]
        output C: int32[2]
        C[0] = int32(n)
        C[1] = int32(m)
    """
    inputs = {"A": np.zeros((7, 2), np.float32), "B": np.zeros(9, np.float32)}
    assert run(parse(text), inputs)["C"].tolist() == [4, 3]
    assert run(parse(text), inputs, {"m": 3})["C"].tolist() == [4, 3]


CALLED = """\
program P
size n in 2:9 multiple_of 2
size m in 0:9
assume m <= n
input A: float32[n, 3]
output C: float32[n - m]
"""
A = np.zeros((4, 3), np.float32)


@pytest.mark.parametrize(
    ("inputs", "sizes", "refusal"),
    [
        ({}, {"n": 4, "m": 0}, """\
run: cannot run without A
  at       input A: float32[n, 3]
  because  it is not given"""),
        ({"A": A, "B": A}, {}, """\
run: cannot take an input B
  because  program P reads no such buffer
  help     inputs: A"""),
        ({"A": A.astype(np.float64)}, {}, """\
run: cannot take A of float64
  at       input A: float32[n, 3]
  because  its elements are float32
  help     A.astype("float32")"""),
        ({"A": A[0]}, {}, """\
run: cannot take A of shape (3,)
  at       input A: float32[n, 3]
  because  it has 2 axes, not 1"""),
        ({"A": A[:, :2]}, {"m": 0}, """\
run: cannot take A of shape (4, 2)
  at       input A: float32[n, 3]
  because  axis 1 is 3, not 2"""),
        ({"A": A}, {"n": 6, "m": 0}, """\
run: cannot take A of shape (4, 3)
  at       input A: float32[n, 3]
  because  axis 0 is 6 at n = 6, not 4"""),
        ({"A": A}, {}, """\
run: cannot run without the size m
  because  no shape of an input determines it
  help     run(…, m=0)"""),
        ({"A": A}, {"m": 0, "k": 1}, """\
run: cannot take a size k
  because  program P has no such size
  help     sizes: n, m"""),
        ({"A": A}, {"m": 0.5}, """\
run: cannot take m = 0.5
  because  a size is an integer"""),
        ({"A": A[:3]}, {"m": 0}, """\
run: cannot take n = 3
  at       axis 0, of 3, of input A: float32[n, 3]
  because  n is in 2…8, a multiple of 2"""),
        ({"A": A[:0]}, {"m": 0}, """\
run: cannot take n = 0
  at       axis 0, of 0, of input A: float32[n, 3]
  because  n is in 2…8, a multiple of 2"""),
        ({"A": A}, {"m": 5}, """\
run: cannot run at m = 5, n = 4
  at       program P
  because  it assumes m <= n"""),
    ],
)  # fmt: skip
def test_arguments_that_do_not_fit_are_refused(
    inputs: dict[str, Any], sizes: dict[str, Any], refusal: str
) -> None:
    with rejection(f"CallError: {refusal}"):
        run(parse(CALLED), inputs, sizes)
    assert run(parse(CALLED), {"A": A}, {"m": 0})["C"].shape == (4,)


def test_extents_that_no_sizes_make_are_refused() -> None:
    with rejection("""\
CallError: run: cannot take A of shape (4,)
  at       input A: float32[2*n + 1]
  because  axis 0 is 4, and no n makes 2*n + 1 that"""):
        run(parse("size n in 0:9\ninput A: float32[2*n + 1]"), {"A": np.zeros(4, np.float32)})
    with pytest.raises(CallError, match="the extent n - 3 would be -1"):
        run(parse("size n in 0:9\noutput C: float32[n - 3]"), {}, {"n": 2})


WINDOW_OF_INNER_LOOP = """program window
size n in 0:100
input X: float32[n, 4]
output Y: float32[n, 4]
local T: float32[n, 4]
for b in 0:n
  for c in b:b + 1
    alloc T[b +: c - b + 1, 0 +: 4]
      tile j in 0 +: 4
        T[c, j] = X[c, j]
      tile j in 0 +: 4
        Y[c, j] = T[c, j] * 2.0
"""


@pytest.mark.parametrize("n", [0, 1, 3])
def test_a_window_whose_extent_differs_where_nothing_runs_holds_what_runs(n: int) -> None:
    x = np.arange(n * 4, dtype=np.float32).reshape(n, 4)
    np.testing.assert_array_equal(parse(WINDOW_OF_INNER_LOOP).run({"X": x}), 2 * x)
