"""Every refusal of a machine of queues, word for word: at compile, with the statement or the line that it means."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from accelerators import bytes_of, clipped, dense, pooling, requantised

import offcut as oc
from offcut.backends.accelerator.target import Accelerator
from offcut.costmodel import load

PRODUCT = """\
program product
size n in 0:65
input A: int8[n, 20]
input W: int8[20, 24]
output Y: int8[n, 24]
local S: int32[n, 24] @scope(accumulators)
local a: int8[n, 20] @scope(inputs)
local w: int8[20, 24] @scope(weights)
alloc a[0 +: min(n, 4), 0 +: 20]
  tile i in 0 +: min(n, 4), k in 0 +: 20
    a[i, k] = A[i, k]
  alloc w[0 +: 20, 0 +: 24]
    tile k in 0 +: 20, j in 0 +: 24
      w[k, j] = W[k, j]
    alloc S[0 +: min(n, 4), 0 +: 24]
      tile i in 0 +: min(n, 4), j in 0 +: 24
        S[i, j] = 0
      tile i in 0 +: min(n, 4), j in 0 +: 24
        for k in 0:20
          S[i, j] += int32(a[i, k]) * int32(w[k, j])
      tile i in 0 +: min(n, 4), j in 0 +: 24
        Y[i, j] = int8(S[i, j])
"""
HOST = """\
program host
input A: int8[16]
input I: int32[16]
output Y: int8[16]
local T: int8[16]
local C: int8[16] @scope(accumulators)
for i in 0:16
  T[i] = A[i]
alloc C[0 +: 16]
  tile i in 0 +: 16
    C[i] = T[i]
  tile i in 0 +: 16
    Y[i] = int8(C[i])
"""
COPIES = "the host copies elements, or constants where a condition fails"
COMPUTES = "T in a memory of the machine, which computes"

PROGRAMS = {
    "the host computes nothing": (
        HOST.replace("= A[i]", "= A[i] * 2"),
        f"""\
compile: cannot run a statement for vta on the host
  at       T[i] = A[i] * 2
  because  A[i] * 2 is no element
  help     {COPIES}
  help     {COMPUTES}""",
    ),
    "what the host fills is what it reads": (
        HOST.replace("  T[i] = A[i]", "  T[i] = A[i]\nfor i in 0:16\n  T[i] = T[15 - i]"),
        f"""\
compile: cannot run a statement for vta on the host
  at       T[i] = T[15 - i]
  because  it reads T, which it fills
  help     {COPIES}
  help     {COMPUTES}""",
    ),
    "a triangle of the host": (
        HOST.replace("  T[i] = A[i]", "  for j in 0:i + 1\n    T[i] = A[j]"),
        f"""\
compile: cannot run a statement for vta on the host
  at       T[i] = A[j]
  because  its loops are bounded by one another, and the host fills boxes
  help     {COPIES}
  help     {COMPUTES}""",
    ),
    "terms end within a word": (
        PRODUCT.replace("for k in 0:20", "for k in 0:5"),
        """\
compile: cannot run a statement on vta
  at       S[i, j] += int32(a[i, k]) * int32(w[k, j])
  because  it ends at 5 along k, within a word of 16 elements of a
  help     multiples of 16""",
    ),
    "results end within a word": (
        PRODUCT.replace("j in 0 +: 24\n        Y[", "j in 0 +: 7\n        Y["),
        """\
compile: cannot run a statement on vta
  at       Y[i, j] = int8(S[i, j])
  because  it ends at 7 along j, within a word of 16 elements of S
  help     multiples of 16""",
    ),
    "a word is filled in part": (
        PRODUCT.replace("= A[i, k]", "= where(k < 5, A[i, k], 0)"),
        """\
compile: cannot run a statement on vta
  at       a[i, k] = where(k < 5, A[i, k], 0)
  because  k runs along words, and a load fills whole words alone""",
    ),
    "a microkernel that it has not": (
        PRODUCT.replace("j in 0 +: 24\n        S[", "j in 0 +: 24  @cover(gemm_8x8)\n        S["),
        """\
