"""What graphs refuse, in words: builders, text, views, calls."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from conftest import refusals, rejection

from offcut.errors import CallError, DescribeError, ParseError
from offcut.graph.substitution.rewrite_search import search_rewrites
from tests.compiled import floats
from tests.facade import Bound, Builder, Ref, compile_graph, interpret_graph, parse_graph

TEXT = """\
graph g
size n in 0:65
input x: float32[n, 8]
{line}
output {name}"""


def builder() -> tuple[Builder, Ref]:
    made = Builder("g")
    return made, made.input("x", "float32", (made.size("n", 0, 64), 8))


REFUSED = refusals(
    r"""
given lambda made, x: made.output(Ref('y'))
graph: cannot give y back
  because  no input, constant or node is called so

given lambda made, x: made.output('x')
graph: cannot give 'x' back
  because  it is a str, no value of the graph
  help     what input, constant and node give

given lambda made, x: made.node('relu', Ref('y'))
graph: cannot read the value y
  because  nothing before gives it

given lambda made, x: made.node('relu', x, steep=2)
graph: cannot apply relu so
  because  got an unexpected keyword argument 'steep'
  help     relu(x)

given lambda made, x: made.node('relu', x, name='y')
graph: cannot apply relu so
  because  results= names what a node gives

given lambda made, x: made.size('m') // 0
extent: cannot divide by 0
  because  `//` is the floor for positive divisors

given lambda made, x: made.size('m') % -2
extent: cannot divide by -2
  because  `%` is the floor for positive divisors

given lambda made, x: 2 ** 63 * made.size('m')
extent: cannot calculate with 9223372036854775808
  because  index holds -9223372036854775808…9223372036854775807

given lambda made, x: made.input('y', 'float31', (4,))
graph: cannot hold 'float31'
  at       y
  because  element types are float64, float32, float16, bfloat16, int64, int32, int16, int8, uint64, uint32, uint16, uint8, bool

given lambda made, x: made.size('m', 5, 2)
graph: cannot declare the size m
  because  no value is in 5…2 and a multiple of 1

given lambda made, x: made.node('slice', x, 1, 0, 20)
graph: cannot take this slice of x
  at       x: float32[n, 8]
  because  0:20 is not within 0:8

given lambda made, x: made.node('slice', x, 0, None, 5)
graph: cannot take this slice of x
  at       x: float32[n, 8]
  because  axis=0, start=None, stop=5, step=1

given lambda made, x: made.node('reshape', x, 4.5)
graph: cannot take this reshape of x
  at       x: float32[n, 8]
  because  shape=4.5

given lambda made, x: made.node('reshape', x, [3, 5])
graph: cannot take x as [3, 5]
  at       x: float32[n, 8]
  because  it is not seen to have as many elements
""",
    globals(),
)


FOREIGN: dict[str, tuple[Callable[[Builder, Ref], object], str]] = {
    "operand": (lambda made, x: made.node("relu", x), "take x\n  at       relu"),
    "operand among several": (
        lambda made, x: made.node("concatenate", [x, x], axis=1),
        "take x\n  at       concatenate",
    ),
    "output": (lambda made, x: made.output(x), "give x back"),
    "value whose shape is asked for": (
        lambda made, x: made.shape(x),
        "ask for the shape of x",
    ),
    "value that may be zero": (lambda made, x: made.is_zero(x), "look for zeros in x"),
}


@pytest.mark.parametrize("case", FOREIGN)
def test_a_value_of_another_builder_is_refused_though_one_here_is_called_so(case: str) -> None:
    ask, text = FOREIGN[case]
    other = Builder("other").input("x", "float32", (4,))
    made, _ = builder()
    with rejection(f"""\
