"""Elements of two graphs in exact arithmetic: what is equal at all sizes is shown to be, what is not is not."""

import random
import re
from collections.abc import Callable
from typing import Any

import pytest

import offcut as oc
from offcut.describe.computation import computation
from offcut.errors import OffcutError
from offcut.graph import rule
from offcut.graph.substitution.graph_computation import NotDescribed, computation_of
from offcut.ir import Const
from offcut.polyhedral import Facts, Space
from offcut.proof.by_algebra import NotShown, show_equal
from offcut.proof.by_algebra.elements import Elements
from offcut.proof.by_algebra.terms import coordinates
from tests.facade import parse_graph

HEAD = """\
graph pair
size n in 0:65
size m in 1:65
size k in 0:40
input x: float32[n, m]
input z: float32[n, m]
input w: float32[m, k]
input v: float32[m, k]
input i: int32[n, m]
input j: int32[n, m]
"""

EQUAL = {
    "distribution over a product": (
        "a: float32[n, k] = dense(x, w)\nb: float32[n, k] = dense(z, w)\ny: float32[n, k] = add(a, b)",
        "c: float32[n, m] = add(x, z)\ny: float32[n, k] = dense(c, w)",
    ),
    "a factor outside of a sum": (
        "a: float32[m, n] = transpose(x)\ns: float32[n] = sum(a, axis=0)\ny: float32[n] = multiply(s, 2.0)",
        "b: float32[n, m] = multiply(x, 2.0)\ny: float32[n] = sum(b, axis=1)",
    ),
    "rows side by side": (
        "a: float32[2*n, m] = concat([x, z], axis=0)\ny: float32[2*n] = max(a, axis=1)",
        "p: float32[n] = max(x, axis=1)\nq: float32[n] = max(z, axis=1)\ny: float32[2*n] = concat([p, q], axis=0)",
    ),
    "a sum in two parts": (
        "a: float32[n, 2*m] = concat([x, z], axis=1)\ny: float32[n] = sum(a, axis=1)",
        "p: float32[n] = sum(x, axis=1)\nq: float32[n] = sum(z, axis=1)\ny: float32[n] = add(p, q)",
    ),
    "integers": (
        "a: int32[n, m] = add(i, j)\ny: int32[n, m] = multiply(a, 3)",
        "p: int32[n, m] = multiply(i, 3)\nq: int32[n, m] = multiply(j, 3)\ny: int32[n, m] = add(p, q)",
    ),
    "integers that wrap around": (
        "a: int32[n, m] = multiply(i, 65536)\ny: int32[n, m] = multiply(a, 65536)",
        "y: int32[n, m] = subtract(i, i)",
    ),
    "softmax of shifted rows": (
        "y: float32[n, m] = softmax(x, axis=1)",
        "a: float32[n, m] = add(x, 1.0)\ny: float32[n, m] = softmax(a, axis=1)",
    ),
    "a norm of shifted rows": (
        "y: float32[n, m] = layernorm(x)",
        "a: float32[n, m] = add(x, 5.0)\ny: float32[n, m] = layernorm(a)",
    ),
    "a mean": (
        "y: float32[n] = mean(x, axis=1)",
        "s: float32[n, m] = divide(x, 2.0)\na: float32[n] = mean(s, axis=1)\ny: float32[n] = multiply(a, 2.0)",
    ),
    "flipped twice": (
        "a: float32[n, m] = flip(x, [1])\ny: float32[n, m] = flip(a, [1])",
        "y: float32[n, m] = add(x, 0.0)",
    ),
    "what padding adds": (
        "a: float32[n, m + 2] = pad(x, before=[0, 1], after=[0, 1])\ny: float32[n] = sum(a, axis=1)",
        "y: float32[n] = sum(x, axis=1)",
    ),
    "maxima of maxima": (
        "a: float32[n, m] = maximum(x, z)\ny: float32[n] = max(a, axis=1)",
        "p: float32[n] = max(x, axis=1)\nq: float32[n] = max(z, axis=1)\ny: float32[n] = maximum(q, p)",
    ),
    "a product of products": (
        "a: float32[n, k] = dense(x, w)\nt: float32[k, m] = transpose(v)\ny: float32[n, m] = dense(a, t)",
        "t: float32[k, m] = transpose(v)\nb: float32[m, m] = dense(w, t)\ny: float32[n, m] = dense(x, b)",
    ),
    "quotients": (
        "a: float32[n, m] = divide(x, z)\nb: float32[n, m] = divide(z, x)\ny: float32[n, m] = add(a, b)",
        "p: float32[n, m] = multiply(x, x)\nq: float32[n, m] = multiply(z, z)\ns: float32[n, m] = add(p, q)\n"
        "r: float32[n, m] = multiply(x, z)\ny: float32[n, m] = divide(s, r)",
    ),
    "a merged axis of four": (
        "a: float32[m, 4] = slice(w, 1, 0, 4)\nb: float32[4*m] = reshape(a, [4*m])\nc: float32[4*m] = exp(b)\ny: float32[m, 4] = reshape(c, [m, 4])",
        "a: float32[m, 4] = slice(w, 1, 0, 4)\ny: float32[m, 4] = exp(a)",
    ),
}  # fmt: skip