compile: cannot cover a tile by gemm_8x8
  at       S[i, j] = 0
  because  gemm_reset of vta runs it
  help     @cover(gemm_reset)""",
    ),
    "a microkernel of what is stored": (
        PRODUCT.replace("j in 0 +: 24\n        Y[", "j in 0 +: 24  @cover(alu_cut)\n        Y["),
        """\
compile: cannot cover a tile by alu_cut
  at       Y[i, j] = int8(S[i, j])
  because  Y lies in main memory, and alu_cut has C in accumulators
  help     @cover(store_outputs)""",
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_that_no_instruction_runs_is_refused_at_compile(name: str) -> None:
    text, expected = PROGRAMS[name]
    with pytest.raises(oc.TargetError) as refused:
        oc.compile(oc.parse(text), target="vta")
    assert str(refused.value) == expected


SCHEDULE = """\
schedule Y
nest S
  way chip
    cover gemm_1x16x16 columns j depth k
    loops i j
    depth j 2
    split i ladder 64
    split j pad 16"""

LINES = {
    "another microkernel": (
        ("gemm_1x16x16", "gemm_8x8x8"),
        "line 4: cover gemm_8x8x8 columns j depth k",
        "its sums are covered by gemm_1x16x16 columns j depth k",
    ),
    "other columns": (
        ("columns j", "columns k"),
        "line 4: cover gemm_1x16x16 columns k depth k",
        "its sums are covered by gemm_1x16x16 columns j depth k",
    ),
    "no microkernel": (
        ("    cover gemm_1x16x16 columns j depth k\n", ""),
        "line 3: way chip",
        "its sums are covered by gemm_1x16x16 columns j depth k",
    ),
    "words of a product": (
        ("    loops", "    words columns j\n    loops"),
        "line 5: words columns j",
        "its cover says along which axes words lie",
    ),
    "two ways of one name": (
        ("  way chip\n", "  way chip\n    cover gemm_1x16x16 columns j depth k\n  way chip\n"),
        "line 2: nest S",
        "two of its ways have one name: chip chip",
    ),
    "a tail that is no row": (
        ("ladder", "mask"),
        "line 7: split i mask 64",
        "i is no axis of words: its tail is a tile of its height\n  help     split i ladder 64",
    ),
    "a tail that is not filled": (
        ("pad", "cut"),
        "line 8: split j cut 16",
        "j runs along words: the last one is filled with zeros\n  help     split j pad 16",
    ),
    "a tile of nothing": (
        ("ladder 64", "ladder 0"),
        "line 7: split i ladder 0",
        "a tile has iterations, got 0\n  help     a multiple of 1, at least that",
    ),
    "words of nothing": (
        ("pad 16", "pad 0"),
        "line 8: split j pad 0",
        "a tile has iterations, got 0\n  help     a multiple of 16, at least that",
    ),
    "a part of a word": (
        ("pad 16", "pad 8"),
        "line 8: split j pad 8",
        "j runs along words of 16\n  help     a multiple of 16",
    ),
    "an axis that there is not": (
        ("split i", "split o"),
        "line 7: split o ladder 64",
        "the axes are i, j, k",
    ),
    "an axis that is not looped over": (
        ("loops i j", "loops j"),
        "line 7: split i ladder 64",
        "no loop runs over its tiles\n  help     loops j i",
    ),
    "a loop over no axis": (
        ("loops i j", "loops i j o"),
        "line 3: way chip",
        "it loops over o, and the axes are i, j, k",
    ),
    "a loop that stands there twice": (
        ("loops i j", "loops i j i"),
        "line 3: way chip",
        "it loops twice over an axis: i j i",
    ),
    "terms around results": (
        ("loops i j", "loops k i j"),
        "line 3: way chip",
        "of its loops k i j, those over terms stand inside of those over results: accumulators keep the sums",
    ),
    "turns of one window": (
        ("depth j 2", "depth j 1"),
        "line 6: depth j 1",
        "windows take turns in a loop over tiles of results, two or more, got j 1\n  help     without this line, one window of everything",
    ),
    "turns in a loop over terms": (
        ("depth j 2", "virtual k 2"),
        "line 6: depth k 2",
        "windows take turns in a loop over tiles of results, two or more, got k 2\n  help     without this line, one window of everything",
    ),
    "another nest": (("nest S", "nest T"), "line 2: nest T", "the nests are S"),
    "what is no nest": (
        ("nest S", "mark threads\nnest S"),
        "line 2: mark threads",
        "a machine of queues takes nests alone",
    ),
}


UNITS = """\
  help     the matrix unit adds products of int8 in int32, the vector unit has add, max, min, mul, shr on int32
  help     target="cpu" runs it"""


def test_sums_that_are_read_at_other_points_are_refused_by_who_reads_them() -> None:
    a, w = oc.placeholder((9, 20), "int8", name="A"), oc.placeholder((20, 32), "int8", name="W")
    k = oc.reduce_axis(20, name="k")
    total = oc.compute(
        (9, 32),
        lambda i, j: oc.sum(a[i, k].astype("int32") * w[k, j].astype("int32"), axis=k),
        name="S",
    )
    turned = oc.compute((9, 32), lambda i, j: total[i, 31 - j], name="C")
    with pytest.raises(oc.TargetError) as refused:
        oc.compile(requantised(turned, 7), inputs=[a, w], target="vta")
    assert (
        str(refused.value)
        == f"""\
