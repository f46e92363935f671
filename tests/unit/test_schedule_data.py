"""Schedules as data: their text reads back, they give the same loops and bits, and an edit is checked."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache

import ml_dtypes
import numpy as np
import pytest

import offcut as oc
from offcut import Tensor, ops
from offcut.core.layout import panels
from offcut.partition import BALANCE, LADDER, AxisCut
from offcut.schedule import Cut, Lay, Mark, Nest, Separate, Together, Way
from tests.agree import agree, exact_matmul
from tests.facade import evaluate

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
    "shifted": lambda: oc.compute((n,), lambda i: oc.where(i > 0, given("X", n)[i - 1], 0.0)),
}
SIZES = (0, 1, 13, 14, 15, 42, 47)


def arrays(kernel: oc.Kernel, size: int) -> list[np.ndarray]:
    rng = np.random.default_rng(size)
    found = []
    for argument in kernel.signature.inputs:
        shape = [int(evaluate(extent, {"n": size, "m": size})) for extent in argument.shape]
        values = rng.integers(-4, 5, shape) + (rng.random(shape) if argument.dtype[0] == "f" else 0)
        found.append(values.astype(argument.dtype))
    return found


@cache
def compiled(what: str, threads: int = 1) -> oc.Kernel:
    return oc.compile(CASES[what](), threads=threads)


@pytest.mark.every(4)
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("what", CASES)
def test_a_schedule_reads_back_and_gives_the_same_loops_and_bits(what: str, threads: int) -> None:
    kernel = compiled(what, threads)
    text = str(kernel.schedule)
    parsed = oc.Schedule.parse(f"# a comment\n\n{text}\n")
    assert parsed == kernel.schedule
    assert parsed.digest == kernel.schedule.digest
    again = oc.compile(CASES[what](), threads=threads, schedule=parsed)
    assert again.loops == kernel.loops
    assert again.schedule == kernel.schedule
    for size in SIZES:
        inputs = arrays(kernel, size)
        assert np.asarray(again(*inputs)).tobytes() == np.asarray(kernel(*inputs)).tobytes()


@pytest.mark.slow
def test_schedules_that_differ_have_different_digests() -> None:
    found = {compiled(what).schedule.digest for what in CASES}
    assert len(found) == len(CASES)


def test_every_decision_prints_and_reads_back() -> None:
    ladder = AxisCut("i", LADDER, 14)
    heights = AxisCut("j", LADDER, 8, (8, 4, 1), group=64)
    by_height = AxisCut("j", LADDER, 0, None, (((1, 6), 64, (64, 16)), ((7, 14), 32, (32,))), 128)
    way = Way("own", None, None, None, (ladder, heights, by_height), ("b",), ("h",))
    made = oc.Schedule(
        "C",
        (
            Lay("W", panels(16, 2, 4)),
            Cut("C.i", (64, 8), BALANCE),
            Together(("b", "h"), (Nest("C", (way,)), Together(("i",), (Nest("D", (way,)),)))),
            Separate(4),
            Mark("rows"),
        ),
    )
    assert oc.Schedule.parse(str(made)) == made


PLAIN = """\
schedule matmul_A_B
nest matmul_A_B
  way ladder
    cover {cover}
    split i {rows}
    split j ladder 32
mark rows
"""
COVER = "fma_float32_avx512 rows i columns j depth k"


def edited(cover: str = COVER, rows: str = "ladder 14") -> oc.Schedule:
    return oc.Schedule.parse(PLAIN.format(cover=cover, rows=rows))


@pytest.mark.every(3)
@pytest.mark.isa("avx512f")
@pytest.mark.parametrize(
    "rows", ["ladder 14", "ladder 5", "ladder of 8 4 1", "balance 9", "mask 8", "shift 6", "cut 7"]
)
def test_an_edited_schedule_is_what_runs(rows: str) -> None:
    kernel = oc.compile(product(), schedule=edited(rows=rows))
    assert kernel.schedule == edited(rows=rows)
    plain = oc.compile(product())
    for size in SIZES:
        inputs = arrays(kernel, size)
        assert np.asarray(kernel(*inputs)).tobytes() == np.asarray(plain(*inputs)).tobytes()


EDITS = {
    "an axis that is not there": (
        ("    split i ladder 14", "    split z ladder 14"),
        """\
