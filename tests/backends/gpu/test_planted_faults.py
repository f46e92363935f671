"""Faults planted in compiled kernels, in their representation and in their text: each is found, by a finder with a name.

The executor of the representation has the finders of `FINDERS`; what runs a text on a CPU begins each fault with one. A fault that
neither sees is found by "values", the exact result.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import NamedTuple

import ml_dtypes
import numpy as np
import pytest
from on_cpu import COMPILER, DeviceFault, finder_of, primitive_variant, run_text, variants

import offcut as oc
from offcut.backends.gpu.executor import FINDERS, ExecutionFault, Limits, execute
from offcut.backends.gpu.text import cuda_text

KINDS = {"bfloat16": ml_dtypes.bfloat16, "float16": np.float16, "float32": np.float32}


class Case(NamedTuple):
    """A kernel, what it is called with, and the exact result."""

    kernel: oc.Kernel
    arrays: Mapping[str, np.ndarray]
    n: int
    exact: np.ndarray


def product(machine: str, depth: int, columns: int, dtype: str, n: int) -> Case:
    """``relu(A @ W)`` of whole numbers, in tiles that begin with the first rows."""
    rows, k = oc.dim("n", min=0, max=4096), oc.reduce_axis(depth, name="k")
    a, w = oc.placeholder((rows, depth), dtype, "A"), oc.placeholder((depth, columns), dtype, "W")
    s = oc.compute(
        (rows, columns),
        lambda i, j: oc.sum(a[i, k].astype("float32") * w[k, j].astype("float32"), axis=k),
        name="S",
    )
    c = oc.compute((rows, columns), lambda i, j: oc.maximum(s[i, j], 0.0).astype(dtype), name="C")
    target = oc.target("cuda", machine=machine, device="emulated")
    kernel = oc.compile(c, inputs=[a, w], target=target, strategy={"i": "guard"})
    draw = np.random.default_rng(7)
    x, y = (draw.integers(-4, 5, shape) for shape in ((n, depth), (depth, columns)))
    exact = np.maximum(x @ y, 0).astype(np.float32).astype(KINDS[dtype])
    return Case(kernel, {"A": x.astype(KINDS[dtype]), "W": y.astype(KINDS[dtype])}, n, exact)


def lanes(n: int) -> Case:
    """Rows less their sums: terms in a tree of lanes, then elements on lanes."""
    rows, k = oc.dim("n", min=0, max=512), oc.reduce_axis(70, name="k")
    a = oc.placeholder((rows, 70), "float32", "A")
    s = oc.compute((rows,), lambda i: oc.sum(a[i, k], axis=k), name="S")
    y = oc.compute((rows, 70), lambda i, j: a[i, j] - s[i], name="Y")
    target = oc.target("cuda", machine="h200", device="emulated")
    x = np.random.default_rng(7).integers(-9, 10, (n, 70)).astype("float32")
    exact = x - x.sum(axis=1, keepdims=True)
    return Case(oc.compile(y, inputs=[a], target=target), {"A": x}, n, exact)


def masked(n: int) -> Case:
    """A sum under a mask, whose terms along the border lanes add."""
    rows, t = oc.dim("n", min=0, max=512), oc.reduce_axis(oc.dim("n", min=0, max=512), name="t")
    w, v = (
        oc.placeholder((rows, rows), "bfloat16", "W"),
        oc.placeholder((rows, 24), "bfloat16", "V"),
    )

    def term(i: oc.Value, j: oc.Value) -> oc.Value:
        value = w[i, t].astype("float32") * v[t, j].astype("float32")
        return oc.sum(oc.where(t <= i, value, -0.0), axis=t)

    c = oc.compute((rows, 24), term, name="C")
    target = oc.target("cuda", machine="h200", device="emulated")
    draw = np.random.default_rng(7)
    x, y = (draw.integers(-4, 5, shape) for shape in ((n, n), (n, 24)))
    arrays = {"W": x.astype(ml_dtypes.bfloat16), "V": y.astype(ml_dtypes.bfloat16)}
    kernel = oc.compile(c, inputs=[w, v], target=target)
    return Case(kernel, arrays, n, (np.tril(x) @ y).astype("float32"))


CASES: dict[str, Callable[[], Case]] = {
    "groups": lambda: product("h200", 328, 24, "bfloat16", 130),
    "cells": lambda: product("a100", 168, 24, "float16", 70),
    "rows": lambda: product("a100", 37, 133, "bfloat16", 17),
    "lanes": lambda: lanes(9),
    "masked": lambda: masked(70),
}


@cache
def case(name: str) -> Case:
    return CASES[name]()


IN_TEXT = {
    "groups": [
        # what is planted, old text, new text, the finder
        ("boxes are not waited for", "wait(load_to_warpgroup", "if (0) wait(load_to_warpgroup", "arrivals"),
        ("a phase too early", "load_to_warpgroup_waits++", "load_to_warpgroup_waits++ + 4", "standstill"),
        ("the wait for a slot is that of another one", "wait(load_to_warpgroup, 4,", "wait(load_to_warpgroup, 3,", "standstill"),
        ("too few bytes", "load_to_warpgroup_arrivals % 4, bytes)", "load_to_warpgroup_arrivals % 4, bytes - 1024)", "standstill"),
        ("too many bytes", "load_to_warpgroup_arrivals % 4, bytes)", "load_to_warpgroup_arrivals % 4, bytes + 2)", "standstill"),
        ("the bytes of the stage before count again", "      bytes = 0;\n", "", "standstill"),
        ("a stage is given back before it is read", "wait_for_products<0>();\n      end_of(S);", "", "async"),
        ("a stage is given back one product early", "wait_for_products<0>", "wait_for_products<1>", "async"),
        ("a stage is never given back", "if (lane == 0) arrive(warpgroup_to_load", "if (0) arrive(warpgroup_to_load", "standstill"),
        ("a stage is given back twice", "++warpgroup_to_load_arrivals;", "++warpgroup_to_load_arrivals; if (lane == 1) arrive(warpgroup_to_load);", "phase"),
        ("one warp gives a stage back for eight", "init(warpgroup_to_load + k, 8)", "init(warpgroup_to_load + k, 1)", "phase"),
        ("an arrival that never comes is counted", "init(warpgroup_to_load + k, 8)", "init(warpgroup_to_load + k, 9)", "standstill"),
        ("a stage is not waited for before it is filled again", "if (k_stage - 4 >= 0) wait", "if (k_stage - 5 >= 0) wait", "arrivals"),
        ("barriers begin without a meeting", "  __syncthreads();", "", "barriers"),
        ("a barrier begins twice", "k < 4; ++k) init(warpgroup_to_load", "k <= 4; ++k) init(warpgroup_to_load", "barriers"),
        ("copies do not see the barriers", "    barriers_ready();", "", "fence"),
        ("the compiler may read sums before the wait", "end_of(S);", "", "values"),
        ("a box inside of a cell", ", 64 * k_stage, 128 * i_block)", ", 64 * k_stage + 4, 128 * i_block)", "alignment"),
        ("a box inside of 1024 bytes", "A_in + 8192 * (k_stage % 4), &A_in_map", "A_in + 8192 * (k_stage % 4) + 64, &A_in_map", "alignment"),
        ("registers that there are not", "fewer_registers<40>", "fewer_registers<64>", "standstill"),
        ("registers that nobody gives", "more_registers<232>", "more_registers<240>", "standstill"),
        ("four warps load", "if (warp > 8) return;", "", "arrivals"),
        ("the rows of the other warpgroup", "4096 * group", "0 * group", "values"),
        ("the tail of the terms is lost", "k_stage < 6", "k_stage < 5", "values"),
        ("a stage is loaded that nobody reads", "for (int k_stage = 0; k_stage < 6; ++k_stage) {\n      if (k", "for (int k_stage = 0; k_stage < 7; ++k_stage) {\n      if (k", "async"),
        ("the terms of a box are cut", "true, 64>(S", "true, 48>(S", "values"),
        ("an operand lies along the other axis", "64, true, 64>(S", "64, false, 64>(S", "values"),
        ("windows lie in each other", "(shared + 65536)", "(shared + 64512)", "room"),
        ("a barrier lies in a window", "(shared + 98304)", "(shared + 98296)", "room"),
        ("shared memory that the launch does not ask for", "(shared + 98336)", "(shared + 98344)", "room"),
        ("an unguarded corner", "64 * group + i_row_out < n", "64 * group + i_row_out <= n", "bounds"),
        ("a row is left out", "64 * group + i_row_out < n", "64 * group + i_row_out < n - 1", "values"),
        ("a column too few", "j_in < 24", "j_in < 23", "values"),
        ("a piece is there twice", "(int)blockIdx.x", "(int)blockIdx.x / 2", "race"),
        ("fewer threads than units", "__launch_bounds__(384, 1)", "__launch_bounds__(256, 1)", "limits"),
    ],
    "cells": [
        ("cells are not waited for", "wait(load_to_warp", "if (0) wait(load_to_warp", "phase"),
        ("an arrival before its copies", "arrive_with_copies(", "arrive(", "values"),
        ("a thread ends before its copies", "wait_for_copies();", "", "async"),
        ("a cell inside of 16 bytes", "* 168 + 32 * k_stage)", "* 168 + 32 * k_stage + 4)", "alignment"),
        ("rows inside of cells", "<64, 32, 40>(A_in", "<64, 32, 36>(A_in", "alignment"),
        ("a lane more than arrives", "init(load_to_warp + k, 32)", "init(load_to_warp + k, 33)", "standstill"),
        ("a lane fewer than arrives", "init(load_to_warp + k, 32)", "init(load_to_warp + k, 31)", "arrivals"),
        ("no zeros behind the last terms", "min(32, 168 - 32 * k_stage), lane);\n      copy", "32, lane);\n      copy", "bounds"),
        ("a row of A past the last", "min(64, n - 64 * i_block)", "64", "bounds"),
        ("the rows of another warp", "+ 640 * warp", "+ 640 * (warp ^ 1)", "values"),
        ("the stage of another turn", "A_in + 2560 * (k_stage % 4) + 640", "A_in + 2560 * ((k_stage + 1) % 4) + 640", "values"),
        ("a stage past the ring", "W_in + 1280 * (k_stage % 4), min", "W_in + 1280 * (k_stage + 4), min", "bounds"),
    ],
    "rows": [
        ("a row past the last", "16 * warp + i_row_out < n", "16 * warp + i_row_out <= n", "bounds"),
        ("a stage past the ring", "4352 * (k_stage % 4)", "4352 * (k_stage + 4)", "bounds"),
        ("rows of a product past a window", "A_in + 2560 * (k_stage % 4) + 640 * warp", "A_in + 2560 * 4 + 640 * warp", "bounds"),
        ("a row of A past the last", "min(64, n - 64 * i_block)", "64", "bounds"),
        ("a column of W past the last", "min(133 - 128 * j_block, 128)", "128", "bounds"),
        ("columns of two blocks", "(int)blockIdx.y", "(int)blockIdx.y / 2", "race"),
    ],
    "lanes": [
        ("terms of a lane are left out", "for (int k = lane; k < 70", "for (int k = lane + 1; k < 70", "values"),
        ("terms are added twice", "k += 32", "k += 31", "values"),
        ("lanes do not add up", "S_part = sum_of_lanes(S_part);", "", "values"),
        ("each lane adds the sum", "if (lane == 0) S[4 * i_block + warp] += S_part;", "S[4 * i_block + warp] += S_part;", "values"),
        ("a row past the last", "if (4 * i_block + warp < n)", "if (4 * i_block + warp <= n)", "bounds"),
        ("a term past the last", "k < 70", "k < 71", "bounds"),
        ("two blocks write one row", "const int i_block = (int)blockIdx.x;", "const int i_block = (int)blockIdx.x / 2;", "race"),
    ],
}  # fmt: skip
"""Planted in the kernels of a text."""

IN_PRIMITIVES = {
    # what is planted, the primitive, old text, new text, the finder
    "products on registers without a fence": ("multiply_boxes", "begin_products();", "", "fence"),
    "products of no group": ("multiply_boxes", "commit_products();", "", "async"),
    "the last terms of a box": ("multiply_boxes", "p < TERMS", "p < TERMS - 16", "values"),
    "an operand without its swizzle": ("multiply_boxes", "operand<B_ROWS, B_TURNED>(b, 0, p)", "operand<B_ROWS, B_TURNED>(b, 0, p) ^ 3ull << 62", "layout"),
    "a box inside of another one": ("load_boxes", "to + j * ROWS", "to + j * ROWS + 8", "alignment"),
    "boxes of the stage before": ("load_boxes", "x + j", "x + j - 64", "values"),
    "no bytes are expected": ("load_boxes", "return ROWS * COLUMNS * sizeof(T);", "return 0;", "standstill"),
}  # fmt: skip
"""Planted in primitives that the kernel of "groups" calls."""


def planted_texts(name: str) -> dict[str, str]:
    """Return the text of a case by what is planted in it; first of all nothing."""
    text = cuda_text(case(name).kernel.loops)
    texts = {"nothing": text}
    for what, old, new, _ in IN_TEXT[name]:
        assert old in text, (what, old)
        texts[what] = text.replace(old, new)
    for what, (primitive, old, new, _) in IN_PRIMITIVES.items() if name == "groups" else ():
        texts[what] = primitive_variant(text, primitive, old, new)
    return texts


@cache
def planted_text() -> tuple[str, dict[tuple[str, str], int]]:
    """Return one text of the kernels of all cases, each with a fault; and the number of each, by the case and what is planted."""
    texts = {(name, what): text for name in IN_TEXT for what, text in planted_texts(name).items()}
    return variants([*texts.values()]), {key: number for number, key in enumerate(texts)}


def text_finders(name: str) -> dict[str, str]:
    """Return the finder of each fault planted in a text."""
    finders = {what: finder for what, *_, finder in IN_TEXT[name]} | {"nothing": ""}
    if name == "groups":
        finders |= {what: finder for what, (*_, finder) in IN_PRIMITIVES.items()}
    return finders


@pytest.mark.skipif(COMPILER is None, reason="there is no C++ compiler")
@pytest.mark.parametrize("name", IN_TEXT)
def test_each_fault_planted_in_a_text_is_found_by_its_finder(name: str) -> None:
    kernel, arrays, n, exact = case(name)
    text, numbers = planted_text()
    found = {
        what: finder_of(kernel.loops, arrays, {"n": n}, exact, text, number)
        for (of, what), number in numbers.items()
        if of == name
    }
    assert found == text_finders(name)


@pytest.mark.skipif(COMPILER is None, reason="there is no C++ compiler")
def test_an_access_of_a_text_outside_of_an_array_is_named() -> None:
    kernel, arrays, n, _ = case("rows")
    text, numbers = planted_text()
    for what, element in (
        ("a row past the last", "C, which has 2261"),
        ("a row of A past the last", "A, which has 629"),
    ):
        with pytest.raises(DeviceFault, match=f"bounds: element .* of {element}"):
            run_text(kernel.loops, arrays, {"n": n}, text, numbers["rows", what])


BOXES = "@digits(box: 1//64, row: 0, element: 1%64) multiple(0: 64) swizzle(3, 4, 7)"
IN_LOOPS = {
    "groups": [
        # what is planted, old text, new text, or a line that is left out; the finder
        ("boxes are not waited for", "wait load_to_warpgroup", None, "async"),
        ("a stage is not waited for before it is filled again", "wait warpgroup_to_load where", None, "async"),
        ("a stage is waited for one turn late", "k_stage - 4 >= 0", "k_stage - 5 >= 0", "async"),
        ("a stage is given back before it is read", "wait group 0", None, "async"),
        ("one warpgroup gives a stage back for two", "warpgroup -> load count 2", "warpgroup -> load count 1", "async"),
        ("an arrival that never comes is counted", "warpgroup -> load count 2", "warpgroup -> load count 3", "standstill"),
        ("what is loaded is never said", "arrive load_to_warpgroup", None, "standstill"),
        ("what is loaded is said twice", "arrive load_to_warpgroup\n", "arrive load_to_warpgroup\n          arrive load_to_warpgroup\n", "phase"),
        ("a barrier for fewer stages than there are", "load -> warpgroup count 1 room 4", "load -> warpgroup count 1 room 3", "phase"),
        ("windows in turn that are too few", "in shared depth 4", "in shared depth 3", "async"),
        ("a box inside of a cell", "k in 64*k_stage +: min(64, 328 - 64*k_stage)  @by", "k in 64*k_stage + 4 +: min(60, 324 - 64*k_stage)  @by", "alignment"),
        ("terms of a box are not loaded", "k in 64*k_stage +: min(64, 328 - 64*k_stage), j", "k in 64*k_stage +: min(56, 328 - 64*k_stage), j", "uninitialized"),
        ("the tail of the terms is lost", "for k_stage in 0:6", "for k_stage in 0:5", "values"),
        ("products of terms that no instruction takes", "for k in 64*k_stage:64*k_stage + min(64, 328 - 64*k_stage)", "for k in 64*k_stage:64*k_stage + min(40, 328 - 64*k_stage)", "cover"),
        ("an operand without its swizzle", f"W_in: bfloat16[328, 24] {BOXES}", f"W_in: bfloat16[328, 24] {BOXES.partition(' swizzle')[0]}", "layout"),
        ("an operand along the other axis", "wgmma_m64nNk16_kn", "wgmma_m64nNk16_kk", "layout"),
        ("an operand in main memory", "B=W_in", "B=W", "memory"),
        ("an ordinary copy without a fence", "  @async  @cover(tma_load_2d_bfloat16; i=k, p=j; A=W, C=W_in)", "", "fence"),
        ("windows that exceed shared memory", "in shared depth 4", "in shared depth 40", "room"),
        ("a product on a warp", "for i_warpgroup in 0:2  @body  @warpgroup\n            wait", "for i_warpgroup in 0:2  @body  @warp\n            wait", "unit"),
        ("sums of the other warpgroup", "S[128*i_block + 64*i_warpgroup_out + i_row_out", "S[128*i_block + 64 - 64*i_warpgroup_out + i_row_out", "registers"),
        ("sums without a beginning", "S[i, j] = 0.0", "S[i, j] += 0.0", "uninitialized"),
        ("an unguarded corner", "i_row_out < n", "i_row_out < n + 1", "bounds"),
        ("a row is left out", "i_row_out < n", "i_row_out < n - 1", "unwritten"),
        ("a piece is there twice", " C[128*i_block", " C[64*i_block", "race"),
    ],
    "cells": [
        ("a cell inside of 16 bytes", "k in 32*k_stage +: min(32, 168 - 32*k_stage)  @by", "k in 32*k_stage + 4 +: min(28, 164 - 32*k_stage)  @by", "alignment"),
        ("cells are not waited for", "wait load_to_warp", None, "async"),
        ("more rows than an instruction has", "min(16, n - 64*i_block - 16*i_warp), j in 0 +: 24  @cover(mma", "min(24, n - 64*i_block - 16*i_warp), j in 0 +: 24  @cover(mma", "registers"),
        ("a piece is left out", "for i_block in 0:(n + 63)//64", "for i_block in 0:n//64", "unwritten"),
        ("a piece is there twice", " C[64*i_block", " C[32*i_block", "race"),
        ("more threads than a block has", "for i_warp_out in 0:4", "for i_warp_out in 0:40", "limits"),
    ],
    "lanes": [
        ("launches without a meeting", "barrier block", None, "race"),
        ("a row past the last", "4*i_block + i_warp < n", "4*i_block + i_warp <= n", "bounds"),
        ("a term past the last", "for k in 0:70", "for k in 0:71", "bounds"),
        ("a term is lost", "for k in 0:70", "for k in 0:69", "values"),
        ("two blocks write one row", " Y[4*i_block", " Y[2*i_block", "race"),
    ],
    "masked": [
        ("the last term of a row is lost", "if t <= i", "if t < i", "values"),
        ("the last stage of a block is lost", "2*i_block + 2)", "2*i_block + 1)", "values"),
        ("a stage that some rows do not have is whole", "(16*i_warp + 1)//32", "(16*i_warp + 17)//32", "values"),
        ("a stage is given back too often", "arrive warp_to_load", "arrive warp_to_load\n            arrive warp_to_load", "phase"),
    ],
}  # fmt: skip
"""Planted in the representation."""


def planted_loops(name: str, old: str, new: str | None) -> oc.Program:
    """Return the representation of a case with `new` for `old`; None: without the first line that begins with it."""
    text = str(case(name).kernel.loops)
    if new is not None:
        assert old in text, text
        return oc.parse(text.replace(old, new))
    lines = text.splitlines()
    at = next(k for k, line in enumerate(lines) if line.strip().startswith(old))
    return oc.parse("\n".join([*lines[:at], *lines[at + 1 :]]))


def loops_finder(name: str, old: str, new: str | None) -> str:
    """Return what finds a fault in a representation."""
    _, arrays, n, exact = case(name)
    kernels = oc.target("cuda", machine="h200", device="emulated").microkernels()
    program = planted_loops(name, old, new)
    try:
        (result,) = execute(program, arrays, {"n": n}, kernels=kernels, limits=Limits()).values()
    except ExecutionFault as fault:
        return fault.finder
    return "" if np.array_equal(result, exact) else "values"


@pytest.mark.parametrize("name", IN_LOOPS)
def test_each_fault_planted_in_a_representation_is_found_by_its_finder(name: str) -> None:
    assert loops_finder(name, "program", "program") == ""
    found = {what: loops_finder(name, old, new) for what, old, new, _ in IN_LOOPS[name]}
    assert found == {what: finder for what, *_, finder in IN_LOOPS[name]}


def test_thirty_faults_are_planted_in_each_form_and_every_list_names_its_finders() -> None:
    texts = [(what, finder) for one in IN_TEXT.values() for what, *_, finder in one]
    texts += [(what, finder) for what, (*_, finder) in IN_PRIMITIVES.items()]
    loops = [(what, finder) for one in IN_LOOPS.values() for what, *_, finder in one]
    assert min(len(texts), len(loops)) >= 30
    assert {finder for _, finder in loops} <= {*FINDERS, "values"}
