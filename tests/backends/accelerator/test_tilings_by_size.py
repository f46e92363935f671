"""Tilings that are chosen by size on machines of queues: points of the space, of which a call takes the one with the fewest cycles."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from random import Random
from typing import Any

import accelerators
import numpy as np
import pytest
from conftest import slow

import offcut as oc
from offcut import Tensor
from offcut.backends import decide
from offcut.backends.accelerator.executor import AcceleratorExecutor
from offcut.backends.accelerator.lowering.queues import TokensError
from offcut.backends.accelerator.planning import deadlock_fallback
from offcut.backends.accelerator.planning.elementary import Operations
from offcut.backends.accelerator.planning.planner import (
    GroupDecisions,
    nest_extents,
    prepare_computation,
    stage_groups,
    tilings_at,
)
from offcut.backends.accelerator.planning.roles import typical_sizes
from offcut.backends.accelerator.planning.tilings import WALKED, Tiling, Tilings, sizes_of
from offcut.backends.accelerator.spec import AcceleratorSpec
from offcut.backends.accelerator.target import Accelerator
from offcut.backends.options import TargetPlan
from offcut.backends.target import DEFAULT
from offcut.backends.verify import Unproved
from offcut.schedule import Choose, Schedule
from offcut.search import ScheduleSpace
from tests.agree import nearly
from tests.facade import Request, requested

SIZES = (0, 1, 15, 16, 17, 48, 53)
DEPTH = COLUMNS = 200
WEIGHTS = np.random.default_rng(3).integers(-128, 128, (DEPTH, COLUMNS)).astype(np.int8)


def layer(rows: int | None = None, depth: int = DEPTH) -> tuple[oc.Tensor, list[oc.Tensor]]:
    """A dense layer of open rows, or of so many."""
    n = oc.dim("n", min=0, max=512) if rows is None else rows
    a = oc.placeholder((n, depth), "int8", name="A")
    w = oc.placeholder((depth, COLUMNS), "int8", name="W")
    return oc.ops.requantize(oc.ops.dense(a, w, name="S"), 6, name="Y"), [a, w]


@cache
def kernel() -> Any:
    result, inputs = layer()
    return oc.compile(result, inputs=inputs, target="vta")


def options() -> tuple[Schedule, ...]:
    """Return each option of the policy's schedule, which is one choice."""
    (step,) = kernel().schedule.steps
    assert isinstance(step, Choose)
    return tuple(Schedule(kernel().schedule.name, option.steps) for option in step.options)


@cache
def alone() -> tuple[Any, ...]:
    """Return a kernel of each option."""
    result, inputs = layer()
    return tuple(oc.compile(result, inputs=inputs, target="vta", schedule=one) for one in options())


def machine() -> Accelerator:
    target = oc.target("vta")
    assert isinstance(target, Accelerator)
    return target


@cache
def space() -> ScheduleSpace:
    request = requested(*layer(), {}, "test")
    planned = next(iter(machine().policy(request.program, request.users, DEFAULT)))
    whole = machine().space(planned, request, DEFAULT, 1)
    assert isinstance(whole, ScheduleSpace)
    return whole


def test_open_rows_have_several_tilings_that_are_read_back() -> None:
    (step,) = kernel().schedule.steps
    assert [option.label for option in step.options] == ["chip_1", "chip_2"]
    assert Schedule.parse(str(kernel().schedule)) == kernel().schedule


@pytest.mark.parametrize("n", [1, 7, 16, 37, 64, 200])
def test_plan_cost_and_call_agree_on_the_option_with_the_fewest_cycles(n: int) -> None:
    cycles = [one.timeline(n=n).cycles for one in alone()]
    plan, best = kernel().plan(n=n), cycles.index(min(cycles))
    assert kernel().timeline(n=n).cycles == kernel().cost(n=n).cycles == min(cycles)
    assert plan.notes == (f"Y runs as chip_{best + 1}",)
    assert [one.chosen for one in plan.considered] == [at == best for at in range(len(cycles))]
    assert plan.seconds == nearly(kernel().cost(n=n).seconds)


def test_each_option_is_the_best_one_somewhere() -> None:
    taken = {kernel().plan(n=n).notes for n in (16, 64)}
    assert taken == {("Y runs as chip_1",), ("Y runs as chip_2",)}


def test_each_option_gives_the_integers_of_numpy() -> None:
    x = np.random.default_rng(4).integers(-128, 128, (max(SIZES), DEPTH)).astype(np.int8)
    exact = (x.astype(np.int64) @ WEIGHTS.astype(np.int64)) >> 6
    for n in SIZES:
        for one in (kernel(), *alone()):
            np.testing.assert_array_equal(one(x[:n], WEIGHTS), exact[:n].clip(-128, 127))


def test_one_size_and_a_strategy_that_is_asked_for_have_no_choice() -> None:
    result, inputs = layer(130)
    single = oc.compile(result, inputs=inputs, target="vta")
    assert not any(isinstance(step, Choose) for step in single.schedule.steps)
    result, inputs = layer()
    masked = oc.compile(result, inputs=inputs, target="vta", strategy="mask")
    assert not any(isinstance(step, Choose) for step in masked.schedule.steps)