POINTS = "\n".join(
    [
        "graph points",
        "size n in 0:65",
        *(f"input {x}{k}: float32[n]" for x in "dg" for k in range(4)),
    ]
)
OF_PASSES = {
    "a batch norm in its weights (fusion/folding)": (
        HEAD + "input e: float32[k]\ninput g: float32[k]\ninput b: float32[k]\n"
        "s: float32[n, k] = dense(x, w)\nt: float32[n, k] = subtract(s, e)\nu: float32[n, k] = multiply(t, g)\ny: float32[n, k] = add(u, b)",
        HEAD + "input e: float32[k]\ninput g: float32[k]\ninput b: float32[k]\n"
        "p: float32[m, k] = multiply(w, g)\nq: float32[k] = subtract(0.0, e)\nr: float32[k] = multiply(q, g)\nc: float32[k] = add(r, b)\n"
        "s: float32[n, k] = dense(x, p)\ny: float32[n, k] = add(s, c)",
    ),
    **{
        f"result {number} of two by four products (fusion/minimal)": (
            f"{POINTS}\na: float32[n] = multiply(d{number}, g0)\nb: float32[n] = multiply(d{number + 1}, g1)\n"
            f"c: float32[n] = multiply(d{number + 2}, g2)\ne: float32[n] = add(a, b)\ny: float32[n] = add(e, c)",
            f"{POINTS}\na: float32[n] = subtract(d0, d2)\np: float32[n] = multiply(a, g0)\n"
            "b: float32[n] = add(d1, d2)\nu: float32[n] = add(g0, g2)\nu1: float32[n] = add(u, g1)\nu2: float32[n] = multiply(u1, 0.5)\nq: float32[n] = multiply(b, u2)\n"
            "c: float32[n] = subtract(d2, d1)\nv1: float32[n] = subtract(u, g1)\nv2: float32[n] = multiply(v1, 0.5)\nr: float32[n] = multiply(c, v2)\n"
            "e: float32[n] = subtract(d1, d3)\ns: float32[n] = multiply(e, g2)\n"
            + ("t: float32[n] = add(p, q)\ny: float32[n] = add(t, r)", "t: float32[n] = subtract(q, r)\ny: float32[n] = subtract(t, s)")[number],
        )
        for number in (0, 1)
    },
}  # fmt: skip


@pytest.mark.parametrize("name", OF_PASSES)
def test_the_algebra_of_a_pass_is_shown(name: str) -> None:
    assert shown(*(f"{text}\noutput y" for text in OF_PASSES[name]))


DIFFERENT = {
    "a term less": (
        "y: float32[n] = sum(x, axis=1)",
        "a: float32[n, m - 1] = slice(x, 1, 0, m - 1)\ny: float32[n] = sum(a, axis=1)",
    ),
    "the other half": (
        "a: float32[n, 2*m] = concat([x, z], axis=1)\ny: float32[n, m] = slice(a, 1, 0, m)",
        "a: float32[n, 2*m] = concat([z, x], axis=1)\ny: float32[n, m] = slice(a, 1, 0, m)",
    ),
    "another operand": (
        "a: float32[n, k] = dense(x, w)\nb: float32[n, k] = dense(x, v)\ny: float32[n, k] = add(a, b)",
        "a: float32[m, k] = add(w, w)\ny: float32[n, k] = dense(x, a)",
    ),
    "a sum of squares, and the square of a sum": (
        "a: float32[n, m] = multiply(x, x)\ny: float32[n] = sum(a, axis=1)",
        "a: float32[n] = sum(x, axis=1)\ny: float32[n] = multiply(a, a)",
    ),
    "a padded maximum": (
        "a: float32[n, m + 1] = pad(x, before=[0, 0], after=[0, 1])\ny: float32[n] = max(a, axis=1)",
        "y: float32[n] = max(x, axis=1)",
    ),
    "integers that are halved": (
        "a: int32[n, m] = multiply(i, 2)\ny: int32[n, m] = floor_divide(a, 2)",
        "y: int32[n, m] = add(i, 0)",
    ),
    "a transposed square": (
        "w2: float32[m, k] = add(w, 0.0)\nt: float32[k, m] = transpose(w2)\ny: float32[m, m] = dense(w, t)",
        "t: float32[k, m] = transpose(v)\ny: float32[m, m] = dense(w, t)",
    ),
    "an axis of the other's length": (
        "y: float32[n] = mean(x, axis=1)",
        "s: float32[n] = sum(x, axis=1)\nt: float32[m] = sum(x, axis=0)\ny: float32[n] = multiply(s, 0.5)",
    ),
}  # fmt: skip


