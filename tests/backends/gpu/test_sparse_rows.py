"""Loops that end at elements of arrays, as rows of a sparse matrix: decided in the one language, proved, and right on every unit."""

from __future__ import annotations

from functools import cache
from itertools import pairwise, product
from typing import Any

import numpy as np
import pytest
from on_cpu import COMPILER, run_text

import offcut as oc
from offcut.proof import check_equal
from tests.agree import agree

Array = np.ndarray[Any, Any]

HEAD = """\
size n in 0:400
size z in 0:4000
input p: int32[n + 1]
input col: int32[z]
input v: float32[z]
"""
PRODUCTS = {
    "by a vector": f"""program csr
{HEAD}input x: float32[n]
output c: float32[n]
for i in 0:n
  c[i] = 0.0
  for e in index(p[i]):index(p[i + 1])
    c[i] += x[index(col[e])] * v[e]
""",
    "by a matrix": f"""program csrmm
size m in 0:300
{HEAD}input x: float32[n, m]
output c: float32[n, m]
for i in 0:n
  for j in 0:m
    c[i, j] = 0.0
    for e in index(p[i]):index(p[i + 1])
      c[i, j] += x[index(col[e]), j] * v[e]
""",
    "by a matrix, by rows": f"""program csrmm
size m in 0:300
{HEAD}input x: float32[n, m]
output c: float32[n, m]
for i in 0:n
  for j in 0:m
    c[i, j] = 0.0
  for e in index(p[i]):index(p[i + 1])
    for j in 0:m
      c[i, j] += x[index(col[e]), j] * v[e]
""",
}
SCHEDULES = {
    "by a vector": """\
schedule csr
split c.i guard 4 as i_block i_warp
order c i_block i_warp e
bind c.i_block block
bind c.i_warp warp
bind c.e lane tree
""",
    "by a matrix": """\
schedule csrmm
split c.i guard 4 as i_block i_warp
split c.j guard 256 as j_block j_lane
order c i_block j_block i_warp j_lane
bind c.i_block block
bind c.j_block block
bind c.i_warp warp
bind c.j_lane lane
""",
    "by a matrix, by rows": """\
schedule csrmm
split c.i guard 4 as i_block i_warp
bind c.i_block block
bind c.i_warp warp
bind c.j lane
bind c.j_ lane
""",
}
ROWS = ((), (0,), (1,), (40,), (0, 5, 0), (3, 0, 0, 31, 32, 33, 0), (1,) * 33)
"""Terms of each row."""


@cache
def compiled(case: str, schedule: str | None = None) -> oc.Kernel:
    target = oc.target("cuda", machine="h200", device="emulated")
    given = None if schedule is None else oc.Schedule.parse(schedule)
    return oc.compile(oc.parse(PRODUCTS[case]), target=target, schedule=given)


def drawn(rows: tuple[int, ...], columns: int | None) -> tuple[dict[str, Array], Array, Array]:
    """Return the arrays of a product, and in float64 its elements and the sums of their terms' magnitudes."""
    rng, count = np.random.default_rng(len(rows)), len(rows)
    p = np.cumsum((0, *rows)).astype(np.int32)
    col = rng.integers(0, max(count, 1), p[-1]).astype(np.int32)
    v = rng.standard_normal(p[-1], np.float32)
    x = rng.standard_normal((count,) if columns is None else (count, columns), np.float32)
    terms = (x[col].astype(np.float64).T * v).T
    exact, sizes = (
        np.array([one[a:b].sum(0) for a, b in pairwise(p)]).reshape(x.shape)
        for one in (terms, abs(terms))
    )
    return {"p": p, "col": col, "v": v, "x": x}, exact, sizes


@pytest.mark.parametrize("case", PRODUCTS)
def test_rows_of_a_sparse_matrix_have_a_schedule_that_replays(case: str) -> None:
    kernel = compiled(case)
    assert str(kernel.schedule) == SCHEDULES[case].rstrip()
    again = compiled(case, str(kernel.schedule))
    assert again.loops == kernel.loops
    assert again.schedule == kernel.schedule


@pytest.mark.parametrize("case", PRODUCTS)
def test_rows_of_a_sparse_matrix_are_right_however_long_they_are(case: str) -> None:
    for rows, columns in product(ROWS, (None,) if case == "by a vector" else (0, 1, 33)):
        arrays, exact, sizes = drawn(rows, columns)
        agree(compiled(case)(*arrays.values()), exact, terms=sizes)


@pytest.mark.skipif(COMPILER is None, reason="no C++ compiler")
def test_the_text_of_rows_of_a_sparse_matrix_has_their_values_on_a_cpu() -> None:
    kernel, rows = compiled("by a vector"), (3, 0, 0, 31, 32, 33, 0)
    arrays, exact, sizes = drawn(rows, None)
    result = run_text(kernel.loops, arrays, {"n": len(rows), "z": sum(rows)})["c"]
    agree(result, exact, terms=sizes)


def test_other_lanes_for_rows_are_taken_by_hand() -> None:
    rows_on_lanes = """\
schedule csr
split c.i guard 128 then guard 32 as i_block i_warp i_lane
bind c.i_block block
bind c.i_warp warp
bind c.i_lane lane
"""
    kernel, (arrays, exact, sizes) = compiled("by a vector", rows_on_lanes), drawn(ROWS[-1], None)
    assert str(kernel.schedule) == rows_on_lanes.rstrip()
    agree(kernel(*arrays.values()), exact, terms=sizes)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("index(p[4*b + w + 1])", "index(p[4*b + w + 2])"),
        ("c[4*b + w] = 0.0", "c[4*b] = 0.0"),
        ("c[4*b + w] +=", "c[4*b + w - w] +="),
        ("(n + 3)//4", "n//4"),
        ("v[e]", "v[e + 0*w + w]"),
    ],
    ids=["an end", "another row is cleared", "another row", "a last block", "another term"],
)
def test_what_rows_on_units_do_otherwise_is_not_proved(old: str, new: str) -> None:
    source = PRODUCTS["by a vector"].replace("0:400", "2:400")
    right = (
        source[: source.index("for i in")]
        + """\
for b in 0:(n + 3)//4
  for w in 0:4
    if 4*b + w < n
      c[4*b + w] = 0.0
      for e in index(p[4*b + w]):index(p[4*b + w + 1])
        c[4*b + w] += x[index(col[e])] * v[e]
"""
    )
    check_equal(oc.parse(source), oc.parse(right), reassociate=True)
    assert old in right
    with pytest.raises(oc.PartitionError):
        check_equal(oc.parse(source), oc.parse(right.replace(old, new)), reassociate=True)
