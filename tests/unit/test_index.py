"""Index arithmetic: one form for equal sums, and the value of what was written."""

from __future__ import annotations

import random
from itertools import product
from random import Random

import pytest
from conftest import slow
from hypothesis import given, settings
from hypothesis import strategies as st

from offcut.core import index as ix
from offcut.core.conditions import conjunction, conjuncts, negate
from offcut.core.expr import Select, Unary, variables
from offcut.core.intervals import ends, interval
from offcut.ir import Binary, Compare, Const, Expr, Load, Logic, Var
from offcut.polyhedral.facts import Ranges, holds_syntactically
from tests.facade import evaluate, format_expr, parse_expr

NAMES = ("n", "m", "i")
n, m, i = map(Var, NAMES)


def expressions() -> st.SearchStrategy[Expr]:
    leaves = st.sampled_from([*map(Var, NAMES)]) | st.integers(-20, 20).map(ix.const)
    positive = st.integers(1, 9).map(ix.const)

    def grow(inner: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
        free = st.builds(Binary, st.sampled_from(["+", "-", "*", "min", "max"]), inner, inner)
        return free | st.builds(Binary, st.sampled_from(["//", "%"]), inner, positive)

    return st.recursive(leaves, grow, max_leaves=12)


VALUES = st.fixed_dictionaries({name: st.integers(-50, 50) for name in NAMES})


@given(expressions(), VALUES)
@settings(max_examples=100, deadline=None)
def test_simplifying_keeps_the_value_gives_one_form_and_is_read_back(
    expr: Expr, values: dict[str, int]
) -> None:
    once = ix.simplify(expr)
    assert evaluate(once, values) == evaluate(expr, values)
    assert ix.simplify(once) == once
    assert variables(once) <= variables(expr)
    assert parse_expr(format_expr(once), "index") == once


@given(expressions(), expressions(), VALUES)
@settings(max_examples=80, deadline=None)
def test_a_folded_comparison_holds_for_the_values(a: Expr, b: Expr, values: dict[str, int]) -> None:
    x, y = evaluate(a, values), evaluate(b, values)
    truth = {"<": x < y, "<=": x <= y, ">": x > y, ">=": x >= y, "==": x == y, "!=": x != y}
    for op, holds in truth.items():
        folded = ix.compare(op, a, b)
        assert isinstance(folded, Compare) or (isinstance(folded, Const) and folded.value == holds)


@given(expressions(), st.integers(1, 9), VALUES)
@settings(max_examples=80, deadline=None)
def test_ceildiv_is_the_least_number_of_tiles(a: Expr, tile: int, values: dict[str, int]) -> None:
    tiles = evaluate(ix.ceildiv(a, tile), values)
    assert (tiles - 1) * tile < evaluate(a, values) <= tiles * tile


@pytest.mark.parametrize(
    ("built", "text"),
    [
        (ix.add(n, m, n, -3, 3), "2*n + m"),
        (ix.sub(ix.mul(3, n), ix.mul(2, n)), "n"),
        (ix.sub(0, n), "-1*n"),
        (ix.sub(4, n), "4 - n"),
        (ix.sub(m, n), "m - n"),
        (ix.mul(ix.add(n, 1), 4), "4*n + 4"),
        (ix.mul(n, ix.add(m, 1)), "n * (m + 1)"),
        (ix.floordiv(ix.add(ix.mul(8, n), 5), 8), "n"),
        (ix.floordiv(ix.add(ix.mul(8, n), i, 13), 8), "n + (i + 5)//8 + 1"),
        (ix.floordiv(n, 1), "n"),
        (ix.floordiv(n, m), "n//m"),
        (ix.mod(ix.add(ix.mul(8, n), i, 21), 8), "(i + 5) % 8"),
        (ix.mod(ix.mul(8, n), 4), "0"),
        (ix.mod(n, 1), "0"),
        (ix.ceildiv(n, 14), "(n + 13)//14"),
        (ix.minimum(n, ix.add(n, 2)), "n"),
        (ix.maximum(n, ix.add(n, 2)), "n + 2"),
        (ix.minimum(n, m), "min(n, m)"),
        (ix.compare("<", n, ix.add(n, 1)), "true"),
        (ix.compare("!=", n, n), "false"),
        (ix.compare("<=", n, m), "n <= m"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_an_expression_prints_in_its_one_form(built: Expr, text: str) -> None:
    assert format_expr(built) == text


def test_an_element_is_no_index_to_simplify_and_a_sum_of_sizes_no_literal() -> None:
    load = Load("A", (Binary("+", n, ix.const(0)),), "float32")
    assert ix.simplify(load) is load
    assert ix.literal_value(ix.sub(ix.add(n, 5), n)) == 5
    assert ix.literal_value(n) is None


def test_conditions_are_joined_taken_apart_and_negated() -> None:
    condition = parse_expr("i < 1 and (j < 2 and i + j < 3)")
    assert [*map(format_expr, conjuncts(condition))] == ["i < 1", "j < 2", "i + j < 3"]
    assert conjunction(conjuncts(condition)[:1]) == parse_expr("i < 1")
    assert conjunction(()) == parse_expr("true")
    either = parse_expr("i < 1 or j >= 2")
    assert [*map(format_expr, conjuncts(either, False))] == ["i >= 1", "j < 2"]
    assert conjuncts(either) == (either,)
    data = Compare("<", Load("x", (), "float32"), Const(0.0, "float32"))
    assert negate(data) == Logic("not", (data,))  # of NaN, too


# Intervals of index expressions against every value: random expressions, random ranges.


UNKNOWNS = ("a", "b", "c")


def drawn_expression(rng: Random, height: int, names: list[str] | None = None) -> Expr:
    """An index expression; each of `names` stands in it once at most, where they are given."""
    if not height or rng.random() < 0.15:
        if names == [] or rng.random() < 0.3:
            return ix.const(rng.randint(-4, 6))
        return Var(names.pop() if names is not None else rng.choice(UNKNOWNS))
    op = rng.choice(["+", "-", "*", "//", "%", "min", "max", "select", "neg", "abs"])
    one = drawn_expression(rng, height - 1, names)
    if op in ("//", "%"):
        by = (
            ix.maximum(drawn_expression(rng, height - 1), 1)
            if names is None
            else ix.const(rng.randint(1, 5))
        )
        return Binary(op, one, by)
    if op in ("neg", "abs"):
        return Unary(op, one)
    if op == "*" and names is not None:
        return Binary("*", one, ix.const(rng.randint(-3, 3)))
    other = drawn_expression(rng, height - 1, names)
    if op == "select":
        condition = Compare(rng.choice(["<", ">=", "=="]), Var(rng.choice(UNKNOWNS)), ix.const(2))
        return Select(condition, one, other)
    return Binary(op, one, other)


@pytest.mark.parametrize("seed", [0, *(slow(seed) for seed in range(1, 8))])
def test_an_interval_holds_every_value_and_is_exact_where_each_name_stands_once(seed: int) -> None:
    """Exact: of sums, products with numbers, quotients by them, minima, maxima and negations."""
    rng, exact, around = Random(seed), 0, 0
    for number in range(200):
        starts = {name: rng.randint(-5, 5) for name in UNKNOWNS}
        ranges = {name: (low, low + rng.randint(0, 4)) for name, low in starts.items()}
        once = number % 2 == 0
        expr = drawn_expression(rng, 3, list(UNKNOWNS) if once else None)
        low, high = interval(
            expr, lambda node, ranges=ranges: ranges[node.name] if isinstance(node, Var) else None
        )
        spans = (range(low, high + 1) for low, high in ranges.values())
        every = [evaluate(expr, dict(zip(ranges, at, strict=True))) for at in product(*spans)]
        assert low <= min(every) <= max(every) <= high, (expr, ranges)
        if once and not any(word in str(expr) for word in ("%", "Select", "abs")):
            assert (low, high) == (min(every), max(every)), (expr, ranges)
            exact += 1
        length = rng.randint(0, 3)
        inner = ix.add(Var("b"), Var("c")), ix.add(Var("b"), Var("c"), length)
        for natural in (None, lambda part: isinstance(part, Const) and part.value >= 0):
            both = ends(ix.simplify(expr), {"a": inner}, natural) if number < 80 else None
            if both is None:
                continue
            around += 1
            assert all("a" not in variables(end) for end in both)
            for b, c in product(
                *(range(low, high + 1) for low, high in (ranges["b"], ranges["c"]))
            ):
                low, high = (int(evaluate(end, {"b": b, "c": c})) for end in both)
                inside = [
                    evaluate(expr, {"a": b + c + a, "b": b, "c": c}) for a in range(length + 1)
                ]
                assert low <= min(inside) <= max(inside) <= high, (expr, b, c)
    assert exact > 20
    assert around > 20


def test_what_is_not_known_of_a_name_is_not_known_of_an_index() -> None:
    assert ends(ix.add(Var("i"), Var("j")), {"i": None}) is None
    assert ends(Var("j"), {"i": None}) == (Var("j"), Var("j"))
    assert ends(Binary("*", Var("i"), Var("n")), {"i": (ix.const(0), ix.const(3))}) is None


# Comparisons that are seen to hold by their form, beside every point there is.


N, M, T = (Var(name) for name in "nmt")


def points(ranges: Ranges, least: dict[str, int], most: int) -> list[dict[str, int]]:
    """Every point of the loops, at all sizes up to `most`."""
    sizes = [range(low, most + 1) for low in least.values()]
    found = [dict(zip(least, values, strict=True)) for values in product(*sizes)]
    for name, (lo, hi) in ranges.items():
        found = [
            {**point, name: value}
            for point in found
            for value in range(evaluate(lo, point), evaluate(hi, point))
        ]
    return found


def drawn_index(draw: random.Random, names: list[Expr], depth: int) -> Expr:
    """A random index expression."""
    if not depth:
        return draw.choice([*names, *names, ix.const(draw.randint(-3, 8))])
    a, b = (drawn_index(draw, names, depth - 1) for _ in range(2))
    match draw.randint(0, 6):
        case 0 | 1:
            return ix.add(a, b)
        case 2:
            return ix.sub(a, b)
        case 3:
            return ix.mul(draw.choice([-4, 2, 3, 4]), a)
        case 4:
            return ix.floordiv(a, draw.choice([2, 3, 4]))
        case 5:
            return ix.mod(a, draw.choice([2, 3, 4]))
        case _:
            return draw.choice([ix.minimum, ix.maximum])(a, b)


@pytest.mark.every(4)
@pytest.mark.parametrize("seed", range(12))
def test_what_is_seen_holds_at_every_point(seed: int) -> None:
    draw = random.Random(seed)
    least = {"n": draw.randint(0, 2), "m": 0}
    seen = 0
    for _ in range(30):
        names: list[Expr] = [N, M]
        ranges: Ranges = {}
        for name in "ij":
            lo = draw.choice([ix.const(0), drawn_index(draw, names, 1)])
            ranges[name] = (
                lo,
                ix.add(lo, draw.choice([N, ix.const(3), drawn_index(draw, names, 1)])),
            )
            names.append(Var(name))
        a, b = drawn_index(draw, names, 1), drawn_index(draw, names, 2)
        condition = Compare(draw.choice(["<", "<="]), a, b)
        if holds_syntactically(condition, ranges, least):
            seen += 1
            for point in points(ranges, least, 4):
                left, right = evaluate(a, point), evaluate(b, point)
                assert left < right if condition.op == "<" else left <= right, (condition, point)
    assert seen > 0


TILES: Ranges = {
    "t": (ix.const(0), ix.floordiv(N, 16)),
    "i": (ix.mul(16, T), ix.add(ix.mul(16, T), 16)),
}
BLOCKS: Ranges = {
    "t": (ix.const(0), ix.floordiv(ix.add(N, 7), 8)),
    "i": (ix.mul(8, T), ix.minimum(ix.add(ix.mul(8, T), 8), N)),
}
LEFT = ix.mod(N, 192)
START = ix.add(ix.mul(192, ix.floordiv(N, 192)), ix.mul(64, ix.floordiv(LEFT, 64)), ix.mul(32, T))
LADDER: Ranges = {
    "t": (ix.const(0), ix.floordiv(ix.mod(LEFT, 64), 32)),
    "i": (START, ix.add(START, 32)),
}


@pytest.mark.parametrize("ranges", [TILES, BLOCKS, LADDER], ids=["tiles", "blocks", "ladder"])
def test_tiles_are_seen_to_lie_inside(ranges: Ranges) -> None:
    for condition in (Compare("<", Var("i"), N), Compare("<=", ix.const(0), Var("i"))):
        assert holds_syntactically(condition, ranges, {"n": 0})
    assert not holds_syntactically(Compare("<", ix.add(Var("i"), 1), N), ranges, {"n": 0})


def test_of_elements_nothing_is_said() -> None:
    x = Const(0.5, "float32")
    assert not holds_syntactically(Compare("<", x, Binary("+", x, x)), {}, {})
