"""Every refusal of a machine of queues, word for word: at compile, with the statement or the line that it means."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce

import numpy as np
import pytest
from accelerators import bytes_of, clipped, dense, requantised
from conftest import refusals, rejection, slow

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
    **refusals(
        r"""
terms end within a word
given PRODUCT.replace('for k in 0:20', 'for k in 0:5')
compile: cannot run a statement on vta
  at       S[i, j] += int32(a[i, k]) * int32(w[k, j])
  because  it ends at 5 along k, within a word of 16 elements of a
  help     multiples of 16

results end within a word
given PRODUCT.replace('j in 0 +: 24\n        Y[', 'j in 0 +: 7\n        Y[')
compile: cannot run a statement on vta
  at       Y[i, j] = int8(S[i, j])
  because  it ends at 7 along j, within a word of 16 elements of S
  help     multiples of 16

a word is filled in part
given PRODUCT.replace('= A[i, k]', '= where(k < 5, A[i, k], 0)')
compile: cannot run a statement on vta
  at       a[i, k] = where(k < 5, A[i, k], 0)
  because  k runs along words, and a load fills whole words alone

a microkernel that it has not
given PRODUCT.replace('j in 0 +: 24\n        S[', 'j in 0 +: 24  @cover(gemm_8x8)\n        S[')
compile: cannot cover a tile by gemm_8x8
  at       S[i, j] = 0
  because  gemm_reset of vta runs it
  help     @cover(gemm_reset)

a microkernel of what is stored
given PRODUCT.replace('j in 0 +: 24\n        Y[', 'j in 0 +: 24  @cover(alu_cut)\n        Y[')
compile: cannot cover a tile by alu_cut
  at       Y[i, j] = int8(S[i, j])
  because  Y lies in main memory, and alu_cut has C in accumulators
  help     @cover(store_outputs)
""",
        globals(),
    ),
    "the host computes nothing": (
        HOST.replace("= A[i]", "= A[i] * 2"),
        f"""\
compile: cannot run a statement for vta on the host
  at       T[i] = A[i] * 2
  because  A[i] * 2 is not an element
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
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_that_no_instruction_runs_is_refused_at_compile(name: str) -> None:
    text, expected = PROGRAMS[name]
    with rejection(f"TargetError: {expected}"):
        oc.compile(oc.parse(text), target="vta")


SCHEDULE = """\
schedule Y
stage read A for S as A_in in inputs
stage read W for S as W_wgt in weights
stage value S[i, j]//64 for Y as Y_1(i, j) in accumulators
stage value min(Y_1[i, j], 127) for Y as Y_2(i, j) in accumulators
stage value max(Y_2[i, j], -128) for Y as Y_3(i, j) in accumulators
split Y.i guard 64 as i_tile i_in
split Y.j guard 16 as j_tile j_in
order Y i_tile j_tile i_in j_in
at Y_3 Y.j_tile in accumulators
at Y_2 Y.j_tile in accumulators
at Y_1 Y.j_tile in accumulators
at S Y.j_tile in accumulators
at A_in Y.i_tile
at W_wgt Y.j_tile
order S i j k
cover S at i gemm_1x16x16(j=j, p=k)
cover Y_1 at i alu_divide(j=j)
cover Y_2 at i alu_min(j=j)
cover Y_3 at i alu_max(j=j)
cover Y at i_in store_outputs"""