def shown(before: str, after: str) -> bool:
    try:
        show_equal(*(computation_of(parse_graph(text)) for text in (before, after)))
    except (NotShown, NotDescribed):
        return False
    return True


def graph(body: str) -> str:
    head = HEAD if "w, 1, 0, 4" not in body else HEAD.replace("k in 0", "k in 4")
    return f"{head}{body}\noutput y"


@pytest.mark.parametrize("name", EQUAL)
def test_what_is_equal_at_all_sizes_is_shown_to_be(name: str) -> None:
    before, after = map(graph, EQUAL[name])
    assert shown(before, after)
    assert shown(after, before)


@pytest.mark.parametrize("name", DIFFERENT)
def test_what_differs_is_not_shown_to_be_equal(name: str) -> None:
    before, after = map(graph, DIFFERENT[name])
    assert not shown(before, after)
    assert not shown(after, before)


def test_what_depends_on_a_size_says_from_which_on() -> None:
    before = graph("y: float32[n, m] = add(x, 0.0)")
    after = graph(
        "o: int64[n] = iota(n)\nr: int64[n, 1] = reshape(o, [n, 1])\nc: bool[n, 1] = less(r, 40)\n"
        "y: float32[n, m] = where(c, x, z)"
    )
    with pytest.raises(NotShown) as refused:
        show_equal(*(computation_of(parse_graph(text)) for text in (before, after)))
    assert refused.value.because == "y[i0, i1] is not shown to be the same where i0 >= 40"
    assert refused.value.sizes is not None
    assert refused.value.sizes["n"] == 41


OTHER = {
    "add": "subtract", "subtract": "add", "multiply": "add", "relu": "negative", "maximum": "minimum",
    "max": "min", "sum": "max", "mean": "sum", "exp": "relu", "softmax": "log_softmax",
}  # fmt: skip


def changed(text: str, drawn: random.Random) -> str:
    """The graph with one operator, number or operand changed; it may compute the same, or be no graph."""
    lines = text.split("\n")
    at = drawn.choice([number for number, line in enumerate(lines) if " = " in line])
    head, op, arguments = re.fullmatch(r"(.*) = (\w+)\((.*)\)", lines[at]).groups()  # type: ignore[union-attr]
    numbers = [*re.finditer(r"(?<![\w.\[*])\d+(\.\d+)?(?![\w.*])", arguments)]
    operands = [*re.finditer(r"\b[xzwvijabcpqrst]\b", arguments)]
    kind = drawn.randrange(3)
    if kind == 0:
        op = OTHER.get(op, op)
    elif kind == 1 and numbers:
        one = drawn.choice(numbers)
        other = str(float(one[0]) + 1) if "." in one[0] else str(int(one[0]) + 1)
        arguments = arguments[: one.start()] + other + arguments[one.end() :]
    elif operands:
        one = drawn.choice(operands)
        arguments = arguments[: one.start()] + drawn.choice("xzwvijabpq") + arguments[one.end() :]
    lines[at] = f"{head} = {op}({arguments})"
    return "\n".join(lines)


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in range(1, 10))]
)
def test_a_changed_graph_that_is_shown_to_be_equal_computes_the_same(seed: int) -> None:
    drawn = random.Random(seed)
    for _ in range(12):
        before, after = map(graph, drawn.choice([*EQUAL.values()]))
        try:
            parse_graph(other := changed(after, drawn))
            is_shown = shown(before, other)
        except OffcutError:
            continue
        if is_shown:
            assert not rule("changed", before, other, finite=True).unproved


