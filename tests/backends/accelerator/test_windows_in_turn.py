"""Windows of some depth, which iterations take in turn: values, races, tokens, places, and what is refused."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from accelerators import bytes_of, clipped
from conftest import rejection, slow

import offcut as oc
from tests.agree import nearly

HEAD = """\
program dense
size n in 0:{most}
input A: int8[n, 64]
input W: int8[64, 64]
output C: int8[n, 64]
local W_in: int8[64, 64]
local A_in: int8[n, 64]
local S: int32[n, 64]
local T: int32[n, 64]
alloc W_in[0 +: 64, 0 +: 64] in weights
  tile k in 0 +: 64, j in 0 +: 64
    W_in[k, j] = W[k, j]
"""
BODY = """\
  for i in {trips}
    alloc S[{start} +: {rows}, 0 +: 64] in accumulators depth {depth}
      tile r in {start} +: {rows}, j in 0 +: 64
        S[r, j] = 0
      for kt in 0:{terms}
        alloc A_in[{start} +: {rows}, {width}*kt +: {width}] in inputs depth {depth}
          tile r in {start} +: {rows}, k in {width}*kt +: {width}
            A_in[r, k] = A[r, k]
          tile r in {start} +: {rows}, j in 0 +: 64
            for k in {width}*kt:{width}*kt + {width}
              S[r, j] += int32(A_in[r, k]) * int32(W_in[k, j])
      alloc T[{start} +: {rows}, 0 +: 64] in accumulators{place}
        tile r in {start} +: {rows}, j in 0 +: 64
          T[r, j] = S[r, j] // 64
        tile r in {start} +: {rows}, j in 0 +: 64
          C[r, j] = int8(min(max(T[r, j], -128), 127))
