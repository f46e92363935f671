"""Graphs: built, printed, parsed, interpreted and compiled; their extents have one form, and bounds."""

from __future__ import annotations

import random
from itertools import product
from math import inf

import numpy as np
import pytest
import sympy
from conftest import rejection

from offcut import dim
from offcut.core import index as ix
from offcut.core.intervals import interval_op
from offcut.core.sizes import quotient, with_sizes
from offcut.errors import CallError, DescribeError, ParseError
from offcut.graph.sizes import extents
from offcut.graph.sizes.extents import normal
from offcut.graph.sizes.floor_bounds import of_floors
from offcut.ir import Binary, Const, Expr, Size, Var
from tests.agree import agree, of_peer
from tests.compiled import floats
from tests.facade import (
    Bound,
    Builder,
    compile_graph,
    evaluate,
    format_expr,
    interpret_graph,
    parse_expr,
    parse_graph,
)
from tests.operators import near

TEXT = """\
graph net
size n in 1:65
size h in 8:65
size w in 8:65
input x: float32[n, 3, h, w]
constant k: float32[8, 3, 3, 3]
constant v: float32[8, 5]
c: float32[n, 8, (h + 1)//2, (w + 1)//2] = conv2d(x, k, activation="relu", padding=1, stride=2)
p: float32[n, 8, (h + 1)//4, (w + 1)//4] = max_pool2d(c, 2)
t: float32[n, (h + 1)//4, (w + 1)//4, 8] = transpose(p, axes=[0, 2, 3, 1])
r: float32[(h + 1)//4 * ((w + 1)//4) * n, 8] = reshape(t, [-1, 8])
d: float32[(h + 1)//4 * ((w + 1)//4) * n, 5] = dense(r, v)
s: float32[(h + 1)//4 * ((w + 1)//4) * n, 5] = softmax(d)
y: float32[(h + 1)//4 * ((w + 1)//4) * n, 10] = concat([d, s], axis=1)
output y, p"""


def arrays(shape: tuple[int, ...]) -> dict[str, np.ndarray]:
    return {"x": floats(shape, *shape)}


@pytest.fixture(scope="module")
def net() -> Bound:
    return Bound(parse_graph(TEXT), {"k": floats(1, 8, 3, 3, 3), "v": floats(2, 8, 5)})


def test_a_graph_prints_as_it_parses() -> None:
    assert str(parse_graph(TEXT)) == TEXT


def test_a_compiled_graph_gives_at_every_size_what_the_interpreter_gives(net: Bound) -> None:
    model = compile_graph(net)
    for shape in [(1, 3, 8, 8), (2, 3, 9, 11)]:
        found, expected = model(arrays(shape)), interpret_graph(net, arrays(shape))
        assert list(found) == list(expected) == ["y", "p"]
        for name in found:
            near(found[name], expected[name])


def test_what_a_call_gives_is_checked(net: Bound) -> None:
    with pytest.raises(CallError, match=r"cannot take x of shape \(1, 2, 8, 8\)"):
        interpret_graph(net, arrays((1, 2, 8, 8)))
    with pytest.raises(CallError, match="cannot take h = 7"):
        compile_graph(net)(arrays((1, 3, 7, 8)))


def test_a_result_of_another_type_than_its_operator_gives_is_refused() -> None:
    with rejection("""\
ParseError: parse: cannot take the result of max_pool2d so
  at       line 9, column 44: p: float32[n, 9, (h + 1)//4, (w + 1)//4] = max_pool2d(c, 2)
  because  it is float32[n, 8, (h + 1)//4, (w + 1)//4]"""):
        parse_graph(TEXT.replace("p: float32[n, 8,", "p: float32[n, 9,"))


def test_a_value_that_no_line_gives_is_refused() -> None:
    with pytest.raises(ParseError, match="no line before gives it"):
        parse_graph(TEXT.replace("output y", "output z"))


def test_an_operator_that_is_none_is_refused() -> None:
    made = Builder()
    x = made.input("x", "float32", (4,))
    with pytest.raises(DescribeError, match="cannot find the operator 'rulu'"):
        made.node("rulu", x)


