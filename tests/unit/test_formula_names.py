"""Formulas with names in them give at numbers what costs at these sizes say."""

from __future__ import annotations

from functools import cache

import pytest

import offcut as oc
from offcut import Kernel
from tests.agree import nearly


@cache
def running() -> Kernel:
    n = oc.dim("n", max=300)
    return oc.compile(oc.ops.cumsum(oc.placeholder((n,), name="Z"), 0), records=False)


@cache
def normalised() -> Kernel:
    e1, n = oc.dim("e1", max=512), oc.dim("n", min=1, max=3000)
    X, G = oc.placeholder((e1, n), name="X"), oc.placeholder((n,), name="G")
    return oc.compile(oc.ops.layernorm(X, G), inputs=[X, G], records=False)


@pytest.mark.every(4)
@pytest.mark.parametrize(
    ("made", "sizes"),
    [
        (running, {"n": 5}),
        (running, {"n": 299}),
        (normalised, {"e1": 7, "n": 40}),
        (normalised, {"e1": 300, "n": 2999}),
    ],
)
def test_numbers_put_into_a_formula_are_put_into_its_names(
    made: object, sizes: dict[str, int]
) -> None:
    kernel = made()  # type: ignore[operator]
    formula, at = kernel.cost(), kernel.cost(**sizes)
    for found, exact in ((formula.cycles, at.cycles), (formula.flop, at.flop)):
        symbols = {symbol: sizes[symbol.name] for symbol in found.free_symbols}
        assert float(found.xreplace(symbols).doit()) == nearly(exact, rel=0.02)
    assert not set(formula.parts) & set(sizes)


def test_subs_puts_them_there_as_well() -> None:
    formula = running().cost()
    (size,) = formula.cycles.free_symbols
    assert float(formula.cycles.subs({size: 77})) == nearly(running().cost(n=77).cycles, rel=0.02)
