"""Schedules of the policy, edited: each runs right, or is refused in words before a call."""

from __future__ import annotations

from functools import cache
from random import Random

import ml_dtypes
import numpy as np
import pytest
from conftest import slow

import offcut as oc
from offcut.backends.decide import attempt

THERE = oc.target("cuda", machine="a100", device="emulated")
DEPTH, COLUMNS = 40, 24


@cache
def dense() -> tuple[oc.Tensor, list[oc.Tensor], tuple[str, ...]]:
    """A product and what follows it element by element, its inputs, and the lines of its schedule."""
    n = oc.dim("n", max=100)
    a = oc.placeholder((n, DEPTH), "bfloat16", name="A")
    w = oc.placeholder((DEPTH, COLUMNS), "bfloat16", name="W")
    k = oc.reduce_axis(DEPTH, name="k")
    s = oc.compute(
        (n, COLUMNS),
        lambda i, j: oc.sum(a[i, k].astype("float32") * w[k, j].astype("float32"), axis=k),
        name="S",
    )
    c = oc.compute((n, COLUMNS), lambda i, j: oc.maximum(s[i, j], 0.0), name="C")
    kernel = oc.compile(c, inputs=[a, w], target=THERE)
    return c, [a, w], tuple(str(kernel.schedule).splitlines())


def compiled(lines: list[str]) -> oc.Kernel:
    c, inputs, _ = dense()
    schedule = oc.Schedule.parse("\n".join(lines))
    return oc.compile(c, inputs=inputs, target=THERE, schedule=schedule)


def edited(rng: Random) -> list[str]:
    """The lines of the schedule, one of them dropped, said twice, moved, or changed in one word."""
    lines = [*dense()[2]]
    at = rng.randrange(1, len(lines))
    words = lines[at].split()
    match rng.choice(["drop", "twice", "move", "word", "word"]):
        case "drop":
            del lines[at]
        case "twice":
            lines.insert(rng.randrange(1, len(lines)), lines[at])
        case "move":
            lines.insert(rng.randrange(1, len(lines)), lines.pop(at))
        case _ if words[0] == "split":
            words[3] = str(rng.choice([1, 3, 8, 16, 17, 32, 48, 96]))
            lines[at] = " ".join(words)
        case _ if words[0] == "bind":
            words[2] = rng.choice(["block", "warp", "load", "lane"])
            lines[at] = " ".join(words)
        case _ if words[0] == "order":
            rest = words[2:]
            rng.shuffle(rest)
            lines[at] = " ".join([*words[:2], *rest])
        case _:
            lines[at] = lines[at].replace("depth 4", f"depth {rng.choice([1, 2, 64])}")
    return lines


@pytest.mark.parametrize("seed", [*range(2, 5), *map(slow, range(5, 20))])
def test_an_edited_schedule_runs_right_or_is_refused_in_words(seed: int) -> None:
    lines = edited(Random(seed))
    kernel = attempt(lambda: compiled(lines), oc.OffcutError)
    if isinstance(kernel, oc.OffcutError):
        assert not isinstance(kernel, oc.CallError)
        assert kernel.because
        return
    rng = np.random.default_rng(seed)
    w = rng.integers(-3, 4, (DEPTH, COLUMNS)).astype(ml_dtypes.bfloat16)
    for n in (0, 1, 65):
        x = rng.integers(-3, 4, (n, DEPTH)).astype(ml_dtypes.bfloat16)
        exact = np.maximum(x.astype("float64") @ w.astype("float64"), 0)
        np.testing.assert_array_equal(np.asarray(kernel(x, w)), exact)


REFUSED = {
    "registers of another warp": (
        "split C.i_in guard 16 as",
        "split C.i_in guard 32 as",
        """\
sync: cannot keep the order of C on units that run side by side
  at       line 6: order C i_block j_block i_in j_in
  because  with n = 17, it touches what `tile i in 64*i_block + 16*i_warp +: min(16, n - 64*i_block - 16*i_warp), j in 0 +: 24  @cover(zero_accumulators)` at i_block = 0, i_warp = 1 touches, in registers of another warp
  help     loops over the same elements, bound to the same unit
  help     a window in a memory that they share""",
    ),
    "a warp around blocks": (
        "order C i_block j_block i_in j_in",
        "order C i_in i_block j_block j_in",
        """\
compile: cannot run loop i_block on block
  at       line 14: bind C.i_block block
  because  the loop i_warp_out around it is on warp, which has no block of its own
  help     i_warp_out on a unit before block: block, warpgroup, warp, lane""",
    ),
    "cells": (
        "split S.k guard 32 as",
        "split S.k guard 17 as",
        """\
compile: cannot copy cells of 16 bytes of A
  at       line 18: cover A_in at i cp_async_rows_bfloat16
  because  its rows begin at element 17*k_stage, which is not known to be a multiple of 8
  help     tiles of multiples of 8 elements
  help     copy_rows, which moves element by element""",
    ),
    "nesting": (
        "bind C.i_block block",
        "bind C.i_block warp",
        """\
compile: cannot run loop i_warp on warp
  at       line 17: bind S.i_warp warp
  because  the loop i_block around it is on warp, which has no warp of its own
  help     i_block on a unit before warp: block, warpgroup, warp, lane""",
    ),
    "no window": (
        "at W_in S.k_stage in shared depth 4",
        "# nowhere",
        """\
compile: cannot keep W_in in shared
  at       line 3: stage read W for S as W_in in shared
  because  it is not a window there: what shared holds is of one block, and gone when that ends
  help     at W_in … in shared: a window inside of a loop of its reader""",
    ),
    "threads": (
        "split C.i guard 64 as",
        "split C.i guard 1024 as",
        """\
compile: cannot launch C
  at       line 14: bind C.i_block block
  because  a block has 1024 threads at most, and its warps and load units take 2080
  help     tiles of fewer warps
  help     a loop over blocks around""",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_a_block_cannot_run_is_refused_by_its_line(what: str) -> None:
    old, new, expected = REFUSED[what]
    lines = [line.replace(old, new) for line in dense()[2]]
    assert lines != [*dense()[2]]
    with pytest.raises(oc.OffcutError) as refused:
        compiled(lines)
    assert str(refused.value) == expected