# (what is written, what for it) -> the refusal
LINES = refusals(
    r"""
another microkernel
given ('gemm_1x16x16', 'gemm_8x8x8')
cover: cannot run 'gemm_8x8x8'
  at       line 17: cover S at i gemm_8x8x8(j=j, p=k)
  because  it is neither a microkernel of the target nor a declared instruction: did you mean gemm_1x16x16?
  help     decl_tensor_intrin(computation, lowering)

lanes of a processor
given ('cover S at i gemm_1x16x16(j=j, p=k)', 'cover S vectors')
cover: cannot cover S vectors
  at       line 17: cover S vectors
  because  vectors are the lanes of a processor; units of vta run words by their instructions
  help     gemm_1x16x16, gemm_reset, alu_add, alu_subtract, alu_multiply, alu_min, alu_max, alu_divide, alu_modulo, alu_shr, alu_shl, alu_negate, alu_absolute, alu_cut, alu_copy, alu_fill, load_inputs, load_weights, load_accumulators, store_outputs

another operation
given ('gemm_1x16x16(j=j, p=k)', 'alu_max(j=j)')
compile: cannot cover a tile by alu_max
  at       line 17: cover S at i alu_max(j=j)
  because  S[i, j] + int32(A_in[i, k]) * int32(W_wgt[k, j]) is not what it computes
  help     cover S at … gemm_1x16x16

words along terms
given ('gemm_1x16x16(j=j', 'gemm_1x16x16(j=k')
compile: cannot cover a tile by gemm_1x16x16
  at       line 17: cover S at i gemm_1x16x16(j=k, p=k)
  because  A_in[i, k] does not move as A[i, p] with j=k, p=k
  help     cover S at … gemm_1x16x16

an axis that it has not
given ('p=k)', 'q=k)')
cover: cannot run S from i inwards by gemm_1x16x16
  at       line 17: cover S at i gemm_1x16x16(j=j, q=k)
  because  gemm_1x16x16 has no axis q
  help     its axes are i, j, p

a loop that is not there
given ('p=k)', 'p=z)')
cover: cannot run S from i inwards by gemm_1x16x16
  at       line 17: cover S at i gemm_1x16x16(j=j, p=z)
  because  z is not a loop of its tile
  help     its loops are i, j, k

an array that it does not access
given ('p=k)', 'p=k; A=R)')
cover: cannot run S from i inwards by gemm_1x16x16
  at       line 17: cover S at i gemm_1x16x16(j=j, p=k; A=R)
  because  A=R, and the tile does not access R
  help     it accesses S, A_in, W_wgt

a tile of nothing
given ('split Y.i guard 64', 'split Y.i guard 0')
split: cannot split by 0
  at       line 7: split Y.i guard 0 as i_tile i_in
  because  a factor is an int from 1 to 2**31 - 1: isl decides no symbolic tile size
  help     split Y.i 8 as io ii

a part of a word
given ('split Y.j guard 16', 'split Y.j guard 8')
compile: cannot find the words of a statement
  at       line 8: split Y.j guard 8 as j_tile j_in
  because  W_wgt begins at 8*j_tile, and a word has 16 elements
  help     tiles of multiples of 16 along j

heights that are not words
given ('split Y.j guard 16', 'split Y.j balance 16')
compile: cannot find the words of a statement
  at       line 8: split Y.j balance 16 as j_tile j_in
  because  W_wgt begins at 12*j_tile, and a word has 16 elements
  help     tiles of multiples of 16 along j

a stage inside of what an instruction runs
given ('at S Y.j_tile', 'at S Y.i_in')
cover: cannot run Y from i_in inwards by store_outputs
  at       line 21: cover Y at i_in store_outputs
  because  S is computed inside its loops i_in, j_in
  help     at S in a loop around i_in

a memory that it has not
given ('at S Y.j_tile in accumulators', 'at S Y.j_tile in shared')
compile: cannot keep S in shared
  at       line 13: at S Y.j_tile in shared
  because  vta has no memory of that name
  help     micro-ops, inputs, weights, accumulators, outputs

a copy in another memory
given ('A_in in inputs', 'A_in in weights')
compile: cannot cover a tile by gemm_1x16x16
  at       line 17: cover S at i gemm_1x16x16(j=j, p=k)
  because  A_in lies in weights, and gemm_1x16x16 has A in inputs
  help     cover S at … gemm_1x16x16

a value that is not computed
given ('S[i, j]//64', 'S[i, j]//32')
stage: cannot stage S[i, j]//32 for Y
  at       line 4: stage value S[i, j]//32 for Y as Y_1(i, j) in accumulators
  because  it computes no S[i, j]//32
  help     Y[i, j] = int8(max(min(S[i, j]//64, 127), -128))

no window
given ('at A_in Y.i_tile', 'at A_in Y.i_tile depth 0')
parse: cannot read a schedule
  at       line 14: at A_in Y.i_tile depth 0
  because  there is one window at least
  help     depth 2

more windows than there is room
given ('at A_in Y.i_tile', 'at A_in Y.i_tile depth 999')
compile: cannot keep the windows of Y in inputs
  at       line 14: at A_in Y.i_tile depth 999
  because  they take up to 2,045,952 bytes (A_in 999 x 2,048), and there are 32,768
  help     smaller tiles
  help     windows of less depth

the place of what is read later
given ('at Y_1 Y.j_tile in accumulators', 'at Y_1 Y.j_tile in accumulators inplace A_in')
at: cannot compute Y_1 in the place of A_in
  at       line 12: at Y_1 Y.j_tile in accumulators inplace A_in
  because  it does not read A_in
  help     Y_1 in a window of its own

a unit that it has not
given ('order S', 'bind Y.i_tile thread\norder S')
bind: cannot bind Y.i_tile to thread
  at       line 16: bind Y.i_tile thread
  because  loops of vta issue instructions one after the other, and its units run tiles
  help     without this line
  help     at … depth 2 lets windows take turns

what a processor decides
given ('order S', 'bind * thread\norder S')
schedule: cannot apply this to vta
  at       line 16: bind * thread
  because  the policy of a processor alone decides it
  help     split, order, at, stage, cover, choose
  help     kernel.schedule has the decisions of its policy

one name for two options
given ('order S i j k', 'choose\n  option a\n    order S i j k\n  option a\n    order S i j k')
choose: cannot choose so
  at       line 16: choose
  because  two options have one name: a, a
""",
    globals(),
)

