"""Index arithmetic: one form for equal sums, and the value of what was written."""

from __future__ import annotations

import random
from collections.abc import Mapping
from itertools import product
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from offcut.core import index as ix
from offcut.core.conditions import conjunction, conjuncts, negate
from offcut.core.expr import Select, Unary, variables
from offcut.core.intervals import Interval, ends, interval
from offcut.ir import Binary, Compare, Const, Expr, Load, Logic, Var
from offcut.polyhedral.facts import Ranges, holds_syntactically
from tests.facade import evaluate, format_expr, parse_expr

NAMES = ("n", "m", "i")
n, m, i = map(Var, NAMES)


def as_written(expr: Expr, values: Mapping[str, int]) -> int:
    """The value by Python's own arithmetic."""
    match expr:
        case Const(value, _):
            return int(value)
        case Var(name):
            return values[name]
        case Binary(op, a, b):
            x, y = as_written(a, values), as_written(b, values)
            return {
                "+": lambda: x + y,
                "-": lambda: x - y,
                "*": lambda: x * y,
                "//": lambda: x // y,
                "%": lambda: x % y,
                "min": lambda: min(x, y),
                "max": lambda: max(x, y),
            }[op]()
    raise AssertionError(expr)


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
def test_simplifying_keeps_the_value(expr: Expr, values: dict[str, int]) -> None:
    assert as_written(ix.simplify(expr), values) == as_written(expr, values)


@given(expressions(), VALUES)
@settings(max_examples=50, deadline=None)
def test_the_reference_interpreter_evaluates_as_python_does(
    expr: Expr, values: dict[str, int]
) -> None:
    assert evaluate(expr, values) == as_written(expr, values)


@given(expressions())
@settings(max_examples=80, deadline=None)
def test_simplifying_twice_changes_nothing_and_names_nothing_new(expr: Expr) -> None:
    once = ix.simplify(expr)
    assert ix.simplify(once) == once
    assert variables(once) <= variables(expr)


@given(expressions(), expressions(), VALUES)
@settings(max_examples=80, deadline=None)
def test_a_folded_comparison_holds_for_the_values(a: Expr, b: Expr, values: dict[str, int]) -> None:
    x, y = as_written(a, values), as_written(b, values)
    truth = {"<": x < y, "<=": x <= y, ">": x > y, ">=": x >= y, "==": x == y, "!=": x != y}
    for op, holds in truth.items():
        folded = ix.compare(op, a, b)
        assert isinstance(folded, Compare) or (isinstance(folded, Const) and folded.value == holds)


@given(expressions(), st.integers(1, 9), VALUES)
@settings(max_examples=80, deadline=None)
def test_ceildiv_is_the_least_number_of_tiles(a: Expr, tile: int, values: dict[str, int]) -> None:
    tiles = as_written(ix.ceildiv(a, tile), values)
    assert (tiles - 1) * tile < as_written(a, values) <= tiles * tile


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


@given(expressions())
@settings(max_examples=100, deadline=None)
def test_a_simplified_expression_is_read_back_as_it_was_printed(expr: Expr) -> None:
    once = ix.simplify(expr)
    assert parse_expr(format_expr(once), "index") == once


def test_an_element_is_no_index_to_simplify() -> None:
    load = Load("A", (Binary("+", n, ix.const(0)),), "float32")
    assert ix.simplify(load) is load


def test_a_literal_is_known_and_a_sum_of_sizes_is_not() -> None:
    assert ix.literal_value(ix.sub(ix.add(n, 5), n)) == 5
    assert ix.literal_value(n) is None


# Conditions joined, taken apart and negated.


def test_conditions_joined_by_and_are_taken_apart() -> None:
    condition = parse_expr("i < 1 and (j < 2 and i + j < 3)")
    assert [*map(format_expr, conjuncts(condition))] == ["i < 1", "j < 2", "i + j < 3"]
    assert conjunction(conjuncts(condition)[:1]) == parse_expr("i < 1")
    assert conjunction(()) == parse_expr("true")


def test_what_fails_is_taken_apart_too() -> None:
    condition = parse_expr("i < 1 or j >= 2")
    assert [*map(format_expr, conjuncts(condition, False))] == ["i >= 1", "j < 2"]
    assert conjuncts(condition) == (condition,)


def test_a_comparison_of_floats_is_not_turned_around() -> None:
    less = parse_expr("i < 1")
    x = Load("x", (), "float32")
    data = type(less)("<", x, Const(0.0, "float32"))
    assert negate(less) == parse_expr("i >= 1")
    assert negate(data) == Logic("not", (data,))


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


def values(expr: Expr, ranges: dict[str, Interval]) -> list[int]:
    spans = (range(low, high + 1) for low, high in ranges.values())
    return [int(evaluate(expr, dict(zip(ranges, at, strict=True)))) for at in product(*spans)]


def found(expr: Expr, ranges: dict[str, Interval]) -> Interval:
    return interval(expr, lambda node: ranges[node.name] if isinstance(node, Var) else None)


def drawn_ranges(rng: Random) -> dict[str, Interval]:
    starts = {name: rng.randint(-5, 5) for name in UNKNOWNS}
    return {name: (low, low + rng.randint(0, 4)) for name, low in starts.items()}


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in range(1, 20))]
)
def test_no_value_is_outside(seed: int) -> None:
    rng = Random(seed)
    for _ in range(60):
        expr, ranges = drawn_expression(rng, 3), drawn_ranges(rng)
        low, high = found(expr, ranges)
        every = values(expr, ranges)
        assert low <= min(every) <= max(every) <= high, (expr, ranges)


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in range(1, 20))]
)
def test_ends_are_reached_where_each_name_stands_once(seed: int) -> None:
    """In sums, products with numbers, quotients by them, minima, maxima and negations."""
    rng = Random(seed)
    tight = 0
    for _ in range(200):
        expr, ranges = drawn_expression(rng, 3, list(UNKNOWNS)), drawn_ranges(rng)
        parts = str(expr)
        if "%" in parts or "Select" in parts or "abs" in parts:
            continue
        every = values(expr, ranges)
        assert found(expr, ranges) == (min(every), max(every)), (expr, ranges)
        tight += 1
    assert tight > 20


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in range(1, 20))]
)
def test_ends_in_the_names_around_hold_every_value(seed: int) -> None:
    rng = Random(seed)
    seen = 0
    for _ in range(80):
        expr, ranges = ix.simplify(drawn_expression(rng, 3)), drawn_ranges(rng)
        length = rng.randint(0, 3)
        inner = ix.add(Var("b"), Var("c")), ix.add(Var("b"), Var("c"), length)
        for natural in (None, lambda part: isinstance(part, Const) and part.value >= 0):
            both = ends(expr, {"a": inner}, natural)
            if both is None:
                continue
            seen += 1
            assert all("a" not in variables(end) for end in both)
            for b, c in product(
                *(range(low, high + 1) for low, high in (ranges["b"], ranges["c"]))
            ):
                around = {"b": b, "c": c}
                low, high = (int(evaluate(end, around)) for end in both)
                every = values(expr, {"a": (b + c, b + c + length), "b": (b, b), "c": (c, c)})
                assert low <= min(every) <= max(every) <= high, (expr, around)
    assert seen > 20


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
@pytest.mark.parametrize("seed", range(20))
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
