"""The full texts of what targets refuse of the synchronization that a program comes with."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from conftest import rejection

import offcut as oc

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
HEAD = "sync: cannot keep the order of turned on units that run side by side\n"
HELP = """
  help     barrier thread
  help     a text without synchronization, which gets what it needs"""
ONLY = "the machine has no unit but thread, and all that its agents can do is to meet"
MISSING = """\
  at       `T[i] = S[n - 1 - i]` at i = 0
  because  with n = 1, it touches what `S[i] = X[i]` at i = 0 touches, and may run before that has ended
  help     barrier thread, before it"""
FIRST = "barrier thread\n"
FAULTS = {
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


@pytest.mark.parametrize("fault", FAULTS)
def test_a_processor_refuses_what_its_threads_would_not_keep(fault: str) -> None:
    old, new, text = FAULTS[fault]
    assert old in TURNED
    program = oc.parse(TURNED.replace(old, new, 1))
    for threads in (1, 2):
        with rejection(f"PartitionError: {HEAD}{text}"):
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
    with rejection(f"PartitionError: {HEAD}{MISSING}"):
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
