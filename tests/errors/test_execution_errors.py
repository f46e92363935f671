"""The full texts of what the executor of units side by side finds."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import refusals, rejection

import offcut as oc
from offcut.backends.gpu.executor import Limits, execute

RING = """program ring
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

REFUSED = refusals(
    r"""
no wait
given RING.replace('      wait full\n', '')
execute: cannot run ring: async
  at       `tile m in 2*w +: 2` on warp 1
  because  it reads S[0, 2], which `tile m in 0 +: 4  @by(load)  @async` on load writes, and nothing orders the two
  help     arrive at a token behind the first, wait for it before the second

no arrival
given RING.replace('    arrive full\n', '')
execute: cannot run ring: standstill
  at       `wait empty where k >= 2` on load
  because  load waits at `wait empty where k >= 2` for token 0: 0 of 2 arrivals of warp; warp 0 waits at `wait full` for token 0: 0 of 1 arrivals of load; warp 1 waits at `wait full` for token 0: 0 of 1 arrivals of load

too few arrivals
given RING.replace('count 2', 'count 3')
execute: cannot run ring: standstill
  at       `wait empty where k >= 2` on load
  because  load waits at `wait empty where k >= 2` for token 0: 2 of 3 arrivals of warp; warp 0 waits at `wait full` for token 2: 0 of 1 arrivals of load; warp 1 waits at `wait full` for token 2: 0 of 1 arrivals of load

room for one
given RING.replace('count 1 room 2', 'count 1 room 1')
execute: cannot run ring: phase
  at       `arrive full` on load
  because  it is for token 1, and the phase of token 0 may not have ended: full has room for 1

no barrier
given MEETING.replace('    barrier warp\n', '')
execute: cannot run meeting: race
  at       `tile m in 2*w +: 2` on warp 1 of block 0
  because  it reads S[0, 1], which `tile m in 2*w +: 2` on warp 0 of block 0 writes, and nothing orders the two
  help     barrier warp, between them

a column too far
given MEETING.replace('A[b, m]', 'A[b, m + 1]')
execute: cannot run meeting: bounds
  at       `tile m in 2*w +: 2` on warp 1 of block 0
  because  [0, 4] is outside A of shape (3, 4): it runs at n = 3, b = 0, w = 1, m = 3

a column that nobody writes
given MEETING.replace('tile m in 2*w +: 2\n        C', 'tile m in 2*w +: 1\n        C')
execute: cannot run meeting: unwritten
  at       output C: float32[n, 4]
  because  nobody writes C[0, 1]

no room
given MEETING.replace('in shared', 'in shared depth 16000')
execute: cannot run meeting: room
  at       alloc S[b +: 1, 0 +: 4] in shared depth 16000
  because  its windows take 256000 bytes of shared memory, and there are 232448
  help     a depth below 16000""",
    globals(),
)


@pytest.mark.parametrize("what", REFUSED)
def test_a_fault_names_finder_statement_and_agents(what: str) -> None:
    text, expected = REFUSED[what]
    with rejection(f"ExecutionFault: {expected}"):
        execute(oc.parse(text), {"A": np.ones((3, 4), "float32")}, limits=Limits(), seed=4)


@pytest.mark.parametrize("text", [RING, MEETING])
def test_without_the_fault_it_runs(text: str) -> None:
    array = np.arange(12, dtype="float32").reshape(3, 4)
    for seed in range(4):
        (found,) = execute(oc.parse(text), {"A": array}, limits=Limits(), seed=seed).values()
        np.testing.assert_array_equal(found, oc.parse(text).run({"A": array}))
