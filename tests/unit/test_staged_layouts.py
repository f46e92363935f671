"""Staged arrays in layouts of their own: texts, values on processors and on machines of queues, refusals by the line."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
from compiled import same_bits
from conftest import refusals, rejection

import offcut as oc
from tests.agree import agree, exact_matmul

SIZES = (0, 1, 5, 6, 7, 18, 23)
PANELS = "stage read W for C as Wp layout panels(0, 1, 16)\n"
SPLITS = "split C.i ladder 6 as io ii\nsplit C.j {tail} as jo jj\norder C jo io ii jj\n"
COVER = "cover C at ii fma_float32_avx512(i=ii, j=jj, p=k)\n"


def product() -> tuple[oc.Tensor, list[oc.Tensor]]:
    a, w = oc.placeholder((oc.dim("n", max=64), 20), name="A"), oc.placeholder((20, 40), name="W")
    k = oc.reduce_axis(20, name="k")
    c = oc.compute((a.shape[0], 40), lambda i, j: oc.sum(a[i, k] * w[k, j], axis=k), name="C")
    return c, [a, w]


def check_values(text: str, constant: bool = False) -> oc.Kernel:
    """Check a schedule of the product against numpy in float64; return its kernel."""
    schedule = oc.Schedule.parse("schedule C\n" + text)
    assert oc.Schedule.parse(str(schedule)) == schedule
    draw = np.random.default_rng(7)
    w = draw.standard_normal((20, 40)).astype("float32")
    c, inputs = product()
    constants = {"W": w} if constant else {}
    kernel = oc.compile(c, inputs=inputs, schedule=schedule, constants=constants)
    assert oc.parse(str(kernel.loops)) == kernel.loops
    for n in SIZES:
        a = draw.standard_normal((n, 20)).astype("float32")
        got = kernel(a) if constant else kernel(a, w)
        agree(got, exact_matmul(a, w))
    return kernel


@pytest.mark.parametrize(
    "text",
    [
        PANELS,
        "stage read W for C as Wp layout order(1, 0)\n",
        "stage read A for C as Ap layout digits(u: 1//4, w: 0, v: 1%4)\n",
        "stage write C as CL layout panels(0, 1, 8)\n",
        "stage value A[i, k] for C as Av(k, i) layout panels(1, 0, 4, 2, 4)\n",
    ],
)
def test_an_array_in_a_layout_has_the_values_of_one_in_rows(text: str) -> None:
    assert " @" in str(check_values(text).loops).split("\nfor")[0]


@pytest.mark.parametrize("tail", ["mask 12", "shift 32", "ladder 24"])
def test_a_window_of_panels_lies_right_wherever_it_begins(tail: str) -> None:
    check_values(PANELS + SPLITS.format(tail=tail) + "at Wp C.jo\n")


@pytest.mark.isa("avx512f")
@pytest.mark.parametrize(
    ("staged", "constant"),
    [
        (PANELS + SPLITS, False),
        (PANELS + SPLITS + "at Wp C.jo\n", True),
        ("stage prepack W layout panels(0, 1, 16)\n" + SPLITS, True),
    ],
)
def test_a_microkernel_reads_panels_that_a_line_stages(staged: str, constant: bool) -> None:
    kernel = check_values(staged.format(tail="shift 32") + COVER, constant)
    assert "@panels(0, 1, 16)" in str(kernel.loops)
    assert "call void @oc_fma_float32_avx512" in kernel.source("llvm")


def transposed(dtype: str, depth: int) -> tuple[oc.Tensor, list[oc.Tensor]]:
    a = oc.placeholder((oc.dim("n", max=64), depth), name="A", dtype=dtype)
    w = oc.placeholder((48, depth), name="W", dtype=dtype)
    wide = "int32" if dtype == "int8" else dtype
    k = oc.reduce_axis(depth, "k")
    body = lambda i, j: oc.sum(a[i, k].astype(wide) * w[j, k].astype(wide), axis=k)  # noqa: E731
    return oc.compute((a.shape[0], 48), body, name="C"), [a, w]


def convolution() -> tuple[oc.Tensor, list[oc.Tensor]]:
    x = oc.placeholder((oc.dim("n", max=64), 8, 5, 5), name="X")
    f = oc.placeholder((32, 8, 3, 3), name="F")
    return oc.ops.conv2d(x, f, padding=1, name="Y"), [x, f]


@pytest.mark.every(3)
@pytest.mark.isa("avx512f")
@pytest.mark.parametrize(
    ("case", "lines"),
    [
        (
            partial(transposed, "float32", 64),
            ["stage value W[j, k] for C as W_panels(k, j) layout panels(0, 1, 16)"],
        ),
        pytest.param(
            partial(transposed, "int8", 7),
            ["stage value W[j, k] for C as W_panels(k, j) layout panels(0, 1, 16, 4, "],
            marks=pytest.mark.isa("avx512vnni"),
        ),
        (
            convolution,
            [
                "stage value F[o, c, r, s] for Y_turned as F_panels(r, s, c, o) layout panels(2, 3, 16)",
                "order Y_turned r s c\n",
            ],
        ),
    ],
    ids=["float32", "int8", "convolution"],
)
def test_the_copy_that_a_policy_makes_is_made_by_hand_too(
    case: Callable[[], tuple[oc.Tensor, list[oc.Tensor]]], lines: list[str]
) -> None:
    """The text says which axes the copy has, and in which order a sum runs: loops in another order than the policy's are decided by hand."""
    result, inputs = case()
    policy = oc.compile(result, inputs=inputs, strategy="balance", records=False)
    text = str(policy.schedule)
    assert [line for line in lines if line not in text] == []
    copying = re.search(r"order \w+_panels .*", text)
    assert copying is not None
    *outer, tile, inner = copying[0].split()
    edited = oc.Schedule.parse(text.replace(copying[0], " ".join((*outer, inner, tile))))
    by_hand = oc.compile(result, inputs=inputs, schedule=edited)
    assert str(by_hand.schedule).startswith(str(edited))
    assert by_hand.loops != policy.loops
    assert "@cover" in str(by_hand.loops)
    draw = np.random.default_rng(3)
    for n in (0, 1, 13, 29):
        shapes = ((n, *one.shape[1:]) if one is inputs[0] else one.shape for one in inputs)
        arrays = [
            draw.integers(-9, 9, tuple(map(int, shape))).astype(one.dtype)
            for shape, one in zip(shapes, inputs, strict=True)
        ]
        assert same_bits(by_hand(*arrays), policy(*arrays))


