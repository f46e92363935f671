"""Extents have one form: equal ones are equal, with as few terms as can be, and no value changes."""

import random

import pytest

from offcut.core import index as ix
from offcut.graph.sizes import extents
from offcut.graph.sizes.extents import normal
from offcut.ir import Binary, Expr, Var
from tests.facade import evaluate, format_expr, parse_expr

SIZES = [{"n": n, "m": m} for n, m in ((0, 0), (1, 5), (4, 1), (7, 3), (12, 8), (13, 2), (29, 31))]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("n + (0 - n) % 4", "4*((n + 3)//4)"),
        ("(n + (0 - n) % 4)//4", "(n + 3)//4"),
        ("n//4 + (0 - n//4 % 4) % 4", "4*((n//4 + 3)//4)"),
        ("n + 3*n % 4", "4*((n + 3)//4)"),
        ("n + n % 2", "2*((n + 1)//2)"),
        ("n - n % 4", "4*(n//4)"),
        ("n - 2*(n//2)", "n % 2"),
        ("n//2 - 2*(n//4)", "n//2 % 2"),
        ("2*((n + 1)//2) - n", "n % 2"),
        ("2*(n//2) + n % 2", "n"),
        ("((n + 1)//2 + 1)//2", "(n + 3)//4"),
        ("(n % 2)//2", "0"),
        ("n % 4 % 2", "n % 2"),
        ("(n % 2 + m) % 2", "(n + m) % 2"),
        ("n - (n + 1)//2", "n//2"),
        ("(4*n + 7)//8", "(n + 1)//2"),
        ("(4*n + 6) % 8", "4*((n + 1) % 2) + 2"),
        ("min(n, 4*((n + 3)//4))", "n"),
        ("max(0, n - max(0, n - m))", "min(m, n)"),
        ("max(2, n) - max(1, n - 1)", "1"),
        ("3*min(n, m) - 3*min(n - 2, m - 2) + m", "m + 6"),
        ("min(64, n) - max(0, min(64, n) - n)", "min(n, 64)"),
        ("m * (n + (0 - n) % 4)", "4*(m*((n + 3)//4))"),
    ],
)
def test_what_is_rounded_has_one_form(text: str, wanted: str) -> None:
    assert normal(parse_expr(text)) == normal(parse_expr(wanted))


def test_the_form_has_the_value_of_what_it_is_made_of() -> None:
    rng = random.Random(0)
    for _ in range(600):
        extent = _drawn(rng, rng.choice((2, 3, 4)))
        found = normal(extent)
        for sizes in SIZES:
            assert evaluate(found, sizes) == evaluate(extent, sizes), format_expr(extent)


def _drawn(rng: random.Random, depth: int) -> Expr:
    """An expression of some operators over n, m and numbers."""
    if not depth:
        return rng.choice((Var("n"), Var("m"), Var("n"), ix.const(1), ix.const(2), ix.const(3)))
    ops = ("+", "+", "-", "*", "//", "%", "min", "max")
    op, left = rng.choice(ops), _drawn(rng, depth - 1)
    if op in ("//", "%"):
        return Binary(op, left, ix.const(rng.choice((2, 2, 3, 4))))
    return Binary(op, left, _drawn(rng, depth - 1))


def test_the_sides_of_a_sum_of_extremes_are_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    sums: list[extents.Terms] = []
    fewest = extents._fewest

    def counted(terms: extents.Terms) -> extents.Terms:
        sums.append(terms)
        return fewest(terms)

    monkeypatch.setattr(extents, "_fewest", counted)
    whole = parse_expr(" + ".join(f"max(p{one}, q{one})" for one in range(6)))
    assert format_expr(normal(whole)) == format_expr(whole)
    assert len(sums) <= 2 * 2**6  # one or two for each set of extremes; 6! times that by order
