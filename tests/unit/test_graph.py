"""Graphs: built, printed, parsed, interpreted and compiled."""

import numpy as np
import pytest
from conftest import rejection

from offcut.errors import CallError, DescribeError, ParseError
from offcut.graph import extents
from offcut.ir import Binary, Const, Size, Var
from tests.agree import agree, of_peer
from tests.compiled import floats
from tests.facade import Bound, Builder, compile_graph, interpret_graph, parse_graph
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
