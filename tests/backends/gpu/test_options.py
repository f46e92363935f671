"""Tiles of blocks that are chosen by size: options of one choice, each proved, priced by the one cost, and equal to the bit."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import pairwise

import ml_dtypes
import numpy as np
import pytest
from conftest import slow
from on_cpu import COMPILER, run_text

import offcut as oc
from offcut.backends.compile_request import make_request
from offcut.backends.gpu.policy import GridPlans
from offcut.backends.gpu.product_kinds import kind_of
from offcut.backends.gpu.text.kernels import cuda_kernels
from offcut.backends.gpu.units import AGENTS
from offcut.backends.options import DEFAULT
from offcut.backends.raising import unfuse_stages
from offcut.costmodel.arrays import Calls
from offcut.costmodel.grid import grid_cost, option_cost
from offcut.ir import Choose, For, Sync
from offcut.polyhedral.sync import check, synchronized
from offcut.schedule import Schedule, create_schedule
from offcut.schedule.decisions import Choose as ChooseStep
from offcut.schedule.decisions import Level
from tests.agree import nearly

THERE = oc.target("cuda", machine="h200", device="emulated")
SIZES = [0, 1, 31, 33, 64, 65, 131]


def dense(depth: int = 768, columns: int = 3072, rows: int | None = None) -> list[oc.Tensor]:
    """A product of open rows, or of so many."""
    n = oc.dim("n", min=0, max=4096) if rows is None else rows
    a = oc.placeholder((n, depth), "bfloat16", name="A")
    w = oc.placeholder((depth, columns), "bfloat16", name="W")
    k = oc.reduce_axis(depth, name="k")

    def term(i: object, j: object) -> object:
        return oc.sum(a[i, k].astype("float32") * w[k, j].astype("float32"), axis=k)

    s = oc.compute((n, columns), term, name="S")
    return [oc.compute((n, columns), lambda i, j: s[i, j].astype("bfloat16"), name="C"), a, w]


@cache
def kernel() -> oc.Kernel:
    output, *inputs = dense()
    return oc.compile(output, inputs=inputs, target=THERE)


def options(schedule: Schedule) -> tuple[Schedule, ...]:
    """Return each option of a schedule that is one choice."""
    (step,) = schedule.steps
    assert isinstance(step, ChooseStep)
    return tuple(Schedule(schedule.name, one.steps) for one in step.options)


def plans_of(output: oc.Tensor) -> GridPlans:
    request = make_request(output, None, {}, "test")
    plans = GridPlans.of(THERE, request.program, request.users, DEFAULT)
    assert plans is not None
    return plans


def shapes(plans: GridPlans) -> tuple[tuple[int, int], ...]:
    """Return the rows and columns of blocks that compete."""
    return kind_of(plans.covered[0].kernel).tiles


def cuts(plans: GridPlans, shape: tuple[int, int]) -> dict[tuple[str, str], Level]:
    """Return the tiles of a block of such rows and columns."""
    return {at: Level(tile, plans.tails[0]) for at, tile in plans.tiles([shape]).items()}


@cache
def alone() -> tuple[oc.Kernel, ...]:
    """Return a kernel of each option."""
    output, *inputs = dense()
    return tuple(
        oc.compile(output, inputs=inputs, target=THERE, schedule=one)
        for one in options(kernel().schedule)
    )


def test_open_rows_have_several_tiles_and_say_what_they_lose() -> None:
    schedule = kernel().schedule
    assert len(options(schedule)) == 2
    assert Schedule.parse(str(schedule)) == schedule
    (note,) = (one for one in kernel().plan(n=1).notes if "tilings" in one)
    assert note.startswith("2 of 4 tilings, by size: at most ")
    assert note.endswith("of 512 calls")


def test_one_size_has_one_tile_the_one_that_costs_least() -> None:
    output, *inputs = dense(64, 512, rows=2048)
    single = oc.compile(output, inputs=inputs, target=THERE)
    assert not any(isinstance(step, ChooseStep) for step in single.schedule.steps)
    plans = plans_of(output)
    costs = []
    for shape in shapes(plans):
        schedule = plans.schedule(cuts(plans, shape))
        one = oc.compile(output, inputs=inputs, target=THERE, schedule=schedule)
        costs.append(one.cost().seconds)
    assert single.cost().seconds == nearly(min(costs))


@pytest.mark.parametrize("n", [1, 40, 300, 1024, 4096])
def test_a_plan_says_what_each_option_costs_and_a_call_costs_what_the_cheapest_does(n: int) -> None:
    plan, cost = kernel().plan(n=n), kernel().cost(n=n)
    chosen = [one for one in plan.considered if one.chosen]
    assert len(plan.considered) == 2
    assert len(chosen) == 1
    assert chosen[0].seconds == min(one.seconds for one in plan.considered)
    assert plan.seconds == nearly(cost.seconds)
    for one, own in zip(plan.considered, alone(), strict=True):
        assert one.seconds + plan.beside == nearly(own.cost(n=n).seconds)


@pytest.mark.parametrize("step", [3, slow(1)])
def test_tiles_give_the_same_bits(step: int) -> None:
    rng = np.random.default_rng(0)
    output, *inputs = dense(40, 136)
    plans = plans_of(output)
    kernels = [
        oc.compile(output, inputs=inputs, target=THERE, schedule=plans.schedule(cuts(plans, shape)))
        for shape in shapes(plans)[::step]
    ]
    assert len(kernels) > 1
    w = rng.standard_normal((40, 136)).astype(ml_dtypes.bfloat16)
    x = rng.standard_normal((max(SIZES), 40)).astype(ml_dtypes.bfloat16)
    exact = x.astype("float64") @ w.astype("float64")
    terms = np.abs(x.astype("float64")) @ np.abs(w.astype("float64"))
    whole = np.asarray(kernels[0](x, w))
    assert (np.abs(whole.astype("float64") - exact) <= (2.0**-8 + 45 * 2.0**-23) * terms).all()
    for n in (1, 33, 65):
        for one in kernels:
            np.testing.assert_array_equal(np.asarray(one(x[:n], w)), whole[:n])


def test_tokens_of_options_have_names_of_their_own_and_each_is_needed() -> None:
    program = kernel().loops
    (choice,) = program.body
    assert isinstance(choice, Choose)
    assert len({token.name for token in program.tokens}) == len(program.tokens)
    check(program, AGENTS)
    assert synchronized(program, AGENTS) == program
    tokens = {token.name for token in program.tokens}
    names = [
        tokens & {s.name for s in oc.ir.walk(one.body) if isinstance(s, Sync)}
        for one in choice.options
    ]
    assert not any(a & b for a, b in pairwise(names))


def test_an_option_without_a_wait_is_refused() -> None:
    program = kernel().loops
    (choice,) = program.body
    assert isinstance(choice, Choose)
    text = str(program)
    name = program.tokens[-1].name
    lines = [line for line in text.splitlines() if line.strip() != f"wait {name}"]
    assert len(lines) < len(text.splitlines())
    with pytest.raises(oc.PartitionError, match="sync"):
        check(oc.parse("\n".join(lines)), AGENTS)


def test_no_call_is_predicted_slower_than_by_the_default_tile_alone() -> None:
    output, *_ = dense()
    plans = plans_of(output)
    before = unfuse_stages(plans.computation)
    by_hand = create_schedule(before).with_microkernels(plans.kernels)
    default = by_hand.apply(plans.schedule(cuts(plans, shapes(plans)[0]))).emitted
    every = Calls({"n": np.arange(1, 4097)}, 4096)
    alone = every.of(option_cost(default, THERE.machine, THERE.microkernels()))
    (step,) = kernel().schedule.steps
    assert isinstance(step, ChooseStep)
    fastest = np.min([every.of(option.cost) for option in step.options if option.cost], axis=0)
    assert (fastest <= alone * (1 + 1e-9)).all()
    assert (fastest < alone / 2).any()


NESTED = """program P
size n in 0:4096
input X: float32[n, 64]
output Y: float32[n, 64]
for b in 0:(n + 31)//32  @block
  choose
    option one costs 1e-09 * float64(n)
      for w in 0:1  @warp
        for r in 0:min(32, n - 32*b)
          for j in 0:64
            Y[32*b + r, j] = X[32*b + r, j] + 1.0
    option four costs 1e-07
      for w in 0:4  @warp
        for r in 0:8
          if 32*b + 8*w + r < n
            for j in 0:64
              Y[32*b + 8*w + r, j] = X[32*b + 8*w + r, j] + 1.0
