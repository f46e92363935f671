"""Bounds of extents, against every size."""

from __future__ import annotations

import pytest

pytest.importorskip("onnx", reason="the extra onnx is not installed")

from offcut.core import index as ix
from offcut.core.expr import Binary, Expr, Var
from offcut.core.interpret.values import evaluate
from offcut.plugins.onnx.bounds import bounds

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
    found = bounds(expr, {"h": (1, 40)})
    assert found is not None
    values = [int(evaluate(expr, {"h": h})) for h in range(1, 41)]
    assert found[0] <= min(values)
    assert max(values) <= found[1]


def test_a_floor_that_is_multiplied_again_is_near_what_it_was_of() -> None:
    twice = Binary("*", ix.const(2), floor(Binary("+", H, ix.const(1)), 2))
    assert bounds(Binary("-", twice, H), {"h": (0, 2**31 - 1)}) == (0, 1)


def test_a_product_of_sizes_has_no_such_bounds() -> None:
    assert bounds(Binary("*", H, H), {"h": (1, 4)}) is None