DescribeError: graph: cannot {text}
  because  another Builder gave it, that of the graph other; this one is that of g
  help     x = builder.input(…), an input of this graph
  help     one Builder for all nodes of a graph"""):
        ask(made, other)
    assert made.graph.nodes == ()
    assert made.graph.outputs == ()


@pytest.mark.parametrize("case", REFUSED)
def test_a_builder_refuses(case: str) -> None:
    ask, text = REFUSED[case]
    with rejection(f"DescribeError: {text}"):
        ask(*builder())


@pytest.mark.parametrize(
    "line",
    [
        "y: float32[n, 5] = slice(x, 0, none, 5)",
        "y: float32[n, 8] = relu(x, x)",
        'y: float32[n, 8] = relu(x, name="y")',
    ],
)
def test_a_text_is_refused_by_its_line(line: str) -> None:
    with pytest.raises(ParseError, match="line 4, column") as refused:
        parse_graph(TEXT.format(line=line, name="y"))
    assert "so\n" in str(refused.value)


def test_a_slice_that_only_a_call_can_judge_is_refused_there() -> None:
    graph = parse_graph(TEXT.format(line="y: float32[5, 8] = slice(x, 0, 2, 7)", name="y"))
    model = compile_graph(Bound(graph))
    x = floats("slice", 7, 8)
    np.testing.assert_array_equal(model(x), x[2:7])
    for few in (0, 1, 6):
        with pytest.raises(CallError, match="2:7 of axis 0 is not within 0:"):
            model(floats("slice", few, 8))
        with pytest.raises(CallError, match="cannot take 2:7 of axis 0"):
            interpret_graph(Bound(graph), {"x": floats("slice", few, 8)})


def test_a_constant_is_what_it_was_when_it_was_given() -> None:
    made, x = builder()
    w = np.ones((8, 4), "float32")
    held = made.constant("w", w)
    made.output(made.node("matmul", x, held))
    model = compile_graph(made.bound)
    w[:] = 0
    np.testing.assert_array_equal(model(np.ones((3, 8), "float32")), np.full((3, 4), 8))
    with pytest.raises(ValueError, match="read-only"):
        made.arrays["w"][:] = 0


def test_what_is_no_graph_is_refused() -> None:
    with pytest.raises(DescribeError, match="it is not a graph with its constants"):
        compile_graph(5)  # type: ignore[arg-type]
    with pytest.raises(CallError, match="it is not a graph with its constants"):
        interpret_graph(5, {})  # type: ignore[arg-type]
    with pytest.raises(ParseError, match="a graph is read from a text"):
        parse_graph(5)  # type: ignore[arg-type]
    with pytest.raises(ParseError, match="it gives nothing back"):
        parse_graph("graph g")
    deep = "y: float32[n, 8] = relu(x, " + "[" * 3000 + "]" * 3000 + ")"
    with pytest.raises(ParseError, match="more than 20 brackets are nested"):
        parse_graph(TEXT.format(line=deep, name="y"))


@pytest.mark.parametrize("shape", [5, ("q",), (-3,)])
def test_a_shape_is_extents(shape: object) -> None:
    with pytest.raises(DescribeError, match="cannot take the shape"):
        builder()[0].input("y", "float32", shape)  # type: ignore[arg-type]


def test_a_size_has_a_name() -> None:
    with pytest.raises(DescribeError, match="a size is known by an ASCII identifier"):
        Builder().size("a b")


def test_a_plan_is_of_sizes_that_are_allowed() -> None:
    made, x = builder()
    made.output(made.node("relu", x))
    with pytest.raises(CallError, match="plan: cannot take n = 65\n  because  n is in 0…64"):
        compile_graph(made.bound).plan(n=65)
    with pytest.raises(CallError, match=r"take n = 2\.5\n  because  a size is an integer"):
        compile_graph(made.bound).plan(n=2.5)  # type: ignore[arg-type]
    with pytest.raises(
        CallError, match=r"take m\n  because  the sizes of \w+ are n\n  help     plan\(n=…\)"
    ):
        compile_graph(made.bound).plan(m=3)


def test_a_graph_without_outputs_is_refused() -> None:
    with pytest.raises(DescribeError) as refused:
        compile_graph(builder()[0].bound)
    assert str(refused.value).splitlines()[1:] == [
        "  because  it gives nothing back",
        "  help     Builder().output(value)",
    ]


def test_passes_are_several() -> None:
    made, x = builder()
    made.output(x)
    with pytest.raises(
        DescribeError, match="cannot take passes=3\n  because  passes are functions"
    ):
        compile_graph(made.bound, passes=3)  # type: ignore[arg-type]


def test_a_constant_has_an_element_type() -> None:
    with pytest.raises(DescribeError, match="cannot hold <U1\n  at       c\n  because  element"):
        builder()[0].constant("c", "x")


def test_what_means_nothing_to_a_substitution_is_refused() -> None:
    made, x = builder()
    made.output(made.node("relu", x))
    with pytest.raises(
        DescribeError, match=r"cannot take alpha=0.5\n  because  alpha is at least 1"
    ):
        search_rewrites(made.bound, (), alpha=0.5)
    with pytest.raises(DescribeError, match="cannot price at q\n  because  its sizes are n"):
        search_rewrites(made.bound, (), sizes={"q": 3})


def test_an_array_is_no_argument_of_a_node() -> None:
    made, x = builder()
    with rejection(
        "DescribeError: graph: cannot take an array of shape (4,) as an argument\n"
        "  because  a node reads values of its graph\n"
        '  help     builder.constant("w", array)'
    ):
        made.node("add", x, np.ones(4, "float32"))


def test_a_share_is_from_0_to_1() -> None:
    made, x = builder()
    made.output(made.node("relu", x))
    with rejection(
        "DescribeError: graph: cannot take least_filled=2\n  because  it is a share, from 0 to 1"
    ):
        compile_graph(made.bound, least_filled=2)
    with pytest.raises(
        DescribeError, match="cannot compile Graph\n  because  it is not a graph with"
    ):
        compile_graph(made.bound.graph)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "help"), [("my graph", "my_graph"), ("2x", "graph"), (3, "graph")]
)
def test_a_graph_is_named_as_its_text_can_be_read(name: str, help: str) -> None:
    with rejection(
        f"DescribeError: graph: cannot name a graph {name!r}\n"
        "  because  a name is an identifier, which may have dots\n"
        f'  help     Builder("{help}")'
    ):
        Builder(name)
    for taken in ("größe", "torch.mlp"):
        made = Builder(taken)
        made.output(made.node("relu", made.input("x", "float32", (3,))))
        assert str(parse_graph(str(made.graph))) == str(made.graph)


def test_a_size_has_facts_that_are_integers() -> None:
    for fact in ("a", 1.5, True):
        with rejection(
            f"DescribeError: graph: cannot declare the size n\n  because  {fact!r} is not an integer"
        ):
            Builder().size("n", 0, fact)  # type: ignore[arg-type]
