"""Extents have one form: equal ones are equal, with as few terms as can be, and no value changes."""

from __future__ import annotations

import random
from itertools import product
from math import inf

import pytest
import sympy

from offcut import dim
from offcut.core import index as ix
from offcut.core.intervals import interval_op
from offcut.core.sizes import quotient, with_sizes
from offcut.graph.sizes import extents
from offcut.graph.sizes.extents import normal
from offcut.graph.sizes.floor_bounds import of_floors
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


# Bounds of extents, against every size.


H = Var("h")


def floor(a: Expr, by: int) -> Expr:
    return Binary("//", a, ix.const(by))


@pytest.mark.parametrize(
    "expr",
    [
        Binary("-", Binary("*", ix.const(2), floor(Binary("+", H, ix.const(1)), 2)), H),
        Binary("-", H, Binary("*", floor(H, 4), ix.const(4))),
        floor(Binary("+", floor(H, 3), H), 5),
        Binary("-", floor(Binary("-", H, ix.const(1)), 2), floor(H, 2)),
    ],
)
def test_no_size_gives_less_or_more(expr: Expr) -> None:
    found = of_floors(expr, {"h": (1, 40)})
    assert found is not None
    values = [int(evaluate(expr, {"h": h})) for h in range(1, 41)]
    assert found[0] <= min(values)
    assert max(values) <= found[1]


def test_a_floor_that_is_multiplied_again_is_near_what_it_was_of() -> None:
    twice = Binary("*", ix.const(2), floor(Binary("+", H, ix.const(1)), 2))
    assert of_floors(Binary("-", twice, H), {"h": (0, 2**31 - 1)}) == (0, 1)


def test_a_product_of_sizes_has_no_such_of_floors() -> None:
    assert of_floors(Binary("*", H, H), {"h": (1, 4)}) is None


@pytest.mark.parametrize("op", ["+", "-", "*", "//", "%", "min", "max"])
def test_no_operands_give_less_or_more(op: str) -> None:
    for a, b in product([(-3, 4), (0, 0), (2, 5), (-4, -1)], [(1, 3), (2, 2)]):
        low, high = interval_op(op, a, b)
        values = [
            int(evaluate(Binary(op, ix.const(x), ix.const(y)), {}))
            for x in range(a[0], a[1] + 1)
            for y in range(b[0], b[1] + 1)
        ]
        assert low <= min(values)
        assert max(values) <= high
        assert op == "%" or (low, high) == (min(values), max(values))


@pytest.mark.parametrize(
    ("op", "a", "b", "wanted"),
    [
        ("+", (-inf, 3), (2, inf), (-inf, inf)),
        ("-", (0, inf), (1, 5), (-5, inf)),
        ("*", (0, inf), (0, 3), (0, inf)),
        ("//", (-inf, inf), (4, 4), (-inf, inf)),
        ("//", (-3, inf), (2, 2), (-2, inf)),
        ("%", (-inf, inf), (4, 4), (0, 3)),
        ("min", (0, inf), (2, 7), (0, 7)),
        ("max", (-inf, 1), (2, 7), (2, 7)),
    ],
)
def test_ends_may_be_infinite(
    op: str, a: tuple[float, float], b: tuple[float, float], wanted: tuple[float, float]
) -> None:
    assert interval_op(op, a, b) == wanted


# `quotient` and `with_sizes` give what sympy's ``//`` and ``xreplace`` give, which search for it longer.


N, M = dim("n"), dim("m", max=9, multiple_of=3)
HALF = (N - 1) // 2
PAIRS = ((N, M), (N, N * M), (HALF, N), (N % 4, HALF), (sympy.Max(N, M), sympy.Min(N, 4)))


@pytest.mark.every(4)
@pytest.mark.parametrize(("x", "y"), PAIRS, ids=str)
def test_a_quotient_is_the_floor_that_sympy_finds(x, y):
    x, y = sympy.sympify(x), sympy.sympify(y)
    for a, b, c, divisor in product((-3, 0, 2, 4), (0, 1, 8), (-7, 0, 1, 4), (2, 3)):
        assert quotient(a * x + b * y + c, divisor) == (a * x + b * y + c) // divisor


@pytest.mark.parametrize("size", [N / 2, 3 * N / 2 + 1, (N + 1) * (M + 2) * 3, 2 * (N + M) + 3])
def test_what_is_no_sum_of_whole_terms_is_left_to_sympy(size):
    assert quotient(size, 2) == size // 2


def test_a_quotient_of_numbers_is_a_number():
    assert [quotient(n, 4) for n in (-5, -1, 0, 3, 4, 9)] == [-2, -1, 0, 0, 1, 2]


@pytest.mark.parametrize(
    "size", [one for pair in PAIRS for one in pair] + [HALF // 3 + M, sympy.Integer(3)], ids=str
)
def test_a_size_in_other_symbols_is_what_sympy_makes_of_it(size):
    now = {N: dim("t"), M: dim("a", max=9, multiple_of=3)}
    made, expected = with_sizes(sympy.sympify(size), now), sympy.sympify(size).xreplace(now)
    assert (made, str(made)) == (expected, str(expected))
    assert made + 1 - expected == 1
