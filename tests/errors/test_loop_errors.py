"""Every refusal of a cut of a loop program, word for word, beside a cut that is accepted."""

from __future__ import annotations

from typing import Any

import pytest
from conftest import EQUAL, proved, refusals, rejection

import offcut as oc


def refused(text: str, tile: dict[str, int], tail: Any) -> str:
    with pytest.raises(oc.PartitionError) as error:
        oc.partition(oc.parse(text), tile=tile, tail=tail)
    return str(error.value)


@pytest.mark.parametrize("tail", ["pad", "mix"])
def test_a_triangle_takes_no_tail_that_needs_one_rest(tail: str) -> None:
    text = """\
size n in 0:1000
input X: float32[n]
output C: float32[n, n]
for i in 0:n
  for j in 0:i + 1
    C[i, j] = X[j]
"""
    assert (
        refused(text, {"i": 4, "j": 4}, {"i": "cut", "j": tail})
        == f"""\
partition: cannot take tail="{tail}"
  at       loop j
  because  its bounds 0:i + 1 differ between the rows of a tile, so the tail has no single extent
  help     cut, guard and mask treat each row by itself
  help     cut only one of the two loops"""
    )
    assert oc.partition(
        oc.parse(text), tile={"i": 4, "j": 4}, tail={"i": "cut", "j": "mask"}
    ).prove()


def test_shift_is_refused_where_a_term_would_count_twice() -> None:
    text = """\
size n in 0:1000
input X: float32[n]
inout A: float32[n]
for i in 0:n
  A[i] += X[i]
"""
    assert (
        refused(text, {"i": 4}, "shift")
        == """\
partition: cannot take tail="shift"
  at       loop i
  because  the last tile would run A[i] += X[i] again
  help     mask, cut, ladder, balance run each instance once"""
    )
    assert proved(oc.partition(oc.parse(text), tile={"i": 4}, tail="balance")) >= EQUAL


def test_a_padded_tile_of_a_loop_in_place_is_refused() -> None:
    text = """\
size n in 0:1000
inout A: float32[n]
for i in 1:n
  A[i] = A[i - 1] + 1.0
"""
    assert (
        refused(text, {"i": 4}, "pad")
        == """\
partition: cannot take tail="pad"
  at       loop i
  because  a padded tile runs its instances together, and this loop carries dependences between them
  help     any tail but pad and shift keeps their order"""
    )
    assert proved(oc.partition(oc.parse(text), tile={"i": 4}, tail="mask")) >= EQUAL


def test_a_tile_that_does_not_divide_a_loop_of_a_program_is_refused() -> None:
    text = """\
size n in 0:1000
input X: float32[n]
inout A: float32[n]
for i in 0:n
  A[i] += X[i]
"""
    assert (
        refused(text, {"i": 4}, "exact")
        == """\
partition: cannot take tail="exact"
  at       loop i
  because  with n = 1, 4 does not divide the extent n
  help     tail="cut" separates the last n % 4 iterations
  help     assume(n % 4 == 0) if every caller guarantees it"""
    )
    assert proved(oc.partition(oc.parse(text), tile={"i": 4}, tail="cut")) >= EQUAL


def test_a_nest_has_no_more_tiles_than_compile_in_seconds() -> None:
    text = """\
size n in 0:1000
output C: float32[n, n]
for i in 0:n
  for j in 0:n
    C[i, j] = 1.0
"""
    assert (
        refused(text, {"i": 32, "j": 32}, "residue")
        == """\
partition: cannot cut i, j so
  because  there would be at least 257 tiles, more than 256, each of them code of its own
  help     one loop with residue or mix, or fewer levels"""
    )
    assert len(oc.partition(oc.parse(text), {"i": 8, "j": 4}, "residue").pieces) == 32


def test_a_described_sum_has_no_more_parts_than_compile_in_seconds() -> None:
    n, m = oc.dim("n", max=4096), oc.dim("m", max=500)
    a, b = oc.placeholder((n, m), name="A"), oc.placeholder((m, n), name="B")
    k = oc.reduce_axis(m, "k")
    c = oc.compute((n, n), lambda i, j: oc.sum(a[i, k] * b[k, j], axis=k), name="C")
    with pytest.raises(oc.PartitionError, match=r"cannot cut k so\n.*more than 256, each"):
        oc.compile(c, strategy=dict.fromkeys("ijk", "residue"))


