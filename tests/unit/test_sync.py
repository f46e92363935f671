"""Synchronization of units: what the pass finds, and what `check` accepts of a text, held to agents that run adversarially.

The executor (`tests/executor.py`) shares nothing with the pass. What `check` accepts has no race and no standstill there;
each planted fault is refused by `check`, or does no harm in any run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import product
from random import Random

import pytest
from conftest import slow
from executor import fault_of

import offcut as oc
from offcut import parse
from offcut.core.program import Program, Stmt, Sync, walk
from offcut.core.traversal import map_blocks
from offcut.polyhedral.sync import (
    Agents,
    Ends,
    Unit,
    check,
    synchronized,
)
from offcut.polyhedral.sync.cases import join_cases

GPU = Agents(
    (
        Unit("load", ends=Ends.TOKEN, fence="async_shared"),
        Unit("warpgroup", ends=Ends.GROUP, lanes=True),
        Unit("warp", ends=Ends.GROUP),
        Unit("store", ends=Ends.GROUP, engine=True, fence="async_shared"),
        Unit("block"),
    ),
    default="block",
)
QUEUES = Agents(
    (Unit("load"), Unit("compute"), Unit("store")),
    default="compute",
    queues=frozenset(
        [("load", "compute"), ("compute", "load"), ("compute", "store"), ("store", "compute")]
    ),
    room=4,
    blocks=True,
)
THREADS = Agents((Unit("thread", fixed=False),), default="thread")

RING = """program ring
size tiles in 0:1000
size turns in 0:1000
input A: float32[tiles, turns, 4, 4]
local S: float32[tiles, turns, 4, 4]
local acc: float32[tiles, 4]
output C: float32[tiles, 4]
for t in 0:tiles
  alloc acc[t +: 1, 0 +: 4] in registers
    for g in 0:2  @warpgroup
      tile m in 2*g +: 2
        acc[t, m] = 0.0
    for r in 0:turns
      for s in 0:4
        alloc S[t +: 1, r +: 1, s +: 1, 0 +: 4] in shared depth 4
          tile m in 0 +: 4  @by(load)  @async
            S[t, r, s, m] = A[t, r, s, m]
          for g in 0:2  @warpgroup
            tile m in 2*g +: 2
              acc[t, m] += S[t, r, s, m]
    for g in 0:2  @warpgroup
      tile m in 2*g +: 2
        C[t, m] = acc[t, m]
"""
CLUSTER = """program cluster
size n in 0:1000
input A: float32[n, 8]
input W: float32[n, 2]
local As: float32[n, 8]
local Ws: float32[n, 2]
output C: float32[8, 2]
for c in 0:2  @block
  for g in 0:2  @warpgroup
    tile m in 4*c + 2*g +: 2, j in 0 +: 2
      C[m, j] = 0.0
  for k in 0:n
    alloc As[k +: 1, 4*c +: 4] in shared depth 2
      alloc Ws[k +: 1, 0 +: 2] in shared depth 2
        tile m in 4*c +: 4  @by(load)  @async
          As[k, m] = A[k, m]
        tile j in 0 +: 2  @by(load)  @async  @multicast(c)
          Ws[k, j] = W[k, j]
        for g in 0:2  @warpgroup
          tile m in 4*c + 2*g +: 2, j in 0 +: 2
            C[m, j] += As[k, m] * Ws[k, j]
"""
COPIES = """program copies
size n in 0:1000
input A: float32[n, 4]
local R: float32[2, 4]
output C: float32[n, 4]
for w in 0:1  @warp
  if n >= 1
    tile m in 0 +: 4  @async
      R[0, m] = A[0, m]
  for k in 0:n
    if k + 1 < n
      tile m in 0 +: 4  @async
        R[(k + 1) % 2, m] = A[k + 1, m]
    tile m in 0 +: 4
      C[k, m] = R[k % 2, m]
