"""`stage value`: one text for the nests of a processor and for schedules by hand, over the axes of the array."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from conftest import refusals, rejection

import offcut as oc
from offcut import Schedule
from offcut.core.panels import panels
from offcut.describe.computation import computation
from offcut.errors import PartitionError
from offcut.schedule import Staging, transform_stages
from tests.agree import agree, exact_matmul
from tests.facade import Computation, format_expr


def product(dtype: str = "float32", constant: bool = False) -> tuple[oc.Tensor, list[oc.Tensor]]:
    n, k = oc.dim("n", max=99), oc.reduce_axis(6, name="k")
    a, w = oc.placeholder((n, 6), dtype, "A"), oc.placeholder((6, 5), name="W")
    element = (lambda i: oc.cast(a[i, k], "float32")) if dtype != "float32" else lambda i: a[i, k]
    c = oc.compute((n, 5), lambda i, j: oc.sum(element(i) * oc.exp(w[k, j]), axis=k), name="C")
    return c, [a, w]


def step(line: str) -> Staging:
    (read,) = Schedule.parse(f"schedule C\n{line}").steps
    assert isinstance(read, Staging)
    return read


def groups(made: Computation) -> list[str]:
    return [
        f"{stage.buffer}({', '.join(f'{a.name}: {format_expr(a.extent)}' for a in stage.axes)}) = {format_expr(stage.body)}"
        for group in made.groups
        for stage in group
    ]


LINES = {
    "stage value exp(W[u, v]) for C as E(v = j, u = k)": [
        "E(v: 5, u: 6) = exp(W[u, v])",
        "C(i: n, j: 5) = sum(float32(A[i, k]) * E[j, k], k)",
    ],
    "stage value float32(A[x0, x1]) for C as F(x0 = i, x1 = k)": [
        "F(x0: n, x1: 6) = float32(A[x0, x1])",
        "C(i: n, j: 5) = sum(F[i, k] * exp(W[k, j]), k)",
    ],
    # as texts of before say it, and in another order of the axes
    "stage value float32(A[i, k]) for C as F(x0 = i, x1 = k)": [
        "F(x0: n, x1: 6) = float32(A[x0, x1])",
        "C(i: n, j: 5) = sum(F[i, k] * exp(W[k, j]), k)",
    ],
    "stage value float32(A[i, k]) for C as F(u = k, v = i)": [
        "F(u: 6, v: n) = float32(A[v, u])",
        "C(i: n, j: 5) = sum(F[k, i] * exp(W[k, j]), k)",
    ],
    "stage value exp(W[k, j]) for C as E(k, j)": [
        "E(k: 6, j: 5) = exp(W[k, j])",
        "C(i: n, j: 5) = sum(float32(A[i, k]) * E[k, j], k)",
    ],
}


@pytest.mark.parametrize("line", LINES)
def test_a_value_is_an_array_of_its_own_in_the_order_that_its_axes_say(line: str) -> None:
    c, inputs = product("float16")
    made = transform_stages(computation([c], inputs), step(line))
    assert groups(made) == LINES[line]


def test_two_sums_read_one_array() -> None:
    n, k, h = oc.dim("n", max=99), oc.reduce_axis(6, name="k"), oc.reduce_axis(6, name="h")
    a, b = oc.placeholder((n, 6), name="A"), oc.placeholder((n,), name="B")
    s = oc.compute((n,), lambda i: oc.sum(a[i, k] * oc.exp(b[i]), axis=k), name="S")
    c = oc.compute((n,), lambda i: oc.sum(a[i, h] * oc.exp(b[i]) * s[i], axis=h), name="C")
    both = transform_stages(computation([c]), step("stage value exp(B[u]) for C S as E(u = i)"))
    assert groups(both) == [
        "E(u: n) = exp(B[u])",
        "S(i: n) = sum(A[i, k] * E[i], k)",
        "C(i: n) = sum(A[i, h] * E[i] * S[i], h)",
    ]


REFUSED = {
    "stage value exp(W[u, v]) for C as E(u = j, v = k)": """\
schedule: cannot stage exp(W[u, v]) for C
  because  C computes no exp(W[j, k])
  help     stage value exp(W[k, j]) for C as W_staged(j, k)
  help     stage value A[i, k] for C as A_staged(i, k)
  help     stage value W[k, j] for C as W_staged(j, k)
  help     stage value float32(A[x0, x1]) for C as A_float32(x0 = i, x1 = k)""",
    "stage value exp(W[u + 1, v]) for C as E(u = k - 1, v = j)": """\