def test_options_are_points_of_the_space_together_and_alone() -> None:
    whole, rng = space(), Random(0)
    assert whole.first == kernel().schedule
    assert whole.first in whole
    assert all(one in whole for one in options())
    near = whole.neighbours(whole.first)
    assert len(near) >= 4
    assert all(one in whole for one in near)
    assert all(whole.sample(rng) in whole for _ in range(8))


def plans_where(refused: str) -> Iterator[Schedule]:
    """Yield the schedules of the policy if no plan is proved whose text has a word, then the one that is taken."""
    request = requested(*layer(), {}, "test")
    plans = iter(machine().policy(request.program, request.users, DEFAULT))

    def outcome(plan: Any) -> Any:
        tried.append(plan.schedule)
        error = oc.PartitionError("prove", "cannot", because="of the test")
        return Unproved(0, error) if refused in str(plan.schedule) else plan

    tried: list[Schedule] = []
    taken = decide.first_proved(next(plans), plans, outcome)
    yield from (*tried, taken.schedule)


@pytest.mark.parametrize("number", [0, slow(1)])
def test_an_option_whose_proof_fails_is_left_out(number: int) -> None:
    own, other = (set(str(one).splitlines()) for one in (options()[number], options()[1 - number]))
    (line, *_) = sorted(own - other)
    if number == 0:  # the one that is taken alone: there is no other plan, as before
        with pytest.raises(oc.PartitionError, match="cannot"):
            list(plans_where(line))
        return
    tried = list(plans_where(line))
    assert tried == [kernel().schedule, options()[0], options()[0]]


def test_options_that_could_come_to_a_standstill_leave_the_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def annotated(plan: TargetPlan, spec: AcceleratorSpec) -> TargetPlan:
        assert plan.schedule is not None
        if any(isinstance(step, Choose) for step in plan.schedule.steps):
            raise TokensError("compile", "cannot", because="of the test")
        return plan

    monkeypatch.setattr(deadlock_fallback, "annotated_plan", annotated)
    request = requested(*layer(), {}, "test")
    plan = next(iter(machine().policy(request.program, request.users, DEFAULT)))
    assert plan.schedule == options()[0]


# What the policy says of tilings, against the simulator: turn by turn, and by the clock.


MACHINES = ("vta", "gemmini")
Described = tuple[list[Tensor], Tensor]


def wide_pooling() -> Described:
    """Windows of 3×3, every second, of images of 28×28: the first row and column of tiles lie over a border."""
    x = oc.placeholder((1, 28, 28, 64), "int8", name="X")
    return [x], oc.ops.max_pool2d(x, 3, 2, 1, layout="NHWC", name="Y")


PROGRAMS = {
    "dense": lambda: accelerators.dense(128, 512, most=512),
    "residual": lambda: accelerators.residual(256, 256, most=512),
    "pooling": wide_pooling,
    "convolution": lambda: accelerators.convolution(64),
}


@dataclass(frozen=True)
class Nest:
    """The one nest of a program on a machine, with its tilings at typical sizes."""

    target: Accelerator
    request: Request
    deciding: GroupDecisions
    made: Operations
    tilings: Tilings

    def simulated(self, tiling: Tiling) -> float:
        schedule = Schedule(
            self.request.program.name, self.deciding.tiling_decisions(self.made, tiling)
        )
        options = replace(DEFAULT, schedule=schedule)
        program, users = self.request.program, self.request.users
        planned = next(self.target.policy(program, users, options))
        sizes = typical_sizes(planned.program)
        return AcceleratorExecutor(planned.program, self.target.spec).timeline(sizes).cycles


@cache
def nest(kind: str, machine: str) -> Nest:
    target = oc.target(machine)
    assert isinstance(target, Accelerator)
    inputs, output = PROGRAMS[kind]()
    request = requested(output, inputs, {}, "test")
    computation = prepare_computation(target.arrays(request.program))[-1]
    ((one, ((_, made), *_)),) = stage_groups(request.program, computation, target.spec)
    sizes = sizes_of(made, target.spec, nest_extents(one.program, made))
    at = typical_sizes(one.program)
    return Nest(target, request, one, made, tilings_at(one.program, made, target.spec, sizes, at))


@pytest.mark.every(2)
@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("kind", PROGRAMS)
def test_turn_by_turn_a_tiling_takes_what_the_simulator_says(kind: str, machine: str) -> None:
    known = nest(kind, machine)
    for tiling in known.tilings.nearest(2)[::8]:
        assert known.tilings.exact_cycles(tiling) == nearly(known.simulated(tiling), rel=0.02)


@pytest.mark.every(2)
@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("kind", PROGRAMS)
def test_the_clock_ranks_the_tilings_that_are_good_turn_by_turn_first(
    kind: str, machine: str
) -> None:
    tilings = nest(kind, machine).tilings
    few, many = (tilings.nearest(2, most) for most in (WALKED, 20 * WALKED))
    best = min(map(tilings.exact_cycles, few))
    assert all(best <= 1.01 * tilings.exact_cycles(tiling) for tiling in many[WALKED:][::7])
