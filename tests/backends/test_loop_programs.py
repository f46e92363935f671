"""Loop programs from text, compiled: equal to numpy, and to the interpreter bit for bit."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import pytest
from compiled import Array, floats, same_bits
from conftest import rejection
from polybench import KERNELS

import offcut as oc
from offcut.core.dtypes import numpy_dtype
from offcut.core.interpret.values import evaluate
from offcut.core.program import Kind, Program
from tests.agree import agree, computed

# Every way a size can sit against vectors of 8 and of 16 lanes, and against four of them.
SIZES = [0, 1, 2, 7, 8, 9, 16, 17, 33, 85]


@dataclass(frozen=True)
class Case:
    """A program over the size n, and what it computes, in numpy.

    well    makes its inputs well conditioned, in place
    """

    text: str
    reference: Callable[..., Any]
    well: Callable[..., None] = lambda *arrays: None

    @property
    def program(self) -> Program:
        return oc.parse(self.text)

    def arrays(self, n: int) -> list[Array]:
        """Inputs in call order: small whole numbers, so that sums and products are exact."""
        made = []
        for buffer in self.program.buffers:
            if buffer.kind in (Kind.INPUT, Kind.INOUT):
                shape = tuple(evaluate(e, {"n": n}) for e in buffer.shape)
                values = np.round(3 * floats(buffer.name, *shape, dtype="float64"))
                made.append(np.asarray(values, numpy_dtype(buffer.dtype)))
        self.well(*made)
        return made


def pool(a: Array) -> Array:
    n = len(a)
    return np.array([max(a[max(i - 1, 0) : i + 2]) for i in range(n)]).reshape(n)


def gathered(index: Array, a: Array) -> Array:
    n = len(a)
    return a[index % n] if n else a


def compressed(rows: Array, *others: Array) -> None:
    rows[...] = np.sort(np.abs(rows)) % max(3 * (len(rows) - 1), 1)
    rows.sort()


def sparse(rows: Array, places: Array, values: Array, x: Array) -> Array:
    y = np.zeros_like(x)
    for i in range(len(x)):
        for k in range(rows[i], rows[i + 1]):
            y[i] += values[k] * x[places[k] % len(x)]
    return y


def guarded(a: Array, b: Array) -> Array:
    return np.where(a > 0, np.sqrt(np.abs(a)) + b, np.where(b > 0, -a, 0.0))


def banded(a: Array, x: Array) -> Array:
    n = len(x)
    near = np.abs(np.subtract.outer(np.arange(n), np.arange(n))) <= 2
    return (a * near) @ x


CASES = {
    "lu": Case(
        KERNELS["lu"].text,
        lambda a: KERNELS["lu"].reference(a)[0],
        lambda a: np.fill_diagonal(a, 100.0 * len(a)),
    ),
    "prefix sum of columns": Case(
        """\
size n in 0:5000
inout S: float32[n, n]
for j in 0:n
  for i in 1:n
    S[i, j] += S[i - 1, j]""",
        lambda a: np.cumsum(a, axis=0),
    ),
    "1-d pooling with borders": Case(
        """\
size n in 0:5000
input A: float32[n]
output P: float32[n]
for i in 0:n
  P[i] = A[i]
  for d in -1:2
    if 0 <= i + d and i + d < n
      P[i] max= A[i + d]""",
        pool,
    ),
    "a guard that depends on data": Case(
        """\
size n in 0:5000
input A: float32[n, n]
input B: float32[n, n]
output C: float32[n, n]
for i in 0:n
  for j in 0:n
    C[i, j] = 0.0
    if A[i, j] > 0.0
      C[i, j] = sqrt(A[i, j]) + B[i, j]
    else
      if B[i, j] > 0.0
        C[i, j] = -(A[i, j])""",
        guarded,
    ),
    "matrix product, a scalar for each element": Case(
        """\
size n in 0:5000
input A: float32[n, n]
input B: float32[n, n]
private s: float32[]
output C: float32[n, n]
for i in 0:n
  for j in 0:n
    s[] = 0.0
    for k in 0:n
      s[] += A[i, k] * B[k, j]
    C[i, j] = s[]""",
        lambda a, b: a @ b,
    ),
    "lanes with bounds of their own": Case(
        """\
size n in 0:5000
input A: float32[n, n]
input X: float32[n]
output Y: float32[n]
for i in 0:n
  Y[i] = 0.0
  for j in max(0, i - 2):min(n, i + 3)
    Y[i] += A[i, j] * X[j]""",
        banded,
    ),
    "division and remainder": Case(
        """\