N = oc.dim("n", min=1, max=65)
A = oc.placeholder((N,), name="A")


def total(extent: Any, term: Callable[[Any], Any]) -> Any:
    k = oc.reduce_axis(extent, name="k")
    return oc.sum(term(k), k)


def triangle(condition: Callable[[Any, Any], Any]) -> oc.Tensor:
    """Sums of A over the places of which a condition with the row holds, added up over the rows."""
    j, k = oc.reduce_axis(N, name="j"), oc.reduce_axis(N, name="k")
    rows = oc.compute((N,), lambda r: oc.sum(oc.where(condition(j, r), A[j], 0.0), j), "T")
    return oc.compute((N,), lambda i: oc.sum(rows[k], k))


def elementwise(element: Callable[[Any], Any]) -> oc.Tensor:
    return oc.compute((N,), lambda i: element(i))


def is_shown(before: oc.Tensor, after: oc.Tensor) -> bool:
    try:
        show_equal((computation([before], [A]), {}), (computation([after], [A]), {}))
    except NotShown:
        return False
    return True


SQUARE = elementwise(lambda i: total(1, lambda k: A[k] * A[0]))
TWICE = elementwise(lambda i: total(1, lambda k: A[k] + A[0]))
DIAGONAL = elementwise(lambda i: total(N, lambda k: oc.where(k == i, A[k] * A[i], 0.0)))


@pytest.mark.parametrize(
    ("before", "right", "wrong"),
    [
        (SQUARE, lambda i: A[0] * A[0], lambda i: A[0]),
        (TWICE, lambda i: A[0] * 2.0, lambda i: A[0]),
        (DIAGONAL, lambda i: A[i] * A[i], lambda i: A[i]),
    ],
    ids=["a product", "a sum", "a diagonal"],
)
def test_terms_that_become_equal_at_the_only_place_of_a_reduction_count_each(
    before: oc.Tensor, right: Callable[[Any], Any], wrong: Callable[[Any], Any]
) -> None:
    assert is_shown(before, elementwise(right))
    assert not is_shown(before, elementwise(wrong))


def test_a_sum_whose_length_depends_on_the_row_stays_inside_of_the_sum_of_the_rows() -> None:
    below = triangle(lambda j, r: j < r)
    assert is_shown(below, triangle(lambda j, r: r > j))
    assert not is_shown(below, triangle(lambda j, r: j <= r))
    computed = Elements(computation([below], [A]), {}, False)
    facts = Facts(Space(tuple(computation([below], [A]).sizes), ()))
    names = coordinates(computed.of("C", [Const(0, "index")], facts))
    assert {name for name in names if not name.startswith("#")} == {"n"}, "none is free"


def test_what_the_proof_does_not_follow_is_said() -> None:
    def why(before: oc.Tensor, inputs: list[oc.Tensor]) -> str:
        after = oc.compute((N,), lambda i: inputs[0][i] * 2.0)
        with pytest.raises(NotShown) as refused:
            show_equal((computation([before], inputs), {}), (computation([after], inputs), {}))
        return refused.value.because

    B = oc.placeholder((N,), name="B")
    rows = oc.placeholder((N,) * 6, name="rows")
    axes = [oc.reduce_axis(N, name=f"k{place}") for place in range(6)]
    zero = oc.compute((N,), lambda i: A[i] / (B[i] - B[i]))
    assert why(zero, [A, B]) == "it divides by 0"
    six = oc.compute((N,), lambda i: oc.sum(rows[tuple(axes)], axes))
    assert why(six, [A, rows]) == "a reduction over 6 axes"
    power = A
    for place in range(9):
        power = oc.compute(
            (N,),
            lambda i, x=power, k=float(place): x[i] * (A[i] + oc.maximum(A[i], k)),
            f"power{place}",
        )
    assert why(power, [A]) == "an element has more than 256 terms"
    twice = oc.compute((N,), lambda i: A[i] * 2.0)
    with pytest.raises(NotShown, match="their inputs differ"):
        show_equal((computation([twice], [A]), {}), (computation([twice], [A, B]), {}))


def test_a_graph_that_gives_an_input_back_is_not_described() -> None:
    with pytest.raises(NotDescribed, match="an output is an input as it is"):
        computation_of(parse_graph(HEAD + "output x"))
