"""`oc.tune` on a simulated machine of queues: nothing is timed, the simulator is the measurement."""

from collections.abc import Callable
from pathlib import Path
from random import Random

import numpy as np
import pytest
from conftest import slow

import offcut as oc
from offcut import Outcome, Records, ops
from offcut.backends.accelerator.planning.choices import Nests
from offcut.backends.accelerator.target import Accelerator
from offcut.backends.target import DEFAULT
from offcut.search import ScheduleSpace
from tests.facade import proved_plan, requested

n = oc.dim("n", min=1, max=64)
X = oc.placeholder((n, 64), "int8", name="X")
W = oc.placeholder((64, 96), "int8", name="W")
Y = ops.requantize(ops.dense(X, W, name="S"), 6, name="Y")
WEIGHTS = np.random.default_rng(0).integers(-20, 20, (64, 96), "int8")


def space() -> ScheduleSpace:
    request = requested(Y, [X, W], {"W": WEIGHTS}, "test")
    target = oc.target("vta")
    planned = proved_plan(target, request, DEFAULT)
    found = target.space(planned, request, DEFAULT, 1)
    assert isinstance(found, ScheduleSpace)
    return found


def grouped() -> tuple[oc.Tensor, list[oc.Tensor]]:
    """A convolution in groups, whose space has more axes than the orders of all of them could be kept."""
    x = oc.placeholder((n, 3, 2, 8), "int8", name="X")
    k = oc.placeholder((1, 1, 4, 6), "int8", name="K")
    total = ops.conv2d(x, k, groups=2, layout="NHWC")
    return ops.requantize(total, 9, name="Y"), [x, k]


def several() -> tuple[oc.Tensor, list[oc.Tensor]]:
    """Two products, one behind the other, over rows of which there may be one alone."""
    m = oc.dim("m", min=1, max=1)
    x = oc.placeholder((m, 40), "int8", name="X")
    weights = [
        oc.placeholder(shape, "int8", name=name)
        for name, shape in (("V", (40, 24)), ("W", (24, 20)))
    ]
    y = x
    for one in weights:
        y = ops.requantize(ops.dense(y, one), 6)
    return y, [x, *weights]


def pooled() -> tuple[oc.Tensor, list[oc.Tensor]]:
    """A maximum, which no product runs, of which several layouts compete."""
    x = oc.placeholder((n, 8, 6, 8), "int8", name="X")
    return ops.max_pool2d(x, 2, 2, 0), [x]


def product() -> tuple[oc.Tensor, list[oc.Tensor]]:
    """What is tuned below."""
    return Y, [X, W]


@pytest.mark.parametrize(
    ("described", "machine"),
    [(product, "vta"), (grouped, "vta"), slow(several, "gemmini"), (pooled, "vta")],
)
def test_every_default_is_a_point_of_its_space_as_is_what_that_draws(
    described: Callable[[], tuple[oc.Tensor, list[oc.Tensor]]], machine: str
) -> None:
    output, inputs = described()
    request, target = requested(output, inputs, {}, "test"), oc.target(machine)
    assert isinstance(target, Accelerator)
    first = next(target.policy(request.program, request.users, DEFAULT)).schedule
    assert first is not None
    arrays = target.arrays(request.program)
    space, rng = Nests.of(request.program, arrays, target.spec, first).space, Random(2)
    assert first in space
    for point in (first, *(space.sample(rng) for _ in range(8))):
        assert point in space
        near = space.neighbours(point)
        assert point not in near
        assert len(set(near)) == len(near)
        assert all(one in space for one in near)
    other = oc.Schedule.parse(str(first).replace(" guard ", " guard 7"))
    assert (other in space) == (other == first)
    few = [*space.enumerate(50)]
    assert len(set(few)) == len(few)


def test_schedules_of_the_space_compute_the_same() -> None:
    x = np.random.default_rng(1).integers(-20, 20, (29, 64), "int8")
    exact = ((x.astype("int32") @ WEIGHTS) // 64).clip(-128, 127)
    whole, rng, ran = space(), Random(1), 0
    while ran < 2:
        schedule = whole.sample(rng)
        try:
            kernel = oc.compile(
                Y, inputs=[X, W], constants={"W": WEIGHTS}, target="vta", schedule=schedule
            )
            found = kernel(x)
        except oc.OffcutError:  # its windows do not fit
            continue
        np.testing.assert_array_equal(found, exact)
        assert kernel.timeline(n=29).races == ()
        ran += 1


def test_tuning_asks_the_simulator(tmp_path: Path) -> None:
    records = tmp_path / "records.sqlite"
    best = oc.tune(
        Y,
        inputs=[X, W],
        constants=["W"],
        sizes={"n": [7, 33]},
        trials=2,
        explorer="random",
        seed=0,
        records=records,
        target="vta",
    )
    kept = [one for one in Records(records) if one.outcome is Outcome.OK]
    kernel = oc.compile(Y, inputs=[X, W], constants={"W": WEIGHTS}, target="vta", schedule=best)
    for size in (7, 33):
        own = [r for r in kept if dict(r.sizes) == {"n": size} and r.schedule == str(best)]
        assert own
        assert all(one.seconds == kernel.timeline(n=size).seconds for one in own)
    assert all(one.spread == 0 for one in kept)