size n in 0:5000
input A: float32[n]
output C: float32[3*n]
for i in 0:3*n
  if i % 3 == 1
    C[i] = A[i//3]
  else
    C[i] = float32(i//2 - i % 2)""",
        lambda a: np.array(
            [a[i // 3] if i % 3 == 1 else i // 2 - i % 2 for i in range(3 * len(a))]
        ).reshape(-1),
    ),
    "an index from an array": Case(
        """\
size n in 0:5000
input P: int32[n]
input A: float32[n]
output C: float32[n]
for i in 0:n
  C[i] = A[index(P[i]) % max(n, 1)]""",
        gathered,
    ),
    "rows of a sparse matrix": Case(
        """\
size n in 0:5000
input R: int32[n + 1]
input P: int32[3*n]
input V: float32[3*n]
input X: float32[n]
output Y: float32[n]
for i in 0:n
  Y[i] = 0.0
  for k in index(R[i]):index(R[i + 1])
    Y[i] += V[k] * X[index(P[k]) % max(n, 1)]""",
        sparse,
        compressed,
    ),
    "execution marks": Case(
        """\
size n in 0:5000
input A: float32[n, n]
output C: float32[n]
for i in 0:n @thread
  C[i] = 0.0
  for j in 0:n @lane
    C[i] += A[i, j]
  for k in 0:2 @unroll
    C[i] = C[i] * 2.0""",
        lambda a: 4 * a.sum(axis=1),
    ),
}  # fmt: skip


def poison(program: Program, n: int) -> tuple[Array, ...]:
    """Arrays for the results that hold no result: NaN, or the least integer."""
    made = []
    for buffer in program.results:
        shape = tuple(evaluate(e, {"n": n}) for e in buffer.shape)
        dtype = numpy_dtype(buffer.dtype)
        integer = np.issubdtype(dtype, np.integer)
        made.append(np.full(shape, np.iinfo(dtype).min if integer else np.nan, dtype))
    return tuple(made)


def allowed(case: Case) -> list[int]:
    return [n for n in SIZES if n >= case.program.sizes[0].min]


@pytest.mark.every(4)
@pytest.mark.parametrize("name", CASES)
def test_a_program_computes_what_numpy_does_at_every_size(name: str) -> None:
    case = CASES[name]
    kernel = oc.compile(case.program)
    for n in allowed(case):
        arrays = case.arrays(n)
        before = [array.copy() for array in arrays]
        out = poison(case.program, n)
        found = kernel(*arrays, out=out if len(out) > 1 else out[0])
        expected = computed(case.reference, *arrays)
        for array, kept in zip(arrays, before, strict=True):
            assert same_bits(array, kept), f"n = {n}: an input is changed"
        several = isinstance(expected, tuple)
        for got, want in zip(
            found if several else [found], expected if several else [expected], strict=True
        ):
            agree(got, want)


def test_results_that_need_no_rounding_are_those_of_the_interpreter_bit_for_bit() -> None:
    exact = ("prefix sum of columns", "1-d pooling with borders", "lanes with bounds of their own")
    exact += ("division and remainder", "execution marks")
    for name in exact:
        case = CASES[name]
        kernel = oc.compile(case.program)
        for n in (1, 9, 17):
            arrays = case.arrays(n)
            names = [b.name for b in case.program.buffers if b.kind in (Kind.INPUT, Kind.INOUT)]
            expected = case.program.run(dict(zip(names, arrays, strict=True)), n=n)
            assert same_bits(kernel(*arrays), expected), f"{name}, n = {n}"


def test_an_array_that_is_updated_may_be_the_result_itself_whatever_its_strides() -> None:
    case = CASES["lu"]
    kernel = oc.compile(case.program)
    (a,) = case.arrays(20)
    expected = kernel(a)
    wide = np.zeros((20, 40))
    for target in (wide[:, :20], wide[:, ::2]):
        target[...] = a
        assert kernel(target, out=target) is target
        assert same_bits(target.copy(), expected)


def test_a_plan_says_what_became_of_each_loop() -> None:
    plan = oc.compile(CASES["lu"].program).plan(n=9)
    assert (
        str(plan)
        == """\
lu(n = 9)
loop k sequential: it carries output A -> A, and 8 more
loop i as lanes of vectors
loop i2 one by one: a loop inside runs as lanes
loop j as lanes of vectors"""
    )


def test_a_pasted_matrix_product_is_packed_and_run_by_microkernels() -> None:
    kernel = oc.compile(CASES["matrix product, a scalar for each element"].program)
    assert "@cover(" in kernel.source("loops")
    assert kernel.plan(n=40).pieces


@pytest.mark.every(4)
@pytest.mark.parametrize("updated", [False, True])
def test_a_matrix_product_that_starts_from_an_array_is_one_in_place_too(updated: bool) -> None:
    text = """\
program gemm
size m in 0:5000
size n in 0:5000
size p in 0:5000
input A: float32[m, p]
input B: float32[p, n]
inout C: float32[m, n]
for i in 0:m
  for j in 0:n
    C[i, j] = 2.0 * C[i, j]
  for k in 0:p
    for j in 0:n
      C[i, j] += 3.0 * A[i, k] * B[k, j]"""
    kernel = oc.compile(oc.parse(text))
    assert "@cover(" in kernel.source("loops")
    for m, n, p in ((0, 3, 2), (1, 1, 1), (5, 7, 0), (15, 33, 9), (29, 50, 40)):
        a, b, c = (np.round(3 * floats("x", *s)) for s in ((m, p), (p, n), (m, n)))
        expected = 2 * c + 3 * (a @ b)
        assert np.array_equal(kernel(a, b, c, out=c if updated else None), expected)


def test_a_program_takes_constants() -> None:
    text = """\
size n in 0:100
input X: float32[n]
constant W: float32[n, n]
output Y: float32[n]
for i in 0:n
  Y[i] = 0.0
  for j in 0:n
    if j <= i
      Y[i] += W[i, j] * X[j]"""
    x, w = np.round(3 * floats("x", 21)), np.round(3 * floats("w", 21, 21))
    kernel = oc.compile(oc.parse(text), constants={"W": w})
    assert np.array_equal(kernel(x), np.tril(w) @ x)
    assert np.array_equal(kernel.with_constants({"W": 2 * w})(x), np.tril(2 * w) @ x)
    with rejection("""\
DescribeError: compile: cannot run without W
  because  the program declares constant W
  help     constants={"W": …}
  help     input W: … in the program"""):
        oc.compile(oc.parse(text))


READ_BY_INDEX = """\
size n in 1:5000
size m in 1:99
input P: int32[n]
input A: int32[m]
output C: int32[n]
for k in 0:n
  C[k] = 0
for i in 0:n
  {}"""
BY_INDEX = {
    "value": "C[i] = A[index(P[i])]",
    "target": "C[index(P[i])] += 1",
    "condition": "if A[index(P[i])] > 0\n    C[i] = 1",
    "bound": "for j in 0:index(A[index(P[i])])\n    C[i] += 1",
}


@pytest.mark.every(4)
@pytest.mark.parametrize(
    ("place", "tail"),
    [*product(BY_INDEX, (None, "cut", "mask")), ("value", "balance"), ("condition", "mix")],
)
def test_what_is_read_from_an_array_is_asked_wherever_it_stands(
    place: str, tail: str | None
) -> None:
    source = oc.parse(READ_BY_INDEX.format(BY_INDEX[place]))
    program = source if tail is None else oc.partition(source, {"i": 4}, tail).loops
    kernel = oc.compile(program)
    p, a = np.arange(9, dtype=np.int32), np.arange(9, dtype=np.int32)
    assert np.array_equal(kernel(p, a), source.run({"P": p, "A": a}))
    for wrong in (9, -1, 10**9):
        p[5] = wrong
        with pytest.raises(oc.CallError, match="leads outside of an array"):
            kernel(p, a)


def test_a_program_says_itself_what_its_inputs_are() -> None:
    with pytest.raises(oc.OffcutError, match="cannot take inputs= with a program"):
        oc.compile(CASES["lu"].program, inputs=[])


PRODUCT = """program product
size n in 0:300
input A: float32[n, 40]
constant B: float32[40, 33]
output C: float32[n, 33]
for i in 0:n
  for j in 0:33
    C[i, j] = 0.0
    for k in 0:40
      C[i, j] += A[i, k] * B[k, j]
"""


@pytest.mark.parametrize("strategy", ["balance", {"i": "mask", "j": "cut"}], ids=str)
def test_a_program_that_is_a_computation_takes_a_strategy(strategy: Any) -> None:
    b = floats("b", 40, 33)
    program = oc.parse(PRODUCT)
    made = oc.compile(program, constants={"B": b}, strategy=strategy)
    auto = oc.compile(program, constants={"B": b}, price=lambda loops: 0.0)  # every way
    assert "choose" in str(auto.loops)
    assert "choose" not in str(made.loops)
    kept = pickle.loads(pickle.dumps(made))
    assert str(kept.loops) == str(made.loops)
    for n in SIZES:
        a = floats("a", n, 40)
        assert same_bits(made(a), auto(a))
        assert same_bits(kept(a), auto(a))


def test_a_strategy_adds_no_start_last_where_terms_keep_their_order() -> None:
    text = PRODUCT.replace("= 0.0", "= A[i, 0]").replace("constant B", "input B")
    with pytest.raises(oc.PartitionError) as refused:
        oc.compile(oc.parse(text), strategy="ladder", reassociate=False)
    assert refused.value.because == (
        "the sum in C starts from a value, and reassociate=False, so it runs in the loops that it has"
    )


def test_a_program_that_is_none_takes_no_strategy() -> None:
    with rejection(
        "PartitionError: compile: cannot take strategy='ladder' with this program\n"
        "  because  it is not a sequence of whole arrays, each from those before, so it runs in the "
        "loops that it has\n"
        "  help     oc.compile(oc.partition(program, tile={…}, tail={…}).loops)"
    ):
        oc.compile(CASES["lu"].program, strategy="ladder")


@pytest.mark.parametrize("place", ["u", "2 - u", "u//3", "where(u < 1, 2, 0)"])
def test_each_lane_reads_its_own_entry_of_a_table(place: str) -> None:
    text = f"""\
program entries
size n in 0:41
output E: float64[n]
for u in 0:n
  E[u] = where({place} >= 0 and {place} < 3, [0.5, -2.0, 3.0][{place}], 9.0)
"""
    kernel = oc.compile(oc.parse(text))
    meant = {"u": lambda u: u, "2 - u": lambda u: 2 - u, "u//3": lambda u: u // 3}
    index = meant.get(place, lambda u: 2 if u < 1 else 0)
    for n in (0, 1, 3, 15, 16, 17, 40):
        exact = [[0.5, -2.0, 3.0][index(u)] if 0 <= index(u) < 3 else 9.0 for u in range(n)]
        np.testing.assert_array_equal(kernel(n=n), exact)


LAST = """program last
size n in 0:99
input A: float32[n]
output B: float32[n]
output C: float32[1]
local t: float32[1]
t[0] = -1.0
for i in 0:n
  if A[i] > 0.0
    t[0] = A[i]
  B[i] = where(A[i] < 0.0, t[0], A[i])
C[0] = t[0]
"""


@pytest.mark.parametrize("threads", [1, 2])
def test_a_scalar_that_conditions_write_and_read_has_the_last_value(threads: int) -> None:
    kernel = oc.compile(oc.parse(LAST), threads=threads)
    for n in (0, 1, 15, 16, 17, 53):
        a = np.random.default_rng(n).integers(-1, 2, n).astype(np.float32) * np.arange(1, n + 1)
        values, last = kernel(a.astype(np.float32))
        positive = np.maximum.accumulate(np.where(a > 0, np.arange(n), -1))
        wanted = np.where(positive >= 0, a[positive], -1) if n else a
        np.testing.assert_array_equal(values, np.where(a < 0, wanted, a))
        assert last[0] == (wanted[-1] if n else -1)


def test_a_copy_beside_what_writes_where_memory_says_runs_as_lanes() -> None:
    kernel = oc.compile(
        oc.parse(
            """program scatter
size m in 0:100
size n in 0:100
size k in 0:100
input X: float32[m, n]
input P: int64[m, k]
input V: float32[m, k]
output Y: float32[m, n]
for i in 0:m
  for j in 0:n
    Y[i, j] = X[i, j]
for i in 0:m
  for j in 0:k
    Y[i, index(P[i, j])] = Y[i, index(P[i, j])] + V[i, j]"""
        )
    )
    assert "bind Y.j lane" in str(kernel.schedule)
    for m, n, k in ((0, 3, 0), (3, 17, 40), (5, 70, 9)):
        x, v = floats("x", m, n), floats("v", m, k)
        p = np.random.default_rng(m).integers(0, n, (m, k))
        wanted = x.copy()
        for i, j in np.ndindex(m, k):
            wanted[i, p[i, j]] += v[i, j]
        np.testing.assert_array_equal(kernel(x, p, v), wanted)
    with pytest.raises(oc.CallError, match="outside"):
        kernel(floats("x", 3, 4), np.full((3, 2), 4), floats("v", 3, 2))
