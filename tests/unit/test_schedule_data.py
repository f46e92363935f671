"""Schedules as data: their text reads back, they give the same loops and bits, and an edit is checked."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from conftest import refusals, rejection

import offcut as oc
from offcut import Tensor, ops
from offcut.core.panels import panels
from offcut.partition import LADDER, AxisCut
from offcut.schedule import (
    ANY_TREE,
    LoopVariant,
    Nest,
    Schedule,
    Separate,
    Staging,
    Together,
    decisions_of,
    parts_of,
)
from tests.same_code import GATHER, RECURRENCE, ROWS, STENCIL

n, m = oc.dim("n", max=64), oc.dim("m", max=64)
TERMS = oc.reduce_axis(24, "k")


def given(name: str, *shape: object, dtype: str = "float32") -> Tensor:
    return oc.placeholder(shape, dtype, name)


def product() -> Tensor:
    return ops.matmul(given("A", n, 24), given("B", 24, 40))


CASES: dict[str, Callable[[], Tensor]] = {
    "product": product,
    "both sizes": lambda: ops.matmul(given("A", n, 24), given("B", 24, m)),
    "softmax": lambda: ops.softmax(given("X", n, m)),
    "attention": lambda: ops.attention(given("Q", n, 8), given("K", m, 8), given("V", m, 8)),
    "convolution": lambda: ops.conv2d(
        given("X", 1, 4, n, m), given("F", 5, 4, 3, 3), padding="same"
    ),
    "bytes": lambda: ops.matmul(given("A", n, 24, dtype="int8"), given("B", 24, 40, dtype="int8")),
    "bytes apart": lambda: oc.compute(
        (n, 40),
        lambda i, j: oc.sum(
            oc.cast(given("A", 24, n, dtype="int8")[TERMS, i], "int32")
            * oc.cast(given("B", 24, 40, dtype="int8")[TERMS, j], "int32"),
            axis=TERMS,
        ),
        name="C",
    ),
    "elements": lambda: ops.relu(given("X", n, m)),
    **{
        text.split()[1]: lambda text=text: oc.parse(text)
        for text in (STENCIL, GATHER, RECURRENCE, ROWS)
    },
    "shifted": lambda: oc.compute((n,), lambda i: oc.where(i > 0, given("X", n)[i - 1], 0.0)),
}


@pytest.mark.every(6)
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("what", CASES)
def test_a_schedule_reads_back_and_gives_the_same_code(what: str, threads: int) -> None:
    kernel = oc.compile(CASES[what](), threads=threads)
    text = str(kernel.schedule)
    assert "bind *" not in text, "the loops that run as units are named"
    parsed = oc.Schedule.parse(f"# a comment\n\n{text}\n")
    assert parsed == kernel.schedule
    assert parsed.digest == kernel.schedule.digest
    again = oc.compile(CASES[what](), threads=threads, schedule=parsed)
    assert again.loops == kernel.loops
    assert again.schedule == kernel.schedule
    assert again.source("llvm") == kernel.source("llvm")


def test_every_decision_prints_and_reads_back() -> None:
    ladder = AxisCut("i", LADDER, 14)
    heights = AxisCut("j", LADDER, 8, (8, 4, 1), group=64)
    by_height = AxisCut("j", LADDER, 0, None, (((1, 6), 64, (64, 16)), ((7, 14), 32, (32,))), 128)
    variant = LoopVariant("loops", None, None, None, (ladder, heights), ("b",), ("h",))
    other = LoopVariant("loops", None, None, None, (ladder, by_height), ("b",), ("h",))
    parts = (
        Nest("A", (variant, replace(other, label="own"))),
        Together(
            ("b", "h"),
            (
                Nest("C", (variant,)),
                Together(("i",), (Nest("D", (variant,)), Nest("E", (variant,)))),
            ),
        ),
    )
    made = Schedule(
        "C",
        (
            Staging("prepack", "W", "W", layout=panels(16, 2, 4)),
            *decisions_of(parts),
            Separate(4),
            ANY_TREE,
        ),
    )
    assert Schedule.parse(str(made)) == made
    assert parts_of(made) == parts


PLAIN = """\
schedule matmul_A_B
split matmul_A_B.i {rows} as i_tile i_in
split matmul_A_B.j ladder 32 as j_tile j_in
order matmul_A_B i_tile j_tile i_in j_in
cover matmul_A_B at i_in {cover}
bind * lane tree
"""
COVER = "fma_float32_avx512(i=i_in, j=j_in, p=k)"


def edited(cover: str = COVER, rows: str = "ladder 14") -> oc.Schedule:
    return oc.Schedule.parse(PLAIN.format(cover=cover, rows=rows))


EDITS = refusals(
    r"""