def test_a_copy_of_anything_else_than_the_operand_of_the_columns_is_refused() -> None:
    result, inputs = transposed("float32", 64)
    target = oc.target("cpu", machine="avx2")
    text = str(oc.compile(result, inputs=inputs, target=target, strategy="balance").schedule)
    staged = "stage value W[j, k] for C as W_panels(k, j) layout panels(0, 1, 8)"
    assert staged in text
    edited = text.replace("W_panels(k, j)", "W_panels(j, k)")
    with rejection(f"""\
PartitionError: schedule: cannot pack W[j, k] for C
  at       line 2: {staged.replace("(k, j)", "(j, k)")}
  because  fma_float32_avx2 reads W[j, k] along its columns, whose copy is over k, j
  help     {staged}"""):
        oc.compile(result, inputs=inputs, target=target, schedule=oc.Schedule.parse(edited))


def policy_text(case: Callable[[], tuple[oc.Tensor, list[oc.Tensor]]]) -> str:
    result, inputs = case()
    target = oc.target("cpu", machine="avx2")
    return str(oc.compile(result, inputs=inputs, target=target, strategy="balance").schedule)


EDITS = refusals(
    r"""
another term innermost
given convolution, "order Y_turned r s c\n", "order Y_turned c r s\n"
PartitionError: schedule: cannot run along s innermost
  at       line 7: order Y_turned c r s
  because  what covers Y_turned runs along c innermost
  help     order Y_turned r s c

a term twice
given convolution, "order Y_turned r s c\n", "order Y_turned r s c c\n"
PartitionError: schedule: cannot order the terms of Y_turned by r, s, c, c
  at       line 7: order Y_turned r s c c
  because  the sum runs along c, r, s, each once
  help     order Y_turned r s c

a loop that is not there
given partial(transposed, "float32", 64), "j_tile i_in j_in", "j_tile q i_in j_in"
PartitionError: schedule: cannot order C by q
  at       line 7: order C j_group i_tile j_tile q i_in j_in
  because  C has no such loop: its axes are i, j, k

columns as rows
given partial(transposed, "float32", 64), "panels(0, 1, 8)", "panels(1, 0, 8)"
PartitionError: schedule: cannot pack W so
  at       line 2: stage value W[j, k] for C as W_panels(k, j) layout panels(1, 0, 8)
  because  its rows and columns are its axes 0 and 1
  help     stage value W[j, k] for C as W_panels(k, j) layout panels(0, 1, 8)
""",
    globals(),
)


