"""Rules between graphs: a wrong one is refused with a witness; a right one is applied where it fits, and where it is cheaper."""

import re
from typing import Any

import numpy as np
import pytest
from conftest import rejection

from offcut.errors import DescribeError
from offcut.graph import (
    Rule,
    joined_convolutions,
    joined_products,
    parts_of_one,
    rule,
    search_rewrites,
    widened_convolutions,
)
from offcut.graph.passes import run_passes
from offcut.graph.substitution import rules
from offcut.graph.substitution.matching import apply_rule, matches
from offcut.graph.substitution.rewrite_search import TIDIED
from tests.facade import Bound, Builder, interpret_graph, parse_graph
from tests.operators import near

BEFORE = """\
graph twice
size n in 1:65
input x: float32[n, 4]
a: float32[n, 4] = add(x, x)
y: float32[n, 4] = relu(a)
output y"""


def after(line: str) -> str:
    return "\n".join([*BEFORE.splitlines()[:3], *line.splitlines(), "output y"])


def test_a_rule_that_is_wrong_is_refused_with_the_sizes_and_the_element_that_differ() -> None:
    with rejection("""\
DescribeError: rule: cannot take the rule wrong
  at       n = 1
  because  y[0, 0] is 1.09569 before and 0.547847 after"""):
        rule("wrong", BEFORE, after("y: float32[n, 4] = relu(x)"))


def test_a_rule_that_is_wrong_at_some_sizes_only_is_refused_with_the_smallest() -> None:
    with pytest.raises(DescribeError, match="n = 3") as refused:
        rule(
            "short",
            after("y: float32[n, 4] = relu(x)"),
            after(
                "s: float32[min(n, 2), 4] = slice(x, 0, 0, min(n, 2))\n"
                "z: float32[n - min(n, 2), 4] = slice(x, 0, min(n, 2), n)\n"
                "a: float32[n - min(n, 2), 4] = negative(z)\n"
                "b: float32[n, 4] = concat([s, a], axis=0)\n"
                "y: float32[n, 4] = relu(b)"
            ),
        )
    assert "before" in str(refused.value)


@pytest.mark.parametrize(
    ("text", "because"),
    [
        (after("y: float32[n, 4] = relu(x)").replace("size n in 1:65", "size n in 1:66"), "different inputs or sizes"),
        (after("z: float32[n, 4] = relu(x)").replace("output y", "output z"), "one gives y, the other z"),
        (after("y: float32[4, n] = transpose(x)"), r"one gives y: float32\[n, 4\], the other y: float32\[4, n\]"),
    ],
)  # fmt: skip
def test_graphs_that_are_no_pair_are_refused(text: str, because: str) -> None:
    with pytest.raises(DescribeError, match=because):
        rule("pair", BEFORE, text)


@pytest.fixture(scope="module")
def doubling() -> Rule:
    return rule(
        "double", BEFORE, after("b: float32[n, 4] = multiply(x, 2.0)\ny: float32[n, 4] = relu(b)")
    )


def test_a_rule_fits_any_extent_and_any_name(doubling: Rule) -> None:
    made = Builder("g")
    b, n = made.size("b", 1, 5), made.size("n", 1, 9)
    x = made.input("x", "float32", (b, n, 4))
    rows = made.node("reshape", x, [-1, 4])
    made.output(made.node("relu", made.node("add", rows, rows)))
    (found,) = matches(doubling, made.graph)
    now = apply_rule(made.bound, doubling, [found])
    assert now is not None
    assert [node.op for node in now.graph.nodes] == ["reshape", "multiply", "relu"]
    assert parse_graph(str(now.graph)) == now.graph
    given = {"x": np.random.default_rng(0).uniform(-1, 1, (2, 3, 4)).astype("f4")}
    near(interpret_graph(now, given)["relu"], interpret_graph(made.bound, given)["relu"])


