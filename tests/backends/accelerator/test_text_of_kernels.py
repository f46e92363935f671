"""Memories, units and windows in place, as the text of a kernel of a machine of queues says them: read, written, refused."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from accelerators import bytes_of, dense
from conftest import refusals

import offcut as oc
from tests.backends.accelerator.machines import shipped

TEXT = """\
program clipped
size n in 0:65
input A: int32[n, 16]
output C: int8[n, 16]
local S: int32[n, 16]
local T: int32[n, 16]
for i in 0:n//8
  alloc S[8*i +: 8, 0 +: 16] in accumulators
    tile r in 8*i +: 8, j in 0 +: 16  @by(compute)  @async
      S[r, j] = A[r, j]
    alloc T[8*i +: 8, 0 +: 16] in accumulators inplace S
      tile r in 8*i +: 8, j in 0 +: 16  @by(compute)
        T[r, j] = min(S[r, j], 127)
      tile r in 8*i +: 8, j in 0 +: 16  @by(store)  @async
        C[r, j] = int8(T[r, j])
"""


def test_memories_units_and_windows_in_place_are_read() -> None:
    kernel = oc.compile(oc.parse(TEXT), target="vta")
    a = bytes_of(np.random.default_rng(0), (24, 16)).astype(np.int32) * 3 // 2
    np.testing.assert_array_equal(kernel(a), np.minimum(a, 127).astype(np.int8))
    run = kernel.timeline(n=24)
    assert not run.races
    bare = TEXT.replace("  @async", "").replace("  @by(compute)", "").replace("  @by(store)", "")
    unsaid = oc.compile(oc.parse(bare.replace(" inplace S", "")), target="vta")
    assert unsaid.source("listing") == kernel.source("listing")
    assert unsaid.source("loops") == kernel.source("loops")


@pytest.mark.every(2)
@pytest.mark.parametrize("machine", ["vta", "gemmini"])
def test_the_text_of_a_kernel_compiles_to_the_same_stream(machine: str) -> None:
    inputs, output = dense(64, 32)
    kernel = oc.compile(output, inputs=inputs, target=machine)
    text = kernel.source("loops")
    assert all("; " in line for line in text.splitlines() if "@cover" in line)
    for word in ("@by(load)", "@by(compute)", "@by(store)", "@async", " inplace ", "@cover(gemm"):
        assert word in text
    again = oc.compile(oc.parse(text), target=machine)
    assert again.source("loops") == text
    assert again.source("listing") == kernel.source("listing")


REFUSED = {
    "another unit": (
        ("j in 0 +: 16  @by(store)", "j in 0 +: 16  @by(load)"),
        "compile: cannot run a tile by load\n"
        "  at       C[r, j] = int8(T[r, j])\n"
        "  because  store of vta runs it\n"
        "  help     @by(store)",
    ),
    "an operand that is read later": (
        ("int8(T[r, j])", "int8(S[r, j])"),
        "compile: cannot lay T over S\n"
        "  at       alloc T[8*i +: 8, 0 +: 16] in accumulators inplace S\n"
        "  because  no statement computes T first and reads S last, element by element, in windows alike of one "
        "iteration\n"
        "  help     alloc T without inplace S",
    ),
    "windows that lie apart": (
        ("alloc T[8*i +: 8, 0 +: 16]", "alloc T[0 +: n, 0 +: 16]"),
        "compile: cannot lay T over S\n"
        "  at       alloc T[0 +: n, 0 +: 16] in accumulators inplace S\n"
        "  because  no statement computes T first and reads S last, element by element, in windows alike of one "
        "iteration\n"
        "  help     alloc T without inplace S",
    ),
    "a window in place of fewer": (
        ("accumulators inplace S", "accumulators depth 2 inplace S"),
        "compile: cannot lay T over S\n"
        "  at       alloc T[8*i +: 8, 0 +: 16] in accumulators depth 2 inplace S\n"
        "  because  the depth of S is 1, that of T 2\n"
        "  help     alloc T without inplace S",
    ),
    "more windows than there is room for": (
        ("in accumulators\n", "in accumulators depth 999\n"),
        "compile: cannot keep the results of clipped in outputs\n"
        "  at       alloc S[8*i +: 8, 0 +: 16] in accumulators depth 999\n"
        "  because  they take up to 7,992 words, and stores read 2,048\n"
        "  help     smaller tiles\n"
        "  help     windows of less depth",
    ),
    "another memory": (
        ("local T: int32[n, 16]", "local T: int32[n, 16] @scope(inputs)"),
        "compile: cannot keep T in accumulators\n"
        "  at       alloc T[8*i +: 8, 0 +: 16] in accumulators inplace S\n"
        "  because  it lies in inputs elsewhere\n"
        "  help     alloc T[…] in inputs\n"
        "  help     another buffer",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_the_text_says_wrongly_is_refused(what: str) -> None:
    change, expected = REFUSED[what]
    with pytest.raises(oc.OffcutError) as refused:
        oc.compile(oc.parse(TEXT.replace(*change)), target="vta")
    assert str(refused.value) == expected


@pytest.mark.parametrize(
    ("change", "because"),
    [
        (
            ("j=j, p=k", "j=i, p=k"),
            "A_in[i, k] does not move as A[i, p] with j=i, p=k",
        ),
        (
            ("A=A_in, B=W_wgt", "A=W_wgt, B=A_in"),
            "W_wgt[k, j] does not move as A[i, p] with j=j, p=k",
        ),
        (("p=k; A=A_in", "p=i; A=A_in"), "does not move as"),
        (("B=W_wgt, C=S)", "B=W_wgt, C=Y_1)"), "it computes S, and the cover says Y_1"),
    ],
)
def test_a_cover_that_says_other_axes_or_operands_is_refused(
    change: tuple[str, str], because: str
) -> None:
    text = _product()
    assert "@cover(gemm_1x16x16; j=j, p=k; A=A_in, B=W_wgt, C=S)" in text
    with pytest.raises(oc.TargetError) as refused:
        oc.compile(oc.parse(text.replace(*change)), target="vta")
    assert "compile: cannot cover a tile by gemm_1x16x16" in str(refused.value)
    assert because in str(refused.value)


OPERATIONS = """\
program residual
size n in 0:65
input A: int8[n, 3, 32]
input B: int32[n, 32]
output C: int8[n, 32]
local a: int8[n, 3, 32] @scope(accumulators)
local b: int32[n, 32] @scope(accumulators)
local M: int8[n, 32] @scope(accumulators)
local S: int32[n, 32] @scope(accumulators)
alloc a[0 +: min(n, 8), 0 +: 3, 0 +: 32]
  tile i in 0 +: min(n, 8), r in 0 +: 3, j in 0 +: 32
    a[i, r, j] = A[i, r, j]
  alloc b[0 +: min(n, 8), 0 +: 32]
    tile i in 0 +: min(n, 8), j in 0 +: 32
      b[i, j] = B[i, j]
    alloc M[0 +: min(n, 8), 0 +: 32]
      tile i in 0 +: min(n, 8), j in 0 +: 32
        M[i, j] = -128
      tile i in 0 +: min(n, 8), j in 0 +: 32
        for r in 0:3
          M[i, j] max= a[i, r, j]
      alloc S[0 +: min(n, 8), 0 +: 32]
        tile i in 0 +: min(n, 8), j in 0 +: 32
          S[i, j] = int32(M[i, j]) - b[i, j]
        tile i in 0 +: min(n, 8), j in 0 +: 32
          C[i, j] = int8(S[i, j])
