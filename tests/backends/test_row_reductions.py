"""Reductions over rows as lanes: the values, the order, the marks, and when there are none."""

from __future__ import annotations

from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from compiled import Array, build, floats, same_bits
from conftest import rejection

import offcut as oc
from offcut import Kernel, Tensor
from offcut.backends.cpu.lowering.lane_reductions import ACCUMULATORS
from offcut.backends.cpu.machine.isa import host
from offcut.core.program import LANE, For, Program, walk
from tests.agree import agree, computed, exact_matmul, total

LANES = host().isa.lanes("float32")
BLOCK = ACCUMULATORS * LANES
# Every way a row can sit against a vector and against all accumulators.
EXTENTS = [0, 1, LANES - 1, LANES, LANES + 1, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK + LANES + 5]
ROWS = 5

m, n = oc.dim("m", max=4096), oc.dim("n", max=4096)


def rows(
    reducer: Any, term: Any = lambda a: a, dtype: str = "float32", extent: Any = n
) -> tuple[Tensor, Tensor]:
    """``Z[i] = reducer over j of term(A[i, j])``, and A."""
    A, j = oc.placeholder((m, extent), dtype, name="A"), oc.reduce_axis(extent, name="j")
    return oc.compute((m,), lambda i: reducer(term(A[i, j]), axis=j), name="Z"), A


def marked(kernel: Kernel | Program) -> list[str]:
    """The loops of what runs that are marked ``@lane``."""
    program = kernel.loops if isinstance(kernel, Kernel) else kernel
    return sorted(
        {stmt.iter for stmt in walk(program.body) if isinstance(stmt, For) and stmt.unit == LANE}
    )