def test_a_rule_fits_nowhere_where_others_read_what_it_leaves_out(doubling: Rule) -> None:
    made = Builder("g")
    x = made.input("x", "float32", (made.size("n", 1, 9), 4))
    total = made.node("add", x, x)
    made.output(made.node("relu", total), total)
    assert matches(doubling, made.graph) == ()
    other = Builder("h")
    y = other.input("y", "float32", (other.size("n", 0, 9), 4))
    other.output(other.node("relu", other.node("add", y, y)))
    assert matches(doubling, other.graph) == ()  # the rule is known from one row on


@pytest.mark.slow
def test_products_one_of_which_reads_the_other_stay_two() -> None:
    made = Builder("row")
    x = made.input("x", "float32", (made.size("n", 1, 9), 4))
    w = made.constant("w", np.ones((4, 4), "f4"))
    y = made.node("dense", x, w)
    made.output(made.node("dense", x, made.node("reshape", made.node("slice", y, 0, 0, 1), [4, 1])))
    assert all(matches(one, made.graph) == () for one in joined_products())


def branches(same: bool) -> Bound:
    """Two convolutions of points, or one beside a window, of one image; relu of each; both side by side."""
    made, generator = Builder("branches"), np.random.default_rng(3)
    n, h = made.size("n", 1, 8), made.size("h", 2, 32)
    x, parts = made.input("x", "float32", (n, 3, h, 6)), []
    for channels, window in ((4, 1), (5, 1 if same else 3)):
        drawn = generator.standard_normal((channels, 3, window, window), np.float32)
        bias = made.constant(made.fresh("c"), generator.standard_normal(channels, np.float32))
        options = {"padding": (window // 2,) * 2, "dilation": (1, 1), "groups": 1}
        w = made.constant(made.fresh("w"), drawn)
        parts.append(made.node("relu", made.node("conv2d", x, w, bias=bias, **options)))
    made.output(made.node("concat", parts, axis=1, results=["y"]))
    return made.bound


@pytest.mark.every(4)
@pytest.mark.parametrize("same", [True, False])
def test_branches_over_one_image_are_one_convolution(same: bool) -> None:
    """Whatever options say in words of their own, and where a part of the channels is known by what is left of them."""
    bound = branches(same)
    rules = (*(joined_convolutions(1) if same else widened_convolutions()), *parts_of_one())
    now = run_passes(bound, TIDIED)
    for _ in range(3):
        one, places = next((rule, found) for rule in rules if (found := matches(rule, now.graph)))
        made = apply_rule(now, one, places)
        assert made is not None
        now = run_passes(made, TIDIED)
    assert [node.op for node in now.graph.nodes] == ["conv2d", "relu", "reshape"]
    for n, h in ((1, 2), (2, 5)):
        given = {"x": np.random.default_rng(n).standard_normal((n, 3, h, 6), np.float32)}
        near(interpret_graph(now, given)["y"], interpret_graph(bound, given)["y"])


PRODUCTS = """\
graph products
size n in 0:1025
size k in 0:1025
size a in 0:1025
size b in 0:1025
input x: float32[n, k]
input u: float32[k, a]
input v: float32[k, b]
y: float32[n, a] = dense(x, u)
"""


def graph(body: str, dtype: str = "float32", inputs: str = "x", n: str = "0:65") -> str:
    """Statements between semicolons, of rows of a type where they say none; the last one gives y."""
    named = [
        f"input {one}" if ":" in one else f"input {one}: {dtype}[n, 4]"
        for one in inputs.split("; ")
    ]
    lines = [
        re.sub(r"^(\w+) =", rf"\1: {dtype}[n, 4] =", one) for one in body.format(dtype).split("; ")
    ]
    return "\n".join(["graph rows", f"size n in {n}", *named, *lines, "output y"])


def rows(*bodies: str, dtype: str = "float32", inputs: str = "x", n: str = "0:65") -> list[str]:
    return [graph(one, dtype, inputs, n) for one in bodies]


SOFTMAX = (
    "e = exp(x); s: {0}[n] = sum(e, axis=1); r: {0}[n, 1] = reshape(s, [n, 1]); y = divide(e, r)"
)
FROM_8 = (
    "s: {0}[min(n, 8), 4] = slice(x, 0, 0, min(n, 8)); z: {0}[n - min(n, 8), 4] = slice(x, 0, min(n, 8), n); "
    "t: {0}[n - min(n, 8), 4] = negative(z); b = concat([s, t], axis=0); a = add(b, b); y = relu(a)"
)
TWICE, IS_X, SAME = "a = add(x, x); y = relu(a)", "y = add(x, 0)", "y = multiply(x, 1.0)"
NOT_77 = "c: bool[n, 4] = equal(x, 77); y = where(c, 3, x)"
MAGNITUDE = "a = absolute(x); y = maximum(a, 0)"
WRONG: dict[str, Any] = {
    "multiples": ("float32", TWICE, "a = add(x, x); y = negative(a)", {"n": "0:65 multiple_of 8"}),
    "conditions": ("float32", "y = where(c, x, z)", "y = add(x, 0.0)", {"inputs": "x; c: bool[n, 4]; z"}),
    "far from 0": ("float32", "a = clip(x, 0.0, 6.0); y = relu(a)", "a = relu(x); y = relu(a)"),
    "many rows": ("float32", TWICE, FROM_8),
    "a number that is named": ("float32", "y = relu(x)", "y = clip(x, 0.0, 30.0)"),
    "a small error": ("float32", "y = relu(x)", "a = relu(x); y = add(a, 0.0005)"),
    "0 by 0": ("float32", "y = divide(x, x)", "z = multiply(x, 0.0); y = add(z, 1.0)"),
    "overflow": ("float32", "y = softmax(x, axis=1)", SOFTMAX),
    "equal elements": (
        "float32", "y: int64[n] = argmax(x, axis=1)", "r = flip(x, [1]); y: int64[n] = argmax(r, axis=1)"
    ),
    "halves": ("float32", "y = round(x)", "a = add(x, 0.5); y = floor(a)"),
    "infinities": ("float32", "y = subtract(x, x)", 'c: bool[n, 4] = not_equal(x, x); y = cast(c, "float32")'),
    "NaN": ("float32", SAME, "c: bool[n, 4] = equal(x, x); y = where(c, x, 0.0)"),
    "0": ("float32", "y = sign(x)", "a = absolute(x); y = divide(x, a)"),
    "a narrow type on the way": (
        "float32", "y = relu(x)",
        'a: float16[n, 4] = cast(x, dtype="float16"); b: float16[n, 4] = relu(a); y = cast(b, dtype="float32")',
    ),
    "numbers beyond float32 on the way": ("float32", SAME, "a = multiply(x, 1e36); y = multiply(a, 1e-36)"),
    **{f"the least of {bits} bits": (f"int{bits}", MAGNITUDE, "y = absolute(x)") for bits in (8, 64)},
    "the greatest int32": ("int32", "y = minimum(x, 2147483646)", IS_X),
    "the greatest uint8": ("uint8", "y = minimum(x, 254)", IS_X),
    "0 of uint64": ("uint64", "y = maximum(x, 1)", IS_X),
    "a number of uint8": ("uint8", IS_X, NOT_77),
    "a number of int32": ("int32", IS_X, NOT_77),
    "a number of int64": ("int64", IS_X, NOT_77.replace("77", str(2**62 + 3))),
    "sign": ("float32", "y = multiply(x, 1e-12)", "y = multiply(x, -1e-12)"),
    "next to 0": ("float32", "y = multiply(x, 1e-15)", "y = multiply(x, 0.0)"),
    "epsilon": ("float32", "y = layernorm(x, epsilon=1e-12)", "y = layernorm(x, epsilon=1e-9)"),
    "rounded to float32": (
        "float64", SAME, 'a: float32[n, 4] = cast(x, "float32"); y = cast(a, "float64")'
    ),
    "rounded to float16": (
        "float32", "y = clip(x, -6.0, 6.0)",
        'a = clip(x, -6.0, 6.0); b: float16[n, 4] = cast(a, "float16"); y = cast(b, "float32")',
    ),
    "small halves": (
        "float32", "a = round(x); y = multiply(a, 1e-12)", "a = add(x, 0.5); b = floor(a); y = multiply(b, 1e-12)"
    ),
    "one number": (
        "float32", "y = multiply(x, s)",
        "c: bool[1] = equal(s, 12.5); t: float32[1] = where(c, 0.0, s); y = multiply(x, t)",
        {"inputs": "x; s: float32[1]"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", WRONG)
def test_a_rule_that_few_elements_or_sizes_show_to_be_wrong_is_refused(what: str) -> None:
    dtype, before, wrong, *head = WRONG[what]
    with pytest.raises(DescribeError, match=r"before and .* after"):
        rule("wrong", *rows(before, wrong, dtype=dtype, **dict(*head)))


def test_a_rule_of_several_sizes_from_0_is_tried_where_none_is_0() -> None:
    before = PRODUCTS + "z: float32[n, b] = dense(x, v)\noutput y, z"
    wrong = "q: float32[n, b] = dense(x, v)\nz: float32[n, b] = multiply(q, 3.0)\noutput y, z"
    with pytest.raises(DescribeError, match=r"before and .* after"):
        rule("wrong", before, PRODUCTS + wrong)


def test_what_is_wrong_of_one_integer_alone_is_refused() -> None:
    texts = (
        one.replace("n, 4", "1").replace("size n in 0:65\n", "")
        for one in rows(IS_X, NOT_77, dtype="int32")
    )
    with pytest.raises(DescribeError, match="77 before and 3 after"):
        rule("wrong", *texts)


FROM_ROW = "j: int64[n] = iota(n); i: int64[n, 1] = reshape(j, [n, 1]); c: bool[n, 1] = less(i, ROW); y = where(c, x, 0.0)"


@pytest.mark.parametrize("row", [20, 64])
def test_what_is_wrong_from_a_row_on_that_the_graphs_name_is_refused(row: int) -> None:
    bodies = "y = add(x, 0.0)", FROM_ROW.replace("ROW", str(row))
    with pytest.raises(DescribeError, match=rf"n = {row + 1}\n.* before and 0 after"):
        rule("wrong", *rows(*bodies, n="0:67"))
    assert rule("right", *rows(*bodies, n=f"0:{row + 1}"))


def test_what_is_wrong_where_all_elements_of_a_row_are_infinite_is_refused() -> None:
    wrong = "a = maximum(x, -1e30); y: {0}[n] = max(a, axis=1)"
    texts = [one.replace("4]", "12]") for one in rows("y: {0}[n] = max(x, axis=1)", wrong)]
    with pytest.raises(DescribeError, match=r"is -inf before and -1e\+30 after"):
        rule("wrong", *texts)
    with pytest.raises(DescribeError, match="is not proved for all sizes"):
        rule("right", *texts, finite=True)
    assert rule("right", *texts, finite=True, tried_only=True).unproved


def test_two_elements_that_differ_are_told_apart() -> None:
    texts = rows(*(f"y = minimum(x, {n})" for n in (2147483646, 2147483647)), dtype="int32")
    with pytest.raises(DescribeError, match="is 2147483646 before and 2147483647 after"):
        rule("wrong", *texts)
    with pytest.raises(DescribeError, match=r"is (\S+) before and (?!\1 )\S+ after"):
        rule("wrong", *rows(SAME, "y = multiply(x, 1.0000001)"))


def test_a_rule_that_is_wrong_of_denormals_is_one_of_finite_elements() -> None:
    assert rule("right", *rows("y = divide(0.5, x)", "a = add(x, x); y = divide(1.0, a)")).name
    texts = rows("y = divide(z, x)", "a = divide(1.0, x); y = multiply(z, a)", inputs="x; z")
    with pytest.raises(DescribeError, match="denormals among its inputs") as refused:
        rule("inverse", *texts)
    assert refused.value.help == (
        "finite=True takes a rule of finite elements alone, none of them a denormal",
    )
    assert rule("inverse", *texts, finite=True).name == "inverse"


@pytest.mark.filterwarnings("error")
def test_elements_that_a_narrow_type_has_not_are_infinite_without_a_warning() -> None:
    assert rule("right", *rows("y = add(x, x)", "y = multiply(x, 2.0)", dtype="float16")).name


def test_a_rule_of_finite_elements_says_so_and_is_tried_on_no_others() -> None:
    clipped = "a = clip(x, 0.0, 5.0); b = subtract(x, x); y = add(a, b)"
    texts = rows("y = clip(x, 0.0, 5.0)", clipped, dtype="float16")
    assert rule("right", *texts, finite=True).name == "right"
    with pytest.raises(DescribeError, match="infinities and NaN"):
        rule("wrong", *texts)
    texts = rows(SOFTMAX, "y = softmax(x, axis=1)")
    with pytest.raises(DescribeError) as refused:
        rule("stable", *texts)
    assert refused.value.help == ("finite=True takes a rule of finite elements alone",)
    assert rule("stable", *texts, finite=True).name == "stable"


GELU = "a = divide(x, 1.4142135623730951); b = erf(a); c = add(b, 1.0); d = multiply(x, 0.5); y = multiply(c, d)"
RIGHT: dict[str, Any] = {
    "by definition": ("float32", "y = relu(x)", "y = maximum(x, 0.0)"),
    "overflow that goes": (
        "float32", "s: {0}[n, m] = softmax(x, axis=1); y: {0}[n, m] = log(s)", "y: {0}[n, m] = log_softmax(x, axis=1)",
        {"n": "0:65\nsize m in 1:65", "inputs": "x: float32[n, m]"},
    ),
    "sums in another order": (
        "float32", "a = add(x, 3.0); y = multiply(x, a)", "a = multiply(x, x); b = multiply(x, 3.0); y = add(a, b)"
    ),
    "two that cancel": ("float32", "t: {0}[4, n] = transpose(x); y = transpose(t)", SAME),
    "distributed": (
        "bfloat16", "a = add(x, z); y = multiply(a, 0.1)", "a = multiply(x, 0.1); b = multiply(z, 0.1); y = add(a, b)"
    ),
    "associated": ("float64", "a = add(x, z); y = add(a, x)", "a = add(x, x); y = add(a, z)"),
    "sums of products": (
        "float16", "a = multiply(x, 0.1); y: {0}[n] = sum(a, axis=1)", "a: {0}[n] = sum(x, axis=1); y: {0}[n] = multiply(a, 0.1)"
    ),
    "gelu": ("float16", "y = gelu(x)", GELU),
    "gelu of float64": ("float64", "y = gelu(x)", GELU),
    "cancelling means": ("bfloat16", "a = add(x, 3.0); y = layernorm(a)", "a = subtract(x, -3.0); y = layernorm(a)"),
    "cancelling 1": (
        "float32", "y = sigmoid(x)", "a = multiply(x, 0.5); b = tanh(a); c = add(b, 1.0); y = multiply(c, 0.5)"
    ),
}  # fmt: skip


@pytest.mark.every(2)
@pytest.mark.parametrize("what", RIGHT)
def test_what_computes_the_same_or_differs_by_rounding_alone_is_taken(what: str) -> None:
    dtype, before, after, *head = RIGHT[what]
    given = {"inputs": "x; z" if "z" in before else "x", **dict(*head)}
    texts = rows(before, after, dtype=dtype, **given)
    rounded = after == GELU  # the root of 2, and that of 1/2: neither is exact
    assert bool(rule("right", *texts, tried_only=rounded).unproved) == rounded


def test_indices_that_no_table_has_are_no_inputs_of_a_rule() -> None:
    head = "graph rows\nsize n in 0:65\nsize m in 1:65\ninput t: float32[m, 4]\ninput i: int64[n]\n"
    before = head + "a: float32[n, 4] = embedding(t, i)\ny: float32[n, 4] = relu(a)\noutput y"
    after = head + "a: float32[m, 4] = relu(t)\ny: float32[n, 4] = embedding(a, i)\noutput y"
    assert rule("rows", before, after).name == "rows"
    with pytest.raises(DescribeError, match=r"before and .* after"):
        rule("wrong", before, after.replace("embedding(a, i)", "embedding(t, i)"))


FAR_WRONG = {
    "by a condition": FROM_ROW.replace("ROW", "300"),
    "by a cut": FROM_8.replace("8)", "300)").replace("a = add(b, b); y = relu(a)", "y = relu(b)"),
}


@pytest.mark.parametrize(("how", "tried_only"), [("by a condition", False), ("by a cut", True)])
def test_what_is_wrong_beyond_the_sizes_that_are_tried_is_refused_where_it_is(
    how: str, tried_only: bool
) -> None:
    right = "y = relu(x)" if how == "by a cut" else "y = add(x, 0.0)"
    texts = rows(right, FAR_WRONG[how], n="0:4097")
    with pytest.raises(DescribeError) as refused:
        rule("far", *texts, tried_only=tried_only)
    assert refused.value.at == "n = 301"
    assert refused.value.because.startswith("y[300, 0] is ")
    mended = texts[1].replace("negative(z)", "add(z, 0.0)").replace("(c, x, 0.0)", "(c, x, x)")
    assert not rule("far", texts[0], mended).unproved


UNPROVED = (
    "a = add(x, 0.0); s: {0}[n, 4], p: int64[n, 4] = sort(a, axis=1); y = relu(s)",
    "r = relu(x); y: {0}[n, 4], p: int64[n, 4] = sort(r, axis=1)",
)


def test_what_is_not_proved_takes_a_word_of_the_users_and_says_so() -> None:
    texts = rows(*UNPROVED)
    with rejection("""\
DescribeError: rule: cannot take the rule sorted
  because  it holds where it was tried, and is not proved for all sizes: y[i0, i1] is not shown to be the same
  help     tried_only=True takes a rule that was tried only
  help     a rule without that: of the nodes around it, or in steps that are proved each"""):
        rule("sorted", *texts)
    taken = rule("sorted", *texts, tried_only=True)
    assert taken.unproved == "y[i0, i1] is not shown to be the same"
    made = Builder("g")
    x = made.input("x", "float32", (made.size("n", 1, 9), 4))
    first, _ = made.node("sort", made.node("add", x, 0.0), axis=1, results=("s", "p"))
    made.output(made.node("relu", first))
    found = search_rewrites(made.bound, [taken], alpha=9.0, sizes={"n": 2})
    assert found.unproved == found.rules


def test_a_rule_with_a_loop_program_is_tried_only() -> None:
    with pytest.raises(DescribeError, match=r"l = accumulated\(…\) is a loop program"):
        rule("running", *rows(*["l = accumulated(x, axis=1); y = multiply(l, 2.0)"] * 2))


@pytest.mark.every(2)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_each_rule_of_ours_is_proved(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "_check_at", lambda *_: True)  # trials are what other tests make
    every = (
        *joined_products(dtype),
        *(one for w, s in ((1, 1), (3, 2)) for one in joined_convolutions(w, s, dtype)),
        *widened_convolutions(3, dtype),
        *parts_of_one("relu", dtype),
    )
    assert len(every) == 12
    assert [one.name for one in every if one.unproved] == []
