"""Schedules of the policy, edited so that no block runs them; edits that are drawn are in `test_replayed_schedules`."""

from __future__ import annotations

from functools import cache

import pytest
from conftest import rejection

import offcut as oc
from offcut.schedule.decisions import Choose


def dense() -> tuple[oc.Tensor, list[oc.Tensor]]:
    """A product and what follows it element by element."""
    n, k = oc.dim("n", max=100), oc.reduce_axis(40, name="k")
    a, w = oc.placeholder((n, 40), "bfloat16", "A"), oc.placeholder((40, 24), "bfloat16", "W")
    s = oc.compute(
        (n, 24),
        lambda i, j: oc.sum(a[i, k].astype("float32") * w[k, j].astype("float32"), axis=k),
        name="S",
    )
    return oc.compute((n, 24), lambda i, j: oc.maximum(s[i, j], 0.0), name="C"), [a, w]


def compiled(schedule: oc.Schedule | None) -> oc.Kernel:
    result, inputs = dense()
    target = oc.target("cuda", machine="a100", device="emulated")
    return oc.compile(result, inputs=inputs, target=target, schedule=schedule)


@cache
def policy_text() -> str:
    """The schedule of the policy; of the first of its options, if it has several."""
    schedule = compiled(None).schedule
    (first, *_) = schedule.steps
    if isinstance(first, Choose):
        schedule = oc.Schedule(schedule.name, first.options[0].steps)
    return str(schedule)


REFUSED = {
    "registers of another warp": (
        "split C.i_in guard 16 as",
        "split C.i_in guard 32 as",
        """\
PartitionError: sync: cannot keep the order of C on units that run side by side
  at       line 6: order C i_block j_block i_in j_in
  because  with n = 17, it touches what `tile i in 64*i_block + 16*i_warp +: min(16, n - 64*i_block - 16*i_warp), j in 0 +: 24  @cover(zero_accumulators)` at i_block = 0, i_warp = 1 touches, in registers of another warp
  help     loops over the same elements, bound to the same unit
  help     a window in a memory that they share""",
    ),
    "a warp around blocks": (
        "order C i_block j_block i_in j_in",
        "order C i_in i_block j_block j_in",
        """\
TargetError: compile: cannot run loop i_block on block
  at       line 14: bind C.i_block block
  because  the loop i_warp_out around it is on warp, which has no block of its own
  help     i_warp_out on a unit before block: block, warpgroup, warp, lane""",
    ),
    "cells": (
        "split S.k guard 32 as",
        "split S.k guard 17 as",
        """\
PartitionError: compile: cannot copy cells of 16 bytes of A
  at       line 18: cover A_in at i cp_async_rows_bfloat16
  because  its rows begin at element 17*k_stage, which is not known to be a multiple of 8
  help     tiles of multiples of 8 elements
  help     copy_rows, which moves element by element""",
    ),
    "nesting": (
        "bind C.i_block block",
        "bind C.i_block warp",
        """\
TargetError: compile: cannot run loop i_warp on warp
  at       line 17: bind S.i_warp warp
  because  the loop i_block around it is on warp, which has no warp of its own
  help     i_block on a unit before warp: block, warpgroup, warp, lane""",
    ),
    "no window": (
        "at W_in S.k_stage in shared depth 4",
        "# nowhere",
        """\
TargetError: compile: cannot keep W_in in shared
  at       line 3: stage read W for S as W_in in shared
  because  it is not a window there: what shared holds is of one block, and gone when that ends
  help     at W_in … in shared: a window inside of a loop of its reader""",
    ),
    "threads": (
        "split C.i guard 64 as",
        "split C.i guard 1024 as",
        """\
PartitionError: compile: cannot launch C
  at       line 14: bind C.i_block block
  because  a block has 1024 threads at most, and its warps and load units take 2080
  help     tiles of fewer warps
  help     a loop over blocks around""",
    ),
}


def test_boxes_that_begin_inside_of_a_cell_are_refused_by_their_line() -> None:
    n, k = oc.dim("n", max=100), oc.reduce_axis(48, name="k")
    a, w = oc.placeholder((n, 48), "bfloat16", "A"), oc.placeholder((48, 24), "bfloat16", "W")
    s = oc.compute(
        (n, 24),
        lambda i, j: oc.sum(a[i, k].astype("float32") * w[k, j].astype("float32"), axis=k),
        name="S",
    )
    result = oc.compute((n, 24), lambda i, j: oc.maximum(s[i, j], 0.0), name="C")
    target = oc.target("cuda", machine="h200", device="emulated")
    text = str(oc.compile(result, inputs=[a, w], target=target).schedule)
    old, new = "split C.j guard 256", "split C.j balance 16"
    assert old in text
    with rejection(
        """\
PartitionError: compile: cannot run tma_load_2d_bfloat16 in C
  at       line 19: cover W_in at k tma_load_2d_bfloat16
  because  it begins at element 12*j_block of a row of W, which is not known to be a multiple of 8
  help     tiles of multiples of 8 elements"""
    ):
        schedule = oc.Schedule.parse(text.replace(old, new))
        oc.compile(result, inputs=[a, w], target=target, schedule=schedule)


@pytest.mark.parametrize("what", REFUSED)
def test_what_a_block_cannot_run_is_refused_by_its_line(what: str) -> None:
    old, new, expected = REFUSED[what]
    assert old in policy_text()
    with rejection(expected):
        compiled(oc.Schedule.parse(policy_text().replace(old, new)))