compile: cannot run C on vta
  at       C
  because  it reads S[i, 31 - j] of int32, not point by point, so from main memory, where a store cuts words to 8 bits
  help     int8 of what it reads, behind a shift and minimum and maximum
{UNITS}"""
    )


def test_products_of_other_types_are_refused_by_their_types() -> None:
    a, w = oc.placeholder((9, 20), "uint8", name="A"), oc.placeholder((20, 24), "int8", name="W")
    k = oc.reduce_axis(20, name="k")
    total = oc.compute(
        (9, 24),
        lambda i, j: oc.sum(a[i, k].astype("int32") * w[k, j].astype("int32"), axis=k),
        name="S",
    )
    with pytest.raises(oc.TargetError) as refused:
        oc.compile(requantised(total, 7), inputs=[a, w], target="vta")
    assert (
        str(refused.value)
        == f"""\
compile: cannot run S on vta
  at       S
  because  it is a sum of int32(A[i, k]) * int32(W[k, j]), of uint8 and int8, and the matrix unit multiplies int8 and int8
  help     a sum of products int32(A[…])*int32(B[…]) of int8
  help     A less 128, as int8, and behind the sum 128 times the sums of W added
  help     a sum, maximum or minimum of elements
{UNITS}"""
    )
    less = oc.compute(
        (9, 20), lambda i, k: (a[i, k].astype("int32") - 128).astype("int8"), name="L"
    )
    added = oc.placeholder((24,), "int32", name="B")
    sums = oc.ops.dense(less, w, name="S")
    whole = oc.compute((9, 24), lambda i, j: sums[i, j] + added[j], name="T")
    kernel = oc.compile(requantised(whole, 7), inputs=[a, w, added], target="vta")
    rng = np.random.default_rng(8)
    bytes_, words = rng.integers(0, 256, (9, 20), dtype=np.uint8), bytes_of(rng, (20, 24))
    wide = words.astype(np.int32)
    found = kernel(bytes_, words, 128 * wide.sum(0, dtype=np.int32))
    np.testing.assert_array_equal(found, clipped(bytes_.astype(np.int32) @ wide, 7))


def test_results_of_32_bits_are_refused_and_their_bytes_are_taken() -> None:
    a, w = oc.placeholder((9, 20), "int8", name="A"), oc.placeholder((20, 24), "int8", name="W")
    total = oc.ops.dense(a, w, name="S")
    with pytest.raises(oc.TargetError) as refused:
        oc.compile(total, inputs=[a, w], target="vta")
    assert (
        str(refused.value)
        == f"""\
