"""What synchronization refuses, word for word: of a text for units, of what targets are given, of what runs side by side."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from conftest import refusals, rejection

import offcut as oc
from offcut import parse
from offcut.backends.gpu.executor import Limits, execute
from offcut.polyhedral.sync import Agents, Ends, Unit, check, synchronized

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


def test_threads_that_share_a_loop_whose_iterations_need_each_other_are_refused() -> None:
    threads = Agents((Unit("thread", fixed=False),), default="thread")
    check(parse(THREADS), threads)
    source = THREADS.replace("S[j] = X[j]", "S[0] = X[j]")
    with pytest.raises(oc.PartitionError, match="they are not shown to need nothing of each other"):
        check(parse(source), threads)
    both = Agents((Unit("thread", fixed=False), Unit("load")), default="thread")
    with pytest.raises(oc.PartitionError, match="any of its agents may run any iteration, beside"):
        check(parse(THREADS), both)


TURNED = """program turned
size n in 0:9000
input X: float32[n]
local S: float32[n]
local T: float32[n]
output Y: float32[n]
for i in 0:n  @thread
  S[i] = X[i]
barrier thread
for i in 0:n  @thread
  T[i] = S[n - 1 - i]
barrier thread
for i in 0:n  @thread
  Y[i] = T[n - 1 - i]
"""
TURNED_HEAD = "sync: cannot keep the order of turned on units that run side by side\n"
HELP = """
  help     barrier thread
  help     a text without synchronization, which gets what it needs"""
ONLY = "the machine has no unit but thread, and all that its agents can do is to meet"
MISSING = """\
  at       `T[i] = S[n - 1 - i]` at i = 0
  because  with n = 1, it touches what `S[i] = X[i]` at i = 0 touches, and may run before that has ended
  help     barrier thread, before it"""
FIRST = "barrier thread\n"
OF_THREADS = {
    "missing": (FIRST, "", MISSING),
    "moved ahead": (
        "for i in 0:n  @thread\n  S[i] = X[i]\nbarrier thread\n",
        "barrier thread\nfor i in 0:n  @thread\n  S[i] = X[i]\n",
        MISSING,
    ),
    "doubled": (
        FIRST,
        FIRST * 2,
        "  at       `barrier thread`\n  because  without it all is ordered, too\n  help     leave it out",
    ),
    "inside of a shared loop": (
        "  T[i] =",
        "  barrier thread\n  T[i] =",
        "  at       `barrier thread`\n  because  it stands where not every thread comes: the others would wait for ever",
    ),
    "under a condition": (
        FIRST,
        "barrier thread where n >= 2\n",
        "  at       `barrier thread where n >= 2`\n  because  who meets where is known of barriers without a condition "
        f"alone{HELP}",
    ),
    "of a unit it lacks": (
        FIRST,
        "barrier warp\n",
        f"  at       `barrier warp`\n  because  {ONLY}{HELP}",
    ),
    "of groups": (FIRST, "wait group 1\n", f"  at       `wait group 1`\n  because  {ONLY}{HELP}"),
    "of caches": (
        FIRST,
        f"{FIRST}fence async_shared\n",
        f"  at       `fence async_shared`\n  because  {ONLY}{HELP}",
    ),
    "of tokens": (
        "for i in 0:n  @thread\n  S",
        "token full: thread -> thread\nfor i in 0:n  @thread\n  S",
        f"  at       token full: thread -> thread\n  because  the machine has no unit but thread, and no tokens{HELP}",
    ),
}


@pytest.mark.parametrize("fault", OF_THREADS)
def test_a_processor_refuses_what_its_threads_would_not_keep(fault: str) -> None:
    old, new, text = OF_THREADS[fault]
    assert old in TURNED
    program = oc.parse(TURNED.replace(old, new, 1))
    for threads in (1, 2):
        with rejection(f"PartitionError: {TURNED_HEAD}{text}"):
            oc.compile(program, threads=threads)


DOORS: dict[str, Callable[[oc.Program], Any]] = {
    "partition": oc.partition,
    "plan": lambda program: oc.target("cpu").plan(program, n=9),
    "source": lambda program: oc.target("cpu").source(program),
    "tune": lambda program: oc.tune(program, sizes={"n": 9}),
    "check": lambda program: oc.sync.check(program, oc.target("cpu").agents),
}


@pytest.mark.parametrize("door", DOORS)
def test_every_door_checks_it(door: str) -> None:
    with rejection(f"PartitionError: {TURNED_HEAD}{MISSING}"):
        DOORS[door](oc.parse(TURNED.replace("barrier thread\n", "", 1)))


def test_machines_of_queues_compute_their_tokens_alone() -> None:
    text = """program copied