stage_value: cannot stage exp(W[u + 1, v]) along u = k - 1
  at       stage C
  because  that is not a sum of loops that begins at 0 or above, and ends at one place at each size
  help     loops of C: i, j, k""",
    "stage value exp(W[u, v]) for C as A(u = k, v = j)": """\
schedule: cannot call an array A
  because  something has that name""",
    "stage value exp(W[u, n]) for C as E(u = k, n = j)": """\
schedule: cannot make n
  because  something has that name""",
    "stage value float32(A[u, v]) for C as A(u = i, v = k)": """\
schedule: cannot call an array A
  because  something has that name""",
}


@pytest.mark.parametrize("line", REFUSED)
def test_a_value_that_is_not_there_and_a_name_that_is_are_refused(line: str) -> None:
    c, inputs = product("float16")
    with rejection("PartitionError: " + REFUSED[line]):
        transform_stages(computation([c], inputs), step(line))


def test_a_result_is_computed_in_the_order_of_axes_that_a_line_says_by_hand_too() -> None:
    c, inputs = product()
    turned = Schedule.parse("schedule C\nstage write C as T(j, i)\norder T j i k")
    program = oc.create_schedule(c, inputs).apply(turned).lower()
    assert "  T[j, i] += A[i, k]" in str(program)
    rng = np.random.default_rng(1)
    a, w = (rng.standard_normal(shape).astype("float32") for shape in ((7, 6), (6, 5)))
    agree(program.run({"A": a, "W": w}), exact_matmul(a, np.exp(w.astype("float64"))))
    with rejection("""\
PartitionError: stage: cannot compute C in a buffer of its own
  at       line 2: stage write C as T(j, k)
  because  its axes are i, j"""):
        oc.create_schedule(c, inputs).apply(Schedule.parse("schedule C\nstage write C as T(j, k)"))


def test_a_value_lies_in_the_layout_and_the_memory_that_its_line_says() -> None:
    c, inputs = product("float16")
    line = "stage value exp(W[u, v]) for C as E(u = k, v = j) in near layout panels(0, 1, 16)"
    array = transform_stages(computation([c], inputs), step(line)).buffer("E")
    assert (array.scope, array.layout) == ("near", panels(16))
    with pytest.raises(PartitionError, match="cannot lay E out in panels"):
        transform_stages(
            computation([c], inputs), step(line.replace("panels(0, 1, 16)", "panels(0, 2, 16)"))
        )


@pytest.mark.isa("avx512f")
def test_a_microkernel_reads_the_panels_of_a_staged_value() -> None:
    c, inputs = product()
    kernel = oc.compile(
        c,
        inputs=inputs,
        schedule=Schedule.parse("""\
schedule C
stage value exp(W[u, v]) for C as E(u = k, v = j) layout panels(0, 1, 16)
cover E vectors
split C.i ladder 14 as i_tile i_in
split C.j ladder 32 as j_tile j_in
order C i_tile j_tile i_in j_in
cover C at i_in fma_float32_avx512(i=i_in, j=j_in, p=k)"""),
    )
    assert "B=E" in str(kernel.loops)
    rng = np.random.default_rng(2)
    for rows in (0, 1, 14, 15, 47):
        a, w = (rng.standard_normal(s).astype("float32") for s in ((rows, 6), (6, 5)))
        exact = exact_matmul(a, np.exp(w.astype("float64")))
        agree(np.asarray(kernel(a, w)), exact, units=32)


@pytest.mark.parametrize("strategy", ["mask", {"i": "ladder", "j": "mask"}])
def test_what_has_no_terms_side_by_side_is_copied_once(strategy: Any) -> None:
    n, k = oc.dim("n", max=99), oc.reduce_axis(9, name="k")
    a, w = oc.placeholder((n, 9), "int8", "A"), oc.placeholder((9, 5), "int8", "W")
    c = oc.compute(
        (n, 5),
        lambda i, j: oc.sum(oc.cast(a[i, k], "int32") * oc.cast(w[k, j], "int32"), axis=k),
        name="C",
    )
    kernel = oc.compile(c, inputs=[a, w], strategy=strategy)
    assert str(kernel.schedule).count("stage value W[") == 1
    rng = np.random.default_rng(3)
    for rows in (0, 1, 14, 47):
        left, right = (rng.integers(-128, 128, s).astype("int8") for s in ((rows, 9), (9, 5)))
        np.testing.assert_array_equal(kernel(left, right), left.astype(int) @ right)


def test_tables_of_other_entries_are_other_values() -> None:
    text = """\
