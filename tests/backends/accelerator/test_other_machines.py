"""Machines of other numbers: the same values, tokens that suffice, and what such a machine cannot do, in words."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from random import Random

import numpy as np
import pytest
from accelerators import bytes_of, convolution, dense, pooling, residual
from conftest import rejection, slow

import offcut as oc
from offcut import Kernel, Schedule, Target, Tensor
from offcut.backends.target import DEFAULT, TargetPlan
from offcut.costmodel import Accelerator
from tests.agree import nearly
from tests.backends.accelerator.machines import in_one_window, shipped
from tests.facade import Request, requested

PROGRAMS = {
    "dense": lambda: dense(70, 45),
    "convolution": convolution,
    "pooling": pooling,
    "residual": lambda: residual(40, 45),
}
UNITS = [
    (1, 16, 16),
    (1, 32, 8),
    (1, 8, 8),
    (2, 16, 8),
    (4, 8, 8),
    (1, 4, 4),
    (1, 64, 4),
    (3, 5, 7),
]
APART = {"load": ("inputs", "weights", "accumulators"), "compute": ("micro-ops",), "store": ()}


def machine(seed: int) -> Accelerator:
    """A shipped machine with a matrix unit, memories, queues and a bus of other numbers."""
    rng = Random(seed)
    base = shipped(rng.choice(["vta", "vta-osdi18", "gemmini"]))
    rows, columns, terms = rng.choice(UNITS)
    rate = float(rng.choice([64, 256, rows * columns * terms]))
    unit = replace(base.unit[0], rows=rows, columns=columns, terms=terms, multiply_adds=rate)
    scale = rng.choice([0.25, 0.5, 1, 2])
    memory = tuple(
        one if one.name == "micro-ops" else replace(one, bytes=int(one.bytes * scale))
        for one in base.memory
    )
    dram = replace(
        base.dram,
        bytes_per_cycle=float(rng.choice([2, 4, 8, 16, 32])),
        latency_cycles=float(rng.choice([0, 1, 16, 64, 200])),
        line=rng.choice([8, 16, 64]),
    )
    assert base.control is not None
    fetch = float(rng.choice([0, 1, 2, 8]))
    control = replace(base.control, tokens=rng.random() < 0.7, token_depth=8, fetch_cycles=fetch)
    apart = rng.random() < 0.3
    queue = tuple(
        replace(one, depth=rng.choice([64, 512]), loads=APART[one.name] if apart else one.loads)
        for one in base.queue
    )
    parts = {"unit": (unit,), "memory": memory, "dram": dram, "control": control, "queue": queue}
    return replace(base, name=f"machine{seed}", **parts)


@cache
def reference(name: str) -> Kernel:
    inputs, result = PROGRAMS[name]()
    return oc.compile(result, inputs=inputs)


def compiled(name: str, target: Target) -> tuple[list[Tensor], Kernel | None]:
    """The kernel of a program, or None where the machine cannot fill what lies around its windows."""
    inputs, result = PROGRAMS[name]()
    try:
        return inputs, oc.compile(result, inputs=inputs, target=target)
    except oc.TargetError as refused:
        if "has no token of that" not in refused.because:
            raise
        return inputs, None


def check(
    name: str, inputs: list[Tensor], kernel: Kernel, n: int, rng: np.random.Generator
) -> None:
    """Check that a kernel has the values that the CPU's has."""
    shapes = [[n if str(one) == "n" else int(str(one)) for one in t.shape] for t in inputs]
    arrays = [bytes_of(rng, tuple(shape)) for shape in shapes]
    np.testing.assert_array_equal(kernel(*arrays), reference(name)(*arrays))


@pytest.mark.parametrize("seed", [2, *map(slow, (0, 1, *range(3, 12)))])
def test_values_on_any_machine_are_those_of_another_target_and_cycles_those_that_are_said(
    seed: int,
) -> None:
    target = oc.target("accelerator", machine=machine(seed))
    rng = np.random.default_rng(seed)
    for name in list(PROGRAMS)[seed % 2 :: 2]:
        inputs, kernel = compiled(name, target)
        if kernel is None:
            continue
        for n in (0, 1, 5):
            check(name, inputs, kernel, n, rng)
            run = kernel.timeline(n=n)
            assert not run.races
            assert not run.unwritten
            assert not run.left
            if n:
                assert kernel.cost(n=n).cycles == nearly(run.cycles, rel=0.01)


@pytest.mark.parametrize(
    ("seed", "part"),
    [(9, 0), *(slow(seed, seed % 2) for seed in range(8))],
)
def test_windows_in_turn_are_hardly_ever_slower_than_the_same_tiles_in_one(
    seed: int, part: int
) -> None:
    target = oc.target("accelerator", machine=machine(seed))
    assert isinstance(target, Target)
    for program in list(PROGRAMS.values())[part::2]:
        inputs, result = program()
        request = requested(result, inputs, {}, "test")

        def cycles(planned: TargetPlan, n: int, request: Request = request) -> float:
            return target.simulated_seconds(planned, request, DEFAULT, {"n": n})

        def plan(schedule: Schedule | None, request: Request = request) -> TargetPlan:
            options = replace(DEFAULT, schedule=schedule)
            return next(target.policy(request.program, request.users, options))

        try:
            hidden = plan(None)
        except oc.TargetError:
            continue
        assert hidden.schedule is not None
        alone = plan(in_one_window(hidden.schedule))
        for n in (1, 2, 3, 5, 8):
            more = 100 / target.spec.hertz  # micro-ops for each window
            assert cycles(hidden, n) <= cycles(alone, n) + more


def test_padding_of_another_value_than_0_is_refused_where_compute_cannot_say_it_is_there() -> None:
    base = shipped("vta")
    queue = tuple(replace(one, loads=APART[one.name]) for one in base.queue)
    target = oc.target("accelerator", machine=replace(base, name="mine", queue=queue))
    inputs, result = pooling()
    with pytest.raises(oc.TargetError) as refused:
        oc.compile(result, inputs=inputs, target=target)
    assert refused.value.because == (
        "compute fills what lies around it with -128, and load, which brings accumulators, has no token of that"
    )


def narrow() -> Target:
    """VTA with room for one token, and for one instruction, in each queue."""
    base = shipped("vta")
    assert base.control is not None
    return oc.target(
        "accelerator",
        machine=replace(
            base,
            name="narrow",
            control=replace(base.control, token_depth=1),
            queue=tuple(replace(one, depth=1) for one in base.queue),
        ),
    )


@pytest.mark.parametrize("name", ["dense", slow("convolution")])
def test_where_tokens_have_no_room_the_policy_does_without_windows_in_turn(name: str) -> None:
    inputs, kernel = compiled(name, narrow())
    assert kernel is not None
    assert " depth " not in str(kernel.loops)
    rng = np.random.default_rng(5)
    for n in (0, 1, 2, 5):
        check(name, inputs, kernel, n, rng)


def test_windows_in_turn_without_room_for_their_tokens_are_refused_by_the_line() -> None:
    inputs, result = convolution()
    schedule = oc.compile(result, inputs=inputs, target="vta").schedule
    assert schedule is not None
    line = next(
        f"line {at}: {text.strip()}"
        for at, text in enumerate(str(schedule).splitlines(), 1)
        if " depth " in text
    )
    with rejection(f"""\
TokensError: compile: cannot run Y on narrow without a standstill
  at       {line}
  because  more tokens of compute for load have to lie in their queue at once than it has room for: token_depth is 1
  help     windows of less depth"""):
        oc.compile(result, inputs=inputs, schedule=schedule, target=narrow())