size m in 1:90
input X: int32[m, 16]
output Y: int32[m, 16]
{}for j in 0:m
  for i in 0:16
    Y[j, i] = X[j, i]
"""
    found = "vta computes its tokens from what its units read and write, when tiles have become instructions of these"
    kept = "the hardware of gemmini keeps the order of its units"
    for target, because in (("vta", found), ("gemmini", kept)):
        for line in ("barrier load", "fence main", "wait group 0", "token full: load -> compute"):
            with pytest.raises(oc.TargetError) as refused:
                oc.compile(oc.parse(text.format(f"{line}\n")), target=target)
            name = "token full" if line.startswith("token") else line
            assert str(refused.value) == (
                "compile: cannot take the synchronization of copied\n"
                f"  at       {name}\n"
                f"  because  {because}\n"
                "  help     the text without barrier, arrive, wait, fence and token"
            )


ARGUMENTS: dict[str, tuple[Callable[[], Any], str]] = {
    "a text": (
        lambda: oc.sync.check("program f", oc.sync.Agents((), "block")),  # type: ignore[arg-type]
        "sync.check: cannot take 'program f'\n  because  it is of type str, not a program\n  help     oc.parse(text)",
    ),
    "None": (
        lambda: oc.sync.check(oc.parse(TURNED), None),  # type: ignore[arg-type]
        "sync.check: cannot take None\n  because  it is of type NoneType, not agents\n"
        '  help     oc.target("cpu").agents',
    ),
    "an action in words": (
        lambda: oc.ir.Sync("wait", "full"),  # type: ignore[arg-type]
        "Sync: cannot take 'wait'\n  because  an action is one of ir.Action, and it is of type str\n"
        + "\n".join(
            f"  help     ir.Action.{name}"
            for name in ("BARRIER", "ARRIVE", "WAIT", "WAIT_GROUP", "FENCE")
        ),
    ),
    "less than no groups": (
        lambda: oc.ir.Sync(oc.ir.Action.WAIT_GROUP, pending=-1),
        "Sync: cannot wait for -1 groups\n  because  so many may still be under way: a count, from 0 on\n"
        "  help     pending=0",
    ),
    **{
        f"a layout of {what}": (
            partial(make, *given),
            f"layout: cannot place an operand\n  at       {at}\n  because  {because}\n  help     {help}",
        )
        for what, make, given, at, because, help in (
            (
                "half an axis",
                oc.ir.order,
                (1.5,),
                "order",
                "1.5 is of type float, not an integer",
                "order(1, 0)",
            ),
            (
                "a word",
                oc.ir.panels,
                ("a",),
                "panels",
                "'a' is of type str, not an integer",
                "panels(16)",
            ),
            (
                "one number",
                oc.ir.words,
                (0,),
                "words(0)",
                "each lane is two numbers: an axis, and the elements along it in a word",
                "words((0, 1), (1, 16))",
            ),
        )
    },
    "no agents": (
        lambda: oc.sync.synchronized(oc.parse(TURNED), "cpu"),
        "sync.synchronized: cannot take 'cpu'\n  because  it is of type str, not agents\n"
        '  help     oc.target("cpu").agents',
    ),
}


@pytest.mark.parametrize("what", ARGUMENTS)
def test_what_is_no_program_or_no_agents_is_refused(what: str) -> None:
    call, text = ARGUMENTS[what]
    with rejection(f"DescribeError: {text}"):
        call()


LINES = {
    "wait group -1": "parse: cannot wait for -1 groups\n  at       line 3, column 12: wait group -1\n"
    "  because  so many may still be under way: a count, from 0 on\n  help     wait group 0",
    "wait group few": "parse: cannot read this line\n  at       line 3, column 12: wait group few\n"
    "  because  found `few`\n  help     an integer literal is expected here",
    "for i in 0:2  @bind()": "parse: cannot read this line\n  at       line 3, column 21: for i in 0:2  @bind()\n"
    "  because  found `)`\n  help     the name of a unit is expected here",
    'local D: int8[4, 4] @panels("a")': "parse: cannot read this line\n"
    '  at       line 3, column 29: local D: int8[4, 4] @panels("a")\n  because  found `"a"`\n'
    "  help     an integer literal is expected here",
    "local D: int8[4, 4] @words(0: 0)": "parse: cannot read a layout\n"
    "  at       line 3, column 22: local D: int8[4, 4] @words(0: 0)\n"
    "  because  axis 0: element[0] // 0, times 1: axes count from 0, the rest from 1\n  help     words(0: 1, 1: 16)",
}


@pytest.mark.parametrize("line", LINES)
def test_lines_that_say_no_synchronization_and_no_layout_are_refused(line: str) -> None:
    with rejection("ParseError: " + LINES[line]):
        oc.parse(f"program f\noutput C: int8[4]\n{line}\nC[0] = 1\n")


RING_OF_WARPS = """program ring
size n in 0:100
input A: float32[n, 4]
local S: float32[n, 4]
output C: float32[n, 4]
token empty: warp -> load count 2 room 2
token full: load -> warp count 1 room 2
for k in 0:n
  alloc S[k +: 1, 0 +: 4] in shared depth 2
    wait empty where k >= 2
    tile m in 0 +: 4  @by(load)  @async
      S[k, m] = A[k, m]
    arrive full
    for w in 0:2  @warp
      wait full
      tile m in 2*w +: 2
        C[k, m] = S[k, m]
      arrive empty
