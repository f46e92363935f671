"""Formulas of values at a few sizes: of recurrences of sums and maxima, and of what has no period."""

from __future__ import annotations

from collections.abc import Mapping
from math import log2

import pytest

from offcut.costmodel.periodic_fit import PeriodicFit, fit_periodic
from offcut.ir import Size
from tests.agree import nearly
from tests.facade import evaluate

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


@pytest.mark.parametrize("tile", [1, 7, 16])
@pytest.mark.parametrize("windows", [1, 2, 3])
@pytest.mark.parametrize("times", [(9.0, 4.0, 2.0), (3.0, 8.0, 1.0), (2.0, 3.0, 11.0)])
def test_a_pipeline_is_a_formula_from_its_first_tiles(
    tile: int, windows: int, times: tuple[float, float, float]
) -> None:
    def cycles(sizes: Mapping[str, int]) -> float:
        return pipeline(-(-sizes["n"] // tile), *times, windows)

    size = Size("n", 1, LARGE)
    found = fit_periodic(cycles, [size], {"n": [tile] if tile > 1 else []})
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


def test_few_sizes_need_no_period() -> None:
    def cycles(sizes: Mapping[str, int]) -> float:
        return float(sizes["n"] ** 2)

    found = fit_periodic(cycles, [Size("n", 1, 9)], {"n": [8]})
    assert [at(found, n=n) for n in range(1, 10)] == nearly([n**2 for n in range(1, 10)], rel=0.01)


@pytest.mark.parametrize("name", ["square", "logarithm"])
def test_what_has_no_period_is_said_to_be_off(name: str) -> None:
    def cycles(sizes: Mapping[str, int]) -> float:
        n = sizes["n"]
        return float(n * n) if name == "square" else n * log2(n + 1) ** 2

    found = fit_periodic(cycles, [Size("n", 1, LARGE)], {"n": [8]})
    assert found.within > 0.05


def test_a_call_without_sizes_is_a_number() -> None:
    found = fit_periodic(lambda sizes: 42.0, [], {})
    assert (at(found), found.within) == (42.0, 0.0)


def test_no_more_sizes_are_looked_at_than_a_few_tiles_of() -> None:
    asked = set[int]()

    def cycles(sizes: Mapping[str, int]) -> float:
        asked.add(sizes["n"])
        return pipeline(-(-sizes["n"] // 128), 2.0, 5.0, 1.0, 2)

    fit_periodic(cycles, [Size("n", 1, LARGE)], {"n": [128]})
    assert max(asked) <= 8 * 128
    assert len(asked) <= 120