an axis that is not there
given ('split matmul_A_B.i ladder', 'split matmul_A_B.z ladder')
split: cannot take z as an axis
  at       line 2: split matmul_A_B.z ladder 14 as i_tile i_in
  because  matmul_A_B has no such loop
  help     loops of matmul_A_B: i, j

an axis cut twice
given ('split matmul_A_B.i ladder', 'split matmul_A_B.j ladder')
split: cannot take j as an axis
  at       line 3: split matmul_A_B.j ladder 32 as j_tile j_in
  because  it is split into j_tile and j_in
  help     loops of matmul_A_B: i, j_tile, j_in

another microkernel
given ('fma_float32_avx512', 'fma_float33')
schedule: cannot cover tiles by fma_float33
  at       line 5: cover matmul_A_B at i_in fma_float33(i=i_in, j=j_in, p=k)
  because  there are {kernels}

a microkernel along other axes
given ('p=k', 'p=i_in')
schedule: cannot cover matmul_A_B by fma_float32_avx512
  at       line 5: cover matmul_A_B at i_in fma_float32_avx512(i=i_in, j=j_in, p=i_in)
  because  along these axes it does not compute sum(A[i, k] * B[k, j], k)

a unit that is not there
given ('lane tree', 'warp')
schedule: cannot bind loops to warp
  at       line 6: bind * warp
  because  the target has no such unit
  help     lane, lane tree for sums, thread, unroll, serial

scratch of what is not computed
given ('split matmul_A_B.i', 'stage value factors for matmul_A_B as *()\nsplit matmul_A_B.i')
schedule: cannot lay factors of matmul_A_B in scratch
  at       line 2: stage value factors for matmul_A_B as *()
  because  none is computed

a copy of what is not read
given ('split matmul_A_B.i', 'stage value C[i, k] for matmul_A_B as C_in(i = i, k = k)\nsplit matmul_A_B.i')
schedule: cannot stage C[i, k] for matmul_A_B
  at       line 2: stage value C[i, k] for matmul_A_B as C_in(i, k)
  because  cannot access `C`: no buffer of that name is declared
  help     stage value A[i, k] for matmul_A_B as A_staged(i, k)
  help     stage value B[k, j] for matmul_A_B as B_staged(j, k)

a copy along an axis that it has not
given ('split matmul_A_B.i', 'stage value A[i, k] along j for matmul_A_B as *()\nsplit matmul_A_B.i')
schedule: cannot copy A[i, k] before matmul_A_B
  at       line 2: stage value A[i, k] along j for matmul_A_B as *()
  because  it has no terms along j that can lie side by side

a unit said twice
given ('lane tree', 'lane tree\nbind * lane tree')
schedule: cannot bind * lane tree twice
  at       line 7: bind * lane tree
  because  a line before it says how

a choice of strategies
given ('i ladder 14', 'i mix 14')
schedule: cannot split i so
  at       line 2: split matmul_A_B.i mix 14 as i_tile i_in
  because  a split is by one strategy, and this is the cheapest of ladder, balance, even
  help     an option with each of them

heights of what is no ladder
given ('i ladder 14', 'i balance of 8 4')
split: cannot split i by balance in tiles of 8 4
  at       line 2: split matmul_A_B.i balance of 8 4 as i_tile i_in
  because  sizes below a tile are for ladder
  help     ladder of 8 4

a height that no range holds
given ('j ladder 32', 'j ladder by i_in 1..6: 64 32 16, 8..14: 32 16')
split: cannot split j by the height of i_in
  at       line 3: split matmul_A_B.j ladder by i_in 1..6: 64 32 16, 8..14: 32 16 as j_tile j_in
  because  after 6, the range 8..14 does not go on
  help     a loop inside of the tiles of a split before, and a range for each height of these

