"""The full texts of what synchronization refuses."""

from __future__ import annotations

import pytest
from conftest import rejection

import offcut as oc
from offcut import parse
from offcut.polyhedral.sync import Agents, Ends, Unit, check, check_barriers, synchronized

GPU = Agents(
    (
        Unit("load", ends=Ends.TOKEN),
        Unit("warpgroup", ends=Ends.GROUP),
        Unit("warp"),
        Unit("block"),
    ),
    default="block",
)
QUEUES = Agents(
    (Unit("load"), Unit("compute"), Unit("store")),
    default="compute",
    queues=frozenset([("load", "compute"), ("compute", "load")]),
    room=1,
    blocks=True,
)
RING = """program ring
size n in 0:100
input A: float32[n, 2]
local S: float32[n, 2]
output C: float32[n, 2]
token empty: warpgroup -> load count 2 room 2
token full: load -> warpgroup count 1 room 2
for k in 0:n
  alloc S[k +: 1, 0 +: 2] in shared depth 2
    wait empty where k >= 2
    tile m in 0 +: 2  @by(load)  @async
      S[k, m] = A[k, m]
    arrive full
    for g in 0:2  @warpgroup
      wait full
      tile m in g +: 1
        C[k, m] = S[k, m]
      arrive empty
"""
HEAD = "sync: cannot keep the order of ring on units that run side by side"
FAULTS = {
    "a wait is missing": (
        ("      wait full\n", ""),
        """
  at       `tile m in g +: 1` at k = 0, g = 0
  because  with n = 1, it touches what `tile m in 0 +: 2  @by(load)  @async` at k = 0 touches, and may run before that has ended
  help     a token load -> warpgroup: arrive behind the first, wait before the second""",
    ),
    "an arrival is missing": (
        ("    arrive full\n", ""),
        """
  at       `wait full` at k = 0, g = 0
  because  with n = 1, it waits for ever: load never arrives""",
    ),
    "an arrival twice": (
        ("    arrive full\n", "    arrive full\n    arrive full\n"),
        """
  at       `tile m in g +: 1` at k = 1, g = 0
  because  with n = 2, it touches what `tile m in 0 +: 2  @by(load)  @async` at k = 1 touches, and may run before that has ended
  help     a token load -> warpgroup: arrive behind the first, wait before the second""",
    ),
    "units that wait for each other": (
        ("    wait empty where k >= 2\n", "    wait empty\n"),
        """
  at       `wait empty` at k = 0
  because  with n = 1, it waits for `arrive empty` at k = 0, g = 0, which comes behind `wait full` at k = 0, g = 0: load and warpgroup wait for each other""",
    ),
    "an arrival that nothing waits for": (
        ("where k >= 2", "where k >= 3"),
        """
  at       `tile m in 0 +: 2  @by(load)  @async` at k = 2
  because  with n = 3, it touches what `tile m in g +: 1` at k = 0, g = 0 touches, and may run before that has ended
  help     a token warpgroup -> load: arrive behind the first, wait before the second""",
    ),
    "a count of one": (
        ("count 2", "count 1"),
        """
  at       token empty counts 1
  because  2 arrivals of warpgroup make each one that load waits for
  help     token empty: warpgroup -> load count 2 room 2""",
    ),
    "one window": (
        ("depth 2", "depth 1"),
        None,
    ),
    "a second token": (
        ("token full:", "token more: load -> warpgroup\ntoken full:"),
        """
  at       token more
  because  nothing arrives at it, and nothing waits for it
  help     leave it out""",
    ),
    "a unit of another machine": (
        ("@by(load)", "@by(store)"),
        """
  at       @by(store)
  because  the machine has no unit of that name
  help     @by(block)
  help     @by(load)
  help     @by(warpgroup)
  help     @by(warp)""",
    ),
    "a barrier that nothing needs": (
        ("for k in", "barrier warp\nfor k in"),
        """
  at       `barrier warp`
  because  without it all is ordered, too
  help     leave it out""",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_text_whose_units_would_not_keep_its_order_is_refused(name: str) -> None:
    (old, new), text = FAULTS[name]
    check(parse(RING), GPU)
    with pytest.raises(oc.PartitionError) as refused:
        check(parse(RING.replace(old, new, 1)), GPU)
    if text is None:
        assert str(refused.value).startswith(HEAD)
    else:
        assert str(refused.value) == HEAD + text


def test_a_race_is_refused_with_its_two_instances() -> None:
    source = """program race
size n in 0:9
output C: float32[2]
for k in 0:n
  for w in 0:2  @warp
    tile m in 0 +: 1
      C[w] = 1.0
  barrier warp
  for w in 0:2  @warp
    tile m in 0 +: 1
      C[1 - w] = 2.0
"""
    with rejection(
        "PartitionError: sync: cannot keep the order of race on units that run side by side\n"
        "  at       `tile m in 0 +: 1` at k = 1, w = 0\n"
        "  because  with n = 2, it touches what `tile m in 0 +: 1` at k = 0, w = 1 touches, and may run before that has ended\n"
        "  help     barrier warp, before it"
    ):
        check(parse(source), GPU)


def test_units_without_a_queue_and_queues_without_room_are_refused() -> None:
    apart = "program apart\nlocal S: int8[1]\ntile i in 0 +: 1  @by(load)\n  S[i] = 1\n"
    apart += "tile i in 0 +: 1  @by(store)\n  S[i] = 2\n"
    with pytest.raises(oc.PartitionError, match="no token goes from one to the other"):
        synchronized(parse(apart), QUEUES)
    full = """program full
size n in 0:9
local S: int8[4]
local T: int8[4]
for i in 0:n
  for v in 0:4
    tile j in 0 +: 1  @by(load)
      S[v] = 1
  for v in 0:4
    tile j in 0 +: 1
      T[v] = S[v]
"""
    with rejection(
        "StandstillError: sync: cannot keep the order of full on units that run side by side\n"
        "  at       load -> compute\n"
        "  because  more tokens of load for compute have to lie in their queue at once than it has room for"
    ):
        synchronized(parse(full), QUEUES)


def test_values_that_change_while_units_run_are_refused() -> None:
    source = """program changing
size n in 0:9
local S: int8[9]
for i in 0:n
  let h in 0:9 = n//(i + 1)
    tile j in 0 +: 1  @by(load)
      S[h] = 1
"""
    with rejection(
        "PartitionError: sync: cannot keep the order of changing on units that run side by side\n"
        "  at       let h in 0:9 = n//(i + 1)\n"
        "  because  it is a value of what changes while units run"
    ):
        synchronized(parse(source), QUEUES)


THREADS = """program two
size m in 0:9
input X: float32[m]
local S: float32[m]
output Y: float32[m]
for j in 0:m  @thread
  S[j] = X[j]
barrier thread
for j in 0:m  @thread
  Y[j] = S[m - 1 - j]
"""


def test_barriers_of_threads_that_are_missing_doubled_or_not_reached_are_refused() -> None:
    head = "sync: cannot keep the order of two on units that run side by side\n"
    check_barriers(parse(THREADS), "thread", frozenset())
    for old, new, text in (
        (
            "barrier thread\n",
            "",
            "  at       `for j in 0:m  @thread`\n  because  it touches what `for j in 0:m  @thread` touches, which others may "
            "still run: they must meet in between\n  help     barrier thread, before it",
        ),
        (
            "barrier thread\n",
            "barrier thread\nbarrier thread\n",
            "  at       `barrier thread`\n  because  without it all is ordered, too\n  help     leave it out",
        ),
        (
            "  Y[j] =",
            "  barrier thread\n  Y[j] =",
            "  at       `barrier thread`\n  because  it stands where not every thread comes: the others would wait for ever",
        ),
    ):
        with rejection("PartitionError: " + head + text):
            check_barriers(parse(THREADS.replace(old, new)), "thread", frozenset())


def test_threads_that_share_a_loop_whose_iterations_need_each_other_are_refused() -> None:
    threads = Agents((Unit("thread", fixed=False),), default="thread")
    check(parse(THREADS), threads)
    source = THREADS.replace("S[j] = X[j]", "S[0] = X[j]")
    with pytest.raises(oc.PartitionError, match="they are not shown to need nothing of each other"):
        check(parse(source), threads)
    both = Agents((Unit("thread", fixed=False), Unit("load")), default="thread")
    with pytest.raises(oc.PartitionError, match="any of its agents may run any iteration, beside"):
        check(parse(THREADS), both)
