"""What calls on a GPU are predicted to take: waves of blocks over multiprocessors, one number for plan, cost and formulas."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import offcut as oc
from offcut.costmodel.grid import grid_cost
from offcut.costmodel.launch_counts import ASSUMED_TRIPS, count_blocks
from offcut.search import Records, Source
from tests.agree import nearly
from tests.facade import evaluate

THERE = oc.target("cuda", machine="h200", device="emulated")


def product(depth: int = 1024, rows: int = 128) -> Any:
    """A product of `rows` rows for each n, and 64 columns, in the tiles of a strategy that is asked for."""
    n = oc.dim("n", min=0, max=4096)
    a = oc.placeholder((n * rows, depth), "bfloat16", name="A")
    w = oc.placeholder((depth, 64), "bfloat16", name="W")
    p = oc.reduce_axis(depth, name="p")
    output = oc.compute(
        (n * rows, 64),
        lambda i, j: oc.sum(a[i, p].astype("float32") * w[p, j].astype("float32"), axis=p),
        name="C",
    )
    return oc.compile(output, inputs=[a, w], target=THERE, strategy={"i": "guard"})


def test_waves_of_blocks_are_whole() -> None:
    # 132 multiprocessors, a block for each n: one more than they take at a time is a wave more
    kernel = product()
    tensor = [kernel.cost(n=n).pieces[0].resources["tensor core"] for n in (1, 132, 133, 264, 265)]
    assert tensor == nearly([tensor[0], tensor[0], 2 * tensor[0], 2 * tensor[0], 3 * tensor[0]])


def test_units_of_a_block_that_have_no_rows_do_no_work() -> None:
    # 128 rows a block, 64 for each of two warpgroups: one row is an issue of the first one alone
    kernel = product(rows=1)
    one, both = (kernel.cost(n=n).pieces[0].resources for n in (1, 65))
    assert both["tensor core"] == nearly(2 * one["tensor core"])
    assert both["L2"] > one["L2"]


def test_a_launch_takes_what_binds_it() -> None:
    kernel = product()
    few, many = kernel.cost(n=1), kernel.cost(n=4096)
    assert few.pieces[0].bound_by in ("waiting", "L2")
    assert many.pieces[0].bound_by in ("shared", "L2", "HBM3e", "tensor core")
    assert many.peak == nearly(989.5e12, rel=0.01)
    assert few.call / few.hertz == nearly(2e-6)


@pytest.mark.parametrize("machine", ["h200", "h100", "a100"])
def test_bytes_of_main_memory_are_those_of_all_arrays_where_they_do_not_fit(machine: str) -> None:
    there = oc.target("cuda", machine=machine, device="emulated")
    n = oc.dim("n", min=1, max=1 << 20)
    x = oc.placeholder((n, 1024), name="X")
    kernel = oc.compile(
        oc.compute((n, 1024), lambda i, j: x[i, j] + 1.0, name="Y"), inputs=[x], target=there
    )
    small, large = kernel.cost(n=16), kernel.cost(n=1 << 16)
    last = large.memories[-1]
    assert small.bytes[last] == 0
    assert large.bytes[last] == 2 * 4 * 1024 * (1 << 16)


@pytest.mark.slow  # a thousand schedules are priced
def test_search_prices_by_the_same_formulas(tmp_path: Any) -> None:
    n = oc.dim("n", min=1, max=64)
    a, w = oc.placeholder((n, 64), "bfloat16", "A"), oc.placeholder((64, 64), "bfloat16", "W")
    p = oc.reduce_axis(64, name="p")
    output = oc.compute(
        (n, 64),
        lambda i, j: oc.sum(a[i, p].astype("float32") * w[p, j].astype("float32"), axis=p),
        name="C",
    )
    found = oc.tune(
        output,
        inputs=[a, w],
        sizes={"n": [40]},
        target=THERE,
        trials=2,
        progress=False,
        records=tmp_path / "records.sqlite",
    )
    records = Records(tmp_path / "records.sqlite")
    assert {record.source for record in records} == {Source.PREDICTED}
    best = oc.compile(output, inputs=[a, w], target=THERE, schedule=found)
    assert (
        best.cost(n=40).seconds
        <= oc.compile(output, inputs=[a, w], target=THERE).cost(n=40).seconds
    )
    one = np.ones((3, 64)).astype("float32")
    import ml_dtypes

    half = one.astype(ml_dtypes.bfloat16)
    np.testing.assert_array_equal(
        best(half, np.ones((64, 64)).astype(ml_dtypes.bfloat16)), 64 * np.ones((3, 64))
    )


def test_stages_that_wait_for_each_other_are_a_launch_each() -> None:
    # `barrier block` stands between them: no launch, and nothing to price
    n = oc.dim("n", max=64)
    x = oc.placeholder((n, 29), name="X")
    r = oc.reduce_axis(29, name="r")
    total = oc.compute((n,), lambda i: oc.sum(x[i, r], axis=r), name="s")
    share = oc.compute((n, 29), lambda i, j: x[i, j] / total[i], name="Y")
    kernel = oc.compile(share, inputs=[x], target=THERE)
    assert "barrier block" in str(kernel.loops)
    cost = kernel.cost(n=9)
    assert [piece.stage for piece in cost.pieces] == ["s", "Y"]
    assert kernel.plan(n=9).seconds == nearly(cost.seconds)
    assert kernel.plan(n=0).pieces == ()
    assert cost.call / cost.hertz == nearly(4e-6)
    assert "the call itself, predicted 4 µs" in str(kernel.plan(n=9))


def test_blocks_that_are_resident_are_as_many_as_their_windows_leave_room_for() -> None:
    # the last tile of an axis is smaller: room is that of the largest
    rows = [
        product(1024 + 16 * more).cost(n=4096).pieces[0].resources["waiting"] for more in (0, 1)
    ]
    assert rows[1] == nearly(rows[0], rel=0.1)


LENGTHS = """program P
size b in 0:99
size n in 0:4096
input L: int32[b]
input X: float32[b, n]
output S: float32[b]
for i in 0:b  @block
  for w in 0:1  @warp
    S[i] = 0.0
    if 0 < L[i]
      for j in 0:min(n, index(L[i]))
        S[i] += X[i, j]