a height past the last range
given ('j ladder 32', 'j ladder by i_in 1..6: 64 32 16, 7..12: 32 16')
split: cannot split j by the height of i_in
  at       line 3: split matmul_A_B.j ladder by i_in 1..6: 64 32 16, 7..12: 32 16 as j_tile j_in
  because  tiles of i are up to 14 high, and no range holds 13
  help     a loop inside of the tiles of a split before, and a range for each height of these

more columns than a register tile has beside a height
given ('j ladder 32', 'j ladder by i_in 1..1: 193, 2..14: 32 16')
schedule: cannot split j so
  at       line 3: split matmul_A_B.j ladder by i_in 1..1: 193, 2..14: 32 16 as j_tile j_in
  because  no register tile of fma_float32_avx512 has 1 × 193
  help     192 columns at most beside a height of 1

a group that is cut off
given ('j ladder 32 as', 'j ladder 40 then ladder 32 as j_group')
schedule: cannot split j so
  at       line 3: split matmul_A_B.j ladder 40 then ladder 32 as j_group j_tile j_in
  because  a group of 40 is not made of equal tiles of 32

groups of a sum
given ('order matmul_A_B', 'split matmul_A_B.k ladder 16 then mask 8 as k_group k_tile k_in\norder matmul_A_B')
schedule: cannot split k so
  at       line 4: split matmul_A_B.k ladder 16 then mask 8 as k_group k_tile k_in
  because  k is summed over: it has one range of heights, and no groups

a layout of what is no constant
given ('split matmul_A_B.i', 'stage prepack B layout panels(0, 1, 16)\nsplit matmul_A_B.i')
stage: cannot pack B before a call
  at       line 2: stage prepack B layout panels(0, 1, 16)
  because  the constants are none
  help     a constant is an array that compile gets as constants={…}

panels of another width
given ('split matmul_A_B.i', 'stage read B for matmul_A_B as P layout panels(0, 1, 999999999)\nsplit matmul_A_B.i')
schedule: cannot pack B so
  at       line 2: stage read B for matmul_A_B as P layout panels(0, 1, 999999999)
  because  no microkernel reads panels(0, 1, 999999999)
  help     panels(0, 1, 16)

a copy of another operand
given ('split matmul_A_B.i', 'stage read A for matmul_A_B as P layout panels(0, 1, 16)\nsplit matmul_A_B.i')
schedule: cannot pack A for matmul_A_B
  at       line 2: stage read A for matmul_A_B as P layout panels(0, 1, 16)
  because  B is what moves along the columns of fma_float32_avx512""",
    globals(),
)


OPTION = """\
schedule matmul_A_B
choose
  option ladder costs {cost}
    split matmul_A_B.i ladder 14 as i_tile i_in
    order matmul_A_B i_tile i_in
    cover matmul_A_B at i_in fma_float32_avx512(i=i_in, j=j, p=k)
"""
COSTS = {
    "float64(z)": """\
schedule: cannot take float64(z) as a cost
  at       line 3: option ladder costs float64(z)
  because  it reads z, and a cost is told by the sizes alone, which are n""",
    "float64(n) - 2.5": """\
schedule: cannot take float64(n) - 2.5 as a cost
  at       line 3: option ladder costs float64(n) - 2.5
  because  with n = 0, it is -2.5, and seconds are at least 0""",
    "nan": """\
schedule: cannot take nan as a cost
  at       line 3: option ladder costs nan
  because  it is nan, and seconds are at least 0""",
    "float64(1//(n - 29))": """\
