"""Windows of machines of queues: in turn, in regions of their own, of heights that the host derives; values, races, tokens, places,
and what is refused.
"""

from __future__ import annotations

from itertools import product
from textwrap import indent

import numpy as np
import pytest
from accelerators import bytes_of, clipped
from conftest import rejection, slow

import offcut as oc
from offcut.core import index as ix
from offcut.core.expr import Compare, Var
from offcut.core.program import Size
from offcut.polyhedral import maximum, quotient_range
from tests.agree import nearly

HEAD = """\
program dense
size n in {least}:{most}
input A: int8[n, 64]
input W: int8[64, 64]
output C: int8[n, 64]
local W_in: int8[64, 64]
"""
BUFFERS = "local A_in{x}: int8[n, 64]\nlocal S{x}: int32[n, 64]\nlocal T{x}: int32[n, 64]\n"
WEIGHTS = """\
alloc W_in[0 +: 64, 0 +: 64] in weights
  tile k in 0 +: 64, j in 0 +: 64
    W_in[k, j] = W[k, j]
"""
TILE = """\
alloc S{x}[{start} +: {rows}, 0 +: 64] in accumulators{depth}
  tile r in {start} +: {rows}, j in 0 +: 64
    S{x}[r, j] = 0
  for kt in 0:{terms}
    alloc A_in{x}[{start} +: {rows}, {width}*kt +: {width}] in inputs{depth}
      tile r in {start} +: {rows}, k in {width}*kt +: {width}
        A_in{x}[r, k] = A[r, k]
      tile r in {start} +: {rows}, j in 0 +: 64
        for k in {width}*kt:{width}*kt + {width}
          S{x}[r, j] += int32(A_in{x}[r, k]) * int32(W_in[k, j])
  alloc T{x}[{start} +: {rows}, 0 +: 64] in accumulators{place}
    tile r in {start} +: {rows}, j in 0 +: 64
      T{x}[r, j] = S{x}[r, j] // 64
    tile r in {start} +: {rows}, j in 0 +: 64
      C[r, j] = int8(min(max(T{x}[r, j], -128), 127))
"""


def tile(
    start: str, rows: object, depth: int = 1, terms: int = 1, place: str = "", x: str = ""
) -> str:
    """The rows of a tile.

    depth, place  of its windows, that of the shifted sums
    terms         parts in which the terms are loaded
    x             what the names of its windows end with
    """
    turns = f" depth {depth}" if depth > 1 else ""
    return TILE.format(
        start=start, rows=rows, depth=turns, terms=terms, width=64 // terms, place=place, x=x
    )


def block(head: str, body: str) -> str:
    return f"{head}\n{indent(body, '  ')}"


def dense(body: str, least: int = 0, most: int = 41, names: tuple[str, ...] = ("",)) -> str:
    """``clip((A @ W) >> 6)`` by the tiles of a body, whose windows have names that end so."""
    buffers = "".join(BUFFERS.format(x=x) for x in names)
    return HEAD.format(least=least, most=most) + buffers + WEIGHTS + indent(body, "  ")


def one_body(
    depth: int, terms: int = 1, most: int = 41, place: str = "", rows: int = 8, least: int = 0
) -> str:
    """Tiles of `rows` rows, the last one of what is left, in one loop."""
    part = tile(f"{rows}*i", f"min({rows}, n - {rows}*i)", depth, terms, place)
    return dense(block(f"for i in 0:(n + {rows - 1})//{rows}", part), least, most)


def two_bodies(depth: int, terms: int = 1) -> str:
    """Tiles of 8 rows in a loop, and of single rows what is left in another one."""
    full = block("for i in 0:n//8", tile("8*i", 8, depth, terms))
    return dense(full + block("for i in 0:n % 8", tile("(8*(n//8) + i)", 1, depth, terms)))


def on(machine: str, text: str) -> oc.Kernel:
    """The text, compiled for a machine, in its memories."""
    if machine == "gemmini":
        text = text.replace("accumulators", "accumulator")
        text = text.replace("in inputs", "in scratchpad").replace("in weights", "in scratchpad")
    return oc.compile(oc.parse(text), target=machine)


def check(kernel: oc.Kernel, *sizes: int) -> None:
    """Values, races and tokens."""
    for n in sizes:
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
    [*SOME, *(slow(*case) for case in EVERY[1::4] if case not in SOME)],
)
def test_values_are_right_and_nothing_races_at_any_depth(
    machine: str, bodies: str, depth: int, terms: int
) -> None:
    text = one_body(depth, terms) if bodies == "one" else two_bodies(depth, terms)
    kernel = on(machine, text)
    check(kernel, *SIZES)
    assert kernel.cost(n=33).cycles == nearly(kernel.timeline(n=33).cycles, rel=0.01)


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