def by_rule(terms: Array, lanes: int) -> Any:
    """The sum of float terms in the order that the back end fixes."""
    sums = np.full((ACCUMULATORS, lanes), -0.0, terms.dtype)
    for k, term in enumerate(terms):
        sums[k // lanes % ACCUMULATORS, k % lanes] += term
    while len(sums) > 1:
        sums = sums[: len(sums) // 2] + sums[len(sums) // 2 :]
    total = sums[0]
    while len(total) > 1:
        total = total[: len(total) // 2] + total[len(total) // 2 :]
    return terms.dtype.type(0) + total[0]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_sum_has_the_order_that_its_extent_fixes(dtype: str) -> None:
    output, A = rows(oc.sum, dtype=dtype)
    kernel = build(output, inputs=[A])
    lanes = host().isa.lanes(dtype)

    assert marked(kernel) == ["j"]
    for extent in EXTENTS:
        x = floats("sum", ROWS, extent, dtype=dtype)
        expected = np.array([by_rule(row, lanes) for row in x], dtype).reshape(ROWS)
        assert same_bits(kernel(x), expected), extent


CASES: dict[str, tuple[Any, Any, str, Any]] = {
    "exp": (oc.sum, oc.exp, "float32", lambda x: np.exp(x).sum(1)),
    "squares": (oc.sum, lambda a: a * a, "float32", lambda x: (x * x).sum(1)),
    "max": (oc.max, lambda a: a, "float32", lambda x: x.max(1, initial=-np.inf)),
    "min": (oc.min, lambda a: a * 2.0, "float64", lambda x: (2 * x).min(1, initial=np.inf)),
    "positive": (
        oc.sum,
        lambda a: oc.where(a > 0.0, a, 0.0),
        "float32",
        lambda x: np.maximum(x, 0).sum(1),
    ),
    "narrow": (oc.sum, lambda a: oc.cast(a, "float32"), "bfloat16", lambda x: x.sum(1)),
    "bytes": (oc.sum, lambda a: oc.cast(a, "int32"), "int8", lambda x: x.sum(1)),
    "least byte": (oc.min, lambda a: a, "uint8", lambda x: x.min(1, initial=255)),
}


@pytest.mark.every(2)
@pytest.mark.parametrize("case", CASES)
def test_any_term_is_computed_in_lanes(case: str) -> None:
    dtype, reference = CASES[case][2:]
    kernel = built(case)
    kind = ml_dtypes.bfloat16 if dtype == "bfloat16" else np.dtype(dtype)
    assert marked(kernel) == ["j"]
    for extent in EXTENTS:
        values = floats(case, ROWS, extent, dtype="float64") * (40 if "int" in dtype else 1)
        x = np.abs(values).astype(kind) if dtype == "uint8" else values.astype(kind)
        agree(kernel(x), computed(reference, x, units=max(extent, 64)))
        assert kernel(x[:0]).shape == (0,)


@cache
def built(case: str) -> Kernel:
    reducer, term, dtype, _ = CASES[case]
    output, A = rows(reducer, term, dtype)
    return build(output, inputs=[A])


@pytest.mark.parametrize("case", ["max", "positive", "exp"])
def test_nan_and_infinity_reach_the_result_of_their_row_alone(case: str) -> None:
    places = [(e, at) for e in (1, LANES + 3, BLOCK, 2 * BLOCK + 1) for at in {0, e // 2, e - 1}]
    for extent, at in places:
        kernel, clean = built(case), np.abs(floats(case, 4, extent)) + 1
        plain = kernel(clean)
        x = clean.copy()
        x[1, at], x[2, at] = np.nan, np.inf
        x[3, at] = -np.nan
        with np.errstate(all="ignore"):
            expected = CASES[case][3](x.astype("float64"))
        if case == "positive":  # a comparison with NaN does not hold
            expected[[1, 3]] = np.delete(x, at, 1)[[1, 3]].astype("float64").sum(1)
        result = kernel(x)
        agree(result, expected, units=extent + 8)  # of terms of one sign
        assert same_bits(result[:1], plain[:1])


def test_no_lane_reads_beyond_a_row() -> None:
    kernel = built("exp")
    for extent in (1, LANES - 1, LANES + 1, BLOCK + 3):
        wide = np.full((ROWS, extent + 2 * LANES), np.nan, "float32")
        wide[:, :extent] = floats("wide", ROWS, extent)
        assert same_bits(kernel(wide[:, :extent]), kernel(wide[:, :extent].copy()))


def test_columns_few_terms_and_steps_apart_keep_their_lanes_elsewhere() -> None:
    A = oc.placeholder((m, n), name="A")
    i, few = oc.reduce_axis(m, name="i"), oc.reduce_axis(3, name="few")
    columns = oc.compute((n,), lambda j: oc.sum(A[i, j], axis=i), name="columns")
    assert marked(build(columns, inputs=[A])) == []
    narrow = oc.placeholder((m, 3), name="A")
    short = oc.compute((m,), lambda j: oc.sum(narrow[j, few], axis=few), name="short")
    assert marked(build(short, inputs=[narrow])) == []
    twice = oc.placeholder((m, 2 * n), name="A")
    j = oc.reduce_axis(n, name="j")
    apart = oc.compute((m,), lambda i: oc.sum(twice[i, 2 * j], axis=j), name="apart")
    assert marked(build(apart, inputs=[twice])) == []


def test_without_reassociation_a_sum_ascends_and_a_maximum_keeps_its_lanes() -> None:
    output, A = rows(oc.sum)
    kernel = build(output, inputs=[A], reassociate=False)
    x = floats("ascending", ROWS, BLOCK + 5)
    expected = np.zeros(ROWS, "float32")
    for column in x.T:
        expected += column

    assert marked(kernel) == []
    assert same_bits(kernel(x), expected)
    greatest, A = rows(oc.max)
    assert marked(build(greatest, inputs=[A], reassociate=False)) == ["j"]
    counts, A = rows(oc.sum, lambda a: oc.cast(a, "int32"), "int8")
    assert marked(build(counts, inputs=[A], reassociate=False)) == ["j"]


DOT = """
program dot
size n in 0:4097
input x: float32[n]
input y: float32[n]
inout s: float32[1]
inout t: float32[1]
for j in 0:n
  s[0] += x[j] * y[j]
  t[0] max= x[j]
"""


def test_a_program_reduces_in_lanes_too_and_says_so() -> None:
    program = oc.parse(DOT)
    kernel = build(program)

    assert marked(kernel) == ["j"]
    assert oc.parse(str(kernel.loops)) == kernel.loops
    assert "loop j as lanes of its reductions" in str(kernel.plan(n=3))
    for extent in EXTENTS:
        x, y = floats("x", extent), floats("y", extent)
        s, t = kernel(x, y, np.array([0.5], "float32"), np.array([0.25], "float32"))
        exact = exact_matmul(np.append(x, 0.5), np.append(y, 1.0))
        agree(s, exact.map(np.atleast_1d))
        assert t == x.max(initial=np.float32(0.25))


ROW_SUMS = """
program sums
size m in 0:4097
size n in 0:4097
input A: float32[m, n]
output s: float32[m]
output q: float32[m]
for i in 0:m
  s[i] = 0.0
  q[i] = 1.0
  for j in 0:n{mark}
    s[i] += A[i, j]
    q[i] += A[i, j] * A[i, j]
"""


def test_every_piece_of_a_cut_program_reduces_in_the_same_order() -> None:
    program = oc.parse(ROW_SUMS.format(mark=""))
    whole = build(program)
    for tail in ("cut", "mask", "shift", "balance"):
        kernel = build(oc.partition(program, tile={"i": 8}, tail=tail).loops)
        x = floats(tail, 21, BLOCK + 3)
        for one, other in zip(kernel(x), whole(x), strict=True):
            assert same_bits(one, other), tail


def test_the_mark_on_a_sum_is_refused_where_its_order_counts() -> None:
    program, plain = (
        oc.parse(ROW_SUMS.format(mark="  @lane")),
        oc.parse(ROW_SUMS.format(mark="")),
    )
    proved = str(oc.prove_equal(plain, program, reassociate=True))
    assert "@lane: no iteration meets another but in a reduction" in proved
    with rejection("""\
PartitionError: partition: cannot run loop j as @lane
  at       s[i] += A[i, j]
  because  with m = 1, n = 2, s[i] += A[i, j] at i = 0, j = 0 writes what the instance i = 0, j = 1 overwrites
  help     the loop without @lane
  help     reassociate=True"""):
        oc.prove_equal(plain, program)


def test_the_mark_on_a_maximum_or_on_whole_numbers_is_accepted_in_any_case() -> None:
    text = ROW_SUMS.format(mark="  @lane").replace("+=", "max=")
    assert oc.prove_equal(oc.parse(text), oc.parse(text)).theorems
    text = ROW_SUMS.format(mark="  @lane").replace("float32", "int32").replace(".0", "")
    assert oc.prove_equal(oc.parse(text), oc.parse(text)).theorems


def test_a_loop_that_carries_more_than_a_reduction_is_still_refused() -> None:
    scan = oc.parse("""
size n in 0:4097
inout x: float32[n]
for j in 1:n @lane
  x[j] += x[j - 1]
""")
    with pytest.raises(oc.PartitionError, match="cannot run loop j as @lane"):
        oc.prove_equal(scan, scan, reassociate=True)


def test_a_product_of_matrices_keeps_the_order_of_its_microkernel() -> None:
    text = """
size m in 0:4097
size n in 0:4097
input A: float32[m, n]
input B: float32[m, n]
output C: float32[m, m]
for i in 0:m
  for j in 0:i + 1
    C[i, j] = 0.0
    for k in 0:n
      C[i, j] += A[i, k] * B[j, k]
  for j in i + 1:m
    C[i, j] = 0.0
"""
    assert marked(build(oc.parse(text))) == []
    assert marked(build(oc.parse(text.replace("A[i, k] * B[j, k]", "abs(A[i, k] - B[j, k])")))) == [
        "k"
    ]


def test_a_schedule_may_ask_for_the_lanes_of_a_sum() -> None:
    output, _ = rows(oc.sum)
    schedule = oc.create_schedule(output)
    schedule["Z"].vectorize("j")
    program = schedule.lower()
    x = floats("schedule", ROWS, BLOCK + 3)

    assert marked(program) == ["j"]
    agree(build(program)(x), total(x, 1))
    agree(schedule.run({"A": x}), total(x, 1))
