"""Memories, units and windows in place, as the text of a kernel of a machine of queues says them: read, written, refused."""

from __future__ import annotations

import numpy as np
import pytest
from accelerators import bytes_of, dense

import offcut as oc

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


@pytest.mark.parametrize("machine", ["vta", "gemmini"])
def test_the_text_of_a_kernel_compiles_to_the_same_stream(machine: str) -> None:
    inputs, output = dense(64, 32)
    kernel = oc.compile(output, inputs=inputs, target=machine)
    text = kernel.source("loops")
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
    inputs, output = dense(64, 32)
    text = oc.compile(output, inputs=inputs, target="vta").source("loops")
    assert "@cover(gemm_1x16x16; j=j, p=k; A=A_in, B=W_wgt, C=S)" in text
    with pytest.raises(oc.TargetError) as refused:
        oc.compile(oc.parse(text.replace(*change)), target="vta")
    assert "compile: cannot cover a tile by gemm_1x16x16" in str(refused.value)
    assert because in str(refused.value)
