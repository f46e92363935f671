"""The executor of units side by side: values of right programs, and planted faults, each found by a finder with a name."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from random import Random

import ml_dtypes
import numpy as np
import pytest
from conftest import rejection, slow
from executor import fault_of

import offcut as oc
from offcut.backends.gpu import instructions
from offcut.backends.gpu.block_limits import RegisterSplit, split_registers
from offcut.backends.gpu.executor import FINDERS, ExecutionFault, Limits, execute
from offcut.backends.gpu.units import AGENTS
from offcut.core.interpret.values import evaluate
from offcut.core.program import Kind

KERNELS = (*instructions.MMA, *instructions.UNITS)

WARPS = """program warps
size n in 0:321 multiple_of 32
input A: bfloat16[n, 32]
input W: bfloat16[32, 16]
local As: bfloat16[n, 32]
local Ws: bfloat16[32, 16]
local Af: bfloat16[n, 32]
local Bf: bfloat16[32, 16]
local acc: float32[n, 16]
output C: float32[n, 16]
for b in 0:n//32  @block
  alloc acc[32*b +: 32, 0 +: 16] in registers
    for w in 0:2  @warp
      tile i in 32*b + 16*w +: 16, j in 0 +: 16
        acc[i, j] = 0.0
    for k in 0:2
      alloc As[32*b +: 32, 16*k +: 16] in shared depth 2
        alloc Ws[16*k +: 16, 0 +: 16] in shared depth 2
          for w in 0:2  @warp
            tile i in 32*b + 16*w +: 16, p in 16*k +: 16  @async
              As[i, p] = A[i, p]
            tile p in 16*k + 8*w +: 8, j in 0 +: 16  @async
              Ws[p, j] = W[p, j]
          for w in 0:2  @warp
            alloc Af[32*b + 16*w +: 16, 16*k +: 16] in registers
              tile i in 32*b + 16*w +: 16, p in 16*k +: 16  @cover(ldmatrix_x4_bfloat16; i=i, p=p; A=As, C=Af)
                Af[i, p] = As[i, p]
              for jj in 0:2
                alloc Bf[16*k +: 16, 8*jj +: 8] in registers
                  tile p in 16*k +: 16, j in 8*jj +: 8
                    Bf[p, j] = Ws[p, j]
                  tile i in 32*b + 16*w +: 16, j in 8*jj +: 8  @cover(mma_m16n8k16_bfloat16; i=i, j=j, p=p; A=Af, B=Bf, C=acc)
                    for p in 16*k:16*k + 16
                      acc[i, j] += float32(Af[i, p]) * float32(Bf[p, j])
    for w in 0:2  @warp
      tile i in 32*b + 16*w +: 16, j in 0 +: 16
        C[i, j] = acc[i, j]
