"""Strategies of a user's: proved or refused as brute force says, wherever a strategy is taken."""

from __future__ import annotations

import os
import pickle
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import EQUAL, edge_sizes, proved, slow
from hypothesis import given, settings
from hypothesis import strategies as st

import offcut as oc
from offcut import TiledAxis, TileRun
from offcut.core import index as ix
from offcut.partition import parse_strategy, segments
from offcut.partition.strategies.catalog import runs
from offcut.partition.strategies.tiled_axis import EXTENT, TileRuns
from tests.facade import STRATEGIES, Strategy, evaluate

Function = Callable[..., Iterator[TileRun]]
ROOT = Path(__file__).parents[2]


def halve(axis: TiledAxis) -> Iterator[TileRun]:
    yield axis.full()
    height = axis.tile // 2
    while height:
        yield axis.fixed(height)
        height //= 2


def peel(axis: TiledAxis) -> Iterator[TileRun]:
    """What does not fill a tile first, one at a time."""
    yield axis.fixed(1, axis.extent % axis.tile)
    yield axis.full()


def two_ways(axis: TiledAxis) -> Iterator[TileRun]:
    """Balanced below three tiles, masked above."""
    few = axis.where(axis.extent < 3 * axis.tile)
    many = axis.where(axis.extent >= 3 * axis.tile)
    yield few.balanced()
    yield many.full()
    yield many.masked()


def steps(axis: TiledAxis, *heights: int) -> Iterator[TileRun]:
    yield axis.full()
    for height in heights:
        yield axis.fixed(min(height, axis.tile))
    yield axis.tail()


def backed(axis: TiledAxis) -> Iterator[TileRun]:
    short = axis.where(axis.extent < axis.tile)
    yield axis.full()
    yield axis.shifted()
    yield short.guarded()


GOOD: list[Function] = [halve, peel, two_ways, steps, backed]


@pytest.fixture(autouse=True)
def registered(no_strategy_is_left: None) -> None:
    """The strategies of this file."""
    for function in GOOD:
        oc.strategy(function.__name__)(function)


def named(function: Function, tile: int, name: str = "drawn") -> Strategy:
    oc.strategy(name)(function)
    return parse_strategy(name, at="here", tiles=(tile,))


n = oc.dim("n", max=4096)
A = oc.placeholder((n, 5), "float64", name="A")
W = oc.placeholder((5, 6), "float64", name="W")
k = oc.reduce_axis(5, name="k")
C = oc.compute((n, 6), lambda i, j: oc.sum(A[i, k] * W[k, j], axis=k), name="C")


