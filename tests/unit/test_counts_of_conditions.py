"""What is counted of loops with conditions, in numbers and in formulas, against counting one instance after the other."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import offcut as oc
from offcut.costmodel.closed import sums
from tests.agree import nearly
from tests.facade import evaluate
from tests.polybench import text_of

HEAD = """program p
size n in 0:5000
input x: float32[n]
inout c: float32[n]
for i in 0:n
"""

COUNTED: dict[str, tuple[str, Callable[[int], int]]] = {
    "two sides": (
        "  if i % 3 == 0\n    c[i] += x[i] * x[i]\n  else\n    c[i] max= x[i]\n",
        lambda n: sum(2 if i % 3 == 0 else 1 for i in range(n)),
    ),
    "of a sum": (
        "  for j in 0:n\n    if (i + j) % 2 == 0\n      c[i] += x[j]\n",
        lambda n: sum((i + j) % 2 == 0 for i in range(n) for j in range(n)),
    ),
    "bounds in halves": (
        "  for j in i//2:min(n, i + 3)\n    c[i] += x[j]\n",
        lambda n: sum(max(0, min(n, i + 3) - i // 2) for i in range(n)),
    ),
    "remainders from a bound on": (
        "  for j in max(i - 3, 0):n\n    if j % 2 == 0\n      c[j] += x[i] * x[j]\n",
        lambda n: 2 * sum(j % 2 == 0 for i in range(n) for j in range(max(i - 3, 0), n)),
    ),
    "ends": (
        "  if i < 2 or i > 6\n    c[i] = x[i] * 2.0\n",
        lambda n: sum(i < 2 or i > 6 for i in range(n)),
    ),
    "a shift": ("  c[i] = where(i >= 5, x[i - 5], 0.0)\n", lambda n: 0),
    "a product taken away": ("  c[i] -= x[i] * x[i]\n", lambda n: 2 * n),
}


@pytest.mark.every(4)
@pytest.mark.parametrize("name", COUNTED)
def test_operations_are_those_of_the_instances_that_run(name: str) -> None:
    body, counted = COUNTED[name]
    kernel = oc.compile(oc.parse(HEAD + body))
    formulas = kernel.cost()
    assert formulas.exactness.flop == "exact"
    for n in (0, 1, 2, 3, 4, 5, 7, 9, 10, 17, 100):
        assert kernel.cost(n=n).flop == counted(n)
        assert formulas.flop.subs(dict.fromkeys(formulas.flop.free_symbols, n)) == counted(n)


def test_a_choice_between_a_value_and_an_operation_is_a_bound() -> None:
    kernel = oc.compile(oc.parse(HEAD + "  c[i] = where(x[i] < 5.0, x[i] * 2.0, x[i])\n"))
    assert kernel.cost(n=10).flop == 10
    assert kernel.cost(n=10).exactness.flop == kernel.cost().exactness.flop == "bound"


TRIANGLE = """program gram
size n in 0:4097
input x: float32[n]
inout C: float32[n, n]
for i in 0:n
  for j in 0:i + 1
    C[i, j] += x[i] * x[j]
"""


def test_a_triangle_in_guarded_tiles_is_counted() -> None:
    tail = {"i": "cut", "j": "guard"}
    cut = oc.partition(oc.parse(TRIANGLE), tile={"i": 8, "j": 32}, tail=tail)
    kernel = oc.compile(cut.loops)
    for n in (7, 70):
        at = kernel.cost(n=n)
        assert at.flop == 2 * sum(i + 1 for i in range(n))
        assert at.exactness.flop == "exact"


BAND = """program band
size n in 0:200001
input x: float32[n]
inout C: float32[n, n]
for i in 0:n
  for j in 0:n
    if j <= i + 3 and i <= j + 3
      C[i, j] += x[i] * x[j]
