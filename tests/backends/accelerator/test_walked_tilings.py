"""What the policy says of tilings, against the simulator: turn by turn, and by the clock."""

from __future__ import annotations

from dataclasses import dataclass, replace

import accelerators
import numpy as np
import pytest

import offcut as oc
from offcut import Schedule, Tensor
from offcut.backends.accelerator.executor import AcceleratorExecutor
from offcut.backends.accelerator.planning.elementary import Operations
from offcut.backends.accelerator.planning.planner import (
    GroupDecisions,
    nest_extents,
    prepare_computation,
    stage_groups,
    tilings_at,
)
from offcut.backends.accelerator.planning.tilings import WALKED, Tiling, Tilings, sizes_of
from offcut.backends.accelerator.planning.typical_sizes import typical_sizes
from offcut.backends.accelerator.target import Accelerator
from offcut.backends.target import DEFAULT
from tests.agree import nearly
from tests.facade import Request, requested

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


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("kind", PROGRAMS)
def test_the_clock_ranks_the_tilings_that_are_good_turn_by_turn_first(
    kind: str, machine: str
) -> None:
    tilings = nest(kind, machine).tilings
    few, many = (tilings.nearest(2, most) for most in (WALKED, 20 * WALKED))
    best = min(map(tilings.exact_cycles, few))
    assert all(best <= 1.01 * tilings.exact_cycles(tiling) for tiling in many[WALKED:][::7])


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("kind", PROGRAMS)
def test_the_clock_is_near_what_good_tilings_take_turn_by_turn(kind: str, machine: str) -> None:
    tilings = nest(kind, machine).tilings
    off = []
    for same in tilings.same_loops():
        off += [cycles / tilings.exact_cycles(tiling) for cycles, tiling in same.nearest(2, 2)]
    assert np.mean(np.abs(np.array(off) - 1)) < 0.1


def test_where_slots_begin_anew_an_even_number_of_tiles_is_better() -> None:
    """Of 64 rows, five tiles of 13 keep every other load waiting, and four of 16 do not."""
    known = nest("dense", "vta")
    thirteen, sixteen = (
        known.tilings.exact_cycles(Tiling((("j", 128), ("i", rows)), ("j", "i"), ("j", 2)))
        for rows in (13, 16)
    )
    assert sixteen < 0.95 * thirteen