@pytest.mark.parametrize("what", EDITS)
def test_an_edited_copy_or_order_is_refused_by_its_line(what: str) -> None:
    case, old, new, text = EDITS[what]
    result, inputs = case()
    policy = policy_text(case)
    assert old in policy
    schedule = oc.Schedule.parse(policy.replace(old, new))
    with rejection(text):
        oc.compile(
            result, inputs=inputs, target=oc.target("cpu", machine="avx2"), schedule=schedule
        )


def test_a_value_without_a_layout_in_an_option_is_no_copy_of_an_operand() -> None:
    result, inputs = transposed("float32", 64)
    schedule = oc.Schedule.parse("""\
schedule C
choose
  option a
    stage value W[j, k] for C as T(k, j)
    cover C vectors""")
    with rejection("""\
PartitionError: choose: cannot compare the option a
  at       line 3: option a
  because  a call takes the cheapest, and it says no cost
  help     option a costs 1e-09*float64(n)"""):
        oc.compile(result, inputs=inputs, schedule=schedule)


def refusal(text: str) -> str:
    c, inputs = product()
    with pytest.raises(oc.OffcutError) as refused:
        oc.compile(c, inputs=inputs, schedule=oc.Schedule.parse("schedule C\n" + text))
    return str(refused.value)


def test_a_layout_that_no_array_can_have_is_refused_by_its_line() -> None:
    assert refusal("stage read W for C as Wp layout order(2, 1, 0)") == (
        "stage: cannot lay Wp out in order(2, 1, 0)\n"
        "  at       line 2: stage read W for C as Wp layout order(2, 1, 0)\n"
        "  because  axis 2: the operand has 2 axes\n"
        "  help     Wp has 2 axes"
    )
    assert refusal("stage prepack W layout panels(0, 1, 16)") == (
        "stage: cannot pack W before a call\n"
        "  at       line 2: stage prepack W layout panels(0, 1, 16)\n"
        "  because  the constants are none\n"
        "  help     a constant is an array that compile gets as constants={…}"
    )
    assert refusal("stage read W for C as Wp layout sideways(1)") == (
        "parse: cannot read a schedule\n"
        "  at       line 2: stage read W for C as Wp layout sideways(1)\n"
        "  because  cannot read this line: found `sideways`\n"
        "  help     a layout (panels, words, order, rows, digits) is expected here"
    )


@pytest.mark.isa("avx512f")
def test_a_cover_of_an_operand_in_another_layout_is_refused_by_its_line() -> None:
    lines = PANELS.replace("16", "8") + SPLITS.format(tail="ladder 32") + COVER
    assert refusal(lines) == (
        "schedule: cannot pack W so\n"
        "  at       line 2: stage read W for C as Wp layout panels(0, 1, 8)\n"
        "  because  no microkernel reads panels(0, 1, 8)\n"
        "  help     panels(0, 1, 16)"
    )


WORDS = """\
schedule Y
stage read X for S as X_in in inputs{X}
stage read V for S as V_in in weights{V}
stage value min(S[i, j], 100) for Y as Y_1(i, j) in accumulators{Y}
split Y.i balance 8 as i_tile i_in
order Y i_tile i_in j
at Y_1 Y.i_tile in accumulators depth 2
at S Y.i_tile in accumulators depth 2
at X_in Y.i_tile depth 2
at V_in Y
cover S at i gemm_1x16x16(j=j, p=p)
cover Y_1 at i alu_min(j=j)
cover Y at i_in store_outputs
"""


def on_words(**layouts: str) -> None:
    x, v = oc.placeholder((oc.dim("m", min=1, max=64), 20), "int8", name="X"), None
    v, p = oc.placeholder((20, 24), "int8", name="V"), oc.reduce_axis(20, name="p")
    s = oc.compute(
        (x.shape[0], 24),
        lambda i, j: oc.sum(x[i, p].astype("int32") * v[p, j].astype("int32"), axis=p),
        name="S",
    )
    y = oc.compute(s.shape, lambda i, j: oc.minimum(s[i, j], 100).astype("int8"), name="Y")
    laid = {name: f" layout {layouts[name]}" if name in layouts else "" for name in "XVY"}
    schedule = oc.Schedule.parse(WORDS.format(**laid))
    assert oc.Schedule.parse(str(schedule)) == schedule
    kernel = oc.compile(y, inputs=[x, v], target="vta", schedule=schedule)
    draw = np.random.default_rng(3)
    for m in (1, 7, 8, 9, 24, 29):
        a, b = (draw.integers(-9, 9, shape).astype("int8") for shape in ((m, 20), (20, 24)))
        np.testing.assert_array_equal(
            kernel(a, b), np.minimum(a.astype("int32") @ b, 100).astype("int8")
        )