schedule: cannot take float64(1//(n - 29)) as a cost
  at       line 3: option ladder costs float64(1//(n - 29))
  because  it divides by n - 29; with n = 0, it is -29
  help     max(n - 29, 1)
  help     where(…), around the division""",
}


@pytest.mark.isa("avx512f")
@pytest.mark.parametrize("cost", COSTS)
def test_a_cost_that_is_none_is_refused_by_its_option(cost: str) -> None:
    changed = oc.Schedule.parse(OPTION.format(cost=cost))
    with rejection("PartitionError: " + COSTS[cost]):
        oc.compile(product(), schedule=changed)


@pytest.mark.isa("avx512f")
@pytest.mark.parametrize("what", EDITS)
def test_an_edit_that_is_not_legal_is_refused_by_its_line(what: str) -> None:
    (old, new), text = EDITS[what]
    given_text = PLAIN.format(cover=COVER, rows="ladder 14")
    assert old in given_text
    changed = oc.Schedule.parse(given_text.replace(old, new))
    with pytest.raises(oc.PartitionError) as refused:
        oc.compile(product(), schedule=changed)
    found = str(refused.value)
    if "{kernels}" in text:
        assert found.startswith(text.partition("{kernels}")[0])
        assert "fma_float32_avx512" in found
    else:
        assert found == text


SOFTMAX = {
    "a nest left out before what reads it": (
        lambda lines: [line for line in lines if "softmax_X_max" not in line],
        """\
schedule: cannot compute softmax_X_exp
  at       line 2: split softmax_X_exp.j mask {width} as j_tile j_in
  because  it reads softmax_X_max, which is not computed
  help     the decisions of softmax_X_max before it""",
    ),
    "the last nest left out": (
        lambda lines: [
            line for line in lines if " softmax_X " not in line and " softmax_X." not in line
        ],
        """\
schedule: cannot end without softmax_X
  at       line 6: at softmax_X_sum softmax_X_share.i
  because  no nest is of it
  help     cover softmax_X vectors, behind what it reads""",
    ),
    "a nest said twice": (
        lambda lines: [*lines[:2], *lines[1:]],
        """\
schedule: cannot compute softmax_X_max twice
  at       line 2: cover softmax_X_max vectors
  because  two nests are of it""",
    ),
}


@pytest.mark.parametrize("what", SOFTMAX)
def test_nests_that_do_not_compute_each_array_once_are_refused(what: str) -> None:
    n = oc.dim("n", max=512)
    result = oc.ops.softmax(oc.placeholder((n, 100), name="X"))
    change, text = SOFTMAX[what]
    lines = str(oc.compile(result).schedule).splitlines()
    with pytest.raises(oc.PartitionError) as refused:
        oc.compile(result, schedule=oc.Schedule.parse("\n".join(change(lines))))
    assert re.sub(r"mask \d+", "mask {width}", str(refused.value)) == text


@pytest.mark.isa("avx512f")
@pytest.mark.parametrize(
    ("schedule", "because"),
    [
        (
            edited(COVER.replace("i=i_in, j=j_in", "i=j_in, j=i_in"), "cut 8"),
            "tile i, j: fma_float32_avx512 does not run it: A[i, k] does not lie side by side along i",
        ),
        (
            edited(rows="balance 20"),
            "tile i, j as vectors: no register tile of fma_float32_avx512 has its rows and columns",
        ),
    ],
    ids=["rows along the columns", "tiles that are too high"],
)
def test_a_cover_that_runs_no_tile_is_refused(schedule: oc.Schedule, because: str) -> None:
    (line,) = (line for line in str(schedule).splitlines() if "fma" in line)
    number = str(schedule).splitlines().index(line) + 1
    with rejection(f"""\
PartitionError: schedule: cannot cover matmul_A_B by fma_float32_avx512
  at       line {number}: {line.strip()}
  because  {because}
  help     cover matmul_A_B vectors"""):
        oc.compile(product(), schedule=schedule)
    assert oc.compile(product(), schedule=edited()).plan(n=40).notes == ()


@pytest.mark.isa("avx512f")
def test_a_cover_is_refused_with_the_reason_of_its_own_nest() -> None:
    n = oc.dim("n", max=512)
    a, b = oc.placeholder((n, 24), name="A"), oc.placeholder((24, 40), name="B")
    c = oc.ops.matmul(
        oc.ops.matmul(a, b, name="first"), oc.placeholder((40, 24), name="D"), name="C"
    )
    text = str(oc.compile(c, strategy="cut").schedule)
    turned = [
        line.replace("i=i_in, j=j_in", "i=j_in, j=i_in") if "cover C " in line else line
        for line in re.sub(
            r"ladder .* as j_group j_tile j_in", "cut 8 as j_tile j_in", text
        ).splitlines()
    ]
    schedule = "\n".join(turned).replace("j_group ", "")
    with pytest.raises(oc.PartitionError) as refused:
        oc.compile(c, schedule=oc.Schedule.parse(schedule))
    assert "because  tile i, j: fma_float32_avx512 does not run it: first[i, k]" in str(
        refused.value
    )


@pytest.mark.parametrize("width", ["3", "999999999"])
def test_a_constant_lies_in_the_panels_of_a_microkernel(width: str) -> None:
    B = np.ones((24, 40), "float32")
    text = str(oc.compile(product(), constants={"B": B}).schedule)
    changed = re.sub(r"(stage prepack B layout panels\(0, 1, )\d+", rf"\g<1>{width}", text)
    assert changed != text
    with pytest.raises(oc.PartitionError) as refused:
        oc.compile(product(), constants={"B": B}, schedule=oc.Schedule.parse(changed))
    assert str(refused.value).startswith(f"""\
schedule: cannot lay B so
  at       line 2: stage prepack B layout panels(0, 1, {width})
  because  no microkernel reads panels(0, 1, {width})
  help     panels(0, 1, """)


@pytest.mark.slow
def test_a_packed_copy_is_made_in_a_plain_loop_of_its_reader_or_before_all() -> None:
    b, m = oc.dim("b", max=9), oc.dim("m", max=64)
    A, B = oc.placeholder((b, n, 24), name="A"), oc.placeholder((b, m, 24), name="B")
    product = oc.ops.matmul(A, B, transpose_b=True, name="C")
    text = str(oc.compile(product).schedule)
    place = re.search(r"\n *at (\S+) (C\.\S+)", text)
    assert place is not None
    copy, loop = place.groups()
    whole = text.replace(place[0], "").replace(f"order {copy} ", f"order {copy} {loop[2:]} ")
    x, y = (np.ones(s, np.float32) for s in ((2, 5, 24), (2, 7, 24)))
    for one in (text, whole):
        kernel = oc.compile(product, schedule=oc.Schedule.parse(one))
        np.testing.assert_array_equal(kernel(x, y), x @ y.swapaxes(1, 2))


TEXTS = refusals(
    r"""
nothing
given ''
parse: cannot read a schedule
  because  the text is empty

no name
given 'nest C'
parse: cannot read a schedule
  at       line 1: nest C
  because  it is not of this form
  help     schedule C

no decision
given 'schedule C\nskew i 4'
parse: cannot read a schedule
  at       line 2: skew i 4
  because  it is not a decision
  help     split, fuse, order, at, stage, inline, rfactor, bind, cover, separate, choose

a literal with a point beside a size
given 'schedule C\nchoose\n  option a costs 1e-9*n\n    bind C.i thread'
parse: cannot read a schedule
  at       line 3: option a costs 1e-9*n
  because  cannot read this literal: 1e-09 is not an integer, and index is wanted here
  help     float64(n)
  help     option small costs 1e-09*float64(n)

a mark that holds something
given 'schedule C\nmark rows\n  mark lanes'
parse: cannot read a schedule
  at       line 3: mark lanes
  because  mark holds no other decision

no copy
given 'schedule C\nseparate 0'
parse: cannot read a schedule
  at       line 2: separate 0
  because  a statement becomes one at least
  help     separate 1

another indentation
given 'schedule C\n  mark rows\nmark lanes'
parse: cannot read a schedule
  at       line 3: mark lanes
  because  it is indented as no line before it
  help     two spaces a level""",
    globals(),
)


@pytest.mark.parametrize("what", TEXTS)
def test_a_text_that_is_no_schedule_is_refused_by_its_line(what: str) -> None:
    text, said = TEXTS[what]
    with rejection(f"ParseError: {said}"):
        oc.Schedule.parse(text)


def test_a_schedule_is_asked_for_as_one() -> None:
    with pytest.raises(
        oc.DescribeError,
        match=r"cannot take schedule='.*'\n  because  it is of type str, and no schedule\n  help     strategy=\"ladder\" names a strategy",
    ):
        oc.compile(product(), schedule="C")  # type: ignore[arg-type]
    with pytest.raises(oc.DescribeError, match="beside schedule="):
        oc.compile(product(), schedule=oc.compile(product()).schedule, strategy="ladder")


def test_what_is_of_a_nest_is_refused_where_there_is_none() -> None:
    step = "stage prepack B layout panels(0, 1, 16)"
    text = f"schedule matmul_A_B\nseparate 1\n{step}\nbind * lane"
    with pytest.raises(
        oc.PartitionError, match="what a target decides stands before it"
    ) as refused:
        oc.compile(product(), schedule=oc.Schedule.parse(text))
    assert refused.value.at == f"line 3: {step}"