"""
COVERS = (
    "load_accumulators; j=j; A=A, C=a",
    "load_accumulators; j=j; A=B, C=b",
    "alu_fill; j=j; C=M",
    "alu_max; j=j; A=M, B=a, C=M",
    "alu_subtract; j=j; A=M, B=b, C=S",
    "store_outputs; j=j; A=S, C=C",
)


def test_operations_on_each_type_are_covered_whole_and_run_as_they_say() -> None:
    kernel = oc.compile(oc.parse(OPERATIONS), target="vta")
    text = kernel.source("loops")
    assert [
        line.split("@cover(")[1].rstrip(")") for line in text.splitlines() if "@cover" in line
    ] == [*COVERS]
    rng = np.random.default_rng(2)
    a, b = bytes_of(rng, (7, 3, 32)), bytes_of(rng, (7, 32)).astype(np.int32)
    np.testing.assert_array_equal(kernel(a, b), (a.max(axis=1) - b).astype(np.int8))
    assert not kernel.timeline(n=7).unwritten


@pytest.mark.parametrize("rows", [1, 4])
def test_an_operand_that_stands_still_along_a_word_is_covered(rows: int) -> None:
    base = shipped("vta")
    unit = replace(base.unit[0], rows=rows, columns=8, terms=8, multiply_adds=256.0)
    target = oc.target("accelerator", machine=replace(base, unit=(unit,)))
    n = oc.dim("n", min=0, max=64)
    a, b = oc.placeholder((n, 20), "int8", name="A"), oc.placeholder((20,), "int32", name="B")
    added = oc.compute(
        (n, 20), lambda i, j: (a[i, j].astype("int32") + b[j]).astype("int8"), name="Y"
    )
    kernel = oc.compile(added, inputs=[a, b], target=target)
    axes = "i=i, j=j" if rows > 1 else "j=j"
    assert f"@cover(alu_add; {axes}; A=A_acc, B=B_acc, C=" in kernel.source("loops")
    rng = np.random.default_rng(4)
    for size in (0, 1, 17):
        x, y = bytes_of(rng, (size, 20)), bytes_of(rng, (20,)).astype(np.int32)
        np.testing.assert_array_equal(kernel(x, y), (x + y).astype(np.int8))


PLANTED = refusals(
    """