def test_a_reshape_merges_symbolic_axes_and_finds_what_is_left() -> None:
    made = Builder()
    b, n = made.size("b"), made.size("n")
    x = made.input("x", "float32", (b, n, 12, 64))
    merged = made.node("reshape", x, [Binary("*", b, n), -1])
    back = made.node("reshape", merged, [n, -1, 768])
    assert made.shape(merged) == (Binary("*", b, n), Const(768, "index"))
    assert made.shape(back) == (n, b, Const(768, "index"))
    with pytest.raises(DescribeError, match="not seen to have as many elements"):
        made.node("reshape", x, [b, 767])


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Binary("*", Var("n"), Var("b")), Binary("*", Var("b"), Var("n"))),
        (
            Binary("*", Binary("+", Var("n"), Const(1, "index")), Var("b")),
            Binary("+", Binary("*", Var("b"), Var("n")), Var("b")),
        ),
        (
            Binary("//", Binary("//", Var("n"), Const(2, "index")), Const(3, "index")),
            Binary("//", Var("n"), Const(6, "index")),
        ),
        (Binary("-", Var("n"), Var("n")), Const(0, "index")),
    ],
)
def test_equal_extents_have_one_form(one: object, other: object) -> None:
    assert extents.normal(one) == extents.normal(other)  # type: ignore[arg-type]


def test_bounds_of_an_extent_hold_at_every_size() -> None:
    sizes = (Size("n", 1, 9), Size("m", 0, 4))
    expr = extents.normal(
        Binary(
            "//", Binary("*", Binary("+", Var("n"), Const(3, "index")), Var("m")), Const(2, "index")
        )
    )
    found = [(n + 3) * m // 2 for n in range(1, 10) for m in range(5)]
    assert extents.bounds(expr, sizes) == (min(found), max(found))


def test_conditions_run_through_a_graph_whose_values_have_names_of_the_loop_syntax() -> None:
    made = Builder("chosen")
    n = made.size("n", 0, 64)
    x, held = made.input("x", "float32", (n, 8)), made.input("m", "bool", (n, 1))
    kept = made.constant("k", np.arange(8) % 2 == 0)
    chosen = made.node("where", held, made.node("exp", x), 0.0)
    both = made.node("logical_and", made.node("greater", chosen, 1), kept)
    made.output(chosen, both, made.node("max", both, axis=-1), made.node("sin", chosen))
    named = parse_graph(str(made.graph).replace("_2", ""))
    assert [value.name for node in named.nodes for value in node.results][:2] == ["exp", "where"]
    bound = Bound(named, made.arrays)
    model = compile_graph(bound)
    for rows in (0, 1, 17):
        given = {"x": floats(rows, rows, 8), "m": floats("m", rows, 1) > 0}
        found, expected = model(given), interpret_graph(bound, given)
        for name, array in found.items():
            assert array.dtype == expected[name].dtype
            agree(array, of_peer(expected[name]))


def test_what_was_made_since_a_mark_is_taken_back() -> None:
    made = Builder("twice")
    x = made.input("x", "float32", (made.size("n"),))
    first = made.node("relu", x)
    before, mark = str(made.bound.graph), made.mark
    made.node("add", first, made.constant("one", np.float32(1)))
    assert made.back_to(mark) == {"add", "one"}
    assert (str(made.bound.graph), made.bound.arrays) == (before, {})

    made.output(made.node("add", first, made.constant("one", np.float32(2))))
    run = compile_graph(made.bound)
    np.testing.assert_array_equal(run(np.float32([-1, 3])), np.float32([2, 5]))


def test_extents_are_written_with_operators() -> None:
    made = Builder("wide")
    n, m = made.size("n"), made.size("m")
    shape = (2 * n + 1, n * m - 3, (m + 5) // 2, m % 4, 7 - m, n - m, -n + 8)
    made.output(made.input("x", "float32", shape))
    text = str(made.graph)
    assert (
        "x: float32[2*n + 1, m * n + -3, (m + 1)//2 + 2, m % 4, -1*m + 7, -1*m + n, -1*n + 8]"
        in text
    )
    assert str(parse_graph(text)) == text
    for other in (1.5, "n", None, True):
        with pytest.raises(TypeError):
            n + other


# Extents have one form: equal ones are equal, with as few terms as can be, and no value changes.


SIZES = [{"n": n, "m": m} for n, m in ((0, 0), (1, 5), (4, 1), (7, 3), (12, 8), (13, 2), (29, 31))]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("n + (0 - n) % 4", "4*((n + 3)//4)"),
        ("(n + (0 - n) % 4)//4", "(n + 3)//4"),
        ("n//4 + (0 - n//4 % 4) % 4", "4*((n//4 + 3)//4)"),
        ("n + 3*n % 4", "4*((n + 3)//4)"),
        ("n + n % 2", "2*((n + 1)//2)"),
        ("n - n % 4", "4*(n//4)"),
        ("n - 2*(n//2)", "n % 2"),
        ("n//2 - 2*(n//4)", "n//2 % 2"),
        ("2*((n + 1)//2) - n", "n % 2"),
        ("2*(n//2) + n % 2", "n"),
        ("((n + 1)//2 + 1)//2", "(n + 3)//4"),
        ("(n % 2)//2", "0"),
        ("n % 4 % 2", "n % 2"),
        ("(n % 2 + m) % 2", "(n + m) % 2"),
        ("n - (n + 1)//2", "n//2"),
        ("(4*n + 7)//8", "(n + 1)//2"),
        ("(4*n + 6) % 8", "4*((n + 1) % 2) + 2"),
        ("min(n, 4*((n + 3)//4))", "n"),
        ("max(0, n - max(0, n - m))", "min(m, n)"),
        ("max(2, n) - max(1, n - 1)", "1"),
        ("3*min(n, m) - 3*min(n - 2, m - 2) + m", "m + 6"),
        ("min(64, n) - max(0, min(64, n) - n)", "min(n, 64)"),
        ("m * (n + (0 - n) % 4)", "4*(m*((n + 3)//4))"),
    ],
)
def test_what_is_rounded_has_one_form(text: str, wanted: str) -> None:
    assert normal(parse_expr(text)) == normal(parse_expr(wanted))


