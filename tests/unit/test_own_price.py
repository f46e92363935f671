"""A cost model of the user's: what it is asked, what it decides, and how it is refused."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import numpy as np
import pytest
import sympy
from conftest import refusals

import offcut as oc
from offcut import ir
from offcut.errors import InternalError
from tests.agree import agree, exact_matmul, nearly


def product() -> oc.Tensor:
    n, k = oc.dim("n", min=1, max=512), oc.reduce_axis(24, name="k")
    A, W = oc.placeholder((n, 24), name="A"), oc.placeholder((24, 40), name="W")
    return oc.compute((n, 40), lambda i, j: oc.sum(A[i, k] * W[k, j], axis=k), name="C")


def balanced(loops: ir.Program) -> bool:
    return any(isinstance(stmt, ir.Let) for stmt in ir.walk(loops))


def chosen(kernel: oc.Kernel, n: int) -> list[str]:
    return [one.label for one in kernel.plan(n=n).considered if one.chosen]


@pytest.mark.parametrize("likes", [True, False], ids=["balance", "ladder"])
def test_a_call_takes_the_way_that_the_price_says(likes: bool) -> None:
    asked: list[ir.Program] = []

    def price(loops: ir.Program) -> float:
        asked.append(loops)
        return 1e-9 if balanced(loops) is likes else 1e-6

    kernel = oc.compile(product(), price=price)
    assert len(asked) >= 2
    assert all(not any(isinstance(s, ir.Choose) for s in ir.walk(one)) for one in asked)
    for n in (1, 13, 14, 45):
        (label,) = chosen(kernel, n)
        assert label.startswith("balance" if likes else "ladder")
        rng = np.random.default_rng(n)
        a, w = rng.standard_normal((n, 24), "f"), rng.standard_normal((24, 40), "f")
        agree(kernel(a, w), exact_matmul(a, w))


def test_a_price_over_the_sizes_is_asked_at_every_call_of_the_ways_of_a_strategy() -> None:
    n = oc.dim("n", min=1, max=512)
    kernel = oc.compile(product(), price=lambda loops: 1e-9 * n if balanced(loops) else 20e-9)
    assert chosen(kernel, 19)[0].startswith("balance")
    assert chosen(kernel, 21)[0].startswith("ladder")
    asked: list[bool] = []

    def price(loops: ir.Program) -> Any:
        asked.append(balanced(loops))
        return np.float32(1e-6)  # a number of any kind

    kernel = oc.compile(product(), strategy="balance", price=price)
    assert all(asked)
    assert all(one.label.startswith("balance") for one in kernel.plan(n=29).considered)


def test_a_price_has_integers_of_the_built_in_one_and_of_sizes() -> None:
    def seconds(loops: ir.Program, sizes: Any, built_in: Any) -> Any:
        return 2 * built_in + 3 * sizes["n"] + sympy.Max(built_in, 7)

    ours = oc.compile(product(), price=seconds).plan(n=29).considered
    built_in = oc.compile(product(), price=lambda loops, sizes, built: built).plan(n=29).considered

    for one, plain in zip(ours, built_in, strict=True):
        assert one.seconds == nearly(2 * plain.seconds + 94, rel=1e-12)


def test_a_price_is_sums_products_quotients_and_powers() -> None:
    n = oc.dim("n", min=1, max=512)

    def seconds(loops: ir.Program) -> Any:
        return 1e-9 * n * n + 2e-9 * n / (n + 1) ** 2 + 3e-9 * (n // 14) + n / 2

    for one in (kernel := oc.compile(product(), price=seconds)).plan(n=29).considered:
        exact = 1e-9 * 29**2 + 2e-9 * 29 / 30**2 + 3e-9 * 2 + 14.5
        assert one.seconds == nearly(exact, rel=1e-12)
    assert kernel.plan(n=1).considered


def test_what_it_said_is_in_the_schedule_and_needs_no_function() -> None:
    kernel = oc.compile(product(), price=lambda loops: 3e-9 if balanced(loops) else 5e-9)
    text = str(kernel.schedule)
    again = oc.compile(product(), schedule=oc.Schedule.parse(text))
    assert "costs 3e-09" in text
    assert str(again.loops) == str(kernel.loops)
    with pytest.raises(oc.DescribeError, match="a schedule says what its ways cost"):
        oc.compile(product(), schedule=kernel.schedule, price=lambda loops: 1.0)


def raises(error: Exception) -> Any:
    def price(loops: ir.Program) -> float:
        raise error

    return price


@pytest.mark.parametrize(
    ("price", "kind", "said"),
    [
        (raises(KeyError("no such tile")), oc.DescribeError, "raised KeyError: 'no such tile'"),
        (raises(InternalError("a bug that it meets")), InternalError, "a bug that it meets"),
        (lambda: 1.0, oc.DescribeError, "price= raised TypeError: <lambda>() takes 0 positional"),
        (lambda _: -1.0, oc.DescribeError, "cannot take -1.0 as the price of ladder"),
    ],
)
def test_what_a_price_raises_is_told(price: Any, kind: type[Exception], said: str) -> None:
    with pytest.raises(kind, match=re.escape(said)):
        oc.compile(product(), price=price)


REFUSED: dict[str, tuple[Any, str]] = refusals(
    """\
