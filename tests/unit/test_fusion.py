"""Groups in shared loops, factors in scratch, results turned: what the planner makes of stages."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import offcut as oc
from offcut.describe.computation import computation
from offcut.errors import PartitionError
from offcut.ir import Alloc, Choose, For, Stmt, Tile, blocks
from offcut.schedule import (
    Nest,
    Together,
    share_loops,
)
from tests.agree import agree
from tests.facade import Computation


def described(*outputs: oc.Tensor) -> Computation:
    return computation(outputs)


def tree(parts: tuple[Nest | Together, ...]) -> list[Any]:
    return [part.stage if isinstance(part, Nest) else tree(part.parts) for part in parts]


def loops(body: tuple[Stmt, ...]) -> list[Any]:
    """Loops and windows of a program, without its tiles."""
    found: list[Any] = []
    for stmt in body:
        inner = [one for block in blocks(stmt) for one in loops(block)]
        match stmt:
            case For(name):
                found.append([name, *inner])
            case Alloc(buffer):
                found.append([f"alloc {buffer}", *inner])
            case Tile() | Choose():
                pass
            case _:
                found += inner
    return found


def test_a_read_of_another_iteration_ends_the_run() -> None:
    n, m = oc.dim("n"), oc.dim("m")
    x, j = oc.placeholder((n, m), name="X"), oc.reduce_axis(m, name="j")
    s = oc.compute((n,), lambda i: oc.sum(x[i, j], axis=j), name="S")
    y = oc.compute((n, m), lambda i, k: x[i, k] / s[n - 1 - i], name="Y")
    assert tree(share_loops(described(y), [1, 1])) == ["S", "Y"]


@pytest.mark.parametrize(
    "names", ["i i ik i ik", "a i ik q yz", "k i kr j jr", "a r ab j ab"], ids=str
)
def test_shared_loops_are_proved_whatever_the_axes_are_called(names: str) -> None:
    n, m = oc.dim("n", max=99), oc.dim("m", max=99)
    x, j, r = oc.placeholder((n, m), name="X"), oc.reduce_axis(m, "j"), oc.reduce_axis(m, "r")
    one, _, two, three, four = names.split()
    p = oc.compute((n,), lambda *at: oc.max(x[at[0], j], axis=j), axes=(one,), name="P")
    e = oc.compute((n, m), lambda *at: oc.exp(x[at] - p[at[0]]), axes=tuple(two), name="E")
    t = oc.compute((n,), lambda *at: oc.sum(e[at[0], r], axis=r), axes=(three,), name="T")
    y = oc.compute((n, m), lambda *at: e[at] / t[at[0]], axes=tuple(four), name="Y")
    kernel = oc.compile(y)
    assert "\nat " in str(kernel.schedule)
    given = np.random.default_rng(0).standard_normal((7, 12), dtype=np.float32)
    shifted = np.exp(given.astype("float64") - given.max(1, keepdims=True))
    exact = shifted / shifted.sum(1, keepdims=True)
    agree(kernel(given), exact, units=32)  # of terms of one sign


# A product that is laid out otherwise first, and copied after, is the product: of results and of what others read.


HEAD = """program p
size m in 0:30
size n in 0:30
input A: float32[m + 2, 3]
input B: float32[n, 3]
local T: float32[m, n]
output Y: float32[n*2, m]
"""
SOURCE = f"""{HEAD}for i in 0:m
  for j in 0:n
    T[i, j] = 0.0
    for k in 0:3
      T[i, j] += where(i + k >= 1, A[i + k - 1, k], 0.0) * B[j, k]
for j in 0:n*2
  for i in 0:m
    Y[j, i] = T[i, j//2]
"""
TURNED = f"""{HEAD}local S: float32[m + 3, 3]
local U: float32[n, m]
for z in 0:m + 3
  for k in 0:3
    S[z, k] = where(z >= 1, A[z - 1, k], 0.0)
for j in 0:n
  for i in 0:m
    U[j, i] = 0.0
    for k in 0:3
      U[j, i] += S[i + k, k] * B[j, k]
for i in 0:m
  for j in 0:n
    T[i, j] = U[j, i]
for j in 0:n*2
  for i in 0:m
    Y[j, i] = T[i, j//2]
"""


WRONG = {
    "one row is not copied": (
        "for i in 0:m\n  for j in 0:n\n    T[i",
        "for i in 1:m\n  for j in 0:n\n    T[i",
    ),
    "another column is read": ("T[i, j] = U[j, i]", "T[i, j] = U[n - 1 - j, i]"),
    "it is read before it is copied": (
        "for i in 0:m\n  for j in 0:n\n    T[i, j] = U[j, i]\n",
        "for i in 0:m\n  for j in 0:n\n    T[i, j] = T[i, j] + U[j, i]\n",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_copy_that_is_not_whole_is_refused(case: str) -> None:
    old, new = WRONG[case]
    assert old in TURNED
    with pytest.raises(PartitionError):
        oc.prove_equal(oc.parse(SOURCE), oc.parse(TURNED.replace(old, new)))