def operands(size: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(size)
    return rng.integers(-9, 9, (size, 5)).astype("f8"), rng.integers(-9, 9, (5, 6)).astype("f8")


def assert_runs(p: Any, tile: int) -> None:
    for size in edge_sizes(tile):
        a, w = operands(size)
        np.testing.assert_array_equal(p.run({"A": a, "W": w}, n=size), a @ w)


LADDER = ("ladder", (4, 2, 1))


@pytest.mark.every(4)
@pytest.mark.parametrize(
    ("tail", "tile", "heights"),
    [
        *((f.__name__, tile, None) for f in GOOD for tile in (1, 8)),
        *((("steps", (3, 2)), 1, None), ("steps(5)", 8, None)),
        *((tail, (24, 8), None) for tail in (LADDER, "halve")),
        *((LADDER, 8, {8, 4, 2, 1}), ("ladder(5, 3)", 8, {8, 5, 3})),
    ],
    ids=str,
)
def test_a_strategy_of_one_s_own_is_proved_and_runs(
    tail: Any, tile: Any, heights: set[int] | None
) -> None:
    p = oc.partition(C, tile={"i": tile}, tail={"i": tail})
    assert proved(p) >= EQUAL
    assert oc.parse(str(p)) == p.loops
    assert_runs(p, tile if isinstance(tile, int) else 8)
    assert heights is None or {piece.tile["i"] for piece in p.pieces} == heights


@pytest.mark.parametrize("tail", ["two_ways", *map(slow, (LADDER, "peel"))], ids=str)
def test_a_loop_program_a_sum_and_a_hand_schedule_take_it(tail: Any) -> None:
    source = oc.partition(C).source
    assert_runs(oc.partition(oc.parse(str(source)), tile={"i": 8}, tail={"i": tail}), 8)
    over = oc.partition(C, tile={"k": 3}, tail={"k": tail})
    assert proved(over) >= EQUAL
    assert_runs(over, 3)
    s = oc.create_schedule(C)
    s[C].split("i", 8, tail=tail)
    assert_runs(s, 8)


def test_a_pickled_kernel_needs_no_function(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OFFCUT_CACHE", "off")
    kernel = oc.compile(C, inputs=[A, W], strategy={"i": ("steps", (3,))})
    program = (
        "import pickle, sys, numpy as np\n"
        "kernel = pickle.load(sys.stdin.buffer)\n"
        "assert 'where' not in sys.modules\n"
        "a, w = np.ones((29, 5)), np.ones((5, 6))\n"
        "assert (kernel(a, w) == 5).all()\n"
        "sys.stdout.write(kernel.source())\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", program],
        input=pickle.dumps(kernel),
        capture_output=True,
        check=True,
        env=environment,
    )
    assert done.stdout.decode() == kernel.source()


def test_what_a_function_gives_is_its_identity_not_the_function() -> None:
    first = parse_strategy("halve", at="here")

    def again(axis: TiledAxis) -> Iterator[TileRun]:
        yield from halve(axis)

    oc.strategy("halve")(again)
    assert parse_strategy("halve", at="here") == first
    assert repr(parse_strategy("halve", at="here")) == repr(first)
    oc.strategy("halve")(peel)
    assert parse_strategy("halve", at="here") != first
    assert repr(parse_strategy("halve", at="here")) != repr(first)
    assert pickle.loads(pickle.dumps(first)) == first


def test_a_price_is_that_of_the_tiles_that_run() -> None:
    for strategy in (*STRATEGIES, *(named(f, 8, f.__name__) for f in GOOD)):
        for one in strategy.among or (strategy,):
            for size in edge_sizes(8):
                found: Counter[int] = Counter()
                for count, height in runs(one, EXTENT, 8):
                    here = {EXTENT.name: size}
                    found[int(evaluate(height, here))] += int(evaluate(count, here))
                assert all(0 <= height <= 8 for height in found)
                took = sum(height * count for height, count in found.items())
                if one.name == "exact":
                    assert took == size // 8 * 8
                    continue
                over = took - size
                assert 0 <= over < 8
                assert over == 0 or one.name in ("mask", "pad", "shift", "two_ways", "backed")
                literal = runs(one, ix.const(size), 8)
                assert took == sum(int(evaluate(c, {})) * int(evaluate(h, {})) for c, h in literal)


@pytest.mark.parametrize("tail", [("steps", (3, 2)), slow(LADDER)], ids=str)
def test_a_schedule_holds_it_by_name_and_is_another_where_it_gives_something_else(
    tail: Any,
) -> None:
    made = oc.compile(C, inputs=[A, W], strategy={"i": tail}).schedule
    parsed = oc.Schedule.parse(str(made))
    assert parsed == made
    assert parsed.digest == made.digest
    replayed = oc.compile(C, inputs=[A, W], schedule=parsed)
    assert replayed.loops == oc.compile(C, inputs=[A, W], strategy={"i": tail}).loops
    cut = oc.partition(oc.partition(C).source, tile={"i": (24, 8)}, tail={"i": tail})
    assert oc.Schedule.parse(str(cut.schedule)) == cut.schedule
    oc.strategy("halve")(peel)
    oc.strategy("steps")(lambda axis, *heights: (yield axis.guarded()))
    again = oc.Schedule.parse(str(made))
    assert (again == made) == (again.digest == made.digest) == (tail[0] == "ladder")


# Any function at all: what brute force says of it, and what isl does.


def simulated(takes: TileRuns, extent: int, tile: int) -> tuple[Counter[int], Counter[int], int]:
    """How often each iteration is answered for, how often it is run, and the tallest tile."""
    owned: Counter[int] = Counter()
    run: Counter[int] = Counter()
    tallest = 0
    ends: list[tuple[int, int]] = []
    here = {EXTENT.name: extent}
    for number, take in enumerate(takes.all_runs):
        start, left = (0, extent) if take.after is None else ends[take.after]
        height = int(evaluate(take.height, here))
        count = left // height if take.count is None else int(evaluate(take.count, here))
        exists = all(evaluate(condition, here) for condition in take.when)
        if take.kind in ("fixed", "single"):
            end = start + height * count
            rest = left % height if take.count is None else left - height * count
        else:
            end, rest = extent, 0
        ends.append((end, rest))
        if not exists or number not in takes.yielded:
            continue
        mine: range = range(0)
        runs_: range = range(0)
        match take.kind:
            case "fixed":
                mine = runs_ = range(start, end)
                tallest = max(tallest, height if count > 0 else 0)
            case "single" | "tail":
                mine = runs_ = range(start, end)
                tallest = max(tallest, len(mine))
            case "masked" | "padded":
                mine, runs_ = range(start, extent), range(start, min(start + height, extent))
            case "shifted" if extent >= tile and left != 0:
                mine, runs_ = range(start, extent), range(extent - tile, extent)
            case "guarded" | "balanced":
                mine = runs_ = range(start, extent)
            case _:
                pass
        owned.update(mine)
        run.update(runs_ if take.kind != "shifted" else mine if set(mine) <= set(runs_) else ())
        if take.kind == "shifted" and not set(mine) <= set(runs_):
            run.update([-1])
    return owned, run, tallest


def is_right(takes: TileRuns, extent: int, tile: int) -> bool:
    owned, run, tallest = simulated(takes, extent, tile)
    once = Counter(range(extent))
    return owned == once and run == once and tallest <= tile


@st.composite
def functions(draw: st.DrawFn) -> tuple[int, Function, list[Any]]:
    tile = draw(st.integers(1, 6))
    some = st.integers(1, tile)
    moves: list[Any] = draw(
        st.lists(
            st.one_of(
                st.tuples(st.just("full")),
                st.tuples(st.just("full")),
                st.tuples(st.sampled_from(["tail", "masked", "padded", "shifted", "balanced"])),
                st.tuples(st.sampled_from(["guarded", "tail"])),
                st.tuples(st.just("fixed"), some),
                st.tuples(st.just("fixed"), st.just(1)),
                st.tuples(st.just("masked"), some),
                st.tuples(st.just("fewer"), st.integers(0, 2)),
                st.tuples(st.just("half")),
                st.tuples(st.sampled_from(["below", "above"]), st.integers(0, 9)),
                st.tuples(st.just("back")),
            ),
            min_size=1,
            max_size=6,
        )
    )

    def function(axis: TiledAxis) -> Iterator[TileRun]:
        whole = axis
        for move, *arguments in moves:
            match move:
                case "below":
                    axis = axis.where(axis.extent < arguments[0])
                case "above":
                    axis = axis.where(axis.extent >= arguments[0])
                case "back":
                    axis = whole
                case "fewer":
                    yield axis.full(axis.remaining // axis.tile - arguments[0])
                case "half":
                    yield axis.single((axis.remaining + 1) // 2)
                case _:
                    yield getattr(axis, move)(*arguments)

    return tile, function, moves


@pytest.mark.slow
@settings(max_examples=60)
@given(functions())
def test_any_function_is_accepted_or_refused_as_brute_force_says(
    drawn: tuple[int, Function, list[Any]],
) -> None:
    tile, function, _ = drawn
    strategy = named(function, tile)
    takes = strategy.takes(tile)
    wrong = [e for e in range(40) if not is_right(takes, e, tile)]
    if wrong:
        with pytest.raises(oc.PartitionError) as refused:
            oc.partition(C, tile={"i": tile}, tail={"i": strategy})
        text = str(refused.value)
        found = re.search(r"with an extent of (\d+)", text)
        assert found is not None, text
        assert int(found[1]) == wrong[0] or "a tile has" in text, text
        return
    p = oc.partition(C, tile={"i": tile}, tail={"i": strategy})
    for size in (0, tile, 2 * tile + 1):
        a, w = operands(size)
        np.testing.assert_array_equal(p.run({"A": a, "W": w}, n=size), a @ w)


def test_no_more_is_asked_of_a_function_than_its_tile() -> None:
    asked: list[int] = []

    @oc.strategy("asked")
    def function(axis: TiledAxis) -> Iterator[TileRun]:
        asked.append(axis.tile)
        yield axis.full()
        yield axis.tail()

    oc.partition(C, tile={"i": (24, 6)}, tail={"i": "asked"})
    assert asked == [6]
    assert segments(parse_strategy("asked", at="here", tiles=(512,)), EXTENT, 512)
