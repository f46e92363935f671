"""The clock of units that run in order, against a walk over all turns, and the walk against one of its own."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from random import Random

import numpy as np
import pytest

from offcut.costmodel import load, shipped_machines
from offcut.costmodel.clock import End, Ends, Loop, Node, Run, Work, estimate_cycles
from offcut.costmodel.event_simulation import walk
from offcut.costmodel.resources import (
    BUS,
    BUS_WAITS,
    COMPUTE,
    ISSUE,
    MachineResources,
    resources_of,
)
from tests.agree import nearly

RESOURCES = resources_of(load("vta"))
AT_ONCE = replace(RESOURCES, fetch_cycles=0.0)
"""Instructions are there at once."""


def with_queue(unit: str, depth: int) -> MachineResources:
    """Return the resources with a queue of so many instructions."""
    every = {**RESOURCES.every, unit: replace(RESOURCES[unit], depth=depth)}
    return replace(AT_ONCE, every=every)


def run(
    unit: str,
    own: Sequence[float],
    bus: Sequence[float] = (0.0,),
    tail: float = 1.0,
    reads: tuple[Hashable, ...] = (),
    writes: tuple[Hashable, ...] = (),
    fills: bool | None = None,
) -> Run:
    """Return a run that takes `tail` of its cycles in the last turn of the loop "i"."""

    def taken(ends: Ends) -> Work:
        part = tail if ends else 1.0
        return Work(np.array(own) * part, np.array(bus) * part, np.ones(1))

    fills = bool(writes) if fills is None else fills
    return Run(unit, taken, reads, writes, fills, frozenset({("i", End.LAST)}))


def walked(body: Sequence[Node], depths: Mapping[Hashable, int], at: int = 0) -> float:
    """Return the cycles of one program, turn by turn."""
    free: dict[str, float] = defaultdict(float)
    slots = {name: deque([[0.0, 0.0] for _ in range(depth)]) for name, depth in depths.items()}

    def go(nodes: Sequence[Node], ends: Ends) -> None:
        for node in nodes:
            if isinstance(node, Loop):
                turns, last = int(node.turns[at % node.turns.size]), {(node.name, End.LAST)}
                for turn in range(turns):
                    go(node.body, ends | last if turn == turns - 1 else ends)
                continue
            for name in node.writes if node.fills else ():
                slots[name].rotate(-1)
            begin = free[node.unit]
            begin = max([begin, *(t for name in node.writes for t in slots[name][-1])])
            begin = max([begin, *(slots[name][-1][0] for name in node.reads)])
            end = begin + sum(
                float(part[at % part.size]) for part in node.work(ends & node.ends)[:2]
            )
            free[node.unit] = end
            for name in node.writes:
                slots[name][-1][0] = end
            for name in node.reads:
                slots[name][-1][1] = max(slots[name][-1][1], end)

    go(body, frozenset())
    return max(free.values())


def pipeline(draw: Random, turns: Sequence[int], inner: Sequence[int]) -> tuple[Node, ...]:
    """Return loops over loads, a sum and a store, with cycles that are drawn."""

    def some(low: int, high: int) -> list[float]:
        return [float(draw.randint(low, high)) for _ in turns]

    tail = draw.choice([1.0, 0.5])
    terms = (
        run("load", some(1, 40), tail=tail, writes=("a",)),
        run("compute", some(1, 40), tail=tail, reads=("a",), writes=("s",), fills=False),
    )
    return (
        Loop(
            "i",
            np.array(turns, float),
            (
                run("load", some(1, 60), tail=tail, writes=("w",)),
                run("compute", some(1, 4), tail=tail, reads=("w",), writes=("s",)),
                Loop("k", np.array(inner, float), terms),
                run("store", some(1, 20), tail=tail, reads=("s",)),
            ),
        ),
    )


@pytest.mark.parametrize(
    ("depth", "mean", "most"), [(1, 0.04, 0.3), (2, 0.02, 0.12), (3, 0.02, 0.12)]
)
def test_the_clock_is_near_a_walk_over_all_turns(depth: int, mean: float, most: float) -> None:
    draw = Random(depth)
    turns, inner = [1, 2, 5, 9, 30, 64], [3, 1, 1, 4, 7, 12]
    off = []
    for _ in range(25):
        body = pipeline(draw, turns, inner)
        depths: Mapping[Hashable, int] = dict.fromkeys(("a", "w", "s"), depth)
        every = np.array([walked(body, depths, at) for at in range(len(turns))])
        off += list(np.abs(estimate_cycles(body, depths, AT_ONCE) / every - 1))
    assert np.mean(off) < mean
    assert max(off) < most


def test_a_loop_whose_windows_take_turns_goes_at_the_rate_of_its_busiest_resource() -> None:
    """One window: a load, then what reads it, a hundred times. Two: the longer of them a hundred times, and one of the other."""
    body = (
        Loop(
            "j",
            np.array([100.0]),
            (
                run("load", [2.0], [5.0], writes=("a",)),
                run("compute", [10.0], reads=("a",)),
            ),
        ),
    )
    assert estimate_cycles(body, {"a": 1}, AT_ONCE) == nearly(100 * (7 + 10), rel=0.01)
    assert estimate_cycles(body, {"a": 2}, AT_ONCE) == nearly(100 * 10 + 7, rel=0.02)


def taken(body: Sequence[Node], depths: Mapping[Hashable, int], on: MachineResources) -> float:
    """Return the cycles that the walk says."""
    return walk(body, depths, on, 0).end_time().cycles


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_the_walk_is_a_walk_over_all_turns(depth: int) -> None:
    draw = Random(depth)
    for _ in range(10):
        body = pipeline(draw, [draw.randint(1, 9)], [draw.randint(1, 5)])
        depths: Mapping[Hashable, int] = dict.fromkeys(("a", "w", "s"), depth)
        quiet = walk(body, depths, AT_ONCE, 0)
        quiet.events = [one._replace(own=one.own + one.bus, bus=0.0) for one in quiet.events]
        assert quiet.end_time().cycles == nearly(walked(body, depths))


def test_where_slots_begin_anew_an_odd_number_of_turns_keeps_a_load_waiting() -> None:
    """Two windows: the last fill of a run of the inner loop and the first of the next have one slot."""

    def of(turns: int, restarts: bool) -> tuple[Node, ...]:
        load = run("load", [10.0], writes=("a",))
        inner = Loop("i", np.array([float(turns)]), (load, run("compute", [10.0], reads=("a",))))
        return (Loop("o", np.array([6.0]), (replace(inner, restarts=restarts),)),)

    for turns in (2, 3, 4, 5):
        anew, on = (taken(of(turns, one), {"a": 2}, AT_ONCE) for one in (True, False))
        assert anew - on == (5 * 10 if turns % 2 else 0)
        assert estimate_cycles(of(turns, True), {"a": 2}, AT_ONCE) == nearly(anew, rel=0.02)


def test_a_full_queue_holds_up_what_is_fetched_behind_it() -> None:
    """Twelve loads in a queue of four: what the other unit is to do beside them is fetched when eight have begun."""

    def twelve(ends: Ends) -> Work:
        return Work(np.array([120.0]), np.zeros(1), np.array([12.0]))

    body = (Loop("i", np.array([50.0]), (Run("load", twelve), run("compute", [100.0]))),)
    for depth, expected in ((512, 50 * 120), (4, 50 * 120 + 70)):
        on = with_queue("load", depth)
        assert taken(body, {}, on) == nearly(expected, rel=0.02)
        assert estimate_cycles(body, {}, on) == nearly(taken(body, {}, on), rel=0.02)
    alternate = (Loop("i", np.array([50.0]), (run("compute", [100.0]), Run("load", twelve))),)
    on = with_queue("load", 4)
    assert estimate_cycles(alternate, {}, on) == nearly(taken(alternate, {}, on), rel=0.02)


def test_resources_are_what_the_description_says() -> None:
    vta, zen4 = RESOURCES, resources_of(load("zen4"))
    assert [one.name for one in vta.every.values() if one.ordered] == ["load", "compute", "store"]
    assert float(vta[BUS].cycles(np.array(3.0), np.array(64.0))) == 3 * 32 + 64 / 8
    assert vta.unhidden == BUS_WAITS
    assert not any(one.ordered for one in zen4.every.values())
    assert [one.name for one in zen4.memories] == ["L1", "L2", "L3", "DRAM"]
    assert zen4[ISSUE].rate == 12.0
    assert zen4[COMPUTE].rate == 1.0
    for name in shipped_machines():
        machine = load(name)
        made: MachineResources = resources_of(machine)
        assert made.rate_of("no such type") == 0
        for unit in machine.unit:
            assert made.rate_of(unit.of[0]) >= unit.multiply_adds
            assert made.unit_of(unit.multiply_adds) == unit.multiply_adds