no function
given 3.0
compile: cannot take price=3.0
  because  it is not a function
  help     lambda loops: 2e-9 * n

no cost
given lambda loops: 'cheap'
compile: cannot take 'cheap' as the price of {way}
  because  a price is seconds: a number that is at least 0, or an expression over the sizes
  help     lambda loops: 2e-9 * n
  help     lambda loops: 1e-9 * n**2 + 3e-9 * sympy.Max(n, 64)

another size
given lambda loops: 2e-09 * oc.dim('m')
compile: cannot take 2e-09 * float64(m) as the price of {way}
  because  it reads m, and a cost is told by the sizes alone, which are n

below 0 at a size
given lambda loops: 2e-09 * (oc.dim('n') - 5)
compile: cannot take -1e-08 + 2e-09 * float64(n) as the price of {way}
  because  with n = 1, it is -8e-09, and seconds are at least 0

a root
given lambda loops: 2e-09 * oc.dim('n', min=1, max=512) ** 0.5 + 1e-09
compile: cannot take 2.0e-9*n**0.5 + 1.0e-9 as the price of {way}
  because  n**0.5 in it: a call evaluates sums, products, quotients, powers by integers of at most 8, Min and Max of the sizes, and // and % of them by integers
  help     lambda loops: 2e-9 * n
  help     lambda loops: 1e-9 * n**2 + 3e-9 * sympy.Max(n, 64)

a logarithm
given lambda loops: sympy.log(oc.dim('n', min=1, max=512))
compile: cannot take log(n) as the price of {way}
  because  a call evaluates sums, products, quotients, powers by integers of at most 8, Min and Max of the sizes, and // and % of them by integers
  help     lambda loops: 2e-9 * n
  help     lambda loops: 1e-9 * n**2 + 3e-9 * sympy.Max(n, 64)

not a number
given lambda loops: float('nan')
compile: cannot take nan as the price of {way}
  because  a price is seconds: a number that is at least 0, or an expression over the sizes
  help     lambda loops: 2e-9 * n
  help     lambda loops: 1e-9 * n**2 + 3e-9 * sympy.Max(n, 64)""",
    globals(),
)


@cache
def first_way() -> str:
    return oc.compile(product(), price=lambda loops: 0.0).plan(n=1).considered[0].label


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_no_price_is_refused(what: str) -> None:
    price, text = REFUSED[what]
    way = first_way()
    with pytest.raises(oc.OffcutError) as refused:
        oc.compile(product(), price=price)
    assert str(refused.value) == text.format(way=way)