schedule: cannot cut z
  at       line 5: split z ladder 14
  because  the axes of matmul_A_B are i, j, k, each cut or run by one loop""",
    ),
    "an axis cut twice": (
        ("    split i ladder 14", "    split j ladder 14"),
        """\
schedule: cannot cut j
  at       line 6: split j ladder 32
  because  the axes of matmul_A_B are i, j, k, each cut or run by one loop""",
    ),
    "another microkernel": (
        ("fma_float32_avx512", "fma_float33"),
        """\
schedule: cannot cover tiles by fma_float33
  at       line 4: cover fma_float33 rows i columns j depth k
  because  there are {kernels}""",
    ),
    "a microkernel along other axes": (
        ("depth k", "depth i"),
        """\
schedule: cannot cover matmul_A_B by fma_float32_avx512
  at       line 4: cover fma_float32_avx512 rows i columns j depth i
  because  along these axes it does not compute sum(A[i, k] * B[k, j], k)""",
    ),
    "another stage": (
        ("nest matmul_A_B", "nest C"),
        """\
schedule: cannot find C
  at       line 2: nest C
  because  the nests are matmul_A_B""",
    ),
    "a tile that does not divide": (
        ("split i ladder 14", "split i exact 14"),
        """\
partition: cannot take tail="exact"
  at       line 5: split i exact 14
  because  with n = 1, 14 does not divide the extent n
  help     tail="cut" separates the last n % 14 iterations
  help     assume(n % 14 == 0) if every caller guarantees it""",
    ),
    "a unit that is not there": (
        ("mark rows", "mark warps"),
        """\
schedule: cannot run loops by warps
  at       line 7: mark warps
  because  the target has no such unit
  help     products, rows, lanes, threads""",
    ),
    "scratch of what is not computed": (
        ("nest matmul_A_B\n", "scratch matmul_A_B\nnest matmul_A_B\n"),
        """\
schedule: cannot lay factors of matmul_A_B in scratch
  at       line 2: scratch matmul_A_B
  because  none is computed""",
    ),
    "a copy of what is not read": (
        ("nest matmul_A_B\n", "copy matmul_A_B C[i, k] along k\nnest matmul_A_B\n"),
        """\
schedule: cannot copy C[i, k] before matmul_A_B
  at       line 2: copy matmul_A_B C[i, k] along k
  because  it reads A[i, k], B[k, j]""",
    ),
    "a copy along an axis that it has not": (
        ("nest matmul_A_B\n", "copy matmul_A_B A[i, k] along j\nnest matmul_A_B\n"),
        """\
schedule: cannot copy A[i, k] before matmul_A_B
  at       line 2: copy matmul_A_B A[i, k] along j
  because  it has no terms along j that can lie side by side""",
    ),
    "a mark said twice": (
        ("mark rows", "mark rows\nmark rows"),
        """\
schedule: cannot mark rows twice
  at       line 8: mark rows
  because  a line before it says how""",
    ),
    "a tile of nothing": (
        ("    split i ladder 14", "    split i balance 0"),
        """\
partition: cannot cut i by 0
  at       line 5: split i balance 0
  because  a tile is an int from 1 to 2**31 - 1: isl decides no symbolic tile size
  help     tile={"i": 8}
  help     tile={"i": (64, 16)} in two levels""",
    ),
    "more heights than are asked": (
        ("    split i ladder 14", "    split i balance 1025"),
        """\
partition: cannot cut by balance
  at       line 5: split i balance 1025
  because  its tiles may have any of 1025 heights, each asked by itself, and 1024 at most are
  help     tail="cut" and tail="ladder" are for tiles of any size""",
    ),
    "a choice of strategies": (
        ("    split i ladder 14", "    split i mix 14"),
        """\