def test_the_form_has_the_value_of_what_it_is_made_of() -> None:
    rng = random.Random(0)
    for _ in range(600):
        extent = _drawn(rng, rng.choice((2, 3, 4)))
        found = normal(extent)
        for sizes in SIZES:
            assert evaluate(found, sizes) == evaluate(extent, sizes), format_expr(extent)


def _drawn(rng: random.Random, depth: int) -> Expr:
    """An expression of some operators over n, m and numbers."""
    if not depth:
        return rng.choice((Var("n"), Var("m"), Var("n"), ix.const(1), ix.const(2), ix.const(3)))
    ops = ("+", "+", "-", "*", "//", "%", "min", "max")
    op, left = rng.choice(ops), _drawn(rng, depth - 1)
    if op in ("//", "%"):
        return Binary(op, left, ix.const(rng.choice((2, 2, 3, 4))))
    return Binary(op, left, _drawn(rng, depth - 1))


def test_the_sides_of_a_sum_of_extremes_are_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    sums: list[extents.Terms] = []
    fewest = extents._fewest

    def counted(terms: extents.Terms) -> extents.Terms:
        sums.append(terms)
        return fewest(terms)

    monkeypatch.setattr(extents, "_fewest", counted)
    whole = parse_expr(" + ".join(f"max(p{one}, q{one})" for one in range(6)))
    assert format_expr(normal(whole)) == format_expr(whole)
    assert len(sums) <= 2 * 2**6  # one or two for each set of extremes; 6! times that by order


# Bounds of extents, against every size.


H = Var("h")


def floor(a: Expr, by: int) -> Expr:
    return Binary("//", a, ix.const(by))


@pytest.mark.parametrize(
    "expr",
    [
        Binary("-", Binary("*", ix.const(2), floor(Binary("+", H, ix.const(1)), 2)), H),
        Binary("-", H, Binary("*", floor(H, 4), ix.const(4))),
        floor(Binary("+", floor(H, 3), H), 5),
        Binary("-", floor(Binary("-", H, ix.const(1)), 2), floor(H, 2)),
    ],
)
def test_no_size_gives_less_or_more(expr: Expr) -> None:
    found = of_floors(expr, {"h": (1, 40)})
    assert found is not None
    values = [int(evaluate(expr, {"h": h})) for h in range(1, 41)]
    assert found[0] <= min(values)
    assert max(values) <= found[1]