"""


@pytest.mark.parametrize(("b", "n"), [(1, 8), (8, 128), (99, 4096)])
def test_a_loop_that_ends_at_an_element_of_an_array_is_priced_as_if_that_were_the_longest(
    b: int, n: int
) -> None:
    whole = LENGTHS.replace("min(n, index(L[i]))", "n").replace("if 0 < L[i]", "if 0 < n")
    (ragged_piece,), (whole_piece,) = (
        grid_cost(
            oc.parse(text), oc.parse(text), THERE.machine, (), {"b": b, "n": n}, {"b": b, "n": n}
        ).pieces
        for text in (LENGTHS, whole)
    )
    assert ragged_piece.cycles == nearly(whole_piece.cycles)
    assert ragged_piece.bytes == whole_piece.bytes


def test_a_loop_between_two_elements_of_an_array_is_priced_as_if_it_ran_as_often_as_is_assumed() -> (
    None
):
    rows = LENGTHS.replace("int32[b]", "int32[b + 1]").replace("if 0 < L[i]", "if L[i] < L[i + 1]")
    rows = rows.replace("0:min(n, index(L[i]))", "index(L[i]):index(L[i + 1])")
    known = LENGTHS.replace("if 0 < L[i]", "if 0 < n")
    known = known.replace("min(n, index(L[i]))", str(ASSUMED_TRIPS))
    sizes = {"b": 9, "n": 4096}
    costs = [
        grid_cost(program, program, THERE.machine, (), sizes, sizes)
        for program in map(oc.parse, (rows, known))
    ]
    assert costs[0].seconds == nearly(costs[1].seconds)


def test_blocks_in_a_bounded_value_are_counted_over_the_sizes_alone() -> None:
    program = oc.parse("""\
program C
size n in 0:1025
input A: float32[n]
output C: float32[n]
if n > 0
  let q in 1:65 = n//((n + 63)//64)
    for i_block in 0:(n + 63)//64 + q * ((n + 63)//64) - n  @block
      for i in (q + 1) * (n - q * ((n + 63)//64)) + q * i_block:(q + 1) * (n - q * ((n + 63)//64)) + q * i_block + q
        C[i] = A[i]
""")
    blocks = count_blocks(program.body, {})
    assert blocks is not None
    for n in (1, 63, 64, 65, 438):
        tiles = -(-n // 64)
        assert evaluate(blocks, {"n": n}) == tiles - n % tiles
