"""A cost without what no size tells: shorter, and of the same value."""

from __future__ import annotations

import pytest

from offcut.costmodel import simplify_cost
from tests.agree import nearly
from tests.facade import evaluate, parse_expr

SIZES = ("n", "m")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1.0 * (float64(n) + 0.0)", "float64(n)"),
        ("float64(n) * 2.0 * 4.0", "float64(n) * 8.0"),
        ("float64(n) * [0.0, 1.5, 2.5][1]", "float64(n) * 1.5"),
        ("float64(n) * [0.0, 1.5, 2.5][n % 3]", "float64(n) * [0.0, 1.5, 2.5][n % 3]"),
        ("where(1 > 0, float64(n), float64(m))", "float64(n)"),
        ("max(2.0 - 3.0, 0.0) + float64(n * m)", "float64(n*m)"),
        ("0.0 + float64(n) - 0.0", "float64(n)"),
        ("2.0 * 3.0", "6.0"),
    ],
)
def test_what_no_size_tells_is_a_number(text: str, expected: str) -> None:
    cost = parse_expr(text, "float64", names=SIZES)
    short = simplify_cost(cost)
    assert short == parse_expr(expected, "float64", names=SIZES)
    for n in (0, 1, 13, 14, 4096):
        for m in (0, 5):
            sizes = {"n": n, "m": m}
            assert evaluate(short, sizes) == nearly(evaluate(cost, sizes), rel=1e-12)