schedule: cannot split i so
  at       line 5: split i mix 14
  because  a split is by one strategy, and this is the cheapest of ladder, balance, even
  help     a way with each of them""",
    ),
    "heights of what is no ladder": (
        ("    split i ladder 14", "    split i balance of 8 4"),
        """\
schedule: cannot split i so
  at       line 5: split i balance of 8 4
  because  heights below a tile are for ladder
  help     split i ladder of 8 4 1""",
    ),
    "a height that no range holds": (
        ("    split j ladder 32", "    split j ladder by height 1..6: 64 32 16, 8..14: 32 16"),
        """\
schedule: cannot split j so
  at       line 6: split j ladder by height 1..6: 64 32 16, 8..14: 32 16
  because  after 6, the range 8..14 does not go on""",
    ),
    "a height past the last range": (
        ("    split j ladder 32", "    split j ladder by height 1..6: 64 32 16, 7..12: 32 16"),
        """\
schedule: cannot split j so
  at       line 6: split j ladder by height 1..6: 64 32 16, 7..12: 32 16
  because  tiles of i are up to 14 high, and no range holds 13""",
    ),
    "more columns than a register tile has beside a height": (
        ("    split j ladder 32", "    split j ladder by height 1..1: 193, 2..14: 32 16"),
        """\
schedule: cannot split j so
  at       line 6: split j ladder by height 1..1: 193, 2..14: 32 16
  because  no register tile of fma_float32_avx512 has 1 × 193
  help     192 columns at most beside a height of 1""",
    ),
    "heights of nothing": (
        (
            "    split i ladder 14\n    split j ladder 32",
            "    split j ladder by height 1..14: 32 16",
        ),
        """\
schedule: cannot split j so
  at       line 5: split j ladder by height 1..14: 32 16
  because  no split stands before it whose tiles have heights""",
    ),
    "a group that is cut off": (
        ("    split j ladder 32", "    split j ladder 32 in groups of 40"),
        """\
schedule: cannot split j so
  at       line 6: split j ladder 32 in groups of 40
  because  a group of 40 is not made of equal tiles of 32""",
    ),
    "groups along two axes": (
        (
            "    split i ladder 14\n    split j ladder 32",
            "    split i ladder 14 in groups of 28\n    split j ladder 32 in groups of 64",
        ),
        """\
schedule: cannot split j so
  at       line 6: split j ladder 32 in groups of 64
  because  tiles are visited in groups along one axis""",
    ),
    "groups of a sum": (
        ("    split j ladder 32", "    split k mask 8 in groups of 16"),
        """\
schedule: cannot split k so
  at       line 6: split k mask 8 in groups of 16
  because  k is summed over: it has one range of heights, and no groups""",
    ),
    "a cost that no call knows": (
        ("    split i ladder 14", "    costs float64(z)\n    split i ladder 14"),
        """\
schedule: cannot take float64(z) as a cost
  at       line 3: way ladder
  because  a cost is told by the sizes alone, which are n""",
    ),
    "a cost below 0": (
        ("    split i ladder 14", "    costs float64(n) - 2.5\n    split i ladder 14"),
        """\
schedule: cannot take float64(n) - 2.5 as a cost
  at       line 3: way ladder
  because  with n = 0, it is -2.5, and seconds are at least 0""",
    ),
    "a cost that is no number": (
        ("    split i ladder 14", "    costs nan\n    split i ladder 14"),
        """\
schedule: cannot take nan as a cost
  at       line 3: way ladder
  because  it is nan, and seconds are at least 0""",
    ),
    "a cost that divides by what may be 0": (
        ("    split i ladder 14", "    costs float64(1//(n-29))\n    split i ladder 14"),
        """\