"""


@pytest.mark.parametrize("n", [1, 99, 101, 4000])
def test_a_choice_inside_of_a_launch_costs_what_the_option_does_that_runs(n: int) -> None:
    program = oc.parse(NESTED)
    (loop,) = program.body
    assert isinstance(loop, For)
    (choice,) = loop.body
    assert isinstance(choice, Choose)
    taken = choice.options[0 if 1e-9 * n <= 1e-7 else 1]
    without = replace(program, body=(replace(loop, body=taken.body),))
    costs = [
        grid_cost(program, one, THERE.machine, THERE.microkernels(), {"n": n}, {"n": n})
        for one in (program, without)
    ]
    assert costs[0].pieces[0].resources["lanes"] == nearly(costs[1].pieces[0].resources["lanes"])
    assert costs[0].pieces[0].bytes == costs[1].pieces[0].bytes


@pytest.mark.parametrize("n", [0, 1, 64, 700, 1500, 4000])
def test_a_launch_is_of_the_option_that_the_plan_says(n: int) -> None:
    _, plan = cuda_kernels(kernel().loops)
    grids = plan.grids({"n": n})
    chosen = [one.chosen for one in kernel().plan(n=n).considered]
    assert [grid != (0, 0, 0) for grid in grids] == chosen
    again = type(plan).from_json(plan.to_json())
    assert again.grids({"n": n}) == grids


@pytest.mark.skipif(COMPILER is None, reason="no C++ compiler")
@pytest.mark.parametrize("cost", ["0.0", slow("1.0")])
def test_the_text_of_the_option_that_is_taken_is_right(cost: str) -> None:
    output, *inputs = dense(24, 100)
    first = oc.compile(output, inputs=inputs, target=THERE, strategy={"i": "guard"})
    _, *lines = str(first.schedule).splitlines()
    other = [line.replace("split C.j guard 256 as", "split C.j guard 64 as") for line in lines]
    text = [f"schedule {first.schedule.name}", "choose", f"  option a costs {cost}"]
    text += [f"    {line}" for line in lines]
    text += ["  option b costs 0.5", *(f"    {line}" for line in other)]
    both = oc.compile(output, inputs=inputs, target=THERE, schedule=Schedule.parse("\n".join(text)))
    rng = np.random.default_rng(1)
    x, w = (rng.standard_normal(s).astype(ml_dtypes.bfloat16) for s in ((70, 24), (24, 100)))
    results = run_text(both.loops, {"A": x, "W": w}, {"n": 70})
    np.testing.assert_array_equal(results["C"], np.asarray(both(x, w)))


def test_a_search_may_take_other_tiles() -> None:
    output, *_ = dense()
    request = make_request(output, None, {}, "test")
    planned = next(iter(THERE.policy(request.program, request.users, DEFAULT)))
    space = THERE.space(planned, request, DEFAULT, 1)
    assert space.first == planned.schedule
    assert space.first in space
    assert len(space.neighbours(space.first)) >= 2
    plans = plans_of(output)
    for shape in shapes(plans):
        assert plans.schedule(cuts(plans, shape)) in space


def test_tiles_that_have_no_room_do_not_compete() -> None:
    output, *_ = dense()
    plans = plans_of(output)
    (product,) = plans.covered
    assert plans.fits(product, (128, 256))
    assert not plans.fits(
        product, (256, 256)
    )  # 128 sums a lane of four warpgroups: more than 65,536 registers
    assert not replace(plans, shared_bytes=48 << 10).fits(product, (128, 256))


@pytest.mark.parametrize("strategy", ["mask", slow("balance")])
def test_two_products_of_one_reader_run_under_every_strategy(strategy: str) -> None:
    n = oc.dim("n", max=100)
    a, b, c = (
        oc.placeholder(shape, "float32", name)
        for name, shape in (("A", (n, 24)), ("B", (24, 16)), ("C", (24, 16)))
    )
    k, r = oc.reduce_axis(24, name="k"), oc.reduce_axis(24, name="r")
    s = oc.compute((n, 16), lambda i, j: oc.sum(a[i, k] * b[k, j], axis=k), name="S")
    t = oc.compute((n, 16), lambda i, j: oc.sum(a[i, r] * c[r, j], axis=r), name="T")
    y = oc.compute((n, 16), lambda i, j: s[i, j] * t[i, j], name="Y")
    target = oc.target("cuda", machine="h200", device="emulated")
    kernel = oc.compile(y, inputs=[a, b, c], target=target, strategy=strategy)
    for size in (0, 1, 65):
        x, u, v = (
            np.random.default_rng(size).integers(-3, 4, shape).astype(np.float32)
            for shape in ((size, 24), (24, 16), (24, 16))
        )
        np.testing.assert_array_equal(np.asarray(kernel(x, u, v)), (x @ u) * (x @ v))