def test_an_access_of_a_program_outside_its_buffer_is_refused() -> None:
    text = """\
size n in 0:1000
input X: float32[n]
output C: float32[n]
for i in 0:n
  C[i] = X[i + 1]
"""
    assert (
        refused(text, {"i": 4}, "cut")
        == """\
partition: cannot access X[i + 1] out of bounds
  at       C[i] = X[i + 1]
  because  with n = 1, i = 0, it is X[1] of a tensor of shape (n)
  help     an if around the statement, or where(condition, …) around the access"""
    )


def test_a_loop_that_is_not_there_is_refused() -> None:
    text = """\
size n in 0:1000
input X: float32[n]
inout A: float32[n]
for i in 0:n
  A[i] += X[i]
"""
    assert (
        refused(text, {"k": 4}, "cut")
        == """\
partition: cannot find the axis 'k'
  because  no axis has that name
  help     A.i"""
    )


def test_a_name_of_several_loops_is_refused() -> None:
    text = """\
size n in 0:1000
output A: float32[n]
output B: float32[n]
for i in 0:n
  A[i] = 1.0
for i in 0:n
  B[i] = 1.0
"""
    assert (
        refused(text, {"i": 4}, "cut")
        == """\
partition: cannot find the axis 'i'
  because  several axes have that name
  help     A.i, B.i"""
    )


def test_a_padded_loop_that_does_more_than_add_is_refused() -> None:
    text = """\
size n in 0:1000
input X: float32[n]
output C: float32[n]
inout S: float32[1]
for k in 0:n
  S[0] += X[k]
  C[k] = X[k]
"""
    assert (
        refused(text, {"k": 4}, "pad")
        == """\
partition: cannot take tail="pad"
  because  only the terms of a reduction can be masked to its neutral element
  help     tail="mask" runs no instance outside"""
    )
    assert proved(oc.partition(oc.parse(text), tile={"k": 4}, tail="mask")) >= EQUAL


SUM = """\
program total
size n in 0:4097
input A: float64[n]
inout s: float64[1]
for i in 0:n
  s[0] += A[i]
"""
DOUBLED = """\
program doubled
size n in 0:4097
inout B: float32[n]
for i in 1:n
  B[i] = B[i - 1] * 2.0
"""


TAILS = refusals(
    """
given SUM, 4, "shift"
partition: cannot take tail="shift" on a reduction
  at       loop i
  because  the last tile would add terms again: sum is not idempotent
  help     any tail but shift meets each term once, in its order

given DOUBLED, 4, "exact"
partition: cannot take tail="exact"
  at       loop i
  because  with n = 2, 4 does not divide the extent n - 1
  help     tail="cut" separates the last (n + 3) % 4 iterations
  help     assume((n + 3) % 4 == 0) if every caller guarantees it

given DOUBLED, 2000, "residue"
partition: cannot cut by residue
  at       loop i, in tiles of 2000
  because  it gives more than 64 segments, each of them code of its own
  help     tail="cut" and tail="ladder" are for tiles of any size
""",
    globals(),
)


@pytest.mark.parametrize("what", TAILS)
def test_a_tail_is_refused_for_what_was_asked(what: str) -> None:
    text, tile, tail, refusal = TAILS[what]
    with rejection(f"PartitionError: {refusal}"):
        oc.partition(oc.parse(text), tile={"i": tile}, tail=tail)
    accepted = oc.partition(oc.parse(text), tile={"i": (4, 2)}, tail="cut").prove()
    assert {"disjoint", "covering", "data flow"} <= {one.name for one in accepted.theorems}


def test_an_assumption_that_no_set_says_is_refused() -> None:
    text = """\
size n in 0:60
size m in 0:60
assume n*m >= 3
inout A: float32[n]
for i in 0:n
  A[i] = 1.0
"""
    assert (
        refused(text, {"i": 4}, "cut")
        == """\
partition: cannot assume n * m >= 3
  because  isl decides quasi-affine facts only: no product of two sizes
  help     a fact of sums and integer multiples of sizes"""
    )
    assert oc.partition(oc.parse(text.replace("n*m", "n + m")), tile={"i": 4}).prove()