program t
size n in 0:9
input A: float64[n, 3]
output C: float64[n]
for i in 0:n
  C[i] = 0.0
  for k in 0:3
    C[i] += A[i, k] * [0.5, 2.0, 3.0][k]
"""
    line = "schedule t\nstage value [0.5, 2.0, 3.0][u] for C as E(u = k)"
    kernel = oc.compile(oc.parse(text), schedule=Schedule.parse(line))
    a = np.arange(12.0).reshape(4, 3)
    np.testing.assert_array_equal(kernel(a), a @ [0.5, 2.0, 3.0])
    with pytest.raises(PartitionError, match=r"it computes no \[1.5, 2.0, 3.0\]\[k\]"):
        oc.compile(oc.parse(text), schedule=Schedule.parse(line.replace("[0.5", "[1.5")))


def test_a_replay_declares_arrays_in_the_order_of_the_first_time() -> None:
    n, k = oc.dim("n", max=99), oc.reduce_axis(6, name="k")
    a, w = oc.placeholder((n, 6), name="A"), oc.placeholder((6, 5), name="W")
    s = oc.compute((n, 5), lambda i, j: oc.sum(a[i, k] * w[k, j], axis=k), name="S")
    text = "schedule S\nstage value A[i, k] for S as L(k, i)"
    first = oc.compile(s, inputs=[a, w], schedule=Schedule.parse(text))
    again = oc.compile(s, inputs=[a, w], schedule=Schedule.parse(str(first.schedule)))
    assert again.loops == first.loops


CONVERTED = """program C
size n in 0:33
input A: float32[n, 6]
constant W: int8[6, 5]
output C: float32[n, 5]
for i in 0:n
  for j in 0:5
    C[i, j] = 0.0
    for k in 0:6
      C[i, j] += A[i, k] * float32(W[k, j])
"""
BINDING = "schedule C\nstage value float32(W[x0, x1]) for C as W(x0 = k, x1 = j)\nsplit C.i cut 4 as io ii\nbind C.ii unroll"


def test_a_constant_is_converted_when_it_is_bound_by_a_line_by_hand() -> None:
    s = oc.create_schedule(oc.parse(CONVERTED)).apply(Schedule.parse(BINDING))
    s.lower()  # proved for all sizes
    assert s.loops.buffer("W").dtype == "float32"
    random = np.random.default_rng(0)
    w = random.integers(-9, 9, (6, 5)).astype("int8")
    kernel = oc.compile(oc.parse(CONVERTED), constants={"W": w}, schedule=Schedule.parse(BINDING))
    assert kernel.loops.buffer("W").dtype == "float32"
    for rows in (0, 1, 3, 4, 5, 12, 17):
        x = random.normal(size=(rows, 6)).astype("float32")
        agree(kernel(x), exact_matmul(x, w), units=6)
        agree(s.run({"A": x, "W": w}, n=rows), exact_matmul(x, w), units=6)


REFUSED_CONSTANTS = refusals(
    """
an input
given CONVERTED.replace("constant W", "input W"), BINDING, "W is not a constant, which could be converted when it is bound"
W_float32

another value
given CONVERTED, BINDING.replace("float32(W[x0, x1])", "float32(W[x1, x0])").replace("x0 = k, x1 = j", "x0 = j, x1 = k"), "something has that name"
W_float32

a layout
given CONVERTED, BINDING.replace("x1 = j)", "x1 = j) layout panels(0, 1, 16)"), "the memory and the layout of W are those of the constant"
W_float32
""",
    globals(),
)


@pytest.mark.parametrize("what", REFUSED_CONSTANTS)
def test_an_array_that_cannot_be_converted_when_it_is_bound_is_refused(what: str) -> None:
    program, text, because, name = REFUSED_CONSTANTS[what]
    schedule = Schedule.parse(text)
    staging = schedule.steps[0]
    assert isinstance(staging, Staging)
    with rejection(f"""\
PartitionError: stage: cannot stage {staging.what} in W
  at       line 2: {text.splitlines()[1]}
  because  {because}
  help     an array of a name of its own, {name}"""):
        oc.create_schedule(oc.parse(program)).apply(schedule)