schedule: cannot take float64(1//(n - 29)) as a cost
  at       line 3: way ladder
  because  it divides by n - 29; with n = 0, it is -29
  help     max(n - 29, 1)
  help     where(…), around the division""",
    ),
    "words of a machine of queues": (
        ("    split i ladder 14", "    words columns j\n    split i ladder 14"),
        """\
schedule: cannot lay words
  at       line 5: words columns j
  because  a machine of queues has them, and this target is none
  help     without this line""",
    ),
    "windows in turn of a machine of queues": (
        ("    split i ladder 14", "    depth i 2\n    split i ladder 14"),
        """\
schedule: cannot take windows in turn
  at       line 5: depth i 2
  because  a machine of queues has them, and this target is none
  help     without this line""",
    ),
    "a loop that a nest cuts": (
        ("nest matmul_A_B\n", "cut matmul_A_B.i cut 8\nnest matmul_A_B\n"),
        """\
schedule: cannot cut matmul_A_B.i
  at       line 2: cut matmul_A_B.i cut 8
  because  its nest says how it is split""",
    ),
    "panels of another width": (
        ("    split i ladder 14", "    pack P panels(0, 1, 999999999)\n    split i ladder 14"),
        """\
schedule: cannot pack B so
  at       line 5: pack P panels(0, 1, 999999999)
  because  no microkernel reads panels(0, 1, 999999999)
  help     panels(0, 1, 16)""",
    ),
    "a layout of what is no constant": (
        ("nest matmul_A_B\n", "lay B panels(0, 1, 16)\nnest matmul_A_B\n"),
        """\
schedule: cannot lay B in panels
  at       line 2: lay B panels(0, 1, 16)
  because  the constants are none""",
    ),
}


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


SHARED = {
    "j": """\
schedule: cannot share a loop j
  at       line 2: together j
  because  loops of matmul_A_B are shared from its first axis on, and axis 0 is i
  help     together i""",
    "k": """\
schedule: cannot share a loop k
  at       line 2: together k
  because  loops of matmul_A_B are shared from its first axis on, and axis 0 is i
  help     together i""",
    "z z": """\
schedule: cannot share a loop z
  at       line 2: together z z
  because  loops of matmul_A_B are shared from its first axis on, and axis 1 is j
  help     together i j""",
}


@pytest.mark.parametrize("names", SHARED)
def test_shared_loops_are_the_first_axes_each_by_a_name_of_its_own(names: str) -> None:
    text = f"schedule matmul_A_B\ntogether {names}\n  nest matmul_A_B\n    way loops\n"
    with pytest.raises(oc.PartitionError) as refused:
        oc.compile(product(), schedule=oc.Schedule.parse(text))
    assert str(refused.value) == SHARED[names]
    for good in ("i", "z", "z j"):
        kernel = oc.compile(product(), schedule=oc.Schedule.parse(text.replace(names, good)))
        inputs = arrays(kernel, 5)
        agree(kernel(*inputs), exact_matmul(*inputs))


SOFTMAX = {
    "a nest left out before what reads it": (
        lambda lines: lines[:2] + lines[4:],
        """\
schedule: cannot compute softmax_X_exp
  at       line 3: nest softmax_X_exp
  because  it reads softmax_X_max, which is not computed
  help     nest softmax_X_max, with its ways, before it""",
    ),
    "the last nest left out": (
        lambda lines: lines[:9] + lines[12:],
        """\
schedule: cannot end without softmax_X
  at       line 8: nest softmax_X_sum
  because  no nest is of it
  help     nest softmax_X, with its ways, behind what it reads""",
    ),
    "a nest said twice": (
        lambda lines: lines[:12] + lines[9:],
        """\
schedule: cannot compute softmax_X twice
  at       line 13: nest softmax_X
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
    assert str(refused.value) == text


@pytest.mark.isa("avx512f")
def test_a_plan_says_why_a_tile_runs_without_the_microkernel_of_its_way() -> None:
    tall = oc.compile(product(), schedule=edited(rows="balance 20")).plan(n=40)
    assert {piece.microkernel for piece in tall.pieces} == {"vector loops"}
    assert tall.notes == (
        "tile i, j as vectors: no register tile of fma_float32_avx512 has its rows and columns",
    )
    assert oc.compile(product(), schedule=edited()).plan(n=40).notes == ()


@pytest.mark.parametrize("width", ["3", "999999999"])
def test_a_constant_lies_in_the_panels_of_a_microkernel(width: str) -> None:
    B = np.ones((24, 40), "float32")
    text = str(oc.compile(product(), constants={"B": B}).schedule)
    changed = re.sub(r"(lay B panels\(0, 1, )\d+", rf"\g<1>{width}", text)
    assert changed != text
    with pytest.raises(oc.PartitionError) as refused:
        oc.compile(product(), constants={"B": B}, schedule=oc.Schedule.parse(changed))
    assert str(refused.value).startswith(f"""\
schedule: cannot lay B so
  at       line 2: lay B panels(0, 1, {width})
  because  no microkernel reads panels(0, 1, {width})
  help     panels(0, 1, """)


@pytest.mark.every(4)
@pytest.mark.parametrize(
    "copy", ["mask 3", "cut 16", "even 16", "shift 16", "ladder 24", "mask 32"]
)
@pytest.mark.parametrize("dtype", ["int8", "bfloat16"])
def test_a_packed_copy_is_whole_however_its_loops_are_split(dtype: str, copy: str) -> None:
    product = ops.matmul(given("A", n, 24, dtype=dtype), given("B", 24, 40, dtype=dtype))
    kernel = oc.compile(product)
    text = str(kernel.schedule)
    if "pack " not in text:
        pytest.skip(f"no unit of this machine asks for {dtype} in panels: it is read where it lies")
    changed = re.sub(r"(pack .*\n +split j )mask \d+", rf"\g<1>{copy}", text)
    again = oc.compile(product, schedule=oc.Schedule.parse(changed))
    rng = np.random.default_rng(0)
    numpy_of = ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype
    B = rng.integers(-4, 5, (24, 40)).astype(numpy_of)
    for size in SIZES:
        A = rng.integers(-4, 5, (size, 24)).astype(numpy_of)
        right = A.astype("int64") @ B.astype("int64")
        made = np.asarray(again(A, B))
        assert np.array_equal(made, right.astype(made.dtype))


def test_a_partition_writes_its_schedule() -> None:
    made = oc.partition(product(), {"i": (28, 14), "j": 32}, {"i": "balance", "j": "mask"})
    kernel = oc.compile(product(), schedule=made.schedule)
    assert kernel.loops == oc.compile(made.loops).loops
    assert oc.Schedule.parse(str(made.schedule)) == made.schedule
    plain = oc.compile(product())
    for size in SIZES:
        inputs = arrays(kernel, size)
        assert np.asarray(kernel(*inputs)).tobytes() == np.asarray(plain(*inputs)).tobytes()


@pytest.mark.parametrize(
    ("line", "text"),
    [
        (
            "cut matmul_A_B.z cut 8",
            """\
partition: cannot find the axis 'matmul_A_B.z'
  at       line 3: cut matmul_A_B.z cut 8
  because  no axis has that name
  help     matmul_A_B.i, matmul_A_B.j, matmul_A_B.k""",
        ),
        (
            "cut matmul_A_B.i cut 8\ncut matmul_A_B.i cut 4",
            """\
schedule: cannot cut matmul_A_B.i twice
  at       line 4: cut matmul_A_B.i cut 4
  because  a line before it says how""",
        ),
        (
            "cut matmul_A_B.k shift 8",
            """\
partition: cannot take tail="shift" on a reduction
  at       line 3: cut matmul_A_B.k shift 8
  because  the last tile would add terms again: sum is not idempotent
  help     any tail but shift meets each term once, in its order""",
        ),
    ],
)
def test_a_cut_that_is_not_legal_is_refused_by_its_line(line: str, text: str) -> None:
    schedule = oc.Schedule.parse(f"schedule matmul_A_B\nseparate 4\n{line}\n")
    with pytest.raises(oc.PartitionError) as refused:
        oc.compile(product(), schedule=schedule)
    assert str(refused.value) == text


TEXTS = {
    "nothing": ("", "parse: cannot read a schedule\n  because  the text is empty"),
    "no name": (
        "nest C",
        """\
parse: cannot read a schedule
  at       line 1: nest C
  because  it is not of this form
  help     schedule C""",
    ),
    "no decision": (
        "schedule C\nskew i 4",
        """\
parse: cannot read a schedule
  at       line 2: skew i 4
  because  it is no decision
  help     split, fuse, order, at, stage, inline, rfactor, bind, cover, separate, choose
  help     scratch, copy, turn, convert, lay, nest, together, cut, mark""",
    ),
    "a nest that does not run": (
        "schedule C\nnest C",
        """\
parse: cannot read a schedule
  at       line 2: nest C
  because  a nest runs in one way at least
  help     way loops""",
    ),
    "no strategy": (
        "schedule C\ncut C.i round 8",
        """\
parse: cannot read a schedule
  at       line 2: cut C.i round 8
  because  there is no such strategy
  help     guard, exact, cut, mask, pad, shift, ladder, balance, even, residue, version, mix""",
    ),
    "a mark that holds something": (
        "schedule C\nmark rows\n  mark lanes",
        """\
parse: cannot read a schedule
  at       line 3: mark lanes
  because  mark holds no other decision""",
    ),
    "a number that no size is": (
        "schedule C\ncut C.i ladder(99999999999) 8",
        """\
parse: cannot read a schedule
  at       line 2: cut C.i ladder(99999999999) 8
  because  its numbers are at most 2147483647""",
    ),
    "no copy": (
        "schedule C\nseparate 0",
        """\
parse: cannot read a schedule
  at       line 2: separate 0
  because  a statement becomes one at least
  help     separate 1""",
    ),
    "another indentation": (
        "schedule C\n  mark rows\nmark lanes",
        """\
parse: cannot read a schedule
  at       line 3: mark lanes
  because  it is indented as no line before it
  help     two spaces a level""",
    ),
}


@pytest.mark.parametrize("what", TEXTS)
def test_a_text_that_is_no_schedule_is_refused_by_its_line(what: str) -> None:
    text, said = TEXTS[what]
    with pytest.raises(oc.ParseError) as refused:
        oc.Schedule.parse(text)
    assert str(refused.value) == said


def test_a_schedule_is_asked_for_as_one() -> None:
    with pytest.raises(
        oc.DescribeError,
        match=r"cannot take schedule='.*'\n  because  it is of type str, and no schedule\n  help     strategy=\"ladder\" names a strategy",
    ):
        oc.compile(product(), schedule="C")  # type: ignore[arg-type]
    with pytest.raises(oc.DescribeError, match="beside schedule="):
        oc.compile(product(), schedule=oc.compile(product()).schedule, strategy="ladder")


@pytest.mark.parametrize(
    "step",
    [
        "scratch matmul_A_B",
        "turn matmul_A_B j i",
        "convert matmul_A_B float32(A[i, k])",
        "lay B panels(0, 1, 16)",
    ],
)
def test_what_is_of_a_nest_is_refused_where_there_is_none(step: str) -> None:
    text = f"schedule matmul_A_B\n{step}\nmark lanes"
    with pytest.raises(oc.PartitionError) as refused:
        oc.compile(product(), schedule=oc.Schedule.parse(text))
    assert (
        str(refused.value)
        == f"""\
schedule: cannot apply this to loops as they stand
  at       line 2: {step}
  because  it is of a nest, and the schedule has none
  help     a nest, with the ways to run it"""
    )


def test_a_schedule_of_another_program_is_refused() -> None:
    text = str(oc.compile(product()).schedule).replace("schedule matmul_A_B", "schedule other")
    with pytest.raises(oc.PartitionError) as refused:
        oc.compile(product(), schedule=oc.Schedule.parse(text))
    assert (
        str(refused.value)
        == """\
schedule: cannot apply a schedule of other to matmul_A_B
  at       line 1: schedule other
  because  it was written for another program
  help     schedule matmul_A_B"""
    )
