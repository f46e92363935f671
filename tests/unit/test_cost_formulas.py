"""The page that formulas of a cost are printed as says what costs at sizes say, and is a page."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache
from math import log2

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import offcut as oc
from offcut import Kernel
from offcut.backends.cpu.machine import isa
from offcut.backends.cpu.microkernels.available import families
from offcut.core import index as ix
from offcut.costmodel import roofline, simplify_cost, tile_price
from offcut.costmodel.closed.display import fit_terms, terms_of
from offcut.costmodel.periodic_fit import PeriodicFit, fit_periodic
from offcut.ir import Size
from tests.agree import nearly
from tests.facade import evaluate, load_machine, parse_expr, shipped_machines

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


# Formulas with names in them give at numbers what costs at these sizes say.


@cache
def running() -> Kernel:
    n = oc.dim("n", max=300)
    return oc.compile(oc.ops.cumsum(oc.placeholder((n,), name="Z"), 0), records=False)


@cache
def normalised() -> Kernel:
    e1, n = oc.dim("e1", max=512), oc.dim("n", min=1, max=3000)
    X, G = oc.placeholder((e1, n), name="X"), oc.placeholder((n,), name="G")
    return oc.compile(oc.ops.layernorm(X, G), inputs=[X, G], records=False)


@pytest.mark.parametrize(
    ("made", "sizes"),
    [
        (running, {"n": 299}),
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
        assert float(found.subs(symbols)) == nearly(exact, rel=0.02)
    assert not set(formula.parts) & set(sizes)


# A cost without what no size tells: shorter, and of the same value.


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


# Formulas of values at a few sizes: of recurrences of sums and maxima, and of what has no period.


LARGE = 10**6


def at(found: PeriodicFit, **sizes: int) -> float:
    return float(evaluate(found.formula, sizes))


def pipeline(tiles: int, load: float, compute: float, store: float, windows: int) -> float:
    """Three units, a tile after the other, with so many windows: when the last tile is stored."""
    loaded = computed = stored = 0.0
    ends: list[float] = []
    for tile in range(tiles):
        free = ends[tile - windows] if tile >= windows else 0.0
        loaded = max(loaded, free) + load
        computed = max(computed, loaded) + compute
        stored = max(stored, computed) + store
        ends.append(stored)
    return stored


@settings(max_examples=15)
@given(
    tile=st.sampled_from([1, 7, 16]),
    windows=st.integers(1, 3),
    times=st.sampled_from([(9.0, 4.0, 2.0), (3.0, 8.0, 1.0), (2.0, 3.0, 11.0)]),
)
def test_a_pipeline_is_a_formula_from_its_first_tiles(
    tile: int, windows: int, times: tuple[float, float, float]
) -> None:
    def cycles(sizes: Mapping[str, int]) -> float:
        return pipeline(-(-sizes["n"] // tile), *times, windows)

    found = fit_periodic(cycles, [Size("n", 1, LARGE)], {"n": [tile] if tile > 1 else []})
    assert found.within <= 0.01
    for n in (1, 2, tile, tile + 1, 5 * tile, 5 * tile + 1, 40 * tile - 1, 90 * tile + 3):
        assert at(found, n=n) == nearly(cycles({"n": n}), rel=0.02)


def test_two_sizes_that_stand_in_one_another_are_a_formula() -> None:
    def cycles(sizes: Mapping[str, int]) -> float:
        rows, columns = -(-sizes["n"] // 3), -(-sizes["m"] // 8)
        return 100.0 + rows * (50.0 + pipeline(columns, 5.0, 7.0, 1.0, 2)) + 2.0 * sizes["n"]

    sizes = [Size("n", 1, LARGE), Size("m", 1, LARGE)]
    found = fit_periodic(cycles, sizes, {"n": [3], "m": [8]})
    assert found.within <= 0.02
    for n, m in ((1, 1), (3, 8), (4, 9), (50, 3), (2, 700), (301, 1234)):
        assert at(found, n=n, m=m) == nearly(cycles({"n": n, "m": m}), rel=0.03)


def test_periods_of_several_tiles_are_found() -> None:
    def cycles(sizes: Mapping[str, int]) -> float:
        tiles = sizes["n"] // 4
        return 10.0 * tiles + 30.0 * (tiles // 3) + 7.0

    found = fit_periodic(cycles, [Size("n", 4, LARGE, multiple_of=4)], {"n": [4]})
    assert found.within == 0.0
    for n in (4, 12, 16, 36, 1000, 99 * 4):
        assert at(found, n=n) == nearly(cycles({"n": n}))


def test_no_more_sizes_are_looked_at_than_a_few_tiles_of() -> None:
    asked = set[int]()

    def cycles(sizes: Mapping[str, int]) -> float:
        asked.add(sizes["n"])
        return pipeline(-(-sizes["n"] // 128), 2.0, 5.0, 1.0, 2)

    fit_periodic(cycles, [Size("n", 1, LARGE)], {"n": [128]})
    assert max(asked) <= 8 * 128
    assert len(asked) <= 120


def test_few_sizes_or_none_need_no_period() -> None:
    found = fit_periodic(lambda sizes: float(sizes["n"] ** 2), [Size("n", 1, 9)], {"n": [8]})
    assert [at(found, n=n) for n in range(1, 10)] == nearly([n**2 for n in range(1, 10)], rel=0.01)
    number = fit_periodic(lambda sizes: 42.0, [], {})
    assert (at(number), number.within) == (42.0, 0.0)


@pytest.mark.parametrize("power", [1, 2])
def test_what_has_no_period_is_said_to_be_off(power: int) -> None:
    """A square, and a product with a logarithm."""

    def cycles(sizes: Mapping[str, int]) -> float:
        n = sizes["n"]
        return float(n * n) if power == 2 else n * log2(n + 1) ** 2

    assert fit_periodic(cycles, [Size("n", 1, LARGE)], {"n": [8]}).within > 0.05


# Rooflines: peaks, bandwidths and where they meet, against numbers by hand.


def test_the_roofline_of_cascade_lake_by_hand() -> None:
    """At 2.1 GHz: 32 multiply–adds a cycle are 134.4 GFLOP/s, 24 bytes of L2 are 50.4 GB/s."""
    machine = load_machine("cascade-lake")
    roof = roofline(machine, machine.unit[:1])
    assert [peak for _, peak in roof.peaks] == nearly([134.4e9])
    assert dict(roof.bandwidths)["L2"] == nearly(50.4e9)
    assert [name for name, _ in roof.bandwidths] == ["L1", "L2", "L3", "DRAM"]
    assert roof.ridges(50.4e9) == nearly((134.4 / 50.4,))
    assert roof.attainable(50.4e9, 1.0) == nearly(50.4e9)
    assert roof.attainable(50.4e9, 100.0) == nearly(134.4e9)


def test_a_memory_stops_binding_at_its_ridge() -> None:
    for machine in map(load_machine, shipped_machines()):
        roof = roofline(machine, machine.unit)
        peak = max(peak for _, peak in roof.peaks)
        for _, bandwidth in roof.bandwidths:
            ridge = max(roof.ridges(bandwidth))
            attained = [roof.attainable(bandwidth, part * ridge) for part in (1, 0.5, 2)]
            assert attained == nearly([peak, peak / 2, peak])


# The predicted seconds of tiles of any height, the tallest that can be asked for too.


kernel = families(isa.host())[0].microkernel


def seconds(height: int, tile: int) -> float:
    price = tile_price(kernel, isa.host().machine)([(ix.const(3), ix.const(height))], tile)
    return float(evaluate(price, {}))


def test_a_height_costs_the_same_among_tiles_of_any_largest_height() -> None:
    for height in (0, 1, kernel.max_rows, kernel.max_rows + 1, 64):
        assert seconds(height, 64) == nearly(seconds(height, 2**31 - 1))


def test_taller_tiles_than_a_microkernel_cost_their_share_of_rows() -> None:
    tallest = kernel.max_rows
    assert seconds(5 * tallest, 2**31 - 1) == nearly(5 * seconds(tallest, tallest))