"""
EPILOGUE = """program epilogue
size n in 0:1000
input A: float32[n, 4]
local Cs: float32[n, 4]
output C: float32[n, 4]
for g in 0:2  @warpgroup
  for j in 0:n
    alloc Cs[j +: 1, 2*g +: 2] in shared depth 2
      tile m in 2*g +: 2
        Cs[j, m] = A[j, m]
      tile m in 2*g +: 2  @by(store)  @async
        C[j, m] = Cs[j, m]
"""
WARPS = """program warps
size n in 0:1000
input A: float32[n, 4]
local S: float32[n, 4]
output C: float32[n, 4]
for k in 0:n
  alloc S[k +: 1, 0 +: 4] in shared
    for w in 0:2  @warp
      tile m in 2*w +: 2
        S[k, m] = A[k, m]
    for w in 0:2  @warp
      tile m in 2*w +: 2
        C[k, m] = S[k, 3 - m]
"""
STAGED = """program staged
size n in 0:1000
input A: int8[n, 4]
local A_in: int8[n, 4]
local S: int8[n, 4]
local Y: int8[n, 4]
output C: int8[n, 4]
let t in 0:64 = (n + 15)//16
  let q in 0:17 = n//max(t, 1)
    for i in 0:t
      alloc A_in[q*i +: 2, 0 +: 4] in inputs depth 2
        tile r in q*i +: 2, k in 0 +: 4  @by(load)
          A_in[r, k] = A[r, k]
        alloc S[q*i +: 2, 0 +: 4] in accumulators depth 2
          tile r in q*i +: 2, k in 0 +: 4
            S[r, k] = A_in[r, k]
          alloc Y[q*i +: 2, 0 +: 4] in accumulators inplace S
            tile r in q*i +: 2, k in 0 +: 4
              Y[r, k] = min(S[r, k], 9)
            tile r in q*i +: 2, k in 0 +: 4  @by(store)
              C[r, k] = Y[r, k]
"""
REMAINDERS = """program remainders
size n in 0:1000
input A: int8[n, 4]
output C: int8[n, 4]
{locals}
for i in 0:n // 4
  tile r in 4*i +: 4  @by(load)
    T0[r] = A[r, 0]
  tile r in 4*i +: 4  @by(compute)
    C[r, 0] = T0[r]
for j in 0:2
{cases}
""".format(
    locals="\n".join(f"local T{rest}: int8[n]" for rest in range(4)),
    cases="\n".join(
        f"""\
  if n % 4 == {rest}
    tile r in 0 +: 1  @by(load)
      T{rest}[r] = A[r, j]
    tile r in 0 +: 1
      T{rest}[r] = T{rest}[r] + int8(1)
    tile r in 0 +: 1
      C[n - 1, j] = T{rest}[r]"""
        for rest in range(1, 4)
    ),
)
TWO = """program two
size n in 0:4097
size m in 0:4097
input X: float32[n, m]
local S: float32[m]
output Y: float32[n, m]
for k in 0:2
  for j in 0:m  @thread
    S[j] = 0.0
    for i in 0:n
      S[j] += X[i, j]
  for i in 0:n  @thread
    for j in 0:m
      Y[i, j] = X[i, j] * S[m - 1 - j]
