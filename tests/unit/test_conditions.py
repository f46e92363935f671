"""Conditions joined, taken apart and negated."""

from __future__ import annotations

from offcut.core.conditions import conjunction, conjuncts, negate
from offcut.ir import Const, Load, Logic
from tests.facade import format_expr, parse_expr


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
