"""Index arithmetic: one form for equal sums, and the value of what was written."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from offcut.core import index as ix
from offcut.core.expr import variables
from offcut.ir import Binary, Compare, Const, Expr, Load, Var
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