"""

STAGES = """program stages
size t in 0:257
size p in 0:257
input A: float32[t]
local S: float32[t]
output C: float32[t]
for k in 0:min((t + 3)//4, p)
  alloc S[4*k +: min(4, t - 4*k)] in shared depth 2
    tile m in 4*k +: min(4, t - 4*k)  @by(load)  @async
      S[m] = A[m]
    for w in 0:2  @warp
      tile m in 4*k + 2*w +: max(0, min(2, t - 4*k - 2*w))
        C[m] = S[m]
"""

CASES: dict[str, tuple[str, Agents, list[dict[str, int]]]] = {
    "ring": (RING, GPU, [{"tiles": 1, "turns": 2}, {"tiles": 2, "turns": 1}]),
    "cluster": (CLUSTER, GPU, [{"n": n} for n in (1, 3, 5)]),
    "copies": (COPIES, GPU, [{"n": n} for n in (0, 1, 2, 3, 5)]),
    "epilogue": (EPILOGUE, GPU, [{"n": n} for n in (0, 1, 2, 3, 5)]),
    "warps": (WARPS, GPU, [{"n": n} for n in (0, 1, 2, 3)]),
    "remainders": (REMAINDERS, QUEUES, [{"n": n} for n in (0, 1, 3, 4, 6, 9)]),
    "staged": (STAGED, QUEUES, [{"n": n} for n in (0, 1, 15, 32, 47)]),
    "stages": (STAGES, GPU, [{"t": t, "p": p} for t, p in product((0, 1, 4, 9, 13), (0, 1, 3, 4))]),
    "two": (TWO, THREADS, [{"n": n, "m": m} for n, m in product((0, 1, 3), (0, 1, 4))]),
}


@cache
def made(name: str) -> Program:
    text, agents, _ = CASES[name]
    return synchronized(parse(text), agents)


def lines_of(program: Program, *words: str) -> list[str]:
    lines = (line.strip() for line in str(program).splitlines())
    return [line for line in lines if line.startswith(words)]


SYNC = ("wait", "arrive", "barrier", "fence", "token")


def planted(program: Program) -> Iterator[tuple[str, Program]]:
    """Programs with one fault each in their synchronization, and what it is."""
    lines = str(program).splitlines()
    for at, line in enumerate(lines):
        if not line.strip().startswith(SYNC) and " depth " not in line:
            continue
        changed: dict[str, list[str]] = {}
        if line.startswith("token"):
            for word in ("count", "room"):
                number = int(line.split(f"{word} ")[1].split()[0])
                for other in (number - 1, number + 1) if word == "count" else (number - 1,):
                    text = line.replace(f"{word} {number}", f"{word} {other}")
                    changed[f"{word} {other}"] = [*lines[:at], text, *lines[at + 1 :]]
        elif " depth " in line:
            depth = int(line.split(" depth ")[1].split()[0])
            text = line.replace(f"depth {depth}", f"depth {depth - 1}")
            changed["depth"] = [*lines[:at], text, *lines[at + 1 :]]
        else:
            changed["removed"] = [*lines[:at], *lines[at + 1 :]]
            changed["doubled"] = [*lines[: at + 1], *lines[at:]]
            for name in (token.name for token in program.tokens):
                if f" {name}" in line:
                    for other in program.tokens:
                        if other.name != name:
                            text = line.replace(f" {name}", f" {other.name}")
                            changed["renamed"] = [*lines[:at], text, *lines[at + 1 :]]
        for what, text in changed.items():
            try:
                yield f"{line.strip()}: {what}", parse("\n".join(text))
            except oc.ParseError:
                continue
    yield from moved(program)


def moved(program: Program) -> Iterator[tuple[str, Program]]:
    """Programs in which a statement of synchronization stands before the one before it."""
    for number in range(sum(1 for _ in walk(program))):
        count = -1

        def swapped(body: tuple[Stmt, ...], number: int = number) -> tuple[Stmt, ...]:
            nonlocal count
            found: list[Stmt] = []
            for at, stmt in enumerate(body):
                count += 1
                here = count
                inside = map_blocks(stmt, swapped)
                other = body[at - 1] if at else None
                moves = here == number and other is not None and other != stmt
                if moves and (isinstance(stmt, Sync) or isinstance(other, Sync)):
                    found.insert(len(found) - 1, inside)
                else:
                    found.append(inside)
            return tuple(found)

        body = swapped(program.body)
        if body != program.body:
            yield f"statement {number} before the one before it", replace(program, body=body)


def assert_refused_or_harmless(
    program: Program, agents: Agents, sizes: Sequence[Mapping[str, int]], seeds: Sequence[int]
) -> tuple[int, int]:
    """How many planted faults `check` refuses, and how many do no harm."""
    refused = harmless = 0
    for what, broken in planted(program):
        try:
            check(broken, agents)
        except oc.PartitionError:
            refused += 1
            continue
        for at in sizes:
            assert fault_of(broken, agents, at, seeds) is None, f"{what}\n{broken}"
        harmless += 1
    return refused, harmless


@pytest.mark.every(2)
@pytest.mark.parametrize("name", CASES)
def test_what_the_pass_puts_in_is_enough_however_agents_run(name: str) -> None:
    _, agents, sizes = CASES[name]
    program = made(name)
    assert parse(str(program)) == program
    check(program, agents)
    for at in sizes:
        assert fault_of(program, agents, at, range(3)) is None


@pytest.mark.parametrize(
    "name", ["copies", "epilogue", "warps", "two", *map(slow, ("ring", "cluster"))]
)
def test_a_planted_fault_is_refused_or_does_no_harm(name: str) -> None:
    _, agents, sizes = CASES[name]
    refused, harmless = assert_refused_or_harmless(made(name), agents, sizes, range(6))
    assert refused > harmless, (refused, harmless)


# What waits for what: a ring from its second turn on, a copy to a cluster for the readers of all its blocks, a loop that
# ends by the least of two sizes, groups of short loops, and one lane that stores what all have written behind a fence.
LINES = {
    "ring": (
        "token warpgroup_to_load: warpgroup -> load count 2 room 4",
        "token load_to_warpgroup: load -> warpgroup count 1 room 4",
        "wait warpgroup_to_load where t + r - 1 >= 0",
        "arrive load_to_warpgroup",
        "wait load_to_warpgroup",
        "arrive warpgroup_to_load",
    ),
    "cluster": (
        "token warpgroup_to_load: warpgroup -> load count 4 room 2",
        "token load_to_warpgroup: load -> warpgroup count 1 room 2",
        "wait warpgroup_to_load where k - 2 >= 0",
        "arrive load_to_warpgroup",
        "wait load_to_warpgroup",
        "arrive warpgroup_to_load",
    ),
    "stages": (
        "token load_to_warp: load -> warp count 1 room 2",
        "token warp_to_load: warp -> load count 2 room 2",
        "wait warp_to_load where k - 2 >= 0",
        "arrive load_to_warp",
        "wait load_to_warp",
        "arrive warp_to_load",
    ),
    "copies": ("wait group 0 where k - n + 1 == 0", "wait group 1 where n - k - 2 >= 0"),
    "epilogue": (
        "wait group 1 where j - 2 >= 0  @by(store)",
        "barrier warpgroup",
        "fence async_shared",
        "barrier warpgroup",
    ),
    "warps": ("barrier warp",) * 2,
    "two": ("barrier thread",) * 2,
}


@pytest.mark.parametrize("name", LINES)
def test_no_more_is_put_in_than_is_needed(name: str) -> None:
    assert lines_of(made(name), *SYNC) == [*LINES[name]]


@pytest.mark.parametrize(
    ("name", "old", "new", "because"),
    [
        ("ring", "count 1 room 4", "count 1 room 3", "more than 3 may be under way at once"),
        ("cluster", "count 4", "count 2", "4 arrivals of warpgroup make each one"),
    ],
)
def test_a_token_of_less_is_refused(name: str, old: str, new: str, because: str) -> None:
    less = parse(str(made(name)).replace(old, new))
    with pytest.raises(oc.PartitionError, match=because):
        check(less, GPU)
    if name == "cluster":
        assert fault_of(less, GPU, {"n": 5}, range(6)) is not None


@pytest.mark.parametrize(("waits", "arrives"), [("", ""), (" where i >= 1", " where i < n - 1")])
def test_a_wait_may_be_for_a_later_arrival_than_it_needs(waits: str, arrives: str) -> None:
    text = f"""program late
size n in 0:1000
input A: int8[n]
local T: int8[n]
output C: int8[n]
token full: load -> compute count 1 room 4
for i in 0:n
  tile r in i +: 1  @by(load)
    T[r] = A[r]
  arrive full{arrives}
  wait full{waits}
  tile r in i +: 1
    C[r] = where(r >= 1, T[r - 1], int8(0))
"""
    program = parse(text)
    check(program, QUEUES)
    for n in (0, 1, 2, 5):
        assert fault_of(program, QUEUES, {"n": n}, range(3)) is None
    spare = text.replace("where(r >= 1, T[r - 1], int8(0))", "A[r]")
    with pytest.raises(
        oc.PartitionError, match=r"without them all is ordered|nothing behind it needs"
    ):
        check(parse(spare), QUEUES)
    raced = text.replace("T[r - 1]", "T[n - r]").replace("r >= 1", "r >= 1 and r < n")
    with pytest.raises(oc.PartitionError):
        check(parse(raced), QUEUES)


def test_cases_of_the_sizes_that_are_alike_are_asked_about_once() -> None:
    text = CASES["remainders"][0]
    for program in (parse(text), made("remainders")):
        cases = join_cases(program)
        assert [str(cases.program).count(f"T{rest}[") for rest in (1, 2, 3)] == [4, 0, 0]
        assert "if n % 4 >= 1 and n % 4 <= 3" in str(cases.program)
    others = (
        text.replace("n % 4 == 3", "n % 4 == 2"),  # may run beside the second one
        text.replace("C[n - 1, j] = T3[r]", "C[n - 1, j] = T3[r] + T1[r]"),  # T1 is no case's own
    )
    for other in others:
        assert "n % 4 <= 3" not in str(join_cases(parse(other)).program)


@pytest.mark.parametrize(
    ("old", "new", "because"),
    [
        (
            "Ws[k, j] = W[k, j]",
            "Ws[k, j] = W[k + c, j]",
            "what it copies to Ws, or where, is not what",
        ),
        ("alloc Ws[k +: 1,", "alloc Ws[k + c - c +: 1,", ""),
        ("Ws[k, j] = W[k, j]", "Ws[k, j] = W[k, (j + c) % 2]", "at c = 1, k = 0 does"),
        ("Ws[k, j] = W[k, j]", "Ws[k, (j + c) % 2] = W[k, (j + c) % 2]", ""),
        ("Ws[k, j] = W[k, j]", "Ws[k, j] = W[k, j] * float32(c)", "one copy cannot be both"),
        (
            "j in 0 +: 2  @by(load)",
            "j in c +: 1  @by(load)",
            "with n = 2, what it copies to Ws, or where",
        ),
        ("for k in 0:n", "for k in 0:n - c", "not for each c"),
        ("@multicast(c)", "@multicast(k)", "no loop k around is bound to a unit"),
    ],
)
def test_a_copy_to_a_cluster_is_the_same_copy_for_all_its_blocks(
    old: str, new: str, because: str
) -> None:
    program = parse(CLUSTER.replace(old, new).replace("size n in 0:", "size n in 2:"))
    if not because:
        synchronized(program, GPU)
        return
    with pytest.raises(oc.PartitionError, match=because):
        synchronized(program, GPU)


PLACES = """program places
size n in 1:4097
input X: float32[n]
local S: float32[n]
output Y: float32[3, n]
{before}for k in 0:3
{head}  for i in 0:n  @thread
    S[i] = X[i]
{middle}  for i in 0:n  @thread
    Y[k, i] = S[n - 1 - i]
{end}{behind}"""
PLACED = {
    ("middle", "end"): "",
    ("head", "middle"): "",
    ("middle",): "touches",
    ("head", "end"): "touches",
    ("middle", "behind"): "touches",
    ("before", "middle", "end"): "without it",
    ("head", "middle", "end"): "without it",
    ("middle", "end", "behind"): "without it",
}


@pytest.mark.parametrize("places", PLACED)
def test_a_barrier_of_threads_is_right_wherever_it_orders_the_pair(places: tuple[str, ...]) -> None:
    fields = {
        name: f"{'  ' * (name in ('head', 'middle', 'end'))}barrier thread\n" * (name in places)
        for name in ("before", "head", "middle", "end", "behind")
    }
    program, because = parse(PLACES.format(**fields)), PLACED[places]
    faults = [fault_of(program, THREADS, {"n": n}, range(6)) for n in (1, 2, 4)]
    assert (because == "touches") == any(faults)
    if not because:
        check(program, THREADS)
        return
    with pytest.raises(oc.PartitionError, match=because):
        check(program, THREADS)


def test_a_loop_of_threads_whose_iterations_touch_nothing_of_each_other_needs_no_barrier() -> None:
    rows = "program rows\nsize n in 1:9\noutput C: float32[n, n]\nfor k in 0:n\n  for i in 0:n  @thread\n    C[k, i] = 1.0\n"
    assert not lines_of(synchronized(parse(rows), THREADS), "barrier")
    with pytest.raises(oc.PartitionError, match="without it all is ordered"):
        check(parse(rows + "  barrier thread\n"), THREADS)


THREE = """program three
size n in 0:9
local a: int8[1]
local b: int8[1]
{tokens}for i in 0:n
  tile at in 0 +: 1  @by(load)
    a[0] = 1
  tile at in 0 +: 1  @by(compute)
    b[0] = a[0]
  tile at in 0 +: 1  @by(store)
    b[0] = a[0] + b[0]
"""


@pytest.mark.parametrize("blocks", [True, False])
def test_a_token_whose_pairs_others_order_is_spare(blocks: bool) -> None:
    agents = Agents((Unit("load"), Unit("compute"), Unit("store")), "compute", None, 4, blocks)
    program = synchronized(parse(THREE.format(tokens="")), agents)
    ends = [(token.source, token.target) for token in program.tokens]
    assert ends == [("load", "compute"), ("compute", "store"), ("store", "load")]
    check(program, agents)
    text = str(program).replace("for i in", "token past: load -> store\nfor i in", 1)
    text = text.replace("  arrive load_to", "  arrive past\n  arrive load_to", 1)
    text = text.replace("  wait compute_to_store", "  wait past\n  wait compute_to_store", 1)
    with pytest.raises(oc.PartitionError) as refused:
        check(parse(text), agents)
    assert (refused.value.at, refused.value.because) == (
        "`arrive past`, `wait past`",
        "without them all is ordered, too",
    )
    for n in (0, 1, 2, 4):
        assert fault_of(program, agents, {"n": n}, range(3)) is None


def shifted(first: str, second: str) -> Program:
    return parse(f"""program shifted
size n in 0:9
input A: float32[8]
local S: float32[8]
output C: float32[8]
for w in {first}  @warp
  tile m in 0 +: 1
    S[w - {first[0]}] = A[w]
for w in {second}  @warp
  tile m in 0 +: 1
    C[w - {second[0]}] = S[w - {second[0]}]
""")


@pytest.mark.parametrize(
    ("first", "second", "fixed", "barriers"),
    [
        ("0:2", "0:2", True, 0),
        ("1:3", "1:3", True, 0),
        ("0:2", "2:4", True, 1),
        ("0:2", "0:2", False, 1),
    ],
)
def test_an_agent_is_the_value_of_the_iterator_where_it_is_fixed(
    first: str, second: str, fixed: bool, barriers: int
) -> None:
    agents = Agents((Unit("warp", fixed=fixed),), "warp")
    program = shifted(first, second)
    assert len(lines_of(synchronized(program, agents), "barrier")) == barriers
    assert (fault_of(program, agents, {"n": 1}, range(12)) is not None) == bool(barriers)


def test_groups_of_a_prologue_are_waited_for_by_cases() -> None:
    text = COPIES.replace("R: float32[2, 4]", "R: float32[4, 4]").replace(
        "  if n >= 1\n    tile m in 0 +: 4  @async\n      R[0, m] = A[0, m]\n",
        "  for k in 0:min(n, 3)\n    tile m in 0 +: 4  @async\n      R[k, m] = A[k, m]\n",
    )
    program = synchronized(parse(text.replace("k + 1", "k + 3").replace("% 2", "% 4")), GPU)
    assert [line.split(" where")[0] for line in lines_of(program, "wait")] == [
        f"wait group {pending}" for pending in range(4)
    ]
    for n in (0, 1, 2, 3, 4, 5, 9):
        assert fault_of(program, GPU, {"n": n}, range(3)) is None


def test_products_that_end_an_iteration_later_are_waited_for_one_behind() -> None:
    units = [replace(one, in_order=one.name == "warpgroup") for one in GPU.units]
    agents = replace(GPU, units=tuple(units))
    check(parse(DELAYED), agents)
    for old, new, sizes in (
        ("wait group 1", "wait group 2", 5),
        ("  wait group 0\n", "", 1),
        ("where k >= 1", "where k >= 0", 5),
        ("depth 4", "depth 3", 4),
    ):
        broken = parse(DELAYED.replace(old, new))
        with pytest.raises(oc.PartitionError, match=f"with n = {sizes}, it touches what"):
            check(broken, agents)
        assert fault_of(broken, agents, {"n": sizes + 2}, range(6)) is not None


DELAYED = """program delayed
size n in 0:1000
input A: float32[n, 4]
local S: float32[n, 4]
local acc: float32[4]
output C: float32[4]
token empty: warpgroup -> load count 2 room 4
token full: load -> warpgroup count 1 room 4
for g in 0:2  @warpgroup
  tile m in 2*g +: 2
    acc[m] = 0.0
for k in 0:n
  alloc S[k +: 1, 0 +: 4] in shared depth 4
    wait empty where k >= 4
    tile m in 0 +: 4  @by(load)  @async
      S[k, m] = A[k, m]
    arrive full
    for g in 0:2  @warpgroup
      wait full
      tile m in 2*g +: 2  @async
        acc[m] += S[k, m]
      wait group 1
      arrive empty where k >= 1
for g in 0:2  @warpgroup
  wait group 0
  tile m in 2*g +: 2
    C[m] = acc[m]
"""


def test_iterations_that_need_each_other_are_no_agents() -> None:
    program = parse(WARPS.replace("S[k, m] = A[k, m]", "S[k, 0] = A[k, m]"))
    with pytest.raises(oc.PartitionError, match="both are in one run of a loop @warp"):
        synchronized(program, GPU)


class Drawn:
    """Random programs of three units over two arrays, and of producers and consumers around windows."""

    def __init__(self, seed: int) -> None:
        self.rng, self.names = Random(seed), 0
        self.lines: list[str] = []

    def name(self) -> str:
        self.names += 1
        return f"v{self.names}"

    def queues(self) -> str:
        """Tiles of load, compute and store on arrays of two parts, in loops and under conditions."""
        self.block("", [], 3)
        head = "program drawn\nsize n in 0:7\nsize m in 0:7\nlocal a: int8[2]\nlocal b: int8[2]"
        return "\n".join([head, *self.lines])

    def block(self, indent: str, loops: list[str], depth: int) -> None:
        for _ in range(self.rng.randint(1, 3)):
            draw = self.rng.random()
            if depth and draw < 0.45 and len(self.lines) < 14:
                name = self.name()
                ends = ["n", "m", "2", "(n + 1)//2"]
                ends += [f"min(2, m - {loops[-1]})", f"n - {loops[-1]}"] if loops else []
                self.lines.append(f"{indent}for {name} in 0:{self.rng.choice(ends)}")
                self.block(indent + "  ", [*loops, name], depth - 1)
            elif loops and draw < 0.55:
                self.lines.append(f"{indent}if {loops[-1]} >= 1")
                self.tile(indent + "  ", loops)
            else:
                self.tile(indent, loops)

    def tile(self, indent: str, loops: list[str]) -> None:
        unit = self.rng.choice(["load", "compute", "store"])
        own = {"load": "a", "store": "b", "compute": self.rng.choice("ab")}[unit]
        read = {"load": "a", "store": "b", "compute": self.rng.choice("ab")}[unit]
        at = [self.rng.choice(["0", "1", *(f"{one} % 2" for one in loops)]) for _ in range(2)]
        self.lines.append(f"{indent}tile at in 0 +: 1  @by({unit})")
        value = f"{read}[{at[1]}]" if self.rng.random() < 0.6 else "1"
        self.lines.append(f"{indent}  {own}[{at[0]}] = {value}")

    def staged(self) -> str:
        """Windows that a load unit fills and two warpgroups read, in loops, and slices that an engine stores."""
        depth, slices = self.rng.choice([1, 2, 3]), self.rng.choice([1, 2])
        several, twice = self.rng.random() < 0.4, self.rng.random() < 0.4
        outer = ["for t in 0:2"] if several else []
        pad = "  " * len(outer)
        body = [
            "for k in 0:n",
            f"  alloc S[k +: 1, 0 +: 4] in shared depth {depth}",
            f"    tile i in 0 +: {2 if twice else 4}  @by(load)  @async",
            "      S[k, i] = A[k, i]",
            *(
                ["    tile i in 2 +: 2  @by(load)  @async", "      S[k, i] = B[k, i]"]
                if twice
                else []
            ),
            "    for g in 0:2  @warpgroup",
            f"      alloc Z[k +: 1, 2*g +: 2] in shared depth {slices}",
            "        tile i in 2*g +: 2",
            "          Z[k, i] = S[k, 3 - i]",
            "        tile i in 2*g +: 2  @by(store)  @async",
            "          C[k, i] = Z[k, i]",
        ]
        head = [
            "program drawn",
            "size n in 0:9",
            "input A: float32[n, 4]",
            "input B: float32[n, 4]",
        ]
        head += ["local S: float32[n, 4]", "local Z: float32[n, 4]", "output C: float32[n, 4]"]
        return "\n".join([*head, *outer, *(pad + line for line in body)])


def hold(text: str, agents: Agents, sizes: Sequence[Mapping[str, int]], plant: int) -> bool:
    """Whether a program is synchronized; what is, is right at all sizes, and so are some planted faults of it."""
    try:
        program = synchronized(parse(text), agents)
    except oc.PartitionError:
        return False
    check(program, agents)
    assert parse(str(program)) == program
    for at in sizes:
        assert fault_of(program, agents, at, range(3)) is None, f"{at}\n{program}"
    for number, (what, broken) in enumerate(planted(program)):
        if number % plant == 0:
            try:
                check(broken, agents)
            except oc.PartitionError:
                continue
            for at in sizes:
                assert fault_of(broken, agents, at, range(3)) is None, f"{what}\n{broken}"
    return True


@pytest.mark.parametrize("seeds", [range(3), slow(range(3, 20))], ids=["few", "many"])
def test_tokens_of_random_programs_are_right_and_planted_faults_are_refused(seeds: range) -> None:
    sizes = [{"n": n, "m": m} for n, m in product((0, 1, 2, 3, 5), (0, 1, 2))]
    made = [hold(Drawn(seed).queues(), QUEUES, sizes, 5) for seed in seeds]
    assert sum(made) >= len(made) * 3 // 4


@pytest.mark.parametrize("seeds", [range(1, 2), slow(range(2, 12))], ids=["few", "many"])
def test_windows_of_random_programs_are_right_and_planted_faults_are_refused(seeds: range) -> None:
    sizes = [{"n": n} for n in (0, 1, 3, 5)]
    made = [hold(Drawn(seed).staged(), GPU, sizes, 11) for seed in seeds]
    assert sum(made) >= len(made) * 3 // 4
