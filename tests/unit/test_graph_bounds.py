"""Bounds of extents, against every size."""

from __future__ import annotations

from itertools import product
from math import inf

import pytest

from offcut.core import index as ix
from offcut.core.intervals import interval_op
from offcut.graph.sizes.floor_bounds import of_floors
from offcut.ir import Binary, Expr, Var
from tests.facade import evaluate

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
