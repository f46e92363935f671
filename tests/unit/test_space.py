"""The space of schedules: what its points are, how they neighbour, how many there are."""

from __future__ import annotations

from collections import deque
from itertools import islice, pairwise
from random import Random

import numpy as np
import pytest

import offcut as oc
from offcut import Schedule
from offcut.errors import PartitionError
from offcut.schedule import Bind
from tests import spaces
from tests.agree import agree, of_peer
from tests.facade import ScheduleSpace, Together, parts_of, requested, stand_ins
from tests.spaces import PROGRAMS, space


def walked(space: ScheduleSpace, steps: int, seed: int) -> list[Schedule]:
    """Points on a random walk from the first."""
    rng, found = Random(seed), [space.first]
    for _ in range(steps):
        found.append(space.step(found[-1], rng))
    return found


def reachable(space: ScheduleSpace) -> set[Schedule]:
    """All points, by their neighbours, from the first on."""
    found, queue = {space.first}, deque([space.first])
    while queue:
        for other in space.neighbours(queue.popleft()):
            if other not in found:
                found.add(other)
                queue.append(other)
    return found


@pytest.mark.every(4)
@pytest.mark.parametrize("name", PROGRAMS)
def test_points_parse_back_and_moves_and_crossings_of_them_stay_in_the_space(name: str) -> None:
    made = space(name)
    rng = Random(1)
    points = [*walked(made, 8, 0), *(made.sample(rng) for _ in range(8))]
    for point in points:
        assert Schedule.parse(str(point)) == point
        assert point in made
        near = made.neighbours(point)
        assert point not in near
        assert len(set(near)) == len(near)
        assert rng.choice(near) in made
    for a, b in pairwise(points):
        child = made.crossover(a, b, rng)
        assert child in made
        assert {step for step in child.steps if isinstance(step, Bind)} <= {*a.steps, *b.steps}
        if a.steps[0] == b.steps[0]:  # else what was said of stages decides of all nests
            assert {*_unnamed(child)} <= {line for one in (a, b) for line in _unnamed(one)}


def _unnamed(schedule: Schedule) -> list[str]:
    """The lines of a schedule, but for choices and their labels, which depend on what else competes."""
    lines = (line.strip() for line in str(schedule).splitlines())
    return [line for line in lines if line.split()[0] not in ("choose", "option")]


@pytest.mark.parametrize("name", ["elementwise", "loops"])
def test_a_small_space_is_what_its_moves_reach(name: str) -> None:
    made = space(name, alternatives=1)
    every = list(made.enumerate())
    assert len(every) == len(set(every)) == made.size
    assert set(every) == reachable(made)


def test_sets_of_ways_are_counted_one_by_one_and_a_listing_has_as_many_as_it_may() -> None:
    one, two = space("elementwise", alternatives=1), space("elementwise", alternatives=2)
    ways = one.size // 2  # mark rows, or not
    assert two.size == 2 * (ways + ways * (ways - 1) // 2)
    assert len(set(two.enumerate())) == two.size
    assert len(set(space("dense").enumerate(50))) == 50


def test_heights_are_those_of_the_microkernel_and_groups_those_of_the_memory() -> None:
    made = space("dense", alternatives=1)
    kernels = {kernel.name: kernel for kernel in spaces.open_decisions("dense").microkernels}
    heights, groups = set(), set()
    rng = Random(3)
    for point in (made.sample(rng) for _ in range(200)):
        (nest,) = parts_of(point)
        (variant,) = nest.variants
        if variant.cover is not None:
            kernel = kernels[variant.cover.microkernel]
            rows, columns = variant.splits
            heights.add(rows.tile)
            groups.add(columns.group)
            assert all(tile <= kernel.columns_for(low) for (low, _), tile, _ in columns.by_height)
            assert columns.group is not None
            assert all(columns.group % tile == 0 for _, tile, _ in columns.by_height)
    assert heights <= {tile.rows for tile in kernels["fma_float32_avx512"].tiles}
    assert len(heights) > 5
    assert len(groups) > 1


def test_a_machine_with_other_registers_has_another_space() -> None:
    there = space("dense", machine="neoverse-n1")
    lent = spaces.open_decisions("dense", machine="neoverse-n1").microkernels
    names = {kernel.name for kernel in lent}
    text = "\n".join(map(str, islice(there.enumerate(), 200)))
    assert all(f" {name}(" not in text for name in ("fma_float32_avx512", "fma_float32_avx2"))
    assert any(f" {name}(" in text for name in names)


def test_shared_loops_are_taken_apart_and_shared_again() -> None:
    made = space("softmax", alternatives=1)
    apart = [p for p in made.neighbours(made.first) if not _shares(p)]
    assert len(apart) == 1
    assert all(" i" in line for line in str(apart[0]).splitlines() if "order " in line)
    assert made.first in made.neighbours(apart[0])


def _shares(schedule: Schedule) -> bool:
    return any(isinstance(part, Together) for part in parts_of(schedule))


def test_a_decision_about_stages_is_taken_back() -> None:
    made = space("mixed")
    assert str(made.first).splitlines()[1].startswith("stage value float32(B[x0, x1]) for D ")
    plain = [p for p in made.neighbours(made.first) if "stage value" not in str(p)]
    assert plain
    assert all("B_float32" not in str(point) for point in plain)


@pytest.mark.every(4)
@pytest.mark.parametrize("name", ["dense", "unpacked", "mixed", "softmax", "elementwise"])
def test_points_are_refused_by_their_line_or_compute_what_is_asked(name: str) -> None:
    output, constants, _ = PROGRAMS[name]
    target = oc.target("cpu")
    request = requested(output, None, stand_ins(constants, output, None, "tune"), "tune")
    made = spaces.space_of(request, target.options("tune"), target, 2)
    rng, ran, places = Random(5), 0, list[str]()
    draw = np.random.default_rng(0)
    x = draw.standard_normal((13, 96)).astype("float32")
    w = draw.standard_normal((96, 80)).astype("float32")
    if name == "mixed":
        import ml_dtypes

        x = x.astype(ml_dtypes.bfloat16)
    held = {"W": w} if constants else None
    given = (x, w) if name == "unpacked" else (x,)
    wanted = np.asarray(oc.compile(output, constants=held, target="interpret")(*given))
    for _ in range(4):
        try:
            kernel = oc.compile(output, constants=held, target=target, schedule=made.sample(rng))
        except PartitionError as refused:
            places.append(refused.at)
            continue
        agree(kernel(*given), of_peer(wanted))
        ran += 1
    assert ran
    assert all(place.startswith("line ") for place in places)


def test_a_microkernel_that_runs_no_tile_by_height_is_refused_by_its_line() -> None:
    target = oc.target("cpu", machine="sapphire-rapids")
    schedule = Schedule.parse("""\
schedule D
stage prepack W layout panels(0, 1, 16)
split D.j version 1 as j_tile j_in
split D.i ladder 384 then ladder by j_in 1..14: 32 16 as i_group i_tile i_in
order D i_group j_tile i_tile j_in i_in
cover D at j_in fma_bfloat16_avx512(i=j_in, j=i_in, p=k)
""")
    w = np.zeros((96, 80), np.float32)
    with pytest.raises(PartitionError) as refused:
        oc.compile(spaces.MIXED, constants={"W": w}, target=target, schedule=schedule)
    assert refused.value.at == f"line 6: {str(schedule).splitlines()[5]}"