def test_an_extent_that_is_not_shown_to_be_a_multiple_has_no_witness() -> None:
    text = """\
size n in 0:60
inout A: float32[n]
for i in 0:{extent}
  if i < n
    A[i] = 1.0
"""
    known = refused(text.format(extent="n"), {"i": 4}, "exact")
    assert "because  with n = 1, 4 does not divide the extent n" in known
    open_ = refused(text.format(extent="4*(n*n)"), {"i": 4}, "exact")
    assert "because  " in open_
    assert "with n" not in open_


def test_a_layout_of_an_array_of_the_caller_is_refused() -> None:
    text = """\
size n in 0:99
input A: float32[n, 8] @panels(0, 1, 4)
output C: float32[n, 8]
for i in 0:n
  for j in 0:8
    C[i, j] = A[i, j]
"""
    for op, run in (("compile", oc.compile), ("partition", oc.partition)):
        with rejection(f"""\
PartitionError: {op}: cannot lay A out in panels(0, 1, 4)
  at       input A: float32[n, 8]
  because  the caller owns it, and its strides say how it lies
  help     constant A is packed when compiled
  help     a local buffer with the layout, and a loop that copies"""):
            run(oc.parse(text))


def test_a_layout_of_a_large_window_that_moves_with_a_loop_is_refused() -> None:
    text = """\
size n in 0:9999
input A: float32[n, 8]
local L: float32[n, 8]
output C: float32[n, 8]
for i in 0:n
  alloc L[i +: i + 1, 0 +: 8] layout order(1, 0)
    for j in 0:8
      L[i, j] = A[i, j]
    for j in 0:8
      C[i, j] = L[i, j]
"""
    with (
        rejection("""\
PartitionError: compile: cannot lay the window of L out in order(1, 0)
  at       alloc L[i +: i + 1, 0 +: 8] layout order(1, 0)
  because  its extents move with a loop, or it stands in a tile, and so it lies in the whole array
  help     local L with the layout
  help     a window of extents that sizes give, or of at most 4096 elements along axes that move""")
    ):
        oc.compile(oc.parse(text))


@pytest.mark.parametrize(
    ("local", "window"),
    [(" @panels(0, 1, 4, 2, 2) bits(4)", ""), ("", " layout panels(0, 1, 4, 2, 2) bits(4)")],
)
def test_elements_that_share_bytes_are_refused_of_an_array_that_code_writes(
    local: str, window: str
) -> None:
    text = f"""\
size n in 0:99
input A: int8[8, 8]
local L: int8[8, 8]{local}
output C: int8[8, 8]
alloc L[0 +: 8, 0 +: 8]{window}
  for i in 0:8
    for j in 0:8
      L[i, j] = A[i, j]
  for i in 0:8
    for j in 0:8
      C[i, j] = L[i, j]
"""
    with rejection("""\
PartitionError: compile: cannot lay L out in panels(0, 1, 4, 2, 2) bits(4)
  at       local L: int8[8, 8]
  because  code writes whole bytes, and local arrays are written
  help     panels(0, 1, 4, 2, 2)"""):
        oc.compile(oc.parse(text))


SHORT = """\
program short
size n in 1:9
input A: int8[8*n, 16]
output C: int8[8*n, 16]
local L: int8[8*n, 16] @scope(accumulators)
for b in 0:n
  alloc L[8*b +: 7, 0 +: 16]
    tile i in 8*b +: 8, j in 0 +: 16
      L[i, j] = A[i, j]
    tile i in 8*b +: 8, j in 0 +: 16
      C[i, j] = L[i, j]
"""


@pytest.mark.parametrize("target", ["cpu", "vta", "gemmini"])
def test_a_window_that_is_a_row_short_is_refused_by_every_target(target: str) -> None:
    program = oc.parse(SHORT)
    with rejection("""\
PartitionError: compile: cannot compile short
  at       alloc L
  because  with n = 1, b = 0, i = 7, j = 0, element [7, 0], counted from where the window starts, \
lies outside of it
  help     a larger window, or L without alloc, which holds all of it"""):
        oc.compile(program, target=target)


def test_a_window_that_is_a_row_short_is_not_proved_equal_to_itself() -> None:
    program = oc.parse(SHORT)
    with pytest.raises(oc.PartitionError, match="lies outside of it"):
        oc.prove_equal(program, program)
    with pytest.raises(oc.PartitionError, match="lies outside of it"):
        oc.partition(program, tile={"b": 4}, tail="mask")