an axis swapped
given "alu_max; j=j", "alu_max; j=i", "cannot cover a tile by alu_max"
it has other elements of M in a word than another statement

an axis of the reduction
given "alu_max; j=j", "alu_max; j=r", "cannot cover a tile by alu_max"
it has other elements of M in a word than another statement

words of a load along another axis
given "load_accumulators; j=j; A=A", "load_accumulators; j=i; A=A", "cannot cover a tile by load_accumulators"
it has other elements of a in a word than another statement

words of a store along another axis
given "store_outputs; j=j", "store_outputs; j=i", "cannot cover a tile by store_outputs"
it has other elements of S in a word than another statement

operands of a difference turned
given "A=M, B=b, C=S", "A=b, B=M, C=S", "cannot cover a tile by alu_subtract"
int32(M[i, j]) - b[i, j] is not what it computes with j=j, A=b, B=M, C=S

another operation
given "alu_max; j=j", "alu_min; j=j", "cannot cover a tile by alu_min"
max(M[i, j], a[i, r, j]) is not what it computes

an operation for a load
given "load_accumulators; j=j; A=A", "alu_copy; j=j; A=A", "cannot cover a tile by alu_copy"
A lies in main memory, and alu_copy has A in accumulators

a load for an operation
given "alu_fill; j=j", "load_accumulators; j=j", "cannot cover a tile by load_accumulators"
alu_fill of vta runs it

a sum for its start
given "alu_fill; j=j; C=M", "gemm_1x16x16", "cannot cover a tile by gemm_1x16x16"
it has no sum

elements within a word
given "int32(M[i, j]) - b", "int32(M[i, 31 - j]) - b", "cannot cover a tile by alu_subtract"
M[i, 31 - j] does not move by itself along j
""",
    {},
)


@pytest.mark.parametrize("what", PLANTED)
def test_a_wrong_cover_of_an_operation_is_refused_with_its_reason(what: str) -> None:
    old, new, refused, because = PLANTED[what]
    text = _covered()
    assert text.count(old) == 1
    with pytest.raises(oc.TargetError) as error:
        oc.compile(oc.parse(text.replace(old, new)), target="vta")
    assert (error.value.refused, error.value.because) == (refused, because)


UNCOVERED = {
    "an operand in the wrong memory": (
        ("local a: int8[n, 3, 32] @scope(accumulators)", "local a: int8[n, 3, 32] @scope(inputs)"),
        "it is not alu_max of vta: a lies in inputs, and alu_max has B in accumulators",
    ),
    "a start that is lost": (
        ("      tile i in 0 +: min(n, 8), j in 0 +: 32\n        M[i, j] = -128\n", ""),
        "with n = 1, i = 0, j = 0, r = 0, nothing has written M[0, 0] before",
    ),
    "a value that nothing stored": (
        ("    tile i in 0 +: min(n, 8), j in 0 +: 32\n      b[i, j] = B[i, j]\n", ""),
        "with n = 1, i = 0, j = 0, nothing has written b[0, 0] before",
    ),
    "another type": (
        ("max= a[i, r, j]", "max= int8(int32(a[i, r, j]) * 3)"),
        "it is not alu_max of vta: max(M[i, j], int8(int32(a[i, r, j]) * 3)) is not what it computes",
    ),
    "a constant for each term": (
        ("max= a[i, r, j]", "max= 3"),
        "it is not alu_max of vta: max(M[i, j], 3) is not what it computes",
    ),
    "an operation that there is not": (
        ("int32(M[i, j]) - b[i, j]", "bitxor(int32(M[i, j]), b[i, j])"),
        "no instruction computes it from accumulators",
    ),
}


@pytest.mark.parametrize("what", UNCOVERED)
def test_a_statement_that_no_declaration_covers_is_refused_with_its_reason(what: str) -> None:
    change, because = UNCOVERED[what]
    with pytest.raises(oc.OffcutError) as refused:
        oc.compile(oc.parse(OPERATIONS.replace(*change)), target="vta")
    assert refused.value.because == because


@cache
def _covered() -> str:
    return oc.compile(oc.parse(OPERATIONS), target="vta").source("loops")


@cache
def _product() -> str:
    inputs, output = dense(64, 32)
    return oc.compile(output, inputs=inputs, target="vta").source("loops")