"""


def band(rows: str, columns: str) -> oc.Kernel:
    """A band whose rows and columns are cut so; it keeps conditions around its tiles."""
    tail = {"i": rows, "j": columns}
    return oc.compile(oc.partition(oc.parse(BAND), tile={"i": 8, "j": 8}, tail=tail).loops)


def in_band(n: int) -> int:
    return 2 * sum(min(n, i + 4) - max(0, i - 3) for i in range(n))


def test_conditions_around_tiles_are_counted_at_sizes_and_estimated_in_formulas() -> None:
    kernel = band("guard", "cut")
    for n in (0, 1, 70):
        at = kernel.cost(n=n)
        assert at.exactness.flop == "exact"
        assert sum(piece.flop for piece in at.pieces) == in_band(n)
        assert (at.cycles > at.call) == (n > 0)
    formulas = kernel.cost()
    assert formulas.exactness.flop == "estimate"
    pieces = formulas.prediction.pieces
    for n in (70, 200, 1000):
        flop = sum(evaluate(one.counts.flop, {"n": n}) for one in pieces)
        assert flop == nearly(in_band(n), rel=0.1)


@pytest.mark.isa("avx512f")  # of lanes that are a whole line
def test_bytes_of_a_piece_that_never_runs_are_of_the_one_that_does() -> None:
    """Each row has less than a whole tile: what comes over is the first to touch the band."""
    at, in_one_piece = band("guard", "cut").cost(n=4000), band("cut", "guard").cost(n=4000)
    piece, near = at.pieces[0], at.memories[0]
    assert sum(one.runs for one in at.pieces) == in_band(4000) // 2
    assert piece.bytes[near] >= in_one_piece.bytes[near] > 0
    assert piece.resources[near] > 0


ROWS = """program even_squares
size n in 0:100001
size m in 0:1000001
input A: float32[n, m]
inout c: float32[m]
for i in 0:n
  if i*i % 4 == 0
    for j in 0:m
      c[j] += A[i, j]
"""


def test_what_stays_is_the_most_of_the_iterations_whichever_runs_half_way() -> None:
    kernel = oc.compile(oc.parse(ROWS))
    formulas = kernel.cost().resident_bytes
    for n in (1000, 1001, 1002, 1003):
        kept = kernel.cost(n=n, m=1000).kept
        assert min(kept.values()) >= 8000  # a row, and the sums
        at = {"n": n, "m": 1000}
        for name, size in kept.items():
            one = formulas[name]
            assert one.subs({s: at[str(s)] for s in one.free_symbols}) >= size


def test_bytes_that_are_too_much_to_add_up_are_a_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kernel = oc.compile(oc.parse(ROWS))
    sizes = {"n": 1001, "m": 1_000_000}
    wanted = kernel.cost(**sizes)
    monkeypatch.setattr(sums, "MAX_EVALUATED_PARTS", 1000)
    at = kernel.cost(**sizes)
    assert at.bytes[at.memories[0]] >= wanted.bytes[at.memories[0]]


def test_what_is_too_much_to_add_up_is_an_estimate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sums, "MAX_EVALUATED_PARTS", 1000)
    at = band("guard", "cut").cost(n=4001)
    assert at.exactness.flop == "estimate"
    assert at.flop == nearly(in_band(4001), rel=0.01)
    assert sum(piece.flop for piece in at.pieces) == nearly(in_band(4001), rel=0.01)


def test_counts_may_be_larger_than_integers_of_machines() -> None:
    text = TRIANGLE.replace("0:4097", f"0:{2**31}").replace("0:i + 1", "0:n")
    kernel = oc.compile(oc.parse(text))
    assert kernel.cost(n=2**31 - 1).flop == 2 * (2**31 - 1) ** 2


def test_heights_of_balanced_tiles_are_counted_where_no_tile_is() -> None:
    body = "  for j in i:3\n    c[i] += x[i]\n"
    cut = oc.partition(oc.parse(HEAD + body), tile={"j": 2}, tail={"j": "balance"})
    kernel = oc.compile(cut.loops)
    assert [kernel.cost(n=n).flop for n in (0, 1, 2, 3, 4, 9)] == [0, 3, 5, 6, 6, 6]
    formula = kernel.cost().flop
    assert [formula.subs(dict.fromkeys(formula.free_symbols, n)) >= 6 for n in (4, 9)] == [True] * 2


def test_a_page_fits_a_long_count_by_its_sizes_though_it_has_bounded_values() -> None:
    tail = {"i2": "mix", "i": "guard"}
    cut = oc.partition(oc.parse(text_of("jacobi-1d")), tile={"i2": 4, "i": 4}, tail=tail)
    page = str(oc.compile(cut.loops).cost())
    (flop,) = (line for line in page.splitlines() if line.startswith("flop is about"))
    assert "*n*steps" in flop
    assert "q" not in flop
    assert "q = (n - 2)//max(" in page


def test_of_options_that_compete_the_operations_are_counted_once() -> None:
    program = oc.parse(
        "program double\nsize n in 0:601\ninput x: float32[n]\noutput y: float32[n]\nfor i in 0:n\n  y[i] = x[i]*2.0"
    )
    kernel = oc.compile(oc.partition(program, tile={"i": 4}, tail={"i": "mix"}).loops)
    flop = kernel.cost().flop
    for n in (1, 3, 10):
        assert flop.subs(dict.fromkeys(flop.free_symbols, n)) == kernel.cost(n=n).flop == n
