"""Texts of schedules as versions before 0.3 printed them: each becomes the decisions that say the same."""

from __future__ import annotations

import re

import numpy as np
import pytest

import offcut as oc
from offcut import Schedule, ops
from tests.agree import agree, exact_matmul

SOFTMAX = """\
schedule softmax_X
together i by 8 in 17039
  nest softmax_X_max
    way loops
  nest softmax_X
    way loops
      split j mask 64
mark rows
mark threads"""

PRODUCT = """\
schedule C
lay W panels(0, 1, 16)
nest C
  way ladder
    cover fma rows i columns j depth k
    loops b_
    split i ladder 14
    split j ladder by height 1..1: 192 64, 2..14: 32 16 in groups of 1536
  way balance_packed
    costs 1e-09*float64(n)
    cover fma rows i columns j depth k
    pack W_panels panels(1, 2, 16)
      loops b_ k
      split j mask 16
    loops b_
    split i balance 14
    split j ladder 32"""

TODAY = {
    SOFTMAX: """\
schedule softmax_X
cover softmax_X_max vectors
split softmax_X.i 8 if fits 17039 as i_block i_in
order softmax_X i_block
split softmax_X.j mask 64 as j_tile j_in
order softmax_X j_tile j_in
cover softmax_X at j_in vectors
at softmax_X_max softmax_X.i_block
bind * lane tree
bind * thread""",
    PRODUCT: """\
schedule C
stage prepack W layout panels(0, 1, 16)
choose
  option ladder
    split C.i ladder 14 as i_tile i_in
    split C.j ladder 1536 then ladder by i_in 1..1: 192 64, 2..14: 32 16 as j_group j_tile j_in
    order C b_ j_group i_tile j_tile i_in j_in
    cover C at i_in fma(i=i_in, j=j_in, p=k)
  option balance_packed costs 1e-09 * float64(n)
    stage read * for C as W_panels layout panels(1, 2, 16)
    split W_panels.j mask 16 as j_tile j_in
    order W_panels b_ k j_tile j_in
    split C.i balance 14 as i_tile i_in
    split C.j ladder 32 as j_tile j_in
    order C b_ i_tile j_tile i_in j_in
    cover C at i_in fma(i=i_in, j=j_in, p=k)""",
    "schedule C\ncut C.i ladder 64 8\ncut j mask 4\nmark lanes": """\
schedule C
separate 1
split C.i ladder 64 then ladder 8 as i_group i_tile i_in
split *.j mask 4 as j_tile j_in
bind * lane""",
    "schedule C\nseparate 9\nmark products\nmark rows": """\
schedule C
separate 9
cover *
bind * lane tree""",
    "schedule C\nscratch C narrow\ncopy C A[k, i] along k\nconvert C float32(A[i, k]) and float32(B[k])\nturn C j i": """\
schedule C
stage value narrow factors for C as *()
stage value A[k, i] along k for C as *()
stage value float32(A[i, k]) for C as *()
stage value float32(B[k]) for C as *()
stage write C as *(j, i)""",
}


@pytest.mark.parametrize("old", TODAY)
def test_a_text_of_a_version_before_prints_as_one_of_today(old: str) -> None:
    made = Schedule.parse(old)
    assert str(made) == TODAY[old]
    assert Schedule.parse(str(made)) == made


CONVOLUTION = """\
schedule conv
scratch conv narrow
turn conv n_ y x o
nest X_staged
  way loops
    loops n_ z2
    split c mask 32
nest conv_turned
  way loops
    loops n_ y x
    split o mask 16
nest conv
  way loops
    loops n_ y
    split x mask 16
mark rows"""


def test_stages_of_an_older_text_run_and_are_those_that_today_names() -> None:
    n = oc.dim("n", min=1, max=32)
    x = oc.placeholder((1, 4, n, n), "float32", "X")
    f = oc.placeholder((5, 4, 3, 3), "float32", "F")
    result = ops.conv2d(x, f, padding="same", name="conv")
    old = oc.compile(result, inputs=[x, f], schedule=Schedule.parse(CONVOLUTION), records=False)
    policy = str(oc.compile(result, inputs=[x, f], records=False).schedule)
    stages = "\n".join(
        line
        for line in policy.splitlines()
        if line.startswith(("stage value", "stage write")) and "layout" not in line
    )
    whole = re.sub(r"(?m)^stage value narrow.*\n^stage write.*", stages, str(old.schedule))
    assert whole != str(old.schedule)
    new = oc.compile(result, inputs=[x, f], schedule=Schedule.parse(whole), records=False)
    assert new.loops == old.loops
    rng = np.random.default_rng(3)
    a, w = (
        rng.standard_normal((1, 4, 5, 5), "float32"),
        rng.standard_normal((5, 4, 3, 3), "float32"),
    )
    padded = np.pad(a[0], ((0, 0), (1, 1), (1, 1)))
    columns = np.stack([padded[:, r : r + 5, s : s + 5] for r in range(3) for s in range(3)], 1)
    exact = exact_matmul(w.reshape(5, 36), columns.reshape(36, 25))
    agree(np.asarray(old(a, w)).reshape(5, 25), exact)


REFUSED = {
    "nest C": "a nest runs in one way at least",
    "together i": "no nest shares them",
    "together i by 1 in 8\n  nest C\n    way w": "a block is of several iterations",
    "nest C\n  way w\n    costs 1.0\n    costs 2.0": "a way has each of costs, cover",
    "together i\n  mark rows": "loops are shared by nests",
    "mark warps": "no unit is called warps",
}


@pytest.mark.parametrize("text", REFUSED)
def test_an_older_line_that_says_nothing_is_refused(text: str) -> None:
    with pytest.raises(oc.ParseError, match=REFUSED[text]):
        Schedule.parse(f"schedule C\n{text}")
