"""Plans of the CPU in order of preference: where one is not proved, the next one is taken, and says why; one that is wrong ends it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

import offcut as oc
from offcut.backends.decide import changed_plans, first_proved
from offcut.backends.options import TargetPlan
from offcut.partition import MASK
from offcut.proof import UNDECIDED
from tests.facade import (
    Options,
    Unproved,
    computation,
    described_host,
    hooked,
    instead,
    loops_of,
    plan_of,
)

LATE = oc.PartitionError("prove", UNDECIDED, because="isl takes too long")
WHY = f"{UNDECIDED}: isl takes too long"
WRONG = oc.PartitionError("prove", "the emitted program is wrong", because="C[0] is 1, not 0")


def dense() -> oc.Program:
    n, k = oc.dim("n", max=400), oc.reduce_axis(24, name="k")
    a, w = oc.placeholder((n, 24), name="A"), oc.placeholder((24, 40), name="W")
    c = oc.compute((n, 40), lambda i, j: oc.sum(a[i, k] * w[k, j], axis=k), name="C")
    program: oc.Program = loops_of(computation(c))
    return program


def padded() -> oc.Program:
    h, w = oc.dim("h", min=1, max=64), oc.dim("w", min=1, max=64)
    x, f = oc.placeholder((h, w, 16), "int8", name="X"), oc.placeholder((3, 3, 16, 32), "int8")
    r, s, c = (oc.reduce_axis(size, name=name) for size, name in ((3, "r"), (3, "s"), (16, "c")))

    def element(i: Any, j: Any, o: Any) -> Any:
        inside = (i + r >= 1) & (i + r <= h) & (j + s >= 1) & (j + s <= w)
        read = oc.where(inside, x[i + r - 1, j + s - 1, c], oc.cast(0, "int8"))
        return oc.sum(oc.cast(read, "int32") * oc.cast(f[r, s, c, o], "int32"), axis=[r, s, c])

    program: oc.Program = loops_of(computation(oc.compute((h, w, 32), element, name="Y")))
    return program


def softmax() -> oc.Program:
    m, n = oc.dim("m", max=77), oc.dim("n", min=1, max=90)
    program: oc.Program = loops_of(computation(oc.ops.softmax(oc.placeholder((m, n), name="X"))))
    return program


RECURRENCE = """program recurrence
size n in 0:200
input P: float32[4, n, 24]
input U: float32[24, 24]
output H: float32[n, 24]
local G: float32[n, 24]
for i in 0:n
  for j in 0:24
    H[i, j] = 0.0
for t in 0:4
  for i in 0:n
    for j in 0:24
      G[i, j] = P[t, i, j]
      for k in 0:24
        G[i, j] += H[i, k] * U[k, j]
  for i in 0:n
    for j in 0:24
      H[i, j] = G[i, j] * 0.5
"""


def recurrence() -> oc.Program:
    return oc.parse(RECURRENCE)


def refusing(
    plans: int, error: oc.PartitionError, step: int = 1
) -> Callable[[Sequence[oc.Program], bool], Unproved | None]:
    """Return a proof that refuses the first `plans` plans, each at a step."""
    left, real = [error] * plans, hooked("prove")

    def proved(steps: Sequence[oc.Program], reassociate: bool) -> Unproved | None:
        unproved: Unproved | None = Unproved(step, left.pop()) if left else real(steps, reassociate)
        return unproved

    return proved


AS_IT_STANDS = (
    "its loops stay as they are: isl takes too long to tell that they may run as lanes",
)


@pytest.mark.parametrize(
    ("program", "plans", "notes"),
    [
        (dense, 2, (f"no nest is cut: {WHY}", f"no sum runs by a microkernel: {WHY}")),
        (dense, 3, AS_IT_STANDS),
        (padded, 1, (f"products with padding stay: {WHY}",)),
        (padded, 2, (f"products with padding stay: {WHY}", f"no sum runs by a microkernel: {WHY}")),
        (softmax, 1, (f"no blocks of shared loops: {WHY}",)),
        (softmax, 3, AS_IT_STANDS),
        (recurrence, 1, (f"no nest is cut: {WHY}",)),
        (recurrence, 2, (f"no nest is cut: {WHY}", *AS_IT_STANDS)),
    ],
)
def test_the_next_plan_is_taken_and_says_what_the_one_before_lacks(
    program: Callable[[], oc.Program], plans: int, notes: tuple[str, ...]
) -> None:
    with instead("prove", refusing(plans, LATE)):
        made = plan_of(program())
    for note in notes:
        assert note in "\n".join(made.notes)
    assert hooked("prove")((program(), *made.through, made.program), True) is None


def test_what_is_not_shown_to_be_a_computation_runs_in_its_own_loops() -> None:
    with instead("prove", refusing(1, LATE, step=0)):
        made = plan_of(dense())
    assert made.applied is None


def test_loops_that_threads_share_come_last() -> None:
    host = replace(described_host(), threads=2)
    assert "@thread" in str(plan_of(dense(), host).program)
    with instead("prove", refusing(1, LATE)):
        made = plan_of(dense(), host)
    assert "@thread" in str(made.program)
    assert "@thread" not in str(made.through[-1])
    assert made.applied is not None


@pytest.mark.parametrize("plans", [1, 2])
def test_a_plan_that_is_wrong_ends_it(plans: int) -> None:
    errors = [LATE] * (plans - 1) + [WRONG]

    def proved(*_: object) -> Unproved:
        return Unproved(1, errors.pop(0))

    with instead("prove", proved), pytest.raises(oc.PartitionError, match="is wrong"):
        plan_of(padded())


def test_a_strategy_leaves_no_other_loops() -> None:
    with (
        instead("prove", refusing(9, LATE)),
        pytest.raises(oc.PartitionError, match="isl takes too long"),
    ):
        plan_of(dense(), None, Options(MASK))


def test_a_policy_hears_why_a_plan_is_not_taken_also_behind_another_one() -> None:
    heard: list[Unproved] = []

    def policy() -> Iterator[TargetPlan]:
        for _ in range(3):
            heard.append((yield TargetPlan(dense())))

    def proved(plan: TargetPlan) -> TargetPlan | Unproved:
        return plan if plan.notes == ("third",) else Unproved(len(heard), LATE)

    def third(plan: TargetPlan) -> TargetPlan:
        return replace(plan, notes=("third",)) if len(heard) == 2 else plan

    plans = changed_plans(policy(), third)  # type: ignore[arg-type]
    plan = first_proved(next(plans), plans, proved)
    assert plan.notes == ("third",)
    assert [one.step for one in heard] == [0, 1]
    untold = list(changed_plans(policy(), third))  # type: ignore[arg-type]
    assert len(untold) == 3
    assert [one.is_undecided for one in heard[2:]] == [True] * 3
