"""Intervals of index expressions against every value: random expressions, random ranges."""

from __future__ import annotations

from itertools import product
from random import Random

import pytest

from offcut.core import index as ix
from offcut.core.expr import Binary, Compare, Const, Expr, Select, Unary, Var, variables
from offcut.core.interpret.values import evaluate
from offcut.core.intervals import Interval, ends, interval

NAMES = ("a", "b", "c")


def drawn(rng: Random, height: int, names: list[str] | None = None) -> Expr:
    """An index expression; each of `names` stands in it once at most, where they are given."""
    if not height or rng.random() < 0.15:
        if names == [] or rng.random() < 0.3:
            return ix.const(rng.randint(-4, 6))
        return Var(names.pop() if names is not None else rng.choice(NAMES))
    op = rng.choice(["+", "-", "*", "//", "%", "min", "max", "select", "neg", "abs"])
    one = drawn(rng, height - 1, names)
    if op in ("//", "%"):
        by = ix.maximum(drawn(rng, height - 1), 1) if names is None else ix.const(rng.randint(1, 5))
        return Binary(op, one, by)
    if op in ("neg", "abs"):
        return Unary(op, one)
    if op == "*" and names is not None:
        return Binary("*", one, ix.const(rng.randint(-3, 3)))
    other = drawn(rng, height - 1, names)
    if op == "select":
        condition = Compare(rng.choice(["<", ">=", "=="]), Var(rng.choice(NAMES)), ix.const(2))
        return Select(condition, one, other)
    return Binary(op, one, other)


def values(expr: Expr, ranges: dict[str, Interval]) -> list[int]:
    spans = (range(low, high + 1) for low, high in ranges.values())
    return [int(evaluate(expr, dict(zip(ranges, at, strict=True)))) for at in product(*spans)]


def found(expr: Expr, ranges: dict[str, Interval]) -> Interval:
    return interval(expr, lambda node: ranges[node.name] if isinstance(node, Var) else None)


def drawn_ranges(rng: Random) -> dict[str, Interval]:
    starts = {name: rng.randint(-5, 5) for name in NAMES}
    return {name: (low, low + rng.randint(0, 4)) for name, low in starts.items()}


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in range(1, 20))]
)
def test_no_value_is_outside(seed: int) -> None:
    rng = Random(seed)
    for _ in range(60):
        expr, ranges = drawn(rng, 3), drawn_ranges(rng)
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
        expr, ranges = drawn(rng, 3, list(NAMES)), drawn_ranges(rng)
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
        expr, ranges = ix.simplify(drawn(rng, 3)), drawn_ranges(rng)
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