def test_a_slot_that_may_be_written_too_early_is_found_in_the_text() -> None:
    kernel = on("vta", one_body(2).replace("for kt in 0:1", "if n >= 0").replace("64*kt", "0"))
    text, agents = kernel.source("order"), oc.target("vta").agents
    oc.sync.check(oc.parse(text), agents)
    for fault, changes in PLANTED.items():
        planted = text
        for change in changes:
            assert planted.count(change[0]) == 1, fault
            planted = planted.replace(*change)
        with pytest.raises(oc.PartitionError, match="sync: cannot keep the order of dense"):
            oc.sync.check(oc.parse(planted), agents)


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
        on("vta", text.replace("in inputs", "in inputs depth 3"))
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
    older = one_body(1).replace("in 0:(n + 7)//8", "in 0:(n + 7)//8  @virtual")
    assert oc.parse(older) == oc.parse(one_body(2, place=" depth 2"))
    schedule = (
        "schedule Y\nnest Y\n  way chip\n    words\n    loops i\n    {} i 2\n    split i ladder 1"
    )
    old, new = (oc.Schedule.parse(schedule.format(word)) for word in ("virtual", "depth"))
    assert old == new
    assert "depth 2" in str(old)
    by_hand = oc.Schedule.parse("schedule C\nvirtual C i")
    assert str(by_hand) == "schedule C\nbind C.i serial"


# Regions belong to windows: two loops over windows of one buffer run as over windows of two.


def two_loops(rows: int, most: int, second: str = "") -> str:
    """Full tiles of so many rows, and what is left of them in a loop of its own: in buffers of the same names, or of others."""
    left = f"n % {rows}"
    full = block(f"for i in 0:n//{rows}", tile(f"{rows}*i", rows))
    rest = block(f"for i in 0:min(1, {left})", tile(f"({rows}*(n//{rows}) + i)", left, x=second))
    return dense(full + rest, most=most, names=("", second) if second else ("",))


@pytest.mark.every(2)
@pytest.mark.parametrize("machine", ["vta", "gemmini"])
def test_windows_of_one_buffer_in_two_loops_run_as_those_of_two_buffers(machine: str) -> None:
    same, other = (on(machine, two_loops(16, 129, second)) for second in ("", "_rest"))
    check(same, 0, 1, 15, 16, 17, 53)
    for n in (1, 16, 17, 33, 100, 128):
        assert same.timeline(n=n).cycles == other.timeline(n=n).cycles


def test_windows_of_one_buffer_take_turns_where_two_do_not_fit() -> None:
    check(on("vta", two_loops(300, 701)), 1, 299, 300, 301, 605)
    with pytest.raises(oc.TargetError, match="cannot keep the results"):
        on("vta", two_loops(300, 701, "_rest"))


OUTLIVES = """\
program outlives
input A: int32[{rows}, 16]
output C: int8[{rows}, 16]
output D: int8[{rows}, 16]
local S: int32[{rows}, 16] @scope(accumulators)
local X: int32[{rows}, 16] @scope(accumulators)
alloc X[0 +: {rows}, 0 +: 16]
  alloc S[0 +: {rows}, 0 +: 16]
    tile i in 0 +: {rows}, j in 0 +: 16
      S[i, j] = A[i, j]
    tile i in 0 +: {rows}, j in 0 +: 16
      X[i, j] = S[i, j] // 2
  alloc S[0 +: {rows}, 0 +: 16]
    tile i in 0 +: {rows}, j in 0 +: 16
      S[i, j] = 3
    tile i in 0 +: {rows}, j in 0 +: 16
      S[i, j] += X[i, j]
    tile i in 0 +: {rows}, j in 0 +: 16
      C[i, j] = int8(S[i, j])
  alloc S[0 +: {rows}, 0 +: 16]
    tile i in 0 +: {rows}, j in 0 +: 16
      S[i, j] = 5
    tile i in 0 +: {rows}, j in 0 +: 16
      S[i, j] += X[i, j]
    tile i in 0 +: {rows}, j in 0 +: 16
      D[i, j] = int8(S[i, j])
"""