@pytest.mark.every(2)
@pytest.mark.parametrize(
    "layouts",
    [
        {"X": "words(0: 1, 1: 16)", "V": "words(1: 16, 0: 16)", "Y": "words(0: 1, 1: 16)"},
        {"X": "digits(w: 1//16, v: 0, lane: 1%16)", "Y": "words(1: 16, 0: 1)"},
    ],
)
def test_words_on_a_machine_of_queues_lie_as_a_line_says(layouts: dict[str, str]) -> None:
    on_words(**layouts)


def test_words_that_the_unit_does_not_have_are_refused_by_the_line_of_their_layout() -> None:
    with rejection(
        "TargetError: compile: cannot lay V_in out in words(0: 16, 1: 16)\n"
        "  at       line 3: stage read V for S as V_in in weights layout words(0: 16, 1: 16)\n"
        "  because  what computes with it has words of digits(word0: 0//16, word1: 1//16, lane: 0%16 1%16)\n"
        "  help     without a layout\n"
        "  help     another axis along the lanes, in the cover"
    ):
        on_words(V="words(0: 16, 1: 16)")


IN_WINDOWS = """\
program d
size n in 1:65
input A: int8[n, 16]
input W: int8[16, 32]
output C: int8[n, 32]
local A_in: int8[n, 16] @scope(inputs)
local W_in: int8[16, 32] @scope(weights)
local S: int32[n, 32] @scope(accumulators)
alloc W_in[0 +: 16, 0 +: 32]{W}
  tile k in 0 +: 16, j in 0 +: 32
    W_in[k, j] = W[k, j]
  for i in 0:(n + 7)//8
    alloc A_in[8*i +: min(8, n - 8*i), 0 +: 16]{A}
      tile r in 8*i +: min(8, n - 8*i), k in 0 +: 16
        A_in[r, k] = A[r, k]
      alloc S[8*i +: min(8, n - 8*i), 0 +: 32]{S}
        tile r in 8*i +: min(8, n - 8*i), j in 0 +: 32
          S[r, j] = 0
        tile r in 8*i +: min(8, n - 8*i), j in 0 +: 32
          for k in 0:16
            S[r, j] += int32(A_in[r, k]) * int32(W_in[k, j])
        tile r in 8*i +: min(8, n - 8*i), j in 0 +: 32
          C[r, j] = int8(S[r, j])
"""


def in_windows(**layouts: str) -> oc.Kernel:
    laid = {name: f" layout {layouts[name]}" if name in layouts else "" for name in "AWS"}
    program = oc.parse(IN_WINDOWS.format(**laid))
    assert oc.parse(str(program)) == program
    return oc.compile(program, target="vta")


@pytest.mark.parametrize(
    "layouts",
    [
        {"A": "words(0: 1, 1: 16)", "W": "words(1: 16, 0: 16)", "S": "words(0: 1, 1: 16)"},
        {"A": "digits(w: 1//16, v: 0, lane: 1%16)"},
    ],
)
def test_words_of_a_window_lie_as_the_text_of_a_program_says(layouts: dict[str, str]) -> None:
    kernel, draw = in_windows(**layouts), np.random.default_rng(3)
    for n in (1, 7, 8, 9, 29):
        a, w = (draw.integers(-9, 9, shape).astype("int8") for shape in ((n, 16), (16, 32)))
        np.testing.assert_array_equal(kernel(a, w), (a.astype("int32") @ w).astype("int8"))


def test_words_of_a_window_that_the_unit_does_not_have_are_refused() -> None:
    with rejection(
        "TargetError: compile: cannot lay S out in words(0: 16)\n"
        "  at       buffer S\n"
        "  because  what computes with it has words of words(1: 16, 0: 1)\n"
        "  help     without a layout\n"
        "  help     another axis along the lanes, in the cover"
    ):
        in_windows(S="words(0: 16)")


def test_methods_say_layouts_too() -> None:
    c, _ = product()
    s = oc.create_schedule(c)
    s.cache_read("W", None, [c], layout=oc.ir.panels(16))
    assert str(s.schedule) == "schedule C\nstage read W for C as WL layout panels(0, 1, 16)"
    assert "local WL: float32[20, 40] @panels(0, 1, 16)" in str(s)