def test_a_floor_that_is_multiplied_again_is_near_what_it_was_of() -> None:
    twice = Binary("*", ix.const(2), floor(Binary("+", H, ix.const(1)), 2))
    assert of_floors(Binary("-", twice, H), {"h": (0, 2**31 - 1)}) == (0, 1)


def test_a_product_of_sizes_has_no_such_of_floors() -> None:
    assert of_floors(Binary("*", H, H), {"h": (1, 4)}) is None


@pytest.mark.parametrize("op", ["+", "-", "*", "//", "%", "min", "max"])
def test_no_operands_give_less_or_more(op: str) -> None:
    for a, b in product([(-3, 4), (0, 0), (2, 5), (-4, -1)], [(1, 3), (2, 2)]):
        low, high = interval_op(op, a, b)
        values = [
            int(evaluate(Binary(op, ix.const(x), ix.const(y)), {}))
            for x in range(a[0], a[1] + 1)
            for y in range(b[0], b[1] + 1)
        ]
        assert low <= min(values)
        assert max(values) <= high
        assert op == "%" or (low, high) == (min(values), max(values))


@pytest.mark.parametrize(
    ("op", "a", "b", "wanted"),
    [
        ("+", (-inf, 3), (2, inf), (-inf, inf)),
        ("-", (0, inf), (1, 5), (-5, inf)),
        ("*", (0, inf), (0, 3), (0, inf)),
        ("//", (-inf, inf), (4, 4), (-inf, inf)),
        ("//", (-3, inf), (2, 2), (-2, inf)),
        ("%", (-inf, inf), (4, 4), (0, 3)),
        ("min", (0, inf), (2, 7), (0, 7)),
        ("max", (-inf, 1), (2, 7), (2, 7)),
    ],
)
def test_ends_may_be_infinite(
    op: str, a: tuple[float, float], b: tuple[float, float], wanted: tuple[float, float]
) -> None:
    assert interval_op(op, a, b) == wanted


# `quotient` and `with_sizes` give what sympy's ``//`` and ``xreplace`` give, which search for it longer.


N, M = dim("n"), dim("m", max=9, multiple_of=3)
HALF = (N - 1) // 2
PAIRS = ((N, M), (N, N * M), (HALF, N), (N % 4, HALF), (sympy.Max(N, M), sympy.Min(N, 4)))


@pytest.mark.every(4)
@pytest.mark.parametrize(("x", "y"), PAIRS, ids=str)
def test_a_quotient_is_the_floor_that_sympy_finds(x, y):
    x, y = sympy.sympify(x), sympy.sympify(y)
    for a, b, c, divisor in product((-3, 0, 2, 4), (0, 1, 8), (-7, 0, 1, 4), (2, 3)):
        assert quotient(a * x + b * y + c, divisor) == (a * x + b * y + c) // divisor


@pytest.mark.parametrize("size", [N / 2, 3 * N / 2 + 1, (N + 1) * (M + 2) * 3, 2 * (N + M) + 3])
def test_what_is_no_sum_of_whole_terms_is_left_to_sympy(size):
    assert quotient(size, 2) == size // 2


def test_a_quotient_of_numbers_is_a_number():
    assert [quotient(n, 4) for n in (-5, -1, 0, 3, 4, 9)] == [-2, -1, 0, 0, 1, 2]


@pytest.mark.parametrize(
    "size", [one for pair in PAIRS for one in pair] + [HALF // 3 + M, sympy.Integer(3)], ids=str
)
def test_a_size_in_other_symbols_is_what_sympy_makes_of_it(size):
    now = {N: dim("t"), M: dim("a", max=9, multiple_of=3)}
    made, expected = with_sizes(sympy.sympify(size), now), sympy.sympify(size).xreplace(now)
    assert (made, str(made)) == (expected, str(expected))
    assert made + 1 - expected == 1
