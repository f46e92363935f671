"""Words of a text about memories and units: a processor refuses what it has not, and says what it does not use."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import rejection

import offcut as oc

TEXT = """program t
size n in 0:64
input A: float32[n]
local L: float32[n]{scope}
output B: float32[n]
alloc L[0 +: n]{window}
  for i in 0:n{loop}
    L[i] = A[i]
  tile i in 0 +: n{tile}
    B[i] = L[i]
"""
NONE = {"scope": "", "window": "", "loop": "", "tile": ""}

REFUSED = {
    "a memory that there is not": (
        {"window": " in nonsense depth 7"},
        """\
compile: cannot keep L in nonsense
  at       alloc L[0 +: n] in nonsense depth 7
  because  zen4 has no memory nonsense
  help     without in nonsense, in main memory
  help     in L1, L2, L3, DRAM""",
    ),
    "a unit of tiles that there is not": (
        {"tile": "  @by(load)  @async"},
        """\
compile: cannot run a tile by load
  at       tile i in 0 +: n  @by(load)  @async
  because  zen4 has no unit load
  help     without @by(load), by the thread that comes to it""",
    ),
    "a unit of loops that nobody knows": (
        {"loop": "  @bind(zork)"},
        """\
compile: cannot run loop i on zork
  at       for i in 0:n  @bind(zork)
  because  zen4 has no unit zork, and schedules know none
  help     @thread
  help     @lane
  help     @unroll
  help     without it, one iteration after the other""",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_a_processor_has_not_is_refused(case: str) -> None:
    changed, said = REFUSED[case]
    target = oc.target("cpu", machine="zen4")
    with rejection(f"TargetError: {said}"):
        oc.compile(oc.parse(TEXT.format(**NONE | changed)), target=target)


NOTED = {
    "depth": ({"window": " depth 7"}, "L has one window, not 7: a thread uses one after the other"),
    "a cache": (
        {"window": " in L1"},
        "L lies in main memory: L1 is a cache, which fills itself",
    ),
    "a scope": ({"scope": " @scope(acc)"}, "L lies in main memory: {} has no memory acc"),
    "async": (
        {"tile": "  @async"},
        "tile i is not asynchronous: it has ended when the next statement begins",
    ),
    "a warp": ({"loop": "  @warp"}, "loop i runs one iteration after the other: {} has no warp"),
    "a block of a grid": (
        {"loop": "  @bind(blockIdx.x)"},
        "loop i runs one iteration after the other: {} has no blockIdx.x",
    ),
}


@pytest.mark.parametrize("case", NOTED)
def test_what_a_processor_does_not_use_is_said(case: str) -> None:
    changed, said = NOTED[case]
    target = oc.target("cpu")
    kernel = oc.compile(oc.parse(TEXT.format(**NONE | changed)), target=target)
    assert said.format(target.machine.name) in kernel.plan(n=5).notes
    for n in (0, 1, 5):
        a = np.arange(n, dtype="f4")
        np.testing.assert_array_equal(kernel(a), a)


@pytest.mark.parametrize("changed", [{"window": " in DRAM"}, {"loop": "  @lane"}], ids=str)
def test_what_a_processor_has_is_not_mentioned(changed: dict[str, str]) -> None:
    kernel = oc.compile(oc.parse(TEXT.format(**NONE | changed)))
    words = ("lies in", "window", "iteration after", "asynchronous")
    assert not [note for note in kernel.plan(n=5).notes if any(w in note for w in words)]


def test_an_element_of_a_window_that_is_empty_is_not_read() -> None:
    text = TEXT.format(**NONE).replace("B[i] = L[i]", "B[i] = L[0]")
    kernel = oc.compile(oc.parse(text))
    for n in (0, 1, 5):
        a = np.arange(3, n + 3, dtype="f4")
        np.testing.assert_array_equal(kernel(a), np.full(n, 3, "f4"))
    with pytest.raises(oc.PartitionError, match=r"with n = 1, i = 0, it is L\[1\]"):
        oc.compile(oc.parse(text.replace("L[0]", "L[1]")))
