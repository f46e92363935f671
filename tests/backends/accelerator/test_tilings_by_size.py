"""Tilings that are chosen by size on machines of queues: options with costs in the size, and what a call takes."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

import offcut as oc
from offcut.backends.accelerator.target import Accelerator
from offcut.backends.compile_request import make_request
from offcut.backends.options import DEFAULT
from offcut.core.interpret.values import evaluate
from offcut.schedule.decisions import Choose
from tests.agree import nearly

SIZES = (0, 1, 10, 11, 12, 63, 64, 130)


def layer(rows: int | None = None) -> tuple[list[oc.Tensor], oc.Tensor]:
    n = oc.dim("n", min=0, max=512) if rows is None else rows
    a, w = oc.placeholder((n, 64), "int8", name="A"), oc.placeholder((64, 64), "int8", name="W")
    sums = oc.ops.dense(a, w, name="S")
    return [a, w], oc.ops.requantize(sums, 6, name="Y")


@cache
def kernel() -> Any:
    inputs, result = layer()
    return oc.compile(result, inputs=inputs, target="vta")


def choice() -> Choose:
    (step,) = kernel().schedule.steps
    assert isinstance(step, Choose)
    return step


def test_options_have_costs_in_the_size_and_are_read_back() -> None:
    assert len(choice().options) >= 2
    assert all(option.cost is not None for option in choice().options)
    assert oc.Schedule.parse(str(kernel().schedule)) == kernel().schedule
    note = kernel().plan(n=1).notes[0]
    assert note.startswith(f"Y: {len(choice().options)} of ")
    assert "longer than the best of all" in note


@pytest.mark.parametrize("n", [n for n in SIZES if n])
def test_a_call_takes_the_option_that_costs_least(n: int) -> None:
    costs = [float(evaluate(option.cost, {"n": n})) for option in choice().options]  # type: ignore[arg-type]
    plan = kernel().plan(n=n)
    chosen = [one.chosen for one in plan.considered]
    assert chosen.index(True) == costs.index(min(costs))
    assert plan.notes[-1] == f"Y runs as {choice().options[chosen.index(True)].label}"
    for one, cost in zip(plan.considered, costs, strict=True):
        assert cost == nearly(one.seconds, rel=0.02)
    assert plan.seconds == nearly(kernel().cost(n=n).seconds)
    assert plan.seconds <= 1.02 * min(one.seconds for one in plan.considered)
    assert kernel().timeline(n=n).cycles == nearly(kernel().cost(n=n).cycles)


def test_each_option_gives_the_integers_of_numpy() -> None:
    rng = np.random.default_rng(3)
    inputs, result = layer()
    w = rng.integers(-128, 128, (64, 64)).astype(np.int8)
    x = rng.integers(-128, 128, (max(SIZES), 64)).astype(np.int8)
    exact = np.clip((x.astype(np.int64) @ w.astype(np.int64)) >> 6, -128, 127).astype(np.int8)
    alone = [
        oc.compile(
            result,
            inputs=inputs,
            target="vta",
            schedule=oc.Schedule(kernel().schedule.name, option.steps),
        )
        for option in choice().options
    ]
    for n in SIZES:
        for one in (kernel(), *alone):
            np.testing.assert_array_equal(one(x[:n], w), exact[:n])


def test_one_size_has_no_choice() -> None:
    inputs, result = layer(130)
    single = oc.compile(result, inputs=inputs, target="vta")
    assert not any(isinstance(step, Choose) for step in single.schedule.steps)


def test_a_step_of_a_search_begins_at_the_options() -> None:
    _, result = layer()
    target = oc.target("vta")
    assert isinstance(target, Accelerator)
    request = make_request(result, None, {}, "test")
    planned = next(iter(target.policy(request.program, request.users, DEFAULT)))
    space = target.space(planned, request, DEFAULT, 1)
    assert space.first == planned.schedule
    assert space.first in space
    assert len(space.neighbours(space.first)) >= 2