SLOW_LINES = (
    "words along another axis",
    "another operation",
    "a tile that moves back",
    "heights that are not words",
    "sums that lie in main memory",
    "more windows than there is room",
)


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
    with rejection(f"""\
TargetError: compile: cannot run C on vta
  at       C
  because  it reads S[i, 31 - j] of int32, not point by point, so from main memory, where a store cuts words to 8 bits
  help     int8 of what it reads, behind a shift and minimum and maximum
{UNITS}"""):
        oc.compile(requantised(turned, 7), inputs=[a, w], target="vta")


def test_products_of_other_types_are_refused_by_their_types() -> None:
    a, w = oc.placeholder((9, 20), "uint8", name="A"), oc.placeholder((20, 24), "int8", name="W")
    k = oc.reduce_axis(20, name="k")
    total = oc.compute(
        (9, 24),
        lambda i, j: oc.sum(a[i, k].astype("int32") * w[k, j].astype("int32"), axis=k),
        name="S",
    )
    with rejection(f"""\
TargetError: compile: cannot run S on vta
  at       S
  because  it is a sum of int32(A[i, k]) * int32(W[k, j]), of uint8 and int8, and the matrix unit multiplies int8 and int8
  help     a sum of products int32(A[…])*int32(B[…]) of int8
  help     A less 128, as int8, and behind the sum 128 times the sums of W added
  help     a sum, maximum or minimum of elements
{UNITS}"""):
        oc.compile(requantised(total, 7), inputs=[a, w], target="vta")
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
    with rejection(f"""\
TargetError: compile: cannot run S on vta
  at       S
  because  it is of int32 in main memory, and a store cuts words to 8 bits
  help     S.astype("int8"), behind a shift and minimum and maximum
  help     four results, its bytes: (S // 256**b).astype("uint8") for b in 0, 1, 2, 3
{UNITS}"""):
        oc.compile(total, inputs=[a, w], target="vta")
    parts = tuple(
        oc.compute((9, 24), lambda i, j, b=b: (total[i, j] // 256**b).astype("uint8"), name=f"S{b}")
        for b in range(4)
    )
    rng = np.random.default_rng(7)
    given = bytes_of(rng, (9, 20)), bytes_of(rng, (20, 24))
    found = np.stack(oc.compile(parts, inputs=[a, w], target="vta")(*given), axis=-1)
    expected = given[0].astype(np.int32) @ given[1].astype(np.int32)
    np.testing.assert_array_equal(found.view("<i4")[..., 0], expected)


@pytest.mark.parametrize("name", [slow(one) if one in SLOW_LINES else one for one in LINES])
def test_a_schedule_that_it_does_not_do_is_refused_by_its_line(name: str) -> None:
    (old, new), expected = LINES[name]
    assert old in SCHEDULE
    inputs, result = dense(20, 24)
    text = SCHEDULE.replace(old, new, 1)

    def compiled() -> None:
        oc.compile(result, inputs=inputs, schedule=oc.Schedule.parse(text), target="vta")

    with pytest.raises(oc.OffcutError) as refused:
        compiled()
    assert str(refused.value) == expected


def _option(label: str, rows: int) -> list[str]:
    """Return the lines of an option, in tiles of so many rows."""
    lines = SCHEDULE.replace("guard 64", f"guard {rows}").splitlines()[1:]
    return [f"  option {label}", *(f"    {line}" for line in lines)]


OPTIONS = ["schedule Y", "choose", *_option("tall", 64), *_option("low", 32)]
"""The same twice, in tiles of 64 rows and of 32."""

# (the line of the second option that is missing, or another one for it) -> the refusal
OPTION_LINES = refusals(
    r"""
no store
given ('cover Y at i_in store_outputs', None)
compile: cannot run Y without a cover
  at       line 32: order Y i_tile j_tile i_in j_in
  because  no line of option low covers Y, and it has other elements of Y_3 in a word than another statement
  help     cover Y at … store_outputs

no sum
given ('cover S at i gemm_1x16x16(j=j, p=k)', None)
compile: cannot run S without a cover
  at       line 39: order S i j k
  because  no line of option low covers S, and it has other elements of S in a word than another statement
  help     cover S at … gemm_1x16x16

words along another axis
given ('cover Y_1 at i alu_divide(j=j)', 'cover Y_1 at i alu_divide(j=i)')
compile: cannot cover a tile by alu_divide
  at       line 41: cover Y_1 at i alu_divide(j=i)
  because  it has other elements of S in a word than another statement
  help     cover Y_1 at … alu_divide
""",
    globals(),
)


@pytest.mark.parametrize("name", OPTION_LINES)
def test_a_decision_of_an_option_is_refused_by_the_line_of_that_option(name: str) -> None:
    (old, new), expected = OPTION_LINES[name]
    at = max(k for k, line in enumerate(OPTIONS) if line.strip() == old)
    lines = [*OPTIONS[:at], *([] if new is None else [f"    {new}"]), *OPTIONS[at + 1 :]]
    schedule = oc.Schedule.parse("\n".join(lines))
    inputs, result = dense(20, 24)
    with pytest.raises(oc.OffcutError) as refused:
        oc.compile(result, inputs=inputs, schedule=schedule, target="vta")
    assert str(refused.value) == expected


def test_options_inside_of_loops_are_refused_by_the_line_that_makes_them() -> None:
    triangle = oc.parse("""\
program triangle
size n in 0:257
input A: float32[n, n]
output B: float32[n, n]
for i in 0:n
  for j in 0:i + 1
    B[i, j] = A[i, j]
""")
    mixed = oc.Schedule.parse("schedule triangle\nsplit B.j mix 8 as jo ji\norder B i jo ji")
    with rejection("""\
TargetError: compile: cannot issue instructions for a statement
  at       line 2: split B.j mix 8 as jo ji
  because  the host chooses before a stream begins, and the costs of these options are of an iteration
  help     ladder
  help     balance
  help     even"""):
        oc.compile(triangle, schedule=mixed, target="vta")


def test_the_schedule_that_these_are_made_of_is_taken_as_it_is() -> None:
    inputs, result = dense(20, 24)
    kernel = oc.compile(result, inputs=inputs, schedule=oc.Schedule.parse(SCHEDULE), target="vta")
    assert str(kernel.schedule) == SCHEDULE


OLDER = """\
schedule Y
nest S
  way mine
    cover gemm_1x16x16 columns j depth k
    loops j i
    {turns} i 2
    split i ladder 8
    split j pad 16"""


@pytest.mark.parametrize("turns", ["depth", slow("virtual")])
def test_nests_of_a_text_of_a_version_before_become_decisions(turns: str) -> None:
    inputs, result = dense(20, 24)
    schedule = oc.Schedule.parse(OLDER.format(turns=turns))
    kernel = oc.compile(result, inputs=inputs, schedule=schedule, target="vta")
    for line in (
        "split Y.i guard 8 as i_tile i_in",
        "split Y.j guard 16 as j_tile j_in",
        "order Y j_tile i_tile i_in j_in",
        "at A_in Y.i_tile depth 2",
        "cover S at i gemm_1x16x16(j=j, p=k)",
    ):
        assert line in str(kernel.schedule).splitlines()
    again = oc.compile(result, inputs=inputs, schedule=kernel.schedule, target="vta")
    assert again.loops == kernel.loops
    rng = np.random.default_rng(6)
    a, w = bytes_of(rng, (29, 20)), bytes_of(rng, (20, 24))
    np.testing.assert_array_equal(kernel(a, w), clipped(a.astype(np.int64) @ w, 6))


def test_a_nest_of_an_older_text_that_is_none_of_the_program_is_refused_by_its_line() -> None:
    inputs, result = dense(20, 24)
    schedule = oc.Schedule.parse(OLDER.format(turns="depth").replace("nest S", "nest T"))
    with rejection("""\
PartitionError: schedule: cannot tell the stage of T
  at       line 2: split T.i ladder 8 as i_tile i_in
  because  no stage writes it
  help     stages: S, Y"""):
        oc.compile(result, inputs=inputs, schedule=schedule, target="vta")


def with_words(count: int) -> Accelerator:
    """VTA with so many words of accumulators."""
    machine = load("vta")
    memory = tuple(
        replace(one, bytes=64 * count) if one.name == "accumulators" else one
        for one in machine.memory
    )
    return Accelerator("vta", replace(machine, memory=memory))


def test_windows_that_are_too_large_are_refused_at_compile() -> None:
    with rejection("""\
TargetError: compile: cannot keep the windows of product in accumulators
  at       alloc S[0 +: min(n, 4), 0 +: 24]
  because  they take up to 512 bytes (S 512), and there are 256
  help     smaller tiles"""):
        oc.compile(oc.parse(PRODUCT), target=with_words(4))


def test_a_constant_without_a_word_is_refused_at_compile() -> None:
    a = oc.placeholder((8, 16), "int32", name="A")
    inputs, result = (
        [a],
        oc.compute((8, 16), lambda i, j: (a[i, j] + 40000).astype("int8"), name="Y"),
    )
    assert oc.compile(result, inputs=inputs, target=with_words(2))
    with rejection("""\
TargetError: compile: cannot keep the windows of Y in accumulators
  at       alloc A_acc[i +: 1, 0 +: 16]
  because  they take up to 128 bytes (A_acc 64, the constant 40000 64), and there are 64
  help     smaller tiles"""):
        oc.compile(result, inputs=inputs, target=with_words(1))


def test_a_minimum_of_many_terms_is_refused_by_the_arrays_that_it_takes() -> None:
    n = oc.dim("n", min=1, max=512)
    a = oc.placeholder((n + 75, 37), "int8", name="A")
    y = oc.compute(
        (n, 37), lambda i, j: reduce(oc.minimum, [a[i + k, j] for k in range(75)]), name="Y"
    )
    with pytest.raises(oc.TargetError) as refused:
        oc.compile(y, inputs=[a], target="vta", strategy={"i": "residue", "j": "mask"})
    first, *units = str(refused.value).split("\n  help     ")
    assert (
        first
        == """\
compile: cannot run Y on vta
  at       Y
  because  it has 150 arrays on the chip, one for each operand and each operation, and at most 48 are proved"""
    )
    assert units[:2] == [
        "oc.min(A[i + k], axis=k): a sum, maximum or minimum over an axis is one operation",
        "a result of its own for a part of it",
    ]


def test_tiles_of_several_levels_are_refused() -> None:
    a, b = (oc.placeholder((oc.dim("n", min=1, max=64), 16), "int8", name) for name in "AB")
    result = oc.compute(a.shape, lambda i, j: oc.maximum(a[i, j], b[i, j]), name="C")
    with rejection(
        "PartitionError: partition: cannot cut i by 32 and then by 16\n"
        "  at       axis i\n"
        "  because  windows of vta are of one level of tiles\n"
        '  help     tile={"i": 16}'
    ):
        oc.partition(result, tile={"i": (32, 16)}, target="vta")


def test_copies_of_conditions_are_refused_where_the_target_plans_its_cuts() -> None:
    a = oc.placeholder((oc.dim("n", min=1, max=64), 16), "int32", name="A")
    c = oc.compute(a.shape, lambda i, j: oc.minimum(a[i, j], 127).astype("int8"), name="C")
    with rejection(
        "PartitionError: partition: cannot take copies=4 on vta\n"
        "  because  vta plans its cuts with windows, and leaves conditions where they are\n"
        "  help     without copies="
    ):
        oc.partition(c, tile={"i": 8}, target="vta", inputs=[a], copies=4)


def test_a_piece_names_no_microkernel_whose_memory_nothing_stages() -> None:
    program = oc.parse("""\
program P
size n in 1:65
input A: int8[n, 16]
input W: int8[16, 16]
output S: int32[n, 16]
local A_in: int8[n, 16] @scope(inputs)
for i in 0:n
  for p in 0:16
    A_in[i, p] = A[i, p]
for i in 0:n
  for j in 0:16
    S[i, j] = 0
    for p in 0:16
      S[i, j] += int32(A_in[i, p]) * int32(W[j, p])
""")
    cut = oc.partition(program, tile={"S.i": 8}, target="vta")
    assert {piece.microkernel for piece in cut.pieces} == {None}
    assert cut.notes == (
        "tile i, j: gemm_1x16x16 does not run it: W lies in main memory, and gemm_1x16x16 has B in weights, "
        "and no decision stages it",
    )


def test_streams_are_of_machines_of_queues() -> None:
    n = oc.dim("n", max=8)
    x = oc.placeholder((n,), name="X")
    kernel = oc.compile(oc.ops.relu(x, name="Y"), inputs=[x])
    with rejection(
        "TargetError: streams: cannot give the instructions of Y\n"
        "  because  cpu is not a machine of queues\n"
        '  help     oc.compile(…, target="vta")'
    ):
        kernel.streams(n=3)