@pytest.mark.parametrize("rows", [16, 900])
def test_a_window_that_outlives_the_one_below_it_is_not_written_over(rows: int) -> None:
    kernel = oc.compile(oc.parse(OUTLIVES.format(rows=rows)), target="vta")
    a = bytes_of(np.random.default_rng(1), (rows, 16)).astype(np.int32)
    for found, more in zip(kernel(a), (3, 5), strict=True):
        np.testing.assert_array_equal(found, (a // 2 + more).astype(np.int8))
    assert not kernel.timeline().races


# `let`: of sizes alone, computed by the host; of loops, one iteration; promises are checked at a call.


def balanced(most_q: int = 17) -> str:
    """Tiles of q + 1 rows, then of q, as even as 16 rows at most allow."""
    first = block("for i in 0:t1  @body", tile("(q + 1)*i", "q + 1"))
    body = first + block("for i in 0:t2  @tail", tile("((q + 1)*t1 + q*i)", "q"))
    for let in (
        "t2 in 0:33 = t - t1",
        "t1 in 0:33 = n - q*t",
        f"q in 1:{most_q} = n//t",
        "t in 1:33 = (n + 15)//16",
    ):
        body = block(f"let {let}", body)
    return dense(body, 1, 513)


@pytest.mark.every(2)
@pytest.mark.parametrize("machine", ["vta", "gemmini"])
def test_even_tiles_of_heights_that_the_host_derives_take_no_longer_than_full_tiles_and_a_rest(
    machine: str,
) -> None:
    kernel, plain = on(machine, balanced()), on(machine, one_body(1, most=513, rows=16, least=1))
    sizes = (1, 15, 16, 17, 33, 100, 512)
    check(kernel, *sizes)
    cycles = {n: kernel.timeline(n=n).cycles for n in sizes}
    assert all(cycles[n] <= plain.timeline(n=n).cycles for n in sizes)
    assert kernel.cost(n=100).cycles == cycles[100]
    formula = kernel.cost().cycles
    (size,) = formula.free_symbols
    for n in (17, 100, 512):
        assert abs(float(formula.subs({size: n})) - cycles[n]) <= 0.1 * cycles[n]


LETS = {
    "of the loops around, a loop of one iteration": block(
        "for i in 0:(n + 15)//16", block("let h in 1:17 = min(16, n - 16*i)", tile("16*i", "h"))
    ),
    "under a condition, computed where that holds alone": block(
        "if n > 0",
        block(
            "let t in 1:4 = (n + 15)//16",
            block(
                "let q in 1:17 = (n + t - 1)//t",
                block("for i in 0:t", tile("q*i", "min(q, n - q*i)")),
            ),
        ),
    ),
    "of one name, sizes of their own": block(
        "let h in 0:257 = n//2", block("for i in 0:h", tile("2*i", 2))
    )
    + block("let h in 0:2 = n % 2", block("for i in 0:h", tile("(n - 1 + i)", 1))),
}


@pytest.mark.parametrize("what", LETS)
def test_a_let_is(what: str) -> None:
    check(on("vta", dense(LETS[what])), 0, 1, 2, 3, 15, 16, 17, 33)


def test_a_broken_promise_is_refused_with_the_size_that_breaks_it() -> None:
    with rejection(
        "PartitionError: prove: the value of q is not in 1:13\n  because  with n = 13, n//t leaves it"
    ):
        on("vta", balanced(13))


def test_a_let_that_is_no_set_of_the_loops_around_is_refused() -> None:
    body = block("let h in 1:17 = min(16, n - 16*i*i)", tile("16*i*i", "h"))
    with rejection(
        "TargetError: compile: cannot issue instructions for a statement\n"
        "  at       let h in 1:17 = min(16, n - 16*i * i)\n"
        "  because  h is not an affine value of the loops around it, and tokens are of such loops alone\n"
        "  help     a let over sizes alone, which the host computes before"
    ):
        on("vta", dense(block("for i in 0:2", body), most=513))


def heights(sizes: int, tiles: int, most: int, by: int = 128) -> str:
    """Tiles of one height, the last of what is left: of `by` rows at most, in as few tiles as there can be."""
    loop = block("for i in 0:t", tile("q*i", "min(q, n - q*i)"))
    body = block(f"let q in 1:{most} = (n + t - 1)//t", loop)
    return dense(block(f"let t in 1:{tiles} = (n + {by - 1})//{by}", body), 1, sizes)


@pytest.mark.parametrize("promised", [(100_001, 783, 100_001), slow((2**30, 2**30, 2**30))])
def test_a_height_fits_by_what_its_quotient_can_be_however_loose_its_promise_is(
    promised: tuple[int, int, int],
) -> None:
    check(on("vta", heights(*promised)), 1, 17, 128, 129)


def test_a_height_that_does_not_fit_is_refused_with_its_bytes() -> None:
    with rejection(
        "TargetError: compile: cannot keep the results of dense in outputs\n"
        "  at       alloc S[q * i +: min(q, n - q * i), 0 +: 64] in accumulators\n"
        "  because  they take up to 2,560 words, and stores read 2,048\n"
        "  help     smaller tiles"
    ):
        on("vta", heights(5121, 9, 5121, 640))


def test_a_quotient_of_sizes_has_the_range_that_all_sizes_give_it() -> None:
    n, size = Var("n"), Size("n", 1, 512)
    for add, by, most in ((15, 16, 2**31), (0, 16, 600), (127, 128, 600)):
        count = ix.floordiv(ix.add(n, add), by)
        for dividend in (n, ix.sub(ix.add(n, count), 1)):
            found = quotient_range(dividend, count, (size,), (), (-1, most))
            values = [
                (m if dividend is n else m + t - 1) // t
                for m in range(size.min, size.max + 1)
                if (t := (m + add) // by) > 0
            ]
            assert found == (max(min(values), -1), min(max(values), most))


def test_what_holds_around_an_extent_bounds_it() -> None:
    n, sizes = Var("n"), (Size("n", 1, 512),)
    assert maximum(n, sizes, (), (), (Compare("<", n, ix.const(16)),)) == 15
    assert maximum(n, sizes, (), ()) == 512
