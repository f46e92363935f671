"""Plans of the CPU in order of preference: where one is not proved, the next one is taken, and says why; one that is wrong ends it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from conftest import rejection, slow

import offcut as oc
from offcut.backends import generic
from offcut.backends.decide import changed_plans, first_proved
from offcut.backends.options import TargetPlan
from offcut.backends.target import Target, python_callable
from offcut.describe.microkernel import Microkernel
from offcut.describe.tile_shapes import Place, TileShape
from offcut.ir import Kind
from offcut.partition import MASK
from offcut.proof import UNDECIDED
from tests.facade import (
    STRATEGIES,
    Options,
    Unproved,
    computation,
    described_host,
    hooked,
    instead,
    load_machine,
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
        (padded, 2, (f"products with padding stay: {WHY}", f"no sum runs by a microkernel: {WHY}")),
        (softmax, 1, (f"no blocks of shared loops: {WHY}",)),
        (softmax, 3, AS_IT_STANDS),
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


def test_loops_that_threads_share_come_last() -> None:
    host = replace(described_host(), threads=2)
    assert "@thread" in str(plan_of(dense(), host).program)
    with instead("prove", refusing(1, LATE, step=0)):
        assert plan_of(dense()).applied is None  # not shown to be a computation: its own loops
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


# A target that says nothing of a policy: what offcut decides for it from the declarations of its microkernels.


n = oc.dim("n", max=40)
X, W = oc.placeholder((n, 6), name="X"), oc.placeholder((6, 10), name="W")
k = oc.reduce_axis(6, name="k")
D = oc.compute((n, 10), lambda i, j: oc.sum(X[i, k] * W[k, j], axis=k), name="D")
R = oc.compute((n, 10), lambda i, j: oc.maximum(D[i, j] + 1.0, 0.0), name="R")


def unit(**memories: str) -> Microkernel:
    """A unit that adds products of up to 4 by 4; where its operands lie."""
    i, j, p = oc.dim("i", min=1, max=4), oc.dim("j", min=1, max=4), oc.dim("p")
    A, B = oc.placeholder((i, p), name="A"), oc.placeholder((p, j), name="B")
    q = oc.reduce_axis(p, name="q")
    product = oc.compute((i, j), lambda i, j: oc.sum(A[i, q] * B[q, j], axis=q), name="C")
    tiles = tuple(TileShape((h, w), 1.0, 4.0) for h in (1, 2, 3, 4) for w in (1, 2, 3, 4))
    places = {operand: Place(memories=(name,)) for operand, name in memories.items()}
    return Microkernel("unit4", product, tiles, operands=places, unit="matrix")


class Machine(Target):
    """Runs programs by the interpreter."""

    name = "machine4"
    machine = load_machine("cascade-lake")

    def __init__(self, kernel: Microkernel) -> None:
        self.kernel = kernel

    def microkernels(self, options: Any = None) -> tuple[Microkernel, ...]:
        return (self.kernel,)

    def lower(self, planned: Any, signature: Any, options: Any) -> bytes:
        return str(planned.program).encode()

    def load(self, lowered: bytes, signature: Any, options: Any) -> Any:
        program = oc.parse(lowered.decode())
        taken = [b.name for b in program.buffers if b.kind is Kind.INPUT]
        names = [size.name for size in program.sizes]

        def bound(constants: Any) -> Callable[..., Any]:
            def call(inputs: Any, sizes: Any) -> list[Any]:
                arrays = {**dict(zip(taken, inputs, strict=True)), **constants}
                return [program.run(arrays, **dict(zip(names, sizes.values(), strict=True)))]

            return python_callable(signature, call)

        return bound


PLACES: dict[str, dict[str, str]] = {
    "anywhere": {},
    "operands": {"A": "pad", "B": "pad"},
    "operands and sums": {"A": "inputs", "B": "weights", "C": "sums"},
}


def is_right(kernel: Any, result: str, sizes: tuple[int, ...] = (0, 1, 3, 4, 5, 12, 17)) -> bool:
    rng = np.random.default_rng(0)
    w = rng.integers(-8, 8, (6, 10)).astype("float32")
    for rows in sizes:
        x = rng.integers(-8, 8, (rows, 6)).astype("float32")
        exact = x.astype("float64") @ w
        exact = np.maximum(exact + 1, 0) if result == "R" else exact
        if not np.array_equal(kernel(x, w), exact):
            return False
    return True


@pytest.mark.parametrize(
    ("places", "result"),
    [("anywhere", "D"), ("operands", "R"), ("operands and sums", "R"), slow("operands", "D")],
)
def test_what_a_microkernel_computes_is_staged_where_it_says_and_covered(
    places: str, result: str
) -> None:
    target = Machine(unit(**PLACES[places]))
    made = {"D": D, "R": R}[result]
    kernel = oc.compile(made, inputs=[X, W], target=target)
    text = kernel.source()
    assert "@cover(unit4; i=" in text
    for memory in PLACES[places].values():
        assert f"@scope({memory})" in text or f" in {memory}" in text
    assert is_right(kernel, result)
    assert oc.Schedule.parse(str(kernel.schedule)) == kernel.schedule
    again = oc.compile(made, inputs=[X, W], target=target, schedule=kernel.schedule)
    assert again.schedule == kernel.schedule
    assert is_right(again, result)


NAMES = [str(one) for one in STRATEGIES if str(one) != "exact"]


@pytest.mark.every(6)
@pytest.mark.parametrize(
    ("places", "name"), [([*PLACES][number % 3], name) for number, name in enumerate(NAMES)]
)
def test_every_strategy_is_taken(places: str, name: str) -> None:
    target = Machine(unit(**PLACES[places]))
    kernel = oc.compile(R, inputs=[X, W], target=target, strategy=name)
    assert f" {name} 4 as i_tile i_in" in str(kernel.schedule)
    assert is_right(kernel, "R")


def test_a_strategy_of_a_program_that_no_microkernel_computes_is_refused() -> None:
    doubled = oc.compute((n, 6), lambda i, j: X[i, j] * 2.0, name="E")
    with rejection(
        "PartitionError: compile: cannot take strategy=mask with E\n"
        "  because  no microkernel computes a part of it\n"
        "  help     oc.compile(oc.partition(program, tile={…}, tail={…}, target=target).loops, target=target)"
    ):
        oc.compile(doubled, inputs=[X], target=Machine(unit()), strategy="mask")


@pytest.mark.parametrize("places", ["operands and sums", slow("anywhere")])
def test_sums_over_more_than_the_microkernel_sums_over_are_added_to_around_its_tiles(
    places: str,
) -> None:
    x, f = oc.placeholder((n + 2, 6), name="X"), oc.placeholder((3, 6, 10), name="F")
    r, c = oc.reduce_axis(3, name="r"), oc.reduce_axis(6, name="c")
    y = oc.compute((n, 10), lambda i, j: oc.sum(x[i + r, c] * f[r, c, j], axis=[r, c]), name="Y")
    kernel = oc.compile(
        y, inputs=[x, f], target=Machine(unit(**PLACES[places])), strategy="balance"
    )
    assert "unit4" in {piece.microkernel for piece in kernel.cost(n=9).pieces}
    rng = np.random.default_rng(0)
    weights = rng.integers(-8, 8, (3, 6, 10)).astype("float32")
    for rows in (0, 1, 4, 9):
        values = rng.integers(-8, 8, (rows + 2, 6)).astype("float32")
        expected = sum(values[at : at + rows] @ weights[at] for at in range(3))
        np.testing.assert_array_equal(kernel(values, weights), expected)


def test_a_program_that_runs_as_it_stands_says_what_its_plans_were_refused_for() -> None:
    class Nothing(Machine):
        def policy(self, program: Any, users: Any, options: Any) -> Any:
            def refusing(plan: TargetPlan) -> TargetPlan:
                if plan.schedule is None:
                    return plan
                raise oc.PartitionError("place", "cannot place windows", because="there is no room")

            return generic.policy(self, program, users, options, complete=refusing)

    kernel = oc.compile(D, inputs=[X, W], target=Nothing(unit()))
    assert kernel.plan(n=3).notes[0] == (
        "runs as it stands: cannot place windows: there is no room"
    )