"""


def one_body(depth: int, terms: int = 1, most: int = 41, place: str = "", rows: int = 8) -> str:
    """Tiles of `rows` rows, the last one of what is left, in one loop."""
    count = f"min({rows}, n - {rows}*i)"
    trips, width = f"0:(n + {rows - 1})//{rows}", 64 // terms
    return HEAD.format(most=most) + BODY.format(
        trips=trips,
        start=f"{rows}*i",
        rows=count,
        depth=depth,
        terms=terms,
        width=width,
        place=place,
    )


def two_bodies(depth: int, terms: int = 1) -> str:
    """Tiles of 8 rows in a loop, and of single rows what is left in another one."""
    same = {"depth": depth, "terms": terms, "width": 64 // terms, "place": ""}
    full = BODY.format(trips="0:n//8", start="8*i", rows=8, **same)
    rest = BODY.format(trips="0:n % 8", start="(8*(n//8) + i)", rows=1, **same)
    return HEAD.format(most=41) + full + rest


def on(machine: str, text: str) -> oc.Kernel:
    """The text, compiled for a machine, in its memories."""
    if machine == "gemmini":
        text = text.replace("accumulators", "accumulator")
        text = text.replace("in inputs", "in scratchpad").replace("in weights", "in scratchpad")
    return oc.compile(oc.parse(text), target=machine)


def check(kernel: oc.Kernel, n: int) -> None:
    """Values, races and tokens."""
    rng = np.random.default_rng(n)
    a, w = bytes_of(rng, (n, 64)), bytes_of(rng, (64, 64))
    expected = clipped(a.astype(np.int64) @ w.astype(np.int64), 6)
    np.testing.assert_array_equal(kernel(a, w), expected)
    run = kernel.timeline(n=n)
    assert not run.races
    assert not run.unwritten
    assert not any(run.left.values())


SIZES = (0, 1, 7, 8, 9, 16, 17, 25, 33, 40)
"""Of loops of 0 to 5 iterations, and of as many that are left."""
EVERY = [*product(("vta", "gemmini"), ("one", "two"), (1, 2, 3), (1, 4))]
SOME = [("vta", "two", 2, 1), ("gemmini", "one", 3, 4)]


@pytest.mark.parametrize(
    ("machine", "bodies", "depth", "terms"),
    [*SOME, *(slow(*case) for case in EVERY if case not in SOME)],
)
def test_values_are_right_and_nothing_races_at_any_depth(
    machine: str, bodies: str, depth: int, terms: int
) -> None:
    text = one_body(depth, terms) if bodies == "one" else two_bodies(depth, terms)
    kernel = on(machine, text)
    for n in SIZES:
        check(kernel, n)
    assert kernel.cost(n=33).cycles == nearly(kernel.timeline(n=33).cycles, rel=0.01)
    serial = oc.compile(oc.parse(text), target="interpret")
    a, w = bytes_of(np.random.default_rng(1), (9, 64)), bytes_of(np.random.default_rng(2), (64, 64))
    np.testing.assert_array_equal(kernel(a, w), serial(a, w))


def test_a_second_window_hides_loads_and_a_third_one_hides_no_more() -> None:
    one, two, three = (on("vta", one_body(depth, rows=16, most=129)) for depth in (1, 2, 3))
    for n in (33, 100):
        cycles = [kernel.timeline(n=n).cycles for kernel in (one, two, three)]
        assert cycles[1] < 0.9 * cycles[0]
        assert cycles[2] == nearly(cycles[1], rel=0.01)
    assert two.timeline(n=16).cycles == one.timeline(n=16).cycles


def test_the_count_of_slots_goes_on_over_the_runs_of_an_inner_loop() -> None:
    order = on("vta", one_body(2, 4).replace("0:4\n", "0:3\n")).source("order", n=40)
    assert "S[i % 2]" in order
    assert "A_in[(kt + i) % 2]" in order
    assert "A_in[(kt + 2*i) % 3]" in on("vta", one_body(3, 4).replace("0:4\n", "0:2\n")).source(
        "order"
    )
    assert "A_in[kt % 2]" in on("vta", one_body(2, 4)).source("order")
    oc.sync.check(oc.parse(order), oc.target("vta").agents)


PLANTED = {
    "the wait of one turn later": [("load where i - 2 >= 0", "load where i - 3 >= 0")],
    "no wait for the slot": [("    wait compute_to_load where i - 2 >= 0\n", "")],
    "all waits and arrivals of one turn later": [
        ("load where i - 2 >= 0", "load where i - 3 >= 0"),
        ("to_load where (n + 7)//8 - i - 3 >= 0", "to_load where (n + 7)//8 - i - 4 >= 0"),
    ],
    "no waits and arrivals": [
        ("    wait compute_to_load where i - 2 >= 0\n", ""),
        ("    arrive compute_to_load where (n + 7)//8 - i - 3 >= 0\n", ""),
        ("token compute_to_load: compute -> load count 1 room 255\n", ""),
    ],
    "one slot fewer": [("A_in[i % 2] = 0\n", "A_in[0] = 0\n")],
}


@pytest.mark.parametrize("fault", PLANTED)
def test_a_slot_that_may_be_written_too_early_is_found_in_the_text(fault: str) -> None:
    kernel = on("vta", one_body(2).replace("for kt in 0:1", "if n >= 0").replace("64*kt", "0"))
    text = planted = kernel.source("order")
    for change in PLANTED[fault]:
        assert planted.count(change[0]) == 1
        planted = planted.replace(*change)
    oc.sync.check(oc.parse(text), oc.target("vta").agents)
    with pytest.raises(oc.PartitionError, match="sync: cannot keep the order of dense"):
        oc.sync.check(oc.parse(planted), oc.target("vta").agents)


def test_a_window_in_place_lies_in_the_slot_of_the_one_below() -> None:
    plain, deep = on("vta", one_body(2)), on("vta", one_body(2, place=" depth 2 inplace S"))
    assert plain.source("listing", n=40) == deep.source("listing", n=40)
    assert "accumulators inplace S" in plain.source("loops")
    check(on("vta", one_body(2, place=" depth 3")), 33)  # a region of its own: three windows


def test_windows_in_turn_for_which_there_is_no_room_are_refused_by_their_line() -> None:
    with rejection(
        "TargetError: compile: cannot keep the results of dense in outputs\n"
        "  at       alloc S[8*i +: min(8, n - 8*i), 0 +: 64] in accumulators depth 65\n"
        "  because  they take up to 2,080 words, and stores read 2,048\n"
        "  help     smaller tiles\n"
        "  help     windows of less depth"
    ):
        on("vta", one_body(65))
    text = one_body(1, rows=400, most=4000)
    with pytest.raises(oc.TargetError) as refused:
        on("vta", text.replace("inputs depth 1", "inputs depth 3"))
    assert (
        refused.value.at
        == "alloc A_in[400*i +: min(400, n - 400*i), 64*kt +: 64] in inputs depth 3"
    )
    assert refused.value.because == (
        "they take up to 76,800 bytes (A_in 3 x 25,600), and there are 32,768"
    )


def test_a_window_in_no_loop_is_one() -> None:
    text = one_body(2)
    deep = text.replace("in weights", "in weights depth 9")
    assert on("vta", deep).source("listing", n=40) == on("vta", text).source("listing", n=40)


def test_virtual_threads_of_an_older_text_are_windows_in_turn() -> None:
    text = one_body(1).replace(" depth 1", "")
    older = text.replace("in 0:(n + 7)//8", "in 0:(n + 7)//8  @virtual")
    deep = one_body(2).replace(
        "T[8*i +: min(8, n - 8*i), 0 +: 64] in accumulators",
        "T[8*i +: min(8, n - 8*i), 0 +: 64] in accumulators depth 2",
    )
    assert oc.parse(older) == oc.parse(deep)
    schedule = (
        "schedule Y\nnest Y\n  way chip\n    words\n    loops i\n    {} i 2\n    split i ladder 1"
    )
    old, new = (oc.Schedule.parse(schedule.format(word)) for word in ("virtual", "depth"))
    assert old == new
    assert "depth 2" in str(old)
    by_hand = oc.Schedule.parse("schedule C\nvirtual C i")
    assert str(by_hand) == "schedule C\nbind C.i serial"