"""
"""A block of two warps that copy in the background, meet, and multiply."""

RING = """program ring
size n in 0:513 multiple_of 128
input A: bfloat16[n, 320]
input W: bfloat16[320, 16]
local As: bfloat16[n, 320] @digits(box: 1//64, row: 0, element: 1%64) multiple(0: 64) swizzle(3, 4, 7)
local Ws: bfloat16[320, 16] @digits(box: 1//64, row: 0, element: 1%64) multiple(0: 64) swizzle(3, 4, 7)
local acc: float32[n, 16]
local Cs: bfloat16[n, 16]
output C: bfloat16[n, 16]
for b in 0:n//128  @block
  alloc acc[128*b +: 128, 0 +: 16] in registers
    for g in 0:2  @warpgroup
      tile i in 128*b + 64*g +: 64, j in 0 +: 16
        acc[i, j] = 0.0
    for k in 0:5
      alloc As[128*b +: 128, 64*k +: 64] in shared depth 2
        alloc Ws[64*k +: 64, 0 +: 16] in shared depth 2
          tile i in 128*b +: 128, p in 64*k +: 64  @by(load)  @async  @cover(tma_load_2d_bfloat16; i=i, p=p; A=A, C=As)
            As[i, p] = A[i, p]
          tile p in 64*k +: 64, j in 0 +: 16  @by(load)  @async  @cover(tma_load_2d_bfloat16; i=p, p=j; A=W, C=Ws)
            Ws[p, j] = W[p, j]
          for g in 0:2  @warpgroup
            tile i in 128*b + 64*g +: 64, j in 0 +: 16  @async  @cover(wgmma_m64nNk16_kn_bfloat16; i=i, j=j, p=p; A=As, B=Ws, C=acc)
              for p in 64*k:64*k + 64
                acc[i, j] += float32(As[i, p]) * float32(Ws[p, j])
    for g in 0:2  @warpgroup
      for c in 0:4
        alloc Cs[128*b + 64*g + 16*c +: 16, 0 +: 16] in shared depth 2
          tile i in 128*b + 64*g + 16*c +: 16, j in 0 +: 16
            Cs[i, j] = bfloat16(acc[i, j])
          tile i in 128*b + 64*g + 16*c +: 16, j in 0 +: 16  @by(store)  @async  @cover(tma_store_2d_bfloat16; i=i, p=j; A=Cs, C=C)
            C[i, j] = Cs[i, j]
"""
"""A load unit and two warpgroups around a ring of two stages; slices go out in the background."""

TWO = """program two
size n in 1:100
input X: float32[n, 4]
local S: float32[n, 4]
output Y: float32[n, 4]
for b in 0:n  @block
  for w in 0:2  @warp
    tile j in 2*w +: 2
      S[b, j] = X[b, j] + 1.0
barrier block
for b in 0:n  @block
  for w in 0:2  @warp
    for j in 2*w:2*w + 2  @lane
      Y[b, j] = S[n - 1 - b, 3 - j]
"""
"""All blocks meet between two launches."""

TEXTS = {"warps": (WARPS, {"n": 96}), "ring": (RING, {"n": 128}), "two": (TWO, {"n": 5})}


@cache
def ordered(name: str) -> str:
    """The text of a program with its synchronization."""
    program = oc.parse(TEXTS[name][0])
    return str(program if name == "two" else oc.sync.synchronized(program, AGENTS))


def arrays_of(program: oc.Program, sizes: Mapping[str, int]) -> dict[str, np.ndarray]:
    draw = np.random.default_rng(3)
    kinds = {"bfloat16": ml_dtypes.bfloat16, "float32": np.float32}
    arrays = {}
    for buffer in program.buffers:
        if buffer.kind is Kind.INPUT:
            shape = [int(evaluate(extent, sizes)) for extent in buffer.shape]
            arrays[buffer.name] = draw.integers(-8, 9, shape).astype(kinds[buffer.dtype])
    return arrays


def run(text: str, sizes: Mapping[str, int], **options: object) -> dict[str, np.ndarray]:
    program = oc.parse(text)
    options = {"kernels": KERNELS, "limits": Limits(), **options}
    return execute(program, arrays_of(program, sizes), sizes, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("seed", [0, *map(slow, (1, 2))])
def test_a_right_program_has_its_values_however_its_units_run(name: str, seed: int) -> None:
    text, sizes = ordered(name), TEXTS[name][1]
    largest = sizes["n"] * (2 if name == "ring" else 1)  # two blocks
    for n in {size.min for size in oc.parse(text).sizes} | {largest}:
        program = oc.parse(text)
        (found,) = run(text, {"n": n}, seed=seed).values()
        np.testing.assert_array_equal(found, program.run(arrays_of(program, {"n": n}), n=n))


FAULTS = [
    # what is planted, the program, old text, new text, the finder, options
    ("no wait for what was loaded", "ring", "wait load_to_warpgroup", "", "async"),
    ("no wait for a stage to be free", "ring", "wait warpgroup_to_load where", "", "async"),
    ("a stage is waited for one turn late", "ring", "k - 2 >= 0", "k - 3 >= 0", "async"),
    ("a stage is given back before it is read", "ring", ("wait group 0", 0), "", "async"),
    ("sums are read before products end", "ring", ("wait group 0", 0), "", "async"),
    ("a slice is written before it has gone out", "ring", "wait group 1 where", "", "async"),
    ("a slice is waited for one store late", "ring", "wait group 1 where c - 2", "wait group 2 where c - 2", "async"),
    ("lanes write a slice that one of them waits for", "ring", ("barrier warpgroup", 0), "", "async"),
    ("a slice is stored before all have written it", "ring", ("barrier warpgroup", 1), "", "lanes"),
    ("a slice is stored without a fence", "ring", "fence async_shared", "", "fence"),
    ("two warpgroups give a stage back once", "ring", "load count 2", "load count 1", "async arrivals"),
    ("an arrival that never comes is counted", "ring", "load count 2", "load count 3", "standstill"),
    ("what is loaded is never said", "ring", "arrive load_to_warpgroup", "", "standstill"),
    ("a stage is never given back", "ring", "arrive warpgroup_to_load", "", "standstill"),
    ("a barrier for two stages", "ring", "warpgroup count 1 room 2", "warpgroup count 1 room 1", "phase"),
    ("one stage for two turns", "ring", "As[128*b +: 128, 64*k +: 64] in shared depth 2", "As[128*b +: 128, 64*k +: 64] in shared", "async"),
    ("a box inside of a cell", "ring", "p in 64*k +: 64  @by", "p in 64*k + 1 +: 64  @by", "alignment"),
    ("half of a stage is loaded", "ring", "i in 128*b +: 128, p", "i in 128*b +: 64, p", "uninitialized"),
    ("the tail of K is lost", "ring", "p in 64*k +: 64, j in 0 +: 16  @by", "p in 64*k +: 48, j in 0 +: 16  @by", "uninitialized"),
    ("products of 40 terms of a box", "ring", "for p in 64*k:64*k + 64", "for p in 64*k:64*k + 40", "cover"),
    ("the swizzle of an operand is off", "ring", "Ws: bfloat16[320, 16] @digits(box: 1//64, row: 0, element: 1%64) multiple(0: 64) swizzle(3, 4, 7)", "Ws: bfloat16[320, 16] @digits(box: 1//64, row: 0, element: 1%64) multiple(0: 64)", "layout"),
    ("an operand lies along the other axis", "ring", "wgmma_m64nNk16_kn", "wgmma_m64nNk16_kk", "layout"),
    ("a box inside of another one", "ring", "i in 128*b +: 128, p", "i in 128*b + 4 +: 124, p", "alignment"),
    ("products inside of a box", "ring", "i in 128*b + 64*g +: 64, j in 0 +: 16  @async", "i in 128*b + 60*g +: 64, j in 0 +: 16  @async", "alignment"),
    ("an ordinary copy without a fence", "ring", "j in 0 +: 16  @by(load)  @async  @cover(tma_load_2d_bfloat16; i=p, p=j; A=W, C=Ws)", "j in 0 +: 16  @by(load)", "fence"),
    ("an operand in main memory", "ring", "B=Ws", "B=W", "memory"),
    ("stages larger than a block", "ring", "shared depth 2", "shared depth 24", "room"),
    ("warps copy without meeting", "warps", "barrier warp", "", "async"),
    ("copies are not waited for", "warps", "wait group 0", "", "async"),
    ("a product on a warpgroup", "warps", "for w in 0:2  @warp\n            alloc", "for w in 0:2  @warpgroup\n            alloc", "unit"),
    ("a warp takes registers of another", "warps", "C[i, j] = acc[i, j]", "C[i, j] = acc[i, j] + acc[31 - i + 64*b, j]", "registers"),
    ("an unguarded corner", "warps", "for b in 0:n//32", "for b in 0:n//32 + 1", "bounds"),
    ("a piece is left out", "warps", "for b in 0:n//32", "for b in 0:n//32 - 1", "unwritten"),
    ("a piece is there twice", "warps", "for b in 0:n//32  @block", "for b in 0:n//16  @block", "bounds"),
    ("a bias is read before its promise", "two", "for b in 0:n  @block\n  for w in 0:2  @warp\n    tile", "let q in 0:4 = n\n for b in 0:n  @block\n  for w in 0:2  @warp\n    tile", "promise"),
    ("two blocks write one row", "two", "Y[b, j]", "Y[b//2, j]", "race"),
    ("blocks do not meet", "two", "barrier block\n", "", "race"),
    ("lanes of a tile write two values", "two", "S[b, j] = X", "S[b, 2*w] = X", "instances"),
    ("a row past the last", "two", "X[b, j]", "X[b + 1, j]", "bounds"),
    ("what nobody has written", "two", "for b in 0:n  @block\n  for w in 0:2  @warp\n    tile", "for b in 1:n  @block\n  for w in 0:2  @warp\n    tile", "uninitialized"),
    ("more threads than a block has", "two", "for w in 0:2  @warp\n    for j in 2*w:2*w + 2", "for w in 0:33  @warp\n    for j in 2*w:min(2*w + 2, 4)", "limits"),
    ("a unit that the machine lacks", "two", "for w in 0:2  @warp\n    for", "for w in 0:2  @thread\n    for", "unit"),
]  # fmt: skip


def planted(name: str, old: str | tuple[str, int], new: str) -> str:
    """The text of a program with one change; of a line that is left out, "" stands for it."""
    text = ordered(name)
    word, number = old if isinstance(old, tuple) else (old, 0)
    if not new and not word.endswith("\n"):
        lines = text.splitlines()
        at = [k for k, line in enumerate(lines) if line.strip().startswith(word)][number]
        return "\n".join([*lines[:at], *lines[at + 1 :]])
    assert word in text, text
    return text.replace(word, new)


@pytest.mark.parametrize("seed", [0, slow(1)])
@pytest.mark.parametrize(
    ("name", "old", "new", "finder"), [pytest.param(*rest, id=what) for what, *rest in FAULTS]
)
def test_a_planted_fault_is_found_by_its_finder(
    name: str, old: str | tuple[str, int], new: str, finder: str, seed: int
) -> None:
    text = planted(name, old, new)
    with pytest.raises(ExecutionFault) as refused:
        run(text, TEXTS[name][1], seed=seed)
    assert refused.value.finder in finder.split(), str(refused.value)


BYTES = {"load_to_warpgroup": 2 * (128 * 64 + 64 * 64)}  # in boxes of 64 columns


def test_a_barrier_gets_the_bytes_that_it_expects() -> None:
    text, sizes = ordered("ring"), TEXTS["ring"][1]
    run(text, sizes, expects=BYTES)
    with pytest.raises(
        ExecutionFault, match=r"24576 bytes arrive .* its barrier expects 24574"
    ) as refused:
        run(text, sizes, expects={"load_to_warpgroup": BYTES["load_to_warpgroup"] - 2})
    assert refused.value.finder == "bytes"


def test_an_ordinary_copy_is_fenced_by_the_unit_that_copies() -> None:
    copied = RING.replace("  @async  @cover(tma_load_2d_bfloat16; i=p, p=j; A=W, C=Ws)", "")
    program = oc.sync.synchronized(oc.parse(copied), AGENTS)
    assert "fence async_shared  @by(load)" in str(program)
    (found,) = run(str(program), {"n": 256}).values()
    np.testing.assert_array_equal(found, program.run(arrays_of(program, {"n": 256}), n=256))


def test_sums_that_registers_have_no_room_for_are_found() -> None:
    with pytest.raises(ExecutionFault, match=r"it takes 8 registers of a thread, and 2") as refused:
        run(ordered("ring"), TEXTS["ring"][1], limits=Limits(registers=384 * 40))
    assert refused.value.finder == "limits"


def test_a_split_of_registers_adds_up() -> None:
    assert split_registers(2, 65536) == RegisterSplit(2, 168, 40, 232)
    assert split_registers(1, 65536) == RegisterSplit(1, 240, 40, 240)
    with rejection("""\
PartitionError: compile: cannot split the registers of 3 warpgroups
  because  40 + 2 * 240 = 520 a thread of each, and there are 504"""):
        RegisterSplit(2, 168, 40, 240)
    with pytest.raises(oc.PartitionError, match="20 a thread are not from 24 to 240"):
        RegisterSplit(2, 168, 20, 232)


def test_every_finder_finds_a_planted_fault() -> None:
    assert {finder for *_, finders in FAULTS for finder in finders.split()} == FINDERS.keys() - {
        "bytes"
    }
    assert len(FAULTS) >= 30


SMALL = """program small
size n in 0:1000
input A: float32[n, 4]
local S: float32[n, 4]
local Z: float32[n, 4]
output C: float32[n, 4]
for k in 0:n
  alloc S[k +: 1, 0 +: 4] in shared depth 2
    tile m in 0 +: 4  @by(load)  @async
      S[k, m] = A[k, m]
    for g in 0:2  @warpgroup
      alloc Z[k +: 1, 2*g +: 2] in shared depth 2
        tile m in 2*g +: 2
          Z[k, m] = S[k, 3 - m]
        tile m in 2*g +: 2  @by(store)  @async
          C[k, m] = Z[k, m]
"""


@pytest.mark.parametrize("change", ["left out", "doubled", "swapped"])
def test_it_finds_what_an_executor_finds_that_shares_nothing_with_it(change: str) -> None:
    lines = str(oc.sync.synchronized(oc.parse(SMALL), AGENTS)).splitlines()
    words = ("wait", "arrive", "barrier", "fence")
    found = 0
    for at, line in enumerate(lines):
        if not line.strip().startswith(words):
            continue
        here = {"left out": [], "doubled": [line, line], "swapped": [lines[at + 1], line]}[change]
        rest = lines[at + 1 + (change == "swapped") :]
        try:
            program = oc.parse("\n".join([*lines[:at], *here, *rest]))
        except oc.ParseError:
            continue
        for n in (1, 3, 5):
            other = fault_of(program, AGENTS, {"n": n}, range(6))
            arrays = arrays_of(program, {"n": n})
            try:
                execute(program, arrays, seed=Random(n).randrange(99))
            except ExecutionFault:
                assert other is not None, (line, n)
                found += 1
            else:
                assert other is None, (line, n)
    assert found >= 3


DECIDED = """program decided
size n in 0:65
input L: int32[2]
{declared}output C: int32[n]
{before}for b in 0:n  @block
  if b < index({array}[{place}])
    for w in 0:1  @warp
      tile i in b +: 1
        C[i] = 1
  else
    for w in 0:1  @warp
      tile i in b +: 1
        C[i] = 0
"""


def decided(array: str = "L", place: str = "1", declared: str = "", before: str = "") -> oc.Program:
    text = DECIDED.format(array=array, place=place, declared=declared, before=before)
    return oc.parse(text)


def test_an_input_may_decide_which_units_run_what() -> None:
    made = execute(decided(), {"L": np.array([0, 3], np.int32)}, {"n": 5})
    np.testing.assert_array_equal(made["C"], [1, 1, 1, 0, 0])


@pytest.mark.parametrize(
    ("program", "finder", "because"),
    [
        (decided(place="b"), "bounds", "it reads L[2] of 2 elements"),
        (
            decided("M", declared="local M: int32[2]\n", before="for m in 0:2\n  M[m] = 3\n"),
            "unit",
            "which units run what depends on M, which the program writes",
        ),
    ],
    ids=["beyond the array", "written by the program"],
)
def test_what_decides_which_units_run_is_read_inside_of_what_nobody_writes(
    program: oc.Program, finder: str, because: str
) -> None:
    with pytest.raises(ExecutionFault, match=finder) as fault:
        execute(program, {"L": np.array([0, 3], np.int32)}, {"n": 5})
    assert f"because  {because}" in str(fault.value)