compile: cannot run S on vta
  at       S
  because  it is of int32 in main memory, and a store cuts words to 8 bits
  help     S.astype("int8"), behind a shift and minimum and maximum
  help     four results, its bytes: (S // 256**b).astype("uint8") for b in 0, 1, 2, 3
{UNITS}"""
    )
    parts = tuple(
        oc.compute((9, 24), lambda i, j, b=b: (total[i, j] // 256**b).astype("uint8"), name=f"S{b}")
        for b in range(4)
    )
    rng = np.random.default_rng(7)
    given = bytes_of(rng, (9, 20)), bytes_of(rng, (20, 24))
    found = np.stack(oc.compile(parts, inputs=[a, w], target="vta")(*given), axis=-1)
    expected = given[0].astype(np.int32) @ given[1].astype(np.int32)
    np.testing.assert_array_equal(found.view("<i4")[..., 0], expected)


@pytest.mark.parametrize("name", LINES)
def test_a_schedule_that_it_does_not_do_is_refused_by_its_line(name: str) -> None:
    (old, new), at, because = LINES[name]
    inputs, result = dense(20, 24)
    schedule = oc.Schedule.parse(SCHEDULE.replace(old, new, 1))
    with pytest.raises(oc.PartitionError) as refused:
        oc.compile(result, inputs=inputs, schedule=schedule, target="vta")
    assert str(refused.value) == (
        f"schedule: cannot cut a nest so\n  at       {at}\n  because  {because}"
    )


@pytest.mark.parametrize("words", ["words columns r", "words rows c columns n_"])
def test_words_that_do_not_lie_so_are_refused_by_their_line(words: str) -> None:
    inputs, result = pooling()
    given = f"schedule Y\nnest Y\n  way chip\n    {words}\n    loops n_\n    split n_ ladder 1"
    schedule = oc.Schedule.parse(given)
    with pytest.raises(oc.PartitionError) as refused:
        oc.compile(result, inputs=inputs, schedule=schedule, target="vta")
    assert str(refused.value).startswith(
        f"schedule: cannot cut a nest so\n  at       line 4: {words}\n  because  no words of it lie so, but "
    )


def test_the_schedule_that_these_are_made_of_is_taken_and_keeps_its_names() -> None:
    inputs, result = dense(20, 24)
    schedule = oc.Schedule.parse(SCHEDULE.replace("way chip", "way mine"))
    assert oc.compile(result, inputs=inputs, schedule=schedule, target="vta").schedule == schedule


def with_words(count: int) -> Accelerator:
    """VTA with so many words of accumulators."""
    machine = load("vta")
    memory = tuple(
        replace(one, bytes=64 * count) if one.name == "accumulators" else one
        for one in machine.memory
    )
    return Accelerator("vta", replace(machine, memory=memory))


def test_windows_that_are_too_large_are_refused_at_compile() -> None:
    with pytest.raises(oc.TargetError) as refused:
        oc.compile(oc.parse(PRODUCT), target=with_words(4))
    assert (
        str(refused.value)
        == """\
compile: cannot keep the windows of product in accumulators
  at       alloc S[0 +: min(n, 4), 0 +: 24]
  because  they take up to 512 bytes (S 512), and there are 256
  help     smaller tiles"""
    )


def test_a_constant_without_a_word_is_refused_at_compile() -> None:
    a = oc.placeholder((8, 16), "int32", name="A")
    inputs, result = (
        [a],
        oc.compute((8, 16), lambda i, j: (a[i, j] + 40000).astype("int8"), name="Y"),
    )
    assert oc.compile(result, inputs=inputs, target=with_words(2))
    with pytest.raises(oc.TargetError) as refused:
        oc.compile(result, inputs=inputs, target=with_words(1))
    assert (
        str(refused.value)
        == """\
compile: cannot keep the windows of Y in accumulators
  at       alloc A_acc[i +: 1, 0 +: 16]
  because  they take up to 128 bytes (A_acc 64, the constant 40000 64), and there are 64
  help     smaller tiles"""
    )
