"""The page that formulas of a cost are printed as says what costs at sizes say, and is a page."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest

import offcut as oc
from offcut import Kernel
from offcut.costmodel.closed.display import fit_terms, terms_of
from tests.agree import nearly

N = oc.dim("n", min=1, max=200)


def dense() -> Kernel:
    A, W = oc.placeholder((N, 96), name="A"), oc.placeholder((96, 80), name="W")
    return oc.compile(oc.ops.matmul(A, W), constants={"W": np.ones((96, 80), "float32")})


def softmax() -> Kernel:
    return oc.compile(oc.ops.softmax(oc.placeholder((N, oc.dim("m", max=300)), name="X")))


def choosing() -> Kernel:
    A, W = oc.placeholder((N, 64), name="A"), oc.placeholder((64, 80), name="W")
    return oc.compile(oc.ops.matmul(A, W))


@pytest.mark.every(3)
@pytest.mark.parametrize("made", [dense, softmax, choosing])
def test_formulas_are_printed_as_a_page(made: Callable[[], Kernel]) -> None:
    formulas = made().cost()
    lines = str(formulas).splitlines()
    assert len(lines) < 40
    assert max(map(len, lines)) <= 120
    assert lines[1] == f"flop = {formulas.flop}"
    assert sum(line.startswith("the call ") for line in lines) == 1
    assert len(formulas.in_full()) > 4 * len(str(formulas))
    assert "bytes from L2 = " in formulas.in_full()
    assert re.fullmatch(r"<cost \w+\((n|n, m)\) on host: formulas>", repr(formulas))


def test_the_page_says_what_binds_at_which_sizes() -> None:
    kernel = dense()
    last = str(kernel.cost()).splitlines()[-1]
    assert last.startswith("bound over n: ")
    said = re.findall(r"(\w+) at (\d+)(?:…(\d+))?( \(\d+% of them\))?", last)
    assert {int(n) for _, first, end, _ in said for n in (first, end or first)} >= {1, 200}
    for n in (1, 3, 17, 200):
        spans = [name for name, first, end, _ in said if int(first) <= n <= int(end or first)]
        assert kernel.cost(n=n).bound_by in spans


def test_a_polynomial_is_found_again_and_what_it_is_off_by_is_said() -> None:
    b, n = (axis.ravel().astype(float) for axis in np.meshgrid([1, 2, 5], [1, 4, 16, 64]))
    points, terms = {"b": b, "n": n}, terms_of([("x", "y", "y")], {"x": "b", "y": "n"})
    assert terms == (("b", "n", "n"), ("b", "n"), ("n", "n"), ("b",), ("n",), ())
    exact = 3 * b * n * n + 250 * n + 50
    found = fit_terms(exact, exact, terms, points)
    assert str(found) == "3*b*n*n + 250*n + 50"
    assert found.worst < 1e-9
    bent = exact + 7 * (n == 64)
    found = fit_terms(bent, exact, (("n",),), points)
    ((factor, _),) = found.terms
    off = np.abs(factor * n - bent) / exact
    assert found.half == nearly(np.median(off))
    assert found.worst == nearly(off.max())
    assert fit_terms(-exact, exact, terms, points).terms == ()