"""
MEETING = """program meeting
size n in 0:100
input A: float32[n, 4]
local S: float32[n, 4]
output C: float32[n, 4]
for b in 0:n  @block
  alloc S[b +: 1, 0 +: 4] in shared
    for w in 0:2  @warp
      tile m in 2*w +: 2
        S[b, m] = A[b, m]
    barrier warp
    for w in 0:2  @warp
      tile m in 2*w +: 2
        C[b, m] = S[b, 3 - m]
"""

EXECUTED = refusals(
    r"""
given RING_OF_WARPS.replace('      wait full\n', '')
execute: cannot run ring: async
  at       `tile m in 2*w +: 2` on warp 1
  because  it reads S[0, 2], which `tile m in 0 +: 4  @by(load)  @async` on load writes, and nothing orders the two
  help     arrive at a token behind the first, wait for it before the second

given RING_OF_WARPS.replace('    arrive full\n', '')
execute: cannot run ring: standstill
  at       `wait empty where k >= 2` on load
  because  load waits at `wait empty where k >= 2` for token 0: 0 of 2 arrivals of warp; warp 0 waits at `wait full` for token 0: 0 of 1 arrivals of load; warp 1 waits at `wait full` for token 0: 0 of 1 arrivals of load

given RING_OF_WARPS.replace('count 2', 'count 3')
execute: cannot run ring: standstill
  at       `wait empty where k >= 2` on load
  because  load waits at `wait empty where k >= 2` for token 0: 2 of 3 arrivals of warp; warp 0 waits at `wait full` for token 2: 0 of 1 arrivals of load; warp 1 waits at `wait full` for token 2: 0 of 1 arrivals of load

given RING_OF_WARPS.replace('count 1 room 2', 'count 1 room 1')
execute: cannot run ring: phase
  at       `arrive full` on load
  because  it is for token 1, and the phase of token 0 may not have ended: full has room for 1

given MEETING.replace('    barrier warp\n', '')
execute: cannot run meeting: race
  at       `tile m in 2*w +: 2` on warp 1 of block 0
  because  it reads S[0, 1], which `tile m in 2*w +: 2` on warp 0 of block 0 writes, and nothing orders the two
  help     barrier warp, between them

given MEETING.replace('A[b, m]', 'A[b, m + 1]')
execute: cannot run meeting: bounds
  at       `tile m in 2*w +: 2` on warp 1 of block 0
  because  [0, 4] is outside A of shape (3, 4): it runs at n = 3, b = 0, w = 1, m = 3

given MEETING.replace('tile m in 2*w +: 2\n        C', 'tile m in 2*w +: 1\n        C')
execute: cannot run meeting: unwritten
  at       output C: float32[n, 4]
  because  nobody writes C[0, 1]

given MEETING.replace('in shared', 'in shared depth 16000')
execute: cannot run meeting: room
  at       alloc S[b +: 1, 0 +: 4] in shared depth 16000
  because  its windows take 256000 bytes of shared memory, and there are 232448
  help     a depth below 16000
""",
    globals(),
)


@pytest.mark.parametrize("what", EXECUTED)
def test_a_fault_names_finder_statement_and_agents(what: str) -> None:
    text, expected = EXECUTED[what]
    with rejection(f"ExecutionFault: {expected}"):
        execute(oc.parse(text), {"A": np.ones((3, 4), "float32")}, limits=Limits(), seed=4)


@pytest.mark.parametrize("text", [RING_OF_WARPS, MEETING])
def test_without_the_fault_it_runs(text: str) -> None:
    array = np.arange(12, dtype="float32").reshape(3, 4)
    for seed in range(4):
        (found,) = execute(oc.parse(text), {"A": array}, limits=Limits(), seed=seed).values()
        np.testing.assert_array_equal(found, oc.parse(text).run({"A": array}))
